/* SPDX-License-Identifier: Apache-2.0 */
/* torch_copy.c: writes a copy of a .pt file with other numbers in its pickle and other elements of one tensor. */
#include "torch_file_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ALIGNMENT = 64,        /* alignment of elements, as PyTorch has it */
    LOCAL_HEADER = 30,     /* bytes of an entry's header before its name */
    EXTRA_HEADER = 4,      /* bytes of an extra field before its contents */
    ZIP64_FIELD = 20,      /* bytes of the extra field of an entry from 4 GiB on */
    PADDING_FIELD = 0x4246 /* id of the extra field that PyTorch pads with: "FB" */
};

/* The state of the changed elements while libzip asks for them. */
typedef struct elements {
    const torch_change *change;
    size_t at, bytes;     /* place in the entry, and bytes of the entry */
    float *block;         /* elements that are on their way */
    size_t first, filled; /* range of the entry that the block has, in bytes */
    zip_error_t error;
    fault *fault;
} elements;

typedef struct copy {
    const torch_file *from;
    const torch_change *change;
    zip_t *zip;
    uint64_t at; /* place of the next entry */
    unsigned char *pickle;
    size_t pickle_bytes;
    elements elements;
    fault *fault;
} copy;

static bool copy_fault(copy *c, fault *f)
{
    return fault_set(f, "cannot prepare a copy of %s: %s", c->from->path, zip_strerror(c->zip));
}

/* ---- the changed elements ---- */

/* Fill the block with the elements from byte `at` on: elements of the tensor, and zeros outside of it. */
static bool fill_block(elements *e)
{
    const torch_tensor *tensor = e->change->tensor;
    const size_t first = e->at / sizeof(float), left = e->bytes / sizeof(float) - first;
    size_t count = left < TORCH_BLOCK ? left : TORCH_BLOCK;
    bool ok = true;
    if (first >= tensor->offset && first < tensor->offset + tensor->count) {
        const size_t of_tensor = tensor->offset + tensor->count - first;
        count = count < of_tensor ? count : of_tensor;
        ok = e->change->source(e->change->ctx, first - tensor->offset, count, e->block, e->fault);
    } else {
        if (first < tensor->offset && count > tensor->offset - first)
            count = tensor->offset - first;
        memset(e->block, 0, count * sizeof(float));
    }
    e->first = e->at;
    e->filled = count * sizeof(float);
    return ok;
}

static zip_int64_t give_bytes(elements *e, char *dst, uint64_t room)
{
    uint64_t given = 0;
    while (given < room && e->at < e->bytes) {
        if (e->at == e->first + e->filled && !fill_block(e)) {
            zip_error_set(&e->error, ZIP_ER_READ, EIO);
            return -1;
        }
        const size_t ready = e->first + e->filled - e->at, now = ready < room - given ? ready : (size_t)(room - given);
        memcpy(dst + given, (const char *)e->block + (e->at - e->first), now);
        e->at += now;
        given += now;
    }
    return (zip_int64_t)given;
}

