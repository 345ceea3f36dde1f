/* SPDX-License-Identifier: Apache-2.0 */
// ranks_stop_test.cc: one rank requests a stop, at any moment of a step. All ranks are told in the same step, and the run ends
// on all of them.
#include "comm_fault.h"
#include "covering.h"
#include "rank_job.h"

#include <cmath>
#include <errno.h>
#include <signal.h>

#include <atomic>
#include <tuple>

extern "C" {
#include "try.h"
}

using namespace zoff_test;

namespace
{
enum kind { USUAL, SKIPPED, UNSEEN, IN_FILES }; // UNSEEN: no gradient is measured
const char *const KINDS[] = {"usual", "skipped", "unseen", "in_files"};

std::string text_of(unsigned stage, unsigned accumulation, kind k, const std::string &folder)
{
    const std::string tier = "\"device\": \"nvme\", \"buffer_count\": 3, \"nvme_path\": \"" + folder + "\"";
    return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0" +
           (k == UNSEEN ? ", \"zoff\": {\"skip_nonfinite\": false}" : "") +
           ", \"zero_optimization\": {\"reduce_bucket_size\": 4096, \"stage\": " + std::to_string(stage) +
           ", \"offload_optimizer\": {" + (k == IN_FILES ? tier : "\"device\": \"cpu\"") + "}}}";
}

// The ranks of a job, each with an engine of two parameters.
class stopping
{
  public:
    stopping(unsigned world, const std::string &text) : job(world), all(job, 3, add_tensors) { all.seal(text, 2048); }

    static void add_tensors(trainer &t)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32);
    }
    zoff_engine *engine_of(unsigned rank) const { return all.engines[rank].get(); }

    // One micro-step of a rank.
    zoff_step_info step(unsigned rank, bool is_poisoned = false)
    {
        trainer &t = *all.trainers[rank];
        t.next_step();
        t.backward_all(0.1f);
        if (is_poisoned)
            trainer::put(t.grad(1), ZOFF_F32, t.place(1, 5), NAN);
        zoff_step_info info = new_info();
        EXPECT_ZOFF_OK(zoff_step(engine_of(rank), nullptr, &info));
        return info;
    }

    log_catcher log;
    rank_job job;
    rank_trainers all;
};

// ---- each rank in turn, before each micro-step ----

using cell = std::tuple<unsigned, unsigned, unsigned, kind>; // world, stage, accumulation, kind

std::string name_of(const cell &c)
{
    return std::string(KINDS[std::get<3>(c)]) + "_stage" + std::to_string(std::get<1>(c)) + "_micro" +
           std::to_string(std::get<2>(c)) + "_world" + std::to_string(std::get<0>(c)) + "_";
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Requests/RanksStop.", name_of,
        [](const cell &c) {
            return covering<cell>::values{{"world", std::to_string(std::get<0>(c))},
                                          {"stage", std::to_string(std::get<1>(c))},
                                          {"accumulation", std::to_string(std::get<2>(c))},
                                          {"kind", KINDS[std::get<3>(c)]}};
        },
        [](covering<cell> &cells) {
            for (unsigned world : {1u, 2u, 3u, 4u}) {
                for (unsigned stage : {0u, 1u, 2u, 3u}) {
                    for (unsigned accumulation : {1u, 3u}) {
                        for (kind k : {USUAL, SKIPPED, UNSEEN, IN_FILES})
                            cells.add({world, stage, accumulation, k});
                    }
                }
            }
        });
    return all;
}

class RanksStop : public testing::TestWithParam<cell>
{
};
INSTANTIATE_TEST_SUITE_P(Requests, RanksStop, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name_of(one.param); });

