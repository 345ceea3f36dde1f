/* accel.h: the door of the accel room, and the table that a back-end fills. Back-ends stand in one list in accel.c; "cuda" is a
 * plug-in, which fills the same table.
 *
 * A device is used by putting work into streams, and by events: a point in a stream that another stream waits for, or that the
 * caller asks about. Streams and events are the device's own handles, so that those of a program need no wrapping. Nothing here
 * blocks but closing and zoff_accel_stream_wait(). */
#ifndef ZOFF_ACCEL_DOOR_H
#define ZOFF_ACCEL_DOOR_H

#include "cpu_adam.h"

#include <zoff/accel.h>

/* What a back-end implements. */
/* What is put into a stream is done in order. */
typedef struct zoff_accel_streams {
    zoff_status (*open)(zoff_accel *accel, void **out);
    void (*close)(zoff_accel *accel, void *stream); /* waits for the work in it */
    zoff_status (*call)(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx);
} zoff_accel_streams;

/* The kernels of cpu_adam.h, with the same bits, on memory of the device. Lists, constants and factors are the caller's again
 * when a call returns. One that fails has done nothing, or has lost the device. */
typedef struct zoff_accel_kernels {
    zoff_status (*update)(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count);
    zoff_status (*accumulate)(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces, size_t count);
    zoff_status (*cast)(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count);
    zoff_status (*square_sum)(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces, size_t count);
} zoff_accel_kernels;

/* For a profiler of the device: the calling thread does this stage of a bucket from `begin` to `end`. */
typedef struct zoff_accel_ranges {
    void (*begin)(zoff_accel *accel, const char *stage, uint64_t bucket);
    void (*end)(zoff_accel *accel);
} zoff_accel_ranges;

typedef struct zoff_accel_ops {
    const char *name;
    bool in_place; /* the CPU can read its gradients and write its weights where they are: then there is nothing below get_info
                    */
    zoff_status (*open)(int index, zoff_accel **out);
    void (*close)(zoff_accel *accel);
    int (*numa_node)(const zoff_accel *accel); /* that its link is at; -1 where there is none or it is not known */

    void (*get_info)(const zoff_accel *accel, zoff_accel_info *out); /* all but what accel.c knows */

    /* Host memory that copies go to and come from. Where the system does not pin it, copies are slower and no less exact. */
    zoff_status (*pin)(zoff_accel *accel, void *memory, size_t bytes);
    void (*unpin)(zoff_accel *accel, void *memory);
    /* Memory of the device.  @return ERR_NO_MEMORY */
    zoff_status (*alloc)(zoff_accel *accel, size_t bytes, void **out);
    void (*free)(zoff_accel *accel, void *memory); /* may wait for all that the device does */

    zoff_accel_streams streams;
    zoff_status (*copy)(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes); /* either way */
    zoff_status (*zero)(zoff_accel *accel, void *stream, void *dst, size_t bytes);                  /* on the device */

    zoff_accel_kernels kernels;
    zoff_accel_ranges ranges;

    zoff_status (*event_open)(zoff_accel *accel, void **out);
    void (*event_close)(zoff_accel *accel, void *event);
    /* The event is the point that the stream has reached when it has done all that is in it now. Stream NULL: now. */
    zoff_status (*event_record)(zoff_accel *accel, void *event, void *stream);
    /* What is put into the stream from here on waits for that point, as the event was recorded last; the caller does not. */
    zoff_status (*event_await)(zoff_accel *accel, void *stream, void *event);
    /* OK: it is reached, and what came before it is seen by the caller; PENDING; ERR_DEVICE, which stays. An event that was
     * never recorded is reached. */
    zoff_status (*event_poll)(zoff_accel *accel, void *event);
} zoff_accel_ops;

/* The first member of every back-end's own struct. */
struct zoff_accel {
    const zoff_accel_ops *ops;
    int index;
};

/* ---- the back-ends ---- */

extern const zoff_accel_ops zoff_accel_host_ops;
extern const zoff_accel_ops zoff_accel_emulated_ops;
/* That of the plug-in for CUDA. */
zoff_status zoff_accel_plugins_cuda(int index, zoff_accel **out);
/* Describe its device without opening it.  @return ERR_UNSUPPORTED with the reason why there is none */
zoff_status zoff_accel_plugins_cuda_probe(char *out, size_t bytes);

const char *zoff_accel_name(const zoff_accel *accel);
bool zoff_accel_in_place(const zoff_accel *accel);
int zoff_accel_numa_node(const zoff_accel *accel);

#endif
