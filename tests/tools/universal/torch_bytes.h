/* SPDX-License-Identifier: Apache-2.0 */
// torch_bytes.h: pickles and .pt files for tests, written opcode by opcode, without the code under test.
#ifndef ZOFF_TESTS_TORCH_BYTES_H
#define ZOFF_TESTS_TORCH_BYTES_H

#include "zoff_test.h"

#include <string.h>
#include <zip.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "torch_file.h"
}

namespace torch_bytes
{
inline std::string little(uint64_t number, unsigned bytes)
{
    std::string text;
    for (unsigned i = 0; i < bytes; i++)
        text += (char)(number >> 8 * i);
    return text;
}

inline std::string text(const std::string &words)
{
    return "X" + little(words.size(), 4) + words;
}
inline std::string number(uint32_t value)
{
    return "J" + little(value, 4);
}
inline std::string global(const std::string &module, const std::string &name)
{
    return "c" + module + "\n" + name + "\n";
}
inline std::string pickled(const std::string &value)
{
    return "\x80\x02" + value + ".";
}

inline std::string real(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    std::string text = "G";
    for (unsigned i = 8; i-- > 0;)
        text += (char)(bits >> 8 * i);
    return text;
}

inline std::string tuple(const std::vector<std::string> &items)
{
    std::string all = "(";
    for (const auto &item : items)
        all += item;
    return all + "t";
}

// {key: value, ...}, each given as its pickle.
inline std::string dict(const std::vector<std::pair<std::string, std::string>> &items)
{
    std::string all = "}(";
    for (const auto &item : items)
        all += item.first + item.second;
    return all + "u";
}

inline std::string numbers(const std::vector<size_t> &values)
{
    std::vector<std::string> items;
    for (const size_t value : values)
        items.push_back(number((uint32_t)value));
    return tuple(items);
}

struct tensor_words {
    std::vector<size_t> dims, strides;
    size_t offset = 0, stored = 0;
    std::string key = "0", storage = "FloatStorage";
};

// A contiguous tensor of this shape, alone in its storage.
inline tensor_words contiguous(const std::vector<size_t> &dims)
{
    tensor_words words;
    words.dims = dims;
    words.strides.assign(dims.size(), 1);
    words.stored = 1;
    for (size_t i = dims.size(); i-- > 0;) {
        words.strides[i] = words.stored;
        words.stored *= dims[i];
    }
    return words;
}

inline std::string tensor(const tensor_words &w)
{
    const std::string id =
        tuple({text("storage"), global("torch", w.storage), text(w.key), text("cpu"), number((uint32_t)w.stored)});
    return global("torch._utils", "_rebuild_tensor_v2") +
           tuple({id + "Q", number((uint32_t)w.offset), numbers(w.dims), numbers(w.strides), "\x89",
                  global("collections", "OrderedDict") + ")R"}) +
           "R";
}

inline std::string bytes_of_floats(const std::vector<float> &values)
{
    return std::string((const char *)values.data(), values.size() * sizeof(float));
}

inline std::vector<float> counted(size_t count, float first = 1)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++)
        values[i] = first + (float)i;
    return values;
}

using entries = std::vector<std::pair<std::string, std::string>>; // name, contents

// Write a zip archive; entries lie in NAME/.
inline void write_zip(const std::string &path, const entries &all, const std::string &name = "archive/")
{
    int code;
    zip_t *zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    ASSERT_NE(nullptr, zip) << path;
    for (const auto &entry : all) {
        zip_source_t *source = zip_source_buffer(zip, entry.second.data(), entry.second.size(), 0);
        const zip_int64_t index = zip_file_add(zip, (name + entry.first).c_str(), source, 0);
        ASSERT_GE(index, 0);
        zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
    }
    ASSERT_EQ(0, zip_close(zip)) << path;
}

// Write a .pt file: its root, and one storage where `data` is given.
inline void write_pt(const std::string &path, const std::string &root, const std::vector<std::string> &data = {})
{
    entries all = {{"data.pkl", pickled(root)}, {".format_version", "1"}, {"byteorder", "little"}};
    for (size_t i = 0; i < data.size(); i++)
        all.push_back({"data/" + std::to_string(i), data[i]});
    all.push_back({"version", "3\n"});
    write_zip(path, all);
}

inline std::string read_all(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

struct pt_closer {
    void operator()(torch_file *t) const { torch_file_close(t); }
};
using pt = std::unique_ptr<torch_file, pt_closer>;

// Open a file that must be good.
inline pt open_pt(const std::string &path, pickle_names names = PICKLE_NAMES_LISTED)
{
    torch_file *t = nullptr;
    fault f;
    EXPECT_TRUE(torch_file_open(path.c_str(), names, PICKLE_BYTES_MAX, &t, &f)) << f.text;
    return pt(t);
}

// Read all elements of a tensor, `block` at a time.
inline std::vector<float> read_tensor(torch_file *t, const pickle_value *v, size_t block = 7)
{
    torch_tensor tensor;
    fault f;
    EXPECT_TRUE(torch_file_tensor(t, v, &tensor, &f)) << f.text;
    std::vector<float> values(tensor.count);
    EXPECT_TRUE(torch_file_begin(t, &tensor, &f)) << f.text;
    for (size_t first = 0; first < tensor.count; first += block)
        EXPECT_TRUE(torch_file_next(t, std::min(block, tensor.count - first), values.data() + first, &f)) << f.text;
    return values;
}
} // namespace torch_bytes

#endif
