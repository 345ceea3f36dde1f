// swap_arrays_test.cc: the arrays of a chunk are borrowed, kept, written, verified and recorded each for itself, whatever fails
// in between. A model says what each array holds now, and what each record that may count has named.
#include "aio_fault.h"
#include "zoff_test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <map>
#include <random>

extern "C" {
#include "offload.h"
#include "swap_record_priv.h"

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
}

using namespace zoff_test;

static int failing_flushes; // the next flushes of a drive that fail

extern "C" int __wrap_fdatasync(int fd)
{
    if (failing_flushes && failing_flushes--) {
        errno = EIO;
        return -1;
    }
    return __real_fdatasync(fd);
}

namespace
{
struct closer_store {
    void operator()(zoff_store *s) const { zoff_offload_store_close(s); }
};

struct kind {
    const char *name;
    const char *backend;
    bool persist;
    size_t residents, paths;
};

enum { ALL = ZOFF_STORE_ALL };

// Chunks as they come: masters filled in part or more, no masters, one array, nothing, and arrays of several blocks.
const std::vector<zoff_store_chunk> CHUNKS = {{20480, 4096, {4096, 12288, 20480}},
                                              {20480, 8192, {4096, 12288, 20480}},
                                              {20480, 20480, {4096, 12288, 20480}},
                                              {16384, 0, {0, 8192, 16384}},
                                              {8192, 4096, {}},
                                              {0, 0, {}},
                                              {237568, 69632, {69632, 102400, 237568}},
                                              {20480, 4096, {4096, 12288, 20480}},
                                              {12288, 4096, {4096, 4096, 12288}}};

class Arrays : public testing::TestWithParam<kind>
{
  protected:
    ~Arrays() override { failing_flushes = 0; }

    void open(size_t residents = SIZE_MAX, unsigned slots = 3)
    {
        const char *paths[2] = {folders[0].path.c_str(), folders[1].path.c_str()};
        zoff_store_opts opts = {};
        opts.tier = ZOFF_TIER_NVME;
        opts.chunks = CHUNKS.data();
        opts.chunk_count = CHUNKS.size();
        opts.fill = [](void *, size_t c, void *base) { memset(base, (int)c + 1, CHUNKS[c].first_bytes); };
        opts.threads = 2;
        opts.slots = slots;
        opts.residents = residents == SIZE_MAX ? GetParam().residents : residents;
        opts.paths = paths;
        opts.path_count = GetParam().paths;
        opts.ranks = 1;
        opts.aio_backend = GetParam().backend;
        opts.persist = opts.power_safe = GetParam().persist;
        opts.layout = 5;
        zoff_store *made = nullptr;
        store.reset();
        ASSERT_ZOFF_OK(zoff_offload_store_open(&opts, &made));
        store.reset(made);
    }

    static size_t end_of(size_t c, unsigned array) { return CHUNKS[c].ends[2] ? CHUNKS[c].ends[array] : CHUNKS[c].bytes; }
    static size_t begin_of(size_t c, unsigned array) { return array ? end_of(c, array - 1) : 0; }
    static size_t bytes_of(size_t c, unsigned array) { return end_of(c, array) - begin_of(c, array); }

    // What byte i of a chunk is when its array was written n times.
    static char value(size_t c, unsigned array, size_t i, int n)
    {
        return n ? (char)(n * 37 + (int)(c * 5 + array * 3) + (int)(i % 11)) : (char)(i < CHUNKS[c].first_bytes ? c + 1 : 0);
    }
    void expect(size_t c, unsigned arrays, const char *base) const
    {
        ASSERT_NE(nullptr, base) << "chunk " << c;
        for (unsigned array = 0; array < 3; array++) {
            for (size_t i = begin_of(c, array); arrays >> array & 1 && i < end_of(c, array); i++)
                ASSERT_EQ(value(c, array, i, now[c][array]), base[i]) << "chunk " << c << ", array " << array << ", byte " << i;
        }
    }
    void put(size_t c, unsigned arrays, char *base)
    {
        for (unsigned array = 0; array < 3; array++) {
            if (!(arrays >> array & 1))
                continue;
            now[c][array]++;
            for (size_t i = begin_of(c, array); i < end_of(c, array); i++)
                base[i] = value(c, array, i, now[c][array]);
        }
    }

