/* SPDX-License-Identifier: Apache-2.0 */
// resume_test.cc: 40 updates, or 20, a checkpoint, a new engine in other memory, and 20 more: masters, moments, weights, loss
// scale, and the numbers of each step have the same bits. Also models that differ, as far as the program allows it.
#include "covering.h"
#include "saved_run.h"

#include <string.h>

using namespace zoff_test;

namespace
{
struct recipe {
    const char *name;
    std::string optimizer;
    zoff_optimizer second; // optimizer of group 1
    double momentum = 0;
};

const std::vector<recipe> RECIPES = {
    {"adam", "\"type\": \"Adam\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1, \"adam_w_mode\": false}",
     ZOFF_OPTIMIZER_ADAM},
    {"adamw", "\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}", ZOFF_OPTIMIZER_ADAM},
    {"lion", "\"type\": \"Lion\", \"params\": {\"lr\": 1e-3}", ZOFF_OPTIMIZER_LION},
    {"adagrad", "\"type\": \"Adagrad\", \"params\": {\"lr_decay\": 0.1, \"initial_accumulator_value\": 0.125}",
     ZOFF_OPTIMIZER_ADAGRAD},
    {"sgd", "\"type\": \"SGD\", \"params\": {\"lr\": 0.01}", ZOFF_OPTIMIZER_SGD},
    {"momentum", "\"type\": \"SGD\", \"params\": {\"lr\": 0.01, \"momentum\": 0.9}", ZOFF_OPTIMIZER_SGD, 0.5},
    {"adamAndSgd", "\"type\": \"Adam\", \"params\": {\"lr\": 0.01}", ZOFF_OPTIMIZER_SGD},
    {"adagradAndLion", "\"type\": \"Adagrad\"", ZOFF_OPTIMIZER_LION}};

bool is_adam(const recipe &r)
{
    return r.optimizer.find("\"Adam") != std::string::npos;
}

struct schedule {
    const char *name, *text;
};
const std::vector<schedule> SCHEDULES = {
    {"constant", ""},
    {"warmup", ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.02, \"warmup_num_steps\": 30}}"},
    {"cosine",
     ", \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 50, \"warmup_num_steps\": 10}}"},
    {"cycle", ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-3, \"cycle_max_lr\": 2e-2, "
              "\"cycle_first_step_size\": 15}}"}};

struct cell {
    run_shape shape;
    size_t optimizer, when;
    unsigned accumulation;
    bool skips_frozen, is_tied;
    unsigned format = 0;
};

// Keys of the section "zoff".
const struct {
    const char *name, *keys;
} FORMATS[] = {{"fp32", ", \"master\": \"fp32\""},
               {"split", ""},
               {"splitHalves", ", \"moments\": \"bf16\""},
               {"splitM8", ", \"moments\": \"m8v16\""}, // the formats from here on are for Adam only
               {"splitQ8", ", \"moments\": \"q8\""}};

std::string name_of(const cell &c)
{
    return zoff_test::name_of(c.shape) + "_" + RECIPES[c.optimizer].name + "_" + SCHEDULES[c.when].name + "_micro" +
           std::to_string(c.accumulation) + (c.skips_frozen ? "_skipsFrozen" : "") + (c.is_tied ? "_tied" : "") + "_" +
           FORMATS[c.format].name;
}

void fill(covering<cell> &cells)
{
    unsigned number = 0;
    for (unsigned stage : {0u, 1u, 2u, 3u}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (int tier = 0; tier < 3; tier++) {
                for (size_t optimizer = 0; optimizer < RECIPES.size(); optimizer++) {
                    for (size_t when = 0; when < SCHEDULES.size(); when++, number++) {
                        cell c = {{}, optimizer, when, number % 3 == 0 ? 2u : 1u, number / 2 % 2 == 0, number / 5 % 2 == 0};
                        c.shape.world = 1 + (number / 3 + when) % 2;
                        c.shape.stage = stage;
                        c.shape.dtype = dtype;
                        c.shape.tier = tier ? ZOFF_TIER_NVME : ZOFF_TIER_HOST;
                        c.shape.persist = tier == 2;
                        c.format = number % 7 % (is_adam(RECIPES[optimizer]) ? 5 : 3);
                        c.shape.engine = FORMATS[c.format].keys;
                        cells.add(c);
                    }
                }
            }
        }
    }
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/Resume.HasTheSameBits/", [](const cell &c) { return name_of(c); },
        [](const cell &c) {
            return covering<cell>::values{{"tier", c.shape.persist                  ? "persist"
                                                   : c.shape.tier == ZOFF_TIER_NVME ? "nvme"
                                                                                    : "host"},
                                          {"stage", std::to_string(c.shape.stage)},
                                          {"type", std::to_string((int)c.shape.dtype)},
                                          {"world", std::to_string(c.shape.world)},
                                          {"optimizer", RECIPES[c.optimizer].name},
                                          {"schedule", SCHEDULES[c.when].name},
                                          {"accumulation", std::to_string(c.accumulation)},
                                          {"frozen", c.skips_frozen ? "skipped" : "saved"},
                                          {"tied", c.is_tied ? "yes" : "no"},
                                          {"format", FORMATS[c.format].name}};
        },
        fill);
    return all;
}

