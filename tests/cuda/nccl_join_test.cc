/* SPDX-License-Identifier: Apache-2.0 */
// nccl_join_test.cc: how ranks join over NCCL: by a broadcast of the program, by a communicator of the program, or by the
// launcher's variables. Also tests the errors when a rank does not join or something is missing.
#include "nccl_tests.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

using namespace zoff_test;

#if !defined(ZOFF_TEST_SANITIZED) // sanitizers replace calloc() themselves
#define CALLOC_CAN_FAIL

// Number of calloc() calls of the plug-in that succeed before one fails; -1: none fails.
static std::atomic<int> calloc_fails_after{-1};

extern "C" void *__libc_calloc(size_t count, size_t bytes);

// Replaces calloc() of the C library for all libraries of the process.
extern "C" void *calloc(size_t count, size_t bytes)
{
    Dl_info caller;
    if (calloc_fails_after >= 0 && dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libzoff_nccl") &&
        calloc_fails_after-- == 0)
        return nullptr;
    return __libc_calloc(count, bytes);
}
#endif

namespace
{
zoff_nccl_opts opts_of(unsigned rank, unsigned size, double timeout_seconds)
{
    zoff_nccl_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.rank = rank;
    opts.size = size;
    opts.timeout_seconds = timeout_seconds;
    return opts;
}

zoff_status sum_is(zoff_comm *comm, double want)
{
    double x = 1 + zoff_comm_rank(comm);
    zoff_comm_work work = {};
    zoff_status status = zoff_comm_sum_scalars(comm, &x, 1, &work);
    status = status < 0 ? status : zoff_comm_wait(comm, &work);
    EXPECT_EQ(want, x);
    return status;
}

int fails(void *, void *, size_t)
{
    return 1;
}

using NcclJoin = NcclTest;

TEST_F(NcclJoin, ErrorsNameTheMissingPart)
{
    zoff_comm *comm = nullptr;
    zoff_nccl_opts opts = opts_of(0, 2, 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "neither nccl_comm nor broadcast", zoff_comm_open_nccl(&opts, &comm));
    opts.broadcast = fails;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0: the program's broadcast of NCCL's id has failed",
                      zoff_comm_open_nccl(&opts, &comm));
    opts.rank = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "rank 2 of 2", zoff_comm_open_nccl(&opts, &comm));
    opts.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_comm_open_nccl(&opts, &comm));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_comm_open_nccl(nullptr, &comm));
    thread_broadcast broadcast;
    thread_broadcast::place place = {&broadcast, 0};
    opts = opts_of(0, 1, 1);
    opts.broadcast = thread_broadcast::call;
    opts.ctx = &place;
    opts.device = 7;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "CUDA has devices 0 to 1; 7 was asked for", zoff_comm_open_nccl(&opts, &comm));
    EXPECT_EQ(nullptr, comm);
}

// nccl_comm alone: see OverACommunicatorOfTheProgram. A new field belongs here.
TEST_F(NcclJoin, EachFieldAloneChangesSomethingOrIsRefused)
{
    static_assert(sizeof(zoff_nccl_opts) == offsetof(zoff_nccl_opts, nccl_stream) + sizeof(void *));
    const auto copies = [](void *ctx, void *, size_t) {
        ++*(int *)ctx;
        return 0;
    };
    int calls[2] = {0, 0};
    zoff_nccl_opts base = opts_of(0, 1, 5);
    base.broadcast = copies;
    base.ctx = &calls[0];
    const auto open = [](const zoff_nccl_opts &opts) {
        zoff_comm *comm = nullptr;
        const zoff_status status = zoff_comm_open_nccl(&opts, &comm);
        zoff_comm_close(comm);
        return status;
    };
    ASSERT_ZOFF_OK(open(base));
    EXPECT_EQ(1, calls[0]);
    const std::pair<const char *, std::function<void(zoff_nccl_opts &)>> refused[] = {
        {"rank 1 of 1", [](zoff_nccl_opts &o) { o.rank = 1; }},
        {"rank 0 of 0", [](zoff_nccl_opts &o) { o.size = 0; }},
        {"7 was asked for", [](zoff_nccl_opts &o) { o.device = 7; }},
        {"timeout_seconds is not a number", [](zoff_nccl_opts &o) { o.timeout_seconds = NAN; }},
        {"broadcast of NCCL's id has failed", [](zoff_nccl_opts &o) { o.broadcast = fails; }},
        {"nccl_stream is set", [&](zoff_nccl_opts &o) { o.nccl_stream = &calls; }}};
    for (const auto &one : refused) {
        zoff_nccl_opts changed = base;
        one.second(changed);
        EXPECT_LT(open(changed), 0);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), one.first)) << zoff_last_error();
    }
    base.ctx = &calls[1];
    ASSERT_ZOFF_OK(open(base));
    EXPECT_EQ(1, calls[1]);
}

