/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.cu: the kernels of cpu_adam on a GPU. They compile the formulas of src/cpu_adam/body with a vector of one lane: each
 * thread is a lane. The bits equal the CPU's if nothing is fused or flushed beyond the text, and if division and square root
 * round correctly. The flags of this file (cuda/CMakeLists.txt) ensure that, and a test reads it from the PTX.
 *
 * A launch takes a batch of pieces, because a model has many small ones. Row y of the grid is a piece; its columns share the
 * elements. All kernels are limited by memory. So types and rules are branches, the same for a whole launch, and not template
 * parameters. */
#define ZOFF_KERNEL_INLINE static __device__ __forceinline__
#define ZOFF_KERNEL_RARE ZOFF_KERNEL_INLINE
#include "cuda_kernels.h"

#include "simd/simd_scalar.h"

#include "dither.h"
#include "q8.h"

#include "body/body_types.h"

#include "body/body_rules.h"

#include "body/body_lanes.h"

#include "body/body_bins.h"

#ifndef ZOFF_LAUNCH /* a test that compiles this file for the CPU defines its own */
/* Do not launch by <<<>>>: the error of an earlier launch, made by anybody, would be taken for this one's. */
#define ZOFF_LAUNCH(kernel, grid, block, stream, argument)                                                                     \
    cudaLaunchKernel((const void *)(kernel), (grid), (block), &(argument), 0, (stream))
#endif

enum { PIECES = 16, FACTORS = 32, WARP = 32 };
static const unsigned THREADS = 256, COLUMNS_MOST = 2048, PER_THREAD = 4;

/* The argument of a launch, passed by value: at most 4 KiB. */
template <class piece, unsigned most = PIECES> struct batch {
    piece pieces[most];
};

struct update_piece {
    zoff_adam_piece piece;
    zoff_adam_consts consts;
};

struct accumulate_piece {
    zoff_accumulate_piece piece;
    float factors[FACTORS];
};

struct bins_piece {
    zoff_bins_piece piece;
    zoff_bins parts[ZOFF_ACCEL_BINS_PARTS];
    float factors[ZOFF_ACCEL_BINS_FACTORS];
};
typedef batch<bins_piece, 4> bins_batch;

static_assert(sizeof(bins_batch) <= 4096, "a kernel's parameters");
static_assert(sizeof(batch<update_piece>) <= 4096 && sizeof(batch<accumulate_piece>) <= 4096, "a kernel's parameters");

/* The elements of a piece for this thread: first, first + step, ... */
struct share {
    size_t first, step;
};

static __device__ __forceinline__ share own_share()
{
    const share s = {(size_t)blockIdx.x * blockDim.x + threadIdx.x, (size_t)gridDim.x * blockDim.x};
    return s;
}

static __device__ __forceinline__ update_streams streams_of(const zoff_adam_piece &p)
{
    const update_streams s = {(char *)p.master, (const char *)p.grad, (char *)p.copy_out, p.low};
    return s;
}

static __device__ __forceinline__ update_types types_of(const zoff_adam_piece &p)
{
    const update_types types = {p.grad_dtype, p.master_dtype == ZOFF_DTYPE_DEFAULT ? ZOFF_F32 : p.master_dtype,
                                p.copy_out && !p.split ? p.copy_dtype : ZOFF_DTYPE_DEFAULT, (zoff_moments)p.moments, p.split};
    return types;
}

extern "C" __global__ void __launch_bounds__(THREADS) zoff_update(const batch<update_piece> b)
{
    const zoff_adam_piece &p = b.pieces[blockIdx.y].piece;
    const zoff_adam_consts &k = b.pieces[blockIdx.y].consts;
    const update_streams s = streams_of(p);
    const update_types types = types_of(p);
    const share mine = own_share();
    uint16_t m_lane = 0, v_lane = 0;
    rule_states states = {p.m, p.v, state_form_m(types.moments), state_form_v(types.moments), &m_lane, &v_lane, 0, 0};
    for (size_t i = mine.first; i < p.count; i += mine.step) {
        if (types.moments != ZOFF_MOMENTS_F32) {
            const zoff_dither d = dither_block(p.key + i / ZOFF_NORM_BLOCK, k.dither);
            m_lane = dither_lane_m(i % ZOFF_NORM_BLOCK);
            v_lane = dither_lane_v(i % ZOFF_NORM_BLOCK);
            states.m_key = d.m;
            states.v_key = d.v;
        }
        update_lanes(&k, &s, &states, i, 1, false, rule_of_loop(k.rule), types);
    }
}

