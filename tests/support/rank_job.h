/* SPDX-License-Identifier: Apache-2.0 */
// rank_job.h: the ranks of a test. They are threads of this process. In a program under mpirun each process is one rank and
// sees only itself. With ZOFF_TEST_COMM=nccl the threads join over NCCL. Each process computes for itself the data that is
// equal on all ranks.
#ifndef ZOFF_RANK_JOB_H
#define ZOFF_RANK_JOB_H

#include "oracle.h"
#include "small_engine.h"

extern "C" {
#include "comm.h"
}

#include <functional>

namespace zoff_test
{
// The communicator of a program under mpirun, which all tests borrow; NULL elsewhere.
zoff_comm *&program_comm();

class post_office;

class rank_job
{
  public:
    explicit rank_job(unsigned size_, double timeout_seconds = 60);
    // The ranks are threads that send messages through an office.
    rank_job(unsigned size_, post_office &office);
    ~rank_job();
    static bool is_over_nccl();
    // Let the communicator access the devices, so that exchanges do not pass through the host. That works for emulated devices,
    // because their memory belongs to this process. NCCL always accesses its devices.
    void reach_devices();
    // Let a rank of this process leave before the others do.
    void leave(unsigned rank);
    rank_job(const rank_job &) = delete;

    // True if a job of this size is possible: a program under mpirun has a fixed size.
    static bool is_possible(unsigned size) { return !program_comm() || zoff_comm_size(program_comm()) == size; }

    bool is_here(unsigned rank) const;

    // Call a function for all ranks at once, each on its own thread.
    void on_each(const std::function<void(unsigned rank)> &run) const;

    zoff_comm *comm_of(unsigned rank) const;

    const unsigned size;

  private:
    struct member {
        zoff_comm *ranks;
        unsigned rank;
    };
    std::vector<member> here;
    bool reaches = false; // by reach_devices()
};

// A trainer on each rank, all with the same weights, each with an engine. Also the reference: the same tensors, unsharded, with
// the gradients of all ranks.
class rank_trainers
{
  public:
    rank_trainers(const rank_job &job_, unsigned seed, const std::function<void(trainer &)> &fill);
    // Destroys the engines of all ranks at the same time, as a job does. A rank that destroys its engine alone waits a while
    // for the others.
    ~rank_trainers();

    // Give each rank its own device, whose streams are delayed by the seed.
    void use_devices(unsigned seed);

    void seal(const std::string &text, uint64_t chunk_elements, uint64_t host_bytes = 0);

    // The gradients of one micro-batch on every rank. Some slices are left out by some ranks, some by all. The reference adds
    // them in the documented order: by micro-batch, then by rank, with zeros for missing ones.
    void backward(unsigned round, float scale, double leave_out = 0);

    // The update with the sum so far.
    reference::result step(const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double clip);

    // Discard the sum so far.
    void forget();

    const rank_job &job;
    trainer want;
    std::vector<std::unique_ptr<trainer>> trainers;
    std::vector<std::unique_ptr<test_device>> devices; // empty: weights and gradients are on the host
    std::vector<engine> engines;
    std::vector<double> weights; // weight of each rank's next micro-batch
    zoff_dtype wire = ZOFF_DTYPE_DEFAULT;
    bool sums = false;  // the sum over ranks is not divided by their number
    bool exact = false; // gradients are added by the rule "exact"

  private:
    void add(unsigned rank, size_t i, size_t slice, bool is_there, bool first);

    std::vector<std::vector<oracle_bins>> bins; // sums by tensor
    bool is_first = true;
    double weight_sum = 0;
};
} // namespace zoff_test

#endif
