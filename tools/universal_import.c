/* SPDX-License-Identifier: Apache-2.0 */
/* universal_import.c: `zoff import universal FOLDER -o OUT`: a universal checkpoint folder of DeepSpeed becomes a checkpoint.
 */
#include "universal_verbs.h"

#include "dtype.h"
#include "import_kind.h"
#include "options.h"
#include "progress.h"
#include "universal_params.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct import_options {
    const char *folder, *out, *name;
    zoff_dtype dtype; /* type of the weights; ZOFF_DTYPE_DEFAULT: as in the folder */
    int64_t step;     /* number of updates; -1: as in the folder */
    char **stacks;    /* texts NAME=PATTERN */
    size_t stack_count;
} import_options;

typedef struct import {
    universal_folder from;
    universal_facts facts;
    universal_targets params;
    zoff_checkpoint_writer *to;
    float *block;
    progress progress;
    uint64_t done, total; /* bytes copied, and bytes in all */
} import;

/* ---- the tensors ---- */

/* Read a state of one source block by block, and write it from element `at` of parameter `index` on. Returns the exit status.
 */
static int move_state(import *m, size_t index, size_t at, zoff_state_kind kind, const char *name)
{
    torch_file *t;
    torch_tensor tensor;
    bool is_flat;
    fault f;
    if (!universal_tensor_open(&m->from, name, kind, &t, &tensor, &is_flat, &f))
        return failed("%s", f.text);
    int result = torch_file_begin(t, &tensor, &f) ? EXIT_DONE : failed("%s", f.text);
    for (size_t first = 0; first < tensor.count && result == EXIT_DONE;) {
        const size_t left = tensor.count - first, count = left < TORCH_BLOCK ? left : TORCH_BLOCK;
        if (!torch_file_next(t, count, m->block, &f))
            result = failed("%s", f.text);
        else if (zoff_checkpoint_writer_write(m->to, index, kind, at + first, count, m->block) < 0)
            result = library_error();
        first += count;
        m->done += count * sizeof(float);
        if (result == EXIT_DONE && !progress_tell("import", m->done, m->total, &m->progress))
            result = failed("interrupted; nothing is left in the folder of checkpoints");
    }
    torch_file_close(t);
    return result;
}

/* Write the states of one parameter, kind by kind, each in the order of its slices. */
static int move_param(import *m, size_t index)
{
    const universal_target *p = &m->params.targets[index];
    int result = EXIT_DONE;
    for (unsigned k = 0; k < UNIVERSAL_STATES; k++) {
        for (size_t i = 0; i < p->facts.slices && (p->facts.states & 1u << k) && result == EXIT_DONE; i++)
            result = move_state(m, index, i * p->facts.count, (zoff_state_kind)k, p->sources[i]->name);
    }
    return result;
}

static int move_params(import *m)
{
    int result = EXIT_DONE;
    for (size_t i = 0; i < m->params.count && result == EXIT_DONE; i++)
        result = move_param(m, i);
    return result;
}

/* ---- the description ---- */

/* Read the facts that are needed before the first element. */
static bool read_folder(import *m, const import_options *o, fault *f)
{
    char path[UNIVERSAL_PATH_MAX];
    if (!universal_find(o->folder, path, f) || !universal_folder_open(path, &m->from, f) ||
        !universal_facts_read(&m->from, &m->facts, f))
        return false;
    if (o->step >= 0)
        m->facts.step = o->step;
    if (m->facts.step < 0)
        return fault_set(f, "%s does not tell how many updates it has; give --step N", path);
    fault of_model;
    if (!universal_model_read(&m->from, true, &of_model)) /* a failure is only noted, because options can give these facts */
        print_line(stderr,
                   "note: %s. Weights are %s, parameters are in the order of their names, and those of stage 3 have one "
                   "dimension",
                   of_model.text, dtype_name(o->dtype ? o->dtype : ZOFF_F32));
    if (!universal_targets_make(&m->from, o->dtype, o->stacks, o->stack_count, &m->params, f))
        return false;
    for (size_t i = 0; i < m->from.count; i++) {
        const universal_param *p = &m->from.params[i];
        for (unsigned k = 0; k < UNIVERSAL_STATES && !p->tied_to; k++)
            m->total += p->states & 1u << k ? p->count * sizeof(float) : 0;
    }
    return true;
}

