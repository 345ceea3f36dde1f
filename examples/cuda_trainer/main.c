/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the training loop of a program with its own stream, device memory and passes. The code for zoff is between "zoff:
 * begin" and "zoff: end": an existing trainer has to add that. */
#include "check.h"
#include "data.h"
#include "footprint.h"
#include "gpu_hidden.h"
#include "gpu_lent.h"
#include "gpu_model.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int complain(const char *words)
{
    fprintf(stderr, "cuda_trainer: %s\n", words);
    return -1;
}

/* clang-format off */
/* zoff: begin */
#include <zoff/zoff.h>
typedef struct optimizer { zoff_accel *accel; zoff_engine *engine; cudaStream_t stream; zoff_status status; } optimizer;

static zoff_status optimizer_open(const trainer_options *options, const gpu_weights *w, optimizer *o)
{
    const gpt_tensor *t = w->tensor;
    zoff_param_desc p[GPT_TENSORS] = {0};
    for (int i = 0; i < GPT_TENSORS; i++)
        p[i] = (zoff_param_desc){.value = t[i].value, .grad = t[i].grad, .count = t[i].count, .slices = t[i].slices,
                                 .dtype = ZOFF_BF16, .name = t[i].name, .dims = t[i].dims, .dim_count = t[i].dim_count,
                                 .slice_name = t[i].slice_name, .engine_owned = w->lent};
    zoff_status status = zoff_accel_open(options->accel, options->device, &o->accel);
    zoff_engine_opts opts = {.struct_size = sizeof opts, .config = options->config, .accel = o->accel};
    return status < 0 ? status : zoff_engine_open(&opts, p, GPT_TENSORS, &o->engine); /* reads the weights */
}
static void gradient_is_ready(void *ctx, int tensor, size_t slice) /* the gradient's kernels are in the stream */
{
    optimizer *o = ctx;
    o->status = o->status < 0 ? o->status : zoff_grad_ready(o->engine, (zoff_param)tensor, slice, o->stream);
}
static int optimizer_step(const optimizer *o, zoff_step_info *info) /* returns when the new weights are on the device */
{
    return o->status < 0 || zoff_step_begin(o->engine, NULL) < 0 || zoff_step_wait(o->engine, info) < 0 ? -1 : 0;
}
/* zoff: end */
/* clang-format on */

/* Totals of the link and the library, over all steps. */
typedef struct totals {
    double down_bytes, up_bytes, step_seconds, seconds;
    unsigned long long buckets, ahead, again; /* buckets that were updated; before their step; and once more in it */
    footprint memory;
} totals;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A run, and the step whose gradients were handed over last. */
typedef struct trainer_run {
    const trainer_options *options;
    gpu_model *model;
    optimizer *o;
    totals *sum;
    size_t step; /* number of the step, from 1 */
    double loss;
    zoff_step_info info;
    bool is_open; /* the step is not over, with --just-in-time */
} trainer_run;

static int begin_step(trainer_run *r, size_t step)
{
    r->info = (zoff_step_info){.struct_size = sizeof r->info};
    r->step = step;
    r->is_open = r->options->just_in_time;
    if (!r->is_open)
        return optimizer_step(r->o, &r->info);
    r->loss = gpu_model_loss(r->model); /* read the loss before the next forward pass replaces it */
    return r->o->status < 0 ? -1 : gpu_hidden_begin(r->o->engine);
}

static int end_step(trainer_run *r)
{
    const zoff_step_info *info = &r->info;
    if (r->is_open && gpu_hidden_end(r->o->engine, &r->info) < 0)
        return -1;
    if (footprint_look(r->o->engine, r->o->accel, &r->sum->memory) < 0)
        return -1;
    r->loss = r->is_open ? r->loss : gpu_model_loss(r->model);
    r->is_open = false;
    printf("  step %4zu/%zu  loss %.9f  norm %.9f%s\n", r->step, r->options->steps, r->loss, info->numbers.grad_norm,
           info->skipped ? "  skipped: not finite" : "");
    fflush(stdout);
    r->sum->down_bytes += (double)info->bytes.device_read;
    r->sum->up_bytes += (double)info->bytes.device_written;
    r->sum->step_seconds += info->seconds.visible;
    r->sum->buckets += info->buckets.all;
    r->sum->ahead += info->buckets.speculated;
    r->sum->again += info->buckets.redone;
    return 0;
}

