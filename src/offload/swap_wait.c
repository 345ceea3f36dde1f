/* SPDX-License-Identifier: Apache-2.0 */
/* swap_wait.c: pump, wait for and drain transfers in flight. The first of several errors counts. While a store is opened, waits
 * report the bytes that have moved. */
#include "swap_priv.h"

#include "bits.h"
#include "clock.h"
#include "log.h"
#include "try.h"
#include "words.h"

/* The first failure of several: its status and message. */
typedef struct first_failure {
    zoff_status status;
    zoff_saved_error words;
} first_failure;

static void note(first_failure *first, zoff_status status)
{
    if (status >= 0 || first->status < 0)
        return;
    first->status = status;
    zoff_base_status_save(&first->words);
}

static zoff_status tell(const first_failure *first)
{
    if (first->status < 0)
        zoff_base_status_restore(&first->words);
    return first->status;
}

zoff_status zoff_offload_swap_wait_pump(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < s->file_count; i++)
        note(&first, zoff_aio_pump(s->files[i].aio));
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    for (zoff_swap_slot *slot = s->flight.oldest, *newer; slot; slot = newer) {
        newer = slot->newer;
        note(&first, zoff_offload_swap_move_finish(s, slot));
    }
    return tell(&first);
}

zoff_status zoff_offload_swap_wait_for(zoff_swap_store *s, const zoff_swap_slot *slot)
{
    double from = zoff_base_clock_seconds();
    const zoff_swap_file *file = &s->files[s->places[slot->chunk].file];
    zoff_status status = zoff_aio_wait_any(file->aio);
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    ZOFF_FAIL_IF(
        status == ZOFF_PENDING, ZOFF_ERR_IO,
        "the %s of chunk %zu (%zu bytes at offset %llu of '%s') has not ended for %g s (timeout_seconds): the disk "
        "neither completes it nor fails. Try again when the disk answers, or destroy the engine: memory that the disk may "
        "still access is not freed then",
        slot->state == ZOFF_SLOT_READING ? "read" : "write", slot->chunk, slot->requests[0].bytes,
        (unsigned long long)slot->requests[0].offset, file->name, s->timeout_seconds);
    return status;
}

static zoff_swap_slot *oldest_in_flight(const zoff_swap_store *s, bool reads_too)
{
    zoff_swap_slot *slot = s->flight.oldest;
    while (slot && !reads_too && slot->state != ZOFF_SLOT_WRITING)
        slot = slot->newer;
    return slot;
}

bool zoff_offload_swap_wait_busy(const zoff_store *store, bool writes_only)
{
    return oldest_in_flight((const zoff_swap_store *)store, !writes_only);
}

zoff_status zoff_offload_swap_wait_any(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    const zoff_swap_slot *oldest = oldest_in_flight(s, true);
    /* A wait for nothing would never end. */
    ZOFF_FAIL_IF(!oldest, ZOFF_ERR_STATE,
                 "a wait for I/O while none is in flight; this is a defect of the library, please report it");
    ZOFF_TRY(zoff_offload_swap_wait_for(s, oldest));
    return zoff_offload_swap_wait_pump(store);
}

/* The error of a write that has failed and was not repeated. */
static zoff_status check_clean(const zoff_swap_store *s)
{
    for (size_t i = 0; i < s->ring_count + s->home_count; i++) {
        const zoff_swap_slot *slot = &s->slots[i];
        ZOFF_FAIL_IF(slot->changed && (slot->state == ZOFF_SLOT_DIRTY || slot->state == ZOFF_SLOT_READING), ZOFF_ERR_STATE,
                     "chunk %zu was changed and not written; this is a defect of the library, please report it", slot->chunk);
        if (slot->state != ZOFF_SLOT_DIRTY)
            continue;
        zoff_base_status_restore(&slot->words);
        return slot->result;
    }
    return ZOFF_OK;
}

