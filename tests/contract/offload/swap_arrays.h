/* SPDX-License-Identifier: Apache-2.0 */
// swap_arrays.h: a store of chunks with three arrays, and a model of their content: the bytes that each array holds now, and
// the bytes that each record may name that could be found later.
#ifndef ZOFF_TESTS_SWAP_ARRAYS_H
#define ZOFF_TESTS_SWAP_ARRAYS_H
#include "flush_fault.h"
#include "store_ptr.h"
#include "zoff_test.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

extern "C" {
#include "swap_record_priv.h"
}

namespace zoff_test
{
struct arrays_kind {
    const char *name;
    const char *backend;
    bool persist;
    size_t residents, paths;
};

enum { ALL = ZOFF_STORE_ALL };

// All kinds of chunks: masters filled partly, further or fully, no masters, one array, no bytes, and arrays of several blocks.
inline const std::vector<zoff_store_chunk> CHUNKS = {{20480, 4096, {4096, 12288, 20480}},
                                                     {20480, 8192, {4096, 12288, 20480}},
                                                     {20480, 20480, {4096, 12288, 20480}},
                                                     {16384, 0, {0, 8192, 16384}},
                                                     {8192, 4096, {}},
                                                     {0, 0, {}},
                                                     {237568, 69632, {69632, 102400, 237568}},
                                                     {20480, 4096, {4096, 12288, 20480}},
                                                     {12288, 4096, {4096, 4096, 12288}}};

class Arrays : public testing::TestWithParam<arrays_kind>
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
        ASSERT_ZOFF_OK(open_store(&opts, &made));
        store.reset(made);
    }

    static size_t end_of(size_t c, unsigned array) { return CHUNKS[c].ends[2] ? CHUNKS[c].ends[array] : CHUNKS[c].bytes; }
    static size_t begin_of(size_t c, unsigned array) { return array ? end_of(c, array - 1) : 0; }
    static size_t bytes_of(size_t c, unsigned array) { return end_of(c, array) - begin_of(c, array); }

    // The bytes of an array after n writes. The pattern repeats every eleven bytes.
    static std::vector<char> content_of(size_t c, unsigned array, int n)
    {
        const size_t from = begin_of(c, array), count = bytes_of(c, array);
        const size_t filled = CHUNKS[c].first_bytes > from ? std::min(CHUNKS[c].first_bytes - from, count) : 0;
        std::vector<char> all(count);
        if (!n)
            std::fill_n(all.data(), filled, (char)(c + 1));
        for (size_t i = 0; n && i < std::min<size_t>(count, 11); i++)
            all[i] = (char)(n * 37 + (int)(c * 5 + array * 3) + (int)((from + i) % 11));
        for (size_t done = 11; n && done < count; done *= 2)
            memcpy(all.data() + done, all.data(), std::min(done, count - done));
        return all;
    }
    void expect(size_t c, unsigned arrays, const char *base) const
    {
        ASSERT_NE(nullptr, base) << "chunk " << c;
        for (unsigned array = 0; array < 3; array++) {
            if (!(arrays >> array & 1))
                continue;
            const std::vector<char> want = content_of(c, array, now[c][array]);
            const char *have = base + begin_of(c, array);
            if (!want.empty() && memcmp(want.data(), have, want.size()) != 0) {
                const size_t at = (size_t)(std::mismatch(want.begin(), want.end(), have).first - want.begin());
                FAIL() << "chunk " << c << ", array " << array << ", byte " << at << ": " << (int)have[at] << " instead of "
                       << (int)want[at];
            }
        }
    }
    void put(size_t c, unsigned arrays, char *base)
    {
        for (unsigned array = 0; array < 3; array++) {
            if (!(arrays >> array & 1))
                continue;
            const std::vector<char> all = content_of(c, array, ++now[c][array]);
            if (!all.empty())
                memcpy(base + begin_of(c, array), all.data(), all.size());
        }
    }

    zoff_status try_borrow(size_t c, unsigned arrays, char **out)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_arrays(store.get(), c, arrays, &base)) == ZOFF_PENDING) {
            status = zoff_offload_store_wait(store.get());
            if (status < 0)
                return status;
        }
        *out = (char *)base;
        return status;
    }
    // Borrow arrays. Retry what fails now, and what failed before.
    char *borrow(size_t c, unsigned arrays)
    {
        char *base = nullptr;
        for (int tries = 0; try_borrow(c, arrays, &base) != ZOFF_OK; tries++) {
            if (tries == 50) {
                ADD_FAILURE() << zoff_last_error();
                return nullptr;
            }
            (void)zoff_offload_store_retry(store.get());
        }
        return base;
    }
    void read(size_t c, unsigned arrays)
    {
        ASSERT_NO_FATAL_FAILURE(expect(c, arrays, borrow(c, arrays)));
        (void)keep_chunk(store.get(), c, 0);
    }
    void write(size_t c, unsigned arrays)
    {
        char *base = borrow(c, arrays);
        ASSERT_NO_FATAL_FAILURE(expect(c, arrays, base));
        put(c, arrays, base);
        (void)keep_chunk(store.get(), c, arrays);
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
            (void)flush_chunk(store.get(), c);
        }
    }
    // Commit until it succeeds. Each attempt has its own number, because a record whose write was reported as failed may still
    // be in the file.
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
    // Simulate the death of the process. A new store, with other residents and slots, must find the last record or one whose
    // write was reported as failed.
    void die(size_t residents = SIZE_MAX, unsigned slots = 3)
    {
        for (size_t i = 0; i < GetParam().paths; i++)
            ASSERT_EQ(0, system(("cp '" + file(i) + "' '" + file(i) + ".dead'").c_str()));
        (void)zoff_offload_store_drain(store.get()); // closing a queue warns about errors that nobody has received
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

    // The entry of a chunk in the record of file 0's last commit.
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
    // Returns the bytes that `work` reads and writes.
    std::pair<uint64_t, uint64_t> moved(const std::function<void()> &work)
    {
        zoff_store_stats before, after;
        zoff_offload_store_stats(store.get(), &before);
        work();
        zoff_offload_store_stats(store.get(), &after);
        return {after.read_bytes - before.read_bytes, after.write_bytes - before.write_bytes};
    }
    typedef std::pair<uint64_t, uint64_t> bytes;
    // Evict all other chunks: chunks 0, 1 and 2 take all slots.
    void push_out()
    {
        for (size_t c : {0, 1, 2})
            ASSERT_NO_FATAL_FAILURE(read(c, ALL));
    }
    void drain() { ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get())); }

    log_catcher log;
    scratch_folder folders[2];
    store_ptr store;
    typedef std::vector<std::array<int, 3>> content;
    content now = content(CHUNKS.size()); // number of writes of each array
    std::map<int64_t, content> records = {{0, now}};
    int64_t last = 0, count = 0;
};

class ArraysThatPersist : public Arrays
{
};
} // namespace zoff_test
#endif
