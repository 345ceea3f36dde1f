/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema.c: writes the schema as a JSON Schema (draft-07, which editors know best). An editor marks with it what
 * zoff_config_read() would refuse, at the same key. Each key accepts null and "auto" as well. */
#include "config_priv.h"
#include "try.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define NUMBER "[ \\\\t\\\\r\\\\n]*-?(?:0|[1-9][0-9]*)(?:\\\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
#define FALSE_WORDS "[fF][aA][lL][sS][eE]|[nN][oO]?|[oO][fF][fF]|[fF]|0"
#define TRUE_WORDS "[tT][rR][uU][eE]|[yY](?:[eE][sS])?|[oO][nN]|[tT]|1"
#define OFF "{\"$ref\": \"#/definitions/off\"}"
#define REMARK "^(?:_|//|#|\\\\$schema$)"

static const char HEAD[] =
    "{\n"
    "\"$schema\": \"http://json-schema.org/draft-07/schema#\",\n"
    "\"title\": \"ds_config, as zoff reads it\",\n"
    "\"$comment\": \"`zoff check FILE` refuses more, because a JSON Schema cannot say it. A train_batch_size that is not the "
    "product. Ranges and fractions of numbers in quotes. Numbers beyond fp32. Parameters that optimizer.type does not have. "
    "Nesterov without momentum. Parameters that scheduler.type needs. Limits of a loss scale with fp16. Nvme without a folder. "
    "All that depends on ranks, devices and files. Unknown keys pass with a warning, though this schema marks them: with "
    "zoff.strict false, and at the top level where they resemble no known key.\",\n"
    /* null or "auto", and values in quotes */
    "\"definitions\": {\n"
    "  \"open\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"string\", \"pattern\": \"^[aA][uU][tT][oO]$\"}]},\n"
    "  \"number\": {\"type\": \"string\", \"pattern\": \"^" NUMBER "[ \\\\t\\\\r\\\\n]*$\"},\n"
    "  \"bytes\": {\"type\": \"string\", \"pattern\": \"^" NUMBER " *(?:[bB]|[kKmMgGtT](?:[iI]?[bB])?)$\"},\n"
    "  \"false\": {\"anyOf\": [{\"enum\": [false, 0]}, {\"type\": \"string\", \"pattern\": \"^(?:" FALSE_WORDS ")$\"}]},\n"
    "  \"true\": {\"anyOf\": [{\"enum\": [true, 1]}, {\"type\": \"string\", \"pattern\": \"^(?:" TRUE_WORDS ")$\"}]},\n"
    /* a section that is off, as section_asks() in value.c decides */
    "  \"off\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/definitions/false\"}, {\"type\": \"array\", \"maxItems\": "
    "0},\n"
    "    {\"type\": \"object\", \"if\": {\"required\": [\"enabled\"]}, \"then\": {\"properties\": {\"enabled\": " OFF "}},\n"
    "     \"else\": {\"if\": {\"required\": [\"shared_parameters\"], \"properties\": {\"shared_parameters\": {\"type\": "
    /* the section of a compression method */
    "\"object\"}}},\n"
    "      \"then\": {\"properties\": {\"shared_parameters\": {\"properties\": {\"enabled\": " OFF "}}}},\n"
    "      \"else\": {\"patternProperties\": {\"^(?!_|//|#|\\\\$schema$)\": {\"type\": \"object\", \"allOf\": [" OFF
    "]}}}}}]}\n"
    "},\n";

/* fp16 and bf16 together, which zoff_config_resolve_check_pair() refuses */
static const char PAIR[] =
    ",\n\"if\": {\"required\": [\"bf16\"], \"properties\": {\"bf16\": {\"type\": \"object\", \"required\": [\"enabled\"], "
    "\"properties\": {\"enabled\": {\"$ref\": \"#/definitions/true\"}}}}},\n"
    "\"then\": {\"properties\": {\"fp16\": {\"properties\": {\"enabled\": {\"not\": {\"$ref\": \"#/definitions/true\"}}}}}}";

static const char OPEN[] = "{\"$ref\": \"#/definitions/open\"}";

/* ---- values ---- */

/* Write the words of "a|b|c" as members of a list, in quotes if they are texts. */
static void add_list(zoff_config_sink *sink, const char *list, bool quoted)
{
    for (const char *gap = ""; *list; gap = ", ") {
        const size_t bytes = strcspn(list, "|");
        zoff_config_value_append(sink, quoted ? "%s\"%.*s\"" : "%s%.*s", gap, (int)bytes, list);
        list += bytes + (list[bytes] == '|');
    }
}

