/* SPDX-License-Identifier: Apache-2.0 */
/* match.c: whether a checkpoint is of the engine's model: names, shapes and states. Everything is compared before anything
 * changes, and a message names the first differences. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"
#include "words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOMENTS = 1u << ZOFF_STATE_M | 1u << ZOFF_STATE_V };

/* Whether a name matches one of the patterns, which are separated by spaces. */
static bool is_allowed(const char *allow, const char *name)
{
    for (const char *at = allow; at && *at;) {
        const size_t bytes = strcspn(at, " ");
        if (bytes && zoff_base_words_match(at, bytes, name))
            return true;
        at += bytes + strspn(at + bytes, " ");
    }
    return false;
}

/* Differences, as many as fit into a message. */
typedef struct differences {
    char text[1200];
    size_t used, count;
} differences;

/* Both sides, and the differences found. */
typedef struct comparison {
    zoff_match *match;
    const char *allow;
    differences refused, allowed;
    bool has_states; /* some are of states that weights_only does not take */
    bool has_adam;   /* some are AdamW's, and here of matrices */
} comparison;

static void note(differences *d, const char *name, const char *what)
{
    enum { MOST = 6 };
    if (d->count++ < MOST)
        d->used +=
            (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, "%s'%.80s' %.100s", d->used ? "; " : "", name, what);
    d->used = zoff_base_bits_min(d->used, sizeof d->text - 1);
}

/* Note a difference.  @return whether it is allowed */
static bool add(comparison *c, const char *name, const char *what)
{
    const bool may_be = is_allowed(c->allow, name);
    note(may_be ? &c->allowed : &c->refused, name, what);
    return may_be;
}

/* ---- names ---- */

/* The parameters of the checkpoint, sorted. */
typedef struct names {
    const zoff_archive_param *params, **sorted;
    size_t count;
} names;

/* 1 + the parameter of the checkpoint with this name; 0: none. */
static uint32_t find_name(const names *n, const char *name)
{
    const zoff_archive_param *found = zoff_archive_names_find(n->sorted, n->count, name);
    return found ? (uint32_t)(found - n->params) + 1 : 0;
}

/* ---- one parameter ---- */

/* Whether the shape is known. A program that gives one dimension does not tell it. */
static bool has_shape(const zoff_model_param *p, const zoff_archive_param *a)
{
    return p->shape.count > 1 && a->dim_count > 1;
}

/* Whether the first elements of the one parameter are those of the other: there are more rows, or more slices. */
static bool is_prefix(const zoff_model_param *p, const zoff_archive_param *a)
{
    if (p->count == a->count || p->slices != a->slices || !has_shape(p, a))
        return p->count == a->count || p->slices == a->slices;
    return p->shape.count == a->dim_count && memcmp(p->shape.dims + 1, a->dims + 1, (a->dim_count - 1) * sizeof *a->dims) == 0;
}

/* @return true: none of the parameter's elements is of use, and that is allowed */
static bool compare_shape(comparison *c, const zoff_model_param *p, const zoff_archive_param *a)
{
    char what[256], there[ZOFF_SHAPE_BYTES], here[ZOFF_SHAPE_BYTES];
    if (p->count != a->count || p->slices != a->slices) {
        snprintf(what, sizeof what, "has %zu slices of %zu elements, here %zu of %zu", a->slices, a->count, p->slices,
                 p->count);
        return add(c, p->name, what) && !is_prefix(p, a);
    }
    if (has_shape(p, a) &&
        (a->dim_count != p->shape.count || memcmp(p->shape.dims, a->dims, p->shape.count * sizeof *a->dims) != 0)) {
        const zoff_model_param other = {.shape = {.dims = a->dims, .count = a->dim_count}};
        zoff_model_params_print_shape(&other, there, sizeof there);
        zoff_model_params_print_shape(p, here, sizeof here);
        snprintf(what, sizeof what, "has the dims %.100s, here %.100s", there, here);
        add(c, p->name, what);
    }
    return false;
}

/* The rule of the states in the checkpoint. Both moments are AdamW's, also those of vectors in a group of matrices. */
static const char *rule_there(const zoff_archive_manifest *m, const zoff_archive_param *a)
{
    const char *type = a->group < m->group_count ? m->groups[a->group].type : NULL;
    return a->rule ? a->rule : !type ? "an element rule" : (a->states & MOMENTS) == MOMENTS ? "AdamW" : type;
}

/* Moments of one optimizer of elements are taken by another one that has as many, but not those of matrices, or for them.
 * @return whether the rules differ */
static bool compare_rule(comparison *c, const zoff_model_param *p, const zoff_archive_param *a)
{
    const zoff_model *m = c->match->view->model;
    const char *there = rule_there(&c->match->archive->manifest, a), *here = zoff_checkpoint_describe_rule(m, p);
    const bool of_matrices = zoff_model_matrices_rule(m, p);
    char what[128];
    if (a->rule && of_matrices ? strcmp(a->rule, here) == 0 : !a->rule && !of_matrices)
        return false;
    c->has_adam = c->has_adam || (of_matrices && strncmp(there, "Adam", 4) == 0);
    snprintf(what, sizeof what, "has the moments of %.40s, here of %.40s", there, here);
    add(c, p->name, what);
    return true;
}

