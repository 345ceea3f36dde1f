/* SPDX-License-Identifier: Apache-2.0 */
// check_test.cc: `zoff check` ends with 0 exactly where an engine of one parameter opens on one rank, and else with its
// message.
#include "config_helpers.h"
#include "covering.h"
#include "random.h"
#include "schema_rows.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <set>

using namespace config_test;

namespace
{
class check_tool : public testing::Test
{
  protected:
    // An empty folder for the files of the next engine.
    std::string fresh_folder()
    {
        const std::string path = folder.file("run" + std::to_string(count++));
        EXPECT_EQ(0, mkdir(path.c_str(), 0700));
        return path;
    }
    int run(const std::string &arguments, std::string &words)
    {
        const std::string command =
            std::string(ZOFF_TOOL) + " check " + arguments + " >" + folder.file("out") + " 2>" + folder.file("err");
        const int status = system(command.c_str());
        words = file_text(folder.file("err"));
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    zoff_status open(const std::string &path, const std::vector<std::string> &sets, std::string &words)
    {
        uint16_t weight = 0, grad = 0; // as large as the largest element of these types: fp32 is not used then
        float whole[2] = {0, 0};
        zoff_config *made = nullptr;
        EXPECT_ZOFF_OK(zoff_config_open(nullptr, &made));
        zoff_test::config config(made);
        zoff_status status = ZOFF_OK;
        for (const std::string &set : sets) {
            if (status == ZOFF_OK)
                status = zoff_config_set(made, set.substr(0, set.find('=')).c_str(), set.substr(set.find('=') + 1).c_str());
        }
        if (status == ZOFF_OK)
            status = zoff_config_read(made, path.c_str());
        if (status == ZOFF_OK)
            status = zoff_config_resolve(made, 1);
        zoff_engine *e = nullptr;
        if (status == ZOFF_OK) {
            double fp16 = 0, bf16 = 0;
            EXPECT_ZOFF_OK(zoff_config_number(made, "fp16.enabled", &fp16));
            EXPECT_ZOFF_OK(zoff_config_number(made, "bf16.enabled", &bf16));
            const bool is_half = fp16 != 0 || bf16 != 0;
            zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
            desc.count = 1;
            desc.dtype = fp16 != 0 ? ZOFF_F16 : bf16 != 0 ? ZOFF_BF16 : ZOFF_F32;
            desc.value = is_half ? (void *)&weight : &whole[0];
            desc.grad = is_half ? (void *)&grad : &whole[1];
            zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
            opts.config = made;
            status = zoff_engine_open(&opts, &desc, 1, &e);
        }
        words = status < 0 ? zoff_last_error() : "";
        zoff_engine_destroy(e);
        return status;
    }
    // Compare both answers about one file. Returns whether it loads.
    bool same(const std::string &path, const std::vector<std::string> &sets = {})
    {
        zoff_test::log_catcher log;
        log.expect("");
        std::string said, meant, arguments = path;
        for (const std::string &set : sets)
            arguments += " --set " + set;
        const int exit = run(arguments, said);
        const zoff_status status = open(path, sets, meant);
        EXPECT_EQ(status == ZOFF_OK ? 0 : 1, exit) << "engine: " << meant << "\ncheck: " << said << "\n" << file_text(path);
        if (status < 0) {
            EXPECT_NE(std::string::npos, said.find(meant.substr(0, 200))) << "engine: " << meant << "\ncheck: " << said;
        }
        log.lines.push_back(""); // expected, also where nothing is logged
        return status == ZOFF_OK;
    }
    bool same_text(const std::string &text)
    {
        const std::string path = folder.file("ds.json");
        std::ofstream(path, std::ios::binary) << text;
        return same(path);
    }
    zoff_test::scratch_folder folder;
    unsigned count = 0;
};

// The least forms of files that people have, and contradictions between keys that each have a legal value.
TEST_F(check_tool, files_of_people)
{
    const struct {
        const char *text;
        bool loads;
    } cases[] = {
        {"{}", true},
        {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})", false},
        {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10}}})", true},
        {R"({"communication_data_type": "bfp16"})", true},
        {R"({"fp16": {"enabled": "true"}})", true},
        {R"({"fp16": {"enabled": true, "opt_level": "O2", "dynamic_loss_scale": true}})", true},
        {R"({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 15099494.4}})", true},
        {"{\n  bf16: {enabled: true}\n  steps_per_print: 10\n}", false},
        {R"({"num_gpus": 8, "backend": "nccl", "logging": {"level": "info"}})", true},
        {R"({"zoff": {"persist": true}})", false},
        {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})", false},
        {R"({"fp16": {"enabled": true}, "zoff": {"skip_nonfinite": false}})", false},
        {R"({"zoff": {"moments": "q8"}})", true},
        {R"({"zoff": {"moments": "q8", "skip_nonfinite": false}})", false},
        {R"({"zoff": {"moments": "q8"}, "optimizer": {"type": "Lion"}})", false},
        {R"({"zoff": {"check_use": true}})", true},
        {R"({"zoff": {"reduce_scatter": "nccl"}})", false},
        {R"({"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})", false},
        {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})", false},
        {R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3})", false},
        {R"({"optimizer": {"type": "SGD", "params": {"eps": 1e-8}}})", false},
        {R"({"fp16": {"enabled": true}, "zoff": {"master": "split"}})", false},
    };
    for (const auto &c : cases)
        EXPECT_EQ(c.loads, same_text(c.text)) << c.text;
    std::string words;
    const std::string path = folder.file("ratio.json");
    std::ofstream(path) << R"({"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})";
    EXPECT_EQ(0, run(path + " --device emulated", words)) << words;
    EXPECT_EQ(1, run(path + " --device absent", words));
    EXPECT_NE(std::string::npos, words.find("absent")) << words;
}

