/* SPDX-License-Identifier: Apache-2.0 */
// universal_verbs_test.cc: `zoff import universal` and `zoff export universal`: states, shapes, steps and scales arrive bit by
// bit, and what does not fit is refused by name.
#include "../tool_checkpoints.h"
#include "universal_files.h"

extern "C" {
#include "universal_verbs.h"
}

using namespace universal_files;
using tool_files::checkpoint_reader;
using tool_files::outcome;

namespace
{
using verb = int (*)(int argc, char **argv);

// Run a verb; its result goes to stdout, which is not looked at.
outcome run(verb v, std::vector<std::string> arguments)
{
    std::vector<char *> words;
    for (auto &argument : arguments)
        words.push_back(argument.data());
    testing::internal::CaptureStdout();
    const outcome result = tool_files::run([&] { return v((int)words.size(), words.data()); });
    testing::internal::GetCapturedStdout();
    return result;
}

class universal_verbs : public testing::Test
{
  protected:
    const zoff_test::scratch_folder scratch;
    const std::string like = scratch.file("uni"), checkpoints = scratch.file("checkpoints"), out = scratch.file("out");

    outcome import(const std::vector<std::string> &more = {})
    {
        std::vector<std::string> all = {like, "-o", checkpoints};
        all.insert(all.end(), more.begin(), more.end());
        return run(universal_import, all);
    }

    outcome export_to(const std::string &to, const std::vector<std::string> &more = {})
    {
        std::vector<std::string> all = {checkpoints, "-o", to, "--like", like};
        all.insert(all.end(), more.begin(), more.end());
        return run(universal_export, all);
    }

    void expect_fails(const outcome &result, const std::string &words, int exit = EXIT_FAILED)
    {
        EXPECT_EQ(exit, result.exit);
        EXPECT_NE(std::string::npos, result.err.find(words)) << "\"" << result.err << "\" has no \"" << words << "\"";
    }

    checkpoint_reader reader()
    {
        zoff_checkpoint_reader *r = nullptr;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(checkpoints.c_str(), nullptr, &r));
        return checkpoint_reader(r);
    }

    zoff_checkpoint_info info(const checkpoint_reader &r)
    {
        zoff_checkpoint_info about = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(r.get(), &about));
        return about;
    }

    zoff_checkpoint_param find(const checkpoint_reader &r, const std::string &name, size_t *index)
    {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_find(r.get(), name.c_str(), index));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_param(r.get(), *index, &p));
        return p;
    }

    std::vector<float> values(const checkpoint_reader &r, size_t index, int kind, size_t count)
    {
        std::vector<float> all(count);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(r.get(), index, (zoff_state_kind)kind, 0, count, all.data()));
        return all;
    }

    // The checkpoint has what write_stage1() and write_stage3() wrote.
    void expect_imported(zoff_dtype dtype)
    {
        const checkpoint_reader r = reader();
        ASSERT_TRUE(r);
        EXPECT_EQ(PARAMS.size(), info(r).param_count);
        for (size_t i = 0; i < PARAMS.size(); i++) {
            size_t index = 0;
            const zoff_checkpoint_param p = find(r, PARAMS[i].name, &index);
            EXPECT_EQ(i, index); // the order of the model
            EXPECT_EQ(dtype, p.dtype);
            EXPECT_EQ(PARAMS[i].dims.empty() ? std::vector<size_t>{1} : PARAMS[i].dims,
                      std::vector<size_t>(p.dims, p.dims + p.dim_count));
            for (int k = 0; k < 3; k++)
                EXPECT_EQ(counted(p.count, PARAMS[i].first + 1000.0f * (float)k), values(r, index, k, p.count));
        }
    }
};
} // namespace

