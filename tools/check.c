/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: `zoff check FILE`: prints the effective configuration, or the error with which zoff_engine_open() would refuse it.
 */
#include "import_kind.h"
#include "import_params.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

/* Remove the lines of keys that have their default value. */
static void drop_defaults(char *text)
{
    static const char END[] = " # default";
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        const size_t bytes = strcspn(line, "\n");
        next = line + bytes + (line[bytes] == '\n');
        const bool is_default = bytes >= sizeof END - 1 && memcmp(line + bytes - (sizeof END - 1), END, sizeof END - 1) == 0;
        if (is_default)
            continue;
        memmove(to, line, (size_t)(next - line));
        to += next - line;
    }
    *to = 0;
}

static bool is_on(const zoff_config *config, const char *flag)
{
    double value = 0;
    return zoff_config_number(config, flag, &value) == 0 && value != 0;
}

static bool is_nvme(const zoff_config *config, const char *key)
{
    const char *device = NULL;
    return zoff_config_string(config, key, &device) == 0 && device && strcmp(device, "nvme") == 0;
}

/* Replace the values about folders by values for an empty one, so that nothing measures it. */
static bool set_folder(zoff_config *config, const char *folder)
{
    static const char *const SETS[][2] = {{"aio.block_size", "64KiB"}, {"aio.queue_depth", "4"}, {"zoff.direct_io", "auto"}};
    static const char *const PATHS[] = {"zoff.nvme_paths", "zero_optimization.offload_param.nvme_path"};
    bool works = !is_on(config, "zoff.persist") || zoff_config_set(config, "zoff.persist", "true") == 0;
    for (size_t i = 0; works && i < sizeof SETS / sizeof SETS[0]; i++)
        works = zoff_config_set(config, SETS[i][0], SETS[i][1]) == 0;
    for (size_t i = 0; works && i < sizeof PATHS / sizeof PATHS[0]; i++)
        works = zoff_config_set(config, PATHS[i], folder) == 0;
    return works;
}

/* Show only log lines of create, because those of seal are about this engine and its folder. */
static int open_engine(zoff_config *config, zoff_accel *device, const zoff_param_desc *desc)
{
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config, .accel = device};
    zoff_engine *e = NULL;
    bool works = zoff_config_set(config, "train_batch_size", "auto") == 0 && drop_matrix_names(config) &&
                 zoff_engine_create(&opts, &e) == 0;
    set_log(false);
    works = works && zoff_engine_add_param(e, desc, NULL) == 0 && zoff_engine_seal(e) == 0;
    const int result = works ? EXIT_DONE : library_error();
    zoff_engine_destroy(e);
    set_log(true);
    return result;
}

/* Refuse what an engine refuses, by the same code: open an engine of one parameter on one rank. An empty folder replaces each
 * path, because the file may be for another machine. */
static int try_engine(zoff_config *config, unsigned ranks, zoff_accel *device)
{
    float weight = 0;
    char folder[SCRATCH_BYTES];
    zoff_plan_info info = {.struct_size = sizeof info};
    const zoff_param_desc desc = {.struct_size = sizeof desc,
                                  .value = &weight,
                                  .count = 1,
                                  .dtype = is_on(config, "fp16.enabled")   ? ZOFF_F16
                                           : is_on(config, "bf16.enabled") ? ZOFF_BF16
                                                                           : ZOFF_F32};
    if (ranks > 1 && ranks <= MOST_RANKS) { /* find what create refuses because of other ranks */
        set_log(false);
        int result = plan_params(config, ranks, 0, device, &desc, 1, &info);
        set_log(true);
        if (result != EXIT_DONE)
            return result;
    }
    if (!is_nvme(config, "zero_optimization.offload_optimizer.device") &&
        !is_nvme(config, "zero_optimization.offload_param.device"))
        return open_engine(config, device, &desc);
    int result = make_scratch(NULL, folder);
    if (result != EXIT_DONE)
        return result;
    result = set_folder(config, folder) ? open_engine(config, device, &desc) : library_error();
    remove_scratch(folder);
    return result;
}

