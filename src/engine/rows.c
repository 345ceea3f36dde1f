/* rows.c: the rows of a bucket, as tables. A bucket is one chunk of states with its gradients and weights; it passes the rows
 * of a table from top to bottom (pipeline.c). The place of weights and gradients, the number of ranks and the tier of the
 * states decide which rows a bucket has. That is decided only here, at seal. */
#include "engine_priv.h"

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

typedef struct conditional_row {
    const char *name;
    zoff_status (*run)(void *ctx, zoff_bucket_run *run);
    owner owner; /* what `ctx` is */
    unsigned when;
} conditional_row;

/* The rows in every micro-step but the last of a step. */
static const conditional_row ADD[] = {
    {"unload", zoff_transfer_device_unload, TRANSFER, ALONE | STAGED | DOWN}, /* device: its gradients are downloaded */
    {"unload", zoff_transfer_device_unload_none, TRANSFER, ALONE | STAGED | KEPT},
    {"unload", zoff_transfer_device_unload_all, TRANSFER, SEVERAL | STAGED},
    {"reduce", zoff_transfer_reduce_scatter_bucket, TRANSFER,
     SEVERAL}, /* zero: sends gradients to their owner, who sums them */
    {"accumulate", zoff_engine_stages_accumulate, ENGINE, ALONE | DOWN}, /* cpu_adam: into fp32 */
    {"accumulate", zoff_transfer_device_tier_accumulate, TRANSFER, ALONE | KEPT},
};

/* The rows in the last micro-step. With several ranks, gradients may be sent, summed and measured before zoff_step_begin(). */
static const conditional_row STEP[] = {
    {"unload", zoff_transfer_device_unload, TRANSFER, ALONE | STAGED | SUMS | DOWN},
    {"unload", zoff_transfer_device_unload_none, TRANSFER, ALONE | STAGED | SUMS | KEPT},
    {"unload", zoff_transfer_device_unload_all, TRANSFER, SEVERAL | STAGED},
    {"reduce", zoff_transfer_reduce_scatter_bucket, TRANSFER, SEVERAL},
    {"unload", zoff_transfer_device_unload, TRANSFER, ALONE | STAGED | NO_SUMS | HERE | DOWN}, /* the host measures them */
    {"accumulate", zoff_engine_stages_accumulate, ENGINE, ALONE | SUMS | DOWN},
    {"accumulate", zoff_transfer_device_tier_accumulate, TRANSFER, ALONE | SUMS | KEPT},
    {"measure", zoff_engine_stages_measure, ENGINE, ALONE | HERE}, /* cpu_adam: sums of squares */
    {"measure", zoff_transfer_device_norm_measure, TRANSFER, ALONE | THERE},
    {"agree", zoff_engine_stages_agree, ENGINE, SEVERAL}, /* comm: finds the slices that take part */
    {"gate", zoff_engine_stages_gate, ENGINE, 0}, /* engine: opens when all buckets are measured and all ranks have voted */
    {"unload", zoff_transfer_device_unload, TRANSFER,
     ALONE | STAGED | NO_SUMS | THERE | DOWN}, /* the gate does not wait for downloads */
    {"unload", zoff_transfer_device_unload_none, TRANSFER, ALONE | STAGED | NO_SUMS | KEPT},
    {"sums", zoff_transfer_all_gather_sums, TRANSFER, SEVERAL | REPLICATED}, /* zero: gets the gradient sums of other ranks */
    {"fetch", zoff_engine_stages_fetch, ENGINE, 0}, /* offload: reads for later buckets start while this one is updated */
    {"stage", zoff_transfer_device_stage, TRANSFER, ALONE | STAGES}, /* device: gets a slot for its updated weights */
    {"stage", zoff_transfer_device_stage_in_turn, TRANSFER, SEVERAL | STAGES},
    {"update", zoff_engine_update_run, ENGINE, HOST}, /* cpu_adam, on the team; pumps I/O in between */
    {"update", zoff_transfer_device_tier_update, TRANSFER, DEVICE},
    {"land", zoff_engine_stages_land, ENGINE, DEVICE | LANDS}, /* device: its updated weights come down */
    {"flush", zoff_engine_stages_flush, ENGINE, 0},            /* offload: starts the write, and does not wait for it */
    {"upload", zoff_transfer_device_upload_bucket, TRANSFER, STAGED | WHOLE | HOST}, /* device: starts the upload */
    {"gather", zoff_transfer_all_gather_weights, TRANSFER,
     PARTITIONED},                                          /* zero: sends weights to all ranks, a few buckets at a time */
    {"share", zoff_engine_stages_share, ENGINE, SECONDARY}, /* lending: sends weights to the secondary shards */
    {"save", zoff_engine_stages_save, ENGINE, DEVICE | PERSISTS}, /* device: its updated states come down to a slot */
    {"flush", zoff_engine_stages_flush, ENGINE, DEVICE | PERSISTS},
};

