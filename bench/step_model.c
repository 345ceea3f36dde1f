/* step_model.c: the weights and gradients of a model, and an engine over them. */
#include "step_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int step_model_open(size_t elements, step_model *out)
{
    *out = (step_model){.elements = elements};
    if (bench_streams_open(2 * elements * sizeof(uint16_t), 2, true, &out->mapping) != 0)
        return -1;
    out->weights = bench_streams_take(&out->mapping, elements * sizeof(uint16_t));
    out->grads = bench_streams_take(&out->mapping, elements * sizeof(uint16_t));
    bench_fill_bf16(out->weights, elements, 0, STEP_WEIGHT);
    bench_fill_bf16(out->grads, elements, 1, 0.01f);
    zoff_adam_hyper_init(&out->hyper);
    out->hyper.weight_decay = 0.01;
    return 0;
}

/* The configuration as a user would write it; NULL with a reason when a folder cannot be made. */
static char *write_config(const char *name, const step_engine_opts *opts, step_engine *e)
{
    json_t *folders = json_array(), *offload = json_pack("{s:s}", "device", opts->path_count ? "nvme" : "cpu");
    json_t *zero = json_pack("{s:i, s:o}", "stage", 1, "offload_optimizer", offload), *own = json_pack("{s:b}", "strict", 1);
    for (unsigned i = 0; i < opts->path_count; i++) {
        const int length = snprintf(e->folder, sizeof e->folder, "%s/%s", opts->paths[i], name);
        if (length < 0 || (size_t)length >= sizeof e->folder || (mkdir(e->folder, 0700) != 0 && errno != EEXIST))
            snprintf(e->reason, sizeof e->reason, "cannot make a folder in %.150s: %s", opts->paths[i], strerror(errno));
        json_array_append_new(folders, json_string(e->folder));
    }
    if (opts->path_count)
        json_object_set(offload, "nvme_path", folders);
    if (opts->chunk_elements)
        json_object_set_new(zero, "sub_group_size", json_integer((json_int_t)opts->chunk_elements));
    if (opts->host_bytes)
        json_object_set_new(own, "host_memory", json_integer((json_int_t)opts->host_bytes));
    if (opts->persist)
        json_object_set_new(own, "persist", json_true());
    if (opts->unverified)
        json_object_set_new(own, "verify", json_string("off"));
    json_t *root = json_pack("{s:i, s:{s:s, s:{s:f, s:f}}, s:o, s:o}", "gradient_clipping", 0, "optimizer", "type", "AdamW",
                             "params", "lr", 1e-3, "weight_decay", 0.01, "zero_optimization", zero, "zoff", own);
    char *text = e->reason[0] ? NULL : json_dumps(root, 0);
    json_decref(root);
    json_decref(folders);
    return text;
}

static bool make_engine(const step_model *m, const char *text, zoff_config **config, step_engine *e)
{
    const zoff_param_desc param = {.struct_size = sizeof param,
                                   .value = m->weights,
                                   .grad = m->grads,
                                   .count = m->elements,
                                   .dtype = ZOFF_BF16,
                                   .name = "weights"};
    zoff_engine_opts opts = {.struct_size = sizeof opts};
    e->plan.struct_size = sizeof e->plan;
    if (zoff_config_parse(text, strlen(text), "the benchmark's configuration", config) != ZOFF_OK)
        return false;
    opts.config = *config;
    return zoff_engine_create(&opts, &e->engine) == ZOFF_OK && zoff_engine_add_param(e->engine, &param, &e->param) == ZOFF_OK &&
           zoff_engine_plan(e->engine, &e->plan) == ZOFF_OK && zoff_engine_seal(e->engine) == ZOFF_OK &&
           zoff_config_number(*config, "aio.block_size", &e->aio_block_bytes) == ZOFF_OK &&
           zoff_config_number(*config, "aio.queue_depth", &e->aio_depth) == ZOFF_OK;
}

int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out)
{
    zoff_config *config = NULL;
    *out = (step_engine){.sample_steps = 1};
    char *text = write_config(name, opts, out);
    if (!text)
        return -1;
    bench_fill_bf16(m->weights, m->elements, 0, STEP_WEIGHT);
    const bool made = make_engine(m, text, &config, out);
    if (!made) {
        snprintf(out->reason, sizeof out->reason, "%s", zoff_last_error());
        zoff_engine_destroy(out->engine);
        out->engine = NULL;
    }
    zoff_config_close(config);
    free(text);
    return made ? 0 : -1;
}

int step_engine_step(void *engine, int which)
{
    step_engine *e = engine;
    zoff_step_info info = {.struct_size = sizeof info};
    (void)which;
    e->steps++;
    if (bench_told(zoff_step(e->engine, NULL, &info)) != 0)
        return -1;
    /* What the next step begins with is read already. That counts, too: a sample moves all bytes of its steps, and leaves the
     * disk alone when it is over. */
    while (++e->in_sample >= e->sample_steps && zoff_engine_progress(e->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    e->in_sample %= e->sample_steps;
    e->read_bytes = info.nvme_read_bytes;
    e->write_bytes = info.nvme_write_bytes;
    return 0;
}

void step_engine_close(step_engine *e)
{
    zoff_engine_destroy(e->engine);
    e->engine = NULL;
}
