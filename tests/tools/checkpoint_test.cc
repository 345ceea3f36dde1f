/* SPDX-License-Identifier: Apache-2.0 */
// checkpoint_test.cc: `zoff checkpoint` lists checkpoints, shows what one has, finds damage, and names what differs between
// two.
#include "lives.h"
#include "tool_checkpoints.h"

#include <dirent.h>
#include <math.h>
#include <string.h>

using namespace tool_files;

namespace
{
void close_folder(DIR *list)
{
    closedir(list);
}

class checkpoint_verb : public testing::Test
{
  protected:
    static std::vector<param> model(unsigned seed)
    {
        std::vector<param> all(3);
        all[0].name = "wte", all[0].dims = {30, 40}, all[0].values = numbers(1200, seed);
        all[1].name = "layers", all[1].dims = {7}, all[1].slices = 3, all[1].dtype = ZOFF_F32,
        all[1].slice_name = "layers.{}.w", all[1].values = numbers(21, seed + 1);
        all[2].name = "head", all[2].dims = {30, 40}, all[2].tied_to = "wte", all[2].states = 0;
        return all;
    }
    verb_result run(std::vector<std::string> arguments)
    {
        const std::string part = arguments.empty() ? "" : arguments[0];
        auto *verb = part == "inspect" ? verb_checkpoint_inspect : part == "list" ? verb_checkpoint_list : verb_checkpoint;
        if (verb != verb_checkpoint)
            arguments.erase(arguments.begin());
        return run_verb(verb, std::move(arguments));
    }
    // Begin a save of a small checkpoint.
    static zoff_checkpoint_writer *begin(const std::string &to, const char *name, const char *label = nullptr,
                                         unsigned engines = 0, unsigned keep = 0)
    {
        static const float values[] = {1, 2, 3};
        const param p = {"w", {3}, ZOFF_BF16, MASTER};
        const zoff_checkpoint_param facts = p.facts();
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name, opts.label = label, opts.engines = engines, opts.keep = keep;
        zoff_checkpoint_writer *w = nullptr;
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_open(to.c_str(), &opts, 30, &facts, 1, nullptr, &w));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_write(w, 0, ZOFF_STATE_MASTER, 0, 3, values));
        return w;
    }
    static void save(const std::string &to, const char *name, const char *label = nullptr, unsigned engines = 0,
                     unsigned keep = 0)
    {
        const checkpoint_writer w(begin(to, name, label, engines, keep));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    }
    json_t *json_of(std::vector<std::string> arguments)
    {
        const verb_result r = run(std::move(arguments));
        EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
        json_t *json = json_loads(r.out.c_str(), 0, nullptr);
        EXPECT_NE(nullptr, json) << r.out;
        return json;
    }
    std::string saved(const std::string &name, std::vector<param> params, int64_t t = 7)
    {
        const std::string to = folder.file(name);
        write_checkpoint(to, params, t);
        return to;
    }
    zoff_test::scratch_folder folder;
};
} // namespace

TEST_F(checkpoint_verb, inspect_shows_the_rule_of_matrices)
{
    std::vector<param> params(2);
    params[0].name = "w", params[0].dims = {3, 4}, params[0].states = tool_files::MASTER | tool_files::M;
    params[0].rule = "muon";
    params[1].name = "head", params[1].dims = {3, 4}, params[1].tied_to = "w";
    const std::string to = saved("a", params);
    const verb_result r = run({"inspect", to});
    EXPECT_NE(std::string::npos, r.out.find("  w  bf16 [3, 4] master fp32, m fp32, rule muon\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  head  bf16 [3, 4] tied to w\n")) << r.out;
    json_t *json = json_of({"inspect", to, "--json"}), *list = json_object_get(json, "params");
    EXPECT_STREQ("muon", json_string_value(json_object_get(json_array_get(list, 0), "rule")));
    EXPECT_EQ(nullptr, json_object_get(json_array_get(list, 1), "rule"));
    json_decref(json);
}

