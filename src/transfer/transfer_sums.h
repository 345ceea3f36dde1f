/* transfer_sums.h: how the gradients of all ranks come together. Two choices, made once, when the engine is created: where
 * (sum_places.c) and by whom (sum_rules.c). Packing, adding up and measuring ask neither. And what norm and update read:
 * gradients or sums of them, on the host or on a device; part of transfer.h. */
#ifndef ZOFF_TRANSFER_SUMS_H
#define ZOFF_TRANSFER_SUMS_H

#include "cpu_adam.h"
#include "zero.h"
#include "zoff_model.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

/* Where gradients are when they are packed, and the sums that are made of them. */
typedef struct zoff_sum_place {
    const char *name;
    const void *(*gradient)(const zoff_transfer *t, const zoff_plan_piece *piece); /* this rank's */
    float *(*sum)(const zoff_transfer *t, const zoff_plan_piece *piece);           /* of a piece that this rank owns */
    zoff_status (*zero)(zoff_transfer *t, char *to, size_t bytes);
    /* Elements of the wire where the CPU reads them: `grad` itself, or `copy`, of ZOFF_NORM_BLOCK elements; NULL: it failed. */
    const void *(*look)(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy);
    char *(*slots)(const zoff_transfer *t); /* memory of what goes to other ranks and comes from them */
    /* Memory of the device for that and for the sums; `staging_bytes`: DRAM of the slots. */
    uint64_t (*device_bytes)(const zoff_transfer *t, const zoff_plan *plan, size_t staging_bytes);
    zoff_status (*open)(zoff_transfer *t); /* zoff_transfer_device_direct_close() frees it */
    /* Of buckets whose states stay on the device: a sum, and how much memory of their own such sums take. */
    float *(*device_sum)(const zoff_transfer *t, const zoff_plan_piece *piece);
    size_t (*device_sums_apart)(size_t elements); /* in bytes */
    /* For zoff_reduce_opts and zoff_gather_opts. */
    zoff_status (*pack_bucket)(void *ctx, size_t bucket, unsigned slot, char *out);
    zoff_status (*sum_bucket)(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
    zoff_status (*spread_begin)(void *ctx, size_t bucket, unsigned slot, char **out);
    zoff_status (*spread_end)(void *ctx, size_t bucket, unsigned slot, const char *parts);
} zoff_sum_place;

/* Who adds them up. */
typedef struct zoff_sum_rule {
    const char *name;
    bool adds;                                                              /* the communicator does */
    zoff_dtype (*dtype)(const zoff_transfer *t, const zoff_model_param *p); /* of a parameter's gradients on the wire */
    size_t (*align)(const zoff_transfer *t);                                /* of the length of a part, in bytes */
    void (*level)(size_t *bytes, unsigned ranks);                           /* the lengths of the parts of a bucket */
    /* Of this rank's part of a bucket, and of all parts: no less than they have, in bytes. */
    void (*most)(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all);
    void (*list)(zoff_transfer *t, const zoff_plan_piece *piece, char *to, size_t number); /* what packs a piece, as number n */
    zoff_status (*put)(zoff_transfer *t, size_t count);           /* what was listed, into the stream of a device */
    zoff_status (*pad)(zoff_transfer *t, char *to, size_t bytes); /* behind the last piece of a part */
    void (*terms)(const zoff_transfer *t, const float *weights,
                  zoff_accumulate_piece *out); /* how many have come, their weights */
    /* Whose gradient made a sum not finite; `parts` and `weights`: those of sum_bucket(). */
    void (*blame)(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
} zoff_sum_rule;

/* What norm and update read: a gradient as it was handed over, or the fp32 sum of several, of micro-batches or of ranks. */
typedef struct zoff_gradient_form {
    const char *name;
    zoff_dtype (*dtype)(const zoff_model_param *p);
    const void *(*host)(const zoff_transfer *t, const zoff_plan_piece *piece);
    const void *(*device)(const zoff_transfer *t, const zoff_plan_piece *piece); /* of a bucket whose states stay there */
    size_t (*bytes)(size_t elements);                                            /* that sums of so many take */
    size_t (*device_sums)(const zoff_transfer *t, size_t elements);              /* the same of sums on the device */
    /* How many buckets, the first ones of the plan, are measured by the device, where there is one. */
    size_t (*measured_there)(const zoff_transfer *t, const zoff_plan *plan);
    double (*weight)(const zoff_transfer *t); /* of a micro-batch of one rank */
} zoff_gradient_form;

typedef enum zoff_used_place { ZOFF_USED_BY_HOST, ZOFF_USED_BY_DEVICE, ZOFF_USED_PLACES } zoff_used_place;

/* Where the states of a bucket are, and so where its sums of gradients are used: on the host, or on the device. */
typedef struct zoff_sum_use {
    const char *name;
    zoff_used_place place; /* for tables of other rooms */
    bool comes_down;       /* from a device, the gradient of a slice that ends in such a bucket */
    float *(*sum)(const zoff_transfer *t, const zoff_plan_piece *piece);
    void (*measure)(zoff_transfer *t, size_t bucket); /* the sums of all ranks are complete */
    /* The device has added them up, from `first` to `last`: bring them, or their sums of squares, to the host. */
    zoff_status (*bring)(zoff_transfer *t, size_t bucket, const zoff_accumulate_piece *first,
                         const zoff_accumulate_piece *last);
    zoff_status (*await)(zoff_transfer *t, void *stream); /* what is put there from now on is behind updates so far */
} zoff_sum_use;

extern const zoff_sum_place zoff_transfer_sum_places_host, zoff_transfer_sum_places_device;
extern const zoff_gradient_form zoff_transfer_sum_places_given, zoff_transfer_sum_places_summed;
extern const zoff_sum_use zoff_transfer_sum_places_used_by_host, zoff_transfer_sum_places_used_by_device;
extern const zoff_sum_rule zoff_transfer_sum_rules_ordered, zoff_transfer_sum_rules_added;

#endif
