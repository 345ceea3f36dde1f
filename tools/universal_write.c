/* SPDX-License-Identifier: Apache-2.0 */
/* universal_write.c: writes a universal checkpoint folder after the pattern of another one: its files with other elements. */
#include "universal_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 16 << 20 }; /* most bytes of a file that are copied between two looks for a signal */

static const char LATEST[] = "latest_universal";

typedef struct writing {
    const universal_order *order;
    char part[UNIVERSAL_PATH_MAX]; /* path of the folder until it is complete */
    uint64_t done, total;          /* bytes of elements */
} writing;

/* The elements that are being written. */
typedef struct one_state {
    writing *w;
    size_t index;
    zoff_state_kind kind;
} one_state;

/* True unless a signal has asked the export to end. Work that takes long asks again and again. */
static bool goes_on(const writing *w, fault *f)
{
    return !progress_canceled() || fault_set(f, "interrupted; nothing is left of %s", w->order->out);
}

static bool make_folder(const char *path, fault *f)
{
    return mkdir(path, 0777) == 0 || fault_set(f, "cannot make the folder %s: %s", path, strerror(errno));
}

/* Make the folder that becomes OUT, unless it exists, because it may be the user's own. */
static bool make_part(const char *path, fault *f)
{
    if (mkdir(path, 0777) == 0)
        return true;
    return errno == EEXIST ? fault_set(f,
                                       "%s is there already; an export that was killed may have left it. Remove it, or give it "
                                       "another name",
                                       path)
                           : fault_set(f, "cannot make the folder %s: %s", path, strerror(errno));
}

/* ---- zero/NAME ---- */

static bool give_elements(void *ctx, size_t first, size_t count, float *dst, fault *f)
{
    const one_state *state = ctx;
    writing *w = state->w;
    if (!w->order->source(w->order->ctx, state->index, state->kind, first, count, dst, f))
        return false;
    w->done += count * sizeof *dst;
    progress_tell("export", w->done, w->total, w->order->progress);
    return goes_on(w, f);
}

static bool write_state(writing *w, size_t index, zoff_state_kind kind, const char *folder, fault *f)
{
    char path[UNIVERSAL_PATH_MAX];
    torch_file *t;
    torch_tensor tensor;
    bool is_flat;
    if (!universal_path(path, folder, universal_file_name(kind), NULL, f) ||
        !universal_tensor_open(w->order->like, w->order->like->params[index].name, kind, &t, &tensor, &is_flat, f))
        return false;
    one_state state = {.w = w, .index = index, .kind = kind};
    const torch_change change = {.tensor = &tensor, .source = give_elements, .ctx = &state, .stops = progress_canceled};
    const bool ok = torch_file_copy(t, path, &change, f);
    torch_file_close(t);
    return ok;
}

static bool give_step(void *ctx, size_t first, size_t count, float *dst, fault *f)
{
    (void)f;
    for (size_t i = 0; i < count; i++)
        dst[i] = first + i == 0 ? (float)*(const int64_t *)ctx : 0;
    return true;
}

/* Replace the step, which is a number, or a tensor of one number. */
static bool change_step(const torch_file *t, const pickle_value *v, const int64_t *step, torch_tensor *tensor,
                        torch_change *change, fault *f)
{
    if (v->type == PICKLE_INT || v->type == PICKLE_FLOAT) {
        change->edits[change->edit_count++] = (pickle_edit){.value = v, .number = (double)*step};
        return true;
    }
    if (!torch_file_tensor(t, v, tensor, f))
        return false;
    if (tensor->count != 1)
        return fault_set(f, "%s has a step of %zu numbers", torch_file_path(t), tensor->count);
    change->tensor = tensor;
    change->source = give_step;
    change->ctx = (void *)(uintptr_t)step; /* the cast is safe, because give_step() only reads it */
    return true;
}

static bool write_step(const writing *w, const char *name, const char *folder, fault *f)
{
    char zero[UNIVERSAL_PATH_MAX], path[UNIVERSAL_PATH_MAX];
    torch_file *t;
    if (!universal_path(zero, w->order->like->path, "zero", name, f) || !universal_path(path, zero, "step.pt", NULL, f) ||
        !torch_file_open(path, PICKLE_NAMES_LISTED, TORCH_TENSOR_PICKLE, &t, f))
        return false;
    torch_tensor tensor;
    pickle_edit edit;
    torch_change change = {.edits = &edit, .stops = progress_canceled};
    const bool ok = universal_path(path, folder, "step.pt", NULL, f) &&
                    change_step(t, torch_file_root(t), &w->order->step, &tensor, &change, f) &&
                    torch_file_copy(t, path, &change, f);
    torch_file_close(t);
    return ok;
}

