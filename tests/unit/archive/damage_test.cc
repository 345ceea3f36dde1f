/* SPDX-License-Identifier: Apache-2.0 */
// damage_test.cc: every flipped bit of a checkpoint is found, and the file is named, by those that open and verify it.
#include "ranks.h"

#include <random>

using namespace zoff_test;

namespace
{
// Bytes of a file, as classes that get the same number of flips.
struct range {
    std::string path;
    size_t begin, end;
};

zoff_status open_and_verify(const std::string &folder)
{
    zoff_checkpoint_reader *r = nullptr;
    zoff_status status = zoff_checkpoint_reader_open(folder.c_str(), nullptr, &r);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_reader_verify(r, nullptr, nullptr);
    zoff_checkpoint_reader_close(r);
    return status;
}

void flip(const std::string &path, size_t byte, unsigned bit)
{
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    char value = 0;
    file.seekg((std::streamoff)byte);
    file.get(value);
    file.seekp((std::streamoff)byte);
    file.put((char)(value ^ 1 << bit));
}

// The classes of one file of a rank.
void add_part(const std::string &path, uint64_t table, std::vector<range> *out)
{
    const size_t bytes = read_file(path).size();
    out->push_back({path, 0, 4096});
    out->push_back({path, 4096, table});
    out->push_back({path, table - 4096, table}); // mostly padding
    out->push_back({path, table, bytes});
}

void flip_each(const std::string &folder, const std::vector<range> &ranges, unsigned flips)
{
    std::mt19937 random(18);
    ASSERT_ZOFF_OK(open_and_verify(folder));
    for (unsigned i = 0; i < flips; i++) {
        const range &r = ranges[i % ranges.size()];
        const size_t byte = r.begin + random() % (r.end - r.begin);
        const unsigned bit = random() % 8;
        flip(r.path, byte, bit);
        const zoff_status status = open_and_verify(folder);
        const std::string message = zoff_last_error();
        flip(r.path, byte, bit);
        ASSERT_EQ(ZOFF_ERR_CORRUPT, status) << r.path << " byte " << byte << " bit " << bit << ": " << message;
        ASSERT_NE(std::string::npos, message.find(r.path)) << message;
    }
    ASSERT_ZOFF_OK(open_and_verify(folder));
}
} // namespace

TEST(damage, is_found_and_named)
{
    scratch_folder scratch;
    sample written;
    ASSERT_ZOFF_OK(written.write(scratch.path));
    const std::string folder = scratch.file("step-0000000012"), manifest = folder + "/manifest.json",
                      text = read_file(manifest);
    std::vector<range> ranges = {{manifest, 0, text.size()}};
    add_part(part_in(folder), strtoull(&text[text.find("\"offset\": ") + 10], nullptr, 10), &ranges);
    flip_each(folder, ranges, 1000);
}

TEST(damage, in_the_files_of_ranks_is_found_and_named)
{
    scratch_folder scratch;
    ranks_checkpoint written(scratch.path, 3);
    ASSERT_ZOFF_OK(written.write());
    const std::string folder = scratch.file("step-7");
    std::vector<range> ranges = {{folder + "/manifest.json", 0, read_file(folder + "/manifest.json").size()}};
    for (unsigned rank = 0; rank < 3; rank++)
        add_part(folder + "/" + written.m.id + ".rank-0000" + std::to_string(rank) + ".states",
                 written.files[rank].table_offset, &ranges);
    flip_each(folder, ranges, 1000);
}

// `latest` is in no checkpoint: the right one is loaded all the same.
TEST(damage, to_latest_is_named_and_changes_nothing)
{
    scratch_folder scratch;
    sample written;
    for (int64_t t : {10, 11, 12})
        ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, t));
    const size_t bits = read_file(scratch.file("latest")).size() * 8;
    for (size_t bit = 0; bit < bits; bit++) {
        log_catcher log;
        log.expect("latest' is damaged");
        flip(scratch.file("latest"), bit / 8, bit % 8);
        zoff_checkpoint_reader *r = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r));
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
        EXPECT_EQ(12, info.t);
        zoff_checkpoint_reader_close(r);
        flip(scratch.file("latest"), bit / 8, bit % 8);
    }
}
