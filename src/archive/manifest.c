/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c: the manifest of a checkpoint: JSON with a line for each parameter and each file. The last member is the checksum
 * of the bytes before it, so that a reader trusts no byte that was not written. Parameters, groups and files are parsed one by
 * one, because a tree of all would be large. */
#include "archive_priv.h"

#include "array.h"
#include "bits.h"
#include "digest.h"
#include "members_priv.h"
#include "try.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const KINDS[ZOFF_ARCHIVE_PIECE_KINDS] = {"master", "m", "v", "weights", "upper half of the master"};

const char *zoff_archive_manifest_kind(unsigned kind)
{
    return KINDS[kind];
}

static const char *const DTYPES[] = {"", "fp32", "fp16", "bf16"};

static const char *const NUMBERS[ZOFF_ARCHIVE_GROUP_NUMBERS] = {"lr",           "beta1",           "beta2",     "eps",
                                                                "weight_decay", "momentum",        "dampening", "lr_decay",
                                                                "nesterov",     "bias_correction", "adam_lr",   "ns_steps"};

const char *zoff_archive_manifest_number(unsigned index)
{
    return NUMBERS[index];
}

/* Write a JSON value and drop the reference to it. NULL: there was no memory for it. */
static void put_json(zoff_text *w, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    if (text)
        zoff_base_array_print(w, "%s", text);
    else if (w->status == ZOFF_OK)
        w->status = zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for a manifest");
    free(text);
}

static void put_name(zoff_text *w, const char *key, const char *name)
{
    char *text = NULL;
    zoff_base_array_print(w, "\"%s\": ", key);
    if (w->status == ZOFF_OK)
        w->status = zoff_archive_escape_write(name, &text);
    if (text)
        put_json(w, json_string(text));
    zoff_base_mem_free(text);
}

static void put_param(zoff_text *w, const zoff_archive_manifest *m, const zoff_archive_param *p)
{
    const char *comma = "";
    put_name(w, "name", p->name);
    zoff_base_array_print(w, ", \"dtype\": \"%s\", \"dims\": [", DTYPES[p->dtype]);
    for (size_t i = 0; i < p->dim_count; i++)
        zoff_base_array_print(w, "%s%zu", i ? ", " : "", p->dims[i]);
    zoff_base_array_print(w, "], \"slices\": %zu, \"group\": %u, ", p->slices, p->group);
    if (p->slice_name) {
        put_name(w, "slice_name", p->slice_name);
        zoff_base_array_print(w, ", ");
    }
    if (p->tied_to) {
        put_name(w, "tied_to", m->params[p->tied_to - 1].name);
        zoff_base_array_print(w, ", ");
    }
    zoff_base_array_print(w, "\"states\": [");
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++) {
        if (!(p->states >> kind & 1))
            continue;
        zoff_base_array_print(w, "%s\"%s\"", comma, KINDS[kind]);
        comma = ", ";
    }
    zoff_base_array_print(w, "]");
    if (p->rule) {
        zoff_base_array_print(w, ", \"rule\": ");
        put_json(w, json_string(p->rule));
    }
}

static void put_params(zoff_text *w, const zoff_archive_manifest *m)
{
    zoff_base_array_print(w, "[\n");
    for (size_t i = 0; i < m->param_count; i++) {
        zoff_base_array_print(w, "    {");
        put_param(w, m, &m->params[i]);
        zoff_base_array_print(w, "}%s", i + 1 < m->param_count ? ",\n" : "\n");
    }
    zoff_base_array_print(w, "  ]");
}

static void put_groups(zoff_text *w, const zoff_archive_manifest *m)
{
    if (!m->group_count)
        return;
    zoff_base_array_print(w, "  \"groups\": [\n");
    for (size_t i = 0; i < m->group_count; i++) {
        const zoff_archive_group *g = &m->groups[i];
        zoff_base_array_print(w, "    {\"type\": ");
        put_json(w, json_string(g->type));
        for (unsigned k = 0; k < ZOFF_ARCHIVE_GROUP_NUMBERS; k++) {
            if (!isfinite(g->numbers[k])) /* skip a number that JSON does not have, because readers do not need it */
                continue;
            zoff_base_array_print(w, ", \"%s\": ", NUMBERS[k]);
            put_json(w, json_real(g->numbers[k]));
        }
        zoff_base_array_print(w, "}%s", i + 1 < m->group_count ? ",\n" : "\n");
    }
    zoff_base_array_print(w, "  ],\n");
}

