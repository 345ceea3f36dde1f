/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: the version, the result of a call and its message, log lines, and what this build can do.
 *
 *  Rules that hold for the whole API:
 *
 *  - A call returns a zoff_status. Negative values are errors, and zoff_last_error() has the message. No call exits or aborts.
 *  - Outputs come last and are written on success only. The one exception is zoff_step_info, which also describes a failure.
 *  - A handle that an "open" or "create" call returns belongs to the caller, who closes it. NULL may be closed.
 *  - Every struct begins with struct_size, the size that the caller was compiled with, and later versions add fields at its
 *    end. Start from its ZOFF_..._INIT macro, or set struct_size to sizeof the struct and everything else to zero. Zero is
 *    the default of every field, except in zoff_optimizer_hyper and zoff_loss_scaler, which a call fills, because a zero in
 *    them is a number like others.
 *  - An input struct with a field that this version does not know is refused with ERR_UNSUPPORTED unless that field is zero.
 *    Fields of an output struct that this version does not know are set to zero.
 *  - A handle is used by one thread at a time. Different handles are independent.
 */
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

/** Initialize a struct: struct_size is set, everything else is zero. The ZOFF_..._INIT macros are made of it. */
#ifdef __cplusplus
extern "C++" {
template <typename T> inline T zoff_sized()
{
    T value{};
    value.struct_size = sizeof value;
    return value;
}
}
#define ZOFF_SIZED(type) zoff_sized<type>()
#else
#define ZOFF_SIZED(type)                                                                                                       \
    {                                                                                                                          \
        .struct_size = sizeof(type)                                                                                            \
    }
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ZOFF_VERSION_MAJOR 0
#define ZOFF_VERSION_MINOR 1
#define ZOFF_VERSION_PATCH 0
/** The value that zoff_version() of this release returns. */
#define ZOFF_VERSION_NUMBER (ZOFF_VERSION_MAJOR * 10000u + ZOFF_VERSION_MINOR * 100u + ZOFF_VERSION_PATCH)

/** "Off", where 0 means "the default": do not clip (zoff_step_args.clip_norm), do not limit the time (timeout_seconds). The
 *  configuration's gradient_clipping understands it, too. */
#define ZOFF_OFF (-1.0)

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
    XX(ERR_OVERFLOW,   -10, "gradients are not finite too often")         \
    XX(ERR_CANCELED,   -11, "the program canceled it")
/* clang-format on */

/** The result of a call: ZOFF_OK, ZOFF_PENDING, or an error, which is negative. */
typedef enum zoff_status {
#define XX(name, value, text) ZOFF_##name = value,
    ZOFF_STATUS_MAP(XX)
#undef XX
} zoff_status;

/** Severity of a log line. */
typedef enum zoff_log_level {
    ZOFF_LOG_ERROR = 0,
    ZOFF_LOG_WARN = 1,
    ZOFF_LOG_INFO = 2,
    ZOFF_LOG_DEBUG = 3,
    ZOFF_LOG_TRACE = 4
} zoff_log_level;

/** Report progress of a long call, and decide whether it goes on.
 *  @param what static text, such as "verify"  @param done bytes so far  @param total bytes in all
 *  @return false: end the call with ERR_CANCELED  @threads the one that made the call */
typedef bool (*zoff_progress_fn)(const char *what, uint64_t done, uint64_t total, void *ctx);

/** Receive one log line.
 *  @param room the part of the library that writes it  @param line without a newline; valid during the call
 *  @threads any thread that is inside a zoff call */
typedef void (*zoff_log_fn)(zoff_log_level level, const char *room, const char *line, void *ctx);

/** Return the version of the library in use, as 10000 * major + 100 * minor + patch.
 *  @threads any */
ZOFF_API unsigned zoff_version(void);

/** Describe a status in a few words.
 *  @owns static text  @threads any */
ZOFF_API const char *zoff_status_text(zoff_status status);

/** Return the message of this thread's last failed call: the cause, the place, and what to do. "" before any failure.
 *  zoff_engine_error() has that of an engine, on any thread.
 *  @owns the library; valid until this thread's next failing call  @threads any; each thread has its own message */
ZOFF_API const char *zoff_last_error(void);

/** Send log lines to `fn`, or to stderr when `fn` is NULL.
 *
 *  The environment variable ZOFF_LOG_LEVEL (error, warn, info, debug, trace) sets the level. Without it stderr gets warnings,
 *  errors, and the step lines that steps_per_print asks for; a terminal also gets one line of zoff_engine_seal() about
 *  optimizer, rate, clipping and memory. `fn` gets all lines of level info.
 *  @threads call it before anything else */
ZOFF_API void zoff_log_set(zoff_log_fn fn, void *ctx);

/** Ask whether this build and this machine have a feature, such as "io_uring", "mpi", "cuda" or "avx512".
 *  zoff_features() lists all names.
 *  @threads any  @blocks a few milliseconds: a plug-in is loaded to see whether it can be
 *  @return OK: yes; ERR_UNSUPPORTED: no, and zoff_last_error() has the reason; ERR_INVALID for an unknown name */
ZOFF_API zoff_status zoff_feature(const char *name);

/** Write one line for each feature: its name, "yes" or "no", and details or the reason.
 *  @return OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter */
ZOFF_API zoff_status zoff_features(char *dst, size_t dst_bytes, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
