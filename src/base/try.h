/* SPDX-License-Identifier: Apache-2.0 */
/* try.h: how a function fails. ZOFF_TRY forwards an error that a callee has explained. ZOFF_FAIL_IF detects an error and
 * explains it once. Cleanup is by goto; each label says what it undoes. */
#ifndef ZOFF_BASE_TRY_H
#define ZOFF_BASE_TRY_H

#include <zoff/status.h>

/* Set this thread's last error text (at most 2 KiB, cut beyond) and return `status`. */
zoff_status zoff_base_status_fail(zoff_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put a prefix before this thread's last error text: "while sealing: ...".  @return `status` */
zoff_status zoff_base_status_prefix(zoff_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* This thread's last error text, saved during cleanup calls that may fail themselves. */
typedef struct zoff_saved_error {
    char text[2048];
} zoff_saved_error;
void zoff_base_status_save(zoff_saved_error *out);
void zoff_base_status_restore(const zoff_saved_error *saved);
/* How often this thread's text was set: a call that has failed has set it at least once. */
unsigned zoff_base_status_count(void);

/* The system's words for an errno value, in a buffer of this thread. */
const char *zoff_base_status_errno(int error);

#define ZOFF_TRY(call)                                                                                                         \
    do {                                                                                                                       \
        zoff_status try_status_ = (call);                                                                                      \
        if (try_status_ < 0)                                                                                                   \
            return try_status_;                                                                                                \
    } while (0)

/* The same for work that may go on later: also return PENDING. */
#define ZOFF_TRY_DONE(call)                                                                                                    \
    do {                                                                                                                       \
        zoff_status try_status_ = (call);                                                                                      \
        if (try_status_ != ZOFF_OK)                                                                                            \
            return try_status_;                                                                                                \
    } while (0)

/* For functions with cleanup: `status` must be a variable of the function. */
#define ZOFF_TRY_OR(label, call)                                                                                               \
    do {                                                                                                                       \
        status = (call);                                                                                                       \
        if (status < 0)                                                                                                        \
            goto label;                                                                                                        \
    } while (0)

/* A cleanup call, which leaves this thread's last error text as it is. */
#define ZOFF_KEEP_ERROR(call)                                                                                                  \
    do {                                                                                                                       \
        zoff_saved_error kept_error_;                                                                                          \
        zoff_base_status_save(&kept_error_);                                                                                   \
        call;                                                                                                                  \
        zoff_base_status_restore(&kept_error_);                                                                                \
    } while (0)

#define ZOFF_FAIL_IF(condition, code, ...)                                                                                     \
    do {                                                                                                                       \
        if (__builtin_expect(!!(condition), 0))                                                                                \
            return zoff_base_status_fail((code), __VA_ARGS__);                                                                 \
    } while (0)

#endif
