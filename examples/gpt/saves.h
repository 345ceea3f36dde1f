/* SPDX-License-Identifier: Apache-2.0 */
/* saves.h: checkpoints of a run. A run saves now and then, at its end, and when it is asked to stop by SIGTERM. A later run
 * goes on from a checkpoint, or from state files that persist, with the next batch of the text. */
#ifndef GPT_SAVES_H
#define GPT_SAVES_H

#include "options.h"

#include <zoff/zoff.h>

/* The program's own state, which is saved with that of the optimizer. */
typedef struct gpt_position {
    uint64_t batches; /* batches used so far */
    uint64_t seed;    /* seed of the batches' order */
} gpt_position;

/* The saves of a run. It must not move in memory between open and close. */
typedef struct gpt_saves {
    const gpt_options *options;
    const gpt_parallel *parallel;
    zoff_engine *engine;        /* NULL: the plain optimizer, whose runs are not saved */
    gpt_position position;      /* position of the run: read `batches` before the first step, and raise it before each */
    zoff_checkpoint_data data;  /* describes `position` to the library */
    zoff_checkpoint *under_way; /* a save beside the steps, of --async; NULL: none */
    bool stops;                 /* the run ends after this step */
} gpt_saves;

/* Call it once the engine is open. The engines of the parts of a model save into one checkpoint, each under its label. Loads
 * what --resume names or what the state files have, and lets SIGTERM request a stop. Returns 0, or -1 after a line on stderr.
 */
int gpt_saves_open(const gpt_options *options, const gpt_parallel *parallel, zoff_engine *engine, gpt_saves *out);

/* Call it after each step: saves if it is time, and sets `stops`. A save that fails is reported, and the run goes on. Returns
 * -1 if it was the last save of the run. */
int gpt_saves_step(gpt_saves *saves, const zoff_step_info *info);

/* Call it before the engine is destroyed, also if gpt_saves_open() has failed. Waits for a save that is under way. */
int gpt_saves_close(gpt_saves *saves);

#endif