// For more ranks than a group of threads can have, too.
TEST_F(check_tool, any_number_of_ranks_is_tried)
{
    std::string words;
    const std::string path = folder.file("ds.json");
    std::ofstream(path) << R"({"train_batch_size": 32768, "train_micro_batch_size_per_gpu": 2, "zoff": {"check_use": false}})";
    for (unsigned ranks : {1, 16, 1024, 16384})
        EXPECT_EQ(0, run(path + " --ranks " + std::to_string(ranks), words)) << words;
    EXPECT_EQ(1, run(path + " --ranks 3", words));
    EXPECT_EQ(1, run(path + " --ranks 16 --set zoff.check_use=true", words));
    EXPECT_NE(std::string::npos, words.find("which is for one rank")) << words;
}

// A value that the key may have, as JSON.
std::string value_of(const zoff_config_key *row, zoff_test::fast_random &random, const std::string &home)
{
    const auto pick = [&](const std::vector<std::string> &all) { return all[random() % all.size()]; };
    const auto word_of = [&](const char *list) {
        std::vector<std::string> words;
        std::stringstream text(list);
        for (std::string word; std::getline(text, word, '|');)
            words.push_back("\"" + word + "\"");
        return pick(words);
    };
    switch (row->type) {
    case ZOFF_KEY_BOOL:
        return pick({"true", "false", "1", "\"off\""});
    case ZOFF_KEY_INTEGER:
        return pick({"1", "2", "0", "8", "1000", "\"auto\"", "null"});
    case ZOFF_KEY_NUMBER:
        return pick({"0", "0.5", "1", "1e-3", "1e30", "1e-50", "\"auto\""});
    case ZOFF_KEY_BYTES:
        return pick({"\"64MiB\"", "4096", "\"auto\""});
    case ZOFF_KEY_CHOICE:
        return word_of(row->accepts && *row->accepts ? row->accepts : row->choices);
    case ZOFF_KEY_NUMBERS:
        return pick({"[0.9, 0.99]", "[0, 0]", "\"auto\""});
    case ZOFF_KEY_TEXTS:
        return "\"" + home + "\"";
    default:
        return "null";
    }
}

// Random files of keys that zoff acts on, with values that each key may have.
TEST_F(check_tool, random_files)
{
    std::vector<const zoff_config_key *> honoured;
    for (const auto *row : rows()) {
        if (row->class_ == ZOFF_CLASS_HONOURED && row->type != ZOFF_KEY_SECTION &&
            strcmp(row->path, "zoff.background_threads") != 0)
            honoured.push_back(row);
    }
    zoff_test::fast_random random(17);
    unsigned loaded = 0;
    const unsigned programs = std::max(zoff_test::share_of(600), 40u); // enough that some are refused
    for (unsigned i = 0; i < programs; i++) {
        const std::string home = fresh_folder(), path = folder.file("ds.json");
        // Half of the configurations have their states in files.
        std::vector<std::string> sets;
        if (i % 2)
            sets = {"zero_optimization.offload_optimizer.device=nvme", "zero_optimization.offload_optimizer.nvme_path=" + home};
        std::set<const zoff_config_key *> used;
        while (used.size() < 1 + i % 4)
            used.insert(honoured[random() % honoured.size()]);
        json_t *root = json_object();
        for (const zoff_config_key *row : used) {
            json_t *at = root, *value = json_loads(value_of(row, random, home).c_str(), JSON_DECODE_ANY, nullptr);
            std::string rest = row->path;
            for (size_t dot; (dot = rest.find('.')) != rest.npos; rest = rest.substr(dot + 1)) {
                const std::string section = rest.substr(0, dot);
                if (!json_object_get(at, section.c_str()))
                    json_object_set_new(at, section.c_str(), json_object());
                at = json_object_get(at, section.c_str());
            }
            json_object_set_new(at, rest.c_str(), value);
        }
        EXPECT_EQ(0, json_dump_file(root, path.c_str(), 0));
        json_decref(root);
        loaded += same(path, sets);
    }
    RecordProperty("programs", (int)programs);
    EXPECT_GT(loaded, programs / 4);
    EXPECT_LT(loaded, programs) << "some have to be refused";
}

// 80 published files, on one rank, with each path replaced.
TEST_F(check_tool, published_files)
{
    DIR *all = opendir(ZOFF_DS_CONFIGS);
    if (!all)
        GTEST_SKIP() << ZOFF_DS_CONFIGS << " is not there: set ZOFF_DS_CONFIGS to the folder of real configurations";
    unsigned tried = 0;
    while (const dirent *entry = readdir(all)) {
        const std::string name = entry->d_name;
        if (name.size() < 5 || name.substr(name.size() - 5) != ".json")
            continue;
        const std::string home = fresh_folder();
        same(std::string(ZOFF_DS_CONFIGS) + "/" + name,
             {"zero_optimization.offload_optimizer.nvme_path=" + home, "zero_optimization.offload_param.nvme_path=" + home});
        tried++;
    }
    closedir(all);
    EXPECT_EQ(80u, tried);
}
} // namespace
