/* SPDX-License-Identifier: Apache-2.0 */
// comm_contract_test.cc: what every communicator must do. Runs on each one that this build has, with several numbers of ranks.
// Ranks that are threads run side by side, and each rank checks its own results.
#include "ranks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

using namespace zoff_test;

namespace
{
std::string name_of(const testing::TestParamInfo<kind> &p)
{
    return std::string(p.param.how) + (p.param.size ? std::to_string(p.param.size) : "");
}

#ifdef ZOFF_RANKS_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, Comm, testing::Values(kind{"world", "mpi", 0}, kind{"half", "mpi", 0}, kind{"plugin", "mpi", 0}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Mpi, Several, testing::Values(kind{"world", "mpi", 0}, kind{"half", "mpi", 0}), name_of);
#ifdef ZOFF_RANKS_UCX
INSTANTIATE_TEST_SUITE_P(Ucx, Comm, testing::Values(kind{"ucx", "ucx", 0}), name_of);
INSTANTIATE_TEST_SUITE_P(Ucx, Several, testing::Values(kind{"ucx", "ucx", 0}), name_of);
#endif
#elif defined(ZOFF_RANKS_NCCL)
INSTANTIATE_TEST_SUITE_P(Nccl, Comm,
                         testing::Values(kind{"nccl", "nccl", 1}, kind{"nccl", "nccl", 2}, kind{"nccl", "nccl", 3},
                                         kind{"nccl", "nccl", 4}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, Several,
                         testing::Values(kind{"nccl", "nccl", 2}, kind{"nccl", "nccl", 3}, kind{"nccl", "nccl", 4}), name_of);
#else
INSTANTIATE_TEST_SUITE_P(BackEnds, Comm,
                         testing::Values(kind{"self", "self", 1}, kind{"threads", "threads", 1}, kind{"threads", "threads", 2},
                                         kind{"threads", "threads", 3}, kind{"threads", "threads", 5},
                                         kind{"messages", "messages", 1}, kind{"messages", "messages", 2},
                                         kind{"messages", "messages", 3}, kind{"messages", "messages", 5}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(BackEnds, Several,
                         testing::Values(kind{"threads", "threads", 2}, kind{"threads", "threads", 3},
                                         kind{"threads", "threads", 5}, kind{"messages", "messages", 2},
                                         kind{"messages", "messages", 3}, kind{"messages", "messages", 5}),
                         name_of);
#endif

// Byte `at` of the piece that `from` sends to `to` in a round.
char byte_of(unsigned round, unsigned from, unsigned to, size_t at)
{
    return (char)(round * 31 + from * 7 + to * 3 + at);
}

TEST_P(Comm, RanksAreDense)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        EXPECT_EQ(size, zoff_comm_size(comm));
        EXPECT_EQ(rank, zoff_comm_rank(comm));
        const zoff_comm_info info = info_of(comm);
        EXPECT_STREQ(GetParam().backend, info.backend);
        EXPECT_EQ(rank, info.rank);
        EXPECT_EQ(0u, info.operations);
        EXPECT_TRUE(zoff_comm_lets_go(comm));
    });
}

TEST_P(Comm, ScalarsAreSummedInRankOrder)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        // The last bit depends on the order of the sum: 1, then several times 2^-53.
        double x[3] = {rank ? 0x1p-53 : 1.0, -0.5, rank + 3e200}, want = 1.0;
        for (unsigned i = 1; i < size; i++)
            want += 0x1p-53;
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, x, 3, &work));
        double other[1] = {7};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "before the first was done", zoff_comm_sum_scalars(comm, other, 1, &work));
        EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work));
        EXPECT_EQ(want, x[0]);
        EXPECT_EQ(-0.5 * size, x[1]);
        EXPECT_EQ(ZOFF_OK, zoff_comm_poll(comm, &work)) << "a finished operation may be polled again";
    });
}

