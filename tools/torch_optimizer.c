/* SPDX-License-Identifier: Apache-2.0 */
/* torch_optimizer.c: the moments of torch.optim for the tensors of a state_dict.
 *
 * An optimizer numbers its parameters in the order of its groups, and within a group in that of the model. It has no names,
 * unless it was made with those of named_parameters(). Without names this file looks for the ways to give each number a tensor
 * of the same shape, in the order of the model within each group. Exactly one way must exist, because a second one would give
 * parameters the moments of others. The search goes through the tensors in order. Its state is how many parameters of each
 * group are found; two ways to one state are ambiguous from there on. */
#include "torch_model.h"

#include "import_kind.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_MEMBERS = 16, /* members of the state of a parameter */
    MOST_GROUPS = 256, /* groups whose parameters have no names */
    MOST_WAYS = 64     /* ways that are followed at a time; more are taken for ambiguous */
};

/* A parameter of the optimizer. */
typedef struct slot {
    const pickle_value *name;  /* a text; NULL: it has none */
    const pickle_value *state; /* a dict; NULL: the parameter never had a gradient */
    torch_moments moments;
    unsigned states; /* bits of the moments, as in zoff_checkpoint_param */
    bool has_step;
    int64_t step;
    size_t tensor; /* index of its tensor in import_files */
} slot;

/* A way through the tensors so far. */
typedef struct way {
    uint32_t before;   /* index in the layer before */
    int32_t group;     /* group of the last tensor; -1: it is not the optimizer's */
    uint32_t twice_at; /* first tensor where two ways have met; UINT32_MAX: none have */
} way;

typedef struct reader {
    import_files *files;
    import_options *options;
    const char *path;
    torch_file *file;
    const pickle_value *root; /* the dict with "state" and "param_groups" */
    unsigned wraps;
    slot *slots;
    size_t slot_count;
    unsigned states; /* moments that there are, as in slot */
    size_t *groups;  /* first slot of each group, and the end */
    size_t group_count;
    size_t *tensors; /* indices of the tensors that may be the optimizer's, in order */
    size_t tensor_count;
    pool memory;
} reader;

static const char WAY_OUT[] =
    "give each group its names in Python, a list \"param_names\" beside \"params\", and save the file "
    "again; or import with moments of zero: --optimizer adam";

static int no_groups(const reader *r)
{
    return failed("%s: its optimizer has not the form of torch.optim: \"state\", and lists \"params\" in \"param_groups\"",
                  r->path);
}

/* Count the items of a container, up to one more than `most`: a small file can have one large list in many places. */
static size_t length_of(const pickle_value *v, size_t most)
{
    size_t count = 0;
    for (const pickle_item *item = v ? v->first : NULL; item && count <= most; item = item->next)
        count++;
    return count;
}

/* ---- the states of a parameter ---- */

/* A moment of torch.optim, by its key. */
static torch_tensor *moment_of(slot *s, const pickle_value *key, unsigned *out_bit)
{
    const bool is_first = pickle_is_text(key, "exp_avg") || pickle_is_text(key, "momentum_buffer");
    const bool is_second = pickle_is_text(key, "exp_avg_sq") || pickle_is_text(key, "sum");
    *out_bit = is_first ? 1u << ZOFF_STATE_M : 1u << ZOFF_STATE_V;
    return is_first ? &s->moments.first : is_second ? &s->moments.second : NULL;
}

/* Read a member of the state of parameter `index`. */
static int read_member(reader *r, size_t index, const pickle_value *key, const pickle_value *value)
{
    slot *s = &r->slots[index];
    unsigned bit;
    fault f;
    if (pickle_is_text(key, "step")) {
        s->has_step = true;
        if (!torch_file_number(r->file, value, &s->step, &f) || s->step < 0)
            return failed("%s: parameter %zu of the optimizer has no valid \"step\"", r->path, index);
        return EXIT_DONE;
    }
    torch_tensor *moment = moment_of(s, key, &bit);
    if (!moment) {
        const bool is_text = key->type == PICKLE_TEXT;
        return failed(
            "%s: the optimizer has a state \"%.*s\", and zoff knows exp_avg, exp_avg_sq, momentum_buffer and sum; import "
            "with moments of zero: --optimizer adam",
            r->path, is_text ? (int)key->text_bytes : 1, is_text ? key->text : "?");
    }
    if (value->type == PICKLE_NONE)
        return EXIT_DONE;
    if (!torch_file_tensor(r->file, value, moment, &f))
        return failed("%s; this is a state of parameter %zu of the optimizer", f.text, index);
    if (moment->dtype == ZOFF_DTYPE_DEFAULT)
        return failed("%s: parameter %zu of the optimizer has a moment of integers", r->path, index);
    const torch_tensor *first = &s->moments.first, *second = &s->moments.second;
    s->states |= bit;
    if (s->states == (1u << ZOFF_STATE_M | 1u << ZOFF_STATE_V) &&
        (first->dim_count != second->dim_count || memcmp(first->dims, second->dims, sizeof first->dims) != 0))
        return failed("%s: parameter %zu of the optimizer has moments of two shapes", r->path, index);
    return EXIT_DONE;
}

