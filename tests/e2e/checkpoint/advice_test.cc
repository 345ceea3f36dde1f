// advice_test.cc: the ways out that errors of seal and of loads name are carried out. The errors are about memory that is too
// small, state files of another model, bytes of the program that are not there, and moments that 8 bits do not store.
#include "saved_run.h"
#include "small_engine.h"

#include <zoff/zoff.h>

#include <deque>

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
        const program refused(persistent(states.path), models[i].second);
        ASSERT_EQ(ZOFF_ERR_INVALID, refused.status);
        ASSERT_NE(refused.words.npos, refused.words.find("The command `zoff checkpoint reshard` makes a checkpoint of it. That "
                                                         "loads into moments of any format, and with "
                                                         "zoff_checkpoint_opts.allow into a model that differs"))
            << refused.words;
        const std::string to = checkpoints.file("of" + std::to_string(i));
        ASSERT_ZOFF_OK(zoff_state_files_checkpoint(folders, 1, to.c_str(), nullptr, nullptr, nullptr));
        const std::string fresh = other_states.file("of" + std::to_string(i));
        ASSERT_EQ(0, system(("mkdir '" + fresh + "'").c_str()));
        program second(persistent(fresh), models[i].second, -2);
        ASSERT_EQ(ZOFF_OK, second.status) << second.words;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string("'") + models[i].first + "'",
                          zoff_checkpoint_load(second.e.get(), to.c_str(), nullptr));
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.allow = models[i].first;
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
} // namespace
