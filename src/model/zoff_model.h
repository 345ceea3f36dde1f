/* SPDX-License-Identifier: Apache-2.0 */
/* zoff_model.h: the parameters that are trained: their slices, which of them share weights, the groups with their
 * hyper-parameters, the learning-rate schedule and the loss scale. No function here blocks, or deals with ranks, devices or
 * files. None locks: a model belongs to one engine, whose calls hold its lock. */
#ifndef ZOFF_MODEL_H
#define ZOFF_MODEL_H

#include "config.h"
#include "cpu_adam.h"
#include "zero.h"

#include <zoff/engine.h>

/* Flags of one slice of a parameter. */
enum {
    ZOFF_SLICE_READY = 1,   /* the slice's gradient was handed over in this micro-step */
    ZOFF_SLICE_PRESENT = 2, /* the slice had a gradient in this step; with accumulation, the accumulator holds a sum */
    ZOFF_SLICE_DOWN = 4,    /* device: the gradient that was handed over is downloaded */
    ZOFF_SLICE_GIVEN = 8,   /* tied weights: this parameter's gradient was handed over; READY then means the owner's sum */
    ZOFF_SLICE_REUSED = 16, /* the program may have written its next gradient, so the end of the step does not clear it */
    ZOFF_SLICE_LISTED = 32  /* the slice is in the list of zoff_grads_hand_over(); only during that call */
};

/* The first and last bucket of a slice. Buckets in between also contain parts of it. */
typedef struct zoff_slice_buckets {
    uint32_t first, last; /* UINT32_MAX: the slice has no elements in the plan */
} zoff_slice_buckets;

/* How a slice is cut into matrices, for an optimizer that has some. */
typedef struct zoff_matrix_cut {
    size_t *rows; /* rows of one matrix after the other, repeated: zoff_param_desc.matrix_rows, else zoff.muon_rows; NULL: the
                     shape decides */
    size_t row_count;
    size_t count; /* set at seal: matrices in a slice; 0: the parameter has an element rule */
} zoff_matrix_cut;

typedef struct zoff_shape {
    size_t *dims;
    size_t count;  /* number of dimensions, at least 1 */
    bool is_given; /* the program has given them */
    zoff_matrix_cut matrices;
} zoff_shape;

/* Keys of the configuration that name a parameter. */
enum {
    ZOFF_NAMED_FP32_MOMENTS = 1, /* zoff.fp32_moments */
    ZOFF_NAMED_NO_DECAY = 2,     /* zoff.no_decay */
    ZOFF_NAMED_MUON = 4,         /* zoff.muon_params */
    ZOFF_NAMED_ADAM = 8,         /* zoff.adam_params */
    ZOFF_NAMED_ROWS = 16,        /* zoff.muon_rows */
    ZOFF_NAMED_KEYS = 5          /* the number of these keys */
};

typedef struct zoff_model_param {
    char *name;
    char *slice_name; /* name of the slices; NULL: none */
    zoff_shape shape; /* shape of a slice; `count` alone if the program gives none */
    char *value;
    char *grad;
    size_t count, slices;
    size_t value_stride, grad_stride; /* bytes */
    zoff_dtype dtype, grad_dtype;
    unsigned group;
    bool frozen;
    bool engine_owned;     /* the weights are in the store of weights; until seal, `value` holds the initial ones */
    unsigned named;        /* ZOFF_NAMED_*; see zoff_model_params_named() */
    bool norm_replicated;  /* other ranks of zoff_engine_opts.norm_comm have the parameter, too */
    bool reduced;          /* the gradients are the same on all ranks, and are not exchanged */
    bool counts_elsewhere; /* set at seal: another rank counts its squares in the norm */
    size_t first_flag;     /* index of its first slice in the model's flags */
    uint32_t tie;          /* set at seal: 1 + the index of its tie; 0: it shares its weights with no other parameter */
} zoff_model_param;

/* A gradient buffer as the program passed it. */
typedef struct zoff_given {
    char *grad;
    size_t stride; /* bytes */
    zoff_dtype dtype;
} zoff_given;

