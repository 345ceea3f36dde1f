/* SPDX-License-Identifier: Apache-2.0 */
// growth_operations_test.cc: the cost on one rank of one operation, of one fetched part of a slice, and of the union of
// presence bits must be linear in the ranks, up to 4,096. Rank 0 is real. An echo stands for the others: it answers each of
// rank 0's headers with the same call.
#include "counted.h"
#include "zoff_test.h"

#include <string.h>

#include <deque>

extern "C" {
#include "engine_priv.h"
#include "message_queue_priv.h"
#include "zero.h"
}

using namespace zoff_test;

namespace
{
enum { FEW = 512, MANY = 4096 };
const double LINEAR = 1.15;

// The transport of rank 0. Sends complete at once, and each header of a call brings back a header from its receiver.
struct echo {
    std::deque<zoff_comm_header> headers;
    std::deque<std::pair<void *, size_t>> listening; // posted receives of headers; request number i is entry i - 1
    uint64_t posted = 0, taken = 0, sends = 0;

    static int send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
    {
        auto self = (echo *)ctx;
        zoff_comm_header header = {};
        *out = nullptr;
        self->sends++;
        if (tag == 0) {
            memcpy(&header, data, bytes);
            header.from = to;
            if (header.says == ZOFF_COMM_CALLS)
                self->headers.push_back(header);
        }
        return 0;
    }
    static int receive(void *ctx, unsigned, int tag, void *data, size_t bytes, void **out)
    {
        auto self = (echo *)ctx;
        *out = nullptr; // a piece arrives at once
        if (tag == 0) {
            self->listening.emplace_back(data, bytes);
            *out = (void *)(uintptr_t)++self->posted;
        }
        return 0;
    }
    static int test(void *ctx, void **request)
    {
        auto self = (echo *)ctx;
        if (!*request)
            return 1;
        if ((uint64_t)(uintptr_t)*request != self->taken + 1 || self->headers.empty())
            return 0;
        memcpy(self->listening.front().first, &self->headers.front(), sizeof(zoff_comm_header));
        self->listening.pop_front();
        self->headers.pop_front();
        self->taken++;
        return 1;
    }
};

// The basic blocks of one operation of rank 0, from start to end. The first operation is not counted, because it does work that
// is done only once.
uint64_t blocks_of(unsigned ranks, zoff_comm_kind kind, size_t piece_bytes)
{
    echo office;
    zoff_comm_transport t = {};
    t.struct_size = sizeof t;
    t.name = "echo";
    t.ctx = &office;
    t.size = ranks;
    t.send = echo::send;
    t.receive = echo::receive;
    t.test = echo::test;
    t.cancel = [](void *, void **) { return 0; };
    t.error = [](void *) -> const char * { return "none"; };
    t.close = [](void *, int) {};
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 60;
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_open_transport(&opts, &t, &made));
    std::vector<size_t> bytes(ranks, piece_bytes);
    std::vector<char> in(ranks * piece_bytes), out(ranks * piece_bytes);
    std::vector<double> sums(16);
    zoff_comm_call call = {};
    call.kind = kind;
    call.stream = ZOFF_COMM_REDUCE;
    call.in = in.data();
    call.out = kind == ZOFF_COMM_SUM ? (char *)sums.data() : out.data();
    call.send_bytes = call.receive_bytes = bytes.data();
    call.count = kind == ZOFF_COMM_SUM ? sums.size() : 0;
    uint64_t blocks = 0;
    for (int round = 0; round < 2; round++) {
        zoff_comm_work work = {};
        blocks = count_blocks([&] {
            EXPECT_ZOFF_OK(zoff_comm_start(made, &call, &work));
            EXPECT_ZOFF_OK(zoff_comm_wait(made, &work));
        });
    }
    EXPECT_GE(office.sends, 2u * (ranks - 1));
    zoff_comm_close(made);
    return blocks;
}

