/* SPDX-License-Identifier: Apache-2.0 */
/* import_files.c: opens the files of a model, and finds their tensors by name. */
#include "import_files.h"

#include "dtype.h"
#include "verbs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Join a folder and a name.  @return as pool_take() */
static char *join(pool *memory, const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = pool_take(memory, bytes, 1);
    if (path)
        snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/* Open one more file. */
static int open_file(import_files *f, const char *path, const char *const *skip)
{
    st_reader *files = realloc(f->files, (f->file_count + 1) * sizeof *files);
    if (!files)
        return failed("%s: out of memory for one more file", path);
    f->files = files;
    const int result = f->format->open(&files[f->file_count], path, skip);
    f->file_count += result == EXIT_DONE;
    return result;
}

/* ---- shards ---- */

unsigned import_files_shards(const char *path, const char *end, unsigned *out_shard)
{
    unsigned count = 0;
    int read = 0;
    const size_t bytes = strlen(path), all = SHARD_BYTES + strlen(end);
    if (bytes < all || sscanf(path + bytes - all, "-%5u-of-%5u%n", out_shard, &count, &read) != 2 || read != SHARD_BYTES)
        return 0;
    return strcmp(path + bytes - strlen(end), end) == 0 ? count : 0;
}

/* Files without an index tell by their names whether some are missing. Refuse a part of a model. */
static int check_shards(const import_files *f)
{
    for (size_t i = 0; i < f->file_count; i++) {
        const char *path = f->files[i].path, *end = f->format->end;
        unsigned mine, other, wanted = 0;
        const unsigned count = import_files_shards(path, end, &mine);
        for (size_t k = 0; count && k < f->file_count; k++) {
            const char *there = f->files[k].path;
            const bool is_sibling = strlen(there) == strlen(path) && import_files_shards(there, end, &other) == count &&
                                    strncmp(there, path, strlen(path) - strlen(end) - SHARD_BYTES) == 0;
            wanted += is_sibling && other >= 1 && other <= count;
        }
        if (wanted < count)
            return failed("%s: %u of %u files of this model are given; name all of them, or their folder", path, wanted, count);
    }
    return EXIT_DONE;
}

/* ---- the index ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const st_reader *)a)->path, ((const st_reader *)b)->path);
}

/* Open the files of an index, each once. Refuse a name with "/", because it could lead out of the folder. */
static int open_shards(import_files *f, const char *folder, const json_t *map, const char *const *skip)
{
    const char *name, *index = f->format->index;
    json_t *value, *known = json_object();
    int result = known ? EXIT_DONE : failed("%s/%s: out of memory", folder, index);
    json_object_foreach((json_t *)map, name, value)
    {
        const char *file = json_string_value(value);
        if (result == EXIT_DONE && (!file || !*file || strchr(file, '/')))
            result = failed("%s/%s: tensor \"%s\": its file is not a name in this folder", folder, index, name);
        if (result != EXIT_DONE || json_object_get(known, file))
            continue;
        const char *path = join(&f->memory, folder, file);
        result = path && json_object_set_new(known, file, json_true()) == 0 ? open_file(f, path, skip) : EXIT_FAILED;
    }
    json_decref(known);
    if (!f->format->is_ordered_by_index && f->file_count > 0)
        qsort(f->files, f->file_count, sizeof *f->files, by_path);
    return result;
}

static int read_index(const char *path, json_t **out)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!index)
        return failed("%s: line %d: %s", path, error.line, error.text);
    json_t *map = json_object_get(index, "weight_map");
    const int result = json_is_object(map) ? EXIT_DONE : failed("%s: has no \"weight_map\": not the index of a model", path);
    if (result == EXIT_DONE)
        *out = json_incref(map);
    json_decref(index);
    return result;
}

/* ---- tensors by name ---- */

/* Number the tensors from `first` on by name. */
static int index_names(import_files *f, size_t first)
{
    for (size_t i = first; i < f->tensor_count; i++) {
        const source_tensor *t = &f->tensors[i], *other = import_files_find(f, t->tensor->name);
        if (other)
            return failed("%s: tensor \"%s\": is in %s, too", t->file->path, t->tensor->name, other->file->path);
        if (json_object_set_new(f->names, t->tensor->name, json_integer((json_int_t)i)) != 0)
            return failed("%s: tensor \"%s\": out of memory for its name", t->file->path, t->tensor->name);
    }
    return EXIT_DONE;
}

/* Collect the tensors of all files. */
static int collect(import_files *f, const char *const *skip)
{
    size_t most = 0;
    for (size_t i = 0; i < f->file_count; i++)
        most += f->files[i].tensor_count;
    f->tensors = pool_take(&f->memory, most, sizeof *f->tensors);
    if (!f->tensors)
        return EXIT_FAILED;
    for (size_t i = 0; i < f->file_count; i++) {
        for (size_t k = 0; k < f->files[i].tensor_count; k++) {
            const st_tensor *t = &f->files[i].tensors[k];
            if (st_matches(t->name, skip))
                continue;
            f->tensors[f->tensor_count++] = (source_tensor){.tensor = t, .file = &f->files[i]};
            f->data_bytes += t->count * dtype_bytes(t->dtype);
        }
    }
    return index_names(f, 0);
}