/* Write a schema of the words of "a|b|c" in any case. */
static void add_words(zoff_config_sink *sink, const char *list)
{
    zoff_config_value_append(sink, "{\"type\": \"string\", \"pattern\": \"^(?:");
    for (; *list; list++) {
        if (isalpha((unsigned char)*list))
            zoff_config_value_append(sink, "[%c%c]", tolower((unsigned char)*list), toupper((unsigned char)*list));
        else
            zoff_config_value_append(sink, "%c", *list);
    }
    zoff_config_value_append(sink, ")$\"}");
}

static void add_number(zoff_config_sink *sink, const zoff_config_key *row)
{
    const bool whole = (row->type == ZOFF_KEY_INTEGER && !row->cuts) || row->type == ZOFF_KEY_BYTES;
    zoff_config_value_append(sink, "{\"type\": \"%s\"", whole ? "integer" : "number");
    if (row->ranged)
        zoff_config_value_append(sink, ", \"minimum\": %.15g", row->min);
    if (row->ranged && row->max < (double)INFINITY)
        zoff_config_value_append(sink, ", \"%s\": %.15g", row->below_max ? "exclusiveMaximum" : "maximum", row->max);
    zoff_config_value_append(sink, "}, {\"$ref\": \"#/definitions/%s\"}", row->type == ZOFF_KEY_BYTES ? "bytes" : "number");
    if (row->type == ZOFF_KEY_BYTES)
        zoff_config_value_append(sink, ", {\"$ref\": \"#/definitions/number\"}");
}

static void add_flag(zoff_config_sink *sink, const zoff_config_key *row)
{
    if (row->counts) /* 0 is no flag then */
        zoff_config_value_append(
            sink, "{\"type\": \"integer\", \"minimum\": 1}, {\"not\": {\"enum\": [0, \"0\"]}, \"anyOf\": [{\"$ref\": "
                  "\"#/definitions/true\"}, {\"$ref\": \"#/definitions/false\"}, {\"$ref\": "
                  "\"#/definitions/number\"}]}");
    else if (row->accepts)
        zoff_config_value_append(sink, "{\"$ref\": \"#/definitions/%s\"}", row->accepts);
    else
        zoff_config_value_append(sink, "{\"type\": \"boolean\"}, {\"$ref\": \"#/definitions/true\"}, {\"$ref\": "
                                       "\"#/definitions/false\"}");
    if (row->word) {
        zoff_config_value_append(sink, ", {\"const\": \"%s\"}, ", row->word);
        add_words(sink, row->word);
    }
}

/* Write the schemas of which a value fits one. A row with an empty `accepts` takes no value. */
static void add_values(zoff_config_sink *sink, const zoff_config_key *row)
{
    const char *list = row->accepts ? row->accepts : row->choices;
    if (row->type == ZOFF_KEY_ANY) {
        zoff_config_value_append(sink, "{\"$ref\": \"#/definitions/off\"}");
    } else if (row->type == ZOFF_KEY_BOOL) {
        add_flag(sink, row);
    } else if (row->type == ZOFF_KEY_SECTION) {
        zoff_config_value_append(sink, "{\"type\": \"object\"}%s",
                                 strcmp(row->path, "zero_optimization") == 0 ? ", {\"type\": \"boolean\"}" : "");
    } else if (list && !*list) {
        zoff_config_value_append(sink, "false");
    } else if (list) {
        const bool texts = row->type == ZOFF_KEY_CHOICE;
        zoff_config_value_append(sink, "{\"enum\": [");
        add_list(sink, list, texts);
        zoff_config_value_append(sink, "]}, ");
        add_words(sink, list);
    } else if (row->type == ZOFF_KEY_NUMBERS) {
        zoff_config_value_append(sink, "{\"type\": \"array\", \"minItems\": %u, \"maxItems\": %u, \"items\": {\"anyOf\": [",
                                 row->count, row->count);
        add_number(sink, row);
        zoff_config_value_append(sink, "]}}");
    } else if (row->type == ZOFF_KEY_TEXTS) {
        zoff_config_value_append(sink, "{\"type\": \"string\", \"minLength\": 1}, {\"type\": \"array\", \"minItems\": 1, "
                                       "\"items\": {\"type\": \"string\", \"minLength\": 1}}");
    } else {
        add_number(sink, row);
    }
    zoff_config_value_append(sink, ", %s", OPEN);
}

