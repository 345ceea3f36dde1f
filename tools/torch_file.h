/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.h: reads the .pt files of PyTorch that hold tensors, and writes such a file again with other contents.
 *
 * A .pt file is a zip archive: NAME/data.pkl describes the tensors, NAME/data/KEY are their elements. Elements pass through in
 * blocks, so a tensor needs no memory of its own size. Functions return false after an error, with its message in `f`. */
#ifndef ZOFF_TOOL_TORCH_FILE_H
#define ZOFF_TOOL_TORCH_FILE_H

#include "pickle.h"

#include <zoff/types.h>

enum {
    TORCH_DIMS_MAX = 16,             /* dimensions of a tensor */
    TORCH_BLOCK = 1 << 20,           /* elements that pass through at a time */
    TORCH_TENSOR_PICKLE = 256 * 1024 /* bytes of data.pkl in a file that holds one tensor */
};

typedef struct torch_file torch_file;

/* A tensor of a file. */
typedef struct torch_tensor {
    uint64_t entry;   /* index of the archive's entry that has its elements */
    zoff_dtype dtype; /* fp32, also for doubles, which are rounded; fp16 or bf16; ZOFF_DTYPE_DEFAULT: integers */
    size_t element;   /* bytes of an element; 8 with fp32: doubles */
    size_t dims[TORCH_DIMS_MAX], strides[TORCH_DIMS_MAX];
    size_t dim_count;      /* number of dimensions; 0: a single number */
    size_t count;          /* elements */
    size_t offset, stored; /* first element in that entry, and the number of elements stored there */
    size_t span;           /* elements in the entry from the first to the last one; `count` where it is contiguous */
    bool is_contiguous;
} torch_tensor;

/* Open a file and read its pickle.
 * @param most  most bytes of its pickle, up to PICKLE_BYTES_MAX On success the caller closes *out. */
bool torch_file_open(const char *path, pickle_names names, size_t most, torch_file **out, fault *f);
void torch_file_close(torch_file *t); /* NULL is allowed */
const char *torch_file_path(const torch_file *t);
const pickle_value *torch_file_root(const torch_file *t);

/* Whether `v`, which may be NULL, is a tensor, also one that torch_file_tensor() would refuse. */
bool torch_file_is_tensor(const pickle_value *v);

/* Whether the archive has this entry in its folder. */
bool torch_file_has(const torch_file *t, const char *name);

/* Read the description of a tensor and compare it with the size of what is stored. Refuses tensors that repeat elements, and
 * types that zoff does not have. */
bool torch_file_tensor(const torch_file *t, const pickle_value *v, torch_tensor *out, fault *f);

/* Read the elements of a tensor in order. The last call also compares all that is stored with its checksum. Begin again for
 * another tensor. One that is not contiguous is held in memory until then. */
bool torch_file_begin(torch_file *t, const torch_tensor *tensor, fault *f);
bool torch_file_next(torch_file *t, size_t count, float *dst, fault *f);

/* Read a tensor of one element, or a number of the pickle, if it is a whole number. */
bool torch_file_number(torch_file *t, const pickle_value *v, int64_t *out, fault *f);

/* A source of elements in order: `first` is where the call before has ended. */
typedef bool (*torch_source)(void *ctx, size_t first, size_t count, float *dst, fault *f);

/* The changes in a copy of a file. */
typedef struct torch_change {
    pickle_edit *edits; /* numbers of the pickle; edit_count of them */
    size_t edit_count;
    const torch_tensor *tensor; /* tensor of fp32 to change; NULL: none. Elements that are stored beside it become zero */
    torch_source source;        /* source of the tensor's elements */
    void *ctx;
    bool (*stops)(void); /* returns true to end the copy with an error; called again and again; may be NULL */
} torch_change;

/* Write a copy of a file with changes. All else stays as it is, except that entries which PyTorch does not need are left out.
 * Elements begin at multiples of 64 bytes, so that PyTorch can map them.
 * `path` is a new file; after an error it does not exist. */
bool torch_file_copy(const torch_file *t, const char *path, const torch_change *change, fault *f);

#endif
