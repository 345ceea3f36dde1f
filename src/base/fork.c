/* SPDX-License-Identifier: Apache-2.0 */
/* fork.c: a list of descriptors that children must close, and a count of forks. Handlers of pthread_atfork() maintain both. A
 * process made by clone() runs no handlers and is not noticed; exec closes the descriptors by O_CLOEXEC. */
#include "fork.h"

#include "mem.h"
#include "try.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct zoff_fork_guard {
    int fd; /* descriptor; -1 once it is closed in a child */
    zoff_fork_guard *next, **at;
};

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* guards the list; held during a fork, so that the child finds the list complete */
    zoff_fork_guard *first;
    atomic_uint count;
} forks = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&forks.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&forks.lock);
}

static void in_child(void)
{
    for (zoff_fork_guard *g = forks.first; g; g = g->next) {
        if (g->fd >= 0)
            close(g->fd);
        g->fd = -1;
    }
    atomic_fetch_add(&forks.count, 1);
    after_fork();
}

static void watch(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

unsigned zoff_base_fork_number(void)
{
    pthread_once(&forks.once, watch);
    return atomic_load_explicit(&forks.count, memory_order_relaxed);
}

zoff_status zoff_base_fork_guard(int fd, zoff_fork_guard **out)
{
    zoff_fork_guard *g;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *g, "the guard of a lock", &g));
    pthread_once(&forks.once, watch);
    pthread_mutex_lock(&forks.lock);
    *g = (zoff_fork_guard){.fd = fd, .next = forks.first, .at = &forks.first};
    if (g->next)
        g->next->at = &g->next;
    forks.first = g;
    pthread_mutex_unlock(&forks.lock);
    *out = g;
    return ZOFF_OK;
}

int zoff_base_fork_descriptor(const zoff_fork_guard *g)
{
    return g->fd;
}

void zoff_base_fork_close(zoff_fork_guard *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&forks.lock);
    *g->at = g->next;
    if (g->next)
        g->next->at = g->at;
    if (g->fd >= 0)
        close(g->fd);
    pthread_mutex_unlock(&forks.lock);
    zoff_base_mem_free(g);
}
