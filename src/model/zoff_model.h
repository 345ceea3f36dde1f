/* zoff_model.h: the door of the room that knows what is trained: parameters, their slices, which of them share weights, groups
 * with their hyper-parameters, the schedule of learning rates and the loss scale. No function here blocks, or knows ranks,
 * devices or files. None locks: a model belongs to one engine, whose calls hold its lock. */
#ifndef ZOFF_MODEL_H
#define ZOFF_MODEL_H

#include "config.h"
#include "cpu_adam.h"
#include "zero.h"

#include <zoff/engine.h>

/* Flags of one slice of a parameter. */
enum {
    ZOFF_SLICE_READY = 1,   /* its gradient was handed over for this micro-step */
    ZOFF_SLICE_PRESENT = 2, /* it has had a gradient in this step; with accumulation: the accumulator holds something */
    ZOFF_SLICE_DOWN = 4,    /* of a device: what was handed over has come to the host */
    ZOFF_SLICE_GIVEN = 8    /* of tied weights: this one's gradient was handed over; READY is the sum of them, the owner's */
};

/* The first and the last bucket of a slice: it is in all between, too. */
typedef struct zoff_slice_buckets {
    uint32_t first, last; /* UINT32_MAX: it has no elements in the plan */
} zoff_slice_buckets;

typedef struct zoff_model_param {
    char *name;
    char *value;
    char *grad;
    size_t count, slices;
    size_t value_stride, grad_stride; /* bytes */
    zoff_dtype dtype, grad_dtype;
    unsigned group;
    bool frozen;
    bool engine_owned; /* its weights are in the store of weights; `value` holds the first ones until seal */
    size_t first_flag; /* of its slices, in the model's flags */
    uint32_t tie;      /* from seal on: 1 + the number of the tie that it is in; 0: its weights are nobody else's */
} zoff_model_param;

/* A gradient buffer as the program gave it. */
typedef struct zoff_given {
    char *grad;
    size_t stride; /* bytes */
    zoff_dtype dtype;
} zoff_given;

/* Parameters with the same weights. */
typedef struct zoff_tie {
    uint32_t owner;      /* of weights and states; its gradient is the sum of all, in fp32 */
    size_t first, count; /* in the members: in order of registration, the owner first */
    zoff_given given;    /* the owner's own gradient */
} zoff_tie;

typedef struct zoff_ties {
    zoff_tie *all;
    size_t count, capacity;
    uint32_t *members; /* parameters */
    size_t member_count, member_capacity;
    bool rebound; /* buffers have moved since it was known that none overlap */
} zoff_ties;

/* Hyper-parameters of a group where the program has set them, and what was laid out for it. */
typedef struct zoff_model_group {
    bool used; /* by a parameter that is trained */
    bool set;
    zoff_optimizer_hyper hyper;
    zoff_optimizer optimizer; /* from seal on */
    zoff_adam_states states;  /* likewise */
} zoff_model_group;

/* `values` and `in_place` are set by the owner before any function is called; all else starts as zero. */
typedef struct zoff_model {
    const zoff_config_values *values; /* borrowed */
    bool in_place;                    /* the CPU reads weights and gradients where the program has them */
    bool is_sealed;                   /* the states of groups are laid out */
    zoff_model_param *params;
    size_t param_count, param_capacity;
    zoff_model_group *groups;
    size_t group_count; /* as many as the parameters or the program name */
    size_t group_capacity;
    zoff_ties ties;
    size_t slice_count;                /* of all parameters */
    uint8_t *flags;                    /* per slice, from seal on */
    zoff_slice_buckets *slice_buckets; /* likewise */
    zoff_loss_scaler scaler;
} zoff_model;

/* params.c */
/* Append a parameter. `name` of the description may be NULL: "param" and its number.
 * @return ERR_INVALID for types, strides and sizes that do not fit; ERR_NO_MEMORY. The model is then as before */
zoff_status zoff_model_params_add(zoff_model *m, const zoff_param_desc *desc, zoff_param *out);
void zoff_model_params_free(zoff_model *m); /* and the groups */
/* Whether a parameter's masters are states of their own. fp32 weights that the CPU reaches are their own masters. */
static inline bool zoff_model_params_has_master(const zoff_model *m, const zoff_model_param *p)
{
    return !p->frozen && (p->dtype != ZOFF_F32 || !m->in_place);
}
/* Whether the engine keeps weights. */
bool zoff_model_params_any_owned(const zoff_model *m);
/* Whether each step computes all of a parameter's weights from masters: 16-bit weights that are trained. */
static inline bool zoff_model_params_remade(const zoff_model_param *p)
{
    return !p->frozen && p->dtype != ZOFF_F32;
}
/* The address of a piece's weights: in the program's memory, or in `weights`, the memory of its chunk. NULL: the weights are
 * the engine's, `weights` is NULL, and there are no first values either. */
char *zoff_model_params_value(const zoff_model *m, const zoff_plan_piece *piece, char *weights);
/* The address of a piece's gradient in the program's memory, on the host or on a device. */
const char *zoff_model_params_there(const zoff_model *m, const zoff_plan_piece *piece);
static inline uint8_t *zoff_model_params_flag(const zoff_model *m, const zoff_plan_piece *piece)
{
    return &m->flags[m->params[piece->param].first_flag + piece->slice];
}