// The model's part tells which parameters are tied. At stages 1 and 2 they may have a file of weights in 16 bits. The export
// has them again, also where the program has only one of the names.
TEST_F(universal_verbs, TiedParametersShareTheStates)
{
    const made_param tied = {"a.head", PARAMS[0].dims, 5e5f};
    for (const bool has_file : {false, true}) {
        ASSERT_EQ(0, system(("rm -rf '" + like + "' '" + checkpoints + "' '" + out + "'").c_str()));
        write_stage1(like, PARAMS);
        write_model(like + "/mp_rank_00_model_states.pt", PARAMS, "BFloat16Storage", {{tied.name, PARAMS[0].name}});
        if (has_file) {
            ASSERT_EQ(0, mkdir((like + "/zero/" + tied.name).c_str(), 0777));
            write_pt(like + "/zero/" + tied.name + "/fp32.pt", dict({{text("param"), tensor(contiguous(tied.dims))}}),
                     {bytes_of_floats(counted(count_of(tied.dims), tied.first))});
        }
        const outcome result = import({"--dtype", "keep"});
        ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
        const checkpoint_reader r = reader();
        EXPECT_EQ(PARAMS.size() + 1, info(r).param_count);
        size_t index = 0;
        const zoff_checkpoint_param p = find(r, tied.name, &index);
        ASSERT_NE(nullptr, p.tied_to);
        EXPECT_EQ(PARAMS[0].name, p.tied_to);
        EXPECT_EQ(counted(p.count, PARAMS[0].first), values(r, index, ZOFF_STATE_MASTER, p.count)) << "of the owner";
        const outcome back = export_to(out);
        ASSERT_EQ(EXIT_DONE, back.exit) << back.err;
        opened u(out);
        ASSERT_TRUE(u.is_open) << u.message;
        EXPECT_EQ(PARAMS.size() + has_file, u.folder.count);
        const std::vector<float> written = has_file ? u.values(tied.name, ZOFF_STATE_MASTER) : std::vector<float>();
        EXPECT_TRUE(!has_file || written == counted(p.count, PARAMS[0].first));
    }
}

TEST_F(universal_verbs, ImportStage1)
{
    write_stage1(like, PARAMS);
    const outcome result = import({"--dtype", "keep"});
    ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
    EXPECT_EQ("", result.err);
    expect_imported(ZOFF_BF16);
    const checkpoint_reader r = reader();
    const zoff_checkpoint_info about = info(r);
    EXPECT_EQ(2, about.t);
    ASSERT_TRUE(about.has_loss_scaler);
    EXPECT_EQ(4096, about.loss_scaler.scale);
    EXPECT_EQ(5, about.loss_scaler.iterations);
    EXPECT_EQ(1, about.loss_scaler.last_overflow);
    EXPECT_EQ(2u, about.loss_scaler.hysteresis);
}

TEST_F(universal_verbs, ImportStage3)
{
    write_stage3(like, PARAMS);
    const outcome result = import({"--dtype", "fp16", "--step", "9"});
    ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
    expect_imported(ZOFF_F16);
    const checkpoint_reader r = reader();
    EXPECT_EQ(9, info(r).t);
    EXPECT_FALSE(info(r).has_loss_scaler);
}

TEST_F(universal_verbs, ImportWithoutTheModel)
{
    write_stage3(like, PARAMS);
    ASSERT_EQ(0, remove((like + "/zero_pp_rank_0_mp_rank_00_model_states.pt").c_str()));
    const outcome result = import();
    ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
    EXPECT_NE(std::string::npos, result.err.find("Weights are fp32, parameters are in the order of their names")) << result.err;
    const checkpoint_reader r = reader();
    size_t index = 0;
    EXPECT_EQ(1u, find(r, "h.0.weight", &index).dim_count);
    EXPECT_EQ(counted(24, 100), values(r, index, 0, 24));
}

TEST_F(universal_verbs, ImportSlices)
{
    write_stage1(like, {{"h.0.w", {2, 3}, 1}, {"h.1.w", {2, 3}, 50}, {"h.2.w", {2, 3}, 80}, {"x", {2}, 5}});
    const outcome result = import({"--stack", "h.w=h.{}.w"});
    ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
    {
        const checkpoint_reader r = reader();
        EXPECT_EQ(2u, info(r).param_count);
        size_t index = 0;
        const zoff_checkpoint_param p = find(r, "h.w", &index);
        EXPECT_EQ(3u, p.slices);
        EXPECT_STREQ("h.{}.w", p.slice_name);
        EXPECT_EQ(6u, p.count);
        for (int k = 0; k < 3; k++) {
            std::vector<float> want;
            for (const float first : {1.0f, 50.0f, 80.0f}) {
                const auto slice = counted(6, first + 1000.0f * (float)k);
                want.insert(want.end(), slice.begin(), slice.end());
            }
            EXPECT_EQ(want, values(r, index, k, 18));
        }
    }
    // The way back makes each slice a parameter of DeepSpeed again.
    ASSERT_EQ(EXIT_DONE, export_to(out).exit);
    const opened before(like), after(out);
    for (const char *name : {"h.0.w", "h.1.w", "h.2.w", "x"}) {
        for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V})
            EXPECT_EQ(before.values(name, kind), after.values(name, kind));
    }
}

