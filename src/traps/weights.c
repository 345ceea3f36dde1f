/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c: pages that are inaccessible for a while, the handler of SIGSEGV, and which weights have changed between two calls.
 *
 * The first use of such a page is remembered, and its trap is lifted, so that the program goes on. The engine reports the use
 * at the end of the step. A fault at any other address goes to the handler that was there before. */
#include "traps.h"

#include "cpu_adam.h"
#include "digest.h"
#include "mem.h"
#include "try.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- pages ---- */

/* A run of whole pages. `from` == `to`: there are none. */
typedef struct pages {
    uintptr_t from, to;
    bool was_set; /* the trap was set since it was lifted last */
    bool is_set;  /* the trap is set; atomic, as are the fields below, because the handler sets them */
} pages;

/* Traps, and the first use of one since the last take_use(). */
typedef struct trap_list {
    pages *list;
    size_t count;
    uintptr_t place;      /* address of the instruction; 0: no use */
    uintptr_t used_index; /* index of the trap */
} trap_list;

struct zoff_traps {
    const zoff_model *model;
    const zoff_plan *plan;
    trap_list traps; /* traps by number of a slice */
    uint64_t *left;  /* checksum of each slice's weights as the last call has left them */
};

enum { LISTS = 64 };

/* Data of the handler, which may run at any moment, on any thread, so it reads nothing else. */
static struct {
    trap_list *lists[LISTS];
    struct sigaction before;
    bool is_installed;
} handler;

static uintptr_t place_of(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    return (uintptr_t)context != 0; /* the instruction is unknown, but there was a use */
#endif
}

