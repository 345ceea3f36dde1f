/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.c: which parameters an optimizer of matrices updates, and which matrices their slices are. All others have an
 * element rule. Names, shapes and the optimizers of groups decide, so every rank finds the same. */
#include "zoff_model.h"

#include "log.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

enum { DIMS_MOST = 4 };

/* Embeddings and heads are tables whose rows do not mix, so DeepSpeed leaves those of these words to AdamW. The last two are
 * the words for embeddings in trainers in C. */
static const char *const TABLE_WORDS[] = {"embed", "lm_head", "wte", "wpe"};

bool zoff_model_matrices_has_group(const zoff_model *m, size_t group)
{
    return zoff_adam_matrix_rules_of(zoff_model_groups_own(m, group));
}

static bool has_any_group(const zoff_model *m)
{
    bool any = false;
    for (size_t i = 0; i < m->group_count; i++)
        any = any || (m->groups[i].used && zoff_model_matrices_has_group(m, i));
    return any;
}

/* ---- the matrices of a slice ---- */

static size_t sum_of_rows(const zoff_model_param *p)
{
    size_t sum = 0;
    for (size_t i = 0; i < p->shape.matrices.row_count; i++)
        sum += p->shape.matrices.rows[i];
    return sum;
}

/* Matrices in a slice, if the parameter is one of matrices. A stack of three dimensions has one for each of the first. */
static size_t count_of(const zoff_model_param *p)
{
    if (p->shape.matrices.rows)
        return p->shape.dims[0] / sum_of_rows(p) * p->shape.matrices.row_count;
    return p->shape.count == 3 ? p->shape.dims[0] : 1;
}

zoff_matrix zoff_model_matrices_at(const zoff_model *m, const zoff_model_param *p, size_t i)
{
    const size_t *dims = p->shape.dims, cols = p->count / dims[0];
    (void)m;
    if (p->shape.matrices.rows) {
        size_t row = i / p->shape.matrices.row_count * sum_of_rows(p);
        for (size_t k = 0; k < i % p->shape.matrices.row_count; k++)
            row += p->shape.matrices.rows[k];
        return (zoff_matrix){
            .first = row * cols, .rows = p->shape.matrices.rows[i % p->shape.matrices.row_count], .cols = cols};
    }
    if (p->shape.count == 3)
        return (zoff_matrix){.first = i * cols, .rows = dims[1], .cols = dims[2]};
    return (zoff_matrix){.rows = dims[0], .cols = cols};
}

zoff_optimizer zoff_model_matrices_optimizer(const zoff_model *m, const zoff_model_param *p)
{
    const bool is_left_out = zoff_model_matrices_has_group(m, p->group) && !zoff_model_matrices_count(m, p);
    return is_left_out ? ZOFF_OPTIMIZER_ADAM : zoff_model_groups_own(m, p->group)->optimizer;
}

/* ---- which parameters have matrices ---- */

static bool is_table(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof TABLE_WORDS / sizeof TABLE_WORDS[0]; i++)
        found = found || strcasestr(name, TABLE_WORDS[i]);
    return found;
}

/* The key whose pattern names a parameter as one of matrices; NULL: none does. */
static const char *key_of(const zoff_model_param *p)
{
    return p->named & ZOFF_NAMED_MUON ? "zoff.muon_params" : p->named & ZOFF_NAMED_ROWS ? "zoff.muon_rows" : NULL;
}

/* Whether one name is to have matrices. A vector that a pattern names beside its matrix keeps its element rule. */
static zoff_status decide(const zoff_model_param *p, bool *out)
{
    *out = false;
    if (p->named & ZOFF_NAMED_ADAM)
        return ZOFF_OK;
    ZOFF_FAIL_IF(!p->shape.is_given && key_of(p), ZOFF_ERR_INVALID,
                 "zoff_engine_seal: %s names %s, which is registered without zoff_param_desc.dims, so its matrices are not "
                 "known: give its dims, or patterns that do not name it",
                 key_of(p), p->name);
    if (p->shape.count < 2 || !(p->named & ZOFF_NAMED_MUON || !is_table(p->name)))
        return ZOFF_OK;
    *out = true;
    ZOFF_FAIL_IF(!p->shape.matrices.rows && p->shape.count > DIMS_MOST, ZOFF_ERR_INVALID,
                 "zoff_engine_seal: %s has %zu dimensions, and Muon takes 2 (a matrix), 3 (a stack of matrices) or 4 (a "
                 "convolution): name it in zoff.adam_params, or say with zoff.muon_rows how its rows are cut",
                 p->name, p->shape.count);
    ZOFF_FAIL_IF(p->shape.matrices.rows && p->shape.dims[0] % sum_of_rows(p), ZOFF_ERR_INVALID,
                 "zoff_engine_seal: the rows of zoff.muon_rows for %s add up to %zu, which does not divide its first dimension "
                 "of %zu: give rows whose sum, once or repeated, is all of them",
                 p->name, sum_of_rows(p), p->shape.dims[0]);
    return ZOFF_OK;
}

