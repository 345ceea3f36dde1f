/* SPDX-License-Identifier: Apache-2.0 */
/* export.c: `zoff export FOLDER -o DIR`: writes the weights of a checkpoint as safetensors files, one block of elements at a
 * time. */
#include "dtype.h"
#include "export_plan.h"
#include "import_kind.h"
#include "options.h"
#include "progress.h"
#include "verbs.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zoff/zoff.h>

/* Number of elements that are read, rounded and written together, so that memory does not grow with the tensors. */
enum { BLOCK = 1 << 20 };

typedef struct export_options {
    const char *from, *to, *label;
    zoff_dtype dtype; /* type of the weights; ZOFF_DTYPE_DEFAULT: that of each parameter */
    uint64_t shard_bytes;
    export_choice choice;
} export_options;

/* An export under way. */
typedef struct exporter {
    const export_options *options;
    zoff_checkpoint_reader *reader;
    export_plan plan;
    progress progress;
    uint64_t written; /* bytes of data */
    size_t complete;  /* files that have their final names */
    bool made_folder, has_index;
    float *block;
    void *rounded;
} exporter;

/* ---- files and folders ---- */

/* Return the path of a file of the export, which the caller frees; NULL after an error. */
static char *path_of(const exporter *x, size_t shard)
{
    char *path = NULL;
    const int bytes = x->plan.shard_count == 1 ? asprintf(&path, "%s/model.safetensors", x->options->to)
                                               : asprintf(&path, "%s/model-%05zu-of-%05zu.safetensors", x->options->to,
                                                          shard + 1, x->plan.shard_count);
    if (bytes >= 0)
        return path;
    failed("out of memory for a name in %s", x->options->to);
    return NULL;
}

/* Return the path of the index, which the caller frees; NULL after an error. */
static char *index_path_of(const exporter *x)
{
    char *path = NULL;
    if (asprintf(&path, "%s/model.safetensors.index.json", x->options->to) >= 0)
        return path;
    failed("out of memory for a name in %s", x->options->to);
    return NULL;
}

/* Whether a name is that of a file of an export, followed by `end`. */
static bool is_of_an_export(const char *name, const char *end)
{
    static const char *const ENDS[] = {".safetensors", ".safetensors.index.json"};
    size_t bytes = strlen(name);
    const size_t behind = strlen(end);
    if (strncmp(name, "model", 5) != 0 || bytes < behind || strcmp(name + bytes - behind, end) != 0)
        return false;
    bytes -= behind;
    for (size_t i = 0; i < 2; i++) {
        const size_t own = strlen(ENDS[i]);
        if (bytes > own && strncmp(name + bytes - own, ENDS[i], own) == 0)
            return true;
    }
    return false;
}

/* Remove a file that an export which was killed has left.  @return the exit status */
static int remove_left(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return failed("out of memory for a name in %s", folder);
    const int result = out_file_remove_left(path);
    if (result == EXIT_DONE)
        print_line(stderr, "note: %s is removed: an export that was killed has left it", path);
    free(path);
    return result;
}

/* Make the folder, or refuse one that has an export, because the files of two exports would be mixed. */
static int prepare_folder(exporter *x)
{
    const char *to = x->options->to;
    x->made_folder = mkdir(to, 0777) == 0;
    if (!x->made_folder && errno != EEXIST)
        return failed("%s: cannot make this folder: %s", to, strerror(errno));
    if (x->made_folder && out_file_sync_name(to) != EXIT_DONE)
        return EXIT_FAILED;
    DIR *folder = opendir(to);
    if (!folder)
        return failed("%s: cannot open this folder: %s", to, strerror(errno));
    int result = EXIT_DONE;
    for (const struct dirent *e; result == EXIT_DONE && (e = readdir(folder));) {
        if (is_of_an_export(e->d_name, OUT_FILE_PART))
            result = remove_left(to, e->d_name);
        else if (is_of_an_export(e->d_name, ""))
            result = failed("%s: has %s already; remove the older export, or name another folder", to, e->d_name);
    }
    closedir(folder);
    return result;
}

/* Remove the files that this export has made. */
static void remove_files(exporter *x)
{
    for (size_t i = 0; i < x->complete; i++) {
        char *path = path_of(x, i);
        if (path)
            unlink(path);
        free(path);
    }
    char *index = x->has_index ? index_path_of(x) : NULL;
    if (index)
        unlink(index);
    free(index);
    if (x->made_folder)
        rmdir(x->options->to);
}

/* ---- data ---- */

