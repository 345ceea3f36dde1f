/* SPDX-License-Identifier: Apache-2.0 */
/* step_model.c: the weights and gradients of a model, and an engine over them. */
#include "step_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

step_model step_model_open(size_t elements)
{
    const size_t bytes = elements * sizeof(uint16_t);
    step_model m = {.elements = elements, .weights = bench_array(bytes, true), .grads = bench_array(bytes, true)};
    bench_fill_bf16(m.weights, elements, 0, STEP_WEIGHT);
    bench_fill_bf16(m.grads, elements, 1, 0.01f);
    zoff_optimizer_hyper_init(&m.hyper, ZOFF_OPTIMIZER_ADAM);
    m.hyper.weight_decay = 0.01;
    return m;
}

static json_t *unless_zero(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : NULL;
}

/* Write the configuration as a user would. */
static char *write_config(const char *name, const step_engine_opts *opts, step_engine *e)
{
    json_t *folders = json_array();
    for (unsigned i = 0; i < 2 && opts->paths[i]; i++) {
        e->folder = bench_text("%s/%s", opts->paths[i], name);
        if (mkdir(e->folder, 0700) != 0 && errno != EEXIST)
            bench_die("cannot make a folder for %s: %s", name, strerror(errno));
        json_array_append_new(folders, json_string(e->folder));
    }
    json_t *weights =
        !opts->owned_in_files ? NULL : json_pack("{s:s, s:O, s:i}", "device", "nvme", "nvme_path", folders, "max_in_cpu", 0);
    json_t *zero = json_pack("{s:i, s:{s:s, s:O*}, s:o*, s:o*}", "stage", weights ? 3 : 1, "offload_optimizer", "device",
                             e->folder ? "nvme" : "cpu", "nvme_path", e->folder ? folders : NULL, "offload_param", weights,
                             "sub_group_size", unless_zero(opts->chunk_elements));
    json_t *own =
        json_pack("{s:b, s:o*, s:o*, s:o*, s:o*, s:s*, s:s, s:s}", "strict", 1, "host_memory", unless_zero(opts->host_bytes),
                  "persist", opts->persist ? json_true() : NULL, "background_threads", unless_zero(opts->background_threads),
                  "speculation_memory", unless_zero(opts->speculation_bytes), "verify", opts->unverified ? "off" : NULL,
                  "master", opts->split ? "split" : "fp32", "moments", opts->moments ? opts->moments : "fp32");
    json_t *root = json_pack("{s:i, s:{s:s, s:{s:f, s:f}}, s:o, s:o}", "gradient_clipping", 0, "optimizer", "type", "AdamW",
                             "params", "lr", 1e-3, "weight_decay", 0.01, "zero_optimization", zero, "zoff", own);
    char *text = json_dumps(root, 0);
    json_decref(root);
    json_decref(folders);
    return text;
}

static void read_numbers(const char *text, step_engine *e)
{
    zoff_config *config = NULL;
    if (bench_config(text, &config) != 0)
        bench_end(1);
    bench_must(zoff_config_resolve(config, 1));
    bench_must(zoff_config_number(config, "aio.block_size", &e->aio_block_bytes));
    bench_must(zoff_config_number(config, "aio.queue_depth", &e->aio_depth));
    zoff_config_close(config);
}

int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out)
{
    const size_t slices = opts->slices ? opts->slices : 1;
    uint16_t *weights = opts->split ? bench_array(m->elements * sizeof *weights, true) : m->weights;
    zoff_param_desc param = bench_param(weights, m->grads, m->elements / slices, slices, ZOFF_BF16);
    param.engine_owned = opts->owned;
    *out = (step_engine){.sample_steps = 1, .plan.struct_size = sizeof out->plan};
    char *text = write_config(name, opts, out);
    bench_fill_bf16(weights, m->elements, 0, STEP_WEIGHT);
    out->engine = bench_engine_try(text, (zoff_engine_opts){.threads = 0}, &param, 1);
    if (!out->engine && opts->persist)
        return -1;
    if (!out->engine)
        bench_end(1);
    bench_must(zoff_engine_plan(out->engine, &out->plan));
    read_numbers(text, out);
    free(text);
    return 0;
}

void step_engine_rest(const step_engine *e)
{
    while (zoff_engine_progress(e->engine) == ZOFF_PENDING)
        bench_sleep(2e-5);
}

void step_engine_step(void *engine, int which)
{
    step_engine *e = engine;
    zoff_step_info info = {.struct_size = sizeof info};
    e->steps++;
    bench_must(zoff_step(e->engine, NULL, &info));
    /* The last step of a sample has begun the reads of the next one. Wait for them: a sample counts all bytes of its steps, and
     * leaves the disk idle. */
    if (++e->in_sample >= e->sample_steps)
        step_engine_rest(e);
    e->in_sample %= e->sample_steps;
    e->read_bytes = info.bytes.nvme_read;
    e->write_bytes = info.bytes.nvme_written;
}
