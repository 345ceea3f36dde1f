/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: the rows of a bucket, as a table. A bucket is one chunk of states with its gradients and weights; it passes the rows
 * of its column from top to bottom (pipeline.c). The place of weights and gradients, the number of ranks and the tier of the
 * states decide which rows a bucket has. That is decided only here, at seal.
 *
 * The columns: ADD has the rows in every micro-step but the last of a step. STEP has those in the last one. With several ranks,
 * gradients may be sent, summed and measured before zoff_step_begin(). AHEAD has those of a bucket that is updated before
 * zoff_step_begin(), when its gradient is complete. One whose results are adopted stays in AHEAD to its end, so a row behind
 * "adopt" that every bucket needs is in STEP | AHEAD. A bucket that leaves AHEAD goes on with the first row of STEP that it has
 * not passed, because a sum or a measurement that was made must not be made twice.
 *
 * Rows of the transfer are declared in its headers. The state of a bucket is a zoff_bucket_run of transfer.h. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <limits.h>

/* ---- the work of the engine in each row. A kernel gets a list, without the parts that have no gradient in this step ---- */

static const zoff_plan_piece *pieces_of(const zoff_engine *e, const zoff_bucket_run *run, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    *out_count = chunk->piece_count;
    return &e->plan.pieces[chunk->first_piece];
}

/* The kernels call this between two pieces. */
static void between(void *ctx)
{
    zoff_engine_admit_feed(ctx);
}

static zoff_status accumulate(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    static const float NOTHING = 0;
    const bool ends = e->transfer.route.rule->ends_all && zoff_transfer_sums_ends(&e->transfer);
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(e, run, &count);
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < count; i++) {
        uint8_t flag = *zoff_model_params_flag(&e->model, &pieces[i]);
        const bool is_ready = flag & ZOFF_SLICE_READY, first = !(flag & ZOFF_SLICE_PRESENT);
        if (!is_ready && (first || !ends))
            continue;
        const zoff_model_param *p = &e->model.params[pieces[i].param];
        float *sum = zoff_transfer_pieces_sum(&e->transfer, &pieces[i]);
        e->transfer.scratch.accumulate_pieces[used++] =
            is_ready ? (zoff_accumulate_piece){.count = pieces[i].count,
                                               .sum = sum,
                                               .grad = e->transfer.route.link->gradient(&e->transfer, &pieces[i]),
                                               .dtype = p->grad_dtype,
                                               .first = first,
                                               .weights = e->transfer.batch.weight == 1 ? NULL : &e->transfer.batch.weight}
                     : (zoff_accumulate_piece){
                           .count = pieces[i].count, .sum = sum, .grad = sum, .dtype = ZOFF_F32, .weights = &NOTHING};
        e->run.info.bytes.host_read += pieces[i].count * (zoff_adam_dtype_bytes(p->grad_dtype) + (first ? 0 : sizeof(float)));
        e->run.info.bytes.host_written += pieces[i].count * sizeof(float);
    }
    e->transfer.route.rule->add(&e->transfer, e->transfer.scratch.accumulate_pieces, used, between, e);
    e->run.info.seconds.measure += zoff_engine_stores_worked(e, from, &before);
    return ZOFF_OK;
}

static zoff_status measure_bucket(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_step_info *info = &e->run.info;
    /* Before the step it is not known whether the step looks at gradients. */
    if (!e->run.looks && e->life.phase != ZOFF_PHASE_IDLE) {
        e->transfer.measure.buckets++;
        return ZOFF_OK;
    }
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    const double from = zoff_base_clock_seconds();
    zoff_transfer_measure_bucket(&e->transfer, run->chunk, between, e, &info->bytes.host_read);
    info->seconds.measure += zoff_engine_stores_worked(e, from, &before);
    return ZOFF_OK;
}

static zoff_status agree(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (e->agreement.participation.agreed)
        return ZOFF_OK;
    ZOFF_TRY_DONE(zoff_agreement_participation_poll(&e->agreement));
    e->run.expected = zoff_agreement_participation_elements(&e->agreement);
    return ZOFF_OK;
}

