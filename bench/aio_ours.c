/* aio_ours.c: the queue of <zoff/aio.h> under test: one request for all of a transfer, or many of 16 MiB, four for each wait,
 * as an optimizer asks for the states of a few tensors and waits for them. */
#include "aio_bench.h"

#include <string.h>
#include <time.h>
#include <zoff/zoff.h>

enum { REQUESTS_A_WAIT = 4 };

/* A transfer that is under way: where each direction has got to. */
typedef struct transfer {
    zoff_aio *queue;
    bench_way way;
    uint64_t bytes, request;
    char *memory;
    uint64_t memory_bytes;
    uint64_t asked[2]; /* of reads and of writes; the writes of a mix are in the second half of the file */
} transfer;

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t part_bytes(const transfer *t)
{
    return t->way == WAY_MIX ? t->bytes / 2 : t->bytes;
}

/* The n-th request of a batch, with the n-th part of the memory. */
static zoff_status ask(transfer *t, int writes, unsigned place, uint64_t *ticket)
{
    const uint64_t offset = t->asked[writes] + (t->way == WAY_MIX && writes ? t->bytes / 2 : 0);
    char *memory = t->memory + place * t->request;
    t->asked[writes] += t->request;
    return writes ? zoff_aio_write(t->queue, offset, t->request, memory, ticket)
                  : zoff_aio_read(t->queue, offset, t->request, memory, ticket);
}

static zoff_status move(transfer *t)
{
    uint64_t tickets[REQUESTS_A_WAIT];
    t->asked[0] = t->asked[1] = 0;
    const int reads = t->way != WAY_WRITE, writes = t->way != WAY_READ;
    while (t->asked[reads ? 0 : 1] < part_bytes(t)) {
        unsigned count = 0;
        zoff_status status = ZOFF_OK;
        while (status == ZOFF_OK && count < REQUESTS_A_WAIT && t->asked[reads ? 0 : 1] < part_bytes(t)) {
            if (reads && (status = ask(t, 0, count, &tickets[count])) == ZOFF_OK)
                count++;
            if (writes && status == ZOFF_OK && (status = ask(t, 1, count, &tickets[count])) == ZOFF_OK)
                count++;
        }
        for (unsigned i = 0; i < count; i++) {
            const zoff_status result = zoff_aio_wait(t->queue, tickets[i]);
            status = status == ZOFF_OK ? result : status;
        }
        if (status != ZOFF_OK)
            return status;
    }
    return ZOFF_OK;
}

static zoff_status run(bench_place *place, transfer *t, bench_sample_io *out)
{
    zoff_aio_info info = {.struct_size = sizeof info};
    zoff_status status = zoff_aio_register(t->queue, t->memory, t->memory_bytes);
    if (status == ZOFF_OK)
        status = zoff_aio_get_info(t->queue, &info);
    if (status != ZOFF_OK)
        return status;
    const double cpu = cpu_now(), start = bench_stopwatch_now();
    status = move(t);
    out->seconds = bench_stopwatch_now() - start;
    out->cpu = cpu_now() - cpu;
    place->registered = place->registered && info.registered;
    return status;
}

int bench_ours_run(bench_place *place, const bench_line *line, bench_way way, uint64_t bytes, bench_sample_io *out)
{
    const zoff_aio_opts opts = {
        .struct_size = sizeof opts, .block_bytes = line->block, .depth = line->depth, .writable = way != WAY_READ};
    transfer t = {.way = way, .bytes = bytes};
    t.request = line->request ? line->request : part_bytes(&t);
    t.memory = line->small_pages ? place->small : place->huge;
    t.memory_bytes = line->request ? REQUESTS_A_WAIT * line->request : bytes;
    zoff_status status = zoff_aio_open(place->path, &opts, &t.queue);
    if (status == ZOFF_OK)
        status = run(place, &t, out);
    if (status != ZOFF_OK)
        fprintf(stderr, "aio: %s: %s\n", line->name, zoff_last_error());
    zoff_aio_close(t.queue);
    return status == ZOFF_OK ? 0 : -1;
}
