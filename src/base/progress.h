/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: the one loop that waits. Files, device streams and other ranks register a poller; a wait for one of them pumps
 * all of them and keeps their errors until the owner takes them.
 *
 * A list of pollers belongs to one object. One thread at a time may use it. */
#ifndef ZOFF_BASE_PROGRESS_H
#define ZOFF_BASE_PROGRESS_H

#include "try.h"

#include <stdbool.h>

/* A source of work that completes later. Every function gets `ctx`; only park() may wait. */
typedef struct zoff_poller {
    zoff_status (*pump)(void *ctx);                    /* move bytes; safe inside a kernel. NULL: nothing to move */
    zoff_status (*park)(void *ctx);                    /* block until something completes. NULL: the loop pauses instead */
    bool (*is_busy)(void *ctx);                        /* true while work is in flight. NULL: always true */
    zoff_status (*overdue)(void *ctx, double seconds); /* set the error of the deadline and return it */
    void *ctx;
    /* deadline, counted in pauses without movement; negative: none, or park() has a deadline of its own */
    double timeout_seconds;
    double *waited; /* the loop adds the seconds of waiting here; NULL: nowhere */

    /* private to progress.c */
    double stood;    /* seconds of pauses since something moved */
    bool is_overdue; /* true after a wait that ended by this deadline; readable by the owner */
    zoff_status fault;
    zoff_saved_error words;
    struct zoff_poller *next;
} zoff_poller;

typedef struct zoff_progress {
    zoff_poller *first;
    unsigned depth; /* depth of nested waits */
    bool moved;
    uint64_t most; /* most movements that one wait can report; 0: a million */
} zoff_progress;

/* Register a poller. The caller sets its fields first and keeps it in place until zoff_base_progress_remove(). */
void zoff_base_progress_add(zoff_progress *p, zoff_poller *poller);
/* Unregister a poller; does nothing if it is not on the list. */
void zoff_base_progress_remove(zoff_progress *p, zoff_poller *poller);

/* Pump every poller and keep the first error of each. */
void zoff_base_progress_pump(zoff_progress *p);
/* Keep an error of a poller, with this thread's error text. An earlier error stays. */
void zoff_base_progress_keep(zoff_poller *poller, zoff_status status);

/* Call this within `until` when something moved, so that the loop asks again without a pause, and deadlines start anew. */
void zoff_base_progress_moved(zoff_progress *p);

/* Call `until` until it returns anything but PENDING. Between two calls, park in `on`; if `on` cannot park, yield, then nap 20
 * us to 1 ms; then pump all pollers. With `on` NULL, or where it could park but is not busy, the loop chooses among the busy
 * pollers: the first that cannot park, else the first. `name` is that of `until`, for messages.
 * @return the status of `until`; or an error of `on`, which the call takes; or the error of a poller's deadline; or ERR_STATE
 *         where nothing is under way, and where `until` reports more movement than there can be. An error of another poller
 *         does not end the wait: it stays kept.
 * @blocks yes */
#define zoff_base_progress_wait(p, on, until, ...) zoff_base_progress_wait_named((p), (on), (until), #until, __VA_ARGS__)
zoff_status zoff_base_progress_wait_named(zoff_progress *p, zoff_poller *on, zoff_status (*until)(void *ctx), const char *name,
                                          void *ctx);

/* Return the kept error as this thread's last error, and forget it. OK if there is none. */
zoff_status zoff_base_progress_take(zoff_poller *poller);
void zoff_base_progress_forget(zoff_poller *poller);

#endif
