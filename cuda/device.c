/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the table of an accelerator over the CUDA runtime. Streams and events are CUDA's own, so a trainer's can be passed
 * as they are. The trainer's streams only get events. The whole device is waited for only when memory is freed. */
#include "cuda_priv.h"

#include "cuda_kernels.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ZOFF_HAVE_NVTX /* NVTX is headers alone, which do nothing without a profiler */
#endif

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* After one of these errors nothing works any more in this process, whichever call caused it. */
bool zoff_cuda_is_final(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

void zoff_cuda_lose(zoff_cuda_accel *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&a->lock);
    if (!a->is_lost)
        vsnprintf(a->lost, sizeof a->lost, format, args);
    a->is_lost = true;
    pthread_mutex_unlock(&a->lock);
    va_end(args);
}

zoff_status zoff_cuda_check(zoff_cuda_accel *a, cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return ZOFF_OK;
    (void)cudaGetLastError(); /* the error is reported here, so nobody may find it again */
    if (error == cudaErrorMemoryAllocation)
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "%s on CUDA device %d: %s", call, a->base.index,
                                     cudaGetErrorString(error));
    if (zoff_cuda_is_final(error))
        zoff_cuda_lose(a, "CUDA device %d is lost: %s said %s (%s); earlier work on the device has caused it", a->base.index,
                       call, cudaGetErrorName(error), cudaGetErrorString(error));
    return zoff_base_status_fail(ZOFF_ERR_DEVICE, "%s on CUDA device %d: %s (%s)", call, a->base.index, cudaGetErrorName(error),
                                 cudaGetErrorString(error));
}

/* ---- streams ---- */

static zoff_status cuda_stream_open(zoff_accel *accel, void **out)
{
    ZOFF_CUDA_ENTER(accel, a);
    cudaStream_t stream;
    /* A stream that waits for the default stream would wait for the trainer's work. */
    ZOFF_CUDA_TRY(a, cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
    *out = stream;
    return ZOFF_OK;
}

static void cuda_stream_close(zoff_accel *accel, void *stream)
{
    zoff_cuda_accel *a = zoff_cuda_of(accel);
    const zoff_cuda_before before = zoff_cuda_current_enter(a->base.index);
    zoff_cuda_forgive(cudaStreamSynchronize(stream));
    zoff_cuda_forget_stream(a, stream);
    zoff_cuda_forgive(cudaStreamDestroy(stream));
    zoff_cuda_current_leave(&before);
}

static zoff_status cuda_stream_call(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx)
{
    ZOFF_CUDA_ENTER(accel, a);
    ZOFF_CUDA_TRY(a, cudaLaunchHostFunc, stream, run, ctx);
    return ZOFF_OK;
}

static zoff_status cuda_zero(zoff_accel *accel, void *stream, void *dst, size_t bytes)
{
    ZOFF_CUDA_ENTER(accel, a);
    if (bytes)
        ZOFF_CUDA_TRY(a, cudaMemsetAsync, dst, 0, bytes, stream);
    return ZOFF_OK;
}

/* ---- events ---- */

static zoff_status cuda_event_open(zoff_accel *accel, void **out)
{
    ZOFF_CUDA_ENTER(accel, a);
    cudaEvent_t event;
    ZOFF_CUDA_TRY(a, cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    *out = event;
    return ZOFF_OK;
}

static void cuda_event_close(zoff_accel *accel, void *event)
{
    const zoff_cuda_before before = zoff_cuda_current_enter(accel->index);
    zoff_cuda_forgive(cudaEventDestroy(event));
    zoff_cuda_current_leave(&before);
}

/* Refuse a stream that captures a graph, because the recorded event would become part of every replay. */
static zoff_status check_capture(zoff_cuda_accel *a, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
    /* CUDA says this of the default stream while a stream that waits for it captures. */
    const bool is_implicit = error == cudaErrorStreamCaptureImplicit;
    zoff_cuda_forgive(error);
    ZOFF_TRY(zoff_cuda_check(a, is_implicit ? cudaSuccess : error, "cudaStreamIsCapturing"));
    ZOFF_FAIL_IF(is_implicit || capture != cudaStreamCaptureStatusNone, ZOFF_ERR_STATE,
                 "the stream is being captured into a CUDA graph: hand gradients over behind the launch of the graph");
    return ZOFF_OK;
}

/* NULL means that there is nothing to wait for. A trainer may mean CUDA's default stream all the same, because its handle is 0
 * there. So the event is recorded in it. */
static zoff_status cuda_event_record(zoff_accel *accel, void *event, void *stream)
{
    ZOFF_CUDA_ENTER(accel, a);
    ZOFF_TRY(check_capture(a, stream));
    ZOFF_CUDA_TRY(a, cudaEventRecord, event, stream);
    return ZOFF_OK;
}

static zoff_status cuda_event_await(zoff_accel *accel, void *stream, void *event)
{
    ZOFF_CUDA_ENTER(accel, a);
    ZOFF_CUDA_TRY(a, cudaStreamWaitEvent, stream, event, 0);
    return ZOFF_OK;
}

static zoff_status cuda_event_poll(zoff_accel *accel, void *event)
{
    ZOFF_CUDA_ENTER(accel, a);
    const cudaError_t error = cudaEventQuery(event);
    if (error != cudaErrorNotReady)
        return zoff_cuda_check(a, error, "cudaEventQuery");
    if (cudaPeekAtLastError() == cudaErrorNotReady)
        (void)cudaGetLastError(); /* cudaErrorNotReady is no error, so the trainer's next check must not find it */
    return ZOFF_PENDING;
}

/* ---- kernels ---- */

/* A list takes several launches. If one of them fails, nobody knows which pieces are updated, and a retry would update those
 * twice. So the device counts as lost. */
static zoff_status check_launches(zoff_cuda_accel *a, cudaError_t error, const char *what)
{
    const zoff_status status = zoff_cuda_check(a, error, what);
    if (status < 0)
        zoff_cuda_lose(a, "CUDA device %d: %s was refused half way (%s)", a->base.index, what, cudaGetErrorName(error));
    return status;
}

static zoff_status cuda_update(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count)
{
    ZOFF_CUDA_ENTER(accel, a);
    return check_launches(a, zoff_cuda_kernels_update(stream, pieces, count), "the update of states");
}

static zoff_status cuda_accumulate(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces, size_t count)
{
    ZOFF_CUDA_ENTER(accel, a);
    return check_launches(a, zoff_cuda_kernels_accumulate(stream, pieces, count), "the accumulation of gradients");
}

static zoff_status cuda_bins(zoff_accel *accel, void *stream, const zoff_bins_piece *pieces, size_t count)
{
    ZOFF_CUDA_ENTER(accel, a);
    ZOFF_FAIL_IF(!zoff_accel_bins_fit(pieces, count), ZOFF_ERR_INVALID, ZOFF_ACCEL_BINS_REFUSAL);
    return check_launches(a, zoff_cuda_kernels_bins(stream, pieces, count), "exact sums of gradients");
}

static zoff_status cuda_cast(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count)
{
    ZOFF_CUDA_ENTER(accel, a);
    return zoff_cuda_check(a, zoff_cuda_kernels_cast(stream, pieces, count), "a conversion");
}

static zoff_status cuda_square_sum(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces, size_t count)
{
    ZOFF_CUDA_ENTER(accel, a);
    return zoff_cuda_check(a, zoff_cuda_kernels_square_sum(stream, pieces, count), "the norm of gradients");
}

/* ---- memory ---- */

static zoff_status cuda_alloc(zoff_accel *accel, size_t bytes, void **out)
{
    ZOFF_CUDA_ENTER(accel, a);
    size_t unused = 0, all = 0;
    void *memory;
    zoff_cuda_range *block = malloc(sizeof *block);
    ZOFF_FAIL_IF(!block, ZOFF_ERR_NO_MEMORY, "no memory for a list of device memory");
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess)
        free(block);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        zoff_cuda_forgive(cudaMemGetInfo(&unused, &all));
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "CUDA device %d has no %zu MiB: %zu of %zu MiB are free",
                                     a->base.index, bytes >> 20, unused >> 20, all >> 20);
    }
    ZOFF_TRY(zoff_cuda_check(a, error, "cudaMalloc"));
    zoff_cuda_ranges_add(a, &a->blocks, block, memory, bytes);
    a->allocated_bytes += bytes;
    *out = memory;
    return ZOFF_OK;
}

