/* SPDX-License-Identifier: Apache-2.0 */
// swap_arrays_test.cc: each array of a chunk is borrowed, cached, written, verified and recorded on its own.
#include "aio_fault.h"
#include "swap_arrays.h"

using namespace zoff_test;

const arrays_kind PERSIST[] = {
    {"persist", "auto", true, 0, 1}, {"posix", "posix", true, 0, 1}, {"residents", "threads", true, 4, 2}};
INSTANTIATE_TEST_SUITE_P(Kinds, Arrays,
                         testing::Values(arrays_kind{"temporary", "auto", false, 0, 1}, PERSIST[0], PERSIST[1], PERSIST[2]),
                         [](const auto &p) { return std::string(p.param.name); });

INSTANTIATE_TEST_SUITE_P(Kinds, ArraysThatPersist, testing::ValuesIn(PERSIST),
                         [](const auto &p) { return std::string(p.param.name); });

// Only borrowed arrays are read, and only changed arrays are written. The rest of the chunk is read when it is borrowed.
TEST_P(Arrays, OnlyTheBorrowedArrayIsMoved)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    const size_t c = 6;
    ASSERT_NO_FATAL_FAILURE(update_all());
    ASSERT_NO_FATAL_FAILURE(commit());
    for (unsigned array = 0; array < 3; array++) {
        EXPECT_EQ(bytes(bytes_of(c, array), 0), moved([&] { write(c, 1u << array); }));
        EXPECT_EQ(bytes(0, 0), moved([&] { write(c, 1u << array); })) << "the slot holds it already";
        EXPECT_EQ(bytes(0, bytes_of(c, array)), moved([&] { drain(); }));
        EXPECT_EQ(bytes(0, 0), moved([&] { read(c, 1u << array); })) << "still";
        // The other arrays are read into the same slot.
        EXPECT_EQ(bytes(CHUNKS[c].bytes - bytes_of(c, array), 0), moved([&] { read(c, ALL); }));
        ASSERT_NO_FATAL_FAILURE(push_out());
    }
    // Change all three, one after the other: each is written only once.
    EXPECT_EQ(bytes(CHUNKS[c].bytes, CHUNKS[c].bytes), moved([&] {
                  for (unsigned array : {2u, 0u, 1u})
                      write(c, 1u << array);
                  drain();
              }));
    ASSERT_NO_FATAL_FAILURE(read_all());
}

// The part of a fresh array behind its fill is zeros and is never read, even if another array of the chunk was written.
TEST_P(Arrays, AFreshArrayIsZerosBehindItsFill)
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

// A read into a slot that holds deferred writes must not lose them, whether the read succeeds or fails.
TEST_P(Arrays, DeferredWritesSurviveARead)
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
            zoff_status status = borrow_arrays(store.get(), 6, 4, &base);
            while (way == 0 && status == ZOFF_PENDING) {
                ASSERT_ZOFF_OK(zoff_offload_store_wait(store.get()));
                status = borrow_arrays(store.get(), 6, 4, &base);
            }
            EXPECT_EQ(way == 0, status < 0) << zoff_last_error();
            if (status == ZOFF_OK)
                withdraw(store.get(), 6);
        }
        if (way > 0)
            withdraw(store.get(), 6);
        ASSERT_NO_FATAL_FAILURE(drain()); // drain also while the read is in flight
        ASSERT_ZOFF_OK(try_commit());
        ASSERT_NO_FATAL_FAILURE(read(6, ALL));
        if (GetParam().persist) {
            ASSERT_NO_FATAL_FAILURE(die(0));
        }
    }
}

// The write, the flush or the record of one array fails: nothing is committed, and the retry does not write the other arrays.
TEST_P(ArraysThatPersist, OnlyTheFailedArrayIsWrittenAgain)
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
                if (array == 1) { // another process finds the previous record
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

// After a failed flush some arrays of a chunk are in doubt, and the slot holds a newer version of another. A retry must write
// both to the drive.
TEST_P(ArraysThatPersist, ARetryWritesTheArraysInDoubt)
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

// Arrays that were not written together lie in different copies of the chunk. That costs one more request and changes nothing
// else.
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
        ASSERT_ZOFF_OK(flush_chunk(store.get(), 0));
        ASSERT_NO_FATAL_FAILURE(drain());
    };
    const struct {
        unsigned written;
        int requests;
    } cells[] = {{1, 2}, {4, 3}, {2, 1}}; // in the end all three arrays were written
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
        // A step writes each array to its other copy.
        EXPECT_EQ(cell.requests, requests([&] { update(); }));
        EXPECT_EQ(where, places(0)) << "the record does not name these copies";
        ASSERT_NO_FATAL_FAILURE(roll_back());
        ASSERT_NO_FATAL_FAILURE(read_all());
        ASSERT_NO_FATAL_FAILURE(update());
        ASSERT_NO_FATAL_FAILURE(commit());
        for (unsigned &slot : where)
            slot = !slot;
        EXPECT_EQ(where, places(0));
        ASSERT_NO_FATAL_FAILURE(update()); // update without a commit
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

// A flipped bit is detected when its own array is read. Deferred writes of the other arrays must not be lost.
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
        ASSERT_NO_FATAL_FAILURE(commit()); // commit the other arrays
        flip(at + 77);
        ASSERT_NO_FATAL_FAILURE(read(0, ALL));
    }
    ASSERT_NO_FATAL_FAILURE(die());
}
