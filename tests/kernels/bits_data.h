/* bits_data.h: what kernels_bits.c computes on and where it writes the results: awkward numbers made without floating point,
 * arrays that end at a page which may not be touched, records in a file. Ends the program, with a reason, when anything is
 * wrong: it is a test. */
#ifndef ZOFF_TESTS_BITS_DATA_H
#define ZOFF_TESTS_BITS_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/types.h>

typedef struct bits_data bits_data;

/* Results go to `path`; arrays have at most `capacity` elements of fp32. */
bits_data *bits_open(const char *path, size_t capacity);
void bits_close(bits_data *data);

/* Array number `slot` (0 to 4) for so many bytes, behind which lies the page that may not be touched. */
void *bits_place(bits_data *data, unsigned slot, size_t bytes);
/* The same with `n` elements of a type in it: ordinary numbers, one in five awkward. Others at each call. */
void *bits_fill(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n);
/* Finite ones. */
void *bits_fill_finite(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n);
/* fp32 that are not negative, but for the awkward ones. */
void *bits_fill_squares(bits_data *data, unsigned slot, size_t n);
/* 16-bit patterns: 65536 of them are all there are. */
void *bits_fill_all(bits_data *data, unsigned slot, size_t n);
/* The first numbers of a series into an array of the caller. */
void bits_copy(void *out, const bits_data *data, zoff_dtype dtype, size_t from, size_t n);

/* A record: its name, and the array's bits if it is small, else a hash of them. Every NaN of fp32 and fp64 is written as the
 * same one, for their sign and payload are the CPU's choice; 16-bit results have one NaN anyway. */
void bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n);
void bits_write_doubles(bits_data *data, const char *label, const char *array, const double *values, size_t n);
/* Fail if the bytes in front of an array that was placed since the last call have changed. */
void bits_check(bits_data *data, const char *label);
/* Bytes written so far; whether what was written since `from` repeats the bytes just before it. */
long bits_tell(bits_data *data);
int bits_repeats(bits_data *data, long from);

void bits_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
