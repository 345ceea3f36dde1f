/* SPDX-License-Identifier: Apache-2.0 */
/* swap_stripe.c: measure each folder: the block size and depth that suit it if the configuration leaves them open ("aio":
 * "auto"), and its share of the states if there are several. */
#include "swap_priv.h"

#include "env.h"
#include "log.h"
#include "mem.h"
#include "try.h"

enum {
    STRIPE_FROM = 256 << 20, /* bytes of states; for fewer a measurement takes too long */
    DEPTH_DEFAULT = 32,
    DEPTH_LEAST = 4
};

static const double STRIPE_SECONDS = 0.5; /* seconds for each folder, if only its rate is measured */

/* Measure one folder. A failure is ignored here, because the queue or the reservation reports the cause. */
static bool measure(const zoff_store_opts *opts, const char *folder, zoff_aio_tune_result *out)
{
    const zoff_aio_tune_opts tune = {.struct_size = sizeof tune,
                                     .backend = opts->aio_backend,
                                     .direct = (zoff_aio_direct)opts->direct,
                                     .seconds = opts->aio_tune ? 0 : STRIPE_SECONDS};
    *out = (zoff_aio_tune_result){.struct_size = sizeof *out};
    if (zoff_aio_tune(folder, &tune, out) < 0) {
        ZOFF_WARN("%s could not be measured (%s): continuing with the defaults", folder, zoff_last_error());
        return false;
    }
    /* In the format of zoff_aio_tune_print(), on one line. */
    if (opts->aio_tune)
        ZOFF_INFO("%s %s: {\"aio\": {\"block_size\": %zu, \"queue_depth\": %u}} (%.2f GB/s reading, %.2f writing, %.2f both)",
                  out->cached ? "kept from an earlier measurement of" : "measured", folder, out->block_bytes, out->depth,
                  1e-9 * out->read_rate, 1e-9 * out->write_rate, 1e-9 * out->mixed_rate);
    return true;
}

/* Ranks on this host share the devices, so each takes its share of the depth. */
static unsigned fair_depth(unsigned depth)
{
    zoff_env_ranks ranks;
    zoff_base_env_ranks(&ranks);
    const unsigned part = depth / (ranks.count ? ranks.count : 1);
    return part > DEPTH_LEAST ? part : DEPTH_LEAST;
}

/* Shares need rates only if chunks are placed. */
static bool wants_rates(const zoff_swap_store *s, const zoff_store_opts *opts)
{
    size_t limit_bytes, limit_elements;
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->chunk_count; i++)
        bytes += s->chunks[i].bytes;
    return opts->path_count > 1 && bytes >= STRIPE_FROM &&
           !(s->persist && zoff_offload_persisted_limits(opts->paths[0], (zoff_store_owner){opts->rank, opts->part},
                                                         &limit_bytes, &limit_elements));
}

zoff_status zoff_offload_swap_stripe_measure(zoff_swap_store *s, const zoff_store_opts *opts)
{
    double *rates;
    const bool stripes = wants_rates(s, opts);
    bool all = stripes;
    ZOFF_TRY(zoff_base_mem_alloc(opts->path_count, sizeof *rates, "the rates of folders", &rates));
    for (size_t i = 0; i < opts->path_count; i++) {
        zoff_swap_stripe *stripe = &s->stripes[i];
        zoff_aio_tune_result result = {.depth = 0};
        *stripe = (zoff_swap_stripe){.block_bytes = opts->aio_block_bytes, .depth = opts->aio_depth, .share = 1};
        if (opts->aio_tune || stripes)
            all = measure(opts, opts->paths[i], &result) && all;
        rates[i] = result.mixed_rate;
        if (!stripe->block_bytes && opts->aio_tune)
            stripe->block_bytes = result.block_bytes;
        if (!stripe->depth)
            stripe->depth = fair_depth(opts->aio_tune && result.depth ? result.depth : DEPTH_DEFAULT);
    }
    if (all)
        zoff_offload_placement_shares(rates, opts->path_count);
    for (size_t i = 0; all && i < opts->path_count; i++) {
        s->stripes[i].share = rates[i];
        ZOFF_INFO("%s takes %.0f %% of the states, by its measured rate", opts->paths[i], 100 * rates[i]);
    }
    zoff_base_mem_free(rates);
    return ZOFF_OK;
}

uint32_t zoff_offload_swap_stripe_next(zoff_swap_store *s, size_t bytes)
{
    size_t most = 0;
    for (size_t i = 0; i < s->file_count; i++) {
        s->stripes[i].credit += s->stripes[i].share * (double)bytes;
        if (s->stripes[i].credit > s->stripes[most].credit)
            most = i;
    }
    double sum = 0;
    for (size_t i = 0; i < s->file_count; i++)
        sum += s->stripes[i].share;
    s->stripes[most].credit -= sum * (double)bytes;
    return (uint32_t)most;
}