TEST_F(checkpoint_verb, inspect_lists_each_parameter)
{
    const std::string to = saved("a", model(1));
    const verb_result r = run({"inspect", to});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("step 7, id ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  wte  bf16 [30, 40] master fp32, m fp32, v fp32\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  layers  fp32 [3 x 7] as layers.{}.w master fp32, m fp32, v fp32\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  head  bf16 [30, 40] tied to wte\n")) << r.out;
    const verb_result manifest = run({"inspect", to, "--manifest"});
    EXPECT_EQ(EXIT_DONE, manifest.exit) << manifest.err;
    EXPECT_EQ(0u, manifest.out.find("{\n  \"format\": \"zoff checkpoint\"")) << manifest.out;
    json_t *json = json_of({"inspect", to, "--json"}), *params = json_object_get(json, "params");
    EXPECT_EQ(3u, json_array_size(params));
    char *layers = json_dumps(json_array_get(params, 1), JSON_COMPACT),
         *head = json_dumps(json_array_get(params, 2), JSON_COMPACT);
    EXPECT_STREQ("{\"name\":\"layers\",\"dtype\":\"fp32\",\"dims\":[7],\"slices\":3,\"slice_name\":\"layers.{}.w\","
                 "\"tied_to\":null,\"states\":{\"master\":{\"format\":\"fp32\"},\"m\":{\"format\":\"fp32\"},\"v\":{"
                 "\"format\":\"fp32\"}}}",
                 layers);
    EXPECT_STREQ("{\"name\":\"head\",\"dtype\":\"bf16\",\"dims\":[30,40],\"slices\":1,\"slice_name\":null,\"tied_to\":"
                 "\"wte\",\"states\":{}}",
                 head);
    free(layers);
    free(head);
    json_decref(json);
}

TEST_F(checkpoint_verb, inspect_lists_the_bytes_of_the_program)
{
    std::vector<param> params = model(1);
    write_checkpoint(folder.file("a"), params, 7, nullptr, {{"batch", "12345678"}, {"none", ""}});
    const verb_result r = run({"inspect", folder.file("a")});
    EXPECT_HAS(r.out, "  data \"batch\": 8 bytes\n");
    EXPECT_HAS(r.out, "  data \"none\": 0 bytes\n");
    json_t *json = json_of({"inspect", folder.file("a"), "--json"});
    char *data = json_dumps(json_object_get(json, "data"), JSON_COMPACT);
    EXPECT_STREQ("[{\"name\":\"batch\",\"bytes\":8,\"rank\":null},{\"name\":\"none\",\"bytes\":0,\"rank\":null}]", data);
    free(data);
    json_decref(json);
}

namespace
{
// Compare what --stats says of a state with the numbers themselves.
void expect_numbers(const json_t *state, const std::vector<float> &values)
{
    double squares = 0;
    std::vector<float> finite;
    json_int_t nan = 0, infinite = 0;
    for (const float value : values) {
        nan += std::isnan(value);
        infinite += std::isinf(value);
        if (std::isfinite(value)) {
            finite.push_back(value);
            squares += (double)value * (double)value;
        }
    }
    EXPECT_EQ(nan, json_integer_value(json_object_get(state, "nan")));
    EXPECT_EQ(infinite, json_integer_value(json_object_get(state, "inf")));
    if (finite.empty()) {
        for (const char *key : {"min", "max", "rms"})
            EXPECT_TRUE(json_is_null(json_object_get(state, key))) << key;
        return;
    }
    EXPECT_EQ(*std::min_element(finite.begin(), finite.end()), json_real_value(json_object_get(state, "min")));
    EXPECT_EQ(*std::max_element(finite.begin(), finite.end()), json_real_value(json_object_get(state, "max")));
    EXPECT_EQ(sqrt(squares / (double)finite.size()), json_real_value(json_object_get(state, "rms")));
}

} // namespace

