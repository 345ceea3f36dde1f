/* SPDX-License-Identifier: Apache-2.0 */
/* import.c: `zoff import FORMAT FILE...`: reads the arguments. */
#include "import.h"

#include "import_kind.h"
#include "options.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zoff/state.h>

/* Read --optimizer: the name of an optimizer with moments of zero, or a file if the format has such files. */
static int read_optimizer(const import_format *format, const char *text, import_options *o)
{
    enum { M = 1 << ZOFF_STATE_M, V = 1 << ZOFF_STATE_V };
    static const struct {
        const char *name;
        unsigned moments;
    } OPTIMIZERS[] = {{"adam", M | V}, {"lion", M}, {"adagrad", V}, {"sgd", M}, {"none", 0}};
    for (size_t i = 0; i < sizeof OPTIMIZERS / sizeof OPTIMIZERS[0]; i++) {
        if (strcmp(OPTIMIZERS[i].name, text) == 0) {
            o->moments = OPTIMIZERS[i].moments;
            o->has_zeros = true;
            o->optimizer = NULL;
            return EXIT_DONE;
        }
    }
    o->optimizer = text;
    return format->has_optimizers ? EXIT_DONE
                                  : usage_error("--optimizer must be adam, lion, adagrad, sgd or none, not \"%s\"", text);
}

static int read_option(const import_format *format, import_options *o, const char *option, char *value)
{
    if (strcmp(option, "-o") == 0 || strcmp(option, "--name") == 0) {
        *(option[1] == 'o' ? &o->to : &o->name) = value;
        return EXIT_DONE;
    }
    if (strcmp(option, "--skip") == 0 || strcmp(option, "--frozen") == 0) {
        const char **patterns = option[2] == 's' ? o->skip : o->frozen;
        while (*patterns)
            patterns++;
        *patterns = value;
        return EXIT_DONE;
    }
    if (strcmp(option, "--step") == 0)
        return option_step(value, &o->step);
    if (strcmp(option, "--dtype") == 0)
        return option_dtype_or_keep(value, &o->dtype);
    if (strcmp(option, "--optimizer") == 0)
        return read_optimizer(format, value, o);
    return strcmp(option, "--stack") == 0 ? option_stack(value, o->stacks, &o->stack_count)
                                          : usage_error("import %s: there is no option \"%s\"", format->name, option);
}

static int read_arguments(const import_format *format, import_options *o, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            o->paths[o->path_count++] = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        const int result = read_option(format, o, argv[i], argv[i + 1]);
        if (result != EXIT_DONE)
            return result;
        i++;
    }
    if (o->path_count == 0 || !o->to)
        return usage_error("import %s needs files or a folder to read, and -o with the folder of checkpoints", format->name);
    return EXIT_DONE;
}

int import_run(const import_format *format, int argc, char **argv)
{
    const size_t room = (size_t)argc + 1;
    import_options o = {.step = -1,
                        .moments = 1 << ZOFF_STATE_M | 1 << ZOFF_STATE_V,
                        .paths = calloc(room, sizeof *o.paths),
                        .skip = calloc(room, sizeof *o.skip),
                        .frozen = calloc(room, sizeof *o.frozen),
                        .stacks = calloc(room, sizeof *o.stacks)};
    int result = o.paths && o.skip && o.frozen && o.stacks ? read_arguments(format, &o, argc, argv)
                                                           : failed("out of memory for the arguments");
    if (result == EXIT_DONE)
        result = import_model(format, &o);
    free(o.paths);
    free(o.skip);
    free(o.frozen);
    free(o.stacks);
    return result;
}

int verb_import_safetensors(int argc, char **argv)
{
    return import_run(&IMPORT_SAFETENSORS, argc, argv);
}

int verb_import(int argc, char **argv)
{
    struct stat about;
    for (int i = 0; i < argc; i++) {
        if (stat(argv[i], &about) == 0)
            return import_kind_tell(argv[i]);
    }
    return usage_error("import needs safetensors, torch or universal, or a file to tell what it is%s%s",
                       argc ? "; there is no file " : "", argc ? argv[0] : "");
}