static void put_files(zoff_text *w, const zoff_archive_manifest *m)
{
    char name[512];
    zoff_base_array_print(w, "  \"files\": [\n");
    for (unsigned i = 0; i < m->file_count; i++) {
        const zoff_archive_file *f = &m->files[i];
        zoff_archive_folder_part_name(m->label, m->id, i, name);
        zoff_base_array_print(w,
                              "    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"head\": \"%016" PRIx64
                              "\", \"table\": {\"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"checksum\": \"%016" PRIx64
                              "\"}}%s",
                              name, f->bytes, f->head_checksum, f->table_offset, f->table_bytes, f->table_checksum,
                              i + 1 < m->file_count ? ",\n" : "\n");
    }
    zoff_base_array_print(w, "  ]");
}

static void put_scaler(zoff_text *w, const zoff_archive_manifest *m)
{
    zoff_base_array_print(w, "  \"loss_scaler\": ");
    if (!m->has_scaler) {
        zoff_base_array_print(w, "null,\n");
        return;
    }
    zoff_base_array_print(w, "{\"scale\": ");
    put_json(w, json_real(m->scaler.scale));
    zoff_base_array_print(w, ", \"iterations\": %" PRId64 ", \"last_overflow\": %" PRId64 ", \"hysteresis\": %" PRIu64 "},\n",
                          m->scaler.iterations, m->scaler.last_overflow, m->scaler.hysteresis);
}

/* Hand out what was printed, or free it after an error. */
static zoff_status hand_out(const zoff_text *w, char **out, size_t *out_bytes)
{
    if (w->status < 0) {
        zoff_base_mem_free(w->words);
        return w->status;
    }
    *out = w->words;
    *out_bytes = w->bytes;
    return ZOFF_OK;
}

zoff_status zoff_archive_manifest_print(const zoff_archive_manifest *m, char **out, size_t *out_bytes)
{
    zoff_text w = {.words = NULL};
    /* JSON has no infinity, and its integers here have 64 bits with a sign. */
    ZOFF_FAIL_IF(m->has_scaler && (!isfinite(m->scaler.scale) || m->scaler.scale <= 0 || m->scaler.iterations < 0 ||
                                   m->scaler.last_overflow < -1 || m->scaler.hysteresis > INT64_MAX),
                 ZOFF_ERR_INVALID,
                 "the loss scaler of a checkpoint has the scale %g, %" PRId64 " iterations and the last overflow %" PRId64,
                 m->scaler.scale, m->scaler.iterations, m->scaler.last_overflow);
    zoff_base_array_print(&w,
                          "{\n  \"format\": \"zoff checkpoint\",\n  \"version\": %d,\n  \"needs\": [],\n  \"id\": \"%s\",\n"
                          "  \"label\": \"%s\",\n  \"engines\": %u," ZOFF_ARCHIVE_SEQUENCE_LINE "%" PRIu64 ",\n"
                          "  \"replaces\": %" PRIu64 ",\n  \"step\": %" PRId64 ",\n",
                          ZOFF_ARCHIVE_VERSION, m->id, m->label, m->engines, m->sequence, m->replaces, m->t);
    put_scaler(&w, m);
    if (m->exact_sums)
        zoff_base_array_print(&w, "  \"reduce_scatter\": \"exact\",\n");
    zoff_base_array_print(&w, "  \"about\": %s,\n", m->about ? m->about : "{}");
    put_groups(&w, m);
    zoff_base_array_print(&w, "  \"params\": ");
    put_params(&w, m);
    zoff_base_array_print(&w, ",\n");
    put_files(&w, m);
    if (w.status == ZOFF_OK)
        zoff_base_array_print(&w, ZOFF_ARCHIVE_CHECKSUM_BEFORE "%016" PRIx64 ZOFF_ARCHIVE_CHECKSUM_AFTER,
                              zoff_digest_blocks_small(w.words, w.bytes));
    return hand_out(&w, out, out_bytes);
}

