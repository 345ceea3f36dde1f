/* first_weights.c: all ranks start from the same weights. Those in the program's memory, frozen ones too, become rank 0's.
 * Those that the engine keeps are compared: their first values may be memory that cannot be written. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

enum { WIRE_BYTES = 4 << 20, RUNS_MAX = 256 };

/* What goes to the other ranks at a time: runs of slices, packed. */
typedef struct batch {
    zoff_engine *engine;
    char *wire;
    zoff_cast_piece runs[RUNS_MAX];
    size_t count, bytes;
} batch;

static zoff_status move(batch *b, bool to_program)
{
    zoff_engine *e = b->engine;
    return e->transfer.route.link->move(&e->transfer, b->runs, b->count, to_program);
}

static zoff_status send(batch *b)
{
    zoff_engine *e = b->engine;
    zoff_comm_work work = {.active = false};
    const bool is_source = zoff_comm_rank(e->comm) == 0;
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = &e->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_FIRST_WEIGHTS, .index = ZOFF_COMM_ALL},
                                 .out = b->wire,
                                 .count = b->bytes};
    if (b->bytes == 0)
        return ZOFF_OK;
    if (is_source)
        ZOFF_TRY(move(b, false));
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &work));
    ZOFF_TRY(zoff_comm_wait(e->comm, &work));
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
        const bool is_source = zoff_comm_rank(b->engine->comm) == 0;
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
    const zoff_engine *e = b->engine;
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        const bool is_sent = zoff_model_params_owner(&e->model, (zoff_param)i) != i; /* by another name */
        for (size_t slice = 0; p->value && !p->engine_owned && !is_sent && slice < p->slices; slice++)
            ZOFF_TRY(add_slice(b, p, slice));
    }
    return send(b);
}

zoff_status zoff_engine_first_weights_send(zoff_engine *e)
{
    batch b = {.engine = e};
    if (!zoff_transfer_ranks_several(&e->transfer))
        return ZOFF_OK;
    zoff_status status = zoff_base_mem_alloc(WIRE_BYTES, 1, "weights for other ranks", &b.wire);
    status = zoff_engine_consensus_success(e, status);
    if (status == ZOFF_OK)
        status = send_all(&b);
    zoff_base_mem_free(b.wire);
    return status;
}

zoff_status zoff_engine_first_weights_compare(zoff_engine *e)
{
    return zoff_engine_facts_compare(
        e, zoff_engine_listed_weights, "zoff_engine_seal",
        "Give every rank the same zoff_param_desc.value for parameters with engine_owned, for example by a broadcast");
}
