// frozen_test.cc: frozen weights in the program's memory: slices with gaps and of odd sizes, across the borders of units, on
// the host and on a device.
#include "memory_fault.h"
#include "small_save.h"

using namespace zoff_test;

namespace
{
enum { UNIT_OF_16_BITS = ZOFF_ARCHIVE_UNIT / 2 };

class Frozen : public testing::TestWithParam<bool> // true: on a device
{
  protected:
    Frozen() : t(3) { t.add(10, 1, ZOFF_BF16, ZOFF_BF16); } // something to train
    void add(size_t count, size_t slices = 1, zoff_dtype dtype = ZOFF_BF16, size_t gap = 0)
    {
        t.add(count, slices, dtype, dtype, 0, true, gap);
    }
    // Write the weights into the file of a checkpoint.
    void write()
    {
        if (GetParam())
            t.put_on(&device);
        e = make_engine(t, config_text(""), 0, 0, nullptr, GetParam() ? device.accel : nullptr);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        save = std::make_unique<small_save>(e.get(), folder.path);
        ASSERT_ZOFF_OK(zoff_checkpoint_layout_make(&save->s, false));
        ASSERT_ZOFF_OK(zoff_archive_part_reserve(&save->s.part));
        ASSERT_ZOFF_OK(zoff_checkpoint_frozen_write(&save->s));
    }
    const zoff_archive_region &region() const { return save->s.part.table.regions[save->s.frozen.region]; }
    // The region that the pieces of the table describe: the weights, and zeros between them.
    std::vector<char> wanted()
    {
        std::vector<char> bytes(region().bytes);
        size_t elements = 0;
        for (size_t i = 0; i < save->s.part.table.piece_count; i++) {
            const zoff_archive_piece &p = save->s.part.table.pieces[i];
            if (p.kind != ZOFF_STATE_WEIGHTS)
                continue;
            const reference::tensor &one = t.tensors[p.param];
            for (size_t k = 0; k < p.count; k++)
                trainer::put(bytes.data() + p.at, one.dtype, k,
                             trainer::get(t.value(p.param), one.dtype, t.place(p.param, p.slice * one.count + p.first + k)));
            elements += p.count;
        }
        size_t all = 0;
        for (const auto &one : t.tensors)
            all += one.frozen ? one.total() : 0;
        EXPECT_EQ(all, elements);
        return bytes;
    }
    void expect_written()
    {
        ASSERT_TRUE(save->s.frozen.has);
        const std::vector<char> got = bytes_at(save->s.part.path, region().offset, region().bytes);
        const std::vector<char> want = wanted();
        EXPECT_TRUE(want == got) << "first at " << std::mismatch(want.begin(), want.end(), got.begin()).first - want.begin();
        for (size_t i = 0; i < zoff_archive_table_units(&region()); i++)
            EXPECT_EQ(zoff_digest_blocks_whole(got.data() + i * region().unit, zoff_archive_table_unit_bytes(&region(), i), 1),
                      save->checksum_of(region(), i))
                << "unit " << i;
    }
    log_catcher log;
    scratch_folder folder;
    test_device device;
    trainer t;
    engine e;
    std::unique_ptr<small_save> save;
};

INSTANTIATE_TEST_SUITE_P(Weights, Frozen, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "OnADevice" : "OnTheHost"); });

TEST_P(Frozen, SmallOnesOfEachType)
{
    add(1, 3, ZOFF_F16, 4);
    add(33, 2, ZOFF_F32, 1);
    add(0, 2);
    add(7);
    ASSERT_NO_FATAL_FAILURE(write());
    expect_written();
    EXPECT_EQ((uint64_t)ZOFF_ARCHIVE_PAGE, region().bytes);
}

TEST_P(Frozen, SlicesThatCrossUnits)
{
    add(999999, 3, ZOFF_BF16, 5); // 6 MB
    add(1234567, 1, ZOFF_F32);
    ASSERT_NO_FATAL_FAILURE(write());
    expect_written();
    EXPECT_LT(2u, zoff_archive_table_units(&region()));
}

// The unit ends in the padding behind a slice, or with it, or one element later.
TEST_P(Frozen, SlicesThatEndAtAUnit)
{
    for (int more : {-31, -1, 0, 1}) {
        SCOPED_TRACE(more);
        e.reset();
        save.reset();
        t = trainer(3);
        t.add(10, 1, ZOFF_BF16, ZOFF_BF16);
        add((size_t)(UNIT_OF_16_BITS + more));
        add(5);
        ASSERT_NO_FATAL_FAILURE(write());
        expect_written();
        EXPECT_EQ(2u, zoff_archive_table_units(&region()));
    }
}

TEST_P(Frozen, NothingBehindAWholeUnit)
{
    add(UNIT_OF_16_BITS);
    ASSERT_NO_FATAL_FAILURE(write());
    expect_written();
    EXPECT_EQ(1u, zoff_archive_table_units(&region()));
}

TEST_P(Frozen, NoneIsNoRegion)
{
    add(0, 3);
    ASSERT_NO_FATAL_FAILURE(write());
    EXPECT_FALSE(save->s.frozen.has);
    EXPECT_EQ(save->s.source_count, save->s.part.table.region_count);
}

TEST_P(Frozen, WithoutMemory)
{
    add(7);
    ASSERT_NO_FATAL_FAILURE(write());
    EXPECT_LE(1, fail_each_allocation([&] { return zoff_checkpoint_frozen_write(&save->s); }));
}
} // namespace
