/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c: the end of a save. Once the files of all ranks are durable, a thread of rank 0 writes the manifest and removes
 * old checkpoints: an unlink of gigabytes takes long, and must not hold up the program's thread. Then all ranks learn the
 * result. A later save first ends an earlier one, which would otherwise take its name or its files from it. */
#include "checkpoint_priv.h"

#include "try.h"

#include <time.h>

/* ---- the thread of rank 0 ---- */

static void *publish(void *ctx)
{
    zoff_checkpoint *c = ctx;
    zoff_save_publisher *p = &c->publisher;
    zoff_save_work *w = &c->saver.work;
    p->status = zoff_archive_publish_manifest(c->folder, c->name, &c->manifest, false, c->keep);
    if (p->status < 0)
        zoff_base_status_save(&p->words);
    pthread_mutex_lock(&w->lock);
    p->is_over = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* A save of one rank that has no thread blocks its caller anyway. */
static bool wants_thread(const zoff_checkpoint *c)
{
    return c->manifest.file_count > 1 || c->saver.work.has_thread;
}

static void begin_publishing(zoff_checkpoint *c)
{
    c->stage = ZOFF_SAVE_PUBLISHING;
    c->sweeps = false; /* a manifest may name the files from now on, so they must not be swept */
    if (zoff_comm_rank(c->saver.view.comm) != 0) {
        c->publisher.is_over = true;
        return;
    }
    c->publisher.has_thread = wants_thread(c) && zoff_checkpoint_saver_thread(publish, c, &c->publisher.thread) == ZOFF_OK;
    if (!c->publisher.has_thread)
        (void)publish(c);
}

/* If there is no manifest, the earlier one is there again, and the files of this save are removed. */
static zoff_status end_publishing(zoff_checkpoint *c)
{
    zoff_save_publisher *p = &c->publisher;
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    p->has_thread = false;
    c->sweeps = p->status < 0;
    if (p->status < 0)
        zoff_base_status_restore(&p->words);
    return p->status;
}

void zoff_checkpoint_complete_close(zoff_checkpoint *c)
{
    if (c->publisher.has_thread && !zoff_checkpoint_saver_is_inherited(&c->saver))
        (void)end_publishing(c);
}

/* ---- questions ---- */

/* The message of a rank to all others. */
typedef struct report {
    int32_t over;
    zoff_archive_file file;
} report;

/* Under the lock. Whether this rank has done what its stage asks of it. */
static bool has_done(const zoff_checkpoint *c)
{
    return c->stage == ZOFF_SAVE_WRITING ? c->saver.work.is_over : c->publisher.is_over;
}

static bool is_over_here(zoff_checkpoint *c)
{
    pthread_mutex_lock(&c->saver.work.lock);
    const bool over = has_done(c);
    pthread_mutex_unlock(&c->saver.work.lock);
    return over;
}

/* Once a rank has said that its file is durable, the manifest may name the file: the rank removes it only if it knows that
 * there will be no manifest. */
static zoff_status end_writing(zoff_checkpoint *c, const report *all)
{
    const zoff_engine_view *v = &c->saver.view;
    const zoff_status own = zoff_checkpoint_saver_wait(&c->saver);
    for (unsigned i = 0; i < c->manifest.file_count; i++)
        c->manifest.files[i] = all[i].file;
    c->saver.part.keeps = own >= 0;
    const zoff_status status = zoff_agreement_vote_success(&v->agreement->ranks, own);
    if (status < 0)
        c->saver.part.keeps = own >= 0 && zoff_comm_is_broken(v->comm);
    return status;
}

static zoff_status keep_result(zoff_checkpoint *c, zoff_status result)
{
    c->stage = ZOFF_SAVE_ENDED;
    c->result = result;
    if (result < 0)
        zoff_base_status_save(&c->words);
    zoff_checkpoint_saver_detach(&c->saver);
    return result;
}

/* All ranks have done what their stage asks of them. */
static zoff_status go_on(zoff_checkpoint *c, const report *all)
{
    if (c->stage == ZOFF_SAVE_PUBLISHING) {
        const zoff_status own = zoff_comm_rank(c->saver.view.comm) == 0 ? end_publishing(c) : ZOFF_OK;
        return keep_result(c, zoff_agreement_vote_success(&c->saver.view.agreement->ranks, own));
    }
    const zoff_status status = end_writing(c, all);
    if (status < 0)
        return keep_result(c, status);
    begin_publishing(c);
    return ZOFF_PENDING;
}

static zoff_status ask(zoff_checkpoint *c, report *all)
{
    const zoff_engine_view *v = &c->saver.view;
    const unsigned rank = zoff_comm_rank(v->comm);
    all[rank] = (report){.over = is_over_here(c)};
    if (all[rank].over)
        all[rank].file = c->saver.work.file;
    if (c->manifest.file_count > 1)
        ZOFF_TRY(zoff_agreement_vote_gather(&v->agreement->ranks, all, sizeof *all));
    for (unsigned i = 0; i < c->manifest.file_count; i++) {
        if (!all[i].over)
            return ZOFF_PENDING;
    }
    return go_on(c, all);
}

zoff_status zoff_checkpoint_complete_ask(zoff_checkpoint *c)
{
    report *all;
    ZOFF_TRY(zoff_base_mem_alloc(c->manifest.file_count, sizeof *all, "reports of ranks", &all));
    const zoff_status status = ask(c, all);
    zoff_base_mem_free(all);
    return status;
}

static void nap(void)
{
    enum { NAP_NS = 2000000 };
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

void zoff_checkpoint_complete_nap(zoff_checkpoint *c)
{
    zoff_save_work *w = &c->saver.work;
    if (c->manifest.file_count > 1) {
        nap();
        return;
    }
    pthread_mutex_lock(&w->lock);
    while (!has_done(c))
        pthread_cond_wait(&w->moved, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* ---- an earlier save ---- */

/* The message of a rank to all others. */
typedef struct standing {
    int32_t is_open, is_busy, refuses;
} standing;

/* Find a save that has not ended. One of the parent process concerns no child. */
static zoff_checkpoint *earlier_save(const zoff_engine_view *v)
{
    zoff_saver *earlier = *v->guard ? (*v->guard)->ctx : NULL;
    if (earlier && zoff_checkpoint_saver_is_inherited(earlier))
        zoff_checkpoint_saver_detach(earlier);
    return *v->guard ? earlier->owner : NULL;
}

/* @return PENDING: it has not ended */
static zoff_status ask_earlier(const zoff_engine_view *v, bool refuses, standing *all)
{
    zoff_checkpoint *earlier = earlier_save(v);
    const unsigned rank = zoff_comm_rank(v->comm), ranks = zoff_comm_size(v->comm);
    standing any = {.is_open = 0};
    all[rank] = (standing){.is_open = earlier != NULL, .is_busy = earlier && !is_over_here(earlier), .refuses = refuses};
    if (ranks > 1)
        ZOFF_TRY(zoff_agreement_vote_gather(&v->agreement->ranks, all, sizeof *all));
    for (unsigned i = 0; i < ranks; i++) {
        any.is_open |= all[i].is_open;
        any.is_busy |= all[i].is_busy;
        any.refuses |= all[i].refuses;
    }
    ZOFF_FAIL_IF(any.is_busy && any.refuses, ZOFF_ERR_STATE,
                 "an earlier save of this engine is under way; call zoff_checkpoint_wait() before "
                 "(zoff_checkpoint_opts.refuse_if_busy)");
    if (earlier && !any.is_busy) {
        const zoff_status status = zoff_checkpoint_complete_ask(earlier);
        if (status < 0 && earlier->stage != ZOFF_SAVE_ENDED) /* otherwise the owner of the earlier save learns the result */
            return status;
    }
    return any.is_open ? ZOFF_PENDING : ZOFF_OK;
}

zoff_status zoff_checkpoint_complete_settle(const zoff_engine_view *v, bool refuses)
{
    standing *all;
    zoff_status status;
    ZOFF_TRY(zoff_base_mem_alloc(zoff_comm_size(v->comm), sizeof *all, "standings of ranks", &all));
    while ((status = ask_earlier(v, refuses, all)) == ZOFF_PENDING)
        nap();
    zoff_base_mem_free(all);
    return status;
}
