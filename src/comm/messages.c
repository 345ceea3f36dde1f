/* messages.c: ranks that send each other messages. Who starts an operation tells every other rank so, with a note: what it
 * calls, what it has for the reader, what it expects of him, and small pieces at once.
 *
 *      started: notes sent --- note of rank r has come and agrees: pieces to and from it are handed over --- all have come,
 *                                                                                              all is sent and received: done
 *
 * A note is the permission to send: nobody sends a large piece before he has read that it is expected with just that size. So
 * nothing is cut off, a rank that does not come has nothing of ours in flight, and no third message is needed. Nothing sleeps
 * in here and no thread is made: who polls does the work. */
#include "courier_priv.h"

#include "bits.h"
#include "clock.h"
#include "mem.h"
#include "try.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const zoff_comm_ops OPS;
static const double PATIENCE_SECONDS = 1; /* how long what is in flight is waited for at most when it is given up */

/* A rank has at most DEPTH operations of a stream in flight, and so may be that many ahead of another, which may have as many
 * that are not done: numbers differ by less than AHEAD. */
enum { DEPTH = 64, AHEAD = 2 * DEPTH };

typedef struct operation {
    zoff_comm_work *work;  /* NULL: none */
    unsigned arrived;      /* ranks that have started it, too, with this one */
    unsigned moving;       /* lanes with something left to do */
    bool has_own;          /* this rank's own piece is copied */
    zoff_comm_lane *lanes; /* from rank 0, 1, ..., then to rank 0, 1, ... */
} operation;

/* What another rank has told. */
typedef struct member {
    uint64_t started[ZOFF_COMM_STREAMS];
    zoff_comm_note *early[ZOFF_COMM_STREAMS][AHEAD]; /* of operations that this rank has not started */
    bool has_left;
} member;

typedef struct messages_comm {
    zoff_comm comm;
    zoff_comm_courier *courier;
    operation operations[ZOFF_COMM_STREAMS][DEPTH]; /* by number */
    operation *in_flight[ZOFF_COMM_STREAMS * DEPTH];
    unsigned flying;
    double close_seconds, patience_seconds;
    bool is_over; /* nothing will go on, for the reason in `over` */
    bool is_told; /* by another rank, or to the others */
    char over[1024];
    member *members;
} messages_comm;

/* ---- one operation ---- */

static operation *operation_of(messages_comm *m, const zoff_comm_work *work)
{
    return &m->operations[work->call.stream][work->number % DEPTH];
}

static bool is_done(const messages_comm *m, const operation *o)
{
    return o->arrived == m->comm.size && o->moving == 0 && o->has_own;
}

/* What fails ends everything; each operation in flight says so when it is polled. The first reason stays, but what another rank
 * has given up for is older than what this one then finds. */
static void end_all(messages_comm *m, const char *words, bool is_told)
{
    if (!m->is_over || (is_told && !m->is_told))
        snprintf(m->over, sizeof m->over, "%s", words);
    m->is_over = true;
    m->is_told |= is_told;
}

static void note_failure(messages_comm *m, zoff_status status)
{
    if (status < 0)
        end_all(m, zoff_last_error(), false);
}

static zoff_status move_lane(messages_comm *m, operation *o, zoff_comm_lane *lane)
{
    if (!lane->left && !lane->flying)
        return ZOFF_OK;
    const zoff_status status = zoff_comm_courier_move(m->courier, lane);
    if (status == ZOFF_OK)
        o->moving--;
    return status;
}

/* Another rank has started it, too. Pieces go when all notes have been read: it may have given up since. */
static zoff_status meet(messages_comm *m, operation *o, const zoff_comm_note *note)
{
    const zoff_comm *comm = &m->comm;
    const unsigned other = note->from;
    const zoff_comm_theirs theirs = {.kind = (zoff_comm_kind)note->kind,
                                     .root = note->root,
                                     .count = note->count,
                                     .result_bytes = note->result_bytes,
                                     .sends = note->sends,
                                     .expects = note->expects};
    ZOFF_TRY(zoff_comm_call_compare(comm, o->work, other, &theirs));
    if (note->data_bytes)
        memcpy(o->lanes[other].at, note->data, note->data_bytes);
    o->arrived++;
    o->work->arrived = o->arrived == comm->size;
    o->lanes[other].is_open = o->lanes[comm->size + other].is_open = true;
    return ZOFF_OK;
}

