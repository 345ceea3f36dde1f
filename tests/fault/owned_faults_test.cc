// owned_faults_test.cc: weights that the engine owns, on a disk that fails at times. Each failed call is repeated, at once or
// after other calls. Every fetch that succeeds must lend the right weights, and in the end all weights and states must be
// right.
#include "aio_fault.h"
#include "covering.h"
#include "small_engine.h"

#include <errno.h>
#include <unistd.h>

#include <memory>

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

class Chaos : public testing::TestWithParam<unsigned>
{
  protected:
    Chaos() : random(GetParam()), t(GetParam())
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
        t.add(3000, 2, ZOFF_F32, ZOFF_F32);
        t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16, 0, true);
        t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
        for (size_t i = 0; i < t.tensors.size(); i++) {
            if (i < OWNED || GetParam() % 3)
                t.give_away(i);
        }
        persists = GetParam() % 2;
        std::string more = GetParam() % 4 < 2
                               ? "\"stage3_param_persistence_threshold\": 1600"
                               : "\"stage3_param_persistence_threshold\": 0, \"stage3_max_live_parameters\": 9100";
        std::string text = text_of(folder.path, more,
                                   std::string("\"io_backend\": \"") + (GetParam() % 5 ? "auto" : "posix") +
                                       "\", \"persist\": " + (persists ? "true" : "false"));
        if (GetParam() % 7 == 0)
            text.replace(text.find("\"max_in_cpu\": 0"), 15, "\"max_in_cpu\": 7000");
        e = seal_engine(t, text, 2048);
    }

    // The call also tells that a range could not be written which was set before.
    void hand_over()
    {
        for (auto [i, slice] : t.present()) {
            for (int tries = 0; zoff_grad_ready(e.get(), (zoff_param)i, slice, nullptr) < 0; tries++)
                ASSERT_LT(tries, 5) << zoff_last_error();
        }
    }

    // In half of the steps weights are lent while the step is open: those after it.
    zoff_status take(zoff_step_info *info)
    {
        if (random() % 2)
            return zoff_step(e.get(), nullptr, info);
        hand_over();
        const zoff_status status = zoff_step_begin(e.get(), nullptr);
        info->outcome = ZOFF_OUTCOME_BEFORE;
        if (status < 0)
            return status;
        const auto before = t.tensors;
        reference::step(t.tensors, config_groups(), steps + 1, 1, 1, 0);
        for (int k = 0; k < 6; k++) {
            const size_t i = random() % OWNED;
            look_at(i, random() % t.tensors[i].slices);
        }
        t.tensors = before;
        return zoff_step_wait(e.get(), info);
    }

    // Take a step. If it fails, finish it, or drop it where that is possible.
    void step()
    {
        auto info = new_info();
        t.next_step();
        t.backward_all(0.1f);
        zoff_status status = take(&info);
        for (int tries = 0; status < 0; tries++) {
            ASSERT_LT(tries, 20) << zoff_last_error();
            if (info.outcome == ZOFF_OUTCOME_BEFORE || (persists && random() % 2)) {
                for (int drops = 0; zoff_grads_drop(e.get()) < 0; drops++)
                    ASSERT_LT(drops, 20) << zoff_last_error();
                return;
            }
            status = zoff_step_retry(e.get(), &info);
        }
        reference::step(t.tensors, config_groups(), ++steps, 1, 1, 0);
    }

    // Write new weights into a window. Between two attempts fetch other weights.
    void write()
    {
        const size_t i = random() % OWNED, total = t.tensors[i].total();
        const size_t first = random() % total, count = 1 + random() % (total - first);
        std::vector<char> weights(count * 4);
        for (size_t k = 0; k < count; k++) {
            trainer::put(weights.data(), t.tensors[i].dtype, k, (float)(random() % 256) / 256);
            t.tensors[i].master[first + k] = trainer::get(weights.data(), t.tensors[i].dtype, k);
        }
        for (int tries = 0; zoff_param_write(e.get(), (zoff_param)i, first, count, weights.data()) < 0; tries++) {
            ASSERT_LT(tries, 5) << zoff_last_error();
            const size_t other = random() % OWNED;
            if (other != i)
                look_at(other, 0);
        }
    }

    void pull()
    {
        for (int tries = 0; zoff_params_pull(e.get()) < 0; tries++)
            ASSERT_LT(tries, 5) << zoff_last_error();
        for (auto &x : t.tensors) {
            for (size_t k = 0; !x.frozen && k < x.total(); k++)
                x.master[k] = reference::rounded(x.dtype, x.master[k]);
        }
    }

    void look_at(size_t i, size_t slice)
    {
        const auto &x = t.tensors[i];
        const void *lent = nullptr;
        if (zoff_param_fetch(e.get(), (zoff_param)i, slice, nullptr, &lent) < 0)
            return;
        for (size_t k = 0; k < x.count; k++)
            ASSERT_EQ(reference::rounded(x.dtype, x.master[slice * x.count + k]), trainer::get((const char *)lent, x.dtype, k))
                << "weight " << k << " of slice " << slice << " of " << i;
        ASSERT_ZOFF_OK(zoff_param_release(e.get(), (zoff_param)i, slice, nullptr));
    }

    void turn()
    {
        switch (random() % 6) {
        case 0:
            return step();
        case 1:
            return write();
        case 2:
            (void)zoff_params_push(e.get());
            return;
        case 3:
            return pull();
        default:
            for (int k = 0; k < 8; k++) {
                const size_t i = random() % OWNED;
                look_at(i, random() % t.tensors[i].slices);
            }
        }
    }

    enum { OWNED = 5 }; // the caller may own the last tensor
    log_catcher log;
    watchdog dog;
    scratch_folder folder;
    std::mt19937 random;
    trainer t;
    engine e;
    bool persists;
    int64_t steps = 0;
};
// By default one seed of each kind. The seed decides persistence, the owner, the share in DRAM and the back-end.
INSTANTIATE_TEST_SUITE_P(Seeds, Chaos,
                         testing::ValuesIn(is_full_run() ? std::vector<unsigned>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                                                                 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                                                                 20, 21, 22, 23, 24, 25, 26, 27, 28, 29}
                                                         : std::vector<unsigned>{0, 5, 7, 11, 14}));

TEST_P(Chaos, EndsWithTheRightNumbers)
{
    int faults = 0;
    for (int i = 0; i < 120 && !HasFailure(); i++) {
        SCOPED_TRACE("turn " + std::to_string(i));
        aio_fault fault;
        int countdown = random() % 3 ? (int)(random() % 40) : 1000000;
        fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown-- == 0 ? (faults++, -EIO) : res; };
        ASSERT_NO_FATAL_FAILURE(turn());
    }
    EXPECT_GT(faults, 5);
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}
} // namespace
