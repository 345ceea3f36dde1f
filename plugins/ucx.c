/* SPDX-License-Identifier: Apache-2.0 */
/* ucx.c: libzoff_ucx.so, the communicator "ucx": ranks that know only their numbers and the address of rank 0, as torchrun
 * starts them. UCX moves the messages over shared memory, InfiniBand or TCP.
 *
 * Meeting: rank 0 listens. Each other rank connects to it over TCP, tells who it is and where its worker is, and waits. When
 * all have come, rank 0 answers each with the addresses of all workers. Ranks of another job, or with another version of zoff
 * or UCX, get the reason. Nobody waits longer than the deadline.
 *
 * Endpoints have no error handling of UCX's own, with which UCX 1.13 uses no shared memory, and an assertion of it has ended
 * survivors (docs/adr/0066-ucx.md). Without it a lost rank is told by TCP, or by zoff's deadline. */
#include <ucp/api/ucp.h>

#include <zoff/plugin.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const zoff_plugin_host *zoff;

static zoff_status fail(zoff_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static zoff_status fail(zoff_status status, const char *format, ...)
{
    char words[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return zoff->fail(status, words);
}

enum { NOBODY = -1, ADDRESS_MOST = 64 << 10, WORDS = 512 };

/* ---- the transport ---- */

typedef struct peer {
    char *address;   /* of its worker; NULL once there is an endpoint, and for this rank */
    ucp_ep_h ep;     /* NULL: nothing was sent to it */
    ucs_status_t is; /* UCS_OK, or how the connection was lost */
} peer;

typedef struct network {
    unsigned rank, size;
    ucp_context_h context;
    ucp_worker_h worker;
    peer *peers;
    char words[WORDS];
} network;

/* UCX reserves this memory in each of its requests. */
typedef struct note {
    int peer; /* rank that it is to, or from; NOBODY: from any */
    bool receives;
} note;

static char done; /* the request of a message that was done when it began */

static int complain(network *n, note about, ucs_status_t status)
{
    const char *what = about.receives ? "receiving from" : "sending to", *why = ucs_status_string(status);
    if (about.peer == NOBODY)
        snprintf(n->words, sizeof n->words, "receiving: %s", why);
    else
        snprintf(n->words, sizeof n->words, "%s rank %d: %s", what, about.peer, why);
    return -1;
}

static void lose(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ((peer *)arg)->is = status;
}

static int reach(network *n, unsigned rank)
{
    peer *p = &n->peers[rank];
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = (const ucp_address_t *)p->address,
                                    .err_handler = {lose, p}};
    if (p->ep)
        return 0;
    const ucs_status_t status = ucp_ep_create(n->worker, &params, &p->ep);
    if (status != UCS_OK)
        return complain(n, (note){.peer = (int)rank}, status);
    free(p->address);
    p->address = NULL;
    return 0;
}

static uint64_t tag_of(unsigned from, int tag)
{
    return (uint64_t)from << 32 | (uint32_t)tag;
}

static int take(network *n, ucs_status_ptr_t request, note about, void **out)
{
    if (UCS_PTR_IS_ERR(request))
        return complain(n, about, UCS_PTR_STATUS(request));
    if (request)
        *(note *)request = about;
    *out = request ? request : &done;
    return 0;
}

static int send_to(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
{
    network *n = ctx;
    const ucp_request_param_t params = {.op_attr_mask = 0};
    if (reach(n, to) < 0)
        return -1;
    return take(n, ucp_tag_send_nbx(n->peers[to].ep, data, bytes, tag_of(n->rank, tag), &params), (note){.peer = (int)to}, out);
}

static int receive_from(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out)
{
    network *n = ctx;
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    const bool any = from == ZOFF_COMM_ANY_RANK;
    const uint64_t mask = any ? UINT32_MAX : UINT64_MAX;
    return take(n, ucp_tag_recv_nbx(n->worker, data, bytes, tag_of(any ? 0 : from, tag), mask, &params),
                (note){.peer = any ? NOBODY : (int)from, .receives = true}, out);
}

static int test(void *ctx, void **request)
{
    network *n = ctx;
    if (*request == &done)
        return 1;
    (void)ucp_worker_progress(n->worker);
    const ucs_status_t status = ucp_request_check_status(*request);
    const note about = *(note *)*request;
    if (status == UCS_INPROGRESS) {
        const ucs_status_t lost = about.peer == NOBODY ? UCS_OK : n->peers[about.peer].is;
        return lost == UCS_OK ? 0 : complain(n, about, lost);
    }
    ucp_request_free(*request);
    *request = &done;
    return status == UCS_OK || status == UCS_ERR_CANCELED ? 1 : complain(n, about, status);
}

static int cancel(void *ctx, void **request)
{
    network *n = ctx;
    if (*request != &done)
        ucp_request_cancel(n->worker, *request);
    return 0;
}

static const char *error_of(void *ctx)
{
    return ((network *)ctx)->words;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Close the endpoints: messages that this rank has sent leave before. All at once, as each waits for its peer. */
static void close_endpoints(network *n)
{
    enum { LONGEST = 2 /* seconds */ };
    const double until = now() + LONGEST;
    const ucp_request_param_t params = {.op_attr_mask = 0};
    ucs_status_ptr_t *closing = calloc(n->size, sizeof *closing);
    for (unsigned i = 0; closing && i < n->size; i++)
        closing[i] = n->peers[i].ep ? ucp_ep_close_nbx(n->peers[i].ep, &params) : NULL;
    for (unsigned i = 0; closing && i < n->size; i++) {
        if (!UCS_PTR_IS_PTR(closing[i]))
            continue;
        while (ucp_request_check_status(closing[i]) == UCS_INPROGRESS && now() < until)
            (void)ucp_worker_progress(n->worker);
        ucp_request_free(closing[i]);
    }
    free(closing);
}

/* Where messages may still be in flight, the worker stays: UCX has no way to end them that is safe for both sides. */
static void close_network(void *ctx, int clean)
{
    network *n = ctx;
    if (!clean)
        return;
    if (n->worker)
        close_endpoints(n);
    for (unsigned i = 0; n->peers && i < n->size; i++)
        free(n->peers[i].address);
    if (n->worker)
        ucp_worker_destroy(n->worker);
    if (n->context)
        ucp_cleanup(n->context);
    free(n->peers);
    free(n);
}

/* ---- the meeting ---- */

/* Sent by each rank, in its byte order; the address of its worker follows. */
typedef struct hello {
    char magic[8];
    uint32_t order, zoff_version, ucx_version;
    uint32_t rank, size, bytes; /* bytes of the address */
    char job[32];               /* the launcher's name of the job */
} hello;

/* Rank 0's answer: follows either, for each rank, the bytes of its address (uint32_t) and the address; or a text. */
typedef struct answer {
    uint32_t is_refused, bytes;
} answer;

static const char MAGIC[8] = "zoffucx";
enum { ORDER = 0x01020304, NAP_MS = 50, GUESTS = 64, PATIENCE_SECONDS = 10 };

/* Whether an address of so many bytes is accepted. */
static bool is_address(uint32_t bytes)
{
    return bytes > 0 && bytes <= ADDRESS_MOST;
}

/* A connection, at the place of its rank once that is known. */
typedef struct guest {
    int fd; /* -1: none */
    hello hello;
    char *address;
    size_t have;  /* bytes that have come of both */
    double since; /* when it came */
} guest;

typedef struct meeting {
    const network *n;
    hello own;
    const char *host, *port;
    double until, seconds; /* HUGE_VAL and negative: no deadline */
    char reason[WORDS];    /* last reason why it has not begun */
} meeting;

/* Wait for one of the descriptors, at most a moment.  @return false: the deadline has passed */
static bool wait_for(const meeting *m, struct pollfd *fds, nfds_t count)
{
    (void)poll(fds, count, NAP_MS);
    return now() < m->until;
}

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Send or receive all bytes.  @return whether the other side and the deadline allowed it */
static bool move(const meeting *m, int fd, void *data, size_t bytes, bool sends)
{
    struct pollfd one = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
    for (size_t at = 0; at < bytes;) {
        const ssize_t got =
            sends ? send(fd, (char *)data + at, bytes - at, MSG_NOSIGNAL) : recv(fd, (char *)data + at, bytes - at, 0);
        if (got > 0)
            at += (size_t)got;
        else if (got == 0 || !would_wait() || !wait_for(m, &one, 1))
            return false;
    }
    return true;
}

static bool is_quick(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* ---- rank 0 ---- */

/* Listen at the port, on all addresses of this host. Another job may use it a little longer. */
static int listen_once(meeting *m)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    const int yes = 1, no = 0, error = getaddrinfo(NULL, m->port, &want, &list);
    int fd = -1;
    snprintf(m->reason, sizeof m->reason, "%s", error ? gai_strerror(error) : "no address");
    for (int pass = 0; pass < 2 && fd < 0; pass++) {
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if ((a->ai_family == AF_INET6) != (pass == 0)) /* one socket of IPv6 takes both kinds */
                continue;
            fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
            if (fd < 0)
                continue;
            (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            if (pass == 0)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
            if (is_quick(fd) && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
                continue;
            snprintf(m->reason, sizeof m->reason, "%s", strerror(errno));
            close(fd);
            fd = -1;
        }
    }
    if (list)
        freeaddrinfo(list);
    return fd;
}

static void leave(guest *g)
{
    if (g->fd >= 0)
        close(g->fd);
    free(g->address);
    *g = (guest){.fd = -1};
}

/* Whether a guest is still there. One that has ended may come again. */
static bool is_here(guest *g)
{
    char byte;
    const ssize_t got = g->fd >= 0 ? recv(g->fd, &byte, 1, MSG_PEEK) : 0;
    if (g->fd >= 0 && (got == 0 || (got < 0 && !would_wait())))
        leave(g);
    return g->fd >= 0;
}

static void refuse(const meeting *m, guest *g, const char *words)
{
    answer head = {.is_refused = 1, .bytes = (uint32_t)strlen(words)};
    if (move(m, g->fd, &head, sizeof head, true))
        (void)move(m, g->fd, (void *)(uintptr_t)words, head.bytes, true);
    leave(g);
}

/* Whether a rank may join; otherwise it is told why not, unless it is no rank of zoff. */
static bool is_welcome(const meeting *m, guest *all, guest *g)
{
    const hello *h = &g->hello, *own = &m->own;
    char words[WORDS] = "";
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->order != ORDER || !is_address(h->bytes) || h->job[sizeof h->job - 1]) {
        leave(g);
        return false;
    }
    if (strcmp(h->job, own->job) != 0 || h->size != own->size)
        snprintf(words, sizeof words, "job: this is the job \"%s\" of %u ranks", own->job, own->size);
    else if (h->zoff_version != own->zoff_version || h->ucx_version != own->ucx_version)
        snprintf(words, sizeof words, "version: rank 0 has zoff %u.%u.%u and UCX %u.%u", own->zoff_version / 10000,
                 own->zoff_version / 100 % 100, own->zoff_version % 100, own->ucx_version >> 16, own->ucx_version & 65535);
    else if (h->rank == 0 || h->rank >= own->size)
        snprintf(words, sizeof words, "rank: rank %u cannot join rank 0 of %u", h->rank, own->size);
    else if (is_here(&all[h->rank]))
        snprintf(words, sizeof words, "rank: rank %u has come already: two processes have the same number", h->rank);
    if (words[0])
        refuse(m, g, words);
    return !words[0];
}

/* Read what has come.  @return 1: all of it; 0: not yet; -1: the guest has gone */
static int listen_to(guest *g)
{
    while (g->have < sizeof g->hello || g->have < sizeof g->hello + g->hello.bytes) {
        const bool is_head = g->have < sizeof g->hello;
        char *to = is_head ? (char *)&g->hello + g->have : g->address + (g->have - sizeof g->hello);
        const size_t left = is_head ? sizeof g->hello - g->have : sizeof g->hello + g->hello.bytes - g->have;
        const ssize_t got = recv(g->fd, to, left, 0);
        if (got <= 0)
            return got < 0 && would_wait() ? 0 : -1;
        g->have += (size_t)got;
        if (g->have != sizeof g->hello)
            continue;
        if (!is_address(g->hello.bytes)) /* is_welcome() says no */
            return 1;
        free(g->address);
        g->address = malloc(g->hello.bytes);
        if (!g->address)
            return -1;
    }
    return 1;
}

/* Take in who has come to the door, and who of those inside has gone.  @return number of ranks that are here, with this one */
static unsigned look_around(const meeting *m, int door, guest *all, guest *guests)
{
    unsigned here = 1;
    for (int fd; (fd = accept(door, NULL, NULL)) >= 0;) {
        guest *free_one = NULL;
        for (unsigned i = 0; i < GUESTS && !free_one; i++)
            free_one = guests[i].fd >= 0 ? NULL : &guests[i];
        if (free_one && is_quick(fd))
            *free_one = (guest){.fd = fd, .since = now()};
        else
            close(fd);
    }
    for (unsigned i = 0; i < GUESTS; i++) {
        guest *g = &guests[i];
        const int came = g->fd >= 0 ? listen_to(g) : 0;
        if (came < 0 || (came == 0 && g->fd >= 0 && now() > g->since + PATIENCE_SECONDS))
            leave(g);
        if (came <= 0 || !is_welcome(m, all, g))
            continue;
        all[g->hello.rank] = *g;
        *g = (guest){.fd = -1};
    }
    for (unsigned rank = 1; rank < m->own.size; rank++)
        here += is_here(&all[rank]);
    return here;
}

static zoff_status tell_missing(const meeting *m, const guest *all, unsigned here)
{
    char list[WORDS] = "";
    size_t used = 0;
    for (unsigned rank = 1; rank < m->own.size && used < sizeof list - 32; rank++) {
        if (all[rank].fd < 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", rank);
    }
    return fail(
        ZOFF_ERR_COMM,
        "communicator \"ucx\": rank 0 has waited for %g s at port %s: %u of %u ranks did not come: %s. All ranks must be "
        "started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and must be able to reach that port",
        m->seconds, m->port, m->own.size - here, m->own.size, list);
}

static zoff_status tell_addresses(const meeting *m, guest *all, char *own_address)
{
    size_t bytes = 0;
    for (unsigned rank = 0; rank < m->own.size; rank++)
        bytes += sizeof(uint32_t) + (rank ? all[rank].hello.bytes : m->own.bytes);
    char *list = malloc(bytes + 1), *at = list;
    if (!list)
        return fail(ZOFF_ERR_NO_MEMORY, "communicator \"ucx\": no memory for the addresses of %u ranks", m->own.size);
    for (unsigned rank = 0; rank < m->own.size; rank++) {
        const uint32_t count = rank ? all[rank].hello.bytes : m->own.bytes;
        memcpy(at, &count, sizeof count);
        memcpy(at + sizeof count, rank ? all[rank].address : own_address, count);
        at += sizeof count + count;
    }
    zoff_status status = ZOFF_OK;
    answer head = {.bytes = (uint32_t)bytes};
    for (unsigned rank = 1; rank < m->own.size && status == ZOFF_OK; rank++) {
        if (!move(m, all[rank].fd, &head, sizeof head, true) || !move(m, all[rank].fd, list, bytes, true))
            status = fail(ZOFF_ERR_COMM, "communicator \"ucx\": rank %u has gone while the ranks met", rank);
    }
    free(list);
    return status;
}

static zoff_status receive_all(meeting *m, network *n, char *own_address)
{
    guest *all = calloc(n->size + GUESTS, sizeof *all);
    zoff_status status = ZOFF_OK;
    unsigned here = 1;
    int door = -1;
    if (!all)
        return fail(ZOFF_ERR_NO_MEMORY, "communicator \"ucx\": no memory for %u ranks", n->size);
    for (unsigned i = 0; i < n->size + GUESTS; i++)
        all[i].fd = -1;
    while (door < 0 && (door = listen_once(m)) < 0 && wait_for(m, NULL, 0))
        ;
    if (door < 0)
        status = fail(ZOFF_ERR_COMM,
                      "communicator \"ucx\": rank 0 cannot listen at port %s (%s): another job may use it. Give each job a "
                      "MASTER_PORT of its own",
                      m->port, m->reason);
    struct pollfd one = {.fd = door, .events = POLLIN};
    while (status == ZOFF_OK && (here = look_around(m, door, all, all + n->size)) < n->size) {
        if (!wait_for(m, &one, 1))
            status = tell_missing(m, all, here);
    }
    if (status == ZOFF_OK)
        status = tell_addresses(m, all, own_address);
    for (unsigned rank = 1; rank < n->size && status == ZOFF_OK; rank++) {
        n->peers[rank].address = all[rank].address;
        all[rank].address = NULL;
    }
    for (unsigned i = 0; i < n->size + GUESTS; i++)
        leave(&all[i]);
    if (door >= 0)
        close(door);
    free(all);
    return status;
}

/* ---- the other ranks ---- */

static int connect_once(meeting *m)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(m->host, m->port, &want, &list), fd = -1;
    socklen_t room = sizeof error;
    if (error)
        snprintf(m->reason, sizeof m->reason, "%s", gai_strerror(error));
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd < 0)
            continue;
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        error = is_quick(fd) && connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        while (error == EINPROGRESS && wait_for(m, &one, 1)) {
            if (one.revents && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &room) != 0)
                error = errno;
        }
        if (!error)
            continue;
        snprintf(m->reason, sizeof m->reason, "%s", strerror(error));
        close(fd);
        fd = -1;
    }
    if (list)
        freeaddrinfo(list);
    return fd;
}

