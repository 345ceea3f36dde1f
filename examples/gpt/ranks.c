/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c: the training loop of --ranks and --owned. Each rank takes a share of the sequences of a batch. With --owned the
 * library has weights and gradients, and the passes borrow them slice by slice. */
#include "ranks.h"
#include "saves.h"
#include "stats.h"
#include "world.h"

#include <zoff/zoff.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    const gpt_options *options;
    gpt_world world;
    size_t first; /* this rank's first sequence in a batch; it has model.shape.batch of them */
    gpt_model model;
    gpt_keeper keeper;
    zoff_engine *engine;
    zoff_param param[GPT_TENSORS];
    gpt_saves saves;
} job;

static int complain(const job *j, const char *words)
{
    fprintf(stderr, "gpt: rank %u: %s\n", j->world.rank, words);
    return -1;
}

/* ---- weights and gradients of the engine ---- */

/* End the program on an error, because a pass cannot continue without a weight. mpirun notices it and ends the job. */
static void must(const job *j, zoff_status status)
{
    if (status < 0) {
        complain(j, zoff_last_error());
        exit(1);
    }
}

static const void *fetch(void *ctx, int id, size_t slice)
{
    const job *j = ctx;
    const void *weights = NULL;
    must(j, zoff_param_fetch(j->engine, j->param[id], slice, NULL, &weights));
    return weights;
}

static void release(void *ctx, int id, size_t slice)
{
    const job *j = ctx;
    must(j, zoff_param_release(j->engine, j->param[id], slice, NULL));
}

static void *acquire(void *ctx, int id, size_t slice)
{
    const job *j = ctx;
    void *grad = NULL;
    must(j, zoff_grad_acquire(j->engine, j->param[id], slice, NULL, &grad));
    return grad;
}

static void ready(void *ctx, int id, size_t slice)
{
    const job *j = ctx;
    must(j, zoff_grad_ready(j->engine, j->param[id], slice, NULL));
}

/* Write the first weights slice by slice, because all of them may not fit into memory. Every rank writes all; the engine stores
 * its own part. */
