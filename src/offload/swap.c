/* swap.c: the tier that keeps chunks in files and streams them through a ring of slots in DRAM: reads ahead of the caller,
 * writes behind it.
 *
 *      FREE -- read --> READING -- fetch, done --> LENT -- flush --> WRITING -- done --> FREE
 *       ^                                           |                  |
 *       +----------------- release -----------------+                  +-- failed --> DIRTY -- retry --> WRITING
 *
 * The memory it takes is that of the slots, whatever the size of the model, and of the chunks that stay in DRAM, residents,
 * where the budget has room for some: they are in no file. Each other chunk lies in one piece in one file; several paths take
 * chunks in turn. A chunk that was never flushed is still as it was filled: only its front is read, the rest is zero. */
#include "store_priv.h"
#include "swap_file_priv.h"

#include "bits.h"
#include "clock.h"
#include "mem.h"
#include "try.h"

#include <string.h>

typedef enum slot_state { FREE, READING, LENT, WRITING, DIRTY } slot_state;

typedef struct swap_slot {
    slot_state state;
    size_t chunk;
    uint64_t ticket;
    size_t request_bytes; /* of the read or write in flight */
    uint64_t number;      /* of the request: the lowest is the oldest */
    char *base;
} swap_slot;

typedef struct swap_place {
    char *resident;  /* in DRAM; NULL: in a file */
    uint64_t offset; /* in the file */
    uint32_t file;
    bool fresh; /* never flushed */
} swap_place;

typedef struct swap_store {
    zoff_store store;
    swap_slot *slots;
    unsigned slot_count;
    zoff_store_chunk *chunks;
    swap_place *places;
    size_t chunk_count;
    zoff_swap_file *files;
    size_t file_count;
    uint64_t requests;
} swap_store;

static swap_slot *find_slot(swap_store *s, slot_state state)
{
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == state)
            return &s->slots[i];
    }
    return NULL;
}

static swap_slot *find_chunk(swap_store *s, size_t chunk)
{
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state != FREE && s->slots[i].chunk == chunk)
            return &s->slots[i];
    }
    return NULL;
}

static zoff_aio *queue_of(swap_store *s, size_t chunk)
{
    return s->files[s->places[chunk].file].aio;
}

static zoff_status start_read(swap_store *s, swap_slot *slot, size_t chunk)
{
    const swap_place *place = &s->places[chunk];
    size_t bytes = place->fresh ? s->chunks[chunk].first_bytes : s->chunks[chunk].bytes;
    ZOFF_TRY(zoff_aio_read(queue_of(s, chunk), place->offset, bytes, slot->base, &slot->ticket));
    slot->state = READING;
    slot->chunk = chunk;
    slot->request_bytes = bytes;
    slot->number = s->requests++;
    return ZOFF_OK;
}

/* A slot whose write cannot even be started keeps its chunk and waits for retry. */
static zoff_status start_write(swap_store *s, swap_slot *slot)
{
    slot->state = DIRTY;
    ZOFF_TRY(zoff_aio_write(queue_of(s, slot->chunk), s->places[slot->chunk].offset, s->chunks[slot->chunk].bytes, slot->base,
                            &slot->ticket));
    slot->state = WRITING;
    slot->request_bytes = s->chunks[slot->chunk].bytes;
    slot->number = s->requests++;
    return ZOFF_OK;
}

/* Take note of a request that is done. */
static zoff_status finish(swap_store *s, swap_slot *slot)
{
    /* The posix back-end moves its bytes in here: that, too, is time spent on the disk. */
    double from = zoff_base_clock_seconds();
    zoff_status status = zoff_aio_poll(queue_of(s, slot->chunk), slot->ticket);
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    if (status == ZOFF_PENDING)
        return status;
    if (slot->state == READING) {
        slot->state = status == ZOFF_OK ? LENT : FREE;
        if (status == ZOFF_OK) {
            s->store.stats.read_bytes += slot->request_bytes;
            memset(slot->base + slot->request_bytes, 0, s->chunks[slot->chunk].bytes - slot->request_bytes);
        }
    } else {
        slot->state = status == ZOFF_OK ? FREE : DIRTY;
        if (status == ZOFF_OK)
            s->store.stats.write_bytes += slot->request_bytes;
    }
    return status;
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

static zoff_status swap_pump(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < s->file_count; i++)
        ZOFF_TRY(zoff_aio_pump(s->files[i].aio));
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == WRITING)
            note(&first, finish(s, &s->slots[i]));
    }
    return tell(&first);
}

