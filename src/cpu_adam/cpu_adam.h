/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam.h: the door of the room that computes every number. It knows pointers and counts; no rank, file, stream or device.
 * Arrays need only their element's alignment. Results do not depend on the instruction set, the number of threads, or the way a
 * list is cut into pieces. */
#ifndef ZOFF_CPU_ADAM_H
#define ZOFF_CPU_ADAM_H

#include <zoff/optimizer.h>

/* Elements of a block of the square sum: block k of a piece is its elements [k*B, (k+1)*B). A caller that cuts a tensor at
 * multiples of B gets the same sums of blocks. */
enum { ZOFF_NORM_BLOCK = 1024 };

/* The formula of a step. Terms whose hyper-parameters are zero are left out. */
typedef enum zoff_adam_rule {
    ZOFF_RULE_ADAM,
    ZOFF_RULE_ADAM_DECOUPLED,
    ZOFF_RULE_ADAM_L2,
    ZOFF_RULE_ADAGRAD,
    ZOFF_RULE_ADAGRAD_L2,
    ZOFF_RULE_LION,
    ZOFF_RULE_LION_DECOUPLED,
    ZOFF_RULE_SGD,
    ZOFF_RULE_SGD_L2,
    ZOFF_RULE_MOMENTUM,
    ZOFF_RULE_MOMENTUM_L2,
    ZOFF_RULE_NESTEROV,
    ZOFF_RULE_NESTEROV_L2,
    /* The two passes over a matrix of Muon: the first has the workspace as its weights, which it writes without reading them;
     * the second has the orthogonalized matrix as its gradient. */
    ZOFF_RULE_MUON_MOMENTUM,
    ZOFF_RULE_MUON_NESTEROV,
    ZOFF_RULE_ADD, /* p + step_size * g */
    ZOFF_RULE_ADD_DECOUPLED,
    ZOFF_RULE_COUNT
} zoff_adam_rule;

/* The states that an optimizer keeps between steps. */
typedef struct zoff_adam_states {
    bool m, v;
} zoff_adam_states;

/* Constants of one step of one group, computed in double and rounded once. */
typedef struct zoff_adam_consts {
    zoff_adam_rule rule;
    float grad_scale;
    float beta1, one_minus_beta1; /* betas of m; SGD: momentum and 1 - dampening, but -0 and 1 in step 1; Muon: momentum */
    float beta2, one_minus_beta2;
    float eps;
    float inv_sqrt_bias2; /* 1 / sqrt(1 - beta2^t) */
    float step_size;      /* factor of the update u; negative */
    float decay;          /* decay term; decoupled: -lr * weight_decay; L2: weight_decay */
    float momentum;       /* SGD */
    uint32_t dither;      /* random number of the step; see dither.h */
} zoff_adam_consts;

/* How a matrix of Muon is orthogonalized. */
typedef struct zoff_muon_consts {
    zoff_muon_coefficients coefficients;
    unsigned steps;
    bool gram; /* over its Gram matrix */
} zoff_muon_consts;

enum { ZOFF_MUON_STEPS_MOST = 99 };

/* Return the caller's struct. If it is an older one, fill and return a copy with its optimizer's defaults behind its end. */
const zoff_optimizer_hyper *zoff_adam_hyper_complete(const zoff_optimizer_hyper *hyper, zoff_optimizer_hyper *copy);
/* ERR_INVALID for a value out of range, or t < 1. */
zoff_status zoff_adam_hyper_check(const zoff_optimizer_hyper *hyper, int64_t t);
/* Copy `given`, a struct of any version, with the numbers of `own` in the place of each ZOFF_KEEP. The copy has all fields of
 * this version, and each 0 in it is meant.
 * @return ERR_INVALID for a 0 that may have been forgotten; `out` is unchanged then */
zoff_status zoff_adam_hyper_keep(const zoff_optimizer_hyper *own, const zoff_optimizer_hyper *given, zoff_optimizer_hyper *out);

/* Whether kernels for an instruction set ("avx2") are in this build and run on this CPU.  @return ERR_UNSUPPORTED with the
 * reason */
