/* SPDX-License-Identifier: Apache-2.0 */
/* universal_facts.c: reads what a universal folder has beside the tensors: steps, loss scale, and the facts of the model's
 * part. */
#include "universal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- optimizer_state.pt ---- */

bool universal_optimizer_open(const universal_folder *u, torch_file **out, fault *f)
{
    char path[UNIVERSAL_PATH_MAX];
    return universal_path(path, u->path, "zero/optimizer_state.pt", NULL, f) &&
           torch_file_open(path, PICKLE_NAMES_ANY, PICKLE_BYTES_MAX, out, f);
}

const pickle_value *universal_optimizer_scaler(const pickle_value *root)
{
    const pickle_value *scaler = pickle_find(root, "loss_scaler");
    if (!scaler || scaler->type != PICKLE_OBJECT ||
        !pickle_is_global(scaler->callee, "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler"))
        return NULL;
    return scaler->state;
}

const pickle_value *universal_optimizer_step(const pickle_value *root)
{
    const pickle_value *optimizer = pickle_find(root, "optimizer_state_dict"); /* steps of parameters at stage 3 */
    const pickle_value *step = pickle_find(pickle_at(pickle_find(optimizer, "state"), 1), "step");
    if (!step)
        step = pickle_find(pickle_at(pickle_find(optimizer, "param_groups"), 0), "step");
    if (!step)
        step = pickle_find(pickle_at(pickle_find(root, "param_groups"), 0), "step");
    return step;
}

static bool read_scaler(const pickle_value *state, universal_facts *out, fault *f)
{
    const pickle_value *scale = pickle_find(state, "cur_scale");
    int64_t whole, hysteresis;
    if (!scale || (scale->type != PICKLE_FLOAT && scale->type != PICKLE_INT) ||
        !pickle_number(pickle_find(state, "cur_iter"), &out->scaler.iterations) ||
        !pickle_number(pickle_find(state, "last_overflow_iter"), &out->scaler.last_overflow) ||
        !pickle_number(pickle_find(state, "cur_hysteresis"), &hysteresis) || hysteresis < 0)
        return fault_set(f,
                         "zero/optimizer_state.pt has a dynamic loss scaler without cur_scale, cur_iter, last_overflow_iter or "
                         "cur_hysteresis");
    out->scaler.scale = pickle_number(scale, &whole) ? (double)whole : scale->real;
    out->scaler.hysteresis = (uint64_t)hysteresis;
    out->has_scaler = true;
    return true;
}

/* Whether DeepSpeed's Muon updates a group, which it marks. */
static bool has_matrices(const pickle_value *groups)
{
    for (const pickle_item *item = groups && groups->type == PICKLE_LIST ? groups->first : NULL; item; item = item->next) {
        const pickle_value *mark = pickle_find(item->value, "use_muon");
        if (mark && mark->type == PICKLE_BOOL && mark->number)
            return true;
    }
    return false;
}

static bool read_optimizer(const universal_folder *u, universal_facts *out, fault *f)
{
    torch_file *t;
    if (!universal_optimizer_open(u, &t, f))
        return false;
    const pickle_value *root = torch_file_root(t), *step = universal_optimizer_step(root);
    const pickle_value *scaler = universal_optimizer_scaler(root);
    bool ok = !scaler || read_scaler(scaler, out, f);
    if (ok && (has_matrices(pickle_find(root, "param_groups")) ||
               has_matrices(pickle_find(pickle_find(root, "optimizer_state_dict"), "param_groups"))))
        ok = fault_set(f,
                       "%s: its optimizer is Muon, and universal folders of DeepSpeed have moments of Adam only; save the "
                       "weights as safetensors, and import these",
                       u->path);
    if (ok && out->step < 0 && step)
        ok = torch_file_number(t, step, &out->step, f);
    torch_file_close(t);
    return ok;
}

/* ---- step.pt ---- */

