/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c: hyper-parameters by group: where they come from in a step, and which states they need. The optimizer of a group and
 * its states are fixed at seal, when the states are laid out. Numbers may change from step to step. */
#include "zoff_model.h"

#include "array.h"
#include "bits.h"
#include "structs.h"
#include "try.h"

#include <string.h>

/* Name of the struct of hyper-parameters, and of its initializer, in messages. */
#define HYPER "zoff_optimizer_hyper", "zoff_optimizer_hyper_init()"

zoff_status zoff_model_groups_reserve(zoff_model *m, unsigned group)
{
    enum { GROUPS_MAX = 1 << 20 };
    ZOFF_FAIL_IF(group >= GROUPS_MAX, ZOFF_ERR_INVALID, "group %u is out of range: groups are dense, from 0, and below %u",
                 group, (unsigned)GROUPS_MAX);
    const size_t count = zoff_base_bits_max(m->group_count, (size_t)group + 1);
    ZOFF_TRY(zoff_base_array_reserve(&m->groups, m->group_count, &m->group_capacity, count, sizeof *m->groups,
                                     "the list of groups"));
    m->group_count = count;
    return ZOFF_OK;
}

const zoff_optimizer_hyper *zoff_model_groups_own(const zoff_model *m, size_t group)
{
    return m->groups[group].set ? &m->groups[group].hyper : &m->values->hyper;
}

zoff_adam_states zoff_model_groups_states(const zoff_model *m, size_t group)
{
    return m->is_sealed ? m->groups[group].states : zoff_adam_hyper_states(zoff_model_groups_own(m, group));
}

void zoff_model_groups_fix(zoff_model *m)
{
    for (size_t i = 0; i < m->group_count; i++) {
        const zoff_optimizer_hyper *own = zoff_model_groups_own(m, i);
        m->groups[i].optimizer = own->optimizer;
        m->groups[i].states = zoff_adam_hyper_states(own);
        m->groups[i].first_lr = own->lr;
        m->groups[i].first_adam_lr = own->adam_lr;
    }
    m->is_sealed = true;
}

size_t zoff_model_groups_index(const zoff_model *m, const zoff_model_param *p)
{
    return p->group + (zoff_model_params_named(m, p) & ZOFF_NAMED_NO_DECAY ? m->group_count : 0);
}

void zoff_model_groups_consts(const zoff_model *m, const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale,
                              zoff_adam_consts *out)
{
    for (size_t g = 0; g < m->group_count; g++) {
        zoff_optimizer_hyper without = hyper[g];
        without.weight_decay = 0;
        zoff_adam_hyper_consts(&hyper[g], t, grad_scale, &out[g]);
        if (m->values->no_decay.count)
            zoff_adam_hyper_consts(&without, t, grad_scale, &out[m->group_count + g]);
    }
}

