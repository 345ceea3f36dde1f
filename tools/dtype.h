/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h: element types of weights: their names, and fp32 rounded to them and back, with the bits of the library. */
#ifndef ZOFF_TOOL_DTYPE_H
#define ZOFF_TOOL_DTYPE_H

#include <zoff/types.h>

/* "fp32", "fp16" or "bf16" */
const char *dtype_name(zoff_dtype dtype);

/* Bytes of an element. */
size_t dtype_bytes(zoff_dtype dtype);

/* Find the type of this name; ZOFF_DTYPE_DEFAULT: there is none. */
zoff_dtype dtype_of(const char *name);

/* Round fp32 to nearest, ties away from zero (bf16) or to even (fp16), as zoff_params_push() rounds masters. A number too large
 * for fp16 becomes infinite; every NaN becomes 0x7e00 (fp16) or 0x7fc0 (bf16). */
void dtype_round(zoff_dtype to, const float *src, size_t count, void *dst);

/* Convert to fp32, which is exact. A signalling NaN of fp16 becomes quiet. */
void dtype_widen(zoff_dtype from, const void *src, size_t count, float *dst);

#endif
