/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the training loop. The code for zoff is between "zoff: begin" and "zoff: end": an existing trainer has to add that.
 */
#include "data.h"
#include "just_in_time.h"
#include "model.h"
#include "options.h"
#include "plain_adamw.h"
#include "ranks.h"
#include "saves.h"
#include "stats.h"

/* zoff: begin */
#include <zoff/zoff.h>
/* zoff: end */

#include <stdio.h>
#include <stdlib.h>

/* The optimizer of a run: zoff, or the plain one. */
typedef struct optimizer {
    float *m, *v; /* moments of the plain optimizer */
    /* zoff: begin */
    zoff_engine *engine;
    /* zoff: end */
    gpt_just_in_time hidden;
} optimizer;

static int complain(const char *words)
{
    fprintf(stderr, "gpt: %s\n", words);
    return -1;
}

static int optimizer_open(const gpt_options *options, const gpt_model *model, optimizer *o)
{
    const gpt_tensor *t = model->tensor;
    if (!options->with_zoff) {
        o->m = calloc(model->parameter_count, sizeof *o->m);
        o->v = calloc(model->parameter_count, sizeof *o->v);
        return o->m && o->v ? 0 : complain("no memory for the moments");
    }
    /* clang-format off */
    /* zoff: begin */
    zoff_engine_opts opts = {.struct_size = sizeof opts, .config_path = options->config};
    zoff_param_desc p[GPT_TENSORS] = {0};
    for (int i = 0; i < GPT_TENSORS; i++, t++) p[i] = (zoff_param_desc){.value = t->value, .grad = t->grad,
        .count = t->count, .slices = t->slices, .dtype = t->bf16 ? ZOFF_BF16 : ZOFF_F32, .name = t->name,
        .dims = t->dims, .dim_count = t->dim_count, .slice_name = t->slice_name};
    return zoff_engine_open(&opts, p, GPT_TENSORS, &o->engine) < 0 ? complain(zoff_last_error()) : 0;
    /* zoff: end */
    /* clang-format on */
}

static int optimizer_step(const gpt_options *options, const gpt_model *model, optimizer *o, int t, zoff_step_info *info)
{
    if (options->with_zoff)
        /* zoff: begin */
        return zoff_step(o->engine, NULL, info) < 0 ? complain(zoff_last_error()) : 0;
    /* zoff: end */
    info->numbers.grad_norm =
        gpt_plain_adamw(&options->hyper, t, model->parameter_count, model->values, model->grads, o->m, o->v);
    return 0;
}

static void optimizer_close(optimizer *o)
{
    free(o->m);
    free(o->v);
    /* zoff: begin */
    zoff_engine_destroy(o->engine);
    /* zoff: end */
}

/* A run, and the step whose gradients were handed over last. */
typedef struct run {
    const gpt_text *text;
    gpt_model *model;
    optimizer *o;
    gpt_saves *saves;
    gpt_stats *stats;
    double start, loss; /* time when the run began, and loss of the step */
    gpt_times seconds;  /* seconds of the step */
    zoff_step_info info;
    bool is_open; /* the step is not over, with --just-in-time */
} run;

static int begin_step(run *r, size_t step)
{
    const gpt_options *options = r->saves->options;
    const double before = gpt_seconds();
    r->info = (zoff_step_info){.struct_size = sizeof r->info};
    r->saves->position.batches = step + 1; /* the batch from which a run that ends after this step goes on */
    int result = 0;
    if (options->just_in_time)
        result = gpt_just_in_time_begin(&r->o->hidden);
    else
        result = optimizer_step(options, r->model, r->o, (int)step + 1, &r->info);
    r->is_open = options->just_in_time && result == 0;
    r->seconds.optimizer = gpt_seconds() - before;
    return result;
}

static int end_step(run *r)
{
    const gpt_options *options = r->saves->options;
    const size_t step = r->saves->position.batches, tokens = options->shape.batch * options->shape.context;
    const double before = gpt_seconds();
    if (r->is_open && gpt_just_in_time_end(&r->o->hidden, &r->info))
        return -1;
    r->is_open = false;
    const double now = gpt_seconds();
    r->seconds.optimizer += r->o->hidden.seconds + now - before;
    gpt_stats_step(r->stats, step, r->loss, r->seconds, &r->info);
    if (r->stats->count == 1)
        r->stats->first_seconds = now - r->start;
    if (options->print_every && ((step - 1) % options->print_every == 0 || step == options->steps)) {
        printf("  step %4zu/%zu  loss %.4f  norm %6.3f  %6.0f tokens/s%s\n", step, options->steps, r->loss,
               r->info.numbers.grad_norm, (double)(r->stats->count * tokens) / (now - r->start),
               r->info.skipped ? "  skipped: not finite" : "");
        fflush(stdout);
    }
    return gpt_saves_step(r->saves, &r->info);
}

