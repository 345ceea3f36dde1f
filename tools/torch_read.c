/* SPDX-License-Identifier: Apache-2.0 */
/* torch_read.c: reads the elements of a tensor of a .pt file, as fp32. */
#include "dtype.h"
#include "torch_file_priv.h"

#include <stdlib.h>
#include <string.h>

static bool data_fault(const torch_file *t, const char *why, fault *f)
{
    return fault_set(f, "%s: cannot read the elements of a tensor: %s", t->path, why);
}

/* Read exactly so many bytes of the open entry. */
static bool read_bytes(torch_file *t, void *dst, size_t bytes, fault *f)
{
    for (char *to = dst; bytes > 0;) {
        const zip_int64_t got = zip_fread(t->data, to, bytes);
        if (got <= 0)
            return data_fault(t, got < 0 ? zip_file_strerror(t->data) : "the file ends early", f);
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

static bool skip_bytes(torch_file *t, size_t bytes, fault *f)
{
    char dropped[4096];
    while (bytes > 0) {
        const size_t now = bytes < sizeof dropped ? bytes : sizeof dropped;
        if (!read_bytes(t, dropped, now, f))
            return false;
        bytes -= now;
    }
    return true;
}

/* Read the bytes behind the tensor, because libzip compares the checksum at the end of an entry. */
static bool finish(torch_file *t, fault *f)
{
    char more;
    bool ok = skip_bytes(t, (t->tensor.stored - t->tensor.offset - t->tensor.span) * t->tensor.element, f);
    if (ok && zip_fread(t->data, &more, 1) != 0)
        ok = data_fault(t, zip_file_strerror(t->data), f);
    zip_fclose(t->data);
    t->data = NULL;
    return ok;
}

/* Read all that a tensor which is not contiguous lies in. */
static bool read_span(torch_file *t, fault *f)
{
    const size_t bytes = t->tensor.span * t->tensor.element;
    memset(t->place, 0, sizeof t->place);
    t->span = malloc(bytes);
    if (!t->span)
        return data_fault(t, "out of memory for one that is not contiguous", f);
    return read_bytes(t, t->span, bytes, f) && finish(t, f);
}

bool torch_file_begin(torch_file *t, const torch_tensor *tensor, fault *f)
{
    if (t->data)
        zip_fclose(t->data);
    free(t->span);
    t->span = NULL;
    t->tensor = *tensor;
    t->done = 0;
    t->data = zip_fopen_index(t->zip, tensor->entry, 0);
    if (!t->data)
        return data_fault(t, zip_strerror(t->zip), f);
    if (!skip_bytes(t, tensor->offset * tensor->element, f))
        return false;
    return tensor->is_contiguous ? tensor->count > 0 || finish(t, f) : read_span(t, f);
}

/* Copy the next elements of a tensor that is not contiguous. */
static void gather(torch_file *t, unsigned char *dst, size_t count)
{
    const torch_tensor *tensor = &t->tensor;
    for (size_t at = 0; at < count; at++) {
        size_t from = 0;
        for (size_t i = 0; i < tensor->dim_count; i++)
            from += t->place[i] * tensor->strides[i];
        memcpy(dst + at * tensor->element, t->span + from * tensor->element, tensor->element);
        for (size_t i = tensor->dim_count; i-- > 0 && ++t->place[i] == tensor->dims[i];)
            t->place[i] = 0;
    }
}

static bool read_elements(torch_file *t, void *dst, size_t count, fault *f)
{
    if (!t->span)
        return read_bytes(t, dst, count * t->tensor.element, f);
    gather(t, dst, count);
    return true;
}

/* Read elements of 16 or 64 bits as fp32. */
static bool read_converted(torch_file *t, size_t count, float *dst, fault *f)
{
    union {
        uint16_t halves[2048];
        double doubles[512];
    } block;
    const size_t most = sizeof block / t->tensor.element;
    while (count > 0) {
        const size_t now = count < most ? count : most;
        if (!read_elements(t, &block, now, f))
            return false;
        if (t->tensor.element == sizeof block.doubles[0]) {
            for (size_t i = 0; i < now; i++)
                dst[i] = (float)block.doubles[i];
        } else {
            dtype_widen(t->tensor.dtype, block.halves, now, dst);
        }
        dst += now;
        count -= now;
    }
    return true;
}

bool torch_file_next(torch_file *t, size_t count, float *dst, fault *f)
{
    const torch_tensor *tensor = &t->tensor;
    if ((!t->data && !t->span) || count > tensor->count - t->done || tensor->dtype == ZOFF_DTYPE_DEFAULT)
        return data_fault(t, "there are no such elements left", f);
    if (tensor->element == sizeof *dst ? !read_elements(t, dst, count, f) : !read_converted(t, count, dst, f))
        return false;
    t->done += count;
    return t->done < tensor->count || t->span || finish(t, f);
}

/* Read the only element of a tensor. */
static bool read_single(torch_file *t, const torch_tensor *tensor, double *out, fault *f)
{
    float real;
    int64_t whole;
    if (!torch_file_begin(t, tensor, f))
        return false;
    if (tensor->dtype == ZOFF_F32 && tensor->element == sizeof *out)
        return read_bytes(t, out, sizeof *out, f) && finish(t, f);
    if (tensor->dtype != ZOFF_DTYPE_DEFAULT) {
        const bool ok = torch_file_next(t, 1, &real, f);
        *out = ok ? (double)real : 0;
        return ok;
    }
    if (tensor->element != sizeof whole)
        return data_fault(t, "it has integers of less than 64 bits", f);
    if (!read_bytes(t, &whole, sizeof whole, f))
        return false;
    *out = (double)whole;
    return finish(t, f);
}

bool torch_file_number(torch_file *t, const pickle_value *v, int64_t *out, fault *f)
{
    torch_tensor tensor;
    double number;
    if (pickle_number(v, out))
        return true;
    if (!torch_file_is_tensor(v))
        return fault_set(f, "%s: there is no whole number where one is needed", t->path);
    if (!torch_file_tensor(t, v, &tensor, f))
        return false;
    if (tensor.count != 1)
        return fault_set(f, "%s: a tensor of %zu elements is where a number is needed", t->path, tensor.count);
    if (!read_single(t, &tensor, &number, f))
        return false;
    const pickle_value whole = {.type = PICKLE_FLOAT, .real = number};
    return pickle_number(&whole, out) || fault_set(f, "%s: %g is no whole number", t->path, number);
}
