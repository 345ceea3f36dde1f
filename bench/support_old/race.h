/* race.h: contestants that run in turns. Each has one sample in a round; the order changes from round to round, forwards and
 * backwards, so that nobody always follows the same one; ratios are formed within rounds, because a shared machine is fast in
 * one second and slow in the next. */
#ifndef ZOFF_BENCH_RACE_H
#define ZOFF_BENCH_RACE_H

#include "stopwatch.h"

enum { RACE_ENTRIES = 24, RACE_ROUNDS = 64 };

typedef struct race_entry {
    const char *name, *what; /* static texts */
    const char *kernel;      /* static text: which of several ways to write it runs; NULL: there is one */
    double elements;         /* of one call */
    double bytes;            /* that an element must move, without reads for ownership */
    int yardstick;           /* the entry that moves the same and computes nothing; -1: none */
    bench_work_fn work;
    bench_work_fn before; /* each sample, once and untimed; NULL: nothing */
    void *ctx;
    unsigned calls;              /* that a sample repeats */
    bool fixed;                  /* as many as the entry came with, however short they are */
    double seconds[RACE_ROUNDS]; /* of one call; NAN where no sample was clean */
} race_entry;

typedef struct race {
    const char *part; /* static text */
    char label[64];
    bool neighbours; /* rounds go forwards and backwards from end to end: who follows whom stays as it was entered */
    race_entry entries[RACE_ENTRIES];
    unsigned count;
    unsigned rounds, clean_rounds; /* all, and those in which every sample was clean */
    unsigned retried_samples;
} race;

/* Add a contestant; its index. One of that name that is there already keeps its samples and gets the new ctx: so a race goes on
 * later, on other memory. More than RACE_ENTRIES are a mistake in the program. */
int race_add(race *r, race_entry entry);

/* The entry of that name, or -1. */
int race_find(const race *r, const char *name);

/* Run rounds until `wanted` in all are clean or the deadline has passed. The first call also finds how many calls a sample
 * repeats. All of `threads` must hold their cores in a sample. */
void race_run(race *r, unsigned wanted, unsigned threads, double deadline);

typedef struct race_ratio {
    double median; /* of time(a) / time(b) over the rounds where both were clean; NAN when there is none */
    unsigned pairs;
} race_ratio;
race_ratio race_compare(const race *r, int a, int b);

/* Clean samples of one entry. `count` 0: none, and the spread means nothing. */
bench_spread race_spread(const race *r, int entry, unsigned *count);

/* Share of the yardstick's rate in bytes that an entry reaches; NAN without one. */
double race_share(const race *r, int entry);

#endif
