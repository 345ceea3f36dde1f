/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: the texts of statuses, and the last error text of each thread. */
#include "try.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 2048 };

static _Thread_local char last_error[TEXT_BYTES];
static _Thread_local unsigned error_count; /* how often the text was set */

unsigned zoff_version(void)
{
    return ZOFF_VERSION_NUMBER;
}

const char *zoff_status_text(zoff_status status)
{
    switch (status) {
#define XX(name, value, text)                                                                                                  \
    case ZOFF_##name:                                                                                                          \
        return text;
        ZOFF_STATUS_MAP(XX)
#undef XX
    }
    return "not a zoff status";
}

const char *zoff_last_error(void)
{
    return last_error;
}

static void set(const char text[TEXT_BYTES])
{
    memcpy(last_error, text, sizeof last_error);
    error_count++;
}

zoff_status zoff_base_status_fail(zoff_status status, const char *format, ...)
{
    /* The arguments may point into last_error, so build the new text elsewhere. */
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set(text);
    return status;
}

zoff_status zoff_base_status_prefix(zoff_status status, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "%s", last_error);
    set(text);
    return status;
}

void zoff_base_status_save(zoff_saved_error *out)
{
    _Static_assert(sizeof out->text == sizeof last_error, "a saved text is a whole one");
    memcpy(out->text, last_error, sizeof last_error);
}

void zoff_base_status_restore(const zoff_saved_error *saved)
{
    set(saved->text);
}

unsigned zoff_base_status_count(void)
{
    return error_count;
}

const char *zoff_base_status_errno(int error)
{
    static _Thread_local char buffer[128];
    if (error == EFBIG) /* EFBIG is nearly always a limit of the process */
        return "File too large for a limit of this process (RLIMIT_FSIZE, ulimit -f) or for the file system";
    return strerror_r(error, buffer, sizeof buffer);
}
