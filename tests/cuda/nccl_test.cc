/* SPDX-License-Identifier: Apache-2.0 */
// nccl_test.cc: parts of the plug-in that only NCCL needs: device memory, pieces that take several rounds, errors of NCCL, and
// ranks that stop. Nothing may be left behind. The tests steer the NCCL made of threads.
#include "nccl_tests.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>

using namespace zoff_test;

namespace
{
class Nccl : public NcclGroupTest
{
};

char byte_of(unsigned from, unsigned to, size_t at)
{
    return (char)(from * 7 + to * 3 + at + (at >> 9));
}

// Memory of the device, or ordinary memory.
struct memory {
    memory(size_t bytes_, bool is_device_) : bytes(bytes_), is_device(is_device_)
    {
        static const auto get = in_library<cudaError_t (*)(void **, size_t)>(CUDART, "cudaMalloc");
        void *made = malloc(bytes + 1);
        if (is_device) {
            free(made);
            EXPECT_EQ(cudaSuccess, get(&made, bytes + 1));
        }
        at = (char *)made;
    }
    ~memory()
    {
        static const auto put_back = in_library<cudaError_t (*)(void *)>(CUDART, "cudaFree");
        if (is_device)
            put_back(at);
        else
            free(at);
    }
    memory(const memory &) = delete;
    size_t bytes;
    bool is_device;
    char *at; // the test's device uses memory of the process
};

// Each pair of ranks has another size: zero, small enough for the note, one round, several rounds.
void exchange(zoff_comm *comm, bool in_is_device, bool out_is_device)
{
    static const size_t SIZES[] = {0, 100, 300000, (40 << 20) + 12345};
    const unsigned rank = zoff_comm_rank(comm), size = zoff_comm_size(comm);
    std::vector<size_t> send, receive;
    size_t sends = 0, receives = 0;
    for (unsigned other = 0; other < size; other++) {
        send.push_back(SIZES[(rank * 2 + other) % 4]);
        receive.push_back(SIZES[(other * 2 + rank) % 4]);
        sends += send.back();
        receives += receive.back();
    }
    memory in(sends, in_is_device), out(receives, out_is_device);
    char *at = in.at;
    for (unsigned other = 0; other < size; other++) {
        for (size_t i = 0; i < send[other]; i++)
            *at++ = byte_of(rank, other, i);
    }
    zoff_comm_call call = {};
    call.kind = ZOFF_COMM_EXCHANGE;
    call.stream = ZOFF_COMM_REDUCE;
    call.in = in.at;
    call.out = out.at;
    call.send_bytes = send.data();
    call.receive_bytes = receive.data();
    zoff_comm_work work = {};
    ASSERT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
    ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
    at = out.at;
    for (unsigned other = 0; other < size; other++) {
        size_t wrong = 0;
        for (size_t i = 0; i < receive[other]; i++)
            wrong += *at++ != byte_of(other, rank, i);
        EXPECT_EQ(0u, wrong) << "from " << other << " to " << rank;
    }
}

TEST_F(Nccl, PiecesOfAnySizeBetweenMemoryOfAnyKind)
{
    ASSERT_NO_FATAL_FAILURE(open(3));
    for (bool in_is_device : {false, true}) {
        for (bool out_is_device : {false, true})
            on_threads(3, [&](unsigned rank) { exchange(comms[rank], in_is_device, out_is_device); });
    }
}

// An allocation may wait for all work on the device. That work may wait for another rank which is also allocating.
TEST_F(Nccl, NothingIsAllocatedOnceAllHaveJoined)
{
    ASSERT_NO_FATAL_FAILURE(open(3));
    const auto refuse = in_library<void (*)(const char *, int)>(CUDART, "zoff_cudart_fail");
    refuse("cudaMalloc", 0);
    refuse("cudaHostAlloc", 0);
    on_threads(3, [&](unsigned rank) { exchange(comms[rank], false, false); });
    in_library<void (*)()>(CUDART, "zoff_cudart_heal")();
}

// Each call asks whether its memory is the device's. If that query fails on one rank, the operation must fail: the answer for
// the last call must not be reused.
TEST_F(Nccl, WhereMemoryIsHasToBeKnown)
{
    const auto refuse = in_library<void (*)(const char *, int)>(CUDART, "zoff_cudart_fail");
    const auto heal = in_library<void (*)()>(CUDART, "zoff_cudart_heal");
    std::atomic<unsigned> failed{1};
    int calls = 0;
    for (; failed; calls++) {
        ASSERT_NO_FATAL_FAILURE(open(2, 0.5));
        failed = 0;
        refuse("cudaPointerGetAttributes", calls);
        on_threads(2, [&](unsigned rank) {
            char in[8] = {}, out[16];
            size_t each[2] = {sizeof in, sizeof in};
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_GATHER;
            call.stream = ZOFF_COMM_WEIGHTS;
            call.in = in;
            call.out = out;
            call.receive_bytes = each;
            zoff_comm_work work = {};
            zoff_status status = zoff_comm_start(comms[rank], &call, &work);
            status = status < 0 ? status : zoff_comm_wait(comms[rank], &work);
            failed += status < 0;
            zoff_comm_abandon(comms[rank], &work);
        });
        heal();
        close_group(comms);
        comms.clear();
    }
    EXPECT_GT(calls, 4) << "two ranks ask for two addresses each";
}

TEST_F(Nccl, RanksMayHaveMemoryOfDifferentKinds)
{
    ASSERT_NO_FATAL_FAILURE(open(4));
    on_threads(4, [&](unsigned rank) { exchange(comms[rank], rank % 2, rank / 2); });
}

TEST_F(Nccl, SumsAndBroadcastsInMemoryOfADevice)
{
    static const double TERMS[] = {1, 0x1p-53, -1}; // in any other order the sum is not 0
    ASSERT_NO_FATAL_FAILURE(open(3));
    on_threads(3, [&](unsigned rank) {
        for (size_t count : {(size_t)1, (size_t)3, (size_t)100000}) {
            memory x(count * sizeof(double), true), text(count, true);
            auto *sum = (double *)x.at;
            for (size_t i = 0; i < count; i++) {
                sum[i] = i % 3 ? (double)(rank + i) : TERMS[rank];
                text.at[i] = (char)(rank * 10 + i);
            }
            zoff_comm_work work = {}, second = {};
            ASSERT_ZOFF_OK(zoff_comm_sum_scalars(comms[rank], sum, count, &work));
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_BROADCAST;
            call.stream = ZOFF_COMM_WEIGHTS;
            call.out = text.at;
            call.count = count;
            call.root = 2;
            ASSERT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &second));
            ASSERT_ZOFF_OK(zoff_comm_wait(comms[rank], &work));
            ASSERT_ZOFF_OK(zoff_comm_wait(comms[rank], &second));
            for (size_t i = 0; i < count; i++) {
                EXPECT_EQ(i % 3 ? (double)(3 + 3 * i) : 0.0, sum[i]);
                EXPECT_EQ((char)(20 + i), text.at[i]);
            }
        }
    });
}

