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
 * A slot holds the arrays of its chunk that were asked for. A fetch of others reads them to the same slot: KEPT and DIRTY
 * become READING, and what a DIRTY one holds is put off again if that read fails.
 *
 * The memory it takes is that of the slots, whatever the size of the model, and of the chunks that stay in DRAM, residents,
 * where the budget has room for some. A resident has a home of its own, and is written only where files are to persist: then
 * through, each time it is flushed. Each chunk lies in one file. An array that was never flushed is still as it was filled:
 * only its front is read, the rest is zero.
 *
 * A flush computes a checksum of each array. A fetch compares it with the bytes that were read, before it lends them. */
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
        note(&first, zoff_offload_swap_move_finish(s, slot));
    }
    return tell(&first);
}

/* Make what is at hand of a chunk the caller's, if it is in nobody's hands. */
static void pick_up(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (zoff_offload_swap_slot_is_put_off(slot))
        zoff_offload_swap_slot_take_out(&s->put_off, slot);
    else if (slot->state != ZOFF_SLOT_KEPT)
        return;
    slot->state = ZOFF_SLOT_LENT;
}

/* Bring to a slot that is the caller's what it does not hold. A read that was on its way may have been for other arrays. */
static zoff_status complete(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays)
{
    for (;;) {
        if (slot->state == ZOFF_SLOT_READING) {
            const zoff_status status = zoff_offload_swap_move_take_read(s, slot);
            if (status != ZOFF_OK)
                return status;
        }
        const unsigned missing = arrays & ~slot->holds;
        if (!missing)
            return ZOFF_OK;
        const zoff_status status = zoff_offload_swap_move_start_read(s, slot, missing);
        if (status < 0)
            zoff_offload_swap_slot_leave(s, slot);
        ZOFF_TRY(status);
    }
}

zoff_status zoff_offload_swap_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    arrays &= zoff_offload_swap_move_arrays(s, chunk);
    if (slot && slot->is_home) { /* while it is written through, it must not change */
        *out = slot->base;
        return slot->state == ZOFF_SLOT_FREE || zoff_offload_swap_slot_is_put_off(slot) ? ZOFF_OK : ZOFF_PENDING;
    }
    if (slot) {
        const bool is_lent = slot->state == ZOFF_SLOT_LENT;
        pick_up(s, slot);
        if (is_lent || (slot->state != ZOFF_SLOT_LENT && slot->state != ZOFF_SLOT_READING))
            return ZOFF_PENDING; /* still being written */
    } else {
        ZOFF_TRY(zoff_offload_swap_slot_find_room(s, &slot));
        if (!slot)
            return ZOFF_PENDING;
        zoff_offload_swap_slot_assign(slot, chunk);
    }
    const zoff_status status = complete(s, slot, arrays);
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
        return zoff_offload_swap_fetch(store, chunk, ZOFF_STORE_ALL, out);
    ZOFF_TRY(zoff_offload_swap_slot_find_room(s, &slot));
    if (!slot)
        return ZOFF_PENDING;
    zoff_offload_swap_slot_assign(slot, chunk);
    slot->holds = zoff_offload_swap_move_arrays(s, chunk);
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

/* The checksums of some arrays: of the rest of them, where settle has been given the beginning. */
static void digest(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, uint64_t sums[ZOFF_STORE_ARRAYS])
{
    double from = zoff_base_clock_seconds();
    if (s->digested != chunk)
        zoff_offload_digest_begin(&s->digest, s->chunks[chunk].ends);
    s->digested = SIZE_MAX;
    zoff_offload_digest_end(&s->digest, s->store.threads, base, arrays, sums);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - from;
}

/* Skips chunks whose checksum no fetch will compare. */
static void swap_settle(zoff_store *store, size_t chunk, size_t from, size_t to)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (!is_checked(s, chunk) || (s->places[chunk].home && !s->persist))
        return;
    double start = zoff_base_clock_seconds();
    if (s->digested != chunk)
        zoff_offload_digest_begin(&s->digest, s->chunks[chunk].ends);
    s->digested = chunk;
    zoff_offload_digest_add(&s->digest, s->store.threads, zoff_offload_swap_find(s, chunk)->base, from, to);
    s->store.stats.check_seconds += zoff_base_clock_seconds() - start;
}

void zoff_offload_swap_stamp(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, zoff_swap_version *out)
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

/* The arrays of a slot whose bytes differ from the checksum of their last flush. */
static unsigned find_corrupt(zoff_swap_store *s, const zoff_swap_slot *slot)
{
    const zoff_swap_version *now = &s->places[slot->chunk].now;
    uint64_t sums[ZOFF_STORE_ARRAYS];
    unsigned compared = 0, corrupt = 0;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        compared |= (slot->unchecked & 1u << array) && now->arrays[array].has_checksum ? 1u << array : 0;
    if (s->verify == ZOFF_VERIFY_OFF || !compared)
        return 0;
    digest(s, slot->chunk, slot->base, compared, sums);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        corrupt |= (compared & 1u << array) && sums[array] != now->arrays[array].checksum ? 1u << array : 0;
    return corrupt;
}

