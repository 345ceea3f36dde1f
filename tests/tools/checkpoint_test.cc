// checkpoint_test.cc: `zoff checkpoint` shows what a checkpoint has, finds damage, and names what differs between two.
#include "tool_checkpoints.h"

#include <dirent.h>
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
        all[1].values = numbers(21, seed + 1);
        all[2].name = "head", all[2].dims = {30, 40}, all[2].tied_to = "wte", all[2].states = 0;
        return all;
    }
    verb_result run(std::vector<std::string> arguments) { return run_verb(verb_checkpoint, std::move(arguments)); }
    std::string saved(const std::string &name, std::vector<param> params, int64_t t = 7)
    {
        const std::string to = folder.file(name);
        write_checkpoint(to, params, t);
        return to;
    }
    zoff_test::scratch_folder folder;
};
} // namespace

TEST_F(checkpoint_verb, inspect_lists_each_parameter)
{
    const std::string to = saved("a", model(1));
    const verb_result r = run({"inspect", to});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("step 7, id ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  wte  bf16 [30, 40] master m v\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  layers  fp32 [3 x 7] master m v\n")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("  head  bf16 [30, 40] tied to wte\n")) << r.out;
    const verb_result manifest = run({"inspect", to, "--manifest"});
    EXPECT_EQ(EXIT_DONE, manifest.exit) << manifest.err;
    EXPECT_EQ(0u, manifest.out.find("{\n  \"format\": \"zoff checkpoint\"")) << manifest.out;
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
    other[2].name = "tail";
    const std::string b = saved("b", other, 8);
    r = run({"diff", a, b});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_NE(std::string::npos, r.out.find("step: 7 and 8")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("master of wte: 1 of 1200 elements differ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("the first is element 1100")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("head: only in ")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("tail: only in ")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("layers")) << r.out;
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

TEST_F(checkpoint_verb, wrong_arguments_are_told)
{
    EXPECT_EQ(EXIT_USAGE, run({}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"look", "a"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"verify"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"verify", "a", "b"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"diff", "a"}).exit);
    EXPECT_EQ(EXIT_USAGE, run({"diff", "a", "b", "--manifest"}).exit);
    const verb_result r = run({"inspect", folder.file("nothing")});
    EXPECT_EQ(EXIT_FAILED, r.exit);
    EXPECT_NE(std::string::npos, r.err.find("nothing")) << r.err;
}
