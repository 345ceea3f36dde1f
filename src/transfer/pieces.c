/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: the memory of a piece: its states, and the gradient that norm and update read. */
#include "transfer.h"

#include "try.h"

zoff_status zoff_transfer_pieces_open(zoff_transfer *t)
{
    zoff_scratch *s = &t->scratch;
    const size_t pieces = t->plan->most.pieces, sums = t->plan->owned_elements - t->accumulator.device_sums;
    ZOFF_TRY(zoff_transfer_walk_open(t));
    ZOFF_TRY(zoff_base_mem_alloc(t->plan->most.blocks, sizeof *s->block_sums, "blocks of the norm", &s->block_sums));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->adam_pieces, "a bucket's pieces", &s->adam_pieces));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->apart_pieces, "a bucket's pieces", &s->apart_pieces));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->norm_pieces, "a bucket's pieces", &s->norm_pieces));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->norm_index, "a bucket's pieces", &s->norm_index));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->accumulate_pieces, "a bucket's pieces", &s->accumulate_pieces));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->cast_pieces, "a bucket's pieces", &s->cast_pieces));
    ZOFF_TRY(zoff_base_mem_alloc(2 * t->model->group_count, sizeof *s->consts, "constants of the groups", &s->consts));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *s->bins_pieces, "a bucket's pieces", &s->bins_pieces));
    const size_t bytes = t->route.sums ? sums * sizeof(float) : 0;
    if (bytes)
        ZOFF_TRY(zoff_base_map_alloc(bytes, "gradient accumulation", ZOFF_MAP_FIRST_TOUCH, &t->accumulator.map));
    return zoff_transfer_sums_prepare(t, t->model->exact_sums, &t->accumulator.bins);
}

void zoff_transfer_pieces_close(zoff_transfer *t)
{
    zoff_scratch *s = &t->scratch;
    void *blocks[] = {s->block_sums,        s->adam_pieces, s->apart_pieces, s->norm_pieces, s->norm_index,
                      s->accumulate_pieces, s->bins_pieces, s->cast_pieces,  s->consts};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_map_free(&t->accumulator.map);
    zoff_base_map_free(&t->accumulator.bins);
    zoff_transfer_walk_close(t);
    *s = (zoff_scratch){.adam_pieces = NULL};
}

void *zoff_transfer_pieces_state(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base,
                                 zoff_plan_stream stream)
{
    return base ? base + chunk->starts[stream] + piece->offsets[stream] : NULL; /* a pass may have borrowed no states */
}

zoff_adam_piece zoff_transfer_pieces_of_update(const zoff_transfer *t, const zoff_plan_chunk *chunk,
                                               const zoff_plan_piece *piece, zoff_chunk_memory memory)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    const zoff_adam_states states = zoff_model_params_states(t->model, p);
    const zoff_master_form *form = zoff_model_masters_of(t->model, p);
    char *value = t->route.link->weights(t, piece, memory.weights);
    char *base = memory.states;
    char *stored = form->bytes == 0 ? NULL : zoff_transfer_pieces_state(chunk, piece, base, ZOFF_STREAM_MASTER);
    const zoff_moments moments = zoff_model_moments_of(t->model, p);
    return (zoff_adam_piece){.count = piece->count,
                             .moments = (uint8_t)moments,
                             .split = form->is_split,
                             .key = moments == ZOFF_MOMENTS_F32 ? 0 : zoff_adam_dither_key(p->name, piece->slice, piece->first),
                             .master = form->in_weights ? value : stored,
                             .m = states.m ? zoff_transfer_pieces_state(chunk, piece, base, ZOFF_STREAM_M) : NULL,
                             .v = states.v ? zoff_transfer_pieces_state(chunk, piece, base, ZOFF_STREAM_V) : NULL,
                             .grad_dtype = zoff_transfer_pieces_dtype(t, p),
                             .copy_out = form->is_split         ? stored
                                         : p->dtype != ZOFF_F32 ? value
                                                                : NULL,
                             .copy_dtype = p->dtype};
}

const void *zoff_transfer_pieces_gradient(const zoff_transfer *t, const zoff_plan_piece *piece, bool there,
                                          zoff_dtype *out_dtype)
{
    *out_dtype = zoff_transfer_pieces_dtype(t, &t->model->params[piece->param]);
    if (t->route.sums)
        return there ? t->accumulator.there + piece->owned_offset : zoff_transfer_pieces_sum(t, piece);
    return there ? zoff_transfer_arena_there(t, piece) : t->route.link->gradient(t, piece);
}

bool zoff_transfer_pieces_take_part(const zoff_transfer *t, size_t bucket)
{
    const zoff_plan_chunk *chunk = &t->plan->chunks[bucket];
    for (size_t i = 0; i < chunk->piece_count; i++) {
        if (*zoff_model_params_flag(t->model, &t->plan->pieces[chunk->first_piece + i]))
            return true;
    }
    return false;
}
