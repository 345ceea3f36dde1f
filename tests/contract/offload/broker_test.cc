/* SPDX-License-Identifier: Apache-2.0 */
// broker_test.cc: the invariants of src/offload/broker.c on stores of files with one or two slots. tests/model has a model of
// them.
#include "aio_fault.h"
#include "store_ptr.h"
#include "zoff_test.h"

#include <errno.h>
#include <string.h>

using namespace zoff_test;

namespace
{
enum { CHUNK = 8192, COUNT = 5 };

class Broker : public testing::Test
{
  protected:
    store_ptr open(unsigned slots, const char *backend = "posix")
    {
        const char *path = folder.path.c_str();
        zoff_store_opts opts = {};
        opts.tier = ZOFF_TIER_NVME;
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *, size_t chunk, void *base) { memset(base, (int)chunk + 1, CHUNK); };
        opts.threads = opts.ranks = 1;
        opts.slots = slots;
        opts.paths = &path;
        opts.path_count = 1;
        opts.aio_backend = backend;
        zoff_store *made = nullptr;
        EXPECT_ZOFF_OK(open_store(&opts, &made));
        return store_ptr(made);
    }
    static zoff_demand demand(zoff_demand_kind kind, size_t chunk, const store_ptr &states, const store_ptr &weights = {})
    {
        zoff_demand d = {};
        d.kind = kind;
        d.chunk = chunk;
        d.states.store = states.get();
        d.weights.store = weights.get();
        d.states.arrays = d.weights.arrays = ZOFF_STORE_ALL;
        return d;
    }
    // Ask for a demand until the call ends.
    static zoff_status get(zoff_demand &d, const store_ptr &store)
    {
        zoff_status status;
        while ((status = zoff_offload_broker_ask(&d)) == ZOFF_PENDING)
            (void)zoff_offload_store_pump(store.get());
        return status;
    }
    static void finish(const store_ptr &store)
    {
        while (zoff_offload_store_busy(store.get(), false))
            (void)zoff_offload_store_pump(store.get());
    }
    static uint64_t read_bytes(const store_ptr &store)
    {
        zoff_store_stats stats;
        zoff_offload_store_stats(store.get(), &stats);
        return stats.read_bytes;
    }

    log_catcher log;
    scratch_folder folder;
    std::vector<zoff_store_chunk> chunks = std::vector<zoff_store_chunk>(COUNT, {CHUNK, CHUNK});
};

TEST_F(Broker, ADemandGetsAllPlacesOrNone)
{
    const store_ptr states = open(1), weights = open(1);
    zoff_demand fetch = demand(ZOFF_DEMAND_LEND, 0, {}, weights), bucket = demand(ZOFF_DEMAND_STEP, 1, states, weights);
    zoff_demand pass = demand(ZOFF_DEMAND_PASS, 2, states);
    ASSERT_ZOFF_OK(get(fetch, weights));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&bucket));
    EXPECT_FALSE(bucket.is_granted);
    ASSERT_ZOFF_OK(get(pass, states)); // the bucket waits for weights, and has no slot of states meanwhile
    EXPECT_EQ(3, pass.states.base[0]);
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&fetch, &fetch.weights, 0, false));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&bucket));
    EXPECT_FALSE(bucket.is_granted);
    zoff_offload_broker_withdraw(&pass);
    ASSERT_ZOFF_OK(get(bucket, states));
    EXPECT_EQ(2, bucket.states.base[CHUNK - 1]);
    EXPECT_EQ(2, bucket.weights.base[0]);
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&bucket, &bucket.states, ZOFF_STORE_ALL, false));
    EXPECT_TRUE(bucket.is_granted) << "one part is left";
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&bucket, &bucket.weights, ZOFF_STORE_ALL, false));
    EXPECT_FALSE(bucket.is_granted);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(states.get()));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(weights.get()));
}

TEST_F(Broker, CleanCopiesAreTakenBackAndUsedAgain)
{
    const store_ptr store = open(2);
    const size_t first[] = {3, 4};
    zoff_offload_broker_hint(store.get(), first, nullptr, 2);
    zoff_demand d = demand(ZOFF_DEMAND_STEP, 0, store), again = demand(ZOFF_DEMAND_STEP, 4, store);
    ASSERT_ZOFF_OK(get(d, store)); // copies that nobody has asked for give way
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&d, &d.states, 0, false));
    const uint64_t before = read_bytes(store);
    d = demand(ZOFF_DEMAND_STEP, 0, store);
    ASSERT_ZOFF_OK(get(d, store));
    EXPECT_EQ(before, read_bytes(store)) << "it is still there";
    ASSERT_ZOFF_OK(get(again, store));
    EXPECT_EQ(before + CHUNK, read_bytes(store)) << "read once, ahead";
    zoff_demand other = demand(ZOFF_DEMAND_STEP, 1, store);
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&other)) << "both are borrowed";
    zoff_offload_broker_withdraw(&d);
    zoff_offload_broker_withdraw(&again);
    EXPECT_ZOFF_OK(get(other, store));
    zoff_offload_broker_withdraw(&other);
}

