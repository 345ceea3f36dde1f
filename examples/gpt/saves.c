/* SPDX-License-Identifier: Apache-2.0 */
/* saves.c: when a run saves a checkpoint, what it puts there, and how it goes on. A trainer can copy this file. */
#include "saves.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static zoff_engine *to_stop; /* global, because a signal handler has no other argument */

static void on_sigterm(int number)
{
    (void)number;
    zoff_engine_request_stop(to_stop);
}

/* Report the error of a call, and return -1 for it. */
static int check(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "gpt: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

/* Whether this is rank 0 of the job: the first part of the first copy of the model. */
static bool is_first(const gpt_saves *s)
{
    return s->parallel->part == 0 && zoff_comm_rank(zoff_engine_comm(s->engine)) == 0;
}

static bool prints(const gpt_saves *s)
{
    return s->options->print_every && is_first(s);
}

/* ---- go on ---- */

/* With zoff.persist: continue with the states and the position of the last update, if there are files of an earlier run. From
 * then on each update records the position. */
static zoff_status continue_files(gpt_saves *s)
{
    int64_t updates = 0;
    zoff_status status = zoff_step_count(s->engine, &updates);
    if (status >= 0 && updates > 0)
        status = zoff_params_push(s->engine); /* set the weights from the states */
    if (status >= 0)
        status = zoff_persist_data(s->engine, &s->data, 1);
    /* Only states that persist have updates before the first step. Others have no files for the position. */
    return status == ZOFF_ERR_INVALID && updates == 0 ? ZOFF_OK : status;
}

/* A run that begins has no checkpoint yet, so that it can be started by the same command each time. */
static bool is_there(const char *folder)
{
    char latest[4096];
    snprintf(latest, sizeof latest, "%s/latest", folder);
    return access(latest, F_OK) == 0;
}

static zoff_status load(gpt_saves *s)
{
    const gpt_options *o = s->options;
    const bool latest = strcmp(o->resume, "latest") == 0;
    bool has_position = true; /* an import has no position */
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.data = &s->data;
    opts.data_count = 1;
    opts.data_found = &has_position;
    opts.label = s->parallel->label;
    if (latest && !is_there(o->save))
        return ZOFF_OK;
    const zoff_status status = zoff_checkpoint_load(s->engine, latest ? o->save : o->resume, &opts);
    if (status >= 0 && !has_position && prints(s))
        printf("  the checkpoint has no position in the text: its weights and states begin with the first batch\n");
    return status < 0 ? status : zoff_state_flush(s->engine); /* record the position in files that persist, too */
}

int gpt_saves_open(const gpt_options *options, const gpt_parallel *parallel, zoff_engine *engine, gpt_saves *out)
{
    *out = (gpt_saves){.options = options, .parallel = parallel, .engine = engine, .position.seed = options->seed};
    if (!engine)
        return 0;
    out->data = (zoff_checkpoint_data){.name = "gpt.position", .bytes = &out->position, .count = sizeof out->position};
    if (check(continue_files(out)) || (options->resume && check(load(out))))
        return -1;
    if (out->position.batches && prints(out))
        printf("  goes on after step %" PRIu64 "%s\n", out->position.batches,
               out->position.batches >= options->steps ? ", which is the end of --steps: there is nothing to do" : "");
    to_stop = engine;
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_sigterm, .sa_flags = SA_RESTART}, NULL);
    return 0;
}

/* ---- save ---- */

/* Complete the save that is under way, if any. */
static int finish(gpt_saves *s)
{
    zoff_checkpoint *save = s->under_way;
    s->under_way = NULL;
    return check(zoff_checkpoint_wait(save));
}

static int save(gpt_saves *s, bool beside_steps)
{
    const gpt_options *o = s->options;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.data = &s->data;
    opts.data_count = 1;
    opts.keep = (unsigned)o->keep;
    opts.label = s->parallel->label;
    opts.engines = s->parallel->parts;
    (void)finish(s); /* an earlier save that failed must not prevent this one */
    return check(beside_steps ? zoff_checkpoint_begin(s->engine, o->save, &opts, &s->under_way)
                              : zoff_checkpoint_save(s->engine, o->save, &opts));
}

int gpt_saves_step(gpt_saves *s, const zoff_step_info *info)
{
    const gpt_options *o = s->options;
    if (!s->engine)
        return 0;
    s->stops = info->stop_requested;
    if (s->under_way && zoff_checkpoint_poll(s->under_way) != ZOFF_PENDING)
        (void)finish(s);
    /* Between the micro-steps of an update there is nothing to save, so the last save is that of the last whole update. */
    const uint64_t left = s->position.batches < o->steps ? o->steps - s->position.batches : 0;
    const bool is_last = s->stops || left == 0 || left < info->micro_steps;
    const bool is_time = o->save_every && !info->skipped && info->t % (int64_t)o->save_every == 0;
    if (s->stops && prints(s))
        printf("  asked to stop after step %" PRIu64 "\n", s->position.batches);
    if (o->save && info->accumulated && left == 0 && is_first(s))
        fprintf(stderr,
                "gpt: --steps ends after %u of the %u micro-steps of an update; checkpoints have the steps before these\n",
                info->micro_step, info->micro_steps);
    if (!o->save || info->accumulated || !(is_last || is_time))
        return 0;
    const int result = save(s, o->async && !is_last);
    return is_last ? result : 0;
}

int gpt_saves_close(gpt_saves *s)
{
    if (!s->engine)
        return 0;
    signal(SIGTERM, SIG_DFL);
    to_stop = NULL;
    return finish(s);
}
