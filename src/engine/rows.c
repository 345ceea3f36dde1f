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
 * Functions of the engine's rows are declared in step_priv.h, those of the transfer in its headers. The state of a bucket is a
 * zoff_bucket_run of transfer.h. */
#include "engine_priv.h"

#include <limits.h>

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
    DEVICE = 1 << 9,     /* its states stay on the device */
    DOWN = 1 << 10,      /* its gradients are used on the host, or pass it */
    KEPT = 1 << 11,      /* its gradients stay on the device */
    THERE = 1 << 12,     /* the device measures its gradients */
    HERE = 1 << 13,
    STAGES = 1 << 14,    /* the host uploads weights of the program */
    LANDS = 1 << 15,     /* the host gets weights that the device has updated */
    PERSISTS = 1 << 16,  /* a store has the states, too */
    SECONDARY = 1 << 17, /* a second copy of the weights in each group of ranks */
};

typedef enum owner { ENGINE, TRANSFER } owner;

enum { ADD = 1 << ZOFF_COLUMN_ADD, STEP = 1 << ZOFF_COLUMN_STEP, AHEAD = 1 << ZOFF_COLUMN_AHEAD };

/* One order serves the three columns, because rows of one rank and of several exclude each other. */
static const struct table_row {
    const char *name;
    zoff_status (*run)(void *ctx, zoff_bucket_run *run);
    owner owner; /* what `ctx` is */
    unsigned in; /* columns */
    unsigned when;
    bool joint; /* needs an open step, or other ranks */
} TABLE[] = {
    /* device: its gradients are downloaded */
    {"unload", zoff_transfer_device_unload, TRANSFER, ADD | STEP, ALONE | STAGED | SUMS | DOWN, false},
    {"unload", zoff_transfer_device_unload_none, TRANSFER, ADD | STEP, ALONE | STAGED | SUMS | KEPT, false},
    {"unload", zoff_transfer_device_unload, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | HERE | DOWN, false}, /* to be measured */
    /* cpu_adam: into fp32 */
    {"accumulate", zoff_engine_stages_accumulate, ENGINE, ADD | STEP | AHEAD, ALONE | SUMS | DOWN, false},
    {"accumulate", zoff_transfer_device_tier_accumulate, TRANSFER, ADD | STEP, ALONE | SUMS | KEPT, false},
    {"measure", zoff_engine_stages_measure, ENGINE, STEP | AHEAD, ALONE | HERE, false}, /* cpu_adam: sums of squares */
    {"fetch", zoff_engine_stages_fetch, ENGINE, AHEAD, 0, false},
    {"precede", zoff_engine_stages_precede, ENGINE, AHEAD, 0, false}, /* cpu_adam: to a second content, and to staged weights */
    {"put", zoff_engine_stages_put, ENGINE, AHEAD, 0, false},         /* offload: starts the write */
    /* Ahead of the step this comes last, because kernels of the engine run behind the work that the program has enqueued. */
    {"measure", zoff_transfer_device_norm_measure, TRANSFER, STEP | AHEAD, ALONE | THERE, false},
    {"unload", zoff_transfer_device_unload_all, TRANSFER, ADD | STEP | AHEAD, SEVERAL | STAGED, true},
    /* zero: sends gradients to their owner, who sums them */
    {"reduce", zoff_transfer_reduce_scatter_bucket, TRANSFER, ADD | STEP | AHEAD, SEVERAL, true},
    {"agree", zoff_engine_stages_agree, ENGINE, STEP | AHEAD, SEVERAL, true}, /* comm: finds the slices that take part */
    /* engine: opens when all buckets are measured and all ranks have voted */
    {"gate", zoff_engine_stages_gate, ENGINE, STEP | AHEAD, 0, true},
    /* The results of a bucket that is updated ahead count; otherwise it takes the rows of an update. */
    {"adopt", zoff_engine_stages_adopt, ENGINE, AHEAD, 0, false},
    /* The gate does not wait for downloads. */
    {"unload", zoff_transfer_device_unload, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | THERE | DOWN, false},
    {"unload", zoff_transfer_device_unload_none, TRANSFER, STEP, ALONE | STAGED | NO_SUMS | KEPT, false},
    /* zero: gets the gradient sums of other ranks */
    {"sums", zoff_transfer_all_gather_sums, TRANSFER, STEP, SEVERAL | REPLICATED, false},
    /* offload: reads for later buckets start while this one is updated */
    {"fetch", zoff_engine_stages_fetch, ENGINE, STEP, 0, false},
    /* device: gets a slot for its updated weights. One that was updated ahead has a slot, and passes its turn on. */
    {"stage", zoff_transfer_device_stage, TRANSFER, STEP, ALONE | STAGES, false},
    {"stage", zoff_transfer_device_stage_in_turn, TRANSFER, STEP | AHEAD, SEVERAL | STAGES, false},
    {"update", zoff_engine_update_run, ENGINE, STEP, HOST, false}, /* cpu_adam, on the team; pumps I/O in between */
    {"update", zoff_transfer_device_tier_update, TRANSFER, STEP, DEVICE, false},
    {"land", zoff_engine_stages_land, ENGINE, STEP, DEVICE | LANDS, false}, /* device: its updated weights come down */
    {"flush", zoff_engine_stages_flush, ENGINE, STEP, 0, false}, /* offload: starts the write, and does not wait for it */
    {"upload", zoff_transfer_device_upload_bucket, TRANSFER, STEP | AHEAD, STAGED | WHOLE | HOST,
     false}, /* starts the upload */
    /* zero: sends weights to all ranks, a few buckets at a time */
    {"gather", zoff_transfer_all_gather_weights, TRANSFER, STEP | AHEAD, PARTITIONED, false},
    {"share", zoff_engine_stages_share, ENGINE, STEP | AHEAD, SECONDARY, false}, /* lending: to the secondary shards */
    {"save", zoff_engine_stages_save, ENGINE, STEP, DEVICE | PERSISTS, false},   /* device: its updated states come to a slot */
    {"flush", zoff_engine_stages_flush, ENGINE, STEP, DEVICE | PERSISTS, false},
};

