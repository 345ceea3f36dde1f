/* threads.c: implements a group whose ranks are threads of one process. The ranks share a board, on which each posts the
 * operations that it starts. Once all ranks have posted an operation, each copies its part out of the other ranks' memory. Once
 * all have copied, the operation is done, and its memory is free again.
 *
 *      start: posted on the board ---> all have posted --- copy pieces ---> taken ---> all have taken: done
 *
 * Nothing here sleeps or makes a thread: the thread that polls does the work. The lock guards the board. Pieces are read
 * without the lock, because posted memory does not change until all ranks have taken from it. */
#include "comm.h"

#include "mem.h"
#include "try.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const zoff_comm_ops OPS;

enum { DEPTH = 64 }; /* most operations in flight for each rank, channel and stream */

/* An operation of one rank, as the other ranks see it. */
typedef struct posting {
    uint64_t number; /* 0: unused, or done */
    zoff_comm_call call;
    size_t result_bytes;
    size_t *starts;                /* EXCHANGE: offset in `in` of the piece for each rank */
    zoff_comm_work *work;          /* only the posting rank may use it */
    bool taken;                    /* the posting rank has copied its part */
    struct posting *next, *before; /* list of this rank's operations in flight */
} posting;

/* The data of one rank in a channel. */
typedef struct port {
    posting postings[ZOFF_COMM_STREAMS][DEPTH]; /* by number, modulo DEPTH */
    uint64_t started[ZOFF_COMM_STREAMS];        /* number of the last operation started */
    bool has_closed;
    struct meeting *meeting; /* before the channel is joined: a private one; afterwards: shared by all ranks */
} port;

/* A channel on the board. */
typedef struct meeting {
    uint32_t id;
    unsigned closed; /* number of ranks that have closed it */
    struct meeting *next;
    port **ports; /* by rank; NULL: the rank has not joined yet */
} meeting;

/* A rank on the board. */
typedef struct member {
    posting *flying;                               /* its operations in flight */
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD]; /* its last report */
    unsigned visit_count;
    bool has_left;
} member;

typedef struct board {
    pthread_mutex_t lock;
    pthread_cond_t nobody_takes; /* signalled when `taking` becomes 0 */
    unsigned size, open;         /* number of ranks; number of those that have not left */
    unsigned taking;             /* ranks that are copying right now, without the lock */
    unsigned told;               /* reports so far, of all ranks */
    bool is_broken;
    char words[1024];
    member *members;
    meeting *meetings;
} board;

typedef struct threads_comm {
    zoff_comm comm;
    board *board;
    unsigned heard; /* value of board.told when this rank last read the reports */
} threads_comm;

static port *port_of(const zoff_comm_work *work, unsigned rank)
{
    return ((const port *)work->call.channel->port)->meeting->ports[rank];
}

static uint64_t started_by(const zoff_comm_work *work, unsigned rank)
{
    const port *p = port_of(work, rank);
    return p ? p->started[work->call.stream] : 0;
}

/* The posting of an operation by `rank`, which must have started it. */
static posting *posting_of(const zoff_comm_work *work, unsigned rank)
{
    return &port_of(work, rank)->postings[work->call.stream][work->number % DEPTH];
}

/* ---- channels ---- */

static void free_meeting(meeting *m, unsigned size)
{
    for (unsigned rank = 0; rank < size; rank++)
        zoff_base_mem_free(m->ports[rank]);
    zoff_base_mem_free(m->ports);
    zoff_base_mem_free(m);
}

/* Make a meeting. Every rank makes one; the first rank that joins the channel puts its own on the board. */
static zoff_status make_meeting(unsigned size, meeting **out)
{
    meeting *m;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *m, "a channel", &m));
    const zoff_status status = zoff_base_mem_alloc(size, sizeof *m->ports, "a channel", &m->ports);
    if (status < 0)
        zoff_base_mem_free(m);
    else
        *out = m;
    return status;
}

static zoff_status threads_open_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    port *p;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *p, "a channel", &p));
    const zoff_status status = make_meeting(comm->size, &p->meeting);
    if (status < 0)
        zoff_base_mem_free(p);
    else
        channel->port = p;
    return status;
}

