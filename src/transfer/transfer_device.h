/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_device.h: gradients and weights in device memory that the CPU cannot access. Without such a device these functions
 * do nothing; part of transfer.h. */
#ifndef ZOFF_TRANSFER_DEVICE_H
#define ZOFF_TRANSFER_DEVICE_H

#include "cpu_adam.h"
#include "map.h"
#include "route.h"
#include "transfer_grads.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_bucket_run zoff_bucket_run;
typedef struct zoff_transfer zoff_transfer;

/* Host memory that receives the updated weights of a bucket, and from which they are uploaded to the device. */
typedef struct zoff_staging_slot {
    char *base;
    void *copied; /* event: the slot's copies are complete */
    void *stream; /* the stream of copies for which the event is not recorded yet; NULL: there are none */
    bool lent, in_flight;
    zoff_trace_transfer traced; /* the copies in flight */
} zoff_staging_slot;

/* With a device: buckets with updated weights in flight at a time: being updated, sent to other ranks, or uploaded. */
enum { ZOFF_STAGING_SLOTS = 6 };

/* Host memory for the weights of a few buckets at a time. The first slots are for the walk of a step, and those behind them for
 * buckets that are updated before it. */
typedef struct zoff_staging {
    zoff_map memory;
    size_t slot_bytes;
    size_t *offsets; /* byte offset of each piece in the staging slot of its bucket */
    zoff_staging_slot *slots;
    size_t count, ahead; /* slots in all, and slots for buckets that are updated ahead of the step. Set `ahead` before seal */
    size_t next;         /* the walk position that gets the next staging slot */
    size_t in_flight;    /* slots whose copies are in flight */
    uint32_t *free;      /* ring of the slots for buckets ahead of the step that no bucket has */
    size_t free_first, free_count;
    bool pinned;
} zoff_staging;

/* A gradient that is being downloaded. */
typedef struct zoff_download {
    size_t number; /* flag number of its slice */
    zoff_param param;
    size_t slice;
    zoff_trace_transfer traced;
} zoff_download;

/* All downloads in flight. They complete in order: they share one stream. */
typedef struct zoff_downloads {
    void **events;        /* events by slice; NULL: not created yet */
    zoff_download *queue; /* a ring of slice_count entries */
    size_t first, end;
    bool was_asked; /* the device was asked in this turn of the walk */
} zoff_downloads;

/* Buckets whose states stay on the device: the first ones of the plan. `count` and `place` are set at seal. */
typedef struct zoff_device_tier {
    size_t count;
    zoff_used_place place;
    size_t *at;        /* byte offset of each bucket in `states` */
    char *states;      /* device memory */
    float *sums;       /* gradient sums; NULL without accumulation, and where wire_device.c or the host holds them */
    char *passing;     /* device memory for one bucket: gradients from the host, and behind them weights for the host */
    size_t weights_at; /* offset of the weights in `passing` */
    void *updated;     /* event: the enqueued updates are done */
    void **landed;     /* events, by bucket: the update is done; then, its copies to the host are complete */
    size_t waits;      /* buckets whose copies are in flight */
    zoff_map landing;  /* host memory for the states of one bucket; with zoff.persist, slots of the store serve instead */
    void *slots;       /* slots of the store, pinned; NULL: none */
    bool pinned;       /* `landing` is pinned */
    bool unsettled;    /* a copy to the device stands still, and may still read its source */
    void *sums_here;   /* the accumulator, pinned, whose sums go up; NULL: it is not pinned */
} zoff_device_tier;

/* Sums of squares that the device computes, for the first `count` buckets. */
typedef struct zoff_device_norm {
    size_t count;     /* buckets */
    size_t *at;       /* block offset of each bucket in `there` and `landing` */
    zoff_map landing; /* sums of blocks, in host memory */
    bool pinned;
    double *sums;    /* memory that kernels write: `landing` by its address on the device, or `there` */
    double *there;   /* device memory, from which they are copied; NULL: kernels write to `landing` */
    void **measured; /* events by bucket: its sums are in `landing` */
    void *settled;   /* event for a caller that waits for it at once */
    size_t waits;    /* buckets that are being measured */
} zoff_device_norm;