TEST_F(NcclJoin, ARankThatDoesNotJoin)
{
    thread_broadcast broadcast;
    on_threads(2, [&](unsigned rank) {
        thread_broadcast::place place = {&broadcast, rank};
        zoff_nccl_opts opts = opts_of(rank, 3, 0.3);
        opts.broadcast = thread_broadcast::call;
        opts.ctx = &place;
        zoff_comm *comm = nullptr;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                          "of 3: ncclCommInitRankConfig has waited for 0.3 s: one of the other ranks did not join",
                          zoff_comm_open_nccl(&opts, &comm));
    });
}

// A failure at rank 0 must end the wait of every other rank, with a message or at its deadline.
TEST_F(NcclJoin, AnyCallMayFail)
{
    for (const char *call :
         {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommGetAsyncError", "ncclSend"}) {
        for (int i = 0; i < 6; i++) {
            static const int AFTER[] = {0, 1, 3};
            const int after = AFTER[i % 3];
            thread_broadcast broadcast;
            pretend(i < 3 ? 0 : 22600);
            fail(call, after);
            int failed[2] = {0, 0};
            on_threads(2, [&](unsigned rank) {
                thread_broadcast::place place = {&broadcast, rank};
                zoff_nccl_opts opts = opts_of(rank, 2, 0.2);
                opts.broadcast = thread_broadcast::call;
                opts.ctx = &place;
                zoff_comm *comm = nullptr;
                failed[rank] = zoff_comm_open_nccl(&opts, &comm) < 0;
                if (failed[rank]) {
                    EXPECT_STRNE("", zoff_last_error());
                }
                zoff_comm_close(comm);
            });
            const bool was_called = std::string(call) != "ncclGetUniqueId" || after == 0;
            if (was_called && after == 0) {
                EXPECT_TRUE(failed[0] || failed[1]) << call << " " << after;
            }
            in_library<void (*)()>(NCCL, "zoff_nccl_heal")();
            EXPECT_EQ(0, communicators()) << call << " " << after;
        }
    }
}

// The trainer's communicator is split, and stays usable as before.
TEST_F(NcclJoin, OverACommunicatorOfTheProgram)
{
    const auto get_id = in_library<decltype(&ncclGetUniqueId)>(NCCL, "ncclGetUniqueId");
    const auto look = in_library<decltype(&ncclCommGetAsyncError)>(NCCL, "ncclCommGetAsyncError");
    const auto destroy = in_library<decltype(&ncclCommDestroy)>(NCCL, "ncclCommDestroy");
    for (int version : {0, 21900, 22500, 22600}) {
        ncclUniqueId id;
        pretend(version);
        ASSERT_EQ(ncclSuccess, get_id(&id));
        on_threads(3, [&](unsigned rank) {
            const ncclComm_t trainers = open_communicator(id, 3, (int)rank);
            ncclResult_t state = ncclInProgress;
            zoff_nccl_opts opts = opts_of(77, 99, 10); /* these options are not read */
            opts.nccl_comm = trainers;
            zoff_comm *comm = nullptr;
            ASSERT_ZOFF_OK(zoff_comm_open_nccl(&opts, &comm));
            EXPECT_FALSE(is_under_way()) << version;
            EXPECT_EQ(rank, zoff_comm_rank(comm));
            EXPECT_EQ(3u, zoff_comm_size(comm));
            EXPECT_ZOFF_OK(sum_is(comm, 6));
            zoff_comm_close(comm);
            EXPECT_FALSE(is_under_way()) << version;
            EXPECT_EQ(ncclSuccess, look(trainers, &state));
            EXPECT_EQ(ncclSuccess, state);
            destroy(trainers);
        });
    }
}

// A stream that is blocked by a host function while `held` is true.
struct held_stream {
    held_stream()
    {
        EXPECT_EQ(cudaSuccess, in_library<decltype(&cudaStreamCreateWithFlags)>(CUDART, "cudaStreamCreateWithFlags")(
                                   &stream, cudaStreamNonBlocking));
        EXPECT_EQ(cudaSuccess, in_library<decltype(&cudaLaunchHostFunc)>(CUDART, "cudaLaunchHostFunc")(
                                   stream,
                                   [](void *ctx) {
                                       while (*(std::atomic<bool> *)ctx)
                                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                   },
                                   &held));
    }
    ~held_stream()
    {
        held = false;
        in_library<decltype(&cudaStreamSynchronize)>(CUDART, "cudaStreamSynchronize")(stream);
        in_library<decltype(&cudaStreamDestroy)>(CUDART, "cudaStreamDestroy")(stream);
    }
    std::atomic<bool> held{true};
    cudaStream_t stream = nullptr;
};

// Joining waits for work that the program has in flight on its communicator, or gives up at the deadline.
TEST_F(NcclJoin, BehindWhatIsInTheProgramsStream)
{
    const auto get_id = in_library<decltype(&ncclGetUniqueId)>(NCCL, "ncclGetUniqueId");
    const auto destroy = in_library<decltype(&ncclCommDestroy)>(NCCL, "ncclCommDestroy");
    ncclUniqueId id;
    ASSERT_EQ(ncclSuccess, get_id(&id));
    const ncclComm_t trainers = open_communicator(id, 1, 0);
    const int before = communicators();
    zoff_nccl_opts opts = opts_of(0, 1, 0.2);
    opts.nccl_comm = trainers;
    zoff_comm *comm = nullptr;
    {
        held_stream s;
        opts.nccl_stream = s.stream;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the work in nccl_stream is not done after 0.2 s", zoff_comm_open_nccl(&opts, &comm));
        EXPECT_EQ(before, communicators());
    }
    held_stream s;
    opts.nccl_stream = s.stream;
    opts.timeout_seconds = 20;
    std::atomic<bool> was_held{true};
    std::thread release([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        was_held = communicators() == before;
        s.held = false;
    });
    EXPECT_ZOFF_OK(zoff_comm_open_nccl(&opts, &comm));
    release.join();
    EXPECT_TRUE(was_held) << "it was split before the stream was free";
    zoff_comm_close(comm);
    destroy(trainers);
    opts.nccl_comm = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "neither nccl_comm nor broadcast", zoff_comm_open_nccl(&opts, &comm));
    opts.broadcast = [](void *, void *, size_t) { return 0; };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "nccl_stream is set, but nccl_comm is not", zoff_comm_open_nccl(&opts, &comm));
}

