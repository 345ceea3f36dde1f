/* SPDX-License-Identifier: Apache-2.0 */
// swap_commit.h: a store with persistent files, for the tests of commits and of their records.
#ifndef ZOFF_TESTS_SWAP_COMMIT_H
#define ZOFF_TESTS_SWAP_COMMIT_H
#include "store_ptr.h"
#include "zoff_test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include "swap_record_priv.h"
}

namespace zoff_test
{
// Other ranks have the commit before the last of this one.
inline const other_ranks goes_back = {[](const zoff_store_found &found, uint64_t *out) {
                                          *out = found.generation - 1;
                                          return ZOFF_OK;
                                      },
                                      {},
                                      {},
                                      {}};

// The chunks of a small model and their expected content: a step adds 1 to every byte that it changes.
class Commit : public testing::TestWithParam<size_t> // number of paths
{
  protected:
    // Every other chunk has three arrays. In chunk 7 the first array is empty.
    Commit() : chunks(11, {20480, 4096})
    {
        for (size_t c = 1; c < chunks.size(); c += 2)
            chunks[c] = {20480, 4096, {4096, 12288, 20480}};
        chunks[4] = {0, 0};
        chunks[7] = {20480, 4096, {0, 12288, 20480}};
    }

    zoff_store_opts options()
    {
        zoff_store_opts opts = {};
        for (size_t i = 0; i < 2; i++)
            paths[i] = folders[i].path.c_str();
        opts.tier = ZOFF_TIER_NVME;
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *, size_t chunk, void *base) { memset(base, (int)chunk + 1, chunk == 4 ? 0 : 4096); };
        opts.threads = 1;
        opts.slots = 3;
        opts.residents = 4;
        opts.paths = paths;
        opts.path_count = GetParam();
        opts.ranks = 1;
        opts.persist = opts.power_safe = true;
        opts.layout = 77;
        opts.limit_bytes = 20480;
        opts.limit_elements = 5120;
        return opts;
    }

    zoff_status open(zoff_store_opts opts, const other_ranks &others = {})
    {
        zoff_store *made = nullptr;
        store.reset();
        zoff_status status = open_store(&opts, &made, others);
        if (status == ZOFF_OK)
            store.reset(made);
        return status;
    }

    char *borrow(size_t chunk, zoff_status *out = nullptr)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(store.get(), chunk, &base)) == ZOFF_PENDING)
            EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get()));
        if (out)
            *out = status;
        else
            EXPECT_ZOFF_OK(status);
        return (char *)base;
    }

    // Add 1 to each byte of the chunks for which `which` returns true, and start their writes.
    void change(std::function<bool(size_t)> which)
    {
        for (size_t c = 0; c < chunks.size(); c++) {
            if (!chunks[c].bytes || !which(c))
                continue;
            char *base = borrow(c);
            for (size_t i = 0; i < chunks[c].bytes; i++)
                base[i]++;
            ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
        }
        ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    }

    void step(int64_t t)
    {
        ASSERT_NO_FATAL_FAILURE(change([](size_t) { return true; }));
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), t));
    }

    // Expect all chunks as they are after `steps` steps.
    void expect(int steps)
    {
        for (size_t c = 0; c < chunks.size(); c++) {
            if (!chunks[c].bytes)
                continue;
            const char *base = borrow(c);
            for (size_t i = 0; i < chunks[c].bytes; i++)
                ASSERT_EQ((char)((i < 4096 ? c + 1 : 0) + (unsigned)steps), base[i]) << "chunk " << c << ", byte " << i;
            withdraw(store.get(), c);
        }
    }

    // Open the store again and expect step t.
    void expect_reopened(int64_t t)
    {
        int64_t found = -1;
        EXPECT_TRUE(zoff_offload_store_reopened(store.get(), &found));
        EXPECT_EQ(t, found);
        expect((int)t);
    }

    std::string file(size_t i) const { return folders[i].path + "/zoff-r0.states"; }

    // Simulate a process that dies now: copy the files, close the store, and put the copies in place of the files.
    void die()
    {
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, system(("cp '" + file(i) + "' '" + file(i) + ".dead'").c_str()));
        store.reset();
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, rename((file(i) + ".dead").c_str(), file(i).c_str()));
    }

    void spoil(const std::string &name, off_t at, size_t bytes = 1)
    {
        int fd = ::open(name.c_str(), O_RDWR);
        std::vector<char> was(bytes);
        ASSERT_EQ((ssize_t)bytes, pread(fd, was.data(), bytes, at));
        for (char &x : was)
            x = (char)~x;
        ASSERT_EQ((ssize_t)bytes, pwrite(fd, was.data(), bytes, at));
        close(fd);
    }

    // The position of the first array of a chunk in file 0, by the record of generation g: the offset of its content.
    uint64_t place(uint64_t generation, size_t chunk)
    {
        zoff_swap_found found;
        uint64_t offset = 0;
        int fd = ::open(file(0).c_str(), O_RDONLY);
        EXPECT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
        close(fd);
        const unsigned which = generation & 1;
        EXPECT_TRUE(found.is_whole[which]);
        EXPECT_EQ(generation, found.heads[which].generation);
        for (size_t i = 0; i < found.heads[which].entry_count; i++) {
            const zoff_swap_entry &entry = found.tables[which][i];
            if (entry.chunk == chunk)
                offset = entry.offset + entry.arrays[0].slot * entry.arrays[2].end;
        }
        zoff_offload_swap_record_free(&found);
        EXPECT_NE(0u, offset);
        return offset;
    }

    scratch_folder folders[2];
    const char *paths[2];
    std::vector<zoff_store_chunk> chunks;
    store_ptr store;
};
} // namespace zoff_test
#endif
