/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file_priv.h: an open .pt file, shared by torch_file.c and torch_copy.c. */
#ifndef ZOFF_TOOL_TORCH_FILE_PRIV_H
#define ZOFF_TOOL_TORCH_FILE_PRIV_H

#include "torch_file.h"

#include <zip.h>

struct torch_file {
    char *path;
    zip_t *zip;
    char folder[256];     /* folder in the archive, with its "/" */
    unsigned char *bytes; /* bytes of the pickle */
    size_t byte_count;
    pickle *pickle;
    uint64_t file_bytes;
    /* data of the tensor that is being read */
    zip_file_t *data;
    torch_tensor tensor;
    size_t done;                  /* number of the tensor's elements that were read */
    unsigned char *span;          /* elements of one that is not contiguous; NULL: it is */
    size_t place[TORCH_DIMS_MAX]; /* index of the next element in `span` */
};

#endif