static int write_tensor(exporter *x, st_writer *w, const planned_tensor *t)
{
    const size_t element = dtype_bytes(t->tensor.dtype);
    for (uint64_t at = 0; at < t->tensor.count;) {
        const size_t count = t->tensor.count - at < BLOCK ? (size_t)(t->tensor.count - at) : BLOCK;
        if (zoff_checkpoint_reader_read(x->reader, t->param, t->kind, t->first + at, count, x->block) < 0)
            return library_error();
        dtype_round(t->tensor.dtype, x->block, count, x->rounded);
        if (st_writer_append(w, x->rounded, count * element) != EXIT_DONE)
            return EXIT_FAILED;
        x->written += count * element;
        at += count;
        if (!progress_tell("export", x->written, x->plan.data_bytes, &x->progress))
            return failed("export was canceled; its files are removed");
    }
    return EXIT_DONE;
}

/* Put the tensors of one file in order. Tensors in fp32 come first, so that each is aligned to its elements, because Python's
 * loaders map the file into memory. */
static size_t sort_tensors(const exporter *x, size_t shard, size_t *begin, size_t *order)
{
    size_t count = 0, end = *begin;
    while (end < x->plan.tensor_count && x->plan.tensors[end].shard == shard)
        end++;
    for (size_t bytes = 4; bytes >= 2; bytes -= 2) {
        for (size_t i = *begin; i < end; i++) {
            if (dtype_bytes(x->plan.tensors[i].tensor.dtype) == bytes)
                order[count++] = i;
        }
    }
    *begin = end;
    return count;
}

static int write_shard(exporter *x, size_t shard, const size_t *order, size_t count, st_tensor *tensors)
{
    st_writer w;
    char *path = path_of(x, shard);
    for (size_t i = 0; i < count; i++)
        tensors[i] = x->plan.tensors[order[i]].tensor;
    int result = path ? st_writer_open(&w, path, tensors, count, json_array_get(x->plan.shards, shard)) : EXIT_FAILED;
    free(path);
    if (result != EXIT_DONE)
        return result;
    for (size_t i = 0; i < count && result == EXIT_DONE; i++)
        result = write_tensor(x, &w, &x->plan.tensors[order[i]]);
    if (result == EXIT_DONE)
        result = st_writer_commit(&w);
    if (!w.file.part) /* a file with its final name counts, even if the folder is not durable */
        x->complete++;
    st_writer_close(&w);
    return result;
}

static int write_shards(exporter *x)
{
    size_t *order = calloc(x->plan.tensor_count + 1, sizeof *order);
    st_tensor *tensors = calloc(x->plan.tensor_count + 1, sizeof *tensors);
    int result = order && tensors ? EXIT_DONE : failed("out of memory for %zu tensors", x->plan.tensor_count);
    size_t begin = 0;
    for (size_t i = 0; i < x->plan.shard_count && result == EXIT_DONE; i++) {
        const size_t count = sort_tensors(x, i, &begin, order);
        result = write_shard(x, i, order, count, tensors);
    }
    free(order);
    free(tensors);
    return result;
}

/* ---- the index ---- */

static json_t *make_index(const exporter *x)
{
    json_t *map = json_object();
    for (size_t i = 0; map && i < x->plan.tensor_count; i++) {
        char *path = path_of(x, x->plan.tensors[i].shard);
        const char *name = path ? strrchr(path, '/') + 1 : NULL;
        const bool works = name && json_object_set_new(map, x->plan.tensors[i].tensor.name, json_string(name)) == 0;
        free(path);
        if (!works) {
            json_decref(map);
            return NULL;
        }
    }
    json_t *metadata = json_pack("{s:I}", "total_size", (json_int_t)x->plan.data_bytes);
    if (metadata && json_object_size(x->plan.aliases) > 0 && json_object_set(metadata, "aliases", x->plan.aliases) != 0) {
        json_decref(metadata);
        metadata = NULL; /* then json_pack() fails, too */
    }
    return json_pack("{s:o, s:o}", "metadata", metadata, "weight_map", map);
}

/* Write the index last, because an export without it is not complete. */
static int write_index(exporter *x)
{
    char *path = index_path_of(x);
    json_t *index = make_index(x);
    char *text = index ? json_dumps(index, JSON_INDENT(2)) : NULL;
    json_decref(index);
    out_file file = {0};
    int result =
        text && path ? out_file_open(&file, path) : failed("out of memory for the index of %zu tensors", x->plan.tensor_count);
    if (result == EXIT_DONE)
        result = out_file_write(&file, text, strlen(text));
    if (result == EXIT_DONE)
        result = out_file_write(&file, "\n", 1);
    if (result == EXIT_DONE)
        result = out_file_commit(&file);
    x->has_index = file.path && !file.part;
    out_file_close(&file);
    free(path);
    free(text);
    return result;
}

/* ---- the verb ---- */

