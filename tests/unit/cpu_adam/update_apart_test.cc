/* SPDX-License-Identifier: Apache-2.0 */
// update_apart_test.cc: a step whose results go to another place has the bits of a step in place. The old states stay as they
// are, and nothing is written beside the new places. Tested with every rule, format and table of kernels, any alignment and any
// cut.
#include "every_rule.h"
#include "kernel_tables.h"
#include "oracle.h"

extern "C" {
#include "update_priv.h"
}

#include <algorithm>
#include <string.h>
#include <string>

using kernel_data::random_source;

namespace
{
constexpr size_t LINE = 64, GUARD = 2 * LINE;
constexpr unsigned char UNWRITTEN = 0xa5;
struct alignas(LINE) line {
    unsigned char bytes[LINE];
};

// An array that begins this many bytes behind a line's border, between guards.
struct place {
    size_t begin = 0, bytes = 0;
    std::vector<line> memory;

    place() = default;
    place(size_t count, size_t shift) : begin(GUARD + shift), bytes(count), memory((count + shift + 2 * GUARD) / LINE + 1)
    {
        memset(memory.data(), UNWRITTEN, memory.size() * LINE);
    }
    const unsigned char *first() const { return (const unsigned char *)memory.data() + begin; }
    void *at() { return bytes ? (unsigned char *)memory.data() + begin : nullptr; }
    bool same_as(const place &other) const
    {
        return bytes == other.bytes && (!bytes || !memcmp(first(), other.first(), bytes));
    }
    bool is_guarded() const
    {
        const auto *all = (const unsigned char *)memory.data();
        const auto written = [](unsigned char byte) { return byte != UNWRITTEN; };
        return !bytes || (std::none_of(all, all + begin, written) &&
                          std::none_of(all + begin + bytes, all + memory.size() * LINE, written));
    }
};

struct format {
    rule_case rule;
    weights_kind weights;
    zoff_dtype grads;
    zoff_moments moments;
};

// Every combination that the kernels have.
std::vector<format> every_format()
{
    std::vector<format> all;
    for (const auto &rule : every_rule_and_pass()) {
        for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (const auto &weights : every_weights_kind()) {
                for (zoff_moments moments : {ZOFF_MOMENTS_F32, ZOFF_MOMENTS_BF16, ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8}) {
                    const bool has_codes = moments >= ZOFF_MOMENTS_M8V16;
                    if (!has_codes || (rule.states.m && rule.states.v && weights.master == ZOFF_F32))
                        all.push_back({rule, weights, grads, moments});
                }
            }
        }
    }
    return all;
}

// The arrays of a tensor, each with a shift of its own.
struct tensor {
    format as;
    size_t count;
    zoff_adam_consts consts;
    place master, m, v, second, grad; // second: lower halves or a copy

    tensor(const format &f, size_t n, size_t seed) : as(f), count(n)
    {
        const size_t width = master_width(), grad_width = zoff_adam_dtype_bytes(f.grads);
        consts = consts_of(f.rule, 3, 0.37);
        master = place(n * width, seed % 16 * width);
        grad = place(n * grad_width, seed / 2 % 8 * grad_width);
        if (f.weights.split || f.weights.copy)
            second = place(2 * n, seed % 5 * 2);
        if (f.rule.states.m)
            m = state(ZOFF_MOMENT_M, seed % 7);
        if (f.rule.states.v)
            v = state(ZOFF_MOMENT_V, seed % 3);
        if (n)
            fill(random_source(seed + 1));
    }
    size_t master_width() const { return as.weights.split ? 2 : zoff_adam_dtype_bytes(as.weights.master); }
    place state(zoff_moment which, size_t shift) const
    {
        const bool is_bytes = zoff_adam_moments_in_blocks(as.moments, which);
        return {zoff_adam_moments_size(as.moments, which, count), shift * (is_bytes ? 1 : 4)};
    }
    void fill(random_source random)
    {
        std::vector<float> numbers(count);
        for (size_t i = 0; i < count; i++) {
            oracle_store(master.at(), as.weights.split ? ZOFF_BF16 : as.weights.master, i, kernel_data::number(random, false));
            oracle_store(grad.at(), as.grads, i, kernel_data::number(random, false));
            if (as.weights.split)
                ((uint16_t *)second.at())[i] = (uint16_t)(random.next() >> 32);
        }
        for (place *moment : {&m, &v}) {
            for (auto &x : numbers)
                x = moment == &v ? __builtin_fabsf(kernel_data::number(random, false)) : kernel_data::number(random, false);
            if (moment->bytes)
                zoff_adam_moments_store(as.moments, moment == &v ? ZOFF_MOMENT_V : ZOFF_MOMENT_M, moment->at(), count, 0, count,
                                        numbers.data());
        }
    }
    zoff_adam_piece piece()
    {
        zoff_adam_piece p = {};
        p.count = count;
        p.master = master.at();
        p.m = m.at();
        p.v = v.at();
        p.grad = grad.at();
        p.copy_out = second.at();
        p.grad_dtype = as.grads;
        p.copy_dtype = as.weights.copy;
        p.consts = &consts;
        const bool is_default = as.weights.master == ZOFF_F32 && count % 2; // use both words for fp32
        p.master_dtype = as.weights.split ? ZOFF_BF16 : is_default ? ZOFF_DTYPE_DEFAULT : as.weights.master;
        p.moments = (uint8_t)as.moments;
        p.split = as.weights.split;
        p.key = zoff_adam_dither_key("w", 3, 0) + count;
        return p;
    }
    std::string name() const
    {
        return std::string(as.rule.name) + ", gradients " + zoff_adam_dtype_name(as.grads) + ", weights " + as.weights.name +
               ", moments " + zoff_adam_moments_name(as.moments) + ", " + std::to_string(count) + " elements";
    }
};

