// first_weights_test.cc: every rank gets rank 0's first weights, bit for bit, and nothing else changes.
#include "allocation_fault.h"
#include "comm_fault.h"
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
// The memory of a parameter's weights, with gaps behind the slices.
struct block {
    block(unsigned rank, size_t seed, size_t count, size_t slices_, zoff_dtype dtype_, size_t gap)
        : slice_bytes(count * zoff_adam_dtype_bytes(dtype_)), stride(slice_bytes + gap * zoff_adam_dtype_bytes(dtype_)),
          slices(slices_), elements(count), dtype(dtype_)
    {
        for (size_t i = 0; i < stride * slices; i++)
            bytes += (char)((i * 7 + seed * 13 + i / 251 + rank * 101) % 256);
    }
    zoff_param_desc describe(const char *name)
    {
        zoff_param_desc d = zoff_test::describe(name, elements, slices);
        d.value = &bytes[0];
        d.value_stride = stride / zoff_adam_dtype_bytes(dtype);
        d.dtype = dtype;
        return d;
    }
    std::string bytes;
    size_t slice_bytes, stride, slices, elements;
    zoff_dtype dtype;
};

struct shape {
    size_t count, slices, gap;
    zoff_dtype dtype;
};

// Add them as parameters, send, and compare with rank 0's.
void send_and_compare(small_agreement &self, unsigned rank, const std::vector<shape> &shapes)
{
    std::vector<block> mine, first;
    for (size_t i = 0; i < shapes.size(); i++) {
        const shape &s = shapes[i];
        mine.emplace_back(rank, i, s.count, s.slices, s.dtype, s.gap);
        first.emplace_back(0, i, s.count, s.slices, s.dtype, s.gap);
    }
    for (size_t i = 0; i < shapes.size(); i++) {
        zoff_param_desc d = mine[i].describe("p");
        d.frozen = i % 2;
        d.grad = d.frozen ? nullptr : d.value;
        self.parts.add(d);
    }
    std::vector<block> want = mine;
    for (size_t i = 0; i < want.size(); i++) {
        for (size_t slice = 0; slice < want[i].slices; slice++)
            want[i].bytes.replace(slice * want[i].stride, want[i].slice_bytes, first[i].bytes, slice * want[i].stride,
                                  want[i].slice_bytes);
    }
    ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
    for (size_t i = 0; i < want.size(); i++)
        EXPECT_TRUE(want[i].bytes == mine[i].bytes) << "parameter " << i;
}

TEST(FirstWeights, BecomeThoseOfRank0)
{
    on_ranks(3, [](small_agreement &self, unsigned rank) {
        send_and_compare(
            self, rank,
            {{5, 3, 2, ZOFF_BF16}, {100, 1, 0, ZOFF_F32}, {1, 7, 1, ZOFF_F16}, {33, 2, 0, ZOFF_F32}, {0, 4, 0, ZOFF_F32}});
    });
}

// More runs, and more bytes, than are sent at a time; one slice is cut.
TEST(FirstWeights, MayBeMany)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        send_and_compare(self, rank,
                         {{3, 600, 1, ZOFF_BF16},
                          {(5 << 20) / 4 + 3, 1, 0, ZOFF_F32},
                          {(2 << 20) + 1, 2, 4, ZOFF_BF16},
                          {9, 1, 0, ZOFF_F32}});
    });
}

TEST(FirstWeightsOfTheEngine, StayAsTheyAre)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        std::vector<float> owned(20, (float)(rank + 1)), own(20, (float)(rank + 1));
        zoff_param_desc d = self.weights("owned", owned.data(), 20);
        d.engine_owned = d.frozen = true;
        self.parts.add(d);
        d = self.weights("nothing", nullptr, 20);
        d.frozen = true;
        self.parts.add(d);
        d = self.weights("own", own.data(), 20);
        d.frozen = true;
        self.parts.add(d);
        ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_EQ(std::vector<float>(20, (float)(rank + 1)), owned);
        EXPECT_EQ(std::vector<float>(20, 1.0f), own);
    });
}

// The same weights under two names.
TEST(FirstWeightsThatAreTied, AreSentOnce)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        std::vector<float> value(40, (float)(rank + 1));
        self.parts.add(self.weights("a", value.data(), 40));
        self.parts.add(self.weights("b", value.data(), 40));
        ASSERT_ZOFF_OK(zoff_model_ties_find(&self.parts.m));
        std::vector<size_t> sent;
        passing_comm_fault between(self.wire.ranks);
        between.before = [&sent](const zoff_comm_work &work) {
            if (work.call.kind == ZOFF_COMM_GATHER && work.call.item.about == ZOFF_COMM_ABOUT_FIRST_WEIGHTS)
                sent.push_back(work.result_bytes);
            return ZOFF_OK;
        };
        ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_EQ((std::vector<size_t>{160}), sent);
        EXPECT_EQ(std::vector<float>(40, 1.0f), value);
    });
}

