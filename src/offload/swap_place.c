/* SPDX-License-Identifier: Apache-2.0 */
/* swap_place.c: the places of a chunk's arrays, in its slot and in its file. */
#include "swap_priv.h"

#include "bits.h"

size_t zoff_offload_swap_place_begin(const zoff_store_chunk *chunk, unsigned array)
{
    return array ? chunk->ends[array - 1] : 0;
}

unsigned zoff_offload_swap_place_arrays(const zoff_swap_store *s, size_t chunk)
{
    const zoff_store_chunk *c = &s->chunks[chunk];
    unsigned arrays = 0;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        arrays |= (unsigned)(c->ends[array] > zoff_offload_swap_place_begin(c, array)) << array;
    return arrays;
}

unsigned zoff_offload_swap_place_copies(const zoff_swap_store *s)
{
    return s->persist || s->store.has_seconds ? 2 : 1;
}

uint64_t zoff_offload_swap_place_offset_of(const zoff_swap_store *s, size_t chunk, unsigned array,
                                           const zoff_swap_array *content)
{
    const zoff_store_chunk *c = &s->chunks[chunk];
    return s->places[chunk].offset + content->slot * (uint64_t)c->bytes + zoff_offload_swap_place_begin(c, array);
}

/* Bytes of an array that were written, from its beginning; the rest of a fresh one is zero. */
size_t zoff_offload_swap_place_written_of(const zoff_swap_store *s, size_t chunk, unsigned array,
                                          const zoff_swap_array *content)
{
    const size_t begin = zoff_offload_swap_place_begin(&s->chunks[chunk], array), end = s->chunks[chunk].ends[array];
    if (!content->fresh)
        return end - begin;
    return zoff_base_bits_min(zoff_base_bits_max(s->places[chunk].first_bytes, begin), end) - begin;
}

uint64_t zoff_offload_swap_place_offset(const zoff_swap_store *s, size_t chunk, unsigned array)
{
    return zoff_offload_swap_place_offset_of(s, chunk, array, &s->places[chunk].now.arrays[array]);
}

size_t zoff_offload_swap_place_written(const zoff_swap_store *s, size_t chunk, unsigned array)
{
    return zoff_offload_swap_place_written_of(s, chunk, array, &s->places[chunk].now.arrays[array]);
}
