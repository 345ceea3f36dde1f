/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.c: reads the .pt files of PyTorch, by libzip. */
#include "torch_file_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- entries of the archive ---- */

static bool zip_fault(torch_file *t, const char *what, const char *why, fault *f)
{
    return fault_set(f, "%s: cannot read %s: %s", t->path, what, why);
}

/* Find an entry of the archive's folder. */
static bool find_entry(const torch_file *t, const char *name, size_t name_bytes, uint64_t *out_index, uint64_t *out_bytes)
{
    char path[sizeof t->folder + 64];
    const size_t folder = strlen(t->folder);
    if (name_bytes >= sizeof path - folder || memchr(name, 0, name_bytes))
        return false;
    memcpy(path, t->folder, folder);
    memcpy(path + folder, name, name_bytes);
    path[folder + name_bytes] = 0;
    const zip_int64_t index = zip_name_locate(t->zip, path, 0);
    zip_stat_t about;
    if (index < 0 || zip_stat_index(t->zip, (zip_uint64_t)index, 0, &about) < 0 || !(about.valid & ZIP_STAT_SIZE))
        return false;
    *out_index = (uint64_t)index;
    *out_bytes = about.size;
    return true;
}

/* Accept entries as torch.save() stores them, because a few compressed bytes may be gigabytes. */
static bool is_stored(const torch_file *t, uint64_t index)
{
    zip_stat_t about;
    return zip_stat_index(t->zip, index, 0, &about) == 0 && (about.valid & ZIP_STAT_COMP_METHOD) &&
           about.comp_method == ZIP_CM_STORE;
}

static bool compressed(const torch_file *t, const char *name, fault *f)
{
    return fault_set(f,
                     "%s: %s is compressed, and torch.save() compresses nothing: load the file with PyTorch, and save it again",
                     t->path, name);
}

/* Read an entry of at most `most` bytes, and compare it with its checksum. The caller frees *out. */
static bool read_entry(torch_file *t, const char *name, size_t most, unsigned char **out, size_t *out_bytes, fault *f)
{
    uint64_t index, bytes;
    if (!find_entry(t, name, strlen(name), &index, &bytes))
        return fault_set(f, "%s is no file of PyTorch: it has no entry %s%s", t->path, t->folder, name);
    if (!is_stored(t, index))
        return compressed(t, name, f);
    if (bytes > t->file_bytes)
        return fault_set(f, "%s: %s would have %zu bytes, more than the file", t->path, name, (size_t)bytes);
    if (bytes > most)
        return fault_set(f, "%s: %s has %zu bytes, more than %zu", t->path, name, (size_t)bytes, most);
    zip_file_t *file = zip_fopen_index(t->zip, index, 0);
    if (!file)
        return zip_fault(t, name, zip_strerror(t->zip), f);
    unsigned char *to = malloc(bytes + 1), more;
    bool ok = to || fault_set(f, "%s: out of memory for %s", t->path, name);
    if (ok && (zip_fread(file, to, bytes) != (zip_int64_t)bytes || zip_fread(file, &more, 1) != 0))
        ok = zip_fault(t, name, zip_file_strerror(file), f);
    zip_fclose(file);
    if (!ok) {
        free(to);
        return false;
    }
    *out = to;
    *out_bytes = bytes;
    return true;
}

/* ---- opening ---- */

/* Open the archive. All its entries are in one folder, which the first entry names. */
static bool open_archive(torch_file *t, fault *f)
{
    int code;
    struct stat about;
    if (stat(t->path, &about) != 0)
        return fault_set(f, "cannot open %s: %s", t->path, strerror(errno));
    if (!S_ISREG(about.st_mode)) /* not a FIFO, because libzip would wait for its writer */
        return fault_set(f, "%s is not a file", t->path);
    t->file_bytes = (uint64_t)about.st_size;
    t->zip = zip_open(t->path, ZIP_RDONLY, &code);
    if (!t->zip) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        fault_write(f, "cannot open %s as a zip archive: %s; it is cut off or damaged, or torch.save() has not written it",
                    t->path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return false;
    }
    const char *first = zip_get_num_entries(t->zip, 0) > 0 ? zip_get_name(t->zip, 0, 0) : NULL;
    const size_t bytes = first ? strcspn(first, "/") + 1 : 0;
    if (bytes == 0 || first[bytes - 1] != '/' || bytes >= sizeof t->folder)
        return fault_set(f, "%s is no file of PyTorch: its entries are in no folder", t->path);
    memcpy(t->folder, first, bytes);
    return true;
}