TEST_F(checkpoint_verb, stats_are_those_of_the_numbers)
{
    std::vector<param> params = model(1);
    const float big = 3e38f;
    params.push_back({"long", {(1 << 20) + 3}, ZOFF_F32, MASTER, 1, "", "", std::vector<float>((1 << 20) + 3, big)});
    params.push_back({"lost", {2}, ZOFF_F32, MASTER, 1, "", "", {NAN, -INFINITY}});
    params.push_back({"empty", {0, 3}, ZOFF_F32, MASTER});
    params.push_back({"frozen", {100}, ZOFF_F16, FROZEN, 1, "", "", std::vector<float>(100, 0.5f)});
    params[3].values.back() = -big;
    json_t *json = json_of({"inspect", saved("a", params), "--stats", "--json"});
    for (size_t i = 0; i < params.size(); i++) {
        const json_t *states = json_object_get(json_array_get(json_object_get(json, "params"), i), "states");
        EXPECT_EQ(i == 2 ? 0u : i < 2 ? 3u : 1u, json_object_size(states)) << i;
        if (i != 2)
            expect_numbers(json_object_get(states, params[i].states & MASTER ? "master" : "weights"), params[i].values);
    }
    EXPECT_EQ(2, json_integer_value(json_object_get(json, "params_with_nan")));
    EXPECT_EQ(3, json_integer_value(json_object_get(json, "params_with_inf")));
    json_decref(json);

    verb_result r = run({"inspect", folder.file("a"), "--stats"});
    EXPECT_HAS(r.out, "    master  no finite number  NaN 1  inf 1\n");
    EXPECT_HAS(r.out, "    weights min 0.5  max 0.5  rms 0.5\n");
    EXPECT_HAS(r.out, "\n2 parameters have NaN, 3 parameters have infinite numbers; the first is wte\n");
    params.resize(1);
    params[0].values.assign(1200, 1);
    EXPECT_HAS(run({"inspect", saved("b", params), "--stats"}).out, "\nall numbers are finite\n");
    params[0].values[7] = NAN;
    EXPECT_HAS(run({"inspect", saved("c", params), "--stats"}).out, "\n1 parameter has NaN; the first is wte\n");
    r = run({"verify", folder.file("c")});
    EXPECT_EQ(EXIT_DONE, r.exit);
    EXPECT_HAS(r.out, "is intact: step 7, 1 parameter, ");
    EXPECT_HAS(r.out, "NaN among them is found by `zoff checkpoint inspect --stats`\n");
}

TEST_F(checkpoint_verb, stats_and_formats_of_all_kinds_of_states)
{
    static const char *const KINDS[] = {"master", "m", "v"};
    const std::map<std::string, std::vector<std::string>> FORMATS = {{"checkpoint_fp16", {"fp32", "fp32", "fp32"}},
                                                                     {"checkpoint_split_m8v16", {"split", "q8", "bf16"}},
                                                                     {"checkpoint_split_q8", {"split", "q8", "q8"}},
                                                                     {"checkpoint_split_ranks", {"split", "fp32", "fp32"}},
                                                                     {"checkpoint_whole_bf16", {"fp32", "bf16", "bf16"}}};
    for (const auto &[name, formats] : FORMATS) {
        SCOPED_TRACE(name);
        zoff_checkpoint_reader *opened = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open((GOLDEN "/" + name).c_str(), nullptr, &opened));
        const checkpoint_reader reader(opened);
        json_t *json = json_of({"inspect", GOLDEN "/" + name, "--stats", "--json"});
        for (size_t index = 0; index < 2; index++) {
            zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_param(opened, index, &p));
            const json_t *states = json_object_get(json_array_get(json_object_get(json, "params"), index), "states");
            for (int kind = 0; kind < 3; kind++) {
                const json_t *state = json_object_get(states, KINDS[kind]);
                std::vector<float> values(p.count);
                if (index == 0) {
                    EXPECT_EQ(formats[(size_t)kind], json_string_value(json_object_get(state, "format"))) << KINDS[kind];
                }
                ASSERT_ZOFF_OK(
                    zoff_checkpoint_reader_read(opened, index, (zoff_state_kind)kind, 0, values.size(), values.data()));
                expect_numbers(state, values);
            }
        }
        json_decref(json);
    }
}

