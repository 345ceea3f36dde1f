/* SPDX-License-Identifier: Apache-2.0 */
// reference_blocks.cc: the step of a tensor whose moments are stored in blocks of 8 bits, by the oracle of the kernels' tests.
#include "oracle_q8.h"
#include "reference.h"

#include <algorithm>

namespace reference
{
bool has_blocks(const tensor &x, const zoff_optimizer_hyper &h)
{
    return !x.blocks.empty() && x.count >= 4096 && h.optimizer == ZOFF_OPTIMIZER_ADAM;
}

namespace
{
zoff_moments moments_of(const tensor &x)
{
    return x.blocks == "q8" ? ZOFF_MOMENTS_Q8 : ZOFF_MOMENTS_M8V16;
}

// The blocks of a slice; of zeros at first.
unsigned char *blocks_of(tensor &x, zoff_moment which, size_t slice)
{
    std::vector<unsigned char> &blocks = which == ZOFF_MOMENT_M ? x.m_blocks : x.v_blocks;
    const size_t bytes = zoff_adam_moments_size(moments_of(x), which, x.count);
    blocks.resize(x.slices * bytes);
    return &blocks[slice * bytes];
}
} // namespace

void write(tensor &x, const zoff_optimizer_hyper &h, zoff_state_kind kind, size_t first, size_t count, const float *numbers)
{
    std::vector<float> &state = kind == ZOFF_STATE_MASTER ? x.master : kind == ZOFF_STATE_M ? x.m : x.v;
    std::copy(numbers, numbers + count, state.begin() + (long)first);
    if (kind == ZOFF_STATE_MASTER || !has_blocks(x, h))
        return;
    const zoff_moment which = kind == ZOFF_STATE_M ? ZOFF_MOMENT_M : ZOFF_MOMENT_V;
    for (size_t at = first, end = first + count; at < end;) {
        const size_t slice = at / x.count, skip = at % x.count, part = std::min(end - at, x.count - skip);
        unsigned char *blocks = blocks_of(x, which, slice);
        zoff_adam_moments_store(moments_of(x), which, blocks, x.count, skip, part, numbers + (at - first));
        zoff_adam_moments_load(moments_of(x), which, blocks, 0, x.count, &state[slice * x.count]);
        at += part;
    }
}

void step_blocks(tensor &x, const zoff_optimizer_hyper &h, size_t slice, int64_t t, float scale)
{
    const zoff_moments moments = moments_of(x);
    oracle_q8::parameter p = {};
    p.tensor = ZOFF_OPTIMIZER_TENSOR_INIT;
    p.tensor.count = x.count;
    p.tensor.master = &x.master[slice * x.count];
    p.tensor.grad = &x.sum[slice * x.count];
    p.tensor.grad_dtype = ZOFF_F32;
    p.moments = moments;
    p.m = blocks_of(x, ZOFF_MOMENT_M, slice);
    p.v = blocks_of(x, ZOFF_MOMENT_V, slice);
    p.key = block_of(x.name, slice);
    zoff_adam_consts k;
    zoff_adam_hyper_consts(&h, t, scale, &k);
    oracle_q8::step(k, t, &p);
    zoff_adam_moments_load(moments, ZOFF_MOMENT_M, p.m, 0, x.count, &x.m[slice * x.count]);
    zoff_adam_moments_load(moments, ZOFF_MOMENT_V, p.v, 0, x.count, &x.v[slice * x.count]);
}

void store_moments(tensor &x, const std::string &moments)
{
    const bool wants_blocks = moments[0] == 'm' || moments[0] == 'q', has_them = wants_blocks && x.count >= 4096;
    const zoff_moments format = wants_blocks && !has_them ? ZOFF_MOMENTS_F32
                                : moments == "fp32"       ? ZOFF_MOMENTS_F32
                                : moments == "bf16"       ? ZOFF_MOMENTS_BF16
                                : moments == "q8"         ? ZOFF_MOMENTS_Q8
                                                          : ZOFF_MOMENTS_M8V16;
    if (has_them && x.blocks == moments) // the moments are copied as they are, with their bounds
        return;
    x.blocks = wants_blocks ? moments : "";
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        const size_t bytes = zoff_adam_moments_size(format, which, x.count);
        std::vector<unsigned char> stored(x.slices * bytes);
        for (size_t slice = 0; !x.frozen && x.count && slice < x.slices; slice++) {
            float *numbers = &(which == ZOFF_MOMENT_M ? x.m : x.v)[slice * x.count];
            zoff_adam_moments_store(format, which, &stored[slice * bytes], x.count, 0, x.count, numbers);
            zoff_adam_moments_load(format, which, &stored[slice * bytes], 0, x.count, numbers);
        }
        (which == ZOFF_MOMENT_M ? x.m_blocks : x.v_blocks) = has_them ? stored : std::vector<unsigned char>();
    }
}
} // namespace reference
