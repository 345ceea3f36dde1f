// wire_device_test.cc: ranks whose communicator accesses their devices' memory: gradients and weights go from device to
// device, with the bits of the host's way.
#include "batches.h"
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
// The communicator can access the memory of emulated devices, because it is this process's. Streams are slowed down differently
// on each rank.
class reached_transfer : public device_transfer
{
  public:
    explicit reached_transfer(zoff_comm *ranks) : device_transfer(ranks, 11 + zoff_comm_rank(ranks))
    {
        ranks->reaches = "emulated";
        EXPECT_ZOFF_OK(zoff_transfer_route_choose(&t));
        EXPECT_TRUE(t.route.reaches);
        values.zero_stage = 2;
    }
    void add_some()
    {
        add(50, 3, ZOFF_BF16, ZOFF_BF16);
        add(200, 1, ZOFF_F32, ZOFF_F32);
        add(30, 2, ZOFF_F32, ZOFF_F32, true);
        add(1, 5, ZOFF_F32, ZOFF_F16);
    }
};

TEST(WireDeviceFind, WantsSeveralRanksAndTheirDevices)
{
    device_transfer alone;
    alone.wire.ranks->reaches = "emulated";
    ASSERT_ZOFF_OK(zoff_transfer_route_choose(&alone.t));
    EXPECT_FALSE(alone.t.route.reaches) << "one rank alone sends nothing";
    each_rank<device_transfer>(2, [](device_transfer &self, unsigned rank) {
        for (const char *reaches : {(const char *)nullptr, "cuda", "emulated"}) {
            self.wire.ranks->reaches = reaches;
            ASSERT_ZOFF_OK(zoff_transfer_route_choose(&self.t));
            EXPECT_EQ(reaches && reaches[0] == 'e', self.t.route.reaches);
        }
        self.wire.ranks->device = 3;
        EXPECT_ZOFF_FAILS(
            ZOFF_ERR_INVALID,
            "rank " + std::to_string(rank) +
                ": the communicator is on device 3 of \"emulated\", but the accelerator is device 0: open both on "
                "the same device",
            zoff_transfer_route_choose(&self.t));
        self.t.route.reaches = false;
        small_transfer host(self.wire.ranks);
        ASSERT_ZOFF_OK(zoff_transfer_route_choose(&host.t));
        EXPECT_FALSE(host.t.route.reaches) << "weights are on the host";
    });
}

TEST(WireDeviceCheck, RefusesSumsThatTheCommunicatorDoesNotMake)
{
    device_transfer self;
    zoff_comm *ranks = self.wire.ranks;
    ASSERT_ZOFF_OK(zoff_transfer_route_check(&self.t));
    self.values.nccl_adds = true;
    const std::string words = "zoff.reduce_scatter is \"nccl\": the communicator has to sum gradients, and \"threads\" "
                              "cannot do so in memory of accelerator \"emulated\". Open \"nccl\" and \"cuda\", or set it to "
                              "\"ordered\"";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_transfer_route_check(&self.t));
    ranks->adds = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_transfer_route_check(&self.t));
    ranks->reaches = "cuda";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_transfer_route_check(&self.t));
    ranks->reaches = "emulated";
    ASSERT_ZOFF_OK(zoff_transfer_route_check(&self.t));
    self.values.wire_dtype = ZOFF_F32;
    ASSERT_ZOFF_OK(zoff_transfer_route_check(&self.t));
    self.values.wire_dtype = ZOFF_BF16;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "which sums in fp32, and communication_data_type is \"bf16\": remove that key",
                      zoff_transfer_route_check(&self.t));
    ranks->adds = false;
    ranks->reaches = nullptr;
}

TEST(WireDeviceBytes, AreThoseOfSlotsAndSums)
{
    each_rank<reached_transfer>(2, [](reached_transfer &self, unsigned) {
        self.add_some();
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        const uint64_t sums = self.parts.plan.owned_elements * sizeof(float);
        EXPECT_EQ(1000 + sums, self.t.route.wire->device_bytes(&self.t, &self.parts.plan, 1000));
        EXPECT_EQ(self.t.ranks.staging.bytes + sums, zoff_transfer_ranks_device_bytes(&self.t, &self.parts.plan));
        EXPECT_NE(nullptr, self.t.ranks.wire.slots);
    });
}

