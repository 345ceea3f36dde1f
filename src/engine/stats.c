/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c: statistics of the work done and the time it took, for the log and as JSON. */
#include "engine_priv.h"

#include "clock.h"
#include "env.h"
#include "log.h"
#include "try.h"

#include <stdio.h>

void zoff_engine_stats_count_device_anew(zoff_engine *e)
{
    e->transfer.device.read_bytes = e->transfer.device.write_bytes = 0;
    e->lending.there.link.read_bytes = e->lending.there.link.write_bytes = 0;
}

void zoff_engine_stats_add(zoff_engine *e, const zoff_step_info *info)
{
    zoff_engine_totals *t = &e->totals;
    t->micro_steps++;
    t->steps += e->run.last && !info->skipped;
    t->skipped += info->skipped;
    t->host_read_bytes += info->bytes.host_read;
    t->host_write_bytes += info->bytes.host_written;
    t->nvme_read_bytes += info->bytes.nvme_read;
    t->nvme_write_bytes += info->bytes.nvme_written;
    t->nvme_ahead_bytes += info->bytes.nvme_read_ahead;
    t->device_read_bytes += info->bytes.device_read;
    t->device_write_bytes += info->bytes.device_written;
    t->buckets.all += info->buckets.all;
    t->buckets.speculated += info->buckets.speculated;
    t->buckets.committed += info->buckets.committed;
    t->buckets.redone += info->buckets.redone;
    const zoff_step_seconds *from = &info->seconds;
    t->seconds.total += from->total;
    t->seconds.visible += from->visible;
    t->seconds.measure += from->measure;
    t->seconds.update += from->update;
    t->seconds.checksum += from->checksum;
    t->seconds.io_wait += from->io_wait;
    t->seconds.save_wait += from->save_wait;
    t->seconds.orthogonalize += from->orthogonalize;
}

void zoff_engine_stats_come(zoff_engine *e)
{
    zoff_step_clock *c = &e->run.clock;
    if (e->threads.in_progress || c->left == 0)
        return;
    c->hidden += zoff_base_clock_seconds() - c->left - c->queued;
    c->left = 0;
}

void zoff_engine_stats_leave(zoff_engine *e)
{
    if (e->threads.in_progress)
        return;
    e->run.clock.left = zoff_base_clock_seconds();
    e->run.clock.queued = 0;
}

/* Log conditions of the machine and the environment that affect the speed of a step. */
static void log_surroundings(void)
{
    zoff_env_ranks ranks;
    const char *off = zoff_base_map_huge_pages_off("");
    zoff_base_env_ranks(&ranks);
    if (ranks.count > 1)
        ZOFF_INFO("rank %u of %u on this host (by the variables of %s): the default of zoff.threads is this rank's share of "
                  "the cores",
                  ranks.index, ranks.count, ranks.launcher);
    if (off)
        ZOFF_INFO("huge pages are disabled: %s is \"never\"; steps are up to 5 %% slower than with \"madvise\"", off);
}

static void log_weights(const zoff_engine *e, const zoff_plan_info *info)
{
    const bool streams = e->settings.values.weights.tier == ZOFF_TIER_NVME;
    if (streams && !e->lending.store)
        ZOFF_WARN(
            "offload_param.device is \"nvme\", but no parameter is engine_owned: all weights stay in the program's memory");
    else if (e->lending.store && streams)
        ZOFF_INFO("%s of weights are engine-owned: %s in files under %s%s, %s of DRAM for buffers, cached and lent weights",
                  zoff_base_words_bytes(info->weight_bytes), zoff_base_words_bytes(info->weight_nvme_bytes),
                  e->settings.weight_paths.texts[0], e->settings.weight_paths.count > 1 ? " and others" : "",
                  zoff_base_words_bytes(info->weight_host_bytes));
    else if (e->lending.store)
        ZOFF_INFO("%s of weights are engine-owned, in %s", zoff_base_words_bytes(info->weight_bytes), e->lending.home->name);
}

