/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_priv.h: what the files of the CUDA plug-in share.
 *
 *     plugin.c      the entry                              device.c    open, close, streams, events: the table
 *     copies.c      pinned memory, and copies through it   kernels.cu  what the device computes
 *     host.c        shared with the NCCL plug-in
 */
#ifndef ZOFF_CUDA_PRIV_H
#define ZOFF_CUDA_PRIV_H

#include "accel.h"
#include "try.h"

#include "current.h"
#include "host.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

/* A pinned buffer of a stream, for copies from or to pageable host memory. */
typedef struct zoff_cuda_bounce {
    struct zoff_cuda_bounce *next;
    cudaStream_t stream;
    char *slot;
    size_t bytes;
} zoff_cuda_bounce;

/* A range of memory: pinned on the host, or allocated on the device. */
typedef struct zoff_cuda_range {
    struct zoff_cuda_range *next;
    void *memory;
    size_t bytes;
} zoff_cuda_range;

typedef struct zoff_cuda_accel {
    zoff_accel base;
    char name[256];
    int numa_node;
    size_t memory_bytes;
    pthread_mutex_t lock; /* guards the lists and writing `lost`: engines of several threads may share a device */
    zoff_cuda_bounce *bounces;
    zoff_cuda_range *pinned, *blocks; /* host memory that is pinned; device memory that engines have */
    _Atomic uint64_t allocated_bytes, pinned_bytes, refused_bytes, bounced_bytes,
        pageable_copies;  /* any thread may call zoff_accel_get_info() */
    char lost[512];       /* the message of the call that lost the device */
    _Atomic bool is_lost; /* `lost` is complete */
} zoff_cuda_accel;

static inline zoff_cuda_accel *zoff_cuda_of(zoff_accel *accel)
{
    return (zoff_cuda_accel *)(void *)accel;
}

/* device.c */
zoff_status zoff_cuda_open(int index, zoff_accel **out);
zoff_status zoff_cuda_probe(char *out, size_t bytes);
/* Turn the result of a CUDA call into a status: OK, ERR_NO_MEMORY or ERR_DEVICE. A lost device returns ERR_DEVICE ever after.
 */
zoff_status zoff_cuda_check(zoff_cuda_accel *a, cudaError_t error, const char *call);
void zoff_cuda_lose(zoff_cuda_accel *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));  /* keeps the first message */
bool zoff_cuda_is_final(cudaError_t error); /* whether the error loses the device */
/* Drop the error of a call that nobody reports. An error that the program has not asked for yet stays for the program. */
static inline void zoff_cuda_forgive(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
}

/* The first statement of each function of the table: fails if the device is lost, and restores the caller's current device. */
#define ZOFF_CUDA_ENTER(accel, a)                                                                                              \
    zoff_cuda_accel *const a = zoff_cuda_of(accel);                                                                            \
    if (a->is_lost)                                                                                                            \
        return zoff_base_status_fail(ZOFF_ERR_DEVICE, "%s", a->lost);                                                          \
    const zoff_cuda_before before_ __attribute__((cleanup(zoff_cuda_current_leave), unused)) =                                 \
        zoff_cuda_current_enter(a->base.index)
#define ZOFF_CUDA_TRY(a, call, ...) ZOFF_TRY(zoff_cuda_check((a), call(__VA_ARGS__), #call))

/* copies.c */
/* Lists of ranges, under the lock. `take` removes the range that begins at `memory`; NULL: there is none. */
void zoff_cuda_ranges_add(zoff_cuda_accel *a, zoff_cuda_range **list, zoff_cuda_range *range, void *memory, size_t bytes);
zoff_cuda_range *zoff_cuda_ranges_take(zoff_cuda_accel *a, zoff_cuda_range **list, const void *memory);
zoff_status zoff_cuda_pin(zoff_accel *accel, void *memory, size_t bytes);
void zoff_cuda_unpin(zoff_accel *accel, void *memory);
void *zoff_cuda_mapped(zoff_accel *accel, void *memory);
zoff_status zoff_cuda_copy(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes);
void zoff_cuda_forget_stream(zoff_cuda_accel *a, cudaStream_t stream); /* free the stream's buffer; the stream must be idle */
void zoff_cuda_forget_all(zoff_cuda_accel *a);

#endif
