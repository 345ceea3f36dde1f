/* spec.c: the value of ZOFF_TRACE, and the name of the file of one rank. */
#include "trace_priv.h"

#include "try.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_step(const char **at, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return !errno && *out > 0;
}

static bool read_range(const char *text, zoff_trace_spec *out)
{
    if (!read_step(&text, &out->first) || *text++ != '-' || !read_step(&text, &out->last))
        return false;
    return *text == 0 && out->first <= out->last;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

zoff_status zoff_trace_spec_read(const char *value, zoff_trace_spec *out)
{
    const char *colon = strrchr(last_name(value), ':');
    const size_t bytes = colon ? (size_t)(colon - value) : strlen(value);
    *out = (zoff_trace_spec){.first = INT64_MIN, .last = INT64_MAX, .has_range = colon};
    ZOFF_FAIL_IF(!bytes || value[bytes - 1] == '/' || bytes >= sizeof out->path || (colon && !read_range(colon + 1, out)),
                 ZOFF_ERR_INVALID,
                 "ZOFF_TRACE is \"%.300s\"; it may be FILE, or FILE:FIRST-LAST with two numbers of steps from 1, for example "
                 "trace.json:10-12. No trace is written",
                 value);
    memcpy(out->path, value, bytes);
    return ZOFF_OK;
}

bool zoff_trace_spec_name(const char *path, unsigned rank, char *dst, size_t dst_bytes)
{
    const char *name = last_name(path), *dot = strrchr(name, '.');
    const size_t before = dot && dot != name ? (size_t)(dot - path) : strlen(path);
    const int length = snprintf(dst, dst_bytes, "%.*s.rank%u%s", (int)before, path, rank, path + before);
    return length > 0 && (size_t)length < dst_bytes;
}
