/* race.h: contestants that run in turns. Each has one sample in a round. The order alternates between forwards and backwards,
 * so that no contestant always follows the same one. Ratios are formed within rounds, because a shared machine is fast in one
 * second and slow in the next. A book holds all races of a run. */
#ifndef ZOFF_BENCH_RACE_H
#define ZOFF_BENCH_RACE_H

#include "stopwatch.h"

#include <jansson.h>
#include <stddef.h>

enum { RACE_ENTRIES = 24, RACE_ROUNDS = 64, RACE_BOOK = 1024 };

typedef struct race_entry {
    const char *name, *what;     /* static texts, or texts that live longer than the race */
    const char *kernel;          /* the implementation that runs; NULL: there is one */
    const char *yardstick;       /* name of the entry that moves the same bytes and computes nothing; NULL: none */
    double elements, bytes;      /* elements of one call; bytes that an element must move, without reads for ownership */
    bench_work work;             /* its context must live as long as the race runs */
    bench_work_fn before;        /* runs before each sample, untimed; NULL: nothing */
    unsigned calls;              /* calls in a sample; 0: found when the race runs */
    bool found;                  /* `calls` was found, and grows if a sample turns out short */
    double seconds[RACE_ROUNDS]; /* of one call; NAN if no sample was clean */
    double other[RACE_ROUNDS];   /* a second figure of the sample, which the race's own `sample` may set */
} race_entry;

typedef struct race race;
struct race {
    const char *part;
    char label[64];
    bool neighbours; /* rounds alternate between both directions, so that neighbours stay those of the list */
    bool brief;      /* the table has one line for the whole race */
    unsigned threads;
    race_entry entries[RACE_ENTRIES];
    unsigned count;
    unsigned rounds, clean_rounds; /* all rounds, and those in which every sample was clean */
    unsigned retried_samples;
    /* Take an entry's sample without the stopwatch: set its seconds in this round. 1: clean, 0: not, -1: it failed. */
    int (*sample)(race *r, race_entry *e, double deadline);
    /* Add fields to the JSON row of an entry; entry `count` is the race itself. NULL: nothing to add. */
    void (*describe)(const race *r, unsigned entry, json_t *out);
    void *user; /* for these two functions */
};

typedef struct race_book {
    race *races[RACE_BOOK];
    unsigned count, threads, enough; /* threads of each race; clean rounds that a race needs to be trusted */
} race_book;

/* The race of that name, to continue it, or a new one. Ends the program if there is no memory. */
race *race_open(race_book *book, const char *part, const char *label, ...) __attribute__((format(printf, 3, 4)));
/* The race of a part whose label ends with `label_end`; NULL: there is none. */
const race *race_of(const race_book *book, const char *part, const char *label_end);
void race_book_free(race_book *book);

/* A line of a table of contestants; the last one has no name. */
typedef struct race_line {
    const char *name, *what, *yardstick;
    double bytes;
    bench_work_fn run;
    int which;
    unsigned tags; /* bits of the table's own, which choose when it takes part */
} race_line;

/* Add a contestant. An existing one of that name keeps its samples and gets the new work, so a race can continue later on other
 * memory. */
race_entry *race_add(race *r, const race_line *line, double elements, void *ctx, unsigned calls);
/* Add the lines that have at least one of these tags. */
void race_add_lines(race *r, const race_line *lines, unsigned tags, double elements, void *ctx, unsigned calls);

/* Run one round. 0, or -1 if a contestant failed, after its message. */
int race_round(race *r, double deadline);
/* Run rounds until `wanted` in all are clean or the deadline has passed. The first call also finds the calls in a sample. */
int race_run(race *r, unsigned wanted, double deadline);

const race_entry *race_find(const race *r, const char *name); /* NULL: there is none; r may be NULL */
/* Seconds of a contestant in a round, and its second figure; NAN if there is none. */
double race_at(const race *r, const char *name, unsigned round);
/* A value that is computed in each round, over all rounds. */
typedef double (*race_value_fn)(const race *r, unsigned round);
bench_spread race_values(const race *r, race_value_fn value);
/* Time of one over time of the other, in the rounds in which both were clean. */
bench_spread race_ratio(const race *r, const char *a, const char *b);
/* Share of the yardstick's bandwidth that an entry reaches; NAN without a yardstick. */
double race_share(const race *r, const race_entry *e);

#endif
