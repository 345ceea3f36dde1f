/* SPDX-License-Identifier: Apache-2.0 */
// call_test.cc: an operation as its caller sees it: the bytes for each rank, the comparison of two ranks, numbers, deadlines,
// and a communicator that has failed.
#include "comm_fault.h"
#include "memory_fault.h"
#include "thread_ranks.h"

#include <functional>

extern "C" {
#include "try.h"
}

using namespace zoff_test;

namespace
{
zoff_comm_call call_of(zoff_comm_kind kind, size_t count = 0)
{
    zoff_comm_call call = {};
    call.kind = kind;
    call.count = count;
    return call;
}

// Start an operation without bytes.
zoff_status start(zoff_comm *comm, zoff_comm_work *work, zoff_comm_kind kind = ZOFF_COMM_BARRIER)
{
    const zoff_comm_call call = call_of(kind);
    return zoff_comm_start(comm, &call, work);
}

uint64_t operations_of(zoff_comm *comm)
{
    zoff_comm_info info = {};
    info.struct_size = sizeof info;
    EXPECT_ZOFF_OK(zoff_comm_get_info(comm, &info));
    return info.operations;
}
} // namespace

TEST(CommCall, BytesBetweenTwoRanks)
{
    const size_t send[3] = {4, 8, 12}, receive[3] = {10, 20, 30};
    struct {
        zoff_comm_kind kind;
        bool adds;
        size_t sends, expects, result; // bytes from rank 1 to rank 2; result: that on rank 1
    } cells[] = {{ZOFF_COMM_EXCHANGE, false, 12, 20, 60}, {ZOFF_COMM_EXCHANGE, true, 12, 12, 8},
                 {ZOFF_COMM_GATHER, false, 20, 20, 60},   {ZOFF_COMM_SUM, false, 24, 24, 24},
                 {ZOFF_COMM_BROADCAST, false, 3, 3, 3},   {ZOFF_COMM_BARRIER, false, 0, 0, 0}};
    const thread_ranks ranks(3);
    for (const auto &cell : cells) {
        zoff_comm_call call = call_of(cell.kind, 3);
        call.adds = cell.adds;
        call.root = 1;
        call.send_bytes = send;
        call.receive_bytes = receive;
        EXPECT_EQ(cell.sends, zoff_comm_call_sends(&call, 1, 2)) << cell.kind;
        EXPECT_EQ(cell.expects, zoff_comm_call_expects(&call, 1, 2)) << cell.kind;
        EXPECT_EQ(cell.result, zoff_comm_call_result(ranks[1], &call)) << cell.kind;
    }
    zoff_comm_call call = call_of(ZOFF_COMM_BROADCAST, 3);
    call.root = 1;
    EXPECT_EQ(0u, zoff_comm_call_sends(&call, 0, 2)) << "only the root sends";
    EXPECT_EQ(0u, zoff_comm_call_expects(&call, 2, 0));
    call = call_of(ZOFF_COMM_GATHER);
    call.receive_bytes = receive;
    call.first = 1;
    call.stride = 3;
    call.members = 2;
    EXPECT_EQ(10u, zoff_comm_call_sends(&call, 1, 4)) << "sizes are by member";
    EXPECT_EQ(20u, zoff_comm_call_expects(&call, 4, 1));
    EXPECT_EQ(30u, zoff_comm_call_result(ranks[1], &call));
    const std::vector<bool> has = {false, true, false, false, true, false, false, false};
    for (unsigned rank = 0; rank < has.size(); rank++)
        EXPECT_EQ(has[rank], zoff_comm_call_has(&call, rank)) << rank;
}

