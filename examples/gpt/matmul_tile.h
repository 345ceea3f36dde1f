/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_tile.h: the inner part of the matrix product. matmul.c includes it once for each instruction set, with
 *     TILE        the name of the function
 *     TILE_FOR    its attributes
 *     TILE_BYTES  the size of a vector register
 * The sums of six rows, two registers wide, fit into 16 registers. The panel is processed in strips of that width. */
TILE_FOR static void TILE(size_t inner, const float *const rows[ROWS], size_t step, const float *panel, float *sums)
{
    typedef float lanes __attribute__((vector_size(TILE_BYTES), aligned(4), may_alias));
    enum { LANES = TILE_BYTES / sizeof(float) };
    const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3], *r4 = rows[4], *r5 = rows[5];
    for (size_t strip = 0; strip < COLUMNS; strip += 2 * LANES) {
        lanes a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, a4 = {0}, a5 = {0};
        lanes b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0}, b4 = {0}, b5 = {0};
        for (size_t k = 0; k < inner; k++) {
            const lanes low = *(const lanes *)(panel + k * COLUMNS + strip);
            const lanes high = *(const lanes *)(panel + k * COLUMNS + strip + LANES);
            const size_t at = k * step;
            a0 += r0[at] * low, b0 += r0[at] * high;
            a1 += r1[at] * low, b1 += r1[at] * high;
            a2 += r2[at] * low, b2 += r2[at] * high;
            a3 += r3[at] * low, b3 += r3[at] * high;
            a4 += r4[at] * low, b4 += r4[at] * high;
            a5 += r5[at] * low, b5 += r5[at] * high;
        }
        const lanes out[ROWS][2] = {{a0, b0}, {a1, b1}, {a2, b2}, {a3, b3}, {a4, b4}, {a5, b5}};
        for (size_t row = 0; row < ROWS; row++)
            memcpy(sums + row * COLUMNS + strip, out[row], sizeof out[row]);
    }
}
#undef TILE
#undef TILE_FOR
#undef TILE_BYTES
