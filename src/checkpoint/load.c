/* SPDX-License-Identifier: Apache-2.0 */
/* load.c: the public call that loads a checkpoint. Everything that can be compared is compared on all ranks before anything
 * changes. */
#include "checkpoint_priv.h"

#include "structs.h"
#include "try.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

typedef struct loading {
    zoff_engine *engine;
    zoff_engine_view view;
    const char *folder;
    zoff_checkpoint_opts opts;
    char path[PATH_BYTES]; /* path of the checkpoint, the same on all ranks */
    zoff_archive *archive;
    uint64_t least; /* sequence of the checkpoint that rank 0 has chosen; 0 on others */
    bool is_gone;   /* the checkpoint was removed after it had been chosen */
    zoff_match match;
    zoff_filler filler;
    zoff_program_found before; /* program's bytes of the commit before; with zoff.persist */
    bool has_before;
    zoff_sums_change sums; /* to the rule of the checkpoint */
    bool changes_sums;     /* `sums` is prepared */
} loading;

static const char CALL[] = "zoff_checkpoint_load";

static const char *label_of(const loading *l)
{
    return l->opts.label ? l->opts.label : "";
}

/* ---- which checkpoint ---- */

static zoff_status check_arguments(const loading *l)
{
    ZOFF_FAIL_IF(!l->folder || !*l->folder, ZOFF_ERR_INVALID, "%s: folder must not be NULL or empty", CALL);
    if (l->opts.label)
        ZOFF_TRY(zoff_archive_folder_check_label("zoff_checkpoint_opts.label", l->opts.label));
    if (l->opts.name)
        ZOFF_TRY(zoff_archive_folder_check_name("zoff_checkpoint_opts.name", l->opts.name));
    return zoff_checkpoint_data_check(&l->opts, CALL);
}

/* An engine that saved alone has its label before the name. */
static zoff_status choose(loading *l)
{
    char *chosen, named[PATH_BYTES];
    const char *label = label_of(l), *name = l->opts.name;
    int length = snprintf(named, sizeof named, "%s/%s.%s", l->folder, label, name ? name : "");
    if (!name || !*label || length >= PATH_BYTES || access(named, F_OK) != 0)
        length = snprintf(named, sizeof named, "%s%s%s", l->folder, name ? "/" : "", name ? name : "");
    ZOFF_FAIL_IF(length >= PATH_BYTES, ZOFF_ERR_INVALID, "%s: the path of the checkpoint is too long", CALL);
    ZOFF_TRY(zoff_archive_choose(named, label_of(l), &chosen, &l->least));
    const size_t bytes = strlen(chosen);
    snprintf(l->path, sizeof l->path, "%s", chosen); /* the one before may have been longer */
    zoff_base_mem_free(chosen);
    ZOFF_FAIL_IF(bytes >= PATH_BYTES, ZOFF_ERR_INVALID, "%s: the path of the checkpoint is too long", CALL);
    return ZOFF_OK;
}

/* Let rank 0 choose, and the others take its choice, because a save may complete meanwhile. */
static zoff_status choose_together(loading *l)
{
    char *all = NULL;
    const unsigned rank = zoff_comm_rank(l->view.comm), ranks = zoff_comm_size(l->view.comm);
    zoff_status status = zoff_base_mem_alloc(ranks, PATH_BYTES, "the path of a checkpoint", &all);
    if (status == ZOFF_OK && rank == 0)
        status = choose(l);
    status = zoff_agreement_vote_success(&l->view.agreement->ranks, status);
    if (status == ZOFF_OK && ranks > 1) {
        memcpy(all + (size_t)rank * PATH_BYTES, l->path, PATH_BYTES);
        status = zoff_agreement_vote_gather(&l->view.agreement->ranks, all, PATH_BYTES);
        memcpy(l->path, all, PATH_BYTES);
    }
    zoff_base_mem_free(all);
    return status;
}

/* ---- what it has ---- */

static void list_arguments(const void *ctx, zoff_fields *out)
{
    const loading *l = ctx;
    zoff_agreement_equal_add(out, l->folder, 0, "folder");
    zoff_agreement_equal_add(out, l->opts.name ? l->opts.name : "", 0, "zoff_checkpoint_opts.name");
    zoff_agreement_equal_add(out, label_of(l), 0, "zoff_checkpoint_opts.label");
    zoff_agreement_equal_add(out, l->opts.allow ? l->opts.allow : "", 0, "zoff_checkpoint_opts.allow");
    zoff_agreement_equal_add(out, NULL, l->opts.weights_only, "zoff_checkpoint_opts.weights_only");
    zoff_agreement_equal_add(out, NULL, l->opts.data_count, "zoff_checkpoint_opts.data_count");
    for (size_t i = 0; i < l->opts.data_count; i++)
        zoff_agreement_equal_add(out, l->opts.data[i].name, 0, "name of data %zu", i);
}

