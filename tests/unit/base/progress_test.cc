/* SPDX-License-Identifier: Apache-2.0 */
// progress_test.cc: the loop that waits: which poller it sleeps in, whose errors end it, and what counts as standing still.
#include "zoff_test.h"

#include <chrono>
#include <functional>

extern "C" {
#include "progress.h"
}

namespace
{
// A poller made of lambdas, in a list as long as it lives.
struct source {
    std::function<zoff_status()> pump = [] { return ZOFF_OK; };
    std::function<zoff_status()> park = [] { return ZOFF_OK; };
    bool busy = false;
    unsigned pumped = 0, parked = 0;
    double waited = 0;
    zoff_progress *list;
    zoff_poller poller = {};

    source(zoff_progress *p, bool parks, double timeout_seconds = -1) : list(p)
    {
        poller.ctx = this;
        poller.waited = &waited;
        poller.timeout_seconds = timeout_seconds;
        poller.pump = [](void *ctx) {
            ((source *)ctx)->pumped++;
            return ((source *)ctx)->pump();
        };
        poller.is_busy = [](void *ctx) { return ((source *)ctx)->busy; };
        poller.overdue = [](void *, double seconds) {
            return zoff_base_status_fail(ZOFF_ERR_DEVICE, "stood for %g s", seconds);
        };
        if (parks)
            poller.park = [](void *ctx) {
                ((source *)ctx)->parked++;
                return ((source *)ctx)->park();
            };
        zoff_base_progress_add(list, &poller);
    }
    ~source() { zoff_base_progress_remove(list, &poller); }
};

zoff_status wait_for(zoff_progress *p, source *on, const std::function<zoff_status()> &until)
{
    return zoff_base_progress_wait(
        p, on ? &on->poller : nullptr, [](void *ctx) { return (*(const std::function<zoff_status()> *)ctx)(); },
        (void *)&until);
}

// PENDING for this many polls, then done.
std::function<zoff_status()> times(unsigned n)
{
    return [n]() mutable { return n-- > 1 ? ZOFF_PENDING : ZOFF_OK; };
}

TEST(Progress, CompletedWorkIsNotWaitedFor)
{
    zoff_progress p = {};
    source files(&p, true);
    EXPECT_ZOFF_OK(wait_for(&p, &files, times(1)));
    EXPECT_EQ(0u, files.parked + files.pumped);
    EXPECT_EQ(ZOFF_ERR_IO, wait_for(&p, &files, [] { return ZOFF_ERR_IO; }));
}

TEST(Progress, OneThatCanParksAndAllOthersArePumped)
{
    zoff_progress p = {};
    source ranks(&p, false), files(&p, true);
    files.busy = true;
    EXPECT_ZOFF_OK(wait_for(&p, &files, times(4)));
    EXPECT_EQ(3u, files.parked);
    EXPECT_EQ(3u, files.pumped);
    EXPECT_EQ(3u, ranks.pumped);
    EXPECT_GT(files.waited, 0);
    EXPECT_EQ(0, ranks.waited);
    EXPECT_ZOFF_OK(wait_for(&p, &ranks, times(4)));
    EXPECT_EQ(3u, files.parked);
    EXPECT_GT(ranks.waited, 0);
}

// A poller that cannot sleep must be polled while it is busy.
TEST(Progress, ABusyPollerIsChosen)
{
    zoff_progress p = {};
    source idle(&p, true), files(&p, true), ranks(&p, false);
    files.busy = true;
    EXPECT_ZOFF_OK(wait_for(&p, nullptr, times(2)));
    EXPECT_EQ(0u, idle.parked);
    EXPECT_EQ(1u, files.parked);
    ranks.busy = true;
    EXPECT_ZOFF_OK(wait_for(&p, nullptr, times(2)));
    EXPECT_EQ(1u, files.parked);
    EXPECT_GT(ranks.waited, 0);
    files.busy = ranks.busy = false;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "nothing is under way", wait_for(&p, nullptr, times(2)));
}

TEST(Progress, AnErrorOfAnotherIsKeptUntilItIsTaken)
{
    zoff_progress p = {};
    source ranks(&p, false), files(&p, true);
    unsigned calls = 0;
    files.pump = [&] { return zoff_base_status_fail(ZOFF_ERR_IO, "disk error %u", ++calls); };
    EXPECT_ZOFF_OK(wait_for(&p, &ranks, times(4)));
    EXPECT_EQ(3u, calls);
    zoff_base_status_fail(ZOFF_ERR_INVALID, "something else");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "disk error 1", zoff_base_progress_take(&files.poller));
    EXPECT_ZOFF_OK(zoff_base_progress_take(&files.poller));
}

