/* SPDX-License-Identifier: Apache-2.0 */
// messages_test.cc: faults that only communicators over messages can have: memory that the network still uses, a transport that
// fails, and large pieces sent as many messages.
#include "post_office.h"

#include <chrono>
#include <thread>

#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
#include <sanitizer/lsan_interface.h>
#endif

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

namespace
{
zoff_comm_opts opts_of(double timeout_seconds)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = timeout_seconds;
    return opts;
}

struct pair_of_ranks {
    explicit pair_of_ranks(double timeout_seconds, size_t most_bytes = 0) : office(2)
    {
        const zoff_comm_opts opts = opts_of(timeout_seconds);
        for (unsigned rank = 0; rank < 2; rank++) {
            const zoff_comm_transport t = office.transport(rank, most_bytes);
            zoff_comm *made = nullptr;
            EXPECT_ZOFF_OK(zoff_comm_open_transport(&opts, &t, &made));
            comms[rank].reset(made);
        }
    }
    post_office office;
    comm comms[2];
};

// A gather of two ranks, seen from one of them.
struct gather {
    explicit gather(size_t bytes, unsigned rank) : in(bytes, (char)(rank + 1)), out(2 * bytes), each{bytes, bytes} {}
    zoff_status start(zoff_comm *comm)
    {
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_GATHER;
        call.stream = ZOFF_COMM_WEIGHTS;
        call.in = in.data();
        call.out = out.data();
        call.receive_bytes = each;
        return zoff_comm_start(comm, &call, &work);
    }
    std::vector<char> in, out;
    size_t each[2];
    zoff_comm_work work = {};
};

// Poll both ranks in turn until neither has anything left to wait for.
void poll_both(pair_of_ranks &p, gather (&g)[2], zoff_status (&status)[2])
{
    status[0] = status[1] = ZOFF_PENDING;
    while (status[0] == ZOFF_PENDING || status[1] == ZOFF_PENDING) {
        for (unsigned rank = 0; rank < 2; rank++)
            status[rank] = status[rank] == ZOFF_PENDING ? zoff_comm_poll(p.comms[rank].get(), &g[rank].work) : status[rank];
    }
}

TEST(CommMessages, LargePiecesAreManyMessages)
{
    pair_of_ranks p(10, 4096);
    gather g[2] = {gather(100001, 0), gather(100001, 1)};
    zoff_status status[2];
    for (unsigned rank = 0; rank < 2; rank++)
        ASSERT_ZOFF_OK(g[rank].start(p.comms[rank].get()));
    poll_both(p, g, status);
    EXPECT_EQ(ZOFF_OK, status[0]);
    EXPECT_EQ(ZOFF_OK, status[1]);
    EXPECT_EQ(g[0].out, g[1].out);
    EXPECT_EQ(2, g[0].out.back());
    EXPECT_EQ(2u * 24, p.office.large);
}