/* Where the bytes of each rank are, and those for it. Small ones travel in notes and leave nothing to do for their lane. */
static void lay_lanes(messages_comm *m, operation *o)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const unsigned size = m->comm.size, me = m->comm.rank;
    const int tag = 1 + (int)(call->stream * AHEAD + work->number % AHEAD);
    const bool scatters = call->kind == ZOFF_COMM_EXCHANGE;
    const bool in_place = call->kind == ZOFF_COMM_SUM || call->kind == ZOFF_COMM_BROADCAST;
    char *to = call->kind == ZOFF_COMM_SUM ? work->scratch : call->out;
    char *from = in_place ? call->out : (char *)(uintptr_t)call->in;
    for (unsigned i = 0; i < 2 * size; i++) {
        const unsigned peer = i % size;
        const bool sends = i >= size;
        const size_t bytes = sends ? zoff_comm_call_sends(call, me, peer) : zoff_comm_call_expects(call, peer, me);
        char **at = sends ? &from : &to;
        zoff_comm_lane *lane = &o->lanes[i];
        const bool is_large = peer != me && bytes > sizeof((zoff_comm_note *)0)->data;
        *lane = (zoff_comm_lane){.at = *at, .left = is_large ? bytes : 0, .sends = sends, .peer = peer, .tag = tag};
        o->moving += is_large;
        if (bytes && (sends ? scatters : !in_place || call->kind == ZOFF_COMM_SUM))
            *at += bytes;
    }
}

static zoff_status tell(messages_comm *m, const operation *o, unsigned other)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const zoff_comm_lane *lane = &o->lanes[m->comm.size + other];
    zoff_comm_note note; /* its data are not zeroed */
    memset(&note, 0, offsetof(zoff_comm_note, data));
    note.says = ZOFF_COMM_CALLS;
    note.kind = call->kind;
    note.stream = call->stream;
    note.root = call->root;
    note.number = work->number;
    note.count = call->count;
    note.result_bytes = zoff_comm_call_result(&m->comm, call);
    note.sends = zoff_comm_call_sends(call, m->comm.rank, other);
    note.expects = zoff_comm_call_expects(call, other, m->comm.rank);
    note.data_bytes = note.sends <= sizeof note.data ? note.sends : 0;
    if (note.data_bytes)
        memcpy(note.data, lane->at, note.data_bytes);
    return zoff_comm_courier_send(m->courier, other, &note);
}

/* This rank's own piece of what it gets. */
static zoff_status take_own(const messages_comm *m, const operation *o)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const unsigned me = m->comm.rank;
    const size_t bytes = zoff_comm_call_sends(call, me, me), expected = zoff_comm_call_expects(call, me, me);
    if (call->kind != ZOFF_COMM_EXCHANGE && call->kind != ZOFF_COMM_GATHER)
        return ZOFF_OK;
    ZOFF_FAIL_IF(bytes != expected, ZOFF_ERR_COMM, "%s: rank %u has %zu bytes for itself, and expects %zu",
                 zoff_comm_call_name(&m->comm, work), me, bytes, expected);
    const char *from = o->lanes[m->comm.size + me].at;
    char *to = o->lanes[me].at;
    if (bytes && from != to)
        memcpy(to, from, bytes);
    return ZOFF_OK;
}

/* To the others, beginning with the next one, so that not all write to rank 0 first. */
static zoff_status tell_all(messages_comm *m, const operation *o)
{
    for (unsigned i = 1; i < m->comm.size; i++)
        ZOFF_TRY(tell(m, o, (m->comm.rank + i) % m->comm.size));
    return ZOFF_OK;
}

