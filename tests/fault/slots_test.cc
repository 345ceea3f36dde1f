// slots_test.cc: who may borrow a slot, in random orders. States and weights share 1 to 4 slots each, and fetches of weights
// need some of them. Steps, fetches, waits, progress, errors of the disk, retries and drops come in any order. Every wait
// ends, every fetch lends the right weights, and after a step no slot is lent.
#include "aio_fault.h"
#include "covering.h"
#include "small_engine.h"

#include <errno.h>

#include <random>

extern "C" {
#include "engine_priv.h"
#include "swap_priv.h"
}

using namespace zoff_test;

namespace
{
struct ring {
    unsigned states, weights;
    const char *backend;
    bool persists;
    friend void PrintTo(const ring &r, std::ostream *out)
    {
        *out << r.states << "_states_" << r.weights << "_weights_" << r.backend << (r.persists ? "_persist" : "");
    }
};

// Each pair of numbers of slots, in turn with each back-end and with files that stay.
std::vector<ring> rings()
{
    std::vector<ring> all;
    for (unsigned states = 1; states <= 4; states++)
        for (unsigned weights = 1; weights <= 4; weights++)
            all.push_back({states, weights, (states + weights) % 2 ? "posix" : "threads", states / 2 % 2 == weights % 2});
    return all;
}

std::string named(std::string text, const std::string &from, const std::string &to)
{
    EXPECT_NE(std::string::npos, text.find(from));
    return text.replace(text.find(from), from.size(), to);
}

// Kills the program if a call hangs.
struct watchdog {
    watchdog() { alarm(120); }
    ~watchdog() { alarm(0); }
};

class Slots : public testing::TestWithParam<ring>
{
  protected:
    enum { FROZEN, LARGE, PROGRAM, SMALL, LENT, TENSORS };

    Slots() : random(GetParam().states * 10 + GetParam().weights), t(random())
    {
        t.add(1500, 2, ZOFF_BF16, ZOFF_BF16, 0, true);
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(1000, 2, ZOFF_F32, ZOFF_F32);
        t.add(700, 3, ZOFF_BF16, ZOFF_F32, 1);
        t.add(2500, 1, ZOFF_F32, ZOFF_F32);
        t.give_away_grad(LENT);
        for (size_t i : {FROZEN, LARGE, LENT, SMALL})
            t.give_away(i);
        std::string text = with_offloaded_weights(
            config_text(folder.path, 1,
                        std::string(", \"zoff\": {\"io_backend\": \"") + GetParam().backend +
                            "\", \"persist\": " + (GetParam().persists ? "true" : "false") + ", \"durability\": \"process\"}"),
            folder.path);
        text = named(text, "\"buffer_count\": 3", "\"buffer_count\": " + std::to_string(GetParam().states));
        text = named(text, "\"buffer_count\": 2,", "\"buffer_count\": " + std::to_string(GetParam().weights) + ",");
        text = named(text, "persistence_threshold\": 1000", "persistence_threshold\": 0");
        e = seal_engine(t, text, 1024);
        for (size_t i = 0; i < TENSORS; i++)
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++)
                all.emplace_back(i, slice);
    }

    // An error is one of those that were injected, in this order of calls or in a read ahead of the one before it.
    void check(zoff_status status, const char *call)
    {
        history += std::string(call) + (status < 0 ? "! " : " ");
        if (status < 0 && e->life.phase == ZOFF_PHASE_FAILED)
            failed = true;
        const bool may = status >= 0 || (faults && (status == ZOFF_ERR_IO || (failed && status == ZOFF_ERR_STATE)));
        ASSERT_TRUE(may) << call << " = " << status << ": " << zoff_last_error();
    }

    void fetch(size_t i, size_t slice, const std::vector<reference::tensor> &now)
    {
        const auto &x = now[i];
        const void *lent = nullptr;
        const zoff_status status = zoff_param_fetch(e.get(), (zoff_param)i, slice, nullptr, &lent);
        ASSERT_NO_FATAL_FAILURE(check(status, "fetch"));
        if (status < 0)
            return;
        for (size_t k = 0; k < x.count; k++)
            ASSERT_EQ(reference::rounded(x.dtype, x.master[slice * x.count + k]), trainer::get((const char *)lent, x.dtype, k))
                << "weight " << k << " of slice " << slice << " of " << i;
        if (random() % 4)
            ASSERT_ZOFF_OK(zoff_param_release(e.get(), (zoff_param)i, slice, nullptr));
        else
            kept.emplace_back(i, slice);
    }

    void give_back()
    {
        for (auto [i, slice] : kept)
            ASSERT_ZOFF_OK(zoff_param_release(e.get(), (zoff_param)i, slice, nullptr));
        kept.clear();
    }

    void one_call(const std::vector<reference::tensor> &now)
    {
        const auto [i, slice] = all[random() % all.size()];
        switch (random() % 8) {
        case 0:
            return check(zoff_engine_progress(e.get()) < 0 ? ZOFF_ERR_IO : ZOFF_OK, "progress");
        case 1:
            return i == LENT ? void() : check(zoff_grad_reusable(e.get(), (zoff_param)i, slice, nullptr), "reusable");
        case 2:
            return check(zoff_param_wait(e.get(), PROGRAM, random() % 2, nullptr), "wait");
        case 3:
            return give_back();
        default:
            return i == PROGRAM ? void() : fetch(i, slice, now);
        }
    }