static void cuda_free(zoff_accel *accel, void *memory)
{
    zoff_cuda_accel *a = zoff_cuda_of(accel);
    zoff_cuda_range *block = zoff_cuda_ranges_take(a, &a->blocks, memory);
    const zoff_cuda_before before = zoff_cuda_current_enter(accel->index);
    a->allocated_bytes -= block ? block->bytes : 0;
    free(block);
    zoff_cuda_forgive(cudaFree(memory));
    zoff_cuda_current_leave(&before);
}

/* ---- the device ---- */

static int cuda_numa_node(const zoff_accel *accel)
{
    return ((const zoff_cuda_accel *)(const void *)accel)->numa_node;
}

static void cuda_get_info(const zoff_accel *accel, zoff_accel_info *out)
{
    const zoff_cuda_accel *a = (const zoff_cuda_accel *)(const void *)accel;
    out->name = a->name;
    out->memory_bytes = a->memory_bytes;
    out->pinned_bytes = a->pinned_bytes;
    out->pin_refused_bytes = a->refused_bytes;
    out->bounced_bytes = a->bounced_bytes;
    out->pageable_copies = a->pageable_copies;
    out->allocated_bytes = a->allocated_bytes;
}

static void cuda_close(zoff_accel *accel)
{
    zoff_cuda_accel *a = zoff_cuda_of(accel);
    const zoff_cuda_before before = zoff_cuda_current_enter(a->base.index);
    zoff_cuda_forget_all(a);
    zoff_cuda_current_leave(&before);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* The NUMA node from sysfs; -1 on machines with one node. */
static int find_node(int index)
{
    char id[32] = "", path[128];
    int node = -1;
    const cudaError_t error = cudaDeviceGetPCIBusId(id, sizeof id, index);
    zoff_cuda_forgive(error);
    if (error != cudaSuccess)
        return -1;
    for (char *c = id; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    fclose(file);
    return node;
}

/* ---- for a profiler ---- */

static void cuda_range_begin(zoff_accel *accel, const char *stage, uint64_t bucket)
{
    (void)accel;
#ifdef ZOFF_HAVE_NVTX
    const nvtxEventAttributes_t about = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message.ascii = stage,
                                         .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                         .payload.ullValue = bucket};
    (void)nvtxRangePushEx(&about);
#else
    (void)stage;
    (void)bucket;
#endif
}

static void cuda_range_end(zoff_accel *accel)
{
    (void)accel;
#ifdef ZOFF_HAVE_NVTX
    (void)nvtxRangePop();
#endif
}

static const zoff_accel_ops CUDA_OPS = {
    .name = "cuda",
    .close = cuda_close,
    .numa_node = cuda_numa_node,
    .get_info = cuda_get_info,
    .pages = {.pin = zoff_cuda_pin, .unpin = zoff_cuda_unpin, .mapped = zoff_cuda_mapped},
    .alloc = cuda_alloc,
    .free = cuda_free,
    .streams = {.open = cuda_stream_open, .close = cuda_stream_close, .call = cuda_stream_call},
    .copy = zoff_cuda_copy,
    .zero = cuda_zero,
    .kernels = {.update = cuda_update,
                .accumulate = cuda_accumulate,
                .bins = cuda_bins,
                .cast = cuda_cast,
                .square_sum = cuda_square_sum},
    .ranges = {.begin = cuda_range_begin, .end = cuda_range_end},
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_await = cuda_event_await,
    .event_poll = cuda_event_poll};

static zoff_status check_driver(int index)
{
    int count = 0, driver = 0, runtime = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)cudaDriverGetVersion(&driver);
        (void)cudaRuntimeGetVersion(&runtime);
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED, "no accelerator \"cuda\" here: %s (driver for CUDA %d.%d, runtime %d.%d)",
            cudaGetErrorString(error), driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    ZOFF_FAIL_IF(count == 0, ZOFF_ERR_UNSUPPORTED, "no accelerator \"cuda\" here: CUDA finds no device");
    ZOFF_FAIL_IF(index < 0 || index >= count, ZOFF_ERR_INVALID, "accelerator \"cuda\" has devices 0 to %d; %d was asked for",
                 count - 1, index);
    return ZOFF_OK;
}