// ---- faults ----

zoff_status sum_of(zoff_comm *comm, size_t count = 1)
{
    std::vector<double> x(count, 1);
    zoff_comm_work work = {};
    const zoff_status status = zoff_comm_sum_scalars(comm, x.data(), count, &work);
    return status < 0 ? status : zoff_comm_wait(comm, &work);
}

TEST_F(Nccl, ErrorsHaveNcclsMessage)
{
    ASSERT_NO_FATAL_FAILURE(open(2, 0.5));
    fail("ncclGroupEnd", 0);
    std::atomic<int> told{0};
    on_threads(2, [&](unsigned rank) {
        EXPECT_EQ(ZOFF_ERR_COMM, sum_of(comms[rank]));
        const std::string words = zoff_last_error();
        told += words.find("ncclGroupEnd: unhandled system error: a test has ncclGroupEnd fail") != std::string::npos;
        EXPECT_EQ(ZOFF_ERR_COMM, sum_of(comms[rank])) << "the communicator is broken and gives the reason";
        EXPECT_EQ(words, zoff_last_error());
    });
    EXPECT_EQ(1, told) << "the other rank has waited";
}

TEST_F(Nccl, AnyCallOfNcclMayFail)
{
    for (const char *call : {"ncclSend", "ncclRecv", "ncclGroupEnd", "ncclCommGetAsyncError"}) {
        for (int after : {0, 1, 5}) {
            ASSERT_NO_FATAL_FAILURE(open(2, 0.2));
            fail(call, after);
            on_threads(2, [&](unsigned rank) {
                for (int i = 0; i < 4; i++)
                    (void)sum_of(comms[rank], 1000);
                EXPECT_EQ(ZOFF_ERR_COMM, sum_of(comms[rank])) << call;
            });
            close_group(comms);
            comms.clear();
            EXPECT_EQ(0, communicators()) << call;
        }
    }
}

