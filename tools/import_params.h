/* SPDX-License-Identifier: Apache-2.0 */
/* import_params.h: which parameters the tensors of files make. */
#ifndef ZOFF_TOOL_IMPORT_PARAMS_H
#define ZOFF_TOOL_IMPORT_PARAMS_H

#include "import.h"
#include "import_files.h"

#include <zoff/checkpoint.h>

/* A parameter and the tensors that hold it. */
typedef struct import_param {
    zoff_checkpoint_param facts;
    const source_tensor **tensors; /* tensors: one, or one for each slice; none for a tied parameter */
    size_t tensor_count;
} import_param;

/* All parameters: those with tensors, in the order of their first tensor, then the tied ones. */
typedef struct import_params {
    import_param *params;
    size_t count, tied_count;
    pool memory;
} import_params;

/* Make the parameters: those of the records in the files, those of `stacks`, and one for each tensor beside them. Metadata
 * {name: name of a tensor} makes a tied parameter.
 * @param o stacks, frozen and moments are used  @return the exit status; import_params_free() also after an error */
int import_params_make(import_params *p, const import_files *f, const import_options *o);

/* Free the parameters. */
void import_params_free(import_params *p);

#endif
