/* SPDX-License-Identifier: Apache-2.0 */
/* import_model.c: writes a checkpoint whose masters are the tensors of files, one block of elements at a time. Safetensors is
 * the format here; that of PyTorch is in torch_model.c. */
#include "dtype.h"
#include "import.h"
#include "import_kind.h"
#include "import_params.h"
#include "progress.h"
#include "records.h"
#include "verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Elements that are read, widened and written together. */
enum { BLOCK = 1 << 20 };

/* An import under way. */
typedef struct importer {
    const import_format *format;
    import_options options;
    import_files files;
    import_params params;
    zoff_checkpoint_writer *writer;
    progress progress;
    uint64_t read; /* bytes of data */
    float *block;
} importer;

static int write_tensor(importer *x, size_t index, zoff_state_kind kind, uint64_t first, const source_tensor *t)
{
    for (uint64_t at = 0; at < t->tensor->count;) {
        const size_t count = t->tensor->count - at < BLOCK ? (size_t)(t->tensor->count - at) : BLOCK;
        if (x->format->read(t, kind, at, count, x->block) != EXIT_DONE)
            return EXIT_FAILED;
        if (zoff_checkpoint_writer_write(x->writer, index, kind, first + at, count, x->block) < 0)
            return library_error();
        x->read += count * dtype_bytes(t->tensor->dtype);
        at += count;
        if (!progress_tell("import", x->read, x->files.data_bytes, &x->progress))
            return failed("import was canceled; what it has written is removed");
    }
    return EXIT_DONE;
}

static int write_param(importer *x, size_t index)
{
    const import_param *p = &x->params.params[index];
    int result = EXIT_DONE;
    for (unsigned k = 0; k <= ZOFF_STATE_WEIGHTS; k++) {
        const bool is_moment = k == ZOFF_STATE_M || k == ZOFF_STATE_V;
        for (size_t i = 0; i < p->tensor_count && (p->facts.states & 1u << k) && result == EXIT_DONE; i++) {
            if (!is_moment || p->tensors[i]->moments)
                result = write_tensor(x, index, (zoff_state_kind)k, (uint64_t)p->facts.count * i, p->tensors[i]);
        }
    }
    return result;
}

static int open_writer(importer *x)
{
    const size_t count = x->params.count;
    zoff_checkpoint_param *facts = calloc(count + 1, sizeof *facts);
    if (!facts)
        return failed("out of memory for %zu parameters", count);
    for (size_t i = 0; i < count; i++)
        facts[i] = x->params.params[i].facts;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = x->options.name;
    const zoff_status status =
        zoff_checkpoint_writer_open(x->options.to, &opts, x->options.step, facts, count, NULL, &x->writer);
    free(facts);
    return status < 0 ? library_error() : EXIT_DONE;
}

static int write_all(importer *x)
{
    progress_begin(&x->progress, "import");
    int result = open_writer(x);
    for (size_t i = 0; i < x->params.count && result == EXIT_DONE; i++)
        result = write_param(x, i);
    if (result == EXIT_DONE && zoff_checkpoint_writer_commit(x->writer) < 0)
        result = library_error();
    zoff_checkpoint_writer_close(x->writer);
    progress_end(&x->progress, result == EXIT_DONE);
    return result;
}

static int print_result(const importer *x)
{
    char bytes[32];
    progress_bytes(bytes, (double)x->files.data_bytes);
    const bool has_file = x->files.moments_of != NULL;
    print_line(stdout, "%s: %zu parameter%s, %zu of them tied, from %s of weights, at update %" PRId64 "%s%s", x->options.to,
               x->params.count, x->params.count == 1 ? "" : "s", x->params.tied_count, bytes, x->options.step,
               has_file             ? "; the moments are those of "
               : x->options.moments ? "; the moments are zero"
                                    : "; without moments",
               has_file ? x->files.moments_of : "");
    return finish_output();
}

int import_model(const import_format *format, const import_options *o)
{
    importer x = {.format = format, .options = *o, .block = malloc(BLOCK * sizeof *x.block)};
    int result = x.block ? EXIT_DONE : failed("out of memory for a block of elements");
    for (size_t i = 0; i < o->path_count && result == EXIT_DONE; i++)
        result = import_kind_check(o->paths[i], format->name);
    if (result == EXIT_DONE)
        result = import_files_open(&x.files, format, o->paths, o->path_count, o->skip);
    if (result == EXIT_DONE && format->prepare)
        result = format->prepare(&x.files, &x.options);
    if (x.options.step < 0)
        x.options.step = 0;
    if (result == EXIT_DONE)
        result = import_params_make(&x.params, &x.files, &x.options);
    if (result == EXIT_DONE)
        result = write_all(&x);
    if (result == EXIT_DONE)
        result = print_result(&x);
    import_params_free(&x.params);
    import_files_close(&x.files);
    free(x.block);
    return result;
}

/* ---- safetensors ---- */

static int read_safetensors(const source_tensor *t, zoff_state_kind kind, uint64_t first, size_t count, float *dst)
{
    (void)kind;
    uint16_t halves[1 << 14];
    if (t->tensor->dtype == ZOFF_F32)
        return st_reader_read(t->file, t->tensor, first, count, dst);
    for (size_t at = 0, now; at < count; at += now) {
        now = count - at < sizeof halves / sizeof halves[0] ? count - at : sizeof halves / sizeof halves[0];
        if (st_reader_read(t->file, t->tensor, first + at, now, halves) != EXIT_DONE)
            return EXIT_FAILED;
        dtype_widen(t->tensor->dtype, halves, now, dst + at);
    }
    return EXIT_DONE;
}

const import_format IMPORT_SAFETENSORS = {.name = "safetensors",
                                          .index = "model.safetensors.index.json",
                                          .begin = "",
                                          .end = ".safetensors",
                                          .is_ordered_by_index = true,
                                          .open = st_reader_open,
                                          .close = st_reader_close,
                                          .read = read_safetensors};
