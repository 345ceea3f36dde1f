/* SPDX-License-Identifier: Apache-2.0 */
/* just_in_time.h: with --just-in-time a forward pass begins while the step before it is still open. */
#ifndef GPT_JUST_IN_TIME_H
#define GPT_JUST_IN_TIME_H

#include "model.h"

#include <zoff/zoff.h>

/* State of --just-in-time. It must not move in memory after open. */
typedef struct gpt_just_in_time {
    zoff_engine *engine;
    const gpt_model *model;
    gpt_keeper keeper;
    double seconds; /* seconds in zoff_param_wait() since the step began */
} gpt_just_in_time;

/* From now on the passes wait for each weight before they use it. */
void gpt_just_in_time_open(gpt_just_in_time *j, zoff_engine *engine, gpt_model *model);

/* Begin a step, after the backward pass; and end it, after the next forward pass and before the next backward pass. Return 0,
 * or -1 after a line on stderr. */
int gpt_just_in_time_begin(gpt_just_in_time *j);
int gpt_just_in_time_end(gpt_just_in_time *j, zoff_step_info *info);

#endif
