/* SPDX-License-Identifier: Apache-2.0 */
/* just_in_time.c: the passes call zoff_param_wait() before each use of a weight, and zoff_grad_ready() for each gradient. Both
 * stay in the model's own memory. */
#include "just_in_time.h"
#include "passes.h"
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>

static int complain(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "gpt: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

/* A pass cannot go on without its weights, so a failure ends the program. */
static void must(zoff_status status)
{
    if (complain(status))
        exit(1);
}

static const void *fetch(void *ctx, int id, size_t slice)
{
    gpt_just_in_time *j = ctx;
    const double before = gpt_seconds();
    must(zoff_param_wait(j->engine, (zoff_param)id, slice, NULL));
    j->seconds += gpt_seconds() - before;
    return (const char *)j->model->tensor[id].value + slice * gpt_slice_bytes(j->model, id);
}

static void *acquire(void *ctx, int id, size_t slice)
{
    const gpt_just_in_time *j = ctx;
    return (char *)j->model->tensor[id].grad + slice * gpt_slice_bytes(j->model, id);
}

static void ready(void *ctx, int id, size_t slice)
{
    const gpt_just_in_time *j = ctx;
    must(zoff_grad_ready(j->engine, (zoff_param)id, slice, NULL));
}

/* Release nothing, because the memory is the model's. */
static void release(void *ctx, int id, size_t slice)
{
    (void)ctx;
    (void)id;
    (void)slice;
}

void gpt_just_in_time_open(gpt_just_in_time *j, zoff_engine *engine, gpt_model *model)
{
    *j = (gpt_just_in_time){.engine = engine, .model = model};
    j->keeper = (gpt_keeper){.ctx = j, .fetch = fetch, .release = release, .acquire = acquire, .ready = ready};
    model->keeper = &j->keeper;
}

int gpt_just_in_time_begin(gpt_just_in_time *j)
{
    j->seconds = 0;
    return complain(zoff_step_begin(j->engine, NULL));
}

int gpt_just_in_time_end(gpt_just_in_time *j, zoff_step_info *info)
{
    return complain(zoff_step_wait(j->engine, info));
}
