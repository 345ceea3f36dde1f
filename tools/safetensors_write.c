/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c: writes one safetensors file: the header first, then bytes as they come. */
#include "dtype.h"
#include "safetensors.h"
#include "verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *type_name(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? "F32" : dtype == ZOFF_F16 ? "F16" : "BF16";
}

/* Make the entry of a tensor in the header.  @return NULL when memory is exhausted */
static json_t *entry_of(const st_tensor *t, uint64_t end)
{
    json_t *shape = json_array();
    for (size_t i = 0; shape && i < t->dim_count; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(t->dtype), "shape", shape, "data_offsets", (json_int_t)t->begin,
                     (json_int_t)end);
}

/* Lay the tensors out, one after the other, and write their entries. */
static int add_entries(json_t *header, const char *path, st_tensor *tensors, size_t count, uint64_t *out_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        st_tensor *t = &tensors[i];
        if (strcmp(t->name, "__metadata__") == 0 || json_object_get(header, t->name))
            return failed("%s: tensor \"%s\": two tensors have this name, or the format reserves it", path, t->name);
        t->begin = at;
        at += t->count * dtype_bytes(t->dtype);
        if (json_object_set_new(header, t->name, entry_of(t, at)) != 0)
            return failed("%s: tensor \"%s\": out of memory, or the name is not UTF-8", path, t->name);
    }
    *out_bytes = at;
    return EXIT_DONE;
}

/* Write the length and the header, filled up with spaces to a multiple of eight bytes. */
static int write_header(st_writer *w, const char *text)
{
    static const char SPACES[8] = "        ";
    const size_t bytes = strlen(text), padding = (8 - bytes % 8) % 8;
    const uint64_t length = bytes + padding;
    unsigned char little[8];
    for (int i = 0; i < 8; i++)
        little[i] = (unsigned char)(length >> 8 * i);
    if (length > ST_HEADER_MAX)
        return failed("%s: the header would have %" PRIu64 " bytes, and the format allows %d; use a smaller --max-shard-size",
                      w->file.path, length, ST_HEADER_MAX);
    int result = out_file_write(&w->file, little, sizeof little);
    if (result == EXIT_DONE)
        result = out_file_write(&w->file, text, bytes);
    return result == EXIT_DONE ? out_file_write(&w->file, SPACES, padding) : result;
}

static int open_with(st_writer *w, json_t *header, const char *path, st_tensor *tensors, size_t count, json_t *metadata)
{
    if (metadata && json_object_set(header, "__metadata__", metadata) != 0)
        return failed("%s: out of memory for the header", path);
    int result = add_entries(header, path, tensors, count, &w->data_bytes);
    if (result != EXIT_DONE)
        return result;
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text)
        return failed("%s: out of memory for the header", path);
    result = out_file_open(&w->file, path);
    if (result == EXIT_DONE && (result = write_header(w, text)) != EXIT_DONE)
        out_file_close(&w->file);
    free(text);
    return result;
}

int st_writer_open(st_writer *w, const char *path, st_tensor *tensors, size_t count, json_t *metadata)
{
    *w = (st_writer){.written = 0};
    json_t *header = json_object();
    if (!header)
        return failed("%s: out of memory for the header", path);
    const int result = open_with(w, header, path, tensors, count, metadata);
    json_decref(header);
    return result;
}

int st_writer_append(st_writer *w, const void *bytes, size_t count)
{
    w->written += count;
    return out_file_write(&w->file, bytes, count);
}

int st_writer_commit(st_writer *w)
{
    if (w->written != w->data_bytes)
        return failed("%s: %" PRIu64 " bytes of tensors were written, and the header says %" PRIu64, w->file.path, w->written,
                      w->data_bytes);
    return out_file_commit(&w->file);
}

void st_writer_close(st_writer *w)
{
    out_file_close(&w->file);
}