static bool write_param(writing *w, size_t index, fault *f)
{
    const universal_param *p = &w->order->like->params[index];
    char folder[UNIVERSAL_PATH_MAX];
    if (!universal_path(folder, w->part, "zero", p->name, f) || !make_folder(folder, f))
        return false;
    for (unsigned k = 0; k < UNIVERSAL_STATES; k++) {
        if ((p->states & 1u << k) && !write_state(w, index, (zoff_state_kind)k, folder, f))
            return false;
    }
    return !p->has_step || write_step(w, p->name, folder, f);
}

/* ---- zero/optimizer_state.pt ---- */

static size_t items_of(const pickle_value *v)
{
    size_t count = 0;
    for (const pickle_item *item = v ? v->first : NULL; item; item = item->next)
        count++;
    return count;
}

/* Replace the steps of a list of groups, or of a dict of states. A step that is a tensor is replaced only in the first state,
 * because DeepSpeed reads no other. */
static bool change_steps(const torch_file *t, const pickle_value *v, const int64_t *step, torch_tensor *tensor,
                         torch_change *change, fault *f)
{
    for (const pickle_item *item = v ? v->first : NULL; item; item = item->next) {
        const pickle_value *found = pickle_find(item->value, "step");
        const bool is_tensor = torch_file_is_tensor(found);
        if (!found || (is_tensor && change->tensor) || (!is_tensor && found->type != PICKLE_INT && found->type != PICKLE_FLOAT))
            continue;
        if (!change_step(t, found, step, tensor, change, f))
            return false;
    }
    return true;
}

static void change_number(const pickle_value *state, const char *key, double number, torch_change *change)
{
    const pickle_value *v = pickle_find(state, key);
    if (v && (v->type == PICKLE_INT || v->type == PICKLE_FLOAT))
        change->edits[change->edit_count++] = (pickle_edit){.value = v, .number = number};
}

static void change_scaler(const pickle_value *root, const zoff_loss_scaler *scaler, torch_change *change)
{
    const pickle_value *state = universal_optimizer_scaler(root);
    change_number(state, "cur_scale", scaler->scale, change);
    change_number(state, "cur_iter", (double)scaler->iterations, change);
    change_number(state, "last_overflow_iter", (double)scaler->last_overflow, change);
    change_number(state, "cur_hysteresis", (double)scaler->hysteresis, change);
}

static bool write_optimizer(const writing *w, fault *f)
{
    char path[UNIVERSAL_PATH_MAX];
    torch_file *t;
    if (!universal_path(path, w->part, "zero/optimizer_state.pt", NULL, f) || !universal_optimizer_open(w->order->like, &t, f))
        return false;
    const pickle_value *root = torch_file_root(t), *optimizer = pickle_find(root, "optimizer_state_dict");
    const pickle_value *const holders[] = {pickle_find(optimizer, "state"), pickle_find(optimizer, "param_groups"),
                                           pickle_find(root, "param_groups")};
    size_t most = 4; /* 4 is the number of edits for the loss scaler */
    for (size_t i = 0; i < 3; i++)
        most += items_of(holders[i]);
    torch_tensor tensor;
    torch_change change = {.edits = calloc(most, sizeof *change.edits), .stops = progress_canceled};
    bool ok = change.edits || fault_set(f, "out of memory for %zu numbers", most);
    for (size_t i = 0; i < 3 && ok; i++)
        ok = change_steps(t, holders[i], &w->order->step, &tensor, &change, f);
    if (ok && w->order->scaler)
        change_scaler(root, w->order->scaler, &change);
    ok = ok && torch_file_copy(t, path, &change, f);
    free(change.edits);
    torch_file_close(t);
    return ok;
}

/* ---- the model's part ---- */

/* Copy the bytes between two open files. The system clones them where the file system can. */
static bool copy_bytes(const writing *w, int from, int to, const char *path, fault *f)
{
    while (goes_on(w, f)) {
        const ssize_t moved = copy_file_range(from, NULL, to, NULL, COPY_BYTES, 0);
        if (moved == 0)
            return true;
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
            break; /* the system cannot copy between these file systems */
        if (moved < 0)
            return fault_set(f, "cannot copy %s: %s", path, strerror(errno));
    }
    char buffer[1 << 16];
    while (goes_on(w, f)) {
        const ssize_t got = read(from, buffer, sizeof buffer);
        if (got <= 0)
            return got == 0 || fault_set(f, "cannot read %s: %s", path, strerror(errno));
        for (ssize_t written = 0, now; written < got; written += now) {
            now = write(to, buffer + written, (size_t)(got - written));
            if (now < 0)
                return fault_set(f, "cannot write a copy of %s: %s", path, strerror(errno));
        }
    }
    return false;
}

