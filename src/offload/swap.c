/* swap.c: the tier that keeps chunks in files and streams them through a ring of slots in DRAM: reads ahead of the caller,
 * writes behind it.
 *
 *      FREE -- read --> READING -- fetch, done --> LENT -- flush --> WRITING -- done --> FREE
 *       ^                                           |                  |
 *       +----------------- release -----------------+                  +-- failed --> DIRTY -- retry --> WRITING
 *
 *      LENT -- keep --> KEPT -- fetch --> LENT; or, its slot being wanted, FREE
 *      LENT -- keep, changed --> DIRTY -- fetch --> LENT; or, its slot being wanted or by drain, WRITING --> KEPT
 *
 * The memory it takes is that of the slots, whatever the size of the model, and of the chunks that stay in DRAM, residents,
 * where the budget has room for some. A resident has a home of its own, and is written only where files are to persist: then
 * through, each time it is flushed. Each chunk lies in one piece in one file. One that was never flushed is still as it was
 * filled: only its front is read, the rest is zero.
 *
 * What is flushed is known by a checksum, and compared with it when it comes back, before anybody sees it. */
#include "swap_priv.h"

#include "clock.h"
#include "try.h"

#include <string.h>

zoff_swap_slot *zoff_offload_swap_find(zoff_swap_store *s, size_t chunk)
{
    if (s->places[chunk].home)
        return s->places[chunk].home;
    for (unsigned i = 0; i < s->ring_count; i++) {
        if (s->slots[i].state != ZOFF_SLOT_FREE && s->slots[i].chunk == chunk)
            return &s->slots[i];
    }
    return NULL;
}

static zoff_aio *queue_of(zoff_swap_store *s, size_t chunk)
{
    return s->files[s->places[chunk].file].aio;
}

/* Where in its file the content lies that a chunk has now. */
static uint64_t offset_of(const zoff_swap_store *s, size_t chunk)
{
    const zoff_swap_place *place = &s->places[chunk];
    return place->offset + place->now.slot * (uint64_t)s->chunks[chunk].bytes;
}

/* ---- what is in flight, oldest first ---- */

static void enlist(zoff_swap_store *s, zoff_swap_slot *slot, zoff_slot_state state, size_t bytes)
{
    slot->state = state;
    slot->request_bytes = bytes;
    zoff_offload_swap_slot_append(&s->flight, slot);
}

static void delist(zoff_swap_store *s, zoff_swap_slot *slot)
{
    zoff_offload_swap_slot_take_out(&s->flight, slot);
}

static zoff_status start_read(zoff_swap_store *s, zoff_swap_slot *slot, size_t chunk)
{
    const zoff_swap_place *place = &s->places[chunk];
    const size_t bytes = place->now.fresh ? place->first_bytes : s->chunks[chunk].bytes;
    ZOFF_TRY(zoff_aio_read(queue_of(s, chunk), offset_of(s, chunk), bytes, slot->base, &slot->ticket));
    slot->chunk = chunk;
    slot->unchecked = true;
    slot->ahead = slot->changed = false;
    slot->result = ZOFF_PENDING;
    enlist(s, slot, ZOFF_SLOT_READING, bytes);
    return ZOFF_OK;
}

/* The slot keeps its chunk and the error until retry: check_clean() tells the error again, whoever has dropped it before. */
static zoff_status fail_write(zoff_swap_store *s, zoff_swap_slot *slot, zoff_status status)
{
    slot->state = ZOFF_SLOT_DIRTY;
    slot->result = status;
    zoff_base_status_keep(&slot->words);
    s->has_failed = true;
    return status;
}

zoff_status zoff_offload_swap_start_write(zoff_swap_store *s, zoff_swap_slot *slot)
{
    const size_t bytes = s->chunks[slot->chunk].bytes;
    zoff_status status = zoff_offload_swap_keep_take_back(s);
    if (status == ZOFF_OK)
        status = zoff_aio_write(queue_of(s, slot->chunk), offset_of(s, slot->chunk), bytes, slot->base, &slot->ticket);
    if (status < 0)
        return fail_write(s, slot, status);
    enlist(s, slot, ZOFF_SLOT_WRITING, bytes);
    s->store.unproven -= s->places[slot->chunk].unproven;
    s->places[slot->chunk].unproven = false;
    return ZOFF_OK;
}

static void finish_read(zoff_swap_store *s, zoff_swap_slot *slot)
{
    memset(slot->base + slot->request_bytes, 0, s->chunks[slot->chunk].bytes - slot->request_bytes);
}