/* State of an engine whose weights and gradients are in device memory; empty for the host. */
typedef struct zoff_device {
    void *down, *up;                  /* streams: download, upload */
    void *compute;                    /* stream for kernels */
    bool computes;                    /* a kernel was enqueued since the last wait for `compute` */
    bool turns;                       /* the walk may run in descending order */
    bool descends;                    /* the walk runs in descending order in this step */
    size_t first_bucket, last_bucket; /* bucket of the gradient that was handed over first, and last; SIZE_MAX: none yet */
    void *handed_over;                /* event: position of the trainer's stream at the latest zoff_grad_ready() */
    void *synced;                     /* event for a caller that waits for it at once */
    zoff_downloads downloads;
    zoff_grads lent; /* gradient memory of the device that is lent to the program */
    zoff_staging staging;
    bool wire_pinned;
    zoff_device_tier tier;
    zoff_device_norm norm;
    zoff_status fault;                /* error of the first weights, while the states are filled from them */
    uint64_t read_bytes, write_bytes; /* bytes from and to the device since the previous step */
} zoff_device;

/* streams.c */
zoff_status zoff_transfer_streams_pin(zoff_transfer *t, const zoff_map *map);
void zoff_transfer_streams_unpin(zoff_transfer *t, const zoff_map *map);
/* Wait for all work in a stream. If a call fails once, the wait is repeated, so that only a device that is gone or stands still
 * leaves work.  @blocks yes */
zoff_status zoff_transfer_streams_sync(zoff_transfer *t, void *stream);
/* Copy weights between the device and other memory, outside of a step.  @blocks until done */
zoff_status zoff_transfer_streams_copy(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up);
/* Make later uploads wait for the work that is now in the trainer's stream. */
zoff_status zoff_transfer_streams_follow(zoff_transfer *t, void *native_stream);
/* Make later kernels wait for the point of the last zoff_transfer_streams_follow(). */
zoff_status zoff_transfer_streams_compute_follow(zoff_transfer *t);
zoff_status zoff_transfer_streams_compute_settle(zoff_transfer *t); /* wait until no kernel is in flight  @blocks yes */

bool zoff_transfer_streams_upload(const zoff_transfer *t); /* whether uploads are in flight */
/* Register the device with the engine's progress, so that every wait checks the deadline of a busy device. */
void zoff_transfer_streams_watch(zoff_transfer *t);
void zoff_transfer_streams_unwatch(zoff_transfer *t);
/* Wait until `until` returns anything but PENDING, or until an event has happened.  @return also ERR_DEVICE: the device made no
 * progress and reported no failure for the communicator's timeout_seconds  @blocks yes */
zoff_status zoff_transfer_streams_wait(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx);
zoff_status zoff_transfer_streams_wait_for(zoff_transfer *t, void *event);
/* Wait for all streams, before memory that they use is freed.  @return false: work in a stream did not end within 10 s or
 * timeout_seconds, whichever is shorter  @blocks yes */
bool zoff_transfer_streams_end(zoff_transfer *t);

/* download.c */
/* Record the downloads that are complete.  @return PENDING: others are in flight */
zoff_status zoff_transfer_download_poll(zoff_transfer *t);
/* Ask for complete downloads once in a turn of the walk (downloads.was_asked), however many buckets wait.  @return OK or an
 * error */
zoff_status zoff_transfer_download_ask(zoff_transfer *t);
zoff_status zoff_transfer_download_finish(zoff_transfer *t); /* wait until no download is in flight  @blocks yes */

