/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: shows how far a long verb is, and lets Ctrl-C end it cleanly. */
#ifndef ZOFF_TOOL_PROGRESS_H
#define ZOFF_TOOL_PROGRESS_H

#include <zoff/status.h>

/* The progress of a verb so far. */
typedef struct progress {
    const char *what;    /* static text: the verb */
    double began, shown; /* times by the clock, in seconds: of the begin, and of the last line */
    uint64_t done;       /* bytes */
    bool is_terminal;
} progress;

/* Begin to show progress. From now on SIGINT and SIGTERM end the verb at its next call of progress_tell(); a second signal ends
 * the process at once. */
void progress_begin(progress *p, const char *what);

/* Show a line on a terminal, five times a second after the first second. `ctx` is a progress. This is a zoff_progress_fn.
 * @return false after a signal: end the work, and remove what it has written */
bool progress_tell(const char *what, uint64_t done, uint64_t total, void *ctx);

/* Print a last line on stderr if the verb took more than a second. If stderr is no terminal, that line is the only one.
 * @param works false: print nothing, because the verb has failed, and its error is enough */
void progress_end(progress *p, bool works);

/* True after SIGINT or SIGTERM. */
bool progress_canceled(void);

/* Print a number of bytes as "1.25 GB". */
void progress_bytes(char text[32], double bytes);

#endif