static zoff_status pass_gate(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (e->walk.speculation.in_step) /* buckets that are not updated yet must leave the rows ahead of the step first */
        return ZOFF_PENDING;
    zoff_status status = zoff_engine_gate_vote(e);
    /* After the gate, only buckets that can borrow may continue: one further back would take a slot from one that needs it
     * first. */
    return status == ZOFF_OK && !zoff_engine_admit_reaches(e, run) ? ZOFF_PENDING : status;
}

static zoff_status fetch(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    /* A drive that does not answer is noticed before the device changes anything. */
    const bool is_first = zoff_transfer_place_of(&e->transfer, run->chunk) != ZOFF_USED_BY_HOST;
    const bool waits = (is_first && !zoff_engine_admit_has_first(e)) || !zoff_engine_admit_may_fetch(e, run);
    return waits ? ZOFF_PENDING : zoff_engine_admit_borrow(e, run);
}

/* All ranks send the buckets in the order of their walk. A bucket is through when its weights were read again: they take a slot
 * of the store that otherwise a later bucket would wait for. */
static zoff_status share(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_lending *l = &e->lending;
    ZOFF_TRY(zoff_lending_secondary_poll(l));
    const size_t position = zoff_transfer_walk_position(&e->transfer, run->chunk);
    if (position > l->secondary.next)
        return ZOFF_PENDING;
    if (position == l->secondary.next) {
        ZOFF_TRY_DONE(zoff_lending_secondary_start(l, run->chunk));
        l->secondary.next++;
    }
    return zoff_lending_secondary_has_read(l, run->chunk) ? ZOFF_OK : ZOFF_PENDING;
}

static zoff_status land(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    const zoff_status status = zoff_transfer_device_tier_poll(&e->transfer, run);
    if (status == ZOFF_OK)
        zoff_lending_param_cache_refresh(&e->lending, run->chunk, run->lent.weights.base, false);
    return status;
}

/* The update is done, so the slot does not wait for it. The bucket has no other slot by now: otherwise one that has a slot of
 * states could wait for this one's weights, and this one for that slot. A save that is under way cannot copy the old states
 * from the slot, which never has them. */
static zoff_status save(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (run->lent.states.done || !e->plan.chunks[run->chunk].bytes || !zoff_transfer_pieces_take_part(&e->transfer, run->chunk))
        return ZOFF_OK;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    zoff_status status = run->lent.states.base ? ZOFF_OK : zoff_transfer_device_tier_poll(&e->transfer, run);
    if (status == ZOFF_OK)
        status = zoff_engine_admit_claim(e, run);
    return status == ZOFF_OK ? zoff_transfer_device_tier_save(&e->transfer, run) : status;
}

static zoff_status flush(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    if (run->saves && run->lent.states.base)
        zoff_engine_update_guard(e, run, NULL);
    ZOFF_TRY(zoff_offload_broker_give(&run->lent, &run->lent.states, ZOFF_STORE_ALL, false));
    return zoff_offload_broker_give(&run->lent, &run->lent.weights, ZOFF_STORE_ALL, false);
}

/* ---- matrices ---- */

static zoff_status take_turn(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    return zoff_engine_admit_takes_turn(e, run->chunk) ? ZOFF_OK : ZOFF_PENDING;
}

static void between_products(void *ctx)
{
    zoff_engine *e = ctx;
    zoff_engine_admit_feed(e);
    if (e->walk.matrices.all.exchanges)
        zoff_comm_works(e->comm);
    e->walk.matrices.stops = zoff_engine_progress_thread_yields(e);
}