const char *zoff_model_groups_optimizer(zoff_optimizer optimizer, zoff_adam_states states)
{
    switch (optimizer) {
    case ZOFF_OPTIMIZER_ADAGRAD:
        return "Adagrad";
    case ZOFF_OPTIMIZER_LION:
        return "Lion";
    case ZOFF_OPTIMIZER_SGD:
        return states.m ? "SGD with momentum" : "SGD without momentum";
    case ZOFF_OPTIMIZER_MUON:
        return "Muon";
    case ZOFF_OPTIMIZER_ADAM:
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
    return "Adam";
}

/* Check that a sealed group has the states that these hyper-parameters would change. */
static zoff_status check_states(const zoff_model *m, const char *call, size_t group, const zoff_optimizer_hyper *h)
{
    const zoff_model_group *g = &m->groups[group];
    if (!g->used)
        return ZOFF_OK;
    const zoff_adam_states wanted = zoff_adam_hyper_states(h);
    const bool fits = h->optimizer == g->optimizer && wanted.m <= g->states.m && wanted.v <= g->states.v;
    ZOFF_FAIL_IF(
        !fits, ZOFF_ERR_STATE,
        "%s: group %zu was sealed for %s and has no states for %s; choose the optimizer before zoff_engine_seal(), with "
        "optimizer.type and optimizer.params or zoff_engine_set_group()%s",
        call, group, zoff_model_groups_optimizer(g->optimizer, g->states), zoff_model_groups_optimizer(h->optimizer, wanted),
        h->optimizer == g->optimizer ? "" : " (zoff_optimizer_hyper_init() fills in the defaults of each optimizer)");
    return ZOFF_OK;
}

zoff_status zoff_model_groups_set(zoff_model *m, unsigned group, const zoff_optimizer_hyper *hyper, const char *call)
{
    zoff_optimizer_hyper known;
    ZOFF_FAIL_IF(m->is_sealed && group >= m->group_count, ZOFF_ERR_INVALID, "%s: no parameter is in group %u", call, group);
    const zoff_optimizer_hyper *own = group < m->group_count ? zoff_model_groups_own(m, group) : &m->values->hyper;
    zoff_status status = zoff_adam_hyper_keep(own, hyper, &known);
    if (status == ZOFF_OK)
        status = zoff_adam_hyper_check(&known, 1);
    if (status < 0)
        return zoff_base_status_prefix(status, "%s: group %u: ", call, group);
    if (m->is_sealed)
        ZOFF_TRY(check_states(m, call, group, &known));
    ZOFF_TRY(zoff_model_groups_reserve(m, group));
    m->groups[group].set = true;
    m->groups[group].hyper = known;
    return ZOFF_OK;
}

zoff_status zoff_model_groups_get(const zoff_model *m, unsigned group, int64_t t, zoff_optimizer_hyper *out)
{
    ZOFF_TRY(zoff_base_structs_check_out(HYPER, out));
    ZOFF_FAIL_IF(group >= m->group_count, ZOFF_ERR_INVALID, "zoff_engine_get_group: no parameter is in group %u", group);
    ZOFF_FAIL_IF(t < 0, ZOFF_ERR_INVALID,
                 "zoff_engine_get_group: t is %lld; steps are numbered from 1, and 0 leaves the schedule out", (long long)t);
    zoff_optimizer_hyper h = *zoff_model_groups_own(m, group);
    if (t > 0)
        zoff_model_lr_schedule_apply(&m->values->schedule, t, &h);
    zoff_base_structs_write(&h, sizeof h, out);
    return ZOFF_OK;
}

/* Put the hyper-parameters that the call gives for a group over those of the step without it. */
static zoff_status take_given(const zoff_step_args *args, size_t group, zoff_optimizer_hyper *h)
{
    size_t index = args->hyper_count == 1 ? 0 : group;
    ZOFF_FAIL_IF(args->hyper_count == 0, ZOFF_ERR_INVALID,
                 "zoff_step_args.hyper is set and hyper_count is 0: set it to 1 for all groups, or to the number of groups");
    ZOFF_FAIL_IF(index >= args->hyper_count, ZOFF_ERR_INVALID,
                 "zoff_step: hyper-parameters for %zu groups were given, but a parameter is in group %zu", args->hyper_count,
                 group);
    const size_t bytes = args->hyper->struct_size, stride = args->hyper_stride ? args->hyper_stride : bytes;
    ZOFF_FAIL_IF(index && (stride < bytes || stride % _Alignof(zoff_optimizer_hyper)), ZOFF_ERR_INVALID,
                 "zoff_step: hyper_stride is %zu, but hyper[0] has %zu bytes; pass the distance in bytes between two entries, "
                 "aligned like the struct, or 0",
                 stride, bytes);
    const zoff_optimizer_hyper *given = (const void *)((const char *)args->hyper + index * stride);
    const zoff_status status = zoff_adam_hyper_keep(h, given, h);
    return status < 0 ? zoff_base_status_prefix(status, "zoff_step: hyper[%zu]: ", index) : ZOFF_OK;
}

zoff_status zoff_model_groups_of_step(const zoff_model *m, const zoff_step_args *args, size_t group, int64_t t,
                                      zoff_optimizer_hyper *out)
{
    zoff_optimizer_hyper h = *zoff_model_groups_own(m, group);
    const zoff_schedule_values *schedule = &m->values->schedule;
    zoff_model_lr_schedule_apply(schedule, t, &h);
    /* Hyper-parameters of the call apply only to groups that have trained parameters. */
    const bool is_given = args->hyper && m->groups[group].used;
    if (is_given)
        ZOFF_TRY(take_given(args, group, &h));
    zoff_status status = zoff_adam_hyper_check(&h, t);
    if (status < 0)
        return zoff_base_status_prefix(status, "zoff_step: group %zu%s: ", group,
                                       is_given || schedule->type == ZOFF_SCHEDULE_NONE ? "" : ", values of the scheduler");
    h.struct_size = sizeof h;
    ZOFF_TRY(check_states(m, "zoff_step", group, &h));
    *out = h;
    return ZOFF_OK;
}
