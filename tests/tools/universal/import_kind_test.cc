/* SPDX-License-Identifier: Apache-2.0 */
// import_kind_test.cc: each verb of `zoff import` names what a file or folder is, and what reads or converts it. The messages
// are in golden/refusals_of_imports.txt; with ZOFF_GOLDEN_WRITE=1 this test writes them.
#include "../../golden/golden_text.h"
#include "../tool_checkpoints.h"
#include "universal_files.h"

extern "C" {
#include "universal_verbs.h"
}

using namespace universal_files;
using tool_files::verb_result;
using tool_files::write_bytes;

namespace
{
class import_kinds : public testing::Test
{
  protected:
    const zoff_test::scratch_folder folder;
    std::vector<std::string> names; // of all files and folders

    std::string at(const std::string &name)
    {
        const size_t slash = name.find('/');
        EXPECT_EQ(0, slash == std::string::npos
                         ? 0
                         : system(("mkdir -p '" + folder.file(name.substr(0, name.rfind('/'))) + "'").c_str()));
        const std::string top = name.substr(0, slash);
        if (std::find(names.begin(), names.end(), top) == names.end())
            names.push_back(top);
        return folder.file(name);
    }
    void bytes(const std::string &name, const std::string &content) { write_bytes(at(name), content); }
    void pt(const std::string &name, const std::string &root) { write_pt(at(name), root, {bytes_of_floats({1, 2})}); }

