/* SPDX-License-Identifier: Apache-2.0 */
// ranks.h: groups of ranks for the communicator contract. Ranks are threads of this process. With ZOFF_RANKS_MPI they are the
// processes of an MPI job: each runs the same tests as one rank of each group, over MPI and over UCX. With ZOFF_RANKS_NCCL the
// threads join over NCCL.
#ifndef ZOFF_TESTS_RANKS_H
#define ZOFF_TESTS_RANKS_H

#include "zoff_test.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#ifdef ZOFF_RANKS_MPI
#include "mpi_meeting.h"
#else
#include "nccl_group.h"
#include "post_office.h"
#endif

extern "C" {
#include "comm.h"
}

struct kind {
    const char *how;     // how the group is opened: see open()
    const char *backend; // the name that zoff_comm_get_info() gives
    unsigned size;       // ranks of the group; 0: all ranks of the job
};

inline zoff_comm_opts opts_of(double timeout_seconds, const char *backend = nullptr)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.backend = backend;
    opts.timeout_seconds = timeout_seconds;
    return opts;
}

class Comm : public testing::TestWithParam<kind>
{
  protected:
    void SetUp() override { open(20); }

#ifdef ZOFF_RANKS_MPI
    ~Comm() override
    {
        comms.clear();
        if (part != MPI_COMM_NULL)
            MPI_Comm_free(&part);
    }

    void open(double timeout_seconds)
    {
        const std::string how = GetParam().how;
        zoff_comm_opts opts = opts_of(timeout_seconds, how == "plugin" ? "auto" : how == "ucx" ? "ucx" : nullptr);
        zoff_comm *made = nullptr;
        comms.clear();
        if (part == MPI_COMM_NULL) {
            int world = 0;
            MPI_Comm_rank(MPI_COMM_WORLD, &world);
            // Each group has half of the ranks, in reverse order.
            if (how == "half")
                MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &part);
            else
                MPI_Comm_dup(MPI_COMM_WORLD, &part);
        }
        if (how == "ucx")
            zoff_test::meet_at_free_port();
        if (opts.backend)
            ASSERT_ZOFF_OK(zoff_comm_open(&opts, &made));
        else
            ASSERT_ZOFF_OK(zoff_comm_from_mpi(part, &opts, &made));
        comms.resize(zoff_comm_size(made));
        comms[zoff_comm_rank(made)].reset(made);
        size = (unsigned)comms.size();
    }

    void on_each(const std::function<void(zoff_comm *, unsigned)> &run)
    {
        for (unsigned rank = 0; rank < size; rank++) {
            if (comms[rank])
                run(comms[rank].get(), rank);
        }
        meet(); // wait before the next test begins
    }

    // A barrier over all ranks of the group that does not use zoff.
    void meet()
    {
        MPI_Barrier(part);
    }

    MPI_Comm part = MPI_COMM_NULL;
#else
    ~Comm() override
    {
        close();
    } // all ranks leave before the office is destroyed

    // Over NCCL the ranks that leave wait for one another.
    void close()
    {
        std::vector<zoff_comm *> open;
        for (auto &comm : comms)
            open.push_back(comm.release());
        comms.clear();
        zoff_test::close_group(open);
    }

    void open(double timeout_seconds)
    {
        const kind &k = GetParam();
        const std::string how = k.how;
        zoff_comm_opts opts = opts_of(timeout_seconds, how == "messages" ? nullptr : k.how);
        std::vector<zoff_comm *> made(k.size);
        close();
        size = k.size;
        if (how == "nccl") {
            const std::string words = zoff_test::open_nccl_group(timeout_seconds, made);
            if (words.find("no communicator \"nccl\" here") != std::string::npos ||
                words.find("was asked for") != std::string::npos)
                GTEST_SKIP() << words; // there is no GPU, or fewer GPUs than ranks
            ASSERT_EQ("", words);
            for (zoff_comm *comm : made)
                comm->timeout_seconds = timeout_seconds; // joining had a longer deadline, for busy machines
        } else if (how == "messages") {
            office = std::make_unique<zoff_test::post_office>(size);
            for (unsigned rank = 0; rank < size; rank++) {
                // A large piece is sent as many messages, the last one shorter.
                const zoff_comm_transport t = office->transport(rank, 5000);
                ASSERT_ZOFF_OK(zoff_comm_open_transport(&opts, &t, &made[rank]));
            }
        } else if (size > 1) {
            ASSERT_ZOFF_OK(zoff_comm_open_threads(&opts, size, made.data()));
        } else {
            ASSERT_ZOFF_OK(zoff_comm_open(&opts, &made[0]));
        }
        for (zoff_comm *comm : made)
            comms.emplace_back(comm);
    }

    // Call a function for all ranks at once, each on its own thread.
    void on_each(const std::function<void(zoff_comm *, unsigned)> &run)
    {
        std::vector<std::thread> threads;
        for (unsigned rank = 0; rank < size; rank++)
            threads.emplace_back([&, rank] { run(comms[rank].get(), rank); });
        for (auto &thread : threads)
            thread.join();
    }

    void meet()
    {
        std::unique_lock<std::mutex> lock(mutex);
        const unsigned round = come / size;
        if (++come % size == 0)
            all_here.notify_all();
        EXPECT_TRUE(all_here.wait_for(lock, std::chrono::seconds(60), [&] { return come / size != round; }))
            << "some ranks have not arrived";
    }

    std::unique_ptr<zoff_test::post_office> office;
    std::mutex mutex;
    std::condition_variable all_here;
    unsigned come = 0;
#endif

    // True if the other ranks learn which rank failed, and why.
    bool tells_who() const
    {
        return std::string(GetParam().backend) != "nccl";
    }

    unsigned size = 0;
    std::vector<zoff_test::comm> comms;
};

// Tests of ranks that misbehave; they need at least two ranks.
class Several : public Comm
{
  protected:
    void SetUp() override
    {
        Comm::SetUp();
        if (!IsSkipped() && size < 2)
            GTEST_SKIP() << "one rank has nobody to wait for";
    }
};

inline zoff_status run_barrier(zoff_comm *comm)
{
    zoff_comm_call call = {};
    call.kind = ZOFF_COMM_BARRIER;
    zoff_comm_work work = {};
    const zoff_status status = zoff_comm_start(comm, &call, &work);
    return status < 0 ? status : zoff_comm_wait(comm, &work);
}

inline zoff_comm_info info_of(const zoff_comm *comm)
{
    zoff_comm_info info = {};
    info.struct_size = sizeof info;
    EXPECT_ZOFF_OK(zoff_comm_get_info(comm, &info));
    return info;
}

#endif