/* Two words that lanes of a warp exchange, as the bits of a number, because shuffles of 64 bits take numbers. */
struct two_words {
    uint32_t a, b;
};

static __device__ __forceinline__ double packed(two_words words)
{
    double bits;
    memcpy(&bits, &words, sizeof bits);
    return bits;
}

static __device__ __forceinline__ two_words unpacked(double bits)
{
    two_words words;
    memcpy(&words, &bits, sizeof words);
    return words;
}

static __device__ __forceinline__ two_words given_by(unsigned lane, two_words mine)
{
    return unpacked(__shfl_sync(0xffffffffu, packed(mine), (int)lane, WARP));
}

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The largest words of all lanes, or their sums. Every lane has the result. */
static __device__ __forceinline__ two_words combined(two_words mine, bool sums)
{
    for (unsigned half = WARP / 2; half; half /= 2) {
        const two_words other = unpacked(__shfl_down_sync(0xffffffffu, packed(mine), half, WARP));
        mine.a = sums ? mine.a + other.a : larger(mine.a, other.a);
        mine.b = sums ? mine.b + other.b : larger(mine.b, other.b);
    }
    return given_by(0, mine);
}

/* A block with moments in 8 bits, as one lane sees it. Element `lane + n * WARP` of the block is bit n of a mask. */
struct q8_view {
    const zoff_adam_consts *k;
    const update_streams *s;
    update_types types;
    const rule_states *states; /* states of the piece, element for element */
    size_t first, end;         /* elements of the block, counted in the piece; none if the warp has no block */
    unsigned lane;
    bool has_v;
    q8_header m, v; /* old headers */
};

static __device__ __forceinline__ float gradient_of(const q8_view &b, size_t i)
{
    const float g = load_any(b.s->g, i, 1, b.types.grads) * b.k->grad_scale;
    return rule_decays_grads(b.k->rule) ? fmaf(b.k->decay, load_weights(b.s, i, 1, b.types), g) : g;
}

/* The old moment of an element. */
static __device__ __forceinline__ float old_of(const q8_view &b, const q8_header &h, const void *codes, bool has_sign, size_t i)
{
    for (unsigned e = 0; e < Q8_OUTLIERS && h.places[e]; e++) {
        if (h.places[e] == i - b.first + 1)
            return h.values[e];
    }
    const uint8_t code = ((const uint8_t *)codes)[i];
    if (!(h.bound <= FLT_MAX))
        return h.bound;
    const float x = q8_value(has_sign ? code & 0x7fu : code) * q8_power(has_sign ? q8_scale_m(h.bound) : q8_scale_v(h.bound));
    return has_sign && code & 0x80u ? -x : x;
}

static __device__ __forceinline__ float old_m(const q8_view &b, size_t i)
{
    return old_of(b, b.m, b.states->m, true, i);
}

static __device__ __forceinline__ float old_v(const q8_view &b, size_t i)
{
    return b.has_v ? old_of(b, b.v, b.states->v, false, i) : load_any(b.states->v, i, 1, ZOFF_BF16);
}

/* The bound of one element, for one of its moments. */
static __device__ __forceinline__ float bound_of(const q8_view &b, bool is_v, size_t i)
{
    return is_v ? q8_bound_v(b.k, old_v(b, i), gradient_of(b, i)) : q8_bound_m(b.k, old_m(b, i), gradient_of(b, i));
}

/* Whether both moments have more elements that are as large as an outlier than a block has outliers. `now`: bounds of the
 * block, which are not below the largest element's. It stops when enough elements were seen. */
