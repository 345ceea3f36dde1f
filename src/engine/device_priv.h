/* device_priv.h: what an engine has where the CPU does not reach weights and gradients. On the host its functions do nothing;
 * part of engine_priv.h. */
#ifndef ZOFF_DEVICE_PRIV_H
#define ZOFF_DEVICE_PRIV_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_bucket_run zoff_bucket_run;

/* Host memory in which the weights of a bucket become new, and from which they go up to a device. */
typedef struct zoff_device_window {
    char *base;
    void *risen; /* event: all of it has gone up */
    bool lent, rises;
} zoff_device_window;

/* Buckets whose weights are new, or on their way up, at a time: those that are updated, spread to other ranks, and copied. */
enum { ZOFF_DEVICE_WINDOWS = 6 };

/* A gradient on its way from a device. */
typedef struct zoff_fall {
    size_t number; /* of its slice, as the flags */
    zoff_param param;
    size_t slice;
} zoff_fall;

/* What an engine has where the CPU does not reach weights and gradients; all of it is empty where it does. */
typedef struct zoff_device {
    void *down, *up;   /* streams */
    void *handed_over; /* event: where the trainer's stream was at the latest zoff_grad_ready() */
    void *synced;      /* event of whoever waits at once */
    void **landed;     /* events, by slice; NULL: not needed yet */
    zoff_fall *falls;  /* a ring of slice_count places, in the order of the stream */
    size_t first_fall, fall_end;
    zoff_map staging; /* of the windows */
    size_t window_bytes;
    size_t *offsets; /* by piece: where it is in the window of its bucket */
    zoff_device_window windows[ZOFF_DEVICE_WINDOWS];
    size_t next; /* the bucket that gets the next one */
    bool staging_pinned, wire_pinned;
    zoff_status fault;                /* of the first weights, while the states are filled from them */
    uint64_t read_bytes, write_bytes; /* from the device and to it, since the step before */
} zoff_device;

/* device.c: where the CPU does not reach weights and gradients. On the host all of this does nothing. */
zoff_status zoff_engine_device_open(zoff_engine *e);
void zoff_engine_device_close(zoff_engine *e);
uint64_t zoff_engine_device_bytes(const zoff_engine *e, const zoff_plan *plan); /* DRAM that it takes */
zoff_status zoff_engine_device_pin(zoff_engine *e, const zoff_map *map);
void zoff_engine_device_unpin(zoff_engine *e, const zoff_map *map);
/* Start to bring the gradient of a slice down, behind what is in the trainer's stream. */
zoff_status zoff_engine_device_fall(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);
zoff_status zoff_engine_device_go_on(zoff_engine *e); /* take what has come; PENDING: something is on its way */
void zoff_engine_device_end_falls(zoff_engine *e);    /* wait for all of it */
bool zoff_engine_device_rises(const zoff_engine *e);  /* something is on its way up */
bool zoff_engine_device_busy(const zoff_engine *e);   /* or down */
zoff_status zoff_engine_device_wait(zoff_engine *e);  /* let time pass */
/* Copy weights between the device and other memory, outside of a step.  @blocks until done */
zoff_status zoff_engine_device_copy(zoff_engine *e, const zoff_cast_piece *moves, size_t count, bool up);
/* Where the CPU sees the weights of a piece: as zoff_engine_params_value(), and of a device the window of its bucket, or NULL.
 */
char *zoff_engine_device_weights(const zoff_engine *e, const zoff_plan_piece *piece, char *weights);
/* Outside of the walk: a window for a bucket, with this rank's weights of it as they are on the device.  @blocks for both */
zoff_status zoff_engine_device_lend(zoff_engine *e, size_t bucket, bool load);
void zoff_engine_device_release(zoff_engine *e, size_t bucket); /* unchanged */
/* Send up what this rank has changed of a bucket, or what all have in this step, and release the window behind it. */
zoff_status zoff_engine_device_rise(zoff_engine *e, size_t bucket, bool own);
zoff_status zoff_engine_device_settle(zoff_engine *e);       /* wait until all that goes up is there */
zoff_status zoff_engine_device_finish(zoff_engine *e);       /* the end of a step */
zoff_status zoff_engine_device_unload(zoff_bucket_run *run); /* a row */
zoff_status zoff_engine_device_window(zoff_bucket_run *run); /* a row */
zoff_status zoff_engine_device_upload(zoff_bucket_run *run); /* a row */

#endif
