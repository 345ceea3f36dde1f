/* SPDX-License-Identifier: Apache-2.0 */
/* universal_export.c: `zoff export universal FOLDER -o OUT --like FOLDER`: a checkpoint becomes a universal checkpoint folder
 * of DeepSpeed. */
#include "universal_verbs.h"

#include "names.h"
#include "universal_write.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct export_options {
    const char *folder, *out, *like, *label;
} export_options;

/* A parameter of the checkpoint as DeepSpeed sees it: a whole one, or a slice that has a name. */
typedef struct ours {
    const char *name;
    size_t index, owner; /* index of the parameter in the checkpoint, and of the one that has its states */
    size_t first, count; /* first element in the parameter, and number of elements */
    size_t dims[TORCH_DIMS_MAX + 1];
    size_t dim_count;
    unsigned states;
    bool is_used; /* the pattern has this parameter, or one that is tied to it */
} ours;

typedef struct export
{
    zoff_checkpoint_reader *from;
    zoff_checkpoint_info info;
    universal_folder like;
    ours *params; /* parameters in the order of their names */
    size_t count, room;
    size_t *places; /* for each parameter of the pattern, its index in `params` */
    pool memory;
    progress progress;
}
export;

/* ---- our parameters ---- */

static bool library_fault(fault *f)
{
    return fault_set(f, "%s", zoff_last_error());
}

static bool add(export *e, ours p, fault *f)
{
    if (e->count == e->room) {
        const size_t more = e->room ? 2 * e->room : 64;
        ours *moved = realloc(e->params, more * sizeof *moved);
        if (!moved)
            return fault_set(f, "out of memory for %zu parameters", more);
        e->params = moved;
        e->room = more;
    }
    e->params[e->count++] = p;
    return p.name || fault_set(f, "out of memory for the names of parameters");
}

/* Add a parameter of the checkpoint: slice by slice where slices have names, else with a dimension for slices. */
static bool add_param(export *e, size_t index, const zoff_checkpoint_param *p, fault *f)
{
    ours one = {.index = index, .owner = index, .count = p->count, .states = p->states & ((1u << UNIVERSAL_STATES) - 1)};
    if (one.states == 0 && !p->tied_to)
        return true; /* the weights of a frozen parameter are in the model's part */
    if (p->tied_to && zoff_checkpoint_reader_find(e->from, p->tied_to, &one.owner) < 0)
        return library_fault(f);
    const bool is_cut = p->slice_name;
    if (p->dim_count > TORCH_DIMS_MAX)
        return fault_set(f, "%s has more than %d dimensions", p->name, TORCH_DIMS_MAX);
    if (p->slices != 1 && !is_cut) {
        one.dims[one.dim_count++] = p->slices;
        one.count *= p->slices;
    }
    for (size_t i = 0; i < p->dim_count; i++)
        one.dims[one.dim_count++] = p->dims[i];
    for (size_t slice = 0; slice < (is_cut ? p->slices : 1); slice++) {
        one.first = slice * p->count;
        one.name = name_of_slice(&e->memory, is_cut ? p->slice_name : p->name, is_cut ? slice : NAME_WHOLE);
        if (!add(e, one, f))
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ours *)a)->name, ((const ours *)b)->name);
}

/* List the parameters of the checkpoint. A tied parameter has the states of its owner. */
static bool list_ours(export *e, fault *f)
{
    for (size_t i = 0; i < e->info.param_count; i++) {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT, owner = ZOFF_CHECKPOINT_PARAM_INIT;
        size_t index;
        if (zoff_checkpoint_reader_param(e->from, i, &p) < 0)
            return library_fault(f);
        if (p.tied_to && (zoff_checkpoint_reader_find(e->from, p.tied_to, &index) < 0 ||
                          zoff_checkpoint_reader_param(e->from, index, &owner) < 0))
            return library_fault(f);
        if (p.rule)
            return fault_set(f,
                             "%s has the momentum of Muon, and universal folders of DeepSpeed have moments of Adam only; `zoff "
                             "export` writes its weights",
                             p.name);
        if (p.tied_to)
            p.states = owner.states;
        if (!add_param(e, i, &p, f))
            return false;
    }
    if (e->count > 0)
        qsort(e->params, e->count, sizeof *e->params, by_name);
    return true;
}

/* ---- comparison with the pattern ---- */

static bool same_shape(const ours *a, const universal_param *b)
{
    if (b->is_flat)
        return a->count == b->count;
    if (a->dim_count != b->dim_count) /* a single number has one dimension of one element in the checkpoint */
        return a->dim_count == 1 && b->dim_count == 0 && a->count == 1;
    return memcmp(a->dims, b->dims, a->dim_count * sizeof a->dims[0]) == 0;
}

static ours *find_ours(const export *e, const char *name)
{
    const ours key = {.name = name};
    return e->count > 0 ? bsearch(&key, e->params, e->count, sizeof key, by_name) : NULL;
}

