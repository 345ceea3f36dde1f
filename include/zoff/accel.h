/* SPDX-License-Identifier: Apache-2.0 */
/* accel.h: open the device that holds weights and gradients, and streams of a device that has memory of its own.
 *
 *  A stream runs the work enqueued in it in order, beside the thread that enqueues it. A program that already has streams of
 * its device (CUDA's, for example) passes those to the calls of step.h and state.h, and needs no stream from here.
 *
 *  ZOFF_STREAM_DEFAULT names the device's default stream. NULL never does: it says that no work has to be waited for. So pass
 * the former where a framework's stream has the handle 0.
 */
#ifndef ZOFF_ACCEL_H
#define ZOFF_ACCEL_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The default stream of a device, in every call that takes a stream; cudaStreamLegacy of CUDA. */
#define ZOFF_STREAM_DEFAULT ((void *)1)

/** Facts and counters of a device. */
typedef struct zoff_accel_info {
    size_t struct_size;         /**< set by ZOFF_ACCEL_INFO_INIT */
    const char *backend;        /**< static text */
    const char *name;           /**< name of the device; valid until it is closed */
    int index;                  /**< index, as passed to zoff_accel_open() */
    int numa_node;              /**< host node that the device is attached to; -1: none, or unknown */
    uint64_t memory_bytes;      /**< device memory */
    uint64_t pinned_bytes;      /**< host memory pinned now */
    uint64_t pin_refused_bytes; /**< host memory that the system refused to pin, in all */
    uint64_t bounced_bytes;     /**< bytes copied through another pinned buffer because their own memory could not be pinned */
    uint64_t pageable_copies;   /**< copies from or to memory that is not pinned: always 0 */
    uint64_t allocated_bytes;   /**< device memory that engines hold now */
} zoff_accel_info;
#define ZOFF_ACCEL_INFO_INIT ZOFF_SIZED(zoff_accel_info)

/** Open device `index` of a back-end.
 *
 *  "host" is the CPU: weights and gradients are updated in place, without copies.
 *
 *  "emulated" is a device whose streams are threads of this process and whose memory is ordinary memory. It shows mistakes of a
 *  trainer for a device, such as a missing wait, without a device. Do not touch a buffer between a call that passes it on and
 *  the end of the work that this call starts.
 *
 *  "cuda" is an NVIDIA GPU, numbered as CUDA does; -1: the thread's current one. It is the plug-in libzoff_cuda.so, found in
 *  the folder zoff beside libzoff or in one of ZOFF_PLUGIN_PATH. Streams are cudaStream_t. The thread's current device stays as
 *  it is.
 *  @owns caller; close it after every engine on it  @threads any
 *  @return ERR_UNSUPPORTED for a back-end that this build or machine does not have, with the reason */
ZOFF_API zoff_status zoff_accel_open(const char *backend, int index, zoff_accel **out);

/** Close. NULL is allowed. */
ZOFF_API void zoff_accel_close(zoff_accel *accel);

/** Read facts and counters of a device.
 *  @threads any */
ZOFF_API zoff_status zoff_accel_get_info(const zoff_accel *accel, zoff_accel_info *out);

/** Open a stream.
 *  @owns caller; zoff_accel_stream_close() before zoff_accel_close()
 *  @return ERR_UNSUPPORTED for "host", which has none; ERR_DEVICE when the system gives none */
ZOFF_API zoff_status zoff_accel_stream_open(zoff_accel *accel, void **out_stream);

/** Wait for all work in a stream, and close it; the default stream stays open. NULL is allowed. */
ZOFF_API void zoff_accel_stream_close(zoff_accel *accel, void *stream);

/** Enqueue a function that the host runs after all earlier work of the stream. It must not call zoff.
 *  @blocks never */
ZOFF_API zoff_status zoff_accel_stream_call(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx);

/** Wait until all work enqueued in a stream so far is done.
 *  @blocks yes */
ZOFF_API zoff_status zoff_accel_stream_wait(zoff_accel *accel, void *stream);

#ifdef __cplusplus
}
#endif
#endif