static int print_effective(zoff_config *config, unsigned ranks, zoff_accel *device, bool changed)
{
    size_t bytes, fitted;
    if (zoff_config_dump(config, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("out of memory for %zu bytes of text", bytes);
    int result = zoff_config_dump(config, text, bytes + 1, &fitted) < 0 ? library_error() : try_engine(config, ranks, device);
    if (result == EXIT_DONE) {
        if (changed)
            drop_defaults(text);
        print_lines(text);
        result = finish_output();
    }
    free(text);
    return result;
}

/* ---- the matrices of a model ---- */

/* Print the words of the library about matrices, which are for debugging elsewhere. */
static void print_matrices(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    (void)ctx;
    if (level == ZOFF_LOG_DEBUG && strcmp(room, "model") == 0)
        print_line(stdout, "%s", line);
}

/* The address of a parameter, which only says whose weights are tied: nothing reads them.
 * @param used bytes before it; grows by those of this one */
static size_t place_of(const import_params *all, size_t index, const size_t *places, size_t *used)
{
    const zoff_checkpoint_param *facts = &all->params[index].facts;
    const size_t at = *used;
    for (size_t i = 0; facts->tied_to && i < index; i++) {
        if (strcmp(all->params[i].facts.name, facts->tied_to) == 0)
            return places[i];
    }
    *used += (facts->count * facts->slices + 1) * sizeof(float);
    return at;
}

static int add_params(zoff_engine *e, const import_params *all, size_t *places)
{
    size_t used = 1 << 20;
    for (size_t i = 0; i < all->count; i++) {
        const zoff_checkpoint_param *facts = &all->params[i].facts;
        places[i] = place_of(all, i, places, &used);
        const zoff_param_desc desc = {.struct_size = sizeof desc,
                                      .value = (void *)places[i],
                                      .name = facts->name,
                                      .slice_name = facts->slice_name,
                                      .dims = facts->dim_count ? facts->dims : NULL,
                                      .dim_count = facts->dim_count,
                                      .count = facts->count,
                                      .slices = facts->slices,
                                      .dtype = facts->dtype,
                                      .frozen = facts->states == 1u << ZOFF_STATE_WEIGHTS};
        if (zoff_engine_add_param(e, &desc, NULL) < 0)
            return library_error();
    }
    return EXIT_DONE;
}

/* Plan an engine with the tensors of safetensors files as its parameters, and print which of them have matrices. */
static int list_matrices(zoff_config *config, char *model)
{
    const import_options options = {.moments = 1u << ZOFF_STATE_M | 1u << ZOFF_STATE_V};
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config};
    zoff_plan_info info = {.struct_size = sizeof info};
    import_files files = {0};
    import_params params = {0};
    zoff_engine *e = NULL;
    size_t *places = NULL;
    int result = import_kind_check(model, IMPORT_SAFETENSORS.name);
    if (result == EXIT_DONE)
        result = import_files_open(&files, &IMPORT_SAFETENSORS, &model, 1, NULL);
    if (result == EXIT_DONE)
        result = import_params_make(&params, &files, &options);
    if (result == EXIT_DONE && !(places = calloc(params.count + 1, sizeof *places)))
        result = failed("out of memory for %zu parameters", params.count);
    if (result == EXIT_DONE && (zoff_config_set(config, "train_batch_size", "auto") < 0 || zoff_engine_create(&opts, &e) < 0))
        result = library_error();
    if (result == EXIT_DONE)
        result = add_params(e, &params, places);
    setenv("ZOFF_LOG_LEVEL", "debug", 1);
    zoff_log_set(print_matrices, NULL);
    if (result == EXIT_DONE && zoff_engine_plan(e, &info) < 0)
        result = library_error();
    set_log(false);
    zoff_engine_destroy(e);
    free(places);
    import_params_free(&params);
    import_files_close(&files);
    return result == EXIT_DONE ? finish_output() : result;
}

static bool has_matrices(const zoff_config *config)
{
    const char *type = NULL;
    return zoff_config_string(config, "optimizer.type", &type) == 0 && strcmp(type, "Muon") == 0;
}

static int check_model(zoff_config *config, char *model)
{
    return has_matrices(config) ? list_matrices(config, model)
                                : failed("--model lists the matrices of a model, which only optimizer.type Muon has; use "
                                         "--set optimizer.type=Muon to see them");
}

static int check(const char *path, unsigned ranks, const char *device, char *model, bool changed, char **sets, int set_count)
{
    zoff_config *config;
    zoff_accel *accel = NULL;
    int result = open_config(path, sets, set_count, &config);
    if (result != EXIT_DONE)
        return result;
    if ((device && zoff_accel_open(device, 0, &accel) < 0) || zoff_config_resolve(config, ranks) < 0)
        result = library_error();
    else
        result = model ? check_model(config, model) : print_effective(config, ranks, accel, changed);
    zoff_accel_close(accel);
    zoff_config_close(config);
    return result;
}

int verb_check(int argc, char **argv)
{
    const char *path = NULL, *device = NULL;
    char *model = NULL;
    unsigned ranks = 1;
    int set_count = 0, result;
    bool changed = false;
    for (int i = 0; i < argc; i++) {
        bool takes_value = strcmp(argv[i], "--ranks") == 0 || strcmp(argv[i], "--set") == 0 ||
                           strcmp(argv[i], "--device") == 0 || strcmp(argv[i], "--model") == 0;
        if (takes_value && i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        if (strcmp(argv[i], "--ranks") == 0) {
            if ((result = read_ranks(argv[++i], &ranks)) != EXIT_DONE)
                return result;
        } else if (strcmp(argv[i], "--device") == 0) {
            device = argv[++i];
        } else if (strcmp(argv[i], "--model") == 0) {
            model = argv[++i];
        } else if (strcmp(argv[i], "--changed") == 0) {
            changed = true;
        } else if (takes_value) {
            argv[set_count++] = argv[++i]; /* collect the values at the front of argv, because it has been read already */
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return usage_error("check: there is no option \"%s\"", argv[i]);
        } else if (path) {
            return usage_error("check takes one file, not both \"%s\" and \"%s\"", path, argv[i]);
        } else {
            path = argv[i];
        }
    }
    return path ? check(path, ranks, device, model, changed, argv, set_count) : usage_error("check needs a file");
}
