/* SPDX-License-Identifier: Apache-2.0 */
// safetensors_refusals_test.cc: every fault of a file is an error that names the file, and the tensor if there is one.
#include "tool_files.h"

using namespace tool_files;

namespace
{
const std::string A = entry("a", "F32", "[2]", 0, 8);

class refusals : public testing::Test
{
  protected:
    // The message for a file of these bytes.
    std::string refused(const std::string &bytes)
    {
        const std::string path = folder.file("model.safetensors");
        write_bytes(path, bytes);
        st_reader reader = {};
        const outcome result = run([&] { return st_reader_open(&reader, path.c_str(), nullptr); });
        EXPECT_EQ(EXIT_FAILED, result.exit);
        EXPECT_EQ(0u, result.err.find("error: " + path + ": ")) << result.err;
        EXPECT_EQ(-1, reader.fd);
        st_reader_close(&reader);
        return result.err;
    }
    // The refusal of a file of a header and eight bytes of data.
    std::string of_header(const std::string &header) { return refused(file_of(header, "12345678")); }
    zoff_test::scratch_folder folder;
};

TEST_F(refusals, files_that_are_something_else)
{
    EXPECT_HAS(refused(""), "has 0 bytes: not a safetensors file");
    EXPECT_HAS(refused("1234567"), "has 7 bytes: not a safetensors file");
    EXPECT_HAS(refused("12345678"), "its header would have 4050765991979987505 bytes, but the file has 8");
    EXPECT_HAS(refused(std::string(8, '\0')), "the header does not begin with \"{\"");
    EXPECT_HAS(of_header("[]"), "the header does not begin with \"{\"");
    EXPECT_HAS(of_header("  {}"), "the header does not begin with \"{\"");
    st_reader reader = {};
    EXPECT_HAS(run([&] { return st_reader_open(&reader, folder.file("none").c_str(), nullptr); }).err,
               folder.file("none") + ": cannot open: No such file");
    EXPECT_HAS(run([&] { return st_reader_open(&reader, folder.path.c_str(), nullptr); }).err, folder.path + ": not a file");
    ASSERT_EQ(0, mkfifo(folder.file("fifo").c_str(), 0600));
    EXPECT_HAS(run([&] { return st_reader_open(&reader, folder.file("fifo").c_str(), nullptr); }).err,
               folder.file("fifo") + ": not a file");
}

TEST_F(refusals, headers_beyond_the_file_or_the_limit)
{
    const std::string whole = file_of("{" + A + "}", "12345678");
    for (size_t bytes = 9; bytes < whole.size() - 8; bytes += 3)
        EXPECT_HAS(refused(whole.substr(0, bytes)), "or cut off");
    std::string huge(8, '\0');
    huge[3] = 6; // 100663296 bytes
    const std::string path = folder.file("model.safetensors");
    write_bytes(path, huge);
    ASSERT_EQ(0, truncate(path.c_str(), 200000000));
    st_reader reader = {};
    const outcome result = run([&] { return st_reader_open(&reader, path.c_str(), nullptr); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "its header would have 100663296 bytes, but the file has 200000000 and the format allows 100000000");
}

TEST_F(refusals, headers_that_are_not_json)
{
    EXPECT_HAS(of_header("{" + A), "the header is not JSON: byte ");
    EXPECT_HAS(of_header("{" + A + "}x"), "the header is not JSON");
    EXPECT_HAS(of_header("{\"\xff\":1}"), "the header is not JSON");
    EXPECT_HAS(of_header("{\"a\\u0000b\":1}"), "the header is not JSON");
    EXPECT_HAS(of_header("{" + A + "," + A + "}"), "duplicate object key");
    EXPECT_HAS(of_header("{" + A + "," + A + "}"), "\"a\"");
    EXPECT_HAS(of_header("{\"a\":" + std::string(100000, '[')), "the header is not JSON");
}

TEST_F(refusals, entries_that_are_incomplete)
{
    const std::string tensor = "model.safetensors: tensor \"a\": ";
    EXPECT_HAS(of_header("{\"a\":1}"), tensor + "its entry is not an object");
    EXPECT_HAS(of_header("{\"a\":{}}"), tensor + "\"dtype\" is not a text");
    EXPECT_HAS(of_header("{\"a\":{\"dtype\":1}}"), tensor + "\"dtype\" is not a text");
    EXPECT_HAS(of_header("{\"a\":{\"dtype\":\"F32\"}}"), tensor + "\"shape\" is not a list");
    EXPECT_HAS(of_header("{\"a\":{\"dtype\":\"F32\",\"shape\":2}}"), tensor + "\"shape\" is not a list");
    EXPECT_HAS(of_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}"),
               tensor + "\"data_offsets\" is not a list of two numbers");
    for (const char *offsets : {"8", "[]", "[0]", "[0,4,8]", "[0,8.0]", "[\"0\",8]", "{\"0\":8}"})
        EXPECT_HAS(of_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + std::string(offsets) + "}}"),
                   tensor + "\"data_offsets\" is not a list of two numbers");
}

