/* feed.c: moments of a checkpoint that have another format in the engine, block by block. A block is converted once all its
 * bytes are there, so the result does not depend on how the checkpoint is cut into units. */
#include "checkpoint_priv.h"

#include "bits.h"

#include <string.h>

void zoff_checkpoint_feed_take(zoff_block_feed *f, const char *bytes, size_t count)
{
    float numbers[ZOFF_ARCHIVE_BLOCK];
    while (count) {
        const size_t elements = zoff_base_bits_min(f->count - f->done, (size_t)ZOFF_ARCHIVE_BLOCK);
        const size_t whole = zoff_archive_table_bytes_of(f->from, elements), now = zoff_base_bits_min(count, whole - f->have);
        memcpy(f->bytes + f->have, bytes, now);
        f->have += now;
        bytes += now;
        count -= now;
        if (f->have < whole)
            continue;
        zoff_archive_table_load(f->from, f->bytes, 0, elements, numbers);
        zoff_archive_table_store(f->to, f->dst, f->count, f->done, elements, numbers);
        f->done += elements;
        f->have = 0;
    }
}
