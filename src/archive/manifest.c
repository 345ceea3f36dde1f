/* manifest.c: writes the manifest of a checkpoint: JSON with a line for each parameter and each file. The last member is the
 * checksum of the bytes before it, so that a reader trusts no byte that was not written. */
#include "archive_priv.h"

#include "array.h"
#include "digest.h"
#include "try.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct writing {
    char *text;
    size_t bytes, room;
} writing;

static zoff_status put(writing *w, const char *text, size_t bytes)
{
    ZOFF_TRY(zoff_base_array_reserve(&w->text, w->bytes, &w->room, w->bytes + bytes + 1, 1, "a manifest"));
    memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
    w->text[w->bytes] = 0;
    return ZOFF_OK;
}

static zoff_status put_text(writing *w, const char *text)
{
    return put(w, text, strlen(text));
}

static zoff_status put_format(writing *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static zoff_status put_format(writing *w, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ZOFF_FAIL_IF(bytes < 0 || (size_t)bytes >= sizeof line, ZOFF_ERR_INVALID, "a line of a manifest is too long");
    return put(w, line, (size_t)bytes);
}

/* Write a JSON value and drop the reference to it. NULL: there was no memory for it. */
static zoff_status put_json(writing *w, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    ZOFF_FAIL_IF(!text, ZOFF_ERR_NO_MEMORY, "no memory for a manifest");
    const zoff_status status = put_text(w, text);
    free(text);
    return status;
}

static zoff_status put_name(writing *w, const char *name)
{
    char *text;
    ZOFF_TRY(zoff_archive_escape_write(name, &text));
    const zoff_status status = put_json(w, json_string(text));
    zoff_base_mem_free(text);
    return status;
}

static zoff_status put_states(writing *w, unsigned states)
{
    const char *comma = "";
    ZOFF_TRY(put_text(w, ", \"states\": ["));
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++) {
        if (!(states >> kind & 1))
            continue;
        ZOFF_TRY(put_format(w, "%s\"%s\"", comma, zoff_archive_manifest_kind(kind)));
        comma = ", ";
    }
    return put_text(w, "]");
}

static zoff_status put_param(writing *w, const zoff_archive_manifest *m, const zoff_archive_param *p)
{
    ZOFF_TRY(put_text(w, "    {\"name\": "));
    ZOFF_TRY(put_name(w, p->name));
    ZOFF_TRY(put_format(w, ", \"dtype\": \"%s\", \"dims\": [", zoff_archive_manifest_dtype(p->dtype)));
    for (size_t i = 0; i < p->dim_count; i++)
        ZOFF_TRY(put_format(w, "%s%zu", i ? ", " : "", p->dims[i]));
    ZOFF_TRY(put_format(w, "], \"slices\": %zu, \"group\": %u", p->slices, p->group));
    if (p->slice_name) {
        ZOFF_TRY(put_text(w, ", \"slice_name\": "));
        ZOFF_TRY(put_name(w, p->slice_name));
    }
    if (p->tied_to) {
        ZOFF_TRY(put_text(w, ", \"tied_to\": "));
        ZOFF_TRY(put_name(w, m->params[p->tied_to - 1].name));
    }
    ZOFF_TRY(put_states(w, p->states));
    return put_text(w, "}");
}

static zoff_status put_params(writing *w, const zoff_archive_manifest *m)
{
    ZOFF_TRY(put_text(w, "[\n"));
    for (size_t i = 0; i < m->param_count; i++) {
        ZOFF_TRY(put_param(w, m, &m->params[i]));
        ZOFF_TRY(put_text(w, i + 1 < m->param_count ? ",\n" : "\n"));
    }
    return put_text(w, "  ]");
}

static zoff_status put_group(writing *w, const zoff_archive_group *g)
{
    ZOFF_TRY(put_text(w, "    {\"type\": "));
    ZOFF_TRY(put_json(w, json_string(g->type)));
    for (unsigned i = 0; i < ZOFF_ARCHIVE_GROUP_NUMBERS; i++) {
        if (!isfinite(g->numbers[i])) /* JSON does not have it, and readers do not need it */
            continue;
        ZOFF_TRY(put_format(w, ", \"%s\": ", NUMBERS[i]));
        ZOFF_TRY(put_json(w, json_real(g->numbers[i])));
    }
    return put_text(w, "}");
}

static zoff_status put_groups(writing *w, const zoff_archive_manifest *m)
{
    if (!m->group_count)
        return ZOFF_OK;
    ZOFF_TRY(put_text(w, "  \"groups\": [\n"));
    for (size_t i = 0; i < m->group_count; i++) {
        ZOFF_TRY(put_group(w, &m->groups[i]));
        ZOFF_TRY(put_text(w, i + 1 < m->group_count ? ",\n" : "\n"));
    }
    return put_text(w, "  ],\n");
}