static int read_states(reader *r)
{
    for (size_t i = 0; i < r->slot_count; i++) {
        const pickle_item *item = r->slots[i].state ? r->slots[i].state->first : NULL;
        if (length_of(r->slots[i].state, 2 * MOST_MEMBERS) > 2 * MOST_MEMBERS)
            return no_groups(r);
        for (; item && item->next; item = item->next->next) {
            if (read_member(r, i, item->value, item->next->value) != EXIT_DONE)
                return EXIT_FAILED;
        }
        r->slots[i].moments.file = r->file;
        r->states |= r->slots[i].states;
    }
    for (size_t i = 0; i < r->slot_count; i++) {
        if (r->slots[i].states && r->slots[i].states != r->states)
            return failed("%s: the optimizer has other moments for parameter %zu than for others; zoff has the same for all",
                          r->path, i);
    }
    return EXIT_DONE;
}

/* ---- groups ---- */

/* Count the parameters, of which there are no more than tensors. */
static int count_slots(reader *r, const pickle_value *groups)
{
    const size_t most = r->files->tensor_count;
    for (const pickle_item *item = groups->first; item && r->slot_count <= most; item = item->next) {
        r->slot_count += length_of(pickle_find(item->value, "params"), most);
        r->group_count++;
    }
    return r->slot_count <= most
               ? EXIT_DONE
               : failed("%s: the optimizer has more parameters than the model's %zu tensors, so it is that of "
                        "another model; give all files of the model",
                        r->path, most);
}

/* Note the parameters of all groups: their numbers are 0, 1, 2 and so on, or they are names. */
static int read_groups(reader *r)
{
    const pickle_value *groups = pickle_find(r->root, "param_groups");
    if (count_slots(r, groups) != EXIT_DONE)
        return EXIT_FAILED;
    r->groups = pool_take(&r->memory, r->group_count + 1, sizeof *r->groups);
    r->slots = pool_take(&r->files->memory, r->slot_count, sizeof *r->slots);
    if (!r->groups || !r->slots)
        return EXIT_FAILED;
    size_t at = 0, group = 0;
    for (const pickle_item *item = groups->first; item; item = item->next) {
        const pickle_value *params = pickle_find(item->value, "params"), *names = pickle_find(item->value, "param_names");
        const pickle_item *name = names ? names->first : NULL;
        const size_t count = length_of(params, r->slot_count);
        if (!params || params->type != PICKLE_LIST || (names && length_of(names, count) != count))
            return no_groups(r);
        r->groups[group++] = at;
        for (const pickle_item *param = params->first; param; param = param->next, at++) {
            const pickle_value *v = name ? name->value : param->value;
            int64_t number;
            if (v->type == PICKLE_TEXT)
                r->slots[at].name = v;
            if (param->value->type != PICKLE_TEXT && (!pickle_number(param->value, &number) || number != (int64_t)at))
                return no_groups(r);
            name = name ? name->next : NULL;
        }
    }
    r->groups[group] = at;
    return EXIT_DONE;
}

static int by_text(const void *a, const void *b)
{
    const pickle_value *x = (*(slot *const *)a)->name, *y = (*(slot *const *)b)->name;
    const size_t bytes = x->text_bytes < y->text_bytes ? x->text_bytes : y->text_bytes;
    const int order = memcmp(x->text, y->text, bytes);
    return order ? order : (x->text_bytes > y->text_bytes) - (x->text_bytes < y->text_bytes);
}

/* Find the parameter with this key in "state": its number, or its name. */
static slot *find_slot(const reader *r, slot **named, size_t named_count, const pickle_value *key)
{
    slot wanted = {.name = key}, *at = &wanted, **found;
    int64_t number;
    if (key->type != PICKLE_TEXT)
        return pickle_number(key, &number) && number >= 0 && (uint64_t)number < r->slot_count ? &r->slots[number] : NULL;
    found = named_count ? bsearch(&at, named, named_count, sizeof *named, by_text) : NULL;
    return found ? *found : NULL;
}