TEST_F(universal_verbs, KeepNamesOfAnyBytes)
{
    write_stage1(like, {{"\xff.0", {2}, 1}, {"\xff.1", {2}, 5}, {"w\xe9", {3}, 9}});
    for (const bool is_stack : {false, true}) {
        ASSERT_EQ(0, system(("rm -rf '" + out + "' '" + checkpoints + "'").c_str()));
        outcome result = is_stack ? import({"--stack", "\xff=\xff.{}"}) : import();
        ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
        result = export_to(out);
        ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
        EXPECT_EQ(counted(3, 9), opened(out).values("w\xe9", ZOFF_STATE_MASTER));
    }
}

TEST_F(universal_verbs, RefuseSlicesThatDoNotFit)
{
    write_stage1(like, {{"h.0.w", {2, 3}, 1}, {"h.1.w", {3, 2}, 50}, {"x", {2}, 5}});
    expect_fails(import({"--stack", "h.w=h.{}.w"}), "h.1.w has another shape or other states than h.0.w");
    expect_fails(import({"--stack", "g.w=g.{}.w"}), "the folder has no parameter of this pattern with 0 for {}");
    write_stage1(like + "2", {{"h.0.w", {2}, 1}, {"x", {2}, 5}});
    const auto with = [&](const std::vector<std::string> &more) {
        std::vector<std::string> all = {like + "2", "-o", checkpoints};
        all.insert(all.end(), more.begin(), more.end());
        return run(universal_import, all);
    };
    expect_fails(with({"--stack", "a=h.{}.w", "--stack", "b=h.{}.w"}), "--stack b=h.{}.w: h.0.w is in another stack, too");
    expect_fails(with({"--stack", "x=h.{}.w"}), "--stack x=h.{}.w: the folder has a parameter x");
    EXPECT_NE(0, access(checkpoints.c_str(), F_OK));
}

TEST_F(universal_verbs, ComeBackWithTheSameBits)
{
    for (const int stage : {1, 3}) {
        ASSERT_EQ(0, system(("rm -rf '" + like + "' '" + out + "' '" + checkpoints + "'").c_str()));
        stage == 1 ? write_stage1(like, PARAMS) : write_stage3(like, PARAMS);
        ASSERT_EQ(EXIT_DONE, import().exit);
        const outcome result = export_to(out + "/"); // the folder has a slash behind its name
        ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
        const opened before(like), after(out);
        ASSERT_TRUE(after.is_open) << after.message;
        for (const auto &p : PARAMS) {
            for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V})
                EXPECT_EQ(before.values(p.name, kind), after.values(p.name, kind));
        }
    }
}

TEST_F(universal_verbs, ExportTiedAndFrozenParameters)
{
    // DeepSpeed has one of the tied names, and none of a frozen one.
    std::vector<tool_files::param> ours(3);
    ours[0].name = "wte.weight", ours[0].dims = {5, 4};
    ours[1].name = "head.weight", ours[1].dims = {5, 4}, ours[1].tied_to = "wte.weight";
    ours[2].name = "frozen", ours[2].dims = {3}, ours[2].states = tool_files::FROZEN;
    tool_files::write_checkpoint(checkpoints, ours);
    for (const char *name : {"wte.weight", "head.weight"}) {
        ASSERT_EQ(0, system(("rm -rf '" + like + "' '" + out + "'").c_str()));
        write_stage1(like, {{name, {5, 4}, 1}});
        const outcome result = export_to(out);
        ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
        const opened after(out);
        const std::vector<float> have = after.values(name, ZOFF_STATE_MASTER);
        EXPECT_EQ(0, memcmp(ours[0].values.data(), have.data(), 20 * sizeof(float)));
    }
}

