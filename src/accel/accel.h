/* SPDX-License-Identifier: Apache-2.0 */
/* accel.h: the door of the accel room, and the table that a back-end fills. accel.c lists the back-ends; "cuda" is a plug-in,
 * which fills the same table.
 *
 * The caller enqueues work into streams. An event marks a point in a stream: another stream can wait for it, and the caller can
 * ask whether it is reached. Streams and events are the device's own handles, so a program's need no wrapper. Only closing and
 * zoff_accel_stream_wait() block. */
#ifndef ZOFF_ACCEL_DOOR_H
#define ZOFF_ACCEL_DOOR_H

#include "cpu_adam.h"

#include <zoff/accel.h>

/* The functions of a back-end. */
/* A stream executes its work in order. */
typedef struct zoff_accel_streams {
    zoff_status (*open)(zoff_accel *accel, void **out);
    void (*close)(zoff_accel *accel, void *stream); /* waits for the stream's work */
    zoff_status (*call)(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx);
} zoff_accel_streams;

/* Functions for pages of host memory. */
typedef struct zoff_accel_pages {
    /* Pin host memory for copies. If the system refuses, copies are slower and just as exact. */
    zoff_status (*pin)(zoff_accel *accel, void *memory, size_t bytes);
    void (*unpin)(zoff_accel *accel, void *memory);
    /* The address by which the device's kernels access pinned memory. NULL: the system has refused to pin it. */
    void *(*mapped)(zoff_accel *accel, void *memory);
} zoff_accel_pages;

/* Sums and weights that the launch of one piece has space for. A result in planes is continued by further launches. */
enum { ZOFF_ACCEL_BINS_PARTS = 8, ZOFF_ACCEL_BINS_FACTORS = 160 };

/* Whether each piece can be launched; the text is the reason of a refusal. */
#define ZOFF_ACCEL_BINS_REFUSAL                                                                                                \
    "a value on a device is of at most 8 exact sums, and 160 terms with weights; add them to planes first"
static inline bool zoff_accel_bins_fit(const zoff_bins_piece *pieces, size_t count)
{
    bool fit = true;
    for (size_t i = 0; i < count; i++) {
        const zoff_bins_piece *p = &pieces[i];
        fit = fit && (!p->out || p->part_count <= ZOFF_ACCEL_BINS_PARTS) &&
              (!p->out || !p->weights || p->sources <= ZOFF_ACCEL_BINS_FACTORS);
    }
    return fit;
}

/* The kernels of cpu_adam.h on device memory, with the same bits. The caller may free lists, constants and factors when a call
 * returns. A call that fails has done nothing, or has lost the device. */
typedef struct zoff_accel_kernels {
    zoff_status (*update)(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count);
    zoff_status (*accumulate)(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces, size_t count);
    /* @return ERR_INVALID: a piece with `out` has more than ZOFF_ACCEL_BINS_PARTS, or ZOFF_ACCEL_BINS_FACTORS weights */
    zoff_status (*bins)(zoff_accel *accel, void *stream, const zoff_bins_piece *pieces, size_t count);
    zoff_status (*cast)(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count);
    zoff_status (*square_sum)(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces, size_t count);
} zoff_accel_kernels;

/* Mark a range for a profiler of the device: the calling thread works on this stage of a bucket from `begin` to `end`. */
typedef struct zoff_accel_ranges {
    void (*begin)(zoff_accel *accel, const char *stage, uint64_t bucket);
    void (*end)(zoff_accel *accel);
} zoff_accel_ranges;

enum { ZOFF_ACCEL_ALIGN = 256 }; /* bytes */

typedef struct zoff_accel_ops {
    const char *name;
    bool in_place; /* the CPU reads gradients and writes weights in place, so nothing below get_info is set */
    void (*close)(zoff_accel *accel);
    int (*numa_node)(const zoff_accel *accel); /* NUMA node of the device's link; -1 if there is none, or it is unknown */

    void (*get_info)(const zoff_accel *accel, zoff_accel_info *out); /* fill all fields but those that accel.c knows */

    zoff_accel_pages pages;
    /* Allocate device memory, aligned to ZOFF_ACCEL_ALIGN.  @return ERR_NO_MEMORY */
    zoff_status (*alloc)(zoff_accel *accel, size_t bytes, void **out);
    void (*free)(zoff_accel *accel, void *memory); /* may wait for all work of the device */

    zoff_accel_streams streams;
    /* copy in either direction */
    zoff_status (*copy)(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes);
    /* zero memory on the device */
    zoff_status (*zero)(zoff_accel *accel, void *stream, void *dst, size_t bytes);

    zoff_accel_kernels kernels;
    zoff_accel_ranges ranges;

    zoff_status (*event_open)(zoff_accel *accel, void **out);
    void (*event_close)(zoff_accel *accel, void *event);
    /* Record the event behind all work that is in the stream now. Stream NULL: nobody's work, so the event is reached soon. */
    zoff_status (*event_record)(zoff_accel *accel, void *event, void *stream);
    /* Work that is enqueued from now on waits for the event's last record. The caller does not wait. */
    zoff_status (*event_await)(zoff_accel *accel, void *stream, void *event);
    /* @return OK: the event is reached, and the caller sees the results of the work before it; PENDING; ERR_DEVICE, for ever.
     * An event that was never recorded is reached. */
    zoff_status (*event_poll)(zoff_accel *accel, void *event);
} zoff_accel_ops;

/* The first member of each back-end's own struct. */
struct zoff_accel {
    const zoff_accel_ops *ops;
    int index;
};

/* ---- the back-ends ---- */

extern const zoff_accel_ops zoff_accel_emulated_ops;
zoff_status zoff_accel_emulated_open(int index, zoff_accel **out);
/* Describe the device of the CUDA plug-in without opening it.  @return ERR_UNSUPPORTED with the reason why there is none */
zoff_status zoff_accel_plugins_cuda_probe(char *out, size_t bytes);

const char *zoff_accel_name(const zoff_accel *accel);
bool zoff_accel_in_place(const zoff_accel *accel);
int zoff_accel_numa_node(const zoff_accel *accel);

#endif
