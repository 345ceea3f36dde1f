/* SPDX-License-Identifier: Apache-2.0 */
// advice_test.cc: the ways out that errors name are carried out. Errors of seal and of loads are about memory that is too
// small, state files of another model, bytes of the program that are not there, and moments that 8 bits do not store. Others
// are about settings that contradict each other, calls out of their order, and variables of launchers.
#include "launcher.h"
#include "saved_run.h"
#include "small_engine.h"

#include <zoff/zoff.h>

#include <string.h>

#include <deque>
#include <functional>

using namespace zoff_test;

namespace
{
struct described {
    std::string name;
    size_t count;
    bool frozen = false;
};

// An engine with its memory.
class program
{
  public:
    program(const std::string &text, const std::vector<described> &params, float first = 1)
    {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        e = make_engine(text, opts);
        for (const described &p : params) {
            values.emplace_back(p.count, first);
            grads.emplace_back(p.count, 0.5f);
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = p.name.c_str();
            d.value = values.back().data();
            d.grad = grads.back().data();
            d.count = p.count;
            d.frozen = p.frozen;
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        status = zoff_engine_seal(e.get());
        words = status < 0 ? zoff_last_error() : "";
    }
    void step() { EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); }
    std::vector<float> state(zoff_param p, zoff_state_kind kind)
    {
        std::vector<float> numbers(values[p].size());
        EXPECT_ZOFF_OK(zoff_state_read(e.get(), p, kind, 0, numbers.size(), numbers.data()));
        return numbers;
    }

    engine e;
    zoff_status status;
    std::string words;
    std::deque<std::vector<float>> values, grads;
};

class Advice : public testing::Test
{
  protected:
    std::string persistent(const std::string &folder, const std::string &persist = "true") const
    {
        return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1, "offload_optimizer": )"
               R"({"device": "nvme", "nvme_path": ")" +
               folder + R"("}}, "zoff": {"persist": )" + persist + "}}";
    }
    // The number in front of " bytes" that follows these words.
    static std::string number_after(const std::string &text, const std::string &words)
    {
        const size_t at = text.find(words);
        EXPECT_NE(text.npos, at) << text;
        return at == text.npos ? "" : text.substr(at + words.size(), text.find(" bytes", at) - at - words.size());
    }

    save_log log;
    scratch_folder states, other_states, checkpoints;
};

TEST_F(Advice, MemoryThatIsTooSmallIsRaisedToTheNumberInTheError)
{
    const std::vector<described> params = {{"w", 3000000}};
    for (const bool in_files : {false, true}) {
        const std::string offload = in_files ? R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", )"
                                               R"("nvme_path": ")" +
                                                   states.path + R"("}}, )"
                                             : "";
        const auto text = [&](const std::string &bytes) {
            return "{" + offload + R"("zoff": {"host_memory": )" + bytes + "}}";
        };
        const program small(text("4096"), params);
        ASSERT_EQ(ZOFF_ERR_NO_MEMORY, small.status) << small.words;
        const program raised(text(number_after(small.words, "raise it to ")), params);
        EXPECT_EQ(ZOFF_OK, raised.status) << raised.words;
    }
}

