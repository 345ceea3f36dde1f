/* checkpoint_bench.h: shared by the files of the checkpoints' benchmark: options, contestants, results. */
#ifndef ZOFF_BENCH_CHECKPOINT_BENCH_H
#define ZOFF_BENCH_CHECKPOINT_BENCH_H

#include "report.h"
#include "streams.h"

enum { CHECKPOINT_SAVE = 1, CHECKPOINT_LOAD = 2, CHECKPOINT_ASYNC = 4, CHECKPOINT_REFLINK = 8, CHECKPOINT_MEMORY = 16 };
enum { CHECKPOINT_ALL = 31, CHECKPOINT_PATH = 4096, CHECKPOINT_REASON = 256, CHECKPOINT_ROUNDS = 5 /* that suffice */ };

#define CHECKPOINT_RATE ((uint64_t)1000 * 1000 * 1000) /* bytes a second of a disk that is held, in each direction */

typedef struct checkpoint_options {
    uint64_t elements;     /* of the model; 12 bytes of states each */
    uint64_t budget_share; /* bytes of states over the DRAM that may hold them, on the NVMe tier */
    uint64_t busy;         /* processes that compute meanwhile; UINT64_MAX: this one must be alone */
    const char *path;      /* an existing folder on the disk in question */
    bench_run run;
} checkpoint_options;

typedef enum checkpoint_tier { CHECKPOINT_HOST, CHECKPOINT_NVME, CHECKPOINT_TIERS } checkpoint_tier;

/* The costs of one save and one load. */
typedef struct checkpoint_tier_found {
    double saved[2], loaded[2];  /* bytes read, and written, over those of the states; 0: not measured */
    double save_peak, load_peak; /* of the process, over what is expected; 0: not measured */
} checkpoint_tier_found;

/* Results of a run. */
typedef struct checkpoint_found {
    race_book book;
    checkpoint_tier_found tiers[CHECKPOINT_TIERS];
    zoff_plan_info plan; /* of the NVMe tier */
    bool in_memory;      /* the folder is a tmpfs */
    bool registered;     /* the memory of all yardsticks that ran */
    char no_memory[CHECKPOINT_REASON], no_reflink[CHECKPOINT_REASON], no_throttle[CHECKPOINT_REASON];
} checkpoint_found;

/* checkpoint_movers.c: the yardsticks: bytes between memory and a file by the queue of <zoff/aio.h>, as bench/aio moves them,
 * and a plain copy. Each `run` takes a contestant's turn. */
typedef struct checkpoint_mover {
    bench_streams mapping;
    char *memory;
    uint64_t bytes;                /* of one direction */
    char scratch[CHECKPOINT_PATH]; /* a file of twice these bytes, all written */
    char made[CHECKPOINT_PATH];    /* the file that a write or a copy makes */
    char from[CHECKPOINT_PATH];    /* the file that a read or a copy reads */
    bool registered;
    double registering; /* seconds in which turns registered their memory, which is no part of their work; set it to 0 before */
    bench_work rest;    /* runs before each turn: the contestant beside it ends the reads that it has begun; or nothing */
} checkpoint_mover;
int checkpoint_mover_open(const char *folder, uint64_t bytes, checkpoint_mover *out);
void checkpoint_mover_close(checkpoint_mover *m);
int checkpoint_mover_forget(void *mover, int which); /* before a turn: remove what a turn makes */
int checkpoint_mover_write(void *mover, int which);  /* into a newly made and reserved file, durable */
int checkpoint_mover_read(void *mover, int which);
int checkpoint_mover_mix(void *mover, int which);  /* a read and a write of all bytes at the same time */
int checkpoint_mover_copy(void *mover, int which); /* one file to a newly made one, durable */

/* For races whose `user` is the mover: take a sample. If other processes used the CPUs meanwhile, it is not clean, and its
 * second figure is 1, otherwise 0. checkpoint_states.c */
int checkpoint_sample(race *r, race_entry *e, double deadline);

/* The parts; -1 with a message for an error. */
int checkpoint_race(const checkpoint_options *options, const char *folder, checkpoint_found *found);
int checkpoint_async(const checkpoint_options *options, const char *folder, checkpoint_found *found);
int checkpoint_memory(const checkpoint_options *options, checkpoint_found *found);
int checkpoint_reflink(const checkpoint_options *options, checkpoint_found *found);
/* Run one part in its own process. Returns the exit status. */
int checkpoint_memory_child(size_t elements, uint64_t budget);
int checkpoint_reflink_child(size_t elements, uint64_t budget, unsigned rounds, double seconds, bool beside_others);

void checkpoint_judge(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out);

#endif