/* Give each parameter its state. */
static int find_states(reader *r)
{
    size_t named_count = 0;
    slot **named = pool_take(&r->memory, r->slot_count, sizeof *named);
    if (!named)
        return EXIT_FAILED;
    for (size_t i = 0; i < r->slot_count; i++) {
        if (r->slots[i].name)
            named[named_count++] = &r->slots[i];
    }
    qsort(named, named_count, sizeof *named, by_text);
    for (const pickle_item *item = pickle_find(r->root, "state")->first; item && item->next; item = item->next->next) {
        slot *s = find_slot(r, named, named_count, item->value);
        const pickle_value *state = item->next->value;
        if (!s || s->state || (state->type != PICKLE_DICT && state->type != PICKLE_OBJECT))
            return no_groups(r);
        s->state = state;
    }
    return EXIT_DONE;
}

/* ---- which tensor a parameter is ---- */

static const st_tensor *tensor_at(const reader *r, size_t index)
{
    return r->files->tensors[index].tensor;
}

/* Whether a parameter can be this tensor. One without moments can be any. */
static bool fits(const reader *r, const slot *s, size_t tensor)
{
    const st_tensor *t = tensor_at(r, tensor);
    const torch_tensor *moment = s->states & 1u << ZOFF_STATE_M ? &s->moments.first : &s->moments.second;
    return !s->states ||
           (moment->dim_count == t->dim_count && memcmp(moment->dims, t->dims, t->dim_count * sizeof *t->dims) == 0);
}

/* Find tensors by the names of the parameters, which may be tied names. */
static int match_names(reader *r)
{
    for (size_t i = 0; i < r->slot_count; i++) {
        slot *s = &r->slots[i];
        char *name = s->name ? pool_text(&r->memory, s->name->text, s->name->text_bytes) : NULL;
        if (!name)
            return s->name ? EXIT_FAILED : no_groups(r);
        torch_model_strip(name, r->wraps);
        const source_tensor *t = import_files_find(r->files, name);
        for (size_t k = 0; k < r->files->file_count && !t; k++)
            t = import_files_find(r->files, json_string_value(json_object_get(r->files->files[k].metadata, name)));
        if (!t || t->moments)
            return failed("%s: parameter \"%s\" of the optimizer %s", r->path, name,
                          t ? "is there twice"
                            : "is no tensor of the model; give all files of the model, without --skip for it");
        s->tensor = (size_t)(t - r->files->tensors);
        if (!fits(r, s, s->tensor))
            return failed("%s: parameter \"%s\" has another shape in the optimizer than in %s", r->path, name, t->file->path);
        r->files->tensors[s->tensor].moments = &s->moments;
    }
    return EXIT_DONE;
}

/* List the tensors that may be parameters: not those of --frozen, and not the statistics of batch normalization, which no
 * optimizer has. All of them if these are too few. */
static int list_tensors(reader *r)
{
    static const char *const STATISTICS[] = {"*running_mean", "*running_var", NULL};
    const size_t all = r->files->tensor_count;
    r->tensors = pool_take(&r->memory, all, sizeof *r->tensors);
    if (!r->tensors)
        return EXIT_FAILED;
    for (size_t i = 0; i < all; i++) {
        const char *name = tensor_at(r, i)->name;
        if (!st_matches(name, r->options->frozen) && !st_matches(name, STATISTICS))
            r->tensors[r->tensor_count++] = i;
    }
    if (r->tensor_count < r->slot_count) {
        r->tensor_count = all;
        for (size_t i = 0; i < all; i++)
            r->tensors[i] = i;
    }
    return EXIT_DONE;
}

/* Add a way to a layer, or note that two ways have met there. Returns false if there is no room. */
static bool add_way(way *layer, uint32_t *found, size_t *count, const uint32_t *at, size_t groups, way w, uint32_t tensor)
{
    for (size_t i = 0; i < *count; i++) {
        if (memcmp(found + i * groups, at, groups * sizeof *at) != 0)
            continue;
        layer[i].twice_at = layer[i].twice_at < tensor ? layer[i].twice_at : tensor;
        return true;
    }
    if (*count == MOST_WAYS)
        return false;
    memcpy(found + *count * groups, at, groups * sizeof *at);
    layer[(*count)++] = w;
    return true;
}

