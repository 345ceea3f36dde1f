/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: what the benchmarks' programs share. A benchmark is data: options, parts and a few functions (bench_spec), because
 * six programs that parse, run and report by hand say the same in six ways. Its functions return no status, since an error ends
 * the program: bench_end() closes what is open, the last thing first, and reports what was measured so far. */
#ifndef ZOFF_BENCH_PROGRAM_H
#define ZOFF_BENCH_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zoff/zoff.h>

#define BENCH_COUNT(array) (sizeof(array) / sizeof *(array))

/* A text in the format of printf(), which lives as long as the program. */
char *bench_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- errors --- */

/* Print the program's name and a line to standard error; -1. */
#define bench_fail(...) bench_say(bench_text(__VA_ARGS__))
int bench_say(const char *line);
/* The same, and end the program with status 1, as bench_end() does. */
#define bench_die(...) (bench_fail(__VA_ARGS__), bench_end(1))
void bench_must(zoff_status status); /* end the program with the library's message if the status is an error */
int bench_told(zoff_status status);  /* 0; for an error of the library, print its message and return -1 */
/* Close what is open, report if the parts have begun, and end the program. */
void bench_end(int status) __attribute__((noreturn));

/* Define a function for bench_later() that closes `x` by this call. */
#define BENCH_CLOSER(name, call)                                                                                               \
    static void name(void *x, size_t value)                                                                                    \
    {                                                                                                                          \
        call;                                                                                                                  \
    }

/* Have `close` called with these arguments when the part ends that is running, the last one first. */
void bench_later(void (*close)(void *ctx, size_t value), void *ctx, size_t value);
/* Close what was opened since bench_opened() returned `mark`, because a part cannot keep all of it until its end. */
size_t bench_opened(void);
void bench_close(size_t mark);

/* --- a program --- */

/* The options of all benchmarks, and the time. */
extern struct bench_run {
    unsigned parts;
    uint64_t rounds;                 /* wanted rounds of each race */
    double start, seconds, deadline; /* times of the whole run */
    const char *json_path;           /* NULL: no JSON; "-": standard output */
    bool quick, silent;              /* `silent`: no report, because another process writes it */
    void (*abort)(void);             /* after an error, end other processes that wait for this one; NULL: there are none */
} bench;

/* The time at which `share` of the run's time has passed. */
double bench_share(double share);

/* A word of a list in an option. A list ends with a word without a name. */
typedef struct bench_word {
    const char *name;
    unsigned bits;
} bench_word;

/* An option with a text, a number, a list of words, or a parser of its own. A table ends with an option without a name. */
typedef struct bench_option {
    const char *name, *argument, *help; /* words that --help shows */
    const char **text;
    uint64_t *number, least, most, unit; /* a multiple of `unit`, if that is set: "4096", "64Ki", "48Mi", "1Gi" */
    unsigned *words;
    const bench_word *known;
    int (*take)(const char *text); /* returns 0; or -1, and `wanted` says what is accepted */
    const char *wanted;
} bench_option;

/* A part of a run. A table of them ends with one that has no name. */
typedef struct bench_part {
    const char *name;
    unsigned bit;                               /* bit of the part in bench.parts */
    void (*run)(const struct bench_part *part); /* NULL: the part before it does its work, too */
    double share[2]; /* part of the time of the chosen ones, in a full and a quick run; 0: it keeps to no time of its own */
    void (*child)(const double *numbers); /* runs the part's work in a process of its own, see disk_child() */
} bench_part;

/* A benchmark: what its main() gives to bench_main(). */
typedef struct bench_spec {
    const char *usage;
    const bench_option *options; /* options of its own; NULL: none */
    const bench_part *parts;     /* parts in the order in which they run */
    struct {
        unsigned parts, rounds, seconds; /* defaults of the options */
    } full, quick;
    bool quick_first;                 /* whether a run without --full is a quick one */
    void (*begin)(char **argv);       /* opens what all parts use; NULL: nothing */
    void (*run)(void);                /* runs the parts, because their order depends on figures; NULL: all in turn */
    void (*judge)(void);              /* adds the figures, from the races and what the parts found */
    json_t *(*describe)(FILE *table); /* prints facts of the run above the tables, and returns others for the JSON */
    const char *rounds_name;          /* name of rounds in verdicts; NULL: "rounds" */
    bool needs_no_limit;              /* figures without a limit suffice for exit status 0 */
} bench_spec;

/* Run a benchmark, and return its exit status. 1: an error; 2: wrong options; 3: no figure with a limit was measured. */
int bench_main(int argc, char **argv, const bench_spec *spec);
/* Parse the number that `text` begins with. Returns the text behind it; NULL if there is no number or it is too large. */
const char *bench_program_quantity(const char *text, uint64_t *out);

/* --- the system and the library --- */

/* Look for the first line of a file that has `wanted` values in this format of scanf(). */
bool bench_scan(const char *path, int wanted, const char *format, ...) __attribute__((format(scanf, 3, 4)));
/* Run a shell command, which finds this program as "$ZOFF_BENCH_SELF". Store its standard output in `text`, at most `bytes`
 * with a final 0. Returns 0; -1 if it failed, and the text may say why. */
int bench_command(char *text, size_t bytes, const char *command);
/* Bytes that the kernel moved between disks and this process; 0 if it does not count them. */
uint64_t bench_traffic(bool written);
void bench_sleep(double seconds);
/* Bytes in a line of /proc/self/status; 0 if it has none. */
double bench_memory(const char *field);

/* Parse a configuration from JSON text.  @return 0; -1 after a message */
int bench_config(const char *text, zoff_config **out);
/* A parameter of `slices` times `count` elements. */
zoff_param_desc bench_param(void *value, void *grad, size_t count, size_t slices, zoff_dtype dtype);
/* Open an engine with a configuration (NULL: none) and `opts`, whose struct_size and config are set here; add parameters and
 * seal it. It is closed at the end of the part. After an error one returns NULL, and the other ends the program. */
zoff_engine *bench_engine_try(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count);
zoff_engine *bench_engine(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count);

#endif
