// units_test.cc: buffers and copies of a save, and where a unit comes from and goes to.
#include "small_save.h"

using namespace zoff_test;

TEST(Units, BuffersComeBack)
{
    zoff_save_buffers b = {};
    char memory[3];
    EXPECT_EQ(nullptr, zoff_checkpoint_units_take_buffer(&b));
    zoff_checkpoint_units_give_buffer(&b, nullptr);
    EXPECT_EQ(nullptr, zoff_checkpoint_units_take_buffer(&b)) << "NULL is no buffer";
    for (char &one : memory)
        zoff_checkpoint_units_give_buffer(&b, &one);
    std::set<char *> taken;
    for (size_t i = 0; i < sizeof memory; i++)
        taken.insert(zoff_checkpoint_units_take_buffer(&b));
    EXPECT_EQ((std::set<char *>{&memory[0], &memory[1], &memory[2]}), taken);
    EXPECT_EQ(nullptr, zoff_checkpoint_units_take_buffer(&b));
}

TEST(Units, CopiesAreTakenInTheirOrder)
{
    zoff_save_work w = {};
    zoff_save_unit units[3] = {};
    for (zoff_save_unit &unit : units) {
        zoff_checkpoint_units_add_copy(&w, &unit);
        EXPECT_EQ(ZOFF_UNIT_COPIED, unit.state);
    }
    for (zoff_save_unit &unit : units) {
        EXPECT_EQ(&unit, w.first_copy);
        zoff_checkpoint_units_take_copy(&w);
        EXPECT_EQ(ZOFF_UNIT_SAFE, unit.state);
    }
    EXPECT_EQ(nullptr, w.first_copy);
    zoff_checkpoint_units_add_copy(&w, &units[1]); // after the list was empty
    EXPECT_EQ(&units[1], w.first_copy);
}

TEST(Units, NobodyWaitsForASaveThatHasEnded)
{
    zoff_saver s = {};
    EXPECT_FALSE(zoff_checkpoint_units_idle(&s));
    s.work.is_over = true;
    EXPECT_TRUE(zoff_checkpoint_units_idle(&s));
    s.work = {};
    s.work.status = ZOFF_ERR_IO;
    EXPECT_TRUE(zoff_checkpoint_units_idle(&s));
}

TEST(Units, HaveTheirRegionAndChecksum)
{
    zoff_archive_region regions[] = {{4096, 4096, 4096, 0}, {8192, 5 * 4096, 2 * 4096, 1}};
    uint64_t checksums[4] = {};
    zoff_save_source sources[2] = {};
    sources[1].region = 1;
    zoff_saver s = {};
    s.part.table.regions = regions;
    s.part.table.checksums = checksums;
    s.sources = sources;
    zoff_save_unit unit = {};
    unit.source = 1;
    unit.number = 2;
    EXPECT_EQ(&sources[1], zoff_checkpoint_units_source(&s, &unit));
    EXPECT_EQ(&regions[1], zoff_checkpoint_units_region(&s, &unit));
    EXPECT_EQ(4096u, zoff_checkpoint_units_bytes(&s, &unit)) << "the last unit is shorter";
    EXPECT_EQ(&checksums[3], zoff_checkpoint_units_checksum(&s, &unit));
}