/* Read the addresses of all workers. */
static bool read_addresses(network *n, const char *list, size_t bytes)
{
    size_t at = 0;
    for (unsigned rank = 0; rank < n->size; rank++) {
        uint32_t count;
        if (bytes - at < sizeof count)
            return false;
        memcpy(&count, list + at, sizeof count);
        at += sizeof count;
        if (!is_address(count) || count > bytes - at)
            return false;
        n->peers[rank].address = rank == n->rank ? NULL : malloc(count);
        if (n->peers[rank].address)
            memcpy(n->peers[rank].address, list + at, count);
        else if (rank != n->rank)
            return false;
        at += count;
    }
    return at == bytes;
}

/* Ask rank 0.  @return PENDING: try again, because rank 0 is not there, or another job is; `reason` has more */
static zoff_status ask(meeting *m, network *n, char *own_address)
{
    const int fd = connect_once(m);
    zoff_status status = ZOFF_PENDING;
    answer head;
    char *list = NULL;
    if (fd < 0)
        return status;
    if (move(m, fd, &m->own, sizeof m->own, true) && move(m, fd, own_address, m->own.bytes, true) &&
        move(m, fd, &head, sizeof head, false) && (size_t)head.bytes <= (size_t)n->size * (ADDRESS_MOST + sizeof(uint32_t)) &&
        (list = calloc((size_t)head.bytes + 1, 1)) && move(m, fd, list, head.bytes, false)) {
        if (!head.is_refused)
            status = read_addresses(n, list, head.bytes)
                         ? ZOFF_OK
                         : fail(ZOFF_ERR_COMM, "communicator \"ucx\": rank %u: the answer of rank 0 is not valid", n->rank);
        else if (strncmp(list, "job: ", 5) != 0)
            status = fail(ZOFF_ERR_COMM, "communicator \"ucx\": rank %u of %u may not join at %s:%s: %s", n->rank, n->size,
                          m->host, m->port, strchr(list, ' ') ? strchr(list, ' ') + 1 : list);
        else
            snprintf(m->reason, sizeof m->reason, "%.*s", WORDS - 1, list + 5);
    } else if (now() < m->until || !m->reason[0]) /* an attempt that the deadline cuts off says less than the one before */
        snprintf(m->reason, sizeof m->reason, "it did not answer");
    free(list);
    close(fd);
    return status;
}

