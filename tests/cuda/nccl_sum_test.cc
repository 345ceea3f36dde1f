/* SPDX-License-Identifier: Apache-2.0 */
// nccl_sum_test.cc: gradients that NCCL adds (zoff.reduce_scatter). Tests the communicator's call and its errors, and that an
// engine's sums really come from NCCL. Runs over the NCCL made of threads, which adds from the last rank to the first.
#include "nccl_tests.h"
#include "rank_job.h"

#include <atomic>

using namespace zoff_test;

namespace
{
class NcclSum : public NcclGroupTest
{
};

// Numbers in device memory, which here is memory of the process.
struct numbers {
    explicit numbers(size_t count)
    {
        void *made = nullptr;
        EXPECT_EQ(cudaSuccess, in_library<cudaError_t (*)(void **, size_t)>(CUDART, "cudaMalloc")(&made, count * 4 + 4));
        at = (float *)made;
    }
    ~numbers() { in_library<cudaError_t (*)(void *)>(CUDART, "cudaFree")(at); }
    numbers(const numbers &) = delete;
    float *at;
};

zoff_comm_call call_of(const void *in, void *out, const std::vector<size_t> &bytes)
{
    zoff_comm_call call = {};
    call.kind = ZOFF_COMM_EXCHANGE;
    call.stream = ZOFF_COMM_REDUCE;
    call.in = in;
    call.out = out;
    call.send_bytes = bytes.data();
    call.adds = true;
    return call;
}

zoff_status run(zoff_comm *comm, const zoff_comm_call &call)
{
    zoff_comm_work work = {};
    const zoff_status status = zoff_comm_start(comm, &call, &work);
    return status < 0 ? status : zoff_comm_wait(comm, &work);
}

zoff_status run_barrier(zoff_comm *comm)
{
    zoff_comm_call call = {};
    call.kind = ZOFF_COMM_BARRIER;
    call.stream = ZOFF_COMM_REDUCE;
    return run(comm, call);
}

float term(unsigned rank, unsigned to, size_t i)
{
    static const float TERMS[] = {1, 0x1p-24f, 0x1p-24f, -1};
    return i % 2 ? TERMS[rank] : (float)(rank * 100 + to * 10) + (float)(i % 7);
}

void add_up(zoff_comm *comm, size_t count)
{
    const unsigned rank = zoff_comm_rank(comm), size = zoff_comm_size(comm);
    const std::vector<size_t> bytes(size, count * sizeof(float));
    numbers in(count * size), out(count);
    for (unsigned to = 0; to < size; to++) {
        for (size_t i = 0; i < count; i++)
            in.at[to * count + i] = term(rank, to, i);
    }
    ASSERT_ZOFF_OK(run(comm, call_of(in.at, out.at, bytes)));
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        float want = term(size - 1, rank, i);
        for (unsigned from = size - 1; from-- > 0;)
            want += term(from, rank, i);
        wrong += memcmp(&want, &out.at[i], sizeof want) != 0;
    }
    EXPECT_EQ(0u, wrong) << "of " << count << " on rank " << rank << " of " << size;
}

TEST_F(NcclSum, EachRankGetsTheSumOfItsPieces)
{
    for (unsigned size : {1u, 2u, 3u, 4u}) {
        ASSERT_NO_FATAL_FAILURE(open(size));
        on_threads(size, [&](unsigned rank) {
            for (size_t count : {(size_t)0, (size_t)1, (size_t)7, (size_t)100, (size_t)300001})
                add_up(comms[rank], count);
            // Bytes to and from other ranks are counted as for any exchange.
            zoff_comm_info info = {};
            info.struct_size = sizeof info;
            EXPECT_ZOFF_OK(zoff_comm_get_info(comms[rank], &info));
            EXPECT_EQ((size - 1) * 300109u * 4, info.sent_bytes);
            EXPECT_EQ((size - 1) * 300109u * 4, info.received_bytes);
        });
        close_group(comms);
    }
    comms.clear();
}

TEST_F(NcclSum, OthersBeforeAndBehindIt)
{
    ASSERT_NO_FATAL_FAILURE(open(3));
    on_threads(3, [&](unsigned rank) {
        for (int round = 0; round < 5; round++) {
            numbers in(30), out(10);
            const std::vector<size_t> bytes(3, 40);
            double votes[2] = {1, (double)rank};
            zoff_comm_work sum = {}, vote = {};
            for (size_t i = 0; i < 30; i++)
                in.at[i] = (float)(rank + i);
            const zoff_comm_call call = call_of(in.at, out.at, bytes);
            ASSERT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &sum));
            ASSERT_ZOFF_OK(zoff_comm_sum_scalars(comms[rank], votes, 2, &vote));
            ASSERT_ZOFF_OK(run_barrier(comms[rank]));
            ASSERT_ZOFF_OK(zoff_comm_wait(comms[rank], &vote));
            ASSERT_ZOFF_OK(zoff_comm_wait(comms[rank], &sum));
            EXPECT_EQ(3, votes[0] * votes[1] / 3);
            for (size_t i = 0; i < 10; i++)
                EXPECT_EQ((float)(3 + 3 * (rank * 10 + i)), out.at[i]);
        }
    });
}

