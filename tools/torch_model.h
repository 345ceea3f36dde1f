/* SPDX-License-Identifier: Apache-2.0 */
/* torch_model.h: the state_dict of a file of torch.save() as a file of a model, and the moments that torch.optim has for it. */
#ifndef ZOFF_TOOL_TORCH_MODEL_H
#define ZOFF_TOOL_TORCH_MODEL_H

#include "import_files.h"
#include "torch_contents.h"

/* The moments of a parameter in a file of an optimizer. */
typedef struct torch_moments {
    torch_file *file;
    torch_tensor first, second; /* ZOFF_STATE_M and ZOFF_STATE_V, which states of source_tensor says that there are */
} torch_moments;

/* A file of a state_dict. */
typedef struct torch_model {
    torch_file *file;
    torch_contents contents;
    torch_tensor *tensors; /* for each tensor of the reader */
    unsigned wraps;        /* how often every name had "module." before it */
    torch_file *optimizer; /* the first file of a model: the file of --optimizer; NULL: none */
} torch_model;

extern const import_format IMPORT_TORCH;

/* Take "module." from the begin of a name as often as `wraps` says, and "_orig_mod." from everywhere. */
void torch_model_strip(char *name, unsigned wraps);

/* Read the state of an optimizer: o->optimizer, or that in the file of the model unless --optimizer names one. Sets the states
 * of the tensors, and the step. Tensors that it does not have become frozen.  @return the exit status */
int torch_optimizer_read(import_files *f, import_options *o);

#endif