static zip_int64_t answer(void *ctx, void *data, zip_uint64_t bytes, zip_source_cmd_t command)
{
    elements *e = ctx;
    zip_stat_t *about = data;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        e->at = e->first = e->filled = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return give_bytes(e, data, bytes);
    case ZIP_SOURCE_STAT:
        zip_stat_init(about);
        about->size = e->bytes;
        about->valid = ZIP_STAT_SIZE;
        return sizeof *about;
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&e->error, data, bytes);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
                                              ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip_error_set(&e->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- entries ---- */

/* Give a new entry an extra field, so that its contents begin at a multiple of ALIGNMENT, and count its bytes. */
static bool place_entry(copy *c, uint64_t index, size_t name_bytes, uint64_t bytes)
{
    static const unsigned char ZEROS[ALIGNMENT];
    const uint64_t fixed = LOCAL_HEADER + name_bytes + EXTRA_HEADER + (bytes >= UINT32_MAX ? ZIP64_FIELD : 0);
    const uint64_t padding = (ALIGNMENT - (c->at + fixed) % ALIGNMENT) % ALIGNMENT;
    if (zip_file_extra_field_set(c->zip, index, PADDING_FIELD, ZIP_EXTRA_FIELD_NEW, ZEROS, (zip_uint16_t)padding,
                                 ZIP_FL_LOCAL) < 0)
        return copy_fault(c, c->fault);
    c->at += fixed + padding + bytes;
    return true;
}

/* Take over `source`, which may be NULL, as an entry. */
static bool add_entry(copy *c, const char *name, uint64_t bytes, zip_source_t *source)
{
    const zip_int64_t index = source ? zip_file_add(c->zip, name, source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0) {
        if (source)
            zip_source_free(source);
        return copy_fault(c, c->fault);
    }
    if (zip_set_file_compression(c->zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) < 0)
        return copy_fault(c, c->fault);
    return place_entry(c, (uint64_t)index, strlen(name), bytes);
}

/* Leave out the places of entries, because they no longer hold, and the digest of their contents, because nobody reads it. */
static bool is_dropped(const char *name)
{
    return strcmp(name, ".format_version") == 0 || strcmp(name, ".storage_alignment") == 0 ||
           strcmp(name, ".data/serialization_id") == 0;
}

static bool copy_entry(copy *c, uint64_t index)
{
    zip_stat_t about;
    if (zip_stat_index(c->from->zip, index, 0, &about) < 0 || !(about.valid & ZIP_STAT_NAME) || !(about.valid & ZIP_STAT_SIZE))
        return fault_set(c->fault, "%s: cannot read the entry %zu: %s", c->from->path, (size_t)index,
                         zip_strerror(c->from->zip));
    const size_t folder = strlen(c->from->folder);
    if (strncmp(about.name, c->from->folder, folder) != 0)
        return fault_set(c->fault, "%s: its entries are in several folders", c->from->path);
    const char *name = about.name + folder;
    if (is_dropped(name))
        return true;
    if (strcmp(name, "data.pkl") == 0)
        return add_entry(c, about.name, c->pickle_bytes, zip_source_buffer(c->zip, c->pickle, c->pickle_bytes, 0));
    if (c->change->tensor && index == c->change->tensor->entry) {
        c->elements.bytes = about.size;
        return add_entry(c, about.name, about.size, zip_source_function(c->zip, answer, &c->elements));
    }
    return add_entry(c, about.name, about.size, zip_source_zip(c->zip, c->from->zip, index, 0, 0, -1));
}

/* ---- the whole ---- */

static int is_stopped(zip_t *zip, void *ctx)
{
    (void)zip;
    const copy *c = ctx;
    return c->change->stops && c->change->stops();
}

/* Write the archive with the entries that were added. */
static bool close_archive(copy *c, const char *path)
{
    fault_write(c->elements.fault, "%s", "");
    zip_register_cancel_callback_with_state(c->zip, is_stopped, NULL, c);
    if (zip_close(c->zip) == 0)
        return true;
    if (*c->elements.fault->text) /* a source that failed has said why */
        *c->fault = *c->elements.fault;
    else if (is_stopped(c->zip, c))
        fault_write(c->fault, "interrupted; there is no %s", path);
    else
        fault_write(c->fault, "cannot write %s: %s", path, zip_strerror(c->zip));
    return false;
}

static bool write_archive(copy *c, const char *path)
{
    int code;
    c->zip = zip_open(path, ZIP_CREATE | ZIP_EXCL, &code);
    if (!c->zip) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        fault_write(c->fault, "cannot create %s: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return false;
    }
    bool ok = true;
    const zip_int64_t entries = zip_get_num_entries(c->from->zip, 0);
    for (zip_int64_t i = 0; i < entries && ok; i++)
        ok = copy_entry(c, (uint64_t)i);
    if (ok && close_archive(c, path))
        return true;
    zip_discard(c->zip);
    return false;
}

bool torch_file_copy(const torch_file *t, const char *path, const torch_change *change, fault *f)
{
    if (change->tensor &&
        (change->tensor->dtype != ZOFF_F32 || change->tensor->element != sizeof(float) || !change->tensor->is_contiguous))
        return fault_set(f, "%s: only contiguous float32 elements can be replaced", t->path);
    fault of_source;
    copy c = {.from = t, .change = change, .fault = f, .elements = {.change = change, .fault = &of_source}};
    zip_error_init(&c.elements.error);
    c.elements.block = malloc(TORCH_BLOCK * sizeof(float));
    bool ok = c.elements.block || fault_set(f, "out of memory for a block of elements");
    ok = ok && pickle_copy_edited(t->bytes, t->byte_count, change->edits, change->edit_count, &c.pickle, &c.pickle_bytes, f);
    ok = ok && write_archive(&c, path);
    free(c.pickle);
    free(c.elements.block);
    zip_error_fini(&c.elements.error);
    return ok;
}