/* Take note of a request that is done. A failed read is told to whoever asks for the chunk. */
static zoff_status finish(zoff_swap_store *s, zoff_swap_slot *slot)
{
    /* The posix back-end moves its bytes in here: that, too, is time spent on the disk. */
    double from = zoff_base_clock_seconds();
    zoff_status status = zoff_aio_poll(queue_of(s, slot->chunk), slot->ticket);
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    if (status == ZOFF_PENDING)
        return status;
    delist(s, slot);
    if (slot->state == ZOFF_SLOT_READING) {
        slot->result = status;
        if (status == ZOFF_OK)
            finish_read(s, slot);
        else
            zoff_base_status_keep(&slot->words);
        return ZOFF_OK;
    }
    if (status < 0)
        return fail_write(s, slot, status);
    slot->state = slot->stays && !slot->is_home ? ZOFF_SLOT_KEPT : ZOFF_SLOT_FREE;
    s->store.stats.write_bytes += slot->request_bytes;
    s->files[s->places[slot->chunk].file].write_bytes += slot->request_bytes;
    return ZOFF_OK;
}

/* What a read came to, if it is done; then the slot is lent, or free again. It counts for the step that takes it. */
static zoff_status take_read(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (slot->result == ZOFF_PENDING && finish(s, slot) == ZOFF_PENDING)
        return ZOFF_PENDING;
    if (slot->result < 0) {
        slot->state = ZOFF_SLOT_FREE;
        zoff_base_status_restore(&slot->words);
        return slot->result;
    }
    slot->state = ZOFF_SLOT_LENT;
    s->store.stats.read_bytes += slot->request_bytes;
    s->store.stats.ahead_bytes += slot->ahead ? slot->request_bytes : 0;
    return ZOFF_OK;
}

/* Keep the first failure of several, status and words. */
typedef struct first_failure {
    zoff_status status;
    zoff_kept_error words;
} first_failure;

static void note(first_failure *first, zoff_status status)
{
    if (status >= 0 || first->status < 0)
        return;
    first->status = status;
    zoff_base_status_keep(&first->words);
}

static zoff_status tell(const first_failure *first)
{
    if (first->status < 0)
        zoff_base_status_restore(&first->words);
    return first->status;
}

zoff_status zoff_offload_swap_pump(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < s->file_count; i++)
        note(&first, zoff_aio_pump(s->files[i].aio));
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    for (zoff_swap_slot *slot = s->flight.oldest, *newer; slot; slot = newer) {
        newer = slot->newer;
        note(&first, finish(s, slot));
    }
    return tell(&first);
}

zoff_status zoff_offload_swap_fetch(zoff_store *store, size_t chunk, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (slot && slot->is_home) { /* while it is written through, it must not change */
        *out = slot->base;
        return slot->state == ZOFF_SLOT_FREE || zoff_offload_swap_slot_is_put_off(slot) ? ZOFF_OK : ZOFF_PENDING;
    }
    if (slot && (slot->state == ZOFF_SLOT_KEPT || zoff_offload_swap_slot_is_put_off(slot))) {
        if (slot->changed)
            zoff_offload_swap_slot_take_out(&s->put_off, slot);
        slot->state = ZOFF_SLOT_LENT;
        *out = slot->base;
        return ZOFF_OK;
    }
    if (!slot) {
        ZOFF_TRY(zoff_offload_swap_slot_find_room(s, &slot));
        if (!slot)
            return ZOFF_PENDING;
        ZOFF_TRY(start_read(s, slot, chunk));
    }
    if (slot->state != ZOFF_SLOT_READING)
        return ZOFF_PENDING; /* still being written */
    zoff_status status = take_read(s, slot);
    if (status == ZOFF_OK)
        *out = slot->base;
    return status;
}

/* A read of it that is on its way is waited for like any other: its memory cannot be had before. */
static zoff_status swap_claim(zoff_store *store, size_t chunk, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot;
    if (zoff_offload_swap_find(s, chunk))
        return zoff_offload_swap_fetch(store, chunk, out);
    ZOFF_TRY(zoff_offload_swap_slot_find_room(s, &slot));
    if (!slot)
        return ZOFF_PENDING;
    slot->state = ZOFF_SLOT_LENT;
    slot->chunk = chunk;
    slot->unchecked = slot->changed = false;
    *out = slot->base;
    return ZOFF_OK;
}

/* ---- checksums ---- */

/* Whether this content of a chunk is one that is compared. A sample comes round to each chunk. */
static bool is_checked(const zoff_swap_store *s, size_t chunk)
{
    return s->verify == ZOFF_VERIFY_FULL ||
           (s->verify == ZOFF_VERIFY_SAMPLE && (chunk + s->generation) % ZOFF_VERIFY_SAMPLES == 0);
}

