/* checkpoint_states.h: engines whose states are saved and loaded. */
#ifndef ZOFF_BENCH_CHECKPOINT_STATES_H
#define ZOFF_BENCH_CHECKPOINT_STATES_H

#include "checkpoint_bench.h"
#include "step_bench.h"

/* An engine on one tier, and the folder of its checkpoints. */
typedef struct checkpoint_states {
    step_engine engine;
    double bytes; /* of the states */
    char folder[CHECKPOINT_PATH];
    char state_file[CHECKPOINT_PATH]; /* NVMe: a path of it; "" on the host */
} checkpoint_states;

/* Open an engine and take two steps, so that no state is known to be zero. 0, or -1 with a message. */
int checkpoint_states_open(const step_model *m, const char *folder, checkpoint_tier tier, uint64_t budget,
                           checkpoint_states *out);
void checkpoint_states_close(checkpoint_states *s);
int checkpoint_states_forget(void *states, int which); /* before a save: remove the checkpoint before */
int checkpoint_states_rest(void *states, int which);   /* before a load: wait for reads of the next step */
int checkpoint_states_save(void *states, int which);
int checkpoint_states_load(void *states, int which);
/* Count the bytes of one save and one load. */
int checkpoint_states_count(checkpoint_states *s, checkpoint_tier_found *found);
/* The file with the states of the last checkpoint. 0, or -1 with a message. */
int checkpoint_states_part(const checkpoint_states *s, char out[CHECKPOINT_PATH]);

#endif
