/* SPDX-License-Identifier: Apache-2.0 */
/* step_bench.h: shared by the files of the step's benchmark: model, contestants, results. */
#ifndef ZOFF_BENCH_STEP_BENCH_H
#define ZOFF_BENCH_STEP_BENCH_H

#include "disk.h"
#include "streams.h"

enum { ENOUGH_ROUNDS = 3, ENOUGH_LOOPS = 15, WINDOW_CHUNKS = 1024 };
enum { PART_RACE = 1, PART_THROTTLE = 2, PART_RSS = 4, PART_PATHS = 8, PART_LOOP = 16, PART_WINDOWS = 32, PART_HIDDEN = 64 };
enum { PART_AHEAD = 128, PART_ANY = 255 };
#define STEP_WEIGHT 0.02f /* standard deviation of the weights before the first step */
#define STEP_LARGE_LOOP ((size_t)124000000)
#define STEP_DISK_RATE (1000ull * 1000 * 1000) /* bytes a second of a disk that is held, in each direction */

/* bf16 weights and gradients, shared by contestants with fp32 masters: each writes the same weights. */
typedef struct step_model {
    size_t elements;
    uint16_t *weights, *grads;
    zoff_optimizer_hyper hyper; /* hyper-parameters as in step_engine's configuration */
} step_model;

/* An engine of zoff with one parameter, number 0, and its number of steps. */
typedef struct step_engine {
    zoff_engine *engine;
    zoff_plan_info plan;
    const char *folder;                /* folder of this engine; NULL on the host */
    double aio_block_bytes, aio_depth; /* block size and depth as in the configuration */
    int64_t steps;
    unsigned sample_steps, in_sample; /* steps of a sample; work in flight after the last one belongs to the sample */
    uint64_t read_bytes, write_bytes; /* traffic of the last step with files */
} step_engine;

typedef struct step_engine_opts {
    const char *paths[2];  /* folders; each engine creates its own in each; none: states in DRAM */
    uint64_t host_bytes;   /* zoff.host_memory; 0: the default */
    size_t chunk_elements; /* sub_group_size; 0: the default */
    bool persist, unverified;
    bool split;          /* masters are in two halves, and the weights are its own */
    const char *moments; /* zoff.moments; NULL: fp32 */
    size_t slices;       /* slices of the parameter; 0: one */
    unsigned background_threads;
    bool owned;                 /* the engine owns the weights */
    bool owned_in_files;        /* the engine's weights are in files, and none stay in DRAM */
    uint64_t speculation_bytes; /* zoff.speculation_memory */
} step_engine_opts;

/* step_model.c. `name` is the name of the engine's folder. Opening an engine that persists returns 0; or -1 with a message,
 * because some folders cannot keep states. Another error ends the program. */
step_model step_model_open(size_t elements);
int step_engine_open(const step_model *m, const char *name, const step_engine_opts *opts, step_engine *out);
void step_engine_step(void *engine, int which); /* takes a contestant's turn */
void step_engine_rest(const step_engine *e);    /* wait for the reads of the next step */

/* The optimizer states of a contestant, for comparing them after the same number of steps. */
typedef struct step_states {
    const char *name;
    void *ctx;
    bench_work_fn step;
    void (*read)(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst);
    const int64_t *steps;
} step_states;

/* The results of a run. */
extern struct step_found {
    zoff_plan_info small, cached, resident; /* plans of the engines with the small and the large budget, and with all in DRAM */
    uint64_t step_bytes;                    /* bytes that a step of the small engine reads from files; it writes as many */
    /* bytes of a parameter in each direction: masters in two halves, with moments in fp32, bf16 and q8 */
    double split_bytes[3];
    double disk_over_library;   /* bytes that the kernel counts over those that the library does; 0: not known */
    unsigned threads, compared; /* contestants that were compared with the first one */
    int agree;                  /* 1: all contestants have the same states; 0: not; -1: not compared */
    bool direct;                /* whether O_DIRECT is in use */
    bool locked;                /* facts about the rivals' buffers and their pages: */
    size_t plain_huge, thp_huge, buffer_bytes;
    double rss[2];        /* MiB beside weights and gradients, of the small model and of one ten times as large */
    double windows[2][2]; /* bytes read, and written, over those of the states: all kinds of a window before the next one, and
                             kind by kind; 0: not measured */
    size_t loop_elements; /* elements of the large model beside a trainer's own loop */
    uint64_t hidden_chunks, ahead_chunks; /* chunks of the engines beside which a trainer computes */
    const char *disagree, *no_persist;
} found;
extern uint64_t step_background; /* threads of the DRAM engine that begins updates before the step is called */

/* step_swapper.c: optimizer states in files for each sub-group and tensor, moved as DeepSpeed's two swappers do. Adds its
 * contestants to the races "rivals" and "extra", and warms up with one turn. `group_elements` is a multiple of 1024. 0; or -1,
 * and the two races have the reason. */
int step_swapper_open(const step_model *m, size_t group_elements, race *rivals, race *extra, step_states *out);

/* The parts, and their work in a process of its own: the memory of one engine, or two paths. */
void step_race(const bench_part *part);
void step_rss(const bench_part *part);
void step_rss_child(const double *numbers);
void step_paths(const bench_part *part);
void step_paths_child(const double *numbers);
void step_loop(const bench_part *part);
void step_windows(const bench_part *part);
void step_hidden(const bench_part *part);
void step_ahead(const bench_part *part);

/* Rounds of an expensive race. */
static inline unsigned step_fewer(void)
{
    return (unsigned)(bench.rounds + 1) / 2;
}

/* The small budget of DRAM for a model of so many elements. */
static inline uint64_t step_budget(size_t elements)
{
    return 3 * sizeof(float) * elements / disk.budget_share;
}

/* step_own_loop.c: Adam as the author of a trainer writes and compiles it: -Ofast, OpenMP. Step t of AdamW: lr 1e-3, betas 0.9
 * and 0.999, eps 1e-8, weight_decay 0.01. Below 32 Ki elements it runs on the calling thread. */
void step_own_loop(size_t n, float *p, float *m, float *v, const float *g, int t);
/* A piece of work of one thread. Between two steps each thread of the trainer's runtime does one such piece. */
double step_own_compute(size_t turns);
double step_own_backward(size_t turns);
/* step_loop.c: the number of turns that take a thread this long in CPU time, which a busy machine does not change. */
size_t step_own_turns(double seconds);

#endif