zoff_status zoff_archive_manifest_print_params(const zoff_archive_manifest *m, char **out, size_t *out_bytes)
{
    zoff_text w = {.words = NULL};
    put_params(&w, m);
    return hand_out(&w, out, out_bytes);
}

/* ---- reading. The checksum comes first, so what follows was written by this format. All the same every number is checked ----
 */

#define CORRUPT(...) zoff_base_status_fail(ZOFF_ERR_CORRUPT, __VA_ARGS__)

/* ---- values ---- */

static zoff_status text_of(const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    ZOFF_FAIL_IF(!json_is_string(value), ZOFF_ERR_CORRUPT, "\"%s\" is missing or is no text", key);
    *out = json_string_value(value);
    return ZOFF_OK;
}

static zoff_status integer_of(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    ZOFF_FAIL_IF(!json_is_integer(value), ZOFF_ERR_CORRUPT, "\"%s\" is missing or is no integer", key);
    *out = json_integer_value(value);
    ZOFF_FAIL_IF(*out < least || *out > most, ZOFF_ERR_CORRUPT, "\"%s\" is %" PRId64 ", which is out of range", key, *out);
    return ZOFF_OK;
}

static zoff_status unsigned_of(const json_t *object, const char *key, int64_t most, uint64_t *out)
{
    int64_t value = 0;
    ZOFF_TRY(integer_of(object, key, 0, most, &value));
    *out = (uint64_t)value;
    return ZOFF_OK;
}

/* Exactly 16 digits in lower case, so that one text is one number. */
static zoff_status hex_of(const json_t *object, const char *key, uint64_t *out)
{
    const char *text = NULL;
    ZOFF_TRY(text_of(object, key, &text));
    ZOFF_FAIL_IF(strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16, ZOFF_ERR_CORRUPT,
                 "\"%s\" is not 16 hexadecimal digits", key);
    *out = strtoull(text, NULL, 16);
    return ZOFF_OK;
}

static zoff_status copy_text(const json_t *object, const char *key, char **out)
{
    const char *text = NULL;
    ZOFF_TRY(text_of(object, key, &text));
    return zoff_base_mem_copy_text(text, out);
}

static zoff_status name_of(const json_t *object, const char *key, char **out)
{
    const char *text = NULL;
    ZOFF_TRY(text_of(object, key, &text));
    ZOFF_TRY(zoff_archive_escape_read(text, out));
    ZOFF_FAIL_IF(strlen(*out) > ZOFF_ARCHIVE_PARAM_NAME_MOST, ZOFF_ERR_CORRUPT, "\"%s\" is longer than %d bytes", key,
                 ZOFF_ARCHIVE_PARAM_NAME_MOST);
    return ZOFF_OK;
}

/* ---- parameters ---- */

static zoff_status read_dims(const json_t *object, zoff_archive_param *p)
{
    const json_t *dims = json_object_get(object, "dims");
    ZOFF_FAIL_IF(!json_is_array(dims) || json_array_size(dims) < 1 || json_array_size(dims) > ZOFF_ARCHIVE_DIMS_MOST,
                 ZOFF_ERR_CORRUPT, "\"dims\" is no list of 1 to %d numbers", ZOFF_ARCHIVE_DIMS_MOST);
    ZOFF_TRY(zoff_base_mem_alloc(json_array_size(dims), sizeof *p->dims, "dimensions", &p->dims));
    p->dim_count = json_array_size(dims);
    p->count = 1;
    for (size_t i = 0; i < p->dim_count; i++) {
        const json_t *dim = json_array_get(dims, i);
        ZOFF_FAIL_IF(!json_is_integer(dim) || json_integer_value(dim) < 0, ZOFF_ERR_CORRUPT, "a dimension is no number");
        p->dims[i] = (size_t)json_integer_value(dim);
        ZOFF_FAIL_IF(!zoff_base_bits_mul(p->count, p->dims[i], &p->count) || p->count > ZOFF_ARCHIVE_ELEMENTS_MOST,
                     ZOFF_ERR_CORRUPT, "\"dims\" has too many elements");
    }
    return ZOFF_OK;
}