// ---- faults ----

TEST_F(NcclSum, RefusedSumsLeaveTheGroupUsable)
{
    ASSERT_NO_FATAL_FAILURE(open(2));
    on_threads(2, [&](unsigned rank) {
        numbers device(16);
        float host[16] = {};
        const std::vector<size_t> same(2, 16), other = {16, 12}, odd(2, 6);
        zoff_comm *comm = comms[rank];
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the input is memory of the host", run(comm, call_of(host, device.at, same)));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the result is memory of the host", run(comm, call_of(device.at, host, same)));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the piece for rank 1 has 12 bytes, the piece for rank 0 16",
                          run(comm, call_of(device.at, device.at + 8, other)));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "fp32 pieces of one length", run(comm, call_of(device.at, device.at + 8, odd)));
        zoff_comm_call gather = call_of(device.at, device.at + 8, same);
        gather.kind = ZOFF_COMM_GATHER;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "all_gather cannot add up", run(comm, gather));
        EXPECT_ZOFF_OK(run_barrier(comm));
    });
}

TEST_F(NcclSum, RanksThatDoNotMakeTheSameCallHearOfIt)
{
    ASSERT_NO_FATAL_FAILURE(open(2));
    on_threads(2, [&](unsigned rank) {
        numbers in(4), out(4);
        const std::vector<size_t> bytes(2, 8);
        zoff_comm_call call = call_of(in.at, out.at, bytes);
        call.receive_bytes = bytes.data();
        call.adds = rank == 1;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                          rank ? "rank 0 calls all_to_all number 1 of the gradients (16 bytes) while rank 1 calls "
                                 "reduce_scatter number 1 of the gradients (8 bytes)"
                               : "rank 1 calls reduce_scatter number 1 of the gradients (8 bytes) while rank 0 calls "
                                 "all_to_all number 1 of the gradients (16 bytes)",
                          run(comms[rank], call));
    });
    close_group(comms);
    ASSERT_NO_FATAL_FAILURE(open(2));
    on_threads(2, [&](unsigned rank) {
        numbers in(8), out(4);
        const std::vector<size_t> bytes(2, rank ? 8 : 16);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, rank ? "rank 0 has 16 bytes for rank 1, which expects 8" : "rank 1 has 8 bytes for",
                          run(comms[rank], call_of(in.at, out.at, bytes)));
    });
}

TEST_F(NcclSum, ErrorsHaveNcclsMessage)
{
    ASSERT_NO_FATAL_FAILURE(open(2, 0.5));
    fail("ncclReduceScatter", 0);
    std::atomic<int> told{0};
    on_threads(2, [&](unsigned rank) {
        numbers in(8), out(4);
        const std::vector<size_t> bytes(2, 16);
        EXPECT_EQ(ZOFF_ERR_COMM, run(comms[rank], call_of(in.at, out.at, bytes)));
        const std::string words = zoff_last_error();
        const bool is_it =
            words.find("ncclReduceScatter: unhandled system error: a test has ncclReduceScatter fail") != std::string::npos;
        told += is_it;
        EXPECT_TRUE(is_it || words.find("all ranks arrived, but one makes no progress") != std::string::npos) << words;
    });
    EXPECT_EQ(1, told);
}

// Closing the communicator must leave nothing behind. The first sum connects the ranks, and before 2.27 the call itself waits
// for that.
TEST_F(NcclSum, AnOlderNcclThatConnectsDoesNotWaitForLong)
{
    pretend(22600);
    ASSERT_NO_FATAL_FAILURE(open(2, 0.3));
    fail("ncclReduceScatter", 0);
    std::atomic<int> failed{0}, waited{0};
    on_threads(2, [&](unsigned rank) {
        const std::vector<size_t> bytes(2, 4000);
        numbers in(2000), out(1000);
        EXPECT_EQ(ZOFF_ERR_COMM, run(comms[rank], call_of(in.at, out.at, bytes)));
        failed += strstr(zoff_last_error(), "a test has ncclReduceScatter fail") != nullptr;
        waited += strstr(zoff_last_error(), "of 2: NCCL has waited for 0.3 s to connect the ranks") != nullptr;
        zoff_comm_close(comms[rank]);
        comms[rank] = nullptr;
    });
    EXPECT_EQ(1, failed);
    EXPECT_EQ(1, waited);
}