enum { MASTER = 1, M = 2, V = 4, LOW = 8 };

// A tensor with the new places of its states, and the same after a step in place. `kept`: arrays that are updated in place.
struct trial {
    unsigned kept;
    tensor expected, old, before;
    place master, m, v, second;

    trial(const format &f, size_t n, size_t seed, unsigned kept_arrays)
        : kept(kept_arrays), expected(f, n, seed), old(expected), before(expected)
    {
        master = place(old.master.bytes, seed / 3 % 16 * old.master_width());
        m = place(old.m.bytes, seed % 9 * 4);
        v = place(old.v.bytes, seed % 11 * 4);
        second = place(old.second.bytes, seed % 13 * 2);
    }
    zoff_adam_apart apart()
    {
        zoff_adam_apart a = {};
        a.old = old.piece();
        a.master = kept & MASTER ? a.old.master : master.at();
        a.m = kept & M ? a.old.m : m.at();
        a.v = kept & V ? a.old.v : v.at();
        if (old.as.weights.split)
            a.low = kept & LOW ? a.old.low : (uint16_t *)second.at();
        else
            a.old.copy_out = second.at();
        return a;
    }
    void expect_array(const char *what, const place &want, const place &was, const place &source, const place &fresh,
                      bool in_place) const
    {
        EXPECT_TRUE(want.same_as(in_place ? source : fresh)) << what << " has other bits";
        EXPECT_TRUE(in_place || was.same_as(source)) << "the old " << what << " was changed";
        EXPECT_TRUE(source.is_guarded() && fresh.is_guarded()) << "bytes beside " << what << " were written";
        const place untouched(fresh.bytes, 0);
        EXPECT_TRUE(!in_place || untouched.same_as(fresh)) << "the other place of " << what << " was written";
    }
    void expect_right() const
    {
        SCOPED_TRACE(old.name() + ", in place: " + std::to_string(kept));
        expect_array("master", expected.master, before.master, old.master, master, kept & MASTER);
        expect_array("m", expected.m, before.m, old.m, m, kept & M);
        expect_array("v", expected.v, before.v, old.v, v, kept & V);
        expect_array(old.as.weights.split ? "low" : "copy", expected.second, before.second, old.second, second,
                     old.as.weights.split && kept & LOW);
        EXPECT_TRUE(before.grad.same_as(old.grad)) << "the gradient was changed";
    }
};

// Any set of arrays, but mostly none.
unsigned kept_of(size_t k)
{
    return k % 3 ? 0 : (unsigned)(k / 3 % 16);
}
} // namespace

