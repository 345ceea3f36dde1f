/* listed.c: the items that ranks compare at seal: every part of the configuration and of the public structs that affects a
 * result. */
#include "agreement.h"

#include "try.h"

#include <string.h>

static const char *dtype_word(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 ? "ZOFF_BF16" : dtype == ZOFF_F16 ? "ZOFF_F16" : "ZOFF_F32";
}

static const char *bool_word(bool value)
{
    return value ? "true" : "false";
}

typedef struct seal_list {
    const zoff_agreement *agreement;
    const zoff_listed_settings *settings;
} seal_list;

/* Every key that the schema requires to be equal, with its value at the creation of the engine. */
static zoff_status add_configuration(const zoff_listed_settings *s, zoff_facts *out)
{
    for (size_t at = 0; at < s->key_bytes;) {
        const char *name = s->keys + at, *value = name + strlen(name) + 1;
        ZOFF_TRY(zoff_agreement_facts_add_text(out, value, "%s", name));
        at = (size_t)(value + strlen(value) + 1 - s->keys);
    }
    return ZOFF_OK;
}

/* threads, host_bytes, nvme_path and progress_thread may differ, as the keys that they override. */
static zoff_status add_options(const seal_list *l, zoff_facts *out)
{
    ZOFF_TRY(zoff_agreement_facts_add_text(out, l->settings->states_in_files ? "ZOFF_TIER_NVME" : "ZOFF_TIER_HOST",
                                           "zoff_engine_opts.state_tier"));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, l->settings->chunk_elements, "zoff_engine_opts.chunk_elements"));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, (uint64_t)l->settings->persist_t, "zoff_engine_opts.persist_t"));
    const zoff_comm *norm = l->agreement->norm.comm;
    ZOFF_TRY(zoff_agreement_facts_add_count(out, norm ? norm->size : 0, "the number of ranks of zoff_engine_opts.norm_comm"));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, norm ? norm->rank : 0, "the rank in zoff_engine_opts.norm_comm"));
    return zoff_agreement_facts_add_text(out, bool_word(l->agreement->transfer->route.reaches),
                                         "whether zoff_engine_opts.comm accesses the memory of zoff_engine_opts.accel");
}

/* Frozen weights: if a rank has no memory for them, it cannot receive those of rank 0. Trained weights are always present. */
static zoff_status add_frozen(const zoff_model_param *p, size_t i, zoff_facts *out)
{
    if (!p->frozen || p->engine_owned || !p->count)
        return ZOFF_OK;
    return zoff_agreement_facts_add_text(out, p->value ? "given" : "NULL", "zoff_param_desc.value of parameter %zu (%.100s)", i,
                                         p->name);
}

/* Checkpoints contain them, so every rank must write the same. */
static zoff_status add_shape(const zoff_model_param *p, size_t i, zoff_facts *out)
{
    char shape[ZOFF_SHAPE_BYTES];
    zoff_model_params_print_shape(p, shape, sizeof shape);
    ZOFF_TRY(zoff_agreement_facts_add_text(out, shape, "zoff_param_desc.dims of parameter %zu (%.100s)", i, p->name));
    return zoff_agreement_facts_add_text(out, p->slice_name ? p->slice_name : "NULL",
                                         "zoff_param_desc.slice_name of parameter %zu (%.100s)", i, p->name);
}

static zoff_status add_param(const zoff_agreement *a, size_t i, zoff_facts *out)
{
    const zoff_model_param *p = &a->model->params[i];
    ZOFF_TRY(zoff_agreement_facts_add_text(out, p->name, "zoff_param_desc.name of parameter %zu", i));
    ZOFF_TRY(add_shape(p, i, out));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, p->count, "zoff_param_desc.count of parameter %zu (%.100s)", i, p->name));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, p->slices, "zoff_param_desc.slices of parameter %zu (%.100s)", i, p->name));
    ZOFF_TRY(zoff_agreement_facts_add_text(out, dtype_word(p->dtype), "zoff_param_desc.dtype of parameter %zu (%.100s)", i,
                                           p->name));
    ZOFF_TRY(zoff_agreement_facts_add_text(out, dtype_word(p->grad_dtype),
                                           "zoff_param_desc.grad_dtype of parameter %zu (%.100s)", i, p->name));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, p->group, "zoff_param_desc.group of parameter %zu (%.100s)", i, p->name));
    ZOFF_TRY(zoff_agreement_facts_add_text(out, bool_word(p->frozen), "zoff_param_desc.frozen of parameter %zu (%.100s)", i,
                                           p->name));
    ZOFF_TRY(add_frozen(p, i, out));
    ZOFF_TRY(zoff_agreement_facts_add_text(out, bool_word(p->norm_replicated),
                                           "zoff_param_desc.norm_replicated of parameter %zu (%.100s)", i, p->name));
    ZOFF_TRY(zoff_agreement_facts_add_text(out, bool_word(p->reduced), "zoff_param_desc.reduced of parameter %zu (%.100s)", i,
                                           p->name));
    return zoff_agreement_facts_add_text(out, bool_word(p->engine_owned),
                                         "zoff_param_desc.engine_owned of parameter %zu (%.100s)", i, p->name);
}