static void threads_join_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    board *b = ((threads_comm *)comm)->board;
    port *p = channel->port;
    pthread_mutex_lock(&b->lock);
    meeting *m = b->meetings;
    while (m && m->id != channel->id)
        m = m->next;
    if (m) {
        free_meeting(p->meeting, b->size);
        p->meeting = m;
    } else {
        m = p->meeting;
        m->id = channel->id;
        m->next = b->meetings;
        b->meetings = m;
    }
    m->ports[comm->rank] = p;
    pthread_mutex_unlock(&b->lock);
}

/* Other ranks may still read this rank's postings, so the last rank to close frees the meeting with all ports. */
static void threads_close_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    board *b = ((threads_comm *)comm)->board;
    port *p = channel->port;
    meeting *m = p->meeting, **at = &b->meetings;
    channel->port = NULL;
    pthread_mutex_lock(&b->lock);
    const bool is_joined = m->ports[comm->rank] == p;
    p->has_closed = true;
    if (!is_joined)
        m->ports[comm->rank] = p; /* the private meeting: free_meeting() below frees the port with it */
    const bool is_last = !is_joined || ++m->closed == b->size;
    while (is_joined && is_last && *at != m)
        at = &(*at)->next;
    if (is_joined && is_last)
        *at = m->next;
    pthread_mutex_unlock(&b->lock);
    if (is_last)
        free_meeting(m, b->size);
}

static zoff_status threads_tell(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count)
{
    (void)call;
    board *b = ((threads_comm *)comm)->board;
    pthread_mutex_lock(&b->lock);
    memcpy(b->members[comm->rank].visits, visits, count * sizeof *visits);
    b->members[comm->rank].visit_count = count;
    b->told++;
    pthread_mutex_unlock(&b->lock);
    return ZOFF_OK;
}

/* With the lock: pass new reports of other ranks to zoff_comm_heard(). */
static void hear(threads_comm *t)
{
    const board *b = t->board;
    if (t->heard == b->told)
        return;
    t->heard = b->told;
    for (unsigned rank = 0; rank < b->size; rank++) {
        if (rank != t->comm.rank && b->members[rank].visit_count)
            zoff_comm_heard(&t->comm, rank, b->members[rank].visits, b->members[rank].visit_count);
    }
}

/* ---- life ---- */

static void free_board(board *b)
{
    pthread_cond_destroy(&b->nobody_takes);
    pthread_mutex_destroy(&b->lock);
    for (meeting *m = b->meetings, *next; m; m = next) {
        next = m->next;
        free_meeting(m, b->size);
    }
    zoff_base_mem_free(b->members);
    zoff_base_mem_free(b);
}

static zoff_status make_board(unsigned size, board **out)
{
    board *b;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *b, "the ranks' board", &b));
    zoff_status status = zoff_base_mem_alloc(size, sizeof *b->members, "the ranks' board", &b->members);
    if (status < 0) {
        zoff_base_mem_free(b);
        return status;
    }
    pthread_mutex_init(&b->lock, NULL); /* default attributes: this cannot fail */
    pthread_cond_init(&b->nobody_takes, NULL);
    b->size = b->open = size;
    *out = b;
    return ZOFF_OK;
}

static zoff_status make_rank(const zoff_comm_opts *opts, board *b, unsigned rank, zoff_comm **out)
{
    zoff_status status;
    threads_comm *t;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *t, "a communicator", &t));
    t->board = b;
    t->comm = (zoff_comm){.ops = &OPS, .rank = rank, .size = b->size, .timeout_seconds = opts->timeout_seconds};
    ZOFF_TRY_OR(free_rank, zoff_comm_prepare(&t->comm));
    ZOFF_TRY_OR(free_rank, threads_open_channel(&t->comm, &t->comm.common));
    threads_join_channel(&t->comm, &t->comm.common);
    *out = &t->comm;
    return ZOFF_OK;
free_rank:
    zoff_comm_forget(t->comm.book);
    zoff_base_mem_free(t);
    return status;
}

zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, unsigned size, zoff_comm **out)
{
    zoff_status status;
    board *b;
    zoff_comm *first[1024];
    unsigned made = 0;
    ZOFF_TRY(make_board(size, &b));
    for (; made < size; made++)
        ZOFF_TRY_OR(undo, make_rank(opts, b, made, &first[made]));
    memcpy(out, first, size * sizeof *out);
    return ZOFF_OK;
undo:
    while (made-- > 0) {
        zoff_comm_forget(first[made]->book);
        zoff_base_mem_free(first[made]);
    }
    free_board(b);
    return status;
}

/* With the lock: mark the board as broken. No rank begins to copy afterwards. Wait for the ranks that are copying: a copy never
 * blocks, so this wait ends. */
static void break_board(board *b, const char *words)
{
    if (!b->is_broken)
        snprintf(b->words, sizeof b->words, "%s", words);
    b->is_broken = true;
    while (b->taking)
        pthread_cond_wait(&b->nobody_takes, &b->lock);
}

/* With the lock: remove a posting whose pieces no rank reads any more. Its number stays, so that other ranks still see its
 * state. */
static void withdraw(member *own, posting *p)
{
    *(p->before ? &p->before->next : &own->flying) = p->next;
    if (p->next)
        p->next->before = p->before;
    zoff_base_mem_free(p->starts);
    p->starts = NULL;
    p->next = p->before = NULL;
}

/* End an operation with an error. Its caller may free the work from now on. */
static void let_go(posting *p)
{
    if (!p->work)
        return;
    zoff_base_mem_free(p->work->scratch);
    p->work->scratch = NULL;
    p->work->active = false;
    p->work->outcome = ZOFF_ERR_COMM;
    p->work = NULL;
}

static void threads_close(zoff_comm *comm)
{
    board *b = ((threads_comm *)comm)->board;
    member *own = &b->members[comm->rank];
    char words[768];
    pthread_mutex_lock(&b->lock);
    while (own->flying) {
        posting *p = own->flying;
        snprintf(words, sizeof words, "rank %u has left the group with an operation in flight%s%s", comm->rank,
                 p->work ? ": " : "", p->work ? zoff_comm_call_name(comm, p->work) : "");
        break_board(b, words);
        let_go(p);
        withdraw(own, p);
    }
    own->has_left = true;
    const bool is_last = --b->open == 0;
    pthread_mutex_unlock(&b->lock);
    if (is_last)
        free_board(b);
    zoff_base_mem_free(comm);
}

/* ---- comparing calls ---- */

static zoff_status compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other, const posting *p)
{
    const zoff_comm_call *theirs = &p->call;
    zoff_comm_theirs told = {.kind = theirs->kind,
                             .adds = theirs->adds,
                             .first = theirs->first,
                             .members = theirs->members,
                             .item = theirs->item,
                             .root = theirs->root,
                             .count = theirs->count,
                             .result_bytes = p->result_bytes};
    told.sends = zoff_comm_call_sends(theirs, other, comm->rank);
    told.expects = zoff_comm_call_expects(theirs, comm->rank, other);
    return zoff_comm_call_compare(comm, work, other, &told);
}

/* Check a rank that has not started the operation.  @return OK if it still may; ERR_COMM if it has left, or closed the channel
 */
static zoff_status look_for(const zoff_comm *comm, const board *b, const zoff_comm_work *work, unsigned rank)
{
    char whose[160];
    const port *p = port_of(work, rank);
    ZOFF_FAIL_IF(b->members[rank].has_left, ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has left the group", comm->rank,
                 zoff_comm_call_name(comm, work), rank);
    if (!p || !p->has_closed)
        return ZOFF_OK;
    zoff_comm_names_channel(comm, work->call.channel->id, whose, sizeof whose);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has destroyed %s, or failed to seal it",
                                 comm->rank, zoff_comm_call_name(comm, work), rank, whose);
}

