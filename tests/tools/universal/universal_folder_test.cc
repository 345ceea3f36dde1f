/* SPDX-License-Identifier: Apache-2.0 */
// universal_folder_test.cc: universal checkpoint folders are read whole; anything unknown in them is refused by name.
#include "universal_files.h"

#include <fstream>

using namespace universal_files;

namespace
{
class universal_folders : public testing::Test
{
  protected:
    const zoff_test::scratch_folder scratch;
    const std::string path = scratch.file("uni");

    void expect_refused(const std::string &words)
    {
        const opened u(path);
        EXPECT_FALSE(u.is_open);
        EXPECT_NE(std::string::npos, u.message.find(words)) << u.message;
    }

    std::string facts_fault()
    {
        const opened u(path);
        EXPECT_TRUE(u.is_open) << u.message;
        universal_facts facts;
        fault f = {""};
        universal_facts_read(&u.folder, &facts, &f);
        return f.text;
    }
};
} // namespace

TEST_F(universal_folders, HaveShapesStepAndScaleInStage1)
{
    for (const bool step_is_tensor : {false, true}) {
        const std::string folder = path + (step_is_tensor ? "t" : "n");
        write_stage1(folder, PARAMS, step_is_tensor);
        opened u(folder);
        ASSERT_TRUE(u.is_open) << u.message;
        universal_facts facts;
        fault f = {""};
        ASSERT_TRUE(universal_facts_read(&u.folder, &facts, &f)) << f.text;
        ASSERT_TRUE(universal_model_read(&u.folder, true, &f)) << f.text;
        EXPECT_EQ(2, facts.step);
        EXPECT_TRUE(facts.has_scaler);
        EXPECT_EQ(4096, facts.scaler.scale);
        EXPECT_EQ(5, facts.scaler.iterations);
        EXPECT_EQ(1, facts.scaler.last_overflow);
        EXPECT_EQ(2u, facts.scaler.hysteresis);
        ASSERT_EQ(PARAMS.size(), u.folder.count);
        for (size_t i = 0; i < PARAMS.size(); i++) {
            const universal_param *p = universal_folder_find(&u.folder, PARAMS[i].name.data(), PARAMS[i].name.size());
            ASSERT_TRUE(p) << PARAMS[i].name;
            EXPECT_EQ(PARAMS[i].dims, std::vector<size_t>(p->dims, p->dims + p->dim_count));
            EXPECT_EQ(7u, p->states);
            EXPECT_EQ(i, p->order);
            EXPECT_EQ(ZOFF_BF16, p->dtype);
            for (int k = 0; k < 3; k++)
                EXPECT_EQ(counted(p->count, PARAMS[i].first + 1000.0f * (float)k),
                          u.values(PARAMS[i].name, (zoff_state_kind)k));
        }
    }
}

TEST_F(universal_folders, GetTheirShapesFromTheModelInStage3)
{
    write_stage3(path, PARAMS);
    opened u(path);
    ASSERT_TRUE(u.is_open) << u.message;
    universal_facts facts;
    fault f = {""};
    ASSERT_TRUE(universal_facts_read(&u.folder, &facts, &f)) << f.text;
    EXPECT_EQ(2, facts.step);
    EXPECT_FALSE(facts.has_scaler);
    EXPECT_EQ(1u, u.folder.params[0].dim_count); // flat, until the model is read
    ASSERT_TRUE(universal_model_read(&u.folder, true, &f)) << f.text;
    for (const auto &made : PARAMS) {
        const universal_param *p = universal_folder_find(&u.folder, made.name.data(), made.name.size());
        ASSERT_TRUE(p);
        EXPECT_TRUE(p->is_flat);
        EXPECT_EQ(made.dims, std::vector<size_t>(p->dims, p->dims + p->dim_count));
    }
}

TEST_F(universal_folders, MustAgreeWithTheModelInStage3)
{
    write_stage3(path, PARAMS);
    std::vector<made_param> other = PARAMS;
    other[1].dims = {8};
    write_model(path + "/zero_pp_rank_0_mp_rank_00_model_states.pt", other);
    opened u(path);
    fault f = {""};
    EXPECT_FALSE(universal_model_read(&u.folder, true, &f));
    EXPECT_NE(nullptr, strstr(f.text, "h.0.bias has 8 elements, but its fp32.pt has 7")) << f.text;
}