/* Check the byte order. Files from before the entry existed are little-endian. */
static bool check_byte_order(torch_file *t, fault *f)
{
    uint64_t index, bytes;
    unsigned char *order;
    size_t count;
    if (!find_entry(t, "byteorder", 9, &index, &bytes))
        return true;
    if (!read_entry(t, "byteorder", 16, &order, &count, f))
        return false;
    const bool little = count == 6 && memcmp(order, "little", 6) == 0;
    free(order);
    return little || fault_set(f, "%s has numbers in another byte order than little-endian", t->path);
}

bool torch_file_open(const char *path, pickle_names names, size_t most, torch_file **out, fault *f)
{
    torch_file *t = calloc(1, sizeof *t);
    if (!t || !(t->path = strdup(path))) {
        free(t);
        return fault_set(f, "out of memory for %s", path);
    }
    bool ok = open_archive(t, f) && check_byte_order(t, f) && read_entry(t, "data.pkl", most, &t->bytes, &t->byte_count, f);
    if (ok && !pickle_open(t->bytes, t->byte_count, names, &t->pickle, f))
        ok = fault_at(f, path);
    if (ok)
        *out = t;
    else
        torch_file_close(t);
    return ok;
}

void torch_file_close(torch_file *t)
{
    if (!t)
        return;
    if (t->data)
        zip_fclose(t->data);
    pickle_close(t->pickle);
    if (t->zip)
        zip_discard(t->zip);
    free(t->span);
    free(t->bytes);
    free(t->path);
    free(t);
}

const char *torch_file_path(const torch_file *t)
{
    return t->path;
}

const pickle_value *torch_file_root(const torch_file *t)
{
    return pickle_root(t->pickle);
}

bool torch_file_has(const torch_file *t, const char *name)
{
    uint64_t index, bytes;
    return find_entry(t, name, strlen(name), &index, &bytes);
}

/* ---- tensors ---- */

/* _rebuild_tensor_v3() makes tensors of types that have no storage class, such as floats in 8 bits. */
bool torch_file_is_tensor(const pickle_value *v)
{
    return v && v->type == PICKLE_OBJECT &&
           (pickle_is_global(v->callee, "torch._utils _rebuild_tensor_v2") ||
            pickle_is_global(v->callee, "torch._utils _rebuild_tensor_v3") ||
            pickle_is_global(v->callee, "torch._utils _rebuild_parameter"));
}

static bool dtype_of(const pickle_value *storage, torch_tensor *out)
{
    static const struct {
        const char *name;
        zoff_dtype dtype;
        size_t element;
    } KINDS[] = {{"torch FloatStorage", ZOFF_F32, 4},           {"torch HalfStorage", ZOFF_F16, 2},
                 {"torch BFloat16Storage", ZOFF_BF16, 2},       {"torch DoubleStorage", ZOFF_F32, 8},
                 {"torch LongStorage", ZOFF_DTYPE_DEFAULT, 8},  {"torch IntStorage", ZOFF_DTYPE_DEFAULT, 4},
                 {"torch ShortStorage", ZOFF_DTYPE_DEFAULT, 2}, {"torch CharStorage", ZOFF_DTYPE_DEFAULT, 1},
                 {"torch ByteStorage", ZOFF_DTYPE_DEFAULT, 1},  {"torch BoolStorage", ZOFF_DTYPE_DEFAULT, 1}};
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (pickle_is_global(storage, KINDS[i].name)) {
            out->dtype = KINDS[i].dtype;
            out->element = KINDS[i].element;
            return true;
        }
    }
    return false;
}

/* Refuse a type, a Python object. */
static bool refuse_type(const torch_file *t, const pickle_value *type, fault *f)
{
    const bool named = type && type->type == PICKLE_GLOBAL;
    const int module = named ? (int)((const char *)memchr(type->text, '\n', type->text_bytes) - type->text) : 0;
    return fault_set(f, "%s: a tensor has the type \"%.*s.%.*s\"; float32, float16, bfloat16 and float64 are read", t->path,
                     module, named ? type->text : "", named ? (int)type->text_bytes - module - 1 : 1,
                     named ? type->text + module + 1 : "?");
}

/* Read an index or a size. */
static bool size_of(const pickle_value *v, size_t *out)
{
    if (!v || v->type != PICKLE_INT || v->number < 0)
        return false;
    *out = (size_t)v->number;
    return true;
}

/* Find the entry with the elements, and compare its size. */
static bool find_elements(const torch_file *t, const pickle_value *key, torch_tensor *out, fault *f)
{
    char name[64];
    uint64_t bytes;
    const int length = snprintf(name, sizeof name, "data/%.*s", (int)key->text_bytes, key->text);
    if (length >= (int)sizeof name || !find_entry(t, name, (size_t)length, &out->entry, &bytes))
        return fault_set(f, "%s: it has no entry %s with the elements of a tensor", t->path, name);
    if (!is_stored(t, out->entry))
        return compressed(t, name, f);
    if (bytes > t->file_bytes)
        return fault_set(f, "%s: %s would have %zu bytes, more than the file", t->path, name, (size_t)bytes);
    if (out->stored > SIZE_MAX / 8 || bytes != out->stored * out->element)
        return fault_set(f, "%s: %s has %zu bytes, which are not the %zu elements that a tensor is said to have there", t->path,
                         name, (size_t)bytes, out->stored);
    return true;
}