/* The states were given back, so that all buckets of the round come to them, and are asked for again behind this row. */
static zoff_status make_orthogonal(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    const zoff_matrices_work work = {.hyper = e->gate.hyper,
                                     .threads = zoff_engine_update_threads_of_matrices(e),
                                     .feed = between_products,
                                     .ctx = e,
                                     .stops = &e->walk.matrices.stops};
    const zoff_matrix_turn at = e->walk.matrices.all.turn;
    const uint64_t sent = e->walk.matrices.all.sent_bytes;
    if (!zoff_matrices_is_written(&e->walk.matrices.all, run->chunk))
        return ZOFF_PENDING;
    ZOFF_TRY_DONE(zoff_transfer_reduce_scatter_poll(&e->transfer)); /* the order of gradients uses the same stream */
    const double from = zoff_base_clock_seconds();
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    const zoff_status status = zoff_matrices_poll(&e->walk.matrices.all, run->chunk, &work);
    e->run.info.seconds.orthogonalize += zoff_engine_stores_worked(e, from, &before);
    e->run.info.bytes.sent_matrices += e->walk.matrices.all.sent_bytes - sent;
    if (at.stage != e->walk.matrices.all.turn.stage || at.next != e->walk.matrices.all.turn.next)
        zoff_base_progress_moved(&e->progress);
    ZOFF_TRY_DONE(status);
    run->is_whole = true;
    run->lent = (zoff_demand){.chunk = run->chunk};
    run->cursor = (zoff_update_cursor){.piece = 0};
    return ZOFF_OK;
}

/* ---- ahead of the step ---- */

static zoff_status precede(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    void *states = run->ahead.states;
    if (!states) {
        const zoff_status status = zoff_offload_store_second(e->store, run->chunk, &states);
        run->ahead.is_refused = status == ZOFF_PENDING; /* there is no memory for the second content */
        if (status != ZOFF_OK)
            return status;
    }
    run->ahead.states = states;
    return zoff_engine_update_apart(e, run);
}

static zoff_status put(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_offload_broker_put(&run->lent, &run->lent.states));
    run->ahead.is_put = true;
    e->run.info.buckets.speculated++;
    return ZOFF_OK;
}

zoff_status zoff_engine_rows_leave(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_offload_broker_withdraw(&run->lent); /* the demand ends with a second content that was not put */
    if (run->ahead.states)
        ZOFF_TRY(zoff_offload_store_discard(e->store, run->chunk));
    e->run.info.buckets.redone += run->ahead.is_put;
    run->ahead = (zoff_bucket_ahead){.is_refused = true};
    run->lent = (zoff_demand){.chunk = run->chunk};
    run->cursor = (zoff_update_cursor){.piece = 0};
    zoff_transfer_staging_release(&e->transfer, run->chunk);
    return ZOFF_OK;
}

/* The step clips, or differs in another way from what was assumed: the bucket is updated from its old states, in the next row
 * behind the gate. */
static zoff_status redo(zoff_engine *e, zoff_bucket_run *run)
{
    ZOFF_TRY(zoff_engine_rows_leave(e, run));
    run->passed |= ((uint64_t)2 << e->walk.rows[ZOFF_USED_BY_HOST].gate) - 1; /* the gate, and all rows before it */
    zoff_engine_admit_ask_anew(e, run->chunk);
    return ZOFF_OK;
}

static zoff_status adopt(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_step_info *info = &e->run.info;
    if (!zoff_speculation_holds(&e->walk.speculation, e->transfer.scratch.consts))
        return redo(e, run);
    const double from = zoff_base_clock_seconds();
    zoff_offload_store_adopt(e->store, run->chunk);
    run->ahead.states = NULL;
    run->ahead.is_put = false;
    zoff_traps_weights_enter(e->life.traps, run->chunk);
    const zoff_link *link = e->transfer.route.link;
    const size_t bytes = link->adopt ? link->adopt(&e->transfer, run->chunk, zoff_engine_update_threads_of_update(e)) : 0;
    zoff_traps_weights_leave(e->life.traps, run->chunk);
    info->bytes.host_read += bytes;
    info->bytes.host_written += bytes;
    info->buckets.committed++;
    e->transfer.batch.updated++;
    zoff_engine_update_count(e, run);
    info->seconds.update += zoff_base_clock_seconds() - from;
    return ZOFF_OK;
}

