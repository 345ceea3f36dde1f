/* reference.c: the schema as Markdown; docs/CONFIG.md is this text. */
#include "config_priv.h"
#include "try.h"

#include <string.h>

static const char INTRODUCTION[] =
    "# Configuration\n"
    "\n"
    "zoff reads the configuration file of DeepSpeed (`ds_config.json`). This page is made from the table that parses it:\n"
    "`zoff reference` prints it. `zoff check FILE` prints what a file comes to and where each value is from.\n"
    "\n"
    "- **Three kinds of keys.** Keys that zoff acts on; keys that DeepSpeed knows and zoff ignores, because they change none "
    "of\n"
    "  its results, listed in one warning; keys whose value would change the result and that zoff cannot do yet, refused with\n"
    "  an error, never ignored. Any other key is an error that names the nearest known one;\n"
    "  `\"zoff\": {\"strict\": false}` makes it a warning.\n"
    "- **Remarks.** `//`, `#` and `/* */` comments and trailing commas are allowed. Keys that start with `_`, `//` or `#` are\n"
    "  remarks too. Any other key may stand only once in its object.\n"
    "- **Numbers** may be written `500000000`, `5e8`, `\"500000000\"` or `\"5e8\"`. Bytes also as `\"64MiB\"`: `KiB MiB GiB "
    "TiB` and\n"
    "  `K M G T` count in 1024s, `KB MB GB TB` in 1000s.\n"
    "- **`\"auto\"`** is allowed for every key: computed where another key decides it, else the default. A trainer that reads\n"
    "  the file itself fills such values in with `zoff_config_set()`. What is still `\"auto\"` when an engine is created and\n"
    "  decides what is trained (`lr`, a warm-up, `fp16.enabled`, ...) is named in one warning, with the value taken;\n"
    "  where there is none to take (`total_num_steps`) it is an error there. `null` is the default.\n"
    "- **Who wins.** `zoff_config_set()` (`--set` of the tool), then the file, then the default. `zoff_config_read()` reads a\n"
    "  file into a configuration that was set before; then that holds for what the file would be refused for, too.\n"
    "- **The batch.** `train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks`. Any two of\n"
    "  the three decide the third; one alone is enough, and so is none: then accumulation is 1 and the batch is the "
    "trainer's.\n"
    "- **Stages and tiers.** Every stage works with every home of the states, and stage 3 with every home of the weights that\n"
    "  the engine keeps:\n"
    "\n"
    "| stage | states `none`, `cpu` | states `nvme` | weights `none` | weights `cpu`, `nvme` |\n"
    "|---|---|---|---|---|\n"
    "| 0 | yes | yes | yes | no effect |\n"
    "| 1 | yes | yes | yes | no effect |\n"
    "| 2 | yes | yes | yes | no effect |\n"
    "| 3 | yes | yes | yes | yes |\n";

/* A cell of a table must not contain its separator. */
static void add_cell(zoff_config_sink *sink, const char *text)
{
    for (const char *c = text; *c; c++)
        zoff_config_sink_add(sink, "%s%c", *c == '|' ? "\\" : "", *c);
}

static void add_words(zoff_config_sink *sink, const char *list)
{
    for (bool first = true; *list; first = false) {
        size_t bytes = strcspn(list, "|");
        zoff_config_sink_add(sink, "%s`%.*s`", first ? "" : ", ", (int)bytes, list);
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
        add_cell(sink, expected);
    }
}