/* @return true: the parameter has no weights either, and that is allowed */
static bool compare_states(comparison *c, size_t param, const zoff_archive_param *a)
{
    const zoff_model_param *p = &c->match->view->model->params[param];
    const unsigned need = zoff_planning_describe_states(c->match->view->model, param, false);
    const size_t refused = c->refused.count;
    if (p->frozen && a->states == 0)
        return false; /* frozen weights were left out, so they stay as they are */
    if (a->states == 0)
        return add(c, p->name, "was frozen, and its weights were left out");
    if (c->match->weights_only)
        return false;
    if (p->frozen != (a->states >> ZOFF_STATE_WEIGHTS & 1))
        add(c, p->name, p->frozen ? "is trained, here frozen" : "is frozen, here trained");
    else if (p->frozen && p->dtype != a->dtype)
        add(c, p->name, "is frozen, and its weights have another type");
    else if (!p->frozen && a->states & MOMENTS && compare_rule(c, p, a))
        (void)0;
    else if ((a->states & need) != need)
        add(c, p->name, "lacks states that its optimizer has here");
    else if (a->states & ~need)
        add(c, p->name, "has states that its optimizer has not here");
    c->has_states = c->has_states || c->refused.count > refused;
    return false;
}

/* Compare a tie. A tied parameter has the states of its owner in the checkpoint, too. The owner comes first in the list. */
static void compare_tie(comparison *c, size_t i, zoff_param owner, uint32_t found)
{
    char what[128];
    const zoff_match *m = c->match;
    const zoff_model_param *params = m->view->model->params;
    const uint32_t there = zoff_archive_owner(m->archive, found - 1);
    if (m->to[owner] && zoff_archive_owner(m->archive, m->to[owner] - 1) == there)
        return;
    snprintf(what, sizeof what, "is tied to '%.30s', here to '%.30s'", m->archive->manifest.params[there].name,
             params[owner].name);
    add(c, params[i].name, there == found - 1 ? "has states of its own, here it is tied to another" : what);
}

/* Parameters that share weights have one set of states, which the checkpoint may have under any of their names. */
static uint32_t find_states(const zoff_model *m, size_t owner, const names *n)
{
    uint32_t found = find_name(n, m->params[owner].name);
    const zoff_tie *tie = m->params[owner].tie ? &m->ties.all[m->params[owner].tie - 1] : NULL;
    for (size_t i = 0; !found && tie && i < tie->count; i++)
        found = find_name(n, m->params[m->ties.members[tie->first + i]].name);
    return found;
}

static void compare_param(comparison *c, size_t i, const names *n)
{
    const zoff_match *m = c->match;
    const zoff_model_param *p = &m->view->model->params[i];
    const zoff_param owner_here = zoff_model_params_owner(m->view->model, (zoff_param)i);
    const uint32_t found = owner_here == i ? find_states(m->view->model, i, n) : find_name(n, p->name);
    if (!found) {
        if (owner_here == i && !is_allowed(c->allow, p->name)) /* a tied parameter has no states that could be missing */
            add(c, p->name, "is not in the checkpoint");
        return;
    }
    const zoff_archive_param *a = &m->archive->manifest.params[found - 1];
    const zoff_archive_param *owner = &m->archive->manifest.params[zoff_archive_owner(m->archive, found - 1)];
    bool is_useless = compare_shape(c, p, a);
    if (owner_here == i)
        is_useless = compare_states(c, i, owner) || is_useless;
    else
        compare_tie(c, i, owner_here, found);
    m->to[i] = is_useless ? 0 : found;
}

/* ---- all ---- */

/* Note states that no parameter of the engine uses. */
static zoff_status compare_extra(comparison *c)
{
    uint8_t *seen;
    const zoff_match *m = c->match;
    const zoff_archive_manifest *manifest = &m->archive->manifest;
    ZOFF_TRY(zoff_base_mem_alloc(manifest->param_count + 1, 1, "names of a checkpoint", &seen));
    for (size_t i = 0; i < m->view->model->param_count; i++) {
        if (m->to[i])
            seen[m->to[i] - 1] = seen[zoff_archive_owner(m->archive, m->to[i] - 1)] = 1;
    }
    for (uint32_t i = 0; i < manifest->param_count; i++) {
        const char *name = manifest->params[i].name;
        if (!seen[i] && zoff_archive_owner(m->archive, i) == i && !is_allowed(c->allow, name))
            add(c, name, "is in the checkpoint only");
    }
    zoff_base_mem_free(seen);
    return ZOFF_OK;
}

