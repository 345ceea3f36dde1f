/* SPDX-License-Identifier: Apache-2.0 */
/* listed.c: the lists that ranks compare (equal.c). At seal these are every part of the configuration and of the public structs
 * that affects a result, the plan, and the weights that the engine owns. In a step they are the inputs of the update other than
 * gradients and states, and the copies of gradients that the trainer has reduced. The vote of a step carries the checksums of
 * its lists, so a step needs no message of its own to compare them. */
#include "agreement.h"

#include "try.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *dtype_word(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 ? "ZOFF_BF16" : dtype == ZOFF_F16 ? "ZOFF_F16" : "ZOFF_F32";
}

static const char *bool_word(bool value)
{
    return value ? "true" : "false";
}

static void add_number(zoff_fields *out, double number, const char *name)
{
    char text[32];
    uint64_t word;
    memcpy(&word, &number, sizeof word);
    if (out->as_text)
        snprintf(text, sizeof text, "%.17g", number);
    zoff_agreement_equal_add(out, out->as_text ? text : NULL, word, "%s", name);
}

/* ---- hyper-parameters ---- */

typedef enum field_kind { NUMBER, CHOICE, COUNT, FLAG, FLAGS } field_kind;

static const struct {
    const char *name;
    size_t offset;
    field_kind kind;
    const char *choices[5]; /* words of an enum's values */
} FIELDS[] = {
#define FIELD(name_, ...)                                                                                                      \
    {                                                                                                                          \
        .name = #name_, .offset = offsetof(zoff_optimizer_hyper, name_), .kind = __VA_ARGS__                                   \
    }
    FIELD(lr, NUMBER),
    FIELD(beta1, NUMBER),
    FIELD(beta2, NUMBER),
    FIELD(eps, NUMBER),
    FIELD(decay, CHOICE, .choices = {"decoupled", "L2"}),
    FIELD(momentum, NUMBER),
    FIELD(dampening, NUMBER),
    FIELD(lr_decay, NUMBER),
    FIELD(nesterov, FLAG),
    FIELD(optimizer, CHOICE, .choices = {"Adam", "Adagrad", "Lion", "SGD", "Muon"}),
    FIELD(weight_decay, NUMBER),
    FIELD(flags, FLAGS),
    FIELD(adam_lr, NUMBER),
    FIELD(ns_steps, COUNT),
    FIELD(ns_method, CHOICE, .choices = {"gram", "standard"}),
    FIELD(scale, CHOICE, .choices = {"original", "match_rms_adamw", "spectral", "unit_rms_norm"}),
    FIELD(coefficients, CHOICE, .choices = {"simple", "quintic", "polar_express", "cans", "deepseekv4"}),
#undef FIELD
};
_Static_assert(sizeof(zoff_optimizer_hyper) == offsetof(zoff_optimizer_hyper, coefficients) + sizeof(int),
               "add the new field to the list");

static void print_field(size_t i, uint64_t word, char *dst, size_t dst_bytes)
{
    double number;
    memcpy(&number, &word, sizeof number);
    if (FIELDS[i].kind == NUMBER)
        snprintf(dst, dst_bytes, "%.17g", number);
    else if (FIELDS[i].kind == FLAGS)
        snprintf(dst, dst_bytes, "%#llx", (unsigned long long)word);
    else if (FIELDS[i].kind == FLAG)
        snprintf(dst, dst_bytes, "%s", bool_word(word));
    else if (FIELDS[i].kind == COUNT || word >= 5 || !FIELDS[i].choices[word])
        snprintf(dst, dst_bytes, "%llu", (unsigned long long)word);
    else
        snprintf(dst, dst_bytes, "%s", FIELDS[i].choices[word]);
}

