/* threads.c: ranks that are threads of one process. They meet at a board where each posts what it has started; when all have
 * posted an operation, each takes its part out of the memory of the others, and says so; when all have taken theirs, it is done
 * and everybody may have his memory back.
 *
 *      started --- posted on the board ---> all have arrived --- pieces copied ---> taken ---> all have taken: done
 *
 * Nothing sleeps in here and no thread is made: who polls does the work. The lock guards the board; pieces are read without it,
 * for what is posted does not change until all have taken it. */
#include "comm.h"

#include "mem.h"
#include "try.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const zoff_comm_ops OPS;

enum { DEPTH = 64 }; /* operations of a stream that a rank has in flight at a time */

/* An operation of one rank, as the others see it. */
typedef struct posting {
    uint64_t number; /* 0: none, or done */
    zoff_comm_call call;
    zoff_comm_work *work; /* of its rank, for that rank alone */
    bool taken;
} posting;

typedef struct member {
    posting postings[ZOFF_COMM_STREAMS][DEPTH]; /* by number */
    uint64_t started[ZOFF_COMM_STREAMS];
    bool has_left;
} member;

typedef struct board {
    pthread_mutex_t lock;
    pthread_cond_t nobody_takes;
    unsigned size, open; /* ranks; those that have not left */
    unsigned taking;     /* ranks that copy right now, without the lock */
    bool is_broken;
    char words[1024];
    member *members;
} board;

typedef struct threads_comm {
    zoff_comm comm;
    board *board;
} threads_comm;

/* Where an operation is posted. */
static posting *posting_of(const board *b, unsigned rank, const zoff_comm_work *work)
{
    return &b->members[rank].postings[work->call.stream][work->number % DEPTH];
}

/* Posting `i` of a rank, of those of all streams. */
static posting *any_posting(const board *b, unsigned rank, unsigned i)
{
    return &b->members[rank].postings[i / DEPTH][i % DEPTH];
}

enum { POSTINGS = ZOFF_COMM_STREAMS * DEPTH };

/* ---- life ---- */

static void free_board(board *b)
{
    pthread_cond_destroy(&b->nobody_takes);
    pthread_mutex_destroy(&b->lock);
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
    pthread_mutex_init(&b->lock, NULL); /* of the default kinds, which do not fail */
    pthread_cond_init(&b->nobody_takes, NULL);
    b->size = b->open = size;
    *out = b;
    return ZOFF_OK;
}

zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, unsigned size, zoff_comm **out)
{
    zoff_status status;
    board *b;
    threads_comm *first[1024];
    unsigned made = 0;
    ZOFF_TRY(make_board(size, &b));
    for (; made < size; made++) {
        ZOFF_TRY_OR(undo, zoff_base_mem_alloc(1, sizeof *first[0], "a communicator", &first[made]));
        first[made]->board = b;
        first[made]->comm = (zoff_comm){.ops = &OPS, .rank = made, .size = size, .timeout_seconds = opts->timeout_seconds};
    }
    for (unsigned rank = 0; rank < size; rank++)
        out[rank] = &first[rank]->comm;
    return ZOFF_OK;
undo:
    while (made-- > 0)
        zoff_base_mem_free(first[made]);
    free_board(b);
    return status;
}

/* With the lock. Once it is broken nobody begins to copy, and who has begun is waited for: a copy takes no longer than it
 * takes.
 */
static void break_board(board *b, const char *words)
{
    if (!b->is_broken)
        snprintf(b->words, sizeof b->words, "%s", words);
    b->is_broken = true;
    while (b->taking)
        pthread_cond_wait(&b->nobody_takes, &b->lock);
}

