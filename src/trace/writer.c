/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c: the file of a trace. It is a JSON object, and every flush ends it: the next one overwrites that end. Its bytes are
 * written at offsets of our own, not by a stream, which a child of fork() would write once more. */
#include "trace_priv.h"

#include "bits.h"
#include "files.h"
#include "mem.h"
#include "try.h"
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 64 * 1024,
    EVENT_MOST = 2048, /* bytes of an event in the file */
    NAME_MOST = 512
};

/* Viewers ignore otherData. */
static const char HEAD[] = "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"format\": \"zoff trace\", \"version\": 1}, "
                           "\"traceEvents\": [\n",
                  TAIL[] = "\n]}\n";

/* ---- text ---- */

void zoff_trace_writer_escape(const char *text, char *dst, size_t dst_bytes)
{
    size_t used = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        char part[8];
        const size_t bytes = zoff_base_words_character((const char *)at);
        const bool as_number = !bytes || *at < 0x20 || *at == 0x7f; /* show a byte that is no UTF-8 as Latin-1 */
        int length = 0;
        if (as_number)
            length = snprintf(part, sizeof part, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            length = snprintf(part, sizeof part, "\\%c", *at);
        else
            length = snprintf(part, sizeof part, "%.*s", (int)bytes, (const char *)at);
        if (used + (size_t)length >= dst_bytes)
            break;
        memcpy(dst + used, part, (size_t)length);
        used += (size_t)length;
        at += bytes ? bytes : 1;
    }
    dst[used] = 0;
}

/* ---- the file ---- */

static zoff_status write_all(const zoff_trace_writer *w, const char *text, size_t bytes, uint64_t at)
{
    const int fd = zoff_base_fork_descriptor(w->guard);
    while (bytes) {
        const ssize_t done = zoff_base_files_fits(at + bytes) ? pwrite(fd, text, bytes, (off_t)at) : -1;
        if (done < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(done <= 0, ZOFF_ERR_IO, "cannot write the trace '%.4000s': %s; it ends here", w->path,
                     zoff_base_status_errno(done < 0 ? errno : EIO));
        text += done;
        bytes -= (size_t)done;
        at += (size_t)done;
    }
    return ZOFF_OK;
}

/* Open the file and lock it. Leave a file alone that another process writes.  @return -1: another process has it, or the error
 * is in errno */
static int open_locked(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return fd; /* accept a file system without locks */
    close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

static zoff_status open_file(zoff_trace_writer *w, const char *path)
{
    zoff_status status;
    snprintf(w->path, sizeof w->path, "%s", path);
    int fd = open_locked(w->path);
    if (fd < 0 && errno == EWOULDBLOCK) {
        snprintf(w->path, sizeof w->path, "%s.%ld", path, (long)getpid());
        fd = open_locked(w->path);
    }
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open the trace '%.4000s': %s; none is written", w->path,
                 zoff_base_status_errno(errno));
    ZOFF_TRY_OR(close_file, zoff_base_fork_guard(fd, &w->guard));
    return ZOFF_OK;
close_file:
    close(fd);
    return status;
}

static bool is_as_it_was_left(const zoff_trace_writer *w)
{
    struct stat now;
    return w->at && fstat(zoff_base_fork_descriptor(w->guard), &now) == 0 && (uint64_t)now.st_size == w->at + sizeof TAIL - 1;
}

static zoff_status begin(zoff_trace_writer *w)
{
    w->at = w->used = w->events = 0;
    ZOFF_FAIL_IF(ftruncate(zoff_base_fork_descriptor(w->guard), 0) != 0 && errno != EINVAL, ZOFF_ERR_IO,
                 "cannot write the trace '%.4000s': %s; none is written", w->path, zoff_base_status_errno(errno));
    memcpy(w->text, HEAD, sizeof HEAD - 1);
    w->used = sizeof HEAD - 1;
    return zoff_trace_writer_flush(w);
}

zoff_status zoff_trace_writer_open(zoff_trace_writer *w, const char *path)
{
    zoff_status status;
    char before[sizeof w->path];
    memcpy(before, w->path, sizeof before);
    ZOFF_TRY(zoff_base_mem_alloc(TEXT_BYTES, 1, "the events of a trace", &w->text));
    ZOFF_TRY_OR(free_text, open_file(w, path));
    w->used = 0;
    if (strcmp(before, w->path) == 0 && is_as_it_was_left(w))
        return ZOFF_OK;
    ZOFF_TRY_OR(close_file, begin(w));
    return ZOFF_OK;
close_file:
    zoff_base_fork_close(w->guard);
    w->guard = NULL;
free_text:
    zoff_base_mem_free(w->text);
    w->text = NULL;
    return status;
}

/* End the file after an error where it ended before. Events that could not be written are dropped. */
static void go_back(const zoff_trace_writer *w)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (w->at && ftruncate(zoff_base_fork_descriptor(w->guard), (off_t)w->at) == 0)
        (void)write_all(w, TAIL, sizeof TAIL - 1, w->at);
    zoff_base_status_restore(&saved);
}

