/* SPDX-License-Identifier: Apache-2.0 */
/* torch_model.c: `zoff import torch`: reads the state_dict of a file of torch.save(). Names lose what torch.compile and
 * DistributedDataParallel put before them, tensors of one storage are tied, and integers are left out. */
#include "torch_model.h"

#include "import.h"
#include "names.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

static const char WRAP[] = "module.", COMPILED[] = "_orig_mod.";

/* A state_dict while it is read. */
typedef struct values {
    st_reader *reader;
    const char *const *skip;
    json_t *names; /* names so far */
    json_t *known; /* {place and shape: name} of the tensors so far */
    bool has_compiled, has_doubles;
    size_t left_out;     /* tensors of integers, and values that are no tensors */
    const char *example; /* name of one of them */
} values;

/* ---- names ---- */

static bool begins(const char *text, size_t bytes, const char *with)
{
    return bytes > strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* Count how often "module." is before the name of every value. */
static unsigned count_wraps(const pickle_value *model)
{
    unsigned least = UINT32_MAX;
    for (const pickle_item *item = model->first; item && item->next; item = item->next->next) {
        const char *at = item->value->text;
        size_t left = item->value->type == PICKLE_TEXT ? item->value->text_bytes : 0;
        unsigned wraps = 0;
        while (begins(at, left, WRAP) || begins(at, left, COMPILED)) {
            const bool is_wrap = begins(at, left, WRAP);
            const size_t bytes = is_wrap ? sizeof WRAP - 1 : sizeof COMPILED - 1;
            wraps += is_wrap;
            at += bytes, left -= bytes;
        }
        least = wraps < least ? wraps : least;
    }
    return least;
}

static int no_memory(const st_reader *r)
{
    return failed("%s: out of memory for the names of tensors", r->path);
}

static void cut(char *at, size_t bytes)
{
    memmove(at, at + bytes, strlen(at + bytes) + 1);
}

void torch_model_strip(char *name, unsigned wraps)
{
    for (char *at; (at = strstr(name, COMPILED));)
        cut(at, sizeof COMPILED - 1);
    for (; wraps > 0 && begins(name, strlen(name), WRAP); wraps--)
        cut(name, sizeof WRAP - 1);
}

/* Copy the name of a value without what is before it.  @return NULL after an error */
static const char *read_name(values *v, const pickle_value *key)
{
    st_reader *r = v->reader;
    const bool is_text = key->type == PICKLE_TEXT && !memchr(key->text, 0, key->text_bytes);
    char *name = is_text ? pool_text(&r->memory, key->text, key->text_bytes) : NULL;
    if (!name || !name_is_utf8(name)) {
        failed("%s: a key of the state_dict is no text in UTF-8", r->path);
        return NULL;
    }
    v->has_compiled = v->has_compiled || strstr(name, COMPILED);
    torch_model_strip(name, r->torch->wraps);
    if (json_object_get(v->names, name)) {
        failed("%s: tensor \"%s\": is there twice", r->path, name);
        return NULL;
    }
    if (json_object_set_new(v->names, name, json_true()) != 0) {
        no_memory(r);
        return NULL;
    }
    return name;
}

/* ---- tensors ---- */

/* Describe a tensor to the reader. */
static void add_tensor(st_reader *r, const char *name, const torch_tensor *tensor)
{
    torch_tensor *place = &r->torch->tensors[r->tensor_count];
    *place = *tensor;
    r->tensors[r->tensor_count++] = (st_tensor){
        .name = name, .dtype = tensor->dtype, .dims = place->dims, .dim_count = place->dim_count, .count = tensor->count};
}

/* Find the tensor with the same elements; note this one if there is none.
 * @param out_owner NULL: there is none */
static int find_owner(values *v, const char *name, const torch_tensor *t, const char **out_owner)
{
    char key[48 * (TORCH_DIMS_MAX + 1)];
    int bytes = snprintf(key, sizeof key, "%zu %zu", (size_t)t->entry, t->offset);
    for (size_t i = 0; i < t->dim_count; i++)
        bytes += snprintf(key + bytes, sizeof key - (size_t)bytes, " %zu:%zu", t->dims[i], t->strides[i]);
    *out_owner = json_string_value(json_object_get(v->known, key));
    const bool is_known = *out_owner || t->count == 0 || json_object_set_new(v->known, key, json_string(name)) == 0;
    return is_known ? EXIT_DONE : no_memory(v->reader);
}

/* Refuse an object in place of a tensor that only its class could make one. Other objects are extra states of a module. */
static int check_object(const values *v, const char *name, const pickle_value *value)
{
    if (value->type != PICKLE_OBJECT || !begins(value->callee->text, value->callee->text_bytes, "torch._"))
        return EXIT_DONE;
    return failed(
        "%s: tensor \"%s\": is no plain tensor; make it one in Python, such as by .full_tensor() or .dequantize(), or "
        "leave it out with --skip '%s'",
        v->reader->path, name, name);
}

/* Add a value of the state_dict: a tensor, a tied name, or something to leave out. */
static int add_value(values *v, const pickle_value *key, const pickle_value *value)
{
    st_reader *r = v->reader;
    fault f;
    const char *owner, *name = read_name(v, key);
    torch_tensor tensor;
    if (!name)
        return EXIT_FAILED;
    if (st_matches(name, v->skip))
        return EXIT_DONE;
    const bool is_tensor = torch_file_is_tensor(value);
    if (!is_tensor && check_object(v, name, value) != EXIT_DONE)
        return EXIT_FAILED;
    if (is_tensor && !torch_file_tensor(r->torch->file, value, &tensor, &f))
        return failed("%s; this is tensor \"%s\", which --skip '%s' leaves out", f.text, name, name);
    if (!is_tensor || tensor.dtype == ZOFF_DTYPE_DEFAULT) {
        v->left_out++;
        v->example = name;
        /* an index may list it */
        return json_object_set_new(r->metadata, name, json_string("")) == 0 ? EXIT_DONE : no_memory(r);
    }
    v->has_doubles = v->has_doubles || tensor.element > sizeof(float);
    if (find_owner(v, name, &tensor, &owner) != EXIT_DONE)
        return EXIT_FAILED;
    if (!owner)
        add_tensor(r, name, &tensor);
    else if (json_object_set_new(r->metadata, name, json_string(owner)) != 0)
        return no_memory(r);
    return EXIT_DONE;
}

static void print_notes(const values *v)
{
    const char *path = v->reader->path;
    const bool has_wraps = v->reader->torch->wraps > 0;
    if (v->has_compiled || has_wraps)
        print_line(stderr, "note: %s: the names lose %s%s%s", path, v->has_compiled ? "\"_orig_mod.\" of torch.compile" : "",
                   v->has_compiled && has_wraps ? " and " : "", has_wraps ? "\"module.\" of DistributedDataParallel" : "");
    if (v->has_doubles)
        print_line(stderr, "note: %s: float64 is rounded to fp32", path);
    if (v->left_out)
        print_line(stderr, "note: %s: %zu value%s without floating-point numbers, such as \"%s\", %s left out", path,
                   v->left_out, v->left_out == 1 ? "" : "s", v->example, v->left_out == 1 ? "is" : "are");
}

static int add_values(st_reader *r, const char *const *skip)
{
    const pickle_value *model = r->torch->contents.model;
    values v = {.reader = r, .skip = skip, .names = json_object(), .known = json_object()};
    size_t most = 0;
    for (const pickle_item *item = model->first; item && item->next; item = item->next->next)
        most++;
    r->torch->wraps = count_wraps(model);
    r->tensors = pool_take(&r->memory, most, sizeof *r->tensors);
    r->torch->tensors = pool_take(&r->memory, most, sizeof *r->torch->tensors);
    r->metadata = json_object();
    int result = EXIT_DONE;
    if (!v.names || !v.known || !r->metadata)
        result = no_memory(r);
    else if (!r->tensors || !r->torch->tensors)
        result = EXIT_FAILED;
    for (const pickle_item *item = model->first; item && item->next && result == EXIT_DONE; item = item->next->next)
        result = add_value(&v, item->value, item->next->value);
    json_decref(v.names);
    json_decref(v.known);
    if (result == EXIT_DONE)
        print_notes(&v);
    return result;
}

/* ---- the format ---- */

static void close_model(st_reader *r)
{
    if (r->torch) {
        torch_file_close(r->torch->file);
        torch_file_close(r->torch->optimizer);
    }
    st_reader_close(r);
}

static int open_model(st_reader *r, const char *path, const char *const *skip)
{
    fault f;
    *r = (st_reader){.fd = -1};
    r->path = pool_text(&r->memory, path, strlen(path));
    r->torch = pool_take(&r->memory, 1, sizeof *r->torch);
    int result = r->path && r->torch ? EXIT_DONE : EXIT_FAILED;
    if (result == EXIT_DONE && !torch_file_open(path, PICKLE_NAMES_ANY, PICKLE_BYTES_MAX, &r->torch->file, &f))
        result = failed("%s", f.text);
    if (result == EXIT_DONE) {
        r->torch->contents = torch_contents_find(r->torch->file);
        result = r->torch->contents.model ? add_values(r, skip) : failed("%s: has no state_dict of a model", path);
    }
    if (result != EXIT_DONE)
        close_model(r);
    return result;
}

static int read_model(const source_tensor *t, zoff_state_kind kind, uint64_t first, size_t count, float *dst)
{
    fault f;
    const torch_model *model = t->file->torch;
    const bool is_moment = kind == ZOFF_STATE_M || kind == ZOFF_STATE_V;
    torch_file *file = is_moment ? t->moments->file : model->file;
    const torch_tensor *tensor = kind == ZOFF_STATE_M   ? &t->moments->first
                                 : kind == ZOFF_STATE_V ? &t->moments->second
                                                        : &model->tensors[t->tensor - t->file->tensors];
    if ((first == 0 && !torch_file_begin(file, tensor, &f)) || !torch_file_next(file, count, dst, &f))
        return failed("%s; this is tensor \"%s\"", f.text, t->tensor->name);
    return EXIT_DONE;
}

const import_format IMPORT_TORCH = {.name = "torch",
                                    .index = "pytorch_model.bin.index.json",
                                    .begin = "pytorch_model",
                                    .end = ".bin",
                                    .has_optimizers = true,
                                    .open = open_model,
                                    .close = close_model,
                                    .prepare = torch_optimizer_read,
                                    .read = read_model};

int verb_import_torch(int argc, char **argv)
{
    return import_run(&IMPORT_TORCH, argc, argv);
}
