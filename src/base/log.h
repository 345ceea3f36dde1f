/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: pass lines to the sink, one at a time. The level is compared before the line is formatted. */
#ifndef ZOFF_BASE_LOG_H
#define ZOFF_BASE_LOG_H

#include <zoff/status.h>

/* Whether lines of this level are wanted. If ZOFF_LOG_LEVEL is not set, a sink of the program's gets info and above, and
 * stderr, which belongs to the trainer, gets warnings and errors. */
bool zoff_base_log_wants(zoff_log_level level);

/* Whether lines of info are wanted that the program asked for by name, as by steps_per_print; stderr gets them, too. */
bool zoff_base_log_wants_asked(void);

/* Whether the few lines of info are wanted that are for a person; stderr gets them where it is a terminal. */
bool zoff_base_log_wants_told(void);

/* The value of ZOFF_LOG_LEVEL if it is no level, else NULL. */
const char *zoff_base_log_unknown_level(void);

/* Format a line and pass it to the sink. Use the macros below. */
void zoff_base_log_line(zoff_log_level level, const char *room, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define ZOFF_LOG(level, ...)                                                                                                   \
    do {                                                                                                                       \
        if (zoff_base_log_wants(level))                                                                                        \
            zoff_base_log_line((level), ZOFF_ROOM, __VA_ARGS__);                                                               \
    } while (0)
#define ZOFF_WARN(...) ZOFF_LOG(ZOFF_LOG_WARN, __VA_ARGS__)
#define ZOFF_INFO(...) ZOFF_LOG(ZOFF_LOG_INFO, __VA_ARGS__)
#define ZOFF_ASKED(...)                                                                                                        \
    do {                                                                                                                       \
        if (zoff_base_log_wants_asked())                                                                                       \
            zoff_base_log_line(ZOFF_LOG_INFO, ZOFF_ROOM, __VA_ARGS__);                                                         \
    } while (0)
#define ZOFF_TELL(...)                                                                                                         \
    do {                                                                                                                       \
        if (zoff_base_log_wants_told())                                                                                        \
            zoff_base_log_line(ZOFF_LOG_INFO, ZOFF_ROOM, __VA_ARGS__);                                                         \
    } while (0)
#define ZOFF_DEBUG(...) ZOFF_LOG(ZOFF_LOG_DEBUG, __VA_ARGS__)

#endif
