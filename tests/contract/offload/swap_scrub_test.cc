/* SPDX-License-Identifier: Apache-2.0 */
// swap_scrub_test.cc: scrub compares every place of every commit of persistent files, while nobody has them open. Flipped bits
// are found in their array, and only those.
#include "swap_commit.h"

extern "C" {
#include "digest.h"
}

#include <jansson.h>
#include <zoff/checkpoint.h>

#include <random>

using namespace zoff_test;

namespace
{
struct json_closer {
    void operator()(json_t *j) const { json_decref(j); }
};

class Scrub : public Commit
{
  protected:
    struct result {
        std::unique_ptr<json_t, json_closer> all;
        std::string text;
        uint64_t wrong = 12345;
        json_t *file(size_t i) const { return json_array_get(json_object_get(all.get(), "files"), i); }
        json_int_t of(size_t file_, size_t commit, const char *key) const
        {
            json_t *c = json_array_get(json_object_get(file(file_), "commits"), commit);
            return c ? json_integer_value(json_object_get(c, key)) : -1;
        }
        std::vector<std::string> complaints(size_t i) const
        {
            std::vector<std::string> words;
            size_t k;
            json_t *c;
            json_array_foreach(json_object_get(file(i), "complaints"), k, c) words.push_back(json_string_value(c));
            return words;
        }
    };

    zoff_status try_scrub(result *out, zoff_progress_fn progress = nullptr, void *ctx = nullptr)
    {
        std::vector<char> text(1 << 16);
        size_t bytes = 0;
        for (size_t i = 0; i < 2; i++)
            paths[i] = folders[i].path.c_str();
        const zoff_status status =
            zoff_state_files_scrub(paths, GetParam(), progress, ctx, text.data(), text.size(), &bytes, &out->wrong);
        if (status != ZOFF_OK)
            return status;
        json_error_t error;
        out->text = text.data();
        EXPECT_EQ(out->text.size(), bytes);
        out->all.reset(json_loads(text.data(), 0, &error));
        EXPECT_NE(nullptr, out->all) << error.text << out->text;
        EXPECT_EQ(GetParam(), json_array_size(json_object_get(out->all.get(), "files")));
        EXPECT_EQ((json_int_t)out->wrong, json_integer_value(json_object_get(out->all.get(), "wrong")));
        return status;
    }
    result scrub()
    {
        result r;
        EXPECT_ZOFF_OK(try_scrub(&r));
        return r;
    }
    void run(int64_t steps)
    {
        ASSERT_ZOFF_OK(open(options()));
        for (int64_t t = 1; t <= steps; t++)
            step(t);
        store.reset();
    }

    // Arrays of a commit in a file, with the chunk, the place, and the bytes that are read of it.
    struct spot {
        uint64_t chunk, offset, bytes;
        unsigned array;
    };
    std::vector<spot> spots(size_t i, bool last)
    {
        std::vector<spot> all;
        zoff_swap_found found;
        int fd = ::open(file(i).c_str(), O_RDONLY);
        EXPECT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
        close(fd);
        const unsigned newest = found.heads[1].generation > found.heads[0].generation, which = last ? newest : !newest;
        for (uint64_t k = 0; k < found.heads[which].entry_count; k++) {
            const zoff_swap_entry &e = found.tables[which][k];
            for (unsigned a = 0; a < 3; a++) {
                const uint64_t begin = a ? e.arrays[a - 1].end : 0, bytes = e.arrays[a].end - begin;
                if (bytes)
                    all.push_back({e.chunk, e.offset + e.arrays[a].slot * e.arrays[2].end + begin, bytes, a});
            }
        }
        zoff_offload_swap_record_free(&found);
        return all;
    }
    void flip(size_t i, uint64_t at, unsigned bit)
    {
        int fd = ::open(file(i).c_str(), O_RDWR);
        char byte;
        ASSERT_EQ(1, pread(fd, &byte, 1, (off_t)at));
        byte = (char)(byte ^ (1 << bit));
        ASSERT_EQ(1, pwrite(fd, &byte, 1, (off_t)at));
        close(fd);
    }