static int write_all(exporter *x)
{
    progress_begin(&x->progress, "export");
    int result = prepare_folder(x);
    if (result == EXIT_DONE)
        result = write_shards(x);
    if (result == EXIT_DONE && x->plan.shard_count > 1)
        result = write_index(x);
    progress_end(&x->progress, result == EXIT_DONE);
    if (result != EXIT_DONE)
        remove_files(x);
    return result;
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static int print_result(const exporter *x)
{
    char bytes[32];
    const export_plan *p = &x->plan;
    progress_bytes(bytes, (double)p->data_bytes);
    print_text(stdout, "%s: %zu tensor%s and %zu tied parameter%s, %s in %zu file%s", x->options->to, p->tensor_count,
               plural(p->tensor_count), p->alias_count, plural(p->alias_count), bytes, p->shard_count, plural(p->shard_count));
    if (p->missing_count)
        printf("; without %zu frozen parameter%s, which the checkpoint leaves out", p->missing_count, plural(p->missing_count));
    printf("\n");
    return finish_output();
}

static int run(const export_options *o)
{
    exporter x = {.options = o};
    if (zoff_checkpoint_reader_open(o->from, o->label, &x.reader) < 0)
        return import_kind_no_checkpoint(o->from);
    x.block = malloc(BLOCK * sizeof *x.block);
    x.rounded = malloc(BLOCK * sizeof *x.block);
    int result = x.block && x.rounded ? export_plan_make(&x.plan, x.reader, &o->choice, o->dtype, o->shard_bytes)
                                      : failed("out of memory for a block of elements");
    if (result == EXIT_DONE)
        result = write_all(&x);
    if (result == EXIT_DONE)
        result = print_result(&x);
    export_plan_free(&x.plan);
    zoff_checkpoint_reader_close(x.reader);
    free(x.block);
    free(x.rounded);
    return result;
}

/* Read a number of bytes such as "5GB", "500MB" or "1GiB". */
static int read_size(const char *option, const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } UNITS[] = {{"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"", 1}};
    char *unit;
    const double number = strtod(text, &unit);
    for (size_t i = 0; unit != text && i < sizeof UNITS / sizeof UNITS[0]; i++) {
        const double bytes = number * UNITS[i].bytes;
        if (strcasecmp(unit, UNITS[i].name) == 0 && bytes >= 1 && bytes <= 1e18) {
            *out = (uint64_t)bytes;
            return EXIT_DONE;
        }
    }
    return usage_error("%s needs a number of bytes such as 5GB, 500MB or 1GiB, not \"%s\"", option, text);
}

/* Read OLD=NEW, which is cut at its "=", and add it to the list, which has room. */
static int read_rename(char *text, export_rename *list, size_t *count)
{
    char *equals = strchr(text, '=');
    const char *to = equals ? equals + 1 : "";
    if (equals)
        *equals = 0;
    const char *star = strchr(text, '*');
    if (!*text || !*to || (star && strchr(star + 1, '*')) || (!star && strchr(to, '*')))
        return usage_error("--rename needs OLD=NEW, with at most one * in OLD, and * in NEW only if OLD has it, not \"%s%s%s\"",
                           text, equals ? "=" : "", to);
    list[(*count)++] = (export_rename){.from = text, .to = to};
    return EXIT_DONE;
}

static int read_option(export_options *o, const char *option, const char *value)
{
    if (strcmp(option, "-o") == 0 || strcmp(option, "--label") == 0) {
        *(option[1] == 'o' ? &o->to : &o->label) = value;
        return EXIT_DONE;
    }
    if (strcmp(option, "--max-shard-size") == 0)
        return read_size(option, value, &o->shard_bytes);
    return strcmp(option, "--dtype") == 0 ? option_dtype_or_keep(value, &o->dtype)
                                          : usage_error("export: there is no option \"%s\"", option);
}

static int read_arguments(export_options *o, int argc, char **argv, const char **only, export_rename *renames)
{
    size_t only_count = 0;
    for (int i = 0; i < argc; i++) {
        int result = EXIT_DONE;
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (o->from)
                return usage_error("export takes one folder, not both \"%s\" and \"%s\"", o->from, argv[i]);
            o->from = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        if (strcmp(argv[i], "--only") == 0)
            only[only_count++] = argv[i + 1];
        else if (strcmp(argv[i], "--rename") == 0)
            result = read_rename(argv[i + 1], renames, &o->choice.rename_count);
        else
            result = read_option(o, argv[i], argv[i + 1]);
        if (result != EXIT_DONE)
            return result;
        i++;
    }
    o->choice.only = only_count ? only : NULL;
    o->choice.renames = renames;
    return o->from && o->to ? EXIT_DONE : usage_error("export needs a checkpoint, and -o with the folder to write");
}

int verb_export(int argc, char **argv)
{
    export_options o = {.shard_bytes = 5000000000};
    const char **only = calloc((size_t)argc + 1, sizeof *only);
    export_rename *renames = calloc((size_t)argc + 1, sizeof *renames);
    int result = only && renames ? read_arguments(&o, argc, argv, only, renames) : failed("out of memory");
    if (result == EXIT_DONE)
        result = run(&o);
    free(only);
    free(renames);
    return result;
}