TEST_F(Advice, StatesOfAnotherModelAreReshardedAndLoaded)
{
    const std::vector<described> model = {{"wte", 4000}, {"adapter", 300}, {"base", 500, true}};
    const std::vector<std::pair<const char *, std::vector<described>>> models = {
        {"wte", {{"wte", 5000}, {"adapter", 300}, {"base", 500, true}}},
        {"adapter", {{"wte", 4000}, {"adapter", 300, true}, {"base", 500, true}}},
        {"base", {{"wte", 4000}, {"adapter", 300}, {"base", 500}}},
        {"adapter", {{"wte", 4000}, {"base", 500, true}}},
        {"new", {{"wte", 4000}, {"adapter", 300}, {"base", 500, true}, {"new", 70}}},
        {"wte", model}, // with another optimizer
    };
    std::vector<float> master;
    {
        program first(persistent(states.path), model);
        ASSERT_EQ(ZOFF_OK, first.status) << first.words;
        first.step();
        master = first.state(0, ZOFF_STATE_MASTER);
    }
    const char *folders[] = {states.path.c_str()};
    for (size_t i = 0; i < models.size(); i++) {
        const bool is_other = i + 1 == models.size();
        const auto text = [&](const std::string &path) {
            std::string settings = persistent(path);
            return is_other ? settings.replace(settings.find("AdamW"), 5, "Lion") : settings;
        };
        const program refused(text(states.path), models[i].second);
        ASSERT_EQ(ZOFF_ERR_INVALID, refused.status);
        ASSERT_NE(refused.words.npos, refused.words.find("The command `zoff checkpoint reshard` makes a checkpoint of it. That "
                                                         "loads into moments of any format, with "
                                                         "zoff_checkpoint_opts.allow into a model that differs, and with "
                                                         "weights_only into another optimizer"))
            << refused.words;
        const std::string to = checkpoints.file("of" + std::to_string(i));
        ASSERT_ZOFF_OK(zoff_state_files_checkpoint(folders, 1, to.c_str(), nullptr, nullptr, nullptr));
        const std::string fresh = other_states.file("of" + std::to_string(i));
        ASSERT_EQ(0, system(("mkdir '" + fresh + "'").c_str()));
        program second(text(fresh), models[i].second, -2);
        ASSERT_EQ(ZOFF_OK, second.status) << second.words;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string("'") + models[i].first + "'",
                          zoff_checkpoint_load(second.e.get(), to.c_str(), nullptr));
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.allow = is_other ? nullptr : models[i].first;
        opts.weights_only = is_other;
        if (i < 3)
            log.expect("as zoff_checkpoint_opts.allow permits");
        ASSERT_ZOFF_OK(zoff_checkpoint_load(second.e.get(), to.c_str(), &opts)) << models[i].first;
        std::vector<float> want = master;
        want.resize(models[i].second[0].count, -2);
        EXPECT_EQ(want, second.state(0, ZOFF_STATE_MASTER));
        if (i == 1) {
            EXPECT_EQ(master[0], second.values[1][0]) << "the master is the weight now";
        } else if (i == 2) {
            EXPECT_EQ(-2, second.values[2][0]) << "frozen weights are not in state files";
        }
        second.step();
    }
}

TEST_F(Advice, ARunThatHasNothingToContinueWithStartsAnew)
{
    const std::vector<described> params = {{"w", 1000}};
    const program refused(persistent(states.path, "\"require\""), params);
    ASSERT_EQ(ZOFF_ERR_INVALID, refused.status);
    EXPECT_NE(refused.words.npos, refused.words.find("To start a new run, set zoff.persist to true")) << refused.words;
    const program anew(persistent(states.path), params);
    EXPECT_EQ(ZOFF_OK, anew.status) << anew.words;
}

TEST_F(Advice, BytesOfTheProgramAreLeftOutOrAskedFor)
{
    const std::string text = "{}";
    const char *folder = checkpoints.path.c_str();
    uint64_t saved = 7, other = 8;
    char small[4];
    bool found = true;
    zoff_checkpoint_data data = {"position", &saved, sizeof saved, false};
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.data = &data;
    opts.data_count = 1;
    program p(text, {{"w", 100}});
    ASSERT_ZOFF_OK(zoff_checkpoint_save(p.e.get(), folder, &opts));
    data = {"seed", &other, sizeof other, false};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "leave it out of zoff_checkpoint_opts.data, or set data_found",
                      zoff_checkpoint_load(p.e.get(), folder, &opts));
    EXPECT_ZOFF_OK(zoff_checkpoint_load(p.e.get(), folder, nullptr));
    opts.data_found = &found;
    EXPECT_ZOFF_OK(zoff_checkpoint_load(p.e.get(), folder, &opts));
    EXPECT_FALSE(found);
    EXPECT_EQ(8u, other);
    data = {"position", small, sizeof small, false};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "give it 8, or leave it out", zoff_checkpoint_load(p.e.get(), folder, &opts));
    data = {"position", &other, 8, false};
    EXPECT_ZOFF_OK(zoff_checkpoint_load(p.e.get(), folder, &opts));
    EXPECT_TRUE(found);
    EXPECT_EQ(7u, other);
}

