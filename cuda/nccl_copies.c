/* nccl_copies.c: copies between memory of any kind, in the order of a lane's stream. NCCL moves memory of the device; CUDA
 * copies to it from pinned memory without holding the caller up; from any other memory it is a function of the host in the
 * stream that copies, through a pinned buffer. */
#include "nccl_priv.h"

#include <stdlib.h>
#include <string.h>

enum { BOUNCE_MOST = 8 << 20, BOUNCE_LEAST = 64 << 10 };

static zoff_status kind_of(const zoff_nccl *n, const void *memory, enum cudaMemoryType *out)
{
    struct cudaPointerAttributes about;
    ZOFF_NCCL_CUDA(n, cudaPointerGetAttributes, &about, memory);
    *out = about.type;
    return ZOFF_OK;
}

static bool is_device(enum cudaMemoryType kind)
{
    return kind == cudaMemoryTypeDevice || kind == cudaMemoryTypeManaged;
}

/* Where nothing is moved there may be no memory at all. */
zoff_status zoff_nccl_is_device(const zoff_nccl *n, const void *memory, bool *out)
{
    enum cudaMemoryType kind = cudaMemoryTypeUnregistered;
    if (memory)
        ZOFF_TRY(kind_of(n, memory, &kind));
    *out = is_device(kind);
    return ZOFF_OK;
}

/* ---- memory that grows ---- */

static zoff_status get(zoff_nccl *n, void **out, size_t bytes, bool is_host)
{
    if (is_host)
        ZOFF_NCCL_CUDA(n, cudaHostAlloc, out, bytes, cudaHostAllocPortable);
    else
        ZOFF_NCCL_CUDA(n, cudaMalloc, out, bytes);
    return ZOFF_OK;
}

zoff_status zoff_nccl_grow(zoff_nccl *n, zoff_nccl_memory *m, size_t bytes, bool is_host)
{
    size_t enough = m->bytes ? m->bytes : BOUNCE_LEAST;
    void *base;
    if (bytes <= m->bytes)
        return ZOFF_OK;
    while (enough < bytes)
        enough *= 2;
    ZOFF_FAIL_IF(m->olds == ZOFF_NCCL_GROWTHS, ZOFF_ERR_NO_MEMORY, "a buffer for messages has grown too often");
    ZOFF_TRY(get(n, &base, enough, is_host));
    if (m->base)
        m->old[m->olds++] = m->base;
    m->base = base;
    m->bytes = enough;
    return ZOFF_OK;
}

static void put_back(void *memory, bool is_host)
{
    (void)(is_host ? cudaFreeHost(memory) : cudaFree(memory));
    (void)cudaGetLastError();
}

void zoff_nccl_free(zoff_nccl_memory *m, bool is_host)
{
    while (m->olds)
        put_back(m->old[--m->olds], is_host);
    if (m->base)
        put_back(m->base, is_host);
    *m = (zoff_nccl_memory){.base = NULL};
}

/* ---- copies ---- */

/* Part by part, all in the order of the stream: so the next part finds the buffer free. */
static zoff_status bounce(zoff_nccl *n, zoff_nccl_lane *lane, char *dst, const char *src, size_t bytes, bool up)
{
    const size_t most = bytes < BOUNCE_MOST ? bytes : BOUNCE_MOST;
    ZOFF_TRY(zoff_nccl_grow(n, &lane->bounce, most, true));
    char *slot = lane->bounce.base;
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < lane->bounce.bytes ? bytes - at : lane->bounce.bytes;
        if (up)
            ZOFF_NCCL_CUDA(n, zoff_cuda_host_copy, lane->stream, slot, src + at, part);
        ZOFF_NCCL_CUDA(n, cudaMemcpyAsync, up ? dst + at : slot, up ? slot : src + at, part, cudaMemcpyDefault, lane->stream);
        if (!up)
            ZOFF_NCCL_CUDA(n, zoff_cuda_host_copy, lane->stream, dst + at, slot, part);
    }
    return ZOFF_OK;
}

zoff_status zoff_nccl_copy(zoff_nccl *n, zoff_nccl_lane *lane, void *dst, const void *src, size_t bytes)
{
    enum cudaMemoryType to, from;
    if (bytes == 0 || dst == src)
        return ZOFF_OK;
    ZOFF_TRY(kind_of(n, dst, &to));
    ZOFF_TRY(kind_of(n, src, &from));
    if (!is_device(to) && !is_device(from))
        return zoff_nccl_check_cuda(n, zoff_cuda_host_copy(lane->stream, dst, src, bytes), "cudaLaunchHostFunc");
    if (to == cudaMemoryTypeUnregistered || from == cudaMemoryTypeUnregistered)
        return bounce(n, lane, dst, src, bytes, from == cudaMemoryTypeUnregistered);
    ZOFF_NCCL_CUDA(n, cudaMemcpyAsync, dst, src, bytes, cudaMemcpyDefault, lane->stream);
    return ZOFF_OK;
}