zoff_status zoff_trace_writer_flush(zoff_trace_writer *w)
{
    if (!w->used)
        return ZOFF_OK;
    memcpy(w->text + w->used, TAIL, sizeof TAIL - 1);
    const zoff_status status = write_all(w, w->text, w->used + sizeof TAIL - 1, w->at);
    if (status < 0)
        go_back(w);
    else
        w->at += w->used;
    w->used = 0;
    return status;
}

zoff_status zoff_trace_writer_close(zoff_trace_writer *w)
{
    if (!w->guard)
        return ZOFF_OK;
    const zoff_status status = zoff_trace_writer_flush(w);
    zoff_base_fork_close(w->guard);
    zoff_base_mem_free(w->text);
    w->guard = NULL;
    w->text = NULL;
    return status;
}

/* ---- events ---- */

/* Print microseconds with three digits from integers, because the program may have set a locale with a decimal comma. */
static int print_time(char *dst, size_t bytes, const char *key, uint64_t ns)
{
    return snprintf(dst, bytes, ", \"%s\": %" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static zoff_status add_line(zoff_trace_writer *w, const zoff_trace_event *e, char phase, double at)
{
    char name[NAME_MOST];
    if (w->used + EVENT_MOST + sizeof TAIL > TEXT_BYTES)
        ZOFF_TRY(zoff_trace_writer_flush(w));
    zoff_trace_writer_escape(e->name, name, sizeof name);
    char *dst = w->text + w->used;
    int used = snprintf(dst, EVENT_MOST, "%s{\"ph\": \"%c\", \"name\": \"%s\", \"pid\": %u, \"tid\": %u",
                        w->events ? ",\n" : "", phase, name, e->pid, e->tid);
    if (e->category)
        used += snprintf(dst + used, EVENT_MOST - (size_t)used, ", \"cat\": \"%s\"", e->category);
    if (phase != 'M')
        used += print_time(dst + used, EVENT_MOST - (size_t)used, "ts", ns_of(at));
    if (phase == 'X')
        used += print_time(dst + used, EVENT_MOST - (size_t)used, "dur", ns_of(e->to) - ns_of(e->from));
    if (phase == 'b' || phase == 'e')
        used += snprintf(dst + used, EVENT_MOST - (size_t)used, ", \"id\": \"0x%" PRIx64 "\"", e->id);
    if (phase == 'i')
        used += snprintf(dst + used, EVENT_MOST - (size_t)used, ", \"s\": \"t\"");
    if (e->args[0] && phase != 'e')
        used += snprintf(dst + used, EVENT_MOST - (size_t)used, ", \"args\": {%s}", e->args);
    used += snprintf(dst + used, EVENT_MOST - (size_t)used, "}");
    w->used += (size_t)used;
    w->events++;
    return ZOFF_OK;
}

zoff_status zoff_trace_writer_add(zoff_trace_writer *w, const zoff_trace_event *event)
{
    ZOFF_TRY(add_line(w, event, event->phase, event->from));
    return event->phase == 'b' ? add_line(w, event, 'e', event->to) : ZOFF_OK;
}
