/* SPDX-License-Identifier: Apache-2.0 */
// sample.h: a small checkpoint that has a parameter of each kind, written and compared by the public calls.
#ifndef ZOFF_ARCHIVE_SAMPLE_H
#define ZOFF_ARCHIVE_SAMPLE_H

#include "zoff_test.h"

extern "C" {
#include "archive_priv.h"
#include "digest.h"
}

#include <dirent.h>
#include <fstream>
#include <sstream>
#include <string.h>

namespace zoff_test
{
using checkpoint_reader = handle<zoff_checkpoint_reader, zoff_checkpoint_reader_close>;
using checkpoint_writer = handle<zoff_checkpoint_writer, zoff_checkpoint_writer_close>;

inline std::string read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

inline void write_file(const std::string &path, const std::string &text)
{
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Names in a folder, sorted.
inline std::set<std::string> names_in(const std::string &folder)
{
    std::set<std::string> names;
    DIR *all = opendir(folder.c_str());
    for (dirent *one; all && (one = readdir(all));) {
        if (strcmp(one->d_name, ".") != 0 && strcmp(one->d_name, "..") != 0)
            names.insert(one->d_name);
    }
    if (all)
        closedir(all);
    return names;
}

// Point `latest` at a checkpoint, which need not be there afterwards.
inline zoff_status point_latest(const std::string &folder, const std::string &name, const std::string &label = "")
{
    zoff_archive_manifest m = {};
    m.label = const_cast<char *>(label.c_str());
    strcpy(m.id, "0123456789abcdef");
    const std::string path = folder + "/" + name;
    const bool is_new = mkdir(path.c_str(), 0777) == 0;
    const zoff_status status = zoff_archive_latest_write(folder.c_str(), name.c_str(), &m);
    if (is_new)
        rmdir(path.c_str());
    return status;
}

// The only file of ranks in a checkpoint.
inline std::string part_in(const std::string &folder)
{
    for (const auto &name : names_in(folder)) {
        if (name.find(".states") != std::string::npos)
            return folder + "/" + name;
    }
    return "";
}

inline std::string hex_of(uint64_t number)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    return text;
}

// The text of a manifest with the checksum that belongs to its other bytes.
inline std::string with_checksum(const std::string &text)
{
    const std::string before = ",\n  \"checksum\": \"", after = "\"\n}\n";
    const size_t end = text.rfind(before);
    const std::string head = end == std::string::npos ? text : text.substr(0, end);
    return head + before + hex_of(zoff_digest_blocks_small(head.data(), head.size())) + after;
}

// Replace the first occurrence of a text. It must be there.
inline std::string replaced(std::string text, const std::string &from, const std::string &to)
{
    const size_t at = text.find(from);
    EXPECT_NE(std::string::npos, at) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class sample
{
  public:
    sample()
    {
        add("a%\xff b", ZOFF_BF16, {5000}, 3, 7);
        params.back().rule = "muon";
        add("frozen", ZOFF_F16, {7}, 1, 8);
        add("empty", ZOFF_F32, {0}, 1, 1);
        add("one", ZOFF_F32, {1, 1}, 1, 5);
        add("tied", ZOFF_BF16, {5000}, 3, 0);
        params.back().tied_to = "a%\xff b";
        add("\n\x01\x7f\"\\/", ZOFF_F32, {2, 3, 4}, 2, 7);
        params.back().slice_name = "layer.{}.w%";
    }

    // A float that each format represents.
    static float value(size_t index, unsigned kind, size_t element)
    {
        return (float)((index * 7 + kind * 3 + element * 5) % 199) * 0.5f;
    }

    zoff_status open(const std::string &folder, const zoff_checkpoint_opts *opts, int64_t t, checkpoint_writer *out) const
    {
        zoff_checkpoint_writer *writer = nullptr;
        const zoff_status status =
            zoff_checkpoint_writer_open(folder.c_str(), opts, t, params.data(), params.size(), &scaler, &writer);
        out->reset(writer);
        return status;
    }

    // Write all elements, in calls of different lengths.
    zoff_status fill(zoff_checkpoint_writer *writer) const
    {
        for (size_t i = 0; i < params.size(); i++) {
            for (unsigned kind = 0; kind < 4; kind++) {
                if (!(params[i].states >> kind & 1))
                    continue;
                const size_t count = params[i].count * params[i].slices;
                for (size_t at = 0, now = 1; at < count; at += now, now = now * 3 + 1) {
                    now = std::min(now, count - at);
                    std::vector<float> some(now);
                    for (size_t k = 0; k < now; k++)
                        some[k] = value(i, kind, at + k) + shift;
                    const zoff_status status =
                        zoff_checkpoint_writer_write(writer, i, (zoff_state_kind)kind, at, now, some.data());
                    if (status < 0)
                        return status;
                }
            }
        }
        return zoff_checkpoint_writer_data(writer, "rng", "hello", 5);
    }

    zoff_status write(const std::string &folder, const zoff_checkpoint_opts *opts = nullptr, int64_t t = 12) const
    {
        checkpoint_writer writer;
        zoff_status status = open(folder, opts, t, &writer);
        if (status == ZOFF_OK)
            status = fill(writer.get());
        return status == ZOFF_OK ? zoff_checkpoint_writer_commit(writer.get()) : status;
    }

    // Compare everything in a checkpoint with what write() put there.
    void compare(zoff_checkpoint_reader *reader, int64_t t = 12) const
    {
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        EXPECT_EQ(t, info.t);
        EXPECT_EQ(params.size(), info.param_count);
        EXPECT_EQ(1u, info.ranks);
        EXPECT_TRUE(info.has_loss_scaler);
        EXPECT_EQ(scaler.scale, info.loss_scaler.scale);
        EXPECT_EQ(scaler.iterations, info.loss_scaler.iterations);
        EXPECT_EQ(scaler.last_overflow, info.loss_scaler.last_overflow);
        EXPECT_EQ(scaler.hysteresis, info.loss_scaler.hysteresis);
        for (size_t i = 0; i < params.size(); i++)
            compare_param(reader, i);
        char data[8] = "";
        size_t count = 0;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_data(reader, "rng", 3, data, sizeof data, &count));
        EXPECT_EQ(std::string("hello"), std::string(data, count));
    }

    void compare(const std::string &folder, int64_t t = 12, const char *label = nullptr) const
    {
        zoff_checkpoint_reader *reader = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), label, &reader));
        checkpoint_reader owner(reader);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
        compare(reader, t);
    }

    std::vector<zoff_checkpoint_param> params;
    zoff_loss_scaler scaler = {sizeof(zoff_loss_scaler), 65536.5, 40, -1, 2};
    float shift = 0; // added to all values: another save

  private:
    void add(const char *name, zoff_dtype dtype, std::vector<size_t> dims_, size_t slices, unsigned states)
    {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        dims.push_back(std::make_unique<std::vector<size_t>>(dims_));
        p.name = name;
        p.dims = dims.back()->data();
        p.dim_count = dims.back()->size();
        p.count = 1;
        for (size_t dim : dims_)
            p.count *= dim;
        p.slices = slices;
        p.dtype = dtype;
        p.states = states;
        params.push_back(p);
    }

    void compare_param(zoff_checkpoint_reader *reader, size_t i) const
    {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        const zoff_checkpoint_param &wanted = params[i];
        const size_t owner = wanted.tied_to ? 0 : i, count = wanted.count * wanted.slices;
        size_t found = 99;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_find(reader, wanted.name, &found));
        EXPECT_EQ(i, found);
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_param(reader, i, &p));
        EXPECT_STREQ(wanted.name, p.name);
        EXPECT_STREQ(wanted.slice_name, p.slice_name);
        EXPECT_STREQ(wanted.tied_to, p.tied_to);
        EXPECT_EQ(wanted.dtype, p.dtype);
        EXPECT_EQ(wanted.count, p.count);
        EXPECT_EQ(wanted.slices, p.slices);
        EXPECT_EQ(params[owner].states, p.states);
        EXPECT_STREQ(params[owner].rule, p.rule);
        EXPECT_EQ(std::vector<size_t>(wanted.dims, wanted.dims + wanted.dim_count),
                  std::vector<size_t>(p.dims, p.dims + p.dim_count));
        for (unsigned kind = 0; kind < 4; kind++) {
            std::vector<float> got(count + 1, -1.0f), elements(count + 1, -1.0f);
            if (!(params[owner].states >> kind & 1)) {
                EXPECT_EQ(ZOFF_ERR_INVALID,
                          zoff_checkpoint_reader_read(reader, i, (zoff_state_kind)kind, 0, count, got.data()));
                continue;
            }
            for (size_t k = 0; k < count; k++)
                elements[k] = value(owner, kind, k) + shift;
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(reader, i, (zoff_state_kind)kind, 0, count, got.data()));
            EXPECT_TRUE(elements == got) << wanted.name << " state " << kind;
        }
    }

    std::vector<std::unique_ptr<std::vector<size_t>>> dims;
};
} // namespace zoff_test

#endif
