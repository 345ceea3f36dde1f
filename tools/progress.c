/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c: the line of progress on stderr, and the signals that end a verb. */
#include "progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signal_came;

static void take_signal(int number)
{
    (void)number;
    signal_came = 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(progress *p, const char *what)
{
    /* After one signal the default is restored, so that a second Ctrl-C works even if a disk does not answer. */
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    signal_came = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    *p = (progress){.what = what, .began = now(), .is_terminal = isatty(STDERR_FILENO) == 1};
}

bool progress_canceled(void)
{
    return signal_came;
}

void progress_bytes(char text[32], double bytes)
{
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; bytes >= 1000 && unit + 1 < sizeof UNITS / sizeof UNITS[0]; unit++)
        bytes /= 1000;
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, UNITS[unit]);
}

/* Print seconds, or minutes and hours. */
static void print_seconds(double seconds)
{
    const uint64_t whole = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000;
    if (whole < 60)
        fprintf(stderr, "%" PRIu64 " s", whole);
    else if (whole < 3600)
        fprintf(stderr, "%" PRIu64 " min %" PRIu64 " s", whole / 60, whole % 60);
    else
        fprintf(stderr, "%" PRIu64 " h %" PRIu64 " min", whole / 3600, whole % 3600 / 60);
}

bool progress_tell(const char *what, uint64_t done, uint64_t total, void *ctx)
{
    progress *p = ctx;
    const double time = now(), elapsed = time - p->began;
    p->done = done;
    if (p->is_terminal && elapsed >= 1 && time - p->shown >= 0.2) {
        char did[32], all[32], rate[32];
        progress_bytes(did, (double)done);
        progress_bytes(all, (double)total);
        progress_bytes(rate, (double)done / elapsed);
        fprintf(stderr, "\r\033[K%s: %s of %s, %s/s", what, did, all, rate);
        if (done > 0 && total >= done) {
            fprintf(stderr, ", ");
            print_seconds(elapsed * ((double)total / (double)done - 1));
            fprintf(stderr, " left");
        }
        p->shown = time;
    }
    return !signal_came;
}

void progress_end(progress *p, bool works)
{
    const double elapsed = now() - p->began;
    if (p->shown > 0)
        fprintf(stderr, "\r\033[K");
    if (!works || elapsed < 1)
        return;
    char all[32], rate[32];
    progress_bytes(all, (double)p->done);
    progress_bytes(rate, (double)p->done / elapsed);
    fprintf(stderr, "%s: %s in ", p->what, all);
    print_seconds(elapsed);
    fprintf(stderr, ", %s/s\n", rate);
}
