/* describe.c: what the manifest says about an engine. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)ZOFF_MODEL_NAME_MOST == (int)ZOFF_ARCHIVE_PARAM_NAME_MOST,
               "an engine refuses names that no checkpoint holds");

unsigned zoff_checkpoint_describe_states(const zoff_engine_view *v, size_t param, bool skip_frozen)
{
    const zoff_model_param *p = &v->model->params[param];
    if (zoff_model_params_owner(v->model, (zoff_param)param) != param)
        return 0;
    if (p->frozen)
        return skip_frozen ? 0 : 1u << ZOFF_STATE_WEIGHTS;
    const zoff_adam_states states = zoff_model_groups_states(v->model, p->group);
    return 1u << ZOFF_STATE_MASTER | (states.m ? 1u << ZOFF_STATE_M : 0) | (states.v ? 1u << ZOFF_STATE_V : 0);
}

static zoff_status copy_param(const zoff_engine_view *v, size_t i, bool skip_frozen, zoff_archive_param *out)
{
    const zoff_model_param *p = &v->model->params[i];
    const zoff_param owner = zoff_model_params_owner(v->model, (zoff_param)i);
    *out = (zoff_archive_param){.count = p->count,
                                .slices = p->slices,
                                .dtype = p->dtype,
                                .group = p->group,
                                .states = zoff_checkpoint_describe_states(v, i, skip_frozen),
                                .tied_to = owner == i ? 0 : 1 + owner};
    ZOFF_TRY(zoff_base_mem_copy_text(p->name, &out->name));
    ZOFF_TRY(zoff_base_mem_copy_text(p->slice_name, &out->slice_name));
    out->dim_count = p->shape.count ? p->shape.count : 1;
    ZOFF_TRY(zoff_base_mem_alloc(out->dim_count, sizeof *out->dims, "dimensions", &out->dims));
    for (size_t k = 0; k < out->dim_count; k++)
        out->dims[k] = p->shape.count ? p->shape.dims[k] : p->count;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_describe_group(const zoff_model *m, size_t group, zoff_archive_group *out)
{
    const zoff_optimizer_hyper *h = zoff_model_groups_own(m, group);
    static const char *const TYPES[] = {"AdamW", "Adagrad", "Lion", "SGD"}; /* by zoff_optimizer */
    const bool is_l2 = h->optimizer == ZOFF_OPTIMIZER_ADAM && h->decay == ZOFF_DECAY_L2;
    const double numbers[ZOFF_ARCHIVE_GROUP_NUMBERS] = {m->groups[group].first_lr,
                                                        h->beta1,
                                                        h->beta2,
                                                        h->eps,
                                                        h->weight_decay,
                                                        h->momentum,
                                                        h->dampening,
                                                        h->lr_decay,
                                                        h->nesterov,
                                                        !(h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION)};
    memcpy(out->numbers, numbers, sizeof numbers);
    return zoff_base_mem_copy_text(is_l2 ? "Adam" : TYPES[h->optimizer], &out->type);
}

static zoff_status print_about(const zoff_engine_view *v, char **out)
{
    static const char FORMAT[] =
        "{\"zoff\": \"%d.%d.%d\", \"ranks\": %u, \"stage\": %u, \"tier\": \"%s\",\n    \"configuration\": %s}";
    const size_t room = sizeof FORMAT + 128 + strlen(v->configuration);
    ZOFF_TRY(zoff_base_mem_alloc(room, 1, "a manifest", out));
    snprintf(*out, room, FORMAT, ZOFF_VERSION_MAJOR, ZOFF_VERSION_MINOR, ZOFF_VERSION_PATCH, zoff_comm_size(v->comm),
             (unsigned)v->values->zero_stage, v->tier == ZOFF_TIER_NVME ? "nvme" : "host", v->configuration);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_describe_engine(const zoff_engine_view *v, bool skip_frozen, zoff_archive_manifest *m)
{
    m->t = v->t;
    m->has_scaler = v->values->fp16.enabled;
    m->scaler = v->model->scaler;
    ZOFF_TRY(zoff_base_mem_alloc(v->model->param_count + 1, sizeof *m->params, "parameters of a manifest", &m->params));
    for (size_t i = 0; i < v->model->param_count; i++) {
        m->param_count = i + 1;
        ZOFF_TRY(copy_param(v, i, skip_frozen, &m->params[i]));
    }
    ZOFF_TRY(zoff_base_mem_alloc(v->model->group_count + 1, sizeof *m->groups, "groups of a manifest", &m->groups));
    for (; m->group_count < v->model->group_count; m->group_count++)
        ZOFF_TRY(zoff_checkpoint_describe_group(v->model, m->group_count, &m->groups[m->group_count]));
    return print_about(v, &m->about);
}
