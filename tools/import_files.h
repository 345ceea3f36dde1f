/* import_files.h: the tensors of several safetensors files, or of a folder with an index, by name. */
#ifndef ZOFF_TOOL_IMPORT_FILES_H
#define ZOFF_TOOL_IMPORT_FILES_H

#include "safetensors.h"

/* A tensor and its file. */
typedef struct source_tensor {
    const st_tensor *tensor;
    const st_reader *file;
} source_tensor;

/* The files of an import. */
typedef struct import_files {
    st_reader *files;
    size_t file_count;
    source_tensor *tensors; /* tensors in the order of the index, or of the files, without those that are skipped */
    size_t tensor_count;
    uint64_t data_bytes;
    json_t *names; /* {name: index in `tensors`} */
    pool memory;
} import_files;

/* Open files and folders. A folder has model.safetensors.index.json, or its files are taken in the order of their names.
 * @param skip patterns of names to leave out, as st_matches() has them
 * @return the exit status; import_files_close() also after an error */
int import_files_open(import_files *f, char *const *paths, size_t count, const char *const *skip);

/* Find a tensor by its name.  @return NULL: there is none */
const source_tensor *import_files_find(const import_files *f, const char *name);

/* Close all files. */
void import_files_close(import_files *f);

#endif
