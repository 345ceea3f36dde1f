/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c: writes the schema as Markdown: the text of docs/CONFIG.md. */
#include "config_priv.h"
#include "try.h"

#include <string.h>

static const char INTRODUCTION[] =
    "# Configuration\n"
    "\n"
    "zoff reads the configuration file of DeepSpeed (`ds_config.json`). This page is generated from the\n"
    "table with which zoff parses it, and `zoff reference` prints it. The command `zoff check FILE` prints\n"
    "the effective configuration of a file, each value with its source, or the error with which an engine\n"
    "would refuse it.\n"
    "\n"
    "- **Three kinds of keys.** Most keys below change what zoff does. Other keys of DeepSpeed change\n"
    "  none of zoff's results; they are ignored, and one warning lists them. Values that would change\n"
    "  the result, but that zoff does not support, are refused with an error. An unknown key is an error\n"
    "  that names the nearest known key; `\"zoff\": {\"strict\": false}` makes it a warning. An unknown\n"
    "  key of the top level that resembles no known key is a warning: DeepSpeed ignores those.\n"
    "- **Remarks.** `//`, `#` and `/* */` comments and trailing commas are allowed. Keys that start\n"
    "  with `_`, `//` or `#`, and `$schema`, are remarks, too. Any other key may occur only once in its\n"
    "  object.\n"
    "- **Editors.** `zoff schema >zoff.schema.json` prints a JSON Schema of this table. VS Code takes it\n"
    "  by `\"json.schemas\": [{\"fileMatch\": [\"ds_config*.json\"], \"url\": \"./zoff.schema.json\"}]` in\n"
    "  `settings.json`, or by `\"$schema\": \"./zoff.schema.json\"` in the file. `zoff check` sees more: the\n"
    "  schema's `$comment` lists its gaps.\n"
    "- **Numbers.** All of `500000000`, `5e8`, `\"500000000\"` and `\"5e8\"` are numbers. Bytes can have a\n"
    "  unit, as in `\"64MiB\"`: `KiB MiB GiB TiB` and `K M G T` are powers of 1024, `KB MB GB TB` are\n"
    "  powers of 1000. The fraction of a size in elements is cut off, as in `15099494.4`.\n"
    "- **Flags.** They may also be `1`, `0`, or a text: `\"true\"`, `\"yes\"`, `\"on\"` and their opposites.\n"
    "- **Automatic values.** Every key accepts `\"auto\"`. The value is then computed if other keys\n"
    "  decide it; otherwise it is the default. A trainer that reads the file itself sets such values\n"
    "  with `zoff_config_set()`. Some keys decide what is trained (`lr`, a warm-up, `fp16.enabled`,\n"
    "  ...). If such a key is still `\"auto\"` when an engine is created, a warning names it and the\n"
    "  value used. A key without a default (`total_num_steps`) is an error then. The value `null` means\n"
    "  the default.\n"
    "- **Precedence.** `zoff_config_set()` (`--set` of the tool) wins over the file, and the file over\n"
    "  the default. `zoff_config_read()` reads a file into a configuration with values set before.\n"
    "  These also replace values for which the file would be refused.\n"
    "- **The batch.** The rule is\n"
    "  `train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks`. Any two\n"
    "  of the three keys decide the third, and one alone is enough. If none is given, the accumulation\n"
    "  is 1 and the trainer decides the batch.\n"
    "- **Stages and tiers** of states, and of weights that the engine stores:\n"
    "\n"
    /* A test takes a step with each cell of this table. */
    "| stage | states `none`, `cpu` | states `nvme` | weights `none` | weights `cpu`, `nvme` |\n"
    "|---|---|---|---|---|\n"
    "| 0 | yes | yes | yes | no effect |\n"
    "| 1 | yes | yes | yes | no effect |\n"
    "| 2 | yes | yes | yes | no effect |\n"
    "| 3 | yes | yes | yes | yes |\n";

static void add_words(zoff_config_sink *sink, const char *list)
{
    for (bool first = true; *list; first = false) {
        size_t bytes = strcspn(list, "|");
        zoff_config_value_append(sink, "%s`%.*s`", first ? "" : ", ", (int)bytes, list);
        list += bytes + (list[bytes] == '|');
    }
}

static void add_type(zoff_config_sink *sink, const zoff_config_key *row)
{
    char expected[768];
    if (row->type == ZOFF_KEY_CHOICE) {
        add_words(sink, row->accepts && *row->accepts ? row->accepts : row->choices);
    } else if (row->type == ZOFF_KEY_INTEGER && row->accepts && *row->accepts) {
        add_words(sink, row->accepts);
    } else {
        zoff_config_schema_expected(row, expected, sizeof expected);
        size_t article = strcspn(expected, " "); /* which an error needs, but not a list */
        if (row->type == ZOFF_KEY_BYTES)         /* the head of the page says how to write numbers of bytes */
            zoff_config_value_append(sink, "bytes%s", strrchr(expected, ',') + 1);
        else
            zoff_config_value_append(sink, "%s", expected + (*expected == 'a' && article <= 2 ? article + 1 : 0));
    }
}

