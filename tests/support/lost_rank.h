/* SPDX-License-Identifier: Apache-2.0 */
// lost_rank.h: one rank of a job stops or leaves while the others work. They get an error in time that names it, and can go
// away.
#ifndef ZOFF_LOST_RANK_H
#define ZOFF_LOST_RANK_H

#include "rank_job.h"

#include <atomic>
#include <chrono>
#include <functional>

namespace zoff_test
{
class lost_rank
{
  public:
    lost_rank(rank_job &job_, rank_trainers &all_, unsigned faulty_, bool leaves_)
        : job(job_), all(all_), faulty(faulty_), leaves(leaves_), others((unsigned)all_.trainers.size() - 1)
    {
    }

    bool is(unsigned rank) const { return is_armed && rank == faulty; }

    // The faulty rank calls this in its work, and gives up after it.
    void strike()
    {
        has_struck = true;
        while (!leaves && gone < others)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    // All ranks take two steps, and then one in which the faulty rank strikes. `check` sees what the others say.
    void run(const std::function<zoff_status(unsigned rank)> &take,
             const std::function<void(unsigned rank, const std::string &words)> &check)
    {
        for (int step = 0; step < 2; step++) { // the second one prefetches
            all.backward((unsigned)step, 0.5f);
            job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(take(rank)); });
        }
        if (testing::Test::HasFailure())
            return;
        for (unsigned rank = 0; rank <= others; rank++)
            job.comm_of(rank)->timeout_seconds = DEADLINE;
        is_armed = true;
        job.on_each([&](unsigned rank) {
            if (rank != faulty)
                return survive(rank, take, check);
            (void)take(rank);
            all.engines[rank].reset();
            job.leave(rank);
        });
        EXPECT_TRUE(has_struck) << "the fault did not happen";
        EXPECT_EQ(others, gone);
    }

    // Whether an error names the faulty rank: alone, or with another that a busy machine has kept from coming in time.
    bool is_named(const std::string &words) const
    {
        const std::string who = std::to_string(faulty), of = " of " + std::to_string(others + 1);
        for (const std::string &what : {of + " did not arrive", of + " stopped before it was done",
                                        std::string(" has left the group"), std::string(" has destroyed engine")}) {
            if (words.find("rank " + who + what) != std::string::npos)
                return true;
        }
        const size_t end = words.find(of + " did not arrive"), begin = words.rfind("ranks ", end);
        return end != std::string::npos && begin != std::string::npos &&
               (", " + words.substr(begin + 6, end - begin - 6) + ",").find(", " + who + ",") != std::string::npos;
    }

  private:
    static constexpr double DEADLINE = 1; // seconds

    void survive(unsigned rank, const std::function<zoff_status(unsigned rank)> &take,
                 const std::function<void(unsigned rank, const std::string &words)> &check)
    {
        const auto from = std::chrono::steady_clock::now();
        EXPECT_EQ(ZOFF_ERR_COMM, take(rank)) << zoff_last_error();
        check(rank, zoff_last_error());
        const zoff_status again = zoff_step(all.engines[rank].get(), nullptr, nullptr);
        EXPECT_TRUE(again == ZOFF_ERR_COMM || again == ZOFF_ERR_STATE) << zoff_last_error();
        all.engines[rank].reset();
        EXPECT_GT(10 * DEADLINE + 15, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
        gone++;
        job.leave(rank);
    }

    log_catcher log;
    rank_job &job;
    rank_trainers &all;
    const unsigned faulty;
    const bool leaves;
    const unsigned others;
    std::atomic<bool> is_armed{false}, has_struck{false};
    std::atomic<unsigned> gone{0};
};
} // namespace zoff_test

#endif