zoff_status zoff_offload_swap_check(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    s->digested = SIZE_MAX;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    const unsigned corrupt = slot->unchecked ? find_corrupt(s, slot) : 0;
    if (!corrupt) {
        slot->unchecked = 0;
        return ZOFF_OK;
    }
    if (!slot->is_home) { /* what was read with them is read again, too */
        slot->holds &= ~slot->unchecked;
        slot->unchecked = 0;
        zoff_offload_swap_slot_leave(s, slot);
    }
    const zoff_store_chunk *c = &s->chunks[chunk];
    unsigned array = 0;
    while (!(corrupt >> array & 1))
        array++;
    return zoff_base_status_fail(
        ZOFF_ERR_CORRUPT,
        "chunk %zu (%zu bytes at offset %llu of '%s') is not what was written there: its checksum is wrong, so a bit has "
        "changed on the drive or on the way; nothing of it was used. Try again; if it stays so, go back to a checkpoint on "
        "another drive (zoff.verify sets what is compared)",
        chunk, c->ends[array] - zoff_offload_swap_move_begin(c, array),
        (unsigned long long)zoff_offload_swap_move_offset(s, chunk, array), s->files[s->places[chunk].file].name);
}

/* Writes every array that the slot holds: the whole chunk after a whole fetch. */
static zoff_status swap_flush(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (s->places[chunk].home && !s->persist)
        return ZOFF_OK;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    zoff_offload_swap_slot_discard(s, slot);
    slot->stays = false;
    zoff_offload_swap_slot_renew(s, chunk, slot->base, slot->holds);
    return zoff_offload_swap_move_start_write(s, slot, slot->holds);
}

void zoff_offload_swap_release(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (!slot->is_home)
        zoff_offload_swap_slot_leave(s, slot);
}

static bool swap_resident(const zoff_store *store, size_t chunk)
{
    return ((const zoff_swap_store *)store)->places[chunk].home;
}

/* ---- reading ahead ---- */

/* A window may have left some arrays of the chunk in a slot: then this reads the others into the same slot. */
static zoff_status swap_ahead(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    const unsigned arrays = zoff_offload_swap_move_arrays(s, chunk);
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (!arrays || (slot && (slot->state != ZOFF_SLOT_KEPT || !(arrays & ~slot->holds))))
        return ZOFF_OK;
    if (!slot) {
        slot = zoff_offload_swap_slot_take(s);
        if (!slot)
            return ZOFF_OK;
        zoff_offload_swap_slot_assign(slot, chunk);
    }
    const zoff_status status = zoff_offload_swap_move_start_read(s, slot, arrays & ~slot->holds);
    if (status < 0)
        zoff_offload_swap_slot_leave(s, slot);
    slot->ahead = true;
    return status;
}

static void swap_drop(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    if (slot && slot->state == ZOFF_SLOT_READING)
        (void)zoff_offload_swap_move_abandon(s, slot);
}

void zoff_offload_swap_forget(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    for (unsigned i = 0; i < s->ring_count; i++) {
        if (s->slots[i].state == ZOFF_SLOT_READING)
            (void)zoff_offload_swap_move_abandon(s, &s->slots[i]);
    }
}

/* Waits until a transfer on the drive of a slot completes. */
static zoff_status wait_for(zoff_swap_store *s, const zoff_swap_slot *slot)
{
    double from = zoff_base_clock_seconds();
    const zoff_swap_file *file = &s->files[s->places[slot->chunk].file];
    zoff_status status = zoff_aio_wait_any(file->aio);
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO,
                 "the %s of chunk %zu (%zu bytes at offset %llu of '%s') has not ended for %g s (timeout_seconds): the disk "
                 "neither completes it nor fails. Try again when the disk answers, or destroy the engine: what the disk may "
                 "still touch is not freed then",
                 slot->state == ZOFF_SLOT_READING ? "read" : "write", slot->chunk, slot->requests[0].bytes,
                 (unsigned long long)slot->requests[0].offset, file->name, s->timeout_seconds);
    return status;
}

zoff_status zoff_offload_swap_reload(zoff_swap_store *s, zoff_swap_slot *home)
{
    ZOFF_TRY(zoff_offload_swap_move_start_read(s, home, zoff_offload_swap_move_arrays(s, home->chunk)));
    zoff_status status;
    while ((status = zoff_offload_swap_move_take_read(s, home)) == ZOFF_PENDING)
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

/* A slot may hold what was put off and be read into, too: whoever asked for that has met an error and asks no more. */
static zoff_status end_reads_of_changed(zoff_swap_store *s)
{
    for (unsigned i = 0; i < s->ring_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        while (slot->state == ZOFF_SLOT_READING && slot->changed && !zoff_offload_swap_move_abandon(s, slot))
            ZOFF_TRY(wait_for(s, slot));
    }
    return ZOFF_OK;
}

/* Also after a failure: a retry must not meet the failures of writes that were on their way before it. */
zoff_status zoff_offload_swap_drain(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    note(&first, end_reads_of_changed(s));
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
        zoff_swap_slot *slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_DIRTY && !slot->changed)
            ZOFF_TRY(zoff_offload_swap_move_start_write(s, slot, slot->moving));
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