/* The rows of a bucket that is updated before zoff_step_begin(), when its gradient is complete. */
static const conditional_row AHEAD[] = {
    {"accumulate", zoff_engine_stages_accumulate, ENGINE, ALONE | SUMS},
    {"measure", zoff_engine_stages_measure, ENGINE, ALONE | HERE},
    {"fetch", zoff_engine_stages_fetch, ENGINE, 0},
    {"precede", zoff_engine_stages_precede, ENGINE, 0}, /* cpu_adam: to a second content, and to staged weights */
    {"put", zoff_engine_stages_put, ENGINE, 0},         /* offload: starts the write */
    {"measure", zoff_transfer_device_norm_measure, TRANSFER,
     ALONE | THERE}, /* last: kernels of the engine run behind the work that the program has enqueued */
    {"unload", zoff_transfer_device_unload_all, TRANSFER, SEVERAL | STAGED},
    {"reduce", zoff_transfer_reduce_scatter_bucket, TRANSFER, SEVERAL},
    {"agree", zoff_engine_stages_agree, ENGINE, SEVERAL},
    {"gate", zoff_engine_stages_gate, ENGINE, 0},
    {"adopt", zoff_engine_stages_adopt, ENGINE, 0}, /* the results count; otherwise the bucket takes the rows above */
    {"stage", zoff_transfer_device_stage_in_turn, TRANSFER, SEVERAL | STAGES}, /* it has a slot, and passes its turn on */
    {"upload", zoff_transfer_device_upload_bucket, TRANSFER, STAGED | WHOLE},
    {"gather", zoff_transfer_all_gather_weights, TRANSFER, PARTITIONED},
    {"share", zoff_engine_stages_share, ENGINE, SECONDARY}, /* its turn, and weights of other ranks */
};

static unsigned either(bool is_so, unsigned then, unsigned otherwise)
{
    return is_so ? then : otherwise;
}

/* The conditions that hold for all buckets of one place. `bucket` is any one of them. */
static unsigned facts_of(const zoff_engine *e, const zoff_sum_use *use, size_t bucket)
{
    const bool several = zoff_transfer_ranks_several(&e->transfer), staged = zoff_transfer_device_is(&e->transfer);
    const bool is_host = use->place == ZOFF_USED_BY_HOST, owns = zoff_model_params_any_owned(&e->model);
    const bool partitioned = several && !e->plan.replicated;
    /* A communicator of the host sends updated weights from the host. */
    const bool sends = partitioned && !zoff_transfer_device_direct_is(&e->transfer);
    return either(several, SEVERAL, ALONE) | either(staged, STAGED, 0) |
           either(zoff_transfer_pieces_accumulates(&e->transfer), SUMS, NO_SUMS) | either(partitioned, PARTITIONED, WHOLE) |
           either(several && e->plan.replicated, REPLICATED, 0) |
           either(zoff_lending_secondary_is(&e->lending) && owns, SECONDARY, 0) | either(is_host, HOST, DEVICE) |
           either(use->comes_down, DOWN, KEPT) | either(zoff_transfer_device_norm_has(&e->transfer, bucket), THERE, HERE) |
           either(staged && (is_host || sends), STAGES, 0) | either(owns || sends, LANDS, 0) |
           either(e->settings.values.persist, PERSISTS, 0);
}