static zoff_status ask_until(meeting *m, network *n, char *own_address)
{
    zoff_status status;
    while ((status = ask(m, n, own_address)) == ZOFF_PENDING && wait_for(m, NULL, 0))
        ;
    if (status == ZOFF_PENDING)
        status =
            fail(ZOFF_ERR_COMM,
                 "communicator \"ucx\": rank %u of %u has tried to join at %s:%s for %g s: %s. Start all ranks with the same "
                 "WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0 runs at MASTER_ADDR",
                 n->rank, n->size, m->host, m->port, m->seconds, m->reason);
    return status;
}

/* Cut "host:port" or "[host]:port" at its colon. */
static bool cut_place(char *place, meeting *m)
{
    char *colon = strrchr(place, ':');
    if (!colon)
        return false;
    *colon = 0;
    m->port = colon + 1;
    m->host = place;
    if (place[0] == '[' && colon[-1] == ']') {
        colon[-1] = 0;
        m->host = place + 1;
    }
    return true;
}

static zoff_status meet(network *n, const zoff_plugin_meeting *with, const ucp_address_t *address, size_t bytes)
{
    char place[320];
    const char *job = getenv("TORCHELASTIC_RUN_ID");
    unsigned major, minor, release;
    const bool waits = with->timeout_seconds >= 0;
    meeting m = {
        .n = n,
        .own = {.order = ORDER, .zoff_version = zoff->version, .rank = n->rank, .size = n->size, .bytes = (uint32_t)bytes},
        .until = waits ? now() + with->timeout_seconds : HUGE_VAL,
        .seconds = with->timeout_seconds};
    ucp_get_version(&major, &minor, &release);
    m.own.ucx_version = major << 16 | minor;
    memcpy(m.own.magic, MAGIC, sizeof MAGIC);
    snprintf(m.own.job, sizeof m.own.job, "%.*s", (int)sizeof m.own.job - 1, job ? job : "");
    snprintf(place, sizeof place, "%s", with->place);
    if (bytes > ADDRESS_MOST || !cut_place(place, &m))
        return fail(ZOFF_ERR_COMM, "communicator \"ucx\": an address of %zu bytes, or the place to meet, is not valid", bytes);
    char *own = (char *)(uintptr_t)address;
    return n->rank == 0 ? receive_all(&m, n, own) : ask_until(&m, n, own);
}

