/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_diff.h: compares two checkpoints. */
#ifndef ZOFF_TOOL_CHECKPOINT_DIFF_H
#define ZOFF_TOOL_CHECKPOINT_DIFF_H

#include <zoff/checkpoint.h>

/* Print a line for each difference: facts, parameters that one of them lacks or ties in another way, and
 * states and bytes of the program with other bits.
 * @return the exit status; *out_equal is true if there is no difference */
int checkpoint_diff(zoff_checkpoint_reader *a, zoff_checkpoint_reader *b, bool *out_equal);

#endif