TEST(WireDeviceOpen, LeavesNothingBehindWhereTheDeviceFails)
{
    each_rank<reached_transfer>(2, [](reached_transfer &self, unsigned) {
        self.add_some();
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(64));
        self.t.ranks.staging.bytes = 640;
        zoff_status status = ZOFF_ERR_DEVICE;
        int n = 0;
        while (status != ZOFF_OK && n < 100) {
            self.device.calls = 0;
            self.device.fail = ++n;
            status = self.t.route.wire->open(&self.t);
            self.device.fail = 0;
            EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_DEVICE);
            if (n == 1) {
                EXPECT_NE(nullptr, strstr(zoff_last_error(), "buffers for the exchange between ranks (a smaller "
                                                             "reduce_bucket_size reduces them), 640 bytes of device memory: "))
                    << zoff_last_error();
            }
            self.t.route.wire->close(&self.t);
        }
        EXPECT_EQ(2 + ZOFF_REDUCE_SLOTS + ZOFF_GATHER_SLOTS + 1 + 1, n)
            << "two of memory, an event a slot, and the accumulator is pinned";
        self.t.ranks.staging.bytes = 0;
    });
}

class WireDevice : public testing::TestWithParam<unsigned>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, WireDevice, testing::Values(2u, 3u), testing::PrintToStringParamName());

double weight_of(unsigned rank, unsigned round)
{
    return 0.5 + rank + 0.25 * round;
}

// On the device micro-batch by micro-batch; the last one's sums are downloaded, and measured on the host.
void expect_sums(const small_transfer &self, unsigned rounds)
{
    each_own_piece(self, [&](const zoff_plan_piece &piece) {
        for (size_t k = 0; k < piece.count; k++) {
            const float want = sum_of(self, piece.param, piece.slice, piece.first + k, rounds, weight_of);
            EXPECT_EQ(want, self.t.ranks.wire.sums[piece.owned_offset + k]) << "on the device";
            EXPECT_EQ(want, zoff_transfer_pieces_sum(&self.t, &piece)[k]) << "on the host";
        }
    });
}

TEST_P(WireDevice, AddsUpWithTheBitsOfTheHost)
{
    each_rank<reached_transfer>(GetParam(), [](reached_transfer &self, unsigned rank) {
        self.values.accumulation = 2;
        self.add_some();
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        batches all(self);
        for (int step = 0; step < 2; step++) {
            zoff_transfer_measure_begin(&self.t);
            for (unsigned round = 0; round < 2; round++)
                ASSERT_NO_FATAL_FAILURE(all.run(round, weight_of(rank, round)));
            expect_sums(self, 2);
            EXPECT_EQ(self.parts.plan.chunk_count, self.t.measure.buckets);
            EXPECT_EQ(0u, self.t.ranks.wire.waits);
            EXPECT_EQ(self.t.device.downloads.first, self.t.device.downloads.end) << "gradients stay";
            self.t.batch.micro = 0;
            memset(self.parts.m.flags, 0, self.parts.m.slice_count);
        }
    });
}

// One call to the device fails, another one each time. The retry gives the same sums, and nothing is added twice.
TEST_P(WireDevice, CanBeTriedAgainWhereTheDeviceFails)
{
    for (int n = 1; n < 32; n++) {
        each_rank<reached_transfer>(GetParam(), [n](reached_transfer &self, unsigned rank) {
            self.values.accumulation = 2;
            self.add_some();
            ASSERT_NO_FATAL_FAILURE(self.open(64));
            batches all(self);
            ASSERT_NO_FATAL_FAILURE(all.run(0, weight_of(rank, 0)));
            all.begin(weight_of(rank, 1));
            all.each_gradient(1, [&](size_t p, size_t slice) { all.take(p, slice, 1); });
            zoff_transfer_reduce_scatter_close(&self.t);
            self.device.calls = 0;
            self.device.fail = n;
            int failed = 0;
            zoff_status status;
            while ((status = zoff_transfer_reduce_scatter_finish(&self.t)) != ZOFF_OK && failed < 5) {
                EXPECT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
                failed++;
            }
            EXPECT_EQ(ZOFF_OK, status);
            EXPECT_EQ(self.device.calls >= n ? 1 : 0, failed);
            expect_sums(self, 2);
        });
    }
}

