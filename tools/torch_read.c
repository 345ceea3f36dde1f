/* torch_read.c: reads the elements of a tensor of a .pt file, as fp32. */
#include "dtype.h"
#include "torch_file_priv.h"

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
    const size_t size = torch_file_element(t->tensor.dtype);
    char more;
    bool ok = skip_bytes(t, (t->tensor.stored - t->tensor.offset - t->tensor.count) * size, f);
    if (ok && zip_fread(t->data, &more, 1) != 0)
        ok = data_fault(t, zip_file_strerror(t->data), f);
    zip_fclose(t->data);
    t->data = NULL;
    return ok;
}

bool torch_file_begin(torch_file *t, const torch_tensor *tensor, fault *f)
{
    if (t->data)
        zip_fclose(t->data);
    t->data = zip_fopen_index(t->zip, tensor->entry, 0);
    if (!t->data)
        return data_fault(t, zip_strerror(t->zip), f);
    t->tensor = *tensor;
    t->done = 0;
    return skip_bytes(t, tensor->offset * torch_file_element(tensor->dtype), f) && (tensor->count > 0 || finish(t, f));
}

/* Read 16-bit elements as fp32. */
static bool read_halves(torch_file *t, size_t count, float *dst, fault *f)
{
    uint16_t halves[2048];
    while (count > 0) {
        const size_t now = count < sizeof halves / sizeof halves[0] ? count : sizeof halves / sizeof halves[0];
        if (!read_bytes(t, halves, now * sizeof halves[0], f))
            return false;
        dtype_widen(t->tensor.dtype, halves, now, dst);
        dst += now;
        count -= now;
    }
    return true;
}

bool torch_file_next(torch_file *t, size_t count, float *dst, fault *f)
{
    const torch_tensor *tensor = &t->tensor;
    if (!t->data || count > tensor->count - t->done || tensor->dtype == ZOFF_DTYPE_DEFAULT)
        return data_fault(t, "there are no such elements left", f);
    if (tensor->dtype == ZOFF_F32 ? !read_bytes(t, dst, count * sizeof *dst, f) : !read_halves(t, count, dst, f))
        return false;
    t->done += count;
    return t->done < tensor->count || finish(t, f);
}

/* Read the only element of a tensor. */
static bool read_single(torch_file *t, const torch_tensor *tensor, double *out, fault *f)
{
    float real;
    int64_t whole;
    if (!torch_file_begin(t, tensor, f))
        return false;
    if (tensor->dtype != ZOFF_DTYPE_DEFAULT) {
        const bool ok = torch_file_next(t, 1, &real, f);
        *out = ok ? (double)real : 0;
        return ok;
    }
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
