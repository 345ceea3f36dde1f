/* SPDX-License-Identifier: Apache-2.0 */
// dump_test.cc: the effective configuration as text: every value with its source, ignored keys with the reason, short buffers.
#include "config_helpers.h"

using namespace config_test;

namespace
{
bool has_line(const std::string &text, const std::string &key_value, const std::string &source)
{
    size_t at = ("\n" + text).find("\n" + key_value + " ");
    if (at == std::string::npos)
        return false;
    std::string line = text.substr(at, text.find('\n', at) - at);
    size_t mark = line.find(" # ");
    return mark != std::string::npos && line.substr(mark + 3) == source;
}

TEST(config_dump, gives_every_value_and_its_source)
{
    zoff_test::log_catcher log;
    log.expect("known keys that zoff ignores");
    auto config =
        resolved("{\"train_batch_size\": 8,\n \"optimizer\": {\"params\": {\"lr\": 3e-4, \"betas\": \"auto\"}}, "
                 "\"fp16\": {\"enabled\": false},\n \"wall_clock_breakdown\": false, \"zero_optimization\": {\"stage\": 2, "
                 "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": [\"/a\", \"/b \\\"x\\\"\"]}}}");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "gradient_clipping", "0.5"));
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 2));
    std::string text = dump(config);
    EXPECT_EQ(0u, text.find("# ds.json, resolved for 2 ranks\n")) << text;
    const std::pair<const char *, const char *> lines[] = {
        {"train_batch_size = 8", "ds.json:1:2"},
        {"train_micro_batch_size_per_gpu = 4", "computed"},
        {"gradient_accumulation_steps = 1", "computed"},
        {"gradient_clipping = 0.5", "api"},
        {"optimizer.type = \"AdamW\"", "default"},
        {"optimizer.params.lr = 0.0003", "ds.json:2:27"},
        {"optimizer.params.betas = [0.9, 0.999]", "auto at ds.json:2:39"},
        {"scheduler.type = null", "default"},
        {"fp16.enabled = false", "ds.json:2:67"},
        {"zero_optimization.stage = 2", "ds.json:3:55"},
        {"zero_optimization.sub_group_size = 1000000000", "default"},
        {"zero_optimization.offload_optimizer.nvme_path = [\"/a\", \"/b \\\"x\\\"\"]", "ds.json:3:107"},
        {"aio.block_size = 2097152", "default"},
        {"zoff.host_memory = auto", "default"},
        {"zoff.strict = true", "default"},
    };
    for (const auto &line : lines)
        EXPECT_TRUE(has_line(text, line.first, line.second)) << line.first << " # " << line.second << "\nin\n" << text;
    EXPECT_NE(std::string::npos, text.find("# ignored:\n#   wall_clock_breakdown (ds.json:3:2): ")) << text;
    EXPECT_EQ(std::string::npos, text.find("sequence_parallel_size")) << "refused keys appear only when they were given";
}

TEST(config_dump, a_short_buffer_gets_the_beginning_and_the_full_length)
{
    auto config = resolved("{}");
    std::string whole = dump(config);
    for (size_t room :
         {size_t{0}, size_t{1}, size_t{2}, size_t{77}, whole.size() - 1, whole.size(), whole.size() + 1, whole.size() + 9}) {
        std::vector<char> buffer(room + 1, 'X');
        size_t bytes = 0;
        ASSERT_ZOFF_OK(zoff_config_dump(config.get(), buffer.data(), room, &bytes));
        EXPECT_EQ(whole.size(), bytes);
        EXPECT_EQ('X', buffer[room]) << "wrote behind the end";
        if (room) {
            EXPECT_EQ(whole.substr(0, room - 1), buffer.data());
        }
    }
    size_t bytes;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_dump(nullptr, nullptr, 0, &bytes));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_dump(config.get(), nullptr, 1, &bytes));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_dump(config.get(), nullptr, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_config_resolve", zoff_config_dump(parse("{}").get(), nullptr, 0, &bytes));
}

TEST(config_dump, quotes_what_a_line_cannot_hold)
{
    auto config = resolved("{\"zoff\": {\"nvme_paths\": \"/a\\nb\\t\\\\\\\"\\u00e4\"}}");
    EXPECT_NE(std::string::npos, dump(config).find("\nzoff.nvme_paths = \"/a\\u000ab\\u0009\\\\\\\"\xC3\xA4\" "))
        << dump(config);
}

TEST(config_dump, names_of_any_length)
{
    std::string name(3000, 'n');
    zoff_config *raw = nullptr;
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_test::config_from_text("{\"wd\": 1}", 9, name.c_str(), &raw));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), ":1:2: wd: this key is not known")) << zoff_last_error();
    ASSERT_ZOFF_OK(zoff_test::config_from_text("{\"steps_per_print\": 1}", 22, name.c_str(), &raw));
    zoff_test::config config(raw);
    ASSERT_ZOFF_OK(zoff_config_resolve(raw, 1));
    EXPECT_NE(std::string::npos, dump(config).find("nnn:1:2\n"));
}
} // namespace