// ---- the launcher's variables ----

class NcclLauncher : public NcclTest
{
  protected:
    ~NcclLauncher() override
    {
        for (const char *name : NAMES)
            unsetenv(name);
    }
    static void set(const std::map<std::string, std::string> &values)
    {
        for (const char *name : NAMES)
            unsetenv(name);
        for (const auto &line : values)
            setenv(line.first.c_str(), line.second.c_str(), 1);
    }
    static zoff_status open(const char *backend, double timeout_seconds, zoff_comm **out)
    {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.backend = backend;
        opts.timeout_seconds = timeout_seconds;
        return zoff_comm_open(&opts, out);
    }
    static constexpr const char *NAMES[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",   "LOCAL_WORLD_SIZE",
                                            "MASTER_ADDR", "MASTER_PORT", "NCCL_COMM_ID", "TORCHELASTIC_USE_AGENT_STORE"};
};

TEST_F(NcclLauncher, VariablesThatAreMissingAreNamed)
{
    zoff_comm *comm = nullptr;
    set({});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "start the program with torchrun", open("nccl", 1, &comm));
    set({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "Set MASTER_ADDR", open("nccl", 1, &comm));
    set({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "99999"}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "MASTER_PORT=99999 is not a port number", open("nccl", 1, &comm));
    set({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "RANK=2 and WORLD_SIZE=2 are not a valid rank and size", open("nccl", 1, &comm));
}

// Ranks that are threads share one environment and so one address. When all have joined, the environment must be unchanged.
TEST_F(NcclLauncher, TorchrunsRanksMeetAtItsPort)
{
    const std::map<std::string, std::string> base = {
        {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "29500"}, {"LOCAL_WORLD_SIZE", "2"}};
    for (const char *backend : {"nccl", "auto"}) {
        zoff_comm *made[2] = {};
        std::thread first;
        for (unsigned rank = 0; rank < 2; rank++) {
            auto values = base;
            values["RANK"] = values["LOCAL_RANK"] = std::to_string(rank);
            if (rank == 0) {
                set(values);
                first = std::thread([&] { EXPECT_ZOFF_OK(open(backend, 10, &made[0])) << backend; });
                while (communicators() == 0)
                    usleep(1000); // the other rank has read the variables and waits
                usleep(20000);
            } else {
                set(values);
                EXPECT_ZOFF_OK(open(backend, 10, &made[1])) << backend;
            }
        }
        first.join();
        EXPECT_EQ(nullptr, getenv("NCCL_COMM_ID"));
        ASSERT_TRUE(made[0] && made[1]);
        EXPECT_EQ(0u, zoff_comm_rank(made[0]));
        EXPECT_EQ(1u, zoff_comm_rank(made[1]));
        on_threads(2, [&](unsigned rank) { EXPECT_ZOFF_OK(sum_is(made[rank], 3)); });
        close_group({made[0], made[1]});
    }
}

TEST_F(NcclLauncher, OneRankNeedsNoPlaceToMeet)
{
    zoff_comm *comm = nullptr;
    set({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "5"}});
    ASSERT_ZOFF_OK(open("nccl", 1, &comm)) << "device numbers wrap around";
    EXPECT_ZOFF_OK(sum_is(comm, 1));
    zoff_comm_close(comm);
}
#ifdef CALLOC_CAN_FAIL
TEST_F(NcclLauncher, WithoutMemoryNothingIsOpened)
{
    int after = 0;
    set({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
    for (bool failed = true; failed; after++) {
        zoff_comm *comm = nullptr;
        calloc_fails_after = after;
        const zoff_status status = open("nccl", 1, &comm);
        failed = calloc_fails_after < 0; // opening succeeded
        calloc_fails_after = -1;
        if (failed) {
            EXPECT_EQ(ZOFF_ERR_NO_MEMORY, status) << "call " << after << ": " << zoff_last_error();
            EXPECT_EQ(0, communicators()) << "call " << after;
        } else {
            EXPECT_ZOFF_OK(status);
        }
        zoff_comm_close(comm);
    }
    EXPECT_GE(after, 3) << "no call of calloc() was seen";
}
#endif
} // namespace
