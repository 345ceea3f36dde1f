/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_read.c: reads one safetensors file, and trusts nothing in it: every number of the header is checked first. */
#include "dtype.h"
#include "safetensors.h"
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read bytes at a place of the file. */
static int read_at(const st_reader *r, uint64_t at, size_t bytes, void *dst)
{
    char *to = dst;
    for (size_t had = 0; had < bytes;) {
        const ssize_t got = pread(r->fd, to + had, bytes - had, (off_t)(at + had));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return failed("%s: cannot read at byte %" PRIu64 ": %s", r->path, at + had,
                          got < 0 ? strerror(errno) : "the file has become shorter");
        had += (size_t)got;
    }
    return EXIT_DONE;
}

/* ---- one tensor ---- */

bool st_matches(const char *name, const char *const *patterns)
{
    for (size_t i = 0; patterns && patterns[i]; i++) {
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    }
    return false;
}

static int read_type(const st_reader *r, const char *const *skip, const json_t *entry, st_tensor *t)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    if (!type)
        return failed("%s: tensor \"%s\": \"dtype\" is not a text", r->path, t->name);
    t->dtype = strcmp(type, "F32") == 0    ? ZOFF_F32
               : strcmp(type, "F16") == 0  ? ZOFF_F16
               : strcmp(type, "BF16") == 0 ? ZOFF_BF16
                                           : ZOFF_DTYPE_DEFAULT;
    if (t->dtype == ZOFF_DTYPE_DEFAULT && !st_matches(t->name, skip))
        return failed("%s: tensor \"%s\": type %s cannot be weights, which are F32, F16 or BF16; leave it out with --skip "
                      "'%s', or convert the file",
                      r->path, t->name, type, t->name);
    return EXIT_DONE;
}

static int read_shape(st_reader *r, const json_t *entry, st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return failed("%s: tensor \"%s\": \"shape\" is not a list", r->path, t->name);
    t->dim_count = json_array_size(shape);
    size_t *dims = pool_take(&r->memory, t->dim_count, sizeof *dims);
    if (!dims)
        return EXIT_FAILED;
    t->count = 1;
    for (size_t i = 0; i < t->dim_count; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return failed("%s: tensor \"%s\": dimension %zu of its shape is not a number of elements", r->path, t->name, i);
        dims[i] = (size_t)json_integer_value(dim);
        if (__builtin_mul_overflow(t->count, dims[i], &t->count) || t->count > INT64_MAX)
            return failed("%s: tensor \"%s\": its shape has more elements than a file can hold", r->path, t->name);
    }
    t->dims = dims;
    return EXIT_DONE;
}

/* Read where the bytes of a tensor are, and compare their number with the shape. */
static int read_place(const st_reader *r, const json_t *entry, st_tensor *t, uint64_t *out_end)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return failed("%s: tensor \"%s\": \"data_offsets\" is not a list of two numbers", r->path, t->name);
    const json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > r->data_bytes)
        return failed("%s: tensor \"%s\": bytes %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
                      " are not inside the %" PRIu64 " bytes of data",
                      r->path, t->name, from, to, r->data_bytes);
    t->begin = (uint64_t)from;
    *out_end = (uint64_t)to;
    const uint64_t bytes = *out_end - t->begin, element = t->dtype ? dtype_bytes(t->dtype) : 0;
    if (element && (bytes % element || bytes / element != t->count))
        return failed("%s: tensor \"%s\": its shape has %" PRIu64 " elements of %" PRIu64 " bytes, but it has %" PRIu64
                      " bytes of data",
                      r->path, t->name, t->count, element, bytes);
    return EXIT_DONE;
}

/* ---- all tensors ---- */

/* A tensor and the end of its bytes, for sorting. */
typedef struct placed {
    st_tensor tensor;
    uint64_t end;
} placed;

static int compare_places(const void *a, const void *b)
{
    const placed *one = a, *two = b;
    if (one->tensor.begin != two->tensor.begin)
        return one->tensor.begin < two->tensor.begin ? -1 : 1;
    return one->end != two->end ? (one->end < two->end ? -1 : 1) : strcmp(one->tensor.name, two->tensor.name);
}

/* Every byte of the data must belong to one tensor, because a gap may hide data, and an overlap may be an attack. */
static int check_cover(const st_reader *r, const placed *all)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const char *name = all[i].tensor.name;
        if (all[i].tensor.begin < at)
            return failed("%s: tensor \"%s\": its data begins at byte %" PRIu64 ", inside tensor \"%s\"", r->path, name,
                          all[i].tensor.begin, all[i - 1].tensor.name);
        if (all[i].tensor.begin > at)
            return failed("%s: tensor \"%s\": its data begins at byte %" PRIu64
                          ", but the data before it ends at byte %" PRIu64,
                          r->path, name, all[i].tensor.begin, at);
        at = all[i].end;
    }
    return at == r->data_bytes
               ? EXIT_DONE
               : failed("%s: %" PRIu64 " bytes at the end of the file belong to no tensor", r->path, r->data_bytes - at);
}