static void add_honoured(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_value_append(sink, "\n## Keys that zoff acts on\n\n"
                                   "The values of a key are in parentheses, and behind the semicolon its default.\n\n");
    bool in_list = false;
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key *row = &table[i];
        if (row->class_ != ZOFF_CLASS_HONOURED || row->type == ZOFF_KEY_SECTION)
            continue;
        /* A new section begins if the path up to the last dot changes. */
        const char *dot = strrchr(row->path, '.'), *last = i ? strrchr(row[-1].path, '.') : NULL;
        size_t bytes = dot ? (size_t)(dot - row->path) : 0, before = last ? (size_t)(last - row[-1].path) : 0;
        bool same = i && row[-1].type != ZOFF_KEY_SECTION && bytes == before && memcmp(row->path, row[-1].path, bytes) == 0;
        if (bytes && !same) {
            char section[256] = "";
            memcpy(section, row->path, bytes < sizeof section ? bytes : sizeof section - 1);
            zoff_config_value_append(sink, "\n### %s\n\n", section);
            if (row[-1].type == ZOFF_KEY_SECTION) /* otherwise keys of a section go on behind those of another one */
                zoff_config_value_append(sink, "%s.\n\n", row[-1].help);
        } else if (in_list && !same) {
            zoff_config_value_append(sink, "\n### Sums over ranks\n\n");
        }
        in_list = true;
        zoff_config_value_append(sink, "- `%s` (", row->path);
        add_type(sink, row);
        zoff_config_value_append(sink, "; `%s`): %s\n", row->fallback ? row->fallback : "null", row->help);
    }
}

/* List all keys with refused values, also those that zoff acts on. */
static void add_refused(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_value_append(
        sink, "\n## Values that are refused\n\nOnly the values in parentheses are accepted, and `null` and "
              "`\"auto\"`, which mean the default. The text says why\nother values are refused, and what to do.\n\n");
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key *row = &table[i];
        if (!row->accepts)
            continue;
        zoff_config_value_append(sink, "- `%s` (", row->path);
        if (row->type == ZOFF_KEY_ANY)
            zoff_config_value_append(sink, "nothing, or `{\"enabled\": false}`");
        else if (*row->accepts)
            add_words(sink, row->accepts);
        else
            zoff_config_value_append(sink, "nothing");
        zoff_config_value_append(sink, "): %s\n", row->why);
    }
}

/* Whether a row is an ignored key with this reason. */
static bool is_ignored_for(const zoff_config_key *row, const char *why)
{
    return row->class_ == ZOFF_CLASS_IGNORED && strcmp(row->help, why) == 0;
}

/* The ignored keys that share the reason of row `i`, if that is the first of them. */
static void add_alike(zoff_config_sink *sink, const zoff_config_key *table, size_t count, size_t i)
{
    const char *why = table[i].help;
    for (size_t j = 0; j < i; j++) {
        if (is_ignored_for(&table[j], why))
            return;
    }
    for (size_t j = i; j < count; j++) {
        if (is_ignored_for(&table[j], why))
            zoff_config_value_append(sink, "%s`%s`", j == i ? "- " : ", ", table[j].path);
    }
    zoff_config_value_append(sink, ": %s\n", why);
}

static void add_ignored(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_value_append(sink, "\n## Known keys that zoff ignores\n\nzoff does not read their values.\n\n");
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ == ZOFF_CLASS_IGNORED)
            add_alike(sink, table, count, i);
    }
}

static void add_differing(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_value_append(
        sink, "\n## Several ranks\n\nzoff_engine_seal() compares all keys that zoff acts on between the ranks. A "
              "difference is an error that names the key, its values and the ranks. These keys\nmay differ, "
              "because no number depends on them:");
    for (size_t i = 0, used = 0; i < count; i++) {
        if (table[i].may_differ)
            zoff_config_value_append(sink, "%s `%s`", used++ ? "," : "", table[i].path);
    }
    zoff_config_value_append(sink, ".\n");
}

static void add_aliases(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_value_append(sink, "\n## Other names\n\nA file may use only one of the names of a key.\n\n");
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ == ZOFF_CLASS_ALIAS)
            zoff_config_value_append(sink, "- `%s`: `%s`, %s\n", table[i].path, table[i].target, table[i].help);
    }
}

zoff_status zoff_config_reference(char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF((!dst && dst_bytes) || !out_bytes, ZOFF_ERR_INVALID,
                 "zoff_config_reference: out_bytes must not be NULL, nor dst while dst_bytes is not 0");
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    zoff_config_sink sink = {dst, dst_bytes, 0};
    zoff_config_value_append(&sink, "%s", INTRODUCTION);
    add_honoured(&sink, table, count);
    add_refused(&sink, table, count);
    add_ignored(&sink, table, count);
    add_differing(&sink, table, count);
    add_aliases(&sink, table, count);
    *out_bytes = sink.used;
    return ZOFF_OK;
}
