/* step_model.c: the weights and gradients of a model, and an engine over them. */
#include "step_bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Between -size and size, of both signs, another for each element. */
static float value(size_t i, float size)
{
    return size * (float)(int32_t)((uint32_t)i * 2654435761u) / 2147483648.0f;
}

static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float step_model_weight(size_t i)
{
    const uint32_t bits = (uint32_t)bf16(value(i, 0.02f)) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void step_model_reset(const step_model *m)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < m->elements; i++)
        m->weights[i] = bf16(value(i, 0.02f));
}

int step_model_open(size_t elements, step_model *out)
{
    *out = (step_model){.elements = elements};
    if (bench_streams_open(2 * elements * sizeof(uint16_t), 2, &out->mapping) != 0) {
        fprintf(stderr, "step: no memory for %zu weights and gradients: %s; ask for fewer with --elements\n", elements,
                strerror(errno));
        return -1;
    }
    out->weights = bench_streams_take(&out->mapping, elements * sizeof(uint16_t));
    out->grads = bench_streams_take(&out->mapping, elements * sizeof(uint16_t));
    step_model_reset(out);
    uint16_t *const grads = out->grads;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < elements; i++)
        grads[i] = bf16(value(i + 1, 0.01f));
    zoff_adam_hyper_init(&out->hyper);
    out->hyper.weight_decay = 0.01;
    return 0;
}

void step_model_close(step_model *m)
{
    bench_streams_close(&m->mapping);
    *m = (step_model){0};
}

static void append(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* The configuration as a user would write it. 0, or -1 when a folder cannot be made. */
static int write_config(const char *name, const step_engine_opts *opts, step_engine *e, char *text, size_t bytes)
{
    snprintf(
        text, bytes,
        "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.01}}, "
        "\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {");
    append(text, bytes, "\"device\": \"%s\"", opts->paths ? "nvme" : "cpu");
    for (unsigned i = 0; opts->paths && i < opts->path_count; i++) {
        const int length = snprintf(e->folder, sizeof e->folder, "%s/%s", opts->paths[i], name);
        if (length < 0 || (size_t)length >= sizeof e->folder || (mkdir(e->folder, 0700) != 0 && errno != EEXIST)) {
            snprintf(e->reason, sizeof e->reason, "cannot make a folder in %.150s: %s", opts->paths[i], strerror(errno));
            return -1;
        }
        append(text, bytes, "%s\"%s\"", i ? ", " : ", \"nvme_path\": [", e->folder);
    }
    append(text, bytes, "%s}", opts->paths ? "]" : "");
    if (opts->chunk_elements)
        append(text, bytes, ", \"sub_group_size\": %zu", opts->chunk_elements);
    append(text, bytes, "}, \"zoff\": {\"strict\": true");
    if (opts->host_bytes)
        append(text, bytes, ", \"host_memory\": %llu", (unsigned long long)opts->host_bytes);
    if (opts->persist)
        append(text, bytes, ", \"persist\": true");
    if (opts->unverified)
        append(text, bytes, ", \"verify\": \"off\"");
    append(text, bytes, "}}");
    return 0;
}

static int seal(const step_model *m, zoff_config *config, step_engine *e)
{
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config};
    const zoff_param_desc param = {.struct_size = sizeof param,
                                   .value = m->weights,
                                   .grad = m->grads,
                                   .count = m->elements,
                                   .dtype = ZOFF_BF16,
                                   .name = "weights"};
    double block = 0, depth = 0;
    e->plan.struct_size = sizeof e->plan;
    if (zoff_engine_create(&opts, &e->engine) != ZOFF_OK || zoff_engine_add_param(e->engine, &param, &e->param) != ZOFF_OK ||
        zoff_engine_plan(e->engine, &e->plan) != ZOFF_OK || zoff_engine_seal(e->engine) != ZOFF_OK ||
        zoff_config_number(config, "aio.block_size", &block) != ZOFF_OK ||
        zoff_config_number(config, "aio.queue_depth", &depth) != ZOFF_OK)
        return -1;
    e->aio_block_bytes = (size_t)block;
    e->aio_depth = (unsigned)depth;
    return 0;
}

int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out)
{
    char text[4 * STEP_PATH];
    zoff_config *config = NULL;
    *out = (step_engine){.sample_steps = 1};
    if (write_config(name, opts, out, text, sizeof text) != 0)
        return -1;
    step_model_reset(m);
    int ret = zoff_config_parse(text, strlen(text), "the benchmark's configuration", &config) == ZOFF_OK ? 0 : -1;
    if (ret == 0)
        ret = seal(m, config, out);
    if (ret != 0) {
        snprintf(out->reason, sizeof out->reason, "%s", zoff_last_error());
        zoff_engine_destroy(out->engine);
        out->engine = NULL;
    }
    zoff_config_close(config);
    return ret;
}

void step_engine_step(void *engine)
{
    step_engine *e = engine;
    zoff_step_info info = {.struct_size = sizeof info};
    if (e->failed)
        return;
    e->steps++;
    if (zoff_step(e->engine, NULL, &info) != ZOFF_OK) {
        e->failed = true;
        fprintf(stderr, "step: %s\n", zoff_last_error());
    }
    /* What the next step begins with is read already. That counts, too: a sample moves all bytes of its steps, and leaves the
     * disk alone when it is over. */
    while (++e->in_sample >= e->sample_steps && !e->failed && zoff_engine_progress(e->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    e->in_sample %= e->sample_steps;
    e->read_bytes = info.nvme_read_bytes;
    e->write_bytes = info.nvme_write_bytes;
    e->io_wait_seconds = info.io_wait_seconds;
    e->update_seconds = info.update_seconds;
    e->measure_seconds = info.measure_seconds;
    e->check_seconds = info.check_seconds;
}

void step_engine_close(step_engine *e)
{
    zoff_engine_destroy(e->engine);
    *e = (step_engine){0};
}

static int read_states(void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    const step_engine *e = ctx;
    if (zoff_state_read(e->engine, e->param, kind, first, count, dst) == ZOFF_OK)
        return 0;
    fprintf(stderr, "step: %s\n", zoff_last_error());
    return -1;
}

static void close_engine(void *ctx)
{
    step_engine_close(ctx);
}

step_states step_engine_states(const char *name, step_engine *e)
{
    return (step_states){.name = name,
                         .ctx = e,
                         .step = step_engine_step,
                         .read = read_states,
                         .close = close_engine,
                         .steps = &e->steps,
                         .failed = &e->failed};
}
