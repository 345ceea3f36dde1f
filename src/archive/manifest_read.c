/* manifest_read.c: checks and parses a manifest. Its checksum comes first, so what follows was written by this format. All the
 * same, every number is checked: a manifest may be written by others. */
#include "archive_priv.h"

#include "bits.h"
#include "digest.h"
#include "try.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MOST = 64 };
#define ELEMENTS_MOST ((size_t)1 << 58)

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

static zoff_status unsigned_of(const json_t *object, const char *key, uint64_t *out)
{
    int64_t value = 0;
    ZOFF_TRY(integer_of(object, key, 0, INT64_MAX, &value));
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
    return zoff_archive_escape_read(text, out);
}

/* ---- parameters ---- */

static zoff_status read_dims(const json_t *object, zoff_archive_param *p)
{
    const json_t *dims = json_object_get(object, "dims");
    ZOFF_FAIL_IF(!json_is_array(dims) || json_array_size(dims) < 1 || json_array_size(dims) > DIMS_MOST, ZOFF_ERR_CORRUPT,
                 "\"dims\" is no list of 1 to %d numbers", DIMS_MOST);
    ZOFF_TRY(zoff_base_mem_alloc(json_array_size(dims), sizeof *p->dims, "dimensions", &p->dims));
    p->dim_count = json_array_size(dims);
    p->count = 1;
    for (size_t i = 0; i < p->dim_count; i++) {
        const json_t *dim = json_array_get(dims, i);
        ZOFF_FAIL_IF(!json_is_integer(dim) || json_integer_value(dim) < 0, ZOFF_ERR_CORRUPT, "a dimension is no number");
        p->dims[i] = (size_t)json_integer_value(dim);
        ZOFF_FAIL_IF(!zoff_base_bits_mul(p->count, p->dims[i], &p->count) || p->count > ELEMENTS_MOST, ZOFF_ERR_CORRUPT,
                     "\"dims\" has too many elements");
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
        while (word && kind < ZOFF_ARCHIVE_KINDS && strcmp(word, zoff_archive_manifest_kind(kind)) != 0)
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
        if (strcmp(word, zoff_archive_manifest_dtype((zoff_dtype)i)) == 0) {
            *out = (zoff_dtype)i;
            return ZOFF_OK;
        }
    }
    return CORRUPT("\"dtype\" is '%.40s'", word);
}

static zoff_status read_param(const json_t *object, zoff_archive_param *p)
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
    ZOFF_FAIL_IF(!zoff_base_bits_mul(p->count, p->slices, &all) || all > ELEMENTS_MOST, ZOFF_ERR_CORRUPT,
                 "it has too many elements");
    if (json_object_get(object, "slice_name"))
        ZOFF_TRY(name_of(object, "slice_name", &p->slice_name));
    ZOFF_TRY(read_states(object, p));
    ZOFF_FAIL_IF(json_object_get(object, "tied_to") && p->states, ZOFF_ERR_CORRUPT, "it is tied, and has states of its own");
    return ZOFF_OK;
}

/* ---- ties ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const zoff_archive_param *const *)a)->name, (*(const zoff_archive_param *const *)b)->name);
}

static int compare_name(const void *key, const void *b)
{
    return strcmp(key, (*(const zoff_archive_param *const *)b)->name);
}

static zoff_status read_tie(const zoff_archive_manifest *m, zoff_archive_param *const *sorted, const json_t *object,
                            zoff_archive_param *p)
{
    char *name = NULL;
    if (!json_object_get(object, "tied_to"))
        return ZOFF_OK;
    ZOFF_TRY(name_of(object, "tied_to", &name));
    zoff_archive_param *const *owner = bsearch(name, sorted, m->param_count, sizeof(zoff_archive_param *), compare_name);
    zoff_base_mem_free(name);
    ZOFF_FAIL_IF(!owner || !(*owner)->states || (*owner)->count != p->count || (*owner)->slices != p->slices, ZOFF_ERR_CORRUPT,
                 "parameter '%.100s' is tied to one that is not there or has another size", p->name);
    p->tied_to = 1 + (uint32_t)(*owner - m->params);
    return ZOFF_OK;
}

/* Names are unique, and ties name a parameter with states. */
static zoff_status read_names(const json_t *list, zoff_archive_manifest *m)
{
    zoff_archive_param **sorted;
    zoff_status status = ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(m->param_count + 1, sizeof *sorted, "names of a manifest", &sorted));
    for (size_t i = 0; i < m->param_count; i++)
        sorted[i] = &m->params[i];
    qsort(sorted, m->param_count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < m->param_count && status == ZOFF_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = CORRUPT("there are two parameters '%.100s'", sorted[i]->name);
    }
    for (size_t i = 0; i < m->param_count && status == ZOFF_OK; i++)
        status = read_tie(m, sorted, json_array_get(list, i), &m->params[i]);
    zoff_base_mem_free(sorted);
    return status;
}

