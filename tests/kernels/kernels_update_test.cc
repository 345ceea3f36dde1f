/* SPDX-License-Identifier: Apache-2.0 */
// kernels_update_test.cc: the step of every table against the oracle, bit for bit. Covers every rule, type of gradients and
// kind of weights, and copies with ordinary and with streaming stores. Covers sizes with every tail, misaligned arrays and
// special values. No byte outside of the arrays may change.
#include "covering.h"
#include "every_rule.h"
#include "kernel_tables.h"
#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace kernel_data;

namespace
{
#if defined(ZOFF_TEST_SANITIZED)
enum { GRADS_RUN = 1 };
#else
enum { GRADS_RUN = 3 };
#endif

struct step_case {
    const rule_case *rule;
    zoff_dtype grads;
    weights_kind weights;
    bool stream;
    zoff_moments moments;
};

// All arrays of a step, and the oracle's results for the same numbers.
struct arrays {
    fenced<float> p32{LARGE + 1}, m{LARGE + 1}, v{LARGE + 1}, g32{LARGE + 1};
    fenced<uint16_t> p16{LARGE + 1}, g16{LARGE + 1}, copy{LARGE + 16}, m16{LARGE + 1}, v16{LARGE + 1}, low{LARGE + 1};
    std::vector<float> p32_2, m_2, v_2;
    std::vector<uint16_t> p16_2, copy_2, m16_2, v16_2;
};

bool is_16_bit(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 || dtype == ZOFF_F16;
}

template <typename T> T *twin(std::vector<T> &out, const T *array, size_t n)
{
    out.assign(array, array + n);
    return out.data();
}

// States in bf16, made from fp32 ones, which become their values.
void halve(uint16_t *out, float *states, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = oracle_to_bf16(states[i]);
        states[i] = oracle_from_bf16(out[i]);
    }
}

// The two halves of fp32 numbers. Every NaN becomes the canonical one, in the numbers, too.
void split(uint16_t *high, uint16_t *low, float *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0x7fc00000;
        if (!std::isnan(numbers[i]))
            memcpy(&bits, &numbers[i], sizeof bits);
        memcpy(&numbers[i], &bits, sizeof bits);
        high[i] = oracle_to_bf16(numbers[i]);
        low[i] = (uint16_t)bits;
    }
}

// The oracle's states, rounded to bf16.
const uint16_t *rounded(std::vector<uint16_t> &out, const std::vector<float> &states, unsigned moment, uint64_t key, int64_t t)
{
    out.resize(states.size() + 1);
    for (size_t i = 0; i < states.size(); i++)
        out[i] = oracle_dither_bf16(states[i], moment, key + i / 1024, i % 1024, t);
    return out.data();
}

