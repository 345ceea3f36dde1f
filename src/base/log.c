/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: the log sink. It is global mutable state; tests/abi/check_symbols.py lists all of that. */
#include "log.h"

#include "env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const LEVEL_NAMES[] = {"error", "warn", "info", "debug", "trace"};

static struct {
    zoff_log_fn fn;
    void *ctx;
} sink;

void zoff_log_set(zoff_log_fn fn, void *ctx)
{
    sink.fn = fn;
    sink.ctx = ctx;
}

enum { LEVELS = sizeof LEVEL_NAMES / sizeof LEVEL_NAMES[0] };

/* Number of the level with that name; LEVELS for none. */
static unsigned find_level(const char *name)
{
    unsigned i = 0;
    while (i < LEVELS && strcmp(name, LEVEL_NAMES[i]) != 0)
        i++;
    return i;
}

/* The most verbose level that is wanted; `open` if the environment does not set it. */
static unsigned level_limit(unsigned open)
{
    const char *name = zoff_base_env_get(ZOFF_ENV_LOG_LEVEL);
    unsigned limit = name ? find_level(name) : LEVELS;
    return limit < LEVELS ? limit : open;
}

bool zoff_base_log_wants(zoff_log_level level)
{
    return (unsigned)level <= level_limit(sink.fn ? ZOFF_LOG_INFO : ZOFF_LOG_WARN);
}

bool zoff_base_log_wants_asked(void)
{
    return ZOFF_LOG_INFO <= level_limit(ZOFF_LOG_INFO);
}

bool zoff_base_log_wants_told(void)
{
    return ZOFF_LOG_INFO <= level_limit(sink.fn || isatty(STDERR_FILENO) ? ZOFF_LOG_INFO : ZOFF_LOG_WARN);
}

const char *zoff_base_log_unknown_level(void)
{
    const char *name = zoff_base_env_get(ZOFF_ENV_LOG_LEVEL);
    return name && find_level(name) == LEVELS ? name : NULL;
}

static void print_to_stderr(zoff_log_level level, const char *room, const char *line)
{
    struct timespec now;
    struct tm local;
    char stamp[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local))
        strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
    /* Write the line in one call, so that lines of several processes do not mix. */
    fprintf(stderr, "[%s,%03ld] [%d] zoff %s %s: %s\n", stamp, now.tv_nsec / 1000000, (int)getpid(), LEVEL_NAMES[level], room,
            line);
}

void zoff_base_log_line(zoff_log_level level, const char *room, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (sink.fn)
        sink.fn(level, room, line, sink.ctx);
    else
        print_to_stderr(level, room, line);
}