static zoff_status read_states(const json_t *object, zoff_archive_param *p)
{
    const json_t *states = json_object_get(object, "states");
    ZOFF_FAIL_IF(!json_is_array(states), ZOFF_ERR_CORRUPT, "\"states\" is no list");
    for (size_t i = 0; i < json_array_size(states); i++) {
        const char *word = json_string_value(json_array_get(states, i));
        unsigned kind = 0;
        while (word && kind < ZOFF_ARCHIVE_KINDS && strcmp(word, KINDS[kind]) != 0)
            kind++;
        ZOFF_FAIL_IF(!word || kind == ZOFF_ARCHIVE_KINDS || (p->states >> kind & 1), ZOFF_ERR_CORRUPT,
                     "\"states\" has '%.40s', which is no state or is there twice", word ? word : "a value that is no text");
        p->states |= 1u << kind;
    }
    return ZOFF_OK;
}

static zoff_status read_dtype(const json_t *object, zoff_dtype *out)
{
    const char *word = NULL;
    ZOFF_TRY(text_of(object, "dtype", &word));
    for (unsigned i = ZOFF_F32; i <= ZOFF_BF16; i++) {
        if (strcmp(word, DTYPES[i]) == 0) {
            *out = (zoff_dtype)i;
            return ZOFF_OK;
        }
    }
    return CORRUPT("\"dtype\" is '%.40s'", word);
}

/* A rule of a later version is read as it is, because it is only compared. */
static zoff_status read_rule(const json_t *object, zoff_archive_param *p)
{
    if (!json_object_get(object, "rule"))
        return ZOFF_OK;
    ZOFF_TRY(copy_text(object, "rule", &p->rule));
    ZOFF_FAIL_IF(strlen(p->rule) > ZOFF_ARCHIVE_RULE_MOST, ZOFF_ERR_CORRUPT, "\"rule\" is longer than %d bytes",
                 ZOFF_ARCHIVE_RULE_MOST);
    return ZOFF_OK;
}

/* *out_owner is the parameter it is tied to, or stays NULL. */
static zoff_status read_param(const json_t *object, zoff_archive_param *p, char **out_owner)
{
    int64_t slices = 0, group = 0;
    size_t all;
    ZOFF_FAIL_IF(!json_is_object(object), ZOFF_ERR_CORRUPT, "it is no object");
    ZOFF_TRY(name_of(object, "name", &p->name));
    ZOFF_TRY(read_dtype(object, &p->dtype));
    ZOFF_TRY(read_dims(object, p));
    ZOFF_TRY(integer_of(object, "slices", 1, INT64_MAX, &slices));
    ZOFF_TRY(integer_of(object, "group", 0, UINT32_MAX, &group));
    p->slices = (size_t)slices;
    p->group = (unsigned)group;
    ZOFF_FAIL_IF(!zoff_base_bits_mul(p->count, p->slices, &all) || all > ZOFF_ARCHIVE_ELEMENTS_MOST, ZOFF_ERR_CORRUPT,
                 "it has too many elements");
    if (json_object_get(object, "slice_name"))
        ZOFF_TRY(name_of(object, "slice_name", &p->slice_name));
    ZOFF_TRY(read_states(object, p));
    ZOFF_TRY(read_rule(object, p));
    if (!json_object_get(object, "tied_to"))
        return ZOFF_OK;
    ZOFF_FAIL_IF(p->states, ZOFF_ERR_CORRUPT, "it is tied, and has states of its own");
    return name_of(object, "tied_to", out_owner);
}

/* Names are unique, and owners are there. */
static zoff_status read_ties(zoff_archive_manifest *m, char *const *owners)
{
    const zoff_archive_param **sorted;
    zoff_status status = zoff_archive_names_sort(m->params, m->param_count, &sorted);
    if (status < 0)
        return status == ZOFF_ERR_INVALID ? ZOFF_ERR_CORRUPT : status;
    for (size_t i = 0; i < m->param_count && status == ZOFF_OK; i++)
        status = owners[i] ? zoff_archive_names_tie(m, sorted, owners[i], &m->params[i]) : ZOFF_OK;
    zoff_base_mem_free(sorted);
    return status == ZOFF_ERR_INVALID ? ZOFF_ERR_CORRUPT : status;
}