static zoff_status put_file(writing *w, const zoff_archive_manifest *m, unsigned rank)
{
    char name[512];
    const zoff_archive_file *f = &m->files[rank];
    zoff_archive_folder_part_name(m->label, m->id, rank, name);
    return put_format(w,
                      "    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"head\": \"%016" PRIx64
                      "\", \"table\": {\"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"checksum\": \"%016" PRIx64 "\"}}",
                      name, f->bytes, f->head_checksum, f->table_offset, f->table_bytes, f->table_checksum);
}

static zoff_status put_scaler(writing *w, const zoff_archive_manifest *m)
{
    if (!m->has_scaler)
        return put_text(w, "  \"loss_scaler\": null,\n");
    /* JSON has no infinity, and its integers here have 64 bits with a sign. */
    ZOFF_FAIL_IF(!isfinite(m->scaler.scale) || m->scaler.scale <= 0 || m->scaler.iterations < 0 ||
                     m->scaler.last_overflow < -1 || m->scaler.hysteresis > INT64_MAX,
                 ZOFF_ERR_INVALID,
                 "the loss scaler of a checkpoint has the scale %g, %" PRId64 " iterations and the last overflow %" PRId64,
                 m->scaler.scale, m->scaler.iterations, m->scaler.last_overflow);
    ZOFF_TRY(put_text(w, "  \"loss_scaler\": {\"scale\": "));
    ZOFF_TRY(put_json(w, json_real(m->scaler.scale)));
    return put_format(w, ", \"iterations\": %" PRId64 ", \"last_overflow\": %" PRId64 ", \"hysteresis\": %" PRIu64 "},\n",
                      m->scaler.iterations, m->scaler.last_overflow, m->scaler.hysteresis);
}

static zoff_status put_all(writing *w, const zoff_archive_manifest *m)
{
    ZOFF_TRY(put_format(w,
                        "{\n  \"format\": \"zoff checkpoint\",\n  \"version\": %d,\n  \"needs\": [],\n  \"id\": \"%s\",\n"
                        "  \"label\": \"%s\",\n  \"engines\": %u," ZOFF_ARCHIVE_SEQUENCE_LINE "%" PRIu64 ",\n"
                        "  \"replaces\": %" PRIu64 ",\n  \"step\": %" PRId64 ",\n",
                        ZOFF_ARCHIVE_VERSION, m->id, m->label, m->engines, m->sequence, m->replaces, m->t));
    ZOFF_TRY(put_scaler(w, m));
    ZOFF_TRY(put_text(w, "  \"about\": "));
    ZOFF_TRY(put_text(w, m->about ? m->about : "{}")); /* of any length */
    ZOFF_TRY(put_text(w, ",\n"));
    ZOFF_TRY(put_groups(w, m));
    ZOFF_TRY(put_text(w, "  \"params\": "));
    ZOFF_TRY(put_params(w, m));
    ZOFF_TRY(put_text(w, ",\n  \"files\": [\n"));
    for (unsigned i = 0; i < m->file_count; i++) {
        ZOFF_TRY(put_file(w, m, i));
        ZOFF_TRY(put_text(w, i + 1 < m->file_count ? ",\n" : "\n"));
    }
    ZOFF_TRY(put_text(w, "  ]"));
    const uint64_t checksum = zoff_digest_blocks_small(w->text, w->bytes);
    return put_format(w, ZOFF_ARCHIVE_CHECKSUM_BEFORE "%016" PRIx64 ZOFF_ARCHIVE_CHECKSUM_AFTER, checksum);
}

/* Hand out what was written, or free it after an error. */
static zoff_status hand_out(const writing *w, zoff_status status, char **out, size_t *out_bytes)
{
    if (status < 0) {
        zoff_base_mem_free(w->text);
        return status;
    }
    *out = w->text;
    *out_bytes = w->bytes;
    return ZOFF_OK;
}

zoff_status zoff_archive_manifest_print(const zoff_archive_manifest *m, char **out, size_t *out_bytes)
{
    writing w = {.text = NULL};
    return hand_out(&w, put_all(&w, m), out, out_bytes);
}

zoff_status zoff_archive_manifest_print_params(const zoff_archive_manifest *m, char **out, size_t *out_bytes)
{
    writing w = {.text = NULL};
    return hand_out(&w, put_params(&w, m), out, out_bytes);
}