/* With the lock: PENDING until all ranks have started the operation; then compare their calls. */
static zoff_status look_for_all(zoff_comm *comm, const board *b, zoff_comm_work *work)
{
    ZOFF_FAIL_IF(b->is_broken, ZOFF_ERR_COMM, "rank %u: %s cannot be done: %s", comm->rank, zoff_comm_call_name(comm, work),
                 b->words);
    if (work->arrived)
        return ZOFF_OK;
    for (unsigned rank = 0; rank < b->size; rank++) {
        if (!zoff_comm_call_has(&work->call, rank) || started_by(work, rank) >= work->number)
            continue;
        ZOFF_TRY(look_for(comm, b, work, rank));
        return ZOFF_PENDING;
    }
    for (unsigned rank = 0; rank < b->size; rank++) {
        if (zoff_comm_call_has(&work->call, rank))
            ZOFF_TRY(compare(comm, work, rank, posting_of(work, rank)));
    }
    work->arrived = true;
    return ZOFF_OK;
}

/* ---- taking ---- */

static void take_pieces(const zoff_comm *comm, const zoff_comm_work *work)
{
    size_t done = 0;
    for (unsigned rank = 0; rank < comm->size; rank++) {
        const size_t bytes = work->call.receive_bytes[rank];
        if (bytes == 0)
            continue; /* the pointers may be NULL, and the rank outside of the group */
        const posting *theirs = posting_of(work, rank);
        const char *in = theirs->call.in;
        in += work->call.kind == ZOFF_COMM_EXCHANGE ? theirs->starts[comm->rank] : 0;
        char *out = (char *)work->call.out + done;
        if (in != out)
            memcpy(out, in, bytes);
        done += bytes;
    }
}

/* Add up into the scratch: other ranks still read this rank's numbers in `out`. */
static void take_sum(const zoff_comm *comm, const zoff_comm_work *work)
{
    double *sums = work->scratch;
    for (unsigned rank = 0; rank < comm->size; rank++) {
        const double *theirs = posting_of(work, rank)->call.out;
        for (size_t i = 0; i < work->call.count; i++)
            sums[i] = rank ? sums[i] + theirs[i] : theirs[i];
    }
}

static void take(const zoff_comm *comm, const zoff_comm_work *work)
{
    const zoff_comm_call *call = &work->call;
    if (call->kind == ZOFF_COMM_EXCHANGE || call->kind == ZOFF_COMM_GATHER)
        take_pieces(comm, work);
    else if (call->kind == ZOFF_COMM_SUM)
        take_sum(comm, work);
    else if (call->kind == ZOFF_COMM_BROADCAST && call->root != comm->rank && call->count)
        memcpy(call->out, posting_of(work, call->root)->call.out, call->count);
}

/* With the lock: whether no rank reads this rank's memory any more. A rank whose posting is gone has found the same earlier, so
 * it has taken its part. */
static bool all_have_taken(const board *b, const zoff_comm_work *work)
{
    for (unsigned rank = 0; rank < b->size; rank++) {
        const posting *p = zoff_comm_call_has(&work->call, rank) ? posting_of(work, rank) : NULL;
        if (p && p->number == work->number && !p->taken)
            return false;
    }
    return true;
}

/* ---- the table ---- */

/* Compute where the piece for each rank starts in `in`. */
static zoff_status find_starts(const zoff_comm *comm, const zoff_comm_call *call, size_t **out)
{
    size_t *starts, sum = 0;
    *out = NULL;
    if (call->kind != ZOFF_COMM_EXCHANGE)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(comm->size, sizeof *starts, "an operation over ranks", &starts));
    for (unsigned rank = 0; rank < comm->size; rank++) {
        starts[rank] = sum;
        sum += call->send_bytes[rank];
    }
    *out = starts;
    return ZOFF_OK;
}