/* ---- the table ---- */

/* Conditions of a row. A bucket has the row if all of them hold. */
enum {
    ALONE = 1 << 0, /* one rank */
    SEVERAL = 1 << 1,
    STAGED = 1 << 2,  /* weights and gradients are on a device: the host downloads gradients and uploads weights */
    SUMS = 1 << 3,    /* gradients are summed over micro-batches or ranks */
    NO_SUMS = 1 << 4, /* gradients are used where the program computed them */
    WHOLE = 1 << 5,   /* a rank gets no updated weights from other ranks */
    PARTITIONED = 1 << 6,
    REPLICATED = 1 << 7, /* every rank has all states */
    HOST = 1 << 8,       /* the tier of the bucket: DRAM or files */
    DEVICE = 1 << 9,     /* states of the bucket stay on the device */
    DOWN = 1 << 10,      /* gradients of the bucket are used on the host, or pass it */
    KEPT = 1 << 11,      /* gradients of the bucket stay on the device */
    THERE = 1 << 12,     /* the device measures gradients of the bucket */
    HERE = 1 << 13,
    STAGES = 1 << 14,    /* the host uploads weights of the program */
    LANDS = 1 << 15,     /* the host gets weights that the device has updated */
    PERSISTS = 1 << 16,  /* a store has the states, too */
    SECONDARY = 1 << 17, /* a second copy of the weights in each group of ranks */
    PLAIN = 1 << 18,     /* elements are updated by themselves */
    MATRICES = 1 << 19   /* a matrix is updated as a whole */
};

typedef enum owner { ENGINE, TRANSFER } owner;

enum { ADD = 1 << ZOFF_COLUMN_ADD, STEP = 1 << ZOFF_COLUMN_STEP, AHEAD = 1 << ZOFF_COLUMN_AHEAD };