static bool read_step(const universal_folder *u, const universal_param *p, int64_t *out, fault *f)
{
    char zero[UNIVERSAL_PATH_MAX], path[UNIVERSAL_PATH_MAX];
    torch_file *t;
    if (!universal_path(zero, u->path, "zero", p->name, f) || !universal_path(path, zero, "step.pt", NULL, f) ||
        !torch_file_open(path, PICKLE_NAMES_LISTED, TORCH_TENSOR_PICKLE, &t, f))
        return false;
    const bool ok = torch_file_number(t, torch_file_root(t), out, f);
    torch_file_close(t);
    return ok;
}

bool universal_facts_read(const universal_folder *u, universal_facts *out, fault *f)
{
    *out = (universal_facts){.step = -1, .scaler = ZOFF_LOSS_SCALER_INIT};
    for (size_t i = 0, with = u->count; i < u->count; i++) {
        const universal_param *p = &u->params[i];
        int64_t step;
        if (!p->has_step)
            continue;
        if (!read_step(u, p, &step, f))
            return false;
        if (step < 0 || (with < u->count && step != out->step))
            return fault_set(f, "%s: %s has step %lld, and %s has %lld; zoff has one number of updates for all", u->path,
                             p->name, (long long)step, u->params[with < u->count ? with : i].name, (long long)out->step);
        out->step = step;
        with = i;
    }
    return read_optimizer(u, out, f);
}

/* ---- the model's part ---- */

/* Note the order and, for flat parameters, the shape from one of the model's groups: a dict of names and sizes. */
static bool read_group(universal_folder *u, const pickle_value *group, size_t *order, fault *f)
{
    for (const pickle_item *item = group->first; item && item->next; item = item->next->next) {
        const pickle_value *name = item->value, *shape = item->next->value;
        universal_param *p = name->type == PICKLE_TEXT ? universal_folder_find(u, name->text, name->text_bytes) : NULL;
        if (!p)
            continue; /* the parameter is another rank's of tensor or pipeline parallelism, or has no states */
        p->order = (*order)++;
        if (!p->is_flat || shape->type != PICKLE_OBJECT || !pickle_is_global(shape->callee, "torch Size"))
            continue;
        size_t dims[TORCH_DIMS_MAX] = {0}, dim_count = 0, count = 1;
        const pickle_value *sizes = pickle_at(shape->arguments, 0);
        for (const pickle_item *size = sizes ? sizes->first : NULL; size; size = size->next, dim_count++) {
            int64_t dim;
            if (dim_count == TORCH_DIMS_MAX || !pickle_number(size->value, &dim) || dim < 0 ||
                __builtin_mul_overflow(count, (size_t)dim, &count))
                return fault_set(f, "param_shapes has no valid shape of %s", p->name);
            dims[dim_count] = (size_t)dim;
        }
        if (count != p->count)
            return fault_set(f, "param_shapes says that %s has %zu elements, but its fp32.pt has %zu", p->name, count,
                             p->count);
        memcpy(p->dims, dims, sizeof dims);
        p->dim_count = dim_count;
    }
    return true;
}

static bool read_groups(universal_folder *u, const pickle_value *root, fault *f)
{
    const pickle_value *groups = pickle_find(root, "param_shapes");
    size_t order = 0;
    for (const pickle_item *item = groups ? groups->first : NULL; item; item = item->next) {
        if (!read_group(u, item->value, &order, f))
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const universal_param *)a)->name, ((const universal_param *)b)->name);
}

/* Parameters without files, until all are found: a search needs the others in order. */
typedef struct added_params {
    universal_param *params;
    size_t count, room;
} added_params;

/* Add a parameter that has the size of its owner, and no files. */
static bool add_tied(added_params *a, const char *name, const universal_param *owner, fault *f)
{
    if (a->count == a->room) {
        const size_t more = a->room ? 2 * a->room : 64;
        universal_param *moved = realloc(a->params, more * sizeof *moved);
        if (!moved)
            return fault_set(f, "out of memory for %zu parameters", more);
        a->params = moved;
        a->room = more;
    }
    universal_param *p = &a->params[a->count++];
    *p = *owner;
    p->name = name;
    p->tied_to = owner->name;
    p->states = 0;
    p->has_step = false;
    return true;
}

