/* SPDX-License-Identifier: Apache-2.0 */
/* save.c: the public calls that save. Ranks meet to begin, where they compare what they save and make one identity. complete.c
 * has how they end. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "fork.h"
#include "log.h"
#include "structs.h"
#include "try.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The message of rank 0 to the others. */
typedef struct identity {
    char id[ZOFF_ARCHIVE_ID_BYTES + 7];
    uint64_t sequence;
} identity;

/* ---- what ranks must have alike ---- */

typedef struct agreed {
    const zoff_checkpoint *checkpoint;
    const char *folder; /* folder as the program gave it */
    const zoff_checkpoint_opts *opts;
} agreed;

static void list_agreed(const void *ctx, zoff_fields *out)
{
    const agreed *a = ctx;
    zoff_agreement_equal_add(out, a->folder, 0, "folder");
    zoff_agreement_equal_add(out, a->checkpoint->name, 0, "zoff_checkpoint_opts.name");
    zoff_agreement_equal_add(out, a->checkpoint->manifest.label, 0, "zoff_checkpoint_opts.label");
    zoff_agreement_equal_add(out, NULL, (uint64_t)a->checkpoint->manifest.t, "number of updates");
    zoff_agreement_equal_add(out, NULL, a->checkpoint->manifest.engines, "zoff_checkpoint_opts.engines");
    zoff_agreement_equal_add(out, NULL, a->opts->keep, "zoff_checkpoint_opts.keep");
    zoff_agreement_equal_add(out, NULL, a->opts->pinned, "zoff_checkpoint_opts.pinned");
    zoff_agreement_equal_add(out, NULL, a->opts->skip_frozen, "zoff_checkpoint_opts.skip_frozen");
    zoff_agreement_equal_add(out, NULL, a->opts->data_count, "zoff_checkpoint_opts.data_count");
    for (size_t i = 0; i < a->opts->data_count; i++) {
        zoff_agreement_equal_add(out, a->opts->data[i].name, 0, "name of data %zu", i);
        zoff_agreement_equal_add(out, NULL, a->opts->data[i].each_rank, "each_rank of data %zu", i);
    }
}

/* ---- begin ---- */

static zoff_status prepare(zoff_checkpoint *c, const char *folder, const zoff_checkpoint_opts *opts, const char *call)
{
    ZOFF_FAIL_IF(!folder || !*folder, ZOFF_ERR_INVALID, "%s: folder must not be NULL or empty", call);
    char whole[4096]; /* an absolute path, because the program may call chdir() before the save ends */
    const zoff_status named = zoff_archive_folder_absolute(folder, ZOFF_ARCHIVE_FOLDER_MOST, whole);
    if (named < 0)
        return zoff_base_status_prefix(named, "%s: ", call);
    ZOFF_FAIL_IF(opts->engines > ZOFF_ARCHIVE_ENGINES_MOST, ZOFF_ERR_INVALID,
                 "%s: zoff_checkpoint_opts.engines is %u, and may be %d", call, opts->engines, ZOFF_ARCHIVE_ENGINES_MOST);
    ZOFF_TRY(zoff_checkpoint_data_check(opts, call));
    ZOFF_TRY(zoff_archive_publish_name(opts, c->saver.view.t, c->name));
    ZOFF_TRY(zoff_base_mem_copy_text(whole, &c->folder));
    ZOFF_TRY(zoff_base_mem_copy_text(opts->label ? opts->label : "", &c->manifest.label));
    const size_t room = strlen(whole) + strlen(c->name) + 2;
    ZOFF_TRY(zoff_base_mem_alloc(room, 1, "a path", &c->path));
    snprintf(c->path, room, "%s/%s", whole, c->name);
    c->keep = opts->keep;
    c->manifest.engines = opts->engines ? opts->engines : 1;
    c->manifest.pinned = opts->pinned;
    ZOFF_TRY(zoff_checkpoint_describe_engine(&c->saver.view, opts->skip_frozen, &c->manifest));
    c->manifest.file_count = zoff_comm_size(c->saver.view.comm);
    return zoff_base_mem_alloc(c->manifest.file_count, sizeof *c->manifest.files, "files of a checkpoint", &c->manifest.files);
}

/* Rank 0 makes identity and folder, and its file. */
static zoff_status make_identity(zoff_checkpoint *c, identity *out)
{
    c->sweeps = true;
    ZOFF_TRY(zoff_archive_publish_begin(c->folder, c->name, &c->manifest, false, c->work, &c->saver.part));
    memcpy(out->id, c->manifest.id, sizeof c->manifest.id);
    out->sequence = c->manifest.sequence;
    return ZOFF_OK;
}