zoff_status zoff_adam_dispatch_probe(const char *isa);
/* The constants of a step; with Muon those of tensors that are no matrices. */
void zoff_adam_hyper_consts(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale, zoff_adam_consts *out);
/* The constants of Muon's passes over a matrix, before and after its orthogonalization. */
void zoff_adam_hyper_muon_passes(const zoff_optimizer_hyper *hyper, size_t rows, size_t cols, int64_t t, double grad_scale,
                                 zoff_adam_consts *before, zoff_adam_consts *after);
/* The number by which the states of a block are rounded. `first`: an element of the slice, a multiple of ZOFF_NORM_BLOCK. */
uint64_t zoff_adam_dither_key(const char *name, size_t slice, size_t first);
/* The states that a rule, or a step with these hyper-parameters, reads and writes; with Muon a tensor that is no matrix. */
zoff_adam_states zoff_adam_hyper_rule_states(zoff_adam_rule rule);
zoff_adam_states zoff_adam_hyper_states(const zoff_optimizer_hyper *hyper);

/* Limits on elements: a step on fewer than SMALL is over before a sleeping thread is awake, one on LARGE is worth waking
 * one. */
enum { ZOFF_ADAM_SMALL = 64 * 1024, ZOFF_ADAM_LARGE = 512 * 1024 };

/* Called on thread 0 about every 64 Ki elements of its work, for pumping I/O. */
typedef void (*zoff_adam_between)(void *ctx);

/* How m and v are stored. All but fp32 are rounded as dither.h says. Only the three rules of Adam have moments in 8 bits, and
 * only with fp32 or split masters; they lie in blocks, see q8.h. In every format memory of zeros is moments of zero. */
typedef enum zoff_moments {
    ZOFF_MOMENTS_F32,
    ZOFF_MOMENTS_BF16,
    ZOFF_MOMENTS_M8V16, /* m in 8 bits, v in bf16 */
    ZOFF_MOMENTS_Q8     /* moments of 8 bits */
} zoff_moments;

typedef enum zoff_moment { ZOFF_MOMENT_M, ZOFF_MOMENT_V } zoff_moment;

/* Whether a moment is in 8 bits. */
bool zoff_adam_moments_in_blocks(zoff_moments moments, zoff_moment which);
/* Bytes of `count` elements of a moment. */
size_t zoff_adam_moments_size(zoff_moments moments, zoff_moment which, size_t count);
/* Byte of a moment's memory where the elements from `first` on begin; in 8 bits a multiple of ZOFF_NORM_BLOCK, and the header
 * of its block is there. */
size_t zoff_adam_moments_offset(zoff_moments moments, zoff_moment which, size_t first);
/* Elements [first, first + count) of a moment as fp32 numbers. A store rounds to the nearest. In 8 bits it replaces whole
 * blocks, of which the other elements may change by a rounding. `size`: elements of all of the state's memory. */
void zoff_adam_moments_load(zoff_moments moments, zoff_moment which, const void *state, size_t first, size_t count, float *out);
void zoff_adam_moments_store(zoff_moments moments, zoff_moment which, void *state, size_t size, size_t first, size_t count,
                             const float *in);
/* The first number that this format cannot store; `count`: none. In 8 bits `in` is one block: a number that is not finite would
 * stop all of its weights, for good and without a word. Only an infinite second moment may be an outlier, as after a step. */
size_t zoff_adam_moments_unfit(zoff_moments moments, zoff_moment which, size_t count, const float *in);

typedef struct zoff_adam_piece {
    size_t count;
    void *master; /* the weights */
    void *m, *v;  /* states; NULL: the rule has no such state */
    const void *grad;
    union {
        void *copy_out; /* 16-bit copy of the weights or NULL; with fp32 masters only */
        uint16_t *low;  /* lower halves, if `split` */
    };
    zoff_dtype grad_dtype, copy_dtype;
    const zoff_adam_consts *consts;
    zoff_dtype master_dtype; /* default: fp32 */
    uint8_t moments;         /* zoff_moments */
    bool stream;             /* write copy_out past the caches; zoff_adam_update_run() sets it */
    bool split;   /* the weights are fp32 in two arrays: `master` has bf16, `low` the remaining bits; see v_load_split() */
    uint64_t key; /* key of the first block: zoff_adam_dither_key() */
} zoff_adam_piece;

/* The step on a list of pieces. */
void zoff_adam_update_run(unsigned threads, const zoff_adam_piece *pieces, size_t count, zoff_adam_between between, void *ctx);

