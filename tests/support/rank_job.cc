/* SPDX-License-Identifier: Apache-2.0 */
// rank_job.cc: implements rank_job.h.
#include "rank_job.h"
#include "nccl_group.h"
#include "post_office.h"

#include <thread>

namespace zoff_test
{
zoff_comm *&program_comm()
{
    static zoff_comm *of_program = nullptr;
    return of_program;
}

rank_job::rank_job(unsigned size_, double timeout_seconds) : size(size_)
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
                one->timeout_seconds = timeout_seconds; // joining had a longer deadline, for busy machines
        }
    } else
        EXPECT_ZOFF_OK(zoff_comm_open_threads(&opts, size, made.data()));
    for (unsigned rank = 0; rank < size; rank++)
        here.push_back({made[rank], rank});
}

rank_job::rank_job(unsigned size_, post_office &office) : size(size_)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 60;
    for (unsigned rank = 0; rank < size; rank++) {
        const zoff_comm_transport transport = office.transport(rank);
        zoff_comm *made = nullptr;
        EXPECT_ZOFF_OK(zoff_comm_open_transport(&opts, &transport, &made));
        here.push_back({made, rank});
    }
}

rank_job::~rank_job()
{
    std::vector<zoff_comm *> open;
    for (auto &r : here)
        open.push_back(r.ranks);
    if (program_comm()) // the next test borrows it
        program_comm()->node = 0;
    if (program_comm() && reaches)
        program_comm()->reaches = nullptr;
    if (!program_comm())
        close_group(open);
}

bool rank_job::is_over_nccl()
{
    const char *name = getenv("ZOFF_TEST_COMM");
    return name && strcmp(name, "nccl") == 0;
}

void rank_job::reach_devices()
{
    for (auto &r : here) {
        reaches = reaches || !r.ranks->reaches;
        r.ranks->reaches = r.ranks->reaches ? r.ranks->reaches : "emulated";
    }
}

void rank_job::leave(unsigned rank)
{
    zoff_comm_close(here[rank].ranks);
    here[rank].ranks = nullptr;
}

bool rank_job::is_here(unsigned rank) const
{
    for (const auto &r : here) {
        if (r.rank == rank)
            return true;
    }
    return false;
}

void rank_job::on_each(const std::function<void(unsigned rank)> &run) const
{
    if (here.size() == 1)
        return run(here[0].rank);
    std::vector<std::thread> threads;
    for (const auto &r : here)
        threads.emplace_back([&run, rank = r.rank] { run(rank); });
    for (auto &thread : threads)
        thread.join();
}

zoff_comm *rank_job::comm_of(unsigned rank) const
{
    for (const auto &r : here) {
        if (r.rank == rank)
            return r.ranks;
    }
    return nullptr;
}

rank_trainers::rank_trainers(const rank_job &job_, unsigned seed, const std::function<void(trainer &)> &fill)
    : job(job_), want(seed)
{
    fill(want);
    for (unsigned rank = 0; rank < job.size; rank++) {
        trainers.push_back(std::make_unique<trainer>(seed));
        fill(*trainers.back());
    }
    engines.resize(job.size);
    weights.assign(job.size, 1.0);
}

rank_trainers::~rank_trainers()
{
    job.on_each([this](unsigned rank) { engines[rank].reset(); });
}

void rank_trainers::use_devices(unsigned seed)
{
    for (unsigned rank = 0; rank < job.size; rank++) {
        devices.push_back(std::make_unique<test_device>(seed * 100 + rank, job.comm_of(rank) ? job.comm_of(rank)->device : 0));
        trainers[rank]->put_on(devices[rank].get());
    }
}

void rank_trainers::seal(const std::string &text, uint64_t chunk_elements, uint64_t host_bytes)
{
    job.on_each([&](unsigned rank) {
        engines[rank] = make_engine(*trainers[rank], text, chunk_elements, host_bytes, job.comm_of(rank),
                                    devices.empty() ? nullptr : devices[rank]->accel);
        EXPECT_ZOFF_OK(zoff_engine_seal(engines[rank].get()));
    });
}

void rank_trainers::backward(unsigned round, float scale, double leave_out)
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
                t.tensors[i].present[slice] = false; // the trainer's own sum holds only this micro-batch
                const bool is_there = t.random() % 1000 >= leave_out * 1000;
                if (is_there)
                    t.backward(i, slice, scale);
                add(rank, i, slice, is_there, first && rank == 0);
            }
        }
    }
}

reference::result rank_trainers::step(const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double clip)
{
    const reference::result r = reference::step(want.tensors, groups, t, 1.0, weight_sum / (sums ? job.size : 1), clip);
    forget();
    return r;
}

void rank_trainers::forget()
{
    want.next_step();
    is_first = true;
    weight_sum = 0;
}

void rank_trainers::add(unsigned rank, size_t i, size_t slice, bool is_there, bool first)
{
    reference::tensor &sum = want.tensors[i];
    const reference::tensor &mine = trainers[rank]->tensors[i];
    bins.resize(want.tensors.size());
    bins[i].resize(sum.sum.size(), {0, 0, 1});
    for (size_t k = slice * sum.count; k < (slice + 1) * sum.count; k++) {
        float g = is_there ? mine.sum[k] : 0.0f;
        if (wire != ZOFF_DTYPE_DEFAULT)
            g = reference::rounded(wire, g);
        bins[i][k] = first ? oracle_bins{0, 0, 1} : bins[i][k];
        oracle_bins_add(&bins[i][k], g, (float)weights[rank]);
        sum.sum[k] = exact   ? oracle_bins_value(bins[i][k])
                     : first ? (float)weights[rank] * g
                             : fmaf((float)weights[rank], g, sum.sum[k]);
    }
    sum.present[slice] = sum.present[slice] || is_there;
}
} // namespace zoff_test
