/* SPDX-License-Identifier: Apache-2.0 */
/* race.h: contestants that run in turns. Each has one sample in a round. The order alternates between forwards and backwards,
 * so that no contestant always follows the same one. Ratios are formed within rounds, because a shared machine is fast in one
 * second and slow in the next. The book holds all races of a run. */
#ifndef ZOFF_BENCH_RACE_H
#define ZOFF_BENCH_RACE_H

#include "stopwatch.h"

#include <jansson.h>
#include <stddef.h>

enum { RACE_ENTRIES = 24, RACE_ROUNDS = 64, RACE_BOOK = 1024 };

/* A line of a table of contestants; the last one has no name. */
typedef struct race_line {
    const char *name, *what; /* static texts, or texts that live longer than the race */
    double bytes;            /* bytes that an element must move, without reads for ownership */
    bench_work_fn run;
    int which;
    unsigned tags;         /* bits of the table's own, which choose when the line takes part */
    const char *yardstick; /* name of the entry that moves the same bytes and computes nothing; NULL: none */
    bench_work_fn before;  /* runs before each sample, untimed; NULL: nothing */
    void *ctx;             /* context of both functions, unless race_add() is given another */
} race_line;

typedef struct race_entry {
    race_line line;
    const char *kernel;          /* name of the implementation that runs; NULL: there is only one */
    double elements;             /* elements of one call */
    bench_work work;             /* work, whose context must live as long as the race runs */
    unsigned calls;              /* calls in a sample; 0: found when the race runs */
    bool found;                  /* `calls` was found, and grows if a sample turns out short */
    double seconds[RACE_ROUNDS]; /* time of one call; NAN if no sample was clean */
    double other[RACE_ROUNDS];   /* a second figure of the sample, which the race's own `sample` may set */
    bool disturbed[RACE_ROUNDS]; /* other processes may have decided the sample, also when it was repeated */
} race_entry;

typedef struct race race;
struct race {
    const char *part, *label;
    bool neighbours; /* rounds alternate between both directions, so that neighbours stay those of the list */
    bool brief;      /* the table has one line for the whole race */
    unsigned threads;
    race_entry entries[RACE_ENTRIES];
    unsigned count;
    unsigned rounds, clean_rounds; /* all rounds, and those in which every sample was clean */
    unsigned retried_samples;
    unsigned least;      /* rounds that are taken even if it is late */
    const char *missing; /* reason why the race has no round; "" if nothing more is known */
    /* Take an entry's sample without the stopwatch, which may set its second figure and whether it was disturbed. Returns
     * seconds of one call; NAN: there is no sample. */
    double (*sample)(race *r, race_entry *e, double deadline);
    /* Add fields to the JSON row of an entry; entry `count` is the race itself. NULL: nothing to add. */
    void (*describe)(const race *r, unsigned entry, json_t *out);
    void *user; /* context of these two functions */
};

extern struct race_book {
    race *races[RACE_BOOK];
    unsigned count, threads, enough; /* threads of each race; clean rounds that a race needs to be trusted */
} race_book;

/* The race of that name, to continue it, or a new one. */
race *race_open(const char *part, const char *label);
/* The first race of a part, whose label ends with the text behind the "/" in "part/label end". NULL: there is none. */
race *race_of(const char *name);

/* Add a contestant. One of that name keeps its samples and gets the new work, so a race can continue later on other memory. */
race_entry *race_add(race *r, const race_line *line, double elements, void *ctx, unsigned calls);
/* Add the lines that have at least one of these tags, or all lines for tags of 0. */
void race_add_lines(race *r, const race_line *lines, unsigned tags, double elements, void *ctx, unsigned calls);

/* Run rounds until `wanted` in all are clean or it is late. The first call also finds the calls in a sample. */
void race_run(race *r, unsigned wanted, double deadline);
void race_round(race *r, double deadline);
/* For processes that run the same races: whether it is late for all of them, if one says so; NULL: each decides alone. */
extern bool (*race_agree)(bool late);

const race_entry *race_find(const race *r, const char *name); /* find an entry; NULL: there is none; r may be NULL */
/* The median of the samples of a contestant; NAN without one. */
double race_median(const race *r, const char *name);
/* Compute a formula in each round, over all rounds, or over those in which none of its contestants was disturbed. A formula has
 * names of contestants for their seconds, name.bytes, name.elements and name.other, numbers, + - * / ( ), and max(a, b, ...),
 * which leaves out what was not measured except its first value. A name with other characters stands in ''. */
bench_spread race_values(const race *r, const char *formula, bool quiet);
/* Share of the yardstick's bandwidth that an entry reaches; NAN without a yardstick. */
double race_share(const race *r, const race_entry *e);

/* Print the samples of a race that ran in a process of its own, as a line; and read them in the process that started it, into
 * a race with the same contestants. A round in which one was disturbed counts as disturbed for all. */
void race_print_samples(const race *r);
void race_read_samples(race *r, const char *line);

#endif
