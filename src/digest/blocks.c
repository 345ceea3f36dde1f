/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: XXH3 over blocks, divided among the team. XXH3 costs little more than reading once more what the update reads
 * anyway. It finds errors of disks and cables, not deliberate changes. */
#include "digest.h"

#include "bits.h"
#include "cpu.h"
#include "team.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* makes the type complete for a state on the stack; its layout is fixed since xxHash 0.8 */
#include <xxhash.h>

enum { SHARED_FROM = 8 }; /* with fewer blocks a team costs more than it saves */

typedef struct work {
    zoff_digest *digest;
    const char *base;
    unsigned arrays;   /* blocks of other arrays are skipped */
    size_t first, end; /* blocks */
} work;

/* xxHash chooses its vector width at run time if the distribution built it so. Debian and Ubuntu do that in the shared library
 * only. A program that links libzoff.a and libxxhash.a must find every symbol; it computes the same hashes with narrower
 * vectors. */
#ifdef ZOFF_HAVE_XXH_DISPATCH
extern XXH64_hash_t XXH3_64bits_dispatch(const void *input, size_t bytes) __attribute__((weak));
#endif

static uint64_t hash_of(const void *base, size_t bytes)
{
#ifdef ZOFF_HAVE_XXH_DISPATCH
    if (XXH3_64bits_dispatch) {
        const XXH64_hash_t hash = XXH3_64bits_dispatch(base, bytes);
        zoff_base_cpu_clear_vectors(); /* clear the vectors, because xxHash's functions with AVX2 and AVX-512 do not */
        return hash;
    }
#endif
    return XXH3_64bits(base, bytes);
}

static size_t begin_of(const size_t *ends, unsigned array)
{
    return array ? ends[array - 1] : 0;
}

static unsigned array_of(const zoff_digest *d, size_t block)
{
    unsigned array = 0;
    while (block >= d->block_ends[array])
        array++;
    return array;
}

static bool is_left(const work *w, size_t block)
{
    return !w->digest->done[block] && (w->arrays >> array_of(w->digest, block) & 1);
}

static void hash_share(void *ctx, unsigned thread, unsigned threads)
{
    const work *w = ctx;
    zoff_digest *d = w->digest;
    const size_t count = w->end - w->first, end = w->first + count * (thread + 1) / threads;
    for (size_t i = w->first + count * thread / threads; i < end; i++) {
        if (!is_left(w, i))
            continue;
        const unsigned array = array_of(d, i);
        const size_t at = begin_of(d->ends, array) + (i - begin_of(d->block_ends, array)) * ZOFF_DIGEST_BLOCK;
        d->hashes[i] = hash_of(w->base + at, zoff_base_bits_min(d->ends[array] - at, ZOFF_DIGEST_BLOCK));
        d->done[i] = true;
    }
}

static void hash(work *w, unsigned threads)
{
    size_t left = 0;
    for (size_t i = w->first; i < w->end; i++)
        left += is_left(w, i);
    if (threads > 1 && left >= SHARED_FROM)
        zoff_base_team_run(threads, hash_share, w);
    else if (left)
        hash_share(w, 0, 1);
}

size_t zoff_digest_blocks_room(size_t bytes)
{
    return bytes / ZOFF_DIGEST_BLOCK + ZOFF_DIGEST_ARRAYS;
}

void zoff_digest_blocks_begin(zoff_digest *d, const size_t ends[ZOFF_DIGEST_ARRAYS])
{
    size_t blocks = 0;
    for (unsigned array = 0; array < ZOFF_DIGEST_ARRAYS; array++) {
        d->ends[array] = ends[array];
        blocks += zoff_base_bits_ceil_div(ends[array] - begin_of(ends, array), ZOFF_DIGEST_BLOCK);
        d->block_ends[array] = blocks;
    }
    memset(d->done, 0, blocks * sizeof *d->done);
}

void zoff_digest_blocks_add(zoff_digest *d, unsigned threads, const void *base, size_t from, size_t to)
{
    for (unsigned array = 0; array < ZOFF_DIGEST_ARRAYS; array++) {
        const size_t begin = begin_of(d->ends, array), end = d->ends[array], block = begin_of(d->block_ends, array);
        if (from >= end || to <= begin)
            continue;
        const size_t first = from > begin ? zoff_base_bits_ceil_div(from - begin, ZOFF_DIGEST_BLOCK) : 0;
        work w = {.digest = d,
                  .base = base,
                  .arrays = 1u << array,
                  .first = block + first,
                  .end = to >= end ? d->block_ends[array] : block + (to - begin) / ZOFF_DIGEST_BLOCK};
        if (w.first < w.end)
            hash(&w, threads);
    }
}

void zoff_digest_blocks_end(zoff_digest *d, unsigned threads, const void *base, unsigned arrays,
                            uint64_t out[ZOFF_DIGEST_ARRAYS])
{
    work w = {.digest = d, .base = base, .arrays = arrays, .end = d->block_ends[ZOFF_DIGEST_ARRAYS - 1]};
    hash(&w, threads); /* all arrays at once, so that a team is woken once */
    for (unsigned array = 0; array < ZOFF_DIGEST_ARRAYS; array++) {
        const size_t first = begin_of(d->block_ends, array), blocks = d->block_ends[array] - first;
        if (arrays >> array & 1)
            out[array] = hash_of(d->hashes + first, blocks * sizeof *d->hashes);
    }
}

/* Blocks of one run of bytes, a batch of them at a time. */
enum { BATCH = 512 };

typedef struct batch {
    const char *base;
    size_t bytes;
    uint64_t hashes[BATCH];
} batch;

static void hash_batch(void *ctx, unsigned thread, unsigned threads)
{
    batch *b = ctx;
    const size_t count = zoff_base_bits_ceil_div(b->bytes, ZOFF_DIGEST_BLOCK), end = count * (thread + 1) / threads;
    for (size_t i = count * thread / threads; i < end; i++) {
        const size_t at = i * ZOFF_DIGEST_BLOCK;
        b->hashes[i] = hash_of(b->base + at, zoff_base_bits_min(b->bytes - at, ZOFF_DIGEST_BLOCK));
    }
}

uint64_t zoff_digest_blocks_whole(const void *base, size_t bytes, unsigned threads)
{
    XXH3_state_t all;
    XXH3_64bits_reset(&all);
    for (size_t at = 0; at < bytes;) {
        batch b = {.base = (const char *)base + at, .bytes = zoff_base_bits_min(bytes - at, (size_t)BATCH * ZOFF_DIGEST_BLOCK)};
        const size_t count = zoff_base_bits_ceil_div(b.bytes, ZOFF_DIGEST_BLOCK);
        if (threads > 1 && count >= SHARED_FROM)
            zoff_base_team_run(threads, hash_batch, &b);
        else
            hash_batch(&b, 0, 1);
        XXH3_64bits_update(&all, b.hashes, count * sizeof *b.hashes);
        at += b.bytes;
    }
    return XXH3_64bits_digest(&all);
}

uint64_t zoff_digest_blocks_small(const void *base, size_t bytes)
{
    return hash_of(base, bytes);
}
