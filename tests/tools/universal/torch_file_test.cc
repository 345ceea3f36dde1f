/* SPDX-License-Identifier: Apache-2.0 */
// torch_file_test.cc: tensors of .pt files are read as PyTorch describes them, or refused by name.
#include "torch_bytes.h"

#include <math.h>

using namespace torch_bytes;

namespace
{
class torch_file_reads : public testing::Test
{
  protected:
    const zoff_test::scratch_folder folder;
    const std::string path = folder.file("a.pt");

    // Read the root as a tensor.
    std::vector<float> read(const tensor_words &words, const std::string &data)
    {
        write_pt(path, tensor(words), {data});
        const pt t = open_pt(path, PICKLE_NAMES_ANY);
        return t ? read_tensor(t.get(), torch_file_root(t.get())) : std::vector<float>();
    }

    // The message when the root is read as a tensor.
    std::string refusal(const std::string &root, const std::vector<std::string> &data)
    {
        write_pt(path, root, data);
        return refusal_of_file();
    }

    std::string refusal_of_file(pickle_names names = PICKLE_NAMES_LISTED)
    {
        torch_file *t = nullptr;
        torch_tensor found;
        fault f = {""};
        if (torch_file_open(path.c_str(), names, TORCH_TENSOR_PICKLE, &t, &f)) {
            std::vector<float> values;
            if (torch_file_tensor(t, torch_file_root(t), &found, &f)) {
                values.resize(found.count);
                if (torch_file_begin(t, &found, &f) && found.count > 0)
                    torch_file_next(t, found.count, values.data(), &f);
            }
            torch_file_close(t);
        }
        return f.text;
    }

    void expect_refused(const std::string &words, const std::string &root, const std::vector<std::string> &data = {})
    {
        const std::string message = refusal(root, data);
        EXPECT_NE(std::string::npos, message.find(words)) << "\"" << message << "\" has no \"" << words << "\"";
    }
};
} // namespace

TEST_F(torch_file_reads, ShapesOfEveryRank)
{
    for (const std::vector<size_t> &dims :
         std::vector<std::vector<size_t>>{{}, {1}, {0}, {5, 0, 2}, {17}, {3, 5}, {2, 3, 1, 4}}) {
        const tensor_words words = contiguous(dims);
        EXPECT_EQ(counted(words.stored), read(words, bytes_of_floats(counted(words.stored))));
        const pt t = open_pt(path);
        torch_tensor found;
        fault f;
        ASSERT_TRUE(torch_file_tensor(t.get(), torch_file_root(t.get()), &found, &f)) << f.text;
        EXPECT_EQ(dims, std::vector<size_t>(found.dims, found.dims + found.dim_count));
    }
}

TEST_F(torch_file_reads, APartOfAStorage)
{
    tensor_words words = contiguous({2, 3}); // as after param[:2, :] of a larger one
    words.offset = 4;
    words.stored = 20;
    EXPECT_EQ(counted(6, 5), read(words, bytes_of_floats(counted(20))));
}

TEST_F(torch_file_reads, AnyStrideOfDimensionsWithOneElement)
{
    tensor_words words = contiguous({1, 4, 1});
    words.strides = {77, 1, 99};
    EXPECT_EQ(counted(4), read(words, bytes_of_floats(counted(4))));
}

TEST_F(torch_file_reads, HalvesAsTheSameNumbers)
{
    const std::vector<float> numbers = {1, -2, 0.5f, 65504, 0x1p-24f, -0.0f, INFINITY};
    std::string fp16, bf16;
    for (const uint64_t bits : {0x3c00, 0xc000, 0x3800, 0x7bff, 0x0001, 0x8000, 0x7c00})
        fp16 += little(bits, 2);
    for (const uint64_t bits : {0x3f80, 0xc000, 0x3f00, 0x4780, 0x3380, 0x8000, 0x7f80})
        bf16 += little(bits, 2);
    tensor_words words = contiguous({7});
    words.storage = "HalfStorage";
    EXPECT_EQ(numbers, read(words, fp16));
    words.storage = "BFloat16Storage";
    std::vector<float> nearly = numbers;
    nearly[3] = 65536;
    EXPECT_EQ(nearly, read(words, bf16));
    // more than one block of halves
    std::string many;
    for (size_t i = 0; i < 5000; i++)
        many += little(0x3f80 + i % 3 * 0x80, 2);
    words = contiguous({5000});
    words.storage = "BFloat16Storage";
    const std::vector<float> values = read(words, many);
    for (size_t i = 0; i < values.size(); i++)
        ASSERT_EQ((float)(1 << i % 3), values[i]) << i;
}

