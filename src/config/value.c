/* SPDX-License-Identifier: Apache-2.0 */
/* value.c: converts JSON values into typed cells, and cells back into text. It checks types, ranges and supported values. */
#include "config_priv.h"
#include "mem.h"
#include "try.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define INTEGER_LIMIT 0x1p63 /* every int64_t is smaller */

enum { SHOWN_BYTES = 80 };

/* ---- messages ---- */

/* Write a JSON value for a message, shortened. */
static void show(json_t *value, char dst[SHOWN_BYTES])
{
    char *text = NULL;
    if (json_is_object(value))
        snprintf(dst, SHOWN_BYTES, "an object");
    else if (json_is_array(value))
        snprintf(dst, SHOWN_BYTES, "a list");
    else if (json_is_string(value))
        snprintf(dst, SHOWN_BYTES, "\"%.60s%s", json_string_value(value),
                 strlen(json_string_value(value)) > 60 ? "...\"" : "\"");
    else if ((text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))) != NULL)
        snprintf(dst, SHOWN_BYTES, "%.70s", text);
    else
        snprintf(dst, SHOWN_BYTES, "this value");
    free(text); /* free(), because jansson allocated the text with malloc() */
}

static zoff_status wrong(const zoff_config_key *key, json_t *value, zoff_config_where where, const char *fault)
{
    char shown[SHOWN_BYTES], expected[768], hint[96] = "", meant[64] = "";
    show(value, shown);
    zoff_config_schema_expected(key, expected, sizeof expected);
    if (key->type == ZOFF_KEY_CHOICE && json_is_string(value))
        zoff_config_nearest_choice(key->choices, json_string_value(value), meant, sizeof meant);
    if (meant[0])
        snprintf(hint, sizeof hint, "; did you mean \"%s\"?", meant);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s: %s: %s %s; expected %s%s", where.place, where.path, shown, fault,
                                 expected, hint);
}

/* Write a number with 15 digits, or with 17 if 15 do not read back as the same value. The decimal separator is a point in every
 * locale. */
static void print_number(double number, char *dst, size_t dst_bytes)
{
    snprintf(dst, dst_bytes, "%.15g", number);
    if (strtod(dst, NULL) != number)
        snprintf(dst, dst_bytes, "%.17g", number);
    for (char *c = dst; *c; c++) {
        if (*c == ',')
            *c = '.';
    }
}

/* ---- numbers ---- */