TEST_F(Advice, MomentsThat8BitsDoNotStoreHaveThreeWaysOut)
{
    enum { COUNT = 5000 };
    const char *folder = checkpoints.path.c_str();
    zoff_checkpoint_writer *w = nullptr;
    zoff_checkpoint_param param = ZOFF_CHECKPOINT_PARAM_INIT;
    param.name = "w";
    param.count = COUNT;
    param.slices = 1;
    param.dtype = ZOFF_F32;
    param.states = 7;
    std::vector<float> numbers(COUNT, 0.25f);
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_open(folder, nullptr, 3, &param, 1, nullptr, &w));
    for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
        std::fill_n(numbers.begin() + 2000, 11, kind == ZOFF_STATE_V ? INFINITY : 0.25f); // a block stores 10
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_write(w, 0, kind, 0, COUNT, numbers.data()));
    }
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w));
    zoff_checkpoint_writer_close(w);
    const auto load = [&](const std::string &settings) {
        const program p("{\"zoff\": {" + settings + "}}", {{"w", COUNT}});
        EXPECT_EQ(ZOFF_OK, p.status) << p.words;
        return zoff_checkpoint_load(p.e.get(), folder, nullptr);
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                      "load it with zoff.moments \"bf16\" or \"fp32\", or name the parameter in zoff.fp32_moments",
                      load(R"("moments": "q8")"));
    EXPECT_ZOFF_OK(load(R"("moments": "bf16")"));
    EXPECT_ZOFF_OK(load(R"("moments": "fp32")"));
    EXPECT_ZOFF_OK(load(R"("moments": "q8", "fp32_moments": ["w"])"));
}

using setting = std::function<void(zoff_engine_opts &)>;

// An engine with these settings, its first step, and its end.
zoff_status opened(const std::string &text, const setting &set = nullptr)
{
    std::vector<float> value(5000, 1.0f), grad(5000, 0.5f);
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    d.name = "w";
    d.value = value.data();
    d.grad = grad.data();
    d.count = value.size();
    zoff_config *made = nullptr;
    EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "advice.json", &made));
    const config settings(made);
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config = made;
    if (set)
        set(opts);
    zoff_engine *e = nullptr;
    zoff_status status = zoff_engine_open(&opts, &d, 1, &e);
    const engine owned(e);
    int64_t steps = 0;
    if (status == ZOFF_OK && zoff_step_count(e, &steps) == ZOFF_OK && steps > 0)
        status = zoff_params_push(e);
    return status < 0 ? status : zoff_step(e, nullptr, nullptr);
}

TEST_F(Advice, SettingsThatContradictEachOtherAreSetAsTheErrorSays)
{
    const std::string nvme = R"({"device": "nvme", "nvme_path": ")" + states.path + R"("})";
    const std::string adam = R"("optimizer": {"type": "AdamW"})", lion = R"("optimizer": {"type": "Lion"})";
    zoff_comm *alone = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &alone));
    const comm owned(alone);
    const setting none = [](zoff_engine_opts &) {};
    const struct {
        const char *words;
        std::string refused;
        setting set;
        std::vector<std::pair<std::string, setting>> ways_out;
    } cases[] = {
        {"pass the communicator that you have, or let the engine join",
         "{}",
         [&](zoff_engine_opts &o) { o.comm = alone, o.ranks = "self"; },
         {{"{}", [&](zoff_engine_opts &o) { o.comm = alone; }}, {"{}", [](zoff_engine_opts &o) { o.ranks = "self"; }}}},
        {"set it to \"bf16\" or \"fp32\", or optimizer.type to \"AdamW\"",
         "{" + lion + R"(, "zoff": {"moments": "q8"}})",
         none,
         {{"{" + lion + R"(, "zoff": {"moments": "bf16"}})", none},
          {"{" + lion + R"(, "zoff": {"moments": "fp32"}})", none},
          {"{" + adam + R"(, "zoff": {"moments": "q8"}})", none}}},
        {"set zoff.skip_nonfinite to true",
         R"({"zoff": {"moments": "q8", "skip_nonfinite": false}})",
         none,
         {{R"({"zoff": {"moments": "q8", "skip_nonfinite": true}})", none}}},
        {"set zoff.skip_nonfinite to true, or use bf16",
         R"({"fp16": {"enabled": true}, "zoff": {"skip_nonfinite": false}})",
         none,
         {{R"({"fp16": {"enabled": true}, "zoff": {"skip_nonfinite": true}})", none},
          {R"({"bf16": {"enabled": true}, "zoff": {"skip_nonfinite": false}})", none}}},
        {"no folder is given: set zero_optimization.offload_param.nvme_path",
         R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})",
         none,
         {{R"({"zero_optimization": {"stage": 3, "offload_param": )" + nvme + "}}", none}}},
        {"no folder is given: set zero_optimization.offload_optimizer.nvme_path",
         R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})",
         none,
         {{R"({"zero_optimization": {"offload_optimizer": )" + nvme + "}}", none}}},
        {"set zero_optimization.offload_optimizer.device to \"nvme\", or persist to false",
         R"({"zoff": {"persist": true}})",
         none,
         {{R"({"zoff": {"persist": false}})", none}, {persistent(states.path), none}}}, // whose step is opened next
        {"so there are no states to open: set it to true",
         persistent(states.path, "false"),
         [](zoff_engine_opts &o) { o.persist_t = 1; },
         {{persistent(states.path), [](zoff_engine_opts &o) { o.persist_t = 1; }}}},
    };
    for (const char *note : {"but w is fp32: the program sets the type of weights", "but no parameter is engine_owned"})
        log.expect(note);
    for (const auto &one : cases) {
        EXPECT_LT(opened(one.refused, one.set), 0) << one.words;
        EXPECT_NE(nullptr, strstr(zoff_last_error(), one.words)) << zoff_last_error();
        for (const auto &way : one.ways_out)
            EXPECT_ZOFF_OK(opened(way.first, way.second)) << one.words << "\n" << way.first;
    }
}