static zoff_status read_each(zoff_archive_value list, zoff_archive_manifest *m, char **owners)
{
    size_t at = 0;
    for (size_t i = 0; i < m->param_count; i++) {
        json_t *object;
        zoff_status status = zoff_archive_members_next(list, &at, &object);
        if (status == ZOFF_OK) {
            status = read_param(object, &m->params[i], &owners[i]);
            json_decref(object);
        }
        if (status < 0)
            return zoff_base_status_prefix(status, "parameter %zu: ", i);
    }
    return read_ties(m, owners);
}

static zoff_status read_params(zoff_archive_value list, zoff_archive_manifest *m)
{
    size_t count = 0;
    char **owners;
    const zoff_status counted = zoff_archive_members_count(list, &count);
    if (counted < 0)
        return zoff_base_status_prefix(counted, "\"params\": ");
    ZOFF_FAIL_IF(count >= UINT32_MAX, ZOFF_ERR_CORRUPT, "\"params\" is too long");
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *m->params, "parameters of a manifest", &m->params));
    m->param_count = count;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *owners, "ties of a manifest", &owners));
    const zoff_status status = read_each(list, m, owners);
    for (size_t i = 0; i < count; i++)
        zoff_base_mem_free(owners[i]);
    zoff_base_mem_free(owners);
    return status;
}

zoff_status zoff_archive_manifest_read_params(const char *text, size_t bytes, zoff_archive_manifest *m)
{
    return read_params((zoff_archive_value){.text = text, .bytes = bytes}, m);
}

/* ---- groups ---- */

/* Groups are for comparisons alone, so a member that is missing or of another kind counts as not known. */
static zoff_status read_group(const json_t *object, zoff_archive_group *g)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    for (unsigned i = 0; i < ZOFF_ARCHIVE_GROUP_NUMBERS; i++) {
        const json_t *number = json_object_get(object, NUMBERS[i]);
        g->numbers[i] = json_is_number(number) ? json_number_value(number) : NAN;
    }
    return type ? zoff_base_mem_copy_text(type, &g->type) : ZOFF_OK;
}

static zoff_status read_groups(zoff_archive_value list, zoff_archive_manifest *m)
{
    size_t count = 0, at = 0;
    if (!list.text)
        return ZOFF_OK;
    ZOFF_TRY(zoff_archive_members_count(list, &count));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *m->groups, "groups of a manifest", &m->groups));
    for (m->group_count = 0; m->group_count < count; m->group_count++) {
        json_t *object;
        ZOFF_TRY(zoff_archive_members_next(list, &at, &object));
        const zoff_status status = read_group(object, &m->groups[m->group_count]);
        json_decref(object);
        ZOFF_TRY(status);
    }
    return ZOFF_OK;
}

/* ---- files ---- */

static zoff_status read_file(const json_t *object, const zoff_archive_manifest *m, unsigned rank, zoff_archive_file *f)
{
    char wanted[512];
    const char *name = "";
    const json_t *table = json_object_get(object, "table");
    ZOFF_TRY(text_of(object, "name", &name));
    /* The name follows from label, id and rank, so that no manifest can name a file outside of its folder. */
    zoff_archive_folder_part_name(m->label, m->id, rank, wanted);
    ZOFF_FAIL_IF(strcmp(name, wanted) != 0, ZOFF_ERR_CORRUPT, "its name is '%.200s' where %s is expected", name, wanted);
    ZOFF_TRY(unsigned_of(object, "bytes", INT64_MAX, &f->bytes));
    ZOFF_TRY(hex_of(object, "head", &f->head_checksum));
    ZOFF_TRY(unsigned_of(table, "offset", INT64_MAX, &f->table_offset));
    ZOFF_TRY(unsigned_of(table, "bytes", INT64_MAX, &f->table_bytes));
    ZOFF_TRY(hex_of(table, "checksum", &f->table_checksum));
    ZOFF_FAIL_IF(f->table_offset < ZOFF_ARCHIVE_PAGE || f->table_offset % ZOFF_ARCHIVE_PAGE || f->table_offset > f->bytes ||
                     f->bytes - f->table_offset != f->table_bytes || f->table_bytes > ZOFF_ARCHIVE_MANIFEST_MOST,
                 ZOFF_ERR_CORRUPT, "its table does not lie at its end");
    return ZOFF_OK;
}

