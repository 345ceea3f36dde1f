/* SPDX-License-Identifier: Apache-2.0 */
// owned_test.cc: weights that the engine owns, and offload_param. The fetched weights and their states must equal the reference
// bit for bit. That must hold in every tier, for every cut into chunks, with pinned weights and with prefetch. Also tests what
// a trainer must not do with such weights, and the DRAM and disk space they use.
#include "small_engine.h"

#include <fstream>

using namespace zoff_test;

namespace
{
struct cell {
    const char *name;
    zoff_tier states, weights;
    zoff_dtype dtype;
    const char *more = ""; // more keys of zero_optimization
    unsigned accumulation = 1;
    bool mixed = false; // the caller owns every other tensor
    bool late = false;  // weights are written by zoff_param_write()
    const char *zoff = "";
    const char *offload_param = ""; // more keys of offload_param
};

const char NOTHING_PINNED[] = ", \"stage3_param_persistence_threshold\": 0";
const char SMALL_ONES_PINNED[] = ", \"stage3_param_persistence_threshold\": 1024";
// The largest slice has 33,333 elements: little more than one slice can be live at a time.
const char LITTLE_ROOM[] = ", \"stage3_param_persistence_threshold\": 10, \"stage3_max_live_parameters\": 34000";
const char NO_AHEAD[] = ", \"stage3_param_persistence_threshold\": 0, \"stage3_prefetch_bucket_size\": 0";

std::string text_of(const cell &c, const std::string &states, const std::string &weights)
{
    const std::string device[] = {"cpu", "nvme"};
    return "{\"gradient_accumulation_steps\": " + std::to_string(c.accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
           "\"zoff\": {\"io_backend\": \"auto\"" +
           c.zoff + "}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"" +
           device[c.states == ZOFF_TIER_NVME] + "\", \"nvme_path\": \"" + states +
           "\", \"buffer_count\": 3}, \"offload_param\": {\"device\": \"" + device[c.weights == ZOFF_TIER_NVME] +
           "\", \"nvme_path\": \"" + weights + "\", \"buffer_count\": 3" + c.offload_param + "}" + c.more + "}}";
}

class Owned : public testing::TestWithParam<cell>
{
  protected:
    void give_away(trainer &t)
    {
        for (size_t i = 0; i < t.tensors.size(); i++) {
            if (!GetParam().mixed || i % 2 == 0)
                t.give_away(i);
        }
    }

    std::string text() { return text_of(GetParam(), folders[0].path, folders[1].path); }
    scratch_folder folders[2];
};

INSTANTIATE_TEST_SUITE_P(
    Cells, Owned,
    testing::Values(cell{"host_host_bf16", ZOFF_TIER_HOST, ZOFF_TIER_HOST, ZOFF_BF16},
                    cell{"host_host_fp32_nothing_pinned", ZOFF_TIER_HOST, ZOFF_TIER_HOST, ZOFF_F32, NOTHING_PINNED},
                    cell{"host_nvme_bf16", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED, 1, false, false, "",
                         ", \"max_in_cpu\": 0"},
                    cell{"host_nvme_fp32_mixed", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_F32, SMALL_ONES_PINNED, 1, true, false,
                         "", ", \"max_in_cpu\": 0"},
                    cell{"nvme_host_fp16", ZOFF_TIER_NVME, ZOFF_TIER_HOST, ZOFF_F16},
                    cell{"nvme_nvme_bf16", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, SMALL_ONES_PINNED, 1, false, false, "",
                         ", \"max_in_cpu\": 0"},
                    cell{"nvme_nvme_bf16_accumulate3", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED, 3, true,
                         false, "", ", \"max_in_cpu\": 0"},
                    cell{"nvme_nvme_fp16_little_room_late", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_F16, LITTLE_ROOM, 1, false,
                         true, "", ", \"max_in_cpu\": 0"},
                    cell{"nvme_nvme_fp32_late", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_F32, NO_AHEAD, 1, false, true, "",
                         ", \"max_in_cpu\": 0"},
                    cell{"nvme_nvme_bf16_all_cached", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED},
                    cell{"nvme_nvme_bf16_some_cached", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED, 1, false,
                         false, "", ", \"max_in_cpu\": 12000"},
                    cell{"nvme_nvme_bf16_small_buffers", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED, 1, false,
                         false, "", ", \"max_in_cpu\": 0, \"buffer_size\": 2048"},
                    cell{"nvme_nvme_fp32_persist", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_F32, LITTLE_ROOM, 1, true, false,
                         ", \"persist\": true", ", \"max_in_cpu\": 0"},
                    cell{"nvme_host_bf16_persist", ZOFF_TIER_NVME, ZOFF_TIER_HOST, ZOFF_BF16, SMALL_ONES_PINNED, 1, false, true,
                         ", \"persist\": true"}),
    [](const auto &p) { return std::string(p.param.name); });

TEST_P(Owned, FetchedWeightsAndStatesEqualTheReference)
{
    log_catcher log;
    const cell &c = GetParam();
    trainer t(23);
    add_awkward(t, c.dtype, c.dtype);
    give_away(t);
    trainer first = t;
    if (c.late)
        t.scramble(); // the weights that seal sees must not matter
    engine e = seal_engine(t, text(), 4096);
    for (size_t i = 0; c.late && i < t.tensors.size(); i++) {
        // Write in two windows; the second one crosses slices.
        std::vector<char> weights(t.tensors[i].total() * trainer::size(c.dtype));
        for (size_t k = 0; k < t.tensors[i].total(); k++)
            trainer::put(weights.data(), c.dtype, k, trainer::get(first.value(i), c.dtype, first.place(i, k)));
        const size_t half = t.tensors[i].total() / 2;
        ASSERT_ZOFF_OK(zoff_param_write(e.get(), (zoff_param)i, 0, half, weights.data()));
        ASSERT_ZOFF_OK(zoff_param_write(e.get(), (zoff_param)i, half, t.tensors[i].total() - half,
                                        weights.data() + half * trainer::size(c.dtype)));
    }
    for (int64_t step = 1; step <= 4; step++) {
        t.next_step();
        for (unsigned micro = 1; micro <= c.accumulation; micro++) {
            t.scramble(); // the caller's memory is valid only where fetch has written it
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t k = 0; !t.is_given_away(i) && k < t.tensors[i].total(); k++)
                    trainer::put(t.value(i), c.dtype, t.place(i, k), reference::rounded(c.dtype, t.tensors[i].master[k]));
            }
            ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "step " << step;
            ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get(), true));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "backwards, step " << step;
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        }
        reference::step(t.tensors, config_groups(), step, 1.0, c.accumulation, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// Each step stays open while the next forward pass fetches: slices are lent with the weights after the step.
TEST_P(Owned, WeightsFetchedInAnOpenStepAreNew)
{
    log_catcher log;
    const cell &c = GetParam();
    trainer t(27);
    add_awkward(t, c.dtype, c.dtype);
    give_away(t);
    engine e = seal_engine(t, text(), 4096);
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    for (int64_t step = 1; step <= 4; step++) {
        t.next_step();
        for (unsigned micro = 1; micro <= c.accumulation; micro++) {
            ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get(), true));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "step " << step;
            t.backward_all(0.1f);
            t.hand_over_all(e.get());
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            if (micro == c.accumulation)
                reference::step(t.tensors, config_groups(), step, 1.0, c.accumulation, 0);
            ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; !t.is_given_away(i) && slice < t.tensors[i].slices; slice++)
                    ASSERT_ZOFF_OK(zoff_param_wait(e.get(), (zoff_param)i, slice, nullptr));
            }
            ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "in open step " << step;
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// With persistent files another process continues and derives the weights from the masters.
TEST(OwnedPersist, AnotherProcessContinues)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"",    ZOFF_TIER_NVME,        ZOFF_TIER_NVME,       ZOFF_BF16, SMALL_ONES_PINNED, 1, false,
                    false, ", \"persist\": true", ", \"max_in_cpu\": 0"};
    const std::string text = text_of(c, folders[0].path, folders[1].path);
    trainer t(29);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    for (size_t i = 0; i < t.tensors.size(); i++)
        t.give_away(i);
    engine e = seal_engine(t, text, 4096);
    for (int64_t step = 1; step <= 4; step++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), step, 1.0, 1, 0);
        e.reset();
        t.scramble();
        e = seal_engine(t, text, 4096);
        const void *lent = nullptr;
        uint16_t one = 0;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_params_push() to compute the weights",
                          zoff_param_fetch(e.get(), 0, 0, nullptr, &lent));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_params_push() to compute the weights",
                          zoff_param_read(e.get(), 0, 0, 1, &one));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_params_push()", zoff_params_pull(e.get()));
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
}

