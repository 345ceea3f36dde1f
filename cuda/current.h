/* current.h: a thread's current device, and its way of capturing graphs, changed for the time of a call and given back. Shared
 * by the plug-ins for CUDA and NCCL. */
#ifndef ZOFF_CUDA_CURRENT_H
#define ZOFF_CUDA_CURRENT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

typedef struct zoff_cuda_before {
    int device; /* -1: it stays as it is */
    enum cudaStreamCaptureMode mode;
} zoff_cuda_before;

/* Whether a device is in use by this process. cudaSetDevice() would make it so: a thread that never had one says 0, and to go
 * back there would cost some hundred MiB of the first GPU. Where the driver does not say, it is taken to be. */
static inline bool zoff_cuda_current_is_used(int device)
{
    int (*state)(int device, unsigned *flags, int *active) = NULL;
    void *found = NULL;
    unsigned flags;
    int active = 1;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 13000
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 12000, cudaEnableDefault, &result);
#else /* which has the other from 12.5 on */
    const cudaError_t error = cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return true;
    }
    memcpy(&state, &found, sizeof state); /* ISO C has no such cast */
    return state(device, &flags, &active) != 0 || active;
}

static inline zoff_cuda_before zoff_cuda_current_enter(int device)
{
    /* What asks for events, or takes memory, would break a graph that another thread captures. */
    zoff_cuda_before before = {.device = -1, .mode = cudaStreamCaptureModeRelaxed};
    int now = device;
    if (cudaGetDevice(&now) == cudaSuccess && now != device) {
        before.device = zoff_cuda_current_is_used(now) ? now : -1;
        (void)cudaSetDevice(device);
    }
    (void)cudaThreadExchangeStreamCaptureMode(&before.mode);
    return before;
}

static inline void zoff_cuda_current_leave(const zoff_cuda_before *before)
{
    enum cudaStreamCaptureMode mode = before->mode;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    if (before->device >= 0)
        (void)cudaSetDevice(before->device);
}

#endif