// Pieces of any size, also empty, with several operations in flight and two orders of polling.
TEST_P(Comm, PiecesComeToWhomTheyAreFor)
{
    enum { ROUNDS = 40, FLIGHT = 5 };
    on_each([&](zoff_comm *comm, unsigned rank) {
        struct operation {
            std::vector<char> in, out;
            std::vector<size_t> send, receive;
            zoff_comm_work work = {};
        };
        uint64_t sent = 0;
        for (unsigned round = 0; round < ROUNDS; round++) {
            std::vector<operation> all(FLIGHT);
            std::mt19937 random(round); // the same numbers on each rank
            for (unsigned k = 0; k < FLIGHT; k++) {
                operation &o = all[k];
                const bool gathers = random() % 2;
                std::vector<size_t> bytes(size * size);
                for (auto &b : bytes)
                    b = random() % 4 ? random() % (round % 4 ? 3000 : 30000) : 0;
                for (unsigned other = 0; other < size; other++) {
                    o.send.push_back(gathers ? bytes[rank] : bytes[rank * size + other]);
                    o.receive.push_back(gathers ? bytes[other] : bytes[other * size + rank]);
                    sent += other == rank ? 0 : o.send.back();
                    for (size_t at = 0; at < o.send.back() && (other == 0 || !gathers); at++)
                        o.in.push_back(byte_of(round + k, rank, gathers ? 99 : other, at));
                    o.out.resize(o.out.size() + o.receive.back());
                }
                zoff_comm_call call = {};
                call.kind = gathers ? ZOFF_COMM_GATHER : ZOFF_COMM_EXCHANGE;
                call.in = o.in.data();
                call.out = o.out.data();
                call.send_bytes = o.send.data();
                call.receive_bytes = o.receive.data();
                ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &o.work));
            }
            for (unsigned k = 0; k < FLIGHT; k++) {
                operation &o = all[round % 2 ? FLIGHT - 1 - k : k];
                ASSERT_ZOFF_OK(zoff_comm_wait(comm, &o.work));
                const char *piece = o.out.data();
                for (unsigned other = 0; other < size; piece += o.receive[other++]) {
                    for (size_t at = 0; at < o.receive[other]; at++)
                        ASSERT_EQ(byte_of(round + (unsigned)(&o - all.data()), other,
                                          o.work.call.kind == ZOFF_COMM_GATHER ? 99 : rank, at),
                                  piece[at])
                            << "round " << round << " from " << other << " byte " << at;
                }
            }
        }
        const zoff_comm_info info = info_of(comm);
        EXPECT_EQ(sent, info.sent_bytes);
        EXPECT_EQ(uint64_t{ROUNDS * FLIGHT}, info.operations);
    });
}

// A gather in which each rank's piece is already in its place.
TEST_P(Comm, GathersInPlace)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        std::vector<unsigned> all(size, 0);
        std::vector<size_t> bytes(size, sizeof all[0]);
        all[rank] = rank + 100;
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_GATHER;
        call.in = &all[rank];
        call.out = all.data();
        call.receive_bytes = bytes.data();
        zoff_comm_work work = {};
        ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
        ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
        for (unsigned other = 0; other < size; other++)
            EXPECT_EQ(other + 100, all[other]);
    });
}

TEST_P(Comm, BroadcastsAndBarriers)
{
    std::atomic<unsigned> arrived{0}; // ranks of this process
    on_each([&](zoff_comm *comm, unsigned rank) {
        const unsigned here = (unsigned)std::count_if(comms.begin(), comms.end(), [](const auto &c) { return c != nullptr; });
        for (unsigned root = 0; root < size; root++) {
            std::vector<char> text(1000, rank == root ? (char)(root + 1) : 0);
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_BROADCAST;
            call.out = text.data();
            call.count = text.size();
            call.root = root;
            zoff_comm_work work = {};
            ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
            ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
            EXPECT_EQ(std::vector<char>(1000, (char)(root + 1)), text);
        }
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_BROADCAST;
        call.root = size;
        zoff_comm_work work = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "a broadcast from rank", zoff_comm_start(comm, &call, &work));
        for (unsigned round = 1; round <= 50; round++) {
            call = {};
            call.kind = ZOFF_COMM_BARRIER;
            arrived++;
            ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
            ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
            EXPECT_GE(arrived.load(), round * here) << "the barrier completed before all ranks had started it";
        }
    });
}

// ---- ranks that do something else than the others ----