TEST_F(checkpoint_verb, list_tells_what_a_folder_has)
{
    const std::string to = folder.file("all"), ID = ".0123456789abcdef";
    save(to, "ten");
    save(to, "cut");
    zoff_test::write_bytes(to + "/ten/notes.txt", "a note");
    std::string states;
    const zoff_test::handle<DIR, close_folder> files(opendir((to + "/cut").c_str()));
    for (const dirent *e; files && (e = readdir(files.get()));)
        states = strstr(e->d_name, ".states") ? to + "/cut/" + e->d_name : states;
    ASSERT_EQ(0, truncate(states.c_str(), 4096));
    save(to, "both", "left", 2);
    save(to, "both", "right", 2);
    save(to, "half", "left", 2);
    save(to, "was");
    ASSERT_EQ(0, rename((to + "/was").c_str(), (to + "/was" + ID + ".replaced").c_str()));
    save(to, "old");
    const auto dies = zoff_test::live([&](int) { return begin(to, "dead") ? 0 : 1; }, 0);
    EXPECT_EQ(0, dies.status);
    ASSERT_EQ(0, mkdir((to + "/other").c_str(), 0700));
    zoff_test::write_bytes(to + "/other/config.json", "{}");
    save(to, "last");
    ASSERT_EQ(0, rename((to + "/old").c_str(), (to + "/.old" + ID + ".removed").c_str()));
    const checkpoint_writer under_way(begin(to, "next"));

    struct facts {
        bool complete, latest;
        std::string engines, problem, removed_by;
    };
    std::map<std::string, facts> found;
    std::vector<std::string> order;
    json_t *json = json_of({"list", to, "--json"}), *c;
    size_t i;
    EXPECT_STREQ("last", json_string_value(json_object_get(json, "latest")));
    const auto text = [](const json_t *of, const char *key) {
        const char *value = json_string_value(json_object_get(of, key));
        return std::string(value ? value : "");
    };
    json_array_foreach(json_object_get(json, "checkpoints"), i, c)
    {
        std::string name = text(c, "name");
        name = name[0] == '.' && name.size() > 17 && name.find(".removed") == std::string::npos
                   ? name.substr(0, name.size() - 17)
                   : name;
        char *engines = json_dumps(json_object_get(c, "engines"), JSON_COMPACT);
        found[name] = {json_is_true(json_object_get(c, "complete")), json_is_true(json_object_get(c, "latest")), engines,
                       text(c, "problem"), text(c, "removed_by")};
        free(engines);
        order.push_back(name);
        EXPECT_GT(json_integer_value(json_object_get(c, "time")), 1700000000);
        EXPECT_EQ(name != ".next" && name != ".dead", json_integer_value(json_object_get(c, "bytes")) > 4000) << name;
        EXPECT_EQ(name == ".next" || name == ".dead" ? 0 : 30, json_integer_value(json_object_get(c, "step"))) << name;
    }
    json_decref(json);
    order.resize(5);
    EXPECT_EQ((std::vector<std::string>{"last", "was" + ID + ".replaced", "both", "cut", "ten"}), order) << "the newest first";
    EXPECT_EQ(9u, found.size());
    const std::string ONE = "[{\"label\":\"\",\"ranks\":1}]";
    const std::map<std::string, facts> EXPECTED = {
        {"ten", {true, false, ONE, "", ""}},
        {"last", {true, true, ONE, "", ""}},
        {"both", {true, false, "[{\"label\":\"left\",\"ranks\":1},{\"label\":\"right\",\"ranks\":1}]", "", ""}},
        {"cut", {false, false, ONE, "has 4096 bytes, and the manifest says", "a save with the same name; others leave it"}},
        {"was" + ID + ".replaced", {true, false, ONE, "", "the next save with the same name"}},
        {".old" + ID + ".removed", {false, false, ONE, "its removal is under way", "the next save into this folder"}},
        {".half",
         {false, false, "[{\"label\":\"left\",\"ranks\":1}]", "1 of 2 engines have saved",
          "the next save with the same name; or a save with `keep`"}},
        {".dead", {false, false, "[]", "its save was cut short", "the next save with the same name; or a save with `keep`"}},
        {".next", {false, false, "[]", "its save is under way", ""}}};
    for (const auto &[name, e] : EXPECTED) {
        SCOPED_TRACE(name);
        ASSERT_EQ(1u, found.count(name));
        const facts &f = found[name];
        EXPECT_EQ(e.complete, f.complete);
        EXPECT_EQ(e.latest, f.latest);
        EXPECT_EQ(e.engines, f.engines);
        EXPECT_EQ(e.problem.empty(), f.problem.empty());
        EXPECT_HAS(f.problem, e.problem);
        EXPECT_EQ(e.removed_by.empty(), f.removed_by.empty());
        EXPECT_HAS(f.removed_by, e.removed_by);
    }
    verb_result r = run({"list", to});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_HAS(r.out, " kB  2 ranks  engines left, right\n");
    EXPECT_HAS(r.out, " 1 rank  latest\n");
    EXPECT_HAS(r.out, "NOT COMPLETE: its save was cut short; removed by the next save with the same name; or");
    EXPECT_HAS(r.out, to + ": 4 complete checkpoints, 5 not complete\n");

    // "removed_by" holds.
    save(to, "dead");
    save(to, "was");
    save(to, "half", "left", 2);
    save(to, "half", "right", 2);
    float weight = 1;
    zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
    desc.value = &weight, desc.count = 1;
    zoff_engine *e = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, &desc, 1, &e));
    const zoff_test::engine closes(e);
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "cut";
    ASSERT_ZOFF_OK(zoff_checkpoint_save(e, to.c_str(), &opts));
    r = run({"list", to});
    EXPECT_HAS(r.out, to + ": 7 complete checkpoints, 1 not complete\n");
    zoff_test::write_bytes(to + "/latest", "changed");
    EXPECT_EQ(std::string::npos, run({"list", to}).out.find("latest"));
}

