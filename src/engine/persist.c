/* persist.c: what an engine needs to go on with states that an earlier process left: whose they are, and how they were cut. */
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