/* Hyper-parameters of a group that has a trained parameter. */
static zoff_status add_group(const zoff_agreement *a, size_t group, zoff_facts *out)
{
    enum { FIELDS_MAX = 32 };
    uint64_t words[FIELDS_MAX];
    const size_t count = zoff_agreement_facts_hyper_count();
    zoff_agreement_facts_hyper_words(zoff_model_groups_own(a->model, group), words);
    for (size_t i = 0; i < count; i++) {
        char value[64];
        const char *name = zoff_agreement_facts_hyper_print(i, words[i], value, sizeof value);
        ZOFF_TRY(zoff_agreement_facts_add_text(out, value, "zoff_optimizer_hyper.%s of group %zu (zoff_engine_set_group())",
                                               name, group));
    }
    return ZOFF_OK;
}

static zoff_status list_settings(const void *ctx, zoff_facts *out)
{
    const seal_list *l = ctx;
    const zoff_agreement *a = l->agreement;
    ZOFF_TRY(add_configuration(l->settings, out));
    ZOFF_TRY(add_options(l, out));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, a->model->param_count, "the number of parameters"));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, a->model->group_count, "the number of groups"));
    for (size_t i = 0; i < a->model->param_count; i++)
        ZOFF_TRY(add_param(a, i, out));
    for (size_t i = 0; i < a->model->group_count; i++) {
        if (a->model->groups[i].used)
            ZOFF_TRY(add_group(a, i, out));
    }
    return ZOFF_OK;
}

/* Each rank finds tied parameters on its own, so the results are compared. */
static zoff_status add_ties(const zoff_agreement *a, zoff_facts *out)
{
    zoff_param *owners;
    ZOFF_TRY(zoff_base_mem_alloc(a->model->param_count, sizeof *owners, "the list of parameters", &owners));
    for (size_t i = 0; i < a->model->param_count; i++)
        owners[i] = zoff_model_params_owner(a->model, (zoff_param)i);
    const uint64_t checksum = zoff_offload_layout(owners, a->model->param_count * sizeof *owners);
    zoff_base_mem_free(owners);
    return zoff_agreement_facts_add_count(
        out, checksum, "the list of tied parameters, which have the same zoff_param_desc.value (as a checksum)");
}

/* Memory budgets may differ: all ranks have the least of their limits. Files of another cut cannot be opened. */
static zoff_status list_plan(const void *ctx, zoff_facts *out)
{
    const zoff_agreement *a = ctx;
    ZOFF_TRY(add_ties(a, out));
    ZOFF_TRY(zoff_agreement_facts_add_count(out, a->plan->chunk_count,
                                            "the number of buckets (decided by the state files in nvme_path)"));
    return zoff_agreement_facts_add_count(out, a->transfer->device.tier.count,
                                          "the number of buckets on the device (offload_optimizer.ratio)");
}

static zoff_status add_slice(const zoff_model_param *p, size_t i, size_t slice, zoff_facts *out)
{
    static const char FORMAT[] = "the checksum of the first weights of parameter %zu (%.100s), slice %zu,";
    const size_t bytes = p->count * zoff_adam_dtype_bytes(p->dtype);
    if (!p->value)
        return zoff_agreement_facts_add_text(out, "none", FORMAT, i, p->name, slice);
    const uint64_t checksum = zoff_offload_layout(p->value + slice * p->value_stride, bytes);
    return zoff_agreement_facts_add_count(out, checksum, FORMAT, i, p->name, slice);
}

/* The initial values of engine-owned weights. Each rank stores only its part, and the parts must be of one model. */
static zoff_status list_weights(const void *ctx, zoff_facts *out)
{
    const zoff_agreement *a = ctx;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        if (!p->engine_owned || !p->count)
            continue;
        for (size_t slice = 0; slice < p->slices; slice++)
            ZOFF_TRY(add_slice(p, i, slice, out));
    }
    return ZOFF_OK;
}

/* ---- at seal ---- */

static const char ADVICE[] = "Every rank must have the same configuration and register the same parameters in the same order";

zoff_status zoff_agreement_listed_compare_settings(zoff_agreement *a, const zoff_listed_settings *settings)
{
    return zoff_agreement_facts_compare(a, list_settings, &(seal_list){a, settings}, "zoff_engine_seal", ADVICE);
}

zoff_status zoff_agreement_listed_compare_plan(zoff_agreement *a)
{
    return zoff_agreement_facts_compare(a, list_plan, a, "zoff_engine_seal", ADVICE);
}

zoff_status zoff_agreement_listed_compare_weights(zoff_agreement *a)
{
    return zoff_agreement_facts_compare(
        a, list_weights, a, "zoff_engine_seal",
        "Give every rank the same zoff_param_desc.value for parameters with engine_owned, for example by a broadcast");
}
