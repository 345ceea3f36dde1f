/* transfer_sums.h: how the gradients of all ranks are summed. Two choices are made once, when the engine is created: where
 * (sum_places.c) and by whom (sum_rules.c). Packing, summing and measuring use them without branching. A third choice says
 * what norm and update read: gradients or their sums, on the host or on a device. Part of transfer.h. */
#ifndef ZOFF_TRANSFER_SUMS_H
#define ZOFF_TRANSFER_SUMS_H

#include "cpu_adam.h"
#include "transfer_grads.h"
#include "zero.h"
#include "zoff_model.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;
typedef struct zoff_sum_use zoff_sum_use;

/* The memory where gradients are packed and summed. */
typedef struct zoff_sum_place {
    const char *name;
    const void *(*gradient)(const zoff_transfer *t, const zoff_plan_piece *piece); /* this rank's gradient */
    zoff_grads *(*pool)(zoff_transfer *t);                               /* engine memory that gradients are packed from */
    float *(*sum)(const zoff_transfer *t, const zoff_plan_piece *piece); /* the sum of a piece that this rank owns */
    zoff_status (*zero)(zoff_transfer *t, char *to, size_t bytes);
    /* Make elements of the wire readable by the CPU.  @return `grad` itself; or `copy`, which has ZOFF_NORM_BLOCK elements;
     * NULL: the copy failed */
    const void *(*look)(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy);
    char *(*slots)(const zoff_transfer *t); /* memory of the slots for the exchange with other ranks */
    /* Device memory for the slots and the sums. `staging_bytes`: DRAM of the slots. */
    uint64_t (*device_bytes)(const zoff_transfer *t, const zoff_plan *plan, size_t staging_bytes);
    zoff_status (*open)(zoff_transfer *t); /* zoff_transfer_device_direct_close() frees it */
    /* For buckets whose states stay on the device: how they are used, the sum of a piece that the device has made, and the
     * bytes of separate memory for such sums. */
    const zoff_sum_use *(*tier_use)(const zoff_transfer *t);
    float *(*device_sum)(const zoff_transfer *t, const zoff_plan_piece *piece);
    size_t (*device_sums_apart)(size_t elements); /* bytes */
    /* Callbacks for zoff_reduce_opts and zoff_gather_opts. */
    zoff_status (*pack_bucket)(void *ctx, size_t bucket, unsigned slot, char *out);
    zoff_status (*sum_bucket)(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
    zoff_status (*spread_begin)(void *ctx, size_t bucket, unsigned slot, char **out);
    zoff_status (*spread_end)(void *ctx, size_t bucket, unsigned slot, const char *parts);
} zoff_sum_place;

/* Who sums the gradients of all ranks. */
typedef struct zoff_sum_rule {
    const char *name;
    bool adds;                                                              /* the communicator sums */
    zoff_dtype (*dtype)(const zoff_transfer *t, const zoff_model_param *p); /* wire type of a parameter's gradients */
    size_t (*align)(const zoff_transfer *t);                                /* alignment of the length of a part, in bytes */
    void (*level)(size_t *bytes, unsigned ranks);                           /* adjust the lengths of a bucket's parts */
    /* Upper bounds for this rank's part of a bucket, and for all parts together, in bytes. */
    void (*most)(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all);
    /* List the copy of a piece as entry `number`. */
    void (*list)(zoff_transfer *t, const zoff_plan_piece *piece, char *to, size_t number);
    zoff_status (*put)(zoff_transfer *t, size_t count);           /* enqueue the listed copies in a device stream */
    zoff_status (*pad)(zoff_transfer *t, char *to, size_t bytes); /* fill the padding behind the last piece of a part */
    /* Set how many terms a sum has, and their weights. */
    void (*terms)(const zoff_transfer *t, const float *weights, zoff_accumulate_piece *out);
    /* Find the rank whose gradient made a sum not finite. `parts` and `weights`: those of sum_bucket(). */
    void (*blame)(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
} zoff_sum_rule;

/* The terms of the sum of one parameter's gradients: those of all ranks, this rank's copy of what the trainer has reduced, or
 * none for a frozen parameter. */
typedef struct zoff_sum_terms {
    const char *name;
    bool travels; /* the gradients of all ranks go over the wire */
    bool stays;   /* this rank's gradient is read in place, when the bucket is summed */
    /* Set grad, dtype, sources and weights of an addition. `at`: the end of the previous piece on the wire; moved on by one
     * that travels. */
    void (*list)(zoff_transfer *t, const zoff_plan_piece *piece, const char *parts, const float *weights, size_t *at,
                 zoff_accumulate_piece *out);
    /* Find the rank whose gradient made a sum not finite. */
    void (*blame)(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
} zoff_sum_terms;

/* The gradient that norm and update read: as it was handed over, or an fp32 sum over micro-batches or ranks. */
typedef struct zoff_gradient_form {
    const char *name;
    zoff_dtype (*dtype)(const zoff_model_param *p);
    const void *(*host)(const zoff_transfer *t, const zoff_plan_piece *piece);
    /* For a bucket whose states stay on the device. */
    const void *(*device)(const zoff_transfer *t, const zoff_plan_piece *piece);
    size_t (*bytes)(size_t elements);                               /* bytes of host memory for sums of so many elements */
    size_t (*device_sums)(const zoff_transfer *t, size_t elements); /* the same in device memory */
    /* With a device: how many buckets it measures, from the first one of the plan. */
    size_t (*measured_there)(const zoff_transfer *t, const zoff_plan *plan);
    double (*weight)(const zoff_transfer *t); /* weight of a micro-batch of one rank */
} zoff_gradient_form;

/* States and gradients are on the host; both on the device; or states on the device, which gets the gradients from the host. */
typedef enum zoff_used_place {
    ZOFF_USED_BY_HOST,
    ZOFF_USED_BY_DEVICE,
    ZOFF_USED_BY_DEVICE_FROM_HOST,
    ZOFF_USED_PLACES
} zoff_used_place;

/* Where the states of a bucket are, and where its gradients are summed and measured. */
struct zoff_sum_use {
    const char *name;
    zoff_used_place place; /* index for tables of other rooms */
    bool comes_down;       /* a slice that ends in such a bucket is downloaded from the device */
    float *(*sum)(const zoff_transfer *t, const zoff_plan_piece *piece);
    void (*measure)(zoff_transfer *t, size_t bucket); /* call when the sums of all ranks are complete */
    /* The device has summed `first` to `last`: enqueue the copy of the sums, or of their sums of squares, to the host. */
    zoff_status (*bring)(zoff_transfer *t, size_t bucket, const zoff_accumulate_piece *first,
                         const zoff_accumulate_piece *last);
    zoff_status (*await)(zoff_transfer *t, void *stream); /* make later work in `stream` wait for the updates so far */
};

extern const zoff_sum_place zoff_transfer_sum_places_alone, zoff_transfer_sum_places_host, zoff_transfer_sum_places_device;
extern const zoff_gradient_form zoff_transfer_sum_places_given, zoff_transfer_sum_places_summed;
extern const zoff_sum_use zoff_transfer_sum_places_used_by_host, zoff_transfer_sum_places_used_by_device,
    zoff_transfer_sum_places_used_from_host;
extern const zoff_sum_rule zoff_transfer_sum_rules_ordered, zoff_transfer_sum_rules_added;
extern const zoff_sum_terms zoff_transfer_sum_rules_of_all, zoff_transfer_sum_rules_of_one, zoff_transfer_sum_rules_of_none;

#endif