    zoff_status try_borrow(size_t c, unsigned arrays, char **out)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = zoff_offload_store_fetch_arrays(store.get(), c, arrays, &base)) == ZOFF_PENDING) {
            status = zoff_offload_store_wait(store.get());
            if (status < 0)
                return status;
        }
        *out = (char *)base;
        return status == ZOFF_OK ? zoff_offload_store_check(store.get(), c) : status;
    }
    // What fails is tried again; so is what had failed before.
    char *borrow(size_t c, unsigned arrays)
    {
        char *base = nullptr;
        for (int tries = 0; try_borrow(c, arrays, &base) != ZOFF_OK; tries++) {
            if (tries == 50) {
                ADD_FAILURE() << zoff_last_error();
                return nullptr;
            }
            zoff_offload_store_forget(store.get());
            (void)zoff_offload_store_retry(store.get());
        }
        return base;
    }
    void read(size_t c, unsigned arrays)
    {
        ASSERT_NO_FATAL_FAILURE(expect(c, arrays, borrow(c, arrays)));
        (void)zoff_offload_store_keep(store.get(), c, 0);
    }
    void write(size_t c, unsigned arrays)
    {
        char *base = borrow(c, arrays);
        ASSERT_NO_FATAL_FAILURE(expect(c, arrays, base));
        put(c, arrays, base);
        (void)zoff_offload_store_keep(store.get(), c, arrays);
    }
    void read_all()
    {
        for (size_t c = 0; c < CHUNKS.size(); c++) {
            if (CHUNKS[c].bytes) {
                ASSERT_NO_FATAL_FAILURE(read(c, ALL));
            }
        }
    }
    void update_all()
    {
        for (size_t c = 0; c < CHUNKS.size(); c++) {
            if (!CHUNKS[c].bytes)
                continue;
            char *base = borrow(c, ALL);
            ASSERT_NO_FATAL_FAILURE(expect(c, ALL, base));
            put(c, ALL, base);
            (void)zoff_offload_store_flush(store.get(), c);
        }
    }
    // Until nothing fails. Each try has a number of its own, for a record that is said to have failed may be there.
    void commit()
    {
        for (int tries = 0; tries < 50; tries++) {
            if (zoff_offload_store_drain(store.get()) == ZOFF_OK && try_commit() == ZOFF_OK)
                return;
            (void)zoff_offload_store_retry(store.get());
        }
        FAIL() << zoff_last_error();
    }
    zoff_status try_commit()
    {
        records[++count] = now;
        const zoff_status status = zoff_offload_store_commit(store.get(), count);
        last = status == ZOFF_OK ? count : last;
        return status;
    }
    void roll_back()
    {
        ASSERT_ZOFF_OK(zoff_offload_store_rollback(store.get()));
        now = records[last];
    }
    // The process ends; another one, with other residents and slots, finds the last record, or one that is said to have failed.
    void die(size_t residents = SIZE_MAX, unsigned slots = 3)
    {
        for (size_t i = 0; i < GetParam().paths; i++)
            ASSERT_EQ(0, system(("cp '" + file(i) + "' '" + file(i) + ".dead'").c_str()));
        (void)zoff_offload_store_drain(store.get()); // a queue that is closed warns of errors that nobody has heard
        store.reset();
        for (size_t i = 0; i < GetParam().paths; i++)
            ASSERT_EQ(0, rename((file(i) + ".dead").c_str(), file(i).c_str()));
        ASSERT_NO_FATAL_FAILURE(open(residents, slots));
        int64_t t = -1;
        ASSERT_TRUE(zoff_offload_store_reopened(store.get(), &t));
        ASSERT_GE(t, last);
        ASSERT_TRUE(records.count(t)) << t;
        now = records[t];
        last = t;
        ASSERT_NO_FATAL_FAILURE(read_all());
    }
    std::string file(size_t i) const { return folders[i].path + "/zoff-r0.states"; }

    // By the record of the last commit of file 0.
    zoff_swap_entry entry(size_t chunk)
    {
        zoff_swap_found found;
        zoff_swap_entry out = {};
        int fd = ::open(file(0).c_str(), O_RDONLY);
        EXPECT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
        close(fd);
        const unsigned which = found.heads[1].generation > found.heads[0].generation;
        for (size_t i = 0; found.tables[which] && i < found.heads[which].entry_count; i++)
            out = found.tables[which][i].chunk == chunk ? found.tables[which][i] : out;
        zoff_offload_swap_record_free(&found);
        EXPECT_EQ(chunk, out.chunk);
        return out;
    }
    std::array<unsigned, 3> places(size_t c)
    {
        const zoff_swap_entry e = entry(c);
        return {e.arrays[0].slot, e.arrays[1].slot, e.arrays[2].slot};
    }
    // Bytes that `work` reads and writes.
    std::pair<uint64_t, uint64_t> moved(const std::function<void()> &work)
    {
        zoff_store_stats before, after;
        zoff_offload_store_stats(store.get(), &before);
        work();
        zoff_offload_store_stats(store.get(), &after);
        return {after.read_bytes - before.read_bytes, after.write_bytes - before.write_bytes};
    }
    typedef std::pair<uint64_t, uint64_t> bytes;
    // Chunks 0, 1 and 2 take all slots.
    void push_out()
    {
        for (size_t c : {0, 1, 2})
            ASSERT_NO_FATAL_FAILURE(read(c, ALL));
    }
    void drain() { ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get())); }

    log_catcher log;
    scratch_folder folders[2];
    std::unique_ptr<zoff_store, closer_store> store;
    typedef std::vector<std::array<int, 3>> content;
    content now = content(CHUNKS.size()); // how often each array was written
    std::map<int64_t, content> records = {{0, now}};
    int64_t last = 0, count = 0;
};