/* Whether a trap was there. If another thread has lifted it already, the access only has to be repeated. */
static bool spring(trap_list *traps, uintptr_t address, uintptr_t place)
{
    for (size_t i = 0; i < traps->count; i++) {
        pages *trap = &traps->list[i];
        uintptr_t none = 0;
        if (!__atomic_load_n(&trap->was_set, __ATOMIC_SEQ_CST) || address < trap->from || address >= trap->to)
            continue;
        __atomic_store_n(&trap->is_set, false, __ATOMIC_SEQ_CST);
        if (__atomic_compare_exchange_n(&traps->place, &none, place, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            __atomic_store_n(&traps->used_index, i, __ATOMIC_SEQ_CST);
        return mprotect((void *)trap->from, trap->to - trap->from, PROT_READ | PROT_WRITE) == 0;
    }
    return false;
}

static void handle(int number, siginfo_t *info, void *context)
{
    for (size_t i = 0; i < LISTS; i++) {
        trap_list *traps = __atomic_load_n(&handler.lists[i], __ATOMIC_SEQ_CST);
        if (traps && spring(traps, (uintptr_t)info->si_addr, place_of(context)))
            return;
    }
    if (handler.before.sa_flags & SA_SIGINFO)
        handler.before.sa_sigaction(number, info, context);
    else if (handler.before.sa_handler == SIG_DFL || handler.before.sa_handler == SIG_IGN)
        (void)sigaction(number, &handler.before,
                        NULL); /* the access is repeated, so the program ends as without this handler */
    else
        handler.before.sa_handler(number);
}

/* Register the list with the handler of SIGSEGV, which is installed with the first one.  @return ERR_UNSUPPORTED: too many */
static zoff_status register_list(trap_list *traps)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (!__atomic_exchange_n(&handler.is_installed, true, __ATOMIC_SEQ_CST))
        (void)sigaction(SIGSEGV, &action, &handler.before);
    for (size_t i = 0; i < LISTS; i++) {
        trap_list *none = NULL;
        if (__atomic_compare_exchange_n(&handler.lists[i], &none, traps, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return ZOFF_OK;
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                 "zoff.check_use is true in more than %d engines of this process: set it to "
                                 "false in some of them",
                                 LISTS);
}

/* call this when every trap is lifted */
static void unregister_list(trap_list *traps)
{
    for (size_t i = 0; i < LISTS; i++) {
        trap_list *own = traps;
        (void)__atomic_compare_exchange_n(&handler.lists[i], &own, NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
}

/* Lift a trap, even one that the handler has lifted, because the engine may have left the pages at the same moment. */
static void lift_trap(pages *trap)
{
    __atomic_store_n(&trap->is_set, false, __ATOMIC_SEQ_CST);
    if (trap->was_set)
        (void)mprotect((void *)trap->from, trap->to - trap->from, PROT_READ | PROT_WRITE);
    __atomic_store_n(&trap->was_set, false, __ATOMIC_SEQ_CST);
}

/* Make the pages of a trap inaccessible. If the system refuses, they stay accessible. */
static void set_trap(pages *trap)
{
    if (trap->from == trap->to)
        return;
    __atomic_store_n(&trap->was_set, true, __ATOMIC_SEQ_CST);
    __atomic_store_n(&trap->is_set, true, __ATOMIC_SEQ_CST);
    if (mprotect((void *)trap->from, trap->to - trap->from, PROT_NONE) != 0)
        lift_trap(trap);
}

static void protect(const pages *trap, uintptr_t first, size_t bytes, int how)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = first / page * page, to = (first + bytes + page - 1) / page * page;
    from = from < trap->from ? trap->from : from;
    to = to > trap->to ? trap->to : to;
    if (from < to && __atomic_load_n(&trap->is_set, __ATOMIC_SEQ_CST))
        (void)mprotect((void *)from, to - from, how);
}

/* Make the pages of a trap that [first, first + bytes) touches accessible, and forbid them again if the trap is still set. */
static void enter_pages(const pages *trap, uintptr_t first, size_t bytes)
{
    protect(trap, first, bytes, PROT_READ | PROT_WRITE);
}

/* Forbid the pages again, unless the handler has lifted the trap meanwhile. */
static void leave_pages(const pages *trap, uintptr_t first, size_t bytes)
{
    protect(trap, first, bytes, PROT_NONE);
    if (trap->from != trap->to && trap->was_set && !__atomic_load_n(&trap->is_set, __ATOMIC_SEQ_CST))
        (void)mprotect((void *)trap->from, trap->to - trap->from, PROT_READ | PROT_WRITE);
}

/* Take the first use, which is then forgotten.  @return whether there was one */
static bool take_use(trap_list *traps, size_t *out_index, uintptr_t *out_place)
{
    *out_place = __atomic_load_n(&traps->place, __ATOMIC_SEQ_CST);
    *out_index = __atomic_load_n(&traps->used_index, __ATOMIC_SEQ_CST);
    __atomic_store_n(&traps->place, 0, __ATOMIC_SEQ_CST);
    return *out_place != 0;
}

/* ---- the pages of a slice, and of the pieces of a bucket ---- */

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
            pages *trap = &t->traps.list[p->first_flag + slice];
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
        status = register_list(&t->traps);
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
    unregister_list(&t->traps);
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
    (void)take_use(&t->traps, &index, &place); /* drop the use of a step that was given up */
    find_pages(t);
    for (size_t number = 0; number < t->traps.count; number++) {
        if (t->model->flags[number] & (ZOFF_SLICE_READY | ZOFF_SLICE_PRESENT))
            set_trap(&t->traps.list[number]);
    }
}

void zoff_traps_weights_lift(zoff_traps *t, size_t number)
{
    if (t)
        lift_trap(&t->traps.list[number]);
}

void zoff_traps_weights_lift_all(zoff_traps *t)
{
    for (size_t number = 0; t && number < t->traps.count; number++)
        lift_trap(&t->traps.list[number]);
}

static void each_piece(zoff_traps *t, size_t bucket, void (*call)(const pages *trap, uintptr_t first, size_t bytes))
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
        each_piece(t, bucket, enter_pages);
}

void zoff_traps_weights_leave(zoff_traps *t, size_t bucket)
{
    if (t)
        each_piece(t, bucket, leave_pages);
}

static uint64_t checksum(const zoff_model_param *p, size_t slice)
{
    return zoff_digest_blocks_whole(p->value + slice * p->value_stride, bytes_of(p, p->count), 1);
}

void zoff_traps_weights_note_param(zoff_traps *t, zoff_param param)
{
    const zoff_model_param *p = t ? &t->model->params[param] : NULL;
    for (size_t slice = 0; p && slice < p->slices && is_watched(p); slice++)
        t->left[p->first_flag + slice] = checksum(p, slice);
}

void zoff_traps_weights_note(zoff_traps *t)
{
    for (size_t i = 0; t && i < t->model->param_count; i++)
        zoff_traps_weights_note_param(t, (zoff_param)i);
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
    if (!t || !take_use(&t->traps, &number, &place))
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