static int ambiguous(const reader *r, size_t tensor)
{
    return failed(
        "%s: the parameters of the optimizer have no names, and can be matched with the tensors in several ways, also "
        "for \"%s\"; name tensors that are not trained in --frozen or --skip, or %s",
        r->path, tensor_at(r, r->tensors[tensor])->name, WAY_OUT);
}

static int unmatched(const reader *r, size_t tensor)
{
    return failed(
        "%s: the optimizer has no parameter of the shape of tensor \"%s\" in its place, so it is that of another model or "
        "order; %s",
        r->path, tensor_at(r, r->tensors[tensor])->name, WAY_OUT);
}

/* Go from the ways in `from` over tensor `index` to those of the next layer. Returns false if there are too many.
 * @param at scratch for a state */
static bool next_layer(const reader *r, size_t index, const way *from, const uint32_t *found, size_t count, way *to,
                       uint32_t *to_found, size_t *to_count, uint32_t *at)
{
    const size_t groups = r->group_count;
    for (size_t i = 0; i < count; i++) {
        size_t done = 0;
        for (size_t g = 0; g < groups; g++) {
            at[g] = found[i * groups + g];
            done += at[g];
        }
        way w = {.before = (uint32_t)i, .twice_at = from[i].twice_at, .group = -1};
        /* as many tensors may be left out as there are more than parameters */
        if (index - done < r->tensor_count - r->slot_count && !add_way(to, to_found, to_count, at, groups, w, (uint32_t)index))
            return false;
        for (size_t g = 0; g < groups; g++) {
            const size_t next = r->groups[g] + at[g];
            if (next == r->groups[g + 1] || !fits(r, &r->slots[next], r->tensors[index]))
                continue;
            at[g]++;
            w.group = (int32_t)g;
            const bool has_room = add_way(to, to_found, to_count, at, groups, w, (uint32_t)index);
            at[g]--;
            if (!has_room)
                return false;
        }
    }
    return true;
}

/* Follow a way back from the last layer, and give the parameters their tensors. */
static void take_way(reader *r, way *const *layers, size_t *left)
{
    for (size_t g = 0; g < r->group_count; g++)
        left[g] = r->groups[g + 1];
    for (size_t i = r->tensor_count, at = 0; i > 0; i--) {
        const way *w = &layers[i][at];
        if (w->group >= 0)
            r->slots[--left[w->group]].tensor = r->tensors[i - 1];
        at = w->before;
    }
}

/* Find the only way to match parameters and tensors. */
static int match_shapes(reader *r)
{
    const size_t groups = r->group_count;
    if (groups > MOST_GROUPS)
        return failed("%s: the optimizer has %zu groups without names, more than %d; %s", r->path, groups, MOST_GROUPS,
                      WAY_OUT);
    if (list_tensors(r) != EXIT_DONE)
        return EXIT_FAILED;
    way **layers = pool_take(&r->memory, r->tensor_count + 1, sizeof *layers), next[MOST_WAYS];
    uint32_t *found = pool_take(&r->memory, MOST_WAYS * groups, sizeof *found);
    uint32_t *to_found = pool_take(&r->memory, MOST_WAYS * groups, sizeof *found);
    uint32_t *at = pool_take(&r->memory, groups, sizeof *at);
    size_t *left = pool_take(&r->memory, groups, sizeof *left), count = 1;
    layers = layers && (layers[0] = pool_take(&r->memory, 1, sizeof **layers)) ? layers : NULL;
    if (!layers || !found || !to_found || !at || !left)
        return EXIT_FAILED;
    layers[0][0] = (way){.twice_at = UINT32_MAX, .group = -1};
    for (size_t i = 0; i < r->tensor_count; i++) {
        size_t to_count = 0;
        if (!next_layer(r, i, layers[i], found, count, next, to_found, &to_count, at))
            return ambiguous(r, i);
        if (to_count == 0)
            return unmatched(r, i);
        layers[i + 1] = pool_take(&r->memory, to_count, sizeof **layers);
        if (!layers[i + 1])
            return EXIT_FAILED;
        memcpy(layers[i + 1], next, to_count * sizeof *next);
        uint32_t *other = found;
        found = to_found, to_found = other, count = to_count;
    }
    /* as many tensors are left out as may be, so only one state is left: that with all parameters */
    if (layers[r->tensor_count][0].twice_at != UINT32_MAX)
        return ambiguous(r, layers[r->tensor_count][0].twice_at);
    take_way(r, layers, left);
    for (size_t i = 0; i < r->slot_count; i++)
        r->files->tensors[r->slots[i].tensor].moments = &r->slots[i].moments;
    return EXIT_DONE;
}

