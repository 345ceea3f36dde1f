/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: merges the program's options with the configuration; the program's have priority. */
#include "engine_priv.h"

#include "log.h"
#include "structs.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* Without an accelerator or communicator of the program, open "host" and "self". */
static zoff_status open_surroundings(zoff_engine *e, const zoff_engine_opts *opts)
{
    e->settings.owns_accel = !opts->accel;
    ZOFF_FAIL_IF(
        opts->comm && opts->ranks, ZOFF_ERR_INVALID,
        "zoff_engine_opts has both comm and ranks (\"%s\"): pass the communicator that you have, or let the engine join",
        opts->ranks);
    e->settings.owns_comm = !opts->comm;
    e->accel = opts->accel;
    e->comm = opts->comm;
    if (e->settings.owns_accel)
        ZOFF_TRY(zoff_accel_open("host", 0, &e->accel));
    if (e->settings.owns_comm)
        ZOFF_TRY(zoff_comm_open(&(zoff_comm_opts){.struct_size = sizeof(zoff_comm_opts), .backend = opts->ranks}, &e->comm));
    e->model.in_place = zoff_accel_in_place(e->accel);
    e->lending.comm = e->transfer.comm = e->agreement.comm = e->comm;
    e->transfer.accel = e->lending.accel = e->accel;
    ZOFF_TRY(zoff_agreement_norm_take(&e->agreement, opts->norm_comm));
    return zoff_transfer_route_choose(&e->transfer);
}

static zoff_status copy_texts(const char *const *texts, size_t count, zoff_text_list *out)
{
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *out->texts, "a list of the configuration", &out->texts));
    for (size_t i = 0; i < count; i++) {
        ZOFF_TRY(zoff_base_mem_copy_text(texts[i], &out->texts[i]));
        out->count = i + 1;
    }
    return ZOFF_OK;
}

static zoff_status copy_patterns(zoff_settings *s)
{
    zoff_config_values *v = &s->values;
    zoff_patterns *lists[ZOFF_NAMED_KEYS] = {&v->fp32_moments, &v->no_decay, &v->muon_params, &v->adam_params, &v->muon_rows};
    for (size_t i = 0; i < ZOFF_NAMED_KEYS; i++) {
        ZOFF_TRY(copy_texts(lists[i]->texts, lists[i]->count, &s->named[i]));
        lists[i]->texts = (const char *const *)s->named[i].texts;
    }
    return ZOFF_OK;
}

static void free_texts(zoff_text_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        zoff_base_mem_free(list->texts[i]);
    zoff_base_mem_free(list->texts);
}

/* A block of 8 bits has one scale, which a number that is not finite would spoil. */
static zoff_status check_moments(const zoff_settings *s)
{
    const zoff_moments moments = (zoff_moments)s->values.moments;
    const bool in_blocks = zoff_adam_moments_in_blocks(moments, ZOFF_MOMENT_M);
    ZOFF_FAIL_IF(
        in_blocks && s->values.hyper.optimizer != ZOFF_OPTIMIZER_ADAM, ZOFF_ERR_INVALID,
        "zoff.moments is \"%s\", which is for Adam and AdamW: set it to \"bf16\" or \"fp32\", or optimizer.type to \"AdamW\"",
        zoff_adam_moments_name(moments));
    ZOFF_FAIL_IF(
        in_blocks && !s->values.skip_nonfinite, ZOFF_ERR_INVALID,
        "zoff.moments is \"%s\", but zoff.skip_nonfinite is false: a gradient that is not finite would spoil a block of "
        "1,024 moments; set zoff.skip_nonfinite to true",
        zoff_adam_moments_name(moments));
    return ZOFF_OK;
}

/* Other ranks, and devices, write weights at moments of their own. A forgotten wait is found with one rank as well. */
static zoff_status check_watched(const zoff_engine *e)
{
    ZOFF_FAIL_IF(
        e->settings.values.check_use && (zoff_comm_size(e->comm) > 1 || !zoff_accel_in_place(e->accel)), ZOFF_ERR_UNSUPPORTED,
        "zoff.check_use is true, which is for one rank with weights in host memory: run the trainer so once, or set it "
        "to false");
    return ZOFF_OK;
}

