/* SPDX-License-Identifier: Apache-2.0 */
// reduce_test.cc: gradients go bucket by bucket to the rank that owns their sum: order, time, weights, and repeated calls.
#include "comm_fault.h"
#include "memory_fault.h"
#include "thread_ranks.h"

#include <map>

extern "C" {
#include "reduce.h"
#include "try.h"
}

using namespace zoff_test;

namespace
{
enum { RANKS = 3, BUCKETS = 4 };
using list = std::vector<size_t>;
const double FACTOR = 0.5;

// One rank's end of a reduction. Each bucket waits for two slices.
struct member {
    member(zoff_comm *comm_, unsigned slots) : comm(comm_)
    {
        plan.rank = comm->rank;
        plan.ranks = RANKS;
        plan.chunk_count = BUCKETS;
        zoff_reduce_opts opts = {};
        opts.plan = &plan;
        opts.comm = comm;
        opts.slots = slots;
        opts.factor = FACTOR;
        for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
            opts.bucket_most = std::max(opts.bucket_most, bucket_bytes(bucket));
            opts.part_most = std::max(opts.part_most, part_bytes(bucket, comm->rank));
        }
        memory.resize(slots * zoff_zero_reduce_slot_bytes(&opts));
        opts.memory = memory.data();
        opts.part_bytes = [](void *, size_t bucket, unsigned rank) { return part_bytes(bucket, rank); };
        opts.pack = [](void *ctx, size_t bucket, unsigned, char *out) { return self(ctx)->pack(bucket, out); };
        opts.sum = [](void *ctx, size_t bucket, unsigned, const char *parts, const float *factors) {
            return self(ctx)->sum(bucket, parts, factors);
        };
        opts.ctx = this;
        EXPECT_ZOFF_OK(zoff_zero_reduce_open(&opts, &reduce));
    }
    ~member() { zoff_zero_reduce_close(reduce); }
    member(const member &) = delete;
    static member *self(void *ctx) { return static_cast<member *>(ctx); }

    // Rank 2 has no part of bucket 1, and no rank has one of bucket 0.
    static size_t part_bytes(size_t bucket, unsigned rank)
    {
        return bucket == 0 || (bucket == 1 && rank == 2) ? 0 : 900 * bucket + rank;
    }
    static size_t bucket_bytes(size_t bucket)
    {
        size_t all = 0;
        for (unsigned rank = 0; rank < RANKS; rank++)
            all += part_bytes(bucket, rank);
        return all;
    }
    static char value_of(size_t bucket, unsigned from, unsigned to) { return (char)(bucket * 16 + from * 4 + to + 1); }

    void begin(uint32_t slices = 2)
    {
        const std::vector<uint32_t> missing(BUCKETS, slices);
        zoff_zero_reduce_begin(reduce, missing.data(), false);
    }
    // Complete both slices of a bucket.
    void complete(size_t bucket)
    {
        for (int slice = 0; slice < 2; slice++)
            zoff_zero_reduce_mark(reduce, bucket, bucket);
    }
    zoff_status pack(size_t bucket, char *out)
    {
        packs++;
        if (not_packed.count(bucket))
            return not_packed[bucket];
        packed.push_back(bucket);
        for (unsigned to = 0; to < RANKS; to++) {
            std::fill_n(out, part_bytes(bucket, to), value_of(bucket, comm->rank, to));
            out += part_bytes(bucket, to);
        }
        return ZOFF_OK;
    }
    zoff_status sum(size_t bucket, const char *parts, const float *factors)
    {
        sums++;
        if (not_summed.count(bucket))
            return not_summed[bucket];
        summed.push_back(bucket);
        for (unsigned from = 0; from < RANKS; from++) {
            for (size_t i = 0; i < part_bytes(bucket, comm->rank); i++)
                EXPECT_EQ(value_of(bucket, from, comm->rank), *parts++) << "bucket " << bucket << ", of rank " << from;
        }
        weights.assign(factors, factors + RANKS);
        return ZOFF_OK;
    }