static __device__ __forceinline__ bool has_no_outlier(const q8_view &b, q8_bounds now)
{
    const float far_m = q8_far(now.m, Q8_FAR_M), far_v = q8_far(now.v, Q8_FAR_V);
    two_words mine = {0, 0}, all = {0, 0};
    for (size_t from = b.first; from < b.end && (all.a <= Q8_OUTLIERS || all.b <= Q8_OUTLIERS); from += WARP) {
        const size_t i = from + b.lane;
        const float m = i < b.end ? bound_of(b, false, i) : 0, v = b.has_v && i < b.end ? bound_of(b, true, i) : 0;
        mine.a += m >= far_m && m > 0;
        mine.b += b.has_v ? v >= far_v && v > 0 : Q8_OUTLIERS + 1;
        all = combined(mine, true);
    }
    return b.first >= b.end || (all.a > Q8_OUTLIERS && all.b > Q8_OUTLIERS);
}

/* The outliers of one moment, as q8_take_outliers() finds them. `bound` becomes that of the others. */
static __device__ uint32_t find_outliers(const q8_view &b, bool is_v, float *bound)
{
    uint32_t found = 0;
    for (unsigned taken = 0;;) {
        two_words most = {0, 0}, now = {0, 0};
        for (size_t i = b.first + b.lane, n = 0; i < b.end; i += WARP, n++)
            most.a = found >> n & 1 ? most.a : larger(most.a, q8_bits(bound_of(b, is_v, i)));
        most = combined(most, false);
        const float far = q8_far(q8_number(most.a), is_v ? Q8_FAR_V : Q8_FAR_M);
        uint32_t mine = 0;
        for (size_t i = b.first + b.lane, n = 0; i < b.end; i += WARP, n++) {
            const float x = found >> n & 1 ? 0 : bound_of(b, is_v, i);
            mine |= (uint32_t)(x >= far && x > 0) << n;
            now.a += x >= far && x > 0;
        }
        now = combined(now, true);
        if (taken)
            *bound = q8_number(most.a);
        if (now.a == 0 || now.a > Q8_OUTLIERS - taken)
            return found;
        taken += now.a;
        found |= mine;
    }
}

static __device__ __forceinline__ unsigned bits_of(uint32_t mask)
{
    unsigned bits = 0;
    for (; mask; mask &= mask - 1)
        bits++;
    return bits;
}

/* The place of this lane's outlier in a list by element: the number of outliers in all masks before the bit `n`. */
static __device__ __forceinline__ unsigned rank_of(const uint32_t *masks, unsigned lane, unsigned n)
{
    unsigned rank = 0;
    for (unsigned other = 0; other < WARP; other++)
        rank += bits_of(masks[other] & ((1u << n) - 1)) + (other < lane && masks[other] >> n & 1);
    return rank;
}

/* Store outlier `e` in a header. */
static __device__ __forceinline__ void store_outlier(uint8_t *block, unsigned e, uint16_t place, float value)
{
    memcpy(block + offsetof(q8_header, values) + e * sizeof value, &value, sizeof value);
    memcpy(block + offsetof(q8_header, places) + e * sizeof place, &place, sizeof place);
}

/* The step of elements that were or are outliers; `listed` and others: masks. The warp has read the old header. */
static __device__ void step_outliers(const q8_view &b, q8_bounds now, uint32_t listed, uint32_t out_m, uint32_t out_v,
                                     uint8_t *m_block, uint8_t *v_block)
{
    uint32_t all_m[WARP], all_v[WARP];
    two_words counts = {0, 0};
    for (unsigned other = 0; other < WARP; other++) {
        const two_words mine = {out_m, out_v}, theirs = given_by(other, mine);
        all_m[other] = theirs.a;
        all_v[other] = theirs.b;
        counts.a += bits_of(theirs.a);
        counts.b += bits_of(theirs.b);
    }
    for (unsigned n = 0; n < WARP; n++) {
        const size_t i = b.first + b.lane + n * WARP;
        if (!(listed >> n & 1))
            continue;
        const bool m_code = !(out_m >> n & 1), v_code = b.has_v && !(out_v >> n & 1);
        const q8_element old = {load_weights(b.s, i, 1, b.types), gradient_of(b, i), old_m(b, i), old_v(b, i)};
        const q8_element e = q8_step(b.k, old, now, m_code, v_code, b.has_v);
        const uint16_t m_lane = dither_lane_m(i - b.first), v_lane = dither_lane_v(i - b.first);
        const uint16_t place = (uint16_t)(i - b.first + 1);
        if (m_code)
            store_state(b.states->m, i, e.m, &m_lane, b.states->m_key, 1, STATE_M8, false);
        else
            store_outlier(m_block, rank_of(all_m, b.lane, n), place, e.m);
        if (v_code || !b.has_v)
            store_state(b.states->v, i, e.v, &v_lane, b.states->v_key, 1, b.states->v_form, false);
        else
            store_outlier(v_block, rank_of(all_v, b.lane, n), place, e.v);
        if (!m_code)
            ((uint8_t *)b.states->m)[i] = 0;
        if (b.has_v && !v_code)
            ((uint8_t *)b.states->v)[i] = 0;
        store_weights(b.s, i, e.p, 1, b.types, false);
        if (b.types.copy != ZOFF_DTYPE_DEFAULT)
            store_any(b.s->copy, i, e.p, 1, b.types.copy);
    }
    if (b.lane < Q8_OUTLIERS && b.lane >= counts.a)
        store_outlier(m_block, b.lane, 0, 0);
    if (b.has_v && b.lane < Q8_OUTLIERS && b.lane >= counts.b)
        store_outlier(v_block, b.lane, 0, 0);
}

