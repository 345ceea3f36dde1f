/* SPDX-License-Identifier: Apache-2.0 */
// growth_calls_test.cc: every call of a step, times N and 4 N of slices, parameters, chunks, tied parameters or slots. All
// calls of one name in a step together may cost at most 6 times as much. Basic blocks are counted; no clock is read.
#include "counted.h"
#include "zoff_test.h"

#include <algorithm>
#include <map>

extern "C" {
#include "transfer.h"
}

using namespace zoff_test;

namespace
{
const double MOST = 6; // the most that a cost may grow by for 4 times as many

enum class axis { slices, params, chunks, ties, slots };

struct scene {
    const char *name;
    axis many;
    size_t few;
    bool lent, owned;      // gradients, or weights, are in memory of the engine
    bool ascends;          // the program hands gradients over and waits for weights in ascending order
    size_t chunk_elements; // elements of a chunk; 0: the default
    const char *zero, *zoff;
};
std::ostream &operator<<(std::ostream &out, const scene &s)
{
    return out << s.name;
}

#define SPECULATION ", \"speculation_memory\": \"256MiB\""
#define FILES "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"@\", \"buffer_count\": #}"
#define OWNED "\"stage\": 3, \"stage3_param_persistence_threshold\": 0, \"stage3_max_live_parameters\": 20000"
const scene SCENES[] = {
    {"Slices", axis::slices, 2000, false, false, false, 0, "", ""},
    {"Params", axis::params, 1000, false, false, false, 0, "", ""},
    {"Chunks", axis::chunks, 500, false, false, false, 1024, "", ""},
    {"ChunksAscending", axis::chunks, 500, false, false, true, 1024, "", ""},
    {"WideSlices", axis::slices, 60, false, false, false, 1024, "", ""},
    {"Ties", axis::ties, 500, false, false, false, 0, "", ""},
    {"LentSlices", axis::slices, 10000, true, false, false, 0, "", ""},
    {"LentParams", axis::params, 1000, true, false, true, 0, "", ""},
    {"LentTies", axis::ties, 500, true, false, false, 0, "", ""},
    {"SpeculatedSlices", axis::slices, 2000, false, false, false, 0, "", SPECULATION},
    {"SpeculatedChunks", axis::chunks, 500, false, false, false, 1024, "", SPECULATION},
    {"SpeculatedChunksAscending", axis::chunks, 500, false, false, true, 1024, "", SPECULATION},
    {"SpeculatedWithLittleMemory", axis::chunks, 500, false, false, true, 1024, "", ", \"speculation_memory\": \"256KiB\""},
    {"SpeculatedFromFiles", axis::chunks, 250, false, false, false, 1024, FILES, SPECULATION},
    {"SpeculatedFromFilesAscending", axis::chunks, 250, false, false, true, 1024, FILES, SPECULATION},
    {"Files", axis::chunks, 250, false, false, true, 1024, FILES, ""},
    {"HalfResident", axis::chunks, 250, false, false, true, 1024, FILES, ", \"host_memory\": \"%\""},
    {"Persistent", axis::chunks, 250, false, false, true, 1024, FILES, ", \"persist\": true"},
    {"Slots", axis::slots, 16, false, false, false, 1024, FILES, ""},
    {"OwnedSlices", axis::slices, 1000, false, true, false, 0, OWNED, ""},
    {"OwnedParams", axis::params, 500, false, true, true, 0, OWNED, ""},
};

struct bill {
    std::map<std::string, uint64_t> blocks, calls;
    void pay(const char *call, const std::function<zoff_status()> &run)
    {
        zoff_status status = ZOFF_OK;
        blocks[call] += count_blocks([&] { status = run(); });
        calls[call]++;
        if (status < 0)
            ADD_FAILURE() << call << ": " << zoff_last_error();
    }
};

std::string with(std::string text, char mark, const std::string &value)
{
    for (size_t at; (at = text.find(mark)) != std::string::npos;)
        text.replace(at, 1, value);
    return text;
}

// A program with `count` of what the scene has many of. With posix I/O all work happens inside calls, so counts repeat.
class program
{
  public:
    program(const scene &s, size_t count) : s_(s), descs_(s.many == axis::params || s.many == axis::ties ? count : 1)
    {
        const bool one = s.many == axis::chunks || s.many == axis::slots;
        slices_ = s.many == axis::slices ? count : 1;
        const size_t units = s.many == axis::slots ? 256 : s.many == axis::chunks ? count : 0;
        const size_t each = one ? 1024 * units : s.chunk_elements ? 8 * s.chunk_elements : 64;
        weights_.resize(each * slices_ * descs_.size());
        grads_.assign(weights_.size(), 0.01f);
        for (size_t p = 0; p < descs_.size(); p++) {
            descs_[p] = ZOFF_PARAM_DESC_INIT;
            descs_[p].value = &weights_[(s.many == axis::ties ? p / 2 : p) * each * slices_];
            descs_[p].grad = s.lent ? nullptr : &grads_[p * each * slices_];
            descs_[p].count = each;
            descs_[p].slices = slices_;
            descs_[p].engine_owned = s.owned;
        }
        const std::string slots = std::to_string(s.many == axis::slots ? count : 4);
        text_ = std::string("{\"gradient_clipping\": 0, \"zoff\": {\"threads\": 1, \"io_backend\": \"posix\", ") +
                "\"durability\": \"process\"" + s.zoff + "}, \"zero_optimization\": {" + s.zero + "}}";
        text_ = with(with(with(text_, '@', folder_.path), '#', slots), '%', std::to_string(units / 2 * 16384));
    }