/* Describe the parameters to the writer. Returns the exit status. */
static int open_writer(import *m, const import_options *o)
{
    zoff_checkpoint_param *params = calloc(m->params.count, sizeof *params);
    if (!params)
        return failed("out of memory for %zu parameters", m->params.count);
    for (size_t i = 0; i < m->params.count; i++)
        params[i] = m->params.targets[i].facts;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = o->name;
    const zoff_loss_scaler *scaler = m->facts.has_scaler ? &m->facts.scaler : NULL;
    const zoff_status status =
        zoff_checkpoint_writer_open(o->out, &opts, m->facts.step, params, m->params.count, scaler, &m->to);
    free(params);
    return status < 0 ? library_error() : EXIT_DONE;
}

static int import_folder(import *m, const import_options *o)
{
    fault f;
    m->block = malloc(TORCH_BLOCK * sizeof *m->block);
    if (!m->block)
        return failed("out of memory for a block of elements");
    if (!read_folder(m, o, &f))
        return failed("%s", f.text);
    int result = open_writer(m, o);
    if (result == EXIT_DONE)
        result = move_params(m);
    if (result == EXIT_DONE && zoff_checkpoint_writer_commit(m->to) < 0)
        result = library_error();
    return result;
}

/* ---- arguments ---- */

static int read_option(const char *option, char *value, import_options *o)
{
    if (!value)
        return usage_error("%s needs a value", option);
    if (strcmp(option, "--dtype") == 0)
        return option_dtype_or_keep(value, &o->dtype);
    if (strcmp(option, "--step") == 0)
        return option_step(value, &o->step);
    if (strcmp(option, "--stack") == 0)
        return option_stack(value, o->stacks, &o->stack_count);
    if (strcmp(option, "-o") != 0 && strcmp(option, "--name") != 0)
        return usage_error("import universal: there is no option \"%s\"", option);
    *(option[1] == 'o' ? &o->out : &o->name) = value;
    return EXIT_DONE;
}

static int read_arguments(int argc, char **argv, import_options *o)
{
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            const int result = read_option(argv[i], i + 1 < argc ? argv[i + 1] : NULL, o);
            if (result != EXIT_DONE)
                return result;
            i++;
        } else if (o->folder) {
            return usage_error("import universal takes one folder, not both \"%s\" and \"%s\"", o->folder, argv[i]);
        } else {
            o->folder = argv[i];
        }
    }
    if (!o->folder || !o->out)
        return usage_error("import universal needs a folder of DeepSpeed, and -o with a folder of checkpoints");
    return EXIT_DONE;
}

static int run(const import_options *o)
{
import m = {.total = 0 };
    progress_begin(&m.progress, "import");
    int result = import_kind_check(o->folder, "universal");
    if (result == EXIT_DONE)
        result = import_folder(&m, o);
    progress_end(&m.progress, result == EXIT_DONE);
    if (result == EXIT_DONE) {
        print_line(stdout, "%zu parameters after %lld updates are in a checkpoint in %s", m.params.count,
                   (long long)m.facts.step, o->out);
        result = finish_output();
    }
    zoff_checkpoint_writer_close(m.to);
    universal_targets_free(&m.params);
    universal_folder_close(&m.from);
    free(m.block);
    return result;
}

int universal_import(int argc, char **argv)
{
    import_options o = {.step = -1, .stacks = calloc((size_t)argc + 1, sizeof *o.stacks)};
    int result = o.stacks ? read_arguments(argc, argv, &o) : failed("out of memory for the arguments");
    if (result == EXIT_DONE)
        result = run(&o);
    free(o.stacks);
    return result;
}