// Sorting the parameters anew for each of these names would take hours.
TEST_F(universal_folders, HaveAnyNumberOfTies)
{
    write_stage1(path, {PARAMS[1]});
    std::map<std::string, std::string> ties;
    for (unsigned i = 0; i < 100000; i++)
        ties["tied." + std::to_string(i)] = PARAMS[1].name;
    write_model(path + "/mp_rank_00_model_states.pt", {PARAMS[1]}, "BFloat16Storage", ties);
    opened u(path);
    fault f = {""};
    ASSERT_TRUE(universal_model_read(&u.folder, true, &f)) << f.text;
    EXPECT_EQ(1 + ties.size(), u.folder.count);
    const universal_param *p = universal_folder_find(&u.folder, "tied.777", 8);
    ASSERT_TRUE(p);
    EXPECT_EQ(PARAMS[1].name, p->tied_to);
    EXPECT_EQ(7u, p->count);
    EXPECT_EQ(0u, p->states);
}

TEST_F(universal_folders, HaveEachTieOnce)
{
    write_stage1(path, {PARAMS[1]});
    const std::string owner = text(PARAMS[1].name);
    write_pt(path + "/mp_rank_00_model_states.pt",
             dict({{text("shared_params"), dict({{text("t"), owner}, {text("t"), owner}})}}));
    opened u(path);
    fault f = {""};
    EXPECT_FALSE(universal_model_read(&u.folder, true, &f));
    EXPECT_NE(nullptr, strstr(f.text, "shared_params has t twice")) << f.text;
}

TEST_F(universal_folders, AreFoundByTheFileLatestUniversal)
{
    char found[UNIVERSAL_PATH_MAX];
    fault f = {""};
    write_stage1(path, {PARAMS[1]});
    EXPECT_TRUE(universal_find(path.c_str(), found, &f)) << f.text;
    EXPECT_EQ(path, found);
    EXPECT_FALSE(universal_find(scratch.path.c_str(), found, &f));
    EXPECT_NE(nullptr, strstr(f.text, "neither a folder zero nor a file latest_universal")) << f.text;
    const auto latest = [&](const std::string &words) { std::ofstream(scratch.file("latest_universal")) << words; };
    latest("uni\n");
    EXPECT_TRUE(universal_find(scratch.path.c_str(), found, &f)) << f.text;
    EXPECT_EQ(path, found);
    for (const char *outside : {"..", "../uni", "/etc", ""}) {
        latest(outside);
        EXPECT_FALSE(universal_find(scratch.path.c_str(), found, &f)) << outside;
        EXPECT_NE(nullptr, strstr(f.text, "does not name a folder beside it")) << f.text;
    }
    latest("gone");
    EXPECT_FALSE(universal_find(scratch.path.c_str(), found, &f));
    EXPECT_NE(nullptr, strstr(f.text, "gone, which latest_universal names, has no folder zero")) << f.text;
    ASSERT_EQ(0, unlink(scratch.file("latest_universal").c_str()));
    ASSERT_EQ(0, mkfifo(scratch.file("latest_universal").c_str(), 0600));
    EXPECT_FALSE(universal_find(scratch.path.c_str(), found, &f)); // the call does not wait for a writer
    EXPECT_NE(nullptr, strstr(f.text, "latest_universal is not a file")) << f.text;
}

TEST_F(universal_folders, WithUnknownFilesAreRefused)
{
    write_stage1(path, {PARAMS[1]});
    std::ofstream(path + "/zero/notes") << "x";
    expect_refused("has a file notes, which zoff does not know");
    ASSERT_EQ(0, remove((path + "/zero/notes").c_str()));
    std::ofstream(path + "/zero/h.0.bias/momentum_buffer.pt") << "x";
    expect_refused("has a file momentum_buffer.pt, which is no state that zoff knows");
    ASSERT_EQ(0, remove((path + "/zero/h.0.bias/momentum_buffer.pt").c_str()));
    ASSERT_EQ(0, mkdir((path + "/zero/nothing").c_str(), 0777));
    expect_refused("zero/nothing has no file fp32.pt");
}