/* ---- opening ---- */

static zoff_status open_worker(network *n)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                                               UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_TAG,
                                 .request_size = sizeof(note),
                                 .estimated_num_eps = n->size};
    const ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &n->context);
        ucp_config_release(config);
    }
    if (status == UCS_OK)
        status = ucp_worker_create(n->context, &how, &n->worker);
    return status == UCS_OK
               ? ZOFF_OK
               : fail(ZOFF_ERR_UNSUPPORTED, "no communicator \"ucx\" here: UCX cannot start: %s", ucs_status_string(status));
}

static zoff_status join(network *n, const zoff_plugin_meeting *with)
{
    ucp_address_t *address;
    size_t bytes;
    if (!n->peers)
        return fail(ZOFF_ERR_NO_MEMORY, "communicator \"ucx\": no memory for %u ranks", n->size);
    const zoff_status status = open_worker(n);
    if (status < 0 || n->size == 1)
        return status;
    if (ucp_worker_get_address(n->worker, &address, &bytes) != UCS_OK)
        return fail(ZOFF_ERR_COMM, "communicator \"ucx\": UCX gives no address of this rank");
    const zoff_status met = meet(n, with, address, bytes);
    ucp_worker_release_address(n->worker, address);
    return met;
}

static zoff_status connect_ranks(const zoff_plugin_meeting *with, zoff_comm_transport *out)
{
    network *n = calloc(1, sizeof *n);
    if (!n)
        return fail(ZOFF_ERR_NO_MEMORY, "communicator \"ucx\": no memory");
    n->rank = with->rank;
    n->size = with->size;
    n->peers = calloc(n->size, sizeof *n->peers);
    const zoff_status status = join(n, with);
    if (status < 0) {
        close_network(n, 1);
        return status;
    }
    *out = (zoff_comm_transport){.struct_size = sizeof *out,
                                 .name = "ucx",
                                 .ctx = n,
                                 .rank = n->rank,
                                 .size = n->size,
                                 .close_seconds = 2,
                                 .any_thread = 1,
                                 .send = send_to,
                                 .receive = receive_from,
                                 .test = test,
                                 .cancel = cancel,
                                 .error = error_of,
                                 .close = close_network};
    return ZOFF_OK;
}

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    if (abi != ZOFF_PLUGIN_ABI || out->struct_size < sizeof *out)
        return -1;
    zoff = host;
    out->meet = connect_ranks;
    return 0;
}
