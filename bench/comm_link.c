/* comm_link.c: a link of a given rate, around the transport of zoff/mpi.h. A message waits in a queue until the link has had
 * time for it and for those before it. Then MPI sends it. Messages move only when a rank polls. */
#include "comm_bench.h"

#include <stdlib.h>

typedef struct link_message {
    struct link_message *next; /* in the queue */
    double due;
    int is_waiting, tag;
    unsigned to;
    const void *data;
    size_t bytes;
    void *request; /* MPI's, once the message is sent */
} link_message;

typedef struct link {
    zoff_comm_transport inner;
    double rate, free_at;
    link_message *first, **last;
} link;

/* Send in order: otherwise two messages with one tag would change places. */
static int send_due(link *l)
{
    while (l->first && bench_now() >= l->first->due) {
        link_message *m = l->first;
        if (l->inner.send(l->inner.ctx, m->to, m->tag, m->data, m->bytes, &m->request) < 0)
            return -1;
        m->is_waiting = 0;
        l->first = m->next;
        if (!l->first)
            l->last = &l->first;
    }
    return 0;
}

static int link_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request)
{
    link *l = ctx;
    link_message *m = calloc(1, sizeof *m);
    const double now = bench_now();
    if (!m)
        return -1;
    l->free_at = (l->free_at > now ? l->free_at : now) + (double)bytes / l->rate;
    *m = (link_message){.due = l->free_at, .is_waiting = 1, .tag = tag, .to = to, .data = data, .bytes = bytes};
    *l->last = m;
    l->last = &m->next;
    *out_request = m;
    return send_due(l);
}

static int link_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out_request)
{
    link *l = ctx;
    link_message *m = calloc(1, sizeof *m);
    if (!m)
        return -1;
    *out_request = m;
    return l->inner.receive(l->inner.ctx, from, tag, data, bytes, &m->request);
}

static int link_test(void *ctx, void **request)
{
    link *l = ctx;
    link_message *m = *request;
    if (send_due(l) < 0)
        return -1;
    const int done = m->is_waiting ? 0 : l->inner.test(l->inner.ctx, &m->request);
    if (done == 1) {
        free(m);
        *request = NULL;
    }
    return done;
}

static int link_cancel(void *ctx, void **request)
{
    link *l = ctx;
    link_message *m = *request;
    return l->inner.cancel(l->inner.ctx, &m->request);
}

static const char *link_error(void *ctx)
{
    link *l = ctx;
    return l->inner.error(l->inner.ctx);
}

static void link_close(void *ctx, int clean)
{
    link *l = ctx;
    l->inner.close(l->inner.ctx, clean);
    free(l);
}

int comm_link_open(double bytes_per_second, zoff_comm **out)
{
    link *l = calloc(1, sizeof *l);
    if (!l)
        return -1;
    zoff_mpi_connect(MPI_COMM_WORLD, &l->inner);
    l->rate = bytes_per_second;
    l->last = &l->first;
    zoff_comm_transport limited = l->inner;
    limited.name = "mpi over a limited link";
    limited.ctx = l;
    limited.send = link_send;
    limited.receive = link_receive;
    limited.test = link_test;
    limited.cancel = link_cancel;
    limited.error = link_error;
    limited.close = link_close;
    const int ret = bench_told(zoff_comm_open_transport(NULL, &limited, out));
    if (ret != 0)
        free(l);
    return ret;
}