static bool copy_file(const writing *w, const char *from_path, const char *to_path, fault *f)
{
    const int from = open(from_path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return fault_set(f, "cannot open %s: %s", from_path, strerror(errno));
    const int to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = to >= 0 || fault_set(f, "cannot create %s: %s", to_path, strerror(errno));
    ok = ok && copy_bytes(w, from, to, from_path, f);
    close(from);
    if (to >= 0 && close(to) < 0 && ok)
        ok = fault_set(f, "cannot write %s: %s", to_path, strerror(errno));
    return ok;
}

/* Copy the files beside zero/, without folders, because a converter has left those. */
static bool copy_model(const writing *w, fault *f)
{
    const char *like = w->order->like->path;
    DIR *folder = opendir(like);
    if (!folder)
        return fault_set(f, "cannot open %s: %s", like, strerror(errno));
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(folder));) {
        char from[UNIVERSAL_PATH_MAX], to[UNIVERSAL_PATH_MAX];
        struct stat about;
        ok = universal_path(from, like, entry->d_name, NULL, f) && universal_path(to, w->part, entry->d_name, NULL, f);
        if (ok && stat(from, &about) < 0)
            ok = fault_set(f, "cannot look at %s: %s", from, strerror(errno));
        if (ok && S_ISREG(about.st_mode) && strcmp(entry->d_name, LATEST) != 0)
            ok = copy_file(w, from, to, f);
    }
    closedir(folder);
    return ok;
}

/* ---- the whole ---- */

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Bring all files of the folder's file system to the disk: one call for many small files. */
static bool sync_all(const char *path, fault *f)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = (fd >= 0 && syncfs(fd) == 0) || fault_set(f, "cannot write %s to the disk: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Split OUT into the folder above it and its name. */
static bool split(const char *out, char above[UNIVERSAL_PATH_MAX], const char **out_name, fault *f)
{
    const char *slash = strrchr(out, '/');
    const size_t bytes = slash ? (size_t)(slash - out) : 1;
    if (bytes >= UNIVERSAL_PATH_MAX)
        return fault_set(f, "the path %s is too long", out);
    memcpy(above, slash ? out : ".", bytes);
    above[bytes] = 0;
    if (bytes == 0)
        strcpy(above, "/");
    *out_name = slash ? slash + 1 : out;
    return true;
}

/* Write the next latest_universal into the folder, so that an export that ends early leaves nothing beside the folder. */
static bool write_latest(const writing *w, const char *name, fault *f)
{
    char path[UNIVERSAL_PATH_MAX];
    if (!universal_path(path, w->part, LATEST, NULL, f))
        return false;
    FILE *file = fopen(path, "wxe");
    bool ok = (file && fputs(name, file) >= 0) || fault_set(f, "cannot write %s: %s", path, strerror(errno));
    if (file && fclose(file) != 0 && ok)
        ok = fault_set(f, "cannot write %s: %s", path, strerror(errno));
    return ok;
}

/* Give the folder its name, and move latest_universal to where DeepSpeed looks for it. */
static bool publish(const writing *w, const char *above, fault *f)
{
    char from[UNIVERSAL_PATH_MAX], to[UNIVERSAL_PATH_MAX];
    const char *out = w->order->out;
    if (!universal_path(from, out, LATEST, NULL, f) || !universal_path(to, above, LATEST, NULL, f))
        return false;
    if (rename(w->part, out) < 0)
        return fault_set(f, "cannot give %s its name: %s", out, strerror(errno));
    if (rename(from, to) == 0)
        return true;
    fault_write(f, "cannot write %s: %s", to, strerror(errno));
    remove_tree(out);
    return false;
}

static bool write_files(writing *w, const char *name, fault *f)
{
    char zero[UNIVERSAL_PATH_MAX];
    if (!universal_path(zero, w->part, "zero", NULL, f) || !make_folder(zero, f))
        return false;
    for (size_t i = 0; i < w->order->like->count; i++) {
        if (!goes_on(w, f) || !write_param(w, i, f))
            return false;
    }
    return write_optimizer(w, f) && copy_model(w, f) && write_latest(w, name, f) && sync_all(w->part, f) && goes_on(w, f);
}

bool universal_folder_write(const universal_order *order, fault *f)
{
    writing w = {.order = order};
    char above[UNIVERSAL_PATH_MAX];
    const char *name;
    for (size_t i = 0; i < order->like->count; i++) {
        const universal_param *p = &order->like->params[i];
        for (unsigned k = 0; k < UNIVERSAL_STATES; k++)
            w.total += p->states & 1u << k ? p->count * sizeof(float) : 0;
    }
    if (access(order->out, F_OK) == 0)
        return fault_set(f, "%s is already there", order->out);
    if (!split(order->out, above, &name, f))
        return false;
    const int bytes = snprintf(w.part, sizeof w.part, "%s.part", order->out);
    if (bytes < 0 || bytes >= (int)sizeof w.part)
        return fault_set(f, "the path %s is too long", order->out);
    if (!make_part(w.part, f))
        return false;
    const bool ok = write_files(&w, name, f) && publish(&w, above, f);
    if (!ok)
        remove_tree(w.part);
    return ok && sync_all(above, f);
}