TEST_F(torch_file_reads, Parameters)
{
    const std::string parameter = global("torch._utils", "_rebuild_parameter") +
                                  tuple({tensor(contiguous({4})), "\x88", global("collections", "OrderedDict") + ")R"}) + "R";
    write_pt(path, parameter, {bytes_of_floats(counted(4))});
    const pt t = open_pt(path);
    EXPECT_EQ(counted(4), read_tensor(t.get(), torch_file_root(t.get())));
}

// Tensors in another order than their storage has them, and beside other elements of it.
TEST_F(torch_file_reads, TensorsThatAreNotContiguous)
{
    struct {
        std::vector<size_t> dims, strides;
        size_t offset;
    } const cases[] = {{{3, 2}, {1, 3}, 0},        // transposed
                       {{2, 2}, {10, 3}, 1},       // every third of two rows
                       {{2, 1, 3}, {1, 99, 2}, 5}, // a dimension of one element has any stride
                       {{4, 3, 2, 2}, {12, 1, 6, 3}, 0}};
    for (const auto &one : cases) {
        tensor_words words;
        words.dims = one.dims, words.strides = one.strides, words.offset = one.offset, words.stored = 48;
        std::vector<float> wanted = {0};
        for (size_t i = 0; i < one.dims.size(); i++) {
            std::vector<float> more;
            for (const float at : wanted) {
                for (size_t k = 0; k < one.dims[i]; k++)
                    more.push_back(at + (float)(k * one.strides[i]));
            }
            wanted = more;
        }
        for (float &at : wanted)
            at += (float)one.offset + 1;
        EXPECT_EQ(wanted, read(words, bytes_of_floats(counted(48))));
        std::string halves;
        for (size_t i = 0; i < 48; i++) {
            const float value = (float)i + 1;
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            halves += little(bits >> 16, 2);
        }
        words.storage = "BFloat16Storage";
        EXPECT_EQ(wanted, read(words, halves));
    }
}

TEST_F(torch_file_reads, DoublesRoundedToNearest)
{
    const std::vector<double> doubles = {1, 1 + 0x1p-24, 1 + 0x1.8p-24, -0.0, 1e300, 0x1p-149, INFINITY};
    tensor_words words = contiguous({doubles.size()});
    words.storage = "DoubleStorage";
    const std::vector<float> wanted = {1, 1, 1 + 0x1p-23f, -0.0f, INFINITY, 0x1p-149f, INFINITY};
    EXPECT_EQ(wanted, read(words, std::string((const char *)doubles.data(), doubles.size() * sizeof(double))));
}

TEST_F(torch_file_reads, NumbersOfEveryForm)
{
    const auto number_of = [&](const std::string &root, const std::vector<std::string> &data) {
        write_pt(path, root, data);
        const pt t = open_pt(path, PICKLE_NAMES_ANY);
        int64_t number = -1;
        fault f = {""};
        EXPECT_TRUE(torch_file_number(t.get(), torch_file_root(t.get()), &number, &f)) << f.text;
        return number;
    };
    tensor_words longs = contiguous({1});
    longs.storage = "LongStorage";
    EXPECT_EQ(12, number_of("K\x0c", {}));
    EXPECT_EQ(12, number_of(real(12), {}));
    EXPECT_EQ(12, number_of(tensor(contiguous({})), {bytes_of_floats({12})}));
    tensor_words precise = contiguous({});
    precise.storage = "DoubleStorage";
    const double many = 3000000001.0;
    EXPECT_EQ(3000000001, number_of(tensor(precise), {std::string((const char *)&many, sizeof many)}));
    EXPECT_EQ(1ll << 40, number_of(tensor(longs), {little(1ull << 40, 8)}));
}

