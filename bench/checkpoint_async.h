/* checkpoint_async.h: a trainer with states in files, which saves beside its steps. */
#ifndef ZOFF_BENCH_CHECKPOINT_ASYNC_H
#define ZOFF_BENCH_CHECKPOINT_ASYNC_H

#include "checkpoint_states.h"

enum { CHECKPOINT_ASYNC_PART = 4 /* of the model: ten steps move twenty times their states */ };

typedef struct checkpoint_trainer {
    checkpoint_states states;
    checkpoint_mover mover;
    size_t turns; /* of computation before each step */
} checkpoint_trainer;

int checkpoint_trainer_open(const step_model *m, const char *folder, uint64_t budget, checkpoint_trainer *out);
void checkpoint_trainer_close(checkpoint_trainer *t);
int checkpoint_trainer_compute(checkpoint_trainer *t); /* from now on a step computes first, as long as it moves bytes */
/* Turns of contestants: ten steps, and the same with a save; before a turn, remove checkpoints. */
int checkpoint_trainer_steps(void *trainer, int which);
int checkpoint_trainer_saves(void *trainer, int which);
int checkpoint_trainer_forget(void *trainer, int which);

#endif