TEST_F(Nccl, ABrokenConnectionIsSeenWhileNothingComes)
{
    ASSERT_NO_FATAL_FAILURE(open(3, 20));
    on_threads(3, [&](unsigned rank) { EXPECT_ZOFF_OK(sum_of(comms[rank])); });
    const auto from = std::chrono::steady_clock::now();
    on_threads(3, [&](unsigned rank) {
        if (rank == 2)
            return;
        double x = 1;
        zoff_comm_work work = {};
        const char *words = "remote process exited or there was a network error: the test has broken the connection";
        if (rank == 0) { // the other rank starts only when the connection is broken
            EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comms[rank], &x, 1, &work));
            for (int i = 0; i < 100; i++)
                EXPECT_EQ(ZOFF_PENDING, zoff_comm_poll(comms[rank], &work));
        }
        usleep(20000);
        brk((int)rank);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, rank == 0 ? zoff_comm_wait(comms[rank], &work) : sum_of(comms[rank]));
    });
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), 10.0);
    for (zoff_comm *comm : comms)
        comm->timeout_seconds = 0.2; // the time the two wait for the third when they close
}

TEST_F(Nccl, ARankThatStopsInTheMiddleIsNotNamed)
{
    ASSERT_NO_FATAL_FAILURE(open(3, 0.4));
    on_threads(3, [&](unsigned rank) { EXPECT_ZOFF_OK(sum_of(comms[rank])); });
    stop(1);
    on_threads(3, [&](unsigned rank) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "NCCL cannot name the rank: look at the logs of the other ranks",
                          sum_of(comms[rank], 5000));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "has waited for 0.4 s: one of the other ranks did not arrive"));
        EXPECT_TRUE(zoff_comm_lets_go(comms[rank]));
    });
}

// A rank that has found the difference closes its communicator before its own notes have arrived at the others.
TEST_F(Nccl, EachRankHearsThatTheCallsDiffer)
{
    ASSERT_NO_FATAL_FAILURE(open(2, 5));
    on_threads(2, [&](unsigned rank) { EXPECT_ZOFF_OK(sum_of(comms[rank])); });
    delay(1, 100);
    on_threads(2, [&](unsigned rank) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "every rank must make the same calls in the same order",
                          sum_of(comms[rank], 1 + rank));
    });
}

// Groups nest within a thread, and nothing starts before the outermost ncclGroupEnd(). NCCL does not say whether a group is
// open, so zoff cannot refuse the call. The operation may time out, or find a message that another rank did not send. It must
// never return a wrong sum.
TEST_F(Nccl, AnOpenGroupOfTheProgramGivesNoWrongResult)
{
    for (bool all : {true, false}) {
        ASSERT_NO_FATAL_FAILURE(open(2, 0.5));
        on_threads(2, [&](unsigned rank) {
            const auto start = in_library<ncclResult_t (*)()>(NCCL, "ncclGroupStart");
            EXPECT_ZOFF_OK(sum_of(comms[rank]));
            if (all || rank == 0) {
                EXPECT_EQ(ncclSuccess, start());
            }
            EXPECT_EQ(ZOFF_ERR_COMM, sum_of(comms[rank])) << zoff_last_error();
            // The group ends with this thread. Its operations belong to a communicator that is already closed.
        });
        close_group(comms);
        comms.clear();
    }
}