static int read_entry(st_reader *r, const char *const *skip, const char *name, const json_t *entry, placed *out)
{
    if (!json_is_object(entry))
        return failed("%s: tensor \"%s\": its entry is not an object", r->path, name);
    out->tensor.name = pool_text(&r->memory, name, strlen(name));
    if (!out->tensor.name)
        return EXIT_FAILED;
    int result = read_type(r, skip, entry, &out->tensor);
    if (result == EXIT_DONE)
        result = read_shape(r, entry, &out->tensor);
    return result == EXIT_DONE ? read_place(r, entry, &out->tensor, &out->end) : result;
}

static int read_metadata(st_reader *r, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return failed("%s: \"__metadata__\" is not an object", r->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return failed("%s: \"%s\" of \"__metadata__\" is not a text", r->path, key);
    }
    r->metadata = json_incref(metadata);
    return EXIT_DONE;
}

static int read_entries(st_reader *r, const char *const *skip, json_t *header, placed *all)
{
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        const bool is_metadata = strcmp(name, "__metadata__") == 0;
        const int result = is_metadata ? read_metadata(r, entry) : read_entry(r, skip, name, entry, &all[r->tensor_count++]);
        if (result != EXIT_DONE)
            return result;
    }
    qsort(all, r->tensor_count, sizeof *all, compare_places);
    r->tensors = pool_take(&r->memory, r->tensor_count, sizeof *r->tensors);
    if (!r->tensors)
        return EXIT_FAILED;
    for (size_t i = 0; i < r->tensor_count; i++)
        r->tensors[i] = all[i].tensor;
    return check_cover(r, all);
}

/* ---- the header ---- */

static int parse_header(st_reader *r, const char *const *skip, const char *text, size_t bytes)
{
    json_error_t error;
    if (bytes == 0 || text[0] != '{')
        return failed("%s: the header does not begin with \"{\": not a safetensors file", r->path);
    json_t *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!header)
        return failed("%s: the header is not JSON: byte %d: %s", r->path, error.position, error.text);
    placed *all = calloc(json_object_size(header) + 1, sizeof *all);
    const int result = all ? read_entries(r, skip, header, all) : failed("%s: out of memory for its header", r->path);
    free(all);
    json_decref(header);
    return result;
}

static int read_header(st_reader *r, const char *const *skip)
{
    struct stat about;
    unsigned char little[8];
    if (fstat(r->fd, &about) != 0 || !S_ISREG(about.st_mode))
        return failed("%s: not a file", r->path);
    const uint64_t file_bytes = (uint64_t)about.st_size;
    if (file_bytes < sizeof little)
        return failed("%s: has %" PRIu64 " bytes: not a safetensors file", r->path, file_bytes);
    if (read_at(r, 0, sizeof little, little) != EXIT_DONE)
        return EXIT_FAILED;
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | little[i];
    if (bytes > ST_HEADER_MAX || bytes > file_bytes - sizeof little)
        return failed("%s: its header would have %" PRIu64 " bytes, but the file has %" PRIu64
                      " and the format allows %d: not a "
                      "safetensors file, or cut off",
                      r->path, bytes, file_bytes, ST_HEADER_MAX);
    r->data_at = sizeof little + bytes;
    r->data_bytes = file_bytes - r->data_at;
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("%s: out of memory for a header of %" PRIu64 " bytes", r->path, bytes);
    int result = read_at(r, sizeof little, bytes, text);
    if (result == EXIT_DONE)
        result = parse_header(r, skip, text, bytes);
    free(text);
    return result;
}

int st_reader_open(st_reader *r, const char *path, const char *const *skip)
{
    /* O_NONBLOCK, because a FIFO would block here before it is refused */
    *r = (st_reader){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (r->fd < 0)
        return failed("%s: cannot open: %s", path, strerror(errno));
    r->path = pool_text(&r->memory, path, strlen(path));
    const int result = r->path ? read_header(r, skip) : EXIT_FAILED;
    if (result != EXIT_DONE)
        st_reader_close(r);
    return result;
}

int st_reader_read(const st_reader *r, const st_tensor *t, uint64_t first, size_t count, void *dst)
{
    const size_t element = dtype_bytes(t->dtype);
    if (first > t->count || count > t->count - first)
        return failed("%s: tensor \"%s\": elements %" PRIu64 " to %" PRIu64 " are not inside it", r->path, t->name, first,
                      first + count);
    return read_at(r, r->data_at + t->begin + first * element, count * element, dst);
}

void st_reader_close(st_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    json_decref(r->metadata);
    pool_free(&r->memory);
    *r = (st_reader){.fd = -1};
}