/* ---- keys ---- */

static const char *name_in(const char *section, const char *path)
{
    const size_t bytes = strlen(section);
    if (bytes && (strncmp(path, section, bytes) != 0 || path[bytes] != '.'))
        return NULL;
    const char *name = path + bytes + (bytes > 0);
    return strchr(name, '.') ? NULL : name;
}

static void add_target(zoff_config_sink *sink, const char *path)
{
    zoff_config_value_append(sink, "{\"$ref\": \"#");
    for (; path; path = strchr(path, '.') ? strchr(path, '.') + 1 : NULL)
        zoff_config_value_append(sink, "/properties/%.*s", (int)strcspn(path, "."), path);
    zoff_config_value_append(sink, "\"}");
}

/* Refuse the second of two names of one key. A file has them in any order, so the alias is the second, or the later alias. */
static void add_twins(zoff_config_sink *sink, const char *section)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    const char *gap = ", \"allOf\": [";
    for (size_t i = 0; i < count; i++) {
        if (table[i].class_ != ZOFF_CLASS_ALIAS || !name_in(section, table[i].path) || !name_in(section, table[i].target))
            continue;
        zoff_config_value_append(sink, "%s\n{\"if\": {\"anyOf\": [{\"required\": [\"%s\"]}", gap,
                                 name_in(section, table[i].target));
        for (size_t j = 0; j < i; j++) {
            if (table[j].class_ == ZOFF_CLASS_ALIAS && strcmp(table[j].target, table[i].target) == 0)
                zoff_config_value_append(sink, ", {\"required\": [\"%s\"]}", name_in(section, table[j].path));
        }
        zoff_config_value_append(sink, "]}, \"then\": {\"properties\": {\"%s\": {\"not\": {}}}}}",
                                 name_in(section, table[i].path));
        gap = ",";
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = table[i].excludes ? name_in(section, table[i].path) : NULL;
        const char *other = name ? name_in(section, table[i].excludes) : NULL;
        if (!other)
            continue;
        zoff_config_value_append(sink,
                                 "%s\n{\"if\": {\"required\": [\"%s\"], \"properties\": {\"%s\": {\"type\": \"object\"}}}, "
                                 "\"then\": {\"properties\": {\"%s\": %s}}}",
                                 gap, other, other, name, OPEN);
        gap = ",";
    }
    if (*gap == ',' && !gap[1])
        zoff_config_value_append(sink, "]");
}

static void add_section(zoff_config_sink *sink, const zoff_config_key *section)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    const char *path = section ? section->path : "", *gap = "";
    zoff_config_value_append(sink, "\"properties\": {");
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key *row = &table[i];
        if (!name_in(path, row->path))
            continue;
        zoff_config_value_append(sink, "%s\n\"%s\": ", gap, name_in(path, row->path));
        gap = ",";
        if (row->class_ == ZOFF_CLASS_ALIAS) {
            add_target(sink, row->target);
            continue;
        }
        zoff_config_value_append(sink, "{\"description\": ");
        zoff_config_value_quote(sink, row->class_ == ZOFF_CLASS_REFUSED ? row->why : row->help);
        if (row->class_ != ZOFF_CLASS_IGNORED) {
            zoff_config_value_append(sink, ", \"anyOf\": [");
            add_values(sink, row);
            zoff_config_value_append(sink, "]");
        }
        if (row->type == ZOFF_KEY_SECTION) {
            zoff_config_value_append(sink, ", ");
            add_section(sink, row);
        }
        zoff_config_value_append(sink, "}");
    }
    zoff_config_value_append(sink, "}, \"patternProperties\": {\"" REMARK "\": true}");
    if (!section || !section->open)
        zoff_config_value_append(sink, ", \"additionalProperties\": false");
    add_twins(sink, path);
}

zoff_status zoff_config_schema(char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF((!dst && dst_bytes) || !out_bytes, ZOFF_ERR_INVALID,
                 "zoff_config_schema: out_bytes must not be NULL, nor dst while dst_bytes is not 0");
    zoff_config_sink sink = {dst, dst_bytes, 0};
    zoff_config_value_append(&sink, "%s\"type\": \"object\", ", HEAD);
    add_section(&sink, NULL);
    zoff_config_value_append(&sink, "%s\n}\n", PAIR);
    *out_bytes = sink.used;
    return ZOFF_OK;
}
