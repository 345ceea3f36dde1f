/* aio_ours.c: the contestant of this project: the queue of <zoff/aio.h>. One request for a whole transfer, or many of 16 MiB
 * with four for each wait, as an optimizer asks for the states of a few tensors. */
#include "aio_bench.h"

enum { REQUESTS_A_WAIT = 4 };

/* A transfer in progress: how far each direction has come. */
typedef struct transfer {
    zoff_aio *queue;
    aio_way way;
    uint64_t part, request; /* bytes of each direction; a mix writes to the second half of the file */
    char *memory;
    uint64_t asked[2]; /* bytes requested, of reads and of writes */
} transfer;

/* The n-th request of a batch, with the n-th part of the memory. */
static zoff_status ask(transfer *t, bool writes, unsigned place, uint64_t *ticket)
{
    const uint64_t offset = t->asked[writes] + (t->way == WAY_MIX && writes ? t->part : 0);
    char *memory = t->memory + place * t->request;
    t->asked[writes] += t->request;
    return writes ? zoff_aio_write(t->queue, offset, t->request, memory, ticket)
                  : zoff_aio_read(t->queue, offset, t->request, memory, ticket);
}

static zoff_status move(transfer *t)
{
    uint64_t tickets[REQUESTS_A_WAIT];
    const bool reads = t->way != WAY_WRITE, writes = t->way != WAY_READ;
    zoff_status status = ZOFF_OK;
    while (status == ZOFF_OK && t->asked[!reads] < t->part) {
        unsigned count = 0;
        while (status == ZOFF_OK && count < REQUESTS_A_WAIT && t->asked[!reads] < t->part) {
            if (reads && (status = ask(t, false, count, &tickets[count])) == ZOFF_OK)
                count++;
            if (writes && status == ZOFF_OK && (status = ask(t, true, count, &tickets[count])) == ZOFF_OK)
                count++;
        }
        for (unsigned i = 0; i < count; i++) {
            const zoff_status result = zoff_aio_wait(t->queue, tickets[i]);
            status = status == ZOFF_OK ? result : status;
        }
    }
    return status;
}

int aio_ours_run(aio_place *place, const aio_line *line, aio_way way, uint64_t bytes, double *seconds, double *cpu)
{
    const zoff_aio_opts opts = {
        .struct_size = sizeof opts, .block_bytes = line->block, .depth = (unsigned)line->depth, .writable = way != WAY_READ};
    zoff_aio_info info = {.struct_size = sizeof info};
    transfer t = {.way = way, .part = way == WAY_MIX ? bytes / 2 : bytes};
    t.request = line->request ? line->request : t.part;
    t.memory = line->small_pages ? place->small : place->huge;
    int ret = bench_told(zoff_aio_open(place->path, &opts, &t.queue));
    const double opened = bench_now();
    if (ret == 0)
        ret = bench_told(zoff_aio_register(t.queue, t.memory, line->request ? REQUESTS_A_WAIT * line->request : bytes));
    place->registering = bench_now() - opened;
    if (ret == 0)
        ret = bench_told(zoff_aio_get_info(t.queue, &info));
    const double used = bench_cpu_seconds(), start = bench_now();
    if (ret == 0)
        ret = bench_told(move(&t));
    *seconds = bench_now() - start;
    *cpu = bench_cpu_seconds() - used;
    place->registered = place->registered && info.registered;
    zoff_aio_close(t.queue);
    return ret;
}
