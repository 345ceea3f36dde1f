/* SPDX-License-Identifier: Apache-2.0 */
// kernels_scalar_test.cc: the kernels for any CPU: one element at a time. All others are compared with them.
#include "one_table.h"

ONE_TABLE(scalar, true, 1, &zoff_adam_kernels_scalar)