/* Of an operation that will not go on: its caller may free it from now on. */
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
    char words[192];
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < POSTINGS; i++) {
        posting *p = any_posting(b, comm->rank, i);
        if (!p->number)
            continue;
        const zoff_comm_work work = {.call = p->call, .number = p->number};
        snprintf(words, sizeof words, "rank %u has left the group with an operation in flight%s%s", comm->rank,
                 p->work ? ": " : "", p->work ? zoff_comm_call_name(comm, &work) : "");
        break_board(b, words);
        let_go(p);
    }
    b->members[comm->rank].has_left = true;
    const bool is_last = --b->open == 0;
    pthread_mutex_unlock(&b->lock);
    if (is_last)
        free_board(b);
    zoff_base_mem_free(comm);
}

/* ---- what must agree ---- */

static size_t before(const size_t *bytes, unsigned rank)
{
    size_t sum = 0;
    for (unsigned i = 0; i < rank; i++)
        sum += bytes[i];
    return sum;
}

static zoff_status compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other, const zoff_comm_call *theirs)
{
    zoff_comm_theirs told = {.kind = theirs->kind,
                             .adds = theirs->adds,
                             .root = theirs->root,
                             .count = theirs->count,
                             .result_bytes = zoff_comm_call_result(comm, theirs)};
    told.sends = zoff_comm_call_sends(theirs, other, comm->rank);
    told.expects = zoff_comm_call_expects(theirs, comm->rank, other);
    return zoff_comm_call_compare(comm, work, other, &told);
}

/* With the lock. */
static zoff_status look_for_all(zoff_comm *comm, const board *b, zoff_comm_work *work)
{
    ZOFF_FAIL_IF(b->is_broken, ZOFF_ERR_COMM, "rank %u: %s cannot be done: %s", comm->rank, zoff_comm_call_name(comm, work),
                 b->words);
    if (work->arrived)
        return ZOFF_OK;
    for (unsigned rank = 0; rank < b->size; rank++) {
        if (b->members[rank].started[work->call.stream] >= work->number)
            continue;
        ZOFF_FAIL_IF(b->members[rank].has_left, ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has left the group",
                     comm->rank, zoff_comm_call_name(comm, work), rank);
        return ZOFF_PENDING;
    }
    for (unsigned rank = 0; rank < b->size; rank++)
        ZOFF_TRY(compare(comm, work, rank, &posting_of(b, rank, work)->call));
    work->arrived = true;
    return ZOFF_OK;
}

/* ---- taking ---- */

static void take_pieces(const zoff_comm *comm, const board *b, const zoff_comm_work *work)
{
    size_t done = 0;
    for (unsigned rank = 0; rank < b->size; rank++) {
        const zoff_comm_call *theirs = &posting_of(b, rank, work)->call;
        const size_t bytes = work->call.receive_bytes[rank];
        if (bytes == 0)
            continue; /* then there may be no memory at all */
        const char *in = theirs->in;
        in += work->call.kind == ZOFF_COMM_EXCHANGE ? before(theirs->send_bytes, comm->rank) : 0;
        char *out = (char *)work->call.out + done;
        if (in != out)
            memcpy(out, in, bytes);
        done += bytes;
    }
}

/* Beside the numbers of this rank, which others still read. */
static void take_sum(const board *b, const zoff_comm_work *work)
{
    double *sums = work->scratch;
    for (unsigned rank = 0; rank < b->size; rank++) {
        const double *theirs = posting_of(b, rank, work)->call.out;
        for (size_t i = 0; i < work->call.count; i++)
            sums[i] = rank ? sums[i] + theirs[i] : theirs[i];
    }
}

static void take(const zoff_comm *comm, const board *b, const zoff_comm_work *work)
{
    const zoff_comm_call *call = &work->call;
    if (call->kind == ZOFF_COMM_EXCHANGE || call->kind == ZOFF_COMM_GATHER)
        take_pieces(comm, b, work);
    else if (call->kind == ZOFF_COMM_SUM)
        take_sum(b, work);
    else if (call->kind == ZOFF_COMM_BROADCAST && call->root != comm->rank && call->count)
        memcpy(call->out, posting_of(b, call->root, work)->call.out, call->count);
}

