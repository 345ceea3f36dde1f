/* import_files.c: opens the safetensors files of a model, and finds their tensors by name. */
#include "import_files.h"

#include "dtype.h"
#include "verbs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char INDEX[] = "model.safetensors.index.json";

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
    const int result = st_reader_open(&files[f->file_count], path, skip);
    f->file_count += result == EXIT_DONE;
    return result;
}

/* ---- shards ---- */

/* The number of shards in a name that ends in -00001-of-00007.safetensors; 0: it is no shard. */
static unsigned shards_in(const char *path, unsigned *out_shard)
{
    static const char END[] = "-00001-of-00007.safetensors";
    char rest[sizeof ".safetensors"] = "";
    unsigned count = 0;
    const size_t bytes = strlen(path), end = sizeof END - 1;
    if (bytes < end || sscanf(path + bytes - end, "-%5u-of-%5u%12s", out_shard, &count, rest) != 3 ||
        strcmp(rest, ".safetensors") != 0)
        return 0;
    return count;
}

/* Files without an index tell by their names whether some are missing. Refuse a part of a model. */
static int check_shards(const import_files *f)
{
    for (size_t i = 0; i < f->file_count; i++) {
        const char *path = f->files[i].path;
        unsigned mine, other, wanted = 0;
        const unsigned count = shards_in(path, &mine);
        for (size_t k = 0; count && k < f->file_count; k++) {
            const char *there = f->files[k].path;
            const bool is_sibling = strlen(there) == strlen(path) && shards_in(there, &other) == count &&
                                    strncmp(there, path, strlen(path) - sizeof "-00001-of-00007.safetensors" + 1) == 0;
            wanted += is_sibling && other >= 1 && other <= count;
        }
        if (wanted < count)
            return failed("%s: %u of %u files of this model are given; name all of them, or their folder", path, wanted, count);
    }
    return EXIT_DONE;
}

/* ---- the index ---- */

/* Open the files of an index, each once. Refuse a name with "/", because it could lead out of the folder. */
static int open_shards(import_files *f, const char *folder, const json_t *map, const char *const *skip)
{
    const char *name;
    json_t *value, *known = json_object();
    int result = known ? EXIT_DONE : failed("%s/%s: out of memory", folder, INDEX);
    json_object_foreach((json_t *)map, name, value)
    {
        const char *file = json_string_value(value);
        if (result == EXIT_DONE && (!file || !*file || strchr(file, '/')))
            result = failed("%s/%s: tensor \"%s\": its file is not a name in this folder", folder, INDEX, name);
        if (result != EXIT_DONE || json_object_get(known, file))
            continue;
        const char *path = join(&f->memory, folder, file);
        result = path && json_object_set_new(known, file, json_true()) == 0 ? open_file(f, path, skip) : EXIT_FAILED;
    }
    json_decref(known);
    return result;
}

static int read_index(const char *path, json_t **out)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!index)
        return failed("%s: line %d: %s", path, error.line, error.text);
    json_t *map = json_object_get(index, "weight_map");
    const int result =
        json_is_object(map) ? EXIT_DONE : failed("%s: has no \"weight_map\": not the index of a safetensors model", path);
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

/* Put the tensors in the order of an index, which must list each of them, and no other. */
static int order_by(import_files *f, const char *folder, const json_t *map, const char *const *skip)
{
    const char *name;
    json_t *value;
    size_t count = 0;
    source_tensor *ordered = pool_take(&f->memory, f->tensor_count, sizeof *ordered);
    if (!ordered)
        return EXIT_FAILED;
    json_object_foreach((json_t *)map, name, value)
    {
        const source_tensor *t = import_files_find(f, name);
        if (st_matches(name, skip))
            continue;
        if (!t || strcmp(strrchr(t->file->path, '/') + 1, json_string_value(value)) != 0)
            return failed("%s/%s: tensor \"%s\": is not in %s", folder, INDEX, name, json_string_value(value));
        ordered[count++] = *t;
    }
    for (size_t i = 0; i < f->tensor_count && count < f->tensor_count; i++) {
        const source_tensor *t = &f->tensors[i];
        if (!json_object_get(map, t->tensor->name))
            return failed("%s: tensor \"%s\": is not in %s; name it in --skip, or name the files in place of the folder",
                          t->file->path, t->tensor->name, INDEX);
    }
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

static int is_safetensors(const struct dirent *e)
{
    static const char END[] = ".safetensors";
    const size_t bytes = strlen(e->d_name);
    return bytes >= sizeof END && strcmp(e->d_name + bytes - (sizeof END - 1), END) == 0;
}

/* Open the files of a folder that has no index. */
static int open_all(import_files *f, const char *folder, const char *const *skip)
{
    struct dirent **found;
    const int count = scandir(folder, &found, is_safetensors, alphasort);
    if (count < 0)
        return failed("%s: cannot read this folder: %s", folder, strerror(errno));
    int result = count > 0 ? EXIT_DONE : failed("%s: has no file that ends in .safetensors", folder);
    for (int i = 0; i < count; i++) {
        const char *path = result == EXIT_DONE ? join(&f->memory, folder, found[i]->d_name) : NULL;
        if (result == EXIT_DONE)
            result = path ? open_file(f, path, skip) : EXIT_FAILED;
        free(found[i]);
    }
    free(found);
    return result;
}

int import_files_open(import_files *f, char *const *paths, size_t count, const char *const *skip)
{
    *f = (import_files){.names = json_object()};
    json_t *map = NULL;
    int result = f->names ? EXIT_DONE : failed("out of memory for names");
    for (size_t i = 0; i < count && result == EXIT_DONE; i++) {
        struct stat about;
        const bool is_folder = stat(paths[i], &about) == 0 && S_ISDIR(about.st_mode);
        const char *index = is_folder ? join(&f->memory, paths[i], INDEX) : NULL;
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
        st_reader_close(&f->files[i]);
    free(f->files);
    json_decref(f->names);
    pool_free(&f->memory);
    *f = (import_files){0};
}