    // A changed record, with the checksums that belong to it.
    static void write_record(int fd, const zoff_swap_found &found, unsigned which)
    {
        zoff_swap_head head = found.heads[which];
        const size_t bytes = head.entry_count * sizeof *found.tables[which];
        head.table_checksum = zoff_digest_blocks_small(found.tables[which], bytes);
        head.checksum = zoff_digest_blocks_small(&head, offsetof(zoff_swap_head, checksum));
        ASSERT_EQ((ssize_t)bytes, pwrite(fd, found.tables[which], bytes, (off_t)(8192 + which * head.table_room)));
        ASSERT_EQ((ssize_t)sizeof head, pwrite(fd, &head, sizeof head, which * 4096));
    }

    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Paths, Scrub, testing::Values(1, 2), [](const auto &p) { return std::to_string(p.param); });

TEST_P(Scrub, IntactFilesAreWell)
{
    run(3);
    const result r = scrub();
    EXPECT_EQ(0u, r.wrong);
    json_int_t arrays = 0;
    for (size_t i = 0; i < GetParam(); i++) {
        EXPECT_EQ(file(i), json_string_value(json_object_get(r.file(i), "path")));
        EXPECT_EQ((json_int_t)i, json_integer_value(json_object_get(r.file(i), "file")));
        EXPECT_EQ((json_int_t)GetParam(), json_integer_value(json_object_get(r.file(i), "files")));
        EXPECT_EQ(4, r.of(i, 0, "generation"));
        EXPECT_EQ(3, r.of(i, 0, "t"));
        EXPECT_EQ(2, r.of(i, 1, "t"));
        EXPECT_EQ(0, r.of(i, 0, "without_checksum"));
        arrays += r.of(i, 0, "arrays");
        EXPECT_TRUE(r.complaints(i).empty());
    }
    EXPECT_EQ(5 + 4 * 3 + 2, arrays) << "chunks of one array, of three, and chunk 7";
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(3);
}

// The first content: fresh arrays are read as an engine reads them.
TEST_P(Scrub, ANewFileIsWell)
{
    run(0);
    const result r = scrub();
    EXPECT_EQ(0u, r.wrong);
    EXPECT_EQ(1, r.of(0, 0, "generation"));
    EXPECT_EQ(-1, r.of(0, 1, "generation"));
}

// One bit at a time, at random places of arrays of both commits.
TEST_P(Scrub, AFlippedBitIsFoundInItsArray)
{
    run(3);
    std::mt19937 random(7);
    for (int n = 0; n < 100; n++) {
        const size_t i = random() % GetParam();
        const bool last = n % 2;
        const auto all = spots(i, last);
        const spot s = all[random() % all.size()];
        const uint64_t at = s.offset + random() % s.bytes;
        const unsigned bit = random() % 8;
        flip(i, at, bit);
        const result r = scrub();
        flip(i, at, bit);
        EXPECT_EQ(last, r.wrong) << "an older commit may be overwritten";
        EXPECT_EQ(1, r.of(i, last ? 0 : 1, "wrong"));
        EXPECT_EQ(0, r.of(i, last ? 1 : 0, "wrong"));
        ASSERT_EQ(last ? 1u : 0u, r.complaints(i).size()) << "what a later step may overwrite is counted, and no complaint";
        const std::string want = "step 3: chunk " + std::to_string(s.chunk) + ", array " + std::to_string(s.array) + ": " +
                                 std::to_string(s.bytes) + " bytes at offset " + std::to_string(s.offset) +
                                 " are not what was written there";
        if (last) {
            EXPECT_EQ(want, r.complaints(i)[0]);
        }
    }
    EXPECT_EQ(0u, scrub().wrong);
}

// A bit of the last record flips: the record before counts, and the damage is told.
TEST_P(Scrub, ADamagedRecordIsTold)
{
    run(3);
    const uint64_t head = 0 * 4096 + 60; // generation 4
    flip(0, head, 3);
    result r = scrub();
    EXPECT_EQ(1u, r.wrong);
    EXPECT_EQ(3, r.of(0, 0, "generation"));
    EXPECT_EQ("the record of a later commit is not valid: it was damaged, or the power failed while it was written",
              r.complaints(0).at(0));
    flip(0, 4096 + 60, 3); // the other one, too
    r = scrub();
    EXPECT_EQ(1u, r.wrong);
    EXPECT_EQ(-1, r.of(0, 0, "generation"));
    EXPECT_EQ("it has no whole commit record: it is damaged, or not a state file", r.complaints(0).at(0));
    flip(0, head, 3);
    flip(0, 4096 + 60, 3);
    EXPECT_EQ(0u, scrub().wrong);
}

TEST_P(Scrub, ACutFileCannotBeRead)
{
    run(2);
    struct stat st;
    ASSERT_EQ(0, stat(file(0).c_str(), &st));
    ASSERT_EQ(0, truncate(file(0).c_str(), st.st_size - 2 * 20480));
    const result r = scrub();
    EXPECT_LT(0u, r.wrong);
    EXPECT_NE(std::string::npos, r.complaints(0).at(0).find("cannot be read: ")) << r.text;
}

// A record whose checksums hold claims fresh arrays, which are zeros, far behind the end of the file. Reading them would take
// years, and their checksums all memory.
TEST_P(Scrub, ArraysBehindTheEndOfTheFileAreNotSummed)
{
    const uint64_t more = (uint64_t)1 << 56;
    run(2);
    struct stat st;
    ASSERT_EQ(0, stat(file(0).c_str(), &st));
    zoff_swap_found found;
    const int fd = ::open(file(0).c_str(), O_RDWR);
    ASSERT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
    for (unsigned which = 0; which < 2; which++) {
        zoff_swap_entry *last = &found.tables[which][found.heads[which].entry_count - 1];
        last->arrays[2].end += more;
        last->arrays[2].flags |= ZOFF_ENTRY_FRESH;
        found.heads[which].file_bytes += 2 * more;
        write_record(fd, found, which);
    }
    close(fd);
    zoff_offload_swap_record_free(&found);
    const result r = scrub();
    EXPECT_LT(0u, r.wrong);
    EXPECT_NE(std::string::npos, r.text.find("cannot be read: the file ends at byte " + std::to_string(st.st_size))) << r.text;
    const std::string folder = file(0).substr(0, file(0).rfind('/'));
    const char *const folders[] = {folder.c_str()};
    zoff_state_files *files = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, ": it was cut. Go back to a checkpoint",
                      zoff_offload_files_open("call", folders, 1, &files));
}

