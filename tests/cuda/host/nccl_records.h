/* SPDX-License-Identifier: Apache-2.0 */
// nccl_records.h: what the ranks of an NCCL communicator on threads share.
#ifndef ZOFF_TESTS_NCCL_RECORDS_H
#define ZOFF_TESTS_NCCL_RECORDS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

enum { LOOKS = 3 }; // queries after which a call that was accepted has ended

// A message that was sent and not received yet. The receiver copies the data.
struct message {
    ncclComm *from;
    const void *data;
    size_t bytes;
    bool *is_taken;
    std::vector<char> on_the_way; // the data, if the network has it: the sender does not wait
    std::chrono::steady_clock::time_point arrives;
};

// Inputs of a sum; freed when the last rank has taken its piece.
struct sum {
    std::vector<const float *> in; // inputs by rank; NULL: the rank has not arrived, or has left
    std::vector<size_t> counts;
    int taken = 0;
};

// Ranks with the same id.
struct group {
    std::condition_variable changed;
    int size, joined = 0, finalized = 0;
    int exchanging = 0, adding = 0;                           // number of ranks that have started their first one
    std::map<int, sum> sums;                                  // sums by number
    std::map<int, std::map<int, std::set<int>>> splits;       // ranks that have called a split, by number and color
    std::map<std::pair<int, int>, std::deque<message>> boxes; // messages by sender and receiver
};
struct batch;

struct ncclComm {
    std::shared_ptr<group> ranks;
    std::string id;
    int rank, device, looks = LOOKS, splits = 0, sums = 0, color = 0;
    bool is_aborted = false, is_finalizing = false, exchanges = false, adds = false;
    int in_streams = 0; // functions that have not ended
    ncclResult_t state = ncclSuccess;
    ncclComm **made = nullptr; // where a split in progress stores the new communicator
    ncclComm *child = nullptr;
    std::deque<batch *> late; // batches that are not in the stream yet
};

struct transfer {
    bool sends;
    void *data;
    size_t bytes;
    int peer;
};

// The calls since ncclGroupStart() on one communicator. Without transfers it is a sum.
struct batch {
    ncclComm *comm;
    cudaStream_t stream;
    std::vector<transfer> transfers;
    const float *in = nullptr;
    float *out = nullptr;
    size_t count = 0;
};

#endif
