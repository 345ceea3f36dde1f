/* layout.c: whether files of an earlier process fit the model and its plan. */
#include "planning.h"

#include "offload.h"
#include "try.h"

#include <string.h>

/* Words per parameter and per chunk. */
enum { PARAM_WORDS = 5, CHUNK_WORDS = 3 };

/* The streams that a parameter has, and the bytes of their elements where these are not fp32. */
static uint64_t streams_word(const zoff_plan_tensor *tensor)
{
    uint64_t word = zoff_zero_plan_streams(tensor);
    for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++)
        word |= (uint64_t)(tensor->bytes[stream] == sizeof(float) ? 0 : tensor->bytes[stream]) << (8 + 8 * stream);
    return word;
}

/* Two models have the same layout if names, sizes, order and optimizers of their parameters are equal. With the same cut, too,
 * each state of one has the same place and meaning in the other. Hyper-parameters, weight types, threads and budgets may
 * differ.
 */
zoff_status zoff_planning_layout_checksums(const zoff_planning *in, const zoff_plan *plan, uint64_t *out_layout,
                                           uint64_t *out_cut)
{
    uint64_t *words, used = 0;
    ZOFF_TRY(zoff_base_mem_alloc(PARAM_WORDS * in->model->param_count + CHUNK_WORDS * plan->chunk_count + 2, sizeof *words,
                                 "the layout", &words));
    for (size_t i = 0; i < in->model->param_count; i++) {
        const zoff_model_param *p = &in->model->params[i];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(in->model, p);
        words[used++] = zoff_offload_layout(p->name, strlen(p->name));
        words[used++] = p->count;
        words[used++] = p->slices;
        words[used++] = p->frozen ? 0 : 1u + (unsigned)zoff_model_groups_own(in->model, p->group)->optimizer;
        words[used++] = streams_word(&tensor);
    }
    if (in->part) /* the part counts, because parts may have parameters of the same names and sizes */
        words[used++] = in->part;
    *out_layout = zoff_offload_layout(words, used * sizeof *words);
    used = 0;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        words[used++] = plan->chunks[i].bytes;
        words[used++] = plan->chunks[i].elements;
        words[used++] = plan->chunks[i].piece_count;
    }
    *out_cut = zoff_offload_layout(words, used * sizeof *words);
    zoff_base_mem_free(words);
    return ZOFF_OK;
}

/* Existing states keep their chunk sizes. The budget then decides only how many chunks stay in DRAM. */
void zoff_planning_layout_limits(const zoff_planning *in, zoff_planning_limits *limits)
{
    size_t bytes, elements;
    if (!in->values->persist || !in->folder_count ||
        !zoff_offload_persisted_limits(in->folders[0], (zoff_store_owner){zoff_comm_rank(in->comm), in->part}, &bytes,
                                       &elements))
        return;
    limits->chunk_bytes = bytes;
    limits->chunk_elements = elements;
    limits->of_files = true;
}