// Push, pull and windows of weights, also across slices and chunks.
TEST_P(Owned, WindowsPushAndPull)
{
    log_catcher log;
    const cell &c = GetParam();
    trainer t(31);
    add_awkward(t, c.dtype, c.dtype);
    give_away(t);
    engine e = seal_engine(t, text(), 4096);
    const size_t bytes = trainer::size(c.dtype);
    for (size_t i = 0; i < t.tensors.size(); i++) {
        auto &x = t.tensors[i];
        std::vector<char> have(x.total() * bytes + 1);
        if (!t.is_given_away(i)) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "are in the caller's memory",
                              zoff_param_read(e.get(), (zoff_param)i, 0, x.total(), have.data()));
            continue;
        }
        ASSERT_ZOFF_OK(zoff_param_read(e.get(), (zoff_param)i, 0, x.total(), have.data()));
        for (size_t k = 0; k < x.total(); k++)
            ASSERT_EQ(trainer::get(t.value(i), c.dtype, t.place(i, k)), trainer::get(have.data(), c.dtype, k)) << i << " " << k;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is outside", zoff_param_read(e.get(), (zoff_param)i, 1, x.total(), have.data()));
        if (x.frozen || x.total() < 3)
            continue;
        // Masters that were written change the weights only after a push.
        std::vector<float> masters(x.total() - 2, 1.5f);
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), (zoff_param)i, ZOFF_STATE_MASTER, 1, masters.size(), masters.data()));
        std::fill_n(x.master.begin() + 1, masters.size(), 1.5f);
    }
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    for (size_t i = 0; i < t.tensors.size(); i++) {
        for (size_t k = 0; t.is_given_away(i) && k < t.tensors[i].total(); k++)
            ASSERT_EQ(t.tensors[i].master[k], trainer::get(t.value(i), c.dtype, t.place(i, k))) << i << " " << k;
    }
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// Calls that are not allowed. Each one is refused and changes nothing.
TEST(OwnedRefusals, EachNamesTheWayOut)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_BF16, LITTLE_ROOM, 1, false, false, "", ", \"max_in_cpu\": 0"};
    const std::string text = text_of(c, folders[0].path, folders[1].path);
    trainer t(37);
    t.add(20000, 3, ZOFF_BF16, ZOFF_BF16);
    t.add(100, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    engine e = make_engine(t, text, 4096);
    const void *a = nullptr, *b = nullptr, *again = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_param_fetch(e.get(), 0, 0, nullptr, &a));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine must not be NULL", zoff_param_fetch(nullptr, 0, 0, nullptr, &a));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 3", zoff_param_fetch(e.get(), 0, 3, nullptr, &a));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 0 of parameter 2", zoff_param_fetch(e.get(), 2, 0, nullptr, &a));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_param_fetch(e.get(), 0, 0, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no streams", zoff_param_fetch(e.get(), 0, 0, &a, &a));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine_owned is false", zoff_param_fetch(e.get(), 1, 0, nullptr, &a));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is not lent", zoff_param_release(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "set them with zoff_param_write()", zoff_param_bind(e.get(), 0, t.value(0), nullptr));
    // 34,000 elements may be live, so one slice of 20,000.
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, 1, nullptr, &a));
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, 1, nullptr, &again));
    EXPECT_EQ(a, again);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "stage3_max_live_parameters, which is 34000",
                      zoff_param_fetch(e.get(), 0, 0, nullptr, &b));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 1 of param0 is still lent", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is still lent", zoff_params_push(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is still lent", zoff_params_pull(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is still lent", zoff_param_write(e.get(), 0, 0, 1, a));
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is still lent", zoff_step(e.get(), nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, 1, nullptr));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr)); // no gradient was handed over: nothing is updated
    log.expect("step 1 updates nothing");
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, 0, nullptr, &a)); // the call finishes the step
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, 0, nullptr));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

