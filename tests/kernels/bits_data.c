/* SPDX-License-Identifier: Apache-2.0 */
/* bits_data.c: the inputs, arrays and result records of kernels_bits.c. */
#include "bits_data.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SLOTS = 5,
    FRONT = 64,        /* guarded bytes before an array */
    POOL = 1 << 18,    /* numbers in a series: at least twice the largest array */
    BYTES_UP_TO = 2048 /* up to this size the bytes of an array are written, beyond it their hash */
};

struct bits_data {
    FILE *file;
    size_t capacity, page, next;
    char *slot_end[SLOTS], *slot_start[SLOTS]; /* start: NULL if nothing is placed there */
    uint32_t f32[POOL], squares[POOL], finite[POOL];
    uint16_t bf16[POOL], f16[POOL], all[POOL];
    unsigned char text[1 << 20]; /* canonical bytes of the array that is being written */
};

void bits_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545F4914F6CDD1Dull >> 16;
}

/* Zeros, subnormals, the largest and smallest of fp32, bf16 and fp16, infinities, NaN of both kinds and signs. */
static uint32_t nasty(uint64_t random)
{
    static const uint32_t values[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00400000, 0x00800000,
                                      0x00008000, 0x00018000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7f7fff,
                                      0x7f7f8000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                      0x7fffffff, 0x7f800001, 0xff812345, 0x60ad78ec, 0x1e3ce508, 0x3f800000, 0xbf800000,
                                      0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff000, 0x47800000, 0x33000000, 0x33000001,
                                      0x33800000, 0xb3400000, 0x33c00000, 0x387fc000, 0x387fe000, 0x387fefff, 0x38800000};
    return values[random % (sizeof values / sizeof values[0])];
}

/* Halfway between two fp16 (or, beyond their range, two bf16), or one unit of fp32 beside that. */
static uint32_t near_tie(uint64_t random)
{
    static const int beside[] = {0, 0, 1, -1};
    const uint32_t exponent = 98 + (uint32_t)(random % 50), last = exponent >= 143 ? 16 : exponent >= 113 ? 13 : 126 - exponent;
    const uint32_t half = last > 23 ? 0 : 1u << (last - 1),
                   kept = last > 23 ? 0 : (uint32_t)(random >> 8) & (0x7fffffu >> last << last);
    const uint32_t size = (exponent << 23 | kept | half) + (uint32_t)beside[random >> 40 & 3];
    return (uint32_t)(random >> 42 & 1) << 31 | size;
}

static uint32_t ordinary(uint64_t random)
{
    const uint32_t exponent = 106 + (uint32_t)(random >> 32) % 24;
    return (uint32_t)(random & 0x807fffff) | exponent << 23;
}

static void make_numbers(bits_data *data)
{
    uint64_t state = 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < POOL; i++) {
        const uint64_t kind = next_random(&state) % 20, random = next_random(&state);
        const uint32_t plain = ordinary(random);
        data->f32[i] = kind < 2 ? nasty(random) : kind < 4 ? near_tie(random) : plain;
        data->squares[i] = kind < 1 ? nasty(random) : plain & 0x7fffffff;
        data->finite[i] = kind < 4 ? near_tie(random) : plain;
        data->all[i] = (uint16_t)(i * 40503); /* the factor is odd: each pattern occurs once in 65536 */
    }
    for (size_t i = 0; i < POOL; i++) {
        data->bf16[i] = (uint16_t)(data->f32[POOL - 1 - i] >> 16);
        data->f16[i] = next_random(&state) % 8 ? data->all[i] & 0xbfff : data->all[i]; /* most values are below 2 */
    }
}

bits_data *bits_open(const char *path, size_t capacity)
{
    bits_data *data = calloc(1, sizeof *data);
    if (!data || capacity > POOL / 2 + POOL / 8)
        bits_fail("no memory, or more than %d elements", POOL / 2 + POOL / 8);
    data->file = fopen(path, "w+b");
    if (!data->file)
        bits_fail("cannot write %s", path);
    data->capacity = capacity;
    data->page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (capacity * sizeof(float) + FRONT + data->page - 1) / data->page * data->page;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char *base = mmap(NULL, bytes + data->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED || mprotect(base + bytes, data->page, PROT_NONE) != 0)
            bits_fail("no memory for arrays of %zu bytes", bytes);
        data->slot_end[slot] = base + bytes;
    }
    make_numbers(data);
    return data;
}

void bits_close(bits_data *data)
{
    if (fclose(data->file) != 0)
        bits_fail("the results could not be written; is the disk full?");
    free(data);
}

void *bits_place(bits_data *data, unsigned slot, size_t bytes)
{
    if (bytes > data->capacity * sizeof(float))
        bits_fail("an array of %zu bytes does not fit", bytes);
    char *start = data->slot_end[slot] - bytes;
    memset(start - FRONT, 0xA5, FRONT + bytes);
    data->slot_start[slot] = start;
    return start;
}