/* Read a number, or a text with a number ("8", "5e8"). jansson parses both, so the locale has no influence. */
static bool as_number(json_t *value, double *out)
{
    if (json_is_number(value)) {
        *out = json_number_value(value);
        return true;
    }
    if (!json_is_string(value))
        return false;
    json_t *inner = json_loads(json_string_value(value), JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    bool found = json_is_number(inner);
    if (found)
        *out = json_number_value(inner);
    json_decref(inner);
    return found;
}

/* Read a number of bytes with a unit, such as "64MiB". K, M, G and T are powers of 1024, as in disk tools; KB, MB, GB and TB
 * are powers of 1000. */
static bool as_bytes(json_t *value, double *out)
{
    static const struct {
        const char *unit;
        double factor;
    } UNITS[] = {{"B", 1},      {"K", 0x1p10},   {"KiB", 0x1p10}, {"KB", 1e3},   {"M", 0x1p20},   {"MiB", 0x1p20}, {"MB", 1e6},
                 {"G", 0x1p30}, {"GiB", 0x1p30}, {"GB", 1e9},     {"T", 0x1p40}, {"TiB", 0x1p40}, {"TB", 1e12}};
    const char *text = json_string_value(value);
    size_t length = text ? strlen(text) : 0, digits = length;
    while (digits > 0 && isalpha((unsigned char)text[digits - 1]))
        digits--;
    if (digits == length)
        return as_number(value, out);
    const char *unit = text + digits;
    while (digits > 0 && text[digits - 1] == ' ')
        digits--;
    json_t *inner = json_loadb(text, digits, JSON_DECODE_ANY, NULL);
    bool found = false;
    for (size_t i = 0; json_is_number(inner) && i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (strcasecmp(unit, UNITS[i].unit) == 0) {
            *out = floor(json_number_value(inner) * UNITS[i].factor);
            found = true;
        }
    }
    json_decref(inner);
    return found;
}

static bool in_range(const zoff_config_key *key, double number)
{
    if (!isfinite(number))
        return false;
    return !key->ranged || (number >= key->min && (key->below_max ? number < key->max : number <= key->max));
}

/* Read a flag: true, false, 0, 1, or one of the words that DeepSpeed takes for them. */
static bool as_flag(json_t *value, bool *out)
{
    static const char *const WORDS[] = {"false|no|off|n|f|0", "true|yes|on|y|t|1"};
    for (int flag = 0; flag <= 1; flag++) {
        const bool is_it = json_is_string(value) ? zoff_config_schema_in_list(WORDS[flag], json_string_value(value), NULL, NULL)
                           : json_is_number(value) ? json_number_value(value) == flag
                                                   : json_is_boolean(value) && json_is_true(value) == (bool)flag;
        if (is_it) {
            *out = flag;
            return true;
        }
    }
    return false;
}

static zoff_status take_integer(const zoff_config_key *key, json_t *value, zoff_config_where where, zoff_config_cell *cell)
{
    double number;
    if (key->type == ZOFF_KEY_BYTES ? !as_bytes(value, &number) : !as_number(value, &number))
        return wrong(key, value, where, "is not a number");
    if (!in_range(key, number))
        return wrong(key, value, where, "is out of range");
    number = key->cuts ? trunc(number) : number;
    if (number != floor(number))
        return wrong(key, value, where, "is not a whole number");
    /* A number beyond int64_t is cut: such a count means "no limit", like sys.maxsize. A JSON integer is copied as it is,
     * because a double would lose its last digits. */
    cell->number = number;
    if (json_is_integer(value))
        cell->integer = json_integer_value(value);
    else
        cell->integer = number >= INTEGER_LIMIT ? INT64_MAX : number <= -INTEGER_LIMIT ? INT64_MIN : (int64_t)number;
    return ZOFF_OK;
}

static zoff_status take_numbers(const zoff_config_key *key, json_t *list, zoff_config_where where, zoff_config_cell *cell)
{
    if (!json_is_array(list) || json_array_size(list) != key->count)
        return wrong(key, list, where, json_is_array(list) ? "has the wrong length" : "is not a list");
    for (size_t i = 0; i < key->count; i++) {
        json_t *element = json_array_get(list, i);
        if (!as_number(element, &cell->numbers[i]))
            return wrong(key, element, where, "is not a number");
        if (!in_range(key, cell->numbers[i]))
            return wrong(key, element, where, "is out of range");
    }
    cell->count = key->count;
    return ZOFF_OK;
}

/* ---- texts ---- */

static zoff_status add_text(zoff_config_cell *cell, const char *text)
{
    ZOFF_TRY(zoff_base_mem_copy_text(text, &cell->texts[cell->count]));
    cell->count++;
    return ZOFF_OK;
}

static zoff_status take_texts(const zoff_config_key *key, json_t *value, zoff_config_where where, zoff_config_cell *cell)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count == 0)
        return wrong(key, value, where, "is empty");
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *cell->texts, "a list of texts", &cell->texts));
    for (size_t i = 0; i < count; i++) {
        json_t *element = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(element) || json_string_length(element) == 0)
            return wrong(key, element, where, json_is_string(element) ? "is empty" : "is not a text");
        ZOFF_TRY(add_text(cell, json_string_value(element)));
    }
    return ZOFF_OK;
}

static zoff_status take_choice(const zoff_config_key *key, json_t *value, zoff_config_where where, zoff_config_cell *cell)
{
    const char *word;
    size_t bytes;
    char choice[64];
    if (!json_is_string(value))
        return wrong(key, value, where, "is not a text");
    if (!zoff_config_schema_in_list(key->choices, json_string_value(value), &word, &bytes))
        return wrong(key, value, where, "is not known");
    snprintf(choice, sizeof choice, "%.*s", (int)bytes, word);
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *cell->texts, "a choice", &cell->texts));
    return add_text(cell, choice);
}