static void add_honoured(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_sink_add(sink, "\n## Keys that zoff acts on\n");
    bool in_table = false;
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key *row = &table[i];
        if (row->class_ != ZOFF_CLASS_HONOURED || row->type == ZOFF_KEY_SECTION)
            continue;
        /* A section begins where the path up to the last dot changes. */
        const char *dot = strrchr(row->path, '.'), *last = i ? strrchr(row[-1].path, '.') : NULL;
        size_t bytes = dot ? (size_t)(dot - row->path) : 0, before = last ? (size_t)(last - row[-1].path) : 0;
        bool same = i && row[-1].type != ZOFF_KEY_SECTION && bytes == before && memcmp(row->path, row[-1].path, bytes) == 0;
        if (!same || !in_table) {
            if (bytes) {
                char section[256] = "";
                memcpy(section, row->path, bytes < sizeof section ? bytes : sizeof section - 1);
                zoff_config_sink_add(sink, "\n### %s\n\n%s.\n", section, zoff_config_schema_find(section)->help);
            }
            zoff_config_sink_add(sink, "\n| key | value | default | meaning |\n|---|---|---|---|\n");
        }
        in_table = true;
        zoff_config_sink_add(sink, "| `%s` | ", row->path);
        add_type(sink, row);
        zoff_config_sink_add(sink, " | `%s` | %s |\n", row->fallback ? row->fallback : "null", row->help);
    }
}

/* Of a key that zoff acts on, too, when it has values that are refused. */
static void add_refused(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_sink_add(
        sink, "\n## Values that are refused\n\nOnly the values of the second column pass (and `null` and `\"auto\"`, "
              "which mean the default).\n\n| key | passes | what it is | why the rest is refused, and what to do |\n"
              "|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key *row = &table[i];
        if (!row->accepts)
            continue;
        zoff_config_sink_add(sink, "| `%s` | ", row->path);
        if (row->type == ZOFF_KEY_ANY)
            zoff_config_sink_add(sink, "nothing, or `{\"enabled\": false}`");
        else if (*row->accepts)
            add_words(sink, row->accepts);
        else
            zoff_config_sink_add(sink, "nothing");
        zoff_config_sink_add(sink, " | ");
        add_cell(sink, row->help);
        zoff_config_sink_add(sink, " | ");
        add_cell(sink, row->why);
        zoff_config_sink_add(sink, "%s |\n", row->several_ranks ? " (With one rank it has no effect and is ignored)" : "");
    }
}

static void add_ignored(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_sink_add(sink,
                         "\n## Known keys that zoff ignores\n\nTheir values are not looked at.\n\n| key | why |\n|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ == ZOFF_CLASS_IGNORED)
            zoff_config_sink_add(sink, "| `%s` | %s |\n", table[i].path, table[i].help);
    }
}

static void add_differing(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_sink_add(sink,
                         "\n## Several ranks\n\nzoff_engine_seal() compares all keys that zoff acts on between the ranks. A "
                         "difference is an error that names the key, its values and the ranks. These keys\nmay differ, "
                         "because no number depends on them:");
    for (size_t i = 0, used = 0; i < count; i++) {
        if (table[i].may_differ)
            zoff_config_sink_add(sink, "%s `%s`", used++ ? "," : "", table[i].path);
    }
    zoff_config_sink_add(sink, ".\n");
}

static void add_aliases(zoff_config_sink *sink, const zoff_config_key *table, size_t count)
{
    zoff_config_sink_add(
        sink,
        "\n## Other names\n\nA key may be given under one of its names only.\n\n| name | stands for | |\n|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ == ZOFF_CLASS_ALIAS)
            zoff_config_sink_add(sink, "| `%s` | `%s` | %s |\n", table[i].path, table[i].target, table[i].help);
    }
}

zoff_status zoff_config_reference(char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF((!dst && dst_bytes) || !out_bytes, ZOFF_ERR_INVALID,
                 "zoff_config_reference: out_bytes must not be NULL, nor dst while dst_bytes is not 0");
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    zoff_config_sink sink = {dst, dst_bytes, 0};
    zoff_config_sink_add(&sink, "%s", INTRODUCTION);
    add_honoured(&sink, table, count);
    add_refused(&sink, table, count);
    add_ignored(&sink, table, count);
    add_differing(&sink, table, count);
    add_aliases(&sink, table, count);
    *out_bytes = sink.used;
    return ZOFF_OK;
}
