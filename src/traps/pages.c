/* pages.c: pages that are inaccessible for a while, and the handler of SIGSEGV.
 *
 * The first use of such a page is remembered, and its trap is lifted, so that the program goes on. The engine reports the use
 * at the end of the step. A fault at any other address goes to the handler that was there before. */
#include "traps.h"

#include "try.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { LISTS = 64 };

/* Data of the handler, which may run at any moment, on any thread, so it reads nothing else. */
static struct {
    zoff_trap_list *lists[LISTS];
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
static bool spring(zoff_trap_list *traps, uintptr_t address, uintptr_t place)
{
    for (size_t i = 0; i < traps->count; i++) {
        zoff_trap *trap = &traps->list[i];
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
        zoff_trap_list *traps = __atomic_load_n(&handler.lists[i], __ATOMIC_SEQ_CST);
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

zoff_status zoff_traps_pages_register(zoff_trap_list *traps)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (!__atomic_exchange_n(&handler.is_installed, true, __ATOMIC_SEQ_CST))
        (void)sigaction(SIGSEGV, &action, &handler.before);
    for (size_t i = 0; i < LISTS; i++) {
        zoff_trap_list *none = NULL;
        if (__atomic_compare_exchange_n(&handler.lists[i], &none, traps, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return ZOFF_OK;
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                 "zoff.check_use is true in more than %d engines of this process: set it to "
                                 "false in some of them",
                                 LISTS);
}

void zoff_traps_pages_unregister(zoff_trap_list *traps)
{
    for (size_t i = 0; i < LISTS; i++) {
        zoff_trap_list *own = traps;
        (void)__atomic_compare_exchange_n(&handler.lists[i], &own, NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
}

void zoff_traps_pages_set(zoff_trap *trap)
{
    if (trap->from == trap->to)
        return;
    __atomic_store_n(&trap->was_set, true, __ATOMIC_SEQ_CST);
    __atomic_store_n(&trap->is_set, true, __ATOMIC_SEQ_CST);
    if (mprotect((void *)trap->from, trap->to - trap->from, PROT_NONE) != 0)
        zoff_traps_pages_lift(trap);
}

/* Lift a trap, even one that the handler has lifted, because the engine may have left the pages at the same moment. */
void zoff_traps_pages_lift(zoff_trap *trap)
{
    __atomic_store_n(&trap->is_set, false, __ATOMIC_SEQ_CST);
    if (trap->was_set)
        (void)mprotect((void *)trap->from, trap->to - trap->from, PROT_READ | PROT_WRITE);
    __atomic_store_n(&trap->was_set, false, __ATOMIC_SEQ_CST);
}

static void protect(const zoff_trap *trap, uintptr_t first, size_t bytes, int how)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = first / page * page, to = (first + bytes + page - 1) / page * page;
    from = from < trap->from ? trap->from : from;
    to = to > trap->to ? trap->to : to;
    if (from < to && __atomic_load_n(&trap->is_set, __ATOMIC_SEQ_CST))
        (void)mprotect((void *)from, to - from, how);
}

void zoff_traps_pages_enter(const zoff_trap *trap, uintptr_t first, size_t bytes)
{
    protect(trap, first, bytes, PROT_READ | PROT_WRITE);
}

/* Forbid the pages again, unless the handler has lifted the trap meanwhile. */
void zoff_traps_pages_leave(const zoff_trap *trap, uintptr_t first, size_t bytes)
{
    protect(trap, first, bytes, PROT_NONE);
    if (trap->from != trap->to && trap->was_set && !__atomic_load_n(&trap->is_set, __ATOMIC_SEQ_CST))
        (void)mprotect((void *)trap->from, trap->to - trap->from, PROT_READ | PROT_WRITE);
}

bool zoff_traps_pages_take(zoff_trap_list *traps, size_t *out_index, uintptr_t *out_place)
{
    *out_place = __atomic_load_n(&traps->place, __ATOMIC_SEQ_CST);
    *out_index = __atomic_load_n(&traps->used_index, __ATOMIC_SEQ_CST);
    __atomic_store_n(&traps->place, 0, __ATOMIC_SEQ_CST);
    return *out_place != 0;
}