/* With the lock: whether nobody needs this rank's memory any more. One whose posting is gone has seen that before. */
static bool all_have_taken(const board *b, const zoff_comm_work *work)
{
    for (unsigned rank = 0; rank < b->size; rank++) {
        const posting *p = posting_of(b, rank, work);
        if (p->number == work->number && !p->taken)
            return false;
    }
    return true;
}

/* ---- the table ---- */

static zoff_status threads_start(zoff_comm *comm, zoff_comm_work *work)
{
    board *b = ((threads_comm *)comm)->board;
    posting *p = posting_of(b, comm->rank, work);
    ZOFF_FAIL_IF(p->number, ZOFF_ERR_STATE, "rank %u: operation %llu is not done yet, and no more than %d may follow it",
                 comm->rank, (unsigned long long)p->number, DEPTH - 1);
    if (work->call.kind == ZOFF_COMM_SUM)
        ZOFF_TRY(zoff_base_mem_alloc(work->call.count, sizeof(double), "a sum over the ranks", &work->scratch));
    pthread_mutex_lock(&b->lock);
    *p = (posting){.number = work->number, .call = work->call, .work = work};
    b->members[comm->rank].started[work->call.stream] = work->number;
    pthread_mutex_unlock(&b->lock);
    return ZOFF_OK;
}

/* With the lock, which it gives up to copy. */
static zoff_status go_on(zoff_comm *comm, board *b, zoff_comm_work *work)
{
    posting *p = posting_of(b, comm->rank, work);
    /* What all have taken is done, whatever has become of the group since. */
    const bool is_over = work->taken && all_have_taken(b, work);
    zoff_status status = is_over ? ZOFF_OK : look_for_all(comm, b, work);
    if (status == ZOFF_OK && !work->taken) {
        b->taking++;
        pthread_mutex_unlock(&b->lock);
        take(comm, b, work);
        pthread_mutex_lock(&b->lock);
        if (--b->taking == 0)
            pthread_cond_broadcast(&b->nobody_takes);
        work->taken = p->taken = true;
    }
    if (status == ZOFF_OK && !all_have_taken(b, work))
        status = ZOFF_PENDING;
    return status;
}

/* Others may wait for what this rank has started and is not asking for: all of it goes on. */
static zoff_status threads_poll(zoff_comm *comm, zoff_comm_work *work)
{
    board *b = ((threads_comm *)comm)->board;
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < POSTINGS; i++) {
        const posting *p = any_posting(b, comm->rank, i);
        if (p->number && p->work != work && !p->taken)
            (void)go_on(comm, b, p->work); /* what fails is told by its own poll */
    }
    zoff_status status = go_on(comm, b, work);
    if (status == ZOFF_OK)
        posting_of(b, comm->rank, work)->number = 0;
    pthread_mutex_unlock(&b->lock);
    if (status == ZOFF_OK && work->scratch && work->call.count)
        memcpy(work->call.out, work->scratch, work->call.count * sizeof(double));
    return status;
}

static bool threads_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    board *b = ((threads_comm *)comm)->board;
    pthread_mutex_lock(&b->lock);
    const posting *p = posting_of(b, rank, work);
    const bool has =
        work->arrived ? p->number != work->number || p->taken : b->members[rank].started[work->call.stream] >= work->number;
    pthread_mutex_unlock(&b->lock);
    return has;
}

static void threads_give_up(zoff_comm *comm, const char *words)
{
    board *b = ((threads_comm *)comm)->board;
    pthread_mutex_lock(&b->lock);
    break_board(b, words);
    for (unsigned i = 0; i < POSTINGS; i++) {
        if (any_posting(b, comm->rank, i)->number)
            let_go(any_posting(b, comm->rank, i));
    }
    pthread_mutex_unlock(&b->lock);
}

static const zoff_comm_ops OPS = {.name = "threads",
                                  .close = threads_close,
                                  .start = threads_start,
                                  .poll = threads_poll,
                                  .has_arrived = threads_has_arrived,
                                  .give_up = threads_give_up};
