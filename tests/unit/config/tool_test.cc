/* SPDX-License-Identifier: Apache-2.0 */
// tool_test.cc: the zoff command as a user runs it: its output, the stream it goes to, and its exit status.
#include "config_helpers.h"

#include <sys/wait.h>

using namespace config_test;

namespace
{
struct outcome {
    int exit;
    std::string out, err;
};

class tool : public testing::Test
{
  protected:
    outcome run(const std::string &arguments)
    {
        // The text behind <<< is the tool's standard input; sh has no here-strings.
        const size_t here = arguments.find("<<<");
        const std::string input = here == std::string::npos ? "" : "printf '%s' " + arguments.substr(here + 3) + " | ";
        std::string command = input + std::string(ZOFF_TOOL) + " " + arguments.substr(0, here) + " 2>" + folder.file("err");
        FILE *pipe = popen(command.c_str(), "r");
        outcome result = {-1, "", ""};
        if (!pipe)
            return result;
        char buffer[4096];
        for (size_t bytes; (bytes = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
            result.out.append(buffer, bytes);
        int status = pclose(pipe);
        result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        result.err = file_text(folder.file("err"));
        return result;
    }
    std::string write(const std::string &name, const std::string &text)
    {
        std::ofstream(folder.file(name), std::ios::binary) << text;
        return folder.file(name);
    }
    // Commands that a text describes.
    static size_t code_lines(const std::string &text)
    {
        size_t count = 0;
        for (size_t at = text.find("  zoff "); at != std::string::npos; at = text.find("  zoff ", at + 1))
            count++;
        return count;
    }
    zoff_test::scratch_folder folder;
};

#define EXPECT_HAS(text, words) EXPECT_NE(std::string::npos, (text).find(words)) << (text)

TEST_F(tool, check_prints_values_with_their_sources)
{
    std::string path = write("ds.json", "{\n  \"train_batch_size\": 8, \"wall_clock_breakdown\": true\n}");
    outcome result = run("check " + path + " --ranks 2 --set optimizer.params.lr=3e-4 --set zoff.nvme_paths=/a=b");
    EXPECT_EQ(0, result.exit) << result.err;
    EXPECT_HAS(result.out, "# " + path + ", resolved for 2 ranks\n");
    EXPECT_HAS(result.out, "# " + path + ":2:3\n");
    EXPECT_HAS(result.out, "train_micro_batch_size_per_gpu = 4");
    EXPECT_HAS(result.out, "optimizer.params.lr = 0.0003");
    EXPECT_HAS(result.out, "zoff.nvme_paths = \"/a=b\"");
    EXPECT_HAS(result.out, "# api\n");
    EXPECT_EQ(0u, result.err.find("warning: " + path + ": known keys that zoff ignores")) << result.err;
    EXPECT_EQ(result.out, run("check --set optimizer.params.lr=3e-4 --ranks 2 " + path + " --set zoff.nvme_paths=/a=b").out);
}

// With the tensors of a model: no value is read, so the file has none but zeros.
TEST_F(tool, check_lists_the_matrices_of_a_model)
{
    const std::string names[][2] = {{"wte.weight", "[6,4]"},     {"h.0.qkv.weight", "[6,4]"}, {"h.0.qkv.bias", "[6]"},
                                    {"h.1.qkv.weight", "[6,4]"}, {"experts", "[3,2,4]"},      {"conv", "[6,2,2,1]"},
                                    {"router.weight", "[4,6]"}};
    std::string header = "{\"__metadata__\":{\"lm_head.weight\":\"wte.weight\"}";
    size_t bytes = 0;
    for (const auto &name : names) {
        const size_t more = name[1] == "[6]" ? 24 : 96;
        header += ",\"" + name[0] + "\":{\"dtype\":\"F32\",\"shape\":" + name[1] + ",\"data_offsets\":[" +
                  std::to_string(bytes) + "," + std::to_string(bytes + more) + "]}";
        bytes += more;
    }
    header += "}";
    const uint64_t length = header.size();
    const std::string model =
        write("model.safetensors", std::string((const char *)&length, 8) + header + std::string(bytes, 0));
    const std::string path =
        write("muon.json", "{\"optimizer\": {\"type\": \"Muon\"}, \"zoff\": {\"adam_params\": [\"router*\"], "
                           "\"muon_rows\": [\"*.qkv.weight=2,1\"]}}");
    outcome result = run("check " + path + " --model " + model);
    EXPECT_EQ(0, result.exit) << result.err;
    EXPECT_EQ("h.0.qkv.weight: 4 matrices of 2 or 1 x 4\n"
              "h.1.qkv.weight: 4 matrices of 2 or 1 x 4\n"
              "experts: 3 matrices of 2 x 4\n"
              "conv: 1 matrix of 6 x 4\n"
              "Muon updates 12 matrices in 4 parameters (9.6e-05 M elements), AdamW 3 other parameters (5.4e-05 M elements)\n",
              result.out);
    EXPECT_EQ("", result.err);
    result = run("check " + path + " --changed");
    EXPECT_EQ(0, result.exit) << "without a model no name is missed: " << result.err;
    EXPECT_HAS(result.out, "zoff.muon_rows = \"*.qkv.weight=2,1\"");
    result = run("check " + path + " --model " + model + " --set zoff.muon_params=wte.weight,lm_head.weight");
    EXPECT_EQ(1, result.exit);
    EXPECT_EQ("", result.out);
    EXPECT_HAS(result.err, "zoff.muon_params: \"wte.weight,lm_head.weight\" matches the name of no parameter");
    result = run("check " + path + " --model " + model + " --set 'zoff.muon_params=[\"wte.weight\",\"lm_head.weight\"]'");
    EXPECT_HAS(result.out, "wte.weight: 1 matrix of 6 x 4\n");
    result = run("check " + path + " --model " + model + " --set optimizer.type=AdamW");
    EXPECT_EQ(1, result.exit);
    EXPECT_EQ("error: --model lists the matrices of a model, which only optimizer.type Muon has; use --set "
              "optimizer.type=Muon to see them\n",
              result.err);
    EXPECT_EQ(1, run("check " + path + " --model " + path).exit);
    EXPECT_EQ(2, run("check " + path + " --model").exit);
}

TEST_F(tool, check_puts_the_error_on_stderr_and_ends_with_1)
{
    std::string path = write("bad.json", "{\n  \"gradient_clipp1ng\": 1\n}");
    outcome result = run("check " + path);
    EXPECT_EQ(1, result.exit);
    EXPECT_EQ("", result.out);
    EXPECT_EQ(0u, result.err.find("error: " + path + ":2:3: gradient_clipp1ng: ")) << result.err;
    EXPECT_HAS(result.err, "did you mean \"gradient_clipping\"?");
    EXPECT_EQ(1, run("check " + folder.file("absent.json")).exit);
    std::string batch = write("batch.json", "{\"train_batch_size\": 3}");
    EXPECT_EQ(0, run("check " + batch).exit);
    result = run("check " + batch + " --ranks 2");
    EXPECT_EQ(1, result.exit);
    EXPECT_HAS(result.err, "* world size 2 (ranks)");
    result = run("check " + batch + " --set gradient_cliping=1");
    EXPECT_EQ(1, result.exit);
    EXPECT_HAS(result.err, "did you mean \"gradient_clipping\"?");
}

TEST_F(tool, wrong_use_ends_with_2)
{
    std::string path = write("ds.json", "{}");
    for (const std::string &arguments : {std::string(""),
                                         std::string("frobnicate"),
                                         std::string("check"),
                                         "check " + path + " " + path,
                                         "check " + path + " --ranks",
                                         "check " + path + " --ranks 0",
                                         "check " + path + " --ranks 2x",
                                         "check " + path + " --ranks -1",
                                         "check " + path + " --set",
                                         "check " + path + " --set lr",
                                         "check " + path + " --set =1",
                                         "check " + path + " --frob",
                                         std::string("info x"),
                                         std::string("reference x"),
                                         std::string("schema x"),
                                         std::string("selftest a b"),
                                         std::string("selftest -x"),
                                         std::string("tune"),
                                         std::string("tune a b"),
                                         std::string("tune --yaml .")}) {
        outcome result = run(arguments);
        EXPECT_EQ(2, result.exit) << arguments << ": " << result.err;
        EXPECT_NE("", result.err) << arguments;
        EXPECT_EQ("", result.out) << arguments;
    }
}

// --set applies before the file is checked, at any place on the command line.
TEST_F(tool, set_comes_before_the_file_is_checked)
{
    const std::string path = write("odd.json", "{\"clip\": 1, \"beta\": 2, \"optimizer\": {\"type\": \"Lamb\"}}");
    outcome strict = run("check " + path), lamb = run("check " + path + " --set zoff.strict=false"),
            both = run("check " + path + " --set zoff.strict=false --set optimizer.type=Adam");
    EXPECT_EQ(1, strict.exit);
    EXPECT_HAS(strict.err, "\"Lamb\" is not supported");
    EXPECT_HAS(strict.err, "not known: clip (1:2, did you mean \"gradient_clipping\"?), beta (1:13");
    EXPECT_EQ(1, lamb.exit);
    EXPECT_EQ(std::string::npos, lamb.err.find("not known")) << lamb.err;
    EXPECT_EQ(0, both.exit) << both.err;
    EXPECT_HAS(both.err, "unknown keys, which have no effect (zoff.strict is false): clip (1:2), beta (1:13)");
    EXPECT_HAS(both.out, "optimizer.type = \"Adam\"");
}

TEST_F(tool, check_reads_standard_input_and_prints_what_was_changed)
{
    outcome result = run("check - --changed --set zoff.threads=3 <<<'{\"steps_per_print\": 20000000000000000}'");
    ASSERT_EQ(0, result.exit) << result.err;
    EXPECT_HAS(result.out, "# stdin, resolved for 1 rank\n");
    EXPECT_HAS(result.out, "steps_per_print = 20000000000000000 ");
    EXPECT_HAS(result.out, "# stdin:1:2\n");
    EXPECT_HAS(result.out, "zoff.threads = 3 ");
    EXPECT_EQ(std::string::npos, result.out.find("# default")) << result.out;
    EXPECT_LT(std::count(result.out.begin(), result.out.end(), '\n'), 6);
    outcome wrong = run("check - <<<'{\"lr\": 1}'");
    EXPECT_EQ(1, wrong.exit);
    EXPECT_HAS(wrong.err, "error: stdin:1:2: lr: this key is not known");
}

TEST_F(tool, every_verb_has_its_help)
{
    for (const char *verb : {"check", "info", "plan", "reference", "schema", "selftest", "tune"}) {
        for (const char *word : {"--help", "-h", "x --help"}) {
            outcome result = run(std::string(verb) + " " + word);
            EXPECT_EQ(0, result.exit) << verb << " " << word << ": " << result.err;
            EXPECT_EQ("", result.err);
            EXPECT_HAS(result.out, "  zoff " + std::string(verb));
            EXPECT_EQ(1u, code_lines(result.out)) << result.out;
        }
    }
}

TEST_F(tool, reference_is_the_document)
{
    outcome result = run("reference");
    EXPECT_EQ(0, result.exit);
    EXPECT_EQ(file_text(ZOFF_CONFIG_DOC), result.out);
}

TEST_F(tool, info_and_help)
{
    outcome info = run("info"), help = run("help");
    EXPECT_EQ(0, info.exit) << info.err;
    EXPECT_HAS(info.out, "kernels        " + std::string(zoff_isa()));
    EXPECT_HAS(info.out, "memory");
    EXPECT_EQ(0, help.exit);
    for (const char *verb : {"zoff check FILE", "zoff info", "zoff reference", "zoff tune FOLDER"})
        EXPECT_HAS(help.out, verb);
    EXPECT_EQ("zoff 0.1.0\n", run("--version").out);
}

// The results can be pasted into a configuration, and "aio": "auto" uses them.
TEST_F(tool, tune_measures_a_folder)
{
    outcome json = run("tune --json " + folder.path);
    ASSERT_EQ(0, json.exit) << json.err;
    zoff_config_values v = values(parse(json.out));
    EXPECT_HAS(json.out, "\"block_size\": " + std::to_string(v.aio_block_bytes));
    EXPECT_HAS(json.out, "\"queue_depth\": " + std::to_string(v.aio_depth));
    EXPECT_EQ(json.out, file_text(folder.file("zoff-aio-tune.json")));
    outcome table = run("tune " + folder.path);
    EXPECT_EQ(0, table.exit) << table.err;
    for (const char *words : {"reading", "writing", "GB/s together", "\"aio\": {\"block_size\": "})
        EXPECT_HAS(table.out, words);
    outcome absent = run("tune " + folder.file("absent"));
    EXPECT_EQ(1, absent.exit);
    EXPECT_HAS(absent.err, "error: cannot open the folder '" + folder.file("absent") + "'");
}

TEST_F(tool, output_that_cannot_be_written_is_a_failure)
{
    outcome result = run("reference >/dev/full");
    EXPECT_EQ(1, result.exit);
    EXPECT_HAS(result.err, "cannot write the output");
}
} // namespace
