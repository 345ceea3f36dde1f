/* describe.c: describes a model and where its states lie, as the JSON text that stands beside persistent state files. With it a
 * program reads those files without an engine.
 *
 *     {"format": "zoff states", "version": 1, "layout": "...", "cut": "...", "rank": 0, "ranks": 2, ...
 *      "params": [{"name": "wte", "count": 6, "slices": 1, "dims": [6], "dtype": "bf16", "states": ["master", "m", "v"]}, ...],
 *      "chunks": [{"chunk": 0, "bytes": 32768, "pieces": [[param, slice, first, count, master, m, v], ...]}, ...]}
 *
 * Moments that are not fp32 are named: "moments": "bf16", "m8v16" or "q8". The last three numbers of a piece are offsets in
 * bytes from the begin of the chunk's place, or -1 for a state that the parameter lacks. A name is any bytes: each character of
 * the JSON text stands for one byte. */
#include "zoff_model.h"

#include "array.h"
#include "mem.h"

#include <inttypes.h>

static const char *const STATES[ZOFF_STREAM_COUNT] = {"master", "m", "v"};

static void add_param(const zoff_model *m, size_t i, zoff_text *out)
{
    const zoff_model_param *p = &m->params[i];
    const zoff_plan_tensor tensor = zoff_model_params_tensor(m, p);
    const zoff_param owner = zoff_model_params_owner(m, (zoff_param)i);
    const char *before = "";
    zoff_base_array_print(out, "%s\n    {\"name\": ", i ? "," : "");
    zoff_base_array_print_json(out, p->name);
    if (p->slice_name) {
        zoff_base_array_print(out, ", \"slice_name\": ");
        zoff_base_array_print_json(out, p->slice_name);
    }
    zoff_base_array_print(out, ", \"count\": %zu, \"slices\": %zu, \"dims\": [", p->count, p->slices);
    for (size_t k = 0; k < p->shape.count; k++)
        zoff_base_array_print(out, "%s%zu", k ? ", " : "", p->shape.dims[k]);
    zoff_base_array_print(out, "], \"dtype\": \"%s\", \"states\": [", zoff_adam_dtype_name(p->dtype));
    for (int stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
        if (!tensor.bytes[stream] || owner != i)
            continue;
        zoff_base_array_print(out, "%s\"%s\"", before, STATES[stream]);
        before = ", ";
    }
    zoff_base_array_print(out, "]");
    const zoff_moments moments = zoff_model_moments_of(m, p);
    /* The third meaning of their bytes: see docs/adr/0041-formats-of-states.md#0053. */
    const char *version = zoff_adam_moments_in_blocks(moments, ZOFF_MOMENT_M) ? ".3" : "";
    if (!p->frozen && moments != ZOFF_MOMENTS_F32)
        zoff_base_array_print(out, ", \"moments\": \"%s%s\"", zoff_adam_moments_name(moments), version);
    if (owner != i)
        zoff_base_array_print(out, ", \"tied_to\": %u", owner);
    zoff_base_array_print(out, "%s}", p->frozen ? ", \"frozen\": true" : "");
}

static void add_piece(const zoff_model *m, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, bool is_first,
                      zoff_text *out)
{
    const zoff_plan_tensor tensor = zoff_model_params_tensor(m, &m->params[piece->param]);
    zoff_base_array_print(out, "%s[%" PRIu32 ", %zu, %zu, %zu", is_first ? "" : ", ", piece->param, piece->slice, piece->first,
                          piece->count);
    for (int stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
        const int64_t at = (int64_t)(chunk->starts[stream] + piece->offsets[stream]);
        zoff_base_array_print(out, ", %" PRId64, tensor.bytes[stream] ? at : -1);
    }
    zoff_base_array_print(out, "]");
}

static void add_chunk(const zoff_model *m, const zoff_plan *plan, size_t i, bool is_first, zoff_text *out)
{
    const zoff_plan_chunk *chunk = &plan->chunks[i];
    bool has_piece = false;
    zoff_base_array_print(out, "%s\n    {\"chunk\": %zu, \"bytes\": %zu, \"pieces\": [", is_first ? "" : ",", i, chunk->bytes);
    for (size_t k = 0; k < chunk->piece_count; k++) {
        const zoff_plan_piece *piece = &plan->pieces[chunk->first_piece + k];
        if (m->params[piece->param].frozen)
            continue;
        add_piece(m, chunk, piece, !has_piece, out);
        has_piece = true;
    }
    zoff_base_array_print(out, "]}");
}

zoff_status zoff_model_describe(const zoff_model *m, const zoff_plan *plan, uint64_t layout, uint64_t cut, char **out)
{
    zoff_text text = {.words = NULL};
    bool has_chunk = false;
    zoff_base_array_print(&text,
                          "{\n  \"format\": \"zoff states\", \"version\": 1, \"layout\": \"%016" PRIx64
                          "\", \"cut\": \"%016" PRIx64
                          "\",\n  \"rank\": %u, \"ranks\": %u, \"largest_chunk_bytes\": %zu,\n  \"params\": [",
                          layout, cut, plan->rank, plan->ranks, plan->most.chunk_bytes);
    for (size_t i = 0; i < m->param_count; i++)
        add_param(m, i, &text);
    zoff_base_array_print(&text, "\n  ],\n  \"chunks\": [");
    for (size_t i = 0; i < plan->chunk_count; i++) {
        if (!plan->chunks[i].bytes)
            continue;
        add_chunk(m, plan, i, !has_chunk, &text);
        has_chunk = true;
    }
    zoff_base_array_print(&text, "\n  ]\n}\n");
    if (text.status < 0)
        zoff_base_mem_free(text.words);
    else
        *out = text.words;
    return text.status;
}