// The only record that is left has a number to which no reader can add one.
TEST_P(Scrub, AGenerationAtTheEndOfItsRangeIsNoRecord)
{
    run(2);
    zoff_swap_found found;
    const int fd = ::open(file(0).c_str(), O_RDWR);
    ASSERT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
    for (const uint64_t value : {UINT64_MAX, UINT64_MAX - 2, ((uint64_t)1 << 62) + 1}) {
        found.heads[1].generation = value;
        write_record(fd, found, 1);
        ASSERT_EQ(4096, pwrite(fd, std::string(4096, 0).data(), 4096, 0));
        EXPECT_NE(std::string::npos, scrub().text.find("it has no whole commit record")) << value;
    }
    close(fd);
    zoff_offload_swap_record_free(&found);
}

TEST_P(Scrub, ArraysWithoutChecksumAreCounted)
{
    zoff_store_opts opts = options();
    opts.verify = ZOFF_VERIFY_OFF;
    ASSERT_ZOFF_OK(open(opts));
    step(1);
    store.reset();
    const result r = scrub();
    EXPECT_EQ(0u, r.wrong);
    for (size_t i = 0; i < GetParam(); i++) {
        EXPECT_LT(0, r.of(i, 0, "arrays"));
        EXPECT_EQ(r.of(i, 0, "arrays"), r.of(i, 0, "without_checksum"));
    }
}

// Most arrays of both commits are wrong, and at most 16 of the last one are told.
TEST_P(Scrub, ComplaintsOfAFileHaveAnEnd)
{
    run(2);
    size_t wrong = 0;
    for (const bool last : {true, false}) {
        for (const spot &s : spots(0, last)) {
            flip(0, s.offset, 0);
            wrong++;
        }
    }
    const result r = scrub();
    EXPECT_EQ((json_int_t)r.wrong, r.of(0, 0, "wrong"));
    EXPECT_EQ((json_int_t)wrong, r.of(0, 0, "wrong") + r.of(0, 1, "wrong"));
    EXPECT_EQ(std::min<size_t>(r.wrong, 16), r.complaints(0).size());
}

