/* step_bench.h: what the parts of the step's benchmark share: the options, the model, the contestants, the book of races. */
#ifndef ZOFF_BENCH_STEP_BENCH_H
#define ZOFF_BENCH_STEP_BENCH_H

#include "figures.h"
#include "program.h"
#include "race.h"
#include "streams.h"
#include "throttle.h"

#include <stdbool.h>
#include <stdint.h>
#include <zoff/zoff.h>

enum { PART_RACE = 1, PART_THROTTLE = 2, PART_RSS = 4, PART_PATHS = 8, PART_LOOP = 16, PART_WINDOWS = 32, PART_ANY = 63 };
enum { STEP_SMALL_SIZES = 3 };
enum { STEP_PATH = 4096, STEP_REASON = 256, ENOUGH_ROUNDS = 3 };

typedef struct step_options {
    size_t elements;       /* of the model; 12 bytes of states each */
    unsigned budget_share; /* states / this are the DRAM that may hold them */
    unsigned busy;         /* processes that compute beside it */
    bool beside;           /* others have the CPUs too, and samples count all the same */
    const char *path;      /* an existing folder on the disk in question */
    bench_run run;
} step_options;

/* Whether `share` of the run's time has passed; then `reason`, STEP_REASON long, says so. */
bool step_options_late(const step_options *options, double share, char *reason);

/* Weights and gradients, bf16, that all contestants share: each writes the same weights. */
typedef struct step_model {
    bench_streams mapping;
    size_t elements;
    uint16_t *weights, *grads;
    zoff_adam_hyper hyper; /* the same as step_engine's configuration says */
} step_model;

/* 0, or -1 with a message. */
int step_model_open(size_t elements, step_model *out);
/* Weights as they were before the first step: what states start from. */
void step_model_reset(const step_model *m);
float step_model_weight(size_t i); /* one of those */
void step_model_close(step_model *m);

/* An engine of zoff, its folder and its count of steps. */
typedef struct step_engine {
    zoff_engine *engine;
    zoff_param param;
    zoff_plan_info plan;
    char folder[STEP_PATH]; /* of its own, "" on the host */
    size_t aio_block_bytes; /* as the configuration has them */
    unsigned aio_depth;
    int64_t steps;
    unsigned sample_steps, in_sample; /* a sample has so many steps, and what is in flight after it belongs to it */
    uint64_t read_bytes, write_bytes; /* of the last step, from files */
    double io_wait_seconds, update_seconds, measure_seconds, check_seconds;
    bool failed;
    char reason[STEP_REASON]; /* why there is none */
} step_engine;

typedef struct step_engine_opts {
    const char *const *paths; /* folders; each engine makes one of its own in each. NULL: states in DRAM */
    unsigned path_count;
    uint64_t host_bytes;   /* zoff.host_memory; 0: the default */
    size_t chunk_elements; /* sub_group_size; 0: the default */
    bool persist, unverified;
} step_engine_opts;

/* 0, or -1 with `reason`. `name` is that of its folder. */
int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out);
void step_engine_step(void *engine); /* a contestant's turn */
void step_engine_close(step_engine *e);

/* The same reads and writes as a step of `like`, on its own file, by zoff's public queue, without an update. What is written is
 * what was read. */
typedef struct step_io {
    zoff_aio *queue;
    const step_engine *like;
    bench_streams mapping;
    char *memory;
    size_t chunk_bytes, chunk_count, last_bytes;
    uint64_t first_offset;
    unsigned slots;
    bool failed, direct;
} step_io;
/* `like` has taken a step. 0, or -1 with a message. */
int step_io_open(const step_engine *like, step_io *out);
void step_io_turn(void *io);
void step_io_close(step_io *io);

/* Somebody's optimizer states, to be compared with somebody else's after as many steps. */
typedef struct step_states {
    const char *name;
    void *ctx;
    bench_work_fn step;
    int (*read)(void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst); /* 0, or -1 */
    void (*close)(void *ctx);
    const int64_t *steps;
    const bool *failed;
} step_states;
step_states step_engine_states(const char *name, step_engine *e);

/* Everything that a run found out. */
typedef struct step_book {
    race free_race, rivals, extra, throttled, paths; /* extra: what is only told */
    race small_loop, large_loop;                     /* states in DRAM, beside a trainer's own loop */
    race residents;                                  /* all states in DRAM, on both tiers */
    zoff_plan_info resident;                         /* of the engine on the NVMe tier in it */
    double windows[2][2];                            /* bytes read, and written, over those of the states: all kinds of a window
                                                        before the next one, and kind by kind; 0: not measured */
    size_t loop_elements;                            /* of the large one */
    zoff_plan_info small, cached;                    /* of the engines with the small and the large budget */
    uint64_t step_bytes;                             /* read from files by a step of the small one, and as many written */
    unsigned threads;
    bool direct;     /* O_DIRECT is in force */
    bool in_memory;  /* the folder is a tmpfs */
    bool locked;     /* the rivals' buffers */
    bool huge_known; /* and their pages: */
    size_t plain_huge, thp_huge, buffer_bytes;
    int agree;         /* 1: all contestants have the same states, 0: not, -1: nobody looked */
    unsigned compared; /* contestants with the first */
    char disagree[STEP_REASON];
    double rss[2], rss_growth; /* MiB beside weights and gradients: of the small model and of ten times it */
    char no_rivals[STEP_REASON], no_persist[STEP_REASON], no_throttle[STEP_REASON], no_rss[STEP_REASON], no_paths[STEP_REASON],
        no_windows[STEP_REASON];
} step_book;

/* Optimizer states in files of their own for each sub-group and tensor, moved as DeepSpeed's two swappers do. Adds its
 * contestants to book->rivals and book->extra, takes a turn to warm up, and tells the book about its buffers.
 * `group_elements` is a multiple of 1024. 0, or -1 with book->no_rivals. */
int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_book *book, step_states *out);

/* The parts; -1 with a message when something failed that should not. */
int step_race(const step_options *options, const char *folder, step_book *book);
int step_rss(const step_options *options, const char *folder, step_book *book);
int step_paths(const step_options *options, const char *folder, step_book *book);
int step_loop(const step_options *options, step_book *book);
int step_windows(const step_options *options, const char *folder, step_book *book);

/* What the program does when it has started itself again for a part: the memory of one engine, two paths. The exit status. */
int step_rss_child(const char *folder, size_t elements, uint64_t budget);
int step_paths_child(const char *folder, size_t elements, unsigned rounds, double seconds);

/* Run a program and take the first line that it writes: to standard error too, if asked. 0; or -1 when it failed, with what
 * there is of the line, or another reason, in `line`. */
int step_child_run(char *const argv[], bool errors_too, char *line, size_t line_bytes);

/* Make a folder of our own under `path`. 0, or -1 with a message. */
int step_folder_make(const char *path, char *out);
/* A signal that ends the program removes that folder first ("": none), and closes step_throttle. */
void step_folder_guard(const char *folder);
void step_folder_remove(const char *folder);
extern throttle step_throttle; /* of this process; it can have one only */

void step_judge(const step_options *options, const step_book *book, bench_figures *out);
void step_loop_judge(const step_book *book, bench_figures *out);
void step_windows_judge(const step_options *options, const step_book *book, bench_figures *out);
/* Whether every race that was run had enough clean rounds. */
bool step_judge_enough(const step_book *book);
void step_report_table(FILE *out, const step_options *options, const step_book *book, const bench_figures *figures);
/* 0, or -1 with a message. */
int step_report_json(const step_options *options, const step_book *book, const bench_figures *figures);

#endif
