/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: zoff's functions and host memory, for both plug-ins; compiled into each. */
#include "host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const zoff_plugin_host *zoff;

/* Only a table of the same version of zoff can be used. */
bool zoff_cuda_host_take(unsigned abi, const zoff_plugin_host *host)
{
    if (abi != ZOFF_PLUGIN_ABI || host->version != ZOFF_VERSION_NUMBER)
        return false;
    zoff = host;
    return true;
}

/* The plug-in's own definition, under the name that ZOFF_TRY and ZOFF_FAIL_IF call. */
zoff_status zoff_base_status_fail(zoff_status status, const char *format, ...)
{
    char words[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return zoff->fail(status, words);
}

void zoff_cuda_host_warn(const char *format, ...)
{
    char words[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    zoff->warn(words);
}

/* ---- copies in a stream ---- */

typedef struct hop {
    void *dst;
    const void *src;
    size_t bytes;
} hop;

static void CUDART_CB take_hop(void *ctx)
{
    hop *h = ctx;
    memcpy(h->dst, h->src, h->bytes);
    free(h);
}

cudaError_t zoff_cuda_host_copy(cudaStream_t stream, void *dst, const void *src, size_t bytes)
{
    hop *h = malloc(sizeof *h);
    if (!h)
        return cudaErrorMemoryAllocation;
    *h = (hop){.dst = dst, .src = src, .bytes = bytes};
    const cudaError_t error = cudaLaunchHostFunc(stream, take_hop, h);
    if (error != cudaSuccess)
        free(h);
    return error;
}