    bill run()
    {
        bill of;
        zoff_config *made = nullptr;
        EXPECT_ZOFF_OK(zoff_config_open(nullptr, &made));
        config settings(made);
        EXPECT_ZOFF_OK(zoff_config_read_text(made, text_.c_str(), text_.size(), nullptr));
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config = made;
        opts.chunk_elements = s_.chunk_elements;
        of.pay("zoff_engine_open", [&] { return zoff_engine_open(&opts, descs_.data(), descs_.size(), &e_); });
        if (!e_)
            return of;
        for (int step = 0; step < 2; step++) { // the order of the program is learned
            bill ignored;
            take(ignored);
        }
        take(of);
        around(of);
        of.pay("zoff_engine_destroy", [&] {
            zoff_engine_destroy(e_);
            return ZOFF_OK;
        });
        return of;
    }

  private:
    void each(const std::function<void(zoff_param p, size_t slice)> &call)
    {
        const size_t all = descs_.size() * slices_;
        for (size_t i = 0; i < all; i++) {
            const size_t k = s_.ascends ? i : all - 1 - i;
            call((zoff_param)(k / slices_), k % slices_);
        }
    }
    void hand_over(bill &of)
    {
        void *grad = nullptr;
        if (s_.lent)
            each([&](zoff_param p, size_t slice) {
                of.pay("zoff_grad_acquire", [&] { return zoff_grad_acquire(e_, p, slice, nullptr, &grad); });
            });
        each([&](zoff_param p, size_t slice) {
            of.pay("zoff_grad_ready", [&] { return zoff_grad_ready(e_, p, slice, nullptr); });
            of.pay("zoff_engine_progress", [&] { return zoff_engine_progress(e_); });
        });
    }
    void take(bill &of)
    {
        const void *weights = nullptr;
        double scale;
        if (s_.owned)
            each([&](zoff_param p, size_t slice) {
                of.pay("zoff_param_fetch", [&] { return zoff_param_fetch(e_, p, slice, nullptr, &weights); });
                of.pay("zoff_param_release", [&] { return zoff_param_release(e_, p, slice, nullptr); });
            });
        of.pay("zoff_step_prepare", [&] { return zoff_step_prepare(e_, nullptr); });
        of.pay("zoff_grad_weight", [&] { return zoff_grad_weight(e_, 1); });
        hand_over(of);
        of.pay("zoff_step_begin", [&] { return zoff_step_begin(e_, nullptr); });
        of.pay("zoff_loss_scale", [&] { return zoff_loss_scale(e_, &scale); });
        each([&](zoff_param p, size_t slice) {
            if (!s_.owned)
                of.pay("zoff_param_wait", [&] { return zoff_param_wait(e_, p, slice, nullptr); });
            if (!s_.lent)
                of.pay("zoff_grad_reusable", [&] { return zoff_grad_reusable(e_, p, slice, nullptr); });
        });
        of.pay("zoff_step_wait", [&] { return zoff_step_wait(e_, nullptr); });
    }
    void around(bill &of)
    {
        zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
        zoff_norm_sum sum = {};
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        zoff_checkpoint *saving = nullptr;
        char words[4096];
        size_t bytes;
        int64_t t;
        float x = 0;
        hand_over(of);
        of.pay("zoff_grads_drop", [&] { return zoff_grads_drop(e_); });
        hand_over(of);
        of.pay("zoff_step_measure", [&] { return zoff_step_measure(e_, nullptr, &sum); });
        args.norm_sum = &sum;
        of.pay("zoff_step", [&] { return zoff_step(e_, &args, nullptr); });
        each([&](zoff_param p, size_t slice) {
            const size_t at = slice * descs_[p].count;
            if (s_.many == axis::ties && p % 2)
                return; // another name
            of.pay("zoff_state_read", [&] { return zoff_state_read(e_, p, ZOFF_STATE_V, at, 1, &x); });
            of.pay("zoff_state_write", [&] { return zoff_state_write(e_, p, ZOFF_STATE_V, at, 1, &x); });
            if (!s_.owned)
                return;
            of.pay("zoff_param_read", [&] { return zoff_param_read(e_, p, at, 1, &x); });
        });
        of.pay("zoff_step_count", [&] { return zoff_step_count(e_, &t); });
        of.pay("zoff_step_count_set", [&] { return zoff_step_count_set(e_, t); });
        of.pay("zoff_loss_scaler_get", [&] { return zoff_loss_scaler_get(e_, &scaler); });
        of.pay("zoff_stats_print", [&] { return zoff_stats_print(e_, words, sizeof words, &bytes); });
        for (size_t p = 0; p < descs_.size(); p++)
            of.pay("zoff_param_bind", [&] { return zoff_param_bind(e_, (zoff_param)p, nullptr, descs_[p].grad); });
        std::vector<zoff_handover> all;
        each([&](zoff_param p, size_t slice) {
            if (!s_.lent)
                all.push_back({sizeof(zoff_handover), p, 0, slice, nullptr, descs_[p].grad, nullptr});
        });
        of.pay("zoff_grads_hand_over", [&] { return zoff_grads_hand_over(e_, all.data(), sizeof(zoff_handover), all.size()); });
        EXPECT_ZOFF_OK(zoff_grads_drop(e_));
        for (size_t p = 0; p < descs_.size(); p++)
            of.pay("zoff_param_pull", [&] { return zoff_param_pull(e_, (zoff_param)p); });
        of.pay("zoff_engine_plan", [&] { return zoff_engine_plan(e_, &plan); });
        of.pay("zoff_params_push", [&] { return zoff_params_push(e_); });
        of.pay("zoff_params_pull", [&] { return zoff_params_pull(e_); });
        of.pay("zoff_state_flush", [&] { return zoff_state_flush(e_); });
        of.pay("zoff_checkpoint_begin",
               [&] { return zoff_checkpoint_begin(e_, folder_.file("saved").c_str(), nullptr, &saving); });
        EXPECT_ZOFF_OK(zoff_checkpoint_wait(saving)); // it polls until the drive is done, so it is not counted
        of.pay("zoff_checkpoint_load", [&] { return zoff_checkpoint_load(e_, folder_.file("saved").c_str(), nullptr); });
    }