/* Find the checkpoint's parameter for each one of the pattern. */
static bool match(export *e, fault *f)
{
    e->places = calloc(e->like.count, sizeof *e->places);
    if (!e->places)
        return fault_set(f, "out of memory for %zu parameters", e->like.count);
    for (size_t i = 0; i < e->like.count; i++) {
        const universal_param *p = &e->like.params[i];
        ours *found = find_ours(e, p->name);
        if (!found && p->tied_to) /* the checkpoint has only the parameter with which it shares weights */
            found = find_ours(e, p->tied_to);
        if (!found)
            return fault_set(f, "%s has a parameter %s, which the checkpoint has not", e->like.path, p->name);
        if (!same_shape(found, p))
            return fault_set(
                f, "the shapes of %s differ: it has %zu elements in %zu dimensions in the checkpoint, and %zu in %zu in %s",
                p->name, found->count, found->dim_count, p->count, p->dim_count, e->like.path);
        if (p->tied_to ? p->states & ~found->states : found->states != p->states)
            return fault_set(f, "the states of %s differ: the checkpoint has%s%s, and %s has%s%s", p->name,
                             found->states & 2 ? " exp_avg" : "", found->states & 4 ? " exp_avg_sq" : "", e->like.path,
                             p->states & 2 ? " exp_avg" : "", p->states & 4 ? " exp_avg_sq" : "");
        found->is_used = found->is_used || found->states == p->states;
        e->places[i] = (size_t)(found - e->params);
    }
    return true;
}

/* Check that the pattern has each parameter of the checkpoint, or one that is tied to it. */
static bool check_all_used(const export *e, fault *f)
{
    bool *by_other_name = calloc(e->info.param_count + 1, sizeof *by_other_name);
    if (!by_other_name)
        return fault_set(f, "out of memory for %zu parameters", e->info.param_count);
    for (size_t i = 0; i < e->count; i++) {
        const ours *p = &e->params[i];
        if (p->index != p->owner && p->is_used)
            by_other_name[p->owner] = true;
    }
    bool ok = true;
    for (size_t i = 0; i < e->count && ok; i++) {
        const ours *p = &e->params[i];
        if (p->index == p->owner && !p->is_used && !by_other_name[p->index])
            ok = fault_set(f, "the checkpoint has a parameter %s, which %s has not", p->name, e->like.path);
    }
    free(by_other_name);
    return ok;
}

/* ---- the export ---- */

static bool give(void *ctx, size_t index, zoff_state_kind kind, size_t first, size_t count, float *dst, fault *f)
{
    const export *e = ctx;
    const ours *p = &e->params[e->places[index]];
    return zoff_checkpoint_reader_read(e->from, p->index, kind, p->first + first, count, dst) >= 0 || library_fault(f);
}

static bool export_checkpoint(export *e, const export_options *o, fault *f)
{
    char like[UNIVERSAL_PATH_MAX], out[UNIVERSAL_PATH_MAX];
    size_t bytes = strlen(o->out);
    while (bytes > 1 && o->out[bytes - 1] == '/')
        bytes--;
    if (bytes >= sizeof out)
        return fault_set(f, "the path %s is too long", o->out);
    memcpy(out, o->out, bytes);
    out[bytes] = 0;
    e->info = (zoff_checkpoint_info)ZOFF_CHECKPOINT_INFO_INIT;
    if (zoff_checkpoint_reader_open(o->folder, o->label, &e->from) < 0 || zoff_checkpoint_reader_info(e->from, &e->info) < 0)
        return library_fault(f);
    if (!list_ours(e, f) || !universal_find(o->like, like, f) || !universal_folder_open(like, &e->like, f))
        return false;
    fault of_model;
    (void)universal_model_read(&e->like, false, &of_model); /* a part that cannot be read tells of no ties */
    if (!match(e, f) || !check_all_used(e, f))
        return false;
    const universal_order order = {.like = &e->like,
                                   .out = out,
                                   .step = e->info.t,
                                   .scaler = e->info.has_loss_scaler ? &e->info.loss_scaler : NULL,
                                   .source = give,
                                   .ctx = e,
                                   .progress = &e->progress};
    return universal_folder_write(&order, f);
}

/* ---- arguments ---- */

static int read_options(int argc, char **argv, export_options *o)
{
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        const char **to = strcmp(word, "-o") == 0        ? &o->out
                          : strcmp(word, "--like") == 0  ? &o->like
                          : strcmp(word, "--label") == 0 ? &o->label
                          : word[0] == '-'               ? NULL
                                                         : &o->folder;
        if (!to)
            return usage_error("export universal: there is no option \"%s\"", word);
        if (to == &o->folder && o->folder)
            return usage_error("export universal takes one folder, not both \"%s\" and \"%s\"", o->folder, word);
        if (to != &o->folder && ++i == argc)
            return usage_error("%s needs a value", word);
        *to = argv[i];
    }
    if (!o->folder || !o->out || !*o->out || !o->like)
        return usage_error("export universal needs a checkpoint, -o with a new folder, and --like with a universal folder of "
                           "DeepSpeed for the same model");
    return EXIT_DONE;
}

int universal_export(int argc, char **argv)
{
    export_options o = {.folder = NULL};
    int result = read_options(argc, argv, &o);
    if (result != EXIT_DONE)
        return result;
    export e = {.count = 0};
    fault f;
    progress_begin(&e.progress, "export");
    if (!export_checkpoint(&e, &o, &f))
        result = failed("%s", f.text);
    progress_end(&e.progress, result == EXIT_DONE);
    if (result == EXIT_DONE) {
        print_line(stdout, "%zu parameters after %lld updates are in %s", e.like.count, (long long)e.info.t, o.out);
        result = finish_output();
    }
    zoff_checkpoint_reader_close(e.from);
    universal_folder_close(&e.like);
    pool_free(&e.memory);
    free(e.params);
    free(e.places);
    return result;
}
