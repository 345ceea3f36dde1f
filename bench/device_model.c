/* device_model.c: a list of parameters like a transformer's, on a device and on the host, and an engine over each. Both have
 * the same states and take the same step; that of the host has no way to go, so its step is the update alone. */
#include "device_bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG[] = "{\"gradient_clipping\": 1.0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-5, "
                             "\"weight_decay\": 0.01}}, \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": "
                             "{\"device\": \"cpu\"}}, \"zoff\": {\"strict\": true}}";

static const size_t MANY = 4000000000u; /* elements from which a model has more layers */
enum { LAYERS = 24, MANY_LAYERS = 48, ALIGN = 256, EMBEDDING = 0, ELEMENT = sizeof(uint16_t) };

static int told(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "device: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

static int no_memory(const char *what)
{
    fprintf(stderr, "device: no memory for %s: %s; ask for fewer with --elements\n", what, strerror(errno));
    return -1;
}

double device_model_host_bytes(size_t elements)
{
    /* States twice; weights and gradients of the host; gradients from the device; windows and what aligns. */
    return (double)elements * (2 * 12 + 2 + 2 + 2 + 0.5);
}

/* ---- the list ---- */

/* Matrices of a layer are 12 width^2 elements, its vectors 13 width; what a whole number of layers leaves is the embedding. */
static size_t layer_elements(size_t width)
{
    return 12 * width * width + 13 * width;
}

static void make_list(device_model *m, size_t elements)
{
    m->elements = elements;
    m->layers = elements < MANY ? LAYERS : MANY_LAYERS;
    m->width = (size_t)sqrt(0.9 * (double)elements / (12.0 * (double)m->layers)) / 8 * 8;
    const size_t square = m->width * m->width;
    const struct {
        const char *name;
        size_t count, slices;
    } LIST[DEVICE_PARAMS] = {{"embedding", elements - m->layers * layer_elements(m->width), 1},
                             {"qkv", 3 * square, m->layers},
                             {"projection", square, m->layers},
                             {"up", 4 * square, m->layers},
                             {"down", 4 * square, m->layers},
                             {"vectors", 13 * m->width, m->layers}};
    size_t at = 0;
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        m->params[p] = (zoff_param_desc){.struct_size = sizeof(zoff_param_desc),
                                         .count = LIST[p].count,
                                         .slices = LIST[p].slices,
                                         .dtype = ZOFF_BF16,
                                         .name = LIST[p].name};
        m->firsts[p] = at;
        at += (LIST[p].count * LIST[p].slices + ALIGN - 1) / ALIGN * ALIGN;
        m->slices += LIST[p].slices;
    }
    m->bytes = at * ELEMENT;
}

/* The last layer first, the embedding at the end, as a backward pass goes. */
static int make_order(device_model *m)
{
    size_t count = 0;
    m->backward = calloc(m->slices, sizeof *m->backward);
    m->down = calloc(m->slices, sizeof *m->down);
    m->up = calloc(m->slices, sizeof *m->up);
    if (!m->backward || !m->down || !m->up)
        return no_memory("a list of slices");
    for (size_t layer = m->layers; layer-- > 0;) {
        for (unsigned p = DEVICE_PARAMS; --p > EMBEDDING;)
            m->backward[count++] = (device_slice){.param = p, .slice = layer, .begins_layer = p == DEVICE_PARAMS - 1};
    }
    m->backward[count] = (device_slice){.param = EMBEDDING, .begins_layer = true};
    for (size_t i = 0; i < m->slices; i++) {
        const device_slice *s = &m->backward[i];
        const size_t bytes = m->params[s->param].count * ELEMENT, at = m->firsts[s->param] * ELEMENT + s->slice * bytes;
        m->down[i] = (device_move){m->grads + at, (char *)m->device_grads + at, bytes};
        m->up[i] = (device_move){(char *)m->device_weights + at, m->weights + at, bytes};
    }
    return 0;
}

/* ---- memory ---- */