// The other rank may be stopped forever. Nothing large may be sent to a rank that has not arrived.
TEST(CommMessages, NothingLargeIsSentToARankThatHasNotCome)
{
    pair_of_ranks p(0.05);
    gather g(100000, 0);
    ASSERT_ZOFF_OK(g.start(p.comms[0].get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "all_gather number 1 of the weights (200000 bytes) has waited for 0.05 s: rank 1 of 2",
                      zoff_comm_wait(p.comms[0].get(), &g.work));
    EXPECT_EQ(0u, p.office.large);
    EXPECT_TRUE(zoff_comm_lets_go(p.comms[0].get()));
}

// A rank that stops in the middle of an operation may leave a message to it in flight, which still uses memory.
// zoff_comm_lets_go() says so.
TEST(CommMessages, MemoryThatTheNetworkHoldsIsNotForgotten)
{
#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
    __lsan::ScopedDisabler disabler; // memory that is still in use is left to the network
#endif
    pair_of_ranks p(0.05);
    p.office.holds_large = true;
    gather g[2] = {gather(100000, 0), gather(100000, 1)};
    zoff_status status[2];
    for (unsigned rank = 0; rank < 2; rank++)
        ASSERT_ZOFF_OK(g[rank].start(p.comms[rank].get()));
    poll_both(p, g, status);
    for (unsigned rank = 0; rank < 2; rank++) {
        EXPECT_EQ(ZOFF_ERR_COMM, status[rank]);
        EXPECT_FALSE(zoff_comm_lets_go(p.comms[rank].get()));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "all ranks arrived, and rank", zoff_comm_poll(p.comms[1].get(), &g[1].work));
}

void expect_strike(zoff_status status)
{
    const std::string words = zoff_last_error();
    const bool says = words.find("on strike") != std::string::npos || words.find("waited for") != std::string::npos;
    EXPECT_TRUE(status >= 0 || says) << words;
}

// The transport fails at each of its calls in turn. The error must contain the transport's message, and nothing may be left
// behind.
TEST(CommMessages, ATransportThatFailsIsAnError)
{
    for (int calls = 0; calls < 400; calls++) {
        post_office office(2);
        const zoff_comm_opts opts = opts_of(0.01);
        zoff_comm *made[2] = {};
        zoff_status status[2] = {ZOFF_OK, ZOFF_OK};
        gather g[2] = {gather(10000, 0), gather(10000, 1)};
        office.fails_after = calls;
        for (unsigned rank = 0; rank < 2; rank++) {
            const zoff_comm_transport t = office.transport(rank, 4096);
            status[rank] = zoff_comm_open_transport(&opts, &t, &made[rank]);
            expect_strike(status[rank]);
        }
        {
#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
            __lsan::ScopedDisabler disabler; // rank 0 may fail before it receives the message of rank 1: the network keeps the
                                             // message
#endif
            for (unsigned rank = 0; rank < 2 && made[0] && made[1]; rank++)
                EXPECT_ZOFF_OK(g[rank].start(made[rank]));
        }
        for (int turn = 0; turn < 100 && made[0] && made[1]; turn++) {
            for (unsigned rank = 0; rank < 2; rank++) {
                status[rank] = zoff_comm_poll(made[rank], &g[rank].work);
                expect_strike(status[rank]);
            }
        }
        const bool went_well = office.fails_after > 0;
        office.fails_after = -1; // the rest can be freed
        EXPECT_TRUE(!went_well || g[0].out.back() == 2);
        EXPECT_TRUE(went_well || status[0] < 0 || status[1] < 0 || g[0].out == g[1].out);
        for (zoff_comm *one : made)
            zoff_comm_close(one);
        if (went_well)
            return;
    }
    FAIL() << "no number of calls was enough for success";
}

// If only large messages cannot be sent, the error must come at once: not at the deadline, and without trying forever.
TEST(CommMessages, AFailedSendIsReportedAtOnce)
{
    const double deadline = 60;
    pair_of_ranks p(deadline);
    p.office.refuses_large = true;
    gather g[2] = {gather(100000, 0), gather(100000, 1)};
    zoff_status status[2];
    for (unsigned rank = 0; rank < 2; rank++)
        ASSERT_ZOFF_OK(g[rank].start(p.comms[rank].get()));
    const auto from = std::chrono::steady_clock::now();
    poll_both(p, g, status);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), deadline / 2);
    for (unsigned rank = 0; rank < 2; rank++)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "on strike", zoff_comm_poll(p.comms[rank].get(), &g[rank].work));
}

// A message that no rank of this version would send.
TEST(CommMessages, AMessageOfAnotherKindIsAnError)
{
    post_office office(2);
    const zoff_comm_opts opts = opts_of(5);
    zoff_comm_transport ours = office.transport(0), theirs = office.transport(1);
    zoff_comm *made = nullptr;
    void *request;
    char junk[100] = "hello";
    ASSERT_ZOFF_OK(zoff_comm_open_transport(&opts, &ours, &made));
    comm alone(made);
    ASSERT_EQ(0, theirs.send(theirs.ctx, 0, 0, junk, sizeof junk, &request));
    ASSERT_EQ(1, theirs.test(theirs.ctx, &request));
    double x = 1;
    zoff_comm_work work = {};
    ASSERT_ZOFF_OK(zoff_comm_sum_scalars(made, &x, 1, &work));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "All ranks must run the same version", zoff_comm_wait(made, &work));
}
} // namespace
