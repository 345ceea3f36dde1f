/* SPDX-License-Identifier: Apache-2.0 */
// second_contract_test.cc: two contents of a chunk, and the choice between them, on each tier, back-end and kind of file. A
// model knows the content of each chunk.
#include "aio_fault.h"
#include "store_ptr.h"
#include "zoff_test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <random>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    zoff_tier tier;
    const char *backend;
    size_t paths;
    unsigned slots;
    size_t residents = 0;
    bool persist = false;
    zoff_store_verify verify = ZOFF_VERIFY_FULL;
};

// Three arrays, one array, arrays that are empty, no bytes, and different sizes.
const std::vector<zoff_store_chunk> CHUNKS = {{65536, 4096, {4096, 32768, 65536}},
                                              {65536, 65536},
                                              {8192, 4096},
                                              {0, 0},
                                              {61440, 0, {0, 32768, 61440}},
                                              {20480, 4096, {4096, 12288, 20480}},
                                              {65536, 4096, {4096, 32768, 65536}},
                                              {65536, 4096},
                                              {65536, 8192, {4096, 4096, 65536}}};

class Second : public testing::TestWithParam<kind>
{
  protected:
    enum { SPARES = 2 };

    void open()
    {
        const char *paths[2] = {folders[0].path.c_str(), folders[1].path.c_str()};
        zoff_store_opts opts = {};
        opts.tier = GetParam().tier;
        opts.chunks = CHUNKS.data();
        opts.chunk_count = CHUNKS.size();
        opts.fill = [](void *, size_t c, void *base) { memset(base, (int)c + 1, CHUNKS[c].first_bytes); };
        opts.slots = GetParam().slots;
        opts.residents = std::min(GetParam().residents, CHUNKS.size() - 1);
        opts.paths = paths;
        opts.path_count = GetParam().paths;
        opts.aio_backend = GetParam().backend;
        opts.threads = 2;
        opts.ranks = 1;
        opts.layout = 5;
        opts.persist = GetParam().persist;
        opts.verify = GetParam().verify;
        opts.has_seconds = true;
        opts.spares = SPARES;
        zoff_store *made = nullptr;
        store.reset();
        ASSERT_ZOFF_OK(open_store(&opts, &made));
        store.reset(made);
    }
    bool in_dram(size_t c) { return zoff_offload_store_resident(store.get(), c); }
    // Whether the second content of a chunk is written to a file.
    bool is_written(size_t c) { return GetParam().tier == ZOFF_TIER_NVME && (GetParam().persist || !in_dram(c)); }
    std::vector<size_t> all()
    {
        std::vector<size_t> list;
        for (size_t c = 0; c < CHUNKS.size(); c++) {
            if (CHUNKS[c].bytes)
                list.push_back(c);
        }
        return list;
    }
    // Chunks in DRAM, or the others.
    std::vector<size_t> those(bool dram)
    {
        std::vector<size_t> list;
        for (const size_t c : all()) {
            if (in_dram(c) == dram)
                list.push_back(c);
        }
        return list;
    }

    // The bytes of a chunk after the write with this number; 0: the first content.
    static std::string content(size_t c, unsigned n)
    {
        std::string bytes(CHUNKS[c].bytes, 0);
        if (!n)
            std::fill_n(bytes.begin(), CHUNKS[c].first_bytes, (char)(c + 1));
        for (size_t i = 0; n && i < bytes.size(); i++)
            bytes[i] = (char)(n * 7 + c * 3 + i % 11 + i / 4096);
        return bytes;
    }
    static bool holds(const char *base, size_t c, unsigned n)
    {
        return memcmp(content(c, n).data(), base, CHUNKS[c].bytes) == 0;
    }

