/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c: a transport between ranks that are threads of one process. messages.c builds operations on it, as on that of MPI.
 *
 * Each rank has an inbox, where the other ranks put what they send to it. A header is copied into the inbox, so its send is
 * done at once. A piece stays in the memory of its sender, and its receiver copies it from there within test():
 *
 *      put into the inbox ---- the receiver takes it out, and copies it without a lock ---> over
 *                       `---- the sender cancels it ---> over
 *
 * Each rank copies what it receives, so ranks that exchange pieces copy at the same time. If the second of two ranks copied in
 * both directions, the first one would only wait.
 *
 * The mutex of an inbox guards its lists. It is held for the time of a look at a list, or of a copy of a header, and no thread
 * holds two. All else belongs to one rank, whose calls messages.c makes one at a time. Inboxes exist until the last rank has
 * closed, because others may still send to a rank that has. Such a send is over at once. */
#include "message_queue_priv.h"

#include "mem.h"
#include "try.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* A request of the transport, or a header in an inbox. */
typedef struct message {
    struct message *next;
    bool sends;
    unsigned peer;
    int tag;
    char *data; /* memory of the caller; of a header in an inbox: the memory behind this struct */
    size_t bytes;
    uint64_t seen; /* a receive's view: the value of `arrivals` when it last looked for its message */
    atomic_bool is_over;
} message;

typedef struct list {
    message *first, **end;
} list;

typedef struct inbox {
    struct group *group;
    pthread_mutex_t lock;
    bool is_closed;
    list headers;                  /* headers from all ranks, oldest first */
    list *pieces;                  /* lists of pieces, one per sender */
    message *blank;                /* memory of headers that were read */
    atomic_uint_fast64_t arrivals; /* number of messages put here so far; receives look only after it has changed */
    message *spare;                /* requests that this rank can use again; only its own calls do, so no lock guards them */
} inbox;

typedef struct group {
    unsigned size;
    atomic_uint open; /* ranks that have not closed */
    inbox inboxes[];  /* inbox of each rank */
} group;

/* ---- lists ---- */

static void put(list *l, message *m)
{
    m->next = NULL;
    *l->end = m;
    l->end = &m->next;
}

static message *remove_at(list *l, message **at)
{
    message *m = *at;
    if (m && !(*at = m->next))
        l->end = at;
    return m;
}

/* Remove and return the oldest message with this tag. */
static message *take(list *l, int tag)
{
    message **at = &l->first;
    while (*at && (*at)->tag != tag)
        at = &(*at)->next;
    return remove_at(l, at);
}

static void free_all(message *m)
{
    for (message *next; m; m = next) {
        next = m->next;
        zoff_base_mem_free(m);
    }
}

/* Pop a message, or make one with `bytes` behind it.  @return NULL without memory */
static message *get(message **spares, size_t bytes)
{
    message *m = *spares;
    if (m)
        *spares = m->next;
    else if (zoff_base_mem_alloc(1, sizeof *m + bytes, "a message to another rank", &m) < 0)
        return NULL;
    return m;
}

static void put_by(message **spares, message *m)
{
    m->next = *spares;
    *spares = m;
}

/* ---- the functions of the transport ---- */

static unsigned rank_of(const inbox *own)
{
    return (unsigned)(own - own->group->inboxes);
}

/* Put a header into an inbox, whose lock is held. */
static int put_header(inbox *d, const void *data, size_t bytes)
{
    message *m = get(&d->blank, sizeof(zoff_comm_header));
    if (!m)
        return -1;
    m->data = (char *)(m + 1);
    m->bytes = bytes;
    memcpy(m->data, data, bytes);
    put(&d->headers, m);
    return 0;
}

static int threads_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
{
    inbox *own = ctx, *d = &own->group->inboxes[to];
    int ret = 0;
    message *m = tag == ZOFF_COMM_HEADER_TAG ? NULL : get(&own->spare, 0);
    if (!m && tag != ZOFF_COMM_HEADER_TAG)
        return -1;
    pthread_mutex_lock(&d->lock);
    if (m) {
        *m = (message){.sends = true, .peer = to, .tag = tag, .data = (char *)(uintptr_t)data, .bytes = bytes};
        atomic_init(&m->is_over, d->is_closed);
        if (!d->is_closed)
            put(&d->pieces[rank_of(own)], m);
    } else if (!d->is_closed) {
        ret = put_header(d, data, bytes);
    }
    atomic_fetch_add_explicit(&d->arrivals, 1, memory_order_release);
    pthread_mutex_unlock(&d->lock);
    *out = m;
    return ret;
}

static int threads_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out)
{
    inbox *own = ctx;
    message *m = get(&own->spare, 0);
    if (!m)
        return -1;
    *m = (message){.peer = from, .tag = tag, .data = data, .bytes = bytes, .seen = UINT64_MAX};
    *out = m;
    return 0;
}

/* Look in the inbox for the message of a receive, and copy it. messages.c tests the oldest receive of a tag first, so messages
 * are received in the order in which they were sent. */
static void read_inbox(inbox *own, message *m)
{
    const uint64_t arrivals = atomic_load_explicit(&own->arrivals, memory_order_acquire);
    const bool is_header = m->tag == ZOFF_COMM_HEADER_TAG;
    if (m->seen == arrivals)
        return;
    m->seen = arrivals;
    pthread_mutex_lock(&own->lock);
    message *sent = take(is_header ? &own->headers : &own->pieces[m->peer], m->tag);
    if (sent && is_header) {
        memcpy(m->data, sent->data, sent->bytes);
        put_by(&own->blank, sent);
    }
    pthread_mutex_unlock(&own->lock);
    if (!sent)
        return;
    atomic_store_explicit(&m->is_over, true, memory_order_relaxed);
    if (is_header)
        return;
    memcpy(m->data, sent->data, sent->bytes);
    atomic_store_explicit(&sent->is_over, true, memory_order_release); /* the message belongs to the sender from here on */
}

static int threads_test(void *ctx, void **request)
{
    inbox *own = ctx;
    message *m = *request;
    if (!m)
        return 1; /* a header that was sent */
    if (!m->sends && !atomic_load_explicit(&m->is_over, memory_order_relaxed))
        read_inbox(own, m);
    if (!atomic_load_explicit(&m->is_over, memory_order_acquire))
        return 0;
    put_by(&own->spare, m);
    *request = NULL;
    return 1;
}

/* A receive ends at once, because only its own rank copies for it. A send that is not in the inbox any more is over, or will be
 * when the receiver has copied it. */
static int threads_cancel(void *ctx, void **request)
{
    inbox *own = ctx;
    message *m = *request;
    if (!m || !m->sends) {
        if (m)
            atomic_store_explicit(&m->is_over, true, memory_order_relaxed);
        return 0;
    }
    inbox *d = &own->group->inboxes[m->peer];
    list *l = &d->pieces[rank_of(own)];
    pthread_mutex_lock(&d->lock);
    message **at = &l->first;
    while (*at && *at != m)
        at = &(*at)->next;
    if (remove_at(l, at))
        atomic_store_explicit(&m->is_over, true, memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* ---- life ---- */

static void free_group(group *o, unsigned size)
{
    for (unsigned rank = 0; rank < size; rank++) {
        pthread_mutex_destroy(&o->inboxes[rank].lock);
        zoff_base_mem_free(o->inboxes[rank].pieces);
    }
    zoff_base_mem_free(o);
}

static void threads_close(void *ctx, int clean)
{
    inbox *own = ctx;
    group *o = own->group;
    pthread_mutex_lock(&own->lock);
    own->is_closed = true;
    free_all(own->headers.first);
    free_all(own->blank);
    for (unsigned rank = 0; rank < o->size; rank++) {
        for (message *m; (m = remove_at(&own->pieces[rank], &own->pieces[rank].first));)
            atomic_store_explicit(&m->is_over, true, memory_order_release);
    }
    pthread_mutex_unlock(&own->lock);
    free_all(own->spare);
    if (atomic_fetch_sub(&o->open, 1) == 1)
        free_group(o, o->size);
}

static zoff_status make_group(unsigned size, group **out)
{
    group *o;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *o + size * sizeof *o->inboxes, "the ranks of this process", &o));
    for (unsigned rank = 0; rank < size; rank++) {
        inbox *d = &o->inboxes[rank];
        const zoff_status status = zoff_base_mem_alloc(size, sizeof *d->pieces, "the ranks of this process", &d->pieces);
        if (status < 0) {
            free_group(o, rank);
            return status;
        }
        pthread_mutex_init(&d->lock, NULL); /* this cannot fail, because the attributes are the default ones */
        d->group = o;
        d->headers.end = &d->headers.first;
        for (unsigned from = 0; from < size; from++)
            d->pieces[from].end = &d->pieces[from].first;
    }
    o->size = size;
    atomic_init(&o->open, size);
    *out = o;
    return ZOFF_OK;
}

static zoff_status open_rank(const zoff_comm_opts *opts, const char *name, group *o, unsigned rank, zoff_comm **out)
{
    const zoff_comm_transport t = {.struct_size = sizeof t,
                                   .name = name,
                                   .ctx = &o->inboxes[rank],
                                   .rank = rank,
                                   .size = o->size,
                                   .send = threads_send,
                                   .receive = threads_receive,
                                   .test = threads_test,
                                   .cancel = threads_cancel,
                                   .close = threads_close,
                                   .any_thread = 1};
    return zoff_comm_messages_open(opts, &t, true, out);
}

zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, const char *name, unsigned size, zoff_comm **out)
{
    zoff_status status;
    group *o;
    zoff_comm *made[1024];
    unsigned count = 0;
    ZOFF_TRY(make_group(size, &o));
    for (; count < size; count++)
        ZOFF_TRY_OR(undo, open_rank(opts, name, o, count, &made[count]));
    memcpy(out, made, size * sizeof *out);
    return ZOFF_OK;
undo:
    for (unsigned rank = size; rank-- > count;)
        threads_close(&o->inboxes[rank], 1);
    while (count-- > 0) {
        struct zoff_comm_book *book = made[count]->book; /* closing the communicator still reads its book */
        made[count]->ops->close(made[count]);
        zoff_comm_forget(book);
    }
    return status;
}