static int train(run *r)
{
    const gpt_options *options = r->saves->options;
    const size_t batch = options->shape.batch, context = options->shape.context;
    uint8_t *inputs = malloc(2 * batch * context), *targets = inputs + batch * context;
    if (!inputs)
        return complain("no memory for a batch");
    int result = 0;
    r->start = gpt_seconds();
    for (size_t step = r->saves->position.batches; step < options->steps && result == 0 && !r->saves->stops; step++) {
        gpt_text_batch(r->text, r->saves->position.seed, step, batch, context, inputs, targets);
        const double before = gpt_seconds();
        /* this pass runs beside the step before it, if that is open */
        const double loss = gpt_model_forward(r->model, inputs, targets);
        const double forward = gpt_seconds() - before - (r->is_open ? r->o->hidden.seconds : 0);
        result = r->is_open ? end_step(r) : 0;
        if (result || r->saves->stops)
            break;
        r->loss = loss;
        const double between = gpt_seconds();
        gpt_model_backward(r->model, inputs);
        r->seconds = (gpt_times){.forward = forward, .backward = gpt_seconds() - between};
        result = begin_step(r, step);
        if (result == 0 && !r->is_open)
            result = end_step(r);
    }
    if (result == 0 && r->is_open)
        result = end_step(r);
    r->stats->seconds = gpt_seconds() - r->start;
    free(inputs);
    return result;
}

/* Compute the mean loss over batches of a text that is not trained on. The batches are the same in each run. */
static int hold_out(const gpt_options *options, gpt_model *model, gpt_stats *stats)
{
    enum { BATCHES = 64, SEED = 1 };
    const size_t batch = options->shape.batch, context = options->shape.context;
    gpt_text text = {0};
    if (gpt_text_load(&options->held_out, 1, &text))
        return -1;
    uint8_t *inputs = malloc(2 * batch * context);
    int result = !inputs                 ? complain("no memory for a batch")
                 : text.count <= context ? complain("the text of --held-out is shorter than --context")
                                         : 0;
    for (size_t i = 0; result == 0 && i < BATCHES; i++) {
        gpt_text_batch(&text, SEED, i, batch, context, inputs, inputs + batch * context);
        stats->held_out_loss += gpt_model_forward(model, inputs, inputs + batch * context) / BATCHES;
    }
    if (result == 0 && options->print_every)
        printf("  loss on the text of --held-out: %.4f nat\n", stats->held_out_loss);
    free(inputs);
    gpt_text_free(&text);
    return result;
}

int main(int argc, char **argv)
{
    gpt_options options = {0};
    gpt_text text = {0};
    gpt_model model = {0};
    gpt_stats stats = {0};
    optimizer o = {0};
    gpt_saves saves = {0};
    int result = gpt_options_parse(argc, argv, &options);
    if (result)
        return result < 0 ? 2 : 0;
    if ((result = gpt_text_load(options.texts, options.text_count, &text)))
        goto free_options;
    if (text.count <= options.shape.context) {
        fprintf(stderr, "gpt: the text has %zu bytes; it needs more than --context %zu\n", text.count, options.shape.context);
        result = -1;
        goto free_text;
    }
    if (options.ranks || options.owned) {
        result = gpt_ranks_train(&options, &text);
        goto free_text;
    }
    const char *wrong = gpt_model_create(options.shape, &gpt_alone, options.bf16, options.seed, &model);
    if (wrong) {
        result = complain(wrong);
        goto free_text;
    }
    if ((result = gpt_stats_begin(options.steps, &stats)))
        goto destroy_model;
    if ((result = optimizer_open(&options, &model, &o)) || (result = gpt_saves_open(&options, &gpt_alone, o.engine, &saves)) ||
        (result = gpt_stats_opened(&stats, &model, o.engine)))
        goto close_optimizer;
    if (options.just_in_time)
        gpt_just_in_time_open(&o.hidden, o.engine, &model);
    run r = {.text = &text, .model = &model, .o = &o, .saves = &saves, .stats = &stats};
    if ((result = train(&r)) == 0 && (result = gpt_saves_close(&saves)) == 0) {
        if (options.print_every && stats.count)
            printf("  final loss %.4f nat; single bytes have %.4f\n", gpt_stats_final_loss(&stats), gpt_text_entropy(&text));
        result = options.held_out ? hold_out(&options, &model, &stats) : 0;
        if (options.json && result == 0)
            result = gpt_stats_write(&stats, &options, &model, &text);
    }
close_optimizer:
    (void)gpt_saves_close(&saves);
    optimizer_close(&o);
    gpt_stats_free(&stats);
destroy_model:
    gpt_model_destroy(&model);
free_text:
    gpt_text_free(&text);
free_options:
    gpt_options_free(&options);
    return result ? 1 : 0;
}