    char *borrow(size_t c)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(store.get(), c, &base)) == ZOFF_PENDING) {
            if (!zoff_offload_store_busy(store.get(), false)) {
                ADD_FAILURE() << "chunk " << c << " is never lent";
                return nullptr;
            }
            (void)zoff_offload_store_wait(store.get());
        }
        EXPECT_ZOFF_OK(status);
        return (char *)base;
    }
    void expect(size_t c)
    {
        const char *base = borrow(c);
        ASSERT_NE(nullptr, base);
        ASSERT_TRUE(holds(base, c, now[c])) << "chunk " << c << ", write " << now[c];
        withdraw(store.get(), c);
    }
    void expect_all()
    {
        for (const size_t c : all())
            ASSERT_NO_FATAL_FAILURE(expect(c));
    }
    void update(size_t c)
    {
        char *base = borrow(c);
        ASSERT_NE(nullptr, base);
        ASSERT_TRUE(holds(base, c, now[c])) << "chunk " << c;
        now[c] = ++count;
        memcpy(base, content(c, now[c]).data(), CHUNKS[c].bytes);
        ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
        is_committed[c] = false;
    }
    // Borrow a chunk and write a second content.  @return its number; 0: no spare is free, and the chunk was released
    unsigned begin(size_t c)
    {
        char *first = borrow(c);
        void *out = nullptr;
        const zoff_status status = zoff_offload_store_second(store.get(), c, &out);
        EXPECT_TRUE(holds(first, c, now[c])) << "chunk " << c;
        if (status == ZOFF_PENDING) {
            withdraw(store.get(), c);
            return 0;
        }
        EXPECT_ZOFF_OK(status);
        EXPECT_EQ(in_dram(c), out != first);
        EXPECT_EQ(0u, (uintptr_t)out % 4096);
        const std::string bytes = content(c, ++count);
        memcpy(out, bytes.data(), bytes.size() / 2);
        if (zoff_offload_store_wants_settle(store.get()))
            zoff_offload_store_settle(store.get(), c, 0, bytes.size() / 2 / 4096 * 4096);
        memcpy((char *)out + bytes.size() / 2, bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2);
        EXPECT_TRUE(!in_dram(c) || holds(first, c, now[c])) << "the first content stays readable";
        return count;
    }
    void put(size_t c) { ASSERT_ZOFF_OK(put_chunk(store.get(), c)); }
    void adopt(size_t c, unsigned n)
    {
        zoff_offload_store_adopt(store.get(), c);
        now[c] = n;
        is_committed[c] = !is_written(c);
    }
    void discard(size_t c)
    {
        withdraw(store.get(), c); // if it was not put
        ASSERT_ZOFF_OK(zoff_offload_store_discard(store.get(), c));
    }
    void commit()
    {
        ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), ++t));
        recorded = now;
        is_committed.assign(CHUNKS.size(), true);
    }
    std::string file(size_t i) const { return folders[i].path + "/zoff-r0.states"; }
    // Simulate a process that dies now.
    void die()
    {
        for (size_t i = 0; i < GetParam().paths; i++)
            ASSERT_EQ(0, system(("cp '" + file(i) + "' '" + file(i) + ".dead'").c_str()));
        store.reset();
        for (size_t i = 0; i < GetParam().paths; i++)
            ASSERT_EQ(0, rename((file(i) + ".dead").c_str(), file(i).c_str()));
        ASSERT_NO_FATAL_FAILURE(open());
        now = recorded;
        is_committed.assign(CHUNKS.size(), true);
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }

    log_catcher log;
    scratch_folder folders[2];
    store_ptr store;
    std::vector<unsigned> now = std::vector<unsigned>(CHUNKS.size()), recorded = now;
    std::vector<bool> is_committed = std::vector<bool>(CHUNKS.size(), true);
    unsigned count = 0;
    int64_t t = 0;
};

INSTANTIATE_TEST_SUITE_P(
    Tiers, Second,
    testing::Values(kind{"host", ZOFF_TIER_HOST, nullptr, 1, 0}, kind{"uring", ZOFF_TIER_NVME, "auto", 1, 3},
                    kind{"posix", ZOFF_TIER_NVME, "posix", 2, 2}, kind{"threads", ZOFF_TIER_NVME, "threads", 2, 4},
                    kind{"residents", ZOFF_TIER_NVME, "auto", 2, 2, 4}, kind{"all_resident", ZOFF_TIER_NVME, "posix", 1, 2, 99},
                    kind{"sample", ZOFF_TIER_NVME, "auto", 1, 3, 3, false, ZOFF_VERIFY_SAMPLE},
                    kind{"unverified", ZOFF_TIER_NVME, "auto", 1, 3, 3, false, ZOFF_VERIFY_OFF},
                    kind{"persist", ZOFF_TIER_NVME, "auto", 1, 3, 0, true},
                    kind{"persist_residents", ZOFF_TIER_NVME, "posix", 2, 2, 4, true},
                    kind{"persist_all_resident", ZOFF_TIER_NVME, "auto", 2, 2, 99, true}),
    [](const auto &p) { return std::string(p.param.name); });