TEST(OwnedRefusals, ASliceThatCanNeverBeWholeIsFoundAtSeal)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_BF16, LITTLE_ROOM};
    trainer t(41);
    t.add(34001, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    engine e = make_engine(t, text_of(c, folders[0].path, folders[1].path));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "stage3_max_live_parameters is 34000", zoff_engine_seal(e.get()));
    EXPECT_TRUE(state_files(folders[1].path).empty());
}

// The limit is in elements: slices of any size can use all of it.
TEST(OwnedRoom, SlicesMayUseTheWholeLimit)
{
    log_catcher log;
    scratch_folder folders[2];
    const void *lent = nullptr;
    for (size_t count : {1, 10, 1001}) {
        const std::string more =
            ", \"stage3_param_persistence_threshold\": 0, \"stage3_max_live_parameters\": " + std::to_string(10 * count);
        const cell c = {"", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_BF16, more.c_str(),
                        1,  false,          false,          "",        ", \"max_in_cpu\": 0"};
        trainer t(53);
        t.add(count, 20, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
        engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 4096);
        for (size_t slice = 0; slice < 10; slice++)
            ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, slice, nullptr, &lent)) << count << " " << slice;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "do not fit beside", zoff_param_fetch(e.get(), 0, 10, nullptr, &lent));
    }
}

