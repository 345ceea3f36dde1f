/* SPDX-License-Identifier: Apache-2.0 */
/* book.c: makes and frees the book of a communicator, takes its lock, and finds open channels by id. */
#include "book_priv.h"

#include "mem.h"
#include "try.h"

#include <errno.h>

zoff_status zoff_comm_prepare(zoff_comm *comm)
{
    zoff_comm_book *b;
    pthread_mutexattr_t kind;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *b, "a communicator", &b));
    const zoff_status status = zoff_base_mem_alloc(comm->size, sizeof *b->theirs, "a communicator", &b->theirs);
    if (status < 0) {
        zoff_base_mem_free(b);
        return status;
    }
    /* The lock is robust: a thread may end inside of a call, as the ranks of some tests do, and others must still get the lock.
     */
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&b->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    b->slots = 1; /* slot 0 belongs to the common channel */
    comm->book = b;
    comm->common.is_open = true;
    return ZOFF_OK;
}

void zoff_comm_forget(zoff_comm_book *b)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->lock);
    zoff_base_mem_free(b->theirs);
    zoff_base_mem_free(b);
}

void zoff_comm_lock(zoff_comm *comm)
{
    if (pthread_mutex_lock(&comm->book->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&comm->book->lock);
}

void zoff_comm_unlock(zoff_comm *comm)
{
    pthread_mutex_unlock(&comm->book->lock);
}

/* A linear search: few channels are open. */
const zoff_comm_channel *zoff_comm_channel_find(const zoff_comm *comm, uint32_t id)
{
    const zoff_comm_channel *c = id ? comm->book->open : &comm->common;
    while (c && c->id != id)
        c = c->next;
    return c;
}