/* Parameters that share their weights. */
typedef struct zoff_tie {
    uint32_t owner;      /* parameter that owns weights and states; its gradient is the fp32 sum of all tied gradients */
    size_t first, count; /* range in `members`: in order of registration, the owner first */
    zoff_given given;    /* the owner's own gradient buffer */
} zoff_tie;

typedef struct zoff_ties {
    zoff_tie *all;
    size_t count, capacity;
    uint32_t *members; /* parameter indices */
    size_t member_count, member_capacity;
    bool rebound; /* buffers were bound after the last check for overlaps */
} zoff_ties;

/* Facts that are recorded with the states: zoff_persist_data(), the loss scale, and the rule of sums. */
typedef struct zoff_program_bytes {
    zoff_checkpoint_data *list; /* names are copies; the bytes are the program's */
    size_t count;
    bool is_set;        /* the program has given its list, perhaps an empty one */
    char *block;        /* block of the next commit, of ZOFF_PROGRAM_BYTES_MOST bytes */
    char *found;        /* the block of the commit that seal has found, or of the checkpoint that was loaded since */
    size_t found_bytes; /* bytes of `found`; 0: none, or an update was committed since */
} zoff_program_bytes;

enum { ZOFF_PROGRAM_BYTES_MOST = 64 << 10 }; /* most bytes of one block */

/* A block that seal or a load has found. */
typedef struct zoff_program_found {
    char *block; /* zoff_base_mem_free() */
    size_t bytes;
} zoff_program_found;

/* The hyper-parameters that the program set for a group, and the state layout of the group. */
typedef struct zoff_model_group {
    bool used; /* a trained parameter is in the group */
    bool set;
    zoff_optimizer_hyper hyper;
    zoff_optimizer optimizer; /* set at seal */
    zoff_adam_states states;  /* set at seal */
    double first_lr;          /* lr at seal, because a program may set another one before each step */
    double first_adam_lr;     /* adam_lr at seal, likewise */
} zoff_model_group;

/* The owner sets `values` and `in_place` before any call; all other fields start as zero. */
typedef struct zoff_model {
    const zoff_config_values *values; /* borrowed */
    bool in_place;                    /* the CPU accesses weights and gradients in the program's memory */
    bool is_sealed;                   /* the state layout of all groups is fixed */
    zoff_model_param *params;
    size_t param_count, param_capacity;
    void *names; /* a tree of the parameters by name: zoff_model_params_find() */
    zoff_model_group *groups;
    size_t group_count; /* highest group of a parameter or of the program, plus 1 */
    size_t group_capacity;
    zoff_ties ties;
    size_t slice_count; /* sum over all parameters */
    uint8_t *flags;     /* per slice; set at seal */
    size_t *listed; /* per parameter: 1 + its first entry in the list of zoff_grads_hand_over(), during that call; 0: none */
    zoff_slice_buckets *slice_buckets; /* per slice; set at seal */
    zoff_loss_scaler scaler;
    uint64_t skipped_in_row; /* skipped steps since the last that was not; the same on all ranks */
    bool exact_sums;         /* gradients are added up by the rule "exact" */
    zoff_program_bytes program;
} zoff_model;

/* A checkpoint holds at most so many bytes of a name, and elements of a parameter. Dimensions beside a 0 count, too. */
enum { ZOFF_MODEL_NAME_MOST = 4095 };
#define ZOFF_MODEL_ELEMENTS_MOST ((size_t)1 << 58)

/* params.c */
/* Append a parameter. A NULL `name` in the description becomes "param" and the number of the parameter.  @return ERR_INVALID
 * for inconsistent types, strides or sizes, and for the name of another; ERR_NO_MEMORY. After an error the model is unchanged
 */