TEST(OwnedRoom, FreeRoomMayBeFragmented)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"",
                    ZOFF_TIER_HOST,
                    ZOFF_TIER_NVME,
                    ZOFF_BF16,
                    ", \"stage3_param_persistence_threshold\": 0, \"stage3_max_live_parameters\": 4096",
                    1,
                    false,
                    false,
                    "",
                    ", \"max_in_cpu\": 0"};
    trainer t(53);
    t.add(1024, 4, ZOFF_BF16, ZOFF_BF16);
    t.add(2048, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    t.give_away(1);
    engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 4096);
    const void *lent = nullptr;
    for (size_t slice = 0; slice < 4; slice++)
        ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, slice, nullptr, &lent));
    for (size_t slice : {0, 2})
        ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, slice, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "2048 elements of param1 do not fit in one piece beside the 2048 that are lent",
                      zoff_param_fetch(e.get(), 1, 0, nullptr, &lent));
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, 1, nullptr));
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 1, 0, nullptr, &lent));
}

// fp32 weights are their own masters: they cannot be read before a push.
TEST(OwnedPersist, MastersOfFp32AreThoseOfTheFile)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"",    ZOFF_TIER_NVME,        ZOFF_TIER_NVME,       ZOFF_F32, NOTHING_PINNED, 1, false,
                    false, ", \"persist\": true", ", \"max_in_cpu\": 0"};
    const std::string text = text_of(c, folders[0].path, folders[1].path);
    trainer t(59);
    t.add(9000, 1, ZOFF_F32, ZOFF_F32);
    t.give_away(0);
    engine e = seal_engine(t, text, 4096);
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    reference::step(t.tensors, config_groups(), 1, 1.0, 1, 0);
    e.reset();
    t.scramble();
    e = seal_engine(t, text, 4096);
    float x = 5;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_state_read: the states are those after step 1, but the weights may be others",
                      zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, 0, 1, &x));
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 7, 1, &x));
    t.tensors[0].master[7] = 5;
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// A folder set by the program also applies to the weights, unless they have a folder of their own.
TEST(OwnedFolders, AFolderSetByTheProgramAlsoHoldsTheWeights)
{
    log_catcher log;
    scratch_folder of_file, of_program;
    const std::string text = with_offloaded_weights(config_text(of_file.path), "");
    const std::string empty = ", \"nvme_path\": \"\"";
    std::string without = text;
    without.erase(without.find(empty), empty.size());
    zoff_config *config = nullptr;
    ASSERT_ZOFF_OK(zoff_test::config_from_text(without.data(), without.size(), "folders.json", &config));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    opts.nvme_path = of_program.path.c_str();
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    engine e(made);
    zoff_config_close(config);
    trainer t(61);
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    zoff_param_desc d = t.desc(0);
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_EQ(0u, state_files(of_file.path).size());
    EXPECT_EQ(2u, state_files(of_program.path).size());
}

