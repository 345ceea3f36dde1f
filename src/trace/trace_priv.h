/* SPDX-License-Identifier: Apache-2.0 */
/* trace_priv.h: what the files of this room share. writer.c has the file, engines.c the process and its engines, and
 * marks.c makes events. */
#ifndef ZOFF_TRACE_PRIV_H
#define ZOFF_TRACE_PRIV_H

#include "fork.h"
#include "trace.h"

enum {
    ZOFF_TRACE_PATH_BYTES = 4096,
    ZOFF_TRACE_EVENTS_MOST = 1000 * 1000, /* most events without a range of steps; about 200 MB */
    ZOFF_TRACE_THREADS_MOST = 1024,       /* most threads of an engine; further ones have no track */
};

/* ---- writer.c ---- */

typedef struct zoff_trace_event {
    char phase; /* phase of the event: X, i, M; or b for a pair of b and e */
    const char *name, *category;
    unsigned pid, tid;
    double from, to;
    uint64_t id;    /* b */
    char args[512]; /* members of a JSON object; "": none */
} zoff_trace_event;

typedef struct zoff_trace_writer {
    char path[ZOFF_TRACE_PATH_BYTES + 32];
    zoff_fork_guard *guard; /* guard of the descriptor, which is locked; NULL: closed */
    uint64_t at;            /* bytes in the file before the end of the list */
    char *text;             /* text that is not written yet */
    size_t used;
    uint64_t events;
} zoff_trace_writer;

/* Create the file, or continue one that this writer closed and nobody changed. If another process has it, the number of this
 * process is added to the name. */
zoff_status zoff_trace_writer_open(zoff_trace_writer *w, const char *path);
zoff_status zoff_trace_writer_add(zoff_trace_writer *w, const zoff_trace_event *event);
zoff_status zoff_trace_writer_flush(zoff_trace_writer *w); /* the file is complete JSON afterwards */
zoff_status zoff_trace_writer_close(zoff_trace_writer *w);
/* Escape a text for a JSON string, cut where it does not fit. */
void zoff_trace_writer_escape(const char *text, char *dst, size_t dst_bytes);

/* ---- engines.c ---- */

/* Put a word before the ending of a name: "t.json" becomes "t.rank3.json".  @return whether it fits into the bytes */
bool zoff_trace_engines_name(const char *path, const char *word, unsigned number, char *dst, size_t dst_bytes);

/* The track of a thread in an engine. */
typedef struct zoff_trace_track {
    long thread; /* number of the thread in the system */
    unsigned number;
} zoff_trace_track;

/* The engine's data of a trace. The program's thread writes it inside its calls, and the engine's thread only under the lock of
 * the engine. The lock of engines.c guards tracks, `since`, and `is_open`, which is atomic, too. */
struct zoff_trace {
    unsigned pid;
    unsigned process; /* zoff_base_fork_number() */
    uint64_t serial;  /* serial number among all traces of the process */
    bool is_open;     /* the trace is in a selected step */
    bool ends;        /* a step is over, but its call is not */
    bool closes;      /* that step was the last selected one */
    bool in_step;
    int64_t step;
    double since;  /* time from which on events are written */
    double left;   /* time at which a call returned with a step open; 0: the program is in a call */
    uint64_t rows; /* rows that have ended; atomic */
    double *waits; /* time since which the row of each bucket waits; 0: the row does not wait */
    size_t buckets;
    unsigned programs; /* threads of the program */
    unsigned track_count;
    zoff_trace_track tracks[ZOFF_TRACE_THREADS_MOST];
};

/* The work of a thread. */
typedef struct zoff_trace_thread {
    const char *name;    /* NULL: a thread of the program, or of the team */
    zoff_trace *current; /* trace whose call the thread is in */
    double called;       /* when the outermost call began */
    const char *row;     /* row that the thread works on */
    uint64_t serial;     /* serial number of the trace for which the track was made */
    unsigned track;
} zoff_trace_thread;
extern __thread zoff_trace_thread zoff_trace_self;

/* Write an event of an open trace, on the track of the calling thread. `worker`: its number in the team, 0 for others. */
void zoff_trace_engines_emit(zoff_trace *t, zoff_trace_event *event, unsigned worker);
bool zoff_trace_engines_is_open(const zoff_trace *t);
/* Whether the selection of the process contains the step. `out_last`: no step after it is selected. */
bool zoff_trace_engines_selects(int64_t step, bool *out_last);
void zoff_trace_engines_open_window(zoff_trace *t, double since);
void zoff_trace_engines_close_window(zoff_trace *t);
void zoff_trace_engines_flush(void);
uint64_t zoff_trace_engines_next_id(void);

#endif
