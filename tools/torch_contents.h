/* SPDX-License-Identifier: Apache-2.0 */
/* torch_contents.h: what a file of torch.save() holds: a model's state_dict, the state of an optimizer, or something else. */
#ifndef ZOFF_TOOL_TORCH_CONTENTS_H
#define ZOFF_TOOL_TORCH_CONTENTS_H

#include "torch_file.h"

typedef enum torch_kind {
    TORCH_MODEL,     /* a state_dict, alone or in a dict with other things */
    TORCH_OPTIMIZER, /* the state_dict of an optimizer, alone */
    TORCH_MODULE,    /* a model as an object of its class */
    TORCH_SCRIPT,    /* TorchScript */
    TORCH_DEEPSPEED, /* one file of a checkpoint of DeepSpeed */
    TORCH_MEGATRON,  /* one file of a checkpoint of Megatron */
    TORCH_OTHER
} torch_kind;

typedef struct torch_contents {
    torch_kind kind;
    const pickle_value *model;     /* a dict of tensors by name; NULL: none */
    const pickle_value *optimizer; /* a dict with "state" and "param_groups"; NULL: none */
    const pickle_value *module;    /* TORCH_MODULE: the class */
} torch_contents;

/* Look through an open file. */
torch_contents torch_contents_find(const torch_file *t);

/* Look through the file at `path`. Returns false if it cannot be read, or this build has no libzip; then *out_kind is not
 * written. */
bool torch_contents_kind(const char *path, torch_kind *out_kind);

#endif