// Damaged weights on the drive give an error and are never lent. They can be restored from masters that are fp32 numbers. Those
// that are half of their masters are lost, as a damaged state is.
TEST(OwnedDamage, IsRepairedByAPushOfWholeMasters)
{
    for (const bool whole : {true, false}) {
        log_catcher log;
        scratch_folder folders[2];
        const char *master = whole ? ", \"master\": \"fp32\"" : ", \"master\": \"split\"";
        const cell c = {"", ZOFF_TIER_HOST, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED,
                        1,  false,          false,          master,    ", \"max_in_cpu\": 0"};
        trainer t(67);
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
        engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 4096);
        for (const std::string &file : state_files(folders[1].path)) {
            std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
            damage.seekp(4096 + 100);
            damage << "damage";
        }
        const void *lent = nullptr;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "its checksum is wrong", zoff_param_fetch(e.get(), 0, 0, nullptr, &lent));
        if (!whole) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "its checksum is wrong", zoff_params_push(e.get()));
            continue;
        }
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
}

// Weights on NVMe that are half of their masters: a step reads and writes 12 bytes a parameter with Adam, 2 of them weights.
// With fp32 masters it reads 12 bytes of states, and writes 14.
TEST(OwnedSplit, AStepMovesWhatThePlanSays)
{
    for (const bool whole : {true, false}) {
        log_catcher log;
        scratch_folder folders[2];
        const char *master = whole ? ", \"master\": \"fp32\"" : "";
        const cell c = {"", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED,
                        1,  false,          false,          master,    ", \"max_in_cpu\": 0"};
        trainer t(43);
        const size_t count = 1 << 20;
        t.add(count, 1, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
        engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 1 << 18); // gaps between arrays are small then
        const zoff_plan_info plan = plan_of(e.get());
        EXPECT_EQ((whole ? 12u : 10u) * count, plan.state_bytes);
        for (int64_t step = 1; step <= 3; step++) {
            zoff_step_info info = new_info();
            t.next_step();
            t.backward(0, 0, 0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            reference::step(t.tensors, config_groups(), step, 1.0, 1, 0);
            EXPECT_EQ(plan.step_write_bytes, info.bytes.nvme_written);
            if (step > 1) {
                EXPECT_EQ(plan.step_read_bytes, info.bytes.nvme_read);
                EXPECT_NEAR(12, (double)info.bytes.nvme_read / count, 0.24);
                EXPECT_NEAR(whole ? 14 : 12, (double)info.bytes.nvme_written / count, 0.24);
            }
        }
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// After a step all slots have chunks that were read ahead for the next one. Weights that are their own masters, or half of
// them, are saved from chunks further on.
TEST(OwnedMixed, WeightsInFilesBehindThoseOfTheProgramAreSaved)
{
    for (const zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
        log_catcher log;
        scratch_folder folders[3];
        const cell c = {"", ZOFF_TIER_NVME, ZOFF_TIER_NVME, dtype, NOTHING_PINNED, 1, false, false, "", ", \"max_in_cpu\": 0"};
        trainer t(43);
        for (int i = 0; i < 2; i++)
            t.add(12 * 4096, 1, dtype, dtype);
        t.give_away(1);
        engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 4096);
        for (int64_t step = 1; step <= 2; step++) {
            t.next_step();
            for (size_t i = 0; i < 2; i++)
                t.backward(i, 0, 0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            reference::step(t.tensors, config_groups(), step, 1.0, 1, 0);
            ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folders[2].path.c_str(), nullptr));
        }
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// Frozen weights on NVMe, as below a trained adapter: they have no states, and no step reads or writes them.
TEST(OwnedFrozen, IsReadAndNeverWritten)
{
    log_catcher log;
    scratch_folder folders[2];
    const cell c = {"", ZOFF_TIER_NVME, ZOFF_TIER_NVME, ZOFF_BF16, NOTHING_PINNED, 1, false, false, "", ", \"max_in_cpu\": 0"};
    trainer t(43);
    t.add(50000, 2, ZOFF_BF16, ZOFF_BF16, 0, true);
    t.add(4096, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    t.give_away(1);
    engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), 4096);
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_EQ(4096u, plan.elements);
    EXPECT_EQ(2u * 104096, plan.weight_bytes);
    EXPECT_GE(plan.weight_nvme_bytes, plan.weight_bytes);
    for (int64_t step = 1; step <= 3; step++) {
        zoff_step_info info = new_info();
        t.next_step();
        t.backward(1, 0, 0.1f);
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        EXPECT_EQ(plan.step_write_bytes, info.bytes.nvme_written);
        reference::step(t.tensors, config_groups(), step, 1.0, 1, 0);
    }
}

// DRAM use equals the plan, and each chunk is read once per pass. If a pass repeats the previous one, chunks are prefetched.
// This holds for one chunk per slice, several chunks per slice, and several slices per chunk.
class OwnedMemory : public testing::TestWithParam<size_t>
{
};
INSTANTIATE_TEST_SUITE_P(Chunks, OwnedMemory, testing::Values(1 << 13, 1 << 15, 1 << 16),
                         [](const auto &p) { return std::to_string(p.param); });

TEST_P(OwnedMemory, ReadsOnceAPassAndAheadOfTheCaller)
{
    log_catcher log;
    scratch_folder folders[2];
    const size_t chunk = GetParam(), slice = 1 << 15, count = 12;
    const char *keys = ", \"stage3_max_live_parameters\": 75000, \"stage3_param_persistence_threshold\": 1000";
    const cell c = {"",    ZOFF_TIER_HOST,           ZOFF_TIER_NVME,       ZOFF_BF16, keys, 1, false,
                    false, ", \"master\": \"fp32\"", ", \"max_in_cpu\": 0"}; // a step reads no weights
    trainer t(47);
    for (size_t i = 0; i < count; i++) {
        t.add(slice, 1, ZOFF_BF16, ZOFF_BF16);
        t.give_away(i);
    }
    engine e = seal_engine(t, text_of(c, folders[0].path, folders[1].path), chunk);
    const zoff_plan_info plan = plan_of(e.get());
    // Three buffers, and a little more than two live slices, each with its padding.
    EXPECT_EQ(3 * 2 * chunk + 2u * 75000 + 64 * count, plan.weight_host_bytes);
    EXPECT_EQ(count * 2 * slice, plan.weight_nvme_bytes);
    EXPECT_EQ(plan.weight_nvme_bytes, plan.step_write_bytes);
    EXPECT_EQ(0u, plan.step_read_bytes);
    zoff_step_info info = new_info();
    for (int pass = 0; pass < 3; pass++) {
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        EXPECT_EQ(plan.weight_nvme_bytes, info.bytes.nvme_written);
        EXPECT_EQ(plan.weight_nvme_bytes, info.bytes.nvme_read);
        // In the first pass the next slice is unknown, so nothing is prefetched.
        if (pass == 0 && chunk >= slice) {
            EXPECT_EQ(0u, info.bytes.nvme_read_ahead);
        } else if (pass) {
            EXPECT_GE(info.bytes.nvme_read_ahead, plan.weight_nvme_bytes / 2);
        }
        reference::step(t.tensors, config_groups(1), pass + 1, 1.0, 1, 0);
    }
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}
} // namespace