/* ---- any value ---- */

static bool asks(json_t *value);

/* Whether a section is on. Its key "enabled" decides. A compression method has "shared_parameters" instead, whose "enabled"
 * decides, and is off without it, as in DeepSpeed. Any other section is on if it has a value or a section that is on. */
static bool section_asks(json_t *section)
{
    const char *key;
    json_t *member, *shared = json_object_get(section, "shared_parameters");
    if (json_object_get(section, "enabled"))
        return asks(json_object_get(section, "enabled"));
    if (json_is_object(shared))
        return json_object_get(shared, "enabled") && asks(shared);
    json_object_foreach(section, key, member)
    {
        if (!zoff_config_scan_is_remark(key) && (!json_is_object(member) || asks(member)))
            return true;
    }
    return false;
}

/* Whether a value of type ANY is on. null, false flags, empty lists and sections that are off count as off. */
static bool asks(json_t *value)
{
    if (json_is_object(value))
        return section_asks(value);
    if (json_is_array(value))
        return json_array_size(value) > 0;
    bool flag;
    return !json_is_null(value) && (!as_flag(value, &flag) || flag);
}

static bool is_auto(const zoff_config_key *key, json_t *value)
{
    if (!json_is_string(value) || strcasecmp(json_string_value(value), "auto") != 0)
        return false;
    return key->type != ZOFF_KEY_CHOICE || !zoff_config_schema_in_list(key->choices, "auto", NULL, NULL);
}

static zoff_status take_flag(const zoff_config_key *key, json_t *value, zoff_config_where where, zoff_config_cell *cell)
{
    const bool is_word = key->word && json_is_string(value) && strcasecmp(json_string_value(value), key->word) == 0;
    bool flag = false;
    double count;
    if (key->counts && as_number(value, &count)) {
        if (count < 1 || count != floor(count))
            return wrong(key, value, where, "is neither a flag nor such a number");
        cell->integer = ZOFF_FLAG_COUNT;
        cell->number = count;
        return ZOFF_OK;
    }
    if (!is_word && !as_flag(value, &flag))
        return wrong(key, value, where, "is not a flag");
    cell->integer = is_word ? ZOFF_FLAG_WORD : flag;
    cell->number = (double)cell->integer;
    return ZOFF_OK;
}

static zoff_status take(const zoff_config_key *key, json_t *value, zoff_config_where where, zoff_config_cell *cell)
{
    switch (key->type) {
    case ZOFF_KEY_SECTION:
        return json_is_object(value) ? ZOFF_OK : wrong(key, value, where, "is not an object");
    case ZOFF_KEY_BOOL:
        return take_flag(key, value, where, cell);
    case ZOFF_KEY_INTEGER:
    case ZOFF_KEY_BYTES:
        return take_integer(key, value, where, cell);
    case ZOFF_KEY_NUMBER:
        if (!as_number(value, &cell->number))
            return wrong(key, value, where, "is not a number");
        return in_range(key, cell->number) ? ZOFF_OK : wrong(key, value, where, "is out of range");
    case ZOFF_KEY_CHOICE:
        return take_choice(key, value, where, cell);
    case ZOFF_KEY_NUMBERS:
        return take_numbers(key, value, where, cell);
    case ZOFF_KEY_TEXTS:
        return take_texts(key, value, where, cell);
    case ZOFF_KEY_ANY:
        cell->integer = asks(value);
        return ZOFF_OK;
    }
    return ZOFF_OK;
}

zoff_status zoff_config_value_from_json(const zoff_config_key *key, json_t *value, zoff_config_where where,
                                        zoff_config_cell *out)
{
    zoff_config_cell cell = {.kind = ZOFF_CELL_VALUE};
    if (json_is_null(value)) {
        cell.kind = ZOFF_CELL_NULL;
    } else if (is_auto(key, value)) {
        cell.kind = ZOFF_CELL_AUTO;
    } else {
        zoff_status status = take(key, value, where, &cell);
        if (status < 0) {
            zoff_config_value_free(&cell);
            return status;
        }
    }
    *out = cell;
    return ZOFF_OK;
}