/* A piece of an update whose old states stay as they are: they are read at `old`, and the new ones are written to other places.
 * A new place may be the old one: that array is updated in place. */
typedef struct zoff_adam_apart {
    zoff_adam_piece old;  /* as for zoff_adam_update_run(), but of its arrays only copy_out is written */
    void *master, *m, *v; /* the new place of each, in the format of the old one; NULL where the old one is NULL */
    uint16_t *low;        /* the new place of the lower halves, if `split` */
} zoff_adam_apart;

/* Whether results of so many bytes are written past the caches, because none of them would still be there when they are
 * read. */
bool zoff_adam_update_streams(size_t bytes);

/* The step on a list of such pieces, with the same bits. Results of a large list go past the caches, as do those of pieces with
 * `old.stream`. */
void zoff_adam_update_apart_run(unsigned threads, const zoff_adam_apart *pieces, size_t count, zoff_adam_between between,
                                void *ctx);

/* Write the first values of the states, whose memory is zero. A master comes from the 16-bit weights at copy_out if there are
 * any; m and v stay zero. Each page is touched first by the thread that zoff_adam_update_run() gives the same elements. */
void zoff_adam_touch_run(unsigned threads, const zoff_adam_piece *pieces, size_t count);

/* A matrix that is orthogonalized. The caller fills the first fields; the others are zero at the beginning, and say where the
 * next call continues. */
typedef struct zoff_orthogonal {
    size_t rows, cols;
    float *x;      /* before: what a MUON rule has written; after: the orthogonalized matrix */
    void *scratch; /* aligned to 64 bytes */
    zoff_muon_consts consts;
    unsigned iteration, stage;
    size_t part, part_rows, part_cols;
    double sum;
    bool swapped;
} zoff_orthogonal;

/* Bytes of its scratch for calls with up to `threads` threads: 8 n^2 for n rows or columns, whichever are fewer, 16 n^2 with
 * gram, and some 3 MiB for each thread. */
size_t zoff_adam_orthogonal_scratch(size_t rows, size_t cols, bool gram, unsigned threads);
/* Floating-point operations of all products, of which symmetric ones are computed by half. */
double zoff_adam_orthogonal_flop(const zoff_orthogonal *o);
/* Orthogonalize. After each part of thread 0, of some milliseconds, between() is called, and stops(), which may be NULL; the
 * work stops once that says so. The bits do not depend on threads and stops.
 * @return ZOFF_PENDING: the work has stopped; call again, with as many threads as there is scratch for */
zoff_status zoff_adam_orthogonal_run(unsigned threads, zoff_orthogonal *o, zoff_adam_between between, bool (*stops)(void *ctx),
                                     void *ctx);

/* An optimizer of matrices. An element rule writes the directions of a matrix where it has its weights, a transform changes the
 * whole of them, and a second element rule has the result as its gradient. Tensors that are no matrices get AdamW's step with
 * adam_lr. */
typedef struct zoff_matrix_rule {
    const char *name;        /* in checkpoints */
    zoff_adam_states states; /* of a matrix */
    /* The constants of both element rules in a step. */
    void (*passes)(const zoff_optimizer_hyper *hyper, size_t rows, size_t cols, int64_t t, double grad_scale,
                   zoff_adam_consts *before, zoff_adam_consts *after);
    /* Bytes that serve the transform with any hyper-parameters, because those of a later step may differ. */
    size_t (*scratch_bytes)(size_t rows, size_t cols, unsigned threads);
    /* Fill in what the hyper-parameters say; the caller fills the shape. */
    void (*begin)(const zoff_optimizer_hyper *hyper, zoff_orthogonal *o);
    double (*flop)(const zoff_orthogonal *o);
    /* As zoff_adam_orthogonal_run(). */
    zoff_status (*transform)(unsigned threads, zoff_orthogonal *o, zoff_adam_between between, bool (*stops)(void *ctx),
                             void *ctx);
} zoff_matrix_rule;

/* The rule of matrices of an optimizer; NULL: it updates each element by itself. */
const zoff_matrix_rule *zoff_adam_matrix_rules_of(const zoff_optimizer_hyper *hyper);
/* Whether a rule has this name. */
bool zoff_adam_matrix_rules_has(const char *name);

