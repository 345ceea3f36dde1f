// landings_test.cc: where the parts of all ranks arrive. That every slice is whole on every rank is tested with
// param_gather_test.cc on the host, and with e2e_ranks on devices.
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
} // namespace
