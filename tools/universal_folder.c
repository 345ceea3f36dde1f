/* SPDX-License-Identifier: Apache-2.0 */
/* universal_folder.c: finds the parameters of a universal checkpoint folder, with their files and shapes. */
#include "universal.h"

#include "verbs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const FILES[UNIVERSAL_STATES] = {"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt"};

const char *universal_file_name(zoff_state_kind kind)
{
    return FILES[kind];
}

bool universal_path(char out[UNIVERSAL_PATH_MAX], const char *folder, const char *a, const char *b, fault *f)
{
    const int bytes = snprintf(out, UNIVERSAL_PATH_MAX, "%s/%s%s%s", folder, a, b ? "/" : "", b ? b : "");
    return (bytes > 0 && bytes < UNIVERSAL_PATH_MAX) ||
           fault_set(f, "a path of %s is longer than %d bytes", folder, UNIVERSAL_PATH_MAX);
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Read the name in latest_universal, which must not lead out of the folder. */
static bool read_latest(const char *path, char name[256], fault *f)
{
    struct stat about;
    /* fopen() would wait for the writer of a FIFO */
    const bool is_special = stat(path, &about) == 0 && !S_ISREG(about.st_mode);
    FILE *file = is_special ? NULL : fopen(path, "r");
    if (is_special)
        return fault_set(f, "%s is not a file", path);
    if (!file)
        return fault_set(f, "there is neither a folder zero nor a file latest_universal: %s: %s", path, strerror(errno));
    const size_t bytes = fread(name, 1, 255, file);
    fclose(file);
    name[bytes] = 0;
    name[strcspn(name, "\r\n")] = 0;
    return (*name && !strchr(name, '/') && strcmp(name, "..") != 0) ||
           fault_set(f, "%s does not name a folder beside it", path);
}

bool universal_find(const char *path, char out[UNIVERSAL_PATH_MAX], fault *f)
{
    char zero[UNIVERSAL_PATH_MAX], name[256];
    if (!universal_path(zero, path, "zero", NULL, f))
        return false;
    if (is_folder(zero)) {
        zero[strlen(zero) - 5] = 0; /* remove "/zero" */
        memcpy(out, zero, strlen(zero) + 1);
        return true;
    }
    if (!universal_path(zero, path, "latest_universal", NULL, f) || !read_latest(zero, name, f) ||
        !universal_path(out, path, name, NULL, f) || !universal_path(zero, out, "zero", NULL, f))
        return false;
    return is_folder(zero) || fault_set(f, "%s, which latest_universal names, has no folder zero", out);
}

/* ---- one parameter ---- */

/* Check the keys beside the tensor, which tell how to cut it for tensor and expert parallelism. The tensor itself is whole. */
static bool check_keys(const torch_file *t, const pickle_value *dict, fault *f)
{
    static const char *const KEYS[] = {"param",           "cat_dim",        "param_n_sub_params", "sub_param_shape",
                                       "is_expert_param", "ep_num_experts", "vocab_tensor"};
    for (const pickle_item *item = dict->first; item && item->next; item = item->next->next) {
        bool known = false;
        for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
            known = known || pickle_is_text(item->value, KEYS[i]);
        if (!known) {
            const bool is_text = item->value->type == PICKLE_TEXT;
            return fault_set(f, "%s has an unknown key \"%.*s\"", torch_file_path(t),
                             is_text ? (int)item->value->text_bytes : 1, is_text ? item->value->text : "?");
        }
    }
    return true;
}

bool universal_tensor_open(const universal_folder *u, const char *name, zoff_state_kind kind, torch_file **out,
                           torch_tensor *out_tensor, bool *out_is_flat, fault *f)
{
    char zero[UNIVERSAL_PATH_MAX], path[UNIVERSAL_PATH_MAX];
    torch_file *t;
    if (!universal_path(zero, u->path, "zero", name, f) || !universal_path(path, zero, FILES[kind], NULL, f) ||
        !torch_file_open(path, PICKLE_NAMES_LISTED, TORCH_TENSOR_PICKLE, &t, f))
        return false;
    const pickle_value *root = torch_file_root(t);
    *out_is_flat = torch_file_is_tensor(root);
    bool ok = *out_is_flat || root->type == PICKLE_DICT || fault_set(f, "%s has neither a tensor nor a dict", path);
    ok = ok && (*out_is_flat || check_keys(t, root, f));
    ok = ok && torch_file_tensor(t, *out_is_flat ? root : pickle_find(root, "param"), out_tensor, f);
    if (ok && (out_tensor->dtype == ZOFF_DTYPE_DEFAULT || out_tensor->element > sizeof(float)))
        ok = fault_set(f, "%s has integers or doubles; a state is float32, float16 or bfloat16", path);
    if (ok)
        *out = t;
    else
        torch_file_close(t);
    return ok;
}

/* Note the files of a parameter. */
static bool list_files(universal_param *p, const char *path, fault *f)
{
    DIR *folder = opendir(path);
    if (!folder)
        return fault_set(f, "cannot open %s: %s", path, strerror(errno));
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(folder));) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (unsigned k = 0; k < UNIVERSAL_STATES; k++) {
            if (strcmp(entry->d_name, FILES[k]) == 0) {
                p->states |= 1u << k;
                known = true;
            }
        }
        if (strcmp(entry->d_name, "step.pt") == 0)
            p->has_step = known = true;
        if (!known)
            ok = fault_set(f, "%s has a file %s, which is no state that zoff knows", path, entry->d_name);
    }
    closedir(folder);
    if (ok && !(p->states & 1u << ZOFF_STATE_MASTER))
        ok = fault_set(f, "%s has no file fp32.pt", path);
    return ok;
}