    const scene &s_;
    scratch_folder folder_;
    std::vector<zoff_param_desc> descs_;
    std::vector<float> weights_, grads_;
    size_t slices_;
    std::string text_;
    zoff_engine *e_ = nullptr;
};

class GrowthCalls : public testing::TestWithParam<scene>
{
  protected:
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Scenes, GrowthCalls, testing::ValuesIn(SCENES), [](const auto &p) { return p.param.name; });

TEST_P(GrowthCalls, CostAtMostSixTimesAsMuch)
{
    const size_t few = GetParam().few, many = 4 * few;
    bill small = program(GetParam(), few).run(), large = program(GetParam(), many).run();
    ASSERT_LT(0u, small.blocks["zoff_step_wait"]) << "nothing was counted";
    for (const auto &[call, blocks] : small.blocks) {
        const double grows = (double)large.blocks[call] / (double)std::max<uint64_t>(blocks, 200);
        RecordProperty(call, std::to_string(grows));
        EXPECT_LE(grows, MOST) << call << ": " << blocks << " blocks in " << small.calls[call] << " calls at " << few << ", "
                               << large.blocks[call] << " in " << large.calls[call] << " at " << many;
    }
}

// Free blocks that are a little smaller than a request are in its class. A take with room elsewhere looks at a few of them.
uint64_t cost_of_takes_beside(size_t smaller)
{
    enum { UNITS = 64, TAKES = 50 };
    zoff_arena arena = {};
    std::vector<int32_t> blocks(smaller);
    int32_t block;
    char *const nowhere = (char *)(uintptr_t)ZOFF_ARENA_UNIT; // nobody reads or writes the memory
    EXPECT_ZOFF_OK(zoff_transfer_arena_add(&arena, nowhere, (smaller + 2) * (UNITS + 1) * ZOFF_ARENA_UNIT, &block));
    for (int32_t &one : blocks)
        EXPECT_TRUE(zoff_transfer_arena_take(&arena, UNITS * ZOFF_ARENA_UNIT, &one) &&
                    zoff_transfer_arena_take(&arena, ZOFF_ARENA_UNIT, &block));
    for (const int32_t one : blocks)
        zoff_transfer_arena_give(&arena, one);
    const uint64_t blocks_run = count_blocks([&] {
        for (size_t i = 0; i < TAKES; i++) {
            EXPECT_TRUE(zoff_transfer_arena_take(&arena, (UNITS + 1) * ZOFF_ARENA_UNIT, &block));
            zoff_transfer_arena_give(&arena, block);
        }
    });
    zoff_transfer_arena_end(&arena);
    return blocks_run;
}

TEST(GrowthArena, ATakeCostsTheSameBesideAnyNumberOfSmallerBlocks)
{
    const uint64_t few = cost_of_takes_beside(100), many = cost_of_takes_beside(1600);
    ASSERT_LT(0u, few);
    EXPECT_LE(many, few + few / 10);
}
} // namespace
