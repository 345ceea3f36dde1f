/* transfer_device.h: gradients and weights in memory that the CPU does not reach. On the host these functions do nothing; part
 * of transfer.h. */
#ifndef ZOFF_TRANSFER_DEVICE_H
#define ZOFF_TRANSFER_DEVICE_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_bucket_run zoff_bucket_run;
typedef struct zoff_transfer zoff_transfer;

/* Host memory in which the weights of a bucket become new, and from which they go up to a device. */
typedef struct zoff_staging_slot {
    char *base;
    void *uploaded; /* event: all of it has gone up */
    bool lent, uploads;
} zoff_staging_slot;

/* Buckets whose weights are new, or on their way up, at a time: those that are updated, spread to other ranks, and copied. */
enum { ZOFF_STAGING_SLOTS = 6 };

/* Host memory for the weights of a few buckets at a time. */
typedef struct zoff_staging {
    zoff_map memory;
    size_t slot_bytes;
    size_t *offsets; /* by piece: where it is in the staging slot of its bucket */
    zoff_staging_slot slots[ZOFF_STAGING_SLOTS];
    size_t next; /* the position of the walk that gets the next staging slot */
    bool pinned;
} zoff_staging;

/* A gradient on its way from a device. */
typedef struct zoff_download {
    size_t number; /* of its slice, as the flags */
    zoff_param param;
    size_t slice;
} zoff_download;

/* All of them. Downloads complete in order: they share one stream. */
typedef struct zoff_downloads {
    void **events;        /* by slice; NULL: not needed yet */
    zoff_download *queue; /* a ring of slice_count places */
    size_t first, end;
} zoff_downloads;

/* Buckets whose states stay on the device: the first ones of the list. */
typedef struct zoff_device_tier {
    size_t count;
    size_t *at;   /* by bucket, in bytes of */
    char *states; /* memory of the device, as */
    float *sums; /* of gradients, as the accumulator; NULL without accumulation, and where there are those of device_direct.c */
    void *updated;    /* event: what was asked for is done */
    zoff_map landing; /* host memory for the states of one bucket */
    bool pinned;
} zoff_device_tier;

/* Sums of squares of gradients: of the first buckets, or of all. */
typedef struct zoff_device_norm {
    size_t count;  /* buckets */
    size_t *at;    /* by bucket, in blocks of */
    double *there; /* memory of the device, and its copy, in */
    zoff_map landing;
    bool pinned;
    void **measured; /* events, by bucket: the copy is there */
    void *settled;   /* event of whoever waits at once */
    size_t waits;    /* buckets that are measured */
} zoff_device_norm;

/* Slots of reductions, and behind them those of gathers. */
enum { ZOFF_DIRECT_SLOTS = 6 };

/* What several ranks have on a device that their communicator reaches. */
typedef struct zoff_device_direct {
    char *slots;                     /* memory of the device, as */
    float *sums;                     /* of gradients, as the accumulator */
    void *moved[ZOFF_DIRECT_SLOTS];  /* events: what was put into a stream for a slot is done */
    bool moves[ZOFF_DIRECT_SLOTS];   /* it was put there */
    bool added[ZOFF_DIRECT_SLOTS];   /* of reductions: its gradients are in the sums, or on their way */
    bool lifted[ZOFF_DIRECT_SLOTS];  /* of gathers: this rank's part is there */
    bool counted[ZOFF_DIRECT_SLOTS]; /* of gathers: its weights are on their way to where they are used */
    size_t waits;                    /* slots that wait for an event */
    bool pinned;                     /* the accumulator */
} zoff_device_direct;

/* What an engine has where the CPU does not reach weights and gradients; all of it is empty where it does. */
typedef struct zoff_device {
    void *down, *up;                  /* streams */
    void *compute;                    /* likewise */
    bool computes;                    /* something was put into that since it was waited for */
    bool turns;                       /* the walk may begin with the last bucket */
    bool descends;                    /* it does */
    size_t first_bucket, last_bucket; /* of the gradients that it has handed over first and last; SIZE_MAX: none yet */
    void *handed_over;                /* event: where the trainer's stream was at the latest zoff_grad_ready() */
    void *synced;                     /* event of whoever waits at once */
    zoff_downloads downloads;
    zoff_staging staging;
    bool wire_pinned;
    zoff_device_tier tier;
    zoff_device_norm norm;
    zoff_device_direct direct;
    zoff_status fault;                /* of the first weights, while the states are filled from them */
    uint64_t read_bytes, write_bytes; /* from the device and to it, since the step before */
} zoff_device;

/* streams.c */
zoff_status zoff_transfer_streams_pin(zoff_transfer *t, const zoff_map *map);
void zoff_transfer_streams_unpin(zoff_transfer *t, const zoff_map *map);
zoff_status zoff_transfer_streams_sync(zoff_transfer *t, void *stream); /* @blocks until all work in a stream is done */
/* Copy weights between the device and other memory, outside of a step.  @blocks until done */
zoff_status zoff_transfer_streams_copy(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up);
/* Uploads, and kernels, start behind what is in the trainer's stream now. */
zoff_status zoff_transfer_streams_follow(zoff_transfer *t, void *native_stream);
zoff_status zoff_transfer_streams_compute_follow(zoff_transfer *t); /* behind the last zoff_transfer_streams_follow() */
zoff_status zoff_transfer_streams_compute_settle(zoff_transfer *t); /* @blocks until no kernel is in flight */