TEST(GrowthOperations, AnOperationIsLinearInTheRanks)
{
    for (const zoff_comm_kind kind : {ZOFF_COMM_EXCHANGE, ZOFF_COMM_GATHER, ZOFF_COMM_SUM}) {
        for (const size_t piece_bytes : {size_t{8}, size_t{2500}}) { // sent in the header, sent beside it
            if (piece_bytes > 8 && kind != ZOFF_COMM_EXCHANGE)
                continue;
            const uint64_t few = blocks_of(FEW, kind, piece_bytes), many = blocks_of(MANY, kind, piece_bytes);
            const double grows = exponent(few, many, FEW, MANY);
            printf("growth: operation of kind %d, pieces of %zu bytes: %llu blocks for %d ranks, %llu for %d: exponent %.2f\n",
                   (int)kind, piece_bytes, (unsigned long long)few, FEW, (unsigned long long)many, MANY, grows);
            EXPECT_LT(grows, LINEAR);
            EXPECT_GT(few, (uint64_t)FEW) << "nothing was counted";
        }
    }
    RecordProperty("largest_ranks", MANY);
}

// Compute the sizes of all ranks' shares of a part.
uint64_t blocks_of_part(unsigned ranks)
{
    zoff_plan_tensor tensor = {};
    tensor.count = (size_t)MANY * 1024 * 2;
    tensor.slices = 1;
    tensor.weight_bytes = 2;
    tensor.bytes[ZOFF_STREAM_MASTER] = 4;
    zoff_plan_opts opts = {};
    opts.unit = 1024;
    opts.max_chunk_elements = 1000000000;
    opts.max_chunk_bytes = (size_t)1 << 60;
    opts.ranks = ranks;
    opts.max_bucket_units = 2 * MANY;
    zoff_plan plan;
    EXPECT_ZOFF_OK(zoff_zero_plan_make(&tensor, 1, &opts, &plan));
    size_t all = 0, first = 0;
    const uint64_t blocks = count_blocks([&] {
        const size_t run = zoff_zero_plan_find_run(&plan, 0, 0, 0);
        for (unsigned rank = 0; rank < ranks; rank++)
            all += zoff_zero_plan_share(&plan, &plan.runs[run], rank, &first);
    });
    EXPECT_EQ(tensor.count, all);
    zoff_zero_plan_free(&plan);
    return blocks;
}

TEST(GrowthOperations, AFetchedPartIsLinearInTheRanks)
{
    const uint64_t few = blocks_of_part(FEW), many = blocks_of_part(MANY);
    const double grows = exponent(few, many, FEW, MANY);
    printf("growth: sizes of one part: %llu blocks for %d ranks, %llu for %d: exponent %.2f\n", (unsigned long long)few, FEW,
           (unsigned long long)many, MANY, grows);
    EXPECT_LT(grows, LINEAR);
}

// The presence of 100,000 slices, combined in each step. One word of a rank holds 64 slices.
uint64_t blocks_of_presence(size_t words, unsigned ranks)
{
    std::vector<uint64_t> bits(words * ranks, 1);
    return count_blocks([&] { zoff_agreement_participation_join(bits.data(), words, ranks); });
}

TEST(GrowthOperations, PresenceTakesAWordAtATime)
{
    enum { SLICES = 100000, WORDS = (SLICES + 63) / 64 };
    const uint64_t few = blocks_of_presence(WORDS, FEW), many = blocks_of_presence(WORDS, MANY);
    const double grows = exponent(few, many, FEW, MANY);
    printf("growth: presence of %d slices: %llu blocks for %d ranks, %llu for %d: exponent %.2f\n", SLICES,
           (unsigned long long)few, FEW, (unsigned long long)many, MANY, grows);
    EXPECT_LT(grows, LINEAR);
    EXPECT_LT(many, uint64_t{2} * WORDS * MANY) << "a test of each slice of each rank would take 64 times as many";
    EXPECT_GT(few, uint64_t{FEW}) << "nothing was counted";
}
} // namespace
