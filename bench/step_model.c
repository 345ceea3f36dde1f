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
    zoff_optimizer_hyper_init(&out->hyper, ZOFF_OPTIMIZER_ADAM);
    out->hyper.weight_decay = 0.01;
    return 0;
}

static json_t *unless_zero(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : NULL;
}

/* Write the configuration as a user would; NULL with errno if a folder cannot be created. */
static char *write_config(const char *name, const step_engine_opts *opts, step_engine *e)
{
    json_t *folders = json_array();
    bool made = true;
    for (unsigned i = 0; i < opts->path_count && made; i++) {
        made = snprintf(e->folder, sizeof e->folder, "%s/%s", opts->paths[i], name) < DISK_PATH &&
               (mkdir(e->folder, 0700) == 0 || errno == EEXIST);
        json_array_append_new(folders, json_string(e->folder));
    }
    json_t *weights =
        !opts->owned_in_files ? NULL : json_pack("{s:s, s:O, s:i}", "device", "nvme", "nvme_path", folders, "max_in_cpu", 0);
    json_t *zero = json_pack("{s:i, s:{s:s, s:O*}, s:o*, s:o*}", "stage", weights ? 3 : 1, "offload_optimizer", "device",
                             opts->path_count ? "nvme" : "cpu", "nvme_path", opts->path_count ? folders : NULL, "offload_param",
                             weights, "sub_group_size", unless_zero(opts->chunk_elements));
    json_t *own =
        json_pack("{s:b, s:o*, s:o*, s:o*, s:o*, s:s*, s:s, s:s}", "strict", 1, "host_memory", unless_zero(opts->host_bytes),
                  "persist", opts->persist ? json_true() : NULL, "background_threads", unless_zero(opts->background_threads),
                  "speculation_memory", unless_zero(opts->speculation_bytes), "verify", opts->unverified ? "off" : NULL,
                  "master", opts->split ? "split" : "fp32", "moments", opts->moments ? opts->moments : "fp32");
    json_t *root = json_pack("{s:i, s:{s:s, s:{s:f, s:f}}, s:o, s:o}", "gradient_clipping", 0, "optimizer", "type", "AdamW",
                             "params", "lr", 1e-3, "weight_decay", 0.01, "zero_optimization", zero, "zoff", own);
    char *text = made ? json_dumps(root, 0) : NULL;
    json_decref(root);
    json_decref(folders);
    return text;
}

static int read_numbers(const char *text, step_engine *e)
{
    zoff_config *config = NULL;
    const int ret = bench_config(text, &config) != 0 || bench_told(zoff_config_resolve(config, 1)) != 0 ||
                            bench_told(zoff_config_number(config, "aio.block_size", &e->aio_block_bytes)) != 0 ||
                            bench_told(zoff_config_number(config, "aio.queue_depth", &e->aio_depth)) != 0
                        ? -1
                        : 0;
    zoff_config_close(config);
    return ret;
}

int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out)
{
    *out = (step_engine){.sample_steps = 1, .plan.struct_size = sizeof out->plan};
    if (opts->split && bench_streams_open(m->elements * sizeof(uint16_t), 1, true, &out->weights) != 0)
        return -1;
    const size_t slices = opts->slices ? opts->slices : 1;
    uint16_t *weights = opts->split ? bench_streams_take(&out->weights, m->elements * sizeof(uint16_t)) : m->weights;
    zoff_param_desc param = bench_param(weights, m->grads, m->elements / slices, slices, ZOFF_BF16);
    param.engine_owned = opts->owned;
    char *text = write_config(name, opts, out);
    if (!text)
        return bench_fail("cannot make a folder for %s: %s", name, strerror(errno));
    bench_fill_bf16(weights, m->elements, 0, STEP_WEIGHT);
    int ret = bench_engine_open(text, (zoff_engine_opts){.threads = 0}, &param, 1, &out->engine);
    if (ret == 0)
        ret = bench_told(zoff_engine_plan(out->engine, &out->plan));
    if (ret == 0)
        ret = read_numbers(text, out);
    free(text);
    return ret;
}

void step_engine_rest(const step_engine *e)
{
    while (zoff_engine_progress(e->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int step_engine_step(void *engine, int which)
{
    step_engine *e = engine;
    zoff_step_info info = {.struct_size = sizeof info};
    e->steps++;
    if (bench_told(zoff_step(e->engine, NULL, &info)) != 0)
        return -1;
    /* The last step of a sample has begun the reads of the next one. Wait for them: a sample counts all bytes of its steps, and
     * leaves the disk idle. */
    if (++e->in_sample >= e->sample_steps)
        step_engine_rest(e);
    e->in_sample %= e->sample_steps;
    e->read_bytes = info.bytes.nvme_read;
    e->write_bytes = info.bytes.nvme_written;
    return 0;
}

void step_engine_close(step_engine *e)
{
    zoff_engine_destroy(e->engine);
    e->engine = NULL;
    bench_streams_close(&e->weights);
}
