/* SPDX-License-Identifier: Apache-2.0 */
// cudart.cc: a CUDA runtime whose device is made of threads. It has the name of the real one and the functions that
// libzoff_cuda.so calls, so that the shipped plug-in runs without a GPU.
//
// Its streams are those of the accelerator "emulated", its memory is memory of the process, and its kernels are kernels.cu,
// compiled for the CPU. It is stricter than the real runtime: an asynchronous copy is an error if either side is neither device
// memory nor pinned.
//
// Tests steer it through functions zoff_cudart_*(): see control.h.
#include "grid.h"
#include "host_kernels.h"
#include "memory.h"

#include "control.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

extern "C" {
#include "accel.h"
}

namespace
{
enum { DEVICES = 2 };
thread_local cudaError_t last = cudaSuccess;
thread_local int device = 0;

std::mutex lock;
std::map<std::string, int> fails; // number of successes left for each call; negative: no failure
cudaError_t lost = cudaSuccess;   // the result of every call

cudaError_t say(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

cudaError_t begin(const char *call)
{
    std::lock_guard<std::mutex> hold(lock);
    if (lost != cudaSuccess)
        return say(lost);
    const auto found = fails.find(call);
    if (found == fails.end() || found->second < 0 || found->second-- > 0)
        return cudaSuccess;
    const auto which = found->first == "cudaMalloc" || found->first == "cudaHostRegister" || found->first == "cudaHostAlloc"
                           ? cudaErrorMemoryAllocation
                       : found->first == "cudaPointerGetAttributes" ? cudaErrorInvalidValue
                                                                    : cudaErrorLaunchFailure;
    if (which == cudaErrorLaunchFailure)
        lost = which;
    else
        found->second = which == cudaErrorInvalidValue ? -1 : 0; // memory stays scarce
    return say(which);
}

#define BEGIN(call)                                                                                                            \
    do {                                                                                                                       \
        const cudaError_t begun = begin(call);                                                                                 \
        if (begun != cudaSuccess)                                                                                              \
            return begun;                                                                                                      \
    } while (0)

zoff_accel *threads()
{
    static zoff_accel *const made = [] {
        zoff_accel *a = nullptr;
        (void)zoff_accel_emulated_open(0, &a);
        return a;
    }();
    return made;
}

const zoff_accel_ops *ops()
{
    return &zoff_accel_emulated_ops;
}

cudaError_t of(zoff_status status)
{
    return say(status == ZOFF_OK ? cudaSuccess : status == ZOFF_PENDING ? cudaErrorNotReady : cudaErrorUnknown);
}

bool is_default(cudaStream_t stream)
{
    return !stream || stream == cudaStreamLegacy;
}

// The default stream always exists.
void *real(cudaStream_t stream)
{
    static void *const first = [] {
        void *s = nullptr;
        (void)ops()->streams.open(threads(), &s);
        return s;
    }();
    return is_default(stream) ? first : (void *)stream;
}
} // namespace

extern "C" {

void zoff_cudart_fail(const char *call, int after)
{
    std::lock_guard<std::mutex> hold(lock);
    fails[call] = after;
}

void zoff_cudart_heal(void)
{
    std::lock_guard<std::mutex> hold(lock);
    fails.clear();
    lost = cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorLaunchFailure           ? "cudaErrorLaunchFailure"
           : error == cudaErrorNotReady              ? "cudaErrorNotReady"
           : error == cudaErrorInvalidValue          ? "cudaErrorInvalidValue"
           : error == cudaErrorInvalidDeviceFunction ? "cudaErrorInvalidDeviceFunction"
                                                     : "cudaErrorOfTheTest";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorLaunchFailure      ? "unspecified launch failure"
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorNoDevice         ? "no CUDA-capable device is detected"
                                                : "an error of the test's device";
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    BEGIN("cudaGetDeviceCount");
    *count = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
    *out = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    device = index;
    return cudaSuccess;
}

// This runtime has no driver.
cudaError_t cudaGetDriverEntryPoint(const char *, void **, unsigned long long, enum cudaDriverEntryPointQueryResult *)
{
    return say(cudaErrorNotSupported);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *)
{
    return say(cudaErrorNotSupported);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static thread_local auto now = cudaStreamCaptureModeGlobal;
    std::swap(now, *mode);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int)
{
    BEGIN("cudaGetDeviceProperties");
    memset(about, 0, sizeof *about);
    strcpy(about->name, "a device of the test");
    about->totalGlobalMem = (size_t)1 << 30;
    return cudaSuccess;
}

// An address that no device of the system has.
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int)
{
    snprintf(id, (size_t)length, "%s", "FFFF:FF:1F.0");
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    BEGIN("cudaStreamCreateWithFlags");
    void *made = nullptr;
    const cudaError_t error = of(ops()->streams.open(threads(), &made));
    *stream = (cudaStream_t)made;
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return of(zoff_accel_stream_wait(threads(), real(stream)));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ops()->streams.close(threads(), stream);
    return cudaSuccess;
}

// Tests do not say which stream is captured, so every stream counts as captured. For the default stream CUDA gives this error.
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    std::lock_guard<std::mutex> hold(lock);
    if (is_default(stream) && fails.count("capture"))
        return say(cudaErrorStreamCaptureImplicit);
    *status = fails.count("capture") ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *ctx)
{
    BEGIN("cudaLaunchHostFunc");
    return of(ops()->streams.call(threads(), real(stream), run, ctx));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    BEGIN("cudaEventCreateWithFlags");
    void *made = nullptr;
    const cudaError_t error = of(ops()->event_open(threads(), &made));
    *event = (cudaEvent_t)made;
    return error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ops()->event_close(threads(), event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BEGIN("cudaEventRecord");
    return of(ops()->event_record(threads(), event, real(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    BEGIN("cudaStreamWaitEvent");
    return of(ops()->event_await(threads(), real(stream), event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    BEGIN("cudaEventQuery");
    return of(ops()->event_poll(threads(), event));
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    BEGIN("cudaMalloc");
    *out = zoff_test::get_memory(bytes, cudaMemoryTypeDevice);
    return *out ? cudaSuccess : say(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory)
{
    zoff_test::free_memory(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    BEGIN("cudaHostAlloc");
    if (bytes > zoff_test::pin_most())
        return say(cudaErrorMemoryAllocation);
    *out = zoff_test::get_memory(bytes, cudaMemoryTypeHost);
    return *out ? cudaSuccess : say(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    zoff_test::free_memory(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    BEGIN("cudaHostRegister");
    if (bytes > zoff_test::pin_most())
        return say(cudaErrorMemoryAllocation);
    return say(zoff_test::add_memory(memory, bytes, cudaMemoryTypeHost) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *memory)
{
    return say(zoff_test::remove_memory(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

// Memory is where it was: with unified addressing both addresses are the same.
cudaError_t cudaHostGetDevicePointer(void **out, void *memory, unsigned)
{
    BEGIN("cudaHostGetDevicePointer");
    *out = memory;
    return say(zoff_test::kind_of(memory, 1) == cudaMemoryTypeHost ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *all)
{
    *unused = (size_t)1 << 20;
    *all = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *memory)
{
    BEGIN("cudaPointerGetAttributes");
    memset(about, 0, sizeof *about);
    about->type = zoff_test::kind_of(memory, 1);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind, cudaStream_t stream)
{
    BEGIN("cudaMemcpyAsync");
    if (zoff_test::kind_of(dst, bytes) == cudaMemoryTypeUnregistered ||
        zoff_test::kind_of(src, bytes) == cudaMemoryTypeUnregistered) {
        fprintf(stderr, "a copy of %zu bytes from %p to %p: one of them is neither pinned nor a device's\n", bytes, src, dst);
        return say(cudaErrorInvalidValue);
    }
    const cudaError_t error = of(ops()->copy(threads(), real(stream), dst, src, bytes));
    /* "For transfers from any host memory to any host memory, the function is fully synchronous with respect to the host." */
    const bool is_within_host =
        zoff_test::kind_of(dst, 1) == cudaMemoryTypeHost && zoff_test::kind_of(src, 1) == cudaMemoryTypeHost;
    return error == cudaSuccess && is_within_host ? cudaStreamSynchronize(stream) : error;
}

cudaError_t cudaMemsetAsync(void *dst, int, size_t bytes, cudaStream_t stream)
{
    BEGIN("cudaMemsetAsync");
    if (zoff_test::kind_of(dst, bytes) == cudaMemoryTypeUnregistered)
        return say(cudaErrorInvalidValue);
    return of(ops()->zero(threads(), real(stream), dst, bytes));
}

/* ---- kernels: each registered kernel is found by name among those compiled for the CPU ---- */

static std::map<const void *, std::string> &registered()
{
    static std::map<const void *, std::string> names;
    return names;
}

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    handle = binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}

void __cudaRegisterFunction(void **, const char *entry, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *)
{
    registered()[entry] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *entry)
{
    *out = (cudaKernel_t)(void *)entry;
    return registered().count(entry) ? cudaSuccess : say(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *, const void *entry)
{
    BEGIN("cudaFuncGetAttributes");
    return registered().count(entry) ? cudaSuccess : say(cudaErrorInvalidDeviceFunction);
}

// A part of nvcc's code for `<<<>>>` that is never called.
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *)
{
    return say(cudaErrorNotSupported);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t)
{
    return say(cudaErrorNotSupported);
}

cudaError_t cudaLaunchKernel(const void *entry, dim3 grid, dim3 block, void **arguments, size_t, cudaStream_t stream)
{
    BEGIN("cudaLaunchKernel");

    auto *run = zoff_test::find_kernel(registered()[entry].c_str(), arguments);
    if (!run)
        return say(cudaErrorInvalidDeviceFunction);
    run->grid = grid;
    run->block = block;
    return of(ops()->streams.call(
        threads(), real(stream),
        [](void *ctx) {
            auto *mine = (zoff_test::launched *)ctx;
            zoff_test::run_grid(mine->grid, mine->block, mine->shuffles, mine->thread);
            delete mine;
        },
        run));
}
}
