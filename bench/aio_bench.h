/* aio_bench.h: what the parts of the file queue's benchmark share: the options, the file and the memory, who is timed, the book
 * of races. */
#ifndef ZOFF_BENCH_AIO_BENCH_H
#define ZOFF_BENCH_AIO_BENCH_H

#include "figures.h"
#include "program.h"
#include "race.h"

#include <stdint.h>
#include <stdio.h>

enum { PART_CONTEST = 1, PART_THROTTLE = 2, PART_PAGES = 4, PART_SWEEP = 8, PART_ANY = 15 };
enum { ENOUGH_ROUNDS = 5, ENOUGH_THROTTLED = 1, MOST_RACES = 24, BENCH_PATH = 512 };

/* What is moved: all of the file read, all of it written, or half of it read while the other half is written. */
typedef enum bench_way { WAY_READ, WAY_WRITE, WAY_MIX, WAYS } bench_way;
const char *bench_way_name(bench_way way);

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define REQUEST_BYTES (16 * MIB) /* of the smaller of the two requests that are judged */
#define FILE_UNIT (64 * MIB)     /* the file is a multiple of it: then every part of it is cut evenly */

typedef struct bench_options {
    uint64_t bytes; /* of the file */
    uint64_t block; /* of our queue's pieces; 0: the library's default */
    unsigned depth; /* and of them in flight; 0: the library's default */
    const char *folder;
    bench_run run;
} bench_options;

/* One contestant: fio with one of its engines, or our queue. */
typedef struct bench_line {
    char name[96];
    const char *engine; /* of fio, static text; NULL: ours */
    uint64_t block;     /* bytes of a piece; ours: 0 is the library's default */
    unsigned depth;     /* likewise */
    uint64_t request;   /* ours: bytes of a request, four for each wait; 0: one for all there is */
    int small_pages;    /* memory of 4 KiB pages */
} bench_line;

/* What one transfer took. */
typedef struct bench_sample_io {
    double seconds, cpu; /* cpu: of the process with all its threads */
} bench_sample_io;

/* A race of one way. The race's own entries hold seconds, in the order of `lines`. */
typedef struct bench_match {
    race r;
    bench_way way;
    uint64_t bytes; /* that a sample moves */
    bench_line lines[RACE_ENTRIES];
    double cpu[RACE_ENTRIES][RACE_ROUNDS];
    char busy[RACE_ENTRIES][RACE_ROUNDS]; /* the disk worked for somebody else too, and again when the sample was repeated */
} bench_match;

/* The file, the memory, and what was found out about them. */
typedef struct bench_place {
    char path[BENCH_PATH];
    int made;               /* the file is there and has been written */
    char *huge;             /* as many bytes as the file has, in huge pages if the system gave them */
    char *small;            /* SMALL_BYTES of ordinary pages */
    size_t huge_bytes;      /* of the process that are in huge pages */
    char disk_stat[64];     /* where the system counts what the disk moves; "": it does not */
    long pages_before;      /* /proc/sys/vm/nr_hugepages as it was; -1: not changed */
    int pages_lock;         /* held while it is changed: two runs would put back each other\'s figures; -1: none */
    int pages_for_fio;      /* there are enough of them for its memory */
    int direct, registered; /* of our queues */
    char backend[32];
} bench_place;
#define SMALL_BYTES (4 * REQUEST_BYTES)

typedef struct bench_book {
    bench_match *races[MOST_RACES];
    unsigned count;
    bench_place place;
    char fio_version[64];   /* "": there is none */
    char no_fio[256];       /* why, with a way out */
    char no_throttle[1280]; /* why the disk could not be given a known speed; "" if it could, or was not asked to */
} bench_book;

/* --- aio_book.c --- */
/* A new race; NULL with a message when there is no memory for it. */
bench_match *bench_book_open(bench_book *book, const char *part, bench_way way, uint64_t bytes);
const bench_match *bench_book_find(const bench_book *book, const char *part, bench_way way);
void bench_book_free(bench_book *book);
/* Add a contestant under a name made from what it is; its index. */
int bench_match_add(bench_match *match, bench_line line);
/* Bytes a second of a line, median; NAN without a sample. And CPU seconds for 1e9 bytes. */
double bench_match_rate(const bench_match *match, int index);
double bench_match_cpu(const bench_match *match, int index);
/* The line of fio with the highest median rate, memory of small pages left out; -1: there is none. */
int bench_match_best_fio(const bench_match *match);
/* Bytes a second of `a` / of `b`, median of the rounds in which neither was disturbed; of all where those are fewer than
 * `enough`, and then `busy` is set. */
race_ratio bench_match_compare(const bench_match *match, int a, int b, unsigned enough, int *busy);
/* A signal asked the program to stop, or the deadline has passed. */
int bench_over(double deadline);
extern volatile int bench_stopped; /* number of the signal; 0 */

/* --- aio_place.c --- */
/* Make the file, write all of it once, fill the memory; `fio`: have huge pages set aside for it. 0, or -1 with a message. */
int bench_place_open(const bench_options *options, int fio, bench_place *out);
/* Bytes that the disk has moved so far, for anybody; NAN where the system does not tell. */
double bench_place_moved(const bench_place *place);
/* Take all of it back. */
void bench_place_close(bench_place *place);

/* --- aio_ours.c, aio_fio.c --- */
/* Move `bytes` and time it. 0, or -1 with a message. */
int bench_ours_run(bench_place *place, const bench_line *line, bench_way way, uint64_t bytes, bench_sample_io *out);
int bench_fio_run(const bench_place *place, const bench_line *line, bench_way way, uint64_t bytes, bench_sample_io *out);
/* Ask fio for its version; -1 with `why` where there is none. */
int bench_fio_find(char *version, size_t bytes, char *why, size_t why_bytes);

/* --- aio_parts.c --- */
/* The parts. Each adds races to the book; -1 with a message when something failed, which slowness is not. */
int bench_contest(const bench_options *options, double deadline, bench_book *book);
int bench_throttle(const bench_options *options, double deadline, bench_book *book);
int bench_pages(const bench_options *options, double deadline, bench_book *book);
int bench_sweep(const bench_options *options, double deadline, bench_book *book);

/* --- aio_judge.c --- */
void bench_judge(const bench_options *options, const bench_book *book, bench_figures *out);
/* Whether every figure that was measured comes from enough rounds. */
int bench_judge_enough(const bench_figures *figures);

/* --- aio_report.c --- */
void bench_report_table(FILE *out, const bench_options *options, const bench_book *book, const bench_figures *figures);
/* 0, or -1 with a message. */
int bench_report_json(const bench_options *options, const bench_book *book, const bench_figures *figures);

#endif
