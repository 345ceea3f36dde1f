/* SPDX-License-Identifier: Apache-2.0 */
/* current.h: a thread's current device and its mode of graph capture, changed during a call and restored after it. The plug-ins
 * for CUDA and NCCL share it. */
#ifndef ZOFF_CUDA_CURRENT_H
#define ZOFF_CUDA_CURRENT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

typedef struct zoff_cuda_before {
    int device; /* device to go back to; -1: it has not changed */
    enum cudaStreamCaptureMode mode;
} zoff_cuda_before;

/* Whether this process uses a device already. A thread that never chose one reads 0; cudaSetDevice(0) would then create a
 * context of some hundred MiB on GPU 0. If the driver does not answer, assume that it is used. */
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
#else /* both functions exist since CUDA 12.5 */
    const cudaError_t error = cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return true;
    }
    memcpy(&state, &found, sizeof state); /* ISO C has no cast from an object pointer to a function pointer */
    return state(device, &flags, &active) != 0 || active;
}

static inline zoff_cuda_before zoff_cuda_current_enter(int device)
{
    /* The mode is relaxed, because otherwise an event query or an allocation here would invalidate a graph that another thread
     * is capturing. */
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