    void make_torch()
    {
        const std::string w = tensor(contiguous({2})), one = ordered({{text("w"), w}});
        const std::string state =
            dict({{text("state"), dict({{"K" + std::string(1, 0), dict({{text("exp_avg"), w}})}})},
                  {text("param_groups"), "](" + dict({{text("params"), "](K" + std::string(1, 0) + "e"}}) + "e"}});
        const std::string object =
            global("__main__", "Net") + ")\x81" + dict({{text("_parameters"), one}, {text("_modules"), dict({})}}) + "b";
        pt("model.pt", dict({{text("model"), one}, {text("optimizer"), state}}));
        pt("pytorch_model.bin", one);
        pt("optimizer.pt", state);
        pt("whole.pt", object);
        pt("whole_in_dict.pt", dict({{text("net"), object}}));
        pt("list.pt", "](" + w + "e");
        write_zip(at("script.pt"), {{"data.pkl", pickled(dict({{text("w"), w}}))},
                                    {"constants.pkl", pickled(")")},
                                    {"data/0", bytes_of_floats({1, 2})}});
        pt("mp_rank_00_model_states.pt", dict({{text("module"), one}, {text("ds_version"), text("0.18")}}));
        pt("model_optim_rng.pt",
           dict({{text("model"), one}, {text("checkpoint_version"), real(3)}, {text("iteration"), "K\x01"}}));
        pt("pytorch_model-00001-of-00002.bin", one);
        pt("llama7/consolidated.00.pth", one);
        pt("llama70/consolidated.00.pth", one);
        pt("llama70/consolidated.01.pth", one);
        pt("bin_folder/pytorch_model.bin", one);
        bytes("legacy.pt", std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e\x80\x02", 17));
        bytes("damaged.pt", zoff_test::bytes_of(at("model.pt")).substr(0, 100));
    }

    void make_folders()
    {
        bytes("dcp/.metadata", "\x80\x04.");
        bytes("dcp/__0_0.distcp", "PK\3\4");
        bytes("__0_0.distcp", "PK\3\4");
        bytes("deepspeed_run/latest", "global_step2");
        bytes("deepspeed_run/global_step2/mp_rank_00_model_states.pt", "");
        bytes("deepspeed_step/zero_pp_rank_0_mp_rank_00_model_states.pt", "");
        bytes("deepspeed_step/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "");
        write_stage1(at("universal"), PARAMS);
        bytes("megatron/latest_checkpointed_iteration.txt", "1");
        bytes("megatron_step/mp_rank_00/model_optim_rng.pt", "");
        std::vector<tool_files::param> params = {{"w", {2}}};
        tool_files::write_checkpoint(at("checkpoints"), params);
        bytes("abc.rank-00000.states", "zoff");
        bytes("nvme/zoff-r0.states", "zoff");
        bytes("zoff-r0.states", "zoff");
        bytes("hub/model-00001-of-00002.safetensors", "");
        bytes("tensorflow/saved_model.pb", "");
        bytes("other/readme.txt", "a");
    }

    void make_others()
    {
        const std::string st = tool_files::file_of("{" + tool_files::entry("w", "F32", "[1]", 0, 4) + "}", "abcd");
        bytes("model.safetensors", st);
        bytes("model-00001-of-00002.safetensors", st);
        bytes("model.safetensors.index.json", "{\"weight_map\": {}}");
        bytes("pytorch_model.bin.index.json", "{\"weight_map\": {}}");
        bytes("model.gguf", std::string("GGUF\3\0\0\0", 8));
        bytes("a.npy", "\x93NUMPY\1");
        write_zip(at("a.npz"), {{"a.npy", "\x93NUMPY"}}, "");
        write_zip(at("a.zip"), {{"a.txt", "a"}}, "");
        bytes("model.h5", "\x89HDF\r\n\x1a\n");
        bytes("model.onnx", std::string("\x08\x08\x12\x07pytorch\x1a", 12));
        bytes("data.pkl", std::string("\x80\x04}\x94.", 5));
        bytes("a.tar", std::string(257, 'a') + "ustar");
        bytes("a.tar.gz", "\x1f\x8b\x08");
        bytes("a.tar.zst", "\x28\xb5\x2f\xfd");
        bytes("a.tar.xz", std::string("\xfd\x37zXZ\0", 6));
        bytes("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
        bytes("page.bin", "<!doctype html><html>");
        bytes("config.json", "{\"model_type\": \"gpt2\"}");
        bytes("empty.bin", "");
        bytes("noise.bin", std::string("\xff\0\1\2\3\4\5\6\7\x08", 10));
    }

    // The message of a verb about a file, without the folder; "reads it" if there is none.
    std::string said(int (*verb)(int, char **), const std::string &name, unsigned *imports)
    {
        const std::string to = folder.file("to" + std::to_string(++*imports));
        const verb_result r = tool_files::run_verb(verb, {folder.file(name), "-o", to});
        if (r.exit == EXIT_DONE)
            return "reads it\n";
        std::string words = r.err;
        for (size_t found; (found = words.find(folder.path + "/")) != std::string::npos;)
            words.erase(found, folder.path.size() + 1);
        EXPECT_NE(0, access(to.c_str(), F_OK)) << name;
        EXPECT_EQ(EXIT_FAILED, r.exit) << words;
        return words;
    }
};
} // namespace

TEST_F(import_kinds, EachVerbNamesTheKindAndTheWay)
{
    static const struct {
        const char *name;
        int (*run)(int, char **);
    } VERBS[] = {{"safetensors", verb_import_safetensors},
                 {"torch", verb_import_torch},
                 {"universal", universal_import},
                 {"alone", verb_import}};
    make_torch();
    ASSERT_NO_FATAL_FAILURE(make_folders());
    make_others();
    names.insert(names.end(), {"llama7/consolidated.00.pth", "llama70/consolidated.00.pth", "checkpoints/step-0000000007"});
    std::ostringstream all;
    unsigned imports = 0;
    for (const std::string &name : names) {
        // a message that all verbs have is there once
        std::vector<std::pair<std::string, std::string>> lines;
        for (const auto &v : VERBS) {
            const std::string words = said(v.run, name, &imports);
            if (!lines.empty() && lines.back().second == words)
                lines.back().first += std::string(", ") + v.name;
            else
                lines.push_back({v.name, words});
        }
        all << name << "\n";
        for (const auto &line : lines)
            all << "    " << line.first << ": " << line.second;
    }
    EXPECT_LT(40u, names.size());
    ASSERT_NO_FATAL_FAILURE(zoff_test::expect_golden("refusals_of_imports.txt", all.str()));
}
