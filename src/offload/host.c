/* host.c: the tier that holds all chunks in DRAM, in one mapping. Borrowing costs nothing, and chunks never move. */
#include "tier.h"

#include "mem.h"
#include "try.h"

typedef struct host_store {
    zoff_store store;
    size_t *offsets;          /* bytes, of each chunk in the mapping */
    zoff_store_chunk *chunks; /* with all ends */
} host_store;

static zoff_status host_open(const zoff_store_opts *opts, zoff_store **out)
{
    zoff_status status;
    host_store *h;
    size_t total = 0;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *h, "the host tier", &h));
    h->store.ops = &zoff_offload_host_ops;
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *h->offsets, "the host tier's table", &h->offsets));
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *h->chunks, "the host tier's table", &h->chunks));
    for (size_t i = 0; i < opts->chunk_count; i++) {
        h->offsets[i] = total;
        h->chunks[i] = opts->chunks[i];
        zoff_offload_store_complete_ends(&h->chunks[i]);
        total += opts->chunks[i].bytes;
    }
    /* Pages belong to the node of the thread that touches them first. fill() touches them with the shares of the update. */
    ZOFF_TRY_OR(free_store,
                zoff_base_map_alloc(total, opts->what ? opts->what : "the chunks", ZOFF_MAP_FIRST_TOUCH, &h->store.map));
    for (size_t i = 0; i < opts->chunk_count; i++)
        opts->fill(opts->fill_ctx, i, (char *)h->store.map.base + h->offsets[i]);
    *out = &h->store;
    return ZOFF_OK;
free_store:
    zoff_offload_store_close(&h->store);
    return status;
}

static void host_close(zoff_store *store)
{
    host_store *h = (host_store *)store;
    zoff_base_map_free(&h->store.map);
    zoff_base_mem_free(h->offsets);
    zoff_base_mem_free(h->chunks);
    zoff_base_mem_free(h);
}

static zoff_status host_claim(zoff_store *store, size_t chunk, void **out)
{
    host_store *h = (host_store *)store;
    *out = (char *)h->store.map.base + h->offsets[chunk];
    return ZOFF_OK;
}

static zoff_status host_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    (void)arrays;
    return host_claim(store, chunk, out);
}

/* States in DRAM need no writing, comparing or prefetching. */
static zoff_status host_nothing(zoff_store *store, size_t chunk)
{
    (void)store;
    (void)chunk;
    return ZOFF_OK;
}

static zoff_status host_keep(zoff_store *store, size_t chunk, unsigned changed)
{
    (void)changed;
    return host_nothing(store, chunk);
}

static void host_release(zoff_store *store, size_t chunk)
{
    (void)store;
    (void)chunk;
}

/* Nothing is ever in flight. */
static zoff_status host_idle(zoff_store *store)
{
    (void)store;
    return ZOFF_OK;
}

static zoff_status host_settled(const zoff_store *store)
{
    (void)store;
    return ZOFF_OK;
}

static bool host_busy(const zoff_store *store, bool writes_only)
{
    (void)store;
    (void)writes_only;
    return false;
}

static zoff_status host_commit(zoff_store *store, int64_t t)
{
    store->t = t;
    return ZOFF_OK;
}

static void host_forget(zoff_store *store)
{
    (void)store;
}

static bool host_resident(const zoff_store *store, size_t chunk)
{
    (void)store;
    (void)chunk;
    return true;
}

static zoff_status host_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    const host_store *h = (const host_store *)store;
    const size_t begin = array ? h->chunks[chunk].ends[array - 1] : 0, end = h->chunks[chunk].ends[array];
    *out = (zoff_store_source){.memory = (const char *)h->store.map.base + h->offsets[chunk] + begin,
                               .fd = -1,
                               .begin = begin,
                               .bytes = end - begin,
                               .written = end - begin};
    return ZOFF_OK;
}

const zoff_store_ops zoff_offload_host_ops = {
    .open = host_open,
    .close = host_close,
    .fetch = host_fetch,
    .claim = host_claim,
    .check = host_nothing,
    .ahead = host_nothing,
    .drop = host_release,
    .flush = host_nothing,
    .keep = host_keep,
    .release = host_release,
    .pump = host_idle,
    .wait = host_idle,
    .drain = host_idle,
    .busy = host_busy,
    .commits = {.settled = host_settled, .commit = host_commit, .rollback = host_idle, .retry = host_idle},
    .forget = host_forget,
    .resident = host_resident,
    .source = host_source};
