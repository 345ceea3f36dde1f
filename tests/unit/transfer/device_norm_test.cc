// device_norm_test.cc: a device measures gradients in place: the same sums of squares as on the host, bucket by bucket.
#include "device_transfer.h"

#include <math.h>

using namespace zoff_test;

namespace
{
zoff_status measure(small_transfer &self, size_t bucket)
{
    zoff_status status;
    self.t.walk.runs[bucket].chunk = bucket;
    while ((status = zoff_transfer_device_norm_measure(&self.t, &self.t.walk.runs[bucket])) == ZOFF_PENDING)
        usleep(20);
    return status;
}

class DeviceNorm : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(3000, 2, ZOFF_BF16, ZOFF_BF16);
        self.add(100, 1, ZOFF_F32, ZOFF_F32, true);
        self.add(700, 2, ZOFF_F32, ZOFF_F32);
    }
    double total() const { return zoff_base_exact_value(&self.t.measure.vote.squares); }
    device_transfer self{nullptr, 5};
};

TEST_F(DeviceNorm, HasTheSumsOfAPlainLoop)
{
    ASSERT_NO_FATAL_FAILURE(self.open(1024));
    for (int step = 0; step < 2; step++) {
        double want = 0;
        memset(self.parts.m.flags, 0, self.parts.m.slice_count);
        zoff_transfer_measure_begin(&self.t);
        for (const auto &[p, slice] : {std::pair<size_t, size_t>{0, 0}, {0, 1}, {2, 0}, {2, 1}}) {
            const double squares = fill_with_integers(self, p, slice);
            const bool is_there = (p + slice + (size_t)step) % 3 != 0;
            self.flag(p, slice) = is_there ? ZOFF_SLICE_READY : 0;
            want += is_there ? squares : 0;
        }
        ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.compute));
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) { // several buckets at once
            self.t.walk.runs[b].chunk = b;
            EXPECT_EQ(ZOFF_PENDING, zoff_transfer_device_norm_measure(&self.t, &self.t.walk.runs[b]));
        }
        self.let_go = true;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            EXPECT_TRUE(zoff_transfer_device_norm_has(&self.t, b));
            ASSERT_ZOFF_OK(measure(self, b));
            EXPECT_FALSE(self.t.walk.runs[b].measures);
        }
        EXPECT_EQ(want, total());
        EXPECT_EQ(self.parts.plan.chunk_count, self.t.measure.buckets);
        EXPECT_EQ(0u, self.t.device.norm.waits);
        EXPECT_TRUE(self.t.device.computes);
    }
    EXPECT_FALSE(zoff_transfer_device_norm_has(&self.t, self.parts.plan.chunk_count));
}

TEST_F(DeviceNorm, NamesTheBlockThatIsNotFinite)
{
    ASSERT_NO_FATAL_FAILURE(self.open(4096));
    zoff_transfer_measure_begin(&self.t);
    const double want = fill_with_integers(self, 2, 0);
    fill_with_integers(self, 0, 1);
    put(ZOFF_BF16, self.param(0).grad + self.param(0).grad_stride, 2222, NAN);
    self.flag(0, 1) = self.flag(2, 0) = ZOFF_SLICE_READY;
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
        ASSERT_ZOFF_OK(measure(self, b));
    const zoff_vote &vote = self.t.measure.vote;
    EXPECT_TRUE(vote.poisoned);
    EXPECT_EQ(0u, vote.param);
    EXPECT_EQ(1u, vote.slice);
    EXPECT_LE(vote.first, 2222u);
    EXPECT_LT(2222u, vote.first + ZOFF_NORM_BLOCK);
    EXPECT_LT(want, total()) << "finite blocks count";
}

TEST_F(DeviceNorm, IsPendingUntilTheSumsAreThere)
{
    ASSERT_NO_FATAL_FAILURE(self.open(1024));
    zoff_bucket_run &run = self.t.walk.runs[0];
    run.chunk = 0;
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.compute));
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(ZOFF_PENDING, zoff_transfer_device_norm_measure(&self.t, &run));
        EXPECT_EQ(1u, self.t.device.norm.waits) << "it is asked once";
        EXPECT_TRUE(run.measures);
    }
    EXPECT_EQ(0u, self.t.measure.buckets);
    self.let_go = true;
    ASSERT_ZOFF_OK(measure(self, 0));
    EXPECT_EQ(1u, self.t.measure.buckets);
}

// After a failure of any call the norm can be tried again, and is counted once.
TEST_F(DeviceNorm, CanBeTriedAgainWhereTheDeviceFails)
{
    ASSERT_NO_FATAL_FAILURE(self.open(1024));
    const double want = fill_with_integers(self, 0, 0);
    self.flag(0, 0) = ZOFF_SLICE_READY;
    EXPECT_EQ(nullptr, self.t.device.norm.there);
    for (const bool polls : {false, true}) {
        for (int n = 1; n <= (polls ? 1 : 2); n++) {
            zoff_transfer_measure_begin(&self.t);
            self.device.fails_polls = polls;
            self.device.calls = 0;
            self.device.fail = n;
            EXPECT_EQ(ZOFF_ERR_DEVICE, measure(self, 0)) << "call " << n;
            self.device.fail = 0;
            EXPECT_EQ(0u, self.t.measure.buckets);
            for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
                ASSERT_ZOFF_OK(measure(self, b));
            EXPECT_EQ(want, total());
            EXPECT_EQ(0u, self.t.device.norm.waits);
        }
    }
}