zoff_status zoff_model_params_add(zoff_model *m, const zoff_param_desc *desc, zoff_param *out);
const zoff_param *zoff_model_params_find(const zoff_model *m, const char *name); /* NULL: no parameter has the name */
/* Check the names of slices at seal, because an export must find each tensor by its name.  @return ERR_INVALID with both */
zoff_status zoff_model_params_check_names(const zoff_model *m);
void zoff_model_params_free(zoff_model *m); /* also frees the groups */
/* The keys that name a parameter, or another one of its tie, because they share their states: ZOFF_NAMED_*. */
static inline unsigned zoff_model_params_named(const zoff_model *m, const zoff_model_param *p)
{
    unsigned named = p->named;
    const zoff_tie *tie = p->tie ? &m->ties.all[p->tie - 1] : NULL;
    for (size_t i = 0; tie && i < tie->count; i++)
        named |= m->params[m->ties.members[tie->first + i]].named;
    return named;
}
/* Whether a name matches one of the patterns, which end at `end`; 0: at the end of the text.  @return the pattern */
const char *zoff_model_params_match(const zoff_patterns *patterns, char end, const char *name);
/* The number of patterns that match no name, and the first of them. */
size_t zoff_model_params_unused(const zoff_model *m, const zoff_patterns *patterns, char end, const char **out_first);
/* Warn of patterns that match no name; rank 0 calls it. */
void zoff_model_params_warn(const zoff_model *m);
/* Whether any parameter is engine-owned. */
bool zoff_model_params_any_owned(const zoff_model *m);
/* Whether any engine-owned parameter is frozen, and not empty. */
bool zoff_model_params_owns_frozen(const zoff_model *m);
/* The shape of a slice: compare two, and print one as "[3, 4]". ZOFF_SHAPE_BYTES are enough for every shape. */
enum { ZOFF_SHAPE_BYTES = 1536 };
bool zoff_model_params_same_shape(const zoff_model_param *a, const zoff_model_param *b);
void zoff_model_params_print_shape(const zoff_model_param *p, char *dst, size_t dst_bytes);
/* The address of a piece's weights: in the program's memory, or in `weights`, the memory of its chunk. NULL: the weights are
 * engine-owned, `weights` is NULL, and there are no initial values. */
char *zoff_model_params_value(const zoff_model *m, const zoff_plan_piece *piece, char *weights);
/* The address of a piece's gradient in the program's memory, on the host or on a device. */
const char *zoff_model_params_there(const zoff_model *m, const zoff_plan_piece *piece);
static inline uint8_t *zoff_model_params_flag(const zoff_model *m, const zoff_plan_piece *piece)
{
    return &m->flags[m->params[piece->param].first_flag + piece->slice];
}

/* Describe a parameter for the plan. */
zoff_plan_tensor zoff_model_params_tensor(const zoff_model *m, const zoff_model_param *p);
/* The states of a parameter that is trained: those of its group, but a matrix has no second moment. */
zoff_adam_states zoff_model_params_states(const zoff_model *m, const zoff_model_param *p);
/* The parameter that owns the states of `p`: the owner of its tie, or `p` itself. */
zoff_param zoff_model_params_owner(const zoff_model *m, zoff_param p);
/* The gradient buffer as the program passed it, also for the owner of a tie, whose `grad` is a sum. */
zoff_given zoff_model_params_given(const zoff_model *m, size_t i);
/* The part of the given gradient buffer for one slice, and its type; NULL: the program passed none. */
char *zoff_model_params_given_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype);
/* The program's own gradient of a slice, and its type; NULL: it has none. */
char *zoff_model_params_own_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype);
/* Whether the gradient of a slice was handed over in this micro-step. */
bool zoff_model_params_is_given(const zoff_model *m, zoff_param p, size_t slice);
/* Note that the program may write the next gradient of a slice to its buffer, which tied parameters may share. */
void zoff_model_params_reuse(zoff_model *m, zoff_param p, size_t slice);
/* The buffer whose gradient the end of a step clears: that of a parameter whose gradient was handed over, or of one that shares
 * the buffer with it.  @return NULL: there is none */
