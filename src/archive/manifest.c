/* manifest.c: writes the manifest of a checkpoint: JSON with a line for each parameter and each file. The last member is the
 * checksum of the bytes before it, so that a reader trusts no byte that was not written. */
#include "archive_priv.h"

#include "array.h"
#include "digest.h"
#include "try.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static const char *const KINDS[ZOFF_ARCHIVE_PIECE_KINDS] = {"master", "m", "v", "weights", "upper half of the master"};

const char *zoff_archive_manifest_kind(unsigned kind)
{
    return KINDS[kind];
}

static const char *const DTYPES[] = {"", "fp32", "fp16", "bf16"};

const char *zoff_archive_manifest_dtype(zoff_dtype dtype)
{
    return DTYPES[dtype];
}

static const char *const NUMBERS[ZOFF_ARCHIVE_GROUP_NUMBERS] = {
    "lr", "beta1", "beta2", "eps", "weight_decay", "momentum", "dampening", "lr_decay", "nesterov", "bias_correction"};

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
    zoff_base_array_print(w, ", \"dtype\": \"%s\", \"dims\": [", zoff_archive_manifest_dtype(p->dtype));
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
        zoff_base_array_print(w, "%s\"%s\"", comma, zoff_archive_manifest_kind(kind));
        comma = ", ";
    }
    zoff_base_array_print(w, "]");
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