static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Between -size and size, of both signs, another for each element. */
static void fill(char *memory, size_t bytes, float size)
{
    uint16_t *out = (uint16_t *)(void *)memory;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < bytes / ELEMENT; i++)
        out[i] = bf16(size * (float)(int32_t)((uint32_t)i * 2654435761u) / 2147483648.0f);
}

static int make_memory(device_model *m)
{
    if (bench_streams_open(2 * m->bytes, 2, &m->mapping) != 0)
        return no_memory("weights and gradients on the host");
    m->weights = bench_streams_take(&m->mapping, m->bytes);
    m->grads = bench_streams_take(&m->mapping, m->bytes);
    fill(m->weights, m->bytes, 0.02f);
    fill(m->grads, m->bytes, 0.01f);
    if (device_copies_pin(m->accel, m->weights, m->bytes) != 0)
        return -1;
    m->pinned++;
    if (device_copies_pin(m->accel, m->grads, m->bytes) != 0)
        return -1;
    m->pinned++;
    return device_copies_alloc(m->accel, m->bytes, &m->device_weights) == 0 &&
                   device_copies_alloc(m->accel, m->bytes, &m->device_grads) == 0
               ? 0
               : -1;
}

static int fill_device(device_model *m)
{
    const device_move moves[] = {{m->device_weights, m->weights, m->bytes}, {m->device_grads, m->grads, m->bytes}};
    if (device_copies_put(m->accel, m->streams[0], moves, 2) != 0)
        return -1;
    return told(zoff_accel_stream_wait(m->accel, m->streams[0]));
}

/* ---- engines ---- */

static int make_engine(const device_model *m, const zoff_config *config, bool on_device, zoff_engine **out)
{
    char *const weights = on_device ? m->device_weights : m->weights, *const grads = on_device ? m->device_grads : m->grads;
    const zoff_engine_opts opts = {
        .struct_size = sizeof opts, .config = (zoff_config *)config, .accel = on_device ? m->accel : NULL};
    if (told(zoff_engine_create(&opts, out)) != 0)
        return -1;
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        zoff_param_desc desc = m->params[p];
        desc.value = weights + m->firsts[p] * ELEMENT;
        desc.grad = grads + m->firsts[p] * ELEMENT;
        if (told(zoff_engine_add_param(*out, &desc, NULL)) != 0)
            return -1;
    }
    return told(zoff_engine_seal(*out));
}

static int make_engines(device_model *m)
{
    zoff_config *config = NULL;
    if (told(zoff_config_parse(CONFIG, sizeof CONFIG - 1, "the benchmark's configuration", &config)) != 0)
        return -1;
    int ret = make_engine(m, config, true, &m->engine);
    if (ret == 0)
        ret = make_engine(m, config, false, &m->host_engine);
    zoff_config_close(config);
    return ret;
}

int device_model_open(const device_options *options, zoff_accel *accel, device_model *out)
{
    *out = (device_model){.accel = accel};
    make_list(out, options->elements);
    if (told(zoff_accel_stream_open(accel, &out->trainer)) != 0 || told(zoff_accel_stream_open(accel, &out->streams[0])) != 0 ||
        told(zoff_accel_stream_open(accel, &out->streams[1])) != 0)
        return -1;
    if (make_memory(out) != 0 || make_order(out) != 0 || fill_device(out) != 0)
        return -1;
    return make_engines(out);
}

/* Streams and engines first: what is in them uses the rest. */
void device_model_close(device_model *m)
{
    zoff_engine_destroy(m->engine);
    zoff_engine_destroy(m->host_engine);
    zoff_accel_stream_close(m->accel, m->trainer);
    zoff_accel_stream_close(m->accel, m->streams[0]);
    zoff_accel_stream_close(m->accel, m->streams[1]);
    device_copies_free(m->accel, m->device_weights);
    device_copies_free(m->accel, m->device_grads);
    if (m->pinned > 0)
        device_copies_unpin(m->accel, m->weights);
    if (m->pinned > 1)
        device_copies_unpin(m->accel, m->grads);
    bench_streams_close(&m->mapping);
    free(m->backward);
    free(m->down);
    free(m->up);
    *m = (device_model){.accel = NULL};
}