// Another program saves and removes. A checkpoint that has its name is complete, and the newest is there.
TEST_F(checkpoint_verb, list_beside_saves_and_removals)
{
    const std::string to = folder.file("busy");
    save(to, "0");
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 1; i < 80; i++)
            save(to, std::to_string(i).c_str(), nullptr, 0, 2);
        _exit(0);
    }
    int status = -1, newest = 0;
    size_t lists = 0;
    for (bool ended = false; !ended; lists++) {
        ended = waitpid(child, &status, WNOHANG) == child;
        json_t *json = json_of({"list", to, "--json"}), *c;
        size_t i, complete = 0;
        json_array_foreach(json_object_get(json, "checkpoints"), i, c)
        {
            const char *name = json_string_value(json_object_get(c, "name"));
            EXPECT_EQ(*name != '.', json_is_true(json_object_get(c, "complete")))
                << name << ": " << json_string_value(json_object_get(c, "problem"));
            if (complete == 0 && *name != '.') {
                EXPECT_GE(atoi(name), newest);
                newest = atoi(name);
            }
            complete += json_is_true(json_object_get(c, "complete"));
        }
        EXPECT_GT(complete, 0u);
        json_decref(json);
    }
    EXPECT_EQ(0, status);
    EXPECT_EQ(79, newest);
    EXPECT_GT(lists, 10u);
}

// State files are what a newcomer takes for checkpoints.
TEST_F(checkpoint_verb, says_what_a_folder_is_that_has_no_checkpoint)
{
    const std::string states = folder.file("states");
    const std::string note = "note: " + states +
                             " is a state file of zoff.persist, or a folder of them; zoff checkpoint reshard makes a "
                             "checkpoint of them\n";
    ASSERT_EQ(0, mkdir(states.c_str(), 0700));
    write_bytes(states + "/zoff-r0.states", "states");
    const verb_result list = run({"list", states});
    EXPECT_EQ(states + ": 0 complete checkpoints\n", list.out);
    EXPECT_EQ(note, list.err);
    for (const std::vector<std::string> &verb :
         {std::vector<std::string>{"inspect", states}, {"verify", states}, {"pin", states}, {"diff", states, states}}) {
        const verb_result r = run(verb);
        EXPECT_EQ(EXIT_FAILED, r.exit) << verb[0];
        EXPECT_EQ("error: there is no complete checkpoint in '" + states + "'\n" + note, r.err) << verb[0];
    }
    EXPECT_EQ("", run({"list", saved("a", model(1))}).err);
}