    zoff_comm *comm;
    zoff_plan plan = {};
    zoff_reduce *reduce = nullptr;
    std::vector<char> memory;
    std::map<size_t, zoff_status> not_packed, not_summed; // results of pack or sum for these buckets
    int packs = 0, sums = 0;                              // calls
    list packed, summed;
    std::vector<float> weights; // weights of the last sum
};

class Reduce : public testing::Test
{
  protected:
    void open(unsigned slots = 2)
    {
        for (unsigned rank = 0; rank < RANKS; rank++)
            members.push_back(std::make_unique<member>(ranks[rank], slots));
        begin();
    }
    void begin(uint32_t slices = 2)
    {
        for (auto &m : members) {
            m->begin(slices);
            m->packed.clear();
            m->summed.clear();
        }
    }
    // Complete buckets on all ranks in the same order.
    void complete(const list &buckets)
    {
        for (auto &m : members) {
            for (size_t bucket : buckets)
                m->complete(bucket);
        }
    }
    // Poll all ranks until no more can be done.
    std::vector<zoff_status> poll()
    {
        std::vector<zoff_status> last(RANKS);
        for (int turn = 0; turn < 30; turn++) {
            for (unsigned rank = 0; rank < RANKS; rank++)
                last[rank] = zoff_zero_reduce_poll(members[rank]->reduce);
        }
        return last;
    }
    void expect_packed(const list &buckets) const
    {
        for (const auto &m : members)
            EXPECT_EQ(buckets, m->packed) << "rank " << m->comm->rank;
    }
    // Nothing is sent before the micro-batch is closed, and then everything.
    void expect_all_when_closed()
    {
        poll();
        expect_packed({});
        for (auto &m : members)
            zoff_zero_reduce_close_batch(m->reduce);
        EXPECT_EQ(std::vector<zoff_status>(RANKS, ZOFF_OK), poll());
        expect_packed({3, 2, 1, 0});
    }
    thread_ranks ranks{RANKS};
    std::vector<std::unique_ptr<member>> members; // destroyed before the ranks
};
const std::vector<zoff_status> DONE(RANKS, ZOFF_OK);
} // namespace

TEST(ReduceSlot, ItHoldsTheLargestBucketThereAndBack)
{
    zoff_plan plan = {};
    plan.ranks = 3;
    zoff_reduce_opts opts = {};
    opts.plan = &plan;
    const std::pair<size_t, size_t> cells[] = {{0, 0}, {1, 256}, {64, 256}, {65, 512}};
    for (const auto &cell : cells) {
        opts.bucket_most = opts.part_most = cell.first;
        opts.adds = false;
        EXPECT_EQ(cell.second, zoff_zero_reduce_slot_bytes(&opts)) << "each rank's part comes back";
        opts.adds = true;
        EXPECT_EQ(cell.second / 2, zoff_zero_reduce_slot_bytes(&opts)) << "only the sum comes back";
    }
}

TEST_F(Reduce, AtFirstBucketsGoFromTheLastToTheFirst)
{
    open();
    EXPECT_EQ(DONE, poll()) << "there is nothing to exchange yet";
    expect_packed({});
    complete({0, 1, 2, 3});
    EXPECT_EQ(DONE, poll());
    expect_packed({3, 2, 1, 0});
    for (unsigned rank = 0; rank < RANKS; rank++) {
        EXPECT_EQ((list{0, 1, 2, 3}), [&] {
            list all = members[rank]->summed;
            std::sort(all.begin(), all.end());
            return all;
        }());
        size_t sent = 0;
        for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
            EXPECT_TRUE(zoff_zero_reduce_is_done(members[rank]->reduce, bucket));
            sent += member::bucket_bytes(bucket) - member::part_bytes(bucket, rank);
        }
        EXPECT_EQ(sent, zoff_zero_reduce_sent_bytes(members[rank]->reduce));
    }
}

