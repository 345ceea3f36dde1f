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
    ZOFF_TRY(zoff_base_mem_alloc(PARAM_WORDS * e->model.param_count + CHUNK_WORDS * plan->chunk_count + 1, sizeof *words,
                                 "the layout", &words));
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(&e->model, p);
        words[used++] = zoff_offload_layout(p->name, strlen(p->name));
        words[used++] = p->count;
        words[used++] = p->slices;
        words[used++] = p->frozen ? 0 : 1u + (unsigned)zoff_model_groups_own(&e->model, p->group)->optimizer;
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

/* The same on all ranks. One that has never committed a step starts with its program's weights, and where others have committed
 * the very first one they do so, too. Where one died before it could commit what others have, these go back. */
zoff_status zoff_engine_persist_judge(const zoff_engine *e, const zoff_standing *all, uint64_t *out_generation)
{
    const unsigned ranks = zoff_comm_size(e->comm);
    unsigned oldest = 0, newest = 0, fresh = ranks;
    for (unsigned rank = 0; rank < ranks; rank++) {
        oldest = all[rank].found.generation < all[oldest].found.generation ? rank : oldest;
        newest = all[rank].found.generation > all[newest].found.generation ? rank : newest;
        fresh = all[rank].found.reopened || fresh < ranks ? fresh : rank;
    }
    const zoff_store_found *first = &all[oldest].found, *last = &all[newest].found;
    const uint64_t ahead = last->generation - first->generation;
    *out_generation = first->reopened ? first->generation : 0;
    if (!last->reopened)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fresh < ranks && (first->reopened || ahead != 1), ZOFF_ERR_CORRUPT,
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
