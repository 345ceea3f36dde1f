/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c: pinned host memory and copies. Copies from or to pageable memory go through a pinned buffer of the stream. CUDA's
 * own copies of pageable memory block the caller, and some do not keep the order of the stream. */
#include "cuda_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of a stream's buffer. It is halved while the system refuses to pin it. */
enum { BOUNCE_MOST = 32 << 20, BOUNCE_LEAST = 64 << 10 };

/* ---- pinned memory ---- */

/* Memory that the system refuses to pin is copied through a buffer. The first refusal prints a warning, each one is counted. */
zoff_status zoff_cuda_pin(zoff_accel *accel, void *memory, size_t bytes)
{
    ZOFF_CUDA_ENTER(accel, a);
    zoff_cuda_range *range = malloc(sizeof *range);
    ZOFF_FAIL_IF(!range, ZOFF_ERR_NO_MEMORY, "no memory for a list of pinned ranges");
    const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) {
        zoff_cuda_ranges_add(a, &a->pinned, range, memory, bytes);
        a->pinned_bytes += bytes;
        return ZOFF_OK;
    }
    free(range);
    if (zoff_cuda_is_final(error))
        return zoff_cuda_check(a, error, "cudaHostRegister");
    (void)cudaGetLastError();
    if (atomic_fetch_add(&a->refused_bytes, bytes) == 0)
        zoff_cuda_host_warn("cudaHostRegister refuses to pin %zu MiB (%s; %zu MiB are pinned): other memory is copied once "
                            "more on its way to the device. Raise `ulimit -l`, or the limits of the container",
                            bytes >> 20, cudaGetErrorString(error), (size_t)a->pinned_bytes >> 20);
    return ZOFF_OK;
}

void zoff_cuda_ranges_add(zoff_cuda_accel *a, zoff_cuda_range **list, zoff_cuda_range *range, void *memory, size_t bytes)
{
    pthread_mutex_lock(&a->lock);
    *range = (zoff_cuda_range){.next = *list, .memory = memory, .bytes = bytes};
    *list = range;
    pthread_mutex_unlock(&a->lock);
}