TEST_P(Scrub, FilesInUseAreRefusedAndFreeAfterwards)
{
    ASSERT_ZOFF_OK(open(options()));
    result r;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "'" + file(0) + "' is in use by an engine", try_scrub(&r));
    step(1);
    store.reset();
    EXPECT_EQ(0u, scrub().wrong);
    ASSERT_ZOFF_OK(open(options())) << "scrub has given the lock back";
}

TEST_P(Scrub, ReportsEveryByteAndCanBeEnded)
{
    run(2);
    struct seen {
        uint64_t done = 0, total = 0, stop = UINT64_MAX;
    } s;
    const zoff_progress_fn watch = [](const char *what, uint64_t done, uint64_t total, void *ctx) {
        auto w = static_cast<seen *>(ctx);
        EXPECT_STREQ("scrub", what);
        EXPECT_LT(w->done, done);
        w->done = done;
        w->total = total;
        return done < w->stop;
    };
    result r;
    ASSERT_ZOFF_OK(try_scrub(&r, watch, &s));
    EXPECT_EQ(2u * 10 * 20480, s.total);
    EXPECT_EQ(s.total, s.done);
    s = seen();
    s.stop = 50000;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended it after", try_scrub(&r, watch, &s));
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(2);
}

// Arrays of several parts, with every end: the sums are those of the store.
TEST_P(Scrub, LargeArraysAreReadInParts)
{
    const size_t part = 8 << 20;
    chunks.assign(3, {part + 4096, part + 4096, {4096, part, part + 4096}});
    chunks[1] = {2 * part + 4096, 4096};
    chunks[2].first_bytes = 4096;
    zoff_store_opts opts = options();
    opts.fill = [](void *, size_t chunk, void *base) { memset(base, (int)chunk + 1, 4096); };
    opts.residents = 0;
    ASSERT_ZOFF_OK(open(opts));
    ASSERT_NO_FATAL_FAILURE(change([](size_t c) { return c < 2; }));
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 1));
    store.reset();
    EXPECT_EQ(0u, scrub().wrong);
    for (const spot &s : spots(0, true)) {
        flip(0, s.offset + s.bytes - 1, 7);
        EXPECT_EQ(s.chunk < 2 || s.array == 0, scrub().wrong == 1) << "chunk " << s.chunk << ": fresh zeros are not read";
        flip(0, s.offset + s.bytes - 1, 7);
    }
}

TEST_P(Scrub, RefusalsSayWhatToDo)
{
    const char *none[] = {"/nonexistent"}, *empty[] = {folders[1].path.c_str()};
    char text[8] = "?";
    size_t bytes = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read the folder '/nonexistent'",
                      zoff_state_files_scrub(none, 1, nullptr, nullptr, nullptr, 0, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "there is no state file in '" + folders[1].path,
                      zoff_state_files_scrub(empty, 1, nullptr, nullptr, nullptr, 0, nullptr, nullptr));
    for (const auto &bad : {std::pair<const char **, size_t>{nullptr, 1}, {none, 0}})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL",
                          zoff_state_files_scrub(bad.first, bad.second, nullptr, nullptr, nullptr, 0, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL",
                      zoff_state_files_scrub(none, 1, nullptr, nullptr, nullptr, 5, nullptr, nullptr));
    run(1);
    const char *one[] = {folders[0].path.c_str()};
    ASSERT_ZOFF_OK(zoff_state_files_scrub(one, 1, nullptr, nullptr, text, sizeof text, &bytes, nullptr));
    EXPECT_STREQ("{\"files\"", (std::string(text) + "\"").c_str()) << "as much as fits";
    EXPECT_LT(100u, bytes);
    // Other names are not looked at, and a file of another version is refused.
    ASSERT_EQ(0, system(("echo x > '" + folders[0].file("zoff-r0.states.json") + "'; echo x > '" +
                         folders[0].file("zoff-rx.states") + "'")
                            .c_str()));
    EXPECT_EQ(0u, scrub().wrong);
    const uint32_t old = 3;
    for (unsigned which = 0; which < 2; which++) {
        int fd = ::open(file(0).c_str(), O_RDWR);
        ASSERT_EQ(4, pwrite(fd, &old, 4, which * 4096 + 8));
        close(fd);
    }
    result r;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "is a state file of format 3, and this library reads formats 4 and 5",
                      try_scrub(&r));
}
} // namespace
