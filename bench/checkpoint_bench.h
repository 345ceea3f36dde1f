/* checkpoint_bench.h: shared by the files of the checkpoints' benchmark: contestants, results. */
#ifndef ZOFF_BENCH_CHECKPOINT_BENCH_H
#define ZOFF_BENCH_CHECKPOINT_BENCH_H

#include "step_bench.h"

enum { CHECKPOINT_SAVE = 1, CHECKPOINT_LOAD = 2, CHECKPOINT_ASYNC = 4, CHECKPOINT_REFLINK = 8, CHECKPOINT_MEMORY = 16 };
enum { CHECKPOINT_ALL = 31, CHECKPOINT_ROUNDS = 5 /* that suffice */ };

typedef enum checkpoint_tier { CHECKPOINT_HOST, CHECKPOINT_NVME, CHECKPOINT_TIERS } checkpoint_tier;

/* The costs of one save and one load. */
typedef struct checkpoint_costs {
    double saved[2], loaded[2];  /* bytes read, and written, over those of the states; 0: not measured */
    double save_peak, load_peak; /* of the process, over what is expected; 0: not measured */
} checkpoint_costs;

/* A run and its results. */
typedef struct checkpoint_run {
    disk_options options;
    char folder[DISK_PATH];
    race_book book;
    checkpoint_costs tiers[CHECKPOINT_TIERS];
    zoff_plan_info plan; /* of the NVMe tier */
    bool in_memory;      /* the folder is a tmpfs */
    bool registered;     /* the memory of all yardsticks that ran */
} checkpoint_run;

/* checkpoint_states.c: an engine on one tier, and the folder of its checkpoints. */
typedef struct checkpoint_states {
    step_engine engine;
    double bytes; /* of the states */
    char folder[DISK_PATH];
    char state_file[DISK_PATH]; /* NVMe: a path of it; "" on the host */
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
int checkpoint_states_count(checkpoint_states *s, checkpoint_costs *found);
/* The file with the states of the last checkpoint. 0, or -1 with a message. */
int checkpoint_states_part(const checkpoint_states *s, char out[DISK_PATH]);

/* checkpoint_movers.c: the yardsticks: bytes between memory and a file by the queue of <zoff/aio.h>, as bench/aio moves them,
 * and a plain copy. Each `run` takes a contestant's turn. */
typedef struct checkpoint_mover {
    bench_streams mapping;
    char *memory;
    uint64_t bytes;          /* of one direction */
    char scratch[DISK_PATH]; /* a file of twice these bytes, all written */
    char made[DISK_PATH];    /* the file that a write or a copy makes */
    char from[DISK_PATH];    /* the file that a read or a copy reads */
    bool registered;
    double registering; /* seconds in which turns registered their memory, which is no part of their work; set it to 0 before */
    checkpoint_states *rest; /* beside it, which ends the reads that it has begun before each turn; NULL: nobody */
} checkpoint_mover;
int checkpoint_mover_open(const char *folder, uint64_t bytes, checkpoint_mover *out);
void checkpoint_mover_close(checkpoint_mover *m);
int checkpoint_mover_forget(void *mover, int which); /* before a turn: remove what a turn makes */
int checkpoint_mover_write(void *mover, int which);  /* into a newly made and reserved file, durable */
int checkpoint_mover_read(void *mover, int which);
int checkpoint_mover_mix(void *mover, int which);  /* a read and a write of all bytes at the same time */
int checkpoint_mover_copy(void *mover, int which); /* one file to a newly made one, durable */
/* For races whose `user` is the mover: take a sample. It is disturbed if other processes used the CPUs meanwhile. */
double checkpoint_sample(race *r, race_entry *e, double deadline);

/* The parts; -1 with a message for an error. */
int checkpoint_race(checkpoint_run *run);
int checkpoint_async(checkpoint_run *run);
int checkpoint_memory(checkpoint_run *run);
int checkpoint_reflink(checkpoint_run *run);
/* Run one part in its own process, with its arguments. Returns the exit status. */
int checkpoint_memory_child(char **arguments);
int checkpoint_reflink_child(char **arguments);

void checkpoint_judge(const checkpoint_run *run, bench_figures *out);

#endif
