/* device_model.c: a list of parameters like a transformer's, on a device and on the host, and an engine over each. Both have
 * the same states and take the same step. The host's engine copies nothing, so its step is the update alone. */
#include "device_bench.h"

#include <math.h>
#include <stdlib.h>

static const char CONFIG[] = "{\"gradient_clipping\": 1.0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-5, "
                             "\"weight_decay\": 0.01}}, \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": "
                             "{\"device\": \"cpu\"}}, \"zoff\": {\"strict\": true}}";

static const size_t MANY = 4000000000u; /* elements from which a model has more layers */
enum { LAYERS = 24, MANY_LAYERS = 48, ALIGN = 512, EMBEDDING = 0, ELEMENT = sizeof(uint16_t) };

/* A layer has 12 width^2 elements in matrices and 13 width in vectors. The remainder of the elements is the embedding. */
static void make_list(device_model *m, size_t elements)
{
    m->elements = elements;
    m->layers = elements < MANY ? LAYERS : MANY_LAYERS;
    m->width = (size_t)sqrt(0.9 * (double)elements / (12.0 * (double)m->layers)) / 8 * 8;
    const size_t square = m->width * m->width, layer = 12 * square + 13 * m->width;
    const struct {
        const char *name;
        size_t count, slices;
    } LIST[DEVICE_PARAMS] = {{"embedding", elements - m->layers * layer, 1},
                             {"qkv", 3 * square, m->layers},
                             {"projection", square, m->layers},
                             {"up", 4 * square, m->layers},
                             {"down", 4 * square, m->layers},
                             {"vectors", 13 * m->width, m->layers}};
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        m->params[p] = bench_param(NULL, NULL, LIST[p].count, LIST[p].slices, ZOFF_BF16);
        m->params[p].name = LIST[p].name;
        m->firsts[p] = m->bytes;
        m->bytes += (LIST[p].count * LIST[p].slices * ELEMENT + ALIGN - 1) / ALIGN * ALIGN;
        m->slices += LIST[p].slices;
    }
}

static void add_slice(const device_model *m, device_slice *out, unsigned param, size_t slice, bool begins_layer)
{
    const size_t bytes = m->params[param].count * ELEMENT, at = m->firsts[param] + slice * bytes;
    *out = (device_slice){.param = param,
                          .slice = slice,
                          .begins_layer = begins_layer,
                          .moves = {[DOWN] = {m->host[GRADS] + at, m->device[GRADS] + at, bytes},
                                    [UP] = {m->device[WEIGHTS] + at, m->host[WEIGHTS] + at, bytes}}};
}

/* The order of a backward pass: the last layer first, the embedding at the end. */
static int make_order(device_model *m)
{
    size_t count = 0;
    m->backward = calloc(m->slices, sizeof *m->backward);
    if (!m->backward)
        return bench_fail("no memory for a list of slices");
    for (size_t layer = m->layers; layer-- > 0;) {
        for (unsigned p = DEVICE_PARAMS; --p > EMBEDDING;)
            add_slice(m, &m->backward[count++], p, layer, p == DEVICE_PARAMS - 1);
    }
    add_slice(m, &m->backward[count], EMBEDDING, 0, true);
    return 0;
}

static int make_memory(device_model *m)
{
    if (bench_streams_open(2 * m->bytes, 2, true, &m->mapping) != 0)
        return -1;
    for (unsigned i = WEIGHTS; i <= GRADS; i++) {
        m->host[i] = bench_streams_take(&m->mapping, m->bytes);
        bench_fill_bf16((uint16_t *)(void *)m->host[i], m->bytes / ELEMENT, i, i == GRADS ? 0.01f : 0.02f);
        m->pinned[i] = device_copies_pin(m->accel, m->host[i], m->bytes) == 0;
        if (!m->pinned[i] || device_copies_alloc(m->accel, m->bytes, &m->device[i]) != 0)
            return -1;
        const device_move move = {m->device[i], m->host[i], m->bytes};
        if (device_copies_put(m->accel, m->streams[0], &move) != 0)
            return -1;
    }
    return bench_told(zoff_accel_stream_wait(m->accel, m->streams[0]));
}

static int make_engine(const device_model *m, zoff_accel *accel, char *const memory[2], zoff_engine **out)
{
    zoff_param_desc params[DEVICE_PARAMS];
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        params[p] = m->params[p];
        params[p].value = memory[WEIGHTS] + m->firsts[p];
        params[p].grad = memory[GRADS] + m->firsts[p];
    }
    return bench_engine_open(CONFIG, (zoff_engine_opts){.accel = accel}, params, DEVICE_PARAMS, out);
}

int device_model_open(size_t elements, zoff_accel *accel, device_model *out)
{
    *out = (device_model){.accel = accel};
    make_list(out, elements);
    if (bench_told(zoff_accel_stream_open(accel, &out->trainer)) != 0 ||
        bench_told(zoff_accel_stream_open(accel, &out->streams[0])) != 0 ||
        bench_told(zoff_accel_stream_open(accel, &out->streams[1])) != 0 || make_memory(out) != 0 || make_order(out) != 0)
        return -1;
    const int ret = make_engine(out, accel, out->device, &out->engine);
    return ret == 0 ? make_engine(out, NULL, out->host, &out->host_engine) : ret;
}

/* Close streams and engines first: their work uses the memory. */
void device_model_close(device_model *m)
{
    zoff_engine_destroy(m->engine);
    zoff_engine_destroy(m->host_engine);
    zoff_accel_stream_close(m->accel, m->trainer);
    zoff_accel_stream_close(m->accel, m->streams[0]);
    zoff_accel_stream_close(m->accel, m->streams[1]);
    for (unsigned i = WEIGHTS; i <= GRADS; i++) {
        device_copies_free(m->accel, m->device[i]);
        if (m->pinned[i])
            device_copies_unpin(m->accel, m->host[i]);
    }
    bench_streams_close(&m->mapping);
    free(m->backward);
}
