/* SPDX-License-Identifier: Apache-2.0 */
// cuda_test.cc: parts of the plug-in that only CUDA needs: memory that is not pinned, lost and missing devices, stream capture.
// The plug-in must also leave the CUDA state of the calling thread unchanged. The tests steer the runtime made of threads.
#include "accel_under_test.h"

#include "host/control.h"

#include <atomic>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <thread>

using namespace zoff_test;

namespace
{
// Functions of the runtime library that the plug-in has loaded.
template <typename function> function in_cudart(const char *name)
{
    char library[64];
    snprintf(library, sizeof library, "libcudart.so.%d", CUDART_VERSION / 1000);
    void *found = dlopen(library, RTLD_NOLOAD | RTLD_NOW);
    EXPECT_NE(nullptr, found) << dlerror();
    void *at = found ? dlsym(found, name) : nullptr;
    EXPECT_NE(nullptr, at) << name;
    return (function)at;
}

class Cuda : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(zoff_accel_open("cuda", 0, &device));
        ops = device->ops;
        ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &stream));
        fail = in_cudart<void (*)(const char *, int)>("zoff_cudart_fail");
        pin_most = in_cudart<void (*)(size_t)>("zoff_cudart_pin_most");
    }
    void TearDown() override
    {
        in_cudart<void (*)()>("zoff_cudart_heal")();
        pin_most((size_t)-1);
        zoff_accel_stream_close(device, stream);
        zoff_accel_close(device);
    }
    zoff_accel_info info()
    {
        zoff_accel_info i = {};
        i.struct_size = sizeof i;
        EXPECT_ZOFF_OK(zoff_accel_get_info(device, &i));
        return i;
    }

    zoff_accel *device = nullptr;
    const zoff_accel_ops *ops = nullptr;
    void *stream = nullptr;
    void (*fail)(const char *, int) = nullptr;
    void (*pin_most)(size_t) = nullptr;
};

TEST_F(Cuda, PageableMemoryIsCopiedThroughAPinnedBuffer)
{
    log_catcher log;
    const size_t bytes = (5 << 20) + 13;
    std::vector<char> from(bytes), back(bytes);
    for (size_t i = 0; i < bytes; i++)
        from[i] = (char)(i * 31 >> 3);
    void *there;
    ASSERT_ZOFF_OK(ops->alloc(device, bytes, &there));
    pin_most(1 << 20); /* the first buffer size that is not refused is 1 MiB, so the copy takes six parts */
    ASSERT_ZOFF_OK(ops->pages.pin(device, from.data(), bytes));
    ASSERT_ZOFF_OK(ops->pages.pin(device, back.data(), bytes));
    log.expect("refuses to pin 5 MiB (out of memory; 0 MiB are pinned)");
    log.expect("a pinned buffer of 32 MiB was refused; one of 1024 KiB is used");
    ASSERT_ZOFF_OK(ops->copy(device, stream, there, from.data(), bytes));
    ASSERT_ZOFF_OK(ops->copy(device, stream, back.data(), there, bytes));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
    EXPECT_EQ(from, back);
    EXPECT_EQ(2 * bytes, info().pin_refused_bytes);
    EXPECT_EQ(2 * bytes, info().bounced_bytes);
    EXPECT_EQ(1u << 20, info().pinned_bytes);
    EXPECT_EQ(0u, info().pageable_copies);
    EXPECT_EQ(1u, log.count("refuses to pin")) << "one warning is enough";
    ops->pages.unpin(device, from.data());
    ops->free(device, there);
}

TEST_F(Cuda, PinnedMemoryIsCopiedFromWhereItIs)
{
    std::vector<char> from(100000), back(100000);
    void *there;
    from[7] = 3;
    ASSERT_ZOFF_OK(ops->alloc(device, from.size(), &there));
    for (auto *memory : {&from, &back})
        ASSERT_ZOFF_OK(ops->pages.pin(device, memory->data(), memory->size()));
    EXPECT_EQ(200000u, info().pinned_bytes);
    ASSERT_ZOFF_OK(ops->copy(device, stream, there, from.data(), from.size()));
    ASSERT_ZOFF_OK(ops->copy(device, stream, back.data() + 5, (char *)there + 5, from.size() - 5));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
    EXPECT_EQ(from, back);
    EXPECT_EQ(0u, info().bounced_bytes);
    for (auto *memory : {&from, &back})
        ops->pages.unpin(device, memory->data());
    EXPECT_EQ(0u, info().pinned_bytes);
    ops->free(device, there);
}