/* ---- what others say ---- */

static zoff_status keep_early(messages_comm *m, const zoff_comm_note *note)
{
    zoff_comm_note **place = &m->members[note->from].early[note->stream][note->number % AHEAD];
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof **place, "what another rank has begun", place));
    memcpy(*place, note, offsetof(zoff_comm_note, data) + note->data_bytes);
    return ZOFF_OK;
}

static zoff_status hear(messages_comm *m, const zoff_comm_note *note)
{
    member *from = &m->members[note->from];
    if (note->says == ZOFF_COMM_LEAVES) {
        from->has_left = true;
        return ZOFF_OK;
    }
    if (note->says == ZOFF_COMM_GIVES_UP) {
        from->has_left = true;
        char words[1024];
        snprintf(words, sizeof words, "%.*s", (int)note->data_bytes, note->data);
        end_all(m, words, true);
        return ZOFF_OK;
    }
    from->started[note->stream] = note->number;
    if (m->comm.is_broken)
        return ZOFF_OK;
    operation *o = &m->operations[note->stream][note->number % DEPTH];
    return o->work && o->work->number == note->number ? meet(m, o, note) : keep_early(m, note);
}

static void hear_all(messages_comm *m)
{
    const zoff_comm_note *note;
    zoff_status status;
    while ((status = zoff_comm_courier_take(m->courier, &note)) == ZOFF_OK)
        note_failure(m, hear(m, note));
    note_failure(m, status);
}

/* Sends are handed over before receives: a network may move all bytes of a piece in the call that finds both sides of it, and
 * the other rank should do the same at the same time. So this rank's own piece comes last, too. */
static zoff_status go_on(messages_comm *m, operation *o)
{
    const unsigned size = m->comm.size;
    for (unsigned i = 0; i < 2 * size && o->moving; i++) {
        const zoff_status status = move_lane(m, o, &o->lanes[(i + size) % (2 * size)]);
        if (status < 0)
            return status;
    }
    if (o->has_own || o->arrived < size)
        return ZOFF_OK;
    o->has_own = true;
    return take_own(m, o);
}

/* All that can go on does. */
static void progress(messages_comm *m)
{
    hear_all(m);
    for (unsigned i = 0; i < m->flying && !m->is_over; i++)
        note_failure(m, go_on(m, m->in_flight[i]));
    note_failure(m, zoff_comm_courier_flush(m->courier));
}

/* ---- the table ---- */

static zoff_status messages_start(zoff_comm *comm, zoff_comm_work *work)
{
    messages_comm *m = (messages_comm *)comm;
    operation *o = operation_of(m, work);
    ZOFF_FAIL_IF(o->work, ZOFF_ERR_STATE, "rank %u: operation %llu is not done yet, and no more than %d may follow it",
                 comm->rank, (unsigned long long)o->work->number, DEPTH - 1);
    zoff_comm_lane *lanes;
    ZOFF_TRY(zoff_base_mem_alloc(2 * (size_t)comm->size, sizeof *lanes, "an operation over ranks", &lanes));
    if (work->call.kind == ZOFF_COMM_SUM) {
        const zoff_status status =
            zoff_base_mem_alloc(comm->size * work->call.count, sizeof(double), "a sum over the ranks", &work->scratch);
        if (status < 0) {
            zoff_base_mem_free(lanes);
            return status;
        }
    }
    *o = (operation){.work = work, .arrived = 1, .lanes = lanes};
    work->arrived = comm->size == 1;
    m->in_flight[m->flying++] = o;
    lay_lanes(m, o);
    /* From here on it has begun, and what fails is told by its poll. */
    zoff_status status = tell_all(m, o);
    for (unsigned other = 0; other < comm->size && status >= 0; other++) {
        zoff_comm_note **early = &m->members[other].early[work->call.stream][work->number % AHEAD];
        if (*early)
            status = meet(m, o, *early);
        zoff_base_mem_free(*early);
        *early = NULL;
    }
    note_failure(m, status);
    progress(m);
    return ZOFF_OK;
}

