/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c: moments of a checkpoint that have another format in the engine, block by block. A block is converted once all its
 * bytes are there, so the result does not depend on how the checkpoint is cut into units. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* A block that is lost already is copied as it is, and not converted. */
static zoff_status check(const zoff_block_feed *f, const float *numbers, size_t count)
{
    const size_t odd = zoff_archive_table_unfit(f->to, count, numbers);
    ZOFF_FAIL_IF(
        odd < count, ZOFF_ERR_UNSUPPORTED,
        "a moment of '%.200s' in the checkpoint is %g, which its block of moments in 8 bits cannot store: load it with "
        "zoff.moments \"bf16\" or \"fp32\", or name the parameter in zoff.fp32_moments",
        f->name, (double)numbers[odd]);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_feed_take(zoff_block_feed *f, const char *bytes, size_t count)
{
    float numbers[ZOFF_ARCHIVE_BLOCK];
    const bool has_blocks = zoff_archive_table_block(f->to) != 1;
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
        /* A block is stored as a whole, with its elements that stay as they are. */
        size_t stored = elements;
        if (has_blocks && f->done + elements == f->count) {
            stored = zoff_base_bits_min(f->room - f->done, (size_t)ZOFF_ARCHIVE_BLOCK);
            zoff_archive_table_load(f->to, f->dst, f->done + elements, stored - elements, numbers + elements);
        }
        ZOFF_TRY(check(f, numbers, stored));
        zoff_archive_table_store(f->to, f->dst, f->room, f->done, stored, numbers);
        f->done += elements;
        f->have = 0;
    }
    return ZOFF_OK;
}