static zoff_status swap_fetch(zoff_store *store, size_t chunk, void **out)
{
    swap_store *s = (swap_store *)store;
    if (s->places[chunk].resident) {
        *out = s->places[chunk].resident;
        return ZOFF_OK;
    }
    swap_slot *slot = find_chunk(s, chunk);
    if (!slot) {
        slot = find_slot(s, FREE);
        if (!slot)
            return ZOFF_PENDING;
        ZOFF_TRY(start_read(s, slot, chunk));
    }
    if (slot->state != READING)
        return ZOFF_PENDING; /* still being written */
    zoff_status status = finish(s, slot);
    if (status != ZOFF_OK)
        return status;
    *out = slot->base;
    return ZOFF_OK;
}

static zoff_status swap_flush(zoff_store *store, size_t chunk)
{
    swap_store *s = (swap_store *)store;
    s->places[chunk].fresh = false;
    return s->places[chunk].resident ? ZOFF_OK : start_write(s, find_chunk(s, chunk));
}

static void swap_release(zoff_store *store, size_t chunk)
{
    swap_store *s = (swap_store *)store;
    if (!s->places[chunk].resident)
        find_chunk(s, chunk)->state = FREE;
}

static bool swap_resident(const zoff_store *store, size_t chunk)
{
    return ((const swap_store *)store)->places[chunk].resident;
}

static swap_slot *oldest_in_flight(swap_store *s, bool reads_too)
{
    swap_slot *oldest = NULL;
    for (unsigned i = 0; i < s->slot_count; i++) {
        swap_slot *slot = &s->slots[i];
        bool in_flight = slot->state == WRITING || (reads_too && slot->state == READING);
        if (in_flight && (!oldest || slot->number < oldest->number))
            oldest = slot;
    }
    return oldest;
}

static zoff_status wait_for(swap_store *s, const swap_slot *slot)
{
    double from = zoff_base_clock_seconds();
    zoff_status status = zoff_aio_wait_any(queue_of(s, slot->chunk));
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    return status;
}

static zoff_status swap_wait(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    const swap_slot *oldest = oldest_in_flight(s, true);
    /* Whoever waits for nothing would wait for ever. */
    ZOFF_FAIL_IF(!oldest, ZOFF_ERR_STATE,
                 "a wait for I/O while none is in flight; this is a defect of the library, please report it");
    ZOFF_TRY(wait_for(s, oldest));
    return swap_pump(store);
}

/* Also after a failure: a retry must not meet the failures of writes that were on their way before it. */
static zoff_status swap_drain(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    first_failure first = {.status = ZOFF_OK};
    for (;;) {
        note(&first, swap_pump(store));
        const swap_slot *oldest = oldest_in_flight(s, false);
        if (!oldest)
            return tell(&first);
        ZOFF_TRY(wait_for(s, oldest));
    }
}

static zoff_status swap_retry(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == DIRTY)
            ZOFF_TRY(start_write(s, &s->slots[i]));
    }
    return ZOFF_OK;
}

static void swap_forget(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    for (unsigned i = 0; i < s->slot_count; i++) {
        swap_slot *slot = &s->slots[i];
        if (slot->state != READING)
            continue;
        (void)zoff_aio_wait(queue_of(s, slot->chunk), slot->ticket);
        slot->state = FREE;
    }
}

/* Write every chunk once: the initial content, and no hole or unwritten extent is left that would make the first step slow. */
static zoff_status write_all(swap_store *s, const zoff_store_opts *opts)
{
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        swap_slot *slot;
        if (s->places[chunk].resident) {
            opts->fill(opts->fill_ctx, chunk, s->places[chunk].resident);
            continue;
        }
        while (!(slot = find_slot(s, FREE)))
            ZOFF_TRY(swap_wait(&s->store));
        memset(slot->base, 0, s->chunks[chunk].bytes);
        opts->fill(opts->fill_ctx, chunk, slot->base);
        slot->chunk = chunk;
        ZOFF_TRY(start_write(s, slot));
        ZOFF_TRY(swap_pump(&s->store));
    }
    ZOFF_TRY(swap_drain(&s->store));
    s->store.stats = (zoff_store_stats){0};
    return ZOFF_OK;
}

/* Chunks that are not residents go to the paths in turn, each behind what is there: then a file's length is known. */
static void place_chunks(swap_store *s, size_t paths)
{
    size_t turn = 0;
    for (size_t file = 0; file < paths; file++)
        s->files[file].bytes = ZOFF_SWAP_HEAD_BYTES;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        if (s->places[chunk].resident)
            continue;
        const size_t file = turn++ % paths;
        s->places[chunk] = (swap_place){.offset = s->files[file].bytes, .file = (uint32_t)file, .fresh = true};
        s->files[file].bytes += s->chunks[chunk].bytes;
    }
}