zoff_cuda_range *zoff_cuda_ranges_take(zoff_cuda_accel *a, zoff_cuda_range **list, const void *memory)
{
    zoff_cuda_range *found = NULL;
    pthread_mutex_lock(&a->lock);
    for (zoff_cuda_range **at = list; *at; at = &(*at)->next) {
        if ((*at)->memory != memory)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

void zoff_cuda_unpin(zoff_accel *accel, void *memory)
{
    zoff_cuda_accel *a = zoff_cuda_of(accel);
    const zoff_cuda_before before = zoff_cuda_current_enter(a->base.index);
    zoff_cuda_range *range = zoff_cuda_ranges_take(a, &a->pinned, memory);
    if (range) {
        zoff_cuda_forgive(cudaHostUnregister(memory));
        a->pinned_bytes -= range->bytes;
        free(range);
    }
    zoff_cuda_current_leave(&before);
}

/* With unified addressing, which every 64-bit system has, pinned memory is mapped as well. */
void *zoff_cuda_mapped(zoff_accel *accel, void *memory)
{
    zoff_cuda_accel *a = zoff_cuda_of(accel);
    const zoff_cuda_before before = zoff_cuda_current_enter(a->base.index);
    void *there = NULL;
    bool is_pinned = false;
    pthread_mutex_lock(&a->lock);
    for (const zoff_cuda_range *range = a->pinned; range; range = range->next)
        is_pinned = is_pinned || range->memory == memory;
    pthread_mutex_unlock(&a->lock);
    if (is_pinned) {
        const cudaError_t error = cudaHostGetDevicePointer(&there, memory, 0);
        zoff_cuda_forgive(error);
        there = error == cudaSuccess ? there : NULL;
    }
    zoff_cuda_current_leave(&before);
    return there;
}

/* ---- buffers for pageable memory ---- */

/* A stream and its buffer belong to one thread at a time. All threads share the list, which the lock guards. */
static zoff_cuda_bounce *find(zoff_cuda_accel *a, cudaStream_t stream)
{
    pthread_mutex_lock(&a->lock);
    zoff_cuda_bounce *b = a->bounces;
    while (b && b->stream != stream)
        b = b->next;
    pthread_mutex_unlock(&a->lock);
    return b;
}

static zoff_cuda_bounce *take_bounce(zoff_cuda_accel *a, cudaStream_t stream)
{
    zoff_cuda_bounce *found = NULL;
    pthread_mutex_lock(&a->lock);
    for (zoff_cuda_bounce **at = &a->bounces; *at; at = &(*at)->next) {
        if ((*at)->stream != stream)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

/* @return NULL: not even the smallest buffer could be pinned */
static zoff_cuda_bounce *bounce_of(zoff_cuda_accel *a, cudaStream_t stream)
{
    zoff_cuda_bounce *b = find(a, stream);
    void *slot = NULL;
    size_t bytes = BOUNCE_MOST;
    if (b)
        return b;
    while (bytes >= BOUNCE_LEAST && cudaHostAlloc(&slot, bytes, cudaHostAllocPortable) != cudaSuccess) {
        (void)cudaGetLastError();
        slot = NULL;
        bytes /= 2;
    }
    b = slot ? malloc(sizeof *b) : NULL;
    if (!b) {
        zoff_cuda_forgive(cudaFreeHost(slot));
        return NULL;
    }
    if (bytes < BOUNCE_MOST)
        zoff_cuda_host_warn("a pinned buffer of %d MiB was refused; one of %zu KiB is used", BOUNCE_MOST >> 20, bytes >> 10);
    pthread_mutex_lock(&a->lock);
    *b = (zoff_cuda_bounce){.next = a->bounces, .stream = stream, .slot = slot, .bytes = bytes};
    a->bounces = b;
    pthread_mutex_unlock(&a->lock);
    a->pinned_bytes += bytes;
    return b;
}

void zoff_cuda_forget_stream(zoff_cuda_accel *a, cudaStream_t stream)
{
    zoff_cuda_bounce *b = take_bounce(a, stream);
    if (!b)
        return;
    zoff_cuda_forgive(cudaFreeHost(b->slot));
    a->pinned_bytes -= b->bytes;
    free(b);
}

void zoff_cuda_forget_all(zoff_cuda_accel *a)
{
    while (a->bounces)
        zoff_cuda_forget_stream(a, a->bounces->stream);
    while (a->pinned)
        zoff_cuda_unpin(&a->base, a->pinned->memory);
}

/* ---- copies ---- */

/* Copy in parts. All are in the order of the stream, so a part starts when the one before has left the buffer. */
static zoff_status bounce(zoff_cuda_accel *a, zoff_cuda_bounce *b, void *dst, const void *src, size_t bytes, bool up)
{
    for (size_t at = 0, part; at < bytes; at += part) {
        void *to = (char *)dst + at;
        const void *from = (const char *)src + at;
        part = bytes - at < b->bytes ? bytes - at : b->bytes;
        if (up)
            ZOFF_CUDA_TRY(a, zoff_cuda_host_copy, b->stream, b->slot, from, part);
        ZOFF_CUDA_TRY(a, cudaMemcpyAsync, up ? to : b->slot, up ? b->slot : from, part, cudaMemcpyDefault, b->stream);
        if (!up)
            ZOFF_CUDA_TRY(a, zoff_cuda_host_copy, b->stream, to, b->slot, part);
    }
    a->bounced_bytes += bytes;
    return ZOFF_OK;
}

static zoff_status kind_of(zoff_cuda_accel *a, const void *memory, enum cudaMemoryType *out)
{
    struct cudaPointerAttributes about;
    ZOFF_CUDA_TRY(a, cudaPointerGetAttributes, &about, memory);
    *out = about.type;
    return ZOFF_OK;
}

static bool is_host(enum cudaMemoryType kind)
{
    return kind == cudaMemoryTypeHost || kind == cudaMemoryTypeUnregistered;
}

zoff_status zoff_cuda_copy(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes)
{
    ZOFF_CUDA_ENTER(accel, a);
    enum cudaMemoryType to, from;
    if (bytes == 0)
        return ZOFF_OK;
    ZOFF_TRY(kind_of(a, dst, &to));
    ZOFF_TRY(kind_of(a, src, &from));
    /* Use a host function even for pinned memory, because CUDA performs a host-to-host copy before it returns, and so waits for
     * the stream. */
    if (is_host(to) && is_host(from))
        return zoff_cuda_check(a, zoff_cuda_host_copy(stream, dst, src, bytes), "cudaLaunchHostFunc");
    if (to == cudaMemoryTypeUnregistered || from == cudaMemoryTypeUnregistered) {
        zoff_cuda_bounce *b = bounce_of(a, stream);
        if (b)
            return bounce(a, b, dst, src, bytes, from == cudaMemoryTypeUnregistered);
        a->pageable_copies++;
    }
    ZOFF_CUDA_TRY(a, cudaMemcpyAsync, dst, src, bytes, cudaMemcpyDefault, stream);
    return ZOFF_OK;
}