TEST_P(Second, AdoptedItIsTheContent)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (int round = 0; round < 3; round++) { // each place and each memory is used in turn
        for (const size_t c : all()) {
            const unsigned n = begin(c);
            ASSERT_NE(0u, n);
            put(c);
            EXPECT_TRUE(zoff_offload_store_is_undecided(store.get()));
            adopt(c, n);
            EXPECT_FALSE(zoff_offload_store_is_undecided(store.get()));
            ASSERT_NO_FATAL_FAILURE(expect(c));
        }
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(expect_all());
        for (const size_t c : all())
            ASSERT_NO_FATAL_FAILURE(update(c));
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
    if (GetParam().persist) {
        ASSERT_NO_FATAL_FAILURE(die());
    }
}

TEST_P(Second, DiscardedItIsForgotten)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (int round = 0; round < 2; round++) {
        for (const size_t c : all()) {
            for (int moment = 0; moment < 4; moment++) {
                ASSERT_NE(0u, begin(c));
                if (moment >= 2)
                    put(c);
                if (moment == 3) {
                    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
                }
                if (moment == 0)
                    withdraw(store.get(), c);
                else
                    discard(c);
                EXPECT_FALSE(zoff_offload_store_is_undecided(store.get())) << moment;
                ASSERT_NO_FATAL_FAILURE(expect(c)) << moment;
            }
        }
        ASSERT_NO_FATAL_FAILURE(expect_all());
        for (const size_t c : all())
            ASSERT_NO_FATAL_FAILURE(update(c));
        ASSERT_NO_FATAL_FAILURE(commit());
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

// adopt and discard do nothing for a chunk without a second content.
TEST_P(Second, ADecisionIsMadeOnce)
{
    ASSERT_NO_FATAL_FAILURE(open());
    const unsigned n = begin(0), m = begin(1);
    put(0);
    put(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 1 is put and has no second content that is borrowed", put_chunk(store.get(), 1));
    adopt(0, n);
    discard(0);
    zoff_offload_store_adopt(store.get(), 0);
    adopt(1, m);
    discard(1);
    zoff_offload_store_adopt(store.get(), 7);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 7 is put and has no second content", put_chunk(store.get(), 7));
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(Second, SparesAreLimited)
{
    ASSERT_NO_FATAL_FAILURE(open());
    const std::vector<size_t> dram = those(true);
    if (dram.size() < SPARES + 2)
        return; // the store has not so many chunks in DRAM
    std::vector<unsigned> n(CHUNKS.size());
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SPARES; i++) {
            ASSERT_NE(0u, n[dram[i]] = begin(dram[i]));
            put(dram[i]);
        }
        EXPECT_EQ(0u, begin(dram[2])) << "all are in use";
        adopt(dram[0], n[dram[0]]);
        ASSERT_NE(0u, n[dram[2]] = begin(dram[2]));
        EXPECT_EQ(0u, begin(dram[3]));
        discard(dram[1]);
        ASSERT_NE(0u, n[dram[3]] = begin(dram[3]));
        withdraw(store.get(), dram[3]);
        put(dram[2]);
        adopt(dram[2], n[dram[2]]);
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
}

TEST_P(Second, ACommitWaitsForTheDecision)
{
    ASSERT_NO_FATAL_FAILURE(open());
    const unsigned n = begin(6);
    put(6);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "1 chunk(s) have two contents", zoff_offload_store_commit(store.get(), 3));
    adopt(6, n);
    ASSERT_NO_FATAL_FAILURE(commit());
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(Second, ARollbackDiscards)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (const size_t c : all())
        ASSERT_NO_FATAL_FAILURE(update(c));
    ASSERT_NO_FATAL_FAILURE(commit());
    for (int round = 0; round < 3; round++) {
        for (const size_t c : {0, 1}) {
            ASSERT_NE(0u, begin(c));
            if (c == 0 || round == 1)
                put(c);
        }
        if (round == 2)
            withdraw(store.get(), 1);
        ASSERT_ZOFF_OK(zoff_offload_store_rollback(store.get()));
        withdraw(store.get(), 1); // nothing is left of it
        EXPECT_FALSE(zoff_offload_store_is_undecided(store.get()));
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
    ASSERT_NO_FATAL_FAILURE(commit());
}

TEST_P(Second, AStoreIsClosedInAnyState)
{
    for (int state = 0; state < 3; state++) {
        ASSERT_NO_FATAL_FAILURE(open());
        ASSERT_NE(0u, begin(0));
        ASSERT_NE(0u, begin(1));
        if (state)
            put(0);
        if (state == 2) {
            EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
        }
    }
}

// The store has the first content until adopt, and the other one after that.
TEST_P(Second, ASourceIsTheContent)
{
    ASSERT_NO_FATAL_FAILURE(open());
    const auto starts_with = [&](unsigned n) {
        zoff_store_source source;
        alignas(4096) char bytes[4096]; // O_DIRECT
        ASSERT_ZOFF_OK(zoff_offload_store_source(store.get(), 0, 0, &source));
        if (source.memory)
            memcpy(bytes, source.memory, sizeof bytes);
        else
            ASSERT_EQ((ssize_t)sizeof bytes, pread(source.fd, bytes, sizeof bytes, (off_t)source.offset));
        EXPECT_EQ(0, memcmp(content(0, n).data(), bytes, sizeof bytes)) << n;
    };
    unsigned n = begin(0);
    put(0);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    starts_with(0);
    discard(0);
    starts_with(0);
    n = begin(0);
    put(0);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    adopt(0, n);
    starts_with(n);
}

TEST_P(Second, AFailedWriteIsRepeatedOrDiscarded)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (const bool is_kept : {true, false, true, false}) {
        SCOPED_TRACE(is_kept);
        for (const size_t c : {0, 6}) {
            if (!is_written(c))
                continue;
            aio_fault fault;
            fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -EIO : res; };
            const unsigned n = begin(c);
            (void)put_chunk(store.get(), c);
            if (c == 0) { // otherwise the decision comes before the failure is known
                EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store.get()));
                EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store.get())) << "as long as it is not written again";
            }
            if (is_kept) {
                adopt(c, n);
                EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store.get()));
                fault.result = nullptr;
                EXPECT_ZOFF_OK(zoff_offload_store_retry(store.get()));
            } else {
                discard(c);
                EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get())) << "nobody needs it any more";
                fault.result = nullptr;
                zoff_store_stats before, after;
                zoff_offload_store_stats(store.get(), &before);
                EXPECT_ZOFF_OK(zoff_offload_store_retry(store.get()));
                EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
                zoff_offload_store_stats(store.get(), &after);
                EXPECT_EQ(before.write_bytes, after.write_bytes);
            }
            ASSERT_NO_FATAL_FAILURE(commit());
            ASSERT_NO_FATAL_FAILURE(expect_all());
        }
    }
    if (GetParam().persist) {
        ASSERT_NO_FATAL_FAILURE(die());
    }
}

