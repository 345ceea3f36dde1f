/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_copies.c: copies between memory of any kind, in the order of a lane's stream. NCCL reads and writes device memory only.
 * CUDA copies pinned memory without blocking the caller. Pageable memory goes through a pinned buffer, by a host function in
 * the stream. */
#include "nccl_priv.h"

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

/* An operation without bytes may pass no memory. */
zoff_status zoff_nccl_is_device(const zoff_nccl *n, const void *memory, bool *out)
{
    enum cudaMemoryType kind = cudaMemoryTypeUnregistered;
    if (memory)
        ZOFF_TRY(kind_of(n, memory, &kind));
    *out = is_device(kind);
    return ZOFF_OK;
}

/* Copy in parts. All are in the order of the stream, so a part starts when the one before has left the buffer. */
static zoff_status bounce(zoff_nccl *n, zoff_nccl_lane *lane, char *dst, const char *src, size_t bytes, bool up)
{
    char *slot = lane->bounce;
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < ZOFF_NCCL_BOUNCE ? bytes - at : ZOFF_NCCL_BOUNCE;
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
