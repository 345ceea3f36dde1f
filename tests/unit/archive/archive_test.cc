/* SPDX-License-Identifier: Apache-2.0 */
// archive_test.cc: a checkpoint of several ranks is opened with all pieces in order, and one whose pieces do not cover its
// states is refused.
#include "ranks.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace zoff_test;

namespace
{
using archive_handle = handle<zoff_archive, zoff_archive_close>;

zoff_status open(const std::string &folder, archive_handle *out)
{
    zoff_archive *a = nullptr;
    const zoff_status status = zoff_archive_open(folder.c_str(), "", 0, &a);
    out->reset(a);
    return status;
}
} // namespace

TEST(archive, whose_pieces_do_not_cover_a_state_is_refused)
{
    const struct {
        void (*change)(unsigned rank, zoff_archive_piece *piece);
        const char *words;
    } cases[] = {
        {[](unsigned rank, zoff_archive_piece *p) { p->first -= rank == 1 ? 1024 : 0; }, "or two, for element 1024"},
        {[](unsigned rank, zoff_archive_piece *p) { p->count -= rank == 1 ? 1 : 0; },
         "for element 2047 of slice 0 of the master of 'w'"},
        {[](unsigned rank, zoff_archive_piece *p) { p->slice += rank == 1; }, "for element 1024"},
        {[](unsigned rank, zoff_archive_piece *p) { p->slice += rank == 0; }, "for element 2048"},
        {[](unsigned rank, zoff_archive_piece *p) { p->kind = (uint8_t)(p->kind + (rank == 0)); }, "for element 2048"},
        {[](unsigned rank, zoff_archive_piece *p) { p->param += rank == 0; }, "for element 2048"},
        {[](unsigned rank, zoff_archive_piece *p) { p->param -= rank == 0; }, "for element 2048"},
        {[](unsigned rank, zoff_archive_piece *p) { p->format = (uint8_t)(p->format + 2 * (rank == 1)); },
         "has format 3, expected 1"},
        {[](unsigned, zoff_archive_piece *p) { p->format = ZOFF_ARCHIVE_SPLIT; },
         "for element 0 of slice 0 of the upper half of the master of 'w'"},
        {[](unsigned rank, zoff_archive_piece *p) { p->format = rank == 1 ? (uint8_t)ZOFF_ARCHIVE_SPLIT : p->format; },
         "has format 4, expected 1"},
        {[](unsigned rank, zoff_archive_piece *p) { p->kind = rank == 0 ? (uint8_t)ZOFF_ARCHIVE_UPPER : p->kind; },
         "for element 2048"},
        {[](unsigned rank, zoff_archive_piece *p) { p->count = 1024 >> (rank == 0); }, "for element 2560"},
    };
    for (const auto &one : cases) {
        scratch_folder scratch;
        archive_handle a;
        ranks_checkpoint written(scratch.path, 3);
        ASSERT_ZOFF_OK(written.write(one.change));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, one.words, open(scratch.file("step-7"), &a));
    }
    scratch_folder scratch; // a piece more than there are elements
    archive_handle a;
    ranks_checkpoint written(scratch.path, 3);
    written.param.count = 2048;
    ASSERT_ZOFF_OK(written.write());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "pieces that belong to no state", open(scratch.file("step-7"), &a));
}

TEST(archive, may_have_more_ranks_than_a_process_may_open_files)
{
    scratch_folder scratch;
    archive_handle a;
    ranks_checkpoint written(scratch.path, 150);
    ASSERT_ZOFF_OK(written.write());
    rlimit before, few = {};
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    few.rlim_cur = 100;
    few.rlim_max = before.rlim_max;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    const zoff_status status = open(scratch.file("step-7"), &a);
    std::vector<char> unit(4096);
    for (int round = 0; round < 2 && status == ZOFF_OK; round++) {
        for (size_t i = 0; i < a->ref_count; i++) {
            const zoff_archive_ref &ref = a->refs[i];
            EXPECT_ZOFF_OK(zoff_archive_units_read(a.get(), {ref.file, ref.piece.region, 0}, unit.data(), 1));
            float first = -1;
            memcpy(&first, unit.data(), sizeof first);
            EXPECT_EQ((float)i, first);
        }
    }
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    ASSERT_ZOFF_OK(status);
}

