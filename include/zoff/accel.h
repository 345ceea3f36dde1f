/* accel.h: open the device on which weights and gradients live, and the streams of one that has memory of its own.
 *
 *  A stream is an order: what is put into it runs one after the other, beside the thread that has put it there. A program that
 *  has streams of its device already (CUDA's, for example) passes those to the calls of engine.h and needs none from here.
 */
#ifndef ZOFF_ACCEL_H
#define ZOFF_ACCEL_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a device is and has done. Output: set struct_size, the library fills the rest. */
typedef struct zoff_accel_info {
    size_t struct_size;         /**< sizeof(zoff_accel_info) of the caller; 0 is rejected */
    const char *backend;        /**< static text */
    const char *name;           /**< of the device; lives as long as it is open */
    int index;                  /**< as it was opened */
    int numa_node;              /**< of the host, that its link is at; -1: none, or not known */
    uint64_t memory_bytes;      /**< of its own */
    uint64_t pinned_bytes;      /**< of host memory, now */
    uint64_t pin_refused_bytes; /**< of host memory that the system would not pin, ever */
    uint64_t bounced_bytes;     /**< copied through another pinned buffer for that reason */
    uint64_t pageable_copies;   /**< that did neither: always 0 */
} zoff_accel_info;

/** Open device `index` of a back-end.
 *  "host" is the CPU itself: weights and gradients are updated in place, without copies.
 *  "emulated" is a device whose streams are threads of this process. Its memory is any memory of the process, which between a
 *  call that passes it on and the end of what was started is for its streams alone; so a trainer for a device, or a mistake in
 *  one, can be tried where there is no device.
 *  "cuda" is an NVIDIA GPU, numbered as CUDA does; -1: the thread's current one. It is the plug-in libzoff_cuda.so, which lies
 *  beside libzoff or in a folder of ZOFF_PLUGIN_PATH. Streams are cudaStream_t; NULL is the default stream. The current device
 *  of the thread is left as it is.
 *  @owns caller; close after every engine on it  @threads any
 *  @return ERR_UNSUPPORTED for a back-end that this build or machine does not have, with the reason */
ZOFF_API zoff_status zoff_accel_open(const char *backend, int index, zoff_accel **out);

/** Close. NULL is allowed. */
ZOFF_API void zoff_accel_close(zoff_accel *accel);

/** Tell what a device is and has done.  @threads any */
ZOFF_API zoff_status zoff_accel_get_info(const zoff_accel *accel, zoff_accel_info *out);

/** Open a stream.
 *  @owns caller; zoff_accel_stream_close() before zoff_accel_close()
 *  @return ERR_UNSUPPORTED for "host", which works in the caller's thread; ERR_DEVICE when the system gives none */
ZOFF_API zoff_status zoff_accel_stream_open(zoff_accel *accel, void **out_stream);

/** Wait for all that is in a stream, and close it. NULL is allowed. */
ZOFF_API void zoff_accel_stream_close(zoff_accel *accel, void *stream);

/** Have the host run a function after all that was put into the stream before. It must not call zoff.  @blocks never */
ZOFF_API zoff_status zoff_accel_stream_call(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx);

/** Wait until all is done that was put into a stream so far.  @blocks yes */
ZOFF_API zoff_status zoff_accel_stream_wait(zoff_accel *accel, void *stream);

#ifdef __cplusplus
}
#endif
#endif
