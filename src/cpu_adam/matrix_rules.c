/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_rules.c: the table of optimizers of matrices. Other rooms ask it, so that they know none of them. */
#include "cpu_adam.h"

#include "bits.h"

#include <string.h>

/* The method gram gains nothing where the sides are nearly alike. */
static bool has_gram(size_t rows, size_t cols)
{
    return zoff_base_bits_max(rows, cols) / 2 >= zoff_base_bits_min(rows, cols);
}

static size_t muon_scratch(size_t rows, size_t cols, unsigned threads)
{
    return zoff_adam_orthogonal_scratch(rows, cols, has_gram(rows, cols), threads);
}

static void muon_begin(const zoff_optimizer_hyper *hyper, zoff_orthogonal *o)
{
    zoff_optimizer_hyper copy;
    const zoff_optimizer_hyper *h = zoff_adam_hyper_complete(hyper, &copy);
    o->consts = (zoff_muon_consts){.coefficients = h->coefficients,
                                   .steps = h->ns_steps,
                                   .gram = h->ns_method == ZOFF_MUON_GRAM && has_gram(o->rows, o->cols)};
}

/* By zoff_optimizer. Optimizers of elements have no name here. */
static const zoff_matrix_rule MATRIX_RULES[] = {
    [ZOFF_OPTIMIZER_MUON] = {.name = "muon",
                             .states = {.m = true},
                             .passes = zoff_adam_hyper_muon_passes,
                             .scratch_bytes = muon_scratch,
                             .begin = muon_begin,
                             .flop = zoff_adam_orthogonal_flop,
                             .transform = zoff_adam_orthogonal_run},
};
enum { RULE_COUNT = sizeof MATRIX_RULES / sizeof MATRIX_RULES[0] };

const zoff_matrix_rule *zoff_adam_matrix_rules_of(const zoff_optimizer_hyper *hyper)
{
    zoff_optimizer_hyper copy;
    const unsigned optimizer = (unsigned)zoff_adam_hyper_complete(hyper, &copy)->optimizer;
    return optimizer < RULE_COUNT && MATRIX_RULES[optimizer].name ? &MATRIX_RULES[optimizer] : NULL;
}

bool zoff_adam_matrix_rules_has(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < RULE_COUNT; i++)
        found = found || (MATRIX_RULES[i].name && strcmp(MATRIX_RULES[i].name, name) == 0);
    return found;
}