    // Finish the open step, or give it up.
    void finish(bool *dropped)
    {
        auto info = new_info();
        zoff_status status = random() % 16 ? zoff_step_wait(e.get(), &info) : ZOFF_ERR_STATE;
        if (status == ZOFF_ERR_STATE) {
            *dropped = zoff_grads_drop(e.get()) == ZOFF_OK;
            history += *dropped ? "drop " : "drop! ";
            status = *dropped ? ZOFF_OK : zoff_step_wait(e.get(), &info);
        }
        for (int tries = 0; status < 0; tries++) {
            ASSERT_NO_FATAL_FAILURE(check(status, "step"));
            ASSERT_LT(tries, 30) << zoff_last_error();
            rate = tries < 3 ? rate : 0;
            const bool drops = (info.outcome == ZOFF_OUTCOME_BEFORE || GetParam().persists) && kept.empty() && random() % 2;
            if (!drops)
                status = zoff_step_retry(e.get(), &info);
            else if (zoff_grads_drop(e.get()) == ZOFF_OK)
                *dropped = true;
            history += drops ? "drop " : "retry ";
            if (*dropped)
                break;
        }
    }

    void expect_no_loans()
    {
        for (const zoff_store *store : {e->store, e->lending.store}) {
            const auto s = (const zoff_swap_store *)store;
            unsigned lent = 0;
            for (unsigned i = 0; i < s->ring_count; i++)
                lent += s->slots[i].state == ZOFF_SLOT_LENT;
            ASSERT_EQ(0u, lent) << (store == e->store ? "states" : "weights");
        }
    }

    // One order of calls: gradients for some slices, calls in the open step, its end, and calls before the next one.
    void order()
    {
        aio_fault fault;
        rate = random() % 2 ? 20 + random() % 200 : 0;
        failed = false;
        history.clear();
        t.next_step();
        for (auto [i, slice] : all) {
            const bool leaves_out = random() % 3 == 0 && (i != PROGRAM || slice); // a step without any gradient warns
            if (t.tensors[i].frozen || leaves_out)
                continue;
            t.backward(i, slice, 0.1f);
            ASSERT_NO_FATAL_FAILURE(t.hand_over(e.get(), i, slice));
        }
        auto now = t.tensors;
        reference::step(now, config_groups(), updates + 1, 1, 1, 0);
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        fault.result = [&](int, int res, bool, uint64_t, size_t) {
            const bool fails = rate && disk() % 1000 < rate;
            faults += fails;
            return fails ? -EIO : res;
        };
        for (unsigned calls = random() % 12; calls && !failed; calls--)
            ASSERT_NO_FATAL_FAILURE(one_call(now));
        bool dropped = false;
        ASSERT_NO_FATAL_FAILURE(finish(&dropped));
        rate = 0;
        if (!dropped) {
            t.tensors = now;
            updates++;
        }
        ASSERT_NO_FATAL_FAILURE(expect_no_loans());
        for (unsigned calls = random() % 3; calls; calls--) {
            const auto [i, slice] = all[random() % all.size()];
            if (i != PROGRAM) {
                ASSERT_NO_FATAL_FAILURE(fetch(i, slice, t.tensors));
            }
        }
        ASSERT_NO_FATAL_FAILURE(give_back());
    }

    log_catcher log;
    watchdog dog;
    scratch_folder folder;
    std::mt19937 random, disk;
    trainer t;
    engine e;
    std::vector<std::pair<size_t, size_t>> all, kept;
    std::string history;
    int64_t updates = 0;
    unsigned rate = 0;
    int faults = 0;
    bool failed = false;
};
INSTANTIATE_TEST_SUITE_P(Rings, Slots, testing::ValuesIn(rings()), testing::PrintToStringParamName());

// 10,000 orders over the 16 rings; by default a twentieth.
TEST_P(Slots, AreGivenBackInAnyOrder)
{
    const unsigned orders = (is_full_run() ? 10000 : share_of(5000)) / (unsigned)rings().size() + 1;
    for (unsigned i = 0; i < orders && !HasFatalFailure(); i++) {
        SCOPED_TRACE("order " + std::to_string(i));
        order();
        if (HasFatalFailure())
            FAIL() << history;
    }
    EXPECT_TRUE(faults > 0 || orders < 50);
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// A slice without a gradient takes no part in the step, also once the program has asked for its buffer: its bucket borrows
// nothing any more, or it would keep slots that nobody gives back. Most of these buckets are through before the one in front of
// them is read.
TEST_P(Slots, AreNotTakenForSlicesWithoutGradients)
{
    const auto nothing = t.tensors;
    for (int step = 0; step < 12; step++) {
        auto info = new_info();
        ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), PROGRAM, 0, nullptr)); // of zeros
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        for (size_t k = all.size(); k-- > 0;) {
            const auto [i, slice] = all[k];
            if (i == LENT || (i == PROGRAM && !slice))
                continue;
            ASSERT_ZOFF_OK(zoff_grad_reusable(e.get(), (zoff_param)i, slice, nullptr));
            ASSERT_LE(0, zoff_engine_progress(e.get()));
        }
        for (size_t k = 0; k < 2 * all.size(); k++) {
            const auto [i, slice] = all[k % all.size()];
            if (i != PROGRAM) {
                ASSERT_NO_FATAL_FAILURE(fetch(i, slice, nothing));
            }
        }
        ASSERT_NO_FATAL_FAILURE(give_back());
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        EXPECT_EQ(1000u, info.numbers.elements_updated);
        ASSERT_NO_FATAL_FAILURE(expect_no_loans());
    }
}
} // namespace