const kind PERSIST[] = {{"persist", "auto", true, 0, 1}, {"posix", "posix", true, 0, 1}, {"residents", "threads", true, 4, 2}};
INSTANTIATE_TEST_SUITE_P(Kinds, Arrays,
                         testing::Values(kind{"temporary", "auto", false, 0, 1}, PERSIST[0], PERSIST[1], PERSIST[2]),
                         [](const auto &p) { return std::string(p.param.name); });

class ArraysThatPersist : public Arrays
{
};
INSTANTIATE_TEST_SUITE_P(Kinds, ArraysThatPersist, testing::ValuesIn(PERSIST),
                         [](const auto &p) { return std::string(p.param.name); });

// Windows, steps, commits, ways back and ends of processes in random order, while some transfers and flushes fail.
TEST_P(Arrays, AnythingMayFailInAnyOrder)
{
    for (unsigned seed = 0; seed < (getenv("ZOFF_TEST_FULL") ? 100 : 3); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed), luck(seed + 100);
        aio_fault fault;
        bool armed = false;
        int failures = 0;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
            const bool fails = armed && luck() % 5 == 0;
            failures += fails;
            return fails ? (writes ? -ENOSPC : -EIO) : res;
        };
        store.reset();
        for (size_t i = 0; i < GetParam().paths; i++)
            unlink(file(i).c_str());
        now = content(CHUNKS.size());
        records = {{0, now}};
        last = count = 0;
        ASSERT_NO_FATAL_FAILURE(open());
        ASSERT_NO_FATAL_FAILURE(commit());
        for (int i = 0; i < 250; i++) {
            const size_t c = random() % CHUNKS.size();
            const unsigned arrays = 1u << random() % 3 | (random() % 4 == 0 ? 1u << random() % 3 : 0), what = random() % 40;
            armed = seed && random() % 2;
            if (armed && GetParam().persist && random() % 8 == 0)
                failing_flushes = 1;
            if (what < 12 && CHUNKS[c].bytes)
                write(c, arrays);
            else if (what < 24 && CHUNKS[c].bytes)
                read(c, arrays);
            else if (what < 27 && CHUNKS[c].bytes)
                read(c, ALL);
            else if (what < 29)
                update_all();
            else if (what < 31 && CHUNKS[c].bytes)
                (void)zoff_offload_store_ahead(store.get(), c);
            else if (what < 32)
                zoff_offload_store_forget(store.get());
            else if (what < 33)
                (void)zoff_offload_store_drain(store.get());
            else if (what < 36)
                commit();
            if (what == 36 && GetParam().persist) {
                (void)zoff_offload_store_rollback(store.get());
                armed = false; // one read of a resident that fails begins it anew
                roll_back();
            }
            armed = false;
            if (what == 37 && GetParam().persist) {
                failing_flushes = 0;
                die(random() % 8, 2 + random() % 3);
            }
            ASSERT_FALSE(HasFatalFailure()) << "operation " << i;
        }
        failing_flushes = 0;
        ASSERT_NO_FATAL_FAILURE(read_all());
        ASSERT_NO_FATAL_FAILURE(commit());
        if (GetParam().persist) {
            ASSERT_NO_FATAL_FAILURE(die());
        }
        EXPECT_TRUE(!seed || failures > 10) << failures;
    }
}