TEST_F(Cuda, ACopyWithinPinnedMemoryOfTheHostHoldsNobodyUp)
{
    struct gate {
        std::atomic<bool> is_open{false};
        std::vector<char> from, to;
    } g;
    g.from.resize(100000);
    g.to.resize(100000);
    for (auto *memory : {&g.from, &g.to})
        ASSERT_ZOFF_OK(ops->pages.pin(device, memory->data(), memory->size()));
    ASSERT_ZOFF_OK(zoff_accel_stream_call(
        device, stream,
        [](void *ctx) {
            for (int naps = 0; !((gate *)ctx)->is_open && naps < 5000; naps++)
                usleep(1000);
            ((gate *)ctx)->from[99999] = ((gate *)ctx)->is_open ? 7 : 1;
        },
        &g));
    ASSERT_ZOFF_OK(ops->copy(device, stream, g.to.data(), g.from.data(), g.from.size()));
    g.is_open = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
    EXPECT_EQ(7, g.to[99999]) << "the call has waited for the stream";
    for (auto *memory : {&g.from, &g.to})
        ops->pages.unpin(device, memory->data());
}

// One thread uses an engine, but engines of several threads may share a device. All threads change the lists of pinned memory
// and of stream buffers.
TEST_F(Cuda, SeveralThreadsShareADevice)
{
    enum { THREADS = 4, ROUNDS = 200, BYTES = 4096 };
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            std::vector<char> pinned(BYTES), from(BYTES), to(BYTES);
            for (int round = 0; round < ROUNDS; round++) {
                void *own = nullptr;
                const bool copies = round % 100 == 0; // creating and destroying a stream takes long
                ASSERT_ZOFF_OK(ops->pages.pin(device, pinned.data(), pinned.size()));
                if (copies) {
                    std::fill(from.begin(), from.end(), (char)(t * 31 + round));
                    void *there = nullptr;
                    ASSERT_ZOFF_OK(ops->alloc(device, BYTES, &there));
                    ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &own));
                    ASSERT_ZOFF_OK(ops->copy(device, own, there, from.data(), BYTES)); // neither address is pinned
                    ASSERT_ZOFF_OK(ops->copy(device, own, to.data(), there, BYTES));
                    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, own));
                    ASSERT_EQ(from, to);
                    zoff_accel_stream_close(device, own);
                    ops->free(device, there);
                }
                ops->pages.unpin(device, pinned.data());
            }
        });
    }
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(0u, info().pinned_bytes) << "ranges were lost from the list";
}

TEST_F(Cuda, ALostDeviceAlwaysGivesTheSameError)
{
    void *event;
    ASSERT_ZOFF_OK(ops->event_open(device, &event));
    ASSERT_ZOFF_OK(ops->event_record(device, event, stream));
    fail("cudaEventQuery", 1);
    (void)ops->event_poll(device, event);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "cudaEventQuery on CUDA device 0: cudaErrorLaunchFailure (unspecified launch failure)",
                      ops->event_poll(device, event));
    in_cudart<void (*)()>("zoff_cudart_heal")();
    char byte = 0;
    for (int i = 0; i < 2; i++)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "CUDA device 0 is lost: cudaEventQuery said cudaErrorLaunchFailure",
                          ops->zero(device, stream, &byte, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "is lost", ops->event_record(device, event, stream));
    ops->event_close(device, event);
}

TEST_F(Cuda, AnErrorThatLosesNothingIsReportedOnce)
{
    char byte = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "cudaMemsetAsync on CUDA device 0: cudaErrorInvalidValue",
                      ops->zero(device, stream, &byte, 1)); /* the address is no device memory */
    EXPECT_EQ(cudaSuccess, in_cudart<cudaError_t (*)()>("cudaPeekAtLastError")())
        << "the trainer would take the error for its own";
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
}

