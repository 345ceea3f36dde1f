/* process.c: distinguish a process from its children by fork(): a queue belongs to the process that opened it. A handler counts
 * forks, because asking the kernel at each call would cost a system call. A child made by clone() itself is not noticed. */
#include "queue_priv.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    pthread_once_t once;
    atomic_uint count; /* forks between the first process and this one */
} forks = {.once = PTHREAD_ONCE_INIT};

static void count_fork(void)
{
    atomic_fetch_add(&forks.count, 1);
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

unsigned zoff_aio_process_number(void)
{
    pthread_once(&forks.once, watch);
    return atomic_load_explicit(&forks.count, memory_order_relaxed);
}
