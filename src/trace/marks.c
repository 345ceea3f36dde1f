/* SPDX-License-Identifier: Apache-2.0 */
/* marks.c: the events of a trace: calls of the program and what lies between them, rows, waits, shares of kernels, transfers.
 */
#include "trace_priv.h"

#include "clock.h"
#include "team.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

double zoff_trace_clock(void)
{
    return zoff_base_clock_seconds();
}

/* ---- the kernel team ---- */

/* The team's watch: its threads learn from the caller on which row they work. */
static const void *who_calls(const char **out_work)
{
    if (!zoff_trace_on() || !zoff_trace_engines_is_open(zoff_trace_self.current))
        return NULL;
    *out_work = zoff_trace_self.row ? zoff_trace_self.row : "work";
    return zoff_trace_self.current;
}

static void share_is_done(const void *who, const char *work, unsigned thread, double from)
{
    zoff_trace *t = (zoff_trace *)(uintptr_t)who;
    char name[64];
    snprintf(name, sizeof name, "share of %s", work);
    zoff_trace_event event = {.phase = 'X', .name = name, .category = "kernel", .from = from, .to = zoff_trace_clock()};
    snprintf(event.args, sizeof event.args, "\"thread\": %u", thread);
    zoff_trace_engines_emit(t, &event, thread);
}

static const zoff_team_watch WATCH = {.who_calls = who_calls, .share_is_done = share_is_done};

/* The step of a call. The end of a call reads it, when a background thread may have begun with rows of the next step. */
static int64_t step_of(const zoff_trace *t)
{
    return __atomic_load_n(&t->step, __ATOMIC_RELAXED);
}

static void set_step(zoff_trace *t, int64_t step)
{
    __atomic_store_n(&t->step, step, __ATOMIC_RELAXED);
}

/* ---- steps ---- */

void zoff_trace_step_begin(zoff_trace *t, int64_t step)
{
    bool is_last;
    if (!t || t->process != zoff_base_fork_number())
        return;
    const bool selects = zoff_trace_engines_selects(step, &is_last);
    memset(t->waits, 0, t->buckets * sizeof *t->waits); /* a skipped or dropped step leaves rows that wait */
    set_step(t, step);
    t->left = 0;
    t->in_step = true;
    t->ends = t->closes = false;
    if (selects)
        zoff_base_team_watch(&WATCH);
    if (selects && !t->is_open)
        zoff_trace_engines_open_window(t, zoff_trace_self.current == t ? zoff_trace_self.called : zoff_trace_clock());
    else if (!selects && t->is_open)
        zoff_trace_engines_close_window(t);
}

void zoff_trace_step_ahead(zoff_trace *t, int64_t step)
{
    if (t)
        set_step(t, step);
}

void zoff_trace_step_end(zoff_trace *t)
{
    bool is_last = false;
    if (!t || !t->in_step || t->process != zoff_base_fork_number())
        return;
    (void)zoff_trace_engines_selects(step_of(t), &is_last);
    t->in_step = false;
    t->ends = true;
    t->closes = is_last;
}

/* ---- calls ---- */

void zoff_trace_name_thread(const char *name)
{
    zoff_trace_self.name = name;
}

zoff_trace_call zoff_trace_enter(zoff_trace *t, const char *name, bool is_poll)
{
    zoff_trace_thread *self = &zoff_trace_self;
    zoff_trace_call call = {.name = name, .is_poll = is_poll};
    if (!t || t->process != zoff_base_fork_number())
        return call;
    call.trace = t;
    call.from = zoff_trace_clock();
    call.rows = __atomic_load_n(&t->rows, __ATOMIC_RELAXED);
    call.outer = self->current;
    if (self->current != t)
        self->called = call.from;
    self->current = t;
    return call;
}

static void emit_span(zoff_trace *t, const char *name, const char *category, double from, double to)
{
    zoff_trace_event event = {.phase = 'X', .name = name, .category = category, .from = from, .to = to};
    snprintf(event.args, sizeof event.args, "\"step\": %" PRId64, step_of(t));
    zoff_trace_engines_emit(t, &event, 0);
}

