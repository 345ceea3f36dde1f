/* SPDX-License-Identifier: Apache-2.0 */
/* dump.c: writes the effective configuration: as text, each value with its source; as JSON; and the keys that must be the same
 * on all ranks. */
#include "config_priv.h"
#include "mem.h"
#include "try.h"

#include <string.h>

/* Only keys that zoff acts on are compared: ignored keys change no number, and refused keys pass only with a value that changes
 * nothing. */
static bool must_agree(const zoff_config_key *row)
{
    return row->class_ == ZOFF_CLASS_HONOURED && row->type != ZOFF_KEY_SECTION && !row->may_differ;
}

static zoff_status print_agreed(const zoff_config *config, zoff_config_sink *sink)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    for (size_t i = 0; i < count; i++) {
        char *value;
        if (!must_agree(&table[i]))
            continue;
        ZOFF_TRY(zoff_config_value_text(&table[i], &config->effective[i], &value));
        zoff_config_value_append(sink, "%s%c%s%c", table[i].path, 0, value, 0);
        zoff_base_mem_free(value);
    }
    return ZOFF_OK;
}

/* Print to memory of the right size: the first call counts the bytes. */
static zoff_status print_all(const zoff_config *config, zoff_status (*print)(const zoff_config *, zoff_config_sink *),
                             const char *what, char **out, size_t *out_bytes)
{
    zoff_config_sink sink = {0};
    char *text;
    ZOFF_TRY(print(config, &sink));
    ZOFF_TRY(zoff_base_mem_alloc(sink.used + 1, 1, what, &text));
    sink = (zoff_config_sink){.dst = text, .dst_bytes = sink.used + 1};
    const zoff_status status = print(config, &sink);
    if (status < 0) {
        zoff_base_mem_free(text);
        return status;
    }
    *out = text;
    *out_bytes = sink.used;
    return ZOFF_OK;
}

zoff_status zoff_config_dump_agreed(const zoff_config *config, char **out, size_t *out_bytes)
{
    return print_all(config, print_agreed, "the keys that ranks compare", out, out_bytes);
}

/* Whether the dump shows a key: all keys that zoff acts on, except the parameters of other optimizers and old names; and every
 * other key that was given. A refused key can be given only with a supported value. */
static bool is_shown(const zoff_config *config, const zoff_config_key *row, size_t i)
{
    if (row->type == ZOFF_KEY_SECTION || row->type == ZOFF_KEY_ANY)
        return false;
    static const char OLD[] = "zero_optimization.cpu_offload"; /* prefix of two old names, cpu_offload and cpu_offload_params */
    bool old_name = strncmp(row->path, OLD, sizeof OLD - 1) == 0;
    bool acts = row->class_ == ZOFF_CLASS_HONOURED && !old_name && zoff_config_optimizer_has(config, row->path);
    return acts || config->effective[i].source;
}

static zoff_status add_value(zoff_config_sink *sink, const zoff_config_key *row, const zoff_config_cell *cell)
{
    char *value;
    ZOFF_TRY(zoff_config_value_text(row, cell, &value));
    int pad = 72 - (int)strlen(row->path) - (int)strlen(value);
    zoff_config_value_append(sink, "%s = %s%*s # %s\n", row->path, value, pad > 0 ? pad : 1, "",
                             zoff_config_value_source(cell));
    zoff_base_mem_free(value);
    return ZOFF_OK;
}

zoff_status zoff_config_dump(const zoff_config *config, char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF(!config || (!dst && dst_bytes) || !out_bytes, ZOFF_ERR_INVALID,
                 "zoff_config_dump: config and out_bytes must not be NULL, nor dst while dst_bytes is not 0");
    ZOFF_FAIL_IF(!config->is_resolved, ZOFF_ERR_STATE, "zoff_config_dump: call zoff_config_resolve() first");
    size_t count, ignored = 0;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    zoff_config_sink sink = {dst, dst_bytes, 0};
    zoff_config_value_append(&sink, "# %s, resolved for %u rank%s\n", config->name, config->world_size,
                             config->world_size == 1 ? "" : "s");
    for (size_t i = 0; i < count; i++) {
        if (is_shown(config, &table[i], i))
            ZOFF_TRY(add_value(&sink, &table[i], &config->effective[i]));
    }
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ == ZOFF_CLASS_IGNORED && config->effective[i].source)
            zoff_config_value_append(&sink, "%s#   %s (%s): %s\n", ignored++ ? "" : "# ignored:\n", table[i].path,
                                     zoff_config_value_source(&config->effective[i]), table[i].help);
    }
    *out_bytes = sink.used;
    return ZOFF_OK;
}

/* ---- as JSON ---- */

/* Keys with their values as one object. */
static zoff_status print_json(const zoff_config *config, zoff_config_sink *sink)
{
    size_t count, keys = 0;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    zoff_config_value_append(sink, "{");
    for (size_t i = 0; i < count; i++) {
        char *value;
        if (!is_shown(config, &table[i], i))
            continue;
        ZOFF_TRY(zoff_config_value_text(&table[i], &config->effective[i], &value));
        const bool is_word = strcmp(value, "auto") == 0; /* any other value is printed as valid JSON already */
        zoff_config_value_append(sink, "%s\"%s\": %s%s%s", keys++ ? ", " : "", table[i].path, is_word ? "\"" : "", value,
                                 is_word ? "\"" : "");
        zoff_base_mem_free(value);
    }
    zoff_config_value_append(sink, "}");
    return ZOFF_OK;
}

zoff_status zoff_config_dump_json(const zoff_config *config, char **out)
{
    size_t bytes;
    return print_all(config, print_json, "the configuration as text", out, &bytes);
}