/* Note the hyper-parameters of a group here that differ from those of the group that a parameter was in. */
static zoff_status compare_group(const zoff_match *m, size_t index, const zoff_archive_group *was, differences *d)
{
    char name[48], what[100];
    zoff_archive_group is = {.type = NULL};
    const size_t count = m->view->model->group_count;
    ZOFF_TRY(zoff_checkpoint_describe_group(m->view->model, index, &is));
    snprintf(name, sizeof name, "group %zu%s", index % count, index < count ? "" : " (zoff.no_decay)");
    if (was->type && strcmp(was->type, is.type) != 0) {
        snprintf(what, sizeof what, "has optimizer.type %.20s, here %s", was->type, is.type);
        note(d, name, what);
    }
    for (unsigned i = 0; i < ZOFF_ARCHIVE_GROUP_NUMBERS; i++) {
        if (isnan(was->numbers[i]) || isnan(is.numbers[i]) || was->numbers[i] == is.numbers[i])
            continue;
        snprintf(what, sizeof what, "has %s %.9g, here %.9g", zoff_archive_manifest_number(i), was->numbers[i], is.numbers[i]);
        note(d, name, what);
    }
    zoff_base_mem_free(is.type);
    return ZOFF_OK;
}

/* Warn of other hyper-parameters, which are no error, because they may be meant. */
static zoff_status compare_groups(const zoff_match *m)
{
    uint8_t *told;
    differences d = {.count = 0};
    const zoff_model *model = m->view->model;
    const zoff_archive_manifest *there = &m->archive->manifest;
    zoff_status status = ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(2 * model->group_count + 1, 1, "groups of a checkpoint", &told));
    for (size_t i = 0; i < model->param_count && status == ZOFF_OK; i++) {
        const zoff_archive_param *was = m->to[i] ? &there->params[m->to[i] - 1] : NULL;
        const size_t group = zoff_model_groups_index(model, &model->params[i]);
        const size_t before = d.count;
        if (!was || model->params[i].frozen || told[group] || was->group >= there->group_count)
            continue;
        status = compare_group(m, group, &there->groups[was->group], &d);
        told[group] = d.count > before;
    }
    zoff_base_mem_free(told);
    if (d.count && zoff_comm_rank(m->view->comm) == 0)
        ZOFF_WARN("the run goes on from the checkpoint '%s' with other hyper-parameters, in %zu places: %s%s%s",
                  m->archive->folder, d.count, d.text, d.count > 6 ? "; ..." : "",
                  strstr(d.text, "has optimizer.type") ? ". zoff_checkpoint_opts.weights_only begins with new states" : "");
    return status;
}

static zoff_status compare(comparison *c, const names *n)
{
    const char *folder = c->match->archive->folder;
    for (size_t i = 0; i < c->match->view->model->param_count; i++)
        compare_param(c, i, n);
    ZOFF_TRY(compare_extra(c));
    ZOFF_FAIL_IF(
        c->refused.count, ZOFF_ERR_INVALID,
        "the checkpoint '%s' is of another model, in %zu places: %s%s. zoff_checkpoint_opts.allow names parameters that may "
        "be missing, extra or different%s%s",
        folder, c->refused.count, c->refused.text, c->refused.count > 6 ? "; ..." : "",
        c->has_states ? "; weights_only takes the weights of any optimizer, and begins with new states" : "",
        c->has_adam ? "; zoff.adam_params names parameters that go on with AdamW" : "");
    if (c->allowed.count && zoff_comm_rank(c->match->view->comm) == 0)
        ZOFF_WARN("the checkpoint '%s' is of another model, as zoff_checkpoint_opts.allow permits, in %zu places: %s%s. Its "
                  "states are taken, and the rest stays as it is",
                  folder, c->allowed.count, c->allowed.text, c->allowed.count > 6 ? "; ..." : "");
    return c->match->weights_only ? ZOFF_OK : compare_groups(c->match);
}

zoff_status zoff_checkpoint_match_open(const zoff_engine_view *v, const zoff_archive *a, const zoff_checkpoint_opts *opts,
                                       zoff_match *out)
{
    names n = {.params = a->manifest.params, .count = a->manifest.param_count};
    zoff_match m = {.view = v, .archive = a, .weights_only = opts->weights_only};
    comparison c = {.match = &m, .allow = opts->allow};
    ZOFF_TRY(zoff_archive_names_sort(n.params, n.count, &n.sorted));
    zoff_status status = zoff_base_mem_alloc(v->model->param_count + 1, sizeof *m.to, "parameters of a checkpoint", &m.to);
    if (status == ZOFF_OK)
        status = compare(&c, &n);
    zoff_base_mem_free(n.sorted);
    if (status < 0)
        zoff_checkpoint_match_close(&m);
    else
        *out = m;
    return status;
}

void zoff_checkpoint_match_close(zoff_match *m)
{
    zoff_base_mem_free(m->to);
    m->to = NULL;
}