/* staging.c */
/* At seal: allocate the slots, `of_walk` of them for the walk. */
zoff_status zoff_transfer_staging_open(zoff_transfer *t, size_t of_walk);
void zoff_transfer_staging_close(zoff_transfer *t);
size_t zoff_transfer_staging_slot_bytes(const zoff_transfer *t, const zoff_plan *plan);
/* Bytes of the weights of a piece that go through a slot: trained weights of the program. */
size_t zoff_transfer_staging_bytes_of(const zoff_transfer *t, const zoff_plan_piece *piece);
/* Give a bucket a staging slot, in the walk, or ahead of the step.  @return PENDING: all are in use */
zoff_status zoff_transfer_staging_lend(zoff_transfer *t, size_t bucket);
zoff_status zoff_transfer_staging_lend_ahead(zoff_transfer *t, size_t bucket);
void zoff_transfer_staging_release(zoff_transfer *t, size_t bucket);
/* Record the slot's event behind the copies that were enqueued for it. */
zoff_status zoff_transfer_staging_mark(zoff_transfer *t, zoff_staging_slot *slot);
void zoff_transfer_staging_landed(zoff_transfer *t, zoff_staging_slot *slot); /* whether the copies of a slot are complete */
/* Wait until the copies to or from one slot, or all, are complete.  @blocks yes */
zoff_status zoff_transfer_staging_wait(zoff_transfer *t, zoff_staging_slot *slot);
zoff_status zoff_transfer_staging_wait_all(zoff_transfer *t);
size_t zoff_transfer_staging_offset(const zoff_transfer *t, const zoff_plan_piece *piece); /* bytes */
/* The weights of a piece in the staging slot of its bucket; NULL: the bucket has no slot. Those of the engine are in `weights`,
 * the memory of its chunk. */
char *zoff_transfer_staging_weights(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights);

