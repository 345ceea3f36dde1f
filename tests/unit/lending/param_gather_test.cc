// param_gather_test.cc: slices of which each rank has a part become whole on all ranks, in the same order. Ranks are threads.
#include "allocation_fault.h"
#include "small_lending.h"

using namespace zoff_test;

namespace
{
// The plan, as far as the ring remembers it.
std::vector<std::pair<uint32_t, size_t>> parts(const zoff_assembly &a)
{
    std::vector<std::pair<uint32_t, size_t>> list;
    for (size_t i = a.planned > a.capacity ? a.planned - a.capacity : 0; i < a.planned; i++)
        list.emplace_back(a.parts[i % a.capacity].slice, a.parts[i % a.capacity].run);
    return list;
}

class ParamGather : public testing::TestWithParam<std::tuple<unsigned, zoff_tier>>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, ParamGather,
                         testing::Combine(testing::Values(2u, 3u, 5u), testing::Values(ZOFF_TIER_HOST, ZOFF_TIER_NVME)),
                         [](const auto &p) {
                             return std::to_string(std::get<0>(p.param)) +
                                    (std::get<1>(p.param) == ZOFF_TIER_NVME ? "_files" : "_host");
                         });

// Slices of one block, of which only one rank has a part, and slices of many buckets. The second pass has another order.
TEST_P(ParamGather, EverySliceIsWholeOnEveryRank)
{
    const auto [size, tier] = GetParam();
    std::vector<std::vector<std::pair<uint32_t, size_t>>> planned(size);
    on_ranks(size, [&, tier = tier](small_lending &t, unsigned rank) {
        const std::pair<size_t, size_t> list[] = {{10, 3}, {300, 4}, {33, 5}, {0, 2}, {1, 1}};
        t.values.tier = tier;
        t.values.live_count = 700;
        t.values.ahead_count = 200;
        for (const auto &[count, slices] : list)
            t.add("p", count, slices, count == 33 ? ZOFF_BF16 : ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        for (int pass = 0; pass < 4; pass++) {
            for (size_t i = 0; i < t.parts.m.param_count; i++) {
                const zoff_param p = (zoff_param)(pass % 2 ? t.parts.m.param_count - 1 - i : i);
                for (size_t slice = 0; slice < list[p].second; slice++)
                    t.use(p, slice);
            }
            ASSERT_NO_FATAL_FAILURE(t.turn());
        }
        planned[rank] = parts(t.l.cache.assembly);
    });
    for (unsigned rank = 1; rank < size; rank++) {
        EXPECT_EQ(planned[0], planned[rank]) << "rank " << rank;
    }
    EXPECT_FALSE(planned[0].empty());
}

TEST(ParamGatherRing, HasRoomForTwoPasses)
{
    on_ranks(2, [](small_lending &t, unsigned) {
        t.add("a", 100, 3);
        t.add("empty", 0, 2);
        ASSERT_NO_FATAL_FAILURE(t.open(32)); // buckets of 64 elements, or 48
        size_t runs = 0;
        for (size_t i = 0; i < t.parts.plan.run_count; i++)
            runs += t.parts.plan.runs[i].count > 0;
        EXPECT_EQ(2 * (runs + 1), t.l.cache.assembly.capacity);
    });
}

// A rank that is two passes ahead waits for the others. It never plans a slice whose earlier parts other ranks may still read:
// a slice comes again only after all others.
TEST(ParamGatherRing, WhereItIsFullItsPartsAreWaitedFor)
{
    std::atomic<bool> is_full{false};
    on_ranks(2, [&](small_lending &t, unsigned rank) {
        enum { SLICES = 3 };
        t.add("a", 100, SLICES);
        t.values.live_count = 500;
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        const zoff_assembly &a = t.l.cache.assembly;
        std::array<size_t, SLICES> parts{};
        for (uint32_t number = 0; number < SLICES; number++)
            ASSERT_TRUE(zoff_lending_param_cache_place(&t.l.cache, number));
        if (rank == 1) {
            while (!is_full)
                std::this_thread::yield();
        }
        uint32_t next = 0;
        for (; a.planned + parts[next] <= a.capacity; next = (next + 1) % SLICES) {
            ASSERT_ZOFF_OK(zoff_lending_param_gather_make_room(&t.l, next));
            EXPECT_TRUE(rank == 1 || a.done_before == 0) << "there was room";
            const size_t before = a.planned, missing = t.slice(next).missing;
            zoff_lending_param_gather_plan(&t.l, next);
            parts[next] = a.planned - before;
            EXPECT_EQ(missing + parts[next], t.slice(next).missing);
        }
        EXPECT_LE(2 * (parts[0] + parts[1] + parts[2]), a.planned) << "two passes";
        is_full = true;
        ASSERT_ZOFF_OK(zoff_lending_param_gather_make_room(&t.l, next));
        EXPECT_LT(0u, a.done_before);
        EXPECT_LE(a.planned - a.done_before + parts[next], a.capacity);
        zoff_lending_param_gather_plan(&t.l, next);
        ASSERT_ZOFF_OK(zoff_lending_param_gather_wait(&t.l, next));
        EXPECT_EQ(0u, t.slice(next).missing);
        EXPECT_TRUE(t.has(t.slice(next).at, 0, next));
    });
}

// Other ranks may wait for another operation of this rank: it continues that while it waits for them.
TEST(ParamGatherWait, ContinuesWithOtherWork)
{
    std::atomic<small_lending *> first{nullptr};
    on_ranks(2, [&](small_lending &t, unsigned rank) {
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        if (rank == 0) {
            first = &t;
        } else {
            while (!first || first.load()->gone_on == 0)
                std::this_thread::yield();
        }
        t.use(0, 1);
        EXPECT_TRUE(rank == 1 || t.gone_on > 0);
    });
}

TEST(ParamGatherGoOn, NeverWaits)
{
    std::atomic<bool> may_come{false};
    on_ranks(2, [&](small_lending &t, unsigned rank) {
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        EXPECT_EQ(ZOFF_OK, zoff_lending_param_gather_go_on(&t.l)) << "nothing is planned";
        ASSERT_TRUE(zoff_lending_param_cache_place(&t.l.cache, 0));
        while (rank == 1 && !may_come)
            std::this_thread::yield();
        zoff_lending_param_gather_plan(&t.l, 0);
        if (rank == 0) {
            EXPECT_EQ(ZOFF_PENDING, zoff_lending_param_gather_go_on(&t.l));
        }
        may_come = true;
        ASSERT_ZOFF_OK(zoff_lending_param_gather_finish(&t.l));
        EXPECT_EQ(t.l.cache.assembly.planned, t.l.cache.assembly.done_before);
        EXPECT_TRUE(t.has(t.slice(0).at, 0, 0));
        EXPECT_EQ(ZOFF_OK, zoff_lending_param_gather_go_on(&t.l));
    });
}

// A gather in flight cannot give its room up: it is waited for.
TEST(ParamGatherRoom, GathersInFlightAreWaitedFor)
{
    on_ranks(2, [](small_lending &t, unsigned) {
        t.values.live_count = 100;
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        ASSERT_ZOFF_OK(zoff_lending_room_place_ahead(&t.l, 0));
        zoff_lending_param_gather_plan(&t.l, 0);
        EXPECT_LT(0u, t.slice(0).missing);
        t.fetch(0, 1);
        EXPECT_EQ(0u, t.slice(0).missing);
        EXPECT_EQ(nullptr, t.slice(0).at);
        t.release(0, 1);
    });
}

// A broken group completes nothing: the plan is dropped, so that a step can end.
TEST(ParamGatherBroken, PlannedPartsAreDropped)
{
    const auto leave = [](small_lending &t, unsigned rank) {
        t.add("wte", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        if (rank == 1)
            return; // it leaves without the slice
        const void *lent = nullptr;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "zoff_param_fetch: wte: ", zoff_lending_fetch_slice(&t.l, 0, 1, nullptr, &lent));
        EXPECT_EQ(0u, t.l.cache.lent);
        EXPECT_LT(0u, t.slice(1).missing);
        EXPECT_ZOFF_OK(zoff_lending_param_gather_finish(&t.l));
        EXPECT_EQ(0u, t.slice(1).missing);
        EXPECT_EQ(nullptr, t.slice(1).at);
        EXPECT_EQ(t.l.cache.assembly.planned, t.l.cache.assembly.done_before);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "zoff_param_fetch: wte: ", zoff_lending_fetch_slice(&t.l, 0, 1, nullptr, &lent));
    };
    on_ranks(2, leave, 2);
}

TEST(ParamGatherOpen, WithoutMemoryIsClosedAndOpenedAgain)
{
    on_ranks(2, [](small_lending &t, unsigned) {
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(32));
        zoff_lending_param_gather_close(&t.l);
        const int failures = fail_each_allocation([&] {
            const zoff_status status = zoff_lending_param_gather_open(&t.l);
            EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
            zoff_lending_param_gather_close(&t.l);
            EXPECT_EQ(nullptr, t.l.cache.assembly.gather);
            EXPECT_EQ(nullptr, t.l.cache.assembly.parts);
        });
        EXPECT_EQ(4, failures);
        ASSERT_ZOFF_OK(zoff_lending_param_gather_open(&t.l));
        t.use(0, 1);
    });
}
} // namespace