static zoff_status threads_start(zoff_comm *comm, zoff_comm_work *work)
{
    board *b = ((threads_comm *)comm)->board;
    member *own = &b->members[comm->rank];
    posting *p = posting_of(work, comm->rank);
    size_t *starts;
    ZOFF_FAIL_IF(p->number, ZOFF_ERR_STATE,
                 "rank %u: operation %llu is not done yet, and at most %d newer ones may be in flight", comm->rank,
                 (unsigned long long)p->number, DEPTH - 1);
    ZOFF_TRY(find_starts(comm, &work->call, &starts));
    if (work->call.kind == ZOFF_COMM_SUM) /* `starts` is NULL then, so an error leaks nothing */
        ZOFF_TRY(zoff_base_mem_alloc(work->call.count, sizeof(double), "a sum over the ranks", &work->scratch));
    pthread_mutex_lock(&b->lock);
    *p = (posting){.number = work->number,
                   .call = work->call,
                   .result_bytes = work->result_bytes,
                   .starts = starts,
                   .work = work,
                   .next = own->flying};
    if (p->next)
        p->next->before = p;
    own->flying = p;
    port_of(work, comm->rank)->started[work->call.stream] = work->number;
    pthread_mutex_unlock(&b->lock);
    return ZOFF_OK;
}

/* Advance one operation. Takes and returns with the lock held, but releases it while it copies. */
static zoff_status go_on(zoff_comm *comm, board *b, zoff_comm_work *work)
{
    posting *p = posting_of(work, comm->rank);
    /* An operation that all ranks have taken succeeds, even if the group has failed since. */
    const bool is_over = work->taken && all_have_taken(b, work);
    zoff_status status = is_over ? ZOFF_OK : look_for_all(comm, b, work);
    if (status == ZOFF_OK && !work->taken) {
        b->taking++;
        pthread_mutex_unlock(&b->lock);
        take(comm, work);
        pthread_mutex_lock(&b->lock);
        if (--b->taking == 0)
            pthread_cond_broadcast(&b->nobody_takes);
        work->taken = p->taken = true;
    }
    if (status == ZOFF_OK && !all_have_taken(b, work))
        status = ZOFF_PENDING;
    return status;
}

/* Advance all operations of this rank: other ranks may wait for one that this rank does not poll. */
static zoff_status threads_poll(zoff_comm *comm, zoff_comm_work *work)
{
    board *b = ((threads_comm *)comm)->board;
    member *own = &b->members[comm->rank];
    pthread_mutex_lock(&b->lock);
    hear((threads_comm *)comm);
    for (posting *p = own->flying; p; p = p->next) {
        if (p->work != work && !p->taken && p->work)
            (void)go_on(comm, b, p->work); /* its own poll returns the error */
    }
    zoff_status status = go_on(comm, b, work);
    if (status == ZOFF_OK) {
        withdraw(own, posting_of(work, comm->rank));
        posting_of(work, comm->rank)->number = 0;
    }
    pthread_mutex_unlock(&b->lock);
    if (status == ZOFF_OK && work->scratch && work->call.count)
        memcpy(work->call.out, work->scratch, work->call.count * sizeof(double));
    return status;
}

static bool threads_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    board *b = ((threads_comm *)comm)->board;
    pthread_mutex_lock(&b->lock);
    bool has = started_by(work, rank) >= work->number;
    if (work->arrived) {
        const posting *p = posting_of(work, rank);
        has = p->number != work->number || p->taken;
    }
    pthread_mutex_unlock(&b->lock);
    return has;
}

static zoff_status threads_open_groups(zoff_comm *comm, unsigned members)
{
    (void)comm;
    (void)members;
    return ZOFF_OK;
}

static void threads_give_up(zoff_comm *comm, const char *words)
{
    board *b = ((threads_comm *)comm)->board;
    member *own = &b->members[comm->rank];
    pthread_mutex_lock(&b->lock);
    break_board(b, words);
    while (own->flying) {
        let_go(own->flying);
        withdraw(own, own->flying);
    }
    pthread_mutex_unlock(&b->lock);
}

static const zoff_comm_ops OPS = {.name = "threads",
                                  .close = threads_close,
                                  .start = threads_start,
                                  .poll = threads_poll,
                                  .has_arrived = threads_has_arrived,
                                  .open_channel = threads_open_channel,
                                  .join_channel = threads_join_channel,
                                  .close_channel = threads_close_channel,
                                  .tell = threads_tell,
                                  .open_groups = threads_open_groups,
                                  .give_up = threads_give_up};
