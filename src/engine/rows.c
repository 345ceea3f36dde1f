/* rows.c: the life of a bucket, as data. A bucket is one chunk of states with the gradients and weights that belong to it; it
 * walks the rows of a table from top to bottom (pipeline.c). Which rows a bucket has goes by where weights and gradients are,
 * by the number of ranks and by the tier of its states; it is decided here, at seal, and asked nowhere else. */
#include "engine_priv.h"

/* Conditions of a row. A bucket has the row if all of them hold. */
enum {
    ALONE = 1 << 0, /* one rank */
    SEVERAL = 1 << 1,
    STAGED = 1 << 2,  /* weights and gradients are on a device; gradients that the host needs come down, new weights go up */
    SUMS = 1 << 3,    /* micro-batches are added up */
    NO_SUMS = 1 << 4, /* gradients are used where they come to be */
    WHOLE = 1 << 5,   /* a rank's own updates are all of the new weights that it has */
    PARTITIONED = 1 << 6,
    REPLICATED = 1 << 7, /* every rank has all states */
    HOST = 1 << 8,       /* the tier of the bucket: DRAM or files */
    DEVICE = 1 << 9,     /* its states stay on the device */
    THERE = 1 << 10,     /* the device measures its gradients */
    HERE = 1 << 11,
};

typedef struct conditional_row {
    zoff_row row;
    unsigned when;
} conditional_row;

/* Every micro-step but the last one of a step. */
static const conditional_row ADD[] = {
    {{"unload", zoff_engine_device_unload}, ALONE | STAGED | HOST}, /* device: its gradients have come down */
    {{"unload", zoff_engine_device_unload_none}, ALONE | STAGED | DEVICE},
    {{"unload", zoff_engine_device_unload_all}, SEVERAL | STAGED},
    {{"reduce", zoff_engine_reduce_scatter_bucket}, SEVERAL}, /* zero: all ranks' gradients to their owner, who adds them up */
    {{"accumulate", zoff_engine_stages_accumulate}, ALONE | HOST}, /* cpu_adam: into fp32 */
    {{"accumulate", zoff_engine_device_tier_accumulate}, ALONE | DEVICE},
};

/* The last micro-step. Of several ranks gradients may have left, and be added up and measured, before it was asked for. */
static const conditional_row STEP[] = {
    {{"unload", zoff_engine_device_unload}, ALONE | STAGED | SUMS | HOST},
    {{"unload", zoff_engine_device_unload_none}, ALONE | STAGED | SUMS | DEVICE},
    {{"unload", zoff_engine_device_unload_all}, SEVERAL | STAGED},
    {{"reduce", zoff_engine_reduce_scatter_bucket}, SEVERAL},
    {{"accumulate", zoff_engine_stages_accumulate}, ALONE | SUMS | HOST},
    {{"accumulate", zoff_engine_device_tier_accumulate}, ALONE | SUMS | DEVICE},
    {{"measure", zoff_engine_stages_measure}, ALONE | HERE}, /* cpu_adam: square sums, finite or not */
    {{"measure", zoff_engine_device_norm_measure}, ALONE | THERE},
    {{"agree", zoff_engine_presence_agree}, SEVERAL}, /* comm: on the slices that take part */
    {{"gate", zoff_engine_stages_gate}, 0},           /* engine: opens when all are measured and the ranks have voted */
    {{"unload", zoff_engine_device_unload}, ALONE | STAGED | NO_SUMS | HOST}, /* the gate does not wait for what comes down */
    {{"unload", zoff_engine_device_unload_none}, ALONE | STAGED | NO_SUMS | DEVICE},
    {{"sums", zoff_engine_all_gather_sums}, SEVERAL | REPLICATED}, /* zero: those of other ranks */
    {{"fetch", zoff_engine_stages_fetch}, 0},             /* offload: starts for later buckets while this one is updated */
    {{"stage", zoff_engine_device_stage}, STAGED | HOST}, /* device: where its new weights will be */
    {{"update", zoff_engine_update_run}, HOST},           /* cpu_adam, on the team; pumps I/O in between */
    {{"update", zoff_engine_device_tier_update}, DEVICE},
    {{"flush", zoff_engine_stages_flush}, 0},                              /* offload: write-behind, never waited for here */
    {{"upload", zoff_engine_device_upload_bucket}, STAGED | WHOLE | HOST}, /* device: likewise */
    {{"gather", zoff_engine_all_gather_weights}, PARTITIONED},             /* zero: to all ranks, a few buckets at a time */
};

static unsigned either(bool is_so, unsigned then, unsigned otherwise)
{
    return is_so ? then : otherwise;
}

/* The conditions that hold for all buckets of one tier. `bucket` is any one of them. */
static unsigned facts_of(const zoff_engine *e, bool on_device, size_t bucket)
{
    const bool several = zoff_engine_ranks_several(e);
    return either(several, SEVERAL, ALONE) | either(zoff_engine_device_is(e), STAGED, 0) |
           either(zoff_engine_pieces_accumulates(e), SUMS, NO_SUMS) |
           either(several && !e->plan.replicated, PARTITIONED, WHOLE) | either(several && e->plan.replicated, REPLICATED, 0) |
           either(on_device, DEVICE, HOST) | either(zoff_engine_device_norm_has(e, bucket), THERE, HERE);
}

static void choose(zoff_rows *rows, const conditional_row *all, size_t count, unsigned facts)
{
    rows->count = 0;
    for (size_t i = 0; i < count; i++) {
        if ((all[i].when & ~facts) == 0)
            rows->row[rows->count++] = all[i].row;
    }
}

_Static_assert(sizeof STEP / sizeof STEP[0] <= ZOFF_ROWS_MAX, "room for all rows");

void zoff_engine_rows_choose(zoff_engine *e)
{
    const size_t first_of_host = e->device.tier.count;
    for (unsigned on_device = 0; on_device < 2; on_device++) {
        const unsigned facts = facts_of(e, on_device != 0, on_device ? 0 : first_of_host);
        choose(&e->rows[on_device].add, ADD, sizeof ADD / sizeof ADD[0], facts);
        choose(&e->rows[on_device].step, STEP, sizeof STEP / sizeof STEP[0], facts);
    }
}

const zoff_rows *zoff_engine_rows_of(const zoff_bucket_run *run)
{
    const zoff_engine *e = run->engine;
    const zoff_bucket_rows *rows = &e->rows[zoff_engine_device_tier_has(e, run->chunk)];
    return e->run.last ? &rows->step : &rows->add;
}