// What is borrowed is read, and what is changed is written; the rest of the chunk is read when it is wanted.
TEST_P(Arrays, OneIsMovedAlone)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    const size_t c = 6;
    ASSERT_NO_FATAL_FAILURE(update_all());
    ASSERT_NO_FATAL_FAILURE(commit());
    for (unsigned array = 0; array < 3; array++) {
        EXPECT_EQ(bytes(bytes_of(c, array), 0), moved([&] { write(c, 1u << array); }));
        EXPECT_EQ(bytes(0, 0), moved([&] { write(c, 1u << array); })) << "it is at hand";
        EXPECT_EQ(bytes(0, bytes_of(c, array)), moved([&] { drain(); }));
        EXPECT_EQ(bytes(0, 0), moved([&] { read(c, 1u << array); })) << "still";
        // The others are brought to the same slot.
        EXPECT_EQ(bytes(CHUNKS[c].bytes - bytes_of(c, array), 0), moved([&] { read(c, ALL); }));
        ASSERT_NO_FATAL_FAILURE(push_out());
    }
    // All three, one after the other: one write of each in the end.
    EXPECT_EQ(bytes(CHUNKS[c].bytes, CHUNKS[c].bytes), moved([&] {
                  for (unsigned array : {2u, 0u, 1u})
                      write(c, 1u << array);
                  drain();
              }));
    ASSERT_NO_FATAL_FAILURE(read_all());
}

// An array that was never written is not read behind what was filled, also beside one that was written.
TEST_P(Arrays, AFreshOneIsZerosBehindItsFront)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    EXPECT_EQ(bytes(4096, 0), moved([&] { read(0, ALL); }));
    EXPECT_EQ(bytes(8192, 0), moved([&] { read(1, ALL); }));
    EXPECT_EQ(bytes(0, 0), moved([&] { read(3, 4); }));
    EXPECT_EQ(bytes(4096, 0), moved([&] { read(7, 1); }));
    ASSERT_NO_FATAL_FAILURE(write(0, 4));
    ASSERT_NO_FATAL_FAILURE(commit());
    for (int life = 0; life < (GetParam().persist ? 2 : 1); life++) {
        if (life) {
            ASSERT_NO_FATAL_FAILURE(die(0));
        }
        for (size_t other : {1, 2, 3})
            ASSERT_NO_FATAL_FAILURE(read(other, ALL));
        EXPECT_EQ(bytes(4096 + 8192, 0), moved([&] { read(0, ALL); }));
    }
}

// A read into a slot that holds what was put off: neither its end nor its failure loses that.
TEST_P(Arrays, WhatWasPutOffOutlivesARead)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    ASSERT_NO_FATAL_FAILURE(update_all());
    ASSERT_NO_FATAL_FAILURE(commit());
    for (int way = 0; way < 4; way++) {
        SCOPED_TRACE(way);
        void *base;
        ASSERT_NO_FATAL_FAILURE(push_out());
        ASSERT_NO_FATAL_FAILURE(write(6, 1));
        {
            aio_fault fault;
            fault.result = [&](int, int res, bool writes, uint64_t, size_t) { return way == 0 && !writes ? -EIO : res; };
            zoff_status status = zoff_offload_store_fetch_arrays(store.get(), 6, 4, &base);
            while (way == 0 && status == ZOFF_PENDING) {
                ASSERT_ZOFF_OK(zoff_offload_store_wait(store.get()));
                status = zoff_offload_store_fetch_arrays(store.get(), 6, 4, &base);
            }
            EXPECT_EQ(way == 0, status < 0) << zoff_last_error();
            if (status == ZOFF_OK)
                zoff_offload_store_release(store.get(), 6);
        }
        if (way == 1)
            zoff_offload_store_forget(store.get());
        if (way == 2)
            zoff_offload_store_drop(store.get(), 6);
        ASSERT_NO_FATAL_FAILURE(drain()); // also with the read on its way
        ASSERT_ZOFF_OK(try_commit());
        ASSERT_NO_FATAL_FAILURE(read(6, ALL));
        if (GetParam().persist) {
            ASSERT_NO_FATAL_FAILURE(die(0));
        }
    }
}