double seconds_of(const std::function<void()> &run)
{
    const auto from = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

TEST_P(Several, ARankThatDoesNotComeIsNamedByAllOthers)
{
    const unsigned late = size - 1;
    ASSERT_NO_FATAL_FAILURE(open(30));
    on_each([&](zoff_comm *comm, unsigned rank) {
        EXPECT_ZOFF_OK(run_barrier(comm));
        // A busy machine may also delay ranks that do arrive, but by less than this 1 s.
        if (rank != late || !tells_who())
            comm->timeout_seconds = 1;
        meet();
        if (rank == late) {
            meet();
            // The late rank starts after the others have given up. It must learn the reason at once; its own deadline is 30 s.
            EXPECT_LT(seconds_of([&] { EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "did not arrive", run_barrier(comm)); }), 10.0);
        } else {
            const double took = seconds_of([&] {
                const std::string who = tells_who() ? "rank " + std::to_string(late) + " of " + std::to_string(size)
                                                    : std::string("one of the other ranks");
                EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                                  "sum number 2 of the step (8 bytes) has waited for 1 s: " + who + " did not arrive", ([&] {
                                      double x = 1;
                                      zoff_comm_work work = {};
                                      const zoff_status status = zoff_comm_sum_scalars(comm, &x, 1, &work);
                                      return status < 0 ? status : zoff_comm_wait(comm, &work);
                                  }()));
            });
            EXPECT_LT(took, 10.0);
            meet();
        }
        // the communicator is still broken, for the same reason
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "did not arrive", run_barrier(comm));
    });
}

// A trainer may compute longer than the deadline between two polls. That time does not count as waiting.
TEST_P(Several, TimeBetweenPollsIsNotWaiting)
{
    ASSERT_NO_FATAL_FAILURE(open(30));
    on_each([&](zoff_comm *comm, unsigned) {
        double x = 1;
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x, 1, &work));
        comm->timeout_seconds = 0.2;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_LE(ZOFF_OK, zoff_comm_poll(comm, &work)) << "one poll after a pause does not count as a wait of 0.2 s";
        comm->timeout_seconds = 30; // the other ranks may still be late
        EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work));
        EXPECT_EQ(1.0 * zoff_comm_size(comm), x);
    });
}

TEST_P(Several, ARankThatCallsSomethingElseIsNamed)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        std::vector<char> in(size * 8), out(size * 8);
        std::vector<size_t> bytes(size, 8);
        zoff_comm_call call = {};
        call.kind = rank == 1 ? ZOFF_COMM_GATHER : ZOFF_COMM_EXCHANGE;
        call.in = in.data();
        call.out = out.data();
        call.send_bytes = call.receive_bytes = bytes.data();
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "every rank must make the same calls in the same order", zoff_comm_wait(comm, &work));
    });
}

TEST_P(Several, PiecesOfAnotherSizeAreNamed)
{
    ASSERT_NO_FATAL_FAILURE(open(tells_who() ? 20 : 1));
    on_each([&](zoff_comm *comm, unsigned rank) {
        std::vector<char> in(size * 8), out(size * 8);
        std::vector<size_t> send(size, 8), receive(size, 8);
        send[0] = rank == 1 ? 4 : 8;
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_EXCHANGE;
        call.in = in.data();
        call.out = out.data();
        call.send_bytes = send.data();
        call.receive_bytes = receive.data();
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
        // The two ranks involved see the error. Another rank may receive its pieces first; it sees the error in the next
        // operation at the latest.
        const zoff_status status = zoff_comm_wait(comm, &work);
        EXPECT_TRUE(status == ZOFF_ERR_COMM || (status == ZOFF_OK && rank > 1)) << status;
        meet();
        const bool knows = tells_who() || rank <= 1;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, knows ? "rank 1 has 4 bytes for rank 0, which expects 8" : "did not arrive",
                          run_barrier(comm));
    });
}

TEST_P(Several, ARankThatLeavesIsNamedAtOnce)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        EXPECT_ZOFF_OK(run_barrier(comm));
        meet(); // otherwise the message of the first rank to notice could arrive before the rest of this barrier
        if (rank == 0)
            comms[0].reset();
        else
            EXPECT_LT(seconds_of([&] { EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0 has left the group", run_barrier(comm)); }),
                      10.0);
    });
}

// Each rank first waits for the operation that the other one started last.
TEST_P(Several, RanksMayWaitInAnyOrder)
{
    ASSERT_NO_FATAL_FAILURE(open(5));
    on_each([&](zoff_comm *comm, unsigned rank) {
        double x[2] = {1, 2};
        zoff_comm_work work[2] = {};
        EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x[0], 1, &work[0]));
        if (rank == 0) {
            EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work[0]));
        }
        EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x[1], 1, &work[1]));
        EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work[1]));
        EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work[0]));
        EXPECT_EQ(1.0 * size, x[0]);
        EXPECT_EQ(2.0 * size, x[1]);
    });
}