static int train(const gpt_text *text, trainer_run *r)
{
    const gpt_shape s = r->options->shape;
    uint8_t *inputs = malloc(2 * s.batch * s.context), *targets = inputs + s.batch * s.context;
    if (!inputs)
        return complain("no memory for a batch");
    int result = footprint_look(r->o->engine, r->o->accel, &r->sum->memory) < 0 ? -1 : 0;
    const double start = now();
    for (size_t step = 0; step < r->options->steps && result == 0; step++) {
        gpt_text_batch(text, r->options->seed, step, s.batch, s.context, inputs, targets);
        gpu_model_forward(r->model, inputs, targets); /* this pass runs beside the step before it, if that is open */
        result = r->is_open ? end_step(r) : 0;
        if (result == 0) {
            gpu_model_backward(r->model, gradient_is_ready, r->o);
            result = begin_step(r, step + 1);
        }
        if (result == 0 && !r->is_open)
            result = end_step(r);
    }
    if (result == 0 && r->is_open)
        result = end_step(r);
    if (result < 0)
        complain(zoff_last_error());
    r->sum->seconds = now() - start;
    free(inputs);
    return result;
}

static void report(const trainer_options *options, gpu_model *model, const totals *sum)
{
    const double steps = (double)options->steps, parameters = (double)model->weights->parameter_count;
    const double tokens = steps * (double)(options->shape.batch * options->shape.context);
    printf("  %zu parameters; over the link in a step: %.3f bytes of each down, %.3f up\n", model->weights->parameter_count,
           sum->down_bytes / steps / parameters, sum->up_bytes / steps / parameters);
    /* The passes still run when the step begins, so most of their time counts as time of the step. */
    printf("  %.6f s a step, %.6f of them in calls from zoff_step_begin() to zoff_step_wait(); %.0f tokens/s\n",
           sum->seconds / steps, sum->step_seconds / steps, tokens / sum->seconds);
    if (sum->ahead)
        printf("  %llu of %llu buckets were updated before the norm was known, %llu of them again\n", sum->ahead, sum->buckets,
               sum->again);
    const footprint *f = &sum->memory;
    printf("  device memory of the library: %llu bytes planned; %llu at first, %llu at most after a step\n",
           (unsigned long long)f->planned, (unsigned long long)f->sealed, (unsigned long long)f->most);
    printf("  weights %016llx\n", (unsigned long long)gpu_model_hash(model));
}

/* Run the training. Where weights and gradients are is decided here. */
static int run(const trainer_options *options, const gpt_text *text, gpu_first *first, optimizer *o)
{
    gpu_model model = {0};
    totals sum = {0};
    gpu_weights *weights = options->lent ? gpu_lent_open(first, &o->engine, o->stream) : gpu_resident_open(first, o->stream);
    if (options->just_in_time)
        weights = gpu_hidden_open(weights, &o->engine, o->stream);
    if (!weights) {
        gpu_first_destroy(first);
        return complain("no memory for the table of tensors");
    }
    gpu_model_create(options->shape, weights, o->stream, &model);
    int result = optimizer_open(options, weights, o) < 0 ? complain(zoff_last_error()) : 0;
    gpu_first_destroy(first); /* the optimizer has read the weights */
    trainer_run r = {.options = options, .model = &model, .o = o, .sum = &sum};
    if (result == 0 && (result = train(text, &r)) == 0)
        report(options, &model, &sum);
    CUDA(cudaStreamSynchronize(o->stream)); /* after an error kernels may still use what is lent */
    /* zoff: begin */
    zoff_engine_destroy(o->engine);
    zoff_accel_close(o->accel);
    /* zoff: end */
    gpu_model_destroy(&model);
    weights->close(weights);
    return result;
}

int main(int argc, char **argv)
{
    trainer_options options = {0};
    gpt_text text = {0};
    gpu_first first = {0};
    optimizer o = {0};
    int result = trainer_options_parse(argc, argv, &options);
    if (result)
        return result < 0 ? 2 : 0;
    if (gpt_text_load(&options.data, 1, &text))
        return 1;
    if (text.count <= options.shape.context) {
        result = complain("the text is not longer than --context");
        goto free_text;
    }
    if ((result = trainer_settings_open(&options)) < 0)
        goto free_text;
    CUDA(cudaSetDevice(options.device));
    CUDA(cudaStreamCreateWithFlags(&o.stream, cudaStreamNonBlocking));
    const char *wrong = gpu_first_create(options.shape, options.seed, &first);
    result = wrong ? complain(wrong) : run(&options, &text, &first, &o);
    CUDA(cudaStreamDestroy(o.stream));
    trainer_settings_close(&options);
free_text:
    gpt_text_free(&text);
    return result ? 1 : 0;
}