typedef struct zoff_norm_piece {
    size_t count;
    const void *grad;
    zoff_dtype dtype;
    double *block_sums; /* ceil(count / ZOFF_NORM_BLOCK) sums of squares; a sum is finite exactly if all its elements are */
} zoff_norm_piece;

/* Sum of squares of each block of each piece. */
void zoff_adam_norm_run(unsigned threads, const zoff_norm_piece *pieces, size_t count, zoff_adam_between between, void *ctx);

typedef struct zoff_accumulate_piece {
    size_t count;
    float *sum;
    const void *grad;
    zoff_dtype dtype;
    bool first;           /* sum = grad instead of sum += grad */
    size_t sources;       /* gradients that are added to the sum in this order; 0 means 1 */
    size_t stride;        /* bytes from one source to the next */
    const float *weights; /* one factor for each source, applied without rounding; NULL: 1. A factor of 0 counts as zeros, even
                             for inf and NaN */
} zoff_accumulate_piece;

/* Gradient accumulation into fp32, over micro-batches and over ranks. */
void zoff_adam_accumulate_run(unsigned threads, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between,
                              void *ctx);

/* Sums by the rule "exact", whose bits depend on no order, grouping or deal of the terms; body_bins.h has the arithmetic. A sum
 * is two integer digits and the number of the bin of its largest term. Memory of zeros is sums of nothing. Digits of 3, 4 and 8
 * bytes, in little-endian two's complement, hold 15, 4,095 and 2^23 terms. */
typedef struct zoff_bins {
    void *hi, *lo;  /* planes of digits, at any address */
    uint8_t *top;   /* bins: 1 to 12; 15: a term was not finite */
    unsigned width; /* bytes of a digit: 3, 4 or 8 */
} zoff_bins;

/* Terms and sums that are added to sums. Without `out` the result goes to `to`. With `out` its values go there, and the planes
 * of `to` are only read, so one call turns sums into numbers. */
typedef struct zoff_bins_piece {
    size_t count;
    zoff_bins to;           /* hi may be NULL with `out`, as with `first`; width says how many terms the sum has, then too */
    bool first;             /* the old sums are not read */
    const void *terms;      /* gradients: a term is the float nearest to its product with its weight */
    zoff_dtype dtype;       /* element type of the terms */
    size_t sources, stride; /* gradients of an element, and bytes from one source to the next */
    const float *weights;   /* factor of each source; NULL: 1. A source of weight 0 is not read */
    const zoff_bins *parts; /* sums that are added, no wider than `to`, or NULL */
    size_t part_count;      /* number of parts */
    float *out;             /* values rounded once, infinite beyond fp32, 0x7fc00000 if a term was not finite; NULL: none. May
                               be to.hi if width is 4 */
} zoff_bins_piece;

/* Add exactly, over micro-batches and over ranks. */
void zoff_adam_bins_run(unsigned threads, const zoff_bins_piece *pieces, size_t count, zoff_adam_between between, void *ctx);

/* `low` has the lower halves of split fp32 numbers, whose upper halves are bf16; on the host only. A cast from fp32 or fp16 to
 * bf16 sets both halves, and one from bf16 to fp32 joins them. If both types are bf16, the lower halves become zero. If both
 * are fp32, dst is src, and the lower halves are added to it. */
typedef struct zoff_cast_piece {
    size_t count;
    void *dst;
    const void *src;
    zoff_dtype dst_dtype, src_dtype; /* any two types; to 16 bit rounds to nearest, ties away from zero (bf16) or to even
                                        (fp16); NaN is 0x7fc0 (bf16) or 0x7e00 (fp16) */
    uint16_t *low;                   /* lower halves or NULL; see above */
    bool stream;                     /* dst is written past the caches, where there are no lower halves */
} zoff_cast_piece;

/* Convert element types. */
void zoff_adam_cast_run(unsigned threads, const zoff_cast_piece *pieces, size_t count);

/* Bytes of an element; 0 for an unknown type. */
size_t zoff_adam_dtype_bytes(zoff_dtype dtype);
/* "fp32", "bf16", "m8v16", "q8" */
const char *zoff_adam_moments_name(zoff_moments moments);
/* "fp32", "bf16", "fp16" */
const char *zoff_adam_dtype_name(zoff_dtype dtype);

#endif