static int write_first_weights(const job *j)
{
    for (int id = 0; id < GPT_TENSORS; id++) {
        const gpt_tensor *t = &j->model.tensor[id];
        void *slice = malloc(t->count * (t->bf16 ? sizeof(uint16_t) : sizeof(float)));
        zoff_status status = slice ? ZOFF_OK : ZOFF_ERR_NO_MEMORY;
        for (size_t i = 0; i < t->slices && status >= 0; i++) {
            gpt_model_first_weights(&j->model, j->options->seed, id, i, slice);
            status = zoff_param_write(j->engine, j->param[id], i * t->count, t->count, slice);
        }
        if (status < 0)
            complain(j, slice ? zoff_last_error() : "no memory for a slice of weights");
        free(slice);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* ---- the job ---- */

/* Where the share of a copy of the model begins. Copy 0, which prints, always has one. */
static size_t share_begin(size_t batch, unsigned copy, unsigned copies)
{
    return (batch * copy + copies - 1) / copies;
}

/* Shares differ by one sequence at most. With more copies than sequences some have none. They run the passes with no rows,
 * because all ranks must ask for weights in the same order. */
static int create_model(job *j)
{
    gpt_shape shape = j->options->shape;
    j->first = share_begin(shape.batch, j->world.copy, j->world.copies);
    shape.batch = share_begin(shape.batch, j->world.copy + 1, j->world.copies) - j->first;
    j->keeper = (gpt_keeper){.ctx = j, .fetch = fetch, .release = release, .acquire = acquire, .ready = ready};
    const gpt_options *o = j->options;
    const gpt_parallel *parallel = &j->world.parallel;
    const char *wrong = o->owned ? gpt_model_create_kept(shape, parallel, o->bf16, &j->keeper, &j->model)
                                 : gpt_model_create(shape, parallel, o->bf16, o->seed, &j->model);
    return wrong ? complain(j, wrong) : 0;
}

static int open_engine(job *j)
{
    const zoff_engine_opts opts = {
        .struct_size = sizeof opts, .config_path = j->options->config, .comm = j->world.comm, .norm_comm = j->world.norm_comm};
    if (zoff_engine_create(&opts, &j->engine) < 0)
        return complain(j, zoff_last_error());
    for (int id = 0; id < GPT_TENSORS; id++) {
        const gpt_tensor *t = &j->model.tensor[id];
        const zoff_param_desc desc = {.struct_size = sizeof desc,
                                      .value = t->value, /* value; NULL with --owned, as is the gradient */
                                      .grad = t->grad,
                                      .count = t->count,
                                      .slices = t->slices,
                                      .dtype = t->bf16 ? ZOFF_BF16 : ZOFF_F32,
                                      .name = t->name,
                                      .dims = t->dims,
                                      .dim_count = t->dim_count,
                                      .slice_name = t->slice_name,
                                      .engine_owned = j->options->owned,
                                      .norm_replicated = j->world.norm_comm && t->run == 0};
        if (zoff_engine_add_param(j->engine, &desc, &j->param[id]) < 0)
            return complain(j, zoff_last_error());
    }
    int64_t updates = 0; /* number of updates of an earlier run, whose states persist */
    if (zoff_engine_seal(j->engine) < 0 || zoff_step_count(j->engine, &updates) < 0)
        return complain(j, zoff_last_error());
    return j->options->owned && updates == 0 ? write_first_weights(j) : 0;
}

/* The mean over all ranks' tokens is the mean of the ranks' losses, weighted by their sequences, so --json has both numbers. */
static void print_step(const job *j, size_t step, double loss, const zoff_step_info *info)
{
    const gpt_options *o = j->options;
    if (j->world.rank || !o->print_every || (step % o->print_every && step + 1 < o->steps))
        return;
    printf("  step %4zu/%zu  loss %.4f", step + 1, o->steps, loss);
    if (j->world.copies > 1)
        printf(" of rank 0's %zu sequences", j->model.shape.batch);
    printf("  norm %6.3f%s\n", info->numbers.grad_norm, info->skipped ? "  skipped: not finite" : "");
    fflush(stdout);
}

static int train(job *j, const gpt_text *text, gpt_stats *stats)
{
    const size_t batch = j->options->shape.batch, context = j->options->shape.context;
    const size_t tokens = j->model.shape.batch * context;
    uint8_t *inputs = malloc(2 * batch * context), *targets = inputs + batch * context;
    if (!inputs)
        return complain(j, "no memory for a batch");
    const double start = gpt_seconds();
    int result = 0;
    for (size_t step = j->saves.position.batches; step < j->options->steps && result == 0 && !j->saves.stops; step++) {
        gpt_text_batch(text, j->saves.position.seed, step, batch, context, inputs, targets);
        const uint8_t *own = inputs + j->first * context;
        zoff_step_info info = {.struct_size = sizeof info};
        must(j, zoff_grad_weight(j->engine, (double)tokens));
        gpt_times seconds = {.forward = -gpt_seconds()};
        const double loss = gpt_model_forward(&j->model, own, targets + j->first * context);
        const double between = gpt_seconds();
        seconds.forward += between;
        gpt_model_backward(&j->model, own);
        j->saves.position.batches = step + 1; /* the batch from which a run that ends after this step goes on */
        const double before = gpt_seconds();
        seconds.backward = before - between;
        if (zoff_step(j->engine, NULL, &info) < 0)
            result = complain(j, zoff_last_error());
        seconds.optimizer = gpt_seconds() - before;
        gpt_stats_step(stats, step + 1, loss, seconds, &info);
        if (stats->count == 1)
            stats->first_seconds = gpt_seconds() - start;
        print_step(j, step, loss, &info);
        if (result == 0)
            result = gpt_saves_step(&j->saves, &info);
    }
    stats->seconds = gpt_seconds() - start;
    free(inputs);
    return result;
}

/* The file of rank 0 has the name that --json gives; that of rank 3 has .3 appended. */
static int write_json(const job *j, const gpt_text *text, const gpt_stats *stats)
{
    char path[4096];
    gpt_options options = *j->options;
    if (!options.json)
        return 0;
    if (snprintf(path, sizeof path, j->world.rank ? "%s.%u" : "%s", options.json, j->world.rank) >= (int)sizeof path)
        return complain(j, "the name of --json is too long");
    options.json = path;
    return gpt_stats_write(stats, &options, &j->model, text);
}

int gpt_ranks_train(const gpt_options *options, const gpt_text *text)
{
    job j = {.options = options};
    gpt_stats stats = {0};
    int result = gpt_world_open(options, &j.world);
    if (!result)
        result = create_model(&j);
    if (!result)
        result = gpt_stats_begin(options->steps, &stats);
    if (!result)
        result = open_engine(&j);
    if (!result)
        result = gpt_saves_open(options, &j.world.parallel, j.engine, &j.saves);
    if (!result)
        result = gpt_stats_opened(&stats, &j.model, j.engine);
    stats.rank = j.world.rank;
    stats.ranks = j.world.ranks;
    if (!result)
        result = train(&j, text, &stats);
    if (gpt_saves_close(&j.saves) && !result)
        result = -1;
    if (!result)
        result = write_json(&j, text, &stats);
    zoff_engine_destroy(j.engine);
    gpt_stats_free(&stats);
    gpt_model_destroy(&j.model);
    gpt_world_close(&j.world);
    return result;
}