/* Load the kernels now. At its first launch CUDA would wait for all work of the device, which may wait for this process. */
static zoff_status load_kernels(zoff_cuda_accel *a, const struct cudaDeviceProp *about)
{
    const zoff_cuda_before before = zoff_cuda_current_enter(a->base.index);
    const cudaError_t error = zoff_cuda_kernels_load();
    zoff_cuda_forgive(error);
    zoff_cuda_current_leave(&before);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion)
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "no accelerator \"cuda\" here: %s has compute capability %d.%d, and this build has no kernels "
            "for it (%s): set CMAKE_CUDA_ARCHITECTURES",
            about->name, about->major, about->minor, cudaGetErrorName(error));
    return zoff_cuda_check(a, error, "loading the kernels");
}

zoff_status zoff_cuda_probe(char *out, size_t bytes)
{
    struct cudaDeviceProp about;
    int count = 0;
    ZOFF_TRY(check_driver(0));
    ZOFF_FAIL_IF(cudaGetDeviceCount(&count) != cudaSuccess || cudaGetDeviceProperties(&about, 0) != cudaSuccess,
                 ZOFF_ERR_UNSUPPORTED, "CUDA does not describe its device 0");
    snprintf(out, bytes, "%d device%s, device 0 is %s", count, count == 1 ? "" : "s", about.name);
    return ZOFF_OK;
}

zoff_status zoff_cuda_open(int index, zoff_accel **out)
{
    struct cudaDeviceProp about;
    const bool is_current = index == -1;
    ZOFF_TRY(check_driver(is_current ? 0 : index));
    if (is_current && cudaGetDevice(&index) != cudaSuccess)
        return zoff_base_status_fail(ZOFF_ERR_DEVICE, "accelerator \"cuda\": this thread has no current device");
    zoff_cuda_accel *a = calloc(1, sizeof *a);
    ZOFF_FAIL_IF(!a, ZOFF_ERR_NO_MEMORY, "no memory for an accelerator");
    a->base = (zoff_accel){.ops = &CUDA_OPS, .index = index};
    pthread_mutex_init(&a->lock, NULL);
    zoff_status status = zoff_cuda_check(a, cudaGetDeviceProperties(&about, index), "cudaGetDeviceProperties");
    if (status == ZOFF_OK)
        status = load_kernels(a, &about);
    if (status < 0) {
        pthread_mutex_destroy(&a->lock);
        free(a);
        return status;
    }
    snprintf(a->name, sizeof a->name, "%s", about.name);
    a->memory_bytes = about.totalGlobalMem;
    a->numa_node = find_node(index);
    *out = &a->base;
    return ZOFF_OK;
}
