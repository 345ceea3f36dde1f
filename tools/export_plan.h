/* SPDX-License-Identifier: Apache-2.0 */
/* export_plan.h: which tensors an export has, in which files, with which metadata. */
#ifndef ZOFF_TOOL_EXPORT_PLAN_H
#define ZOFF_TOOL_EXPORT_PLAN_H

#include "safetensors.h"

#include <zoff/checkpoint.h>

/* Tensors that get other names: `from` has at most one "*", which stands for any text, and `to` takes that text for each "*".
 */
typedef struct export_rename {
    const char *from, *to;
} export_rename;

/* Which tensors an export has, and how they are named. */
typedef struct export_choice {
    const char *const *only; /* patterns as st_matches() has them; NULL: all tensors */
    const export_rename *renames;
    size_t rename_count;
} export_choice;

/* A tensor of an export: a whole parameter or one of its slices. */
typedef struct planned_tensor {
    st_tensor tensor;
    size_t param;         /* index of the parameter in the checkpoint */
    zoff_state_kind kind; /* masters, or weights of a frozen parameter */
    uint64_t first;       /* first element in the parameter */
    size_t shard;         /* index of its file */
} planned_tensor;

/* The facts of an export. */
typedef struct export_plan {
    planned_tensor *tensors; /* tensors in the order of parameters, and so of files */
    size_t tensor_count, shard_count, alias_count;
    size_t missing_count; /* frozen parameters that the checkpoint leaves out */
    uint64_t data_bytes;
    json_t *aliases; /* {name of a tied tensor: name of the tensor that has its data} */
    json_t *shards;  /* list of the files' metadata */
    pool memory;
} export_plan;

/* Plan the export of a checkpoint. Patterns that match nothing are refused, and tensors that would have one name.
 * @param dtype type of all tensors; ZOFF_DTYPE_DEFAULT: that of each  @param shard_bytes largest data of a file; a tensor that
 * is larger has a file of its own  @return the exit status; export_plan_free() also after an error */
int export_plan_make(export_plan *plan, zoff_checkpoint_reader *r, const export_choice *choice, zoff_dtype dtype,
                     uint64_t shard_bytes);

/* Free a plan. */
void export_plan_free(export_plan *plan);

#endif