// Kernels cannot write to memory of the host that the system refuses to pin: the sums are copied.
TEST_F(DeviceNorm, CopiesTheSumsToMemoryThatIsNotPinned)
{
    self.device.refuses_to_pin = true;
    ASSERT_NO_FATAL_FAILURE(self.open(1024));
    ASSERT_NE(nullptr, self.t.device.norm.there);
    const double want = fill_with_integers(self, 0, 0);
    self.flag(0, 0) = ZOFF_SLICE_READY;
    for (int n = 0; n <= 3; n++) {
        zoff_transfer_measure_begin(&self.t);
        self.device.calls = 0;
        self.device.fail = n;
        EXPECT_EQ(n == 0 ? ZOFF_OK : ZOFF_ERR_DEVICE, measure(self, 0)) << "call " << n;
        self.device.fail = 0;
        for (size_t b = n == 0 ? 1 : 0; b < self.parts.plan.chunk_count; b++)
            ASSERT_ZOFF_OK(measure(self, b));
        EXPECT_EQ(want, total());
    }
}

// A rank may own nothing of the buckets that the device measures.
TEST(DeviceNormOfNothing, IsNoWork)
{
    each_rank<device_transfer>(2, [](device_transfer &self, unsigned rank) {
        self.add(5);
        self.values.ratio = 0;
        self.t.route.wire = &zoff_transfer_wire_device;
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(1024));
        ASSERT_EQ(1u, self.parts.plan.chunk_count);
        ASSERT_EQ(rank == 0, zoff_transfer_device_norm_bytes(&self.t, &self.parts.plan) > 0);
        zoff_transfer_streams_watch(&self.t);
        ASSERT_ZOFF_OK(zoff_transfer_device_norm_open(&self.t));
        zoff_transfer_measure_begin(&self.t);
        if (rank == 1) {
            ASSERT_ZOFF_OK(zoff_transfer_device_norm_put(&self.t, 0, self.t.device.compute));
            zoff_transfer_device_norm_take(&self.t, 0);
            EXPECT_EQ(1u, self.t.measure.buckets);
        }
        zoff_transfer_device_norm_close(&self.t);
        self.t.accel->ops->streams.close(self.t.accel, self.t.device.compute);
        self.t.device.compute = nullptr;
    });
}

TEST_F(DeviceNorm, ReservesEightBytesForEachBlock)
{
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(1024));
    uint64_t blocks = 0;
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
        blocks += self.parts.plan.chunks[b].blocks;
    EXPECT_EQ(8 * blocks, zoff_transfer_device_norm_bytes(&self.t, &self.parts.plan));
    self.values.accumulation = 2; // sums are on the host
    self.choose();
    EXPECT_EQ(0u, zoff_transfer_device_norm_bytes(&self.t, &self.parts.plan));
    self.values.ratio = 0; // they stay on the device
    EXPECT_EQ(8 * blocks, zoff_transfer_device_norm_bytes(&self.t, &self.parts.plan));
    self.values.accumulation = 1;
    self.choose();
    each_rank<device_transfer>(2, [](device_transfer &ranks, unsigned) {
        ranks.add(3000);
        ASSERT_NO_FATAL_FAILURE(ranks.open_pieces(1024));
        EXPECT_EQ(0u, zoff_transfer_device_norm_bytes(&ranks.t, &ranks.parts.plan)) << "sums are on the host";
    });
}

TEST_F(DeviceNorm, LeavesNothingBehindThatItCouldNotOpen)
{
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(1024));
    zoff_transfer_streams_watch(&self.t);
    for (const bool refuses : {false, true}) {
        self.device.refuses_to_pin = refuses;
        zoff_status status = ZOFF_ERR_DEVICE;
        for (int n = 1; status != ZOFF_OK; n++) {
            self.device.calls = 0;
            self.device.fail = n;
            status = zoff_transfer_device_norm_open(&self.t);
            self.device.fail = 0;
            EXPECT_EQ(status == ZOFF_OK, self.t.device.norm.sums != nullptr);
            EXPECT_TRUE(status == ZOFF_OK || (status == ZOFF_ERR_DEVICE && n < 100)) << zoff_last_error();
            zoff_transfer_device_norm_close(&self.t);
            EXPECT_EQ(nullptr, self.t.device.norm.there);
            EXPECT_EQ(nullptr, self.t.device.norm.landing.base);
            if (self.t.device.compute)
                self.t.accel->ops->streams.close(self.t.accel, self.t.device.compute);
            self.t.device.compute = nullptr;
        }
    }
}
} // namespace