TEST_P(Second, ARetryMayPrecedeTheDecision)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (const bool is_kept : {false, true}) {
        if (!is_written(6))
            continue;
        aio_fault fault;
        fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -ENOSPC : res; };
        const unsigned n = begin(6);
        (void)put_chunk(store.get(), 6);
        EXPECT_EQ(ZOFF_ERR_NO_SPACE, zoff_offload_store_drain(store.get()));
        fault.result = nullptr;
        EXPECT_ZOFF_OK(zoff_offload_store_retry(store.get()));
        EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
        if (is_kept)
            adopt(6, n);
        else
            discard(6);
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
}

// Undecided, or adopted and not committed: the files hold the last commit.
TEST_P(Second, AProcessThatDiesLosesWhatIsNotCommitted)
{
    if (!GetParam().persist)
        return; // the files end with it
    ASSERT_NO_FATAL_FAILURE(open());
    for (const size_t c : all())
        ASSERT_NO_FATAL_FAILURE(update(c));
    ASSERT_NO_FATAL_FAILURE(commit());
    for (int moment = 0; moment < 3; moment++) {
        const unsigned n = begin(0), m = begin(7);
        put(0);
        put(7);
        EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
        if (moment >= 1) {
            adopt(0, n);
            adopt(7, m);
        }
        if (moment == 2) {
            ASSERT_NO_FATAL_FAILURE(commit());
        }
        ASSERT_NO_FATAL_FAILURE(die()) << moment;
        EXPECT_EQ(moment == 2, now[0] == n);
    }
}

