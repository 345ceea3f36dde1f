/* SPDX-License-Identifier: Apache-2.0 */
/* bits_data.h: the inputs of kernels_bits.c and its output file. Inputs are special and random numbers, made without floating
 * point. Each array ends at a page that must not be touched. Results are records in a file. Any error ends the program with
 * a message. */
#ifndef ZOFF_TESTS_BITS_DATA_H
#define ZOFF_TESTS_BITS_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/types.h>

typedef struct bits_data bits_data;

/* Write results to `path`. Arrays have at most `capacity` elements of fp32. */
bits_data *bits_open(const char *path, size_t capacity);
void bits_close(bits_data *data);

/* Place array number `slot` (0 to 4) of so many bytes directly before a page that must not be touched. */
void *bits_place(bits_data *data, unsigned slot, size_t bytes);
/* Place an array filled with `n` elements of a type: ordinary numbers, one in five special. Each call gives other numbers. */
void *bits_fill(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n);
/* Place an array of finite numbers only. */
void *bits_fill_finite(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n);
/* Place an array of fp32 numbers that are not negative, except for the special ones. */
void *bits_fill_squares(bits_data *data, unsigned slot, size_t n);
/* Place an array of 16-bit patterns; 65536 elements are all patterns. */
void *bits_fill_all(bits_data *data, unsigned slot, size_t n);
/* Copy numbers of a series, from number `from` on, into an array of the caller. */
void bits_copy(void *out, const bits_data *data, zoff_dtype dtype, size_t from, size_t n);

/* Write a record: its name, and the array's bits if it is small, otherwise their hash. Every fp32 or fp64 NaN is written as
 * the same one, because its sign and payload depend on the CPU. 16-bit results have only one NaN. */
void bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n);
void bits_write_bytes(bits_data *data, const char *label, const char *array, const void *values, size_t n);
void bits_write_doubles(bits_data *data, const char *label, const char *array, const double *values, size_t n);
/* Fail if the bytes in front of an array that was placed since the last call have changed. */
void bits_check(bits_data *data, const char *label);
/* Return the number of bytes written so far; and whether those written since `from` repeat the bytes just before. */
long bits_tell(bits_data *data);
int bits_repeats(bits_data *data, long from);

void bits_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