// The converter of DeepSpeed knows Adam's states only.
TEST_F(universal_verbs, RefuseMatrices)
{
    std::vector<tool_files::param> ours(2);
    ours[0].name = "wte.weight", ours[0].dims = {5, 4};
    ours[1].name = "h.weight", ours[1].dims = {5, 4}, ours[1].states = tool_files::MASTER | tool_files::M;
    ours[1].rule = "muon";
    tool_files::write_checkpoint(checkpoints, ours);
    write_stage1(like, {{"wte.weight", {5, 4}, 1}, {"h.weight", {5, 4}, 1}});
    ASSERT_EQ(0, remove((like + "/zero/h.weight/exp_avg_sq.pt").c_str()));
    expect_fails(export_to(out),
                 "h.weight has the momentum of Muon, and universal folders of DeepSpeed have moments of Adam only; "
                 "`zoff export` writes its weights");
    EXPECT_NE(0, access(out.c_str(), F_OK));
    for (const bool is_stage3 : {false, true}) {
        const std::string groups = "](" + dict({{text("lr"), real(0.5)}, {text("use_muon"), "\x89"}}) +
                                   dict({{text("step"), "K\x02"}, {text("use_muon"), "\x88"}}) + "e";
        write_pt(like + "/zero/optimizer_state.pt",
                 is_stage3 ? dict({{text("optimizer_state_dict"), dict({{text("param_groups"), groups}})}})
                           : dict({{text("param_groups"), groups}}));
        expect_fails(import(),
                     like + ": its optimizer is Muon, and universal folders of DeepSpeed have moments of Adam only; save the "
                            "weights as safetensors, and import these");
    }
    EXPECT_EQ(2u, info(reader()).param_count) << "the checkpoint that was there";
}

TEST_F(universal_verbs, RefuseAPatternOfAnotherModel)
{
    write_stage1(like, PARAMS);
    ASSERT_EQ(EXIT_DONE, import().exit);
    const auto with = [&](const std::vector<made_param> &params) {
        EXPECT_EQ(0, system(("rm -rf '" + like + "'").c_str()));
        write_stage1(like, params);
        const outcome result = export_to(out);
        EXPECT_NE(0, access(out.c_str(), F_OK));
        return result;
    };
    std::vector<made_param> other = PARAMS;
    other[0].dims = {4, 5};
    expect_fails(with(other), "the shapes of wte.weight differ");
    other = PARAMS;
    other.pop_back();
    expect_fails(with(other), "the checkpoint has a parameter h.0.weight, which");
    other.push_back({"h.0.weigth", {2, 3, 4}, 1});
    expect_fails(with(other), "has a parameter h.0.weigth, which the checkpoint has not");
    ASSERT_EQ(0, system(("rm -rf '" + like + "'").c_str()));
    write_stage1(like, PARAMS);
    ASSERT_EQ(0, remove((like + "/zero/scale/exp_avg_sq.pt").c_str()));
    expect_fails(export_to(out), "the states of scale differ: the checkpoint has exp_avg exp_avg_sq, and");
}

TEST_F(universal_verbs, LeaveNothingAfterADamagedFile)
{
    write_stage1(like, PARAMS);
    const std::string file = like + "/zero/h.0.bias/exp_avg.pt", good = read_all(file),
                      data = bytes_of_floats(counted(7, 1030));
    std::string bad = good;
    bad[bad.find(data) + 3] ^= 1;
    std::ofstream(file, std::ios::binary) << bad;
    expect_fails(import(), "h.0.bias/exp_avg.pt: cannot read the elements of a tensor: CRC error");
    zoff_checkpoint_reader *r = nullptr;
    EXPECT_GT(0, zoff_checkpoint_reader_open(checkpoints.c_str(), nullptr, &r));
    std::ofstream(file, std::ios::binary) << good;
    EXPECT_EQ(EXIT_DONE, import().exit);
    // the data of a pattern does not matter, but what describes it does
    std::ofstream(file, std::ios::binary) << good.substr(0, 100);
    expect_fails(export_to(out), "exp_avg.pt");
    EXPECT_NE(0, access(out.c_str(), F_OK));
}

