/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c: the matrices of each round, and where elements of this rank have their directions. */
#include "matrices.h"

#include "mem.h"
#include "try.h"

/* List the matrices that begin in a run of elements. `matrix`: the number of the next one in its slice. */
static void list_run(zoff_matrices *x, const zoff_plan_piece *run, size_t *matrix, size_t *used)
{
    const zoff_model_param *p = &x->model->params[run->param];
    const size_t count = zoff_model_matrices_count(x->model, p);
    for (*matrix = run->first ? *matrix : 0; *matrix < count; ++*matrix) {
        const zoff_matrix m = zoff_model_matrices_at(x->model, p, *matrix);
        if (m.first - run->first >= run->count)
            break;
        x->entries[(*used)++] =
            (zoff_matrix_entry){.param = run->param, .slice = run->slice, .first = m.first, .rows = m.rows, .cols = m.cols};
    }
}

static void list_entries(zoff_matrices *x)
{
    const zoff_plan *plan = x->plan;
    size_t used = 0, matrix = 0;
    for (size_t r = 0; r < plan->rounds.count; r++) {
        const zoff_plan_round *round = &plan->rounds.all[r];
        const zoff_plan_chunk *first = &plan->chunks[round->first_chunk], *last = first + round->chunk_count - 1;
        x->rounds[r].entries = used;
        for (size_t i = first->first_run; i < last->first_run + last->run_count; i++)
            list_run(x, &plan->runs[i], &matrix, &used);
    }
    x->rounds[plan->rounds.count].entries = used;
}

static void list_pieces(zoff_matrices *x)
{
    const zoff_plan *plan = x->plan;
    for (size_t r = 0; r < plan->rounds.count; r++) {
        const zoff_plan_round *round = &plan->rounds.all[r];
        const zoff_plan_chunk *first = &plan->chunks[round->first_chunk], *last = first + round->chunk_count - 1;
        size_t at = 0;
        for (size_t i = first->first_piece; i < last->first_piece + last->piece_count; i++) {
            x->own_at[i] = at;
            at += plan->pieces[i].count;
        }
    }
}

zoff_status zoff_matrices_entries_list(zoff_matrices *x)
{
    const zoff_plan *plan = x->plan;
    const zoff_model *model = x->model;
    size_t count = 0;
    for (size_t i = 0; i < model->param_count; i++)
        count += zoff_model_matrices_count(model, &model->params[i]) * model->params[i].slices;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *x->entries, "the list of matrices", &x->entries));
    ZOFF_TRY(zoff_base_mem_alloc(plan->piece_count, sizeof *x->own_at, "the list of matrices", &x->own_at));
    ZOFF_TRY(zoff_base_mem_alloc(plan->rounds.count + 1, sizeof *x->rounds, "the list of matrices", &x->rounds));
    list_entries(x);
    list_pieces(x);
    return ZOFF_OK;
}

/* Entries have the order of the plan, so those of a slice follow each other. */
const zoff_matrix_entry *zoff_matrices_entry(const zoff_matrices *x, const zoff_plan_piece *piece, size_t first)
{
    const size_t round = x->plan->chunks[piece->bucket].round;
    size_t low = x->rounds[round - 1].entries, high = x->rounds[round].entries;
    while (high - low > 1) { /* the last entry that begins at or before the element */
        const size_t middle = low + (high - low) / 2;
        const zoff_matrix_entry *e = &x->entries[middle];
        const bool is_before = e->param != piece->param   ? e->param < piece->param
                               : e->slice != piece->slice ? e->slice < piece->slice
                                                          : e->first <= first;
        if (is_before)
            low = middle;
        else
            high = middle;
    }
    return &x->entries[low];
}

float *zoff_matrices_place(const zoff_matrices *x, const zoff_plan_piece *piece)
{
    return x->memory.own + x->own_at[piece - x->plan->pieces];
}
