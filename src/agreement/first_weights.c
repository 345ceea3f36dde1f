/* first_weights.c: makes all ranks start from the same weights. Weights in the program's memory, frozen ones too, are
 * overwritten by those of rank 0. Initial values of engine-owned weights are only compared: their memory may be read-only. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

enum { WIRE_BYTES = 4 << 20, RUNS_MAX = 256 };

/* One broadcast: runs of slices, packed. */
typedef struct batch {
    zoff_agreement *agreement;
    char *wire;
    zoff_cast_piece runs[RUNS_MAX];
    size_t count, bytes;
} batch;

static zoff_status move(batch *b, bool to_program)
{
    zoff_agreement *a = b->agreement;
    return a->transfer->route.link->move(a->transfer, b->runs, b->count, to_program);
}

static zoff_status send(batch *b)
{
    zoff_agreement *a = b->agreement;
    zoff_comm_work work = {.active = false};
    const bool is_source = zoff_comm_rank(a->comm) == 0;
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_FIRST_WEIGHTS, .index = ZOFF_COMM_ALL},
                                 .out = b->wire,
                                 .count = b->bytes};
    if (b->bytes == 0)
        return ZOFF_OK;
    if (is_source)
        ZOFF_TRY(move(b, false));
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &work));
    ZOFF_TRY(zoff_comm_wait(a->comm, &work));
    if (!is_source)
        ZOFF_TRY(move(b, true));
    b->count = b->bytes = 0;
    return ZOFF_OK;
}

static zoff_status add_slice(batch *b, const zoff_model_param *p, size_t slice)
{
    const size_t element = zoff_adam_dtype_bytes(p->dtype);
    char *value = p->value + slice * p->value_stride;
    for (size_t first = 0; first < p->count;) {
        b->bytes = zoff_base_bits_align(b->bytes, element);
        const size_t count = zoff_base_bits_min(p->count - first, (WIRE_BYTES - b->bytes) / element);
        char *run = value + first * element, *wire = b->wire + b->bytes;
        const bool is_source = zoff_comm_rank(b->agreement->comm) == 0;
        b->runs[b->count++] = (zoff_cast_piece){.count = count,
                                                .dst = is_source ? wire : run,
                                                .src = is_source ? run : wire,
                                                .dst_dtype = p->dtype,
                                                .src_dtype = p->dtype};
        b->bytes += count * element;
        first += count;
        if (b->count == RUNS_MAX || WIRE_BYTES - b->bytes < sizeof(float))
            ZOFF_TRY(send(b));
    }
    return ZOFF_OK;
}

static zoff_status send_all(batch *b)
{
    const zoff_agreement *a = b->agreement;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        const bool is_sent = zoff_model_params_owner(a->model, (zoff_param)i) != i; /* a tied parameter: its owner is sent */
        for (size_t slice = 0; p->value && !p->engine_owned && !is_sent && slice < p->slices; slice++)
            ZOFF_TRY(add_slice(b, p, slice));
    }
    return send(b);
}

zoff_status zoff_agreement_first_weights_send(zoff_agreement *a)
{
    batch b = {.agreement = a};
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    zoff_status status = zoff_base_mem_alloc(WIRE_BYTES, 1, "weights for other ranks", &b.wire);
    status = zoff_agreement_consensus_success(a, status);
    if (status == ZOFF_OK)
        status = send_all(&b);
    zoff_base_mem_free(b.wire);
    return status;
}