void bits_check(bits_data *data, const char *label)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        for (size_t i = 1; data->slot_start[slot] && i <= FRONT; i++) {
            if ((unsigned char)data->slot_start[slot][-(ptrdiff_t)i] != 0xA5)
                bits_fail("%s: changed %zu bytes before array %u", label, i, slot);
        }
        data->slot_start[slot] = NULL;
    }
}

static size_t bytes_of(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? sizeof(float) : sizeof(uint16_t);
}

void bits_copy(void *out, const bits_data *data, zoff_dtype dtype, size_t from, size_t n)
{
    const void *series = dtype == ZOFF_F32 ? (const void *)data->f32 : dtype == ZOFF_BF16 ? data->bf16 : data->f16;
    memcpy(out, (const char *)series + from * bytes_of(dtype), n * bytes_of(dtype));
}

/* Each call starts at another place of the series. */
static void *fill_from(bits_data *data, unsigned slot, const void *series, size_t bytes, size_t n)
{
    data->next = (data->next + 40961) % (POOL - n);
    void *array = bits_place(data, slot, n * bytes);
    memcpy(array, (const char *)series + data->next * bytes, n * bytes);
    return array;
}

void *bits_fill(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n)
{
    const void *series = dtype == ZOFF_F32 ? (const void *)data->f32 : dtype == ZOFF_BF16 ? data->bf16 : data->f16;
    return fill_from(data, slot, series, bytes_of(dtype), n);
}

void *bits_fill_finite(bits_data *data, unsigned slot, zoff_dtype dtype, size_t n)
{
    if (dtype == ZOFF_F32)
        return fill_from(data, slot, data->finite, sizeof(float), n);
    uint16_t *array = bits_fill(data, slot, dtype, n);
    const uint16_t exponent = dtype == ZOFF_BF16 ? 0x7f80 : 0x7c00;
    for (size_t i = 0; i < n; i++) {
        if ((array[i] & exponent) == exponent)
            array[i] = (uint16_t)(array[i] & ~0x4000u);
    }
    return array;
}

void *bits_fill_squares(bits_data *data, unsigned slot, size_t n)
{
    return fill_from(data, slot, data->squares, sizeof(float), n);
}

void *bits_fill_all(bits_data *data, unsigned slot, size_t n)
{
    return fill_from(data, slot, data->all, sizeof(uint16_t), n);
}

static uint64_t hash(const unsigned char *bytes, size_t count)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15ull; /* the factor is odd, so no information is lost */
        h ^= h >> 29;
    }
    return h ^ count;
}

static void write_text(bits_data *data, const char *label, const char *array, size_t width, size_t bytes)
{
    uint64_t short_form;
    const void *form = data->text;
    const size_t full = bytes;
    if (bytes > BYTES_UP_TO) {
        short_form = hash(data->text, bytes);
        form = &short_form;
        bytes = sizeof short_form;
    }
    fprintf(data->file, "%s: %s, %s %zu bytes, %zu follow, width %zu\n", label, array, bytes == full ? "all" : "hash of", full,
            bytes, bytes == full ? width : bytes);
    fwrite(form, 1, bytes, data->file);
    fputc('\n', data->file);
    if (ferror(data->file))
        bits_fail("the results could not be written; is the disk full?");
}

void bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n)
{
    const size_t bytes = n * bytes_of(dtype);
    if (bytes > sizeof data->text)
        bits_fail("%s: an array of %zu bytes is too large to be written", label, bytes);
    memcpy(data->text, values, bytes);
    for (size_t i = 0; dtype == ZOFF_F32 && i < n; i++) {
        uint32_t x;
        memcpy(&x, data->text + i * sizeof x, sizeof x);
        if ((x & 0x7fffffff) > 0x7f800000)
            memcpy(data->text + i * sizeof x, &(uint32_t){0x7fc00000}, sizeof x);
    }
    write_text(data, label, array, bytes_of(dtype), bytes);
}

void bits_write_bytes(bits_data *data, const char *label, const char *array, const void *values, size_t n)
{
    memcpy(data->text, values, n);
    write_text(data, label, array, 1, n);
}

void bits_write_doubles(bits_data *data, const char *label, const char *array, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, &values[i], sizeof x);
        x = (x & 0x7fffffffffffffff) > 0x7ff0000000000000 ? 0x7ff8000000000000 : x;
        memcpy(data->text + i * sizeof x, &x, sizeof x);
    }
    write_text(data, label, array, sizeof(double), n * sizeof(double));
}

long bits_tell(bits_data *data)
{
    return ftell(data->file);
}

int bits_repeats(bits_data *data, long from)
{
    const long end = ftell(data->file), length = end - from;
    char earlier[4096], later[4096];
    if (length > (long)sizeof later || length > from || length <= 0)
        bits_fail("records of %ld bytes cannot be compared", length);
    const int good = fseek(data->file, from - length, SEEK_SET) == 0 && fread(earlier, (size_t)length, 1, data->file) == 1 &&
                     fread(later, (size_t)length, 1, data->file) == 1 && fseek(data->file, end, SEEK_SET) == 0;
    if (!good)
        bits_fail("the results could not be read back");
    return memcmp(earlier, later, (size_t)length) == 0;
}
