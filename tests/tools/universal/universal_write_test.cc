/* SPDX-License-Identifier: Apache-2.0 */
// universal_write_test.cc: a universal folder is written after the pattern of another one, complete or not at all.
#include "universal_files.h"

#include <signal.h>

#include <atomic>
#include <fstream>
#include <thread>

extern "C" {
#include "universal_write.h"
}

using namespace universal_files;

namespace
{
// Elements that tell parameter, state and place.
float element(size_t index, zoff_state_kind kind, size_t i)
{
    return (float)(10000 * (index + 1) + 1000 * (size_t)kind + i);
}

bool give(void *ctx, size_t index, zoff_state_kind kind, size_t first, size_t count, float *dst, fault *f)
{
    if (ctx && index == *(size_t *)ctx)
        return fault_set(f, "parameter %zu is lost", index);
    for (size_t i = 0; i < count; i++)
        dst[i] = element(index, kind, first + i);
    return true;
}

class universal_writes : public testing::Test
{
  protected:
    const zoff_test::scratch_folder scratch;
    const std::string like = scratch.file("like"), out = scratch.file("out");

    std::string write(const zoff_loss_scaler *scaler = nullptr, size_t *lost = nullptr)
    {
        const opened u(like);
        EXPECT_TRUE(u.is_open) << u.message;
        progress p;
        progress_begin(&p, "test");
        const universal_order order = {&u.folder, out.c_str(), 1234567, scaler, give, lost, &p};
        fault f = {""};
        universal_folder_write(&order, &f);
        return f.text;
    }

    void expect_written()
    {
        const opened u(out);
        ASSERT_TRUE(u.is_open) << u.message;
        ASSERT_EQ(PARAMS.size(), u.folder.count);
        for (size_t i = 0; i < u.folder.count; i++) {
            for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                const std::vector<float> values = u.values(u.folder.params[i].name, kind);
                for (size_t k = 0; k < values.size(); k++)
                    ASSERT_EQ(element(i, kind, k), values[k]);
            }
        }
        EXPECT_EQ("out", read_all(scratch.file("latest_universal")));
    }

    universal_facts facts()
    {
        const opened u(out);
        universal_facts facts = {};
        fault f = {""};
        EXPECT_TRUE(universal_facts_read(&u.folder, &facts, &f)) << f.text;
        return facts;
    }
};
} // namespace

TEST_F(universal_writes, StatesStepAndScaleOfStage1)
{
    for (const bool step_is_tensor : {false, true}) {
        ASSERT_EQ(0, system(("rm -rf '" + like + "' '" + out + "'").c_str()));
        write_stage1(like, PARAMS, step_is_tensor);
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        scaler.scale = 0.5, scaler.iterations = 70000, scaler.last_overflow = -1, scaler.hysteresis = 3;
        ASSERT_EQ("", write(&scaler));
        expect_written();
        EXPECT_EQ(1234567, facts().step);
        EXPECT_EQ(0.5, facts().scaler.scale);
        EXPECT_EQ(70000, facts().scaler.iterations);
        EXPECT_EQ(-1, facts().scaler.last_overflow);
        EXPECT_EQ(3u, facts().scaler.hysteresis);
        // what tells how to cut the tensor stays, and the model's part
        const pt t = open_pt(out + "/zero/wte.weight/fp32.pt");
        const pickle_value *root = torch_file_root(t.get());
        EXPECT_EQ(PICKLE_BOOL, pickle_find(root, "vocab_tensor")->type);
        EXPECT_EQ(PICKLE_INT, pickle_find(root, "cat_dim")->type);
        EXPECT_EQ(read_all(like + "/mp_rank_00_model_states.pt"), read_all(out + "/mp_rank_00_model_states.pt"));
        const pt state = open_pt(out + "/zero/optimizer_state.pt", PICKLE_NAMES_ANY);
        const pickle_value *group = pickle_at(pickle_find(torch_file_root(state.get()), "param_groups"), 0);
        int64_t step = 0;
        EXPECT_TRUE(pickle_number(pickle_find(group, "step"), &step));
        EXPECT_EQ(1234567, step);
        EXPECT_EQ(0.5, pickle_find(group, "lr")->real);
    }
}