/* Whether the file of this name tells of a name that has no tensor of its own. */
static bool has_name(const import_files *f, const char *file, const char *name)
{
    for (size_t i = 0; i < f->file_count; i++) {
        if (strcmp(strrchr(f->files[i].path, '/') + 1, file) == 0)
            return json_object_get(f->files[i].metadata, name) != NULL;
    }
    return false;
}

/* Compare the tensors with those of an index, which must list each of them, and no other. Put them in its order if the format
 * says so. */
static int order_by(import_files *f, const char *folder, const json_t *map, const char *const *skip)
{
    const char *name, *index = f->format->index;
    json_t *value;
    size_t count = 0;
    source_tensor *ordered = pool_take(&f->memory, f->tensor_count, sizeof *ordered);
    if (!ordered)
        return EXIT_FAILED;
    json_object_foreach((json_t *)map, name, value)
    {
        const source_tensor *t = import_files_find(f, name);
        if (st_matches(name, skip) || (!t && has_name(f, json_string_value(value), name)))
            continue;
        if (!t || strcmp(strrchr(t->file->path, '/') + 1, json_string_value(value)) != 0)
            return failed("%s/%s: tensor \"%s\": is not in %s", folder, index, name, json_string_value(value));
        ordered[count++] = *t;
    }
    for (size_t i = 0; i < f->tensor_count && count < f->tensor_count; i++) {
        const source_tensor *t = &f->tensors[i];
        if (!json_object_get(map, t->tensor->name))
            return failed("%s: tensor \"%s\": is not in %s; name it in --skip, or name the files in place of the folder",
                          t->file->path, t->tensor->name, index);
    }
    if (!f->format->is_ordered_by_index)
        return EXIT_DONE;
    f->tensors = ordered;
    json_object_clear(f->names);
    return index_names(f, 0);
}

const source_tensor *import_files_find(const import_files *f, const char *name)
{
    const json_t *index = json_object_get(f->names, name);
    return index ? &f->tensors[json_integer_value(index)] : NULL;
}

/* ---- paths ---- */

bool import_files_is_named(const char *name, const char *begin, const char *end)
{
    const size_t bytes = strlen(name), first = strlen(begin), last = strlen(end);
    return bytes > last && strncmp(name, begin, first) == 0 && strcmp(name + bytes - last, end) == 0;
}

/* Open the files of a folder that has no index. */
static int open_all(import_files *f, const char *folder, const char *const *skip)
{
    struct dirent **found;
    const size_t before = f->file_count;
    const int count = scandir(folder, &found, NULL, alphasort);
    if (count < 0)
        return failed("%s: cannot read this folder: %s", folder, strerror(errno));
    int result = EXIT_DONE;
    for (int i = 0; i < count; i++) {
        const bool is_one = import_files_is_named(found[i]->d_name, f->format->begin, f->format->end);
        const char *path = is_one && result == EXIT_DONE ? join(&f->memory, folder, found[i]->d_name) : NULL;
        if (is_one && result == EXIT_DONE)
            result = path ? open_file(f, path, skip) : EXIT_FAILED;
        free(found[i]);
    }
    free(found);
    return result != EXIT_DONE || f->file_count > before
               ? result
               : failed("%s: has no file that is named %s*%s", folder, f->format->begin, f->format->end);
}

int import_files_open(import_files *f, const import_format *format, char *const *paths, size_t count, const char *const *skip)
{
    *f = (import_files){.format = format, .names = json_object()};
    json_t *map = NULL;
    int result = f->names ? EXIT_DONE : failed("out of memory for names");
    for (size_t i = 0; i < count && result == EXIT_DONE; i++) {
        struct stat about;
        const bool is_folder = stat(paths[i], &about) == 0 && S_ISDIR(about.st_mode);
        const char *index = is_folder ? join(&f->memory, paths[i], format->index) : NULL;
        if (!is_folder)
            result = open_file(f, paths[i], skip);
        else if (!index || stat(index, &about) != 0)
            result = index ? open_all(f, paths[i], skip) : EXIT_FAILED;
        else if (!S_ISREG(about.st_mode))
            result = failed("%s: not a file", index);
        else if (count > 1)
            result = failed("%s: a folder with an index is imported alone", paths[i]);
        else if ((result = read_index(index, &map)) == EXIT_DONE)
            result = open_shards(f, paths[i], map, skip);
    }
    if (result == EXIT_DONE && !map)
        result = check_shards(f);
    if (result == EXIT_DONE)
        result = collect(f, skip);
    if (result == EXIT_DONE && map)
        result = order_by(f, paths[0], map, skip);
    json_decref(map);
    return result;
}

void import_files_close(import_files *f)
{
    for (size_t i = 0; i < f->file_count; i++)
        f->format->close(&f->files[i]);
    free(f->files);
    json_decref(f->names);
    pool_free(&f->memory);
    *f = (import_files){0};
}