/* A step with moments in 8 bits. A warp takes a block. Each lane copies the headers before any lane replaces them. */
extern "C" __global__ void __launch_bounds__(THREADS) zoff_update_q8(const batch<update_piece> b)
{
    const zoff_adam_piece &p = b.pieces[blockIdx.y].piece;
    const zoff_adam_consts &k = b.pieces[blockIdx.y].consts;
    const update_streams s = streams_of(p);
    const update_types types = types_of(p);
    const bool has_v = types.moments == ZOFF_MOMENTS_Q8;
    const size_t groups = (size_t)gridDim.x * (THREADS / WARP), blocks = (p.count + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
    const size_t own = (size_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    const unsigned lane = threadIdx.x % WARP;
    uint16_t m_lane = 0, v_lane = 0;
    for (size_t round = 0; round * groups < blocks; round++) { /* equally many rounds for all warps, as the shuffles need */
        const size_t block = round * groups + own, first = block * ZOFF_NORM_BLOCK;
        const size_t end = block >= blocks ? 0 : p.count - first < ZOFF_NORM_BLOCK ? p.count : first + ZOFF_NORM_BLOCK;
        uint8_t *m = (uint8_t *)p.m + q8_block_at(first), *v = has_v ? (uint8_t *)p.v + q8_block_at(first) : NULL;
        const zoff_dither d = dither_block(p.key + block, k.dither);
        const rule_states states = {(uint8_t *)p.m + (block + 1) * Q8_HEADER,
                                    has_v ? (uint8_t *)p.v + (block + 1) * Q8_HEADER : (uint8_t *)p.v,
                                    STATE_M8,
                                    has_v ? STATE_V8 : STATE_BF16,
                                    &m_lane,
                                    &v_lane,
                                    d.m,
                                    d.v};
        q8_view view = {&k, &s, types, &states, first, end, lane, has_v, {0, {0}, {0}}, {0, {0}, {0}}};
        if (end) {
            view.m = q8_load_header(m, end - first);
            view.v = has_v ? q8_load_header(v, end - first) : view.v;
        }
        const bool had = view.m.places[0] || view.v.places[0];
        two_words g = {0, 0}, most = {0, 0};
        for (size_t i = first + lane; i < end; i += WARP) {
            g.a = larger(g.a, q8_bits(fabsf(gradient_of(view, i))));
            most.a = larger(most.a, q8_bits(fabsf(old_m(view, i))));
            most.b = has_v ? larger(most.b, q8_bits(old_v(view, i))) : 0;
        }
        g = combined(g, false);
        most = combined(most, false);
        const q8_bounds old = {view.m.bound, view.v.bound};
        q8_bounds now = {q8_bound_m(&k, q8_number(most.a), q8_number(g.a)), 0};
        if (has_v)
            now.v = q8_bound_v(&k, q8_number(most.b), q8_number(g.a));
        uint32_t out_m = 0, out_v = 0, listed = 0;
        if (had || !has_no_outlier(view, now)) {
            out_m = find_outliers(view, false, &now.m);
            out_v = has_v ? find_outliers(view, true, &now.v) : 0;
            for (unsigned e = 0; e < Q8_OUTLIERS; e++) {
                const unsigned of_m = view.m.places[e], of_v = view.v.places[e];
                listed |= of_m && (of_m - 1) % WARP == lane ? 1u << (of_m - 1) / WARP : 0;
                listed |= of_v && (of_v - 1) % WARP == lane ? 1u << (of_v - 1) / WARP : 0;
            }
            listed |= out_m | out_v;
            step_outliers(view, now, listed, out_m, out_v, m, v);
        }
        const zoff_adam_consts scaled = q8_consts(&k, old, now, has_v);
        if (lane == 0 && end)
            q8_store_bound(m, now.m);
        if (lane == 0 && end && has_v)
            q8_store_bound(v, now.v);
        for (size_t i = first + lane, n = 0; i < end; i += WARP, n++) {
            if (listed >> n & 1)
                continue;
            m_lane = dither_lane_m(i % ZOFF_NORM_BLOCK);
            v_lane = dither_lane_v(i % ZOFF_NORM_BLOCK);
            update_lanes(&scaled, &s, &states, i, 1, false, rule_of_loop(k.rule), types);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) zoff_accumulate(const batch<accumulate_piece> b)
{
    zoff_accumulate_piece p = b.pieces[blockIdx.y].piece;
    const share mine = own_share();
    const bool weighted = p.weights != NULL;
    p.weights = b.pieces[blockIdx.y].factors;
    for (size_t i = mine.first; i < p.count; i += mine.step)
        accumulate_lanes(&p, i, 1, p.dtype, p.first, weighted);
}

/* A sum of 64 bits: parts, and terms in groups that 32 bits hold. */
static __device__ void bins_wide_one(const zoff_bins_piece &p, size_t i)
{
    int64_t hi = 0, lo = 0, top = 1;
    for (size_t sum = bins_first_sum(&p); sum <= p.part_count; sum++) {
        const zoff_bins &from = *bins_sum(&p, sum);
        bins_join_one(&hi, &lo, &top, bins_digit((const char *)from.hi + i * from.width, from.width),
                      bins_digit((const char *)from.lo + i * from.width, from.width), from.top[i]);
    }
    for (size_t source = 0; source < p.sources; source += BINS_NARROW_MOST) {
        int32_t some_hi, some_lo;
        uint8_t some_top;
        zoff_bins_piece some = p;
        const zoff_bins to = {&some_hi, &some_lo, &some_top, sizeof some_hi};
        some.to = to;
        some.first = true;
        some.part_count = 0;
        some.out = NULL;
        some.terms = (const char *)p.terms + source * p.stride + i * width_of(p.dtype);
        some.sources = p.sources - source < BINS_NARROW_MOST ? p.sources - source : (size_t)BINS_NARROW_MOST;
        some.weights = p.weights ? p.weights + source : NULL;
        bins_lanes(&some, 0, 1, p.dtype);
        bins_join_one(&hi, &lo, &top, some_hi, some_lo, some_top);
    }
    bins_write_one(&p, i, hi, lo, (unsigned)top);
}

extern "C" __global__ void __launch_bounds__(THREADS) zoff_add_bins(const bins_batch b)
{
    zoff_bins_piece p = b.pieces[blockIdx.y].piece;
    const share mine = own_share();
    p.parts = b.pieces[blockIdx.y].parts;
    if (p.weights)
        p.weights = b.pieces[blockIdx.y].factors;
    for (size_t i = mine.first; i < p.count; i += mine.step) {
        if (p.to.width == sizeof(int64_t))
            bins_wide_one(p, i);
        else
            bins_lanes(&p, i, 1, p.dtype);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) zoff_cast(const batch<zoff_cast_piece> b)
{
    const zoff_cast_piece &p = b.pieces[blockIdx.y];
    const share mine = own_share();
    if (p.src_dtype == p.dst_dtype && p.src_dtype != ZOFF_F32) { /* a copy keeps every bit, also of NaN */
        for (size_t i = mine.first; i < p.count; i += mine.step)
            ((uint16_t *)p.dst)[i] = ((const uint16_t *)p.src)[i];
    } else {
        for (size_t i = mine.first; i < p.count; i += mine.step)
            store_any(p.dst, i, load_any(p.src, i, 1, p.src_dtype), 1, p.dst_dtype);
    }
}

/* The sixteen lanes of a block's sum are sixteen threads. Shuffles add them up, in the order of the same tree. */
extern "C" __global__ void __launch_bounds__(THREADS) zoff_square_sum(const batch<zoff_norm_piece> b)
{
    const zoff_norm_piece &p = b.pieces[blockIdx.y];
    const size_t groups = (size_t)gridDim.x * (THREADS / ZOFF_ADAM_SUM_LANES),
                 blocks = (p.count + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
    const unsigned lane = threadIdx.x % ZOFF_ADAM_SUM_LANES;
    const size_t own = (size_t)blockIdx.x * (THREADS / ZOFF_ADAM_SUM_LANES) + threadIdx.x / ZOFF_ADAM_SUM_LANES;
    /* All threads of a warp take the same number of rounds, because the shuffles need every one of them. */
    for (size_t round = 0; round * groups < blocks; round++) {
        const size_t block = round * groups + own, first = block * ZOFF_NORM_BLOCK;
        double sum = 0;
        for (size_t i = first + lane; block < blocks && i < p.count && i < first + ZOFF_NORM_BLOCK; i += ZOFF_ADAM_SUM_LANES) {
            const double x = load_any(p.grad, i, 1, p.dtype);
            sum += x * x; /* the product is exact, so fusing does not change it */
        }
        for (unsigned half = ZOFF_ADAM_SUM_LANES / 2; half; half /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, half, ZOFF_ADAM_SUM_LANES);
        if (lane == 0 && block < blocks)
            p.block_sums[block] = sum;
    }
}

/* ---- launches ---- */

/* Choose the blocks in a row of the grid, so that each thread has a few elements of the longest piece. */
static unsigned columns(size_t longest, size_t per_block)
{
    const size_t wanted = (longest + per_block - 1) / per_block;
    return wanted < 1 ? 1 : wanted > COLUMNS_MOST ? COLUMNS_MOST : (unsigned)wanted;
}

/* Launch `kernel` on a list, a batch at a time. Leave out pieces without elements. */
template <class in, class out, unsigned most = PIECES> struct launcher {
    cudaStream_t stream;
    void (*kernel)(const batch<out, most>);
    size_t per_block; /* elements for each block */
    unsigned used;
    size_t longest;
    batch<out, most> b;

    launcher(cudaStream_t stream_, void (*kernel_)(const batch<out, most>), size_t per_block_)
        : stream(stream_), kernel(kernel_), per_block(per_block_), used(0), longest(0)
    {
    }
    cudaError_t flush()
    {
        if (!used)
            return cudaSuccess;
        const dim3 grid(columns(longest, per_block), used), block(THREADS);
        used = 0;
        longest = 0;
        void *argument = &b;
        return ZOFF_LAUNCH(kernel, grid, block, stream, argument);
    }
    cudaError_t add(const in &piece, const out &packed)
    {
        if (piece.count == 0)
            return cudaSuccess;
        longest = piece.count > longest ? piece.count : longest;
        b.pieces[used++] = packed;
        return used == most ? flush() : cudaSuccess;
    }
};

extern "C" cudaError_t zoff_cuda_kernels_load(void)
{
    const void *const all[] = {(const void *)zoff_update,   (const void *)zoff_update_q8, (const void *)zoff_accumulate,
                               (const void *)zoff_add_bins, (const void *)zoff_cast,      (const void *)zoff_square_sum};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && error == cudaSuccess; i++) {
        cudaFuncAttributes about;
        error = cudaFuncGetAttributes(&about, all[i]);
    }
    return error;
}

extern "C" cudaError_t zoff_cuda_kernels_update(cudaStream_t stream, const zoff_adam_piece *pieces, size_t count)
{
    launcher<zoff_adam_piece, update_piece> launch(stream, zoff_update, THREADS * PER_THREAD);
    launcher<zoff_adam_piece, update_piece> launch_q8(stream, zoff_update_q8, THREADS / WARP * ZOFF_NORM_BLOCK);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < count && error == cudaSuccess; i++) {
        const update_piece packed = {pieces[i], *pieces[i].consts};
        error = (pieces[i].moments >= ZOFF_MOMENTS_M8V16 ? launch_q8 : launch).add(pieces[i], packed);
    }
    error = error == cudaSuccess ? launch.flush() : error;
    return error == cudaSuccess ? launch_q8.flush() : error;
}

/* More sources than a launch has factors for are added by further launches, which continue the sum. */
extern "C" cudaError_t zoff_cuda_kernels_accumulate(cudaStream_t stream, const zoff_accumulate_piece *pieces, size_t count)
{
    launcher<zoff_accumulate_piece, accumulate_piece> launch(stream, zoff_accumulate, THREADS * PER_THREAD);
    cudaError_t error = cudaSuccess;
    bool left = true;
    for (size_t from = 0; left && error == cudaSuccess; from += FACTORS) {
        left = false;
        for (size_t i = 0; i < count && error == cudaSuccess; i++) {
            const size_t sources = pieces[i].sources ? pieces[i].sources : 1;
            if (from >= sources)
                continue;
            accumulate_piece packed = {pieces[i], {0}};
            packed.piece.grad = (const char *)pieces[i].grad + from * pieces[i].stride;
            packed.piece.first = pieces[i].first && from == 0;
            packed.piece.sources = sources - from < FACTORS ? sources - from : (size_t)FACTORS;
            for (size_t s = 0; pieces[i].weights && s < packed.piece.sources; s++)
                packed.factors[s] = pieces[i].weights[from + s];
            left = left || sources > from + FACTORS;
            error = launch.add(pieces[i], packed);
        }
        error = error == cudaSuccess ? launch.flush() : error;
    }
    return error;
}

/* More parts or factors than a launch has space for are added by further launches, which continue the sums in the planes. */
extern "C" cudaError_t zoff_cuda_kernels_bins(cudaStream_t stream, const zoff_bins_piece *pieces, size_t count)
{
    launcher<zoff_bins_piece, bins_piece, 4> launch(stream, zoff_add_bins, THREADS * PER_THREAD);
    cudaError_t error = cudaSuccess;
    bool left = true;
    for (size_t round = 0; left && error == cudaSuccess; round++) {
        left = false;
        for (size_t i = 0; i < count && error == cudaSuccess; i++) {
            const zoff_bins_piece &p = pieces[i];
            const size_t at_once = p.weights ? (size_t)ZOFF_ACCEL_BINS_FACTORS : p.sources + 1;
            const size_t part = round * ZOFF_ACCEL_BINS_PARTS, source = round * at_once;
            if (round && part >= p.part_count && source >= p.sources)
                continue;
            bins_piece packed = {p, {}, {}};
            packed.piece.first = p.first && !round;
            packed.piece.part_count = packed.piece.sources = 0;
            for (size_t k = part; k < p.part_count && k < part + ZOFF_ACCEL_BINS_PARTS; k++)
                packed.parts[packed.piece.part_count++] = p.parts[k];
            packed.piece.terms = (const char *)p.terms + source * p.stride;
            for (size_t k = source; k < p.sources && k < source + at_once; k++, packed.piece.sources++) {
                if (p.weights)
                    packed.factors[k - source] = p.weights[k];
            }
            left = left || p.part_count > part + ZOFF_ACCEL_BINS_PARTS || p.sources > source + at_once;
            error = launch.add(p, packed);
        }
        error = error == cudaSuccess ? launch.flush() : error;
    }
    return error;
}

extern "C" cudaError_t zoff_cuda_kernels_cast(cudaStream_t stream, const zoff_cast_piece *pieces, size_t count)
{
    launcher<zoff_cast_piece, zoff_cast_piece> launch(stream, zoff_cast, THREADS * PER_THREAD);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < count && error == cudaSuccess; i++)
        error = launch.add(pieces[i], pieces[i]);
    return error == cudaSuccess ? launch.flush() : error;
}

extern "C" cudaError_t zoff_cuda_kernels_square_sum(cudaStream_t stream, const zoff_norm_piece *pieces, size_t count)
{
    launcher<zoff_norm_piece, zoff_norm_piece> launch(stream, zoff_square_sum, THREADS / ZOFF_ADAM_SUM_LANES * ZOFF_NORM_BLOCK);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < count && error == cudaSuccess; i++)
        error = launch.add(pieces[i], pieces[i]);
    return error == cudaSuccess ? launch.flush() : error;
}
