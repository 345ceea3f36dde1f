// group.h: the ranks of a cell and their devices. They stay for the next cell, for joining takes longer than a cell does.
#ifndef ZOFF_TESTS_COMBINATIONS_GROUP_H
#define ZOFF_TESTS_COMBINATIONS_GROUP_H
#include "cell.h"
#include "place.h"

#include <zoff/comm.h>

namespace combinations
{
class group
{
  public:
    ~group() { leave(); }
    // What a cell comes to: "<hash>/<hash>", one for each rank, the same for the same weights, states, norms and clip factors;
    // or "refused: <the library's words>". Anything else that goes wrong is "error: ...".
    std::string run(const cell &c, const std::string &folder);

  private:
    std::string join(const cell &c);
    void leave();

    std::string memory, wire; // of those that have joined
    std::vector<zoff_comm *> comms;
    std::vector<std::unique_ptr<place>> places;
};
} // namespace combinations
#endif
