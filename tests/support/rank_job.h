// rank_job.h: the ranks of a test. They are threads of this process; or, in a program under mpirun, each process is one of them
// and sees only itself. With ZOFF_TEST_COMM=nccl threads join over NCCL. What is the same on all ranks is computed by each
// process for itself.
#ifndef ZOFF_RANK_JOB_H
#define ZOFF_RANK_JOB_H

#include "nccl_group.h"
#include "small_engine.h"

extern "C" {
#include "comm.h"
}

#include <functional>
#include <thread>

namespace zoff_test
{
// The communicator of a program under mpirun, which all tests borrow; NULL elsewhere.
inline zoff_comm *&program_comm()
{
    static zoff_comm *of_program = nullptr;
    return of_program;
}

class rank_job
{
  public:
    explicit rank_job(unsigned size_, double timeout_seconds = 60) : size(size_)
    {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.timeout_seconds = timeout_seconds;
        if (program_comm()) {
            here.push_back({program_comm(), zoff_comm_rank(program_comm())});
            return;
        }
        std::vector<zoff_comm *> made(size);
        if (is_over_nccl()) {
            EXPECT_EQ("", open_nccl_group(timeout_seconds, made));
            for (zoff_comm *one : made) {
                if (one)
                    one->timeout_seconds = timeout_seconds; // joining had more, on a machine that is busy
            }
        } else
            EXPECT_ZOFF_OK(zoff_comm_open_threads(&opts, size, made.data()));
        for (unsigned rank = 0; rank < size; rank++)
            here.push_back({made[rank], rank});
    }
    ~rank_job()
    {
        std::vector<zoff_comm *> open;
        for (auto &r : here)
            open.push_back(r.ranks);
        if (!program_comm())
            close_group(open);
    }
    static bool is_over_nccl()
    {
        const char *name = getenv("ZOFF_TEST_COMM");
        return name && strcmp(name, "nccl") == 0;
    }
    // What ranks exchange stays on their devices, where these are emulated: their memory is this process'. NCCL reaches its
    // own.
    void reach_devices()
    {
        for (auto &r : here)
            r.ranks->reaches = r.ranks->reaches ? r.ranks->reaches : "emulated";
    }
    // A rank of this process leaves before the others do.
    void leave(unsigned rank)
    {
        zoff_comm_close(here[rank].ranks);
        here[rank].ranks = nullptr;
    }
    rank_job(const rank_job &) = delete;

    // Whether such a job can be had: a program under mpirun has one size.
    static bool is_possible(unsigned size) { return !program_comm() || zoff_comm_size(program_comm()) == size; }

    bool is_here(unsigned rank) const
    {
        for (const auto &r : here) {
            if (r.rank == rank)
                return true;
        }
        return false;
    }

    // Every rank at a time, each on a thread of its own.
    void on_each(const std::function<void(unsigned rank)> &run) const
    {
        if (here.size() == 1)
            return run(here[0].rank);
        std::vector<std::thread> threads;
        for (const auto &r : here)
            threads.emplace_back([&run, rank = r.rank] { run(rank); });
        for (auto &thread : threads)
            thread.join();
    }

    zoff_comm *comm_of(unsigned rank) const
    {
        for (const auto &r : here) {
            if (r.rank == rank)
                return r.ranks;
        }
        return nullptr;
    }

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
    rank_trainers(const rank_job &job_, unsigned seed, const std::function<void(trainer &)> &fill) : job(job_), want(seed)
    {
        fill(want);
        for (unsigned rank = 0; rank < job.size; rank++) {
            trainers.push_back(std::make_unique<trainer>(seed));
            fill(*trainers.back());
        }
        engines.resize(job.size);
        weights.assign(job.size, 1.0);
    }

    // Each rank has a device of its own, whose streams dawdle by the seed.
    void use_devices(unsigned seed)
    {
        for (unsigned rank = 0; rank < job.size; rank++) {
            devices.push_back(
                std::make_unique<test_device>(seed * 100 + rank, job.comm_of(rank) ? job.comm_of(rank)->device : 0));
            trainers[rank]->put_on(devices[rank].get());
        }
    }

    void seal(const std::string &text, uint64_t chunk_elements, uint64_t host_bytes = 0)
    {
        job.on_each([&](unsigned rank) {
            engines[rank] = make_engine(*trainers[rank], text, chunk_elements, host_bytes, job.comm_of(rank),
                                        devices.empty() ? nullptr : devices[rank]->accel);
            EXPECT_ZOFF_OK(zoff_engine_seal(engines[rank].get()));
        });
    }

    // The gradients of one micro-batch on every rank; some slices are left out by some ranks, some by all. The reference adds
    // them up by the rule: micro-batch by micro-batch, rank by rank, zeros for what is not there.
    void backward(unsigned round, float scale, double leave_out = 0)
    {
        const bool first = is_first;
        is_first = false;
        std::vector<std::vector<bool>> none;
        for (unsigned rank = 0; rank < job.size; rank++) {
            trainer &t = *trainers[rank];
            t.random.seed(round * 1000 + rank);
            weight_sum += weights[rank];
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                    t.tensors[i].present[slice] = false; // the trainer's own sum is of this micro-batch alone
                    const bool is_there = t.random() % 1000 >= leave_out * 1000;
                    if (is_there)
                        t.backward(i, slice, scale);
                    add(rank, i, slice, is_there, first && rank == 0);
                }
            }
        }
    }

    // The update with what was added up.
    reference::result step(const std::vector<zoff_adam_hyper> &groups, int64_t t, double clip)
    {
        const reference::result r = reference::step(want.tensors, groups, t, 1.0, weight_sum, clip);
        forget();
        return r;
    }

    // What was added up is not wanted.
    void forget()
    {
        want.next_step();
        is_first = true;
        weight_sum = 0;
    }

    const rank_job &job;
    trainer want;
    std::vector<std::unique_ptr<trainer>> trainers;
    std::vector<std::unique_ptr<test_device>> devices; // none: weights and gradients are on the host
    std::vector<engine> engines;
    std::vector<double> weights; // of the next micro-batch of each rank
    zoff_dtype wire = ZOFF_DTYPE_DEFAULT;

  private:
    void add(unsigned rank, size_t i, size_t slice, bool is_there, bool first)
    {
        reference::tensor &sum = want.tensors[i];
        const reference::tensor &mine = trainers[rank]->tensors[i];
        for (size_t k = slice * sum.count; k < (slice + 1) * sum.count; k++) {
            float g = is_there ? mine.sum[k] : 0.0f;
            if (wire != ZOFF_DTYPE_DEFAULT)
                g = reference::rounded(wire, g);
            sum.sum[k] = first ? (float)weights[rank] * g : fmaf((float)weights[rank], g, sum.sum[k]);
        }
        sum.present[slice] = sum.present[slice] || is_there;
    }

    bool is_first = true;
    double weight_sum = 0;
};
} // namespace zoff_test

#endif