TEST(RanksStopCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

// The request comes in the second of three updates.
TEST_P(RanksStop, AllAreToldByTheUpdateAndEveryStepAfterIt)
{
    const unsigned world = std::get<0>(GetParam()), accumulation = std::get<2>(GetParam());
    const kind k = std::get<3>(GetParam());
    if (!rank_job::is_possible(world))
        GTEST_SKIP() << "the job has another size";
    scratch_folder folder;
    for (unsigned who = 0; who < world; who++) {
        const unsigned when = accumulation + who % accumulation, told = 2 * accumulation - 1, poisoned = when;
        stopping s(world, text_of(std::get<1>(GetParam()), accumulation, k, folder.path));
        if (k == SKIPPED && s.job.is_here(0))
            s.log.expect("step 2 skipped");
        s.job.on_each([&](unsigned rank) {
            for (unsigned micro = 0; micro < 3 * accumulation; micro++) {
                if (rank == who && micro == when)
                    zoff_engine_request_stop(s.engine_of(rank));
                const zoff_step_info info = s.step(rank, k == SKIPPED && rank == world - 1 && micro == poisoned);
                EXPECT_EQ(micro >= told, info.stop_requested) << "rank " << rank << " asks " << who << ", micro-step " << micro;
                EXPECT_EQ(k == SKIPPED && micro == told, info.skipped);
            }
        });
    }
}

// ---- from a signal handler ----

thread_local zoff_engine *interrupted; // the engine of this thread's rank

void on_signal(int)
{
    zoff_engine_request_stop(interrupted);
}

class with_handler
{
  public:
    with_handler()
    {
        struct sigaction action = {};
        action.sa_handler = on_signal;
        sigaction(SIGTERM, &action, &before);
    }
    ~with_handler() { sigaction(SIGTERM, &before, nullptr); }

  private:
    struct sigaction before;
};

// Each rank steps until it is told to stop. If the ranks disagreed, one of them would wait for the others until its deadline.
// Rank `who` gets the signal as it starts operation number `at` of its second step. Returns the number of operations.
unsigned stop_in_operation(unsigned world, unsigned stage, unsigned who, unsigned at)
{
    std::atomic<unsigned> operations{0}, first_last{0};
    stopping s(world, text_of(stage, 1, USUAL, ""));
    s.job.on_each([&](unsigned rank) {
        interrupted = s.engine_of(rank);
        passing_comm_fault fault(s.job.comm_of(rank));
        unsigned steps = 0, started = 0;
        fault.before = [&](const zoff_comm_work &) {
            if (rank == who && steps == 1 && started++ == at) {
                errno = EDOM;
                (void)zoff_base_status_fail(ZOFF_ERR_INVALID, "before the signal");
                raise(SIGTERM);
                EXPECT_EQ(EDOM, errno);
                EXPECT_STREQ("before the signal", zoff_last_error());
            }
            return ZOFF_OK;
        };
        while (!s.step(rank).stop_requested && ++steps < 9)
            continue;
        EXPECT_TRUE(steps == 1 || steps == 2) << "step 2, or step 3 where the vote of step 2 was over";
        unsigned none = 0;
        first_last.compare_exchange_strong(none, steps);
        EXPECT_EQ(first_last, steps) << "rank " << rank;
        if (rank == who)
            operations = started;
    });
    return operations;
}

TEST(RanksStopSignal, InEachOperationOfAStep)
{
    const with_handler handler;
    for (unsigned world : {2u, 4u}) {
        if (!rank_job::is_possible(world))
            continue;
        for (unsigned stage : {0u, 2u}) {
            const unsigned who = world - 1;
            unsigned at = 0, count = 1;
            for (; at < count && !testing::Test::HasFailure(); at++)
                count = std::max(count, program_comm() ? 6u : stop_in_operation(world, stage, who, at));
            for (unsigned k = 0; program_comm() && k < 6; k++) // each process has to repeat it equally often
                stop_in_operation(world, stage, who, k);
            EXPECT_LT(4u, count) << "presence, vote and buckets are operations";
        }
    }
}

// A thread of the program may request it at any moment. ThreadSanitizer watches.
TEST(RanksStopThread, RequestsWhileAllRanksStep)
{
    enum { WORLD = 3 };
    if (!rank_job::is_possible(WORLD))
        GTEST_SKIP() << "the job has another size";
    for (unsigned round = 0; round < 5; round++) {
        stopping s(WORLD, text_of(round % 4, 1, USUAL, ""));
        std::atomic<unsigned> steps[WORLD] = {};
        std::thread other([&] {
            while (s.job.is_here(0) && steps[0] < round)
                std::this_thread::yield();
            if (s.job.is_here(0))
                zoff_engine_request_stop(s.engine_of(0));
        });
        s.job.on_each([&](unsigned rank) {
            while (!s.step(rank).stop_requested && !testing::Test::HasFailure())
                steps[rank]++;
        });
        other.join();
        for (unsigned rank = 1; rank < WORLD && !program_comm(); rank++)
            EXPECT_EQ(steps[0], steps[rank]) << "rank " << rank;
    }
}

// ---- steps that fail ----

// Rank 1 cannot start the vote, or what follows it.
void fail_and_retry(unsigned stage, bool after_vote)
{
    SCOPED_TRACE("stage " + std::to_string(stage) + (after_vote ? ", after the vote" : ", the vote"));
    stopping s(2, text_of(stage, 1, USUAL, ""));
    s.job.on_each([&](unsigned rank) {
        passing_comm_fault fault(s.job.comm_of(rank));
        bool has_voted = false, refuses = rank == 1; // all of them, because some are tried again in the step
        fault.before = [&](const zoff_comm_work &work) {
            const bool is_vote = work.call.item.about == ZOFF_COMM_ABOUT_VOTE, fails = after_vote ? has_voted : is_vote;
            has_voted = has_voted || is_vote;
            return refuses && fails ? zoff_base_status_fail(ZOFF_ERR_IO, "the test refuses it") : ZOFF_OK;
        };
        if (rank == 1)
            zoff_engine_request_stop(s.engine_of(rank));
        trainer &t = *s.all.trainers[rank];
        t.backward_all(0.1f);
        zoff_step_info info = new_info();
        const zoff_status status = zoff_step(s.engine_of(rank), nullptr, &info);
        refuses = false;
        if (rank == 1) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the test refuses it", status);
            EXPECT_EQ(after_vote, info.stop_requested) << "as far as the step came";
            info.stop_requested = false;
            EXPECT_ZOFF_OK(zoff_step_retry(s.engine_of(rank), &info));
        } else {
            EXPECT_ZOFF_OK(status);
        }
        EXPECT_TRUE(info.stop_requested);
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
    });
}

TEST(RanksStopFailure, ARetryKeepsTheRequest)
{
    if (program_comm())
        GTEST_SKIP() << "the same with threads";
    for (unsigned stage : {0u, 1u, 3u}) {
        fail_and_retry(stage, false);
        fail_and_retry(stage, true);
    }
}
} // namespace
