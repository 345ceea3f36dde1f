/* status.h: what a call returns, the words for it, and where the library's log lines go. */
#ifndef ZOFF_STATUS_H
#define ZOFF_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ZOFF_API __attribute__((visibility("default")))
#else
#define ZOFF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ZOFF_VERSION_MAJOR 0
#define ZOFF_VERSION_MINOR 1
#define ZOFF_VERSION_PATCH 0
/** What zoff_version() of the same release returns. */
#define ZOFF_VERSION_NUMBER (ZOFF_VERSION_MAJOR * 10000u + ZOFF_VERSION_MINOR * 100u + ZOFF_VERSION_PATCH)

/* clang-format off */
#define ZOFF_STATUS_MAP(XX)                                             \
    XX(OK,               0, "done")                                     \
    XX(PENDING,          1, "not finished yet")                         \
    XX(ERR_INVALID,     -1, "an argument or a configuration is wrong")  \
    XX(ERR_STATE,       -2, "called at the wrong time")                 \
    XX(ERR_NO_MEMORY,   -3, "memory or memory budget exhausted")        \
    XX(ERR_UNSUPPORTED, -4, "not on this build or machine")             \
    XX(ERR_IO,          -5, "storage failed")                           \
    XX(ERR_NO_SPACE,    -6, "storage is full")                          \
    XX(ERR_CORRUPT,     -7, "stored data is not what was written")      \
    XX(ERR_DEVICE,      -8, "accelerator failed")                       \
    XX(ERR_COMM,        -9, "a peer failed or timed out")               \
    XX(ERR_OVERFLOW,   -10, "gradients overflow at the least loss scale")
/* clang-format on */

/** What a call came to. Negative values are errors; zoff_last_error() has the words for them. */
typedef enum zoff_status {
#define XX(name, value, text) ZOFF_##name = value,
    ZOFF_STATUS_MAP(XX)
#undef XX
} zoff_status;

/** How much a log line matters. */
typedef enum zoff_log_level {
    ZOFF_LOG_ERROR = 0,
    ZOFF_LOG_WARN = 1,
    ZOFF_LOG_INFO = 2,
    ZOFF_LOG_DEBUG = 3,
    ZOFF_LOG_TRACE = 4
} zoff_log_level;

/** Receive one log line: no newline at its end, `room` names the part of the library that speaks.
 *  @threads may be called from any thread that is inside a zoff call */
typedef void (*zoff_log_fn)(zoff_log_level level, const char *room, const char *line, void *ctx);

/** Return the version of the library in use as 10000*major + 100*minor + patch.
 *  @threads any */
ZOFF_API unsigned zoff_version(void);

/** Name a status in a few words.
 *  @owns static text
 *  @threads any */
ZOFF_API const char *zoff_status_text(zoff_status status);

/** Tell what went wrong in the last failed call of this thread: the cause, the place, and the way out.
 *  @owns library; valid until this thread's next failing call. Never NULL; "" before any failure
 *  @threads any; each thread has its own text */
ZOFF_API const char *zoff_last_error(void);

/** Send log lines to `fn` instead of stderr; NULL restores stderr. Lines above the level in force
 *  (ZOFF_LOG_LEVEL = error, warn, info, debug or trace) are not made at all. Where the environment says nothing, stderr gets
 *  warnings and errors, and the lines that steps_per_print asks for; `fn` gets lines of info, too.
 *  @threads call before anything else */
ZOFF_API void zoff_log_set(zoff_log_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
