/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c: the parameters of each scheduler.type: which ones it has, which ones it needs, and their defaults. */
#include "config_priv.h"
#include "log.h"
#include "try.h"

#include <string.h>

#define PARAMS "scheduler.params."

/* Every parameter, with the schedules that have it, and those that need it. */
static const struct {
    const char *path, *types, *needed_by;
} USES[] = {
    {PARAMS "warmup_min_lr", "WarmupLR|WarmupDecayLR", ""},
    {PARAMS "warmup_max_lr", "WarmupLR|WarmupDecayLR", ""},
    {PARAMS "warmup_num_steps", "WarmupLR|WarmupDecayLR|WarmupCosineLR", ""},
    {PARAMS "warmup_type", "WarmupLR|WarmupDecayLR|WarmupCosineLR", ""},
    {PARAMS "total_num_steps", "WarmupDecayLR|WarmupCosineLR", "WarmupDecayLR|WarmupCosineLR"},
    {PARAMS "warmup_min_ratio", "WarmupCosineLR", ""},
    {PARAMS "cos_min_ratio", "WarmupCosineLR", ""},
    {PARAMS "cycle_min_lr", "OneCycle", "OneCycle"},
    {PARAMS "cycle_max_lr", "OneCycle", "OneCycle"},
    {PARAMS "decay_lr_rate", "OneCycle", ""},
    {PARAMS "cycle_first_step_size", "OneCycle", ""},
    {PARAMS "cycle_second_step_size", "OneCycle", ""},
    {PARAMS "cycle_first_stair_count", "OneCycle", ""},
    {PARAMS "cycle_second_stair_count", "OneCycle", ""},
    {PARAMS "decay_step_size", "OneCycle", ""},
    {PARAMS "cycle_momentum", "OneCycle", ""},
    {PARAMS "cycle_min_mom", "OneCycle", ""},
    {PARAMS "cycle_max_mom", "OneCycle", ""},
    {PARAMS "decay_mom_rate", "OneCycle", ""},
    {PARAMS "lr_range_test_min_lr", "LRRangeTest", ""},
    {PARAMS "lr_range_test_step_size", "LRRangeTest", ""},
    {PARAMS "lr_range_test_step_rate", "LRRangeTest", ""},
    {PARAMS "lr_range_test_staircase", "LRRangeTest", ""},
};
enum { USE_COUNT = sizeof USES / sizeof USES[0] };

static bool is_in(const char *list, const char *type)
{
    return type && zoff_config_schema_in_list(list, type, NULL, NULL);
}

static const char *type_of(const zoff_config *config)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, "scheduler.type");
    return zoff_config_value_has(cell) ? cell->texts[0] : NULL;
}

bool zoff_config_schedule_has(const zoff_config *config, const char *path)
{
    for (size_t i = 0; i < USE_COUNT; i++) {
        if (strcmp(USES[i].path, path) == 0)
            return is_in(USES[i].types, type_of(config));
    }
    return true;
}

bool zoff_config_schedule_needs(const zoff_config *config, const char *path)
{
    for (size_t i = 0; i < USE_COUNT; i++) {
        if (strcmp(USES[i].path, path) == 0)
            return is_in(USES[i].needed_by, type_of(config)) && !zoff_config_value_has(zoff_config_value_find(config, path));
    }
    return false;
}

static zoff_status check_needs(const zoff_config *config, const char *type)
{
    for (size_t i = 0; i < USE_COUNT; i++) {
        char expected[64];
        if (!zoff_config_schedule_needs(config, USES[i].path))
            continue;
        const zoff_config_cell *given = zoff_config_value_given(config, USES[i].path);
        /* zoff_config_autos_check() checks again, because a trainer may set the value later */
        if (given && given->kind == ZOFF_CELL_AUTO) {
            zoff_config_value_find(config, USES[i].path)->kind = ZOFF_CELL_AUTO;
            continue;
        }
        zoff_config_schema_expected(zoff_config_schema_find(USES[i].path), expected, sizeof expected);
        return zoff_base_status_fail(
            ZOFF_ERR_INVALID, "%s: scheduler.type: %s needs %s; expected %s: give it in the file or with zoff_config_set()",
            zoff_config_value_source(zoff_config_value_find(config, "scheduler.type")), type, USES[i].path, expected);
    }
    return ZOFF_OK;
}

/* As in DeepSpeed, WarmupDecayLR has a number as default for warmup_max_lr; null means the group's own lr, as elsewhere. */
static void settle_decay(const zoff_config *config, const char *type)
{
    if (is_in("WarmupDecayLR", type) && !zoff_config_value_given(config, PARAMS "warmup_max_lr"))
        *zoff_config_value_find(config, PARAMS "warmup_max_lr") = (zoff_config_cell){.kind = ZOFF_CELL_VALUE, .number = 0.001};
}

static void warn_unused(const zoff_config *config, const char *type)
{
    for (size_t i = 0; i < USE_COUNT; i++) {
        const zoff_config_cell *cell = zoff_config_value_given(config, USES[i].path);
        if (zoff_config_value_has(cell) && !is_in(USES[i].types, type))
            ZOFF_WARN("%s: %s has no effect %s%s", cell->source, USES[i].path,
                      type ? "with scheduler.type " : "without scheduler.type", type ? type : "");
    }
}

static void warn_long_warmup(const zoff_config *config, const char *type)
{
    const zoff_config_cell *total = zoff_config_value_find(config, PARAMS "total_num_steps");
    const zoff_config_cell *warmup = zoff_config_value_find(config, PARAMS "warmup_num_steps");
    if (is_in("WarmupDecayLR|WarmupCosineLR", type) && zoff_config_value_has(total) && total->integer < warmup->integer)
        ZOFF_WARN("%s: scheduler.params.total_num_steps %lld is less than warmup_num_steps %lld (%s): the warm-up never ends",
                  zoff_config_value_source(total), (long long)total->integer, (long long)warmup->integer,
                  zoff_config_value_source(warmup));
}

static void warn_momentum(const zoff_config *config, const char *type)
{
    const zoff_config_cell *momentum = zoff_config_value_find(config, PARAMS "cycle_momentum");
    const bool has_betas = zoff_config_optimizer_has(config, "optimizer.params.betas") &&
                           !zoff_config_optimizer_has(config, "optimizer.params.adam_lr");
    if (is_in("OneCycle", type) && momentum->integer && !has_betas)
        ZOFF_WARN(
            "%s: scheduler.params.cycle_momentum has no effect with optimizer.type %s, whose betas no cycle moves; set it to "
            "false to avoid this warning",
            zoff_config_value_source(momentum), zoff_config_value_find(config, "optimizer.type")->texts[0]);
}

zoff_status zoff_config_schedule_settle(zoff_config *config)
{
    const char *type = type_of(config);
    ZOFF_TRY(check_needs(config, type));
    settle_decay(config, type);
    if (config->has_warned)
        return ZOFF_OK;
    warn_long_warmup(config, type);
    warn_momentum(config, type);
    warn_unused(config, type);
    return ZOFF_OK;
}
