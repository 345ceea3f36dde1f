// guard_test.cc: what the engine tells a save. saver_test.cc has the units that a step waits for; here are attaching, leaving,
// and the end of the engine.
#include "small_save.h"

extern "C" {
#include "fork.h"
}

using namespace zoff_test;

namespace
{
// Saves of one engine, of which there is only the place that knows one of them.
class Guard : public testing::Test
{
  protected:
    Guard()
    {
        for (zoff_saver &s : saves) {
            s.view.guard = &place;
            s.process = zoff_base_fork_number();
            s.work.is_over = true;
            s.part.path = path;
            pthread_mutex_init(&s.work.lock, nullptr);
            pthread_cond_init(&s.work.moved, nullptr);
        }
    }
    log_catcher log;
    zoff_guard *place = nullptr;
    char path[5] = "file";
    zoff_saver saves[2] = {};
};
} // namespace

TEST_F(Guard, ASaveLeavesOnlyItsOwnPlace)
{
    zoff_checkpoint_saver_attach(&saves[0]);
    EXPECT_EQ(&saves[0].guard, place);
    zoff_checkpoint_saver_detach(&saves[0]);
    EXPECT_EQ(nullptr, place);
    zoff_checkpoint_saver_attach(&saves[1]);
    zoff_checkpoint_saver_detach(&saves[0]); // twice does nothing
    EXPECT_EQ(&saves[1].guard, place);
}

TEST_F(Guard, ASaveHearsOfTheEndOfTheEngine)
{
    zoff_checkpoint_saver_attach(&saves[0]);
    place->gone(place->ctx);
    EXPECT_TRUE(saves[0].is_gone);
    EXPECT_FALSE(saves[0].is_attached) << "the engine's memory is not touched any more";
}

TEST_F(Guard, ASaveThatIsGivenUpIsToldInTheLog)
{
    log.expect("the engine is destroyed before its checkpoint 'file' is complete");
    saves[0].work.is_over = false;
    zoff_checkpoint_saver_attach(&saves[0]);
    place->gone(place->ctx);
    EXPECT_TRUE(saves[0].is_gone);
}

// A save that is over has no list of units that anybody could wait for.
TEST_F(Guard, NothingIsWaitedForAfterTheEnd)
{
    zoff_save_unit unit = {};
    saves[0].units = &unit;
    saves[0].unit_count = 1;
    zoff_checkpoint_saver_attach(&saves[0]);
    place->before_all(place->ctx); // returns, although the unit is PENDING
    EXPECT_EQ(ZOFF_UNIT_PENDING, unit.state);
}