static zoff_status open_files(swap_store *s, const zoff_store_opts *opts, size_t slot_bytes)
{
    zoff_aio_opts aio = {.struct_size = sizeof aio,
                         .backend = opts->aio_backend,
                         .block_bytes = opts->aio_block_bytes,
                         .depth = opts->aio_depth,
                         .direct = (zoff_aio_direct)opts->direct,
                         .writable = true};
    for (size_t i = 0; i < opts->path_count; i++)
        zoff_offload_swap_file_clean(opts->paths[i]);
    place_chunks(s, opts->path_count);
    for (size_t file = 0; file < opts->path_count; file++) {
        const uint64_t bytes = s->files[file].bytes;
        ZOFF_TRY(zoff_offload_swap_file_open(opts->paths[file], opts->rank, bytes, &aio, &s->files[file]));
        s->file_count = file + 1;
        if (slot_bytes) /* a rank may own nothing */
            ZOFF_TRY(zoff_aio_register(s->files[file].aio, s->store.map.base, slot_bytes));
    }
    return ZOFF_OK;
}

/* The slots, and behind them the residents, in one mapping. */
static zoff_status map_memory(swap_store *s, const zoff_store_opts *opts, size_t largest)
{
    const char *what = opts->residents ? "the slots and the resident chunks of the NVMe tier" : "the slots of the NVMe tier";
    ZOFF_TRY(zoff_base_map_alloc(largest * (opts->slots + opts->residents), what, ZOFF_MAP_INTERLEAVED, &s->store.map));
    char *base = s->store.map.base;
    s->slot_count = opts->slots;
    for (unsigned i = 0; i < opts->slots; i++, base += largest)
        s->slots[i].base = base;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        if (!zoff_offload_placement_resident(chunk, opts->residents, s->chunk_count))
            continue;
        s->places[chunk].resident = base;
        base += largest;
    }
    return ZOFF_OK;
}

static zoff_status swap_open(const zoff_store_opts *opts, zoff_store **out)
{
    zoff_status status;
    swap_store *s;
    size_t largest = 0;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *s, "the NVMe tier", &s));
    s->store.ops = &zoff_offload_swap_ops;
    s->chunk_count = opts->chunk_count;
    ZOFF_TRY_OR(close_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *s->chunks, "the table of chunks", &s->chunks));
    ZOFF_TRY_OR(close_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *s->places, "the table of places", &s->places));
    ZOFF_TRY_OR(close_store, zoff_base_mem_alloc(opts->slots, sizeof *s->slots, "the slots", &s->slots));
    ZOFF_TRY_OR(close_store, zoff_base_mem_alloc(opts->path_count, sizeof *s->files, "the files", &s->files));
    for (size_t i = 0; i < opts->chunk_count; i++) {
        s->chunks[i] = opts->chunks[i];
        largest = zoff_base_bits_max(largest, opts->chunks[i].bytes);
    }
    ZOFF_TRY_OR(close_store, map_memory(s, opts, largest));
    ZOFF_TRY_OR(close_store, open_files(s, opts, largest * opts->slots));
    ZOFF_TRY_OR(close_store, write_all(s, opts));
    *out = &s->store;
    return ZOFF_OK;
close_store:
    zoff_offload_store_close(&s->store);
    return status;
}

static void swap_close(zoff_store *store)
{
    swap_store *s = (swap_store *)store;
    /* Closing a queue waits for what is in flight: only then may the slots go. */
    for (size_t i = 0; i < s->file_count; i++)
        zoff_offload_swap_file_close(&s->files[i]);
    zoff_base_map_free(&s->store.map);
    zoff_base_mem_free(s->slots);
    zoff_base_mem_free(s->files);
    zoff_base_mem_free(s->places);
    zoff_base_mem_free(s->chunks);
    zoff_base_mem_free(s);
}

const zoff_store_ops zoff_offload_swap_ops = {.open = swap_open,
                                              .close = swap_close,
                                              .fetch = swap_fetch,
                                              .flush = swap_flush,
                                              .release = swap_release,
                                              .pump = swap_pump,
                                              .wait = swap_wait,
                                              .drain = swap_drain,
                                              .retry = swap_retry,
                                              .forget = swap_forget,
                                              .resident = swap_resident};
