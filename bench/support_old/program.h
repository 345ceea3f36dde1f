/* program.h: what all benchmarks are as programs: the options that each of them has, numbers and lists in the others, the time
 * of a run, and what the library warns of meanwhile. */
#ifndef ZOFF_BENCH_PROGRAM_H
#define ZOFF_BENCH_PROGRAM_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zoff/zoff.h>

/* What the options say that all benchmarks have. */
typedef struct bench_run {
    unsigned parts, rounds; /* rounds: that are wanted of each race */
    double start, seconds;  /* of the whole run */
    const char *json_path;  /* NULL: no JSON; "-": standard output */
    bool quick;
} bench_run;

/* The moment when `share` of the run's time has passed. */
double bench_run_deadline(const bench_run *run, double share);
/* Where the table goes: not where the JSON goes. */
FILE *bench_run_table(const bench_run *run);

/* A word of a list in an option. Lists of words end with one that has no name. */
typedef struct bench_word {
    const char *name;
    unsigned bits;
} bench_word;

typedef struct bench_program {
    const char *usage;
    const struct option *options; /* beside those that all have; 'F' is for --full, where it has that. The last has no name */
    const bench_word *parts;
    int (*own)(int letter, const char *text, void *ctx); /* take an option of its own; 0, or -1 with a message */
    void *ctx;
} bench_program;

/* Take the options; what none of them names stays in `out`. 0, or -1 with a message. --help ends the program. */
int bench_program_parse(const bench_program *program, int argc, char **argv, bench_run *out);

/* Tell what is wrong with an option. -1. */
int bench_program_refuse(const char *option, const char *text, const char *wanted);

/* "4096", "64Ki", "48Mi", "1Gi". What follows the number in `text`; NULL where there is none, or one that is too large. */
const char *bench_program_quantity(const char *text, uint64_t *out);

/* Nothing but such a number, from `least` to `most`. 0, or -1 with a message. */
int bench_program_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* Words parted by commas. 0, or -1 with a message. */
int bench_program_words(const char *option, const char *text, const bench_word *words, unsigned *out);

/* A log of the library for zoff_log_set(): what it warns of matters to a measurement, once; what it tells of each engine and
 * queue does not. */
void bench_program_log(zoff_log_level level, const char *room, const char *line, void *ctx);

#endif