/* Row r of the scratch is rank r's, this rank's own is where the sum will be. */
static void add_up(const zoff_comm *comm, const zoff_comm_work *work)
{
    const size_t count = work->call.count;
    const double *rows = work->scratch;
    double *out = work->call.out;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (unsigned rank = 0; rank < comm->size; rank++) {
            const double x = rank == comm->rank ? out[i] : rows[rank * count + i];
            sum = rank ? sum + x : x;
        }
        out[i] = sum;
    }
}

/* It is no longer in flight. Memory that the network holds stays. */
static void forget(messages_comm *m, operation *o, bool holds)
{
    for (unsigned i = 0; i < m->flying; i++) {
        if (m->in_flight[i] == o) {
            m->in_flight[i] = m->in_flight[--m->flying];
            break;
        }
    }
    if (holds)
        o->work->scratch = NULL;
    else
        zoff_base_mem_free(o->lanes);
    *o = (operation){0};
}

static zoff_status messages_poll(zoff_comm *comm, zoff_comm_work *work)
{
    messages_comm *m = (messages_comm *)comm;
    operation *o = operation_of(m, work);
    progress(m);
    /* What has all it needs is done, whatever has become of the group since. */
    if (is_done(m, o)) {
        if (work->call.kind == ZOFF_COMM_SUM)
            add_up(comm, work);
        forget(m, o, false);
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(m->is_over, ZOFF_ERR_COMM, "%s", m->over);
    for (unsigned rank = 0; rank < comm->size && o->arrived < comm->size; rank++) {
        const member *other = &m->members[rank];
        ZOFF_FAIL_IF(rank != comm->rank && other->has_left && other->started[work->call.stream] < work->number, ZOFF_ERR_COMM,
                     "rank %u: %s cannot be done: rank %u has left the group", comm->rank, zoff_comm_call_name(comm, work),
                     rank);
    }
    return ZOFF_PENDING;
}

static bool messages_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    messages_comm *m = (messages_comm *)comm;
    if (!work->arrived)
        return m->members[rank].started[work->call.stream] >= work->number;
    const zoff_comm_lane *from = &operation_of(m, work)->lanes[rank], *to = from + comm->size;
    return !from->left && !from->flying && !to->left && !to->flying;
}

/* ---- the end ---- */

static void tell_the_end(messages_comm *m, zoff_comm_says says, const char *words)
{
    zoff_comm_note note;
    memset(&note, 0, offsetof(zoff_comm_note, data));
    note.says = says;
    note.data_bytes = zoff_base_bits_min(strlen(words), sizeof note.data);
    memcpy(note.data, words, note.data_bytes);
    for (unsigned rank = 0; rank < m->comm.size; rank++) {
        if (rank != m->comm.rank)
            (void)zoff_comm_courier_send(m->courier, rank, &note);
    }
}

/* Whether something of the operation is still in flight. A rank that has started it, too, may be sending until it is heard to
 * have given up. What it has sent by then is taken, so that its memory is free as well: there is a receive for everything,
 * called back where the message is not there. */
static bool recall(messages_comm *m, operation *o, bool is_late)
{
    const zoff_comm_work *work = o->work;
    bool holds = false;
    for (unsigned i = 0; i < 2 * m->comm.size; i++) {
        zoff_comm_lane *lane = &o->lanes[i];
        const member *peer = &m->members[lane->peer];
        const bool may_come = !lane->sends && !is_late && peer->started[work->call.stream] >= work->number;
        lane->is_open = may_come;
        if (!may_come)
            lane->left = 0;
        if ((!may_come || peer->has_left) && !lane->sends)
            zoff_comm_courier_cancel(m->courier, lane);
        holds |= zoff_comm_courier_move(m->courier, lane) != ZOFF_OK;
    }
    return holds;
}

