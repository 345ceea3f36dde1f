/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c: two ranks that train over a stream socket, by a transport of their own. A message has its tag and its size before
 * it. The program needs no launcher: it forks. See docs/how-to/add-a-part.md. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zoff/zoff.h>

typedef struct {
    int64_t tag, bytes;
} head;
typedef struct request {
    struct request *next;
    char *data;
    size_t bytes, done;
    head h;
    int tag, sends, over;
} request;
typedef struct {
    int socket;
    request *sends, *receives, *held;
    head h;
    size_t h_done;
    request *now;
} wire;

static request *add(request **list, request *r)
{
    while (*list)
        list = &(*list)->next;
    return *list = r;
}
static request *take(request **list, int tag, int any) /* the first request with this tag */
{
    for (; *list; list = &(*list)->next) {
        request *r = *list;
        if (any || r->tag == tag) {
            *list = r->next, r->next = NULL;
            return r;
        }
    }
    return NULL;
}
static int post(void *ctx, int sends, int tag, void *data, size_t bytes, void **out)
{
    wire *w = ctx;
    request *r = calloc(1, sizeof *r), *early;
    if (!r)
        return -1;
    *r = (request){.data = data, .bytes = bytes, .tag = tag, .sends = sends, .h = {tag, (int64_t)bytes}};
    *out = r;
    if (!sends && (early = take(&w->held, tag, 0))) { /* the message came before it was asked for */
        memcpy(data, early->data, early->bytes);
        r->over = 1, free(early->data), free(early);
    } else {
        add(sends ? &w->sends : &w->receives, r);
    }
    return 0;
}
static int begin_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
{
    return to > 1 ? -1 : post(ctx, 1, tag, (void *)(uintptr_t)data, bytes, out);
}
static int begin_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out)
{
    (void)from; /* unused, because there is only one other rank */
    return post(ctx, 0, tag, data, bytes, out);
}
static int some(ssize_t n) /* bytes moved now; -1: the other process is gone */
{
    return n > 0 ? (int)n : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}
static int move(wire *w)
{
    for (request *r; (r = w->sends);) {
        const size_t all = sizeof r->h + r->bytes;
        const char *from = r->done < sizeof r->h ? (char *)&r->h + r->done : r->data + (r->done - sizeof r->h);
        const size_t left = r->done < sizeof r->h ? sizeof r->h - r->done : all - r->done;
        int n = some(send(w->socket, from, left < 1 << 20 ? left : 1 << 20, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (n <= 0)
            return n;
        if ((r->done += (size_t)n) == all)
            take(&w->sends, 0, 1)->over = 1;
    }
    for (;;) {
        if (w->h_done < sizeof w->h) {
            int n = some(recv(w->socket, (char *)&w->h + w->h_done, sizeof w->h - w->h_done, MSG_DONTWAIT));
            if (n <= 0)
                return w->receives ? n : 0; /* only a rank that waits for it misses a peer that has closed */
            w->h_done += (size_t)n;
        }
        if (w->h_done == sizeof w->h && !w->now) {
            w->now = take(&w->receives, (int)w->h.tag, 0);
            if (!w->now && (w->now = calloc(1, sizeof *w->now)))
                w->now->tag = (int)w->h.tag, w->now->data = malloc((size_t)w->h.bytes + 1), w->now->over = -1;
            if (!w->now || !w->now->data)
                return -1;
            w->now->bytes = (size_t)w->h.bytes, w->now->done = 0;
        }
        if (w->now && w->now->done < w->now->bytes) {
            size_t left = w->now->bytes - w->now->done;
            int n = some(recv(w->socket, w->now->data + w->now->done, left < 1 << 20 ? left : 1 << 20, MSG_DONTWAIT));
            if (n <= 0)
                return n;
            w->now->done += (size_t)n;
        }
        if (w->now && w->now->done == w->now->bytes) {
            request *early = w->now->over < 0 ? w->now : NULL, *asked;
            if (!early)
                w->now->over = 1;
            else if ((asked = take(&w->receives, early->tag, 0))) /* the message was asked for while it came */
                memcpy(asked->data, early->data, early->bytes), asked->over = 1, free(early->data), free(early);
            else
                add(&w->held, early);
            w->now = NULL, w->h_done = 0;
        }
    }
}
static int test(void *ctx, void **out)
{
    request *r = *out;
    if (!r->over && move(ctx) < 0)
        return -1;
    if (!r->over)
        return 0;
    free(r);
    *out = NULL;
    return 1;
}
static int cancel(void *ctx, void **out)
{
    wire *w = ctx;
    for (request **at = &w->receives; *at; at = &(*at)->next) {
        if (*at == *out) {
            *at = (*at)->next;
            ((request *)*out)->over = 1;
            break;
        }
    }
    return 0;
}
static const char *failed(void *ctx)
{
    (void)ctx;
    return "the other process has closed its socket";
}
static void shut(void *ctx, int clean)
{
    wire *w = ctx;
    close(w->socket);
    if (clean)
        free(w);
}

static int train(unsigned rank, int socket)
{
    float weight[4] = {0}, grad[4];
    zoff_comm_transport transport = ZOFF_COMM_TRANSPORT_INIT;
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    zoff_param_desc param = {.value = weight, .grad = grad, .count = 4, .name = "w"};
    zoff_engine *engine = NULL;
    wire *w = calloc(1, sizeof *w);
    if (!w)
        return 1;
    w->socket = socket;
    transport.name = "socket pair", transport.ctx = w, transport.rank = rank, transport.size = 2;
    transport.close_seconds = 2;
    transport.send = begin_send, transport.receive = begin_receive, transport.test = test;
    transport.cancel = cancel, transport.error = failed, transport.close = shut;
    zoff_status status = zoff_comm_open_transport(NULL, &transport, &opts.comm);
    status = status < 0 ? status : zoff_engine_open(&opts, &param, 1, &engine);
    for (int i = 0; i < 4; i++)
        grad[i] = rank ? -3.0f : 1.0f;
    status = status < 0 ? status : zoff_step(engine, NULL, NULL);
    if (status < 0)
        fprintf(stderr, "rank %u: %s\n", rank, zoff_last_error());
    else if (rank == 0)
        printf("%s\n", weight[0] > 0 ? "the mean was -1" : "wrong");
    zoff_engine_destroy(engine);
    zoff_comm_close(opts.comm);
    return status < 0;
}

int main(void)
{
    int ends[2], status = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        return 1;
    pid_t child = fork();
    if (child == 0)
        return train(1, ends[1]);
    close(ends[1]);
    int result = train(0, ends[0]);
    return waitpid(child, &status, 0) < 0 || status != 0 || result != 0;
}
