/* SPDX-License-Identifier: Apache-2.0 */
/* aio_ours.c: the contestant of this project: the queue of <zoff/aio.h>. One request for a whole transfer, or many of 16 MiB
 * with four for each wait, as an optimizer asks for the states of a few tensors. */
#include "aio_bench.h"

enum { REQUESTS_A_WAIT = 4 };

/* A transfer in progress: how far each direction has come. */
typedef struct progress {
    zoff_aio *queue;
    aio_way way;
    uint64_t part, request; /* bytes of each direction; a mix writes to the second half of the file */
    char *memory;
    uint64_t asked[2]; /* bytes requested, of reads and of writes */
} progress;

/* The n-th request of a batch, with the n-th part of the memory. */
static uint64_t ask(progress *p, bool writes, unsigned n)
{
    const uint64_t offset = p->asked[writes] + (p->way == WAY_MIX && writes ? p->part : 0);
    char *memory = p->memory + n * p->request;
    uint64_t ticket;
    p->asked[writes] += p->request;
    bench_must(writes ? zoff_aio_write(p->queue, offset, p->request, memory, &ticket)
                      : zoff_aio_read(p->queue, offset, p->request, memory, &ticket));
    return ticket;
}

static void move(progress *p)
{
    uint64_t tickets[REQUESTS_A_WAIT];
    const bool reads = p->way != WAY_WRITE, writes = p->way != WAY_READ;
    while (p->asked[!reads] < p->part) {
        unsigned count = 0;
        while (count < REQUESTS_A_WAIT && p->asked[!reads] < p->part) {
            if (reads) {
                tickets[count] = ask(p, false, count);
                count++;
            }
            if (writes) {
                tickets[count] = ask(p, true, count);
                count++;
            }
        }
        for (unsigned i = 0; i < count; i++)
            bench_must(zoff_aio_wait(p->queue, tickets[i]));
    }
}

void aio_ours_run(const aio_line *line, aio_transfer *t)
{
    const zoff_aio_opts opts = {
        .struct_size = sizeof opts, .block_bytes = line->block, .depth = (unsigned)line->depth, .writable = t->way != WAY_READ};
    zoff_aio_info info = {.struct_size = sizeof info};
    progress p = {.way = t->way, .part = t->way == WAY_MIX ? t->bytes / 2 : t->bytes, .memory = t->memory};
    p.request = line->request ? line->request : p.part;
    bench_must(zoff_aio_open(t->path, &opts, &p.queue));
    const double opened = bench_now();
    bench_must(zoff_aio_register(p.queue, p.memory, line->request ? REQUESTS_A_WAIT * line->request : t->bytes));
    t->registering = bench_now() - opened;
    bench_must(zoff_aio_get_info(p.queue, &info));
    const double used = bench_cpu_seconds(), start = bench_now();
    move(&p);
    t->seconds = bench_now() - start;
    t->cpu = bench_cpu_seconds() - used;
    t->registered = info.registered;
    zoff_aio_close(p.queue);
}
