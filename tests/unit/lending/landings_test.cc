// landings_test.cc: where the parts of all ranks arrive. On devices every slice is whole on every rank; for the host, see
// param_gather_test.cc. Ranks are threads.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
TEST(Landings, ASlotHoldsTheLargestPart)
{
    small_lending t;
    t.add("a", 3000, 2, ZOFF_BF16);
    t.add("b", 100, 1, ZOFF_F32);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    size_t most = 0;
    for (size_t i = 0; i < t.parts.plan.run_count; i++) {
        const zoff_plan_piece &run = t.parts.plan.runs[i];
        most = std::max(most, run.count * (run.param ? 4u : 2u));
    }
    EXPECT_EQ((most + 63) / 64 * 64, zoff_lending_landings_most(&t.l, &t.parts.plan));
}

TEST(Landings, EachPlaceHasOne)
{
    EXPECT_EQ(&zoff_lending_landings_place, zoff_lending_places_host.landing);
    EXPECT_EQ(&zoff_lending_landings_bounce, zoff_lending_places_device.landing);
    EXPECT_EQ(&zoff_lending_landings_reached, zoff_lending_places_reached.landing);
}

class Landings : public testing::TestWithParam<std::tuple<bool, bool>>
{
  protected:
    void put_on_device(small_lending &t) const
    {
        t.reaches = std::get<0>(GetParam());
        if (t.reaches)
            t.wire.ranks->reaches = "emulated";
        t.put_on_device(std::get<1>(GetParam()));
    }
};

INSTANTIATE_TEST_SUITE_P(Devices, Landings, testing::Combine(testing::Bool(), testing::Bool()), [](const auto &p) {
    return std::string(std::get<0>(p.param) ? "reached" : "bounce") + (std::get<1>(p.param) ? "_stays" : "_dram");
});

// Only one rank has a part of a small slice.
TEST_P(Landings, BringWholeSlicesToAllRanks)
{
    on_ranks(3, [&](small_lending &t, unsigned) {
        ASSERT_NO_FATAL_FAILURE(put_on_device(t));
        t.values.live_count = 700;
        t.values.ahead_count = 200;
        t.add("small", 10, 3);
        t.add("large", 300, 4);
        t.add("half", 33, 5, ZOFF_BF16);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        EXPECT_EQ(t.reaches ? &zoff_lending_landings_reached : &zoff_lending_landings_bounce, t.l.place->landing);
        for (int pass = 0; pass < 3; pass++) {
            for (zoff_param p : {0, 1, 2}) {
                for (size_t slice = 0; slice < t.parts.m.params[p].slices; slice++)
                    t.use(p, slice);
            }
            ASSERT_NO_FATAL_FAILURE(t.turn());
        }
    });
}

// Parts arrive in memory that the program still reads. They wait for it, also on a rank without a share. One rank reads slowly:
// where both do, one's wait hides that the other does not.
TEST_P(Landings, WaitForTheWorkThatReadsTheirPlace)
{
    struct reader {
        small_lending *t;
        const void *at;
        bool intact;
        static void run(void *ctx)
        {
            const auto r = static_cast<reader *>(ctx);
            usleep(30000);
            r->intact = r->t->has(r->at, 0, 0);
        }
    };
    for (unsigned slow_rank : {0u, 1u}) {
        on_ranks(2, [&](small_lending &t, unsigned rank) {
            reader slow = {&t, nullptr, true};
            void *stream = nullptr;
            const void *second = nullptr;
            ASSERT_NO_FATAL_FAILURE(put_on_device(t));
            t.values.live_count = 10;
            t.add("small", 10, 2);
            ASSERT_NO_FATAL_FAILURE(t.open(48));
            ASSERT_ZOFF_OK(zoff_accel_stream_open(t.accel, &stream));
            EXPECT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 0, 0, stream, &slow.at));
            if (rank == slow_rank) {
                EXPECT_ZOFF_OK(zoff_accel_stream_call(t.accel, stream, reader::run, &slow));
            }
            EXPECT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
            EXPECT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 0, 1, stream, &second));
            EXPECT_EQ(slow.at, second) << "there is room for one";
            EXPECT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
            EXPECT_TRUE(slow.intact) << "rank " << rank;
            EXPECT_TRUE(t.has(second, 0, 1));
            EXPECT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 1, stream));
            zoff_accel_stream_close(t.accel, stream);
        });
    }
}
} // namespace