// Facts that a rank can see of a run: numbers of each step; states, weights and loss scaler at the end.
struct sight {
    std::vector<zoff_step_numbers> steps;
    std::vector<std::vector<float>> states;
    std::vector<float> weights;
    zoff_loss_scaler scaler;
};

class run
{
  public:
    run(const cell &c_, const std::string &folder)
        : c(c_), shape(shape_of(c_)), r(shape, folder, nullptr, [this](zoff_engine *e, trainer &t) { prepare(e, t); }),
          sights(c_.shape.world)
    {
    }

    // Batches [from, to). Every ninth one overflows with fp16, so that hysteresis and window are in the middle at any time.
    void steps(int64_t from, int64_t to)
    {
        for (int64_t batch = from; batch < to; batch++) {
            r.leave_out = batch % 4 == 0 ? 0.3 : 0;
            for (unsigned micro = 0; micro < c.accumulation; micro++) {
                r.backward(batch * 2 + micro, c.shape.dtype == ZOFF_F16 && batch % 9 == 5 && micro == 0);
                r.job.on_each([&](unsigned rank) {
                    zoff_step_info info = new_info();
                    EXPECT_ZOFF_OK(r.step_on(rank, &info));
                    sights[rank].steps.push_back(info.numbers);
                    if (rank == 0 && info.skipped)
                        skipped++;
                });
                r.all.forget();
            }
        }
    }

    std::vector<sight> look()
    {
        r.job.on_each([&](unsigned rank) {
            zoff_engine *e = r.engine_of(rank);
            sight &s = sights[rank];
            trainer &t = *r.all.trainers[rank];
            s.scaler = ZOFF_LOSS_SCALER_INIT;
            EXPECT_ZOFF_OK(zoff_loss_scaler_get(e, &s.scaler));
            for (size_t i = 0; i < t.tensors.size(); i++) {
                look_at_states(e, i, t.tensors[i], s);
                for (size_t k = 0; k < t.tensors[i].total(); k++)
                    s.weights.push_back(trainer::get(t.value(i), t.tensors[i].dtype, t.place(i, k)));
            }
        });
        return sights;
    }

    // Another process has other bytes in its memory. Frozen weights that no checkpoint has are those that it has read itself.
    void scramble()
    {
        for (auto &t : r.all.trainers) {
            t->scramble();
            for (size_t i = 0; !c.skips_frozen && i < t->tensors.size(); i++) {
                for (size_t k = 0; t->tensors[i].frozen && k < t->tensors[i].total(); k++)
                    trainer::put(t->value(i), t->tensors[i].dtype, t->place(i, k), -1.0f);
            }
        }
    }

    const cell c;
    const run_shape shape;
    saved_run r;
    int skipped = 0;

  private:
    static run_shape shape_of(const cell &c)
    {
        run_shape s = c.shape;
        s.optimizer = RECIPES[c.optimizer].optimizer;
        s.more = SCHEDULES[c.when].text;
        s.more += ", \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": " + std::to_string(c.accumulation);
        if (s.dtype == ZOFF_F16)
            s.more +=
                ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 8, \"loss_scale_window\": 5, \"hysteresis\": 2}";
        return s;
    }