char *zoff_model_params_grad_to_clear(const zoff_model *m, zoff_param p, size_t slice, size_t *out_bytes);

/* groups.c */
zoff_status zoff_model_groups_reserve(zoff_model *m, unsigned group);
/* Set the hyper-parameters of a group. `call` begins the message.  @return ERR_INVALID for values out of range; ERR_STATE when
 * the model is sealed and the group has no states for them */
zoff_status zoff_model_groups_set(zoff_model *m, unsigned group, const zoff_optimizer_hyper *hyper, const char *call);
/* Fill an output struct with the hyper-parameters of a group: at t 0 without the schedule, otherwise as step t uses them. */
zoff_status zoff_model_groups_get(const zoff_model *m, unsigned group, int64_t t, zoff_optimizer_hyper *out);
/* The hyper-parameters of a group outside of a step: the program's, or those of the configuration. */
const zoff_optimizer_hyper *zoff_model_groups_own(const zoff_model *m, size_t group);
/* The states of a group's parameters: after seal the fixed layout, before that the states that its hyper-parameters need. */
zoff_adam_states zoff_model_groups_states(const zoff_model *m, size_t group);
void zoff_model_groups_fix(zoff_model *m); /* at seal: fix the state layout of all groups */
/* The index of a parameter's hyper-parameters in a list of all groups, which all groups without weight decay follow. */
size_t zoff_model_groups_index(const zoff_model *m, const zoff_model_param *p);
/* Compute such a list of the constants of a step. */
void zoff_model_groups_consts(const zoff_model *m, const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale,
                              zoff_adam_consts *out);
/* A name for messages, for example "SGD without momentum". */
const char *zoff_model_groups_optimizer(zoff_optimizer optimizer, zoff_adam_states states);
/* The hyper-parameters of a group in step `t`: those in `args` if it gives any, otherwise the group's own with the scheduled
 * learning rate. */
zoff_status zoff_model_groups_of_step(const zoff_model *m, const zoff_step_args *args, size_t group, int64_t t,
                                      zoff_optimizer_hyper *out);

/* matrices.c: what an optimizer of matrices works on */
/* A matrix of a slice: its elements follow each other, row by row. */
typedef struct zoff_matrix {
    size_t first, rows, cols; /* `first`: an element of the slice */
} zoff_matrix;

/* Whether the optimizer of a group is one of matrices. */
bool zoff_model_matrices_has_group(const zoff_model *m, size_t group);
/* Before planning, after ties: find which parameters are matrices. `whole`: no other engine trains a part of the model, so
 * each pattern of the configuration has to match a parameter.  @return ERR_INVALID with the parameter or the pattern */
zoff_status zoff_model_matrices_find(zoff_model *m, bool whole);
/* The matrices in a slice of a parameter; 0: it has an element rule. */
static inline size_t zoff_model_matrices_count(const zoff_model *m, const zoff_model_param *p)
{
    (void)m;
    return p->shape.matrices.count;
}
zoff_matrix zoff_model_matrices_at(const zoff_model *m, const zoff_model_param *p, size_t i);
/* The optimizer whose rule updates a parameter: that of its group, or AdamW for one that an optimizer of matrices leaves out.
 */
zoff_optimizer zoff_model_matrices_optimizer(const zoff_model *m, const zoff_model_param *p);
/* The rule of a parameter's matrices; NULL: it has an element rule. */
static inline const zoff_matrix_rule *zoff_model_matrices_rule(const zoff_model *m, const zoff_model_param *p)
{
    return p->shape.matrices.count ? zoff_adam_matrix_rules_of(zoff_model_groups_own(m, p->group)) : NULL;
}
/* Log how many parameters have matrices, if the optimizer of a group is one of matrices, and for debugging each of them.
 * `planned`: nothing is sealed, so all of it is for debugging. */
void zoff_model_matrices_tell(const zoff_model *m, bool planned);