/* device.c: weights and gradients in device memory: see zoff_link */
zoff_status zoff_transfer_device_open(zoff_transfer *t);
void zoff_transfer_device_close(zoff_transfer *t); /* anything that was not opened is skipped */
void zoff_transfer_device_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info);
/* Start the download of a gradient, after the work that is now in the trainer's stream. */
zoff_status zoff_transfer_device_download(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* Leave the gradient on the device; kernels that read it wait for the trainer's stream. */
zoff_status zoff_transfer_device_stay(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* Outside of the walk: get a staging slot for a bucket; `load` copies this rank's current weights into it.  @blocks for both */
zoff_status zoff_transfer_device_lend(zoff_transfer *t, size_t bucket, bool load);
/* Upload a bucket's weights from its staging slot, then release the slot. `own`: this rank's pieces; otherwise all weights that
 * are updated in this step, of all ranks. */
zoff_status zoff_transfer_device_upload(zoff_transfer *t, size_t bucket, bool own);
zoff_status zoff_transfer_device_settle(zoff_transfer *t); /* wait until all uploads are complete */
zoff_status zoff_transfer_device_let_read(zoff_transfer *t, zoff_slice_buckets buckets, void *native_stream);
zoff_status zoff_transfer_device_reuse(zoff_transfer *t, char *grad, size_t bytes,
                                       void *native_stream);                      /* zoff_link_step describes these functions */
zoff_status zoff_transfer_device_finish(zoff_transfer *t, bool zeroes_gradients); /* finish the device work of a step */
/* A row: wait until the bucket's own gradients are downloaded. */
zoff_status zoff_transfer_device_unload(void *ctx, zoff_bucket_run *run);
/* A row of buckets that download nothing: report a failed download before the device changes any state. */
zoff_status zoff_transfer_device_unload_none(void *ctx, zoff_bucket_run *run);
/* A row with several ranks: wait until all gradients are downloaded. */
zoff_status zoff_transfer_device_unload_all(void *ctx, zoff_bucket_run *run);
/* Rows: get a slot for updated weights; with several ranks in the order of the walk. */
zoff_status zoff_transfer_device_stage(void *ctx, zoff_bucket_run *run);
zoff_status zoff_transfer_device_stage_in_turn(void *ctx, zoff_bucket_run *run);
/* A row. Where other ranks also send weights, all_gather.c uploads both together instead. */
zoff_status zoff_transfer_device_upload_bucket(void *ctx, zoff_bucket_run *run);

/* device_tier.c: buckets whose states stay on the device */
/* How many buckets keep their states on the device (offload_optimizer.ratio): the first ones of the plan. */
size_t zoff_transfer_device_tier_buckets(const zoff_transfer *t, const zoff_plan *plan);
/* Bytes of device memory and of DRAM that these buckets need. */
void zoff_transfer_device_tier_plan(const zoff_transfer *t, const zoff_plan *plan, uint64_t *out_device_bytes,
                                    uint64_t *out_host_bytes);
/* Where the gradients of these buckets are summed and measured. */
zoff_used_place zoff_transfer_device_tier_place(const zoff_transfer *t);
/* How many buckets also keep their gradients on the device: all of these, or none. */
size_t zoff_transfer_device_tier_kept(const zoff_transfer *t, const zoff_plan *plan);
/* Elements of the accumulator that belong to the first buckets; they precede all others. */
size_t zoff_transfer_device_tier_sums_of(const zoff_plan *plan, size_t buckets);
zoff_status zoff_transfer_device_tier_open(zoff_transfer *t);
void zoff_transfer_device_tier_close(zoff_transfer *t);
/* Outside of a step: copy the states of such a bucket to host memory, of which there is one.  @blocks */
zoff_status zoff_transfer_device_tier_borrow(zoff_transfer *t, size_t bucket, char **out);
char *zoff_transfer_device_tier_begin_fill(zoff_transfer *t, size_t bucket); /* returns this memory, zeroed; then put */
/* Copy these streams of the states of a bucket from that memory, or from a slot of the store. Does nothing for other buckets.
 * @blocks */
zoff_status zoff_transfer_device_tier_put(zoff_transfer *t, size_t bucket, const char *base, unsigned streams);
/* zoff.persist: pin the memory of the store, which holds the states, too. */
zoff_status zoff_transfer_device_tier_pin(zoff_transfer *t, const void *slots, size_t bytes);
zoff_status zoff_transfer_device_tier_accumulate(void *ctx, zoff_bucket_run *run);
zoff_status zoff_transfer_device_tier_update(void *ctx, zoff_bucket_run *run); /* a row; starts the copy of weights, too */
/* Copies to the host that the update of a bucket has started.  @return PENDING: in flight */
zoff_status zoff_transfer_device_tier_poll(zoff_transfer *t, zoff_bucket_run *run);
/* Start the copy of the updated states to a slot of the store, and poll it.  @return PENDING: in flight */
zoff_status zoff_transfer_device_tier_save(zoff_transfer *t, zoff_bucket_run *run);
/* Wait until no copy from or to the host is in flight, before the memory is used for something else.  @blocks */
zoff_status zoff_transfer_device_tier_settle(zoff_transfer *t);
/* Wait likewise, but only if a copy stood still.  @blocks */
zoff_status zoff_transfer_device_tier_calm(zoff_transfer *t);
/* Make `stream` wait for all updates enqueued so far. */
zoff_status zoff_transfer_device_tier_await(zoff_transfer *t, void *stream);

/* device_norm.c: gradients that the device measures */
bool zoff_transfer_device_norm_has(const zoff_transfer *t, size_t bucket);
/* Bytes of device memory; DRAM takes the same amount. */
uint64_t zoff_transfer_device_norm_bytes(const zoff_transfer *t, const zoff_plan *plan);
zoff_status zoff_transfer_device_norm_open(zoff_transfer *t);
void zoff_transfer_device_norm_close(zoff_transfer *t);
zoff_status zoff_transfer_device_norm_measure(void *ctx, zoff_bucket_run *run); /* a row */
/* Whether measurements of the step still wait for gradients.  @return PENDING: they do */
zoff_status zoff_transfer_device_norm_waits(zoff_transfer *t);
/* Measure with several ranks: enqueue the measurement of this rank's part in a stream; when it is complete, count it. */
zoff_status zoff_transfer_device_norm_put(zoff_transfer *t, size_t bucket, void *stream);
void zoff_transfer_device_norm_take(zoff_transfer *t, size_t bucket);

#endif