zoff_status zoff_config_value_from_text(const zoff_config_key *key, const char *text, zoff_config_where where,
                                        zoff_config_cell *out)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    bool takes_text = key->type == ZOFF_KEY_TEXTS || key->type == ZOFF_KEY_CHOICE, is_ascii = true;
    /* After some failed allocations jansson leaves the error text empty. */
    bool exhausted = !value && (json_error_code(&error) == json_error_out_of_memory || !error.text[0]);
    ZOFF_FAIL_IF(!value && !exhausted && *text && strchr("[{\"", *text), ZOFF_ERR_INVALID,
                 "%s: %s: this value is not JSON: %s; expected a word, or JSON", where.place, where.path, error.text);
    /* Text that is not JSON is a word: nvme, 64MiB, auto. A number is a word as well if the key takes text, because a folder
     * may be named 7. */
    if (!exhausted && (!value || (takes_text && json_is_number(value)))) {
        json_decref(value);
        value = json_string(text);
    }
    for (const char *c = text; *c; c++)
        is_ascii = is_ascii && (unsigned char)*c < 0x80;
    ZOFF_FAIL_IF(!value && (exhausted || is_ascii), ZOFF_ERR_NO_MEMORY, "%s: %s: out of memory for this value", where.place,
                 where.path);
    ZOFF_FAIL_IF(!value, ZOFF_ERR_INVALID, "%s: %s: this value is not valid UTF-8", where.place, where.path);
    zoff_status status = zoff_config_value_from_json(key, value, where, out);
    json_decref(value);
    return status;
}

/* ---- supported values ---- */

bool zoff_config_value_accepted(const zoff_config_key *key, const zoff_config_cell *cell)
{
    char word[64];
    if (!key->accepts || cell->kind != ZOFF_CELL_VALUE)
        return true;
    switch (key->type) {
    case ZOFF_KEY_ANY:
        return !cell->integer;
    case ZOFF_KEY_CHOICE:
        return zoff_config_schema_in_list(key->accepts, cell->texts[0], NULL, NULL);
    default:
        zoff_config_value_print(key, cell, word, sizeof word);
        return zoff_config_schema_in_list(key->accepts, word, NULL, NULL);
    }
}

void zoff_config_value_refusal(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes)
{
    char shown[128] = "this section", expected[256] = "no such key";
    if (key->type != ZOFF_KEY_ANY)
        zoff_config_value_print(key, cell, shown, sizeof shown);
    if (*key->accepts)
        zoff_config_schema_join(key->accepts, expected, sizeof expected);
    if (key->type != ZOFF_KEY_CHOICE) { /* remove the quotes around numbers and flags */
        size_t kept = 0;
        for (size_t i = 0; expected[i]; i++) {
            if (expected[i] != '"')
                expected[kept++] = expected[i];
        }
        expected[kept] = 0;
    }
    snprintf(dst, dst_bytes, "%s is not supported; expected %s: %s", shown, expected, key->why);
}

/* ---- back to text ---- */

void zoff_config_value_quote(zoff_config_sink *sink, const char *text)
{
    zoff_config_value_append(sink, "\"");
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20)
            zoff_config_value_append(sink, "\\u%04x", (unsigned)*c);
        else
            zoff_config_value_append(sink, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    }
    zoff_config_value_append(sink, "\"");
}

static void print_texts(const zoff_config_cell *cell, char *dst, size_t dst_bytes)
{
    zoff_config_sink sink = {dst, dst_bytes, 0};
    for (size_t i = 0; i < cell->count; i++) {
        zoff_config_value_append(&sink, "%s", i ? ", " : cell->count > 1 ? "[" : "");
        zoff_config_value_quote(&sink, cell->texts[i]);
    }
    zoff_config_value_append(&sink, "%s", cell->count > 1 ? "]" : "");
}

