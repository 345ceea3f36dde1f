/* SPDX-License-Identifier: Apache-2.0 */
/* aio_bench.h: shared by the files of the file queue's benchmark: file and memory, contestants. */
#ifndef ZOFF_BENCH_AIO_BENCH_H
#define ZOFF_BENCH_AIO_BENCH_H

#include "disk.h"
#include "streams.h"

/* A transfer reads all of the file, writes all of it, or reads one half while it writes the other. */
typedef enum aio_way { WAY_READ, WAY_WRITE, WAY_MIX, WAYS } aio_way;

/* One contestant: fio with one of its engines, or our queue. */
typedef struct aio_line {
    const char *name;
    const char *engine;    /* engine of fio; NULL: our queue */
    uint64_t block, depth; /* bytes of a piece, and pieces in flight; 0: the library's default */
    uint64_t request;      /* ours: bytes of a request, four for each wait; 0: one request for everything */
    bool small_pages;      /* the memory has pages of 4 KiB */
} aio_line;

/* A transfer of a contestant, and its results. */
typedef struct aio_transfer {
    const char *path;
    char *memory;
    aio_way way;
    uint64_t bytes;
    double seconds, cpu;
    double registering; /* seconds in which our queue registered its memory, beside its own time */
    bool registered;
} aio_transfer;

/* aio_ours.c. */
void aio_ours_run(const aio_line *line, aio_transfer *t);

#endif
