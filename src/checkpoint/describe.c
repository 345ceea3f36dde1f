/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c: what the manifest says about an engine. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The type of an optimizer, as in a configuration. */
static const char *type_of(zoff_optimizer optimizer, bool is_l2)
{
    static const char *const TYPES[] = {"AdamW", "Adagrad", "Lion", "SGD", "Muon"}; /* names by zoff_optimizer */
    return is_l2 ? "Adam" : TYPES[optimizer];
}

const char *zoff_checkpoint_describe_rule(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_matrix_rule *rule = zoff_model_matrices_rule(m, p);
    return rule ? rule->name : type_of(zoff_model_matrices_optimizer(m, p), false);
}

zoff_status zoff_checkpoint_describe_group(const zoff_model *m, size_t index, zoff_archive_group *out)
{
    const size_t group = index % m->group_count;
    const zoff_optimizer_hyper *h = zoff_model_groups_own(m, group);
    const bool has_matrices = zoff_model_matrices_has_group(m, group);
    const bool is_l2 = h->optimizer == ZOFF_OPTIMIZER_ADAM && h->decay == ZOFF_DECAY_L2;
    const double numbers[ZOFF_ARCHIVE_GROUP_NUMBERS] = {m->groups[group].first_lr,
                                                        h->beta1,
                                                        h->beta2,
                                                        h->eps,
                                                        index == group ? h->weight_decay : 0,
                                                        h->momentum,
                                                        h->dampening,
                                                        h->lr_decay,
                                                        h->nesterov,
                                                        !(h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION),
                                                        has_matrices ? m->groups[group].first_adam_lr : NAN,
                                                        has_matrices ? (double)h->ns_steps : NAN};
    memcpy(out->numbers, numbers, sizeof numbers);
    return zoff_base_mem_copy_text(type_of(h->optimizer, is_l2), &out->type);
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
    m->exact_sums = v->model->exact_sums;
    ZOFF_TRY(zoff_planning_describe_params(v->model, skip_frozen, m));
    const size_t count = v->model->group_count * (v->values->no_decay.count ? 2 : 1);
    ZOFF_TRY(zoff_base_mem_alloc(count + 1, sizeof *m->groups, "groups of a manifest", &m->groups));
    for (; m->group_count < count; m->group_count++)
        ZOFF_TRY(zoff_checkpoint_describe_group(v->model, m->group_count, &m->groups[m->group_count]));
    return print_about(v, &m->about);
}