class update_apart : public kernel_tables
{
  protected:
    // Streaming or not, at once or cut at a block.
    void step(trial *t, bool stream, bool cut)
    {
        const zoff_adam_piece in_place = t->expected.piece();
        zoff_adam_apart apart = t->apart();
        apart.old.stream = stream;
        if (!t->old.count)
            return;
        table->update(&in_place, 0, in_place.count);
        const size_t first = cut && apart.old.count > ZOFF_NORM_BLOCK ? ZOFF_NORM_BLOCK : 0;
        if (first)
            table->update_apart(&apart, 0, first);
        table->update_apart(&apart, first, apart.old.count - first);
    }
};

TEST_P(update_apart, has_the_bits_of_a_step_in_place)
{
    const size_t counts[] = {1, 15, 33, 64, 65, 1000, 1023, 1024, 1025, 2 * 1024 + 100, 3 * 1024};
    size_t k = 0;
    for (const auto &f : every_format()) {
        for (unsigned form = 0; form < 4; form++, k++) {
            trial t(f, counts[k % 11], k, kept_of(k / 4));
            step(&t, form & 1, form & 2);
            t.expect_right();
        }
        ASSERT_FALSE(HasFailure());
    }
}

// Every address of old and new places, modulo a line.
TEST_P(update_apart, works_at_any_address)
{
    const auto all = every_format();
    const auto adamw = [](const format &f) { return f.rule.rule == ZOFF_RULE_ADAM_DECOUPLED && f.grads == ZOFF_BF16; };
    for (auto f = std::find_if(all.begin(), all.end(), adamw); f != all.end() && adamw(*f); ++f) {
        for (size_t seed = 0; seed < 64; seed++) {
            trial t(*f, 1024 + 10 * seed + 1, seed * 13, 0);
            step(&t, true, seed % 2);
            t.expect_right();
        }
        ASSERT_FALSE(HasFailure());
    }
}

ZOFF_EVERY_TABLE(update_apart);

namespace
{
// A list of pieces, against the same list in place.
void run_list(const std::vector<format> &formats, const std::vector<size_t> &counts, unsigned threads)
{
    std::vector<trial> trials;
    for (size_t k = 0; k < formats.size(); k++)
        trials.emplace_back(formats[k], counts[k % counts.size()], k, kept_of(k));
    std::vector<zoff_adam_piece> in_place;
    std::vector<zoff_adam_apart> apart;
    for (auto &t : trials) {
        in_place.push_back(t.expected.piece());
        apart.push_back(t.apart());
    }
    int calls = 0;
    const zoff_adam_between count = [](void *ctx) { ++*static_cast<int *>(ctx); };
    zoff_adam_update_run(1, in_place.data(), in_place.size(), nullptr, nullptr);
    zoff_adam_update_apart_run(threads, apart.data(), apart.size(), count, &calls);
    EXPECT_GT(calls, 0);
    for (size_t k = 0; k < trials.size(); k++) {
        trials[k].expect_right();
        EXPECT_FALSE(apart[k].old.stream) << "the list is the caller's";
    }
}
} // namespace

TEST(update_apart_run, gives_the_same_bits_with_any_number_of_threads)
{
    std::vector<format> some;
    const auto all = every_format();
    for (size_t k = 0; k < all.size(); k += 23)
        some.push_back(all[k]);
    for (unsigned threads = 1; threads <= 5; threads++)
        run_list(some, {70001, 0, 1, 40 * 1024, 1023, 100003, 5 * 1024 + 7}, threads);
}

TEST(update_apart_run, gives_the_same_bits_past_the_caches)
{
    const auto all = every_format();
    const size_t formats = 8, least_bytes = 14; // bytes of an element
    const size_t most = ((size_t)64 << 20) / formats / least_bytes + 1;
    std::vector<format> some;
    for (const auto &f : all) {
        if (f.rule.rule == ZOFF_RULE_ADAM && f.grads == ZOFF_BF16 && (f.weights.split || f.weights.copy == ZOFF_BF16))
            some.push_back(f);
    }
    ASSERT_EQ(formats, some.size());
    for (unsigned threads : {1u, 2u})
        run_list(some, {most}, threads);
}

TEST(update_apart_run, nothing_to_do_is_legal)
{
    zoff_adam_consts consts = {};
    zoff_adam_apart empty = {};
    empty.old.consts = &consts;
    zoff_adam_update_apart_run(2, nullptr, 0, nullptr, nullptr);
    zoff_adam_update_apart_run(2, &empty, 1, nullptr, nullptr);
}
