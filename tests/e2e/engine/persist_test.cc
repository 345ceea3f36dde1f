/* SPDX-License-Identifier: Apache-2.0 */
// persist_test.cc: states that outlive their engine, as a program sees them: what is stored, what the program must do before
// the next step, and what may change between two runs. The test parity_test.cc checks that the numbers continue bit for bit.
#include "small_engine.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <thread>

using namespace zoff_test;

namespace
{
class Persist : public testing::Test
{
  protected:
    Persist() : t(3)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
        t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
    }

    std::string text(const std::string &more = "")
    {
        return config_text(folder.path, 1, ", \"zoff\": {\"persist\": true" + more + "}");
    }

    void open(uint64_t host_bytes = 0)
    {
        e.reset();
        e = seal_engine(t, text(), 2048, host_bytes);
    }

    void step(int64_t number)
    {
        auto info = new_info();
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        ASSERT_EQ(number, info.t);
        reference::step(t.tensors, config_groups(), number, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }

    int64_t count()
    {
        int64_t n = -1;
        EXPECT_ZOFF_OK(zoff_step_count(e.get(), &n));
        return n;
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
    engine e;
};

TEST_F(Persist, TheCutStaysAndTheBudgetMayChange)
{
    open();
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_EQ(0u, plan.resident_bytes);
    step(1);
    open((plan.chunk_count + 3) * plan.chunk_bytes);
    const zoff_plan_info all = plan_of(e.get());
    EXPECT_EQ(plan.chunk_count, all.chunk_count);
    EXPECT_EQ(all.nvme_bytes, 2 * all.resident_bytes);
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    step(2);
    // sub_group_size applies only to states that are new.
    e.reset();
    e = seal_engine(t, text(), 1024);
    EXPECT_EQ(plan.chunk_count, plan_of(e.get()).chunk_count);
    EXPECT_EQ(2, count());
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    step(3);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    // A budget too small for chunks of this size is refused. The error names a budget that suffices.
    e.reset();
    e = make_engine(t, text(), 2048, 2 * plan.chunk_bytes);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "raise it to " + std::to_string(3 * plan.chunk_bytes) + " bytes",
                      zoff_engine_seal(e.get()));
}

TEST_F(Persist, PushOrPullMakesWeightsAndMastersEqual)
{
    open();
    step(1);
    t.scramble();
    open();
    EXPECT_TRUE(log.contains("the states are those after step 1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the states are those after step 1, but the weights may be others",
                      zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    step(2);
    // The other way: the moments stay, and the program's weights become the new masters.
    t.scramble();
    open();
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    for (size_t i = 0; i < t.tensors.size(); i++) {
        for (size_t k = 0; k < t.tensors[i].total(); k++)
            t.tensors[i].master[k] = trainer::get(t.value(i), t.tensors[i].dtype, t.place(i, k));
    }
    step(3);
    open(); // the masters were stored
    t.scramble();
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_F(Persist, ValuesSetBetweenStepsPersist)
{
    open();
    step(1);
    std::vector<float> master(2100, 0.5f), v(9000, 0.25f);
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 1, ZOFF_STATE_MASTER, 0, master.size(), master.data()));
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_V, 0, v.size(), v.data()));
    ASSERT_ZOFF_OK(zoff_step_count_set(e.get(), 41));
    t.tensors[1].master = master;
    t.tensors[0].v = v;
    t.scramble();
    open();
    EXPECT_EQ(41, count());
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    step(42);
}

