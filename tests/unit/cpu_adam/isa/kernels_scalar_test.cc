// kernels_scalar_test.cc: the kernels for any CPU: one element at a time, and what all others are compared with.
#include "one_table.h"

ONE_TABLE(scalar, true, 1, &zoff_adam_kernels_scalar)