static unsigned either(bool is_so, unsigned then, unsigned otherwise)
{
    return is_so ? then : otherwise;
}

/* The conditions that hold for all buckets of one place. `bucket` is any one of them. */
static unsigned facts_of(const zoff_engine *e, zoff_used_place place, size_t bucket)
{
    const bool several = zoff_transfer_ranks_several(&e->transfer), staged = zoff_transfer_device_is(&e->transfer);
    const bool is_host = place == ZOFF_USED_BY_HOST, owns = zoff_model_params_any_owned(&e->model);
    const bool partitioned = several && !e->plan.replicated;
    /* A communicator of the host sends updated weights from the host. */
    const bool sends = partitioned && !zoff_transfer_device_direct_is(&e->transfer);
    return either(several, SEVERAL, ALONE) | either(staged, STAGED, 0) | either(e->transfer.route.sums, SUMS, NO_SUMS) |
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
        if (row->run == zoff_engine_stages_gate)
            rows->gate = number;
        if (row->joint && rows->joint == UINT_MAX)
            rows->joint = number;
        for (unsigned column = 0; column < ZOFF_COLUMNS; column++)
            rows->in[column] |= (row->in >> column & 1) << number;
        rows->row[rows->count++] = (zoff_row){.name = row->name, .run = row->run, .ctx = owners[row->owner], .number = number};
    }
}

void zoff_engine_rows_choose(zoff_engine *e)
{
    const zoff_config_values *values = &e->settings.values;
    e->walk.in_order = false;
    e->walk.any_order = !zoff_transfer_ranks_several(&e->transfer);
    /* With several ranks, or streams of a device, other rows come before that one. */
    e->walk.measures_early = e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads &&
                             (values->clip_norm > 0 || values->skip_nonfinite);
    e->walk.speculates_in_step = e->walk.any_order && zoff_transfer_device_is(&e->transfer) && e->transfer.device.staging.ahead;
    e->walk.lends_always = e->walk.any_order && zoff_model_params_any_owned(&e->model);
    e->walk.tells_new =
        e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads && !values->check_use;
    for (unsigned place = 0; place < ZOFF_USED_PLACES; place++) {
        const unsigned facts =
            facts_of(e, (zoff_used_place)place, place == ZOFF_USED_BY_HOST ? e->transfer.device.tier.count : 0);
        choose(e, &e->walk.rows[place], facts);
        e->walk.in_order = e->walk.in_order || (facts & (DEVICE | STAGES)) == (DEVICE | STAGES);
    }
}

static zoff_column column_of(const zoff_engine *e, const zoff_bucket_run *run)
{
    return run->ahead.is_so ? ZOFF_COLUMN_AHEAD : e->run.last ? ZOFF_COLUMN_STEP : ZOFF_COLUMN_ADD;
}

const zoff_row *zoff_engine_rows_next(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_rows *rows = &e->walk.rows[zoff_transfer_place_of(&e->transfer, run->chunk)];
    const uint32_t left = rows->in[column_of(e, run)] & ~run->passed;
    return left ? &rows->row[__builtin_ctz(left)] : NULL;
}
