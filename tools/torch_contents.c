/* SPDX-License-Identifier: Apache-2.0 */
/* torch_contents.c: finds the state_dict of a model, and that of an optimizer, among what torch.save() has written. */
#include "torch_contents.h"

#include <string.h>

/* The keys under which training programs put them. */
static const char *const MODELS[] = {"model", "state_dict", "module", "model_state_dict", "model_state", "net"};
static const char *const OPTIMIZERS[] = {"optimizer", "optimizer_state_dict", "optimizer_state", "optimizer_states", "optim"};

/* Whether `v`, which may be NULL, is a dict or an OrderedDict. */
static bool is_dict(const pickle_value *v)
{
    return v &&
           (v->type == PICKLE_DICT || (v->type == PICKLE_OBJECT && pickle_is_global(v->callee, "collections OrderedDict")));
}

/* Whether `v`, which may be NULL, is a dict that has tensors by name. */
static bool has_tensors(const pickle_value *v)
{
    if (!is_dict(v))
        return false;
    for (const pickle_item *item = v->first; item && item->next; item = item->next->next) {
        if (item->value->type == PICKLE_TEXT && torch_file_is_tensor(item->next->value))
            return true;
    }
    return false;
}

static bool is_optimizer(const pickle_value *v)
{
    return is_dict(v) && is_dict(pickle_find(v, "state")) && pickle_find(v, "param_groups");
}

/* Return the class of a module, which keeps its tensors in dicts of its own; NULL: it is none. */
static const pickle_value *class_of(const pickle_value *v)
{
    return v && v->type == PICKLE_OBJECT && pickle_find(v, "_parameters") && pickle_find(v, "_modules") ? v->callee : NULL;
}

/* Find the model in a dict: under one of the known keys, in the dict itself, or under the only other key that has tensors. */
static const pickle_value *find_model(const pickle_value *root)
{
    const pickle_value *found = NULL;
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        const pickle_value *v = pickle_find(root, MODELS[i]);
        if (has_tensors(v))
            return v;
    }
    if (has_tensors(root))
        return root;
    for (const pickle_item *item = is_dict(root) ? root->first : NULL; item && item->next; item = item->next->next) {
        if (has_tensors(item->next->value) && found)
            return NULL;
        if (has_tensors(item->next->value))
            found = item->next->value;
    }
    return found;
}

/* Find the only optimizer. Lightning has a list of them. */
static const pickle_value *find_optimizer(const pickle_value *root)
{
    if (is_optimizer(root))
        return root;
    for (size_t i = 0; i < sizeof OPTIMIZERS / sizeof OPTIMIZERS[0]; i++) {
        const pickle_value *v = pickle_find(root, OPTIMIZERS[i]);
        if (v && v->type == PICKLE_LIST && !pickle_at(v, 1))
            v = pickle_at(v, 0);
        if (is_optimizer(v))
            return v;
    }
    return NULL;
}

/* Find a module: the root, or a value of it. */
static const pickle_value *find_class(const pickle_value *root)
{
    const pickle_value *found = class_of(root);
    for (const pickle_item *item = is_dict(root) ? root->first : NULL; item && item->next && !found; item = item->next->next)
        found = class_of(item->next->value);
    return found;
}

torch_contents torch_contents_find(const torch_file *t)
{
    const pickle_value *root = torch_file_root(t);
    torch_contents c = {.model = find_model(root), .optimizer = find_optimizer(root), .module = find_class(root)};
    c.kind = torch_file_has(t, "constants.pkl")                                          ? TORCH_SCRIPT
             : pickle_find(root, "ds_version") || pickle_find(root, "ds_config")         ? TORCH_DEEPSPEED
             : pickle_find(root, "checkpoint_version") && pickle_find(root, "iteration") ? TORCH_MEGATRON
             : c.optimizer == root                                                       ? TORCH_OPTIMIZER
             : c.model                                                                   ? TORCH_MODEL
             : c.module                                                                  ? TORCH_MODULE
             : c.optimizer                                                               ? TORCH_OPTIMIZER
                                                                                         : TORCH_OTHER;
    return c;
}

bool torch_contents_kind(const char *path, torch_kind *out_kind)
{
    torch_file *t;
    fault dropped; /* the verb that reads the file says what is wrong with it */
    if (!torch_file_open(path, PICKLE_NAMES_ANY, PICKLE_BYTES_MAX, &t, &dropped))
        return false;
    *out_kind = torch_contents_find(t).kind;
    torch_file_close(t);
    return true;
}
