/* model_priv.h: what is trained, with which numbers; part of engine_priv.h. */
#ifndef ZOFF_MODEL_PRIV_H
#define ZOFF_MODEL_PRIV_H

/* params.c */
zoff_status zoff_engine_params_add(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out);
void zoff_engine_params_free(zoff_engine *e);
/* Whether gradients are added up in fp32: over micro-batches, or over ranks. */
static inline bool zoff_engine_params_accumulates(const zoff_engine *e)
{
    return e->settings.values.accumulation > 1 || zoff_comm_size(e->comm) > 1;
}
/* Whether a parameter's masters are states of their own. fp32 weights that the CPU reaches are their own masters. */
static inline bool zoff_engine_params_has_master(const zoff_engine *e, const zoff_engine_param *p)
{
    return !p->frozen && (p->dtype != ZOFF_F32 || !zoff_accel_in_place(e->accel));
}
/* Whether the engine keeps weights. */
bool zoff_engine_params_any_owned(const zoff_engine *e);
/* Whether each step makes all of a parameter's weights anew, of masters: 16-bit weights that are trained. */
static inline bool zoff_engine_params_remade(const zoff_engine_param *p)
{
    return !p->frozen && p->dtype != ZOFF_F32;
}
/* Where the weights of a piece are: in the caller's memory, or in `weights`, the memory of its chunk. NULL: without that, and
 * no first values either. */
char *zoff_engine_params_value(const zoff_engine *e, const zoff_plan_piece *piece, char *weights);
/* Where the program has its gradients, on the host or on a device. */
const char *zoff_engine_params_there(const zoff_engine *e, const zoff_plan_piece *piece);
static inline uint8_t *zoff_engine_params_flag(zoff_engine *e, const zoff_plan_piece *piece)
{
    return &e->flags[e->params[piece->param].first_flag + piece->slice];
}

/* A parameter as the plan sees it. */
zoff_plan_tensor zoff_engine_params_tensor(const zoff_engine *e, const zoff_engine_param *p);
/* The parameter that owns the states of `p`: another one if their weights are tied, else `p`. */
zoff_param zoff_engine_params_owner(const zoff_engine *e, zoff_param p);
/* The gradient buffer as the program gave it, also of a parameter whose gradient is a sum of tied ones. */
zoff_given zoff_engine_params_given(const zoff_engine *e, size_t i);
/* The part of it for a slice, and its type; NULL: the program has none. */
char *zoff_engine_params_given_grad(const zoff_engine *e, zoff_param p, size_t slice, zoff_dtype *out_dtype);
/* The program's own gradient of a slice, and its type; NULL: it has none. */
char *zoff_engine_params_own_grad(const zoff_engine *e, zoff_param p, size_t slice, zoff_dtype *out_dtype);
bool zoff_engine_params_is_given(const zoff_engine *e, zoff_param p, size_t slice); /* in this micro-step */

/* slices.c */
zoff_status zoff_engine_slices_open(zoff_engine *e); /* once the plan is made: fills e->slice_buckets */
void zoff_engine_slices_close(zoff_engine *e);
bool zoff_engine_slices_has(const zoff_engine *e, size_t number); /* whether a slice is in any bucket */

/* ties.c: parameters that share their weights */
/* Before the list is planned: who they are, also in e->params. ERR_INVALID for buffers that overlap. */
zoff_status zoff_engine_ties_find(zoff_engine *e);
void zoff_engine_ties_dissolve(zoff_engine *e);        /* nobody */
zoff_status zoff_engine_ties_open(zoff_engine *e);     /* memory for the sums, */
uint64_t zoff_engine_ties_bytes(const zoff_engine *e); /* of so many bytes, on the host or on the device */
void zoff_engine_ties_close(zoff_engine *e);           /* also dissolves */
zoff_status zoff_engine_ties_check(zoff_engine *e);    /* after buffers have moved */
bool zoff_engine_ties_has(const zoff_engine *e, zoff_param p);
void zoff_engine_ties_bind(zoff_engine *e, zoff_param p, void *value, void *grad);
/* One of them has its gradient: the sum is made when all have, */
zoff_status zoff_engine_ties_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);
/* or when the step begins. `all`: take the gradients that nobody has handed over, too. */
zoff_status zoff_engine_ties_settle(zoff_engine *e, bool all);

/* groups.c */
zoff_status zoff_engine_groups_reserve(zoff_engine *e, unsigned group);
/* The hyper-parameters of a group outside of a call: the program's, else those of the configuration. */
const zoff_adam_hyper *zoff_engine_groups_own(const zoff_engine *e, size_t group);
/* The states that a group's parameters have: once sealed those that were laid out, before that those of its hyper-parameters.
 */
zoff_adam_states zoff_engine_groups_states(const zoff_engine *e, size_t group);
void zoff_engine_groups_fix(zoff_engine *e); /* at seal: no other states from here on */
/* "SGD without momentum", for messages */
const char *zoff_engine_groups_optimizer(zoff_optimizer optimizer, zoff_adam_states states);
/* The hyper-parameters of a group in step `t`: those of the call if it gives any, else the group's own with the scheduled lr.
 */
zoff_status zoff_engine_groups_of_step(const zoff_engine *e, const zoff_step_args *args, size_t group, int64_t t,
                                       zoff_adam_hyper *out);

/* lr_schedule.c: what the schedule makes of a group's own hyper-parameters in update number t (from 1) */
void zoff_engine_lr_schedule_apply(const zoff_schedule_values *schedule, int64_t t, zoff_adam_hyper *h);

/* loss_scale.c */
void zoff_engine_loss_scale_start(zoff_engine *e);
/* ERR_INVALID if grad_scale divided by the loss scale is not a finite fp32 number. */
zoff_status zoff_engine_loss_scale_check(const zoff_engine *e, double grad_scale);
/* Describe how a skipped step changes the scale, for the log line of the step. "" without fp16. */
void zoff_engine_loss_scale_describe(const zoff_engine *e, char *dst, size_t dst_bytes);
/* After each step: compute the scale of the next one. `why`: the reason of a skipped step, for the message.
 * @return ERR_OVERFLOW: the scale is at its least already */
zoff_status zoff_engine_loss_scale_turn(zoff_engine *e, bool overflow, const char *why);

#endif