TEST_F(NcclSum, ARankThatStopsInTheMiddle)
{
    ASSERT_NO_FATAL_FAILURE(open(3, 0.4));
    on_threads(3, [&](unsigned rank) { EXPECT_ZOFF_OK(run_barrier(comms[rank])); });
    stop(1);
    on_threads(3, [&](unsigned rank) {
        numbers in(3000), out(1000);
        const std::vector<size_t> bytes(3, 4000);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "reduce_scatter number 2 of the gradients (4000 bytes) has waited for 0.4 s",
                          run(comms[rank], call_of(in.at, out.at, bytes)));
        EXPECT_TRUE(zoff_comm_lets_go(comms[rank]));
    });
}

// ---- the engine ----

// Added in rank order, the small terms are lost one by one. In the reverse order they add up first.
float first_moment(const std::string &adds)
{
    rank_job job(3);
    rank_trainers all(job, 1, [](trainer &t) { t.add(5000, 1, ZOFF_F32, ZOFF_F32); });
    all.use_devices(0);
    all.seal("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.01, \"momentum\": 0.9}}, \"gradient_clipping\": 0, "
             "\"zoff\": {\"reduce_scatter\": \"" +
                 adds + "\"}, \"zero_optimization\": {\"stage\": 2}}",
             3000);
    for (unsigned rank = 0; rank < 3; rank++) {
        for (size_t k = 0; k < 5000; k++)
            trainer::put(all.trainers[rank]->grad(0), ZOFF_F32, k, term(rank, 0, 1));
    }
    std::vector<float> mean(3);
    job.on_each([&](unsigned rank) {
        all.trainers[rank]->hand_over(all.engines[rank].get(), 0, 0);
        EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
        EXPECT_ZOFF_OK(zoff_state_read(all.engines[rank].get(), 0, ZOFF_STATE_M, 4321, 1, &mean[rank]));
    });
    EXPECT_EQ(mean[0], mean[1]);
    EXPECT_EQ(mean[0], mean[2]);
    return mean[0];
}

TEST_F(NcclSum, AnEnginesSumsAreNcclsWhereThatIsAskedFor)
{
    const float third = (float)(1.0 / 3);
    EXPECT_EQ(third, first_moment("ordered"));
    EXPECT_EQ((1 + 0x1p-23f) * third, first_moment("nccl"));
    EXPECT_NE(third, (1 + 0x1p-23f) * third);
}

// NCCL connects ranks and allocates memory at the first sum of each size. Seal does that, so that no step has to.
TEST_F(NcclSum, SumsAreTriedWhenAnEngineIsSealed)
{
    for (bool first : {true, false}) {
        rank_job job(2, 0.5);
        rank_trainers all(job, 1, [](trainer &t) { t.add(5000, 1, ZOFF_BF16, ZOFF_BF16); });
        all.use_devices(0);
        std::atomic<int> told{0};
        fail("ncclReduceScatter", first ? 0 : 2); // two buckets have two sizes on each rank
        job.on_each([&](unsigned rank) {
            engine e = make_engine(*all.trainers[rank],
                                   "{\"zoff\": {\"reduce_scatter\": \"nccl\"}, \"zero_optimization\": {\"stage\": 1}}", 3000, 0,
                                   job.comm_of(rank), all.devices[rank]->accel);
            EXPECT_EQ(ZOFF_ERR_COMM, zoff_engine_seal(e.get()));
            told += strstr(zoff_last_error(), "a test has ncclReduceScatter fail") != nullptr;
        });
        EXPECT_EQ(1, told);
    }
}

TEST_F(NcclSum, AStepThatNcclFailsIsBefore)
{
    rank_job job(2, 0.5);
    rank_trainers all(job, 1, [](trainer &t) { t.add(5000, 1, ZOFF_BF16, ZOFF_BF16); });
    all.use_devices(0);
    all.seal("{\"zoff\": {\"reduce_scatter\": \"nccl\"}, \"zero_optimization\": {\"stage\": 1}}", 3000);
    all.backward(0, 0.5f);
    fail("ncclReduceScatter", 1);
    std::atomic<int> told{0};
    job.on_each([&](unsigned rank) {
        zoff_step_info info = new_info();
        all.trainers[rank]->hand_over(all.engines[rank].get(), 0, 0);
        EXPECT_EQ(ZOFF_ERR_COMM, zoff_step(all.engines[rank].get(), nullptr, &info));
        told += strstr(zoff_last_error(), "a test has ncclReduceScatter fail") != nullptr;
        EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
    });
    EXPECT_EQ(1, told);
}
} // namespace