TEST_F(torch_file_reads, TensorsOfTheUsualFormOnly)
{
    const std::string data = bytes_of_floats(counted(6));
    tensor_words words = contiguous({2, 3});
    words.strides = {0, 1};
    expect_refused("repeats its elements", tensor(words), {data});
    words.strides = {4, 1};
    expect_refused("7 elements from 0 on, but only 6 are stored", tensor(words), {data});
    words.strides = {0x7fffffff, 0x7fffffff};
    expect_refused("only 6 are stored", tensor(words), {data});
    words = contiguous({2, 3});
    words.strides = {3};
    expect_refused("too few strides", tensor(words), {data});
    words = contiguous({6});
    words.offset = 1;
    expect_refused("6 elements from 1 on, but only 6 are stored", tensor(words), {data});
    words = contiguous({6});
    words.stored = 5;
    expect_refused("24 bytes, which are not the 5 elements", tensor(words), {data});
    words = contiguous({6});
    words.key = "1";
    expect_refused("no entry data/1", tensor(words), {data});
    words.key = "../../etc/passwd";
    expect_refused("no entry data/", tensor(words), {data});
    words.key = std::string("0\0x", 3);
    expect_refused("no entry", tensor(words), {});
    words.key = std::string(300, 'x');
    expect_refused("no storage of the usual form", tensor(words), {data});
    words = contiguous({3});
    words.storage = "LongStorage";
    expect_refused("no such elements", tensor(words), {data});
    words.storage = "ComplexFloatStorage";
    write_pt(path, tensor(words), {data});
    EXPECT_NE(std::string::npos, refusal_of_file(PICKLE_NAMES_ANY).find("the type \"torch.ComplexFloatStorage\""));
    write_pt(path, global("torch._utils", "_rebuild_tensor_v3") +
                       tuple({"N", "K" + std::string(1, 0), "N", "N", "N", "N", global("torch", "float8_e4m3fn")}) + "R");
    EXPECT_NE(std::string::npos, refusal_of_file(PICKLE_NAMES_ANY).find("the type \"torch.float8_e4m3fn\""));
    words = contiguous(std::vector<size_t>(17, 1));
    expect_refused("more than 16 dimensions", tensor(words), {bytes_of_floats({1})});
    words = contiguous({0x7fffffff, 0x7fffffff, 0x7fffffff});
    expect_refused("", tensor(words), {data});
    expect_refused("no tensor where one is needed", "K\x01");
    expect_refused("no tensor where one is needed", global("torch", "Size") + ")R");
    expect_refused("not the usual form", global("torch._utils", "_rebuild_tensor_v2") + ")R");
    expect_refused("not the usual form", global("torch._utils", "_rebuild_parameter") + ")R");
}

TEST_F(torch_file_reads, NumbersOfOneElementOnly)
{
    const std::vector<std::pair<std::string, std::string>> cases = {{tensor(contiguous({2})), "2 elements is where a number"},
                                                                    {text("2"), "no whole number"}};
    for (const auto &one : cases) {
        write_pt(path, one.first, {bytes_of_floats({1, 2})});
        const pt t = open_pt(path);
        int64_t number;
        fault f = {""};
        EXPECT_FALSE(torch_file_number(t.get(), torch_file_root(t.get()), &number, &f));
        EXPECT_NE(nullptr, strstr(f.text, one.second.c_str())) << f.text;
    }
    write_pt(path, tensor(contiguous({})), {bytes_of_floats({1.5f})});
    const pt t = open_pt(path);
    int64_t number;
    fault f = {""};
    EXPECT_FALSE(torch_file_number(t.get(), torch_file_root(t.get()), &number, &f));
    EXPECT_NE(nullptr, strstr(f.text, "1.5 is no whole number")) << f.text;
}

TEST_F(torch_file_reads, FilesOfPyTorchOnly)
{
    std::ofstream(path) << "no archive";
    EXPECT_NE(std::string::npos, refusal_of_file().find("as a zip archive"));
    write_zip(path, {{"data.pkl", pickled("N")}}, "");
    EXPECT_NE(std::string::npos, refusal_of_file().find("in no folder"));
    write_zip(path, {{"other", ""}});
    EXPECT_NE(std::string::npos, refusal_of_file().find("no entry archive/data.pkl"));
    write_zip(path, {{"data.pkl", pickled("N")}, {"byteorder", "big"}});
    EXPECT_NE(std::string::npos, refusal_of_file().find("another byte order"));
    write_zip(path, {{"data.pkl", std::string(TORCH_TENSOR_PICKLE + 1, 'N')}});
    EXPECT_NE(std::string::npos, refusal_of_file().find("more than 262144"));
    write_pt(path, global("os", "system") + ")R");
    EXPECT_NE(std::string::npos,
              refusal_of_file().find("a.pt: the pickle, at byte 2: it names the Python object \"os.system\""));
    ASSERT_EQ(0, unlink(path.c_str()));
    ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
    EXPECT_NE(std::string::npos, refusal_of_file().find("is not a file"));
    const std::string missing = folder.file("missing.pt");
    torch_file *t = nullptr;
    fault f = {""};
    EXPECT_FALSE(torch_file_open(missing.c_str(), PICKLE_NAMES_ANY, 100, &t, &f));
    EXPECT_NE(nullptr, strstr(f.text, "missing.pt")) << f.text;
}