static zoff_status read_params(const json_t *root, zoff_archive_manifest *m)
{
    const json_t *list = json_object_get(root, "params");
    ZOFF_FAIL_IF(!json_is_array(list) || json_array_size(list) >= UINT32_MAX, ZOFF_ERR_CORRUPT, "\"params\" is no list");
    ZOFF_TRY(zoff_base_mem_alloc(json_array_size(list) + 1, sizeof *m->params, "parameters of a manifest", &m->params));
    m->param_count = json_array_size(list);
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_status status = read_param(json_array_get(list, i), &m->params[i]);
        if (status < 0)
            return zoff_base_status_prefix(status, "parameter %zu: ", i);
    }
    return read_names(list, m);
}

/* ---- files ---- */

static zoff_status read_file(const json_t *object, const zoff_archive_manifest *m, unsigned rank, zoff_archive_file *f)
{
    char wanted[512];
    const char *name = "";
    const json_t *table = json_object_get(object, "table");
    ZOFF_TRY(text_of(object, "name", &name));
    /* The name follows from label, id and rank: so no manifest can name a file outside of its folder. */
    zoff_archive_folder_part_name(m->label, m->id, rank, wanted);
    ZOFF_FAIL_IF(strcmp(name, wanted) != 0, ZOFF_ERR_CORRUPT, "its name is '%.200s' where %s is expected", name, wanted);
    ZOFF_TRY(unsigned_of(object, "bytes", &f->bytes));
    ZOFF_TRY(hex_of(object, "head", &f->head_checksum));
    ZOFF_TRY(unsigned_of(table, "offset", &f->table_offset));
    ZOFF_TRY(unsigned_of(table, "bytes", &f->table_bytes));
    ZOFF_TRY(hex_of(table, "checksum", &f->table_checksum));
    ZOFF_FAIL_IF(f->table_offset < ZOFF_ARCHIVE_PAGE || f->table_offset % ZOFF_ARCHIVE_PAGE || f->table_offset > f->bytes ||
                     f->bytes - f->table_offset != f->table_bytes || f->table_bytes > ZOFF_ARCHIVE_MANIFEST_MOST,
                 ZOFF_ERR_CORRUPT, "its table does not lie at its end");
    return ZOFF_OK;
}

static zoff_status read_files(const json_t *root, zoff_archive_manifest *m)
{
    const json_t *list = json_object_get(root, "files");
    ZOFF_FAIL_IF(!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > 1 << 24, ZOFF_ERR_CORRUPT,
                 "\"files\" is no list");
    ZOFF_TRY(zoff_base_mem_alloc(json_array_size(list), sizeof *m->files, "files of a manifest", &m->files));
    m->file_count = json_array_size(list);
    for (unsigned i = 0; i < m->file_count; i++) {
        const zoff_status status = read_file(json_array_get(list, i), m, i, &m->files[i]);
        if (status < 0)
            return zoff_base_status_prefix(status, "file %u: ", i);
    }
    return ZOFF_OK;
}

/* ---- the whole ---- */

/* "needs" lists features of newer versions. Members that this version does not know are ignored. */
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
    return unsigned_of(scaler, "hysteresis", &m->scaler.hysteresis);
}

static zoff_status read_head(const json_t *root, zoff_archive_manifest *m)
{
    uint64_t id = 0;
    int64_t engines = 0;
    ZOFF_TRY(check_version(root));
    ZOFF_TRY(hex_of(root, "id", &id));
    memcpy(m->id, json_string_value(json_object_get(root, "id")), sizeof m->id);
    ZOFF_TRY(copy_text(root, "label", &m->label));
    if (*m->label)
        ZOFF_TRY(zoff_archive_folder_check_name("\"label\"", m->label));
    ZOFF_TRY(integer_of(root, "engines", 1, 1 << 24, &engines));
    m->engines = (unsigned)engines;
    ZOFF_TRY(unsigned_of(root, "sequence", &m->sequence));
    ZOFF_TRY(integer_of(root, "step", 0, INT64_MAX, &m->t));
    ZOFF_TRY(read_scaler(root, m));
    ZOFF_TRY(read_params(root, m));
    return read_files(root, m);
}

/* The text ends in its checksum, and in nothing else. */
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

static zoff_status read_all(const char *text, size_t bytes, zoff_archive_manifest *m)
{
    json_error_t error;
    ZOFF_TRY(check_sum(text, bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    ZOFF_FAIL_IF(!root, ZOFF_ERR_CORRUPT, "it is no JSON: line %d: %s", error.line, error.text);
    const zoff_status status = read_head(root, m);
    json_decref(root);
    return status;
}

zoff_status zoff_archive_manifest_read(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out)
{
    zoff_archive_manifest m = {.label = NULL};
    const zoff_status status = read_all(text, bytes, &m);
    if (status < 0) {
        zoff_archive_manifest_free(&m);
        return zoff_base_status_prefix(status, "the manifest '%s' cannot be used: ", where);
    }
    *out = m;
    return ZOFF_OK;
}

void zoff_archive_manifest_free(zoff_archive_manifest *m)
{
    for (size_t i = 0; i < m->param_count; i++) {
        zoff_base_mem_free(m->params[i].name);
        zoff_base_mem_free(m->params[i].slice_name);
        zoff_base_mem_free(m->params[i].dims);
    }
    zoff_base_mem_free(m->params);
    zoff_base_mem_free(m->files);
    zoff_base_mem_free(m->label);
    zoff_base_mem_free(m->about);
    *m = (zoff_archive_manifest){.label = NULL};
}