static void log_groups(const zoff_engine *e)
{
    const zoff_weight_group *group = &e->lending.group;
    if (!zoff_lending_secondary_is(&e->lending))
        return;
    if (e->lending.store)
        ZOFF_INFO("each group of %u ranks stores all engine-owned weights once more, and fetches them within the group "
                  "(zero_hpz_partition_size)",
                  group->members);
    else
        ZOFF_WARN("zero_hpz_partition_size %u has no effect: no parameter is engine_owned, so every rank has all weights",
                  group->members);
}

/* Types are named like the sections of the configuration. */
static void warn_types(const zoff_engine *e)
{
    const zoff_config_values *v = &e->settings.values;
    const zoff_dtype wanted = v->fp16.enabled ? ZOFF_F16 : ZOFF_BF16;
    for (size_t i = 0; (v->fp16.enabled || v->wants_bf16) && i < e->model.param_count; i++) {
        if (e->model.params[i].dtype == wanted || e->model.params[i].frozen)
            continue;
        ZOFF_WARN("%s.enabled is true (%s), but %s is %s: the program sets the type of weights in zoff_param_desc.dtype",
                  zoff_adam_dtype_name(wanted), e->settings.half_source, e->model.params[i].name,
                  zoff_adam_dtype_name(e->model.params[i].dtype));
        break;
    }
}

/* With several ranks: what rank 0 has. */
static void log_ranks(const zoff_engine *e, const zoff_plan_info *info)
{
    if (!e->transfer.ranks.reduce)
        return;
    ZOFF_INFO("rank 0 of %u (%s), ZeRO stage %u: this rank updates %llu elements; %s of DRAM for gradient sums, %s for "
              "buffers of the exchange",
              zoff_comm_size(e->comm), e->comm->info.backend, e->settings.values.zero_stage, (unsigned long long)info->elements,
              zoff_base_words_bytes(info->accumulator_bytes), zoff_base_words_bytes(info->exchange_bytes));
}

static void log_matrices(const zoff_plan_info *info)
{
    if (info->matrix_elements)
        ZOFF_INFO("matrices: this rank updates %llu elements of them, with %s of DRAM for directions and products, and %.4g "
                  "GFLOP to orthogonalize in a step",
                  (unsigned long long)info->matrix_elements, zoff_base_words_bytes(info->matrix_bytes),
                  (double)info->matrix_flop * 1e-9);
}

static void log_device(const zoff_engine *e, const zoff_plan_info *info)
{
    if (e->transfer.device.down)
        ZOFF_INFO("weights and gradients are on accelerator \"%s\"; %s of DRAM for downloaded gradients and uploads of weights",
                  zoff_accel_name(e->accel), zoff_base_words_bytes(info->device_host_bytes));
    if (e->transfer.device.tier.count)
        ZOFF_INFO("the states of %zu of %zu chunks stay on accelerator \"%s\", in %s of its memory",
                  e->transfer.device.tier.count, e->plan.chunk_count, zoff_accel_name(e->accel),
                  zoff_base_words_bytes(info->device_bytes));
}

/* Write the types of the trained weights: "bf16", "bf16 and fp32". */
static void type_words(const zoff_engine *e, char *dst, size_t dst_bytes)
{
    size_t used = 0;
    dst[0] = 0;
    for (zoff_dtype dtype = ZOFF_F32; dtype <= ZOFF_BF16; dtype++) {
        for (size_t i = 0; i < e->model.param_count; i++) {
            if (e->model.params[i].dtype != dtype || e->model.params[i].frozen)
                continue;
            used += (size_t)snprintf(dst + used, dst_bytes - used, "%s%s", used ? " and " : "", zoff_adam_dtype_name(dtype));
            break;
        }
    }
}

