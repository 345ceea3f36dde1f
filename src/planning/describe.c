/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c: parameters and states in the words of the archive room: for the manifest of a checkpoint, and for the description
 * beside state files, from which a program reads them without an engine. */
#include "planning.h"

#include "try.h"

_Static_assert((int)ZOFF_MODEL_NAME_MOST == (int)ZOFF_ARCHIVE_PARAM_NAME_MOST,
               "an engine refuses names that no checkpoint holds");

unsigned zoff_planning_describe_format(const zoff_model *m, const zoff_model_param *p, unsigned array)
{
    if (array == ZOFF_STREAM_MASTER)
        return zoff_model_masters_of(m, p)->is_split ? ZOFF_ARCHIVE_SPLIT : ZOFF_ARCHIVE_F32;
    const zoff_moments moments = zoff_model_moments_of(m, p);
    if (zoff_adam_moments_in_blocks(moments, zoff_model_moments_which(array)))
        return array == ZOFF_STREAM_M ? ZOFF_ARCHIVE_M8 : ZOFF_ARCHIVE_V8;
    return moments == ZOFF_MOMENTS_F32 ? ZOFF_ARCHIVE_F32 : ZOFF_ARCHIVE_BF16;
}

unsigned zoff_planning_describe_states(const zoff_model *m, size_t param, bool skip_frozen)
{
    const zoff_model_param *p = &m->params[param];
    if (zoff_model_params_owner(m, (zoff_param)param) != param)
        return 0;
    if (p->frozen)
        return skip_frozen ? 0 : 1u << ZOFF_STATE_WEIGHTS;
    const zoff_adam_states states = zoff_model_params_states(m, p);
    return 1u << ZOFF_STATE_MASTER | (states.m ? 1u << ZOFF_STATE_M : 0) | (states.v ? 1u << ZOFF_STATE_V : 0);
}

static zoff_status copy_param(const zoff_model *m, size_t i, bool skip_frozen, zoff_archive_param *out)
{
    const zoff_model_param *p = &m->params[i];
    const zoff_param owner = zoff_model_params_owner(m, (zoff_param)i);
    *out = (zoff_archive_param){.count = p->count,
                                .slices = p->slices,
                                .dtype = p->dtype,
                                .group = (unsigned)zoff_model_groups_index(m, p),
                                .states = zoff_planning_describe_states(m, i, skip_frozen),
                                .tied_to = owner == i ? 0 : 1 + owner};
    ZOFF_TRY(zoff_base_mem_copy_text(p->name, &out->name));
    ZOFF_TRY(zoff_base_mem_copy_text(p->slice_name, &out->slice_name));
    if (owner == i && zoff_model_matrices_rule(m, p))
        ZOFF_TRY(zoff_base_mem_copy_text(zoff_model_matrices_rule(m, p)->name, &out->rule));
    out->dim_count = p->shape.count ? p->shape.count : 1;
    ZOFF_TRY(zoff_base_mem_alloc(out->dim_count, sizeof *out->dims, "dimensions", &out->dims));
    for (size_t k = 0; k < out->dim_count; k++)
        out->dims[k] = p->shape.count ? p->shape.dims[k] : p->count;
    return ZOFF_OK;
}

zoff_status zoff_planning_describe_params(const zoff_model *m, bool skip_frozen, zoff_archive_manifest *out)
{
    ZOFF_TRY(zoff_base_mem_alloc(m->param_count + 1, sizeof *out->params, "parameters of a manifest", &out->params));
    for (size_t i = 0; i < m->param_count; i++) {
        out->param_count = i + 1;
        ZOFF_TRY(copy_param(m, i, skip_frozen, &out->params[i]));
    }
    return ZOFF_OK;
}

/* ---- the description beside state files ---- */

static zoff_status add_array(const zoff_model *m, const zoff_plan *plan, size_t number, unsigned array, zoff_archive_table *t)
{
    const zoff_plan_chunk *chunk = &plan->chunks[number];
    for (size_t i = chunk->first_piece; i < chunk->first_piece + chunk->piece_count; i++) {
        const zoff_plan_piece *piece = &plan->pieces[i];
        const zoff_model_param *p = &m->params[piece->param];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(m, p);
        const unsigned format = zoff_planning_describe_format(m, p, array);
        const zoff_archive_piece added = {.param = piece->param,
                                          .kind = (uint8_t)array,
                                          .format = (uint8_t)format,
                                          .block = zoff_archive_table_block(format),
                                          .region = (uint32_t)number,
                                          .slice = piece->slice,
                                          .first = piece->first,
                                          .count = piece->count,
                                          .at = chunk->starts[array] + piece->offsets[array]};
        if (zoff_zero_plan_bytes(&tensor, array, piece->count))
            ZOFF_TRY(zoff_archive_table_add_piece(t, &added));
    }
    return ZOFF_OK;
}

static zoff_status add_chunks(const zoff_model *m, const zoff_plan *plan, zoff_archive_table *t)
{
    uint64_t at = 0;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        const zoff_archive_region region = {.offset = at, .bytes = plan->chunks[i].bytes};
        ZOFF_TRY(zoff_archive_table_add_region(t, &region));
        for (unsigned array = 0; array < ZOFF_STREAM_COUNT; array++)
            ZOFF_TRY(add_array(m, plan, i, array, t));
        at += region.bytes;
    }
    return ZOFF_OK;
}

zoff_status zoff_planning_describe_files(const zoff_model *m, const zoff_plan *plan, char **out, size_t *out_bytes)
{
    zoff_archive_manifest params = {.params = NULL};
    zoff_archive_table table = {.regions = NULL};
    zoff_status status = zoff_planning_describe_params(m, true, &params);
    if (status == ZOFF_OK)
        status = add_chunks(m, plan, &table);
    if (status == ZOFF_OK)
        status = zoff_archive_described_write(&params, &table, out, out_bytes);
    zoff_archive_manifest_free(&params);
    zoff_archive_table_free(&table);
    return status;
}