// The write, the flush or the record of one array fails: nothing is recorded, and the others are not written for it.
TEST_P(ArraysThatPersist, WhatFailsIsWrittenAgainAlone)
{
    for (size_t residents : {0, 8}) {
        for (const char *what : {"write", "flush", "record"}) {
            SCOPED_TRACE(what);
            for (unsigned array = 0; array < 3; array++) {
                ASSERT_NO_FATAL_FAILURE(open(residents));
                ASSERT_NO_FATAL_FAILURE(roll_back());
                ASSERT_NO_FATAL_FAILURE(update_all());
                ASSERT_NO_FATAL_FAILURE(commit());
                const content before = now;
                aio_fault fault;
                bool armed = true;
                fault.result = [&](int, int res, bool writes, uint64_t offset, size_t) {
                    return armed && writes && what[0] != 'f' && (what[0] == 'r') == (offset < 8192) ? -EIO : res;
                };
                ASSERT_NO_FATAL_FAILURE(write(6, 1u << array));
                failing_flushes = what[0] == 'f';
                const zoff_status drained = zoff_offload_store_drain(store.get());
                EXPECT_EQ(what[0] == 'w', drained < 0);
                EXPECT_EQ(ZOFF_ERR_IO, try_commit()) << zoff_last_error();
                armed = false;
                if (array == 1) { // another process finds what was recorded before
                    ASSERT_NO_FATAL_FAILURE(die(residents));
                    if (what[0] != 'r') {
                        EXPECT_EQ(before, now);
                    }
                    continue;
                }
                const bytes again = moved([&] {
                    ASSERT_ZOFF_OK(zoff_offload_store_retry(store.get()));
                    ASSERT_NO_FATAL_FAILURE(drain());
                });
                EXPECT_EQ(what[0] == 'r' ? 0 : bytes_of(6, array), again.second);
                ASSERT_ZOFF_OK(try_commit());
                ASSERT_NO_FATAL_FAILURE(die(residents));
                EXPECT_NE(before, now);
            }
        }
    }
}

// Of a chunk some arrays are in doubt after a flush that failed, and another is newer in its slot: both come to the drive.
TEST_P(ArraysThatPersist, DoubtIsOfArrays)
{
    for (const bool at_hand : {true, false}) {
        for (size_t residents : {0, 8}) {
            ASSERT_NO_FATAL_FAILURE(open(residents));
            ASSERT_NO_FATAL_FAILURE(update_all());
            ASSERT_NO_FATAL_FAILURE(commit());
            ASSERT_NO_FATAL_FAILURE(write(6, 1));
            ASSERT_NO_FATAL_FAILURE(write(0, 3));
            ASSERT_NO_FATAL_FAILURE(drain());
            failing_flushes = 1;
            EXPECT_EQ(ZOFF_ERR_IO, try_commit());
            EXPECT_TRUE(zoff_offload_store_is_in_doubt(store.get()));
            for (size_t c : {1, 2, 3, 7}) {
                if (!at_hand) {
                    ASSERT_NO_FATAL_FAILURE(read(c, ALL));
                }
            }
            ASSERT_NO_FATAL_FAILURE(write(6, 4));
            EXPECT_EQ(ZOFF_ERR_IO, (drain(), try_commit())) << "array 0 is still in doubt";
            ASSERT_NO_FATAL_FAILURE(write(0, 2));
            const bytes again = moved([&] {
                ASSERT_ZOFF_OK(zoff_offload_store_retry(store.get()));
                ASSERT_NO_FATAL_FAILURE(drain());
            });
            EXPECT_EQ(bytes_of(6, 0) + bytes_of(0, 0) + bytes_of(0, 1), again.second);
            EXPECT_FALSE(zoff_offload_store_is_in_doubt(store.get()));
            ASSERT_ZOFF_OK(try_commit());
            ASSERT_NO_FATAL_FAILURE(die());
        }
    }
}

