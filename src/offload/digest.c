/* digest.c: XXH3 over blocks, shared out over the team. XXH3 is fast enough to be no more than a second reading of what the
 * update reads anyway; it finds what disks and cables do, not what somebody does on purpose. */
#include "digest_priv.h"

#include "bits.h"
#include "team.h"

#include <string.h>
#include <xxhash.h>

enum { SHARED_FROM = 8 }; /* blocks: below that a team costs more than it saves */

typedef struct work {
    zoff_digest *digest;
    const char *base;
    size_t bytes, first, end; /* bytes of the chunk; blocks */
} work;

/* xxHash chooses its vectors at run time where the distribution built it so. Debian and Ubuntu do in the shared library only: a
 * program that links libzoff.a and libxxhash.a must find no missing symbol, and has the same hashes from narrower vectors. */
#ifdef ZOFF_HAVE_XXH_DISPATCH
extern XXH64_hash_t XXH3_64bits_dispatch(const void *input, size_t bytes) __attribute__((weak));
#endif

static uint64_t hash_of(const void *base, size_t bytes)
{
#ifdef ZOFF_HAVE_XXH_DISPATCH
    if (XXH3_64bits_dispatch)
        return XXH3_64bits_dispatch(base, bytes);
#endif
    return XXH3_64bits(base, bytes);
}

size_t zoff_offload_digest_blocks(size_t bytes)
{
    return zoff_base_bits_ceil_div(bytes, ZOFF_DIGEST_BLOCK);
}

static void hash_share(void *ctx, unsigned thread, unsigned threads)
{
    const work *w = ctx;
    const size_t count = w->end - w->first, end = w->first + count * (thread + 1) / threads;
    for (size_t i = w->first + count * thread / threads; i < end; i++) {
        const size_t at = i * ZOFF_DIGEST_BLOCK;
        if (w->digest->done[i])
            continue;
        w->digest->hashes[i] = hash_of(w->base + at, zoff_base_bits_min(w->bytes - at, ZOFF_DIGEST_BLOCK));
        w->digest->done[i] = true;
    }
}

void zoff_offload_digest_begin(zoff_digest *d, size_t bytes)
{
    memset(d->done, 0, zoff_offload_digest_blocks(bytes) * sizeof *d->done);
}

static void hash(zoff_digest *d, unsigned threads, const void *base, size_t bytes, size_t first, size_t end)
{
    work w = {.digest = d, .base = base, .bytes = bytes, .first = first, .end = end};
    size_t left = 0;
    for (size_t i = first; i < end; i++)
        left += !d->done[i];
    if (threads > 1 && left >= SHARED_FROM)
        zoff_base_team_run(threads, hash_share, &w);
    else if (left)
        hash_share(&w, 0, 1);
}

void zoff_offload_digest_add(zoff_digest *d, unsigned threads, const void *base, size_t bytes, size_t from, size_t to)
{
    const size_t first = zoff_base_bits_ceil_div(from, ZOFF_DIGEST_BLOCK);
    const size_t end = to >= bytes ? zoff_offload_digest_blocks(bytes) : to / ZOFF_DIGEST_BLOCK;
    if (first < end)
        hash(d, threads, base, bytes, first, end);
}

uint64_t zoff_offload_digest_end(zoff_digest *d, unsigned threads, const void *base, size_t bytes)
{
    const size_t blocks = zoff_offload_digest_blocks(bytes);
    hash(d, threads, base, bytes, 0, blocks);
    return hash_of(d->hashes, blocks * sizeof *d->hashes);
}

uint64_t zoff_offload_digest_small(const void *base, size_t bytes)
{
    return hash_of(base, bytes);
}