TEST_P(Second, ItNeedsAFirstOneThatIsCommitted)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (const size_t c : all()) {
        if (!is_written(c))
            continue;
        void *out;
        ASSERT_NO_FATAL_FAILURE(update(c));
        borrow(c);
        if (GetParam().persist) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "after the last commit", zoff_offload_store_second(store.get(), c, &out));
        }
        ASSERT_ZOFF_OK(keep_chunk(store.get(), c, ZOFF_STORE_ALL));
        borrow(c);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "was changed and not written", zoff_offload_store_second(store.get(), c, &out));
        EXPECT_FALSE(zoff_offload_store_is_undecided(store.get()));
        withdraw(store.get(), c);
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NE(0u, begin(c));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "has a second content already", zoff_offload_store_second(store.get(), c, &out));
        discard(c);
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(Second, AnyOrderOfAllCalls)
{
    ASSERT_NO_FATAL_FAILURE(open());
    for (unsigned seed = 0; seed < 3; seed++) {
        std::mt19937 random(seed), luck(seed + 100);
        aio_fault fault;
        bool is_armed = false;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
            return is_armed && writes && luck() % 4 == 0 ? -EIO : res;
        };
        std::map<size_t, unsigned> undecided;
        const auto decide = [&](size_t c, bool is_kept) {
            if (is_kept)
                adopt(c, undecided[c]);
            else
                discard(c);
            undecided.erase(c);
        };
        for (int i = 0; i < 300; i++) {
            const size_t c = random() % CHUNKS.size();
            const unsigned what = random() % 12;
            is_armed = seed && random() % 3 == 0;
            if (!CHUNKS[c].bytes)
                continue;
            // A chunk whose write has failed cannot be borrowed before it is written again.
            (void)zoff_offload_store_retry(store.get());
            is_armed = false;
            if (undecided.count(c)) {
                decide(c, random() % 2);
            } else if (what < 5 && is_committed[c]) {
                const unsigned n = begin(c);
                is_armed = seed && random() % 2;
                if (n && random() % 5 == 0)
                    withdraw(store.get(), c);
                else if (n && (undecided[c] = n))
                    (void)put_chunk(store.get(), c);
            } else if (what < 8) {
                ASSERT_NO_FATAL_FAILURE(update(c)) << i;
            } else if (what < 10) {
                ASSERT_NO_FATAL_FAILURE(expect(c)) << i;
            } else {
                while (!undecided.empty())
                    decide(undecided.begin()->first, random() % 2);
                (void)zoff_offload_store_drain(store.get());
                is_armed = false;
                ASSERT_ZOFF_OK(zoff_offload_store_retry(store.get()));
                ASSERT_NO_FATAL_FAILURE(commit()) << i;
            }
            is_armed = false;
            ASSERT_FALSE(HasFailure()) << "seed " << seed << ", operation " << i;
            EXPECT_EQ(!undecided.empty(), zoff_offload_store_is_undecided(store.get()));
        }
        while (!undecided.empty())
            decide(undecided.begin()->first, true);
        (void)zoff_offload_store_drain(store.get());
        ASSERT_ZOFF_OK(zoff_offload_store_retry(store.get()));
        ASSERT_NO_FATAL_FAILURE(commit());
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
    if (GetParam().persist) {
        ASSERT_NO_FATAL_FAILURE(die());
    }
}
} // namespace