/* The decay, and how many parameters go without: "; " for none. */
static void decay_words(const zoff_engine *e, double decay, char *dst, size_t dst_bytes)
{
    size_t trained = 0, without = 0;
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        trained += !p->frozen;
        without += !p->frozen && zoff_model_params_named(&e->model, p) & ZOFF_NAMED_NO_DECAY;
    }
    dst[0] = 0;
    if (decay > 0 && without)
        snprintf(dst, dst_bytes, ", decay %.4g for all but %zu of %zu parameters", decay, without, trained);
    else if (decay > 0)
        snprintf(dst, dst_bytes, ", decay %.4g", decay);
}

/* One line says how the run trains, because a default that differs from the trainer's shows in losses only. */
static void tell_start(const zoff_engine *e, const zoff_plan_info *info)
{
    const zoff_config_values *v = &e->settings.values;
    const zoff_optimizer_hyper *h = e->model.group_count ? zoff_model_groups_own(&e->model, 0) : &v->hyper;
    const bool is_adamw = h->optimizer == ZOFF_OPTIMIZER_ADAM && h->decay == ZOFF_DECAY_DECOUPLED;
    char types[32], decay[96], clip[48] = "no clipping", groups[48] = "", files[96] = "DRAM", rest[48] = "";
    type_words(e, types, sizeof types);
    decay_words(e, h->weight_decay, decay, sizeof decay);
    if (zoff_adam_matrix_rules_of(h))
        snprintf(rest, sizeof rest, " (AdamW's %.6g)", h->adam_lr);
    if (v->clip_norm > 0)
        snprintf(clip, sizeof clip, "clip %.4g", v->clip_norm);
    if (e->model.group_count > 1)
        snprintf(groups, sizeof groups, " (group 0 of %zu)", e->model.group_count);
    if (info->tier == ZOFF_TIER_NVME)
        snprintf(files, sizeof files, "files, through %s of DRAM:", zoff_base_words_bytes(info->host_bytes));
    ZOFF_TELL("%s lr %.6g%s%s%s%s, %s, %s%s%s, states in %s %s, %u thread%s",
              is_adamw ? "AdamW" : zoff_model_groups_optimizer(h->optimizer, zoff_adam_hyper_states(h)), h->lr, rest,
              v->schedule.type == ZOFF_SCHEDULE_NONE ? "" : " with a scheduler", decay, groups, clip,
              *types ? types : "all frozen", *types ? " weights" : "", v->fp16.enabled ? " with a loss scale" : "", files,
              zoff_base_words_bytes(info->state_bytes), info->threads, info->threads == 1 ? "" : "s");
}

static void log_training(const zoff_engine *e)
{
    char types[32], groups[128] = "", moments[48] = "";
    size_t own = 0;
    for (size_t i = 0; i < e->model.group_count; i++)
        own += e->model.groups[i].set;
    if (own)
        snprintf(groups, sizeof groups, "; %zu of %zu groups have hyper-parameters of their own (zoff_engine_set_group())", own,
                 e->model.group_count);
    if (e->settings.values.moments != ZOFF_MOMENTS_F32)
        snprintf(moments, sizeof moments, ", moments %s (zoff.moments)",
                 zoff_adam_moments_name((zoff_moments)e->settings.values.moments));
    type_words(e, types, sizeof types);
    ZOFF_INFO("training: %s, weights %s (zoff_param_desc.dtype)%s%s", e->settings.words.training, *types ? types : "all frozen",
              moments, groups);
}

