/* aio_bench.h: shared by the files of the file queue's benchmark: file and memory, contestants. */
#ifndef ZOFF_BENCH_AIO_BENCH_H
#define ZOFF_BENCH_AIO_BENCH_H

#include "disk.h"
#include "streams.h"

enum { MOST_MATCHES = 15, AIO_PATH = 512 };

/* A transfer reads all of the file, writes all of it, or reads one half while it writes the other. */
typedef enum aio_way { WAY_READ, WAY_WRITE, WAY_MIX, WAYS } aio_way;

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define REQUEST_BYTES (16 * MIB) /* of the smaller of the two judged requests */
#define SMALL_BYTES (4 * REQUEST_BYTES)
#define FILE_UNIT (64 * MIB)          /* the file is a multiple of it, so that all its parts are cut evenly */
#define BOUND (1000ull * 1000 * 1000) /* bytes per second in each direction, of the limited disk */

typedef struct aio_options {
    uint64_t bytes;        /* of the file */
    uint64_t block, depth; /* bytes of our queue's pieces, and pieces in flight; 0: the library's default */
    const char *folder;
    bench_run run;
} aio_options;

/* One contestant: fio with one of its engines, or our queue. */
typedef struct aio_line {
    char name[96];
    const char *engine;    /* of fio, static text; NULL: ours */
    uint64_t block, depth; /* as in the options */
    uint64_t request;      /* ours: bytes of a request, four for each wait; 0: one request for everything */
    bool small_pages;      /* memory of 4 KiB pages */
} aio_line;

/* The file, the memory and their properties. */
typedef struct aio_place {
    char name[64], path[AIO_PATH];
    bench_streams mappings[2];
    char *huge;              /* as large as the file, in huge pages if the system gives them */
    char *small;             /* SMALL_BYTES of ordinary pages */
    size_t huge_bytes;       /* of the process, in huge pages */
    long pages_before;       /* /proc/sys/vm/nr_hugepages before the run; -1: not changed */
    int pages_lock;          /* held while that is changed, since two runs would restore each other's values; -1: none */
    bool pages_for_fio;      /* enough are free for fio's memory */
    bool direct, registered; /* of our queues */
    double registering;      /* seconds in which our last run registered its memory, beside its own time */
    char backend[32];
} aio_place;

/* A race in one direction, whose `user` it is. The second figure of its samples is CPU seconds of the contestant's process, and
 * a sample is disturbed if the disk worked for other processes, and again when it was repeated. */
typedef struct aio_match {
    race *r;
    aio_place *place;
    aio_way way;
    uint64_t bytes; /* bytes of a sample */
    unsigned tries; /* tries of a sample, until the disk works for us alone */
    double pause;   /* seconds before each of our samples */
    aio_line lines[RACE_ENTRIES];
} aio_match;

/* Results of a run. */
typedef struct aio_found {
    race_book book;
    aio_match matches[MOST_MATCHES];
    unsigned count;
    aio_place place;
    char fio_version[64]; /* "": there is none */
} aio_found;

extern volatile int aio_stopped; /* number of the signal that stops the program; 0: none */

/* aio_place.c. Create the file, write all of it once and fill the memory. `fio`: reserve huge pages for it. 0, or -1 with a
 * message. Closing undoes all of it. */
int aio_place_open(const aio_options *options, bool fio, aio_place *out);
void aio_place_close(aio_place *place);

/* aio_ours.c, aio_fio.c: move `bytes`; return seconds of wall and CPU time. 0, or -1 with a message. */
int aio_ours_run(aio_place *place, const aio_line *line, aio_way way, uint64_t bytes, double *seconds, double *cpu);
int aio_fio_run(const aio_place *place, const aio_line *line, aio_way way, uint64_t bytes, double *seconds, double *cpu);

/* aio_parts.c: each part adds races. -1 with a message for an error; slowness is none. */
int aio_contest(const aio_options *options, double deadline, aio_found *found);
int aio_throttle(const aio_options *options, double deadline, aio_found *found);
int aio_pages(const aio_options *options, double deadline, aio_found *found);
int aio_sweep(const aio_options *options, double deadline, aio_found *found);
/* The match of a race with this name, as race_of() finds it; NULL: there is none. */
const aio_match *aio_match_of(const aio_found *found, const char *name);
/* CPU seconds of a line for 1e9 bytes, median; NAN without a sample. */
double aio_match_cpu(const aio_match *match, unsigned index);
/* The line of fio with the highest median rate. Lines with small pages, and those in `taken`, do not count. -1: none. */
int aio_match_best_fio(const aio_match *match, const bool taken[RACE_ENTRIES]);

#endif