/* masters.c */
/* Where the fp32 master of a parameter is. */
typedef struct zoff_master_form {
    size_t bytes;    /* bytes of an element in its chunk */
    bool in_weights; /* the weights have all or half of its bits, so a step reads them */
    bool is_whole;   /* fp32 weights are the master; `bytes` is for a copy in its chunk, which a step makes afterwards */
    bool is_split;   /* bf16 weights are the upper halves of masters, and the chunk has the lower ones */
} zoff_master_form;

/* @return never NULL; no field is set for frozen weights */
const zoff_master_form *zoff_model_masters_of(const zoff_model *m, const zoff_model_param *p);
/* Describe the cast that sets masters from weights (`to_master`), or weights from masters. `stored`: the elements in the chunk.
 * @return false: there is nothing to do */
bool zoff_model_masters_cast(const zoff_model *m, const zoff_model_param *p, void *weights, void *stored, bool to_master,
                             zoff_cast_piece *out);

/* moments.c */
/* Whether numbers can be written to a range of a moment, whose slices count as one array.  @return ERR_INVALID for ranges that
 * cut a block, and for numbers that a block does not store */
zoff_status zoff_model_moments_check(const zoff_model *m, const zoff_model_param *p, zoff_moment which, size_t first,
                                     size_t count, const float *numbers);
/* How the moments of a parameter are stored. */
zoff_moments zoff_model_moments_of(const zoff_model *m, const zoff_model_param *p);
/* The moment of a stream that is not the masters'. */
static inline zoff_moment zoff_model_moments_which(unsigned stream)
{
    return stream == ZOFF_STREAM_M ? ZOFF_MOMENT_M : ZOFF_MOMENT_V;
}

/* slices.c */
/* After planning: allocate the flags of slices, and find the buckets of each slice.  @return ERR_NO_MEMORY */
zoff_status zoff_model_slices_open(zoff_model *m, const zoff_plan *plan);
void zoff_model_slices_close(zoff_model *m);
bool zoff_model_slices_has(const zoff_model *m, size_t number); /* whether a slice is in any bucket */

/* ties.c: parameters that share their weights */
/* Find tied parameters, before planning, and mark each in the list.  @return ERR_INVALID for tied parameters in different
 * groups or of different shapes, and for buffers that overlap; then nothing is tied */
zoff_status zoff_model_ties_find(zoff_model *m);
void zoff_model_ties_dissolve(zoff_model *m);          /* undo zoff_model_ties_find() */
uint64_t zoff_model_ties_bytes(const zoff_model *m);   /* bytes of the owners' gradients, which are fp32 sums */
void zoff_model_ties_place(zoff_model *m, char *base); /* set the memory of the sums of ties */
zoff_status zoff_model_ties_check(zoff_model *m);      /* check for overlaps if buffers were bound since the last check */
/* Bind weights to all names of a tie, and a gradient buffer to one. A NULL value keeps the weights; a NULL grad is no buffer.
 */
void zoff_model_ties_bind(zoff_model *m, zoff_param p, void *value, void *grad);

/* lr_schedule.c: apply the schedule to a group's own hyper-parameters, for update number t (from 1) */
void zoff_model_lr_schedule_apply(const zoff_schedule_values *schedule, int64_t t, zoff_optimizer_hyper *h);
bool zoff_model_lr_schedule_uses_lr(const zoff_schedule_values *schedule); /* the rate depends on that of the group */

/* loss_scale.c */
void zoff_model_loss_scale_start(zoff_model *m);
/* @return ERR_INVALID if grad_scale divided by the loss scale is not a finite fp32 number */
zoff_status zoff_model_loss_scale_check(const zoff_model *m, double grad_scale);
/* Describe how a skipped step changes the scale, for the log line of the step. Empty without fp16. */
void zoff_model_loss_scale_describe(const zoff_model *m, char *dst, size_t dst_bytes);
/* After step `t`: compute the scale of the next step, and count skipped steps. `why`: the reason for skipping the step, for the
 * message.  @return ERR_OVERFLOW: the scale is already at its minimum, or zoff.skip_nonfinite allows no more */