/* Rank 0 logs for all ranks. */
void zoff_engine_stats_log_start(const zoff_engine *e)
{
    zoff_plan plan;
    zoff_plan_info info;
    const zoff_planning planning = zoff_engine_planning(e);
    if (zoff_comm_rank(e->comm) != 0 || zoff_planning_budget_plan(&planning, &plan, &info) < 0)
        return;
    zoff_zero_plan_free(&plan);
    const char *unknown = zoff_base_log_unknown_level();
    if (unknown)
        ZOFF_WARN("ZOFF_LOG_LEVEL is \"%s\"; it may be error, warn, info, debug or trace", unknown);
    tell_start(e, &info);
    if (info.tier == ZOFF_TIER_NVME)
        ZOFF_INFO("%zu parameters, %llu elements; states of %s in files under %s%s, streamed through %s of DRAM (%u slots, %s "
                  "in huge pages; %s of the states stay there), %llu chunks; %u threads (%s), %s",
                  e->model.param_count, (unsigned long long)info.elements, zoff_base_words_bytes(info.state_bytes),
                  e->settings.paths.texts[0], e->settings.paths.count > 1 ? " and others" : "",
                  zoff_base_words_bytes(info.host_bytes), info.slots, zoff_base_words_bytes(e->totals.huge_page_bytes),
                  zoff_base_words_bytes(info.resident_bytes), (unsigned long long)info.chunk_count, info.threads,
                  e->settings.threads_why, zoff_isa());
    else
        ZOFF_INFO("%zu parameters, %llu elements; states of %s in DRAM (%s in huge pages); %u threads (%s), %s",
                  e->model.param_count, (unsigned long long)info.elements, zoff_base_words_bytes(info.state_bytes),
                  zoff_base_words_bytes(e->totals.huge_page_bytes), info.threads, e->settings.threads_why, zoff_isa());
    log_training(e);
    log_weights(e, &info);
    log_groups(e);
    log_ranks(e, &info);
    log_matrices(&info);
    log_device(e, &info);
    log_surroundings();
    warn_types(e);
    zoff_model_params_warn(&e->model);
    zoff_model_matrices_tell(&e->model, false);
}

/* Bytes written to the drive so far. With persistent files, all runs count, because all of them wear the drive. */
static uint64_t lifetime_bytes(const zoff_engine *e)
{
    zoff_store_stats now;
    if (!e->store)
        return 0;
    zoff_engine_stores_stats(e, &now);
    return now.lifetime_write_bytes ? now.lifetime_write_bytes : e->totals.nvme_write_bytes;
}

/* Buckets that were updated ahead of the step, as a part of a sentence; empty without. */
static void describe_ahead(const zoff_step_info *info, char *dst, size_t dst_bytes)
{
    const zoff_step_buckets *b = &info->buckets;
    dst[0] = 0;
    if (b->speculated)
        snprintf(dst, dst_bytes, "; %llu of %llu buckets ahead, %llu again", (unsigned long long)b->speculated,
                 (unsigned long long)b->all, (unsigned long long)b->redone);
}

/* The time for matrices, and the rate of their products on this rank; empty without matrices. */
static void describe_matrices(const zoff_engine *e, double seconds, char *dst, size_t dst_bytes)
{
    char rate[32] = "";
    dst[0] = 0;
    if (e->walk.matrices.all.flop > 0 && seconds > 0)
        snprintf(rate, sizeof rate, " (%.1f GFLOP/s)", e->walk.matrices.all.flop / seconds * 1e-9);
    if (e->plan.rounds.count)
        snprintf(dst, dst_bytes, " orthogonalize %.3f%s", seconds, rate);
}