    void prepare(zoff_engine *e, trainer &t)
    {
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, RECIPES[c.optimizer].second);
        h.lr = 0.003;
        h.momentum = RECIPES[c.optimizer].momentum;
        EXPECT_ZOFF_OK(zoff_engine_set_group(e, 1, &h));
        if (!c.is_tied)
            return;
        zoff_param_desc d = t.desc(0);
        d.name = "head";
        d.grad = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_add_param(e, &d, nullptr));
    }

    // The optimizer of the group says which states there are: each of them must be readable.
    static void look_at_states(zoff_engine *e, size_t i, const reference::tensor &tensor, sight &out)
    {
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        EXPECT_ZOFF_OK(zoff_engine_get_group(e, tensor.group, 1, &h));
        const bool is_adam = h.optimizer == ZOFF_OPTIMIZER_ADAM;
        const std::pair<zoff_state_kind, bool> kinds[] = {
            {ZOFF_STATE_MASTER, true},
            {ZOFF_STATE_M, is_adam || h.optimizer == ZOFF_OPTIMIZER_LION || h.momentum > 0},
            {ZOFF_STATE_V, is_adam || h.optimizer == ZOFF_OPTIMIZER_ADAGRAD}};
        for (const auto &[kind, is_there] : kinds) {
            std::vector<float> all(tensor.total());
            if (tensor.frozen || !is_there)
                continue;
            EXPECT_ZOFF_OK(zoff_state_read(e, (zoff_param)i, kind, 0, all.size(), all.data()));
            out.states.push_back(all);
        }
    }

    std::vector<sight> sights;
};

bool same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

void expect_same(const sight &a, const sight &b, size_t half)
{
    ASSERT_EQ(a.steps.size(), b.steps.size() + half);
    for (size_t i = 0; i < b.steps.size(); i++) {
        EXPECT_TRUE(same(&a.steps[half + i], &b.steps[i], sizeof b.steps[i]))
            << "step " << i << " after the checkpoint: norm " << a.steps[half + i].grad_norm << " and " << b.steps[i].grad_norm
            << ", scale " << a.steps[half + i].loss_scale << " and " << b.steps[i].loss_scale;
    }
    EXPECT_TRUE(same(&a.scaler, &b.scaler, sizeof a.scaler));
    ASSERT_EQ(a.states.size(), b.states.size());
    for (size_t i = 0; i < a.states.size(); i++)
        EXPECT_TRUE(same(a.states[i].data(), b.states[i].data(), a.states[i].size() * sizeof(float))) << "state " << i;
    EXPECT_TRUE(same(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)));
}

class Resume : public testing::TestWithParam<cell>
{
};

INSTANTIATE_TEST_SUITE_P(Matrix, Resume, testing::ValuesIn(matrix().cells()), [](const auto &p) { return name_of(p.param); });

