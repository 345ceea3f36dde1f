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
    const char *name, *what;     /* static texts, or texts that outlive the race */
    const char *kernel;          /* which of several ways to write it runs; NULL: there is one */
    const char *yardstick;       /* name of the entry that moves the same and computes nothing; NULL: none */
    double elements, bytes;      /* of one call; that an element must move, without reads for ownership */
    bench_work work;             /* its context must last while the race runs */
    bench_work_fn before;        /* each sample, once and untimed; NULL: nothing */
    unsigned calls;              /* that a sample repeats; 0: found when the race runs */
    bool found;                  /* and they grow where a sample turns out short */
    double seconds[RACE_ROUNDS]; /* of one call; NAN where no sample was clean */
    double other[RACE_ROUNDS];   /* another figure of the sample, which the race's own `sample` may set */
} race_entry;

typedef struct race race;
struct race {
    const char *part;
    char label[64];
    bool neighbours; /* rounds go forwards and backwards from end to end: who follows whom stays as it was entered */
    bool brief;      /* the table has one line for all of it */
    unsigned threads;
    race_entry entries[RACE_ENTRIES];
    unsigned count;
    unsigned rounds, clean_rounds; /* all, and those in which every sample was clean */
    unsigned retried_samples;
    /* Take an entry's sample in place of the stopwatch: set its seconds of this round. 1: clean, 0: not, -1: it failed. */
    int (*sample)(race *r, race_entry *e, double deadline);
    /* Put what the JSON has beside into the row of an entry; entry `count` is the race itself. NULL: nothing. */
    void (*describe)(const race *r, unsigned entry, json_t *out);
    void *user; /* of these two */
};

typedef struct race_book {
    race *races[RACE_BOOK];
    unsigned count, threads, enough; /* threads of each race; clean rounds of a race that can be believed */
} race_book;

/* The race of that name, to go on with, or a new one. Ends the program when there is no memory. */
race *race_open(race_book *book, const char *part, const char *label, ...) __attribute__((format(printf, 3, 4)));
/* The race of a part whose label ends so; NULL: there is none. */
const race *race_of(const race_book *book, const char *part, const char *label_end);
void race_book_free(race_book *book);

/* A line of a table of contestants; the last has no name. */
typedef struct race_line {
    const char *name, *what, *yardstick;
    double bytes;
    bench_work_fn run;
    int which;
    unsigned tags; /* when it takes part, in bits of the table's own */
} race_line;

/* Add a contestant. One of that name that is there already keeps its samples and gets the new work: so a race goes on later,
 * on other memory. */
race_entry *race_add(race *r, const race_line *line, double elements, void *ctx, unsigned calls);
/* Add the lines that have one of these tags. */
void race_add_lines(race *r, const race_line *lines, unsigned tags, double elements, void *ctx, unsigned calls);

/* One round for everybody. 0, or -1 when a contestant failed, which has said why. */
int race_round(race *r, double deadline);
/* Rounds until `wanted` in all are clean or the deadline has passed. The first call also finds how many calls a sample
 * repeats. */
int race_run(race *r, unsigned wanted, double deadline);

const race_entry *race_find(const race *r, const char *name); /* NULL: there is none; r may be NULL */
/* Seconds of a contestant in a round, and what it has beside; NAN where it has none. */
double race_at(const race *r, const char *name, unsigned round);
/* A value that is formed in each round, over all rounds. */
typedef double (*race_value_fn)(const race *r, unsigned round);
bench_spread race_values(const race *r, race_value_fn value);
/* Time of one over time of the other, in the rounds where both were clean. */
bench_spread race_ratio(const race *r, const char *a, const char *b);
/* Share of the yardstick's rate in bytes that an entry reaches; NAN without one. */
double race_share(const race *r, const race_entry *e);

#endif