/* `behind`: text behind the number of the group, in the names. */
static void add_hyper(zoff_fields *out, const zoff_optimizer_hyper *h, size_t group, const char *behind)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        const char *field = (const char *)h + FIELDS[i].offset;
        uint64_t word = 0;
        char text[64];
        if (FIELDS[i].kind == NUMBER || FIELDS[i].kind == FLAGS)
            memcpy(&word, field, sizeof word);
        else if (FIELDS[i].kind == FLAG)
            word = *(const bool *)field;
        else
            word = *(const unsigned *)(const void *)field;
        if (out->as_text)
            print_field(i, word, text, sizeof text);
        zoff_agreement_equal_add(out, out->as_text ? text : NULL, word, "zoff_optimizer_hyper.%s of group %zu%s",
                                 FIELDS[i].name, group, behind);
    }
}

/* ---- at seal ---- */

typedef struct seal_list {
    const zoff_agreement *agreement;
    const zoff_listed_settings *settings;
} seal_list;

/* Every key that the schema requires to be equal, with its value at the creation of the engine. */
static void add_configuration(const zoff_listed_settings *s, zoff_fields *out)
{
    for (size_t at = 0; at < s->key_bytes;) {
        const char *name = s->keys + at, *value = name + strlen(name) + 1;
        zoff_agreement_equal_add(out, value, 0, "%s", name);
        at = (size_t)(value + strlen(value) + 1 - s->keys);
    }
}

/* threads, host_bytes, nvme_path and progress_thread may differ, as the keys that they override. */
static void add_options(const seal_list *l, zoff_fields *out)
{
    const zoff_comm *norm = l->agreement->norm.ranks.comm;
    zoff_agreement_equal_add(out, l->settings->states_in_files ? "ZOFF_TIER_NVME" : "ZOFF_TIER_HOST", 0,
                             "zoff_engine_opts.state_tier");
    zoff_agreement_equal_add(out, NULL, l->settings->chunk_elements, "zoff_engine_opts.chunk_elements");
    zoff_agreement_equal_add(out, NULL, (uint64_t)l->settings->persist_t, "zoff_engine_opts.persist_t");
    zoff_agreement_equal_add(out, NULL, norm ? norm->size : 0, "the number of ranks of zoff_engine_opts.norm_comm");
    zoff_agreement_equal_add(out, NULL, norm ? norm->rank : 0, "the rank in zoff_engine_opts.norm_comm");
    zoff_agreement_equal_add(out, bool_word(l->agreement->transfer->route.reaches), 0,
                             "whether zoff_engine_opts.comm accesses the memory of zoff_engine_opts.accel");
}

static void add_field(zoff_fields *out, const zoff_model_param *p, size_t i, const char *field, const char *text,
                      uint64_t number)
{
    zoff_agreement_equal_add(out, text, number, "zoff_param_desc.%s of parameter %zu (%.100s)", field, i, p->name);
}

static void add_param(const zoff_model_param *p, size_t i, zoff_fields *out)
{
    char shape[ZOFF_SHAPE_BYTES];
    zoff_agreement_equal_add(out, p->name, 0, "zoff_param_desc.name of parameter %zu", i);
    /* Checkpoints contain shape and slice_name, so every rank must write the same. */
    zoff_model_params_print_shape(p, shape, sizeof shape);
    add_field(out, p, i, "dims", shape, 0);
    /* The states of a matrix are fewer. */
    add_field(out, p, i, "matrix_rows (as a checksum)", NULL,
              zoff_offload_layout(p->shape.matrices.rows, p->shape.matrices.row_count * sizeof *p->shape.matrices.rows));
    add_field(out, p, i, "slice_name", p->slice_name ? p->slice_name : "NULL", 0);
    add_field(out, p, i, "count", NULL, p->count);
    add_field(out, p, i, "slices", NULL, p->slices);
    add_field(out, p, i, "dtype", dtype_word(p->dtype), 0);
    add_field(out, p, i, "grad_dtype", dtype_word(p->grad_dtype), 0);
    add_field(out, p, i, "group", NULL, p->group);
    add_field(out, p, i, "frozen", bool_word(p->frozen), 0);
    /* A rank without memory for frozen weights cannot receive those of rank 0. Trained weights are always present. */
    if (p->frozen && !p->engine_owned && p->count)
        add_field(out, p, i, "value", p->value ? "given" : "NULL", 0);
    add_field(out, p, i, "norm_replicated", bool_word(p->norm_replicated), 0);
    add_field(out, p, i, "reduced", bool_word(p->reduced), 0);
    add_field(out, p, i, "engine_owned", bool_word(p->engine_owned), 0);
}