/* One order serves the three columns, because rows of one rank and of several exclude each other. */
static const struct table_row {
    const char *name;
    zoff_status (*run)(void *ctx, zoff_bucket_run *run);
    owner owner; /* object that `ctx` is */
    unsigned in; /* columns */
    unsigned when;
    bool joint; /* the row needs an open step, or other ranks */
} TABLE[] = {
    /* device: the bucket's gradients are downloaded */
    {"unload", zoff_transfer_device_unload, TRANSFER, ADD | STEP, ALONE | STAGED | SUMS | DOWN, false},
    {"unload", zoff_transfer_device_unload_none, TRANSFER, ADD | STEP, ALONE | STAGED | SUMS | KEPT, false},
    /* gradients that the host measures */
    {"unload", zoff_transfer_device_unload, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | HERE | DOWN, false},
    /* cpu_adam: adds gradients up in fp32 */
    {"accumulate", accumulate, ENGINE, ADD | STEP | AHEAD, ALONE | SUMS | DOWN, false},
    {"accumulate", zoff_transfer_device_tier_accumulate, TRANSFER, ADD | STEP, ALONE | SUMS | KEPT, false},
    {"measure", measure_bucket, ENGINE, STEP | AHEAD, ALONE | HERE, false}, /* cpu_adam: sums of squares */
    {"fetch", fetch, ENGINE, AHEAD, 0, false},
    {"precede", precede, ENGINE, AHEAD, 0, false}, /* cpu_adam: updates a second content, and staged weights */
    {"put", put, ENGINE, AHEAD, 0, false},         /* offload: starts the write */
    /* Ahead of the step this comes last, because kernels of the engine run behind the work that the program has enqueued. */
    {"measure", zoff_transfer_device_norm_measure, TRANSFER, STEP | AHEAD, ALONE | THERE, false},
    {"unload", zoff_transfer_device_unload_all, TRANSFER, ADD | STEP | AHEAD, SEVERAL | STAGED, true},
    /* zero: sends gradients to their owner, who sums them */
    {"reduce", zoff_transfer_reduce_scatter_bucket, TRANSFER, ADD | STEP | AHEAD, SEVERAL, true},
    {"agree", agree, ENGINE, STEP | AHEAD, SEVERAL, true}, /* comm: finds the slices that take part */
    /* engine: opens when all buckets are measured and all ranks have voted */
    {"gate", pass_gate, ENGINE, STEP | AHEAD, 0, true},
    /* The results of a bucket that is updated ahead count; otherwise it takes the rows of an update. */
    {"adopt", adopt, ENGINE, AHEAD, 0, false},
    /* The gate does not wait for downloads. */
    {"unload", zoff_transfer_device_unload, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | THERE | DOWN, false},
    {"unload", zoff_transfer_device_unload_none, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | KEPT, false},
    /* zero: gets the gradient sums of other ranks */
    {"sums", zoff_transfer_all_gather_sums, TRANSFER, STEP, SEVERAL | REPLICATED, false},
    {"turn", take_turn, ENGINE, STEP, MATRICES, false}, /* matrices: memory for the directions of the bucket's round */
    {"fetch", fetch, ENGINE, STEP, MATRICES, false},
    {"momentum", zoff_engine_update_momentum, ENGINE, STEP, MATRICES, false}, /* cpu_adam: momenta, and directions */
    {"flush", flush, ENGINE, STEP, MATRICES, false},
    /* matrices: waits for the other buckets of the round, and makes its matrices orthogonal */
    {"orthogonalize", make_orthogonal, ENGINE, STEP, MATRICES, false},
    /* offload: reads for later buckets start while this one is updated */
    {"fetch", fetch, ENGINE, STEP, 0, false},
    /* device: gets a slot for its updated weights. One that was updated ahead has a slot, and passes its turn on. */
    {"stage", zoff_transfer_device_stage, TRANSFER, STEP, ALONE | STAGES, false},
    {"stage", zoff_transfer_device_stage_in_turn, TRANSFER, STEP | AHEAD, SEVERAL | STAGES, false},
    /* cpu_adam, on the team; pumps I/O in between */
    {"update", zoff_engine_update_run, ENGINE, STEP, HOST | PLAIN, false},
    {"apply", zoff_engine_update_apply, ENGINE, STEP, HOST | MATRICES, false},
    {"update", zoff_transfer_device_tier_update, TRANSFER, STEP, DEVICE, false},
    {"land", land, ENGINE, STEP, DEVICE | LANDS, false}, /* device: updated weights come down */
    {"flush", flush, ENGINE, STEP, 0, false},            /* offload: starts the write, and does not wait for it */
    {"upload", zoff_transfer_device_upload_bucket, TRANSFER, STEP | AHEAD, STAGED | WHOLE | HOST,
     false}, /* starts the upload */
    /* zero: sends weights to all ranks, a few buckets at a time */
    {"gather", zoff_transfer_all_gather_weights, TRANSFER, STEP | AHEAD, PARTITIONED, false},
    {"share", share, ENGINE, STEP | AHEAD, SECONDARY, false}, /* lending: sends weights to the secondary shards */
    {"save", save, ENGINE, STEP, DEVICE | PERSISTS, false},   /* device: updated states come to a slot */
    {"flush", flush, ENGINE, STEP, DEVICE | PERSISTS, false},
};

static unsigned either(bool is_so, unsigned then, unsigned otherwise)
{
    return is_so ? then : otherwise;
}