/* Read the shape of the masters and compare those of the other states. */
static bool read_shapes(const universal_folder *u, universal_param *p, fault *f)
{
    for (unsigned k = 0; k < UNIVERSAL_STATES; k++) {
        torch_file *t;
        torch_tensor tensor;
        bool is_flat;
        if (!(p->states & 1u << k))
            continue;
        if (!universal_tensor_open(u, p->name, (zoff_state_kind)k, &t, &tensor, &is_flat, f))
            return false;
        torch_file_close(t);
        if (k == ZOFF_STATE_MASTER) {
            memcpy(p->dims, tensor.dims, sizeof p->dims);
            p->dim_count = tensor.dim_count, p->count = tensor.count, p->is_flat = is_flat;
        } else if (tensor.dim_count != p->dim_count || memcmp(tensor.dims, p->dims, sizeof p->dims) != 0) {
            return fault_set(f, "%s/zero/%s: the shape of %s is not that of fp32.pt", u->path, p->name, FILES[k]);
        }
    }
    return true;
}

/* ---- all parameters ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const universal_param *)a)->name, ((const universal_param *)b)->name);
}

static bool add_param(universal_folder *u, const char *name, size_t *room, fault *f)
{
    if (u->count == *room) {
        const size_t more = *room ? 2 * *room : 64;
        universal_param *moved = realloc(u->params, more * sizeof *moved);
        if (!moved)
            return fault_set(f, "out of memory for %zu parameters", more);
        u->params = moved;
        *room = more;
    }
    universal_param *p = &u->params[u->count];
    *p = (universal_param){.name = pool_text(&u->memory, name, strlen(name)), .order = SIZE_MAX};
    u->count += p->name != NULL;
    return p->name || fault_set(f, "out of memory for the name of a parameter");
}

/* List the parameters. Every folder in zero/ is a parameter; beside them is one file. */
static bool list_params(universal_folder *u, fault *f)
{
    char zero[UNIVERSAL_PATH_MAX], path[UNIVERSAL_PATH_MAX];
    size_t room = 0;
    if (!universal_path(zero, u->path, "zero", NULL, f))
        return false;
    DIR *folder = opendir(zero);
    if (!folder)
        return fault_set(f, "cannot open %s: %s", zero, strerror(errno));
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "optimizer_state.pt") == 0)
            continue;
        ok = universal_path(path, zero, name, NULL, f);
        if (ok && !is_folder(path))
            ok = fault_set(f, "%s has a file %s, which zoff does not know", zero, name);
        ok = ok && add_param(u, name, &room, f) && list_files(&u->params[u->count - 1], path, f);
    }
    closedir(folder);
    return ok && (u->count > 0 || fault_set(f, "%s has no parameters", zero));
}

bool universal_folder_open(const char *path, universal_folder *out, fault *f)
{
    universal_folder u = {.count = 0};
    bool ok = strlen(path) < sizeof u.path || fault_set(f, "the path %s is too long", path);
    if (ok)
        strcpy(u.path, path);
    ok = ok && list_params(&u, f);
    if (ok)
        qsort(u.params, u.count, sizeof *u.params, by_name);
    for (size_t i = 0; i < u.count && ok; i++)
        ok = read_shapes(&u, &u.params[i], f);
    if (ok)
        *out = u;
    else
        universal_folder_close(&u);
    return ok;
}

void universal_folder_close(universal_folder *u)
{
    pool_free(&u->memory);
    free(u->params);
    *u = (universal_folder){.count = 0};
}

universal_param *universal_folder_find(const universal_folder *u, const char *name, size_t name_bytes)
{
    size_t low = 0, high = memchr(name, 0, name_bytes) ? 0 : u->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const char *there = u->params[middle].name;
        const int order = strncmp(name, there, name_bytes);
        if (order == 0 && there[name_bytes] == 0)
            return &u->params[middle];
        if (order <= 0) /* `name` may be only the beginning of the other name */
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
