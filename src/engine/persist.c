/* persist.c: what an engine needs to go on with states that an earlier process left: whose they are, how they were cut, and, of
 * several ranks, a commit that all of them have.
 *
 * Each rank commits its own files. Nobody commits before all ranks have written what is to be committed, so at any time some
 * have commit g as their last and others g + 1 at most; and files have the one before the last, too. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* Words of each parameter and of each chunk. */
enum { PARAM_WORDS = 5, CHUNK_WORDS = 3 };

/* Two models have the same layout when each state of one lies where that of the other lies, and means the same: then names,
 * sizes, order and optimizers are equal. Hyper-parameters, types of weights, threads and budgets may differ. */
zoff_status zoff_engine_persist_layout(const zoff_engine *e, const zoff_plan *plan, uint64_t *out)
{
    uint64_t *words, used = 0;
    ZOFF_TRY(zoff_base_mem_alloc(PARAM_WORDS * e->param_count + CHUNK_WORDS * plan->chunk_count + 1, sizeof *words,
                                 "the layout", &words));
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        const zoff_plan_tensor tensor = zoff_engine_budget_tensor(e, p);
        words[used++] = zoff_offload_layout(p->name, strlen(p->name));
        words[used++] = p->count;
        words[used++] = p->slices;
        words[used++] = p->frozen ? 0 : 1u + (unsigned)zoff_engine_groups_own(e, p->group)->optimizer;
        words[used++] = zoff_zero_plan_streams(&tensor);
    }
    for (size_t i = 0; i < plan->chunk_count; i++) {
        words[used++] = plan->chunks[i].bytes;
        words[used++] = plan->chunks[i].elements;
        words[used++] = plan->chunks[i].piece_count;
    }
    *out = zoff_offload_layout(words, used * sizeof *words);
    zoff_base_mem_free(words);
    return ZOFF_OK;
}

/* States that are there already keep their cut: the budget then decides how many chunks are in DRAM, not how large they are. */
void zoff_engine_persist_limits(const zoff_engine *e, size_t *chunk_bytes, size_t *chunk_elements)
{
    const zoff_settings *s = &e->settings;
    size_t bytes, elements;
    if (!s->values.persist || !zoff_offload_persisted_limits(s->paths[0], zoff_comm_rank(e->comm), &bytes, &elements))
        return;
    *chunk_bytes = bytes;
    *chunk_elements = elements;
}

/* ---- of several ranks ---- */

static bool is_common(const zoff_engine *e)
{
    return zoff_engine_ranks_several(e) && e->settings.values.persist;
}

zoff_status zoff_engine_persist_commit_step(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    zoff_status status = ZOFF_OK;
    if (is_common(e) && !run->commit_asked) {
        const zoff_comm_call call = {
            .kind = ZOFF_COMM_BARRIER, .channel = &e->channel, .item = {.about = ZOFF_COMM_ABOUT_COMMIT}};
        ZOFF_TRY(zoff_comm_start(e->comm, &call, &run->commit));
        run->commit_asked = true;
    }
    while (run->commit_asked && (status = zoff_comm_poll(e->comm, &run->commit)) == ZOFF_PENDING)
        ZOFF_TRY(zoff_engine_ranks_wait(e));
    ZOFF_TRY(status);
    return zoff_engine_stores_commit(e, run->t);
}

zoff_status zoff_engine_persist_commit_pass(zoff_engine *e, zoff_status own)
{
    ZOFF_TRY(is_common(e) ? zoff_engine_agree_success(e, own) : own);
    return zoff_engine_stores_commit(e, e->t);
}

/* What a rank has found in its files. */
typedef struct found {
    uint64_t generation;
    int64_t t;
    uint64_t is_reopened;
} found;

static void describe(const zoff_engine *e, found *out)
{
    *out = (found){.generation = zoff_offload_store_found(e->store)};
    out->is_reopened = zoff_offload_store_reopened(e->store, &out->t);
}

/* The same on all ranks, but for `go_back`. A rank that has never committed a step starts with its program's weights, and where
 * others have committed the very first one they do so, too. */
static zoff_status judge(const zoff_engine *e, const found *all, bool *out_go_back, uint64_t *out_generation)
{
    const unsigned ranks = zoff_comm_size(e->comm);
    unsigned oldest = 0, newest = 0, fresh = ranks;
    for (unsigned rank = 0; rank < ranks; rank++) {
        oldest = all[rank].generation < all[oldest].generation ? rank : oldest;
        newest = all[rank].generation > all[newest].generation ? rank : newest;
        fresh = all[rank].is_reopened || fresh < ranks ? fresh : rank;
    }
    const found *first = &all[oldest], *last = &all[newest], *own = &all[zoff_comm_rank(e->comm)];
    const uint64_t ahead = last->generation - first->generation;
    *out_go_back = own->is_reopened && own->generation != first->generation;
    *out_generation = first->is_reopened ? first->generation : 0;
    if (!last->is_reopened)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fresh < ranks && (first->is_reopened || ahead != 1), ZOFF_ERR_CORRUPT,
                 "zoff_engine_seal: rank %u has the states after step %lld, and rank %u has none in its nvme_path; give each "
                 "rank the folders that it had, or go back to a checkpoint and remove the files to start anew",
                 newest, (long long)last->t, fresh);
    ZOFF_FAIL_IF(
        ahead > 1, ZOFF_ERR_CORRUPT,
        "zoff_engine_seal: rank %u has the states after step %lld (generation %llu), and rank %u those after step %lld "
        "(generation %llu): there is none that both have; go back to a checkpoint, and remove the files to start anew",
        newest, (long long)last->t, (unsigned long long)last->generation, oldest, (long long)first->t,
        (unsigned long long)first->generation);
    return ZOFF_OK;
}

/* Another rank has died before it could commit what this one has. */
static zoff_status go_back(zoff_engine *e, uint64_t generation)
{
    int64_t t;
    ZOFF_TRY(zoff_engine_stores_reopen(e, generation));
    ZOFF_FAIL_IF(
        generation && !zoff_offload_store_reopened(e->store, &t), ZOFF_ERR_CORRUPT,
        "zoff_engine_seal: generation %llu of the states, which all other ranks have, is gone; go back to a checkpoint, "
        "and remove the files to start anew",
        (unsigned long long)generation);
    return e->device.fault; /* of the weights that the first states are filled from */
}

zoff_status zoff_engine_persist_agree(zoff_engine *e)
{
    found *all;
    bool goes_back = false;
    uint64_t generation = 0;
    if (!is_common(e))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(zoff_comm_size(e->comm), sizeof *all, "the ranks' states", &all));
    describe(e, &all[zoff_comm_rank(e->comm)]);
    zoff_status status = zoff_engine_agree_gather(e, all, sizeof *all);
    if (status == ZOFF_OK)
        status = judge(e, all, &goes_back, &generation);
    zoff_base_mem_free(all);
    ZOFF_TRY(status);
    return zoff_engine_agree_success(e, goes_back ? go_back(e, generation) : ZOFF_OK);
}
