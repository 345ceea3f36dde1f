/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c: the size of chunks when states are streamed through a budget of DRAM, and which of them stay there. */
#include "offload.h"

#include "bits.h"

enum {
    MIB = 1 << 20,
    /* most bytes of a chunk: larger ones are not faster on a disk, and expose more of the first read and the last write */
    LARGEST = 48 * MIB,
    SMALLEST = 4 * MIB, /* fewest bytes of a chunk: smaller ones cost more requests; a budget may force them */
    CHUNKS_WANTED = 40  /* number of chunks, so that the first read and the last write are small beside the step */
};

static const double ABOUT_THE_SAME = 0.75; /* least speed of a disk, as a part of the fastest, to count as alike */

void zoff_offload_placement_nvme(uint64_t budget_bytes, unsigned slots, uint64_t state_bytes, zoff_placement *out)
{
    size_t chunk = zoff_base_bits_max(SMALLEST, state_bytes / CHUNKS_WANTED);
    chunk = zoff_base_bits_min(chunk, LARGEST);
    if (budget_bytes)
        chunk = zoff_base_bits_min(chunk, budget_bytes / slots);
    *out = (zoff_placement){.slots = slots, .chunk_bytes = chunk};
}

size_t zoff_offload_placement_residents(uint64_t budget_bytes, unsigned slots, size_t chunk_bytes, size_t count)
{
    const uint64_t room = chunk_bytes ? budget_bytes / chunk_bytes : 0;
    return room > slots ? zoff_base_bits_min(room - slots, count) : 0;
}

size_t zoff_offload_placement_room(size_t chunk_bytes, size_t largest)
{
    return chunk_bytes >= largest - largest / 16 ? largest : chunk_bytes;
}

void zoff_offload_placement_shares(double *rates, size_t count)
{
    double fastest = 0, sum = 0;
    bool known = true;
    for (size_t i = 0; i < count; i++) {
        known = known && rates[i] > 0;
        fastest = rates[i] > fastest ? rates[i] : fastest;
    }
    for (size_t i = 0; i < count; i++) {
        rates[i] = !known || rates[i] >= ABOUT_THE_SAME * fastest ? (known ? fastest : 1) : rates[i];
        sum += rates[i];
    }
    for (size_t i = 0; i < count; i++)
        rates[i] /= sum;
}

/* Position k of n is a resident if floor(k * residents / n) is larger than at the position before. */
bool zoff_offload_placement_resident(size_t chunk, size_t residents, size_t count)
{
    return (uint64_t)(chunk + 1) * residents / count != (uint64_t)chunk * residents / count;
}
