/* placement.c: how large chunks are when states are streamed through a budget of DRAM. */
#include "offload.h"

#include "bits.h"

enum {
    MIB = 1 << 20,
    LARGEST = 48 * MIB, /* more does not make a disk faster, and the first read and the last write are not hidden */
    SMALLEST = 4 * MIB, /* less costs requests; a budget may force less */
    CHUNKS_WANTED = 40  /* so that the first read and the last write are small against the step */
};

void zoff_offload_placement_nvme(uint64_t budget_bytes, unsigned slots, uint64_t state_bytes, zoff_placement *out)
{
    size_t chunk = zoff_base_bits_max(SMALLEST, state_bytes / CHUNKS_WANTED);
    chunk = zoff_base_bits_min(chunk, LARGEST);
    if (budget_bytes)
        chunk = zoff_base_bits_min(chunk, budget_bytes / slots);
    *out = (zoff_placement){.slots = slots, .chunk_bytes = chunk};
}