static zoff_status merge_tier(zoff_settings *s, const zoff_engine_opts *opts)
{
    s->tier = opts->state_tier != ZOFF_TIER_AUTO ? opts->state_tier : opts->nvme_path ? ZOFF_TIER_NVME : s->values.state_tier;
    ZOFF_FAIL_IF(s->tier != ZOFF_TIER_HOST && s->tier != ZOFF_TIER_NVME, ZOFF_ERR_INVALID,
                 "zoff_engine_create: state_tier %d is not a zoff_tier", (int)opts->state_tier);
    if (opts->nvme_path)
        ZOFF_TRY(copy_texts(&opts->nvme_path, 1, &s->paths));
    else
        ZOFF_TRY(copy_texts(s->values.nvme_paths, s->values.nvme_path_count, &s->paths));
    /* Without a folder of their own, weights go to the folders of the states. */
    const zoff_weight_values *weights = &s->values.weights;
    if (weights->path_count)
        ZOFF_TRY(copy_texts(weights->paths, weights->path_count, &s->weight_paths));
    else
        ZOFF_TRY(copy_texts((const char *const *)s->paths.texts, s->paths.count, &s->weight_paths));
    ZOFF_FAIL_IF(weights->tier == ZOFF_TIER_NVME && s->weight_paths.count == 0, ZOFF_ERR_INVALID,
                 "the weights go to NVMe, but no folder is given: set zero_optimization.offload_param.nvme_path");
    ZOFF_FAIL_IF(s->values.persist && s->tier != ZOFF_TIER_NVME, ZOFF_ERR_INVALID,
                 "zoff.persist keeps states in files, but the states are in DRAM: set "
                 "zero_optimization.offload_optimizer.device to \"nvme\", or persist to false");
    ZOFF_FAIL_IF(opts->persist_t < 0, ZOFF_ERR_INVALID,
                 "zoff_engine_opts.persist_t is %lld; expected a number of updates, or 0 for the last commit",
                 (long long)opts->persist_t);
    ZOFF_FAIL_IF(
        opts->persist_t && !s->values.persist, ZOFF_ERR_INVALID,
        "zoff_engine_opts.persist_t is %lld, but zoff.persist is false, so there are no states to open: set it to true",
        (long long)opts->persist_t);
    ZOFF_FAIL_IF(s->tier == ZOFF_TIER_NVME && s->paths.count == 0, ZOFF_ERR_INVALID,
                 "the states go to NVMe, but no folder is given: set zero_optimization.offload_optimizer.nvme_path");
    return ZOFF_OK;
}

/* Folders without a device have no effect, as in DeepSpeed. Files that name `cpu` keep them for a change to `nvme`. */
static void warn_of_unused_folders(const zoff_settings *s, const zoff_config *config, const zoff_engine_opts *opts)
{
    const char *device = "zero_optimization.offload_optimizer.device";
    if (opts->state_tier == ZOFF_TIER_AUTO && s->tier != ZOFF_TIER_NVME && s->values.weights.tier != ZOFF_TIER_NVME &&
        s->paths.count && strcmp(zoff_config_source(config, device), "default") == 0)
        ZOFF_WARN("a folder for state files is given (%.200s), but %s is not: the states stay in DRAM. Set it to \"nvme\"",
                  s->paths.texts[0], device);
}

static zoff_status copy_training_words(zoff_settings *s, const zoff_config *config, const zoff_engine_opts *opts)
{
    char words[1024], all[1280];
    zoff_config_training_words(config, words, sizeof words);
    snprintf(all, sizeof all, "%s, states on \"%s\" (%s)", words, s->tier == ZOFF_TIER_NVME ? "nvme" : "cpu",
             opts->state_tier != ZOFF_TIER_AUTO ? "zoff_engine_opts.state_tier"
             : opts->nvme_path                  ? "zoff_engine_opts.nvme_path"
                                                : zoff_config_source(config, "zero_optimization.offload_optimizer.device"));
    return zoff_base_mem_copy_text(all, &s->words.training);
}