TEST_F(Persist, AnotherModelIsRefused)
{
    open();
    step(1);
    e.reset();
    trainer other(4);
    other.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    other.add(700, 3, ZOFF_F32, ZOFF_F32);
    other.add(1501, 1, ZOFF_F16, ZOFF_F16, 1);
    engine refused = make_engine(other, text(), 2048);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "/zoff-r0.states' holds the states of another model", zoff_engine_seal(refused.get()));
    // Another optimizer has other states, even if their sizes are equal.
    zoff_optimizer_hyper lion;
    zoff_optimizer_hyper_init(&lion, ZOFF_OPTIMIZER_LION);
    refused = make_engine(t, text(), 2048);
    ASSERT_ZOFF_OK(zoff_engine_set_group(refused.get(), 1, &lion));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "holds the states of another model", zoff_engine_seal(refused.get()));
    refused.reset();
    // Other types of weights do not make another model: the masters stay the same.
    trainer wide(3);
    wide.add(9000, 1, ZOFF_F32, ZOFF_F32);
    wide.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    wide.add(1500, 1, ZOFF_BF16, ZOFF_F32, 1);
    for (size_t i = 0; i < 3; i++)
        wide.tensors[i].master = t.tensors[i].master;
    engine another = seal_engine(wide, text(), 2048);
    ASSERT_ZOFF_OK(zoff_params_push(another.get()));
    ASSERT_NO_FATAL_FAILURE(wide.expect_weights());
}

// Which parameters are matrices is a part of the layout. Files that were refused go on with the same bits.
TEST_F(Persist, OtherMatricesAreRefused)
{
    std::vector<zoff_optimizer_hyper> groups(1);
    zoff_optimizer_hyper_init(&groups[0], ZOFF_OPTIMIZER_MUON);
    trainer own(5);
    own.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
    own.shape(0, {50, 60}, {{0, 50, 60}});
    own.add(64 * 32, 2, ZOFF_BF16, ZOFF_BF16);
    own.shape(1, {64, 32}, {{0, 64, 32}});
    const auto config = [&](const std::string &type, const std::string &more = "") {
        return "{\"optimizer\": {\"type\": \"" + type +
               "\"}, \"zero_optimization\": {\"offload_optimizer\": {\"device\": "
               "\"nvme\", \"nvme_path\": \"" +
               folder.path + "\"}}, \"zoff\": {\"persist\": true" + more + "}}";
    };
    for (int64_t number = 1; number <= 3; number++) {
        e = seal_engine(own, config("Muon"), 2048);
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        own.next_step();
        own.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(own.tensors, groups, number, 1, 1, 0);
        own.expect_weights();
        own.expect_states(e.get(), groups);
        e.reset();
        for (const std::string &other : {config("Muon", ", \"adam_params\": \"param1\""), config("Lion")}) {
            engine refused = make_engine(own, other, 2048);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "optimizers (also zoff.muon_params, zoff.adam_params) or moments",
                              zoff_engine_seal(refused.get()));
        }
        own.scramble();
    }
}

// The rule of each parameter counts, and not the optimizer of its group.
TEST_F(Persist, AdamWOfAGroupOfMatricesIsAdamW)
{
    const auto config = [&](const char *type, const char *more) {
        return "{\"optimizer\": {\"type\": \"" + std::string(type) +
               "\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", "
               "\"nvme_path\": \"" +
               folder.path + "\"}}, \"zoff\": {\"persist\": true" + more + "}}";
    };
    e = seal_engine(t, config("AdamW", ""), 2048);
    step(1);
    e.reset();
    e = seal_engine(t, config("Muon", ", \"adam_params\": \"*\""), 2048);
    EXPECT_EQ(1, count());
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    t.expect_states(e.get());
}

TEST_F(Persist, OneEngineAtATime)
{
    open();
    engine second = make_engine(t, text(), 2048);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is in use by another engine", zoff_engine_seal(second.get()));
    e.reset();
    EXPECT_ZOFF_OK(zoff_engine_seal(second.get()));
}

// A process that was killed may be waited for before its lock is gone, and `kill -9` does not wait at all.
TEST_F(Persist, ALockThatIsAboutToGoIsWaitedFor)
{
    open();
    e.reset();
    std::string name;
    for (const auto &file : std::filesystem::directory_iterator(folder.path)) {
        if (file.path().extension() == ".states")
            name = file.path();
    }
    const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_LE(0, fd);
    ASSERT_EQ(0, flock(fd, LOCK_EX | LOCK_NB));
    std::thread ends([fd] {
        usleep(300000);
        close(fd);
    });
    engine again = make_engine(t, text(), 2048);
    EXPECT_ZOFF_OK(zoff_engine_seal(again.get()));
    ends.join();
}