// Ranks learn the order of rank 0, and learn it once.
TEST_F(Reduce, LaterTheyGoAsTheyBecameCompleteOnRank0)
{
    open();
    const list orders[RANKS] = {{2, 0, 3, 1}, {0, 1, 2, 3}, {3, 2, 1, 0}};
    for (int batch = 0; batch < 3; batch++) {
        for (unsigned rank = 0; rank < RANKS; rank++) {
            for (size_t bucket : orders[(rank + (unsigned)batch) % RANKS])
                members[rank]->complete(bucket);
        }
        EXPECT_EQ(DONE, poll());
        expect_packed(batch ? orders[0] : list{3, 2, 1, 0});
        begin();
        EXPECT_FALSE(zoff_zero_reduce_is_done(members[0]->reduce, 0)) << "a new micro-batch";
    }
}

TEST_F(Reduce, ABucketWaitsForItsSlicesAndForThoseBeforeIt)
{
    open();
    complete({0, 1, 2});
    for (auto &m : members)
        zoff_zero_reduce_mark(m->reduce, 3, 3); // one of two
    EXPECT_EQ(DONE, poll());
    expect_packed({});
    for (auto &m : members)
        zoff_zero_reduce_mark(m->reduce, 3, 3);
    EXPECT_EQ(DONE, poll());
    expect_packed({3, 2, 1, 0});
    begin();
    for (auto &m : members) { // a slice that lies in three buckets
        zoff_zero_reduce_mark(m->reduce, 1, 3);
        zoff_zero_reduce_mark(m->reduce, 1, 3);
    }
    EXPECT_EQ(DONE, poll());
    expect_packed({}); // bucket 0 comes first: it was the first to be complete
    complete({0});
    EXPECT_EQ(DONE, poll());
    expect_packed({0, 1, 2, 3});
}

TEST_F(Reduce, IncompleteBucketsAreSentAtTheEnd)
{
    open();
    for (auto &m : members)
        zoff_zero_reduce_mark(m->reduce, 0, 2);
    expect_all_when_closed();
}

// The micro-batch of this bucket may still get a weight.
TEST_F(Reduce, BucketsThatWaitForNothingGoWithTheFirstGradient)
{
    open();
    begin(0);
    expect_all_when_closed();
}

TEST_F(Reduce, EachRanksMicroBatchHasItsWeight)
{
    open();
    for (unsigned rank = 0; rank < RANKS; rank++)
        zoff_zero_reduce_weigh(members[rank]->reduce, rank + 1);
    complete({0, 1, 2, 3});
    EXPECT_EQ(DONE, poll());
    for (unsigned rank = 0; rank < RANKS; rank++) {
        EXPECT_EQ((std::vector<float>{0.5f, 1.0f, 1.5f}), members[rank]->weights) << "times the factor";
        EXPECT_EQ(3.0, zoff_base_exact_value(zoff_zero_reduce_total_weight(members[rank]->reduce)));
        EXPECT_EQ(0.5f * (float)(rank + 1), *zoff_zero_reduce_own_weight(members[rank]->reduce));
    }
    begin();
    complete({0, 1, 2, 3});
    EXPECT_EQ(DONE, poll());
    EXPECT_EQ((std::vector<float>{0.5f, 0.5f, 0.5f}), members[0]->weights) << "1 where nothing is said";
    EXPECT_EQ(1.5, zoff_base_exact_value(zoff_zero_reduce_total_weight(members[2]->reduce)));
}

TEST_F(Reduce, NothingIsSummedUpBeforeAllWeightsAreKnown)
{
    open();
    passing_comm_fault fault(ranks[0]);
    fault.not_yet = [](const zoff_comm_work &work) { return work.call.item.about == ZOFF_COMM_ABOUT_BATCH; };
    complete({0, 1, 2, 3});
    poll();
    EXPECT_EQ((list{}), members[0]->summed);
    EXPECT_NE((list{}), members[1]->summed);
    fault.not_yet = nullptr;
    EXPECT_EQ(DONE, poll());
    EXPECT_EQ((size_t)BUCKETS, members[0]->summed.size());
}