TEST_F(Broker, AHintTakesNoPlaceOfItsOwnList)
{
    const store_ptr store = open(2);
    const size_t list[] = {0, 1, 2}, other[] = {3};
    zoff_store_stats stats;
    for (int again = 0; again < 3; again++) {
        zoff_offload_broker_hint(store.get(), list, nullptr, 3);
        finish(store);
    }
    zoff_demand d = demand(ZOFF_DEMAND_STEP, 0, store), e = demand(ZOFF_DEMAND_STEP, 1, store);
    ASSERT_ZOFF_OK(get(d, store));
    ASSERT_ZOFF_OK(get(e, store));
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(2u * CHUNK, stats.ahead_bytes);
    EXPECT_EQ(2u * CHUNK, stats.read_bytes);
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&e, &e.states, 0, false));
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&d, &d.states, 0, false));
    zoff_offload_broker_hint(store.get(), other, nullptr, 1); // over chunk 1, which was used before chunk 0
    finish(store);
    d = demand(ZOFF_DEMAND_STEP, 0, store);
    ASSERT_ZOFF_OK(get(d, store));
    EXPECT_EQ(2u * CHUNK, read_bytes(store));
    zoff_offload_broker_withdraw(&d);
}

TEST_F(Broker, AWaitingDemandStartsDeferredWrites)
{
    const store_ptr store = open(2);
    for (size_t c : {0, 1}) {
        zoff_demand d = demand(ZOFF_DEMAND_PASS, c, store);
        ASSERT_ZOFF_OK(get(d, store));
        memset(d.states.base, 70 + (int)c, CHUNK);
        ASSERT_ZOFF_OK(zoff_offload_broker_give(&d, &d.states, ZOFF_STORE_ALL, true));
    }
    EXPECT_FALSE(zoff_offload_store_busy(store.get(), true)) << "both writes are put off";
    for (size_t c : {2, 3, 0, 1}) {
        zoff_demand d = demand(ZOFF_DEMAND_PASS, c, store);
        ASSERT_ZOFF_OK(get(d, store));
        EXPECT_EQ(c < 2 ? 70 + (int)c : (int)c + 1, d.states.base[CHUNK - 1]);
        ASSERT_ZOFF_OK(zoff_offload_broker_give(&d, &d.states, 0, false));
    }
}

// The write of chunk 0 fails, and its slot is the only one. Who waits for it, or for the slot, has it written again, once.
TEST_F(Broker, AFailedWriteIsRepeatedOnceForADemand)
{
    for (const size_t wanted : {size_t{0}, size_t{2}}) {
        const store_ptr store = open(1);
        zoff_demand d = demand(ZOFF_DEMAND_STEP, 0, store);
        ASSERT_ZOFF_OK(get(d, store));
        memset(d.states.base, 77, CHUNK);
        aio_fault fault;
        int writes = 0;
        fault.result = [&](int, int res, bool is_write, uint64_t, size_t) { return is_write && ++writes ? -EIO : res; };
        (void)zoff_offload_broker_give(&d, &d.states, ZOFF_STORE_ALL, false);
        EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store.get()));
        for (int again = 0; again < 2; again++) {
            const int before = writes;
            zoff_demand next = demand(ZOFF_DEMAND_STEP, wanted, store);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", get(next, store));
            EXPECT_EQ(before + 1, writes);
            EXPECT_FALSE(next.is_granted);
        }
        zoff_demand ahead = demand(ZOFF_DEMAND_AHEAD, wanted, store);
        const int before = writes;
        EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&ahead));
        finish(store);
        EXPECT_EQ(before, writes) << "it is refused, and clears nothing";
        fault.result = nullptr;
        zoff_demand next = demand(ZOFF_DEMAND_STEP, wanted, store);
        ASSERT_ZOFF_OK(get(next, store));
        EXPECT_EQ(wanted ? (int)wanted + 1 : 77, next.states.base[0]) << "nothing is lost";
        zoff_offload_broker_withdraw(&next);
    }
}

