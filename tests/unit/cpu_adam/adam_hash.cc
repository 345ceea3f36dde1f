/* SPDX-License-Identifier: Apache-2.0 */
// adam_hash.cc: a helper of dispatch_test: 100 steps over a mixed list of every rule and type through the door of the room. It
// prints "<isa> <hash>". ZOFF_ISA chooses the instruction set as in any process; the argument is the number of threads.
#include "every_rule.h"
#include "kernel_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

using namespace kernel_data;

static uint64_t hash = 0xcbf29ce484222325ull;

static void add(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
}

namespace
{
// Finite numbers, some subnormal, computed once.
std::vector<float> draw(size_t count)
{
    random_source random(2026);
    std::vector<float> all(count);
    for (auto &x : all)
        x = (random.next() >> 60) ? number(random, false) : float_of((uint32_t)(random.next() >> 41));
    return all;
}

struct job {
    zoff_dtype grads;
    weights_kind weights;
    zoff_moments moments;
    std::vector<unsigned char> m, v;
    std::vector<float> sum;
    std::vector<uint32_t> master, grad, copy; // large enough for any type
    std::vector<double> blocks;
};

// Each format that a step with these weights and states may have.
zoff_moments moments_of(size_t k, const weights_kind &weights, const zoff_adam_states &states)
{
    const bool may_be_8_bits = states.m && states.v && (weights.split || weights.master == ZOFF_F32);
    return (zoff_moments)(k % (may_be_8_bits ? 4 : 2));
}

// The type of the weights at `master`: of split ones the upper halves.
zoff_dtype master_of(const weights_kind &kind)
{
    return kind.split ? ZOFF_BF16 : kind.master;
}
} // namespace

int main(int argc, char **argv)
{
    const unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    const size_t counts[] = {0, 1, 15, 130, 1023, 1024, 1025, 31};
    const std::vector<rule_case> rules = every_rule();
    const std::vector<float> numbers = draw(1 << 16);
    const size_t kinds = every_weights_kind().size();
    std::vector<job> jobs;
    for (size_t k = 0; k < rules.size() * 3 * kinds; k++) {
        const size_t n = counts[k % 8];
        const zoff_dtype types[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
        const weights_kind &weights = every_weights_kind()[k % kinds];
        const zoff_moments moments = moments_of(k / kinds, weights, rules[k / (3 * kinds)].states);
        job j = {types[k / kinds % 3], weights, moments, {}, {}, {}, {}, {}, {}, {}};
        j.m.resize(zoff_adam_moments_size(moments, ZOFF_MOMENT_M, n));
        j.v.resize(zoff_adam_moments_size(moments, ZOFF_MOMENT_V, n));
        j.sum.resize(n);
        j.master.resize(n), j.grad.resize(n), j.copy.resize(n);
        j.blocks.resize((n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK);
        const zoff_cast_piece first = {n,    j.master.data(), numbers.data() + k * 17, master_of(j.weights), ZOFF_F32, nullptr,
                                       false};
        zoff_adam_cast_run(1, &first, 1);
        jobs.push_back(j);
    }
    for (int t = 1; t <= 100; t++) {
        std::vector<zoff_adam_consts> consts(rules.size());
        for (size_t r = 0; r < rules.size(); r++)
            zoff_adam_hyper_consts(&rules[r].hyper, t, 0.25, &consts[r]);
        std::vector<zoff_adam_piece> updates;
        std::vector<zoff_norm_piece> norms;
        std::vector<zoff_accumulate_piece> sums;
        std::vector<zoff_cast_piece> casts;
        for (size_t k = 0; k < jobs.size(); k++) {
            job &j = jobs[k];
            const size_t n = j.sum.size();
            const rule_case &rule = rules[k / (3 * kinds)];
            const float *fresh = numbers.data() + ((size_t)t * 7919 + k * 1031) % (numbers.size() - n);
            casts.push_back({n, j.grad.data(), fresh, j.grads, ZOFF_F32, nullptr, false});
            sums.push_back({n, j.sum.data(), j.grad.data(), j.grads, t % 4 == 1, 1, 0, nullptr});
            const bool summed = t % 4 == 0; // the accumulated gradient instead of the new one
            const void *grad = summed ? (const void *)j.sum.data() : (const void *)j.grad.data();
            const zoff_dtype dtype = summed ? ZOFF_F32 : j.grads;
            norms.push_back({n, grad, dtype, j.blocks.data()});
            zoff_adam_piece piece = {};
            piece.count = n;
            piece.master = j.master.data();
            piece.m = rule.states.m ? j.m.data() : nullptr;
            piece.v = rule.states.v ? j.v.data() : nullptr;
            piece.grad = grad;
            piece.copy_out = j.weights.copy || j.weights.split ? j.copy.data() : nullptr; // the copy, or the lower halves
            piece.grad_dtype = dtype;
            piece.copy_dtype = j.weights.copy;
            piece.consts = &consts[k / (3 * kinds)];
            piece.master_dtype = master_of(j.weights);
            piece.stream = (k + (size_t)t) % 2 == 0;
            piece.split = j.weights.split;
            piece.moments = (uint8_t)j.moments;
            piece.key = zoff_adam_dither_key("hash", 0, k);
            updates.push_back(piece);
        }
        zoff_adam_cast_run(threads, casts.data(), casts.size());
        zoff_adam_accumulate_run(threads, sums.data(), sums.size(), nullptr, nullptr);
        zoff_adam_norm_run(threads, norms.data(), norms.size(), nullptr, nullptr);
        zoff_adam_update_run(threads, updates.data(), updates.size(), nullptr, nullptr);
        for (const auto &j : jobs)
            add(j.blocks.data(), j.blocks.size() * sizeof(double));
    }
    for (const auto &j : jobs) {
        const size_t n = j.sum.size();
        std::vector<float> wide(n); // a NaN differs between CPUs, so there must be none
        const zoff_cast_piece up = {n, wide.data(), j.master.data(), ZOFF_F32, master_of(j.weights), nullptr, false};
        zoff_adam_cast_run(1, &up, 1);
        for (float x : wide) {
            if (isnan(x)) {
                fprintf(stderr, "a weight became NaN\n");
                return 1;
            }
        }
        for (auto *array : {&j.m, &j.v})
            add(array->data(), array->size());
        add(j.sum.data(), n * sizeof(float));
        for (auto *array : {&j.master, &j.copy})
            add(array->data(), n * sizeof(uint32_t));
    }
    printf("%s %016llx\n", zoff_isa(), (unsigned long long)hash);
    return 0;
}