static void list_settings(const void *ctx, zoff_fields *out)
{
    const seal_list *l = ctx;
    const zoff_model *m = l->agreement->model;
    add_configuration(l->settings, out);
    add_options(l, out);
    zoff_agreement_equal_add(out, NULL, m->param_count, "the number of parameters");
    zoff_agreement_equal_add(out, NULL, m->group_count, "the number of groups");
    for (size_t i = 0; i < m->param_count; i++)
        add_param(&m->params[i], i, out);
    for (size_t i = 0; i < m->group_count; i++) {
        if (m->groups[i].used)
            add_hyper(out, zoff_model_groups_own(m, i), i, " (zoff_engine_set_group())");
    }
}

/* Each rank finds tied parameters on its own, so the results are compared. Memory budgets may differ, because all ranks have
 * the least of their limits. Files of another cut cannot be opened. */
static void list_plan(const void *ctx, zoff_fields *out)
{
    const zoff_agreement *a = ctx;
    uint64_t ties = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const uint64_t words[] = {ties, zoff_model_params_owner(a->model, (zoff_param)i)};
        ties = zoff_offload_layout(words, sizeof words);
    }
    zoff_agreement_equal_add(out, NULL, ties,
                             "the list of tied parameters, which have the same zoff_param_desc.value (as a checksum)");
    zoff_agreement_equal_add(out, NULL, a->plan->chunk_count,
                             "the number of buckets (decided by the state files in nvme_path)");
    zoff_agreement_equal_add(out, NULL, a->transfer->device.tier.count,
                             "the number of buckets on the device (offload_optimizer.ratio)");
}

/* The initial values of engine-owned weights. Each rank stores only its part, and the parts must be of one model. */
static void list_weights(const void *ctx, zoff_fields *out)
{
    const zoff_agreement *a = ctx;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        for (size_t slice = 0; p->engine_owned && p->count && slice < p->slices; slice++) {
            const char *first = p->value ? p->value + slice * p->value_stride : NULL;
            zoff_agreement_equal_add(
                out, first ? NULL : "none", first ? zoff_offload_layout(first, p->count * zoff_adam_dtype_bytes(p->dtype)) : 0,
                "the checksum of the first weights of parameter %zu (%.100s), slice %zu,", i, p->name, slice);
        }
    }
}

static const char ADVICE[] = "Every rank must have the same configuration and register the same parameters in the same order";

zoff_status zoff_agreement_listed_compare_settings(zoff_agreement *a, const zoff_listed_settings *settings)
{
    return zoff_agreement_equal(a, list_settings, &(seal_list){a, settings}, "zoff_engine_seal", ADVICE);
}

zoff_status zoff_agreement_listed_compare_plan(zoff_agreement *a)
{
    return zoff_agreement_equal(a, list_plan, a, "zoff_engine_seal", ADVICE);
}

zoff_status zoff_agreement_listed_compare_weights(zoff_agreement *a)
{
    return zoff_agreement_equal(
        a, list_weights, a, "zoff_engine_seal",
        "Give every rank the same zoff_param_desc.value for parameters with engine_owned, for example by a broadcast");
}

/* ---- in a step ---- */

