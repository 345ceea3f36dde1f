/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h: the kernels of this room and the table that holds one instruction set's version of each. Private to the room.
 *
 * A kernel works on elements [begin, begin + count) of a piece, on the calling thread, with floating point set by the team.
 * Every table gives the same bits. A new kernel is one line here, one body, and one oracle in tests/kernels/. */
#ifndef ZOFF_CPU_ADAM_KERNELS_H
#define ZOFF_CPU_ADAM_KERNELS_H

#include "cpu_adam.h"

/* A product of matrices in fp32; body_product.h has the order of each sum. The output is
 *     product(A, B)                               without `add`
 *     fma(add_by, add, product(A, B))             where product_by is 1
 *     fma(product_by, product(A, B), add_by * add)
 * It is computed in parts of part_rows rows and part_cols columns, numbered down the columns. Parts may be computed in any
 * order, and on any threads. `add` may be the output. A may be the output where a part has whole rows, and B where it has whole
 * columns. */
typedef struct zoff_product {
    size_t rows, cols, depth;              /* A has rows x depth elements, B depth x cols */
    size_t a_stride, b_stride, out_stride; /* elements from one row of the memory to the next; out_stride also of `add` */
    const float *a, *b, *add;
    bool a_turned, b_turned; /* the memory has the transpose */
    bool lower;              /* the output is symmetric: its lower triangle is computed and mirrored */
    float add_by, product_by;
    float *out;
    size_t part_rows, part_cols; /* multiples of ZOFF_PRODUCT_ROWS and ZOFF_PRODUCT_COLS, or all */
    float *scratch;              /* zoff_adam_product_scratch() elements, aligned to 64 bytes; another one on each thread */
} zoff_product;

enum {
    PRODUCT_BLOCK = 256,    /* k of a block */
    PRODUCT_LINE = 16,      /* elements of a cache line */
    PRODUCT_GROUP = 144,    /* rows of A that are copied at a time, so that they stay in the second cache */
    ZOFF_PRODUCT_ROWS = 12, /* whole tiles of each table */
    ZOFF_PRODUCT_COLS = 128,
};

/* Elements of the scratch of a part. */
static inline size_t zoff_adam_product_scratch(size_t part_rows, size_t part_cols)
{
    const size_t rows = (part_rows + ZOFF_PRODUCT_ROWS - 1) / ZOFF_PRODUCT_ROWS * ZOFF_PRODUCT_ROWS;
    const size_t cols = (part_cols + ZOFF_PRODUCT_COLS - 1) / ZOFF_PRODUCT_COLS * ZOFF_PRODUCT_COLS;
    return rows * cols + (PRODUCT_BLOCK + PRODUCT_LINE / 2) * cols + (PRODUCT_BLOCK + PRODUCT_LINE / 6) * PRODUCT_GROUP +
           PRODUCT_GROUP;
}

/* clang-format off */
#define ZOFF_KERNEL_LIST(K) /* name   piece                      what it does */                                           \
    K(update,     zoff_adam_piece)       /* a step by any rule on weights and gradients of any type */                     \
    K(update_apart, zoff_adam_apart)     /* a step to another place; `begin` is a multiple of ZOFF_NORM_BLOCK */            \
    K(accumulate, zoff_accumulate_piece) /* sum = grad, or sum += grad */                                                  \
    K(bins,       zoff_bins_piece)       /* exact sums */                                                                  \
    K(cast,       zoff_cast_piece)       /* any element type to any other */                                               \
    K(square_sum, zoff_norm_piece)       /* block sums; `begin` is a multiple of ZOFF_NORM_BLOCK */                        \
    K(product,    zoff_product)          /* parts [begin, begin + count) of a product */
/* clang-format on */

struct zoff_kernels {
    const char *name; /* name of the instruction set */
#define K(kernel, piece_type) void (*kernel)(const piece_type *piece, size_t begin, size_t count);
    ZOFF_KERNEL_LIST(K)
#undef K
};

/* The tables that this build has: avx2 and avx512 on x86-64 only, neon and sve on aarch64 only. */
extern const struct zoff_kernels zoff_adam_kernels_scalar, zoff_adam_kernels_avx2, zoff_adam_kernels_avx512,
    zoff_adam_kernels_neon, zoff_adam_kernels_sve;
/* Parts of avx2 and avx512: the step with split masters, moments in 16 or 8 bits, and bf16 gradients. */
void zoff_adam_kernels_avx2_pairs(const zoff_adam_piece *piece, size_t begin, size_t count);
void zoff_adam_kernels_avx512_pairs(const zoff_adam_piece *piece, size_t begin, size_t count);

/* The table of this process, chosen at the first call and then fixed. */
const struct zoff_kernels *zoff_adam_dispatch_kernels(void);
/* Threads of the default team, counted at the first call of either function and then fixed. */
unsigned zoff_adam_dispatch_threads(void);
/* Whether a team of `threads` is faster for this number of elements. If that is not obvious, it is measured now and then. */
bool zoff_adam_dispatch_shares(unsigned threads, size_t elements);
/* The table called `isa`; NULL if this build or this CPU lacks it. */
const struct zoff_kernels *zoff_adam_dispatch_table(const char *isa);

/* The random bits of all lanes of a block, those of m and then those of v, with space for a register behind them; see dither.h.
 */
const uint16_t *zoff_adam_dither_lanes(void);

/* Lanes of a square sum: lane l takes elements l, l + 16, ... of a block in order. Then lanes l and l + 8 are added, l and l +
 * 4, l and l + 2, l and l + 1. This tree defines the sum, for registers of any width. */
enum { ZOFF_ADAM_SUM_LANES = 16 };

/* Bodies are inlined into callers that pass constants, so that a loop has no branch on types or modes. A compiler for another
 * kind of processor defines its own keywords. */
#ifndef ZOFF_KERNEL_INLINE
#define ZOFF_KERNEL_INLINE static inline __attribute__((always_inline))
#endif

/* The name of a loop that a macro makes. All tables in one file, as scripts/amalgamate writes it, need names of their own. */
#ifndef ZOFF_KERNEL_LOOP
#define ZOFF_KERNEL_LOOP(name) name
#endif

/* Parts of a register are rare, because only the ends of a span have them. Code for them in each loop would be the larger part
 * of a table. */
#ifndef ZOFF_KERNEL_RARE
#define ZOFF_KERNEL_RARE static __attribute__((noinline, unused))
#endif

#endif
