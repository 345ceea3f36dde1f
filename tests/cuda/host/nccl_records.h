// nccl_records.h: what the ranks of an NCCL communicator on threads share.
#ifndef ZOFF_TESTS_NCCL_RECORDS_H
#define ZOFF_TESTS_NCCL_RECORDS_H

#include <nccl.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace
{
// A message that was sent and not received yet. The receiver copies the data.
struct message {
    ncclComm *from;
    const void *data;
    size_t bytes;
    bool *is_taken;
};

// Inputs of a sum; freed when the last rank has taken its piece.
struct sum {
    std::vector<const float *> in; // by rank; NULL: the rank has not arrived, or has left
    std::vector<size_t> counts;
    int taken = 0;
};

// Ranks with the same id.
struct group {
    std::condition_variable changed;
    int size, joined = 0, finalized = 0;
    int exchanging = 0, adding = 0;                           // number of ranks that have started their first one
    std::map<int, sum> sums;                                  // by number
    std::map<int, std::map<int, std::set<int>>> splits;       // by number, by color: the ranks that have called it
    std::map<std::pair<int, int>, std::deque<message>> boxes; // by sender and receiver
};
} // namespace

#endif
