/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_bits.c: runs every kernel of one table, also through the thread team, and writes the results to a file bit for bit.
 * Two files are equal if and only if the two programs computed the same bits, for any target; kernels_bits.py compares them.
 *
 *     kernels_bits ISA FILE [EACH [BITS]]  EACH: the step runs every EACH-th combination of types on the large array (1: all);
 *                                          BITS: the required length of SVE vectors
 *     kernels_bits                         print the instruction set that a process on this machine chooses
 *
 * Plain C without Google Test, so that a cross compiler needs only its C library. Inputs are made by integer arithmetic and
 * are the same everywhere. */
#include "bits_data.h"
#include "cpu.h"
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { SMALL = 130, LARGE = 100003, SKIP = 77 };

/* Settings that a caller could have: flush to zero, denormals are zero, round towards zero; on Arm also the alternative half
 * precision and the default NaN. */
#if defined(__x86_64__)
static const unsigned HOSTILE = 0x1f80 | 0x8040 | 0x6000, FLAGS = 0x3f; /* flags: exceptions recorded so far */
#elif defined(__aarch64__)
static const unsigned HOSTILE = 0x07c00000, FLAGS = 0;
#else
static const unsigned HOSTILE = 0, FLAGS = 0;
#endif

static const zoff_dtype TYPES[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
enum { TYPE_COUNT = sizeof TYPES / sizeof TYPES[0] };

/* The type of the weights, and the type of their copy. */
static const struct weights {
    const char *name;
    zoff_dtype master, copy;
    bool stream, split;
} WEIGHTS[] = {{"fp32", ZOFF_F32, ZOFF_DTYPE_DEFAULT, false, false},
               {"fp32, copy bf16", ZOFF_F32, ZOFF_BF16, false, false},
               {"fp32, copy fp16", ZOFF_F32, ZOFF_F16, false, false},
               {"fp32, copy bf16 streamed", ZOFF_F32, ZOFF_BF16, true, false},
               {"fp32, copy fp16 streamed", ZOFF_F32, ZOFF_F16, true, false},
               {"bf16", ZOFF_BF16, ZOFF_DTYPE_DEFAULT, false, false},
               {"fp16", ZOFF_F16, ZOFF_DTYPE_DEFAULT, false, false},
               {"split", ZOFF_BF16, ZOFF_BF16, false, true}};
enum { WEIGHTS_COUNT = sizeof WEIGHTS / sizeof WEIGHTS[0] };

static const char *rule_name(zoff_adam_rule rule)
{
    static const char *const names[ZOFF_RULE_COUNT] = {
        "adam",         "adam decoupled", "adam l2",     "adagrad",  "adagrad l2",  "lion",          "lion decoupled", "sgd",
        "sgd l2",       "momentum",       "momentum l2", "nesterov", "nesterov l2", "muon momentum", "muon nesterov",  "add",
        "add decoupled"};
    return names[rule];
}

/* Constants are written by hand, because pow() may differ between libraries. Sets: the usual ones; no eps, so that zeros
 * divide; large ones that overflow; a beta of minus zero; small ones that make states subnormal. */
static zoff_adam_consts consts_of(zoff_adam_rule rule, size_t n)
{
    zoff_adam_consts k = {.rule = rule,
                          .grad_scale = 0x1.555556p-2f,
                          .beta1 = 0x1.cccccdp-1f,
                          .one_minus_beta1 = 0x1.99999ap-4f,
                          .beta2 = 0x1.ff7cedp-1f,
                          .one_minus_beta2 = 0x1.0624dep-10f,
                          .eps = 0x1.5798eep-27f,
                          .inv_sqrt_bias2 = 0x1.2d7ap+3f,
                          .step_size = -0x1.0624dep-8f,
                          .decay = -0x1.4f8b58p-17f,
                          .momentum = 0x1.99999ap-1f};
    if (n % 5 == 1) {
        k.grad_scale = 1;
        k.eps = 0;
        k.decay = 0x1.47ae14p-7f;
    } else if (n % 5 == 2) {
        k.grad_scale = 0x1p70f;
        k.step_size = -0x1p100f;
    } else if (n % 5 == 3) {
        k.beta1 = -0.0f;
        k.one_minus_beta1 = 1;
    } else if (n % 5 == 4) {
        k.beta1 = k.beta2 = 0x1.8p-122f;
        k.one_minus_beta1 = k.one_minus_beta2 = 0x1.4p-121f;
        k.inv_sqrt_bias2 = 0x1p60f;
    }
    return k;
}

/* The element where a second call of a kernel continues. Even counts are cut, so that one call starts inside the arrays. */
static size_t cut_of(size_t n, size_t multiple)
{
    return n % 2 ? n : n / 3 / multiple * multiple;
}

/* A piece without arrays. */
static zoff_adam_piece piece_of(const zoff_adam_consts *consts, zoff_dtype grads, const struct weights *weights,
                                zoff_moments moments, size_t n)
{
    return (zoff_adam_piece){.count = n,
                             .grad_dtype = grads,
                             .copy_dtype = weights->copy,
                             .consts = consts,
                             .master_dtype = weights->master,
                             .moments = (uint8_t)moments,
                             .stream = weights->stream,
                             .split = weights->split,
                             .key = UINT64_C(0xfffffffffffffff0) + n};
}

static void run_update(bits_data *data, const struct zoff_kernels *table, zoff_adam_rule rule, zoff_dtype grads,
                       const struct weights *weights, zoff_moments moments, size_t n)
{
    const zoff_adam_states states = zoff_adam_hyper_rule_states(rule);
    const bool is_bf16 = moments == ZOFF_MOMENTS_BF16;
    const zoff_dtype of_states = is_bf16 ? ZOFF_BF16 : ZOFF_F32;
    const size_t cut = cut_of(n, is_bf16 ? ZOFF_NORM_BLOCK : 1);
    const zoff_adam_consts consts = consts_of(rule, n);
    zoff_adam_piece piece = piece_of(&consts, grads, weights, moments, n);
    piece.master = bits_fill(data, 0, weights->master, n);
    piece.m = states.m ? bits_fill(data, 1, of_states, n) : NULL;
    piece.v = !states.v ? NULL : is_bf16 ? bits_fill(data, 2, of_states, n) : bits_fill_squares(data, 2, n);
    piece.grad = bits_fill(data, 3, grads, n);
    piece.copy_out = !weights->copy   ? NULL
                     : weights->split ? bits_fill(data, 4, ZOFF_BF16, n) /* any bits are lower halves */
                                      : bits_place(data, 4, n * sizeof(uint16_t));
    table->update(&piece, 0, cut);
    table->update(&piece, cut, n - cut);

    char label[128];
    snprintf(label, sizeof label, "update, %s, weights %s, gradients %s, moments %s, n %zu", rule_name(rule), weights->name,
             zoff_adam_dtype_name(grads), zoff_adam_dtype_name(of_states), n);
    bits_write(data, label, "weights", weights->master, piece.master, n);
    if (piece.m)
        bits_write(data, label, "m", of_states, piece.m, n);
    if (piece.v)
        bits_write(data, label, "v", of_states, piece.v, n);
    if (piece.copy_out)
        bits_write(data, label, "copy", weights->copy, piece.copy_out, n);
    bits_check(data, label);
}

/* Any bytes are codes. Bounds are ordinary numbers; that of every third block is zero. */
static void *fill_codes(bits_data *data, unsigned slot, size_t n)
{
    const size_t size = zoff_adam_moments_size(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, n);
    unsigned char *codes = bits_place(data, slot, size);
    for (size_t i = 0; i < size; i++)
        codes[i] = (unsigned char)((i + n) * 40503 >> 7);
    for (size_t i = 0; i < n; i += ZOFF_NORM_BLOCK) {
        unsigned char *block = codes + zoff_adam_moments_offset(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, i);
        const uint32_t bits = 0x37654321u + (uint32_t)(i / ZOFF_NORM_BLOCK + n % 50) * 0x234567u;
        memset(block, 0, 64);
        if ((i / ZOFF_NORM_BLOCK + n) % 3)
            memcpy(block, &bits, sizeof bits);
    }
    return codes;
}

/* A step with moments in 8 bits. All numbers are finite, which such a step needs. */
static void run_update_q8(bits_data *data, const struct zoff_kernels *table, zoff_adam_rule rule, zoff_dtype grads,
                          const struct weights *weights, zoff_moments moments, size_t n)
{
    const bool has_v = moments == ZOFF_MOMENTS_Q8;
    const size_t cut = cut_of(n, ZOFF_NORM_BLOCK);
    const zoff_adam_consts consts = consts_of(rule, n);
    zoff_adam_piece piece = piece_of(&consts, grads, weights, moments, n);
    piece.master = bits_fill_finite(data, 0, weights->master, n);
    piece.m = fill_codes(data, 1, n);
    piece.v = has_v ? fill_codes(data, 2, n) : bits_fill_finite(data, 2, ZOFF_BF16, n);
    for (size_t i = 0; i < n && !has_v; i++)
        ((uint16_t *)piece.v)[i] &= 0x7fff;
    piece.grad = bits_fill_finite(data, 3, grads, n);
    piece.copy_out = !weights->copy   ? NULL
                     : weights->split ? bits_fill(data, 4, ZOFF_BF16, n)
                                      : bits_place(data, 4, n * sizeof(uint16_t));
    for (size_t i = 0; weights->split && i < n; i++)
        piece.low[i] &= 0x7fff; /* a negative lower half below an upper half of zero would be NaN */
    table->update(&piece, 0, cut);
    table->update(&piece, cut, n - cut);

    char label[128];
    snprintf(label, sizeof label, "update, %s, weights %s, gradients %s, moments %s, n %zu", rule_name(rule), weights->name,
             zoff_adam_dtype_name(grads), has_v ? "q8" : "m8v16", n);
    bits_write(data, label, "weights", weights->master, piece.master, n);
    bits_write_bytes(data, label, "m", piece.m, zoff_adam_moments_size(moments, ZOFF_MOMENT_M, n));
    bits_write_bytes(data, label, "v", piece.v, zoff_adam_moments_size(moments, ZOFF_MOMENT_V, n));
    if (piece.copy_out)
        bits_write(data, label, "copy", weights->copy, piece.copy_out, n);
    bits_check(data, label);
}

/* One gradient, or three gradients with weights, one element apart. */
static void run_accumulate(bits_data *data, const struct zoff_kernels *table, zoff_dtype grads, bool first, bool several,
                           size_t n)
{
    static const float WEIGHTS_OF[] = {3.0f, 1.0f, 0.7f};
    zoff_accumulate_piece piece = {.count = n, .dtype = grads, .first = first};
    if (several) {
        piece.sources = 3;
        piece.stride = zoff_adam_dtype_bytes(grads);
        piece.weights = WEIGHTS_OF;
    }
    piece.sum = bits_fill(data, 0, ZOFF_F32, n);
    piece.grad = bits_fill(data, 3, grads, n + 2);
    table->accumulate(&piece, 0, cut_of(n, 1));
    table->accumulate(&piece, cut_of(n, 1), n - cut_of(n, 1));
    char label[128];
    snprintf(label, sizeof label, "accumulate, %s%s, gradients %s, n %zu", first ? "first" : "next", several ? ", several" : "",
             zoff_adam_dtype_name(grads), n);
    bits_write(data, label, "sum", ZOFF_F32, piece.sum, n);
    bits_check(data, label);
}

/* Exact sums of three gradients one element apart, then the values of these sums, added twice to the same gradients. */
static void run_bins(bits_data *data, const struct zoff_kernels *table, zoff_dtype grads, unsigned width, bool weighted,
                     size_t n)
{
    static const float WEIGHTS_OF[] = {3.0f, 0.0f, 0.7f};
    zoff_bins_piece piece = {.count = n, .first = true, .dtype = grads, .sources = 3};
    piece.to = (zoff_bins){bits_place(data, 0, n * width), bits_place(data, 1, n * width), bits_place(data, 2, n), width};
    piece.stride = zoff_adam_dtype_bytes(grads);
    piece.weights = weighted ? WEIGHTS_OF : NULL;
    piece.terms = bits_fill(data, 3, grads, n + 2);
    table->bins(&piece, 0, cut_of(n, 1));
    table->bins(&piece, cut_of(n, 1), n - cut_of(n, 1));
    char label[128];
    snprintf(label, sizeof label, "bins of %u bytes%s, gradients %s, n %zu", width, weighted ? ", weights" : "",
             zoff_adam_dtype_name(grads), n);
    bits_write_bytes(data, label, "hi", piece.to.hi, n * width);
    bits_write_bytes(data, label, "lo", piece.to.lo, n * width);
    bits_write_bytes(data, label, "top", piece.to.top, n);
    piece.first = false;
    piece.parts = &piece.to;
    piece.part_count = 1;
    piece.out = bits_place(data, 4, n * sizeof *piece.out);
    table->bins(&piece, 0, n);
    bits_write(data, label, "values", ZOFF_F32, piece.out, n);
    bits_check(data, label);
}

/* `split`: the 16-bit numbers have lower halves. `stream`: past the caches */
static void run_cast(bits_data *data, const struct zoff_kernels *table, zoff_dtype from, zoff_dtype to, bool split, bool stream,
                     size_t n)
{
    zoff_cast_piece piece = {.count = n, .dst_dtype = to, .src_dtype = from, .stream = stream};
    piece.dst = bits_place(data, 0, n * zoff_adam_dtype_bytes(to));
    piece.src = from == ZOFF_F32 ? bits_fill(data, 3, from, n) : bits_fill_all(data, 3, n);
    if (split)
        piece.low = to == ZOFF_F32 ? bits_fill(data, 4, ZOFF_BF16, n) : bits_place(data, 4, n * sizeof *piece.low);
    table->cast(&piece, 0, cut_of(n, 1));
    table->cast(&piece, cut_of(n, 1), n - cut_of(n, 1));
    char label[128];
    snprintf(label, sizeof label, "cast, %s to %s%s%s, n %zu", zoff_adam_dtype_name(from), zoff_adam_dtype_name(to),
             split ? ", split" : "", stream ? ", streamed" : "", n);
    bits_write(data, label, "dst", to, piece.dst, n);
    if (split)
        bits_write(data, label, "low", ZOFF_BF16, piece.low, n);
    bits_check(data, label);
}

static void run_square_sum(bits_data *data, const struct zoff_kernels *table, zoff_dtype grads, bool finite, size_t n)
{
    const size_t blocks = (n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
    zoff_norm_piece piece = {.count = n, .dtype = grads};
    piece.block_sums = bits_place(data, 0, blocks * sizeof(double));
    piece.grad = finite ? bits_fill_finite(data, 3, grads, n) : bits_fill(data, 3, grads, n);
    table->square_sum(&piece, 0, cut_of(n, ZOFF_NORM_BLOCK));
    table->square_sum(&piece, cut_of(n, ZOFF_NORM_BLOCK), n - cut_of(n, ZOFF_NORM_BLOCK));
    char label[128];
    snprintf(label, sizeof label, "square_sum, %s, gradients %s, n %zu", finite ? "finite" : "any", zoff_adam_dtype_name(grads),
             n);
    bits_write_doubles(data, label, "sums", piece.block_sums, blocks);
    bits_check(data, label);
}

static void run_size(bits_data *data, const struct zoff_kernels *table, size_t n, size_t each)
{
    for (int rule = 0; rule < ZOFF_RULE_COUNT; rule++) {
        for (size_t g = 0; g < TYPE_COUNT; g++) {
            for (size_t w = 0; w < WEIGHTS_COUNT; w++) {
                if (((size_t)rule + g + w) % each)
                    continue;
                run_update(data, table, (zoff_adam_rule)rule, TYPES[g], &WEIGHTS[w], ZOFF_MOMENTS_F32, n);
                if ((g + w) % TYPE_COUNT == 0)
                    run_update(data, table, (zoff_adam_rule)rule, TYPES[g], &WEIGHTS[w], ZOFF_MOMENTS_BF16, n);
                if (rule <= ZOFF_RULE_ADAM_L2 && (WEIGHTS[w].master == ZOFF_F32 || WEIGHTS[w].split))
                    run_update_q8(data, table, (zoff_adam_rule)rule, TYPES[g], &WEIGHTS[w],
                                  (g + w + n) % 2 ? ZOFF_MOMENTS_Q8 : ZOFF_MOMENTS_M8V16, n);
            }
        }
    }
    for (size_t g = 0; g < TYPE_COUNT; g++) {
        for (int order = 0; order < 4; order++)
            run_accumulate(data, table, TYPES[g], order & 1, order & 2, n);
        for (int weighted = 0; weighted < 2 && n <= SMALL; weighted++)
            run_bins(data, table, TYPES[g], (g + n) % 3 == 2 ? 8 : 3 + (unsigned)((g + n) % 3), weighted, n);
        run_square_sum(data, table, TYPES[g], true, n);
        run_square_sum(data, table, TYPES[g], false, n);
        for (size_t to = 0; to < TYPE_COUNT; to++)
            for (int stream = 0; stream < 2; stream++)
                run_cast(data, table, TYPES[g], TYPES[to], false, stream, n);
    }
    run_cast(data, table, ZOFF_F32, ZOFF_BF16, true, false, n);
    run_cast(data, table, ZOFF_BF16, ZOFF_F32, true, false, n);
}

/* Run the same step and sum with teams of several sizes. The calling thread has hostile floating-point settings. */
static void run_team(bits_data *data)
{
    static const size_t counts[] = {LARGE, 1, 40000};
    enum { PIECES = sizeof counts / sizeof counts[0], TOTAL = LARGE + 1 + 40000, BLOCKS = 98 + 1 + 40 };
    static float p[TOTAL], m[TOTAL], v[TOTAL], values[TOTAL];
    static uint16_t copy[TOTAL];
    static double sums[BLOCKS];
    static const unsigned threads[] = {1, 2, 7};
    const zoff_adam_consts consts = consts_of(ZOFF_RULE_ADAM_DECOUPLED, 0);
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        bits_copy(p, data, ZOFF_F32, 11, TOTAL);
        bits_copy(m, data, ZOFF_F32, 22, TOTAL);
        memset(v, 0, sizeof v);
        zoff_adam_piece pieces[PIECES];
        zoff_norm_piece norms[PIECES];
        zoff_bins_piece bins[PIECES];
        size_t at = 0, block = 0;
        uint16_t *grads = bits_place(data, 3, (TOTAL + 1) * sizeof *grads);
        bits_copy(grads, data, ZOFF_BF16, 33, TOTAL + 1);
        for (size_t i = 0; i < PIECES; i++) {
            pieces[i] = (zoff_adam_piece){.count = counts[i],
                                          .master = p + at,
                                          .m = m + at,
                                          .v = v + at,
                                          .grad = grads + at,
                                          .copy_out = copy + at,
                                          .grad_dtype = ZOFF_BF16,
                                          .copy_dtype = ZOFF_BF16,
                                          .master_dtype = ZOFF_F32,
                                          .consts = &consts};
            norms[i] =
                (zoff_norm_piece){.count = counts[i], .grad = grads + at, .dtype = ZOFF_BF16, .block_sums = sums + block};
            bins[i] = (zoff_bins_piece){.count = counts[i],
                                        .terms = grads + at,
                                        .dtype = ZOFF_BF16,
                                        .sources = 2,
                                        .stride = sizeof *grads,
                                        .out = values + at};
            at += counts[i];
            block += (counts[i] + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
        }
        zoff_base_cpu_float_leave(HOSTILE);
        zoff_adam_update_run(threads[t], pieces, PIECES, NULL, NULL);
        zoff_adam_norm_run(threads[t], norms, PIECES, NULL, NULL);
        zoff_adam_bins_run(threads[t], bins, PIECES, NULL, NULL);
        if ((zoff_base_cpu_float_enter() & ~FLAGS) != HOSTILE)
            bits_fail("a team of %u left the caller's floating point set otherwise than it was", threads[t]);
        /* One label for every team: their records must be equal. */
        const long before = bits_tell(data);
        bits_write(data, "team", "weights", ZOFF_F32, p, TOTAL);
        bits_write(data, "team", "m", ZOFF_F32, m, TOTAL);
        bits_write(data, "team", "v", ZOFF_F32, v, TOTAL);
        bits_write(data, "team", "values", ZOFF_F32, values, TOTAL);
        bits_write(data, "team", "copy", ZOFF_BF16, copy, TOTAL);
        bits_write_doubles(data, "team", "sums", sums, BLOCKS);
        bits_check(data, "team");
        if (t && !bits_repeats(data, before))
            bits_fail("a team of %u computes other bits than a team of 1", threads[t]);
    }
}

/* Products of finite and of any numbers. A kind has any two factors, or a symmetric output. */
static void run_product(bits_data *data, const struct zoff_kernels *table, size_t n, unsigned kind)
{
    enum { MOST = 300, PART_ROWS = 2 * ZOFF_PRODUCT_ROWS };
    static _Alignas(64) float scratch[(PART_ROWS + PRODUCT_BLOCK) * ZOFF_PRODUCT_COLS * 3 + PRODUCT_BLOCK * PRODUCT_GROUP];
    const size_t rows = n, cols = kind & 1 ? n : n * 7 % MOST + 1, depth = n * 13 % MOST + 1;
    zoff_product p = {
        .rows = rows, .cols = cols, .depth = depth, .out_stride = cols, .a_turned = kind & 2, .b_turned = kind & 4};
    p.a_stride = p.a_turned ? rows : depth;
    p.b_stride = p.b_turned ? depth : cols;
    p.lower = kind & 1;
    p.a = bits_fill(data, 0, ZOFF_F32, rows * depth);
    p.b = bits_fill_finite(data, 1, ZOFF_F32, depth * cols);
    p.add = kind == 3 ? NULL : bits_fill_finite(data, 2, ZOFF_F32, rows * cols);
    p.out = bits_place(data, 3, rows * cols * sizeof *p.out);
    p.add_by = -0x1.3333p+2f;
    p.product_by = kind & 2 ? 1 : 0x1.81062p+1f;
    p.part_rows = PART_ROWS;
    p.part_cols = ZOFF_PRODUCT_COLS;
    p.scratch = scratch;
    table->product(&p, 0, (rows + p.part_rows - 1) / p.part_rows * ((cols + p.part_cols - 1) / p.part_cols));
    char label[128];
    snprintf(label, sizeof label, "product, kind %u, n %zu", kind, n);
    bits_write(data, label, "out", ZOFF_F32, p.out, rows * cols);
    bits_check(data, label);
}

/* The same orthogonalization with teams of several sizes. */
static void run_orthogonal(bits_data *data, size_t rows, size_t cols, bool gram)
{
    static const unsigned threads[] = {1, 2, 7};
    enum { MOST = 8 };
    float *x = malloc(rows * cols * sizeof *x);
    void *scratch = aligned_alloc(64, (zoff_adam_orthogonal_scratch(rows, cols, gram, MOST) + 63) / 64 * 64);
    if (!x || !scratch)
        bits_fail("no memory");
    const float *numbers = bits_fill_finite(data, 0, ZOFF_F32, rows * cols);
    char label[128];
    snprintf(label, sizeof label, "orthogonal, %zu x %zu, gram %d", rows, cols, gram);
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        zoff_orthogonal o = {.rows = rows,
                             .cols = cols,
                             .x = x,
                             .scratch = scratch,
                             .consts = {.coefficients = ZOFF_MUON_QUINTIC, .steps = 5, .gram = gram}};
        const long before = bits_tell(data);
        memcpy(x, numbers, rows * cols * sizeof *x);
        if (zoff_adam_orthogonal_run(threads[t], &o, NULL, NULL, NULL) != ZOFF_OK)
            bits_fail("%s: not done", label);
        bits_write(data, label, "x", ZOFF_F32, x, rows * cols);
        if (t && !bits_repeats(data, before))
            bits_fail("%s: a team of %u computes other bits than a team of 1", label, threads[t]);
    }
    bits_check(data, label);
    free(x);
    free(scratch);
}

/* The vectors must have the requested length, otherwise the run does not test it. */
static void check_vector_length(unsigned long wanted)
{
#ifdef PR_SVE_GET_VL
    const int bytes = prctl(PR_SVE_GET_VL);
    if (bytes < 0)
        bits_fail("the kernel does not tell the length of SVE vectors");
    const unsigned long bits = 8 * ((unsigned long)bytes & PR_SVE_VL_LEN_MASK);
    printf("SVE vectors of %lu bits\n", bits);
    if (wanted && bits != wanted)
        bits_fail("SVE vectors have %lu bits, not %lu", bits, wanted);
#else
    bits_fail("vectors of %lu bits cannot be told from others on this system", wanted);
#endif
}

int main(int argc, char **argv)
{
    setenv("ZOFF_LOG_LEVEL", "error", 1); /* suppresses the warning that a slower table was forced */
    if (argc == 1) {
        unsetenv("ZOFF_ISA");
        printf("%s\n", zoff_isa());
        return 0;
    }
    const unsigned long each = argc < 4 ? 1 : strtoul(argv[3], NULL, 10);
    if (argc > 5 || argc < 3 || !each) {
        fprintf(stderr, "usage: kernels_bits [ISA FILE [EACH [BITS]]]\n");
        return 2;
    }
    setenv("ZOFF_ISA", argv[1], 1);
    const struct zoff_kernels *table = zoff_adam_dispatch_table(argv[1]);
    if (!table) {
        printf("SKIPPED: this build or this CPU has no %s kernels\n", argv[1]);
        return SKIP;
    }
    if (strcmp(argv[1], "sve") == 0)
        check_vector_length(argc == 5 ? strtoul(argv[4], NULL, 10) : 0);
    if (table != zoff_adam_dispatch_kernels())
        bits_fail("ZOFF_ISA=%s chose %s", argv[1], zoff_isa());

    bits_data *data = bits_open(argv[2], LARGE + 40001);
    const unsigned saved = zoff_base_cpu_float_enter();
    for (size_t n = 0; n <= SMALL; n++)
        run_size(data, table, n, 1);
    run_size(data, table, LARGE, each);
    run_team(data);
    for (size_t n = 1; n <= 70; n++)
        run_product(data, table, n, (unsigned)n % 8);
    for (unsigned kind = 0; kind < 8; kind++)
        run_product(data, table, 257 + kind, kind);
    for (size_t n = 5; n < 100; n += 31) {
        run_orthogonal(data, n, n, false);
        run_orthogonal(data, 2 * n + 1, n, true);
        run_orthogonal(data, n, 300, n % 2);
    }
    zoff_base_cpu_float_leave(saved);
    printf("%s kernels: %ld bytes of results\n", zoff_isa(), bits_tell(data));
    bits_close(data);
    return 0;
}