TEST_F(refusals, shapes_that_are_no_shapes)
{
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[1,-2]", 0, 8) + "}"),
               "tensor \"a\": dimension 1 of its shape is not a number");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[2.0]", 0, 8) + "}"),
               "tensor \"a\": dimension 0 of its shape is not a number");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[\"2\"]", 0, 8) + "}"), "dimension 0 of its shape is not a number");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[4294967296,4294967296]", 0, 8) + "}"),
               "tensor \"a\": its shape has more elements than a file can hold");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[9223372036854775807,2]", 0, 8) + "}"), "has more elements than");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[99999999999999999999]", 0, 8) + "}"), "the header is not JSON");
}

TEST_F(refusals, sizes_that_differ_from_the_shape)
{
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[3]", 0, 8) + "}"),
               "tensor \"a\": its shape has 3 elements of 4 bytes, but it has 8 bytes of data");
    EXPECT_HAS(of_header("{" + entry("a", "F16", "[2,2,2]", 0, 8) + "}"), "has 8 elements of 2 bytes, but it has 8 bytes");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[]", 0, 8) + "}"), "has 1 elements of 4 bytes");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[0]", 0, 8) + "}"), "has 0 elements of 4 bytes");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[1]", 0, 7) + "}"), "but it has 7 bytes of data");
    // 4611686018427387906 * 4 is 8 modulo 2^64
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[4611686018427387906]", 0, 8) + "}"), "but it has 8 bytes of data");
}

TEST_F(refusals, offsets_outside_of_the_data)
{
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[3]", 0, 12) + "}"),
               "tensor \"a\": bytes 0 to 12 are not inside the 8 bytes of data");
    EXPECT_HAS(of_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}"), "bytes -8 to 0 are not inside");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[1]", 8, 4) + "}"), "bytes 8 to 4 are not inside");
}

TEST_F(refusals, holes_and_overlaps)
{
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[1]", 4, 8) + "}"),
               "tensor \"a\": its data begins at byte 4, but the data before it ends at byte 0");
    EXPECT_HAS(of_header("{" + entry("a", "F32", "[1]", 0, 4) + "}"), "4 bytes at the end of the file belong to no tensor");
    EXPECT_HAS(of_header("{}"), "8 bytes at the end of the file belong to no tensor");
    EXPECT_HAS(of_header("{" + A + "," + entry("b", "F32", "[1]", 4, 8) + "}"),
               "tensor \"b\": its data begins at byte 4, inside tensor \"a\"");
    EXPECT_HAS(of_header("{" + A + "," + entry("b", "F32", "[2]", 0, 8) + "}"), "inside tensor \"a\"");
    EXPECT_HAS(of_header("{" + entry("a", "F16", "[1]", 0, 2) + "," + entry("b", "F32", "[1]", 4, 8) + "}"),
               "tensor \"b\": its data begins at byte 4, but the data before it ends at byte 2");
    EXPECT_HAS(of_header("{" + A + "," + entry("b", "F32", "[0]", 4, 4) + "}"), "inside tensor \"a\"");
}

TEST_F(refusals, types_that_are_not_weights)
{
    for (const char *type : {"F64", "I64", "I32", "U8", "BOOL", "F8_E4M3", "f32", ""})
        EXPECT_HAS(of_header("{" + entry("ids", type, "[1]", 0, 8) + "}"),
                   "tensor \"ids\": type " + std::string(type) +
                       " cannot be weights, which are F32, F16 or BF16; leave it out");
}

TEST_F(refusals, metadata_that_is_not_text)
{
    EXPECT_HAS(of_header("{\"__metadata__\":[]," + A + "}"), "\"__metadata__\" is not an object");
    EXPECT_HAS(of_header("{" + A + ",\"__metadata__\":{\"k\":1}}"), "\"k\" of \"__metadata__\" is not a text");
}

TEST_F(refusals, a_file_that_becomes_shorter)
{
    const std::string path = folder.file("model.safetensors");
    write_bytes(path, file_of("{" + A + "}", "12345678"));
    st_reader reader = {};
    ASSERT_EQ(EXIT_DONE, st_reader_open(&reader, path.c_str(), nullptr));
    ASSERT_EQ(0, truncate(path.c_str(), (off_t)bytes_of(path).size() - 4));
    char bytes[8];
    const outcome result = run([&] { return st_reader_read(&reader, &reader.tensors[0], 0, 2, bytes); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, path + ": cannot read at byte ");
    EXPECT_HAS(result.err, "the file has become shorter");
    st_reader_close(&reader);
}
} // namespace