/* The rest of it, where settle has been given the beginning. */
static uint64_t digest(zoff_swap_store *s, size_t chunk, const char *base)
{
    const size_t bytes = s->chunks[chunk].bytes;
    double from = zoff_base_clock_seconds();
    if (s->digested != chunk)
        zoff_offload_digest_begin(&s->digest, bytes);
    s->digested = SIZE_MAX;
    uint64_t sum = zoff_offload_digest_end(&s->digest, s->store.threads, base, bytes);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - from;
    return sum;
}

/* A chunk that nobody will compare is not hashed either. */
static void swap_settle(zoff_store *store, size_t chunk, size_t from, size_t to)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (!is_checked(s, chunk) || (s->places[chunk].home && !s->persist))
        return;
    double start = zoff_base_clock_seconds();
    if (s->digested != chunk)
        zoff_offload_digest_begin(&s->digest, s->chunks[chunk].bytes);
    s->digested = chunk;
    zoff_offload_digest_add(&s->digest, s->store.threads, zoff_offload_swap_find(s, chunk)->base, s->chunks[chunk].bytes, from,
                            to);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - start;
}

void zoff_offload_swap_stamp(zoff_swap_store *s, size_t chunk, const char *base, zoff_swap_version *out)
{
    out->has_checksum = is_checked(s, chunk);
    out->checksum = out->has_checksum ? digest(s, chunk, base) : 0;
}

zoff_status zoff_offload_swap_check(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    s->digested = SIZE_MAX;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    const zoff_swap_version *now = &s->places[chunk].now;
    if (!slot->unchecked)
        return ZOFF_OK;
    if (s->verify == ZOFF_VERIFY_OFF || !now->has_checksum || digest(s, chunk, slot->base) == now->checksum) {
        slot->unchecked = false;
        return ZOFF_OK;
    }
    if (!slot->is_home)
        slot->state = ZOFF_SLOT_FREE;
    return zoff_base_status_fail(
        ZOFF_ERR_CORRUPT,
        "chunk %zu (%zu bytes at offset %llu of '%s') is not what was written there: its checksum is wrong, so a bit has "
        "changed on the drive or on the way; nothing of it was used. Try again; if it stays so, go back to a checkpoint on "
        "another drive (zoff.verify sets what is compared)",
        chunk, s->chunks[chunk].bytes, (unsigned long long)offset_of(s, chunk), s->files[s->places[chunk].file].name);
}

static zoff_status swap_flush(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (s->places[chunk].home && !s->persist)
        return ZOFF_OK;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    zoff_offload_swap_slot_discard(s, slot);
    slot->stays = false;
    zoff_offload_swap_slot_renew(s, chunk, slot->base);
    return zoff_offload_swap_start_write(s, slot);
}

void zoff_offload_swap_release(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (slot->is_home)
        return;
    slot->state = ZOFF_SLOT_FREE;
    if (slot->changed)
        zoff_offload_swap_slot_put_off(s, slot);
}

static bool swap_resident(const zoff_store *store, size_t chunk)
{
    return ((const zoff_swap_store *)store)->places[chunk].home;
}

/* ---- reading ahead ---- */

static zoff_status swap_ahead(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk) ? NULL : zoff_offload_swap_slot_take(s);
    if (!slot || !s->chunks[chunk].bytes)
        return ZOFF_OK;
    ZOFF_TRY(start_read(s, slot, chunk));
    slot->ahead = true;
    return ZOFF_OK;
}

/* Whatever came of it. */
static void abandon(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (slot->result == ZOFF_PENDING) {
        if (zoff_aio_wait(queue_of(s, slot->chunk), slot->ticket) == ZOFF_PENDING)
            return; /* its memory is the drive's: whoever needs it waits, and is told */
        delist(s, slot);
    }
    slot->state = ZOFF_SLOT_FREE;
}

static void swap_drop(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (slot && slot->state == ZOFF_SLOT_READING)
        abandon(s, slot);
}

void zoff_offload_swap_forget(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    for (unsigned i = 0; i < s->ring_count; i++) {
        if (s->slots[i].state == ZOFF_SLOT_READING)
            abandon(s, &s->slots[i]);
    }
}

/* Until something on the drive of a slot has completed. */
static zoff_status wait_for(zoff_swap_store *s, const zoff_swap_slot *slot)
{
    double from = zoff_base_clock_seconds();
    zoff_status status = zoff_aio_wait_any(queue_of(s, slot->chunk));
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO,
                 "the %s of chunk %zu (%zu bytes at offset %llu of '%s') has not ended for %g s (timeout_seconds): the disk "
                 "neither completes it nor fails. Try again when the disk answers, or destroy the engine: what the disk may "
                 "still touch is not freed then",
                 slot->state == ZOFF_SLOT_READING ? "read" : "write", slot->chunk, slot->request_bytes,
                 (unsigned long long)offset_of(s, slot->chunk), s->files[s->places[slot->chunk].file].name, s->timeout_seconds);
    return status;
}