// One step on `n` elements. `shift` guard elements follow each array, `copy_shift` follow the copy.
void check_step(const struct zoff_kernels *table, arrays &a, const step_case &c, size_t n, size_t shift, size_t copy_shift)
{
    const number_pool &pool = number_pool::get();
    const bool half_p = is_16_bit(c.weights.master), half_g = is_16_bit(c.grads);
    float *m = a.m.place(n, shift), *v = a.v.place(n, shift), *p32 = a.p32.place(n, shift), *g32 = a.g32.place(n, shift);
    uint16_t *p16 = a.p16.place(n, shift), *g16 = a.g16.place(n, shift), *copy = a.copy.place(n, copy_shift);
    void *p = half_p ? (void *)p16 : (void *)p32, *g = half_g ? (void *)g16 : (void *)g32;
    pool.fill(p, c.weights.master, n, n + 1);
    pool.fill(g, c.grads, n, n + 2);
    pool.fill(m, ZOFF_F32, n, n + 3);
    pool.fill(v, ZOFF_F32, n, n + 4);
    pool.fill(copy, ZOFF_BF16, n, n + 5);
    for (size_t i = 0; i < n; i++) {
        if (i % 8 != 5) // a few are negative: their root is NaN on every CPU
            v[i] = std::abs(v[i]);
        if (i % 6 == 1) { // a zero update: the weight is only rounded
            memset(static_cast<char *>(g) + i * (half_g ? 2 : 4), 0, half_g ? 2 : 4);
            m[i] = 0;
        }
    }
    const bool first = n % 11 == 10; // a first step, where SGD's m becomes g, also for -0
    if (first)
        std::fill(m, m + n, 0.0f);
    const zoff_adam_states states = c.rule->states;
    const bool is_bf16 = c.moments == ZOFF_MOMENTS_BF16;
    const bool spare = n % 2; // states that the rule does not have: passed and left unchanged, or NULL
    uint16_t *low = a.low.place(n, shift);
    if (c.weights.split) {
        split(p16, low, p32, n);
        p = p16;
    }
    const uint64_t key = UINT64_MAX - n % 3; // later blocks begin at 0 again
    uint16_t *m16 = a.m16.place(n, shift), *v16 = a.v16.place(n, shift);
    if (is_bf16) {
        halve(m16, m, n);
        halve(v16, v, n);
    }
    zoff_optimizer_tensor expected = {};
    expected.count = n;
    expected.master = half_p ? (void *)twin(a.p16_2, p16, n) : (void *)twin(a.p32_2, p32, n);
    expected.m = twin(a.m_2, m, n);
    expected.v = twin(a.v_2, v, n);
    expected.grad = g;
    expected.grad_dtype = c.grads;
    expected.copy_out = c.weights.copy ? twin(a.copy_2, copy, n) : nullptr;
    expected.copy_dtype = c.weights.copy;
    expected.master_dtype = c.weights.master;

    zoff_optimizer_hyper hyper = c.rule->hyper;
    if (n % 5 == 4)
        hyper.lr = 0;
    const int64_t t = first ? 1 : 2 + (int64_t)(n * 7 % 1000) * (shift ? 1 : 5);
    const double scale = n % 3 ? 0.37 : 1.0;
    rule_case used = *c.rule;
    used.hyper = hyper;
    const zoff_adam_consts consts = consts_of(used, t, scale);
    ASSERT_EQ(consts.rule, c.rule->rule);
    const std::vector<unsigned char> grads_before(static_cast<unsigned char *>(g),
                                                  static_cast<unsigned char *>(g) + n * (half_g ? 2 : 4));
    zoff_adam_piece piece = {};
    piece.count = n;
    piece.master = p;
    piece.m = !states.m && !spare ? nullptr : is_bf16 ? (void *)m16 : m;
    piece.v = !states.v && !spare ? nullptr : is_bf16 ? (void *)v16 : v;
    piece.moments = (uint8_t)c.moments;
    piece.key = key;
    piece.grad = g;
    piece.copy_out = c.weights.copy ? copy : nullptr;
    piece.split = c.weights.split;
    if (piece.split)
        piece.low = low;
    piece.grad_dtype = c.grads;
    piece.copy_dtype = c.weights.copy;
    piece.consts = &consts;
    piece.master_dtype = c.weights.split ? ZOFF_BF16 : c.weights.master;
    piece.stream = c.stream;
    const size_t cut = n * 2 / 5 / (is_bf16 ? 1024 : 1) * (is_bf16 ? 1024 : 1); // an arbitrary place, or a block
    table->update(&piece, cut, n - cut);
    table->update(&piece, 0, cut);

    if (c.rule->rule < ZOFF_RULE_MUON_MOMENTUM)
        oracle_step(&hyper, t, scale, &expected);
    else
        oracle_muon_pass(&hyper, c.rule->rule >= ZOFF_RULE_ADD, 2, scale, &expected);
    if (c.weights.split) {
        a.p16_2.resize(n + 1);
        a.copy_2.resize(n + 1);
        split(a.p16_2.data(), a.copy_2.data(), a.p32_2.data(), n);
        ASSERT_TRUE(same_bits(a.p16_2.data(), p16, n)) << "upper halves";
        ASSERT_TRUE(same_bits(a.copy_2.data(), low, n)) << "lower halves";
    }
    ASSERT_TRUE(c.weights.split ? true
                : half_p        ? same_bits(a.p16_2.data(), p16, n)
                                : same_bits(a.p32_2.data(), p32, n))
        << "weights";
    ASSERT_TRUE(is_bf16 || same_bits(a.m_2.data(), m, n)) << "m";
    ASSERT_TRUE(is_bf16 || same_bits(a.v_2.data(), v, n)) << "v";
    ASSERT_TRUE(!is_bf16 || !states.m || same_bits(rounded(a.m16_2, a.m_2, 0, key, t), m16, n)) << "m";
    ASSERT_TRUE(!is_bf16 || !states.v || same_bits(rounded(a.v16_2, a.v_2, 1, key, t), v16, n)) << "v";
    ASSERT_TRUE(!c.weights.copy || same_bits(a.copy_2.data(), copy, n)) << "copy";
    ASSERT_TRUE(n == 0 || memcmp(g, grads_before.data(), grads_before.size()) == 0) << "the gradient was changed";
    for (auto *array : {&a.p32, &a.m, &a.v, &a.g32})
        array->expect_guards();
    for (auto *array : {&a.p16, &a.g16, &a.copy, &a.m16, &a.v16, &a.low})
        array->expect_guards();
}

std::string words(const step_case &c, size_t n, size_t shift)
{
    return std::string(c.rule->name) + ", gradients " + zoff_adam_dtype_name(c.grads) + ", weights " + c.weights.name +
           (c.moments == ZOFF_MOMENTS_BF16 ? ", moments bf16" : "") + (c.stream ? ", streaming, " : ", ") + std::to_string(n) +
           " elements, shift " + std::to_string(shift);
}