/* The caller drains before a commit. A write in flight, or a chunk that is still lent, means that a wait is missing. */
zoff_status zoff_offload_swap_wait_settled(const zoff_store *store)
{
    const zoff_swap_store *s = (const zoff_swap_store *)store;
    ZOFF_TRY(check_clean(s));
    ZOFF_FAIL_IF(
        s->store.unproven, ZOFF_ERR_IO,
        "%zu chunk(s) were written before a flush to the drive failed, and not again since: the drive may have lost them",
        s->store.unproven);
    for (size_t i = 0; i < s->ring_count + s->home_count; i++) {
        const zoff_slot_state state = s->slots[i].state;
        ZOFF_FAIL_IF(state == ZOFF_SLOT_WRITING || (s->persist && state == ZOFF_SLOT_LENT), ZOFF_ERR_STATE,
                     "chunk %zu is %s while its states are to be recorded; this is a defect of the library, please report it",
                     s->slots[i].chunk, state == ZOFF_SLOT_WRITING ? "being written" : "borrowed");
    }
    return ZOFF_OK;
}

/* A slot with a write that was put off may also be read into. The caller that asked for the read has got an error, and does not
 * ask again. */
static zoff_status end_reads_of_changed(zoff_swap_store *s)
{
    for (unsigned i = 0; i < s->ring_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        while (slot->state == ZOFF_SLOT_READING && slot->changed && !zoff_offload_swap_move_abandon(s, slot))
            ZOFF_TRY(zoff_offload_swap_wait_for(s, slot));
    }
    return ZOFF_OK;
}

/* Wait also after a failure, because a retry must not meet failures of writes that were in flight before it. */
zoff_status zoff_offload_swap_wait_drain(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    note(&first, end_reads_of_changed(s));
    while (s->put_off.oldest)
        note(&first, zoff_offload_swap_put_off_write(s, s->put_off.oldest));
    for (;;) {
        note(&first, zoff_offload_swap_wait_pump(store));
        const zoff_swap_slot *oldest = oldest_in_flight(s, false);
        if (!oldest)
            break;
        ZOFF_TRY(zoff_offload_swap_wait_for(s, oldest));
    }
    note(&first, check_clean(s));
    return tell(&first);
}

/* ---- progress of the opening ---- */

/* Bytes that the queues have moved since they were opened: pieces of a request count before the request is done. */
static uint64_t moved_bytes(const zoff_swap_store *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->file_count; i++) {
        zoff_aio_info info = ZOFF_AIO_INFO_INIT;
        if (zoff_aio_get_info(s->files[i].aio, &info) == ZOFF_OK)
            sum += info.read_bytes + info.write_bytes;
    }
    return sum;
}

void zoff_offload_swap_wait_begin_report(zoff_swap_store *s, const char *what, uint64_t total)
{
    const double FIRST_SECONDS = 5,
                 seconds = s->opening.report.to.log_seconds > 0 ? s->opening.report.to.log_seconds : FIRST_SECONDS;
    s->opening.report.what = what ? what : "states";
    s->opening.report.total = total;
    s->opening.report.before = moved_bytes(s);
    s->opening.report.began = zoff_base_clock_seconds();
    s->opening.report.to.log_seconds = seconds;
    s->opening.report.next_line = s->opening.report.began + seconds;
}

static void log_line(zoff_swap_report *r, uint64_t done)
{
    const double now = zoff_base_clock_seconds(), rate = (double)done / (now - r->began);
    if (now < r->next_line || !done)
        return;
    r->next_line = now + r->to.log_seconds;
    ZOFF_INFO("%s: %s of %s, %s/s, %.0f s left", r->what, zoff_base_words_bytes(done), zoff_base_words_bytes(r->total),
              zoff_base_words_bytes((uint64_t)rate), (double)(r->total - done) / rate);
}

static zoff_status report_progress(zoff_swap_report *r, uint64_t done)
{
    if (!r->to.report) {
        log_line(r, done);
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(!r->to.report(r->what, done, r->total, r->to.ctx), ZOFF_ERR_CANCELED,
                 "the program ended \"%s\" after %s of %s (zoff_engine_opts.progress returned false)", r->what,
                 zoff_base_words_bytes(done), zoff_base_words_bytes(r->total));
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_wait_report(zoff_swap_store *s)
{
    zoff_swap_report *r = &s->opening.report;
    return r->what ? report_progress(r, zoff_base_bits_min(moved_bytes(s) - r->before, r->total)) : ZOFF_OK;
}

zoff_status zoff_offload_swap_wait_end_report(zoff_swap_store *s)
{
    const zoff_status status = report_progress(&s->opening.report, s->opening.report.total);
    s->opening.report.what = NULL;
    return status;
}
