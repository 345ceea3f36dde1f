// bring_test.cc: parts of a checkpoint come to their places, verified, whatever their sizes and order. A damaged one stops it.
#include "small_save.h"

using namespace zoff_test;

namespace
{
// A checkpoint with one parameter of a little more than two units.
class Bring : public testing::Test
{
  protected:
    enum { COUNT = 2 * ZOFF_ARCHIVE_UNIT / 4 + 5000 };
    Bring()
    {
        for (size_t i = 0; i < values.size(); i++)
            values[i] = (float)i * 0.5f;
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        zoff_checkpoint_writer *w = nullptr;
        p.name = "w";
        p.count = COUNT;
        p.states = 1u << ZOFF_STATE_MASTER;
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_open(folder.path.c_str(), nullptr, 1, &p, 1, nullptr, &w));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_write(w, 0, ZOFF_STATE_MASTER, 0, COUNT, values.data()));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(w));
        zoff_checkpoint_writer_close(w);
        a = open_archive(folder.path);
        zoff_checkpoint_bring_open(a.get(), 2, &b);
    }
    ~Bring() override { zoff_checkpoint_bring_close(&b); }
    // Ask for bytes of a unit; all of it is read into its place.
    void add(uint64_t unit, size_t from, size_t bytes, char *to, bool whole = false)
    {
        zoff_bring_part part = {};
        part.unit = {0, 0, unit};
        part.is_whole = whole;
        part.from = from;
        part.bytes = bytes;
        part.to = to;
        ASSERT_ZOFF_OK(zoff_checkpoint_bring_add(&b, &part));
    }
    const char *at(uint64_t unit, size_t from) const { return (const char *)values.data() + unit * ZOFF_ARCHIVE_UNIT + from; }

    log_catcher log;
    scratch_folder folder;
    std::vector<float> values = std::vector<float>(COUNT);
    archive a;
    zoff_bringer b = {};
};
} // namespace

TEST_F(Bring, WholeUnitsAndPartsInAnyOrder)
{
    pages whole(ZOFF_ARCHIVE_UNIT);
    std::vector<char> head(100), tail(20000), middle(4096);
    ASSERT_NO_FATAL_FAILURE(add(1, 0, ZOFF_ARCHIVE_UNIT, whole.data(), true));
    ASSERT_NO_FATAL_FAILURE(add(2, 0, tail.size(), tail.data()));
    ASSERT_NO_FATAL_FAILURE(add(0, 8, head.size(), head.data()));
    ASSERT_NO_FATAL_FAILURE(add(0, 1 << 20, middle.size(), middle.data()));
    ASSERT_NO_FATAL_FAILURE(add(0, 0, 64, nullptr)); // only verified
    const uint64_t end = zoff_checkpoint_bring_end(&b);
    EXPECT_EQ(5u, end);
    ASSERT_ZOFF_OK(zoff_checkpoint_bring_begin(&b));
    ASSERT_ZOFF_OK(zoff_checkpoint_bring_until(&b, end));
    EXPECT_EQ(0, memcmp(at(1, 0), whole.data(), ZOFF_ARCHIVE_UNIT));
    EXPECT_EQ(0, memcmp(at(2, 0), tail.data(), tail.size()));
    EXPECT_EQ(0, memcmp(at(0, 8), head.data(), head.size()));
    EXPECT_EQ(0, memcmp(at(0, 1 << 20), middle.data(), middle.size()));
}

TEST_F(Bring, MorePartsThanBuffers)
{
    std::vector<std::vector<char>> parts;
    for (unsigned round = 0; round < 3; round++) {
        parts.assign(60, std::vector<char>(1000));
        for (size_t i = 0; i < parts.size(); i++)
            ASSERT_NO_FATAL_FAILURE(add(i % 3, i * 256, parts[i].size(), parts[i].data()));
        ASSERT_ZOFF_OK(zoff_checkpoint_bring_until(&b, zoff_checkpoint_bring_end(&b)));
        for (size_t i = 0; i < parts.size(); i++)
            EXPECT_EQ(0, memcmp(at(i % 3, i * 256), parts[i].data(), parts[i].size())) << "part " << i;
    }
}

TEST_F(Bring, ADamagedUnitIsNamedAndTheRestDropped)
{
    pages whole(ZOFF_ARCHIVE_UNIT);
    std::vector<char> part(100);
    flip_byte(path_of(a.get(), 0), a->tables[0].regions[0].offset + ZOFF_ARCHIVE_UNIT + 77);
    ASSERT_NO_FATAL_FAILURE(add(0, 0, part.size(), part.data()));
    ASSERT_NO_FATAL_FAILURE(add(1, 0, ZOFF_ARCHIVE_UNIT, whole.data(), true));
    ASSERT_NO_FATAL_FAILURE(add(2, 0, part.size(), part.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "master of 'w'", zoff_checkpoint_bring_until(&b, zoff_checkpoint_bring_end(&b)));
    zoff_checkpoint_bring_stop(&b);
    ASSERT_NO_FATAL_FAILURE(add(0, 16, part.size(), part.data())); // it can be used again
    ASSERT_ZOFF_OK(zoff_checkpoint_bring_until(&b, zoff_checkpoint_bring_end(&b)));
    EXPECT_EQ(0, memcmp(at(0, 16), part.data(), part.size()));
}
