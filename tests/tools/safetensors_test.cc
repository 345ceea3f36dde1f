/* SPDX-License-Identifier: Apache-2.0 */
// safetensors_test.cc: files that the writer makes have the bytes of the format, and the reader returns what was written.
#include "random.h"
#include "tool_files.h"

using namespace tool_files;

namespace
{
class safetensors : public testing::Test
{
  protected:
    // Write tensors of which each has as many bytes as `data` says.
    int write(std::vector<st_tensor> tensors, const std::string &data, json_t *metadata = nullptr)
    {
        st_writer w;
        int result = st_writer_open(&w, path.c_str(), tensors.data(), tensors.size(), metadata);
        for (size_t at = 0; result == EXIT_DONE && at < data.size(); at += 7) // pieces cross the borders of tensors
            result = st_writer_append(&w, data.data() + at, std::min<size_t>(7, data.size() - at));
        if (result == EXIT_DONE)
            result = st_writer_commit(&w);
        st_writer_close(&w);
        return result;
    }
    void open(const char *const *skip = nullptr) { ASSERT_EQ(EXIT_DONE, st_reader_open(&reader, path.c_str(), skip)); }
    std::string data_of(const st_tensor &t)
    {
        std::string bytes(t.count * (t.dtype == ZOFF_F32 ? 4 : 2), 0);
        EXPECT_EQ(EXIT_DONE, st_reader_read(&reader, &t, 0, t.count, bytes.data()));
        return bytes;
    }
    void TearDown() override { st_reader_close(&reader); }
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("model.safetensors");
    st_reader reader = {};
};

std::string random_bytes(size_t count, unsigned seed)
{
    zoff_test::fast_random random(seed);
    std::string bytes(count, 0);
    for (char &c : bytes)
        c = (char)random();
    return bytes;
}

TEST_F(safetensors, files_have_the_bytes_of_the_format)
{
    const size_t dims[] = {2, 1};
    ASSERT_EQ(EXIT_DONE, write({{"a", ZOFF_F32, dims, 2, 2, 0}, {"b", ZOFF_BF16, dims + 1, 1, 1, 0}}, "01234567xy"));
    std::string header = "{" + entry("a", "F32", "[2,1]", 0, 8) + "," + entry("b", "BF16", "[1]", 8, 10) + "}";
    ASSERT_NE(0u, header.size() % 8) << "the test wants padding";
    header += std::string(8 - header.size() % 8, ' ');
    EXPECT_EQ(file_of(header, "01234567xy"), bytes_of(path));
}

TEST_F(safetensors, tensors_of_every_type_and_shape_come_back)
{
    const size_t dims[] = {3, 5, 7, 0};
    const std::vector<st_tensor> tensors = {{"matrix", ZOFF_F32, dims, 2, 15, 0},
                                            {"cube", ZOFF_F16, dims, 3, 105, 0},
                                            {"number", ZOFF_BF16, dims, 0, 1, 0},
                                            {"empty", ZOFF_F32, dims + 3, 1, 0, 0},
                                            {"\"q\\\n\x01\u00e9", ZOFF_BF16, dims, 1, 3, 0},
                                            {"", ZOFF_F16, dims + 2, 2, 0, 0}};
    const std::string data = random_bytes(15 * 4 + (105 + 1 + 3) * 2, 1);
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    ASSERT_EQ(EXIT_DONE, write(tensors, data, metadata));
    json_decref(metadata);
    open();
    ASSERT_EQ(tensors.size(), reader.tensor_count);
    EXPECT_STREQ("pt", json_string_value(json_object_get(reader.metadata, "format")));
    std::string all;
    for (size_t i = 0; i < tensors.size(); i++) {
        const st_tensor *found = nullptr;
        for (size_t k = 0; k < reader.tensor_count; k++)
            found = strcmp(reader.tensors[k].name, tensors[i].name) == 0 ? &reader.tensors[k] : found;
        ASSERT_NE(nullptr, found) << tensors[i].name;
        EXPECT_EQ(tensors[i].dtype, found->dtype);
        EXPECT_EQ(dims_of(tensors[i]), dims_of(*found));
        EXPECT_EQ(tensors[i].count, found->count);
        EXPECT_EQ(all.size(), found->begin);
        all += data_of(*found);
    }
    EXPECT_EQ(data, all);
}

TEST_F(safetensors, any_range_of_a_tensor_can_be_read)
{
    const size_t dims[] = {101};
    const std::string data = random_bytes(101 * 2 + 101 * 4, 2);
    ASSERT_EQ(EXIT_DONE, write({{"a", ZOFF_BF16, dims, 1, 101, 0}, {"b", ZOFF_F32, dims, 1, 101, 0}}, data));
    open();
    char bytes[4 * 7];
    ASSERT_EQ(EXIT_DONE, st_reader_read(&reader, &reader.tensors[1], 94, 7, bytes));
    EXPECT_EQ(data.substr(202 + 94 * 4), std::string(bytes, sizeof bytes));
    ASSERT_EQ(EXIT_DONE, st_reader_read(&reader, &reader.tensors[0], 1, 7, bytes));
    EXPECT_EQ(data.substr(2, 14), std::string(bytes, 14));
    EXPECT_EQ(EXIT_DONE, st_reader_read(&reader, &reader.tensors[0], 101, 0, bytes));
    const outcome result = run([&] { return st_reader_read(&reader, &reader.tensors[1], 95, 7, bytes); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "tensor \"b\": elements 95 to 102 are not inside it");
}

TEST_F(safetensors, a_file_without_tensors_is_a_file)
{
    ASSERT_EQ(EXIT_DONE, write({}, ""));
    EXPECT_EQ(file_of("{}      ", ""), bytes_of(path));
    open();
    EXPECT_EQ(0u, reader.tensor_count);
    EXPECT_EQ(nullptr, reader.metadata);
}

TEST_F(safetensors, many_tensors_come_back)
{
    const unsigned COUNT = 20000;
    std::vector<std::string> names;
    std::vector<st_tensor> tensors;
    const size_t dims[] = {1};
    for (unsigned i = 0; i < COUNT; i++)
        names.push_back("layers." + std::to_string(i * 7919 % COUNT) + ".weight");
    for (const std::string &name : names)
        tensors.push_back({name.c_str(), ZOFF_BF16, dims, 1, 1, 0});
    const std::string data = random_bytes(2 * COUNT, 3);
    ASSERT_EQ(EXIT_DONE, write(tensors, data));
    open();
    ASSERT_EQ(COUNT, reader.tensor_count);
    for (unsigned i = 0; i < COUNT; i++) {
        ASSERT_EQ(names[i], reader.tensors[i].name);
        ASSERT_EQ(data.substr(2 * i, 2), data_of(reader.tensors[i]));
    }
}

TEST_F(safetensors, spaces_and_unknown_fields_are_read)
{
    write_bytes(path, file_of("{ \"a\" : {\"new\": [1], \"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}\n  ", "abcd"));
    open();
    ASSERT_EQ(1u, reader.tensor_count);
    EXPECT_EQ(1u, reader.tensors[0].count);
    EXPECT_EQ("abcd", data_of(reader.tensors[0]));
}

TEST_F(safetensors, tensors_of_other_types_can_be_skipped)
{
    write_bytes(path, file_of("{" + entry("h.0.ids", "I64", "[1]", 0, 8) + "," + entry("w", "F32", "[1]", 8, 12) + "}",
                              "abcdefghijkl"));
    const char *const skip[] = {"x", "h.*.ids", nullptr};
    open(skip);
    ASSERT_EQ(2u, reader.tensor_count);
    EXPECT_EQ(ZOFF_DTYPE_DEFAULT, reader.tensors[0].dtype);
    EXPECT_EQ("ijkl", data_of(reader.tensors[1]));
}

TEST_F(safetensors, nothing_is_left_of_a_file_that_is_not_committed)
{
    const size_t dims[] = {2};
    outcome result = run([&] { return write({{"a", ZOFF_F32, dims, 1, 2, 0}}, "1234567"); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, path + ": 7 bytes of tensors were written, and the header says 8");
    EXPECT_NE(0, access(path.c_str(), F_OK));
    EXPECT_NE(0, access((path + ".zoff-part").c_str(), F_OK));
}

TEST_F(safetensors, the_writer_refuses_names_that_the_format_cannot_have)
{
    const size_t dims[] = {1};
    outcome result = run([&] { return write({{"a", ZOFF_F32, dims, 1, 1, 0}, {"a", ZOFF_F32, dims, 1, 1, 0}}, "12345678"); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, path + ": tensor \"a\": two tensors have this name");
    result = run([&] { return write({{"__metadata__", ZOFF_F32, dims, 1, 1, 0}}, "1234"); });
    EXPECT_HAS(result.err, "tensor \"__metadata__\": two tensors have this name, or the format reserves it");
    result = run([&] { return write({{"\xff", ZOFF_F32, dims, 1, 1, 0}}, "1234"); });
    EXPECT_HAS(result.err, "or the name is not UTF-8");
    EXPECT_NE(0, access(path.c_str(), F_OK));
}

TEST_F(safetensors, the_writer_refuses_a_header_that_no_reader_takes)
{
    const std::string name(ST_HEADER_MAX, 'x');
    const size_t dims[] = {1};
    const outcome result = run([&] { return write({{name.c_str(), ZOFF_F32, dims, 1, 1, 0}}, "1234"); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "the format allows 100000000; use a smaller --max-shard-size");
    EXPECT_NE(0, access((path + ".zoff-part").c_str(), F_OK));
}
} // namespace