/* Whether a row needs an open step, or other ranks. */
static bool is_joint(const zoff_row *row)
{
    return row->run == zoff_transfer_device_unload_all || row->run == zoff_transfer_reduce_scatter_bucket ||
           row->run == zoff_engine_stages_agree || row->run == zoff_engine_stages_gate;
}

static void choose(zoff_engine *e, zoff_rows *rows, const conditional_row *all, size_t count, unsigned facts)
{
    void *const owners[] = {[ENGINE] = e, [TRANSFER] = &e->transfer};
    rows->count = 0;
    for (size_t i = 0; i < count; i++) {
        if ((all[i].when & ~facts) == 0)
            rows->row[rows->count++] = (zoff_row){.name = all[i].name, .run = all[i].run, .ctx = owners[all[i].owner]};
    }
    rows->joint = rows->gate = rows->count;
    for (unsigned i = rows->count; i-- > 0;) {
        rows->joint = is_joint(&rows->row[i]) ? i : rows->joint;
        rows->gate = rows->row[i].run == zoff_engine_stages_gate ? i : rows->gate;
    }
}

_Static_assert(sizeof STEP / sizeof STEP[0] <= ZOFF_ROWS_MAX, "ZOFF_ROWS_MAX is too small");

/* With several ranks, the slices that take part are known only after zoff_engine_stages_agree(). */
static void begun_together(zoff_engine *e)
{
    (void)e;
}

void zoff_engine_rows_choose(zoff_engine *e)
{
    e->walk.begun = zoff_transfer_ranks_several(&e->transfer) ? begun_together : zoff_engine_admit_drop_useless;
    e->walk.feed = zoff_engine_admit_feed_step;
    e->walk.in_order = false;
    e->walk.any_order = !zoff_transfer_ranks_several(&e->transfer);
    /* With several ranks, or streams of a device, other rows come before that one. */
    const zoff_config_values *values = &e->settings.values;
    e->walk.measures_early = e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads &&
                             (values->clip_norm > 0 || values->skip_nonfinite);
    e->walk.speculates_in_step = e->walk.any_order && zoff_transfer_device_is(&e->transfer) && e->transfer.device.staging.ahead;
    e->walk.lends_always = e->walk.any_order && zoff_model_params_any_owned(&e->model);
    e->walk.tells_new =
        e->walk.any_order && !zoff_transfer_device_is(&e->transfer) && values->background_threads && !values->check_use;
    static const zoff_sum_use *const USES[ZOFF_USED_PLACES] = {[ZOFF_USED_BY_HOST] = &zoff_transfer_sum_places_used_by_host,
                                                               [ZOFF_USED_BY_DEVICE] = &zoff_transfer_sum_places_used_by_device,
                                                               [ZOFF_USED_BY_DEVICE_FROM_HOST] =
                                                                   &zoff_transfer_sum_places_used_from_host};
    for (unsigned place = 0; place < ZOFF_USED_PLACES; place++) {
        const unsigned facts = facts_of(e, USES[place], place == ZOFF_USED_BY_HOST ? e->transfer.device.tier.count : 0);
        choose(e, &e->walk.rows[place].add, ADD, sizeof ADD / sizeof ADD[0], facts);
        choose(e, &e->walk.rows[place].step, STEP, sizeof STEP / sizeof STEP[0], facts);
        choose(e, &e->walk.rows[place].ahead, AHEAD, sizeof AHEAD / sizeof AHEAD[0], facts);
        e->walk.in_order = e->walk.in_order || (facts & (DEVICE | STAGES)) == (DEVICE | STAGES);
    }
}

const zoff_rows *zoff_engine_rows_of(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_bucket_rows *rows = &e->walk.rows[zoff_transfer_use_of(&e->transfer, run->chunk)->place];
    return run->ahead.is_so ? &rows->ahead : e->run.last ? &rows->step : &rows->add;
}
