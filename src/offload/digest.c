/* digest.c: XXH3 over blocks, shared out over the team. XXH3 is fast enough to be no more than a second reading of what the
 * update reads anyway; it finds what disks and cables do, not what somebody does on purpose. */
#include "digest_priv.h"

#include "bits.h"
#include "team.h"

#include <xxhash.h>
/* The library's own choice of vector width at run time, where the distribution ships it. */
#ifdef ZOFF_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif

enum { SHARED_FROM = 4 }; /* blocks: below that a team costs more than it saves */

typedef struct work {
    const char *base;
    size_t bytes, blocks;
    uint64_t *hashes;
} work;

size_t zoff_offload_digest_blocks(size_t bytes)
{
    return zoff_base_bits_ceil_div(bytes, ZOFF_DIGEST_BLOCK);
}

static void hash_share(void *ctx, unsigned thread, unsigned threads)
{
    const work *w = ctx;
    const size_t end = w->blocks * (thread + 1) / threads;
    for (size_t i = w->blocks * thread / threads; i < end; i++) {
        const size_t at = i * ZOFF_DIGEST_BLOCK;
        w->hashes[i] = XXH3_64bits(w->base + at, zoff_base_bits_min(w->bytes - at, ZOFF_DIGEST_BLOCK));
    }
}

uint64_t zoff_offload_digest(unsigned threads, const void *base, size_t bytes, uint64_t *scratch)
{
    work w = {.base = base, .bytes = bytes, .blocks = zoff_offload_digest_blocks(bytes), .hashes = scratch};
    if (threads > 1 && w.blocks >= SHARED_FROM)
        zoff_base_team_run(threads, hash_share, &w);
    else
        hash_share(&w, 0, 1);
    return XXH3_64bits(scratch, w.blocks * sizeof *scratch);
}

uint64_t zoff_offload_digest_small(const void *base, size_t bytes)
{
    return XXH3_64bits(base, bytes);
}
