/* SPDX-License-Identifier: Apache-2.0 */
/* autos.c: checks the "auto" values that are left when an engine is created and that change the training result. A trainer for
 * DeepSpeed's files usually sets such values. If it has not, zoff uses the default with a warning, or fails if there is none.
 */
#include "config_priv.h"
#include "log.h"
#include "try.h"

#include <string.h>

/* Keys outside of these sections decide only where states live and how they move, so they change no number. */
static bool decides_training(const char *path)
{
    static const char *const PREFIXES[] = {"optimizer", "scheduler",         "fp16",
                                           "bf16",      "gradient_clipping", "gradient_accumulation_steps"};
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        const size_t bytes = strlen(PREFIXES[i]);
        if (strncmp(path, PREFIXES[i], bytes) == 0 && (path[bytes] == 0 || path[bytes] == '.'))
            return true;
    }
    return false;
}

/* Whether a key has an effect. Parameters of other optimizers or schedules have none, nor has the loss scale without fp16, nor
 * gradient_accumulation_steps if both batch sizes are given. */
static bool is_used(const zoff_config *config, const char *path)
{
    if (strcmp(path, "gradient_accumulation_steps") == 0)
        return !(zoff_config_value_has(zoff_config_value_given(config, "train_batch_size")) &&
                 zoff_config_value_has(zoff_config_value_given(config, "train_micro_batch_size_per_gpu")));
    if (strncmp(path, "fp16.", 5) == 0 && strcmp(path, "fp16.enabled") != 0)
        return zoff_config_value_find(config, "fp16.enabled")->integer != 0;
    return zoff_config_optimizer_has(config, path) && zoff_config_schedule_has(config, path);
}

/* Append the value that an engine uses for a key. */
static void add_taken(const zoff_config *config, const zoff_config_key *row, zoff_config_sink *sink)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, row->path);
    char value[256] = "null (nothing is set)";
    if (row->type == ZOFF_KEY_SECTION)
        snprintf(value, sizeof value, "the defaults of its keys");
    else if (strcmp(row->path, "scheduler.params.warmup_max_lr") == 0 && cell->kind != ZOFF_CELL_VALUE)
        snprintf(value, sizeof value, "optimizer.params.lr");
    else if (cell->kind == ZOFF_CELL_VALUE)
        zoff_config_value_print(row, cell, value, sizeof value);
    zoff_config_value_append(sink, "%s%s = %s (%s)", sink->used ? ", " : "", row->path, value,
                             zoff_config_value_place(zoff_config_value_given(config, row->path)));
}

zoff_status zoff_config_autos_check(const zoff_config *config, bool warns)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    char text[3000];
    zoff_config_sink sink = {text, sizeof text, 0};
    for (size_t i = 0; i < count; i++) {
        const char *path = table[i].path;
        const zoff_config_cell *given = zoff_config_value_given(config, path);
        if (table[i].class_ != ZOFF_CLASS_HONOURED || !given || given->kind != ZOFF_CELL_AUTO || !decides_training(path) ||
            !is_used(config, path))
            continue;
        char expected[64];
        zoff_config_schema_expected(&table[i], expected, sizeof expected);
        ZOFF_FAIL_IF(zoff_config_schedule_needs(config, path), ZOFF_ERR_INVALID,
                     "%s: %s: \"auto\" leaves this key to the trainer, and zoff cannot compute it; expected %s: call "
                     "zoff_config_set(config, \"%s\", ...) before zoff_engine_create(), give it in the file, or use --set of "
                     "the zoff command",
                     zoff_config_value_place(given), path, expected, path);
        add_taken(config, &table[i], &sink);
    }
    if (sink.used && warns)
        ZOFF_WARN("%s: \"auto\" leaves these keys to the trainer, which has not set them; training uses %s: set them with "
                  "zoff_config_set() or in the file",
                  config->name, text);
    return ZOFF_OK;
}

/* ---- text for the start of a log ---- */

static void add_cell(const zoff_config *config, const char *path, zoff_config_sink *sink)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, path);
    char value[256];
    zoff_config_value_print(zoff_config_schema_find(path), cell, value, sizeof value);
    zoff_config_value_append(sink, "%s (%s)", value, zoff_config_value_source(cell));
}

/* An optimizer of matrices has two rates. Each that is not given is lr, or has a default of its own. */
static void add_rates(const zoff_config *config, zoff_config_sink *sink)
{
    static const char *const RATES[] = {"lr", "muon_lr", "adam_lr"};
    const bool has_lr = zoff_config_value_has(zoff_config_value_given(config, "optimizer.params.lr")) ||
                        !zoff_config_optimizer_has(config, "optimizer.params.muon_lr");
    for (size_t i = 0; i < sizeof RATES / sizeof RATES[0]; i++) {
        char path[32];
        snprintf(path, sizeof path, "optimizer.params.%s", RATES[i]);
        const bool is_own = zoff_config_optimizer_has(config, path) &&
                            (!has_lr || zoff_config_value_has(zoff_config_value_given(config, path)));
        if (i == 0 ? !has_lr : !is_own)
            continue;
        zoff_config_value_append(sink, ", %s ", RATES[i]);
        add_cell(config, path, sink);
    }
}

void zoff_config_training_words(const zoff_config *config, char *dst, size_t dst_bytes)
{
    zoff_config_sink sink = {dst, dst_bytes, 0};
    const zoff_config_cell *clip = zoff_config_value_find(config, "gradient_clipping");
    zoff_config_value_append(&sink, "optimizer.type ");
    add_cell(config, "optimizer.type", &sink);
    add_rates(config, &sink);
    zoff_config_value_append(&sink, ", scheduler.type ");
    add_cell(config, "scheduler.type", &sink);
    zoff_config_value_append(&sink, ", gradient_clipping ");
    add_cell(config, "gradient_clipping", &sink);
    if (!(clip->number > 0))
        zoff_config_value_append(&sink, ": off");
}