TEST_F(Advice, CallsOutOfTheirOrderAreMadeAsTheErrorSays)
{
    program p(R"({"gradient_accumulation_steps": 2})", {{"w", 1000}});
    zoff_engine *e = p.e.get();
    std::vector<float> other(1000, 0.25f);
    zoff_norm_sum sum;
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_step() for it, and measure the last one", zoff_step_measure(e, nullptr, &sum));
    EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    memset(&sum, 0, sizeof sum);
    args.norm_sum = &sum;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_step_measure() first", zoff_step(e, &args, nullptr));
    EXPECT_ZOFF_OK(zoff_step_measure(e, nullptr, &sum));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "pass the joined sum in zoff_step_args.norm_sum, or call zoff_grads_drop()",
                      zoff_step(e, nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_step(e, &args, nullptr));
    EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_step_measure(e, nullptr, &sum));
    EXPECT_ZOFF_OK(zoff_grads_drop(e)) << "the other way out";

    EXPECT_ZOFF_OK(zoff_grad_ready(e, 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call it before zoff_grad_ready()", zoff_grad_weight(e, 2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "bind other buffers after zoff_step_wait(), or call zoff_grads_drop() first",
                      zoff_param_bind(e, 0, nullptr, other.data()));
    EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_param_bind(e, 0, nullptr, other.data()));
    EXPECT_ZOFF_OK(zoff_grad_weight(e, 2));
    EXPECT_ZOFF_OK(zoff_grad_ready(e, 0, 0, nullptr));
    EXPECT_ZOFF_OK(zoff_grads_drop(e));
    EXPECT_ZOFF_OK(zoff_param_bind(e, 0, nullptr, p.grads[0].data()));

    uint64_t position = 5;
    const zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "Set zoff.persist to true, which needs states on NVMe, or save the bytes in checkpoints",
                      zoff_persist_data(e, &data, 1));
    const program kept(persistent(states.path), {{"w", 1000}});
    EXPECT_ZOFF_OK(zoff_persist_data(kept.e.get(), &data, 1));
}

// "self" joins nobody, whatever a launcher's variables say.
TEST_F(Advice, ALauncherThatIsNotUnderstoodIsLeftOut)
{
    const struct {
        const char *words;
        variables set;
    } cases[] = {
        {"Unset the variables of the wrong launcher, or choose the communicator \"self\"",
         {{"OMPI_COMM_WORLD_SIZE", "4"}, {"WORLD_SIZE", "2"}}},
        {"or choose \"self\" for independent ranks",
         {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}}},
        {"For ranks that are independent on purpose choose \"self\"", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}},
    };
    const no_launcher clean;
    for (const auto &one : cases) {
        const with_variables here(one.set);
        EXPECT_LT(opened("{}", [](zoff_engine_opts &o) { o.ranks = "auto"; }), 0);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), one.words)) << zoff_last_error();
        EXPECT_ZOFF_OK(opened("{}", [](zoff_engine_opts &o) { o.ranks = "self"; }));
    }
    EXPECT_LT(opened("{}", [](zoff_engine_opts &o) { o.ranks = "absent"; }), 0);
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "choose self, threads, mpi, ucx, nccl or auto")) << zoff_last_error();
    for (const char *ranks : {"self", "threads", "auto"})
        EXPECT_ZOFF_OK(opened("{}", [ranks](zoff_engine_opts &o) { o.ranks = ranks; }));
}
} // namespace