TEST(ResumeCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(Resume, HasTheSameBits)
{
    enum { HALF = 20 };
    quiet_log quiet;
    scratch_folder folder;
    const cell &c = GetParam();
    const std::string states[] = {folder.file("straight"), folder.file("first"), folder.file("second")},
                      saves = folder.file("saves");
    for (const std::string &path : states)
        std::filesystem::create_directory(path);
    std::vector<sight> want;
    {
        run straight(c, states[0]);
        straight.steps(0, 2 * HALF);
        want = straight.look();
        EXPECT_TRUE(c.shape.dtype != ZOFF_F16 || straight.skipped == 4) << straight.skipped;
    }
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.skip_frozen = c.skips_frozen;
    {
        run first(c, states[1]);
        first.steps(0, HALF);
        expect_all_ok(first.r.save(saves, opts));
    }
    run second(c, states[2]);
    second.scramble();
    expect_all_ok(second.r.load(saves));
    second.steps(HALF, 2 * HALF);
    const std::vector<sight> have = second.look();
    for (size_t rank = 0; rank < want.size(); rank++)
        expect_same(want[rank], have[rank], HALF * c.accumulation);
}

// ---- models that differ ----

class OtherModels : public testing::TestWithParam<run_shape>
{
    save_log log;
};

run_shape shape_of(unsigned world, zoff_tier tier, bool persist)
{
    run_shape s;
    s.world = world;
    s.tier = tier;
    s.persist = persist;
    s.dtype = persist ? ZOFF_F32 : ZOFF_BF16;
    return s;
}

INSTANTIATE_TEST_SUITE_P(Runs, OtherModels,
                         testing::Values(shape_of(1, ZOFF_TIER_HOST, false), shape_of(1, ZOFF_TIER_NVME, false),
                                         shape_of(2, ZOFF_TIER_NVME, true)),
                         [](const auto &p) { return zoff_test::name_of(p.param); });

// The tensors of a saved_run, and more behind them: those share a chunk with the last of them.
void add_more(trainer &t, zoff_dtype dtype)
{
    saved_run::add_tensors(t, dtype);
    t.add(900, 1, dtype, dtype);
    t.add(100, 2, dtype, dtype, 0, true);
}

// A checkpoint of a smaller model loads where the program allows what is missing, which stays as it is.
TEST_P(OtherModels, MayLackParameters)
{
    scratch_folder folder, states[2];
    saved_run small(GetParam(), states[0].path);
    small.step(1);
    expect_all_ok(small.save(folder.path));
    saved_run large(GetParam(), states[1].path, [](trainer &t) { add_more(t, GetParam().dtype); });
    large.step(1);
    large.step(2);
    const auto before = large.all.want.tensors;
    for (const auto &one : large.load(folder.path)) {
        EXPECT_EQ(ZOFF_ERR_INVALID, one.status);
        EXPECT_NE(std::string::npos, one.words.find("'param5' is not in the checkpoint; 'param6' is not")) << one.words;
    }
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.allow = "param5";
    for (const auto &one : large.load(folder.path, opts)) {
        EXPECT_EQ(ZOFF_ERR_INVALID, one.status);
        EXPECT_EQ(std::string::npos, one.words.find("'param5'")) << one.words;
    }
    large.expect(before);
    opts.allow = "nothing param5 par*6";
    expect_all_ok(large.load(folder.path, opts));
    large.take(small.all.want.tensors);
    large.expect();
    large.step(2);
    large.expect();
}

TEST_P(OtherModels, MayHaveTooManyParameters)
{
    scratch_folder folder, states[2];
    saved_run large(GetParam(), states[0].path, [](trainer &t) { add_more(t, GetParam().dtype); });
    large.step(1);
    expect_all_ok(large.save(folder.path));
    saved_run small(GetParam(), states[1].path);
    small.step(1);
    for (const auto &one : small.load(folder.path)) {
        EXPECT_EQ(ZOFF_ERR_INVALID, one.status);
        EXPECT_NE(std::string::npos, one.words.find("'param5' is in the checkpoint only")) << one.words;
    }
    small.expect();
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.allow = "*5 *6";
    expect_all_ok(small.load(folder.path, opts));
    saved_run::tensors want = large.all.want.tensors;
    want.resize(5);
    small.expect(want);
}

// Shapes and optimizers must be the same.
TEST_P(OtherModels, AreRefusedByName)
{
    struct other {
        const char *words;
        std::function<void(trainer &t)> fill;
        std::string optimizer;
    };
    const zoff_dtype d = GetParam().dtype;
    auto with = [d](size_t count, size_t slices, bool frozen) {
        return [=](trainer &t) {
            t.add(count, slices, d, d, 0, frozen);
            trainer rest(1);
            saved_run::add_tensors(rest, d);
            for (size_t i = 1; i < rest.tensors.size(); i++) {
                const reference::tensor &x = rest.tensors[i];
                t.add(x.count, x.slices, x.dtype, x.grad_dtype, x.group, x.frozen);
            }
        };
    };
    const std::string adam = run_shape().optimizer;
    const std::vector<other> others = {
        {"'param0' has 1 slices of 5000 elements, here 1 of 5001", with(5001, 1, false), adam},
        {"'param0' has 1 slices of 5000 elements, here 2 of 2500", with(2500, 2, false), adam},
        {"'param0' is trained, here frozen", with(5000, 1, true), adam},
        {"'param0' has states that its optimizer has not here", with(5000, 1, false), "\"type\": \"Lion\""}};
    scratch_folder folder, states;
    {
        saved_run r(GetParam(), states.path);
        r.step(1);
        expect_all_ok(r.save(folder.path));
    }
    for (const other &one : others) {
        SCOPED_TRACE(one.words);
        scratch_folder other_states;
        run_shape s = GetParam();
        s.optimizer = one.optimizer;
        saved_run r(s, other_states.path, one.fill);
        for (const auto &result : r.load(folder.path)) {
            EXPECT_EQ(ZOFF_ERR_INVALID, result.status);
            EXPECT_NE(std::string::npos, result.words.find(one.words)) << result.words;
        }
    }
}
} // namespace
