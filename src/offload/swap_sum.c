/* SPDX-License-Identifier: Apache-2.0 */
/* swap_sum.c: checksums of arrays: computed at a flush, compared after a read. */
#include "swap_priv.h"

#include "clock.h"

_Static_assert((int)ZOFF_DIGEST_ARRAYS == (int)ZOFF_STORE_ARRAYS, "a checksum for each array of a chunk");

/* Whether this content of a chunk is verified. A sample reaches each chunk in turn. */
static bool is_checked(const zoff_swap_store *s, size_t chunk)
{
    return s->sums.verify == ZOFF_VERIFY_FULL ||
           (s->sums.verify == ZOFF_VERIFY_SAMPLE && (chunk + s->record.generation) % ZOFF_VERIFY_SAMPLES == 0);
}

/* The checksums of some arrays, without the parts that settle has computed. */
static void digest(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, uint64_t sums[ZOFF_STORE_ARRAYS])
{
    double from = zoff_base_clock_seconds();
    if (s->sums.digested != chunk)
        zoff_digest_blocks_begin(&s->sums.digest, s->chunks[chunk].ends);
    s->sums.digested = SIZE_MAX;
    zoff_digest_blocks_end(&s->sums.digest, s->store.threads, base, arrays, sums);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - from;
}

/* Skip chunks whose checksum no fetch will compare. */
void zoff_offload_swap_sum_settle(zoff_store *store, size_t chunk, size_t from, size_t to)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (!is_checked(s, chunk) || (s->places[chunk].home && !s->persist))
        return;
    double start = zoff_base_clock_seconds();
    if (s->sums.digested != chunk)
        zoff_digest_blocks_begin(&s->sums.digest, s->chunks[chunk].ends);
    s->sums.digested = chunk;
    zoff_digest_blocks_add(&s->sums.digest, s->store.threads, zoff_offload_swap_slot_find(s, chunk)->base, from, to);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - start;
}

void zoff_offload_swap_sum_stamp(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, zoff_swap_version *out)
{
    uint64_t sums[ZOFF_STORE_ARRAYS] = {0};
    const bool has_checksum = is_checked(s, chunk);
    if (has_checksum)
        digest(s, chunk, base, arrays, sums);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        if (!(arrays >> array & 1))
            continue;
        out->arrays[array].has_checksum = has_checksum;
        out->arrays[array].checksum = sums[array];
    }
}

unsigned zoff_offload_swap_sum_find_corrupt(zoff_swap_store *s, const zoff_swap_slot *slot)
{
    const zoff_swap_version *now = &s->places[slot->chunk].now;
    uint64_t sums[ZOFF_STORE_ARRAYS];
    unsigned compared = 0, corrupt = 0;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        compared |= (slot->unchecked & 1u << array) && now->arrays[array].has_checksum ? 1u << array : 0;
    if (s->sums.verify == ZOFF_VERIFY_OFF || !compared)
        return 0;
    digest(s, slot->chunk, slot->base, compared, sums);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        corrupt |= (compared & 1u << array) && sums[array] != now->arrays[array].checksum ? 1u << array : 0;
    return corrupt;
}

/* Persistent files have two places for each array. The committed bytes stay in theirs until the next commit, so new bytes go to
 * the other. The same holds for an undecided chunk of any file. Other bytes replace those before them. */
void zoff_offload_swap_sum_renew(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays)
{
    zoff_swap_place *place = &s->places[chunk];
    const bool is_needed = s->persist || place->is_undecided; /* what the file has now */
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        if (!(arrays >> array & 1))
            continue;
        if (is_needed)
            place->now.arrays[array].slot = !place->committed.arrays[array].slot;
        place->now.arrays[array].fresh = false;
    }
    zoff_offload_swap_sum_stamp(s, chunk, base, arrays, &place->now);
}
