// ring_store.h: a small store of the NVMe tier with access to its slots, places and files. Its back-end is "posix", which moves
// bytes when it is polled, one request each time, in the order of submission.
#ifndef ZOFF_TESTS_RING_STORE_H
#define ZOFF_TESTS_RING_STORE_H

#include "aio_fault.h"
#include "flush_fault.h"
#include "open_store.h"
#include "store_ptr.h"
#include "zoff_test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "swap_priv.h"
}

namespace zoff_test
{
enum { ALL = ZOFF_STORE_ALL };

// Run `live` repeatedly: the first allocation or mapping fails, then the second, and so on, until none fails. Each failure must
// be returned as an error of memory. Returns the number of failures.
inline int fail_each_allocation(const std::function<zoff_status()> &live)
{
    for (int n = 1;; n++) {
        SCOPED_TRACE("allocation " + std::to_string(n));
        aio_fault fault;
        fault.fail_allocation = n;
        const zoff_status status = live();
        if (fault.allocations < n) {
            EXPECT_ZOFF_OK(status);
            return n - 1;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", status);
    }
}

class Ring : public testing::Test
{
  protected:
    // Three arrays in each chunk, of 4, 8 and 8 KiB; the first one is filled with the number of the chunk plus 1.
    Ring() : chunks(7, {20480, 4096, {4096, 12288, 20480}})
    {
        opts.tier = ZOFF_TIER_NVME;
        opts.fill = [](void *ctx, size_t chunk, void *base) {
            memset(base, (int)chunk + 1, static_cast<Ring *>(ctx)->chunks[chunk].first_bytes);
        };
        opts.fill_ctx = this;
        opts.threads = 1;
        opts.slots = 3;
        opts.path_count = 1;
        opts.ranks = 1;
        opts.aio_backend = "posix";
        opts.layout = 5;
        for (size_t i = 0; i < 2; i++)
            paths[i] = folders[i].path.c_str();
    }
    ~Ring() override
    {
        failing_flushes = 0;
        close();
    }

    zoff_status try_open()
    {
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.paths = paths;
        close();
        return open_store(&opts, &store, others);
    }
    void open() { ASSERT_ZOFF_OK(try_open()); }
    void open_persistent()
    {
        opts.persist = opts.power_safe = true;
        open();
    }
    void close()
    {
        store_closer{}(store); // another store may get the same address, so its demands go, too
        store = nullptr;
    }

    zoff_swap_store *s() { return reinterpret_cast<zoff_swap_store *>(store); }
    zoff_swap_place &place(size_t chunk) { return s()->places[chunk]; }
    // NULL: the chunk is in its file only.
    zoff_swap_slot *slot_of(size_t chunk) { return zoff_offload_swap_slot_find(s(), chunk); }
    zoff_slot_state state_of(size_t chunk)
    {
        const zoff_swap_slot *slot = slot_of(chunk);
        return slot ? slot->state : ZOFF_SLOT_FREE;
    }
    // Give a free slot to a chunk.
    zoff_swap_slot *take(size_t chunk)
    {
        zoff_swap_slot *slot = zoff_offload_swap_slot_take(s(), UINT64_MAX);
        zoff_offload_swap_slot_assign(s(), slot, chunk);
        return slot;
    }

    zoff_status reload(size_t chunk)
    {
        zoff_status status;
        while ((status = zoff_offload_swap_lend_reload(s(), place(chunk).home)) == ZOFF_PENDING) {
        }
        return status;
    }
    size_t begin_of(size_t chunk, unsigned array) { return zoff_offload_swap_place_begin(&s()->chunks[chunk], array); }
    size_t bytes_of(size_t chunk, unsigned array) { return s()->chunks[chunk].ends[array] - begin_of(chunk, array); }

    zoff_status try_borrow(size_t chunk, unsigned arrays, char **out)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_arrays(store, chunk, arrays, &base)) == ZOFF_PENDING)
            ZOFF_TRY(zoff_offload_store_wait(store));
        *out = static_cast<char *>(base);
        return status;
    }
    char *borrow(size_t chunk, unsigned arrays = ALL)
    {
        char *base = nullptr;
        EXPECT_ZOFF_OK(try_borrow(chunk, arrays, &base));
        return base;
    }
    // Give arrays of a borrowed chunk a new content.
    void fill(size_t chunk, char value, unsigned arrays = ALL)
    {
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
            if (arrays >> array & 1)
                memset(slot_of(chunk)->base + begin_of(chunk, array), value, bytes_of(chunk, array));
        }
    }
    // Borrow, change, and give back by flush.
    void flush(size_t chunk, char value, unsigned arrays = ALL)
    {
        ASSERT_NE(nullptr, borrow(chunk, arrays));
        fill(chunk, value, arrays);
        ASSERT_ZOFF_OK(flush_chunk(store, chunk));
    }
    // The same, given back by keep.
    zoff_status keep(size_t chunk, char value, unsigned arrays)
    {
        EXPECT_NE(nullptr, borrow(chunk, arrays));
        fill(chunk, value, arrays);
        return keep_chunk(store, chunk, arrays);
    }
    void drain() { ASSERT_ZOFF_OK(zoff_offload_store_drain(store)); }
    // The value of all bytes of an array; -1: they differ.
    int value_at(const char *base, size_t chunk, unsigned array)
    {
        const std::string_view bytes(base + begin_of(chunk, array), bytes_of(chunk, array));
        return bytes.find_first_not_of(bytes[0]) == bytes.npos ? bytes[0] : -1;
    }
    std::vector<int> values_of(size_t chunk)
    {
        const char *base = borrow(chunk);
        std::vector<int> values;
        for (unsigned array = 0; base && array < ZOFF_STORE_ARRAYS; array++)
            values.push_back(value_at(base, chunk, array));
        withdraw(store, chunk);
        return values;
    }
    // The value of an array's bytes in the file now.
    int value_in_file(size_t chunk, unsigned array)
    {
        std::vector<char> bytes(s()->chunks[chunk].bytes);
        const off_t at = (off_t)zoff_offload_swap_place_offset(s(), chunk, array);
        const ssize_t count = (ssize_t)bytes_of(chunk, array);
        EXPECT_EQ(count, pread(file_of(chunk), bytes.data() + begin_of(chunk, array), (size_t)count, at));
        return value_at(bytes.data(), chunk, array);
    }
    int file_of(size_t chunk) { return s()->files[place(chunk).file].lock; }
    // Change a bit of an array in its file, or change it back.
    void flip(size_t chunk, unsigned array)
    {
        const off_t at = (off_t)zoff_offload_swap_place_offset(s(), chunk, array) + 77;
        char byte = 0;
        EXPECT_EQ(1, pread(file_of(chunk), &byte, 1, at));
        byte = (char)(byte ^ 8);
        EXPECT_EQ(1, pwrite(file_of(chunk), &byte, 1, at));
    }
    using traffic = std::pair<uint64_t, uint64_t>;
    // Bytes that `work` reads and writes.
    traffic moved(const std::function<void()> &work)
    {
        zoff_store_stats before, after;
        zoff_offload_store_stats(store, &before);
        work();
        zoff_offload_store_stats(store, &after);
        return {after.read_bytes - before.read_bytes, after.write_bytes - before.write_bytes};
    }
    // Every read, or write, fails with EIO.
    static void fail_all(aio_fault &fault, bool writes)
    {
        fault.result = [writes](int, int res, bool is_write, uint64_t, size_t) { return is_write == writes ? -EIO : res; };
    }

    log_catcher log;
    const scratch_folder folders[2];
    const char *paths[2];
    std::vector<zoff_store_chunk> chunks;
    zoff_store_opts opts = {};
    other_ranks others;
    zoff_store *store = nullptr;
};
} // namespace zoff_test

#endif