TEST_F(universal_folders, WithUnknownContentsAreRefused)
{
    write_stage1(path, {PARAMS[1]});
    const std::string file = path + "/zero/h.0.bias/exp_avg.pt", data = bytes_of_floats(counted(7));
    write_pt(file, dict({{text("param"), tensor(contiguous({7}))}, {text("quantized"), "\x88"}}), {data});
    expect_refused("unknown key \"quantized\"");
    write_pt(file, dict({{text("cat_dim"), "K\x01"}}), {data});
    expect_refused("no tensor where one is needed");
    write_pt(file, "K\x01");
    expect_refused("neither a tensor nor a dict");
    write_pt(file, dict({{text("param"), tensor(contiguous({6}))}}), {bytes_of_floats(counted(6))});
    expect_refused("the shape of exp_avg.pt is not that of fp32.pt");
    tensor_words longs = contiguous({7});
    longs.storage = "LongStorage";
    write_pt(file, dict({{text("param"), tensor(longs)}}), {std::string(56, 0)});
    expect_refused("has integers");
    write_pt(file, dict({{text("param"), global("os", "system") + ")R"}}), {data});
    expect_refused("exp_avg.pt: the pickle, at byte");
    ASSERT_EQ(0, system(("rm -r '" + path + "'/zero/*").c_str()));
    expect_refused("has no parameters");
}

TEST_F(universal_folders, WithStepsThatDifferAreRefused)
{
    write_stage1(path, {PARAMS[1], PARAMS[2]});
    write_pt(path + "/zero/scale/step.pt", "K\x03");
    EXPECT_NE(std::string::npos, facts_fault().find("scale has step 3, and h.0.bias has 2")) << facts_fault();
    write_pt(path + "/zero/scale/step.pt", text("2"));
    EXPECT_NE(std::string::npos, facts_fault().find("no whole number")) << facts_fault();
    write_pt(path + "/zero/scale/step.pt", tensor(contiguous({})), {bytes_of_floats({2})});
    EXPECT_EQ("", facts_fault());
    write_pt(path + "/zero/optimizer_state.pt",
             dict({{text("loss_scaler"), global("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler") + ")\x81}b"}}));
    EXPECT_NE(std::string::npos, facts_fault().find("without cur_scale")) << facts_fault();
    ASSERT_EQ(0, remove((path + "/zero/optimizer_state.pt").c_str()));
    EXPECT_NE(std::string::npos, facts_fault().find("optimizer_state.pt")) << facts_fault();
}

TEST_F(universal_folders, WithoutAModelSayWhatIsMissing)
{
    write_stage1(path, {PARAMS[1]});
    ASSERT_EQ(0, remove((path + "/mp_rank_00_model_states.pt").c_str()));
    opened u(path);
    fault f = {""};
    EXPECT_FALSE(universal_model_read(&u.folder, true, &f));
    EXPECT_NE(nullptr, strstr(f.text, "has neither mp_rank_00_model_states.pt nor zero_pp_rank_0_mp_rank_00_model_states.pt"))
        << f.text;
}

// A name may be the beginning of another one, and a name in the model's file may be anything.
TEST_F(universal_folders, FindNamesExactly)
{
    write_stage1(path, {{"a", {1}, 1}, {"a.b", {1}, 1}, {"ab", {1}, 1}});
    const opened u(path);
    ASSERT_TRUE(u.is_open) << u.message;
    for (const std::string name : {"a", "a.b", "ab"})
        EXPECT_EQ(name, universal_folder_find(&u.folder, name.data(), name.size())->name);
    for (const std::string &name :
         {std::string(""), std::string("a."), std::string("abc"), std::string("a\0b", 3), std::string("a\0", 2)})
        EXPECT_EQ(nullptr, universal_folder_find(&u.folder, name.data(), name.size()));
}