static void list_identity(const void *ctx, zoff_fields *out)
{
    const loading *l = ctx;
    const size_t bytes = l->archive->text_bytes;
    zoff_agreement_equal_add(out, l->archive->manifest.id, 0, "id of the checkpoint");
    zoff_agreement_equal_add(out, l->archive->text + bytes - (bytes > 24 ? 24 : bytes), 0, "checksum of the manifest");
}

/* Whether another save or a removal came between the choice and the files, on any rank. */
static bool has_moved(loading *l)
{
    int32_t *all = NULL;
    bool has = false;
    const unsigned rank = zoff_comm_rank(l->view.comm), ranks = zoff_comm_size(l->view.comm);
    const bool is_other = l->archive && !zoff_archive_is_current(l->path, label_of(l), l->archive->manifest.id);
    zoff_status status = zoff_base_mem_alloc(ranks, sizeof *all, "answers of ranks", &all);
    if (zoff_agreement_vote_success(&l->view.agreement->ranks, status) < 0) {
        zoff_base_mem_free(all);
        return false;
    }
    all[rank] = l->is_gone || is_other;
    status = ranks > 1 ? zoff_agreement_vote_gather(&l->view.agreement->ranks, all, sizeof *all) : ZOFF_OK;
    for (unsigned i = 0; i < ranks && status == ZOFF_OK; i++)
        has = has || all[i];
    zoff_base_mem_free(all);
    return has;
}

static zoff_status try_open(loading *l)
{
    l->is_gone = false;
    ZOFF_TRY(choose_together(l));
    zoff_status status = zoff_archive_open(l->path, label_of(l), l->least, &l->archive);
    l->is_gone = status == ZOFF_ERR_STATE;
    status = l->is_gone ? ZOFF_ERR_IO : status;
    ZOFF_TRY(zoff_agreement_vote_success(&l->view.agreement->ranks, status));
    return zoff_agreement_equal(l->view.agreement, list_identity, l, CALL, "all ranks must see one folder");
}

/* Open the same checkpoint on all ranks, although others may save into the folder and remove from it. */
static zoff_status open_together(loading *l)
{
    zoff_status status = try_open(l);
    for (unsigned i = 1; i < ZOFF_ARCHIVE_OPEN_TRIES && status < 0 && !zoff_comm_is_broken(l->view.comm); i++) {
        zoff_saved_error saved;
        zoff_base_status_save(&saved);
        const bool again = has_moved(l);
        zoff_base_status_restore(&saved);
        if (!again)
            break;
        zoff_archive_close(l->archive);
        l->archive = NULL;
        status = try_open(l);
    }
    return status;
}

static zoff_status open_all(loading *l)
{
    ZOFF_TRY(zoff_checkpoint_match_open(&l->view, l->archive, &l->opts, &l->match));
    ZOFF_TRY(zoff_checkpoint_data_match(&l->opts, l->archive, zoff_comm_rank(l->view.comm), zoff_comm_size(l->view.comm)));
    zoff_checkpoint_fill_open(&l->match, &l->filler);
    return zoff_checkpoint_fill_frozen(&l->filler, true);
}

/* A static scale of the configuration stays. A checkpoint without a loss scale leaves the scale as it is, and so does one of
 * which only the weights are taken. */
static zoff_status take_scaler(const loading *l)
{
    const zoff_fp16_values *v = &l->view.values->fp16;
    zoff_loss_scaler scaler = l->archive->manifest.scaler;
    if (!v->enabled || !l->archive->manifest.has_scaler || l->opts.weights_only)
        return ZOFF_OK;
    if (!v->dynamic)
        scaler.scale = v->scale;
    return zoff_model_loss_scale_set(l->view.model, &scaler);
}

/* A commit records the loss scale and the program's bytes, so both are set before the states. */
static zoff_status take_facts(loading *l)
{
    const unsigned rank = zoff_comm_rank(l->view.comm);
    ZOFF_TRY(take_scaler(l));
    ZOFF_TRY(zoff_checkpoint_data_read(&l->opts, l->archive, rank, zoff_comm_size(l->view.comm)));
    if (!l->view.values->persist)
        return ZOFF_OK;
    ZOFF_TRY(zoff_model_program_bytes_replace(&l->view.model->program, rank, l->opts.data, l->opts.data_count, &l->before));
    l->has_before = true;
    return ZOFF_OK;
}

static zoff_status begin_chunk(loading *l, zoff_states_load *load, size_t chunk)
{
    zoff_chunk_memory memory;
    ZOFF_TRY(zoff_engine_states_load_lend(load, chunk, zoff_checkpoint_fill_is_whole(&l->filler, chunk), &memory));
    if (l->opts.weights_only)
        zoff_engine_states_load_renew(load, chunk);
    return zoff_checkpoint_fill_begin(&l->filler, chunk, memory);
}

static zoff_status finish_chunk(loading *l, zoff_states_load *load, size_t chunk)
{
    ZOFF_TRY(zoff_checkpoint_fill_masters(&l->filler, chunk));
    ZOFF_TRY(zoff_engine_states_load_weights(load, chunk));
    ZOFF_TRY(zoff_checkpoint_fill_finish(&l->filler, chunk));
    return zoff_engine_states_load_take(load, chunk);
}

