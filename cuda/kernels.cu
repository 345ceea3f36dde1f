/* kernels.cu: the kernels of cpu_adam on a GPU. They compile the formulas of src/cpu_adam/body with a vector of one lane: each
 * thread is a lane. The bits equal the CPU's if nothing is fused or flushed beyond the text, and if division and square root
 * round correctly. The flags of this file (cuda/CMakeLists.txt) ensure that, and a test reads it from the PTX.
 *
 * A launch takes a batch of pieces, because a model has many small ones. Row y of the grid is a piece; its columns share the
 * elements. All kernels are limited by memory. So types and rules are branches, the same for a whole launch, and not template
 * parameters. */
#define ZOFF_KERNEL_INLINE static __device__ __forceinline__
#include "cuda_kernels.h"

#include "simd/simd_scalar.h"

#include "dither.h"
#include "q8.h"

#include "body/body_types.h"

#include "body/body_rules.h"

#include "body/body_lanes.h"

#ifndef ZOFF_LAUNCH /* a test that compiles this file for the CPU defines its own */
/* Do not launch by <<<>>>: the error of an earlier launch, made by anybody, would be taken for this one's. */
#define ZOFF_LAUNCH(kernel, grid, block, stream, argument)                                                                     \
    cudaLaunchKernel((const void *)(kernel), (grid), (block), &(argument), 0, (stream))
#endif

enum { PIECES = 16, FACTORS = 32, WARP = 32 };
static const unsigned THREADS = 256, COLUMNS_MOST = 2048, PER_THREAD = 4;

/* The argument of a launch, passed by value: at most 4 KiB. */
template <class piece> struct batch {
    piece pieces[PIECES];
};

struct update_piece {
    zoff_adam_piece piece;
    zoff_adam_consts consts;
};

struct accumulate_piece {
    zoff_accumulate_piece piece;
    float factors[FACTORS];
};

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
        update_lanes(&k, &s, &states, i, 1, false, k.rule, types);
    }
}

/* Two words that lanes of a warp exchange, as the bits of a number: shuffles of 64 bits take numbers. */
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

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The largest |g| of a block, as bits, and its largest codes: that of m, and that of v 8 bits above. Every lane has the result.
 */
static __device__ __forceinline__ two_words largest_of_block(const zoff_adam_consts &k, const update_streams &s,
                                                             const rule_states &states, size_t first, size_t end,
                                                             zoff_adam_rule rule, update_types types)
{
    float g = 0;
    uint32_t m = 0, v = 0;
    for (size_t i = first + threadIdx.x % WARP; i < end; i += WARP) {
        g = q8_largest_lanes(&k, &s, g, i, 1, rule, types);
        m = larger(m, ((const uint8_t *)states.m)[i] & 0x7fu);
        v = states.v_form == STATE_V8 ? larger(v, ((const uint8_t *)states.v)[i]) : 0;
    }
    two_words mine = {q8_bits(rule_decays_grads(rule) ? g : g * fabsf(k.grad_scale)), m | v << 8};
    for (unsigned half = WARP / 2; half; half /= 2) {
        const two_words other = unpacked(__shfl_down_sync(0xffffffffu, packed(mine), half, WARP));
        mine.a = larger(mine.a, other.a);
        mine.b = larger(mine.b & 0xffu, other.b & 0xffu) | larger(mine.b & 0xff00u, other.b & 0xff00u);
    }
    return unpacked(__shfl_sync(0xffffffffu, packed(mine), 0, WARP));
}

/* A step with moments in 8 bits. A warp takes a block. Its first lane alone reads and writes the bounds, so that no lane reads
 * a new one for an old one. */
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
    for (size_t round = 0; round * groups < blocks; round++) { /* equally many for all warps, as the shuffles need */
        const size_t block = round * groups + own, first = block * ZOFF_NORM_BLOCK;
        const size_t end = block >= blocks ? 0 : p.count - first < ZOFF_NORM_BLOCK ? p.count : first + ZOFF_NORM_BLOCK;
        uint8_t *m = (uint8_t *)p.m + q8_block_at(first), *v = has_v ? (uint8_t *)p.v + q8_block_at(first) : NULL;
        const zoff_dither d = dither_block(p.key + block, k.dither);
        /* Element i of the piece is element i of these, too. */
        const rule_states states = {(uint8_t *)p.m + (block + 1) * Q8_HEADER,
                                    has_v ? (uint8_t *)p.v + (block + 1) * Q8_HEADER : (uint8_t *)p.v,
                                    STATE_M8,
                                    has_v ? STATE_V8 : STATE_BF16,
                                    &m_lane,
                                    &v_lane,
                                    d.m,
                                    d.v};
        const two_words largest = largest_of_block(k, s, states, first, end, k.rule, types);
        two_words bounds = {0, 0};
        if (lane == 0 && end) {
            bounds.a = q8_bits(q8_load_bound(m));
            bounds.b = has_v ? q8_bits(q8_load_bound(v)) : 0;
        }
        bounds = unpacked(__shfl_sync(0xffffffffu, packed(bounds), 0, WARP));
        const q8_bounds old = {q8_number(bounds.a), q8_number(bounds.b)};
        q8_bounds now = {q8_bound_m(&k, old.m, largest.b & 0xffu, q8_number(largest.a)), 0};
        if (has_v)
            now.v = q8_bound_v(&k, old.v, largest.b >> 8, q8_number(largest.a));
        const zoff_adam_consts scaled = q8_consts(&k, old, now, has_v);
        if (lane == 0 && end)
            q8_store_bound(m, now.m);
        if (lane == 0 && end && has_v)
            q8_store_bound(v, now.v);
        for (size_t i = first + lane; i < end; i += WARP) {
            m_lane = dither_lane_m(i % ZOFF_NORM_BLOCK);
            v_lane = dither_lane_v(i % ZOFF_NORM_BLOCK);
            update_lanes(&scaled, &s, &states, i, 1, false, k.rule, types);
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
    /* All threads of a warp take the same number of rounds: the shuffles need every one of them. */
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
template <class in, class out> struct launcher {
    cudaStream_t stream;
    void (*kernel)(const batch<out>);
    size_t per_block; /* elements for each block */
    unsigned used;
    size_t longest;
    batch<out> b;

    launcher(cudaStream_t stream_, void (*kernel_)(const batch<out>), size_t per_block_)
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
        return used == PIECES ? flush() : cudaSuccess;
    }
};

extern "C" cudaError_t zoff_cuda_kernels_load(void)
{
    const void *const all[] = {(const void *)zoff_update, (const void *)zoff_update_q8, (const void *)zoff_accumulate,
                               (const void *)zoff_cast, (const void *)zoff_square_sum};
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