TEST_F(checkpoint_verb, list_refuses_what_is_no_folder_of_checkpoints)
{
    const std::string empty = folder.file("empty");
    ASSERT_EQ(0, mkdir(empty.c_str(), 0700));
    EXPECT_EQ(empty + ": 0 complete checkpoints\n", run({"list", empty}).out);
    json_t *json = json_of({"list", empty, "--json"});
    EXPECT_TRUE(json_is_null(json_object_get(json, "latest")));
    json_decref(json);
    const verb_result r = run({"list", folder.file("none")});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_HAS(r.err, "cannot open the folder '" + folder.file("none") + "': No such file or directory");
    const std::string one = saved("a", model(1)) + "/step-0000000007";
    EXPECT_HAS(run({"list", one}).err, one + "' is a checkpoint itself: name the folder around it, or use");
}

TEST_F(checkpoint_verb, verify_finds_one_flipped_bit)
{
    const std::string to = saved("a", model(1));
    EXPECT_EQ(EXIT_DONE, run({"verify", to}).exit);
    const zoff_test::handle<DIR, close_folder> list(opendir((to + "/step-0000000007").c_str()));
    std::string states;
    for (const dirent *e; list && (e = readdir(list.get()));) {
        if (strstr(e->d_name, ".states"))
            states = to + "/step-0000000007/" + e->d_name;
    }
    std::string bytes = bytes_of(states);
    bytes[5000] = (char)(bytes[5000] ^ 4);
    write_bytes(states, bytes);
    const verb_result r = run({"verify", to});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_NE(std::string::npos, r.err.find(states)) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("master of 'wte'")) << r.err;
}

TEST_F(checkpoint_verb, diff_names_each_state_that_differs)
{
    const std::string a = saved("a", model(1)), same = saved("same", model(1));
    verb_result r = run({"diff", a, same});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("have the same states")) << r.out;

    std::vector<param> other = model(1);
    other[0].values[1100] = other[0].values[1100] == 5 ? 6 : 5;
    other[1].dims = {1, 7}, other[1].dtype = ZOFF_F16;
    other[2].name = "tail";
    const std::string b = saved("b", other, 8);
    r = run({"diff", a, b});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_NE(std::string::npos, r.out.find("step: 7 and 8")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("master of wte: 1 of 1200 elements differ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("the first is element 1100")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("head: only in ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("tail: only in ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("layers: fp32 [3 x 7] and fp16 [3 x 1, 7]\n")) << r.out;
}

TEST_F(checkpoint_verb, diff_names_ties_that_differ)
{
    std::vector<param> other = model(1);
    other[2].tied_to = "", other[2].states = MASTER | M | V;
    const std::string a = saved("a", model(1)), b = saved("b", other);
    const verb_result r = run({"diff", a, b}), back = run({"diff", b, a});
    const std::string in_a = a + "/step-0000000007", in_b = b + "/step-0000000007";
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_EQ("head: tied to wte in " + in_a + ", and not tied in " + in_b + "\n", r.out);
    EXPECT_EQ("head: not tied in " + in_b + ", and tied to wte in " + in_a + "\n", back.out);
    other = model(1);
    other.push_back(other[0]);
    other[3].name = "wpe";
    std::vector<param> third = other;
    third[2].tied_to = "wpe";
    const verb_result owners = run({"diff", saved("c", other), saved("d", third)});
    EXPECT_NE(std::string::npos, owners.out.find("head: tied to wte in ")) << owners.out;
    EXPECT_NE(std::string::npos, owners.out.find(", and tied to wpe in ")) << owners.out;
}

TEST_F(checkpoint_verb, diff_names_bytes_of_the_program_that_differ)
{
    const auto with = [&](const std::string &name, const std::map<std::string, std::string> &data) {
        std::vector<param> params = model(1);
        write_checkpoint(folder.file(name), params, 7, nullptr, data);
        return folder.file(name);
    };
    const std::string a = with("a", {{"batch", "12345678"}, {"random", std::string(10000, 'x')}, {"none", ""}});
    const std::string same = with("same", {{"random", std::string(10000, 'x')}, {"none", ""}, {"batch", "12345678"}});
    EXPECT_EQ(EXIT_DONE, run({"diff", a, same}).exit);
    const std::string b = with("b", {{"batch", "12349999"}, {"random", "x"}, {"epoch", "1"}});
    const verb_result r = run({"diff", a, b});
    EXPECT_EQ(EXIT_FAILED, r.exit) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("data \"batch\": 4 of 8 bytes differ; the first is byte 4\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("data \"random\": 10000 bytes and 1 bytes\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("data \"none\": only in " + a)) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("data \"epoch\": only in " + b)) << r.out;
    EXPECT_EQ(4, std::count(r.out.begin(), r.out.end(), '\n')) << r.out;
}