// The cases of one rule. Rounded moments meet all kinds of weights, each with another type of gradients; a rule without states
// has none. Sanitizers look at addresses, which all types of gradients share.
std::vector<step_case> cases_of(const rule_case *rule)
{
    std::vector<step_case> all;
    const zoff_dtype GRADS[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
    size_t turn = (size_t)rule->rule;
    for (const auto &weights : every_weights_kind()) {
        for (bool stream : {false, true}) {
            if (stream && !weights.copy)
                continue;
            for (unsigned i = 0; i < GRADS_RUN; i++)
                all.push_back({rule, GRADS[(turn + i) % 3], weights, stream, ZOFF_MOMENTS_F32});
            if (rule->states.m || rule->states.v)
                all.push_back({rule, GRADS[(turn + 1) % 3], weights, stream, ZOFF_MOMENTS_BF16});
            turn++;
        }
    }
    return all;
}

class kernels_update : public kernel_tables
{
};
ZOFF_EVERY_TABLE(kernels_update);

// A short run shifts every other size, and takes a large array in every eighth case: kernels_bits compares the tables with each
// other on large arrays in every case.
TEST_P(kernels_update, equals_the_oracle)
{
    const size_t large = zoff_test::is_full_run() ? 1 : 8;
    arrays a;
    size_t cases = 0;
    const std::vector<rule_case> rules = every_rule_and_pass();
    std::set<int> met;
    for (const auto &rule : rules)
        met.insert(rule.rule);
    ASSERT_EQ(met.size(), (size_t)ZOFF_RULE_COUNT);
    for (const auto &rule : rules) {
        for (const auto &c : cases_of(&rule)) {
            cases++;
            for (size_t n : sizes()) {
                for (size_t shift : {0, 1}) {
                    if (n == LARGE ? shift != cases % 2 || cases % large : shift != (n + cases) % 2 && large > 1)
                        continue;
                    check_step(table, a, c, n, shift, shift);
                    ASSERT_FALSE(HasFatalFailure()) << words(c, n, shift);
                }
            }
        }
    }
    EXPECT_EQ(cases, 19u * GRADS_RUN * 8 + 15 * 8);
}

// A streaming store needs an aligned address, but the array may begin anywhere. Tests each 2-byte offset up to 32 bytes and
// more.
TEST_P(kernels_update, streamed_copies_may_begin_anywhere)
{
    arrays a;
    const std::vector<rule_case> rules = every_rule();
    for (const auto &rule : rules) {
        for (const auto &c : cases_of(&rule)) {
            for (size_t n = 0; c.stream && n <= 130; n += n < 66 ? 1 : 13) {
                for (size_t offset = 0; offset < 16; offset++) {
                    if ((n + offset) % 3 && rule.rule != ZOFF_RULE_ADAM_DECOUPLED)
                        continue; // the code that stores is the same for all rules
                    check_step(table, a, c, n, 0, offset);
                    ASSERT_FALSE(HasFatalFailure()) << words(c, n, offset);
                }
            }
        }
    }
}

// A step that moves nothing keeps every word of a master in two halves, and makes every NaN the canonical one. The long run
// takes all 2^32 words, the short one every 65,521st.
TEST_P(kernels_update, split_masters_keep_every_word)
{
    enum { N = 4096 };
    zoff_optimizer_hyper hyper;
    zoff_adam_consts consts;
    zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_SGD);
    hyper.lr = 0;
    zoff_adam_hyper_consts(&hyper, 1, 1, &consts);
    std::vector<uint16_t> high(N), low(N), high_2(N), low_2(N), g(N);
    zoff_adam_piece piece = {};
    piece.count = N;
    piece.master = high.data();
    piece.low = low.data();
    piece.split = true;
    piece.master_dtype = piece.grad_dtype = ZOFF_BF16;
    piece.grad = g.data();
    piece.consts = &consts;
    const uint64_t stride = zoff_test::is_full_run() ? 1 : 65521;
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += N * stride) {
        for (size_t i = 0; i < N; i++) {
            const auto word = (uint32_t)(first + i * stride);
            const bool is_nan = (word & 0x7fffffff) > 0x7f800000;
            high[i] = (uint16_t)((word + 0x8000) >> 16);
            low[i] = (uint16_t)word;
            high_2[i] = is_nan ? 0x7fc0 : high[i];
            low_2[i] = is_nan ? 0 : low[i];
        }
        table->update(&piece, 0, N);
        ASSERT_EQ(high_2, high) << "from " << first;
        ASSERT_EQ(low_2, low) << "from " << first;
    }
}
} // namespace
