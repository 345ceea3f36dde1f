/* SPDX-License-Identifier: Apache-2.0 */
/* spares.c: memory for second contents of chunks that stay in DRAM. It is allocated when the store is opened, so no step runs
 * out of it. The memory that was returned last is taken first, because it may still be in a cache. */
#include "tier.h"

#include "mem.h"
#include "team.h"
#include "try.h"

#include <string.h>

typedef struct touch {
    char *base;
    size_t count, bytes; /* number of spares, and bytes of each */
} touch;

/* Touch a share of each spare first on about the thread that updates it later. */
static void touch_share(void *ctx, unsigned thread, unsigned threads)
{
    const touch *t = ctx;
    const size_t from = t->bytes / threads * thread, to = thread + 1 < threads ? t->bytes / threads * (thread + 1) : t->bytes;
    for (size_t i = 0; i < t->count; i++)
        memset(t->base + i * t->bytes + from, 0, to - from);
}

zoff_status zoff_offload_spares_open(zoff_spares *spares, size_t count, size_t bytes, zoff_map_nodes nodes, unsigned threads)
{
    if (!count || !bytes)
        return ZOFF_OK;
    ZOFF_FAIL_IF(count > SIZE_MAX / bytes, ZOFF_ERR_NO_MEMORY,
                 "cannot map %zu times %zu bytes for second contents of chunks: larger than the address space", count, bytes);
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *spares->free, "the list of spare memories", &spares->free));
    ZOFF_TRY(zoff_base_map_alloc(count * bytes, "second contents of chunks", nodes, &spares->map));
    /* Pages are allocated here and not in the first steps, which would wait for them. */
    zoff_base_team_run(threads, touch_share, &(touch){spares->map.base, count, bytes});
    for (size_t i = count; i-- > 0;)
        zoff_offload_spares_give(spares, (char *)spares->map.base + i * bytes);
    return ZOFF_OK;
}

char *zoff_offload_spares_take(zoff_spares *spares)
{
    return spares->count ? spares->free[--spares->count] : NULL;
}

void zoff_offload_spares_give(zoff_spares *spares, char *memory)
{
    spares->free[spares->count++] = memory;
}

void zoff_offload_spares_close(zoff_spares *spares, bool is_idle)
{
    if (is_idle)
        zoff_base_map_free(&spares->map);
    zoff_base_mem_free(spares->free);
    *spares = (zoff_spares){.count = 0};
}