void zoff_config_value_print(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes)
{
    char first[32];
    size_t used;
    if (cell->kind != ZOFF_CELL_VALUE) {
        snprintf(dst, dst_bytes, "%s", cell->kind == ZOFF_CELL_AUTO ? "auto" : "null");
        return;
    }
    switch (key->type) {
    case ZOFF_KEY_BOOL:
        if (cell->integer == ZOFF_FLAG_WORD)
            snprintf(dst, dst_bytes, "\"%s\"", key->word);
        else if (cell->integer == ZOFF_FLAG_COUNT)
            print_number(cell->number, dst, dst_bytes);
        else
            snprintf(dst, dst_bytes, "%s", cell->integer ? "true" : "false");
        break;
    case ZOFF_KEY_INTEGER:
    case ZOFF_KEY_BYTES:
        snprintf(dst, dst_bytes, "%lld", (long long)cell->integer);
        break;
    case ZOFF_KEY_NUMBER:
        print_number(cell->number, dst, dst_bytes);
        break;
    case ZOFF_KEY_NUMBERS:
        used = (size_t)snprintf(dst, dst_bytes, "[");
        for (size_t i = 0; i < cell->count && used < dst_bytes; i++) {
            print_number(cell->numbers[i], first, sizeof first);
            used +=
                (size_t)snprintf(dst + used, dst_bytes - used, "%s%s%s", i ? ", " : "", first, i + 1 == cell->count ? "]" : "");
        }
        break;
    case ZOFF_KEY_CHOICE:
    case ZOFF_KEY_TEXTS:
        print_texts(cell, dst, dst_bytes);
        break;
    case ZOFF_KEY_SECTION:
    case ZOFF_KEY_ANY:
        snprintf(dst, dst_bytes, "...");
        break;
    }
}

static const char *source_prefix(const zoff_config_cell *cell)
{
    return cell->kind == ZOFF_CELL_AUTO ? "auto at " : cell->kind == ZOFF_CELL_NULL ? "null at " : "";
}

zoff_status zoff_config_value_set_source(zoff_config_cell *cell, const char *place)
{
    const char *prefix = source_prefix(cell);
    size_t bytes = strlen(prefix) + strlen(place) + 1;
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "the source of a value", &cell->source));
    snprintf(cell->source, bytes, "%s%s", prefix, place);
    return ZOFF_OK;
}

const char *zoff_config_value_place(const zoff_config_cell *cell)
{
    return cell->source + strlen(source_prefix(cell));
}

void zoff_config_value_free(zoff_config_cell *cell)
{
    for (size_t i = 0; cell->texts && i < cell->count; i++)
        zoff_base_mem_free(cell->texts[i]);
    zoff_base_mem_free(cell->texts);
    zoff_base_mem_free(cell->source);
    *cell = (zoff_config_cell){0};
}

zoff_status zoff_config_value_text(const zoff_config_key *key, const zoff_config_cell *cell, char **out)
{
    size_t bytes = 256;
    for (size_t i = 0; cell->texts && i < cell->count; i++)
        bytes += 6 * strlen(cell->texts[i]) + 8; /* room for escapes, quotes and a comma */
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "a value as text", out));
    zoff_config_value_print(key, cell, *out, bytes);
    return ZOFF_OK;
}

zoff_config_cell *zoff_config_value_find(const zoff_config *config, const char *path)
{
    return &config->effective[zoff_config_schema_index(zoff_config_schema_find(path))];
}

const zoff_config_cell *zoff_config_value_given(const zoff_config *config, const char *path)
{
    size_t row = zoff_config_schema_index(zoff_config_schema_find(path));
    if (config->api[row].kind != ZOFF_CELL_ABSENT)
        return &config->api[row];
    return config->file[row].kind != ZOFF_CELL_ABSENT ? &config->file[row] : NULL;
}

const char *zoff_config_value_source(const zoff_config_cell *cell)
{
    return cell->source ? cell->source : cell->is_computed ? "computed" : "default";
}

void zoff_config_value_append(zoff_config_sink *sink, const char *format, ...)
{
    size_t left = sink->used < sink->dst_bytes ? sink->dst_bytes - sink->used : 0;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(left ? sink->dst + sink->used : NULL, left, format, args);
    va_end(args);
    sink->used += length > 0 ? (size_t)length : 0;
}
