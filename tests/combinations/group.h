/* SPDX-License-Identifier: Apache-2.0 */
// group.h: the ranks of a cell and their devices. They are reused for the next cell, because joining takes longer than a cell.
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
    // Run a cell. The result is "<hash>/<hash>", one hash per rank. Hashes are equal when weights, states, norms and clip
    // factors are equal. If the library refuses the cell: "refused: <message>". After any other failure: "error: ...".
    std::string run(const cell &c, const std::string &folder);

  private:
    std::string join(const cell &c);
    void leave();

    std::string memory, wire; // memory and wire of the open group
    std::vector<zoff_comm *> comms;
    std::vector<std::unique_ptr<place>> places;
};
} // namespace combinations
#endif