// Arrays that were not written together lie in different places: one more request, and all else as ever.
TEST_P(ArraysThatPersist, MayLieInDifferentPlaces)
{
    typedef std::array<unsigned, 3> slots;
    ASSERT_NO_FATAL_FAILURE(open(0));
    ASSERT_NO_FATAL_FAILURE(update_all());
    ASSERT_NO_FATAL_FAILURE(commit());
    const unsigned a = places(0)[0];
    EXPECT_EQ((slots{a, a, a}), places(0));
    const auto requests = [&](const std::function<void()> &work) {
        aio_fault fault;
        work();
        return fault.results;
    };
    const auto update = [&] {
        char *base = borrow(0, ALL);
        ASSERT_NO_FATAL_FAILURE(expect(0, ALL, base));
        put(0, ALL, base);
        ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), 0));
        ASSERT_NO_FATAL_FAILURE(drain());
    };
    const struct {
        unsigned written;
        int requests;
    } cells[] = {{1, 2}, {4, 3}, {2, 1}}; // in the end all three were written
    slots where = {a, a, a};
    for (const auto &cell : cells) {
        ASSERT_NO_FATAL_FAILURE(write(0, cell.written));
        ASSERT_NO_FATAL_FAILURE(commit());
        for (unsigned array = 0; array < 3; array++)
            where[array] ^= cell.written >> array & 1;
        EXPECT_EQ(where, places(0));
        for (size_t other : {1, 2, 7})
            ASSERT_NO_FATAL_FAILURE(read(other, ALL));
        EXPECT_EQ(cell.requests, requests([&] { read(0, ALL); }));
        // A step writes each to its other place.
        EXPECT_EQ(cell.requests, requests([&] { update(); }));
        EXPECT_EQ(where, places(0)) << "which the record does not name";
        ASSERT_NO_FATAL_FAILURE(roll_back());
        ASSERT_NO_FATAL_FAILURE(read_all());
        ASSERT_NO_FATAL_FAILURE(update());
        ASSERT_NO_FATAL_FAILURE(commit());
        for (unsigned &slot : where)
            slot = !slot;
        EXPECT_EQ(where, places(0));
        ASSERT_NO_FATAL_FAILURE(update()); // and no record
        ASSERT_NO_FATAL_FAILURE(die(0));
        ASSERT_NO_FATAL_FAILURE(update());
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(die());
        ASSERT_NO_FATAL_FAILURE(die(0));
        for (unsigned &slot : where)
            slot = !slot;
        EXPECT_EQ(where, places(0));
    }
}

// A bit is found in its own array, when that is read, and then nothing that was put off beside it is lost.
TEST_P(ArraysThatPersist, AFlippedBitIsFoundInItsArray)
{
    const auto flip = [&](uint64_t at) {
        char x;
        int fd = ::open(file(0).c_str(), O_RDWR);
        ASSERT_EQ(1, pread(fd, &x, 1, (off_t)at));
        x = (char)(x ^ 8);
        ASSERT_EQ(1, pwrite(fd, &x, 1, (off_t)at));
        close(fd);
    };
    ASSERT_NO_FATAL_FAILURE(open(0));
    ASSERT_NO_FATAL_FAILURE(update_all());
    ASSERT_NO_FATAL_FAILURE(commit());
    ASSERT_NO_FATAL_FAILURE(write(0, 2));
    ASSERT_NO_FATAL_FAILURE(commit());
    for (unsigned array = 0; array < 3; array++) {
        SCOPED_TRACE(array);
        ASSERT_NO_FATAL_FAILURE(die(0));
        const zoff_swap_entry e = entry(0);
        const uint64_t at = e.offset + e.arrays[array].slot * CHUNKS[0].bytes + begin_of(0, array);
        for (size_t other : {1, 2, 7})
            ASSERT_NO_FATAL_FAILURE(read(other, ALL));
        flip(at + 77);
        for (unsigned other = 0; other < 3; other++) {
            if (other != array) {
                ASSERT_NO_FATAL_FAILURE(write(0, 1u << other));
            }
        }
        char *base;
        for (unsigned arrays : {1u << array, 7u}) {
            EXPECT_EQ(ZOFF_ERR_CORRUPT, try_borrow(0, arrays, &base));
            const std::string words = zoff_last_error();
            EXPECT_NE(std::string::npos, words.find("chunk 0 (" + std::to_string(bytes_of(0, array)) + " bytes at offset " +
                                                    std::to_string(at) + " of '" + file(0)))
                << words;
        }
        ASSERT_NO_FATAL_FAILURE(commit()); // the others
        flip(at + 77);
        ASSERT_NO_FATAL_FAILURE(read(0, ALL));
    }
    ASSERT_NO_FATAL_FAILURE(die());
}
} // namespace