bool zoff_transfer_streams_upload(const zoff_transfer *t);   /* uploads are in flight */
bool zoff_transfer_streams_are_busy(const zoff_transfer *t); /* uploads, downloads or kernels are in flight */
/* Register the device with the engine's progress: every wait then checks the deadline of a busy device. */
void zoff_transfer_streams_watch(zoff_transfer *t);
void zoff_transfer_streams_unwatch(zoff_transfer *t);
/* Wait until `until` returns anything but PENDING, or until an event is reached.
 * @return also ERR_DEVICE: the device neither moved nor failed for the communicator's timeout_seconds  @blocks yes */
zoff_status zoff_transfer_streams_wait(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx);
zoff_status zoff_transfer_streams_wait_for(zoff_transfer *t, void *event);
/* Before what streams use is freed. False: work in one does not end, within 10 s or timeout_seconds. */
bool zoff_transfer_streams_end(zoff_transfer *t);

/* download.c */
/* Take note of the downloads that are complete.  @return PENDING: others are in flight */
zoff_status zoff_transfer_download_poll(zoff_transfer *t);
zoff_status zoff_transfer_download_finish(zoff_transfer *t); /* @blocks until none is in flight */

/* staging.c */
/* Give a bucket a staging slot.  @return PENDING: all are in use */
zoff_status zoff_transfer_staging_lend(zoff_transfer *t, size_t bucket);
void zoff_transfer_staging_release(zoff_transfer *t, size_t bucket);
size_t zoff_transfer_staging_offset(const zoff_transfer *t,
                                    const zoff_plan_piece *piece); /* in the staging slot of its bucket, in bytes */
/* The weights of a piece in the staging slot of its bucket; NULL: it has none. */
char *zoff_transfer_staging_weights(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights);

/* device.c: where the CPU does not reach weights and gradients: see zoff_link */
zoff_status zoff_transfer_device_open(zoff_transfer *t);
void zoff_transfer_device_close(zoff_transfer *t); /* what was not opened is left alone */
void zoff_transfer_device_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info);
/* Start the download of a gradient, behind what is in the trainer's stream. */
zoff_status zoff_transfer_device_download(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* The gradient stays where it is; what computes there waits for it. */
zoff_status zoff_transfer_device_stay(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* Outside of the walk: a staging slot for a bucket, with this rank's weights of it as they are on the device.  @blocks for both
 */
zoff_status zoff_transfer_device_lend(zoff_transfer *t, size_t bucket, bool load);
/* Send up what this rank has changed of a bucket, or what all have in this step, and release the staging slot behind it. */
zoff_status zoff_transfer_device_upload(zoff_transfer *t, size_t bucket, bool own);
zoff_status zoff_transfer_device_settle(zoff_transfer *t);                        /* wait until all that goes up is there */
zoff_status zoff_transfer_device_finish(zoff_transfer *t, bool zeroes_gradients); /* the end of a step */
zoff_status zoff_transfer_device_unload(void *ctx, zoff_bucket_run *run); /* a row: the bucket's own gradients are down */
/* A row: nothing of the bucket comes down, but an error of what does is noticed before the device changes anything. */
zoff_status zoff_transfer_device_unload_none(void *ctx, zoff_bucket_run *run);
zoff_status zoff_transfer_device_unload_all(void *ctx, zoff_bucket_run *run); /* a row of several ranks: all are */
zoff_status zoff_transfer_device_stage(void *ctx, zoff_bucket_run *run);      /* a row */
/* A row. Where weights come from other ranks, too, these go up with them instead (all_gather.c). */
zoff_status zoff_transfer_device_upload_bucket(void *ctx, zoff_bucket_run *run);

/* device_tier.c: buckets whose states stay on the device */
/* How many do (offload_optimizer.ratio): the first ones of the plan. */
size_t zoff_transfer_device_tier_buckets(const zoff_transfer *t, const zoff_plan *plan);
/* What they take of the device; and of DRAM. */
void zoff_transfer_device_tier_plan(const zoff_transfer *t, const zoff_plan *plan, uint64_t *out_device_bytes,
                                    uint64_t *out_host_bytes);
/* Elements of the accumulator that are theirs, in front of the others. */
size_t zoff_transfer_device_tier_sums_of(const zoff_plan *plan, size_t buckets);
zoff_status zoff_transfer_device_tier_open(zoff_transfer *t);
void zoff_transfer_device_tier_close(zoff_transfer *t);
/* Outside of a step: a copy of the states of one of them, and back.  @blocks */
zoff_status zoff_transfer_device_tier_borrow(zoff_transfer *t, size_t bucket, char **out);
zoff_status zoff_transfer_device_tier_give_back(zoff_transfer *t, size_t bucket);
char *zoff_transfer_device_tier_begin_fill(zoff_transfer *t, size_t bucket); /* zeros; then give back */
zoff_status zoff_transfer_device_tier_accumulate(void *ctx, zoff_bucket_run *run);
zoff_status zoff_transfer_device_tier_update(void *ctx, zoff_bucket_run *run);
zoff_status zoff_transfer_device_tier_await(zoff_transfer *t,
                                            void *stream); /* what is put there is behind all updates so far */

/* device_norm.c: gradients measured where they are */
bool zoff_transfer_device_norm_has(const zoff_transfer *t, size_t bucket);
uint64_t zoff_transfer_device_norm_bytes(const zoff_transfer *t,
                                         const zoff_plan *plan); /* of the device, and as many of DRAM */
zoff_status zoff_transfer_device_norm_open(zoff_transfer *t);
void zoff_transfer_device_norm_close(zoff_transfer *t);
zoff_status zoff_transfer_device_norm_measure(void *ctx, zoff_bucket_run *run); /* a row */
/* The same of several ranks: ask for what this one measures, in a stream; and, when it is there, count it. */
zoff_status zoff_transfer_device_norm_put(zoff_transfer *t, size_t bucket, void *stream);
void zoff_transfer_device_norm_take(zoff_transfer *t, size_t bucket);

#endif