TEST_F(checkpoint_verb, names_reach_no_terminal_as_commands)
{
    std::vector<param> evil = model(1);
    evil[0].name = "w\x1b[2J\xc2\x9b\xff\n\x7f\xc3\xa9"; // the last two bytes are a letter
    evil[2].tied_to = evil[0].name;
    const std::string a = saved("a", evil), b = saved("b", model(1)), shown = "w\\x1b[2J\\xc2\\x9b\\xff\\x0a\\x7f\xc3\xa9";
    const verb_result listed = run({"inspect", a}), differs = run({"diff", a, b});
    EXPECT_NE(std::string::npos, listed.out.find("  " + shown + "  bf16 [30, 40]")) << listed.out;
    EXPECT_NE(std::string::npos, listed.out.find(" tied to " + shown + "\n")) << listed.out;
    EXPECT_NE(std::string::npos, differs.out.find(shown + ": only in ")) << differs.out;
    evil[0].states = M;
    const verb_result exported = run_export({saved("c", evil), "-o", folder.file("out")});
    EXPECT_EQ(EXIT_FAILED, exported.exit);
    EXPECT_NE(std::string::npos, exported.err.find("parameter \"" + shown + "\"")) << exported.err;
    for (const std::string &text : {listed.out, differs.out, exported.err}) {
        for (const char c : {'\x1b', '\x9b', '\xff', '\x7f'})
            EXPECT_EQ(std::string::npos, text.find(c)) << text;
    }
}

TEST_F(checkpoint_verb, pins_and_unpins_the_checkpoint_that_it_names)
{
    const std::string to = saved("a", model(1)), path = to + "/step-0000000007";
    EXPECT_EQ(path + " is pinned: step 7\n", run({"pin", to}).out);
    EXPECT_HAS(run({"inspect", path}).out, "written by 1 rank, pinned\n");
    EXPECT_HAS(run({"inspect", path, "--json"}).out, "\"pinned\":true");
    EXPECT_HAS(run({"list", to}).out, "1 rank  latest  pinned\n");
    EXPECT_HAS(run({"list", to, "--json"}).out, "\"pinned\": true");
    EXPECT_EQ(path + " is not pinned: step 7\n", run({"unpin", path}).out);
    EXPECT_EQ(std::string::npos, run({"inspect", path}).out.find("pinned"));
    EXPECT_EQ(std::string::npos, run({"list", to}).out.find("pinned"));
    const verb_result other = run({"pin", to, "--label", "tp0"});
    EXPECT_EQ(EXIT_FAILED, other.exit);
    EXPECT_HAS(other.err, "there is no complete checkpoint");
}

TEST_F(checkpoint_verb, wrong_arguments_are_told)
{
    EXPECT_EQ(EXIT_USAGE, run({}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"look", "a"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"verify"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"verify", "a", "b"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"diff", "a"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"diff", "a", "b", "--manifest"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"inspect"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"inspect", "a", "b"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"inspect", "a", "--label"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"list"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"list", "a", "b"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"list", "a", "--label", "b"}).exit);
    EXPECT_HAS(run({"inspect", "a", "--manifest", "--stats"}).err, "--manifest is JSON already, without --stats or --json");
    const verb_result r = run({"inspect", folder.file("nothing")});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_NE(std::string::npos, r.err.find("nothing")) << r.err;
}
