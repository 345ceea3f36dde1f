/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_bench.h: shared by the files of the checkpoints' benchmark: contestants, results. */
#ifndef ZOFF_BENCH_CHECKPOINT_BENCH_H
#define ZOFF_BENCH_CHECKPOINT_BENCH_H

#include "step_bench.h"

enum { CHECKPOINT_SAVE = 1, CHECKPOINT_LOAD = 2, CHECKPOINT_ASYNC = 4, CHECKPOINT_REFLINK = 8, CHECKPOINT_MEMORY = 16 };
enum { CHECKPOINT_ALL = 31, CHECKPOINT_ROUNDS = 5 /* all parts, and the rounds that suffice */ };

typedef enum checkpoint_tier { CHECKPOINT_HOST, CHECKPOINT_NVME, CHECKPOINT_TIERS } checkpoint_tier;

/* The costs of one save and one load. */
typedef struct checkpoint_costs {
    double saved[2], loaded[2];  /* bytes read, and written, over those of the states; 0: not measured */
    double save_peak, load_peak; /* peak memory of the process, over what is expected; 0: not measured */
} checkpoint_costs;

/* The results of a run. */
extern struct checkpoint_found {
    checkpoint_costs tiers[CHECKPOINT_TIERS];
    zoff_plan_info plan; /* plan of the NVMe tier */
    bool unregistered;   /* whether a yardstick ran with memory that was not registered */
} checkpoint;

/* checkpoint_judge.c: add the figures, from the races and what was found. */
void checkpoint_judge(void);

#endif
