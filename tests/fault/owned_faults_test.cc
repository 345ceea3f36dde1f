/* SPDX-License-Identifier: Apache-2.0 */
// owned_faults_test.cc: weights that the engine owns, on a disk that fails. Every fetch that succeeds must lend the right
// weights, and in the end all weights and states must be right.
#include "aio_fault.h"
#include "small_engine.h"

#include <errno.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
std::string text_of(const std::string &folder, const std::string &more, const std::string &zoff)
{
    std::string text = with_offloaded_weights(config_text(folder, 1, ", \"zoff\": {" + zoff + "}"), folder);
    const std::string from = "\"stage3_param_persistence_threshold\": 1000";
    return text.replace(text.find(from), from.size(), more);
}

// Kills the program if a fetch hangs, so that the test suite can go on.
struct watchdog {
    watchdog() { alarm(60); }
    ~watchdog() { alarm(0); }
};

// A chunk whose write failed keeps its slot. With two slots hardly any slot is left for the fetch.
TEST(OwnedFaults, AFetchAfterAWriteThatFailed)
{
    log_catcher log;
    watchdog dog;
    scratch_folder folder;
    trainer t(3);
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    engine e =
        seal_engine(t, text_of(folder.path, "\"stage3_param_persistence_threshold\": 0", "\"io_backend\": \"auto\""), 2048);
    std::vector<uint16_t> weights(9000);
    ASSERT_ZOFF_OK(zoff_param_read(e.get(), 0, 0, 9000, weights.data()));
    {
        aio_fault fault;
        int writes_of_weights = 0;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t bytes) {
            return writes && bytes == 4096 && ++writes_of_weights == 2 ? -ENOSPC : res;
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left", zoff_param_write(e.get(), 0, 0, 9000, weights.data()));
    }
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// Weights in DRAM are fetched in an open step, whose states cannot be written. Each fetch tells it until zoff_step_wait() has.
// Slices that were lent before can be returned, and the step goes on when the disk has room.
TEST(OwnedFaults, AFetchTellsThatTheOpenStepHasFailed)
{
    enum { COUNT = 2000, SLICES = 12 };
    log_catcher log;
    watchdog dog;
    scratch_folder folder;
    trainer t(5);
    t.add(COUNT, SLICES, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    engine e = seal_engine(t, config_text(folder.path), 2048);
    aio_fault fault;
    fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -ENOSPC : res; };
    t.next_step();
    t.backward_all(0.1f);
    t.hand_over_all(e.get());
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    const void *lent = nullptr;
    size_t borrowed = 0;
    while (borrowed < SLICES && zoff_param_fetch(e.get(), 0, borrowed, nullptr, &lent) == ZOFF_OK)
        borrowed++;
    ASSERT_LT(borrowed, size_t(SLICES)) << "the slots are fewer than the slices";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "step 1 failed half way", zoff_param_fetch(e.get(), 0, 0, nullptr, &lent));
    auto info = new_info();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "step 1 failed half way", zoff_step_wait(e.get(), &info));
    EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_param_fetch(e.get(), 0, 0, nullptr, &lent));
    for (size_t slice = 0; slice < borrowed; slice++)
        EXPECT_ZOFF_OK(zoff_param_release(e.get(), 0, slice, nullptr));
    fault.result = nullptr;
    ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}
} // namespace
