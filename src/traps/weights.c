/* weights.c: which pages belong to a slice, and to the pieces of a bucket; and which weights have changed between two calls. */
#include "traps.h"

#include "cpu_adam.h"
#include "digest.h"
#include "mem.h"
#include "try.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

static size_t bytes_of(const zoff_model_param *p, size_t elements)
{
    return elements * zoff_adam_dtype_bytes(p->dtype);
}

/* Weights that the program has, and that a step changes. Tied parameters share the weights of their owner. */
static bool is_watched(const zoff_model_param *p)
{
    return p->value && p->count && !p->frozen && !p->engine_owned;
}

/* Find the pages anew, because the buffers may have moved since the last step. */
static void find_pages(zoff_traps *t)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; slice < p->slices && is_watched(p); slice++) {
            zoff_trap *trap = &t->traps.list[p->first_flag + slice];
            const uintptr_t first = (uintptr_t)p->value + slice * p->value_stride;
            trap->from = (first + page - 1) / page * page;
            trap->to = (first + bytes_of(p, p->count)) / page * page;
            trap->to = trap->to < trap->from ? trap->from : trap->to;
        }
    }
}

zoff_status zoff_traps_weights_open(const zoff_model *model, const zoff_plan *plan, zoff_traps **out)
{
    zoff_traps *t;
    *out = NULL;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *t, "zoff.check_use", &t));
    *t = (zoff_traps){.model = model, .plan = plan, .traps = {.count = model->slice_count}};
    zoff_status status = zoff_base_mem_alloc(model->slice_count, sizeof *t->traps.list, "zoff.check_use", &t->traps.list);
    if (status == ZOFF_OK)
        status = zoff_base_mem_alloc(model->slice_count, sizeof *t->left, "zoff.check_use", &t->left);
    if (status == ZOFF_OK)
        status = zoff_traps_pages_register(&t->traps);
    if (status < 0) {
        zoff_base_mem_free(t->left);
        zoff_base_mem_free(t->traps.list);
        zoff_base_mem_free(t);
        return status;
    }
    *out = t;
    return ZOFF_OK;
}

void zoff_traps_weights_close(zoff_traps *t)
{
    if (!t)
        return;
    zoff_traps_weights_lift_all(t);
    zoff_traps_pages_unregister(&t->traps);
    zoff_base_mem_free(t->left);
    zoff_base_mem_free(t->traps.list);
    zoff_base_mem_free(t);
}

void zoff_traps_weights_set(zoff_traps *t)
{
    if (!t)
        return;
    size_t index;
    uintptr_t place;
    (void)zoff_traps_pages_take(&t->traps, &index, &place); /* drop the use of a step that was given up */
    find_pages(t);
    for (size_t number = 0; number < t->traps.count; number++) {
        if (t->model->flags[number] & (ZOFF_SLICE_READY | ZOFF_SLICE_PRESENT))
            zoff_traps_pages_set(&t->traps.list[number]);
    }
}

void zoff_traps_weights_lift(zoff_traps *t, size_t number)
{
    if (t)
        zoff_traps_pages_lift(&t->traps.list[number]);
}

void zoff_traps_weights_lift_all(zoff_traps *t)
{
    for (size_t number = 0; t && number < t->traps.count; number++)
        zoff_traps_pages_lift(&t->traps.list[number]);
}

static void each_piece(zoff_traps *t, size_t bucket, void (*call)(const zoff_trap *trap, uintptr_t first, size_t bytes))
{
    const zoff_plan_chunk *chunk = &t->plan->chunks[bucket];
    for (size_t i = 0; i < chunk->piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[chunk->first_piece + i];
        const zoff_model_param *p = &t->model->params[piece->param];
        if (is_watched(p))
            call(&t->traps.list[p->first_flag + piece->slice],
                 (uintptr_t)p->value + piece->slice * p->value_stride + bytes_of(p, piece->first), bytes_of(p, piece->count));
    }
}

void zoff_traps_weights_enter(zoff_traps *t, size_t bucket)
{
    if (t)
        each_piece(t, bucket, zoff_traps_pages_enter);
}

void zoff_traps_weights_leave(zoff_traps *t, size_t bucket)
{
    if (t)
        each_piece(t, bucket, zoff_traps_pages_leave);
}

static uint64_t checksum(const zoff_model_param *p, size_t slice)
{
    return zoff_digest_blocks_whole(p->value + slice * p->value_stride, bytes_of(p, p->count), 1);
}

void zoff_traps_weights_note(zoff_traps *t)
{
    for (size_t i = 0; t && i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; slice < p->slices && is_watched(p); slice++)
            t->left[p->first_flag + slice] = checksum(p, slice);
    }
}

zoff_status zoff_traps_weights_compare(const zoff_traps *t, const char *call)
{
    for (size_t i = 0; t && i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; slice < p->slices && is_watched(p); slice++)
            ZOFF_FAIL_IF(
                t->left[p->first_flag + slice] != checksum(p, slice), ZOFF_ERR_STATE,
                "%s: the weights of %s, slice %zu, are not those that the last call has left; call zoff_params_pull() to "
                "take them as masters, or zoff_params_push() to compute them from the states",
                call, p->name, slice);
    }
    return ZOFF_OK;
}

/* Whether addr2line wants an offset. An executable with fixed addresses has these in its tables. */
static bool is_movable(const void *file)
{
    return file && ((const ElfW(Ehdr) *)file)->e_type != ET_EXEC;
}

zoff_status zoff_traps_weights_check(zoff_traps *t)
{
    size_t number;
    uintptr_t place;
    Dl_info where = {.dli_fname = NULL};
    if (!t || !zoff_traps_pages_take(&t->traps, &number, &place))
        return ZOFF_OK;
    const zoff_model_param *p = t->model->params;
    while (p->first_flag + p->slices <= number)
        p++;
    (void)dladdr((const void *)place, &where);
    const uintptr_t base = is_movable(where.dli_fbase) ? (uintptr_t)where.dli_fbase : 0;
    return zoff_base_status_fail(ZOFF_ERR_STATE,
                                 "slice %zu of %s was used before zoff_param_wait() had returned for it, by the instruction at "
                                 "%s+0x%zx (%s), so this pass has weights from before the step. The step itself is complete",
                                 number - p->first_flag, p->name, where.dli_fname ? where.dli_fname : "?",
                                 (size_t)(place - base), where.dli_sname ? where.dli_sname : "?");
}
