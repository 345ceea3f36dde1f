/* SPDX-License-Identifier: Apache-2.0 */
// growth_operations_test.cc: the cost on one rank of one operation, of one fetched part of a slice, and of the union of
// presence bits must be linear in the ranks, up to 4,096. The cost of operations on a grid must be linear in the ranks of a
// node and of a rail, up to 16,384. Rank 0 is real. An echo stands for the others: it answers each of rank 0's headers with the
// same call.
#include "counted.h"
#include "zoff_test.h"

#include <malloc.h>
#include <string.h>

#include <deque>
#include <set>

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
    uint64_t posted = 0, taken = 0, sends = 0, notes = 0, sent_bytes = 0;
    std::set<unsigned> peers; // ranks that rank 0 has sent to

    static int send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
    {
        auto self = (echo *)ctx;
        zoff_comm_header header = {};
        *out = nullptr;
        self->sends++;
        self->sent_bytes += bytes;
        self->peers.insert(to);
        if (tag == 0) {
            memcpy(&header, data, bytes);
            header.from = to;
            self->notes++;
            self->sent_bytes -= offsetof(zoff_comm_header, data);
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

// Rank 0 of `ranks`.
zoff_comm *open_rank(echo &office, unsigned ranks, size_t most_bytes = 0)
{
    zoff_comm_transport t = {};
    t.struct_size = sizeof t;
    t.name = "echo";
    t.ctx = &office;
    t.size = ranks;
    t.most_bytes = most_bytes;
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
    return made;
}

// The basic blocks of one operation of rank 0, from start to end. The first operation is not counted, because it does work that
// is done only once.
uint64_t blocks_of(unsigned ranks, zoff_comm_kind kind, size_t piece_bytes)
{
    echo office;
    zoff_comm *made = open_rank(office, ranks);
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

struct grid_bill {
    uint64_t blocks, notes, messages, bytes;
    size_t peers, heap;
};

// A reduction and a gather by levels, in pieces of so many bytes; by the transport, by the communicator's counters, and by a
// plan, which must all say the same.
grid_bill of_grid(unsigned node, unsigned nodes, size_t piece_bytes)
{
    static const zoff_comm_stream STREAMS[] = {ZOFF_COMM_REDUCE_NODE, ZOFF_COMM_REDUCE_RAIL, ZOFF_COMM_STEP_RAIL,
                                               ZOFF_COMM_STEP_NODE};
    enum { MESSAGE = 2048 };
    echo office;
    zoff_comm *made = open_rank(office, node * nodes, MESSAGE);
    zoff_comm planned = {};
    planned.size = node * nodes;
    planned.node = node;
    planned.message_bytes = MESSAGE;
    zoff_comm_grid grid = {};
    EXPECT_ZOFF_OK(zoff_comm_open_grid(made, node, &grid));
    EXPECT_EQ(nodes, grid.nodes);
    std::vector<size_t> sizes(std::max(node, nodes), piece_bytes);
    std::vector<char> in(sizes.size() * piece_bytes + 1), out(in.size());
    grid_bill bill = {};
    const size_t heap = mallinfo2().uordblks + mallinfo2().hblkhd;
    zoff_comm_traffic plan = {};
    for (const bool counts : {false, true}) {
        const zoff_comm_info before = made->info;
        const uint64_t sends = office.sends, notes = office.notes, bytes = office.sent_bytes;
        plan = {};
        for (unsigned i = 0; i < 4; i++) {
            zoff_comm_work work = {};
            zoff_comm_call call = {};
            call.kind = i < 2 ? ZOFF_COMM_EXCHANGE : ZOFF_COMM_GATHER;
            call.stream = STREAMS[i];
            call.in = in.data();
            call.out = out.data();
            call.send_bytes = call.receive_bytes = sizes.data();
            zoff_comm_call_group(&planned, &call);
            zoff_comm_traffic one;
            zoff_comm_call_traffic(&planned, &call, &one);
            plan.notes += one.notes;
            plan.messages += one.messages;
            plan.sent_bytes += one.sent_bytes;
            plan.node_bytes += one.node_bytes;
            bill.blocks += count_blocks([&] {
                EXPECT_ZOFF_OK(zoff_comm_start(made, &call, &work));
                EXPECT_ZOFF_OK(zoff_comm_wait(made, &work));
            });
        }
        if (!counts) { // the first operations allocate, and keep the memory for others
            bill.blocks = 0;
            bill.heap = mallinfo2().uordblks + mallinfo2().hblkhd - heap;
        }
        bill.notes = office.notes - notes;
        bill.messages = office.sends - sends - bill.notes;
        bill.bytes = office.sent_bytes - bytes;
        EXPECT_EQ(bill.notes, made->info.notes - before.notes);
        EXPECT_EQ(bill.messages, made->info.messages - before.messages);
        EXPECT_EQ(bill.bytes, made->info.sent_bytes - before.sent_bytes);
        EXPECT_EQ(plan.node_bytes, made->info.node_bytes - before.node_bytes);
    }
    EXPECT_EQ(bill.notes, plan.notes);
    EXPECT_EQ(bill.messages, plan.messages);
    EXPECT_EQ(bill.bytes, plan.sent_bytes);
    bill.peers = office.peers.size();
    zoff_comm_close(made);
    return bill;
}

TEST(GrowthOperations, AGridCostsItsNodeAndItsRail)
{
    for (const size_t piece_bytes : {size_t{1936}, size_t{5000}}) {
        const uint64_t cut = piece_bytes <= 1936 ? 0 : (piece_bytes + 2047) / 2048;
        double least = 0, most = 0;
        const std::pair<unsigned, unsigned> grids[] = {{8, 8}, {8, 128}, {128, 128}, {8, 2048}};
        for (const auto &[node, nodes] : grids) {
            const grid_bill b = of_grid(node, nodes, piece_bytes);
            const uint64_t others = node + nodes - 2;
            printf("growth: grid of %u x %u, pieces of %zu bytes: %llu notes, %llu messages, %llu bytes, %zu peers, heap %zu, "
                   "%llu blocks\n",
                   node, nodes, piece_bytes, (unsigned long long)b.notes, (unsigned long long)b.messages,
                   (unsigned long long)b.bytes, b.peers, b.heap, (unsigned long long)b.blocks);
            EXPECT_EQ(2 * others, b.notes);
            EXPECT_EQ(2 * others * cut, b.messages);
            EXPECT_EQ(2 * others * piece_bytes, b.bytes);
            EXPECT_EQ(others, b.peers);
            EXPECT_LT(b.heap, others * (600 + (cut ? 0 : piece_bytes))) << "lanes and headers";
            const double blocks = (double)b.blocks / (double)others;
            least = least == 0 ? blocks : std::min(least, blocks);
            most = std::max(most, blocks);
        }
        EXPECT_LT(0, least);
        EXPECT_LT(most, 1.3 * least) << "work for each other rank of the node and the rail";
    }
    RecordProperty("largest_ranks", 16384);
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
