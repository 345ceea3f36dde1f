/* SPDX-License-Identifier: Apache-2.0 */
// update_test.cc: an update tile by tile gives the bits of an update at once.
#include "small_engine.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
// Buckets of more than one tile: the bytes that are hashed during the update are those that are written. This holds for any
// mixture of types, optimizers, and slices with and without a gradient. Any other checksum makes the next step fail.
TEST(Tiles, AreHashedAsTheyAreWritten)
{
    for (const char *more : {"\"persist\": true", "\"verify\": \"sample\"", "\"verify\": \"full\""}) {
        log_catcher log;
        scratch_folder folder;
        trainer t(5);
        t.add(700001, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(90000, 3, ZOFF_F32, ZOFF_BF16, 0, false, 1);
        t.add(300000, 1, ZOFF_F16, ZOFF_F32, 1);
        t.add(400, 1, ZOFF_BF16, ZOFF_BF16, 2);
        t.add(1024, 1, ZOFF_F32, ZOFF_F32);
        std::vector<zoff_optimizer_hyper> groups = config_groups(3);
        zoff_optimizer_hyper_init(&groups[1], ZOFF_OPTIMIZER_LION);
        zoff_optimizer_hyper_init(&groups[2], ZOFF_OPTIMIZER_SGD);
        const std::string text = config_text(folder.path, 1, std::string(", \"zoff\": {") + more + "}");
        engine e = make_engine(t, text);
        for (unsigned group : {1, 2})
            ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), group, &groups[group]));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        EXPECT_GE(plan_of(e.get()).chunk_bytes, 4000000u) << "more than one tile";
        for (int64_t k = 1; k <= 4; k++) {
            t.next_step();
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                    if ((i + slice + (size_t)k) % 3 == 0 && k > 1)
                        continue;
                    t.backward(i, slice, 0.1f);
                    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), (zoff_param)i, slice, nullptr));
                }
            }
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
            reference::step(t.tensors, groups, k, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get(), groups));
    }
}

// Sizes around a tile of 256 Ki elements, in one chunk. An element that a tile skips or takes twice has other bits. A hash that
// is computed too early or not at all makes the next step fail, which compares.
TEST(Tiles, StatesInFilesAreThoseInDramAroundATile)
{
    const size_t tile = 256 * 1024;
    const std::vector<std::vector<size_t>> sizes = {
        {tile - 1}, {tile}, {tile + 1}, {tile + 1024}, {tile - 1000, 2000}, {tile, 1}, {1023, tile - 1023, 5000}};
    for (const auto &counts : sizes) {
        SCOPED_TRACE(std::to_string(counts.size()) + " parameters, the first of " + std::to_string(counts[0]));
        log_catcher log;
        scratch_folder folder;
        trainer in_files(9), in_dram(9);
        for (trainer *t : {&in_files, &in_dram}) {
            for (size_t count : counts)
                t->add(count, 1, ZOFF_BF16, ZOFF_BF16);
        }
        engine files = seal_engine(in_files, config_text(folder.path), tile + 8192);
        engine dram = seal_engine(in_dram, config_text(""), tile + 8192);
        ASSERT_EQ(1u, plan_of(files.get()).chunk_count);
        for (int64_t k = 1; k <= 3; k++) {
            for (trainer *t : {&in_files, &in_dram}) {
                t->next_step();
                t->backward_all(0.1f);
            }
            auto a = new_info(), b = new_info();
            ASSERT_ZOFF_OK(zoff_step(files.get(), nullptr, &a));
            ASSERT_ZOFF_OK(zoff_step(dram.get(), nullptr, &b));
            EXPECT_EQ(b.numbers.elements_updated, a.numbers.elements_updated);
            EXPECT_EQ(b.bytes.host_read, a.bytes.host_read);
            EXPECT_EQ(b.bytes.host_written, a.bytes.host_written);
        }
        for (zoff_param p = 0; p < counts.size(); p++) {
            EXPECT_EQ(0, memcmp(in_dram.value(p), in_files.value(p), 2 * counts[p]));
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                std::vector<float> have(counts[p]), want(counts[p]);
                ASSERT_ZOFF_OK(zoff_state_read(files.get(), p, kind, 0, have.size(), have.data()));
                ASSERT_ZOFF_OK(zoff_state_read(dram.get(), p, kind, 0, want.size(), want.data()));
                EXPECT_EQ(0, memcmp(want.data(), have.data(), 4 * want.size())) << "state " << kind << " of " << p;
            }
        }
    }
}
} // namespace

// How many threads are enough for an update that waits for the disk.
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
        {0.20, 0, 16, 16, 16},   // The disk waits, but all threads are taken.
        {1, 1, 16, 16, 13},      // Half of the time with sixteen: 8 / (2/3), and one for the rest.
        {0.28, 0.72, 16, 16, 7}, // A fast array of drives.
        {0.001, 10, 16, 16, 1},  // Hardly any work.
        {1, 0.3, 7, 16, 9},      // Seven were too few: nine next time.
    };
    for (const auto &c : cases)
        EXPECT_EQ(c.want, zoff_engine_update_threads_enough(c.worked, c.waited, c.used, c.most))
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
            zoff_engine_update_threads_choose(&m, is_quick ? 0.002 : 0.010);
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
        zoff_engine_update_threads_choose(&m, m.few ? 0.002 : 0.010);
    int few = 0;
    for (int step = 0; step < 200; step++) {
        few += m.few && step >= 60;
        zoff_engine_update_threads_choose(&m, m.few ? 0.010 : 0.002);
    }
    EXPECT_LE(few, 5);
}

// Any measurement gives at least one thread, and no more than were asked for.
TEST(UpdateThreads, AreBetweenOneAndAll)
{
    for (double worked = 1e-6; worked < 100; worked *= 1.7) {
        for (double waited = 1e-6; waited < 100; waited *= 1.9) {
            for (unsigned most : {1u, 2u, 5u, 64u}) {
                const unsigned enough = zoff_engine_update_threads_enough(worked, waited, most, most);
                EXPECT_GE(enough, 1u);
                EXPECT_LE(enough, most);
            }
        }
    }
}