TEST(CommCall, ItsNameSaysWhichOperationItIs)
{
    const thread_ranks ranks(1);
    zoff_comm_work work = {};
    work.call = call_of(ZOFF_COMM_GATHER);
    work.call.channel = &ranks[0]->common;
    work.call.stream = ZOFF_COMM_REDUCE;
    work.number = 7;
    work.result_bytes = 4096;
    EXPECT_STREQ("all_gather number 7 of the gradients (4096 bytes)", zoff_comm_call_name(ranks[0], &work));
    work.call.first = 4;
    work.call.members = 2;
    EXPECT_STREQ("all_gather number 7 of the gradients among ranks 4 to 5 (4096 bytes)", zoff_comm_call_name(ranks[0], &work));
    work.call.stride = 4;
    EXPECT_STREQ("all_gather number 7 of the gradients among ranks 4 to 8 in steps of 4 (4096 bytes)",
                 zoff_comm_call_name(ranks[0], &work));
    work.call.first = work.call.stride = work.call.members = 0;
    zoff_comm_channel engine = {};
    engine.id = 2;
    work.call.kind = ZOFF_COMM_EXCHANGE;
    work.call.adds = true;
    work.call.channel = &engine;
    work.call.item = {ZOFF_COMM_ABOUT_GRADIENTS, 0, 3, 0};
    EXPECT_STREQ("reduce_scatter number 7 of the gradients of engine 2 (4096 bytes), gradients of bucket 3",
                 zoff_comm_call_name(ranks[0], &work));
}

TEST(CommCall, RanksCompareAllThatAnOperationSays)
{
    const thread_ranks ranks(2);
    size_t bytes[2] = {8, 8};
    zoff_comm_work work = {};
    work.call = call_of(ZOFF_COMM_EXCHANGE);
    work.call.channel = &ranks[0]->common;
    work.call.send_bytes = work.call.receive_bytes = bytes;
    work.call.item = {ZOFF_COMM_ABOUT_SLICE, 1, 2, 3};
    work.number = 1;
    zoff_comm_theirs same = {};
    same.kind = ZOFF_COMM_EXCHANGE;
    same.item = work.call.item;
    same.sends = same.expects = 8;
    EXPECT_ZOFF_OK(zoff_comm_call_compare(ranks[0], &work, 1, &same));
    const std::function<void(zoff_comm_theirs &)> others[] = {[](zoff_comm_theirs &t) { t.kind = ZOFF_COMM_GATHER; },
                                                              [](zoff_comm_theirs &t) { t.adds = true; },
                                                              [](zoff_comm_theirs &t) { t.root = 1; },
                                                              [](zoff_comm_theirs &t) { t.count = 1; },
                                                              [](zoff_comm_theirs &t) { t.first = 1; },
                                                              [](zoff_comm_theirs &t) { t.members = 2; },
                                                              [](zoff_comm_theirs &t) { t.stride = 2; },
                                                              [](zoff_comm_theirs &t) { t.item.about++; },
                                                              [](zoff_comm_theirs &t) { t.item.param++; },
                                                              [](zoff_comm_theirs &t) { t.item.index++; },
                                                              [](zoff_comm_theirs &t) { t.item.extra++; }};
    for (const auto &change : others) {
        zoff_comm_theirs other = same;
        change(other);
        SCOPED_TRACE(&change - others);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 calls ", zoff_comm_call_compare(ranks[0], &work, 1, &other));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "while rank 0 calls all_to_all number 1")) << zoff_last_error();
    }
    zoff_comm_theirs other = same;
    other.sends = 4;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 has 4 bytes for rank 0, which expects 8",
                      zoff_comm_call_compare(ranks[0], &work, 1, &other));
    other = same;
    other.expects = 4;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0 has 8 bytes for rank 1, which expects 4",
                      zoff_comm_call_compare(ranks[0], &work, 1, &other));
}

// An operation that was refused gets no number: otherwise the next one would not match those of the other ranks.
TEST(CommCall, RefusedCallsTakeNoNumber)
{
    const thread_ranks ranks(1);
    passing_comm_fault fault(ranks[0]);
    fault.before = [](const zoff_comm_work &) { return zoff_base_status_fail(ZOFF_ERR_IO, "no line"); };
    zoff_comm_work work = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "no line", start(ranks[0], &work));
    EXPECT_FALSE(work.active);
    fault.before = nullptr;
    zoff_comm_call from_nobody = call_of(ZOFF_COMM_BROADCAST);
    from_nobody.root = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "a broadcast from rank 1 of 1", zoff_comm_start(ranks[0], &from_nobody, &work));
    ASSERT_ZOFF_OK(start(ranks[0], &work));
    EXPECT_EQ(1u, work.number);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "before the first was done", start(ranks[0], &work));
    EXPECT_ZOFF_OK(zoff_comm_wait(ranks[0], &work));
    EXPECT_ZOFF_OK(zoff_comm_poll(ranks[0], &work)) << "polling what is done is legal";
    ASSERT_ZOFF_OK(start(ranks[0], &work));
    EXPECT_EQ(2u, work.number);
    EXPECT_ZOFF_OK(zoff_comm_wait(ranks[0], &work));
    EXPECT_EQ(2u, operations_of(ranks[0])) << "polls of what is done do not count";
}

