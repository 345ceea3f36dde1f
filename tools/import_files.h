/* SPDX-License-Identifier: Apache-2.0 */
/* import_files.h: the tensors of several files, or of a folder with an index, by name. */
#ifndef ZOFF_TOOL_IMPORT_FILES_H
#define ZOFF_TOOL_IMPORT_FILES_H

#include "import.h"
#include "safetensors.h"

/* A tensor and its file. */
struct source_tensor {
    const st_tensor *tensor;
    const st_reader *file;
    unsigned states; /* states that an optimizer gives it, as zoff_checkpoint_param has them; 0: none does */
    const struct torch_moments *moments; /* its moments in the file of an optimizer; NULL: none, or all are zero */
};

/* The files of an import. */
struct import_files {
    const import_format *format;
    st_reader *files;
    size_t file_count;
    source_tensor *tensors; /* tensors in the order of the index, or of the files, without those that are skipped */
    size_t tensor_count;
    uint64_t data_bytes;
    json_t *names;          /* {name: index in `tensors`} */
    const char *moments_of; /* file with the moments; NULL: none */
    pool memory;
};

/* Open files and folders. A folder has an index, or its files are taken in the order of their names.
 * @param skip patterns of names to leave out, as st_matches() has them
 * @return the exit status; import_files_close() also after an error */
int import_files_open(import_files *f, const import_format *format, char *const *paths, size_t count, const char *const *skip);

/* Find a tensor by its name.  @return NULL: there is none */
const source_tensor *import_files_find(const import_files *f, const char *name);

/* Whether a name begins and ends so. */
bool import_files_is_named(const char *name, const char *begin, const char *end);

/* The number of files of a model in a name that ends in -00001-of-00007 and `end`; 0: it is not one of several.
 * @param out_shard the first number */
enum { SHARD_BYTES = sizeof "-00001-of-00007" - 1 };
unsigned import_files_shards(const char *path, const char *end, unsigned *out_shard);

/* Close all files. */
void import_files_close(import_files *f);

#endif