/* Put the added parameters among the others, which stay in order. */
static bool join_added(universal_folder *u, const added_params *a, fault *f)
{
    if (!a->count)
        return true;
    universal_param *moved = realloc(u->params, (u->count + a->count) * sizeof *moved);
    if (!moved)
        return fault_set(f, "out of memory for %zu parameters", u->count + a->count);
    memcpy(moved + u->count, a->params, a->count * sizeof *moved);
    u->params = moved;
    u->count += a->count;
    qsort(u->params, u->count, sizeof *u->params, by_name);
    for (size_t i = 1; i < u->count; i++) {
        if (strcmp(u->params[i - 1].name, u->params[i].name) == 0)
            return fault_set(f, "shared_params has %s twice", u->params[i].name);
    }
    return true;
}

/* Note one tie of {name: owner}. */
static bool read_tie(universal_folder *u, const pickle_value *name, const pickle_value *of, added_params *added, fault *f)
{
    const universal_param *owner = universal_folder_find(u, of->text, of->text_bytes);
    universal_param *p = universal_folder_find(u, name->text, name->text_bytes);
    if (!owner || owner == p || owner->tied_to || (!p && !added))
        return true; /* the owner has no states, or tied ones are not asked for */
    if (p && p->count != owner->count)
        return fault_set(f, "shared_params says that %s is %s, which has %zu elements, and its fp32.pt has %zu", p->name,
                         owner->name, owner->count, p->count);
    if (p) {
        p->tied_to = owner->name;
        return true;
    }
    const char *copy = pool_text(&u->memory, name->text, name->text_bytes);
    return copy ? add_tied(added, copy, owner, f) : fault_set(f, "out of memory for the name of a parameter");
}

/* Note which parameters are tied: {name: owner}. */
static bool read_ties(universal_folder *u, const pickle_value *root, bool adds_tied, fault *f)
{
    const pickle_value *shared = pickle_find(root, "shared_params");
    added_params added = {.count = 0};
    bool ok = true;
    for (const pickle_item *item = shared ? shared->first : NULL; ok && item && item->next; item = item->next->next) {
        const pickle_value *name = item->value, *of = item->next->value;
        if (name->type == PICKLE_TEXT && of->type == PICKLE_TEXT && !memchr(name->text, 0, name->text_bytes))
            ok = read_tie(u, name, of, adds_tied ? &added : NULL, f);
    }
    ok = ok && join_added(u, &added, f);
    free(added.params);
    return ok;
}

/* Note the types of the weights. */
static void read_types(universal_folder *u, const torch_file *t)
{
    const pickle_value *module = pickle_find(torch_file_root(t), "module");
    for (const pickle_item *item = module ? module->first : NULL; item && item->next; item = item->next->next) {
        universal_param *p = NULL;
        fault dropped; /* a tensor that cannot be read only leaves the type open */
        torch_tensor tensor;
        if (item->value->type == PICKLE_TEXT)
            p = universal_folder_find(u, item->value->text, item->value->text_bytes);
        if (p && torch_file_tensor(t, item->next->value, &tensor, &dropped))
            p->dtype = tensor.dtype;
    }
}

bool universal_model_read(universal_folder *u, bool adds_tied, fault *f)
{
    static const char *const NAMES[] = {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"};
    char path[UNIVERSAL_PATH_MAX];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        torch_file *t;
        if (!universal_path(path, u->path, NAMES[i], NULL, f))
            return false;
        if (access(path, F_OK) != 0)
            continue;
        if (!torch_file_open(path, PICKLE_NAMES_ANY, PICKLE_BYTES_MAX, &t, f))
            return false;
        const pickle_value *root = torch_file_root(t);
        const bool ok = (read_groups(u, root, f) && read_ties(u, root, adds_tied, f)) || fault_at(f, path);
        read_types(u, t);
        torch_file_close(t);
        return ok;
    }
    return fault_set(f, "%s has neither %s nor %s", u->path, NAMES[0], NAMES[1]);
}