TEST(CommCall, PiecesThatAreAddedUpHaveOneLength)
{
    const thread_ranks ranks(2);
    size_t bytes[2] = {8, 8};
    zoff_comm_work work = {};
    zoff_comm_call call = call_of(ZOFF_COMM_EXCHANGE);
    call.adds = true;
    call.send_bytes = call.receive_bytes = bytes;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "the communicator \"threads\" cannot add up pieces while it exchanges them",
                      zoff_comm_start(ranks[0], &call, &work));
    ranks[0]->adds = true;
    bytes[1] = 12;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the piece for rank 1 has 12 bytes, the piece for rank 0 8",
                      zoff_comm_start(ranks[0], &call, &work));
    bytes[0] = bytes[1] = 6;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "reduce_scatter needs fp32 pieces of one length",
                      zoff_comm_start(ranks[0], &call, &work));
    call.kind = ZOFF_COMM_SUM;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sum cannot add up", zoff_comm_start(ranks[0], &call, &work));
}

TEST(CommCall, BytesToOthersAreCounted)
{
    const thread_ranks ranks(2);
    const size_t bytes[2] = {3, 5};
    char in[2][5] = {}, out[2][8];
    std::vector<zoff_comm_work> works(2);
    for (unsigned rank = 0; rank < 2; rank++) {
        zoff_comm_call call = call_of(ZOFF_COMM_GATHER);
        call.in = in[rank];
        call.out = out[rank];
        call.receive_bytes = bytes;
        ASSERT_ZOFF_OK(zoff_comm_start(ranks[rank], &call, &works[rank]));
        EXPECT_EQ(0u, operations_of(ranks[rank])) << "nothing is counted before it is done";
    }
    ranks.finish(works);
    for (unsigned rank = 0; rank < 2; rank++) {
        EXPECT_EQ(1u, operations_of(ranks[rank]));
        EXPECT_EQ(bytes[rank], ranks[rank]->info.sent_bytes);
        EXPECT_EQ(bytes[1 - rank], ranks[rank]->info.received_bytes);
        EXPECT_EQ(bytes[rank], ranks[rank]->common.sent_bytes);
        EXPECT_EQ(bytes[1 - rank], ranks[rank]->common.received_bytes);
    }
}

TEST(CommCall, RanksThatDoNotComeAreNamedAndTheCommunicatorIsBroken)
{
    const thread_ranks ranks(3, 0.05);
    zoff_comm_work work = {}, other = {}, third = {};
    ASSERT_ZOFF_OK(start(ranks[0], &work));
    ASSERT_ZOFF_OK(start(ranks[0], &other));
    const std::string words = "rank 0: barrier number 1 of the step (0 bytes) has waited for 0.05 s: ranks 1, 2 of 3 did not "
                              "arrive";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_wait(ranks[0], &work));
    EXPECT_TRUE(zoff_comm_is_broken(ranks[0]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_poll(ranks[0], &work));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_poll(ranks[0], &other)); // the operation was in flight at the failure
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, start(ranks[0], &third));          // started after the failure
    EXPECT_EQ(0u, operations_of(ranks[0]));
}

TEST(CommCall, ARankThatArrivesAndDoesNotContinueIsNamedSo)
{
    const thread_ranks ranks(2, 0.05);
    const size_t bytes[2] = {10000, 10000};
    std::vector<char> in(10000), out[2] = {std::vector<char>(20000), std::vector<char>(20000)};
    zoff_comm_work works[2] = {};
    for (unsigned rank = 0; rank < 2; rank++) {
        zoff_comm_call call = call_of(ZOFF_COMM_GATHER);
        call.in = in.data();
        call.out = out[rank].data();
        call.receive_bytes = bytes;
        ASSERT_ZOFF_OK(zoff_comm_start(ranks[rank], &call, &works[rank]));
    }
    const char *words = "all ranks arrived, and rank 0 of 2 stopped before it was done";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_wait(ranks[1], &works[1])); // rank 0 does not poll
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_wait(ranks[0], &works[0])); // this call learns of the failure
    for (unsigned rank = 0; rank < 2; rank++)
        EXPECT_TRUE(zoff_comm_lets_go(ranks[rank])) << "no rank reads the memory of another any more";
}

