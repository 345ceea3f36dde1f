/* step_trainer.h: a trainer that computes beside an engine: step_trainer.c. Used by step_hidden.c and step_ahead.c. */
#ifndef ZOFF_BENCH_STEP_TRAINER_H
#define ZOFF_BENCH_STEP_TRAINER_H

#include "step_bench.h"

enum { STEP_SLICES = 32, STEP_ITERATIONS = 4 };

/* Limit for reads, and for writes, in bytes a second. A step then takes longer than any other work on its bytes. */
#define STEP_DISK_RATE (1000ull * 1000 * 1000)

typedef struct step_trainer {
    zoff_engine *engine;
    double forward, backward; /* seconds of computation */
    double turns;             /* of a thread for each second; 0: the trainer sleeps, as one that waits for a device does */
    bool misleads;            /* each step differs from what zoff_step_prepare() has said */
} step_trainer;

/* Turns of a contestant, whose ctx is the trainer: STEP_ITERATIONS passes alone; with steps that it waits for; with steps whose
 * weights it waits for slice by slice in the next forward pass. In the last one it borrows those weights from the engine. */
int step_trainer_computes(void *ctx, int which);
int step_trainer_waits(void *ctx, int which);
int step_trainer_in_time(void *ctx, int which);
int step_trainer_borrows(void *ctx, int which);
double step_trainer_turns(void);                             /* of a busy thread, for each second */
int step_trainer_update(const step_trainer *t, double *out); /* seconds of a step; -1 with a message */

#endif