TEST_F(Persist, StatesInDramDoNotPersist)
{
    zoff_config *config = nullptr;
    const std::string json = "{\"zoff\": {\"persist\": true}}";
    ASSERT_ZOFF_OK(zoff_test::config_from_text(json.data(), json.size(), "test.json", &config));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff.persist keeps states in files, but the states are in DRAM",
                      zoff_engine_create(&opts, &made));
    zoff_config_close(config);
}

TEST_F(Persist, ASkippedStepCommitsNothing)
{
    open();
    step(1);
    t.next_step();
    t.backward_all(0.1f);
    trainer::put(t.grad(0), ZOFF_BF16, 17, INFINITY);
    auto info = new_info();
    log.expect("step 2 skipped");
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_TRUE(info.skipped);
    EXPECT_EQ(0u, info.bytes.nvme_written);
    t.scramble();
    open();
    EXPECT_EQ(1, count());
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// The step line and the statistics report the bytes written to the drive over all runs.
TEST_F(Persist, BytesWrittenAreReported)
{
    char json[1024];
    open();
    const uint64_t stored = plan_of(e.get()).nvme_bytes / 2;
    step(1);
    step(2);
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, nullptr));
    EXPECT_NE(nullptr, strstr(json, ("\"nvme_lifetime_write_bytes\": " + std::to_string(4 * stored)).c_str())) << json;
    EXPECT_NE(nullptr, strstr(json, ("\"nvme_write_bytes\": " + std::to_string(2 * stored)).c_str())) << json;
    open();
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    step(3);
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, nullptr));
    EXPECT_NE(nullptr, strstr(json, ("\"nvme_lifetime_write_bytes\": " + std::to_string(5 * stored)).c_str())) << json;
}

// "aio": "auto": the first engine measures its folder and logs a configuration section to copy. The next engine uses the
// result.
TEST(MeasuredFolder, OnceForAllEngines)
{
    scratch_folder folder;
    for (const char *said : {"measured ", "kept from an earlier measurement of "}) {
        log_catcher log;
        trainer t(3);
        t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, config_text(folder.path, 1, ", \"aio\": \"auto\""), 2048);
        EXPECT_TRUE(log.contains(said + folder.path + ": {\"aio\": {\"block_size\": ")) << said;
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// Between two steps the engine prefetches the first chunks of the next step, hidden behind the trainer's backward pass.
TEST(ReadAhead, BeginsBeforeTheStepIsAskedFor)
{
    if (updates_ahead())
        GTEST_SKIP() << "more is read before the step";
    log_catcher log;
    scratch_folder folder;
    trainer t(3);
    t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text(folder.path), 2048);
    const zoff_plan_info plan = plan_of(e.get());
    auto info = new_info();
    for (int64_t k = 1; k <= 3; k++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        reference::step(t.tensors, config_groups(), k, 1, 1, 0);
    }
    EXPECT_EQ(plan.slots * plan.chunk_bytes, info.bytes.nvme_read_ahead) << "one chunk per slot";
    EXPECT_EQ(plan.nvme_bytes, info.bytes.nvme_read) << "no chunk is read twice";
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get())); // reading states needs slots, too
    // A step that leaves out the prefetched chunks frees their slots for others.
    trainer two(4);
    two.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    two.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    e = seal_engine(two, config_text(folder.path), 2048);
    for (int64_t k = 1; k <= 4; k++) {
        two.next_step();
        for (size_t i = k % 2; i < 2; i++)
            two.backward(i, 0, 0.1f);
        for (size_t i = k % 2; i < 2; i++)
            ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), (zoff_param)i, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        reference::step(two.tensors, config_groups(), k, 1, 1, 0);
    }
    ASSERT_NO_FATAL_FAILURE(two.expect_states(e.get()));
}
} // namespace