// A rank that waits in the same call cannot start the operation before the one that is not there.
TEST(CommCall, ARankThatWaitsItselfIsNotSaidToBeMissing)
{
    const thread_ranks ranks(3, 30);
    zoff_comm_work work = {}, other = {};
    for (unsigned rank = 0; rank < 2; rank++)
        zoff_comm_enter(ranks[rank], &ranks[rank]->common, ZOFF_COMM_IN_STEP_WAIT, {});
    zoff_comm_call call = call_of(ZOFF_COMM_BARRIER);
    call.stream = ZOFF_COMM_REDUCE;
    ASSERT_ZOFF_OK(zoff_comm_start(ranks[1], &call, &other));
    ranks[1]->timeout_seconds = 0.1; // rank 1 reports after a quarter of that
    for (int i = 0; i < 4; i++) {
        ASSERT_EQ(ZOFF_PENDING, zoff_comm_poll(ranks[1], &other));
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // 10 of these milliseconds count as waiting
    }
    ranks[0]->timeout_seconds = 0.05;
    ASSERT_ZOFF_OK(start(ranks[0], &work));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "has waited for 0.05 s: rank 2 of 3 did not arrive", zoff_comm_wait(ranks[0], &work));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "; rank 1 waits in zoff_step_wait()")) << zoff_last_error();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 2 of 3 did not arrive", zoff_comm_poll(ranks[1], &other));
    for (unsigned rank = 0; rank < 2; rank++)
        zoff_comm_exit(ranks[rank], false);
}

// An operation that has begun goes on when there is memory again, because an error would end the group.
TEST(CommCall, LackOfMemoryEndsNoGroup)
{
    const size_t bytes[2] = {10000, 10000};
    int n = 0;
    do {
        const thread_ranks ranks(2);
        std::vector<char> in[2], out[2] = {std::vector<char>(20000), std::vector<char>(20000)};
        std::vector<zoff_comm_work> gathers(2), barriers(2);
        memory_countdown::left = ++n;
        memory_countdown::failed = 0;
        for (unsigned rank = 0; rank < 2; rank++) {
            zoff_comm_call call = call_of(ZOFF_COMM_GATHER);
            in[rank].assign(10000, (char)(rank + 1));
            call.stream = ZOFF_COMM_WEIGHTS;
            call.in = in[rank].data();
            call.out = out[rank].data();
            call.receive_bytes = bytes;
            // Rank 1 hears of the gather before it starts its own.
            for (zoff_status status = ZOFF_PENDING; rank == 1 && status != ZOFF_OK;)
                ASSERT_TRUE((status = start(ranks[1], &barriers[1])) == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY);
            for (zoff_status status = ZOFF_PENDING; status != ZOFF_OK;)
                ASSERT_TRUE((status = zoff_comm_start(ranks[rank], &call, &gathers[rank])) == ZOFF_OK ||
                            status == ZOFF_ERR_NO_MEMORY);
            for (zoff_status status = ZOFF_PENDING; rank == 0 && status != ZOFF_OK;)
                ASSERT_TRUE((status = start(ranks[0], &barriers[0])) == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY);
        }
        for (auto *works : {&gathers, &barriers}) {
            for (const zoff_status status : ranks.finish(*works))
                EXPECT_ZOFF_OK(status);
        }
        memory_countdown::left = 0;
        for (unsigned rank = 0; rank < 2; rank++) {
            EXPECT_EQ(in[0], std::vector<char>(out[rank].begin(), out[rank].begin() + 10000)) << "allocation " << n;
            EXPECT_EQ(in[1], std::vector<char>(out[rank].begin() + 10000, out[rank].end())) << "allocation " << n;
        }
    } while (memory_countdown::failed);
    EXPECT_LT(10, n) << "operations, headers, messages";
}