static zoff_status read_files(zoff_archive_value list, zoff_archive_manifest *m)
{
    size_t count = 0, at = 0;
    const zoff_status counted = zoff_archive_members_count(list, &count);
    if (counted < 0)
        return zoff_base_status_prefix(counted, "\"files\": ");
    ZOFF_FAIL_IF(count < 1 || count > 1 << 24, ZOFF_ERR_CORRUPT, "\"files\" has %zu elements", count);
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *m->files, "files of a manifest", &m->files));
    m->file_count = count;
    for (unsigned i = 0; i < count; i++) {
        json_t *object;
        zoff_status status = zoff_archive_members_next(list, &at, &object);
        if (status == ZOFF_OK) {
            status = read_file(object, m, i, &m->files[i]);
            json_decref(object);
        }
        if (status < 0)
            return zoff_base_status_prefix(status, "file %u: ", i);
    }
    return ZOFF_OK;
}

/* ---- the whole ---- */

/* A newer version lists in "needs" what a reader must know. Members that this version does not know are ignored. */
static zoff_status check_version(const json_t *root)
{
    const char *format = "";
    int64_t version = 0;
    const json_t *needs = json_object_get(root, "needs");
    ZOFF_TRY(text_of(root, "format", &format));
    ZOFF_FAIL_IF(strcmp(format, "zoff checkpoint") != 0, ZOFF_ERR_CORRUPT, "\"format\" is '%.40s'", format);
    ZOFF_TRY(integer_of(root, "version", 1, INT64_MAX, &version));
    ZOFF_FAIL_IF(version > ZOFF_ARCHIVE_VERSION, ZOFF_ERR_UNSUPPORTED,
                 "it has version %" PRId64 " of the format, and this library reads up to version %d: use a newer one", version,
                 ZOFF_ARCHIVE_VERSION);
    ZOFF_FAIL_IF(!json_is_array(needs), ZOFF_ERR_CORRUPT, "\"needs\" is no list");
    const char *word = json_array_size(needs) ? json_string_value(json_array_get(needs, 0)) : NULL;
    ZOFF_FAIL_IF(json_array_size(needs), ZOFF_ERR_UNSUPPORTED,
                 "it needs \"%.100s\", which this library does not have: use a newer one", word ? word : "?");
    return ZOFF_OK;
}

static zoff_status read_scaler(const json_t *root, zoff_archive_manifest *m)
{
    const json_t *scaler = json_object_get(root, "loss_scaler");
    if (json_is_null(scaler))
        return ZOFF_OK;
    const json_t *scale = json_object_get(scaler, "scale");
    ZOFF_FAIL_IF(!json_is_number(scale) || !(json_number_value(scale) > 0), ZOFF_ERR_CORRUPT, "\"loss_scaler\" has no scale");
    m->has_scaler = true;
    m->scaler = (zoff_loss_scaler){.struct_size = sizeof m->scaler, .scale = json_number_value(scale)};
    ZOFF_TRY(integer_of(scaler, "iterations", 0, INT64_MAX, &m->scaler.iterations));
    ZOFF_TRY(integer_of(scaler, "last_overflow", -1, INT64_MAX, &m->scaler.last_overflow));
    return unsigned_of(scaler, "hysteresis", INT64_MAX, &m->scaler.hysteresis);
}

static zoff_status read_head(const json_t *root, zoff_archive_manifest *m)
{
    uint64_t id = 0;
    int64_t engines = 0, sequence = 0;
    ZOFF_TRY(check_version(root));
    ZOFF_TRY(hex_of(root, "id", &id));
    memcpy(m->id, json_string_value(json_object_get(root, "id")), sizeof m->id);
    ZOFF_TRY(copy_text(root, "label", &m->label));
    if (*m->label && zoff_archive_folder_check_label("\"label\"", m->label) < 0)
        return ZOFF_ERR_CORRUPT;
    ZOFF_TRY(integer_of(root, "engines", 1, ZOFF_ARCHIVE_ENGINES_MOST, &engines));
    m->engines = (unsigned)engines;
    ZOFF_TRY(integer_of(root, "sequence", 1, (int64_t)ZOFF_ARCHIVE_SEQUENCE_MOST, &sequence));
    m->sequence = (uint64_t)sequence;
    ZOFF_TRY(unsigned_of(root, "replaces", (int64_t)ZOFF_ARCHIVE_SEQUENCE_MOST, &m->replaces));
    ZOFF_TRY(integer_of(root, "step", 0, INT64_MAX, &m->t));
    const char *rule = json_string_value(json_object_get(root, "reduce_scatter"));
    m->exact_sums = rule && strcmp(rule, "exact") == 0;
    return read_scaler(root, m);
}