// New weights are in staging slots of the ranks that have updated them, or on their device.
TEST_P(WireDevice, BringsNewWeightsFromDeviceToDevice)
{
    each_rank<reached_transfer>(GetParam(), [](reached_transfer &self, unsigned) {
        self.add_some();
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        for (unsigned step = 0; step < 2; step++) {
            for (size_t i = 0; i < self.parts.m.slice_count; i++)
                self.parts.m.flags[i] = i % 3 == step ? 0 : ZOFF_SLICE_PRESENT;
            update(self, step);
            const bool stages = step == 1;
            for (size_t b = 0; stages && b < 2 && b < self.parts.plan.chunk_count; b++)
                ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, b));
            each_own_piece(self, [&](const zoff_plan_piece &piece) {
                char *staged = zoff_transfer_staging_weights(&self.t, &piece, nullptr);
                for (size_t k = 0; staged && k < piece.count; k++) {
                    put(self.param(piece.param).dtype, staged, k, updated(piece.param, piece.slice, piece.first + k, step));
                    if (self.flag(piece.param, piece.slice)) // the device has the old weights
                        put(self.param(piece.param).dtype, value(self, piece.param, piece.slice), piece.first + k, -1);
                }
            });
            ASSERT_NO_FATAL_FAILURE(gather(self, zoff_transfer_all_gather_weights));
            for (const auto &[p, slices] : {std::pair<size_t, size_t>{0, 3}, {1, 1}, {3, 5}}) {
                for (size_t slice = 0; slice < slices; slice++) {
                    if (self.flag(p, slice))
                        expect_updated(self, p, slice, step);
                }
            }
            size_t changed = 0;
            for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
                size_t bytes = 0;
                for (unsigned rank = 0; rank < self.wire.size(); rank++)
                    bytes += zoff_transfer_all_gather_part_bytes(&self.t, b, rank);
                changed += bytes > 0;
                EXPECT_TRUE(self.t.walk.runs[b].gathered);
                EXPECT_EQ(nullptr, self.t.walk.runs[b].staging) << "its staging slot is free";
            }
            EXPECT_EQ(changed, self.t.batch.updated);
            EXPECT_EQ(0u, self.t.ranks.wire.waits);
            EXPECT_EQ(stages, self.t.device.write_bytes > 0) << "only what is in staging slots goes up";
        }
    });
}

class adding_transfer : public reached_transfer
{
  public:
    explicit adding_transfer(zoff_comm *ranks) : reached_transfer(ranks)
    {
        ranks->adds = true;
        values.nccl_adds = true;
    }
};

// A communicator that adds gets gradients times their weight, in fp32 and in parts of equal length. One sum comes back.
TEST(WireDeviceAdds, SendsWeightedGradientsAndTakesTheirSum)
{
    each_rank<adding_transfer>(2, [](adding_transfer &self, unsigned rank) {
        self.add(50, 2, ZOFF_BF16, ZOFF_BF16);
        self.add(21, 3, ZOFF_F32, ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        ASSERT_TRUE(self.t.route.adds);
        const zoff_wire *wire = self.t.route.wire;
        const float weight = 3.5f + (float)rank, ignored[] = {7, 9};
        *(float *)(uintptr_t)zoff_zero_reduce_own_weight(self.t.ranks.reduce) = weight; // as a micro-batch does
        for (size_t p = 0; p < 2; p++) {
            for (size_t slice = 0; slice < 2; slice++) {
                self.make_gradient(p, slice, 0);
                self.flag(p, slice) = ZOFF_SLICE_READY;
            }
        }
        size_t padding = 0;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            const size_t *bytes = zoff_transfer_wire_parts(&self.t, b), count = bytes[0] / 4;
            EXPECT_EQ(bytes[0], bytes[1]);
            EXPECT_EQ(0u, bytes[0] % 16);
            float *out = (float *)self.there->alloc(2 * bytes[0]);
            std::fill_n(out, 2 * count, NAN);
            zoff_status status;
            while ((status = wire->pack(&self.t, b, 0, (char *)out)) == ZOFF_PENDING)
                usleep(20);
            ASSERT_ZOFF_OK(status);
            for (unsigned to = 0; to < 2; to++) {
                zoff_plan_cursor part = zoff_zero_plan_part(&self.parts.plan, b, to);
                zoff_plan_piece piece;
                const float *at = out + to * count;
                while (zoff_zero_plan_next(&part, &piece)) {
                    for (size_t k = piece.first; k < piece.first + piece.count; k++)
                        EXPECT_EQ(piece.slice == 2 ? 0 : weight * self.gradient(rank, piece.param, piece.slice, k, 0), *at++);
                }
                for (; at < out + (to + 1) * count; at++, padding++)
                    EXPECT_EQ(0, *at) << "it is added, too";
            }
            for (size_t k = 0; k < count; k++)
                out[k] = (float)(k + 1);
            while ((status = wire->sum(&self.t, b, 0, (const char *)out, ignored)) == ZOFF_PENDING)
                usleep(20);
            ASSERT_ZOFF_OK(status);
            const zoff_plan_span own = zoff_zero_plan_own(&self.parts.plan, b);
            float want = 1;
            for (size_t i = own.first_piece; i < own.first_piece + own.piece_count; i++) {
                for (size_t k = 0; k < self.parts.plan.pieces[i].count; k++)
                    EXPECT_EQ(want++, self.t.ranks.wire.sums[self.parts.plan.pieces[i].owned_offset + k]);
            }
        }
        EXPECT_LT(0u, padding);
    });
}
} // namespace
