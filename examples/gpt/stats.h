/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h: what is remembered of each step, what the system says about the process, and the JSON made of both. */
#ifndef GPT_STATS_H
#define GPT_STATS_H

#include "data.h"
#include "options.h"

#include <zoff/engine.h>

/* The time of a step. With --just-in-time, `optimizer` includes what the next forward pass waited for weights. */
typedef struct gpt_times {
    double forward, backward, optimizer;
} gpt_times;

typedef struct gpt_record {
    size_t step; /* number of the step in the run, from 1; a run that goes on does not begin with 1 */
    double loss, grad_norm;
    double clip_factor; /* below 1 if the gradients were clipped; 0: the plain optimizer does not tell */
    gpt_times seconds;
    zoff_step_buckets buckets;
    uint64_t state_read_bytes, state_write_bytes;     /* bytes of the state files, as the library counts */
    uint64_t process_read_bytes, process_write_bytes; /* bytes of any storage, as the kernel counts: /proc/self/io */
} gpt_record;

typedef struct gpt_stats {
    gpt_record *records; /* one for each step */
    size_t count;
    unsigned rank, ranks;                             /* there is no job of several ranks if `ranks` is 0 */
    double seconds;                                   /* seconds of all steps */
    double first_seconds;                             /* seconds of the first step, which finds cold caches and fresh memory */
    double open_seconds;                              /* seconds to build the optimizer */
    double held_out_loss;                             /* loss after the last step; 0: it was not asked for */
    uint64_t process_read_bytes, process_write_bytes; /* bytes at the last record */
    zoff_plan_info plan;
    size_t state_file_count, direct_file_count; /* files that the optimizer opened, and how many of them with O_DIRECT */
    /* flags of the descriptors that were open before the optimizer opened its files */
    unsigned char *fds_before;
} gpt_stats;

/* Call these around the opening of the optimizer; `engine` is NULL for the plain one. Return 0, or -1 after a line on
 * stderr. */
int gpt_stats_begin(size_t steps, gpt_stats *out);
int gpt_stats_opened(gpt_stats *stats, const gpt_model *model, const zoff_engine *engine);

/* Call it after each step, number `step` from 1; `info` is zeroed for the plain optimizer. */
void gpt_stats_step(gpt_stats *stats, size_t step, double loss, gpt_times seconds, const zoff_step_info *info);

/* Mean loss of the last steps: a tenth of them, at most 20. 0 without any step. */
double gpt_stats_final_loss(const gpt_stats *stats);

int gpt_stats_write(const gpt_stats *stats, const gpt_options *options, const gpt_model *model, const gpt_text *text);
void gpt_stats_free(gpt_stats *stats);

double gpt_seconds(void);

#endif
