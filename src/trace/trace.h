/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: the file of ZOFF_TRACE: spans of calls, rows, transfers and threads in selected steps, as Chrome trace events. And
 * the file of ZOFF_METRICS: the numbers of each step.
 *
 * Without ZOFF_TRACE every function below costs a branch. Nothing here fails: an error of the file is logged once, and ends the
 * trace. docs/adr/0057-traces.md gives the reasons. */
#ifndef ZOFF_TRACE_H
#define ZOFF_TRACE_H

#include <zoff/step.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct zoff_trace zoff_trace; /* the trace of one engine; NULL: none */

/* Whether some engine of the process is in a selected step. Atomic; use zoff_trace_on(). */
extern bool zoff_trace_flag;

static inline bool zoff_trace_on(void)
{
    return __builtin_expect(__atomic_load_n(&zoff_trace_flag, __ATOMIC_RELAXED), false);
}

/* Seconds of the clock; 0 if nothing is traced. An event that began at 0 is not written. */
double zoff_trace_clock(void);
static inline double zoff_trace_now(void)
{
    return zoff_trace_on() ? zoff_trace_clock() : 0;
}

/* ---- engines and steps ---- */

/* The engine's place among those that train with it. */
typedef struct zoff_trace_rank {
    unsigned rank, ranks;
    bool are_threads; /* ranks are threads of one process, which share the file */
} zoff_trace_rank;

/* Start the trace of an engine.  @return NULL without ZOFF_TRACE, and if it cannot be used, which is logged */
zoff_trace *zoff_trace_open(const zoff_trace_rank *who, size_t buckets);
/* End the trace, whose file is complete then. Accepts NULL, also in a child of fork(). */
void zoff_trace_close(zoff_trace *t);

/* Note where an attempt at a step begins, inside of a call, and where it ends. The next call after the end may be of another
 * step. */
void zoff_trace_step_begin(zoff_trace *t, int64_t step);
void zoff_trace_step_end(zoff_trace *t);
/* Rows of a step begin before the step. They are traced if the step before was. */
void zoff_trace_step_ahead(zoff_trace *t, int64_t step);

/* ---- calls of the program ---- */

typedef struct zoff_trace_call {
    zoff_trace *trace; /* trace of the call; NULL: not traced */
    const char *name;
    bool is_poll; /* the call is shown only if a row ended in it */
    double from;
    uint64_t rows;
    zoff_trace *outer; /* trace whose call the thread is in already; NULL: in none */
} zoff_trace_call;

zoff_trace_call zoff_trace_enter(zoff_trace *t, const char *name, bool is_poll);
void zoff_trace_leave(zoff_trace_call *call);

static inline void zoff_trace_leave_traced(zoff_trace_call *call)
{
    if (__builtin_expect(call->trace != NULL, false))
        zoff_trace_leave(call);
}

/* Begin the span of a public call, which ends when the function returns. `t` may be NULL. */
#define ZOFF_TRACE_CALL(t, is_poll)                                                                                            \
    zoff_trace *trace_ = (t);                                                                                                  \
    zoff_trace_call traced_ __attribute__((cleanup(zoff_trace_leave_traced), unused)) = {.trace = NULL};                       \
    if (__builtin_expect(trace_ != NULL, false))                                                                               \
    traced_ = zoff_trace_enter(trace_, __func__, (is_poll))

/* Note that the calling thread belongs to the library, so its calls are no calls of the program. `name`: static. */
void zoff_trace_name_thread(const char *name);

/* ---- work ---- */

/* The row of a bucket. */
typedef struct zoff_trace_row {
    const char *name;
    size_t bucket;
    size_t elements;
} zoff_trace_row;

/* Call these around each call of a row. `status`: its result. A row that waits has one span, which ends with the row. */
double zoff_trace_row_begin(const zoff_trace *t, const char *name);
void zoff_trace_row_end(zoff_trace *t, const zoff_trace_row *row, double from, zoff_status status);

static inline double zoff_trace_begin_row(const zoff_trace *t, const char *name)
{
    return zoff_trace_on() ? zoff_trace_row_begin(t, name) : 0;
}

static inline void zoff_trace_end_row(zoff_trace *t, const zoff_trace_row *row, double from, zoff_status status)
{
    if (from > 0)
        zoff_trace_row_end(t, row, from, status);
}

/* Mark a moment on the track of the thread. */
void zoff_trace_instant(zoff_trace *t, const char *name);

/* Write a complete transfer: a read or write of a file, or a copy of a device. `from`, `to`: zoff_trace_now() at its begin and
 * end. The engine that started it calls this, inside of a call or in its thread. */
typedef struct zoff_trace_transfer {
    const char *kind; /* "read", "write", "download", "upload" */
    const char *path; /* path of the file; NULL: a device */
    size_t item;      /* number of the chunk, slice or bucket */
    const char *item_kind;
    uint64_t offset; /* place in the file */
    uint64_t bytes;
    double from, to;
} zoff_trace_transfer;
void zoff_trace_end_transfer(const zoff_trace_transfer *transfer);

/* ---- metrics ---- */

typedef struct zoff_metrics zoff_metrics; /* the file of one engine; NULL: none */

/* Start the metrics of an engine.  @return NULL without ZOFF_METRICS, on other ranks than 0, and if it cannot be used, which is
 * logged */
zoff_metrics *zoff_trace_metrics_open(const zoff_trace_rank *who);

/* Count a step or micro-step that is over. Writes the file, at most once a second. Accepts NULL. */
void zoff_trace_metrics_step(zoff_metrics *m, const zoff_step_info *info);

/* Write the rest. Accepts NULL, also in a child of fork(). */
void zoff_trace_metrics_close(zoff_metrics *m);

#endif