// When close returns, the memory belongs to the caller again, and no communicator of NCCL is left.
TEST_F(Nccl, ClosingWithPiecesInFlight)
{
    ASSERT_NO_FATAL_FAILURE(open(3, 0.5));
    on_threads(3, [&](unsigned rank) {
        std::vector<size_t> bytes(3, 1 << 20);
        memory in(3 << 20, false), out(3 << 20, false);
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_EXCHANGE;
        call.in = in.at;
        call.out = out.at;
        call.send_bytes = call.receive_bytes = bytes.data();
        zoff_comm_work work = {};
        ASSERT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &work));
        for (unsigned i = 0; i < 100 * rank; i++)
            (void)zoff_comm_poll(comms[rank], &work);
        zoff_comm_close(comms[rank]);
        comms[rank] = nullptr;
    });
    EXPECT_EQ(0, communicators());
}

// Before 2.27 a thread can have one group in progress at a time. The trainer owns the thread and may call NCCL next.
TEST_F(Nccl, AnOlderNcclHasNothingUnderWayWhenACallReturns)
{
    for (int version : {21800, 22100, 22200, 22500, 22600}) {
        pretend(version);
        ASSERT_NO_FATAL_FAILURE(open(3));
        on_threads(3, [&](unsigned rank) {
            enum { EACH = 3 };
            double x[ZOFF_COMM_GROUP * EACH];
            zoff_comm_work works[ZOFF_COMM_GROUP * EACH] = {};
            exchange(comms[rank], false, true);
            for (unsigned i = 0; i < ZOFF_COMM_GROUP * EACH; i++) {
                const unsigned stream = (i + rank) % ZOFF_COMM_GROUP, at = stream * EACH + i / ZOFF_COMM_GROUP;
                zoff_comm_call call = {};
                call.kind = ZOFF_COMM_SUM;
                call.stream = (zoff_comm_stream)stream;
                call.out = &x[at];
                call.count = 1;
                x[at] = 1;
                EXPECT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &works[at])) << version;
                EXPECT_FALSE(is_under_way()) << version;
            }
            for (unsigned i = 0; i < ZOFF_COMM_GROUP * EACH; i++) {
                EXPECT_ZOFF_OK(zoff_comm_wait(comms[rank], &works[i])) << version;
                EXPECT_EQ(3, x[i]) << version;
                EXPECT_FALSE(is_under_way()) << version;
            }
        });
        close_group(comms);
        comms.clear();
        EXPECT_EQ(0, communicators()) << version;
    }
}

// A pending error is, for example, that of a launch, which a program sees only if it asks for it. CUDA keeps one error per
// thread, and the "not ready" of a query replaces it.
TEST_F(Nccl, NoErrorOfThePluginsIsLeftForTheProgram)
{
    const auto peek = in_library<cudaError_t (*)()>(CUDART, "cudaPeekAtLastError");
    const auto unregister = in_library<cudaError_t (*)(void *)>(CUDART, "cudaHostUnregister");
    for (const bool broken : {false, true}) {
        open(2);
        on_threads(2, [&](unsigned rank) {
            unsigned word = 1;
            EXPECT_EQ(cudaSuccess, peek());
            unregister(&word); /* fails: the memory is not registered */
            const cudaError_t error = peek();
            EXPECT_NE(cudaSuccess, error);
            if (broken) { /* break it with an operation in flight */
                zoff_comm_call call = {};
                zoff_comm_work work = {};
                call.kind = ZOFF_COMM_BARRIER;
                EXPECT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &work));
                zoff_comm_abandon(comms[rank], &work);
            }
            zoff_comm_close(comms[rank]);
            const cudaError_t left = peek();
            EXPECT_TRUE(left == error || left == cudaSuccess) << left;
        });
        comms.clear();
    }
}

TEST_F(Nccl, AllLeaveAtOnceWithoutWaiting)
{
    ASSERT_NO_FATAL_FAILURE(open(4));
    EXPECT_EQ(12, communicators());
    on_threads(4, [&](unsigned rank) { EXPECT_ZOFF_OK(sum_of(comms[rank])); });
    const auto from = std::chrono::steady_clock::now();
    close_group(comms);
    comms.clear();
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), 1.0);
    EXPECT_EQ(0, communicators());
}
} // namespace
