/* import.c: `zoff import FORMAT FILE...`: reads the arguments. Each format has a file of its own. */
#include "import.h"

#include "options.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>
#include <zoff/state.h>

static const struct {
    const char *name;
    int (*run)(const import_options *o);
} FORMATS[] = {{"safetensors", import_safetensors}};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof FORMATS[0] };

/* The moments that an optimizer has. */
static int read_optimizer(const char *text, unsigned *out)
{
    enum { M = 1 << ZOFF_STATE_M, V = 1 << ZOFF_STATE_V };
    static const struct {
        const char *name;
        unsigned moments;
    } OPTIMIZERS[] = {{"adam", M | V}, {"lion", M}, {"adagrad", V}, {"sgd", M}, {"none", 0}};
    for (size_t i = 0; i < sizeof OPTIMIZERS / sizeof OPTIMIZERS[0]; i++) {
        if (strcmp(OPTIMIZERS[i].name, text) == 0) {
            *out = OPTIMIZERS[i].moments;
            return EXIT_DONE;
        }
    }
    return usage_error("--optimizer must be adam, lion, adagrad, sgd or none, not \"%s\"", text);
}

static int read_option(import_options *o, const char *option, char *value)
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
        return read_optimizer(value, &o->moments);
    return strcmp(option, "--stack") == 0 ? option_stack(value, o->stacks, &o->stack_count)
                                          : usage_error("import: there is no option \"%s\"", option);
}

static int read_arguments(import_options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            o->paths[o->path_count++] = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        const int result = read_option(o, argv[i], argv[i + 1]);
        if (result != EXIT_DONE)
            return result;
        i++;
    }
    if (o->path_count == 0 || !o->to)
        return usage_error("import needs files or a folder to read, and -o with the folder of checkpoints");
    return EXIT_DONE;
}

int verb_import(int argc, char **argv)
{
    size_t format = 0;
    while (argc > 0 && format < FORMAT_COUNT && strcmp(FORMATS[format].name, argv[0]) != 0)
        format++;
    if (argc == 0 || format == FORMAT_COUNT)
        return usage_error("import needs a format, such as safetensors%s%s", argc ? ", not " : "", argc ? argv[0] : "");
    const size_t room = (size_t)argc + 1;
    import_options o = {.paths = calloc(room, sizeof *o.paths),
                        .skip = calloc(room, sizeof *o.skip),
                        .frozen = calloc(room, sizeof *o.frozen),
                        .stacks = calloc(room, sizeof *o.stacks)};
    int result = o.paths && o.skip && o.frozen && o.stacks ? read_optimizer("adam", &o.moments)
                                                           : failed("out of memory for the arguments");
    if (result == EXIT_DONE)
        result = read_arguments(&o, argc, argv);
    if (result == EXIT_DONE)
        result = FORMATS[format].run(&o);
    free(o.paths);
    free(o.skip);
    free(o.frozen);
    free(o.stacks);
    return result;
}