/* A parameter as the plan sees it. */
zoff_plan_tensor zoff_model_params_tensor(const zoff_model *m, const zoff_model_param *p);
/* The parameter that owns the states of `p`: another one if their weights are tied, else `p`. */
zoff_param zoff_model_params_owner(const zoff_model *m, zoff_param p);
/* The gradient buffer as the program gave it, also of a parameter whose gradient is a sum of tied ones. */
zoff_given zoff_model_params_given(const zoff_model *m, size_t i);
/* The part of it for a slice, and its type; NULL: the program has none. */
char *zoff_model_params_given_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype);
/* The program's own gradient of a slice, and its type; NULL: it has none. */
char *zoff_model_params_own_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype);
bool zoff_model_params_is_given(const zoff_model *m, zoff_param p, size_t slice); /* in this micro-step */

/* slices.c */
/* Once the plan is made: allocate the flags of slices, and find the buckets of each.  @return ERR_NO_MEMORY */
zoff_status zoff_model_slices_open(zoff_model *m, const zoff_plan *plan);
void zoff_model_slices_close(zoff_model *m);
bool zoff_model_slices_has(const zoff_model *m, size_t number); /* whether a slice is in any bucket */

/* overlaps.c */
/* @return ERR_INVALID, in the name of `call`, if weights or gradients of two parameters overlap in memory */
zoff_status zoff_model_overlaps_check(const zoff_model *m, const char *call);

/* ties.c: parameters that share their weights */
/* Find them, before the list is planned: each is marked in the list.
 * @return ERR_INVALID for tied parameters in different groups and for buffers that overlap; then nothing is tied */
zoff_status zoff_model_ties_find(zoff_model *m);
void zoff_model_ties_dissolve(zoff_model *m);          /* the list is as it was before zoff_model_ties_find() */
uint64_t zoff_model_ties_bytes(const zoff_model *m);   /* of the owners' gradients, which are sums in fp32 */
void zoff_model_ties_place(zoff_model *m, char *base); /* the memory of those sums */
zoff_status zoff_model_ties_check(zoff_model *m);      /* for overlaps, after buffers have moved */
void zoff_model_ties_bind(zoff_model *m, zoff_param p, void *value, void *grad);

/* groups.c */
zoff_status zoff_model_groups_reserve(zoff_model *m, unsigned group);
/* Set the hyper-parameters of a group. `call` begins an error.  @return ERR_INVALID for values out of range; ERR_STATE when the
 * model is sealed and the group has no states for them */
zoff_status zoff_model_groups_set(zoff_model *m, unsigned group, const zoff_optimizer_hyper *hyper, const char *call);
/* Fill an output struct with the hyper-parameters of a group: at t 0 without the schedule, otherwise as step t uses them. */
zoff_status zoff_model_groups_get(const zoff_model *m, unsigned group, int64_t t, zoff_optimizer_hyper *out);
/* The hyper-parameters of a group outside of a call: the program's, else those of the configuration. */
const zoff_optimizer_hyper *zoff_model_groups_own(const zoff_model *m, size_t group);
/* The states that a group's parameters have: once sealed those that were laid out, before that those of its hyper-parameters.
 */
zoff_adam_states zoff_model_groups_states(const zoff_model *m, size_t group);
void zoff_model_groups_fix(zoff_model *m); /* at seal: no other states from here on */
/* "SGD without momentum", for messages */
const char *zoff_model_groups_optimizer(zoff_optimizer optimizer, zoff_adam_states states);
/* The hyper-parameters of a group in step `t`: those of the call if it gives any, else the group's own with the scheduled lr.
 */
zoff_status zoff_model_groups_of_step(const zoff_model *m, const zoff_step_args *args, size_t group, int64_t t,
                                      zoff_optimizer_hyper *out);

/* lr_schedule.c: what the schedule makes of a group's own hyper-parameters in update number t (from 1) */
void zoff_model_lr_schedule_apply(const zoff_schedule_values *schedule, int64_t t, zoff_optimizer_hyper *h);

/* loss_scale.c */
void zoff_model_loss_scale_start(zoff_model *m);
/* @return ERR_INVALID if grad_scale divided by the loss scale is not a finite fp32 number */
zoff_status zoff_model_loss_scale_check(const zoff_model *m, double grad_scale);
/* Describe how a skipped step changes the scale, for the log line of the step. "" without fp16. */
void zoff_model_loss_scale_describe(const zoff_model *m, char *dst, size_t dst_bytes);
/* After step `t`: compute the scale of the next one. `why`: the reason of a skipped step, for the message.
 * @return ERR_OVERFLOW: the scale is at its least already */
zoff_status zoff_model_loss_scale_turn(zoff_model *m, int64_t t, bool overflow, const char *why);
/* Go on from a scaler that was saved.  @return ERR_STATE without fp16; ERR_INVALID for values that no scaler has */
zoff_status zoff_model_loss_scale_set(zoff_model *m, const zoff_loss_scaler *scaler);

#endif
