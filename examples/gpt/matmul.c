/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c: a blocked matrix product.
 *
 *  The product is cut into panels of 16 columns. A thread copies its panel of `b` into scratch memory (as fp32, transposed if
 *  need be) and runs down the rows of `a`, six at a time, with the 6 x 16 sums in registers:
 *
 *            columns 0..15 | 16..31 | ...
 *     rows  +--------------+--------+
 *     0..5  |  6 x 16 sums |        |     a sum is one multiply-add for each k = 0, 1, ..., inner-1, in that order:
 *     6..11 |              |        |     vectors run over columns, never over k, so nothing depends on their width
 *           +--------------+--------+     or on which thread had the panel.
 *
 *  The inner part (matmul_tile.h) is compiled twice, plainly and for AVX2 with FMA, and chosen by what the CPU has. (The two
 *  differ in the last bits, two runs on one machine do not.)
 */
#include "matmul.h"
#include "bf16.h"

#include <omp.h>
#include <stdint.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 16 };

typedef void (*tile_fn)(size_t inner, const float *const rows[ROWS], size_t step, const float *panel, float *sums);

#define TILE tile_plain
#define TILE_FOR
#define TILE_BYTES 16
#include "matmul_tile.h"

#if defined(__x86_64__)
#define TILE tile_avx2
#define TILE_FOR __attribute__((target("avx2,fma")))
#define TILE_BYTES 32
#include "matmul_tile.h"
#endif

static tile_fn choose_tile(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return tile_avx2;
#endif
    return tile_plain;
}

/* Copy columns first .. first + count - 1 of `b` into a panel of 16; fill it up with zeros. */
static void pack(gpt_matrix b, size_t inner, size_t first, size_t count, float *panel)
{
    const size_t rs = b.row_stride, cs = b.column_stride;
    if (count < COLUMNS)
        memset(panel, 0, inner * COLUMNS * sizeof *panel);
    if (b.bf16) {
        const uint16_t *from = (const uint16_t *)b.data + first * cs;
        if (cs == 1) {
            for (size_t k = 0; k < inner; k++)
                for (size_t c = 0; c < count; c++)
                    panel[k * COLUMNS + c] = gpt_bf16_load(from[k * rs + c]);
        } else {
            for (size_t c = 0; c < count; c++)
                for (size_t k = 0; k < inner; k++)
                    panel[k * COLUMNS + c] = gpt_bf16_load(from[k * rs + c * cs]);
        }
        return;
    }
    const float *from = (const float *)b.data + first * cs;
    if (cs == 1) {
        for (size_t k = 0; k < inner; k++)
            memcpy(panel + k * COLUMNS, from + k * rs, count * sizeof *panel);
    } else {
        for (size_t c = 0; c < count; c++)
            for (size_t k = 0; k < inner; k++)
                panel[k * COLUMNS + c] = from[k * rs + c * cs];
    }
}

/* Write one row of a tile. */
static void store(gpt_product out, size_t at, size_t first, size_t count, const float *sums)
{
    float row[COLUMNS];
    for (size_t c = 0; c < count; c++)
        row[c] = sums[c] + (out.bias ? out.bias[first + c] : 0.0f);
    if (out.bf16) {
        uint16_t *to = (uint16_t *)out.data + at;
        for (size_t c = 0; c < count; c++)
            to[c] = gpt_bf16_round(row[c]);
        return;
    }
    float *to = (float *)out.data + at;
    for (size_t c = 0; c < count; c++)
        to[c] = row[c];
}

size_t gpt_matmul_panel_floats(size_t inner)
{
    return inner * COLUMNS;
}

void gpt_matmul(size_t rows, size_t columns, size_t inner, gpt_matrix a, gpt_matrix b, gpt_product out, float *panels,
                int threads)
{
    const tile_fn tile = choose_tile();
    const float *left = a.data;
    /* The threads take panels one by one, because one of them may share its CPU with a thread of the optimizer. */
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t first = 0; first < columns; first += COLUMNS) {
        const size_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
        float *panel = panels + (size_t)omp_get_thread_num() * gpt_matmul_panel_floats(inner);
        pack(b, inner, first, count, panel);
        for (size_t row = 0; row < rows; row += ROWS) {
            float sums[ROWS * COLUMNS];
            const float *lines[ROWS]; /* rows beyond the end repeat the last one and are not stored */
            for (size_t r = 0; r < ROWS; r++)
                lines[r] = left + (row + r < rows ? row + r : rows - 1) * a.row_stride;
            tile(inner, lines, a.column_stride, panel, sums);
            for (size_t r = 0; r < ROWS && row + r < rows; r++)
                store(out, (row + r) * columns + first, first, count, sums + r * COLUMNS);
        }
    }
}
