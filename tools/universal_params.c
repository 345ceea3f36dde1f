/* SPDX-License-Identifier: Apache-2.0 */
/* universal_params.c: makes the parameters of a checkpoint from those of a universal folder: each its own, or several as the
 * slices of one. */
#include "universal_params.h"

#include "names.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(fault *f)
{
    return fault_set(f, "out of memory for the descriptions of parameters");
}

static zoff_dtype weights_of(const universal_param *p, zoff_dtype dtype)
{
    return dtype ? dtype : p->dtype ? p->dtype : ZOFF_F32;
}

/* Add a parameter that has `first`, or slices like it. */
static bool add(universal_targets *t, const char *name, const universal_param *first, size_t slices, zoff_dtype dtype, fault *f)
{
    universal_target *target = &t->targets[t->count];
    target->facts = (zoff_checkpoint_param)ZOFF_CHECKPOINT_PARAM_INIT;
    target->facts.name = name;
    target->facts.dims = first->dims;
    target->facts.dim_count = first->dim_count;
    target->facts.count = first->count;
    target->facts.slices = slices;
    target->facts.dtype = weights_of(first, dtype);
    target->facts.states = first->tied_to ? 0 : first->states;
    target->facts.tied_to = first->tied_to;
    target->sources = pool_take(&t->memory, slices, sizeof *target->sources);
    if (!target->sources)
        return no_memory(f);
    target->sources[0] = first;
    t->count++;
    return true;
}

/* ---- slices ---- */

static const universal_param *find_slice(const universal_folder *u, universal_targets *t, const char *pattern, size_t slice)
{
    const char *name = name_of_slice(&t->memory, pattern, slice);
    return name ? universal_folder_find(u, name, strlen(name)) : NULL;
}

static bool same_as(const universal_param *a, const universal_param *b)
{
    return a->count == b->count && a->dim_count == b->dim_count && memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
           a->states == b->states && !a->tied_to && !b->tied_to;
}

/* Make the parameters of a pattern the slices of one. */
static bool add_stack(const universal_folder *u, universal_targets *t, const char *stack, zoff_dtype dtype, bool *used,
                      fault *f)
{
    const char *pattern = strchr(stack, '=') + 1;
    const char *name = pool_text(&t->memory, stack, (size_t)(pattern - stack) - 1);
    const universal_param *first = find_slice(u, t, pattern, 0);
    size_t slices = 1;
    if (!name)
        return no_memory(f);
    if (!first)
        return fault_set(f, "--stack %s: the folder has no parameter of this pattern with 0 for {}", stack);
    if (first->tied_to)
        return fault_set(f, "--stack %s: %s shares the weights of %s; leave that option out", stack, first->name,
                         first->tied_to);
    while (find_slice(u, t, pattern, slices))
        slices++;
    if (!add(t, name, first, slices, dtype, f))
        return false;
    universal_target *target = &t->targets[t->count - 1];
    target->facts.slice_name = pattern;
    for (size_t i = 0; i < slices; i++) {
        const universal_param *p = find_slice(u, t, pattern, i);
        if (!p)
            return fault_set(f, "--stack %s: out of memory for the name of slice %zu", stack, i);
        const size_t index = (size_t)(p - u->params);
        if (used[index])
            return fault_set(f, "--stack %s: %s is in another stack, too", stack, p->name);
        if (!same_as(first, p))
            return fault_set(f, "--stack %s: %s has another shape or other states than %s", stack, p->name, first->name);
        target->sources[i] = p;
        used[index] = true;
    }
    return true;
}

/* ---- all ---- */

/* Order parameters by their first source, tied ones behind the owner. Names decide where the model's order is not known. */
static int by_order(const void *a, const void *b)
{
    const universal_target *x = a, *y = b;
    const size_t first = x->sources[0]->order, second = y->sources[0]->order;
    if (first == second && !x->facts.tied_to != !y->facts.tied_to)
        return x->facts.tied_to ? 1 : -1;
    return first < second ? -1 : first > second ? 1 : strcmp(x->facts.name, y->facts.name);
}

static bool check_names(const universal_targets *t, size_t stack_count, const universal_folder *u, const bool *used, fault *f)
{
    for (size_t i = 0; i < stack_count; i++) {
        const char *name = t->targets[i].facts.name;
        const universal_param *same = universal_folder_find(u, name, strlen(name));
        if (same && !used[same - u->params])
            return fault_set(f, "--stack %s=%s: the folder has a parameter %s", name, t->targets[i].facts.slice_name, name);
    }
    return true;
}

bool universal_targets_make(const universal_folder *u, zoff_dtype dtype, char *const *stacks, size_t stack_count,
                            universal_targets *out, fault *f)
{
    *out = (universal_targets){.count = 0};
    out->targets = pool_take(&out->memory, u->count + stack_count, sizeof *out->targets);
    bool *used = pool_take(&out->memory, u->count, sizeof *used);
    if (!out->targets || !used)
        return no_memory(f);
    for (size_t i = 0; i < stack_count; i++) {
        if (!add_stack(u, out, stacks[i], dtype, used, f))
            return false;
    }
    if (!check_names(out, stack_count, u, used, f))
        return false;
    for (size_t i = 0; i < u->count; i++) {
        const char *owner = u->params[i].tied_to;
        if (owner && used[universal_folder_find(u, owner, strlen(owner)) - u->params])
            return fault_set(f, "--stack: %s is a slice now, and %s shares its weights; leave that option out", owner,
                             u->params[i].name);
        if (!used[i] && !add(out, u->params[i].name, &u->params[i], 1, dtype, f))
            return false;
    }
    qsort(out->targets, out->count, sizeof *out->targets, by_order);
    return true;
}

void universal_targets_free(universal_targets *t)
{
    pool_free(&t->memory);
    *t = (universal_targets){.count = 0};
}