/* Make the file of another rank. A folder that is not shared does not have the file of rank 0. */
static zoff_status open_part(zoff_checkpoint *c)
{
    char name[512], path[sizeof c->work + sizeof name];
    const unsigned rank = zoff_comm_rank(c->saver.view.comm);
    zoff_archive_folder_work(c->folder, c->name, &c->manifest, c->work);
    zoff_archive_folder_part_name(c->manifest.label, c->manifest.id, 0, name);
    snprintf(path, sizeof path, "%s/%s", c->work, name);
    ZOFF_FAIL_IF(
        access(path, F_OK) != 0, ZOFF_ERR_INVALID,
        "rank %u does not find the file '%s' that rank 0 has just made: the folder of a checkpoint must be one that all "
        "ranks share",
        rank, path);
    return zoff_archive_part_open(c->work, c->manifest.label, c->manifest.id, rank, &c->saver.part);
}

/* Rank 0 removes folder and file if a rank has gone. A rank that does not find them then has no error of its own, so a failed
 * exchange comes first. */
static zoff_status open_beside_rank_0(zoff_checkpoint *c, identity *all)
{
    const zoff_engine_view *v = &c->saver.view;
    zoff_status own = ZOFF_OK;
    zoff_saved_error saved;
    if (zoff_comm_rank(v->comm) != 0)
        own = open_part(c);
    zoff_base_status_save(&saved);
    ZOFF_TRY(zoff_agreement_vote_gather(&v->agreement->ranks, all, sizeof *all));
    zoff_base_status_restore(&saved);
    return zoff_agreement_vote_success(&v->agreement->ranks, own);
}

/* Every rank gets the identity of rank 0. */
static zoff_status share_identity(zoff_checkpoint *c)
{
    const zoff_engine_view *v = &c->saver.view;
    const unsigned rank = zoff_comm_rank(v->comm), ranks = zoff_comm_size(v->comm);
    identity *all = NULL;
    zoff_status status = zoff_base_mem_alloc(ranks, sizeof *all, "the identity of a checkpoint", &all);
    if (status == ZOFF_OK && rank == 0)
        status = make_identity(c, &all[0]);
    status = zoff_agreement_vote_success(&v->agreement->ranks, status);
    if (status == ZOFF_OK && ranks > 1)
        status = zoff_agreement_vote_gather(&v->agreement->ranks, all, sizeof *all);
    if (status == ZOFF_OK) {
        memcpy(c->manifest.id, all[0].id, sizeof c->manifest.id);
        c->manifest.sequence = all[0].sequence;
    }
    if (status == ZOFF_OK && ranks > 1)
        status = open_beside_rank_0(c, all);
    zoff_base_mem_free(all);
    return status;
}

/* Lay out the file, reserve its space, and save what cannot be saved beside steps. */
static zoff_status fill_part(zoff_checkpoint *c, const zoff_checkpoint_opts *opts)
{
    zoff_saver *s = &c->saver;
    ZOFF_TRY(zoff_engine_stores_drain(c->engine));
    ZOFF_TRY(zoff_checkpoint_layout_make(s, opts->skip_frozen));
    zoff_checkpoint_saver_clone(s);
    ZOFF_TRY(zoff_archive_part_reserve(&s->part));
    ZOFF_TRY(zoff_checkpoint_data_write(opts, zoff_comm_rank(s->view.comm), &s->part));
    ZOFF_TRY(zoff_checkpoint_saver_open(s, opts->memory ? opts->memory : ZOFF_SAVE_COPIES));
    ZOFF_TRY(zoff_checkpoint_saver_visit(s, c->engine));
    return zoff_checkpoint_layout_write_frozen(s);
}

static zoff_status begin(zoff_checkpoint *c, const char *folder, const zoff_checkpoint_opts *opts, const char *call,
                         bool beside)
{
    const zoff_engine_view *v = &c->saver.view;
    const agreed same = {.checkpoint = c, .folder = folder, .opts = opts};
    ZOFF_TRY(zoff_checkpoint_complete_settle(v, opts->refuse_if_busy));
    ZOFF_TRY(zoff_agreement_vote_success(&v->agreement->ranks, prepare(c, folder, opts, call)));
    ZOFF_TRY(zoff_agreement_equal(v->agreement, list_agreed, &same, call, "call it with the same arguments on each rank"));
    ZOFF_TRY(zoff_engine_stores_commit_ranges(c->engine));
    ZOFF_TRY(share_identity(c));
    zoff_status status = fill_part(c, opts);
    /* With several ranks a thread writes in any case: this one answers the others meanwhile. */
    if (status == ZOFF_OK && (beside || zoff_comm_size(v->comm) > 1))
        status = zoff_checkpoint_saver_start(&c->saver, beside);
    if (status == ZOFF_OK && beside)
        zoff_checkpoint_saver_attach(&c->saver);
    return zoff_agreement_vote_success(&v->agreement->ranks, status);
}