zoff_status zoff_offload_swap_reload(zoff_swap_store *s, zoff_swap_slot *home)
{
    ZOFF_TRY(start_read(s, home, home->chunk));
    zoff_status status;
    while ((status = take_read(s, home)) == ZOFF_PENDING)
        ZOFF_TRY(wait_for(s, home));
    home->state = ZOFF_SLOT_FREE; /* which for a home means: in nobody's hands */
    ZOFF_TRY(status);
    return zoff_offload_swap_check(&s->store, home->chunk);
}

/* ---- waiting ---- */

static zoff_swap_slot *oldest_in_flight(const zoff_swap_store *s, bool reads_too)
{
    zoff_swap_slot *slot = s->flight.oldest;
    while (slot && !reads_too && slot->state != ZOFF_SLOT_WRITING)
        slot = slot->newer;
    return slot;
}

static bool swap_busy(const zoff_store *store, bool writes_only)
{
    return oldest_in_flight((const zoff_swap_store *)store, !writes_only);
}

zoff_status zoff_offload_swap_wait(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    const zoff_swap_slot *oldest = oldest_in_flight(s, true);
    /* Whoever waits for nothing would wait for ever. */
    ZOFF_FAIL_IF(!oldest, ZOFF_ERR_STATE,
                 "a wait for I/O while none is in flight; this is a defect of the library, please report it");
    ZOFF_TRY(wait_for(s, oldest));
    return zoff_offload_swap_pump(store);
}

/* The error of a write that has failed and was not written again since. */
static zoff_status check_clean(const zoff_swap_store *s)
{
    for (size_t i = 0; i < s->ring_count + s->home_count; i++) {
        if (s->slots[i].state != ZOFF_SLOT_DIRTY)
            continue;
        ZOFF_FAIL_IF(s->slots[i].changed, ZOFF_ERR_STATE,
                     "chunk %zu was changed and not written; this is a defect of the library, please report it",
                     s->slots[i].chunk);
        zoff_base_status_restore(&s->slots[i].words);
        return s->slots[i].result;
    }
    return ZOFF_OK;
}

/* The caller drains before a commit. A write in flight, or a chunk that is still lent, means that a wait was forgotten. */
static zoff_status swap_settled(const zoff_store *store)
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

/* Also after a failure: a retry must not meet the failures of writes that were on their way before it. */
zoff_status zoff_offload_swap_drain(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    while (s->put_off.oldest)
        note(&first, zoff_offload_swap_slot_write(s, s->put_off.oldest));
    for (;;) {
        note(&first, zoff_offload_swap_pump(store));
        const zoff_swap_slot *oldest = oldest_in_flight(s, false);
        if (!oldest)
            break;
        ZOFF_TRY(wait_for(s, oldest));
    }
    note(&first, check_clean(s));
    return tell(&first);
}

static zoff_status swap_retry(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    for (size_t i = 0; s->has_failed && i < s->ring_count + s->home_count; i++) {
        if (s->slots[i].state == ZOFF_SLOT_DIRTY && !s->slots[i].changed)
            ZOFF_TRY(zoff_offload_swap_start_write(s, &s->slots[i]));
    }
    s->has_failed = false;
    return s->store.unproven ? zoff_offload_swap_keep_rewrite(s) : ZOFF_OK;
}

const zoff_store_ops zoff_offload_swap_ops = {.open = zoff_offload_swap_life_open,
                                              .close = zoff_offload_swap_life_close,
                                              .fetch = zoff_offload_swap_fetch,
                                              .claim = swap_claim,
                                              .check = zoff_offload_swap_check,
                                              .ahead = swap_ahead,
                                              .drop = swap_drop,
                                              .settle = swap_settle,
                                              .flush = swap_flush,
                                              .keep = zoff_offload_swap_slot_keep,
                                              .release = zoff_offload_swap_release,
                                              .pump = zoff_offload_swap_pump,
                                              .wait = zoff_offload_swap_wait,
                                              .drain = zoff_offload_swap_drain,
                                              .busy = swap_busy,
                                              .settled = swap_settled,
                                              .commit = zoff_offload_swap_keep_commit,
                                              .rollback = zoff_offload_swap_keep_rollback,
                                              .retry = swap_retry,
                                              .forget = zoff_offload_swap_forget,
                                              .resident = swap_resident};
