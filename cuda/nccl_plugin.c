/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_plugin.c: the entry of libzoff_nccl.so, and how errors of CUDA and of NCCL get back. */
#include "nccl_priv.h"

#include <stdio.h>

zoff_status zoff_nccl_check_cuda(const zoff_nccl *n, cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return ZOFF_OK;
    (void)cudaGetLastError(); /* the error is reported here, so nobody may find it again */
    return zoff_base_status_fail(error == cudaErrorMemoryAllocation ? ZOFF_ERR_NO_MEMORY : ZOFF_ERR_DEVICE,
                                 "rank %u: %s on CUDA device %d: %s (%s)", n->comm.rank, call, n->device,
                                 cudaGetErrorName(error), cudaGetErrorString(error));
}

zoff_status zoff_nccl_check(const zoff_nccl *n, ncclComm_t nccl, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return ZOFF_OK;
    const char *more = ncclGetLastError(nccl);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s: %s%s%s (NCCL_DEBUG=WARN has it print more)", n->comm.rank, call,
                                 ncclGetErrorString(result), more && more[0] ? ": " : "", more && more[0] ? more : "");
}

zoff_status zoff_nccl_look(const zoff_nccl *n, ncclComm_t nccl)
{
    ncclResult_t state = ncclSuccess;
    int rank;
    ZOFF_NCCL_TRY(n, nccl, ncclCommGetAsyncError, nccl, &state);
    ZOFF_TRY(zoff_nccl_check(n, nccl, state, "NCCL has failed meanwhile"));
    if (state == ncclInProgress)
        return ZOFF_PENDING;
    /* Before 2.26 the thread's group stays open until a call requires the communicator to be ready; the next group would run
     * into it. This call requires that, and does nothing else. */
    ZOFF_NCCL_TRY(n, nccl, ncclCommUserRank, nccl, &rank);
    return ZOFF_OK;
}

static zoff_status probe(char *out, size_t bytes)
{
    int count = 0, version = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    ZOFF_FAIL_IF(error != cudaSuccess || count == 0, ZOFF_ERR_UNSUPPORTED, "libzoff_nccl.so loads, but there is no GPU: %s",
                 error == cudaSuccess ? "CUDA finds no device" : cudaGetErrorString(error));
    (void)ncclGetVersion(&version);
    snprintf(out, bytes, "NCCL %d.%d.%d, %d device%s", version / 10000, version / 100 % 100, version % 100, count,
             count == 1 ? "" : "s");
    return ZOFF_OK;
}

static const zoff_plugin_built_in BUILT_IN = {.open_comm = zoff_nccl_open, .probe = probe};

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    if (!zoff_cuda_host_take(abi, host))
        return -1;
    out->built_in = &BUILT_IN;
    return 0;
}