/* Check that the text ends in its checksum, and in nothing else. */
static zoff_status check_sum(const char *text, size_t bytes)
{
    const size_t before = sizeof ZOFF_ARCHIVE_CHECKSUM_BEFORE - 1, after = sizeof ZOFF_ARCHIVE_CHECKSUM_AFTER - 1, digits = 16;
    char wanted[17];
    ZOFF_FAIL_IF(bytes <= before + digits + after, ZOFF_ERR_CORRUPT, "it is too short");
    const char *end = text + bytes - after, *start = end - digits - before;
    snprintf(wanted, sizeof wanted, "%016" PRIx64, zoff_digest_blocks_small(text, (size_t)(start - text)));
    ZOFF_FAIL_IF(memcmp(end, ZOFF_ARCHIVE_CHECKSUM_AFTER, after) != 0 ||
                     memcmp(start, ZOFF_ARCHIVE_CHECKSUM_BEFORE, before) != 0 || memcmp(end - digits, wanted, digits) != 0,
                 ZOFF_ERR_CORRUPT, "its checksum does not hold: it was damaged or changed");
    return ZOFF_OK;
}

static zoff_status read_all(const char *text, size_t bytes, bool with_params, zoff_archive_manifest *m)
{
    enum { PARAMS, FILES, GROUPS };
    static const char *const WANTED[] = {"format",   "version",  "needs", "id",          "label",          "engines",
                                         "sequence", "replaces", "step",  "loss_scaler", "reduce_scatter", NULL};
    static const char *const LISTED[] = {"params", "files", "groups", NULL};
    zoff_archive_value listed[3];
    json_t *root;
    ZOFF_TRY(check_sum(text, bytes));
    ZOFF_TRY(zoff_archive_members_read(text, bytes, WANTED, LISTED, listed, &root));
    const zoff_status status = read_head(root, m);
    json_decref(root);
    ZOFF_TRY(status);
    ZOFF_TRY(read_files(listed[FILES], m));
    if (!with_params)
        return ZOFF_OK;
    const zoff_status groups = read_groups(listed[GROUPS], m);
    if (groups < 0)
        return zoff_base_status_prefix(groups, "\"groups\": ");
    return read_params(listed[PARAMS], m);
}

static zoff_status read_checked(const char *where, const char *text, size_t bytes, bool with_params, zoff_archive_manifest *out)
{
    zoff_archive_manifest m = {.label = NULL};
    const zoff_status status = read_all(text, bytes, with_params, &m);
    if (status < 0) {
        zoff_archive_manifest_free(&m);
        return zoff_base_status_prefix(status, "the manifest '%s' cannot be used: ", where);
    }
    *out = m;
    return ZOFF_OK;
}

zoff_status zoff_archive_manifest_read(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out)
{
    return read_checked(where, text, bytes, true, out);
}

zoff_status zoff_archive_manifest_read_facts(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out)
{
    return read_checked(where, text, bytes, false, out);
}

void zoff_archive_manifest_free(zoff_archive_manifest *m)
{
    for (size_t i = 0; i < m->param_count; i++) {
        zoff_base_mem_free(m->params[i].name);
        zoff_base_mem_free(m->params[i].slice_name);
        zoff_base_mem_free(m->params[i].dims);
        zoff_base_mem_free(m->params[i].rule);
    }
    for (size_t i = 0; i < m->group_count; i++)
        zoff_base_mem_free(m->groups[i].type);
    zoff_base_mem_free(m->params);
    zoff_base_mem_free(m->groups);
    zoff_base_mem_free(m->files);
    zoff_base_mem_free(m->label);
    zoff_base_mem_free(m->about);
    *m = (zoff_archive_manifest){.label = NULL};
}
