// threads_test.cc: how many threads are enough for an update that waits for the disk.
#include <gtest/gtest.h>

extern "C" {
#include "engine_priv.h"
}

TEST(UpdateThreads, AreAsManyAsThereIsWorkFor)
{
    struct {
        double worked, waited;
        unsigned used, most, want;
    } const cases[] = {
        {0, 0, 2, 2, 2},         // Nothing is known.
        {0.02, 0.18, 2, 2, 1},   // One thread keeps up with the disk.
        {0.04, 0.16, 1, 2, 1},   // It stays one.
        {0.10, 0.10, 1, 2, 1},   // Half of the time: a third is still free.
        {0.14, 0.06, 1, 2, 2},   // More than two thirds: the work would show.
        {0.20, 0, 2, 2, 2},      // The disk waits: take all threads.
        {0.20, 0, 16, 16, 16},   // Likewise.
        {1, 1, 16, 16, 13},      // Half of the time with sixteen: 8 / (2/3), and one for the rest.
        {0.28, 0.72, 16, 16, 7}, // A fast array of drives.
        {0.001, 10, 16, 16, 1},  // Hardly any work.
        {1, 0.3, 7, 16, 9},      // Seven were too few: nine next time.
    };
    for (const auto &c : cases)
        EXPECT_EQ(c.want, zoff_engine_threads_enough(c.worked, c.waited, c.used, c.most))
            << c.worked << " s of work, " << c.waited << " s of waiting, " << c.used << " of " << c.most;
}

// Both settings are tried. Then the faster one is used, and the other tried again after fifty steps.
TEST(MeasureThreads, TheQuickerOneIsTaken)
{
    for (bool few_is_quicker : {false, true}) {
        zoff_measure_threads m = {};
        int slow = 0;
        for (int step = 0; step < 1000; step++) {
            const bool is_quick = m.few == few_is_quicker;
            slow += !is_quick;
            zoff_engine_threads_choose(&m, is_quick ? 0.002 : 0.010);
        }
        EXPECT_GE(slow, 15) << "a machine may change";
        EXPECT_LE(slow, 25);
    }
}

// The choice changes when the machine changes.
TEST(MeasureThreads, TheMachineMayChange)
{
    zoff_measure_threads m = {};
    for (int step = 0; step < 100; step++)
        zoff_engine_threads_choose(&m, m.few ? 0.002 : 0.010);
    int few = 0;
    for (int step = 0; step < 200; step++) {
        few += m.few && step >= 60;
        zoff_engine_threads_choose(&m, m.few ? 0.010 : 0.002);
    }
    EXPECT_LE(few, 5);
}

// Any measurement gives at least one thread, and no more than were asked for.
TEST(UpdateThreads, AreBetweenOneAndAll)
{
    for (double worked = 1e-6; worked < 100; worked *= 1.7) {
        for (double waited = 1e-6; waited < 100; waited *= 1.9) {
            for (unsigned most : {1u, 2u, 5u, 64u}) {
                const unsigned enough = zoff_engine_threads_enough(worked, waited, most, most);
                EXPECT_GE(enough, 1u);
                EXPECT_LE(enough, most);
            }
        }
    }
}