// Ranks may interleave the streams differently, if the order within each stream is the same.
TEST_P(Several, StreamsAreIndependentOfOneAnother)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        enum { EACH = 5 };
        double sums[ZOFF_COMM_GROUP][EACH];
        zoff_comm_work works[ZOFF_COMM_GROUP][EACH] = {};
        unsigned next[ZOFF_COMM_GROUP] = {};
        std::mt19937 random(rank); // a different order on each rank
        for (unsigned done = 0; done < ZOFF_COMM_GROUP * EACH;) {
            const unsigned stream = random() % ZOFF_COMM_GROUP, k = next[stream];
            if (k == EACH)
                continue;
            sums[stream][k] = stream * 100 + k + rank;
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_SUM;
            call.stream = (zoff_comm_stream)stream;
            call.out = &sums[stream][k];
            call.count = 1;
            EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &works[stream][k]));
            next[stream]++;
            done++;
        }
        for (unsigned stream = 0; stream < ZOFF_COMM_GROUP; stream++) {
            for (unsigned k = 0; k < EACH; k++) {
                EXPECT_ZOFF_OK(zoff_comm_wait(comm, &works[stream][k]));
                EXPECT_EQ(size * (stream * 100 + k) + size * (size - 1) / 2, sums[stream][k]);
            }
        }
    });
}

// A failed operation gives the same error when it is polled again, and so do others that were in flight with it. A rank that
// leaves with operations in flight must not cause memory of others to be freed.
TEST_P(Several, AnOperationThatFailedStaysFailed)
{
    ASSERT_NO_FATAL_FAILURE(open(0.3));
    on_each([&](zoff_comm *comm, unsigned rank) {
        if (rank == 1)
            return;
        double x[3] = {1, 2, 3};
        zoff_comm_work work[3] = {};
        for (int i = 0; i < 3; i++)
            ASSERT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x[i], 1, &work[i]));
        for (int again = 0; again < 2; again++) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "did not arrive", zoff_comm_wait(comm, &work[1]));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "did not arrive", zoff_comm_poll(comm, &work[0]));
        }
        EXPECT_EQ(1, x[0]);
    });
}

TEST_P(Several, LeavingWithOperationsInFlightTellsTheOthers)
{
    ASSERT_NO_FATAL_FAILURE(open(tells_who() ? 5 : 0.5));
    on_each([&](zoff_comm *comm, unsigned rank) {
        if (rank == 0) {
            double x = 1;
            zoff_comm_work work = {};
            EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x, 1, &work));
            comms[0].reset();
            meet();
            return;
        }
        meet();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                          tells_who() ? "rank 0 has left the group with an operation in flight" : "did not arrive",
                          run_barrier(comm));
    });
}

TEST_P(Comm, NothingToMoveNeedsNoMemory)
{
    on_each([&](zoff_comm *comm, unsigned) {
        std::vector<size_t> none(size, 0);
        for (zoff_comm_kind kind : {ZOFF_COMM_EXCHANGE, ZOFF_COMM_GATHER, ZOFF_COMM_SUM, ZOFF_COMM_BROADCAST}) {
            zoff_comm_call call = {};
            call.kind = kind;
            call.send_bytes = call.receive_bytes = none.data();
            zoff_comm_work work = {};
            EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
            EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work));
        }
    });
}

// A communicator that adds chooses the order of its additions, so the caller must ask for it explicitly.
TEST_P(Comm, AddingInAnExchangeIsOptional)
{
    on_each([&](zoff_comm *comm, unsigned) {
        std::vector<size_t> bytes(size, 0);
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_EXCHANGE;
        call.send_bytes = bytes.data();
        call.adds = true;
        zoff_comm_work work = {};
        if (comm->adds) {
            EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
            EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work));
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "cannot add up pieces while it exchanges them",
                              zoff_comm_start(comm, &call, &work));
        }
        EXPECT_ZOFF_OK(run_barrier(comm));
    });
}

TEST_P(Comm, TooManyInFlightAreRefused)
{
    on_each([&](zoff_comm *comm, unsigned) {
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_BARRIER;
        zoff_comm_work first = {}, work = {};
        ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &first));
        for (int i = 0; i < 63; i++) {
            ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
            ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "operation 1 is not done yet", zoff_comm_start(comm, &call, &work));
        ASSERT_ZOFF_OK(zoff_comm_wait(comm, &first));
        ASSERT_ZOFF_OK(run_barrier(comm));
    });
}

} // namespace
