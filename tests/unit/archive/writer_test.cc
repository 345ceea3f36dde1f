/* SPDX-License-Identifier: Apache-2.0 */
// writer_test.cc: the public calls that write a checkpoint.
#include "sample.h"

#include <sys/stat.h>

using namespace zoff_test;

namespace
{
zoff_checkpoint_param param_of(const char *name, size_t count, unsigned states = 1)
{
    zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
    p.name = name;
    p.count = count;
    p.states = states;
    return p;
}

zoff_status open(const std::string &folder, const std::vector<zoff_checkpoint_param> &params, checkpoint_writer *out)
{
    zoff_checkpoint_writer *w = nullptr;
    const zoff_status status =
        zoff_checkpoint_writer_open(folder.c_str(), nullptr, 1, params.data(), params.size(), nullptr, &w);
    out->reset(w);
    return status;
}
} // namespace

// The end of a region may be that of a unit, or not; the last elements may be written or left out.
TEST(writer, ends_its_last_unit_once)
{
    const size_t unit = ZOFF_ARCHIVE_UNIT / sizeof(float);
    for (size_t count : {unit - 1, unit, unit + 1, 2 * unit, 3 * unit - 1024}) {
        for (size_t left : {(size_t)0, (size_t)1, unit / 2, unit, count}) {
            SCOPED_TRACE(testing::Message() << count << " elements, " << left << " left out");
            if (left > count)
                continue;
            scratch_folder scratch;
            checkpoint_writer w;
            zoff_checkpoint_reader *r = nullptr;
            std::vector<float> values(count, 0.0f), got(count, -1.0f);
            for (size_t k = 0; k < count - left; k++)
                values[k] = 1.0f + (float)(k % 1000);
            ASSERT_ZOFF_OK(open(scratch.path, {param_of("w", count)}, &w));
            ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w.get(), 0, ZOFF_STATE_MASTER, 0, count - left, values.data()));
            ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r));
            checkpoint_reader owner(r);
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r, 0, ZOFF_STATE_MASTER, 0, count, got.data()));
            ASSERT_TRUE(values == got);
        }
    }
}

TEST(writer, leaves_holes_for_elements_that_are_left_out)
{
    scratch_folder scratch;
    checkpoint_writer w;
    zoff_checkpoint_reader *r = nullptr;
    const size_t count = 3000000000; // more than 2^31
    const std::vector<float> some = {1, 2, 3};
    ASSERT_ZOFF_OK(open(scratch.path, {param_of("a", 10), param_of("big", count), param_of("z", 3)}, &w));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w.get(), 1, ZOFF_STATE_MASTER, 2147483646, 3, some.data()));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w.get(), 1, ZOFF_STATE_MASTER, count - 3, 3, some.data()));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w.get(), 2, ZOFF_STATE_MASTER, 0, 3, some.data()));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    struct stat about;
    ASSERT_EQ(0, stat(part_in(scratch.file("step-0000000001")).c_str(), &about));
    EXPECT_GT(about.st_size, (off_t)count * 4);
    EXPECT_LT(about.st_blocks * 512, 16 << 20);
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r));
    checkpoint_reader owner(r);
    for (const auto &range : std::vector<std::pair<size_t, size_t>>{{1, 2147483646}, {1, count - 3}, {2, 0}}) {
        std::vector<float> got(3);
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r, range.first, ZOFF_STATE_MASTER, range.second, 3, got.data()));
        EXPECT_EQ(some, got);
    }
    std::vector<float> got(1 << 20, -1.0f);
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r, 1, ZOFF_STATE_MASTER, 1000000000, got.size(), got.data()));
    EXPECT_EQ(std::vector<float>(1 << 20), got);
}