void zoff_engine_stats_log_step(const zoff_engine *e, const zoff_step_info *info)
{
    char ahead[96], matrices[64];
    uint64_t every = e->settings.values.steps_per_print;
    if (!every || info->accumulated || info->skipped || (uint64_t)info->t % every || zoff_comm_rank(e->comm) != 0)
        return;
    describe_ahead(info, ahead, sizeof ahead);
    describe_matrices(e, info->seconds.orthogonalize, matrices, sizeof matrices);
    ZOFF_ASKED("step %lld, lr %.6g, norm %.6g, clip %.4g, DRAM %s read %s written, NVMe %s read %s written (%s in all), %.3f "
               "s, hidden %.3f: measure %.3f update %.3f%s checksums %.3f wait for disk %.3f%s",
               (long long)info->t, info->numbers.lr, info->numbers.grad_norm, info->numbers.clip_factor,
               zoff_base_words_bytes(info->bytes.host_read), zoff_base_words_bytes(info->bytes.host_written),
               zoff_base_words_bytes(info->bytes.nvme_read), zoff_base_words_bytes(info->bytes.nvme_written),
               zoff_base_words_bytes(lifetime_bytes(e)), info->seconds.total, info->seconds.total - info->seconds.visible,
               info->seconds.measure, info->seconds.update, matrices, info->seconds.checksum, info->seconds.io_wait, ahead);
}

/* Print seconds as integers, because the program may have set a locale with a decimal comma, which is invalid in JSON. */
static void print_seconds(const zoff_engine *e, char *dst, size_t dst_bytes)
{
    const zoff_step_seconds *t = &e->totals.seconds;
    const struct {
        const char *name;
        double seconds;
    } spent[] = {{"seconds", t->total},
                 {"hidden_seconds", t->total - t->visible},
                 {"measure_seconds", t->measure},
                 {"update_seconds", t->update},
                 {"io_wait_seconds", t->io_wait},
                 {"check_seconds", t->checksum},
                 {"save_wait_seconds", t->save_wait},
                 {"orthogonalize_seconds", t->orthogonalize}};
    const size_t count = sizeof spent / sizeof spent[0] - (e->plan.rounds.count == 0); /* the last one is for matrices */
    size_t used = 0;
    for (size_t i = 0; i < count && used < dst_bytes; i++) {
        const unsigned long long whole = (unsigned long long)spent[i].seconds;
        used += (size_t)snprintf(dst + used, dst_bytes - used, "%s\"%s\": %llu.%06llu", i ? ", " : "", spent[i].name, whole,
                                 (unsigned long long)((spent[i].seconds - (double)whole) * 1e6));
    }
}

zoff_status zoff_stats_print(const zoff_engine *e, char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || (!dst && dst_bytes), ZOFF_ERR_INVALID, "zoff_stats_print: engine and dst must not be NULL");
    const zoff_engine_totals *t = &e->totals;
    char seconds[512];
    print_seconds(e, seconds, sizeof seconds);
    int length = snprintf(dst, dst_bytes,
                          "{\"steps\": %llu, \"skipped\": %llu, \"micro_steps\": %llu, "
                          "\"host_read_bytes\": %llu, \"host_write_bytes\": %llu, "
                          "\"nvme_read_bytes\": %llu, \"nvme_write_bytes\": %llu, \"nvme_ahead_bytes\": %llu, "
                          "\"nvme_lifetime_write_bytes\": %llu, \"huge_page_bytes\": %llu, "
                          "\"device_read_bytes\": %llu, \"device_write_bytes\": %llu, "
                          "\"buckets\": %llu, \"speculated_buckets\": %llu, \"redone_buckets\": %llu, "
                          "%s}",
                          (unsigned long long)t->steps, (unsigned long long)t->skipped, (unsigned long long)t->micro_steps,
                          (unsigned long long)t->host_read_bytes, (unsigned long long)t->host_write_bytes,
                          (unsigned long long)t->nvme_read_bytes, (unsigned long long)t->nvme_write_bytes,
                          (unsigned long long)t->nvme_ahead_bytes, (unsigned long long)lifetime_bytes(e),
                          (unsigned long long)t->huge_page_bytes, (unsigned long long)t->device_read_bytes,
                          (unsigned long long)t->device_write_bytes, (unsigned long long)t->buckets.all,
                          (unsigned long long)t->buckets.speculated, (unsigned long long)t->buckets.redone, seconds);
    if (out_bytes)
        *out_bytes = length > 0 ? (size_t)length : 0;
    return ZOFF_OK;
}