/* Read a persistent id, which is ("storage", type, key, place, elements). */
static bool read_storage(const torch_file *t, const pickle_value *v, torch_tensor *out, fault *f)
{
    const pickle_value *id = v && v->type == PICKLE_STORAGE ? v->arguments : NULL;
    const pickle_value *type = pickle_at(id, 1), *key = pickle_at(id, 2);
    if (!pickle_is_text(pickle_at(id, 0), "storage") || !key || key->type != PICKLE_TEXT || key->text_bytes > 64 ||
        !size_of(pickle_at(id, 4), &out->stored))
        return fault_set(f, "%s: a tensor has no storage of the usual form", t->path);
    return dtype_of(type, out) ? find_elements(t, key, out, f) : refuse_type(t, type, f);
}

/* Read the dimensions and the strides. A dimension of one element may have any stride. */
static bool read_shape(const torch_file *t, const pickle_value *sizes, const pickle_value *strides, torch_tensor *out, fault *f)
{
    if (!sizes || !strides || sizes->type != PICKLE_TUPLE || strides->type != PICKLE_TUPLE)
        return fault_set(f, "%s: a tensor has no shape", t->path);
    for (const pickle_item *item = sizes->first; item; item = item->next, out->dim_count++) {
        if (out->dim_count == TORCH_DIMS_MAX)
            return fault_set(f, "%s: a tensor has more than %d dimensions", t->path, TORCH_DIMS_MAX);
        if (!size_of(item->value, &out->dims[out->dim_count]))
            return fault_set(f, "%s: a dimension of a tensor is no number", t->path);
    }
    const pickle_item *item = strides->first;
    for (size_t i = 0; i < out->dim_count; i++, item = item->next) {
        if (!item || !size_of(item->value, &out->strides[i]))
            return fault_set(f, "%s: a tensor has too few strides", t->path);
    }
    return true;
}

/* Count the elements, and the range of the storage that they lie in. */
static bool measure(const torch_file *t, torch_tensor *out, fault *f)
{
    bool overflows = false;
    out->count = out->span = 1;
    out->is_contiguous = true;
    for (size_t i = out->dim_count; i-- > 0;) {
        size_t last = 0;
        if (out->dims[i] > 1) {
            out->is_contiguous = out->is_contiguous && out->strides[i] == out->count;
            overflows = overflows || __builtin_mul_overflow(out->dims[i] - 1, out->strides[i], &last) ||
                        __builtin_add_overflow(out->span, last, &out->span);
        }
        overflows = overflows || __builtin_mul_overflow(out->count, out->dims[i], &out->count);
    }
    if (out->count == 0 && !overflows) {
        out->span = 0;
        out->is_contiguous = true;
    }
    if (overflows)
        return fault_set(f, "%s: a tensor has more elements than memory has addresses", t->path);
    if (out->count > out->span)
        return fault_set(f, "%s: a tensor repeats its elements, as .expand() does; save it with .clone()", t->path);
    return (out->span <= out->stored && out->offset <= out->stored - out->span) ||
           fault_set(f, "%s: a tensor has %zu elements from %zu on, but only %zu are stored", t->path, out->span, out->offset,
                     out->stored);
}

bool torch_file_tensor(const torch_file *t, const pickle_value *v, torch_tensor *out, fault *f)
{
    *out = (torch_tensor){.count = 0};
    if (!torch_file_is_tensor(v))
        return fault_set(f, "%s: there is no tensor where one is needed", t->path);
    /* The tensor is the first argument of such a call. Only one such layer is legal. */
    if (pickle_is_global(v->callee, "torch._utils _rebuild_parameter"))
        v = pickle_at(v->arguments, 0);
    if (!torch_file_is_tensor(v) || !size_of(pickle_at(v->arguments, 1), &out->offset))
        return fault_set(f, "%s: a tensor has not the usual form", t->path);
    if (pickle_is_global(v->callee, "torch._utils _rebuild_tensor_v3"))
        return refuse_type(t, pickle_at(v->arguments, 6), f);
    return read_storage(t, pickle_at(v->arguments, 0), out, f) &&
           read_shape(t, pickle_at(v->arguments, 2), pickle_at(v->arguments, 3), out, f) && measure(t, out, f);
}
