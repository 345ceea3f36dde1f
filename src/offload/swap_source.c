/* swap_source.c: where the content of an array is, for a checkpoint that reads it beside the steps. */
#include "swap_priv.h"

#include "aio.h"
#include "try.h"

/* Whether a slot holds bytes that the file lacks. */
static bool has_newer(const zoff_swap_store *s, size_t chunk)
{
    for (size_t i = 0; i < s->ring_count + s->home_count; i++) {
        const zoff_swap_slot *slot = &s->slots[i];
        if (slot->chunk == chunk && (slot->state == ZOFF_SLOT_DIRTY || slot->state == ZOFF_SLOT_WRITING))
            return true;
    }
    return false;
}

/* A resident that persists is in its file, too: its place stays while its memory changes. */
zoff_status zoff_offload_swap_source_find(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    const zoff_swap_store *s = (const zoff_swap_store *)store;
    const zoff_swap_place *place = &s->places[chunk];
    const zoff_swap_array *now = &place->now.arrays[array];
    const size_t begin = zoff_offload_swap_place_begin(&s->chunks[chunk], array);
    zoff_store_source source = {.fd = -1, .begin = begin, .bytes = s->chunks[chunk].ends[array] - begin};
    if (place->home && !s->persist) {
        source.memory = place->home->base + begin;
        source.written = source.bytes;
        *out = source;
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(has_newer(s, chunk), ZOFF_ERR_STATE,
                 "a slot has newer states than '%s', because a write has failed: call zoff_state_flush() until it succeeds",
                 s->files[place->file].name);
    source.queue = s->files[place->file].aio;
    source.fd = zoff_aio_queue_fd(source.queue);
    source.offset = zoff_offload_swap_place_offset(s, chunk, array);
    source.written = zoff_offload_swap_place_written(s, chunk, array);
    source.has_checksum = now->has_checksum;
    source.checksum = now->checksum;
    source.stays = s->persist && now->slot == place->committed.arrays[array].slot;
    *out = source;
    return ZOFF_OK;
}
