/* transfer_sums.h: how the gradients of all ranks come together. Two choices, made once, when the engine is created: where
 * (sum_places.c) and by whom (sum_rules.c). Packing, adding up and measuring ask neither; part of transfer.h. */
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

extern const zoff_sum_place zoff_transfer_sum_places_host, zoff_transfer_sum_places_device;
extern const zoff_sum_rule zoff_transfer_sum_rules_ordered, zoff_transfer_sum_rules_added;

#endif