TEST(CommCall, ABackEndThatCannotKnowNamesNobody)
{
    for (const bool arrived : {false, true}) {
        const thread_ranks ranks(2, 0.05);
        ranks[0]->blind = "the network does not say which";
        passing_comm_fault fault(ranks[0]);
        fault.not_yet = [](const zoff_comm_work &) { return true; };
        zoff_comm_work work = {};
        ASSERT_ZOFF_OK(start(ranks[0], &work));
        work.arrived = arrived;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "; the network does not say which", zoff_comm_wait(ranks[0], &work));
        const char *words = arrived ? "all ranks arrived, but one makes no progress" : "one of the other ranks did not arrive";
        EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
    }
}

TEST(CommCall, AnErrorOfTheBackEndIsTheOneOfEveryLaterPoll)
{
    zoff_comm *made = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &made));
    const comm alone(made);
    passing_comm_fault fault(made);
    fault.ops.poll = [](zoff_comm *, zoff_comm_work *) { return zoff_base_status_fail(ZOFF_ERR_IO, "the line is cut"); };
    zoff_comm_work work = {};
    ASSERT_ZOFF_OK(start(made, &work));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the line is cut", zoff_comm_poll(made, &work));
    fault.ops.poll = fault.real->poll;
    (void)zoff_base_status_fail(ZOFF_ERR_IO, "something else");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the line is cut", zoff_comm_poll(made, &work));
}

TEST(CommCall, WithoutADeadlineNothingExpires)
{
    const thread_ranks ranks(2, -1);
    std::vector<zoff_comm_work> works(2);
    ASSERT_ZOFF_OK(start(ranks[0], &works[0]));
    for (int i = 0; i < 20; i++) {
        works[0].waited = 1e9; // seconds
        ASSERT_EQ(ZOFF_PENDING, zoff_comm_poll(ranks[0], &works[0]));
    }
    ASSERT_ZOFF_OK(start(ranks[1], &works[1]));
    for (zoff_status status : ranks.finish(works))
        EXPECT_ZOFF_OK(status);
}

TEST(CommCall, AbandonedCallsBreakTheCommunicator)
{
    zoff_comm_work work = {};
    zoff_comm_abandon(nullptr, &work);
    const thread_ranks ranks(2);
    zoff_comm_abandon(ranks[0], &work);
    EXPECT_FALSE(zoff_comm_is_broken(ranks[0])) << "nothing was in flight";
    double x = 1;
    ASSERT_ZOFF_OK(zoff_comm_sum_scalars(ranks[0], &x, 1, &work));
    zoff_comm_abandon(ranks[0], &work);
    const char *words = "rank 0 has left the group with an operation in flight: sum number 1 of the step (8 bytes)";
    EXPECT_FALSE(work.active);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_poll(ranks[0], &work));
    zoff_comm_work theirs = {};
    EXPECT_EQ(ZOFF_ERR_COMM, start(ranks[1], &theirs) < 0 ? ZOFF_ERR_COMM : zoff_comm_wait(ranks[1], &theirs));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
}

TEST(CommCall, MemoryIsLetGoUnlessTheBackEndHoldsIt)
{
    const thread_ranks ranks(1);
    EXPECT_TRUE(zoff_comm_lets_go(ranks[0]));
    ranks[0]->holds_memory = true;
    EXPECT_FALSE(zoff_comm_lets_go(ranks[0]));
}

// All ranks have arrived, and one of them stops: the others wait for its bytes without taking a core each.
TEST(CommCall, AWaitForBytesThatDoNotComeLeavesTheCoreToOthers)
{
    static uint64_t polls;
    polls = 0;
    const thread_ranks ranks(2, 0.3);
    const zoff_comm_ops *const given = ranks[0]->ops;
    zoff_comm_ops stopped = *given;
    stopped.poll = [](zoff_comm *, zoff_comm_work *work) {
        polls++;
        work->arrived = true;
        return ZOFF_PENDING;
    };
    zoff_comm_work work = {};
    ASSERT_ZOFF_OK(start(ranks[0], &work));
    ranks[0]->ops = &stopped;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "has waited for 0.3 s", zoff_comm_wait(ranks[0], &work));
    ranks[0]->ops = given;
    EXPECT_LT(100u, polls);
    EXPECT_LT(polls, 2u * 32 * 128 + 0.3 / 20e-6 + 1000) << "a poll after each of the shortest pauses";
}
