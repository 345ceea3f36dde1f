/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h: read and write one file of the safetensors format: eight bytes with the length of a JSON header, the header,
 * and the tensors without gaps. */
#ifndef ZOFF_TOOL_SAFETENSORS_H
#define ZOFF_TOOL_SAFETENSORS_H

#include "out_file.h"
#include "pool.h"

#include <jansson.h>
#include <stdbool.h>
#include <zoff/types.h>

/* The largest header in bytes, as in the reference implementation. */
enum { ST_HEADER_MAX = 100000000 };

/* A tensor of a file. */
typedef struct st_tensor {
    const char *name; /* UTF-8 */
    zoff_dtype dtype; /* type of the elements; ZOFF_DTYPE_DEFAULT in a file that is read: a type that cannot be weights */
    const size_t *dims;
    size_t dim_count;
    uint64_t count; /* elements, the product of the dimensions */
    uint64_t begin; /* bytes of the data before this tensor */
} st_tensor;

/* A file that is being written. */
typedef struct st_writer {
    out_file file;
    uint64_t data_bytes, written; /* bytes of all tensors, and bytes written so far */
} st_writer;

/* Begin to write a file. Computes `begin` of the tensors in their order, and writes the header.
 * @param metadata an object of texts; NULL: none  @return the exit status */
int st_writer_open(st_writer *w, const char *path, st_tensor *tensors, size_t count, json_t *metadata);

/* Write bytes of the tensors, one tensor after the other.  @return the exit status */
int st_writer_append(st_writer *w, const void *bytes, size_t count);

/* Make the file durable, and give it its name. All bytes must have been written.  @return the exit status */
int st_writer_commit(st_writer *w);

/* Close a file; without a commit before, remove it. */
void st_writer_close(st_writer *w);

/* A file that is open for reading. */
typedef struct st_reader {
    const char *path;
    st_tensor *tensors; /* tensors in the order of their bytes */
    size_t tensor_count;
    json_t *metadata; /* an object of texts; NULL: none */
    uint64_t data_at, data_bytes;
    int fd;
    struct torch_model *torch; /* a file of PyTorch in its place (torch_model.c); NULL: a safetensors file */
    pool memory;
} st_reader;

/* Open a file and check its header against the size of the file: every byte belongs to one tensor.
 * @param skip patterns of names whose type may be any
 * @return the exit status; an error names the file, and the tensor if there is one */
int st_reader_open(st_reader *r, const char *path, const char *const *skip);

/* True if a name matches a pattern of a list, which ends with NULL. The patterns are those of a shell. NULL: no patterns. */
bool st_matches(const char *name, const char *const *patterns);

/* Read elements of a tensor.  @return the exit status */
int st_reader_read(const st_reader *r, const st_tensor *t, uint64_t first, size_t count, void *dst);

/* Close a file. */
void st_reader_close(st_reader *r);

#endif