/* Copy everything that is needed after the configuration is closed. */
static zoff_status merge(zoff_engine *e, zoff_config *config, const zoff_engine_opts *opts)
{
    zoff_settings *s = &e->settings;
    ZOFF_TRY(zoff_config_values_get(config, zoff_comm_size(e->comm), &s->values));
    ZOFF_TRY(zoff_config_autos_check(config, zoff_comm_rank(e->comm) == 0));
    s->progress_thread = opts->progress_thread || s->values.background_threads;
    ZOFF_TRY(zoff_engine_progress_thread_check(e));
    zoff_transfer_route_choose_rest(&e->transfer);
    e->io.commits_together = s->values.persist && zoff_comm_size(e->comm) > 1;
    ZOFF_TRY(merge_tier(s, opts));
    if (zoff_comm_rank(e->comm) == 0)
        warn_of_unused_folders(s, config, opts);
    e->io.opening =
        (zoff_engine_opening){.persist_t = opts->persist_t, .progress = opts->progress, .progress_ctx = opts->progress_ctx};
    ZOFF_TRY(copy_training_words(s, config, opts));
    ZOFF_TRY(zoff_config_dump_json(config, &s->words.configuration));
    ZOFF_TRY(zoff_base_mem_copy_text(s->values.aio_backend, &s->aio_backend));
    if (zoff_comm_size(e->comm) > 1)
        ZOFF_TRY(zoff_config_dump_agreed(config, &s->agreed_keys, &s->agreed_bytes));
    const char *half = s->values.fp16.enabled ? "fp16.enabled" : "bf16.enabled";
    ZOFF_TRY(zoff_base_mem_copy_text(zoff_config_source(config, half), &s->half_source));
    /* Ranks of a host may share a default queue depth; 0 says so. */
    if (strcmp(zoff_config_source(config, "aio.queue_depth"), "default") == 0)
        s->values.aio_depth = 0;
    ZOFF_TRY(copy_patterns(s));
    s->values.nvme_paths = NULL;
    s->values.weights.paths = NULL;
    s->values.aio_backend = NULL;
    s->host_bytes = opts->host_bytes ? opts->host_bytes : s->values.host_bytes;
    s->host_bytes_key = opts->host_bytes ? "zoff_engine_opts.host_bytes" : "zoff.host_memory";
    s->chunk_elements = opts->chunk_elements ? opts->chunk_elements : s->values.chunk_elements;
    unsigned threads = opts->threads ? opts->threads : s->values.threads;
    ZOFF_FAIL_IF(threads > ZOFF_TEAM_MOST, ZOFF_ERR_INVALID, "%u threads: %s may be at most %u", threads,
                 opts->threads ? "zoff_engine_opts.threads" : "zoff.threads", (unsigned)ZOFF_TEAM_MOST);
    ZOFF_FAIL_IF(!s->values.skip_nonfinite && s->values.fp16.enabled, ZOFF_ERR_INVALID,
                 "zoff.skip_nonfinite is false, but fp16.enabled is true: the loss scale is found by skipping steps whose "
                 "gradients are not finite; set zoff.skip_nonfinite to true, or use bf16");
    zoff_status status = zoff_adam_hyper_check(&s->values.hyper, 1);
    if (status < 0)
        return zoff_base_status_prefix(status, "optimizer.params: ");
    ZOFF_TRY(check_moments(s));
    ZOFF_TRY(check_watched(e));
    s->threads = zoff_base_team_count(threads, &s->threads_why);
    s->threads_asked = threads != 0;
    zoff_base_team_prefer(zoff_accel_numa_node(e->accel));
    zoff_model_loss_scale_start(&e->model);
    return ZOFF_OK;
}

zoff_status zoff_engine_options_merge(zoff_engine *e, const zoff_engine_opts *opts)
{
    zoff_engine_opts known = ZOFF_ENGINE_OPTS_INIT;
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_engine_opts", "ZOFF_ENGINE_OPTS_INIT", opts, &known, sizeof known));
    ZOFF_TRY(open_surroundings(e, &known));
    zoff_config *config = known.config;
    if (!config)
        ZOFF_TRY(zoff_config_open(known.config_path, &config));
    zoff_status status = merge(e, config, &known);
    if (config != known.config)
        zoff_config_close(config);
    return status < 0 ? status : zoff_transfer_route_check_ratio(&e->transfer);
}

void zoff_engine_options_free(zoff_engine *e)
{
    zoff_settings *s = &e->settings;
    if (e->settings.owns_accel)
        zoff_accel_close(e->accel);
    if (e->settings.owns_comm)
        zoff_comm_close(e->comm);
    for (size_t i = 0; i < ZOFF_NAMED_KEYS; i++)
        free_texts(&s->named[i]);
    free_texts(&s->paths);
    free_texts(&s->weight_paths);
    zoff_base_mem_free(s->aio_backend);
    zoff_base_mem_free(s->half_source);
    zoff_base_mem_free(s->words.training);
    zoff_base_mem_free(s->words.configuration);
    zoff_base_mem_free(s->agreed_keys);
}