/* Write the call and the time before it. A poll in which no row ended leaves the time as it is. */
static void end_call(zoff_trace *t, const zoff_trace_call *call)
{
    if (call->is_poll && call->rows == __atomic_load_n(&t->rows, __ATOMIC_RELAXED))
        return;
    const double now = zoff_trace_clock();
    if (t->left > 0 && call->from >= t->left)
        emit_span(t, "program computes", "program", t->left, call->from);
    emit_span(t, call->name, "call", call->from, now);
    t->left = t->in_step ? now : 0;
}

void zoff_trace_leave(zoff_trace_call *call)
{
    zoff_trace *t = call->trace;
    if (!t)
        return;
    zoff_trace_thread *self = &zoff_trace_self;
    self->current = call->outer;
    if (self->name || call->outer == t || !zoff_trace_engines_is_open(t))
        return;
    end_call(t, call);
    if (t->closes)
        zoff_trace_engines_close_window(t);
    if (t->ends)
        zoff_trace_engines_flush();
    t->ends = t->closes = false;
}

/* ---- rows ---- */

double zoff_trace_row_begin(const zoff_trace *t, const char *name)
{
    if (!zoff_trace_engines_is_open(t))
        return 0;
    zoff_trace_self.row = name;
    return zoff_trace_clock();
}

static void emit_row(zoff_trace *t, const zoff_trace_row *row, char phase, double from, double to)
{
    zoff_trace_event event = {
        .phase = phase, .name = row->name, .category = phase == 'b' ? "waiting" : "row", .from = from, .to = to};
    event.id = phase == 'b' ? zoff_trace_engines_next_id() : 0;
    snprintf(event.args, sizeof event.args, "\"bucket\": %zu, \"step\": %" PRId64 ", \"elements\": %zu", row->bucket,
             step_of(t), row->elements);
    zoff_trace_engines_emit(t, &event, 0);
}

void zoff_trace_row_end(zoff_trace *t, const zoff_trace_row *row, double from, zoff_status status)
{
    double *waits = &t->waits[row->bucket];
    zoff_trace_self.row = NULL;
    if (status == ZOFF_PENDING) {
        *waits = *waits > 0 ? *waits : from;
        return;
    }
    const double now = zoff_trace_clock();
    if (*waits > 0)
        emit_row(t, row, 'b', *waits, now);
    *waits = 0;
    __atomic_fetch_add(&t->rows, status == ZOFF_OK, __ATOMIC_RELAXED);
    emit_row(t, row, 'X', from, now);
}

void zoff_trace_instant(zoff_trace *t, const char *name)
{
    if (!zoff_trace_on() || !zoff_trace_engines_is_open(t))
        return;
    zoff_trace_event event = {.phase = 'i', .name = name, .category = "gate", .from = zoff_trace_clock()};
    snprintf(event.args, sizeof event.args, "\"step\": %" PRId64, step_of(t));
    zoff_trace_engines_emit(t, &event, 0);
}

/* ---- transfers ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Write a transfer. Transfers overlap, so they are no spans of a thread. Transfers of one name share a track: a file and a
 * direction. */
void zoff_trace_end_transfer(const zoff_trace_transfer *x)
{
    zoff_trace *t = zoff_trace_self.current;
    char name[160], path[200] = "";
    if (x->from <= 0 || x->to <= 0 || !zoff_trace_engines_is_open(t))
        return;
    zoff_trace_event event = {.phase = 'b', .category = x->path ? "io" : "device", .from = x->from, .to = x->to};
    event.id = zoff_trace_engines_next_id();
    event.name = x->path ? name : x->kind;
    if (x->path) {
        const size_t length = strlen(x->path);
        const size_t most = 90; /* because every byte may take two in JSON */
        zoff_trace_writer_escape(x->path + (length > most ? length - most : 0), path, sizeof path);
        snprintf(name, sizeof name, "%s %.140s", x->kind, last_name(x->path));
        snprintf(event.args, sizeof event.args,
                 "\"%s\": %zu, \"step\": %" PRId64 ", \"bytes\": %" PRIu64 ", \"offset\": %" PRIu64 ", \"path\": \"%s\"",
                 x->item_kind, x->item, step_of(t), x->bytes, x->offset, path);
    } else {
        snprintf(event.args, sizeof event.args, "\"%s\": %zu, \"step\": %" PRId64 ", \"bytes\": %" PRIu64, x->item_kind,
                 x->item, step_of(t), x->bytes);
    }
    zoff_trace_engines_emit(t, &event, 0);
}