static void messages_give_up(zoff_comm *comm, const char *words)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_kept_error kept;
    zoff_base_status_keep(&kept); /* what fails here fails after what the caller asks about */
    comm->is_broken = true;
    end_all(m, words, true);
    tell_the_end(m, ZOFF_COMM_GIVES_UP, words);
    const double until = zoff_base_clock_seconds() + m->patience_seconds;
    while (m->flying) {
        operation *o = m->in_flight[m->flying - 1];
        const bool is_late = zoff_base_clock_seconds() > until;
        hear_all(m);
        const bool holds = recall(m, o, is_late);
        if (holds && !is_late) {
            sched_yield();
            continue;
        }
        comm->holds_memory |= holds;
        if (!holds) {
            zoff_base_mem_free(o->work->scratch);
            o->work->scratch = NULL;
        }
        o->work->active = false;
        o->work->outcome = ZOFF_ERR_COMM;
        forget(m, o, holds);
    }
    zoff_base_status_restore(&kept);
}

/* Others may close later than this rank, and what they say then must find somebody: PENDING until all have. */
static zoff_status hear_the_end(messages_comm *m)
{
    progress(m);
    if (m->is_over)
        return zoff_base_status_fail(ZOFF_ERR_COMM, "%s", m->over);
    for (unsigned rank = 0; rank < m->comm.size; rank++) {
        if (rank != m->comm.rank && !m->members[rank].has_left)
            return ZOFF_PENDING;
    }
    return ZOFF_OK;
}

static void free_all(messages_comm *m)
{
    for (unsigned rank = 0; m->members && rank < m->comm.size; rank++) {
        for (unsigned i = 0; i < ZOFF_COMM_STREAMS * AHEAD; i++)
            zoff_base_mem_free(m->members[rank].early[i / AHEAD][i % AHEAD]);
    }
    zoff_base_mem_free(m->members);
    zoff_base_mem_free(m);
}

static void messages_close(zoff_comm *comm)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_status status = ZOFF_ERR_COMM;
    if (m->flying) {
        char words[128];
        snprintf(words, sizeof words, "rank %u has left the group with an operation in flight", comm->rank);
        messages_give_up(comm, words);
    } else if (!m->is_over) {
        tell_the_end(m, ZOFF_COMM_LEAVES, "");
        const double until = zoff_base_clock_seconds() + m->close_seconds;
        while ((status = hear_the_end(m)) == ZOFF_PENDING && zoff_base_clock_seconds() < until)
            sched_yield();
    }
    zoff_comm_courier_close(m->courier, status == ZOFF_OK);
    free_all(m);
}

zoff_status zoff_comm_messages_open(const zoff_comm_opts *opts, const zoff_comm_transport *transport, zoff_comm **out)
{
    zoff_status status;
    messages_comm *m;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *m, "a communicator", &m));
    m->comm = (zoff_comm){.ops = &OPS,
                          .rank = transport->rank,
                          .size = transport->size,
                          .timeout_seconds = opts->timeout_seconds,
                          .one_thread = !transport->any_thread,
                          .is_remote = true};
    m->comm.info.backend = transport->name;
    m->close_seconds = transport->close_seconds;
    const bool is_hasty = opts->timeout_seconds >= 0 && opts->timeout_seconds < PATIENCE_SECONDS;
    m->patience_seconds = is_hasty ? opts->timeout_seconds : PATIENCE_SECONDS;
    ZOFF_TRY_OR(free_comm, zoff_base_mem_alloc(transport->size, sizeof *m->members, "a communicator", &m->members));
    ZOFF_TRY_OR(free_comm, zoff_comm_courier_open(transport, &m->courier));
    *out = &m->comm;
    return ZOFF_OK;
free_comm:
    free_all(m);
    return status;
}

static const zoff_comm_ops OPS = {.name = "messages",
                                  .close = messages_close,
                                  .start = messages_start,
                                  .poll = messages_poll,
                                  .has_arrived = messages_has_arrived,
                                  .give_up = messages_give_up};
