/* SPDX-License-Identifier: Apache-2.0 */
// docs_test.cc: the pages' tables and names, compared with the code.
#include "config_helpers.h"

extern "C" {
#include "schema.h"
}

using namespace config_test;

namespace
{
std::vector<std::string> cells_of(const std::string &line)
{
    std::vector<std::string> cells;
    std::stringstream text(line.substr(1));
    for (std::string cell; std::getline(text, cell, '|');) {
        const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
        cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    return cells;
}

// The `words` in backquotes.
std::vector<std::string> code_words(const std::string &text)
{
    std::vector<std::string> found;
    for (size_t at = text.find('`'), end; at != std::string::npos && (end = text.find('`', at + 1)) != std::string::npos;
         at = text.find('`', end + 1))
        found.push_back(text.substr(at + 1, end - at - 1));
    return found;
}

// Seal an engine with the table's values, and take a step.
zoff_status live(const std::string &stage, const std::string &key, const std::string &home, const std::string &folder)
{
    const std::string section = "\"zero_optimization\": {\"stage\": " + stage + ", \"" + key + "\": {\"device\": \"" + home +
                                "\", \"nvme_path\": \"" + folder + "\", \"buffer_size\": 4096}";
    std::string text = "{" + section + "}}";
    if (key == "offload_optimizer")
        text.erase(text.find(", \"buffer_size\": 4096"), 21);
    auto config = parse(text);
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config.get();
    zoff_engine *e = nullptr;
    zoff_status status = zoff_engine_create(&opts, &e);
    if (status < 0)
        return status;
    std::vector<float> weights(20000, 1.0f), grads(20000, 1.0f);
    zoff_param_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.count = weights.size();
    desc.dtype = ZOFF_F32;
    desc.value = weights.data();
    desc.grad = grads.data();
    desc.engine_owned = key == "offload_param";
    status = zoff_engine_add_param(e, &desc, nullptr);
    if (status == ZOFF_OK)
        status = zoff_engine_seal(e);
    if (status == ZOFF_OK)
        status = zoff_step(e, nullptr, nullptr);
    zoff_engine_destroy(e);
    return status;
}

std::string page(const std::string &path)
{
    const std::string text = file_text(ZOFF_PROJECT "/" + path);
    EXPECT_NE("", text) << path;
    return text;
}

// A key that a page names by its whole path is a key of the table.
TEST(config_docs, keys_that_pages_name_exist)
{
    size_t tried = 0;
    for (const char *path : {"README.md", "docs/ARCHITECTURE.md", "docs/RANKS.md", "docs/MEMORY.md", "docs/TESTING.md"}) {
        std::istringstream lines(page(path));
        for (std::string line; std::getline(lines, line);) {
            for (const std::string &word : code_words(line)) {
                std::string key = word.substr(0, word.find_first_of("= :,"));
                bool is_key = false;
                for (const char *section :
                     {"zoff.", "zero_optimization.", "optimizer.", "scheduler.", "aio.", "fp16.", "bf16."})
                    is_key = is_key || key.rfind(section, 0) == 0;
                if (!is_key || key.find_first_of("/*()<\"") != key.npos ||
                    (key.size() > 2 && key.substr(key.size() - 2) == ".h") || key == "zoff.pc")
                    continue; // file names look like that, too
                tried++;
                EXPECT_NE(nullptr, zoff_config_schema_resolve(key.c_str())) << path << ": " << key;
            }
        }
    }
    EXPECT_GT(tried, 5u);
}

// docs/CONFIG.md, "Stages and tiers": for each cell with "yes" an engine takes a step.
TEST(config_docs, stages_and_tiers_are_what_an_engine_does)
{
    zoff_test::scratch_folder folder;
    std::istringstream page(file_text(ZOFF_CONFIG_DOC));
    std::vector<std::string> head;
    size_t tried = 0, stages = 0;
    for (std::string line; std::getline(page, line);) {
        if (line.rfind("| stage |", 0) == 0) {
            head = cells_of(line);
            std::getline(page, line);
            continue;
        }
        if (head.empty() || line.empty() || line[0] != '|') {
            head.clear();
            continue;
        }
        const std::vector<std::string> cells = cells_of(line);
        ASSERT_EQ(head.size(), cells.size()) << line;
        stages++;
        for (size_t i = 1; i < cells.size(); i++) {
            const std::string key = head[i].rfind("states", 0) == 0 ? "offload_optimizer" : "offload_param";
            for (const std::string &home : code_words(head[i])) {
                zoff_test::log_catcher log;
                SCOPED_TRACE("stage " + cells[0] + ", " + key + " " + home);
                log.expect("");
                const zoff_status status = live(cells[0], key, home, folder.path);
                tried++;
                EXPECT_EQ(cells[i] != "refused", status == ZOFF_OK) << zoff_last_error();
                EXPECT_EQ(cells[i] == "no effect", log.contains("has no effect at stage"))
                    << "the table says \"" << cells[i] << "\"";
            }
        }
    }
    EXPECT_EQ(4u, stages);
    EXPECT_EQ(24u, tried);
}
} // namespace