TEST(FirstWeightsWithoutMemory, FailOnEveryRankBeforeAnyIsSent)
{
    on_ranks(3, [](small_agreement &self, unsigned rank) {
        std::vector<float> value(40, (float)rank);
        self.parts.add(self.weights("a", value.data(), 40));
        allocations_left = rank == 2 ? 0 : -1;
        EXPECT_ZOFF_FAILS(rank == 2 ? ZOFF_ERR_NO_MEMORY : ZOFF_ERR_COMM,
                          rank == 2 ? "weights for other ranks" : "rank 2 has failed, and this one has not",
                          zoff_agreement_first_weights_send(&self.a));
        allocations_left = -1;
        EXPECT_EQ(std::vector<float>(40, (float)rank), value);
        ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_EQ(std::vector<float>(40, 0.0f), value);
    });
}

zoff_status move_nowhere(zoff_transfer *, const zoff_cast_piece *, size_t, bool)
{
    return zoff_base_status_fail(ZOFF_ERR_DEVICE, "the device is gone");
}

// Bytes that this rank has sent since.
uint64_t sent_by(const small_agreement &self)
{
    return self.wire.channel.sent_bytes;
}

// A checksum of each rank, and nothing that is as long as the weights.
TEST(FirstWeightsThatAreEqual, AreNotSent)
{
    enum { RANKS = 5, COUNT = 300000 };
    on_ranks(RANKS, [](small_agreement &self, unsigned) {
        std::vector<float> value(COUNT, 2.5f);
        self.parts.add(self.weights("a", value.data(), COUNT));
        zoff_link watched = zoff_transfer_route_in_place;
        watched.move = [](zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool to_program) {
            EXPECT_FALSE(to_program) << "memory of the program stays as it is";
            return zoff_transfer_route_in_place.move(t, moves, count, to_program);
        };
        self.transfer.route.link = &watched;
        const uint64_t before = sent_by(self);
        ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_LT(sent_by(self) - before, 64u * RANKS);
    });
}

// Each rank sends the weights once, rank 0 twice, however many ranks there are.
TEST(FirstWeightsThatDiffer, AreSentByAllRanksAlike)
{
    for (const unsigned ranks : {2u, 3u, 8u}) {
        log_catcher log;
        on_ranks(ranks, [ranks](small_agreement &self, unsigned rank) {
            std::vector<uint16_t> same(70000, 7), other(500000), last(100, (uint16_t)rank);
            for (size_t i = 0; i < other.size(); i++)
                other[i] = (uint16_t)(i * 31 + rank * 7);
            for (auto *v : {&same, &other, &last}) {
                zoff_param_desc d = self.weights(v == &same ? "same" : v == &other ? "other" : "last", v->data(), v->size());
                d.dtype = ZOFF_BF16;
                self.parts.add(d);
            }
            const uint64_t before = sent_by(self), bytes = 2 * (same.size() + other.size() + last.size());
            ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
            EXPECT_LE(sent_by(self) - before, (rank == 0 ? 2 : 1) * bytes + 200 * ranks) << "rank " << rank;
            for (size_t i = 0; i < other.size(); i += 997)
                EXPECT_EQ((uint16_t)(i * 31), other[i]);
            EXPECT_EQ(0, last[99]);
        });
        EXPECT_EQ(1u, log.count("rank 1: the first weights of " + std::to_string(ranks - 1) + " of " + std::to_string(ranks) +
                                " ranks differed from rank 0's, here in other, last (2 parameters here)"));
    }
}

// Only the batch that differs is sent, and only to where it differs is it copied.
TEST(FirstWeightsThatDiffer, AreSentByBatches)
{
    on_ranks(3, [](small_agreement &self, unsigned rank) {
        enum { COUNT = 5 << 20 }; // fp32: five batches of 4 MiB
        static thread_local size_t written;
        written = 0;
        std::vector<float> value(COUNT, 1.0f);
        if (rank == 2)
            value[COUNT - 5] = 3;
        self.parts.add(self.weights("a", value.data(), COUNT));
        zoff_link watched = zoff_transfer_route_in_place;
        watched.move = [](zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool to_program) {
            for (size_t i = 0; to_program && i < count; i++)
                written += moves[i].count;
            return zoff_transfer_route_in_place.move(t, moves, count, to_program);
        };
        self.transfer.route.link = &watched;
        const uint64_t before = sent_by(self);
        ASSERT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_LE(sent_by(self) - before, 2u * (4u << 20) + 1000);
        EXPECT_EQ(rank == 2 ? (size_t)1 << 20 : 0u, written);
        EXPECT_EQ(1.0f, value[COUNT - 5]);
    });
}

TEST(FirstWeightsThatCannotBeWritten, AreAnError)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        std::vector<float> value(40, 1.0f);
        self.parts.add(self.weights("a", value.data(), 40));
        zoff_link broken = zoff_transfer_route_in_place;
        broken.move = move_nowhere;
        if (rank == 1)
            self.transfer.route.link = &broken;
        const zoff_status status = zoff_agreement_first_weights_send(&self.a);
        if (rank == 1) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "the device is gone", status);
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 has failed, and this one has not", status);
        }
    });
}

TEST(FirstWeightsAlone, NeedNothing)
{
    on_ranks(1, [](small_agreement &self, unsigned) {
        std::vector<float> value(40, 3.0f);
        self.parts.add(self.weights("a", value.data(), 40));
        allocations_left = 0;
        EXPECT_ZOFF_OK(zoff_agreement_first_weights_send(&self.a));
        EXPECT_EQ(0, allocations_left);
        allocations_left = -1;
        EXPECT_EQ(std::vector<float>(40, 3.0f), value);
    });
}
} // namespace
