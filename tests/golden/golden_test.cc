/* SPDX-License-Identifier: Apache-2.0 */
// golden_test.cc: stored elements mean the numbers that they meant when their format was made, and those whose format has gone
// are refused by name.
#include "zoff_test.h"

#include <jansson.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "archive.h"
#include "cpu_adam.h"
}

namespace
{
struct json_closer {
    void operator()(json_t *json) const { json_decref(json); }
};

struct golden {
    unsigned format = 0;
    std::vector<unsigned char> bytes;
    std::vector<float> numbers;
};

void read(const std::string &name, golden *out)
{
    const std::unique_ptr<json_t, json_closer> root(json_load_file((std::string(GOLDEN) + "/" + name).c_str(), 0, nullptr));
    ASSERT_TRUE(root) << name;
    out->format = (unsigned)json_integer_value(json_object_get(root.get(), "format"));
    const std::string hex = json_string_value(json_object_get(root.get(), "bytes"));
    for (size_t i = 0; i < hex.size(); i += 2)
        out->bytes.push_back((unsigned char)std::stoul(hex.substr(i, 2), nullptr, 16));
    const json_t *numbers = json_object_get(root.get(), "numbers");
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        const json_t *x = json_array_get(numbers, i);
        out->numbers.push_back(json_is_string(x) ? INFINITY : (float)json_number_value(x));
    }
    ASSERT_EQ((json_int_t)out->numbers.size(), json_integer_value(json_object_get(root.get(), "count")));
    ASSERT_EQ(out->bytes.size(), zoff_archive_table_bytes_of(out->format, out->numbers.size()));
}

TEST(golden, stored_elements_mean_what_they_meant)
{
    const struct {
        const char *name;
        unsigned format;
    } files[] = {
        {"bf16.json", ZOFF_ARCHIVE_BF16}, {"m_in_8_bits.json", ZOFF_ARCHIVE_M8}, {"v_in_8_bits.json", ZOFF_ARCHIVE_V8}};
    for (const auto &file : files) {
        golden g;
        ASSERT_NO_FATAL_FAILURE(read(file.name, &g));
        ASSERT_EQ(file.format, g.format) << "bytes that change their meaning get a new number, and a new file";
        std::vector<float> have(g.numbers.size());
        zoff_archive_table_load(g.format, g.bytes.data(), 0, have.size(), have.data());
        EXPECT_EQ(g.numbers, have) << file.name;
        // Loaded numbers are stored again without a change.
        std::vector<unsigned char> again(g.bytes.size());
        zoff_archive_table_store(g.format, again.data(), have.size(), 0, have.size(), have.data());
        zoff_archive_table_load(g.format, again.data(), 0, have.size(), have.data());
        EXPECT_EQ(g.numbers, have) << file.name;
    }
}

// Moments in 8 bits had other meanings under the numbers 5 and 6.
TEST(golden, formats_that_have_gone_are_refused_by_name)
{
    for (const unsigned format : {5, 6, 7, 8}) {
        zoff_archive_table t = {};
        const zoff_archive_region region = {ZOFF_ARCHIVE_PAGE, ZOFF_ARCHIVE_PAGE, ZOFF_ARCHIVE_PAGE, 0};
        ASSERT_ZOFF_OK(zoff_archive_table_add_region(&t, &region));
        zoff_archive_piece piece = {};
        piece.kind = format % 2 ? ZOFF_STATE_M : ZOFF_STATE_V;
        piece.format = (uint8_t)format;
        piece.block = ZOFF_ARCHIVE_BLOCK;
        piece.count = 1024;
        ASSERT_ZOFF_OK(zoff_archive_table_add_piece(&t, &piece));
        std::vector<char> bytes(zoff_archive_table_bytes(&t));
        zoff_archive_table_write(&t, bytes.data());
        zoff_archive_table_free(&t);
        const uint64_t end = 2 * (uint64_t)ZOFF_ARCHIVE_PAGE;
        if (format >= 7) {
            ASSERT_ZOFF_OK(zoff_archive_table_read("a file", bytes.data(), bytes.size(), end, &t));
            zoff_archive_table_free(&t);
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                              "moments in 8 bits in the former format " + std::to_string(format) + ", whose bytes mean other",
                              zoff_archive_table_read("a file", bytes.data(), bytes.size(), end, &t));
        }
    }
}
} // namespace
