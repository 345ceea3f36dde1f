/* pieces.c: the memory of a piece: its states, and the gradient that norm and update read. */
#include "engine_priv.h"

float *zoff_engine_pieces_state(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base, zoff_plan_stream stream)
{
    return (float *)(void *)(base + chunk->starts[stream]) + piece->offsets[stream];
}

zoff_adam_piece zoff_engine_pieces_of_update(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece,
                                             zoff_chunk_memory memory)
{
    const zoff_model_param *p = &e->model.params[piece->param];
    const zoff_adam_states states = zoff_model_groups_states(&e->model, p->group);
    const bool has_master = zoff_model_params_has_master(&e->model, p);
    char *value = e->link->weights(e, piece, memory.weights);
    char *base = memory.states;
    return (zoff_adam_piece){.count = piece->count,
                             .master =
                                 has_master ? (void *)zoff_engine_pieces_state(chunk, piece, base, ZOFF_STREAM_MASTER) : value,
                             .m = states.m ? zoff_engine_pieces_state(chunk, piece, base, ZOFF_STREAM_M) : NULL,
                             .v = states.v ? zoff_engine_pieces_state(chunk, piece, base, ZOFF_STREAM_V) : NULL,
                             .grad_dtype = zoff_engine_pieces_accumulates(e) ? ZOFF_F32 : p->grad_dtype,
                             .copy_out = p->dtype != ZOFF_F32 ? value : NULL,
                             .copy_dtype = p->dtype};
}

float *zoff_engine_pieces_kept_sum(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return (zoff_engine_device_direct_is(e) ? e->device.direct.sums : e->device.tier.sums) + piece->owned_offset;
}

const void *zoff_engine_pieces_kept_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype)
{
    *out_dtype = zoff_engine_pieces_accumulates(e) ? ZOFF_F32 : e->model.params[piece->param].grad_dtype;
    return zoff_engine_pieces_accumulates(e) ? (const void *)zoff_engine_pieces_kept_sum(e, piece)
                                             : zoff_model_params_there(&e->model, piece);
}

const void *zoff_engine_pieces_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype)
{
    *out_dtype = zoff_engine_pieces_accumulates(e) ? ZOFF_F32 : e->model.params[piece->param].grad_dtype;
    return zoff_engine_pieces_accumulates(e) ? (const void *)zoff_engine_pieces_sum(e, piece) : e->link->gradient(e, piece);
}
