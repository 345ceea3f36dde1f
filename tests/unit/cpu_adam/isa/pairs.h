/* SPDX-License-Identifier: Apache-2.0 */
// pairs.h: steps over pairs of elements have the bits of the scalar kernels, for each of their rules and every length.
#ifndef ZOFF_TESTS_PAIRS_H
#define ZOFF_TESTS_PAIRS_H

#include "../../../kernels/every_rule.h"
#include "../../../kernels/kernel_data.h"
#include "zoff_test.h"

#include <cstring>

extern "C" {
#include "cpu.h"
#include "kernels.h"
}

namespace pairs
{
typedef void update_fn(const zoff_adam_piece *piece, size_t begin, size_t count);

struct arrays {
    explicit arrays(size_t n) : high(n), low(n), m(n), v(n), g(n) {}
    bool operator==(const arrays &other) const
    {
        return high == other.high && low == other.low && m == other.m && v == other.v;
    }
    std::vector<uint16_t> high, low, m, v, g;
};

// Any bits are numbers; one in eight is special, and moments are mostly of one sign.
inline void fill(kernel_data::random_source &random, std::vector<uint16_t> &all, uint16_t mask)
{
    for (auto &x : all)
        x = (uint16_t)(random.next() % 8 ? (random.next() & mask) % 0x4000 + 0x2000 : random.next());
}

inline void update(update_fn *kernel, arrays &a, const rule_case &rule, const zoff_adam_consts *consts, size_t begin)
{
    zoff_adam_piece piece = {};
    piece.count = a.high.size();
    piece.master = a.high.data();
    piece.low = a.low.data();
    piece.split = true;
    piece.master_dtype = piece.grad_dtype = ZOFF_BF16;
    piece.m = rule.states.m ? a.m.data() : nullptr;
    piece.v = rule.states.v ? a.v.data() : nullptr;
    piece.moments = ZOFF_MOMENTS_BF16;
    piece.grad = a.g.data();
    piece.consts = consts;
    piece.key = 12345;
    const unsigned saved = zoff_base_cpu_float_enter();
    kernel(&piece, begin, piece.count - begin);
    zoff_base_cpu_float_leave(saved);
}

inline void expect_bits_of_scalar(update_fn *kernel)
{
    kernel_data::random_source random{11};
    for (const auto &rule : every_rule()) {
        if (rule.rule == ZOFF_RULE_SGD || rule.rule == ZOFF_RULE_SGD_L2) // a rule without moments has no such pair
            continue;
        zoff_adam_consts consts;
        zoff_adam_hyper_consts(&rule.hyper, 3, 0.37, &consts);
        for (size_t n : {1, 2, 31, 32, 33, 63, 64, 65, 100, 1023, 1024, 1025, 1056, 2500}) {
            arrays one(n);
            for (auto *all : {&one.high, &one.low, &one.m, &one.g})
                fill(random, *all, 0xffff);
            fill(random, one.v, 0x7fff);
            arrays two = one;
            for (size_t begin : {(size_t)0, n / 1024 * 1024}) {
                update(kernel, one, rule, &consts, begin);
                update(zoff_adam_kernels_scalar.update, two, rule, &consts, begin);
                ASSERT_TRUE(one == two) << rule.name << ", " << n << " elements from " << begin;
            }
        }
    }
}
} // namespace pairs

#endif