TEST(Progress, AnErrorOfWhatIsWaitedForEndsTheWait)
{
    zoff_progress p = {};
    source files(&p, true);
    files.busy = true;
    files.pump = [] { return zoff_base_status_fail(ZOFF_ERR_IO, "read error"); };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "read error", wait_for(&p, &files, [] { return ZOFF_PENDING; }));
    EXPECT_ZOFF_OK(zoff_base_progress_take(&files.poller)); // the poller's error was returned already
    files.pump = [] { return ZOFF_OK; };
    files.park = [] { return zoff_base_status_fail(ZOFF_ERR_IO, "the disk does not answer"); };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "does not answer", wait_for(&p, &files, [] { return ZOFF_PENDING; }));
    zoff_base_progress_keep(&files.poller, ZOFF_ERR_IO);
    zoff_base_progress_forget(&files.poller);
    EXPECT_ZOFF_OK(zoff_base_progress_take(&files.poller));
}

TEST(Progress, MovementIsPolledAgainAtOnce)
{
    zoff_progress p = {};
    source ranks(&p, false);
    unsigned turns = 0;
    EXPECT_ZOFF_OK(wait_for(&p, &ranks, [&] {
        zoff_base_progress_moved(&p);
        return ++turns < 5 ? ZOFF_PENDING : ZOFF_OK;
    }));
    EXPECT_EQ(5u, turns);
    EXPECT_EQ(0u, ranks.pumped);
}

// A file without transfers has nothing to wait for: others may free what is waited for. Where nobody can, the error names the
// waiter.
TEST(Progress, AnIdleFileIsNotWaitedFor)
{
    zoff_progress p = {};
    source files(&p, true), others(&p, true);
    others.busy = true;
    EXPECT_ZOFF_OK(wait_for(&p, &files, times(3)));
    EXPECT_EQ(0u, files.parked);
    EXPECT_EQ(2u, others.parked);
    others.busy = false;
    const auto fetch_chunk = [](void *) { return ZOFF_PENDING; };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "fetch_chunk() waits while nothing is under way",
                      zoff_base_progress_wait(&p, &files.poller, fetch_chunk, nullptr));
}

// Movement that is reported and not made would let a wait spin for ever, and no deadline would end it.
TEST(Progress, MoreMovementThanThereCanBeIsAnError)
{
    zoff_progress p = {};
    source files(&p, true, 0.05);
    files.busy = true;
    p.most = 1000;
    unsigned turns = 0;
    EXPECT_ZOFF_OK(wait_for(&p, &files, [&] {
        zoff_base_progress_moved(&p);
        return turns++ < 1000 ? ZOFF_PENDING : ZOFF_OK;
    }));
    const auto pretend = [](void *ctx) {
        zoff_base_progress_moved((zoff_progress *)ctx);
        return ZOFF_PENDING;
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "pretend() has reported progress more than 1000 times",
                      zoff_base_progress_wait(&p, &files.poller, pretend, &p));
    EXPECT_EQ(0u, p.depth);
    p.most = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "pretend() has reported progress more than 1000000 times",
                      zoff_base_progress_wait(&p, &files.poller, pretend, &p));
}

// A wait for another poller ends as well. A poller that makes progress may take any time.
TEST(Progress, StandingStillIsAnError)
{
    const double limit = 0.05;
    zoff_progress p = {};
    source ranks(&p, false), device(&p, false, limit);
    const auto from = std::chrono::steady_clock::now();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "stood for 0.05 s", wait_for(&p, &device, [] { return ZOFF_PENDING; }));
    EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), limit);
    EXPECT_TRUE(device.poller.is_overdue);
    device.busy = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "stood for", wait_for(&p, &ranks, [] { return ZOFF_PENDING; }));
    bool moves = false;
    EXPECT_ZOFF_OK(wait_for(&p, &ranks, [&] {
        moves = !moves;
        if (moves)
            zoff_base_progress_moved(&p);
        return ranks.waited > 4 * limit ? ZOFF_OK : ZOFF_PENDING;
    }));
    EXPECT_FALSE(device.poller.is_overdue);
    device.busy = false;
    const double before = ranks.waited;
    EXPECT_ZOFF_OK(wait_for(&p, &ranks, [&] { return ranks.waited > before + 2 * limit ? ZOFF_OK : ZOFF_PENDING; }));
}

// A wait inside a wait does not extend the device's deadline.
TEST(Progress, AWaitInsideOfAWaitIsNoMove)
{
    zoff_progress p = {};
    source ranks(&p, false), device(&p, false, 0.05);
    device.busy = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "stood for", wait_for(&p, &ranks, [&] {
                          EXPECT_ZOFF_OK(wait_for(&p, &ranks, times(1)));
                          return ZOFF_PENDING;
                      }));
}

TEST(Progress, OneThatIsRemovedIsNotAsked)
{
    zoff_progress p = {};
    source ranks(&p, false);
    {
        source files(&p, true);
        zoff_base_progress_remove(&p, &files.poller);
        zoff_base_progress_pump(&p);
        EXPECT_EQ(0u, files.pumped);
    }
    EXPECT_EQ(1u, ranks.pumped);
    EXPECT_EQ(&ranks.poller, p.first);
    EXPECT_EQ(nullptr, ranks.poller.next);
}
} // namespace
