/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c: the one loop that waits. */
#include "progress.h"

#include "clock.h"

#include <sched.h>

void zoff_base_progress_add(zoff_progress *p, zoff_poller *poller)
{
    zoff_poller **end = &p->first;
    while (*end)
        end = &(*end)->next;
    *end = poller;
    poller->next = NULL;
    poller->stood = 0;
    poller->is_overdue = false;
    poller->fault = ZOFF_OK;
}

void zoff_base_progress_remove(zoff_progress *p, zoff_poller *poller)
{
    zoff_poller **at = &p->first;
    while (*at && *at != poller)
        at = &(*at)->next;
    if (*at)
        *at = poller->next;
}

void zoff_base_progress_keep(zoff_poller *poller, zoff_status status)
{
    if (status >= 0 || poller->fault < 0)
        return;
    poller->fault = status;
    zoff_base_status_save(&poller->words);
}

void zoff_base_progress_forget(zoff_poller *poller)
{
    poller->fault = ZOFF_OK;
}

zoff_status zoff_base_progress_take(zoff_poller *poller)
{
    const zoff_status status = poller->fault;
    if (status < 0)
        zoff_base_status_restore(&poller->words);
    zoff_base_progress_forget(poller);
    return status;
}

void zoff_base_progress_pump(zoff_progress *p)
{
    for (zoff_poller *poller = p->first; poller; poller = poller->next)
        zoff_base_progress_keep(poller, poller->pump ? poller->pump(poller->ctx) : ZOFF_OK);
}

void zoff_base_progress_moved(zoff_progress *p)
{
    p->moved = true;
}

static bool is_poller_busy(const zoff_poller *poller)
{
    return !poller->is_busy || poller->is_busy(poller->ctx);
}

/* A poller that cannot park makes no progress while the thread is parked with another one. */
static zoff_poller *choose(const zoff_progress *p)
{
    zoff_poller *first = NULL;
    for (zoff_poller *poller = p->first; poller; poller = poller->next) {
        if (!is_poller_busy(poller))
            continue;
        if (!poller->park)
            return poller;
        first = first ? first : poller;
    }
    return first;
}

static void restart(zoff_progress *p)
{
    for (zoff_poller *poller = p->first; poller; poller = poller->next) {
        poller->stood = 0;
        poller->is_overdue = false;
    }
}

/* Yield first, because other ranks or threads may need this CPU to make progress. */
static void pause_number(unsigned idle)
{
    enum { YIELDS = 200 };
    if (idle < YIELDS)
        sched_yield();
    else
        zoff_base_clock_nap(idle - YIELDS);
}

/* Count pauses, not wall time, because a thread that computes or is stopped by a debugger does not wait. */
static zoff_status count_pause(zoff_progress *p, const zoff_poller *on, double seconds)
{
    for (zoff_poller *poller = p->first; poller; poller = poller->next) {
        if (poller->timeout_seconds < 0 || !(poller == on || is_poller_busy(poller)))
            continue;
        poller->stood += seconds;
        poller->is_overdue = poller->stood > poller->timeout_seconds;
        if (poller->is_overdue)
            return poller->overdue(poller->ctx, poller->timeout_seconds);
    }
    return ZOFF_OK;
}

static zoff_status let_time_pass(zoff_progress *p, zoff_poller *on, const char *name, unsigned idle)
{
    on = on && (!on->park || is_poller_busy(on)) ? on : choose(p);
    /* Without work in flight the loop would never end. */
    ZOFF_FAIL_IF(!on, ZOFF_ERR_STATE,
                 "%s() waits while nothing is under way; this is a defect of the library, please report it", name);
    const double from = zoff_base_clock_seconds();
    if (on->park)
        zoff_base_progress_keep(on, on->park(on->ctx));
    else
        pause_number(idle);
    const double seconds = zoff_base_clock_seconds() - from;
    if (on->waited)
        *on->waited += seconds;
    if (!on->park)
        ZOFF_TRY(count_pause(p, on, seconds));
    zoff_base_progress_pump(p);
    return zoff_base_progress_take(on);
}

/* A wait that reports movement where nothing moves would never end, and no deadline would notice. */
static zoff_status wait(zoff_progress *p, zoff_poller *on, zoff_status (*until)(void *ctx), const char *name, void *ctx)
{
    const uint64_t most = p->most ? p->most : 1000000;
    unsigned idle = 0;
    for (uint64_t moves = 0;;) {
        p->moved = false;
        const zoff_status status = until(ctx);
        if (status != ZOFF_PENDING)
            return status;
        if (p->moved) {
            restart(p);
            idle = 0;
            ZOFF_FAIL_IF(++moves > most, ZOFF_ERR_STATE,
                         "%s() has reported progress more than %llu times and does not end; this is a defect of the library, "
                         "please report it",
                         name, (unsigned long long)most);
        } else {
            ZOFF_TRY(let_time_pass(p, on, name, idle++));
        }
    }
}

zoff_status zoff_base_progress_wait_named(zoff_progress *p, zoff_poller *on, zoff_status (*until)(void *ctx), const char *name,
                                          void *ctx)
{
    if (p->depth++ == 0)
        restart(p);
    const zoff_status status = wait(p, on, until, name, ctx);
    p->depth--;
    return status;
}