/* ---- the whole ---- */

/* Take over the number of updates, in which all parameters must agree. */
static int set_step(reader *r)
{
    const slot *with = NULL;
    for (size_t i = 0; i < r->slot_count && r->options->step < 0; i++) {
        const slot *s = &r->slots[i];
        if (s->has_step && with && s->step != with->step)
            return failed(
                "%s: tensor \"%s\" has step %lld, and \"%s\" has %lld; zoff has one number of updates for all: give --step N",
                r->path, tensor_at(r, s->tensor)->name, (long long)s->step, tensor_at(r, with->tensor)->name,
                (long long)with->step);
        if (s->has_step)
            with = s;
    }
    if (r->options->step < 0 && !with)
        return failed("%s does not tell how many updates it has; give --step N", r->path);
    if (r->options->step < 0)
        r->options->step = with->step;
    return EXIT_DONE;
}

/* Set the states of all tensors: those that the optimizer does not have are frozen. */
static void set_states(reader *r)
{
    const source_tensor *frozen = NULL, *still = NULL;
    size_t frozen_count = 0, still_count = 0;
    for (size_t i = 0; i < r->files->tensor_count; i++) {
        source_tensor *t = &r->files->tensors[i];
        t->states = t->moments ? 1u << ZOFF_STATE_MASTER | r->states : 1u << ZOFF_STATE_WEIGHTS;
        if (!t->moments && !st_matches(t->tensor->name, r->options->frozen)) {
            frozen = t;
            frozen_count++;
        }
    }
    for (size_t i = 0; i < r->slot_count; i++) {
        source_tensor *t = &r->files->tensors[r->slots[i].tensor];
        if (r->slots[i].states || !r->states)
            continue;
        t->moments = NULL; /* all of them are zero */
        still = t;
        still_count++;
    }
    if (frozen)
        print_line(stderr,
                   "note: %s: the optimizer does not have %zu of the tensors, such as \"%s\": they are frozen, and --skip "
                   "leaves them out",
                   r->path, frozen_count, frozen->tensor->name);
    if (still)
        print_line(stderr,
                   "note: %s: %zu of the tensors, such as \"%s\", have no moments yet, because they never had a gradient: "
                   "theirs are zero",
                   r->path, still_count, still->tensor->name);
}

/* Find the optimizer: in its own file, or in that of the model.
 * @param out_found false: there is none */
static int open_optimizer(reader *r, bool *out_found)
{
    torch_model *model = r->files->file_count > 0 ? r->files->files[0].torch : NULL;
    fault f;
    if (!model)
        return EXIT_DONE;
    r->wraps = model->wraps;
    r->path = r->options->optimizer;
    if (!r->path) {
        r->path = r->files->files[0].path;
        r->file = model->file;
        r->root = r->files->file_count == 1 ? model->contents.optimizer : NULL;
    } else if (import_kind_check(r->path, "optimizer") != EXIT_DONE) {
        return EXIT_FAILED;
    } else if (!torch_file_open(r->path, PICKLE_NAMES_ANY, PICKLE_BYTES_MAX, &model->optimizer, &f)) {
        return failed("%s", f.text);
    } else {
        r->file = model->optimizer;
        r->root = torch_contents_find(r->file).optimizer;
        if (!r->root)
            return failed("%s: has no state_dict of an optimizer", r->path);
    }
    *out_found = r->root != NULL;
    return EXIT_DONE;
}

static int read_optimizer(reader *r)
{
    const pickle_value *state = pickle_find(r->root, "state");
    int result = state->first ? read_groups(r) : EXIT_DONE;
    if (!state->first) {
        print_line(stderr, "note: %s: the optimizer has no states yet, so the moments are zero", r->path);
        return EXIT_DONE;
    }
    if (result == EXIT_DONE)
        result = find_states(r);
    if (result == EXIT_DONE)
        result = read_states(r);
    if (result == EXIT_DONE)
        result = r->slots[0].name ? match_names(r) : match_shapes(r);
    if (result == EXIT_DONE)
        result = set_step(r);
    if (result != EXIT_DONE)
        return result;
    set_states(r);
    r->files->moments_of = r->path;
    return EXIT_DONE;
}

int torch_optimizer_read(import_files *f, import_options *o)
{
    reader r = {.files = f, .options = o};
    bool found = false;
    int result = o->has_zeros ? EXIT_DONE : open_optimizer(&r, &found);
    if (result == EXIT_DONE && found)
        result = read_optimizer(&r);
    pool_free(&r.memory);
    return result;
}