zoff_status zoff_model_loss_scale_turn(zoff_model *m, int64_t t, bool overflow, const char *why);
/* The scaler after an update, which is recorded with its states. */
zoff_loss_scaler zoff_model_loss_scale_after_update(const zoff_model *m);
double zoff_model_loss_scale_next(const zoff_model *m, bool overflow); /* the scale after a step that is still open */
/* Continue with a recorded scaler. A static scale is the configuration's, and without fp16 there is none. */
void zoff_model_loss_scale_continue(zoff_model *m, const zoff_loss_scaler *recorded);
/* Restore a saved scaler.  @return ERR_STATE without fp16; ERR_INVALID for values that no scaler can have */
zoff_status zoff_model_loss_scale_set(zoff_model *m, const zoff_loss_scaler *scaler);

/* program_bytes.c: the program's own bytes and the loss scale, in one block for the record of a commit */
/* @return ERR_INVALID for a list that contradicts itself or does not fit, the same on every rank */
zoff_status zoff_model_program_bytes_check(const zoff_checkpoint_data *data, size_t count);
bool zoff_model_program_bytes_overlap(const zoff_checkpoint_data *a, const zoff_checkpoint_data *b); /* in memory */
void zoff_model_program_bytes_close(zoff_program_bytes *p);
/* Replace the list.  @return ERR_NO_MEMORY: the list is unchanged */
zoff_status zoff_model_program_bytes_set(zoff_program_bytes *p, const zoff_checkpoint_data *data, size_t count);
/* Fill the block of a commit. Until the program has given a list, bytes that seal has found go into commits that are no update.
 * @param scaler NULL: none  @return bytes of the block; 0: nothing to record */
size_t zoff_model_program_bytes_pack(zoff_program_bytes *p, unsigned rank, const zoff_loss_scaler *scaler, bool exact_sums,
                                     bool is_step);
void zoff_model_program_bytes_committed(zoff_program_bytes *p, bool is_step); /* call after a commit */
/* Take the block that seal has found.  @return ERR_CORRUPT, or ERR_UNSUPPORTED for a later format */
zoff_status zoff_model_program_bytes_take(zoff_program_bytes *p, const void *block, size_t bytes);
/* Let the bytes of a checkpoint stand for what seal has found: those of `data` that fit into a block, one after the other.
 * @owns before: the caller frees its block, or puts it back  @return ERR_NO_MEMORY: nothing has changed */
zoff_status zoff_model_program_bytes_replace(zoff_program_bytes *p, unsigned rank, const zoff_checkpoint_data *data,
                                             size_t count, zoff_program_found *before);
void zoff_model_program_bytes_put_back(zoff_program_bytes *p, zoff_program_found *before);
bool zoff_model_program_bytes_scaler(const zoff_program_bytes *p, zoff_loss_scaler *out); /* false: the block has none */
bool zoff_model_program_bytes_exact_sums(const zoff_program_bytes *p); /* whether the run that recorded the block had them */
/* The bytes of an entry of a block; NULL: it has none of that name. */
const char *zoff_model_program_bytes_find(const char *block, size_t bytes, const char *name, bool each_rank, size_t *out_count);
/* One entry of a block. */
typedef struct zoff_program_entry {
    char name[256];
    bool each_rank;
    const char *bytes;
    size_t count;
} zoff_program_entry;
/* Read the entries of a block that zoff_model_program_bytes_take() has accepted, one by one. Begin with *at = 0.  @return
 * false: there are no more */
bool zoff_model_program_bytes_next(const char *block, size_t bytes, size_t *at, zoff_program_entry *out);
/* Copy what was found into the bytes of a list. `shared` is the block of rank 0. `dry`: only compare the sizes.
 * @return ERR_INVALID for another size: nothing was copied if a dry call came before */
zoff_status zoff_model_program_bytes_restore(const zoff_program_bytes *p, const char *shared, size_t shared_bytes, bool dry,
                                             const zoff_checkpoint_data *data, size_t count);

#endif
