/* program.h: common parts of the benchmarks' programs: tables of options, the time of a run, the library's warnings, and
 * commands. */
#ifndef ZOFF_BENCH_PROGRAM_H
#define ZOFF_BENCH_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zoff/zoff.h>

/* The options of all benchmarks. */
typedef struct bench_run {
    unsigned parts;
    uint64_t rounds;       /* wanted rounds of each race */
    double start, seconds; /* of the whole run */
    const char *json_path; /* NULL: no JSON; "-": standard output */
    bool quick;
} bench_run;

/* The time at which `share` of the run's time has passed. */
double bench_run_deadline(const bench_run *run, double share);
/* The stream for the table: not the JSON's. */
FILE *bench_run_table(const bench_run *run);

/* A word of a list in an option. A list ends with a word without a name. */
typedef struct bench_word {
    const char *name;
    unsigned bits;
} bench_word;

/* An option with a text, a number, a list of words, or a parser of its own. A table ends with an option without a name. */
typedef struct bench_option {
    const char *name;
    const char **text;
    uint64_t *number, least, most, unit; /* a multiple of `unit`, if that is set: "4096", "64Ki", "48Mi", "1Gi" */
    unsigned *words;
    const bench_word *known;
    int (*take)(const char *text, void *ctx); /* returns 0; or -1, and `wanted` says what is accepted */
    void *ctx;
    const char *wanted;
} bench_option;

/* Rounds and seconds of a run, unless options set them. */
typedef struct bench_default {
    unsigned parts, rounds, seconds;
} bench_default;

/* Parse the options, set the defaults and start the clock. 0, or -1 with a message. --help ends the program. */
int bench_program_parse(int argc, char **argv, const char *usage, const bench_option *own, const bench_word *parts,
                        const bench_default defaults[2] /* full, quick */, bench_run *out);
/* Parse the number that `text` begins with. Returns the text behind it; NULL if there is no number or it is too large. */
const char *bench_program_quantity(const char *text, uint64_t *out);

/* Look for the first line of a file that has `wanted` values in this format of scanf(). */
bool bench_scan(const char *path, int wanted, const char *format, ...) __attribute__((format(scanf, 3, 4)));

/* Print the program's name and a line to standard error; -1. */
int bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns 0; for an error of the library, prints its message and returns -1. */
int bench_told(zoff_status status);

/* Parse a configuration from JSON text.  @return 0; -1 after a message */
int bench_config(const char *text, zoff_config **out);

/* A parameter of `slices` times `count` elements. */
zoff_param_desc bench_param(void *value, void *grad, size_t count, size_t slices, zoff_dtype dtype);

/* Open an engine with a configuration (NULL: none) and `opts`, whose struct_size and config are set here; add parameters and
 * seal it. 0, or -1 with a message. Destroy *out in both cases. */
int bench_engine_open(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count,
                      zoff_engine **out);

/* Run a shell command, which finds this program as "$ZOFF_BENCH_SELF". Store its standard output in `text`, at most `bytes`
 * with a final 0. Returns 0; -1 if it failed, and the text may say why. */
int bench_command(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Bytes that the kernel moved between disks and this process; 0 if it does not count them. */
uint64_t bench_traffic(bool written);

#endif
