/* frozen.c: frozen weights in the program's memory, on the host or on a device. They are in no chunk, and no step changes them.
 */
#include "checkpoint_priv.h"

#include "bits.h"
#include "digest.h"
#include "try.h"

#include <string.h>

/* The region as it is written: one unit after the other. */
typedef struct stream {
    zoff_saver *saver;
    const zoff_archive_region *region;
    char *unit;
    uint64_t at;  /* bytes before it are written, or in the unit */
    bool is_used; /* after an error the device or the disk may still access the unit */
} stream;

static zoff_status end_unit(stream *w)
{
    const zoff_archive_region *r = w->region;
    zoff_saver *s = w->saver;
    const uint64_t number = (w->at - 1) / r->unit;
    const size_t bytes = zoff_archive_table_unit_bytes(r, (size_t)number);
    uint64_t ticket;
    s->part.table.checksums[r->first_checksum + number] = zoff_digest_blocks_whole(w->unit, bytes, s->view.threads);
    ZOFF_TRY(zoff_aio_write(s->part.aio, r->offset + number * r->unit, bytes, w->unit, &ticket));
    const zoff_status status = zoff_aio_wait(s->part.aio, ticket);
    w->is_used = status == ZOFF_PENDING;
    ZOFF_FAIL_IF(w->is_used, ZOFF_ERR_IO, "'%s' is not written in time (timeout_seconds)", s->part.path);
    memset(w->unit, 0, r->unit);
    return status;
}

static zoff_status add_slice(void *ctx, uint32_t param, size_t slice)
{
    stream *w = ctx;
    zoff_transfer *t = w->saver->view.transfer;
    const zoff_model_param *p = &w->saver->view.model->params[param];
    const size_t element = zoff_adam_dtype_bytes(p->dtype);
    const uint64_t end = w->at + zoff_base_bits_align(p->count * element, ZOFF_ARCHIVE_PAD);
    const char *value = p->value + slice * p->value_stride;
    for (size_t left = p->count; left;) {
        const size_t skip = (size_t)(w->at % w->region->unit);
        const size_t count = zoff_base_bits_min(left, (w->region->unit - skip) / element);
        const zoff_cast_piece move = {
            .count = count, .dst = w->unit + skip, .src = value, .dst_dtype = p->dtype, .src_dtype = p->dtype};
        const zoff_status status = t->route.link->move(t, &move, 1, false);
        w->is_used = status < 0 && !zoff_transfer_streams_end(t);
        ZOFF_TRY(status);
        value += count * element;
        left -= count;
        w->at += count * element;
        if (w->at % w->region->unit == 0)
            ZOFF_TRY(end_unit(w));
    }
    if (w->at / w->region->unit != end / w->region->unit && w->at % w->region->unit) {
        w->at = end / w->region->unit * w->region->unit;
        ZOFF_TRY(end_unit(w));
    }
    w->at = end;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_frozen_write(zoff_saver *s)
{
    stream w = {.saver = s};
    if (!s->frozen.has)
        return ZOFF_OK;
    w.region = &s->part.table.regions[s->frozen.region];
    ZOFF_TRY(zoff_base_mem_alloc(w.region->unit, 1, "frozen weights for a checkpoint", &w.unit));
    zoff_status status = zoff_checkpoint_layout_frozen(&s->view, add_slice, &w);
    const bool is_begun = w.at % w.region->unit != 0;
    if (status == ZOFF_OK && is_begun)
        status = end_unit(&w);
    if (!w.is_used)
        zoff_base_mem_free(w.unit);
    return status;
}