static void list_inputs(const void *ctx, zoff_fields *out)
{
    const zoff_agreement *a = ctx;
    const zoff_step_inputs *in = &a->inputs;
    const zoff_loss_scaler *s = &a->model->scaler;
    zoff_agreement_equal_add(out, NULL, (uint64_t)in->t, "zoff_step_args.t (or the number of updates made)");
    /* negative and 0 both mean that nothing is clipped */
    add_number(out, in->clip_norm > 0 ? in->clip_norm : 0, "zoff_step_args.clip_norm (or gradient_clipping)");
    add_number(out, in->grad_scale, "zoff_step_args.grad_scale");
    zoff_agreement_equal_add(out, NULL, in->flags, "zoff_step_args.flags");
    add_number(out, in->loss_scale, "zoff_loss_scaler.scale");
    zoff_agreement_equal_add(out, NULL, (uint64_t)s->iterations, "zoff_loss_scaler.iterations");
    zoff_agreement_equal_add(out, NULL, (uint64_t)s->last_overflow, "zoff_loss_scaler.last_overflow");
    zoff_agreement_equal_add(out, NULL, s->hysteresis, "zoff_loss_scaler.hysteresis");
    add_number(out, in->weight, "the sum of the weights of all micro-batches (zoff_grad_weight())");
    zoff_agreement_equal_add(out, NULL, in->norm_sum, "zoff_step_args.norm_sum (as a checksum)");
    for (size_t i = 0; i < a->model->group_count; i++) {
        if (a->model->groups[i].used) /* only groups that update a parameter count */
            add_hyper(out, &in->hyper[i], i, ", after the schedule,");
    }
}

/* List constants that the update computes from its inputs, because hosts with different mathematical libraries may have
 * others. */
static void list_constants(const void *ctx, zoff_fields *out)
{
    const zoff_agreement *a = ctx;
    for (size_t i = 0; i < a->model->group_count; i++) {
        zoff_adam_consts consts;
        if (!a->model->groups[i].used)
            continue;
        memset(&consts, 0, sizeof consts);
        zoff_adam_hyper_consts(&a->inputs.hyper[i], a->inputs.t, 1.0, &consts);
        zoff_agreement_equal_add(out, NULL, zoff_offload_layout(&consts, sizeof consts),
                                 "the constants of group %zu (as a checksum)", i);
    }
}

static void list_copies(const void *ctx, zoff_fields *out)
{
    const zoff_agreement *a = ctx;
    for (size_t i = 0; a->transfer->measure.alike && i < a->model->param_count; i++) {
        if (a->model->params[i].reduced)
            zoff_agreement_equal_add(out, NULL, a->transfer->measure.alike[i].copies,
                                     "the checksum of the gradient of %.300s (zoff_param_desc.reduced)",
                                     a->model->params[i].name);
    }
}

void zoff_agreement_listed_tell(zoff_agreement *a, const zoff_step_inputs *inputs, zoff_vote *vote)
{
    zoff_fields of_inputs = {.as_text = false}, of_copies = {.as_text = false};
    if (zoff_comm_size(a->comm) == 1)
        return;
    a->inputs = *inputs;
    list_inputs(a, &of_inputs);
    list_constants(a, &of_inputs);
    list_copies(a, &of_copies);
    vote->inputs[0] = vote->inputs[1] = of_inputs.sum;
    vote->copies[0] = vote->copies[1] = of_copies.sum;
}

zoff_status zoff_agreement_listed_compare_inputs(zoff_agreement *a, const zoff_vote *vote)
{
    static const char CALL[] = "ranks take different steps";
    static const char REPEAT[] = "Call zoff_grads_drop() on every rank, and repeat the step with the same values";
    if (vote->inputs[0] == vote->inputs[1])
        return ZOFF_OK;
    ZOFF_TRY(zoff_agreement_equal(a, list_inputs, a, CALL, REPEAT));
    return zoff_agreement_equal(a, list_constants, a, CALL, REPEAT);
}

zoff_status zoff_agreement_listed_compare_copies(zoff_agreement *a, const zoff_vote *vote)
{
    if (vote->copies[0] == vote->copies[1])
        return ZOFF_OK;
    return zoff_agreement_equal(
        a, list_copies, a, "zoff_step",
        "Every rank must hand over the same bits: reduce the gradient over all ranks before zoff_grad_ready(), or leave "
        "zoff_param_desc.reduced false. Nothing is updated; call zoff_grads_drop() on every rank, and repeat the step");
}