static zoff_status check_same_rows(const zoff_model_param *owner, const zoff_model_param *p)
{
    const bool same = owner->shape.matrices.row_count == p->shape.matrices.row_count &&
                      (!p->shape.matrices.rows || memcmp(owner->shape.matrices.rows, p->shape.matrices.rows,
                                                         p->shape.matrices.row_count * sizeof *p->shape.matrices.rows) == 0);
    ZOFF_FAIL_IF(!same, ZOFF_ERR_INVALID,
                 "zoff_engine_seal: %s and %s share their weights, but the rows of their matrices differ: give both the same "
                 "zoff_param_desc.matrix_rows, or name both in zoff.muon_rows",
                 owner->name, p->name);
    return ZOFF_OK;
}

/* Tied weights are matrices only if every name of them is to be, because one update serves all. */
static zoff_status find_param(const zoff_model *m, zoff_model_param *p)
{
    const zoff_tie *tie = p->tie ? &m->ties.all[p->tie - 1] : NULL;
    bool all = true, is_one;
    for (size_t i = 0; i < (tie ? tie->count : 1); i++) {
        const zoff_model_param *name = tie ? &m->params[m->ties.members[tie->first + i]] : p;
        ZOFF_TRY(decide(name, &is_one));
        all = all && is_one;
    }
    for (size_t i = 1; tie && all && i < tie->count; i++)
        ZOFF_TRY(check_same_rows(p, &m->params[m->ties.members[tie->first + i]]));
    p->shape.matrices.count = all ? count_of(p) : 0;
    return ZOFF_OK;
}

static zoff_status check_patterns(const zoff_model *m)
{
    const struct {
        const char *key;
        const zoff_patterns *patterns;
        char end;
    } lists[] = {{"zoff.muon_params", &m->values->muon_params, 0},
                 {"zoff.adam_params", &m->values->adam_params, 0},
                 {"zoff.muon_rows", &m->values->muon_rows, '='}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const char *first = NULL;
        ZOFF_FAIL_IF(zoff_model_params_unused(m, lists[i].patterns, lists[i].end, &first), ZOFF_ERR_INVALID,
                     "zoff_engine_seal: %s: \"%s\" matches the name of no parameter; correct or remove it, because it decides "
                     "which update a parameter gets",
                     lists[i].key, first);
    }
    return ZOFF_OK;
}

zoff_status zoff_model_matrices_find(zoff_model *m, bool whole)
{
    for (size_t i = 0; i < m->param_count; i++)
        m->params[i].shape.matrices.count = 0;
    if (!has_any_group(m))
        return ZOFF_OK;
    if (whole)
        ZOFF_TRY(check_patterns(m));
    for (size_t i = 0; i < m->param_count; i++) {
        zoff_model_param *p = &m->params[i];
        if (!p->frozen && p->count && zoff_model_matrices_has_group(m, p->group))
            ZOFF_TRY(find_param(m, p));
    }
    return ZOFF_OK;
}

/* ---- messages ---- */

/* "h.qkv: 24 matrices of 768 x 768": with other rows in a list, all of them. */
static void tell_each(const zoff_model *m, const zoff_model_param *p)
{
    char rows[256];
    size_t used = 0;
    const size_t count = p->shape.matrices.count * p->slices,
                 listed = p->shape.matrices.row_count ? p->shape.matrices.row_count : 1;
    bool same = true;
    for (size_t i = 0; i < listed; i++)
        same = same && zoff_model_matrices_at(m, p, i).rows == zoff_model_matrices_at(m, p, 0).rows;
    for (size_t i = 0; i < (same ? 1 : listed) && used < sizeof rows; i++)
        used +=
            (size_t)snprintf(rows + used, sizeof rows - used, "%s%zu", i ? " or " : "", zoff_model_matrices_at(m, p, i).rows);
    ZOFF_DEBUG("%s: %zu %s of %s x %zu", p->name, count, count == 1 ? "matrix" : "matrices", rows,
               zoff_model_matrices_at(m, p, 0).cols);
}

void zoff_model_matrices_tell(const zoff_model *m, bool planned)
{
    size_t params = 0, matrices = 0, others = 0;
    double elements = 0, rest = 0;
    char text[256];
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        if (p->frozen || !p->count || !zoff_model_matrices_has_group(m, p->group))
            continue;
        params += p->shape.matrices.count > 0;
        others += p->shape.matrices.count == 0;
        matrices += p->shape.matrices.count * p->slices;
        *(p->shape.matrices.count ? &elements : &rest) += (double)p->count * (double)p->slices;
        if (p->shape.matrices.count)
            tell_each(m, p);
    }
    snprintf(text, sizeof text,
             "Muon updates %zu matrices in %zu parameters (%.4g M elements), AdamW %zu other parameters (%.4g M elements)",
             matrices, params, elements * 1e-6, others, rest * 1e-6);
    if (params + others && planned)
        ZOFF_DEBUG("%s", text);
    else if (params + others)
        ZOFF_TELL("%s", text);
}
