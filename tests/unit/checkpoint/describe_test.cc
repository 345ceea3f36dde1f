// describe_test.cc: what the manifest says of an engine: states, shapes, names, ties, the loss scale, and the configuration.
#include "memory_fault.h"
#include "named_model.h"

using namespace zoff_test;

namespace
{
constexpr unsigned MASTER = 1 << ZOFF_STATE_MASTER, M = 1 << ZOFF_STATE_M, V = 1 << ZOFF_STATE_V,
                   WEIGHTS = 1 << ZOFF_STATE_WEIGHTS;

class Describe : public testing::Test
{
  protected:
    // Print the manifest, with the fields that a save adds, and parse it.
    void print_and_read()
    {
        size_t bytes = 0;
        static const char id[] = "0123456789abcdef";
        zoff_archive_manifest &m = model.a.manifest;
        memcpy(m.id, id, sizeof id);
        m.engines = 1;
        m.sequence = 1;
        ASSERT_ZOFF_OK(zoff_base_mem_copy_text("", &m.label));
        ASSERT_ZOFF_OK(zoff_base_mem_alloc(1, sizeof *m.files, "files", &m.files));
        m.file_count = 1;
        m.files[0].table_offset = ZOFF_ARCHIVE_PAGE;
        m.files[0].table_bytes = 64;
        m.files[0].bytes = m.files[0].table_offset + m.files[0].table_bytes;
        ASSERT_ZOFF_OK(zoff_archive_manifest_print(&m, &text, &bytes));
        ASSERT_ZOFF_OK(zoff_archive_manifest_read("manifest", text, bytes, &got));
    }
    bool says(const std::string &words) const { return strstr(text, words.c_str()) != nullptr; }
    ~Describe() override
    {
        zoff_archive_manifest_free(&got);
        zoff_base_mem_free(text);
    }
    log_catcher log;
    named_model model;
    char *text = nullptr;
    zoff_archive_manifest got = {};
};

TEST_F(Describe, StatesDependOnTheOptimizer)
{
    const std::pair<const char *, unsigned> ALL[] = {
        {"AdamW", MASTER | M | V}, {"Lion", MASTER | M}, {"Adagrad", MASTER | V}, {"SGD", MASTER}};
    model.add("trained", 100);
    model.add("float", 100, 1, ZOFF_F32);
    for (const auto &[optimizer, states] : ALL) {
        save_shape s = {"host"};
        s.optimizer = optimizer;
        model.seal(text_of(s, ""));
        for (size_t i = 0; i < 2; i++)
            EXPECT_EQ(states, zoff_planning_describe_states(model.view()->model, i, false)) << optimizer;
    }
}

TEST_F(Describe, FrozenOnesHaveWeightsAndTiedOnesNothing)
{
    model.add("wte", 60);
    model.add_frozen("pos", 10);
    model.add_tied("head", 0);
    model.seal();
    for (bool skip : {false, true}) {
        EXPECT_EQ(MASTER | M | V, zoff_planning_describe_states(model.view()->model, 0, skip));
        EXPECT_EQ(skip ? 0u : WEIGHTS, zoff_planning_describe_states(model.view()->model, 1, skip));
        EXPECT_EQ(0u, zoff_planning_describe_states(model.view()->model, 2, skip));
    }
}

TEST_F(Describe, TheManifestOfAnEngineIsReadAgain)
{
    model.add("wte", 60).slice_name = nullptr;
    model.shape({5, 12});
    model.add("layers", 24, 3).slice_name = "layers.{}.w";
    model.shape({2, 3, 4});
    model.add_frozen("p\xff%\n\"os", 7, 1, ZOFF_F16);
    model.add_tied("head", 0);
    model.add("empty", 0, 2, ZOFF_F32);
    model.seal();
    ASSERT_ZOFF_OK(zoff_step_count_set(model.made.get(), 41));
    zoff_archive_manifest &m = model.a.manifest;
    model.describe();
    EXPECT_EQ(0, m.t) << "the view was taken before";
    const zoff_engine_view now = zoff_engine_rooms_view(model.made.get());
    model.forget();
    ASSERT_ZOFF_OK(zoff_checkpoint_describe_engine(&now, false, &m));
    ASSERT_NO_FATAL_FAILURE(print_and_read());
    EXPECT_EQ(41, got.t);
    EXPECT_FALSE(got.has_scaler);
    ASSERT_EQ(5u, got.param_count);
    const zoff_archive_param *p = got.params;
    EXPECT_STREQ("wte", p[0].name);
    EXPECT_EQ(nullptr, p[0].slice_name);
    EXPECT_EQ((std::vector<size_t>{5, 12}), std::vector<size_t>(p[0].dims, p[0].dims + p[0].dim_count));
    EXPECT_EQ(60u, p[0].count);
    EXPECT_STREQ("layers.{}.w", p[1].slice_name);
    EXPECT_EQ((std::vector<size_t>{2, 3, 4}), std::vector<size_t>(p[1].dims, p[1].dims + p[1].dim_count));
    EXPECT_EQ(3u, p[1].slices);
    EXPECT_EQ(MASTER | M | V, p[1].states);
    EXPECT_STREQ("p\xff%\n\"os", p[2].name);
    EXPECT_EQ((std::vector<size_t>{7}), std::vector<size_t>(p[2].dims, p[2].dims + p[2].dim_count)) << "no dims: the count";
    EXPECT_EQ(ZOFF_F16, p[2].dtype);
    EXPECT_EQ(WEIGHTS, p[2].states);
    EXPECT_EQ(1u, p[3].tied_to);
    EXPECT_EQ(0u, p[3].states);
    EXPECT_EQ(0u, p[0].tied_to);
    EXPECT_EQ(0u, p[4].count);
    EXPECT_EQ(2u, p[4].slices);
}

TEST_F(Describe, SkippedFrozenOnesAreListedWithoutStates)
{
    model.add("wte", 60);
    model.add_frozen("pos", 10);
    model.seal();
    model.describe(true);
    ASSERT_NO_FATAL_FAILURE(print_and_read());
    ASSERT_EQ(2u, got.param_count);
    EXPECT_EQ(0u, got.params[1].states);
    EXPECT_EQ(10u, got.params[1].count);
}

TEST_F(Describe, TheLossScaleIsThatOfTheEngine)
{
    zoff_loss_scaler scaler = {sizeof scaler, 4096.5, 123, 7, 2};
    model.add("wte", 60, 1, ZOFF_F16);
    model.seal(config_text("", 1, ", \"fp16\": {\"enabled\": true, \"hysteresis\": 3}"));
    ASSERT_ZOFF_OK(zoff_loss_scaler_set(model.made.get(), &scaler));
    model.describe();
    ASSERT_NO_FATAL_FAILURE(print_and_read());
    ASSERT_TRUE(got.has_scaler);
    EXPECT_EQ(4096.5, got.scaler.scale);
    EXPECT_EQ(123, got.scaler.iterations);
    EXPECT_EQ(7, got.scaler.last_overflow);
    EXPECT_EQ(2u, got.scaler.hysteresis);
}

// The parser of the manifest reads the whole text, so what it accepts is JSON.
TEST_F(Describe, TheConfigurationIsJson)
{
    log.expect("\"auto\" leaves these keys to the trainer");
    model.add("wte", 60);
    model.seal(config_text("", 2,
                           ", \"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", \"fp16\": "
                           "{\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": "
                           "\"auto\"}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": \"auto\"}}"));
    model.describe();
    ASSERT_NO_FATAL_FAILURE(print_and_read());
    EXPECT_TRUE(says("\"ranks\": 1, \"stage\": 2, \"tier\": \"host\""));
    EXPECT_TRUE(says("\"configuration\": {"));
    EXPECT_TRUE(says("gradient_accumulation_steps"));
    EXPECT_TRUE(says("WarmupLR"));
}

TEST_F(Describe, WithoutMemory)
{
    model.add("wte", 60).slice_name = "w.{}";
    model.add_frozen("pos", 10);
    model.seal();
    EXPECT_LE(4, fail_each_allocation([&] {
                  zoff_archive_manifest m = {};
                  const zoff_status status = zoff_checkpoint_describe_engine(model.view(), false, &m);
                  zoff_archive_manifest_free(&m);
                  return status;
              }));
}
} // namespace