TEST(archive, with_a_file_that_is_cut_or_gone_or_another_is_refused)
{
    scratch_folder scratch;
    archive_handle a;
    ranks_checkpoint written(scratch.path, 2), other(scratch.file("other"), 2);
    ASSERT_ZOFF_OK(written.write());
    ASSERT_ZOFF_OK(other.write());
    const auto path = [&](const ranks_checkpoint &from, unsigned rank) {
        return from.folder + "/step-7/" + from.m.id + ".rank-0000" + std::to_string(rank) + ".states";
    };
    const std::string own = path(written, 1), text = read_file(own);
    write_file(own, text.substr(0, text.size() - 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, own.c_str(), open(scratch.file("step-7"), &a));
    write_file(own, read_file(path(other, 1)));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "the head of '" + own, open(scratch.file("step-7"), &a));
    std::string swapped = text;
    swapped[text.size() - 1] = (char)~swapped[text.size() - 1];
    write_file(own, swapped);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "the table of '" + own, open(scratch.file("step-7"), &a));
    write_file(own + "x", text);
    ASSERT_EQ(0, remove(own.c_str()));
    // a link as in a cache of models; checksums say whose bytes they are
    ASSERT_EQ(0, symlink((own + "x").c_str(), own.c_str()));
    EXPECT_ZOFF_OK(open(scratch.file("step-7"), &a));
    ASSERT_EQ(0, remove(own.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open '" + own, open(scratch.file("step-7"), &a));
    ASSERT_EQ(0, mkfifo(own.c_str(), 0600));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is no file", open(scratch.file("step-7"), &a));
    ASSERT_EQ(0, remove(own.c_str()));
    write_file(own, text);
    EXPECT_ZOFF_OK(open(scratch.file("step-7"), &a));
}

TEST(archive, names_the_parameters_of_damaged_units)
{
    scratch_folder scratch;
    sample written;
    zoff_archive *opened = nullptr;
    ASSERT_ZOFF_OK(written.write(scratch.path));
    const std::string folder = scratch.file("step-0000000012"), path = part_in(folder), text = read_file(path);
    ASSERT_ZOFF_OK(zoff_archive_open(folder.c_str(), "", 0, &opened));
    archive_handle a(opened);
    std::vector<char> bytes(zoff_archive_units_largest(a.get()));
    const struct {
        uint32_t region;
        const char *words;
    } cases[] = {{0, "which hold master of 'a%\xff b', master of 'a%\xff b', master of 'a%\xff b' and 3 more"},
                 {3, "which hold weights of 'frozen'"},
                 {4, "which hold the program's data 'rng'"}};
    ASSERT_EQ(5u, a->tables[0].region_count);
    for (const auto &one : cases) {
        ASSERT_ZOFF_OK(zoff_archive_units_read(a.get(), {0, one.region, 0}, bytes.data(), 1));
        std::string other = text;
        const zoff_archive_region &r = a->tables[0].regions[one.region];
        other[r.offset + r.bytes - 1] = (char)(other[r.offset + r.bytes - 1] ^ 1); // behind the last element
        write_file(path, other);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, one.words, zoff_archive_units_read(a.get(), {0, one.region, 0}, bytes.data(), 1));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'" + path + "' is damaged in the bytes from " + std::to_string(r.offset) + " to",
                          zoff_archive_units_check(a.get(), {0, one.region, 0}, bytes.data(), 1));
    }
    write_file(path, text.substr(0, 4096));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "ends at byte 4096, too early",
                      zoff_archive_units_read(a.get(), {0, 0, 0}, bytes.data(), 1));
}
