/* SPDX-License-Identifier: Apache-2.0 */
/* records.h: facts of parameters that a safetensors file has no place for: slices, ties, frozen weights, and names that are not
 * UTF-8. Exports carry them in "zoff.params" of "__metadata__": a text that is a JSON list of objects. */
#ifndef ZOFF_TOOL_RECORDS_H
#define ZOFF_TOOL_RECORDS_H

#include "pool.h"

#include <jansson.h>
#include <zoff/checkpoint.h>

/* The key of the records in "__metadata__". */
#define RECORDS_KEY "zoff.params"

/* True if a file needs a record to tell all of a parameter. */
bool record_is_needed(const zoff_checkpoint_param *p);

/* Make the record of a parameter: "name"; if they differ from the default "slices", "slice_name", "frozen"; and of a tied
 * parameter "tied_to" and "dims". Names are encoded by name_encode().  @return NULL when memory is exhausted */
json_t *record_make(const zoff_checkpoint_param *p);

/* Read a record: name, slices, slice_name, tied_to, and for a tied parameter dims and count. `states` has ZOFF_STATE_WEIGHTS if
 * the parameter is frozen.
 * @param file for messages  @return the exit status */
int record_read(pool *memory, const char *file, const json_t *record, zoff_checkpoint_param *out);

/* True if the parameter is frozen: it has weights instead of masters. */
bool record_is_frozen(const zoff_checkpoint_param *p);

/* Print type and shape: "bf16 [3 x 30, 40]". */
void record_print_shape(const zoff_checkpoint_param *p);

/* The number of tensors that hold a parameter: one, or one for each slice. */
size_t record_tensors(const zoff_checkpoint_param *p);

/* Name one tensor of a parameter.  @return as pool_take() */
char *record_tensor_name(pool *memory, const zoff_checkpoint_param *p, size_t i);

#endif