TEST(writer, refuses_parameters_that_contradict_themselves_or_each_other)
{
    scratch_folder scratch;
    checkpoint_writer w;
    const size_t dims[] = {3, 4}, many[65] = {1}, huge[] = {1ull << 40, 1ull << 40};
    const auto refuses = [&](const char *words, std::vector<zoff_checkpoint_param> params) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, open(scratch.file("c"), params, &w));
        EXPECT_TRUE(names_in(scratch.file("c")).empty()); // nothing is left behind
    };
    zoff_checkpoint_param p = param_of("p", 12);
    p.dims = dims;
    p.dim_count = 2;
    p.count = 13;
    refuses("product of the dims of 'p' is 12, and count is 13", {p});
    p.dims = nullptr;
    refuses("dims must not be NULL", {p});
    p.dims = many;
    p.dim_count = 65;
    refuses("at most 64", {p});
    p.dims = huge;
    p.dim_count = 2;
    refuses("too many elements", {p});
    p = param_of("p", 1ull << 40);
    p.slices = 1ull << 40;
    refuses("too many elements", {p});
    refuses("too many elements", std::vector<zoff_checkpoint_param>(1, param_of("p", SIZE_MAX)));
    refuses("no name", {param_of(nullptr, 1)});
    refuses("longer than 4095", {param_of(std::string(4096, 'x').c_str(), 1)});
    refuses("unknown states", {param_of("p", 1, 16)});
    p = param_of("p", 1);
    p.rule = "shampoo";
    refuses("'p' has the unknown rule 'shampoo'; use NULL or \"muon\"", {p});
    p = param_of("p", 1);
    p.dtype = (zoff_dtype)77;
    refuses("unknown dtype 77", {p});
    p.struct_size = 0;
    refuses("ZOFF_CHECKPOINT_PARAM_INIT", {p});
    refuses("two parameters 'p'", {param_of("p", 1), param_of("q", 1), param_of("p", 2)});
    p = param_of("p", 1);
    p.tied_to = "q";
    refuses("not there", {p});
    refuses("another size", {p, param_of("q", 2)});
    p.tied_to = "p";
    refuses("no states of its own", {p});
    std::vector<zoff_checkpoint_param> much;
    const std::string names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"};
    for (const auto &name : names)
        much.push_back(param_of(name.c_str(), 1ull << 58));
    refuses("too many elements", much);
}

TEST(writer, refuses_options_it_cannot_keep)
{
    scratch_folder scratch;
    sample written;
    checkpoint_writer w;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "latest";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "\"latest\"", written.open(scratch.path, &opts, 1, &w));
    for (const char *name : {"manifest.json", "tp0.manifest.json", "0123456789abcdef.rank-00000.states"}) {
        opts.name = name;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the name of a file in a checkpoint", written.open(scratch.path, &opts, 1, &w));
    }
    opts.name = "../x";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.name", written.open(scratch.path, &opts, 1, &w));
    opts.name = nullptr;
    opts.label = "a/b";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.label", written.open(scratch.path, &opts, 1, &w));
    opts.label = nullptr;
    opts.engines = UINT32_MAX;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.engines", written.open(scratch.path, &opts, 1, &w));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "t must not be negative", written.open(scratch.path, nullptr, -1, &w));
    write_file(scratch.file("file"), "");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is no folder", written.open(scratch.file("file"), nullptr, 1, &w));
    written.scaler.scale = INFINITY;
    ASSERT_ZOFF_OK(written.open(scratch.file("c"), nullptr, 1, &w));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "loss scaler", zoff_checkpoint_writer_commit(w.get()));
}