TEST_F(Reduce, PackingIsRepeatedInOrder)
{
    open(4);
    members[1]->not_packed[3] = ZOFF_PENDING;
    complete({0, 1, 2, 3});
    EXPECT_EQ(std::vector<zoff_status>(RANKS, ZOFF_PENDING), poll());
    EXPECT_EQ((list{2, 1, 0}), members[1]->packed) << "the others are packed meanwhile";
    EXPECT_LT(4, members[1]->packs);
    for (auto &m : members)
        EXPECT_EQ((list{}), m->summed);
    members[1]->not_packed[3] = zoff_base_status_fail(ZOFF_ERR_IO, "no gradients");
    EXPECT_EQ(ZOFF_ERR_IO, zoff_zero_reduce_poll(members[1]->reduce));
    members[1]->not_packed.clear();
    EXPECT_EQ(DONE, poll());
    EXPECT_EQ((list{2, 1, 0, 3}), members[1]->packed) << "nothing is packed twice";
    EXPECT_EQ((list{3, 2, 1, 0}), members[0]->packed);
}

TEST_F(Reduce, ASlotIsInUseUntilItsBucketIsSummedUp)
{
    open(1);
    members[0]->not_summed[3] = ZOFF_PENDING;
    complete({0, 1, 2, 3});
    poll();
    EXPECT_EQ((list{3}), members[0]->packed);
    EXPECT_LT(1, members[0]->sums);
    EXPECT_FALSE(zoff_zero_reduce_is_done(members[0]->reduce, 3));
    members[0]->not_summed[3] = ZOFF_ERR_IO;
    EXPECT_EQ(ZOFF_ERR_IO, zoff_zero_reduce_poll(members[0]->reduce));
    members[0]->not_summed.clear();
    EXPECT_EQ(DONE, poll());
    for (auto &m : members)
        EXPECT_EQ((list{3, 2, 1, 0}), m->summed);
}

TEST_F(Reduce, APumpSumsNothingUp)
{
    open();
    complete({3});
    for (auto &m : members)
        ASSERT_EQ(ZOFF_PENDING, zoff_zero_reduce_poll(m->reduce)) << "the others have not come when it looks";
    for (int turn = 0; turn < 20; turn++) {
        for (auto &m : members)
            zoff_zero_reduce_pump(m->reduce);
    }
    for (auto &m : members)
        EXPECT_EQ((list{}), m->summed);
    EXPECT_EQ(DONE, poll());
    for (auto &m : members)
        EXPECT_EQ((list{3}), m->summed);
}

TEST_F(Reduce, ClosingAbandonsOperationsInFlight)
{
    open();
    zoff_zero_reduce_close(nullptr);
    members[0]->complete(3);
    EXPECT_EQ(ZOFF_PENDING, zoff_zero_reduce_poll(members[0]->reduce));
    members[0].reset();
    members[1]->complete(3);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0 has left the group with an operation in flight", [&] {
        zoff_status status = ZOFF_PENDING;
        while (status == ZOFF_PENDING)
            status = zoff_zero_reduce_poll(members[1]->reduce);
        return status;
    }());
}

TEST_F(Reduce, WithoutMemoryNoneIsOpened)
{
    zoff_plan plan = {};
    plan.ranks = RANKS;
    plan.chunk_count = BUCKETS;
    zoff_reduce_opts opts = {};
    opts.plan = &plan;
    opts.comm = ranks[0];
    opts.slots = 2;
    EXPECT_EQ(9, fail_each_allocation([&] {
                  zoff_reduce *made = nullptr;
                  const zoff_status status = zoff_zero_reduce_open(&opts, &made);
                  zoff_zero_reduce_close(made);
                  return status;
              }));
    EXPECT_FALSE(zoff_comm_is_broken(ranks[0]));
}
