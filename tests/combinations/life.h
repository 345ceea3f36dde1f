/* SPDX-License-Identifier: Apache-2.0 */
// life.h: the training that one rank of a cell does.
#ifndef ZOFF_TESTS_COMBINATIONS_LIFE_H
#define ZOFF_TESTS_COMBINATIONS_LIFE_H
#include "cell.h"
#include "model.h"

namespace combinations
{
class life
{
  public:
    life(const cell &c, const std::string &folder, zoff_comm *comm, unsigned rank, place &where);
    ~life();
    // Takes steps, reads and writes windows of states, pushes and pulls. If files persist, it also reopens the engine.
    std::string run();

  private:
    bool open();
    bool micro_step(unsigned step, unsigned micro);
    bool borrow_weights();
    bool hand_over(size_t tensor, size_t slice, unsigned round);
    bool add_weights();
    bool add_states();
    bool change();
    bool fails(zoff_status status, const char *call);

    const cell &c;
    std::string folder;
    zoff_comm *comm;
    unsigned rank;
    place &where;
    zoff_engine *engine = nullptr;
    void *value[TENSOR_COUNT] = {}, *grad[TENSOR_COUNT] = {};
    std::vector<char> firsts[TENSOR_COUNT]; // the first weights, in host memory
    hash sum;
    std::string words; // the message of the first failure
    bool refused = false;
};
} // namespace combinations
#endif