/* An error that is pending, such as that of a launch, stays for the program, which sees it only if it asks for it. */
TEST_F(Cuda, APendingErrorOfTheProgramStays)
{
    const auto peek = in_cudart<cudaError_t (*)()>("cudaPeekAtLastError");
    const auto forget = in_cudart<cudaError_t (*)()>("cudaGetLastError");
    std::vector<char> memory(100000);
    zoff_accel *second;
    void *other, *event, *there;
    EXPECT_EQ(cudaSuccess, peek()) << "opening the device left an error behind";
    in_cudart<cudaError_t (*)(void *)>("cudaHostUnregister")(memory.data()); /* fails: the memory is not registered */
    const cudaError_t error = peek();
    ASSERT_NE(cudaSuccess, error);
    ASSERT_ZOFF_OK(zoff_accel_open("cuda", 0, &second));
    EXPECT_EQ(error, peek()) << "open";
    ASSERT_ZOFF_OK(zoff_accel_stream_open(second, &other));
    ASSERT_ZOFF_OK(ops->event_open(second, &event));
    ASSERT_ZOFF_OK(ops->alloc(second, memory.size(), &there));
    ASSERT_ZOFF_OK(ops->copy(second, other, there, memory.data(), memory.size())); /* a copy through a buffer */
    ASSERT_ZOFF_OK(ops->pages.pin(second, memory.data(), memory.size()));
    ASSERT_ZOFF_OK(ops->event_record(second, event, other));
    ops->pages.unpin(second, memory.data());
    EXPECT_EQ(error, peek()) << "unpin";
    ops->event_close(second, event);
    EXPECT_EQ(error, peek()) << "event_close";
    zoff_accel_stream_close(second, other);
    EXPECT_EQ(error, peek()) << "stream_close";
    ops->free(second, there);
    EXPECT_EQ(error, peek()) << "free";
    zoff_accel_close(second);
    EXPECT_EQ(error, forget()) << "close";
}

TEST_F(Cuda, AnEventThatIsNotReachedIsNoErrorOfTheThread)
{
    std::pair<int, int> pause{20000, 0};
    void *event;
    ASSERT_ZOFF_OK(ops->event_open(device, &event));
    ASSERT_ZOFF_OK(zoff_accel_stream_call(
        device, stream, [](void *ctx) { usleep((useconds_t) * (int *)ctx); }, &pause));
    ASSERT_ZOFF_OK(ops->event_record(device, event, stream));
    EXPECT_EQ(ZOFF_PENDING, ops->event_poll(device, event));
    EXPECT_EQ(cudaSuccess, in_cudart<cudaError_t (*)()>("cudaPeekAtLastError")());
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
    ops->event_close(device, event);
}

TEST_F(Cuda, LackOfMemoryIsReportedInMiB)
{
    void *there;
    fail("cudaMalloc", 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "CUDA device 0 has no 64 MiB: 1 of 1024 MiB are free",
                      ops->alloc(device, 64 << 20, &there));
    EXPECT_EQ(cudaSuccess, in_cudart<cudaError_t (*)()>("cudaPeekAtLastError")());
}

TEST_F(Cuda, AStreamThatIsCapturedIsRefused)
{
    void *event;
    ASSERT_ZOFF_OK(ops->event_open(device, &event));
    fail("capture", 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being captured into a CUDA graph", ops->event_record(device, event, stream));
    /* The default stream must not be used during the capture of a stream that waits for it. */
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being captured into a CUDA graph", ops->event_record(device, event, nullptr));
    EXPECT_EQ(cudaSuccess, in_cudart<cudaError_t (*)()>("cudaPeekAtLastError")());
    ops->event_close(device, event);
}

TEST_F(Cuda, TheCurrentDeviceOfTheThreadIsLeftAsItIs)
{
    zoff_accel *second;
    int current = -1;
    const auto set = in_cudart<cudaError_t (*)(int)>("cudaSetDevice");
    const auto get = in_cudart<cudaError_t (*)(int *)>("cudaGetDevice");
    ASSERT_ZOFF_OK(zoff_accel_open("cuda", 1, &second));
    void *other;
    set(1);
    zoff_accel *current_one;
    ASSERT_ZOFF_OK(zoff_accel_open("cuda", -1, &current_one));
    EXPECT_EQ(1, current_one->index);
    zoff_accel_close(current_one);
    set(0);
    ASSERT_ZOFF_OK(zoff_accel_stream_open(second, &other));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(second, other));
    zoff_accel_stream_close(second, other);
    zoff_accel_close(second);
    get(&current);
    EXPECT_EQ(0, current);
}

TEST_F(Cuda, DevicesThatAreNotThereAreRefused)
{
    zoff_accel *none;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "accelerator \"cuda\" has devices 0 to 1; 2 was asked for",
                      zoff_accel_open("cuda", 2, &none));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "-2 was asked for", zoff_accel_open("cuda", -2, &none));
    fail("cudaGetDeviceCount", 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no accelerator \"cuda\" here: unspecified launch failure",
                      zoff_accel_open("cuda", 0, &none));
}
} // namespace