/* Begin chunks while those before them are being filled. */
static zoff_status fill_chunks(loading *l, zoff_states_load *load)
{
    const size_t count = l->view.plan->chunk_count;
    size_t finished = 0;
    ZOFF_TRY(zoff_engine_states_load_begin(l->engine, load));
    for (size_t chunk = 0; chunk < count; chunk++) {
        while (chunk - finished >= zoff_engine_states_load_most(load, chunk))
            ZOFF_TRY(finish_chunk(l, load, finished++));
        ZOFF_TRY(begin_chunk(l, load, chunk));
    }
    while (finished < count)
        ZOFF_TRY(finish_chunk(l, load, finished++));
    return ZOFF_OK;
}

static zoff_status fill_states(loading *l)
{
    zoff_states_load load;
    const zoff_status status = fill_chunks(l, &load);
    if (status < 0) {
        ZOFF_KEEP_ERROR(zoff_checkpoint_fill_stop(&l->filler));
    }
    return zoff_engine_states_load_end(&load, l->opts.weights_only ? 0 : l->archive->manifest.t, status);
}

static zoff_status replace_states(loading *l)
{
    ZOFF_TRY(zoff_agreement_vote_success(&l->view.agreement->ranks, take_facts(l)));
    ZOFF_TRY(fill_states(l));
    const zoff_status status =
        zoff_agreement_vote_success(&l->view.agreement->ranks, zoff_checkpoint_fill_frozen(&l->filler, false));
    if (status < 0)
        zoff_engine_states_unload(l->engine);
    return status;
}

/* A run without the key goes on with the rule of the run that saved, so that a default does not change sums in its middle. */
static bool sums_exactly(const loading *l)
{
    const bool keeps = l->view.values->sums != ZOFF_SUMS_AUTO || l->opts.weights_only;
    return keeps ? l->view.model->exact_sums : l->archive->manifest.exact_sums;
}

static zoff_status replace(loading *l)
{
    char *kept = NULL;
    const zoff_loss_scaler scaler = l->view.model->scaler;
    const bool was_exact = l->view.model->exact_sums, is_exact = sums_exactly(l);
    zoff_status status = zoff_checkpoint_data_keep(&l->opts, &kept);
    if (status == ZOFF_OK && is_exact != was_exact) {
        status = zoff_transfer_route_prepare_sums(l->view.transfer, is_exact, &l->sums);
        l->changes_sums = status == ZOFF_OK;
    }
    status = zoff_agreement_vote_success(&l->view.agreement->ranks, status);
    if (status == ZOFF_OK) {
        l->view.model->exact_sums = is_exact; /* commits record it */
        status = replace_states(l);
        if (status < 0) {
            l->view.model->exact_sums = was_exact;
            l->view.model->scaler = scaler;
            zoff_checkpoint_data_restore(&l->opts, kept);
        }
    }
    if (status == ZOFF_OK && l->changes_sums)
        zoff_transfer_ranks_use_sums(l->view.transfer, &l->sums);
    else if (l->changes_sums)
        zoff_transfer_ranks_discard_sums(l->view.transfer, &l->sums);
    if (status < 0 && l->has_before)
        zoff_model_program_bytes_put_back(&l->view.model->program, &l->before);
    zoff_base_mem_free(l->before.block);
    zoff_base_mem_free(kept);
    return status;
}

static zoff_status load(loading *l)
{
    ZOFF_TRY(zoff_checkpoint_complete_settle(&l->view, false));
    ZOFF_TRY(zoff_agreement_vote_success(&l->view.agreement->ranks, check_arguments(l)));
    ZOFF_TRY(zoff_agreement_equal(l->view.agreement, list_arguments, l, CALL, "call it with the same arguments on each rank"));
    /* commit first, so that what was written before stays if the load fails */
    ZOFF_TRY(zoff_engine_stores_commit_ranges(l->engine));
    ZOFF_TRY(open_together(l));
    ZOFF_TRY(zoff_agreement_vote_success(&l->view.agreement->ranks, open_all(l)));
    ZOFF_TRY(replace(l));
    zoff_checkpoint_data_tell(&l->opts, l->archive, zoff_comm_rank(l->view.comm), zoff_comm_size(l->view.comm));
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_load(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", CALL);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_CHECKPOINT_LOAD));
    loading l = {.engine = e, .view = zoff_engine_engine_view(e), .folder = folder, .opts = ZOFF_CHECKPOINT_OPTS_INIT};
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_checkpoint_opts", "ZOFF_CHECKPOINT_OPTS_INIT", opts, &l.opts, sizeof l.opts));
    zoff_agreement_identity_enter(l.view.agreement, ZOFF_COMM_IN_LOAD, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    zoff_status status = zoff_agreement_identity_exit(l.view.agreement, load(&l));
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    zoff_checkpoint_fill_close(&l.filler);
    zoff_checkpoint_match_close(&l.match);
    zoff_archive_close(l.archive);
    if (status < 0)
        zoff_base_status_restore(&saved);
    return status;
}