TEST(writer, replaces_no_checkpoint)
{
    scratch_folder scratch;
    sample written, other;
    checkpoint_writer w;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    other.shift = 1;
    ASSERT_ZOFF_OK(written.write(scratch.path));
    const auto before = names_in(scratch.file("step-0000000012"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, scratch.file("step-0000000012") + "' is a checkpoint already",
                      other.open(scratch.path, nullptr, 12, &w));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "another name, or remove that folder", other.open(scratch.path, nullptr, 12, &w));
    EXPECT_EQ(before, names_in(scratch.file("step-0000000012")));
    written.compare(scratch.path);
    opts.label = "tp0"; // another engine
    EXPECT_ZOFF_OK(other.write(scratch.path, &opts));
    ASSERT_EQ(0, system(("rm -r '" + scratch.file("step-0000000012") + "'").c_str()));
    ASSERT_ZOFF_OK(other.write(scratch.path));
    other.compare(scratch.path);
}

TEST(writer, refuses_elements_out_of_order_or_outside)
{
    scratch_folder scratch;
    checkpoint_writer w;
    const std::vector<float> x(100);
    ASSERT_ZOFF_OK(open(scratch.path, {param_of("a", 50, 3), param_of("b", 50)}, &w));
    const auto write = [&](size_t index, zoff_state_kind kind, size_t first, size_t count) {
        return zoff_checkpoint_writer_write(w.get(), index, kind, first, count, x.data());
    };
    ASSERT_ZOFF_OK(write(0, ZOFF_STATE_MASTER, 10, 10));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "come after later ones", write(0, ZOFF_STATE_MASTER, 19, 1));
    EXPECT_ZOFF_OK(write(0, ZOFF_STATE_M, 0, 50)); // another kind has its own order
    EXPECT_ZOFF_OK(write(0, ZOFF_STATE_MASTER, 20, 1));
    EXPECT_ZOFF_OK(write(1, ZOFF_STATE_MASTER, 0, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "come after later ones", write(0, ZOFF_STATE_MASTER, 49, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is outside", write(1, ZOFF_STATE_MASTER, 1, 50));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is outside", write(1, ZOFF_STATE_MASTER, SIZE_MAX, 2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no state of kind 1", write(1, ZOFF_STATE_M, 0, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no state of kind 9", write(1, (zoff_state_kind)9, 0, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 2", write(2, ZOFF_STATE_M, 0, 1));
    EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get())); // none of these errors broke the writer
    EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "commit", write(1, ZOFF_STATE_MASTER, 1, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "commit", zoff_checkpoint_writer_data(w.get(), "x", "y", 1));
}

TEST(writer, keeps_data_of_many_units)
{
    scratch_folder scratch;
    checkpoint_writer w;
    zoff_checkpoint_reader *r = nullptr;
    std::string data(9000000, 0), got(9000000, 1);
    for (size_t i = 0; i < data.size(); i++)
        data[i] = (char)(i * 7 >> 8);
    ASSERT_ZOFF_OK(open(scratch.path, {}, &w));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_data(w.get(), "", data.data(), data.size())); // a name may be empty
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_data(w.get(), "none", nullptr, 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "already", zoff_checkpoint_writer_data(w.get(), "none", "x", 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "256 bytes",
                      zoff_checkpoint_writer_data(w.get(), std::string(256, 'n').c_str(), "x", 1));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r));
    checkpoint_reader owner(r);
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_data(r, "", 0, &got[0], got.size(), nullptr));
    EXPECT_TRUE(data == got);
    size_t count = 9;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_data(r, "none", 0, nullptr, 0, &count));
    EXPECT_EQ(0u, count);
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
}

TEST(writer, saves_nothing_that_cannot_be_opened_for_its_long_path)
{
    scratch_folder scratch;
    sample written;
    std::string folder = scratch.path;
    while (folder.size() < ZOFF_ARCHIVE_FOLDER_MOST - 250)
        folder += "/" + std::string(200, 'd');
    folder += "/" + std::string(ZOFF_ARCHIVE_FOLDER_MOST - folder.size() - 1, 'e');
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    const std::string name(255, 'n');
    opts.name = name.c_str();
    ASSERT_ZOFF_OK(written.write(folder, &opts));
    written.compare(folder);
    written.compare(folder + "/" + name);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is too long", written.write(folder + "x", &opts));
}