/* The conditions that hold for all buckets of one place. `bucket` is any one of them. */
static unsigned facts_of(const zoff_engine *e, zoff_used_place place, size_t bucket, unsigned kind)
{
    const bool several = zoff_transfer_ranks_several(&e->transfer), staged = zoff_transfer_device_is(&e->transfer);
    const bool is_host = place == ZOFF_USED_BY_HOST, owns = zoff_model_params_any_owned(&e->model);
    const bool partitioned = several && !e->plan.replicated;
    /* A communicator of the host sends updated weights from the host. */
    const bool sends = partitioned && !zoff_transfer_device_direct_is(&e->transfer);
    return kind | either(several, SEVERAL, ALONE) | either(staged, STAGED, 0) | either(e->transfer.route.sums, SUMS, NO_SUMS) |
           either(partitioned, PARTITIONED, WHOLE) | either(several && e->plan.replicated, REPLICATED, 0) |
           either(zoff_lending_secondary_is(&e->lending) && owns, SECONDARY, 0) | either(is_host, HOST, DEVICE) |
           either(place == ZOFF_USED_BY_DEVICE, KEPT, DOWN) |
           either(zoff_transfer_device_norm_has(&e->transfer, bucket), THERE, HERE) |
           either(staged && (is_host || sends), STAGES, 0) | either(owns || sends, LANDS, 0) |
           either(e->settings.values.persist, PERSISTS, 0);
}

static void choose(zoff_engine *e, zoff_rows *rows, unsigned facts)
{
    void *const owners[] = {[ENGINE] = e, [TRANSFER] = &e->transfer};
    _Static_assert(sizeof TABLE / sizeof TABLE[0] <= ZOFF_ROWS_MAX, "ZOFF_ROWS_MAX is too small");
    *rows = (zoff_rows){.joint = UINT_MAX};
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        const struct table_row *row = &TABLE[i];
        const unsigned number = rows->count;
        if (row->when & ~facts)
            continue;
        if (row->run == pass_gate)
            rows->gate = number;
        if (row->joint && rows->joint == UINT_MAX)
            rows->joint = number;
        for (unsigned column = 0; column < ZOFF_COLUMNS; column++)
            rows->in[column] |= (uint64_t)(row->in >> column & 1) << number;
        rows->row[rows->count++] = (zoff_row){.name = row->name, .run = row->run, .ctx = owners[row->owner], .number = number};
    }
}

void zoff_engine_rows_choose(zoff_engine *e)
{
    const zoff_config_values *values = &e->settings.values;
    e->walk.in_order = false;
    e->walk.any_order = !zoff_transfer_ranks_several(&e->transfer);
    /* With several ranks, or streams of a device, other rows come before the measurement. */
    e->walk.measures_early = e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads &&
                             (values->clip_norm > 0 || values->skip_nonfinite);
    e->walk.speculates_in_step = e->walk.any_order && zoff_transfer_device_is(&e->transfer) && e->transfer.device.staging.ahead;
    e->walk.lends_always = e->walk.any_order && zoff_model_params_any_owned(&e->model);
    e->walk.tells_new =
        e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads && !values->check_use;
    for (unsigned place = 0; place < ZOFF_USED_PLACES; place++) {
        const unsigned facts =
            facts_of(e, (zoff_used_place)place, place == ZOFF_USED_BY_HOST ? e->transfer.device.tier.count : 0, PLAIN);
        choose(e, &e->walk.rows[place], facts);
        e->walk.in_order = e->walk.in_order || (facts & (DEVICE | STAGES)) == (DEVICE | STAGES);
    }
    choose(e, &e->walk.matrices.rows, facts_of(e, ZOFF_USED_BY_HOST, e->transfer.device.tier.count, MATRICES));
}

static zoff_column column_of(const zoff_engine *e, const zoff_bucket_run *run)
{
    return run->ahead.is_so ? ZOFF_COLUMN_AHEAD : e->run.last ? ZOFF_COLUMN_STEP : ZOFF_COLUMN_ADD;
}

const zoff_rows *zoff_engine_rows_of(const zoff_engine *e, size_t bucket)
{
    return e->plan.chunks[bucket].round ? &e->walk.matrices.rows : &e->walk.rows[zoff_transfer_place_of(&e->transfer, bucket)];
}

const zoff_row *zoff_engine_rows_next(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_rows *rows = zoff_engine_rows_of(e, run->chunk);
    const uint64_t left = rows->in[column_of(e, run)] & ~run->passed;
    return left ? &rows->row[__builtin_ctzll(left)] : NULL;
}