TEST_F(Broker, AFetchOfWeightsComesFirst)
{
    const store_ptr store = open(1);
    zoff_demand held = demand(ZOFF_DEMAND_STEP, 0, store), fetch = demand(ZOFF_DEMAND_LEND, 1, store);
    zoff_demand next = demand(ZOFF_DEMAND_STEP, 2, store);
    const size_t chunk = 3;
    ASSERT_ZOFF_OK(get(held, store));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&fetch));
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&held, &held.states, 0, false));
    zoff_offload_broker_hint(store.get(), &chunk, nullptr, 1);
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&next));
    EXPECT_FALSE(zoff_offload_store_busy(store.get(), false)) << "the slot is for the fetch, which has not asked again yet";
    ASSERT_ZOFF_OK(get(fetch, store));
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&fetch, &fetch.states, 0, false));
    ASSERT_ZOFF_OK(get(next, store));
    fetch = demand(ZOFF_DEMAND_LEND, 1, store);
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_broker_ask(&fetch));
    zoff_offload_broker_withdraw(&fetch); // the demand's call has ended
    zoff_offload_broker_withdraw(&next);
    next = demand(ZOFF_DEMAND_STEP, 4, store);
    ASSERT_ZOFF_OK(get(next, store));
    zoff_offload_broker_withdraw(&next);
}

// Changes that were not given back are lost.
TEST_F(Broker, AWithdrawnDemandLeavesNothing)
{
    const store_ptr store = open(1);
    zoff_demand d = demand(ZOFF_DEMAND_STEP, 0, store);
    ASSERT_ZOFF_OK(get(d, store));
    memset(d.states.base, 99, CHUNK);
    zoff_offload_broker_withdraw(&d);
    zoff_offload_broker_withdraw(&d);
    d = demand(ZOFF_DEMAND_STEP, 1, store);
    (void)zoff_offload_broker_ask(&d);
    zoff_offload_broker_withdraw(&d); // the demand's read goes on
    d = demand(ZOFF_DEMAND_STEP, 0, store);
    ASSERT_ZOFF_OK(get(d, store));
    EXPECT_EQ(1, d.states.base[0]);
    zoff_offload_broker_withdraw(&d);
    d = demand(ZOFF_DEMAND_STEP, 2, store);
    d.states.overwrites = true;
    ASSERT_ZOFF_OK(get(d, store));
    memset(d.states.base, 99, CHUNK);
    ASSERT_ZOFF_OK(zoff_offload_broker_give(&d, &d.states, 0, false)); // unchanged, but its content was never that of the file
    d = demand(ZOFF_DEMAND_STEP, 2, store);
    ASSERT_ZOFF_OK(get(d, store));
    EXPECT_EQ(3, d.states.base[0]);
    zoff_offload_broker_withdraw(&d);
}

// The error of a read ahead is not that of the demand, which reads again.
TEST_F(Broker, AFailedReadAheadIsNobodysError)
{
    const store_ptr store = open(2);
    const size_t chunk = 1;
    {
        aio_fault fault;
        fault.result = [](int, int, bool, uint64_t, size_t) { return -EIO; };
        zoff_offload_broker_hint(store.get(), &chunk, nullptr, 1);
        finish(store);
        zoff_demand d = demand(ZOFF_DEMAND_STEP, 1, store);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read", get(d, store)); // the drive fails this read, too
        zoff_offload_broker_hint(store.get(), &chunk, nullptr, 1);
        finish(store);
    }
    zoff_demand d = demand(ZOFF_DEMAND_STEP, 1, store);
    ASSERT_ZOFF_OK(get(d, store));
    EXPECT_EQ(2, d.states.base[0]);
    zoff_offload_broker_withdraw(&d);
}

// Demands that were in flight while the drive failed have old errors, too.
TEST_F(Broker, ARetryReadsAgainWhatFailedBeforeIt)
{
    const store_ptr store = open(2, "auto");
    zoff_demand first = demand(ZOFF_DEMAND_STEP, 1, store), second = demand(ZOFF_DEMAND_STEP, 2, store);
    {
        aio_fault fault;
        fault.result = [](int, int, bool, uint64_t, size_t) { return -EIO; };
        const zoff_status status =
            zoff_offload_broker_ask(&first); // PENDING, unless this machine has the back-end "posix" alone
        (void)zoff_offload_broker_ask(&second);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read", status == ZOFF_PENDING ? get(first, store) : status);
        finish(store);
    }
    ASSERT_ZOFF_OK(zoff_offload_store_retry(store.get()));
    ASSERT_ZOFF_OK(get(first, store));
    ASSERT_ZOFF_OK(get(second, store));
    EXPECT_EQ(3, second.states.base[0]);
    zoff_offload_broker_withdraw(&first);
    zoff_offload_broker_withdraw(&second);
}
} // namespace