// The checksum covers what lies before and behind the tensor, too.
TEST_F(torch_file_reads, ElementsWithTheirChecksum)
{
    tensor_words words = contiguous({100});
    words.offset = 10;
    words.stored = 200;
    const std::string data = bytes_of_floats(counted(200));
    write_pt(path, tensor(words), {data});
    const std::string good = read_all(path);
    const size_t at = good.find(data);
    ASSERT_NE(std::string::npos, at);
    ASSERT_EQ("", refusal_of_file());
    for (const size_t byte : {(size_t)0, (size_t)41, (size_t)300, data.size() - 1}) {
        std::string bad = good;
        bad[at + byte] = (char)(bad[at + byte] ^ 0x10);
        std::ofstream(path, std::ios::binary) << bad;
        EXPECT_NE("", refusal_of_file()) << byte;
    }
}

TEST_F(torch_file_reads, NothingOfAFileThatIsCut)
{
    write_pt(path, tensor(contiguous({30})), {bytes_of_floats(counted(30))});
    const std::string good = read_all(path);
    for (size_t count = 0; count < good.size(); count++) {
        std::ofstream(path, std::ios::binary) << good.substr(0, count);
        EXPECT_NE("", refusal_of_file()) << count;
    }
}

// 1.5 MB of compressed zeros are 1.6 GB in memory.
TEST_F(torch_file_reads, NoCompressedEntries)
{
    for (const char *entry : {"data.pkl", "data/0"}) {
        int code = 0;
        write_pt(path, tensor(contiguous({2000})), {std::string(8000, 0)});
        zip_t *zip = zip_open(path.c_str(), 0, &code);
        ASSERT_NE(nullptr, zip);
        zip_int64_t found = -1;
        for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); i++) {
            const std::string name = zip_get_name(zip, (zip_uint64_t)i, 0);
            found = name.size() > strlen(entry) && name.substr(name.size() - strlen(entry)) == entry ? i : found;
        }
        ASSERT_GE(found, 0);
        // The entry is written anew, since libzip compresses only what it writes.
        static const std::string zeros(8000, 0);
        const std::string name = zip_get_name(zip, (zip_uint64_t)found, 0);
        ASSERT_GE(zip_file_add(zip, name.c_str(), zip_source_buffer(zip, zeros.data(), zeros.size(), 0), ZIP_FL_OVERWRITE), 0);
        ASSERT_EQ(0, zip_set_file_compression(zip, (zip_uint64_t)found, ZIP_CM_DEFLATE, 9));
        ASSERT_EQ(0, zip_close(zip));
        const std::string message = refusal_of_file();
        EXPECT_NE(std::string::npos, message.find(std::string(entry) + " is compressed")) << message;
    }
}

// A small file may claim any number of bytes, and the reader must not allocate them.
TEST_F(torch_file_reads, NoEntryThatIsLargerThanTheFile)
{
    const uint32_t claimed = 100 << 20;
    for (const char *entry : {"data.pkl", "data/0"}) {
        write_pt(path, tensor(contiguous({claimed / 4})), {std::string(8000, 0)});
        std::string bytes = read_all(path);
        const size_t name = bytes.rfind(std::string("archive/") + entry), sizes = name - 46 + 20; // in the central directory
        bytes.replace(sizes, 8, little(claimed, 4) + little(claimed, 4));
        std::ofstream(path, std::ios::binary) << bytes;
        const std::string message = refusal_of_file();
        EXPECT_NE(std::string::npos, message.find(std::string(entry) + " would have 104857600 bytes, more than the file"))
            << message;
    }
}