TEST_F(universal_writes, TheScaleOfThePatternWhereThereIsNoOther)
{
    write_stage1(like, PARAMS);
    ASSERT_EQ("", write());
    EXPECT_EQ(4096, facts().scaler.scale);
    EXPECT_EQ(5, facts().scaler.iterations);
}

TEST_F(universal_writes, StatesAndStepOfStage3)
{
    write_stage3(like, PARAMS);
    ASSERT_EQ("", write());
    expect_written();
    EXPECT_EQ(1234567, facts().step);
    const pt t = open_pt(out + "/zero/optimizer_state.pt", PICKLE_NAMES_ANY);
    const pickle_value *state =
        pickle_at(pickle_find(pickle_find(torch_file_root(t.get()), "optimizer_state_dict"), "state"), 1);
    EXPECT_EQ((std::vector<float>{8, 9}), read_tensor(t.get(), pickle_find(state, "exp_avg")));
}

TEST_F(universal_writes, NothingAfterAnError)
{
    write_stage1(like, PARAMS);
    std::ofstream(scratch.file("latest_universal")) << "like";
    size_t lost = 3;
    EXPECT_EQ("parameter 3 is lost", write(nullptr, &lost));
    EXPECT_NE(0, access(out.c_str(), F_OK));
    EXPECT_NE(0, access((out + ".part").c_str(), F_OK));
    EXPECT_EQ("like", read_all(scratch.file("latest_universal")));
    ASSERT_EQ("", write());
    EXPECT_NE(std::string::npos, write().find("out is already there"));
    expect_written();
}

TEST_F(universal_writes, NothingWhereTheirNameCannotBeWritten)
{
    write_stage1(like, PARAMS);
    ASSERT_EQ(0, mkdir(scratch.file("latest_universal").c_str(), 0777));
    EXPECT_NE(std::string::npos, write().find("cannot write " + scratch.file("latest_universal")));
    for (const char *left : {"out", "out.part", "latest_universal.part"})
        EXPECT_NE(0, access(scratch.file(left).c_str(), F_OK)) << left;
    ASSERT_EQ(0, rmdir(scratch.file("latest_universal").c_str()));
    ASSERT_EQ("", write());
    expect_written();
    EXPECT_NE(0, access((out + "/latest_universal").c_str(), F_OK));
}

TEST_F(universal_writes, NothingAfterASignalWhileTheModelIsCopied)
{
    const std::string model = "/mp_rank_00_model_states.pt";
    write_stage1(like, PARAMS);
    std::ofstream(scratch.file("latest_universal")) << "like";
    ASSERT_EQ(0, truncate((like + model).c_str(), 64 << 20));
    std::string words;
    for (int tries = 0; tries < 10 && words.empty(); tries++) { // a copy that ends before the signal proves nothing
        ASSERT_EQ(0, system(("rm -rf '" + out + "'").c_str()));
        std::atomic<bool> ended{false};
        std::thread watcher([&] {
            while (!ended && access((out + ".part" + model).c_str(), F_OK) != 0)
                std::this_thread::yield();
            if (!ended)
                kill(getpid(), SIGINT);
        });
        words = write();
        ended = true;
        watcher.join();
        signal(SIGINT, SIG_IGN); // one that came late
        signal(SIGINT, SIG_DFL);
    }
    EXPECT_EQ("interrupted; nothing is left of " + out, words);
    EXPECT_NE(0, access(out.c_str(), F_OK));
    EXPECT_NE(0, access((out + ".part").c_str(), F_OK));
    EXPECT_EQ("like", read_all(scratch.file("latest_universal")));
}

TEST_F(universal_writes, NotOverWhatAnotherHasBegun)
{
    write_stage1(like, PARAMS);
    ASSERT_EQ(0, mkdir((out + ".part").c_str(), 0777));
    EXPECT_NE(std::string::npos, write().find(out + ".part is there already"));
    EXPECT_EQ(0, access((out + ".part").c_str(), F_OK));
}