TEST_F(universal_verbs, RefuseWrongArguments)
{
    write_stage1(like, {PARAMS[1]});
    expect_fails(run(universal_import, {like}), "-o with a folder", EXIT_USAGE);
    expect_fails(run(universal_import, {"-o", checkpoints}), "needs a folder of DeepSpeed", EXIT_USAGE);
    expect_fails(import({"again"}), "not both", EXIT_USAGE);
    expect_fails(import({"--dtype", "fp8"}), "bf16, fp16, fp32 or keep, not \"fp8\"", EXIT_USAGE);
    expect_fails(import({"--dtype"}), "--dtype needs a value", EXIT_USAGE);
    expect_fails(import({"--step", "-1"}), "--step needs a number", EXIT_USAGE);
    expect_fails(import({"--step", "2x"}), "--step needs a number", EXIT_USAGE);
    expect_fails(import({"--stack", "h.w"}), "--stack needs NAME=PATTERN", EXIT_USAGE);
    expect_fails(import({"--stack", "h=h.{}.{}"}), "with {} once in the pattern, not \"h=h.{}.{}\"", EXIT_USAGE);
    expect_fails(import({"--moments", "1"}), "no option \"--moments\"", EXIT_USAGE);
    expect_fails(run(universal_export, {checkpoints, "-o", out}), "--like with a universal folder", EXIT_USAGE);
    expect_fails(export_to(""), "-o with a new folder", EXIT_USAGE);
    expect_fails(export_to(out, {"--label"}), "--label needs a value", EXIT_USAGE);
    expect_fails(export_to(out, {"--dtype", "fp32"}), "no option \"--dtype\"", EXIT_USAGE);
    expect_fails(export_to(out, {"again"}), "not both", EXIT_USAGE);
    expect_fails(export_to(out), checkpoints);
}

TEST_F(universal_verbs, NeedAStepFromSomewhere)
{
    write_stage3(like, PARAMS);
    write_pt(like + "/zero/optimizer_state.pt", dict({{text("param_groups"), "]"}}));
    expect_fails(import(), "does not tell how many updates it has; give --step N");
    EXPECT_EQ(EXIT_DONE, import({"--step", "4"}).exit);
}

// Two parameters of an engine with the names of DeepSpeed.
namespace
{
struct small_engine {
    float table[20] = {}, table_grad[20], bias[7] = {}, bias_grad[7];
    zoff_test::engine engine;

    small_engine()
    {
        const size_t dims[] = {5, 4};
        zoff_param_desc params[2] = {ZOFF_PARAM_DESC_INIT, ZOFF_PARAM_DESC_INIT};
        params[0].name = "wte.weight", params[0].value = table, params[0].grad = table_grad, params[0].count = 20;
        params[0].dims = dims, params[0].dim_count = 2, params[0].dtype = ZOFF_F32;
        params[1].name = "h.0.bias", params[1].value = bias, params[1].grad = bias_grad, params[1].count = 7;
        params[1].dtype = ZOFF_F32;
        std::fill_n(table_grad, 20, 0.25f);
        std::fill_n(bias_grad, 7, -0.5f);
        zoff_engine *e = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_open(nullptr, params, 2, &e));
        engine.reset(e);
    }

    std::vector<float> state(zoff_param p, zoff_state_kind kind, size_t count) const
    {
        std::vector<float> all(count);
        EXPECT_ZOFF_OK(zoff_state_read(engine.get(), p, kind, 0, count, all.data()));
        return all;
    }
};
} // namespace

TEST_F(universal_verbs, MoveARunIntoAnEngineAndBack)
{
    write_stage1(like, {PARAMS[0], PARAMS[1]});
    ASSERT_EQ(EXIT_DONE, import({"--dtype", "fp32"}).exit);
    small_engine ours;
    ASSERT_ZOFF_OK(zoff_checkpoint_load(ours.engine.get(), checkpoints.c_str(), nullptr));
    int64_t t = 0;
    ASSERT_ZOFF_OK(zoff_step_count(ours.engine.get(), &t));
    EXPECT_EQ(2, t);
    EXPECT_EQ(counted(20, 1), std::vector<float>(ours.table, ours.table + 20)); // the weights
    for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
        EXPECT_EQ(counted(20, 1 + 1000.0f * (float)kind), ours.state(0, kind, 20));
        EXPECT_EQ(counted(7, 30 + 1000.0f * (float)kind), ours.state(1, kind, 7));
    }
    ASSERT_ZOFF_OK(zoff_step(ours.engine.get(), nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_checkpoint_save(ours.engine.get(), checkpoints.c_str(), nullptr));
    const outcome result = export_to(out);
    ASSERT_EQ(EXIT_DONE, result.exit) << result.err;
    const opened after(out);
    for (const zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
        EXPECT_EQ(ours.state(0, kind, 20), after.values("wte.weight", kind));
        EXPECT_EQ(ours.state(1, kind, 7), after.values("h.0.bias", kind));
    }
    universal_facts facts;
    fault f = {""};
    ASSERT_TRUE(universal_facts_read(&after.folder, &facts, &f)) << f.text;
    EXPECT_EQ(3, facts.step);
}
