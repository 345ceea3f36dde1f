/* sink.c: appends formatted text to a caller's buffer, with the rules of snprintf(). */
#include "config_priv.h"

#include <stdarg.h>
#include <stdio.h>

void zoff_config_sink_add(zoff_config_sink *sink, const char *format, ...)
{
    size_t left = sink->used < sink->dst_bytes ? sink->dst_bytes - sink->used : 0;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(left ? sink->dst + sink->used : NULL, left, format, args);
    va_end(args);
    sink->used += length > 0 ? (size_t)length : 0;
}