/* After a save that failed rank 0 also removes the files of ranks that have died. */
static void release(zoff_checkpoint *c)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    /* A rank other than 0 that has no file yet leaves the folder alone: rank 0 may just be making it. */
    const bool has_files = *c->work && (c->sweeps || c->saver.part.fd >= 0);
    const bool removes = has_files && !zoff_checkpoint_saver_is_inherited(&c->saver);
    zoff_checkpoint_saver_stop(&c->saver);
    zoff_checkpoint_complete_close(c);
    zoff_checkpoint_saver_detach(&c->saver);
    zoff_checkpoint_saver_close(&c->saver);
    if (removes && c->sweeps)
        zoff_archive_remove_own(c->work, &c->manifest);
    else if (removes)
        (void)rmdir(c->work); /* this removes an empty folder after a save that failed; otherwise nothing happens */
    zoff_archive_manifest_free(&c->manifest);
    zoff_base_mem_free(c->folder);
    zoff_base_mem_free(c->path);
    zoff_base_mem_free(c);
    zoff_base_status_restore(&saved);
}

static zoff_status open_checkpoint(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts, const char *call,
                                   bool beside, zoff_checkpoint **out)
{
    zoff_checkpoint *c;
    zoff_checkpoint_opts known = ZOFF_CHECKPOINT_OPTS_INIT;
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_checkpoint_opts", "ZOFF_CHECKPOINT_OPTS_INIT", opts, &known, sizeof known));
    ZOFF_TRY(zoff_engine_step_enter(e, beside ? ZOFF_CALL_CHECKPOINT_BEGIN : ZOFF_CALL_CHECKPOINT_SAVE));
    const zoff_engine_view view = zoff_engine_engine_view(e);
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *c, "a save", &c));
    c->engine = e;
    c->saver.owner = c;
    c->saver.view = view;
    c->saver.process = zoff_base_fork_number();
    c->saver.part.fd = -1;
    pthread_mutex_init(&c->saver.work.lock, NULL);
    pthread_cond_init(&c->saver.work.moved, NULL);
    zoff_agreement_identity_enter(view.agreement, ZOFF_COMM_IN_SAVE, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    const zoff_status status = zoff_agreement_identity_exit(view.agreement, begin(c, folder, &known, call, beside));
    if (status < 0) {
        release(c);
        return status;
    }
    *out = c;
    return ZOFF_OK;
}

/* ---- end ---- */

static zoff_status poll(zoff_checkpoint *c)
{
    const zoff_engine_view *v = &c->saver.view;
    if (c->stage == ZOFF_SAVE_ENDED) {
        if (c->result < 0)
            zoff_base_status_restore(&c->words);
        return c->result;
    }
    ZOFF_FAIL_IF(zoff_checkpoint_saver_is_inherited(&c->saver), ZOFF_ERR_STATE,
                 "the checkpoint '%s' is saved by the parent of this process; a child of fork() may only free its copy with "
                 "zoff_checkpoint_wait()",
                 c->path);
    ZOFF_FAIL_IF(c->saver.is_gone, ZOFF_ERR_STATE, "the engine was destroyed before its checkpoint '%s' was complete", c->path);
    zoff_agreement_identity_enter(v->agreement, ZOFF_COMM_IN_SAVE_POLL, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    return zoff_agreement_identity_exit(v->agreement, zoff_checkpoint_complete_ask(c));
}

/* ---- public calls ---- */

zoff_status zoff_checkpoint_save(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts)
{
    ZOFF_ENTER(e);
    zoff_checkpoint *c;
    ZOFF_TRY(open_checkpoint(e, folder, opts, "zoff_checkpoint_save", false, &c));
    if (c->manifest.file_count == 1)
        (void)zoff_checkpoint_saver_run(&c->saver); /* the saver keeps its error */
    return zoff_checkpoint_wait(c);
}

zoff_status zoff_checkpoint_begin(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts, zoff_checkpoint **out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_checkpoint_begin: out must not be NULL");
    return open_checkpoint(e, folder, opts, "zoff_checkpoint_begin", true, out);
}

zoff_status zoff_checkpoint_poll(zoff_checkpoint *c)
{
    ZOFF_FAIL_IF(!c, ZOFF_ERR_INVALID, "zoff_checkpoint_poll: checkpoint must not be NULL");
    /* A child may only close its copy, because the engine may not exist any more. */
    if (c->saver.is_gone || c->stage == ZOFF_SAVE_ENDED || zoff_checkpoint_saver_is_inherited(&c->saver))
        return poll(c);
    ZOFF_ENTER(c->engine);
    return poll(c);
}

zoff_status zoff_checkpoint_wait(zoff_checkpoint *c)
{
    if (!c)
        return ZOFF_OK;
    zoff_status status;
    while ((status = zoff_checkpoint_poll(c)) == ZOFF_PENDING)
        zoff_checkpoint_complete_nap(c);
    release(c);
    return status;
}
