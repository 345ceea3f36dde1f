/* nomath_portable.c: the kernels without a word of one machine: vectors of 16 bytes, stores as they come. */
#define NOMATH_NAME portable
#define LANES 4
#define GROUP 4
#include "nomath_body.h"
