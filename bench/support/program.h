/* program.h: what all benchmarks are as programs: tables of options, the time of a run, what the library warns of meanwhile,
 * and programs that they run. */
#ifndef ZOFF_BENCH_PROGRAM_H
#define ZOFF_BENCH_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zoff/zoff.h>

/* The options that all benchmarks have. */
typedef struct bench_run {
    unsigned parts;
    uint64_t rounds;       /* that are wanted of each race */
    double start, seconds; /* of the whole run */
    const char *json_path; /* NULL: no JSON; "-": standard output */
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

/* An option that takes a text, a number, words parted by commas, or something of its own. Tables end with one without a name.
 */
typedef struct bench_option {
    const char *name;
    const char **text;
    uint64_t *number, least, most, unit; /* a multiple of `unit`, where it has one: "4096", "64Ki", "48Mi", "1Gi" */
    unsigned *words;
    const bench_word *known;
    int (*take)(const char *text, void *ctx); /* 0; or -1, and `wanted` says what it should have been */
    void *ctx;
    const char *wanted;
} bench_option;

/* Rounds and seconds of a run without these options. */
typedef struct bench_default {
    unsigned parts, rounds, seconds;
} bench_default;

/* Take the options, set the defaults and start the clock. 0, or -1 with a message. --help ends the program.
 */
int bench_program_parse(int argc, char **argv, const char *usage, const bench_option *own, const bench_word *parts,
                        const bench_default defaults[2] /* full, quick */, bench_run *out);
/* Parse the number that `text` begins with. Returns the text behind it; NULL if there is no number or it is too large. */
const char *bench_program_quantity(const char *text, uint64_t *out);

/* Look for the first line of a file that has `wanted` values in this format of scanf(). */
bool bench_scan(const char *path, int wanted, const char *format, ...) __attribute__((format(scanf, 3, 4)));

/* Print the program's name and a line to standard error; -1. */
int bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 0; or -1 with the library's message, when something of it failed. */
int bench_told(zoff_status status);

/* A configuration of JSON text.  @return 0; -1 was told */
int bench_config(const char *text, zoff_config **out);

/* A parameter of `slices` times `count` elements. */
zoff_param_desc bench_param(void *value, void *grad, size_t count, size_t slices, zoff_dtype dtype);

/* Make an engine of a configuration (NULL: none) and `opts`, whose struct_size and config it sets; add parameters and seal it.
 * 0, or -1 with a message; *out is to be destroyed in any case. */
int bench_engine_open(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count,
                      zoff_engine **out);

/* Run a command line of the shell, which finds this program as "$ZOFF_BENCH_SELF", and take what it writes to standard output,
 * as far as `bytes` go, 0 at the end. 0; or -1 when it failed, and the text may say why. */
int bench_command(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
