// rank_job.h: the ranks of a test. They are threads of this process; or, in a program under mpirun, each process is one of them
// and sees only itself. With ZOFF_TEST_COMM=nccl threads join over NCCL. What is the same on all ranks is computed by each
// process for itself.
#ifndef ZOFF_RANK_JOB_H
#define ZOFF_RANK_JOB_H

#include "small_engine.h"

extern "C" {
#include "comm.h"
}

#include <functional>

namespace zoff_test
{
// The communicator of a program under mpirun, which all tests borrow; NULL elsewhere.
zoff_comm *&program_comm();

class rank_job
{
  public:
    explicit rank_job(unsigned size_, double timeout_seconds = 60);
    ~rank_job();
    static bool is_over_nccl();
    // What ranks exchange stays on their devices, where these are emulated: their memory is this process'. NCCL reaches its
    // own.
    void reach_devices();
    // A rank of this process leaves before the others do.
    void leave(unsigned rank);
    rank_job(const rank_job &) = delete;

    // Whether such a job can be had: a program under mpirun has one size.
    static bool is_possible(unsigned size) { return !program_comm() || zoff_comm_size(program_comm()) == size; }

    bool is_here(unsigned rank) const;

    // Every rank at a time, each on a thread of its own.
    void on_each(const std::function<void(unsigned rank)> &run) const;

    zoff_comm *comm_of(unsigned rank) const;

    const unsigned size;

  private:
    struct member {
        zoff_comm *ranks;
        unsigned rank;
    };
    std::vector<member> here;
};

// A trainer on each rank, all with the same weights, and an engine over it. Beside them the reference: the same tensors, whole,
// with the gradients of all ranks.
class rank_trainers
{
  public:
    rank_trainers(const rank_job &job_, unsigned seed, const std::function<void(trainer &)> &fill);
    // Ranks destroy their engines at the same time, as those of a job do: one that does so alone waits for the others for a
    // while.
    ~rank_trainers();

    // Each rank has a device of its own, whose streams dawdle by the seed.
    void use_devices(unsigned seed);

    void seal(const std::string &text, uint64_t chunk_elements, uint64_t host_bytes = 0);

    // The gradients of one micro-batch on every rank; some slices are left out by some ranks, some by all. The reference adds
    // them up by the rule: micro-batch by micro-batch, rank by rank, zeros for what is not there.
    void backward(unsigned round, float scale, double leave_out = 0);

    // The update with what was added up.
    reference::result step(const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double clip);

    // What was added up is not wanted.
    void forget();

    const rank_job &job;
    trainer want;
    std::vector<std::unique_ptr<trainer>> trainers;
    std::vector<std::unique_ptr<test_device>> devices; // none: weights and gradients are on the host
    std::vector<engine> engines;
    std::vector<double> weights; // of the next micro-batch of each rank
    zoff_dtype wire = ZOFF_DTYPE_DEFAULT;

  private:
    void add(unsigned rank, size_t i, size_t slice, bool is_there, bool first);

    bool is_first = true;
    double weight_sum = 0;
};
} // namespace zoff_test

#endif
