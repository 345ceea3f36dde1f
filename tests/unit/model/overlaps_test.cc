/* SPDX-License-Identifier: Apache-2.0 */
// overlaps_test.cc: which buffers of two parameters may lie in the same memory, and which may not.
#include "allocation_fault.h"
#include "small_model.h"

using namespace zoff_test;

namespace
{
class Overlaps : public testing::Test
{
  protected:
    zoff_param_desc at(const char *name, size_t value, size_t grad, size_t count = 100)
    {
        zoff_param_desc d = describe(name, count);
        d.value = w + value;
        d.grad = g + grad;
        return d;
    }
    void add(const zoff_param_desc &d) { parts.add(d); }
    // Three parameters with interleaved slices of 10 elements.
    void add_qkv(size_t slices)
    {
        for (size_t i = 0; i < 3; i++) {
            zoff_param_desc d = at("qkv", 10 * i, 10 * i, 10);
            d.slices = slices;
            d.value_stride = d.grad_stride = 30;
            add(d);
        }
    }
    zoff_status check() { return check(&parts.m); }
    static zoff_status check(zoff_model *m)
    {
        m->ties.rebound = true; // as zoff_param_bind() sets it
        return zoff_model_ties_check(m);
    }

    small_model parts;
    float w[1000] = {}, g[1000] = {};
};

TEST_F(Overlaps, NeighboursDoNot)
{
    add(at("b", 100, 0));
    add(at("a", 0, 100));
    add(at("c", 200, 200, 1));
    EXPECT_ZOFF_OK(check());
}

TEST_F(Overlaps, WeightsAreNamedInTheOrderOfTheList)
{
    add(at("high", 99, 0));
    add(at("far", 500, 500));
    add(at("low", 0, 200));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "zoff_step, after zoff_param_bind(): the weights of high and low overlap in memory: each would be updated from",
        check());
    parts.m.params[0].value = (char *)(w + 100);
    EXPECT_ZOFF_OK(check());
}

TEST_F(Overlaps, GradientsAreNamed)
{
    add(at("a", 0, 0));
    add(at("b", 100, 99));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "zoff_step, after zoff_param_bind(): the gradients of a and b overlap in memory: give each a buffer of its own",
        check());
    parts.m.params[1].grad = nullptr;
    EXPECT_ZOFF_OK(check());
}

TEST_F(Overlaps, ALongOneIsSeenUnderManyShortOnes)
{
    add(at("long", 0, 0, 500));
    add(at("behind", 500, 500));
    add(at("inside", 300, 600, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of long and inside overlap", check());
}

TEST_F(Overlaps, AnotherShapeOfTheSameWeightsDoes)
{
    add(at("a", 0, 0));
    zoff_param_desc d = at("b", 0, 100, 50);
    d.slices = 2;
    add(d);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the same value, count, slices, value_stride and dtype", check());
}

TEST_F(Overlaps, SlicesMayLieBetweenThoseOfAnother)
{
    add_qkv(5);
    EXPECT_ZOFF_OK(check());
    add(at("in a gap", 30 * 4 + 9, 500, 1));
    // the last element of a slice overlaps
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of qkv and in a gap overlap", check());
}

// The last slice has a gap behind it, too.
TEST_F(Overlaps, TheGapBehindTheLastSliceIsFree)
{
    zoff_param_desc d = at("slices", 0, 0, 10);
    d.slices = 3;
    d.value_stride = 30;
    add(d);
    add(at("behind", 70, 500));
    EXPECT_ZOFF_OK(check());
}

TEST_F(Overlaps, ReadOnlyMemoryMayBeShared)
{
    zoff_param_desc one = at("one", 0, 0), two = at("two", 50, 0);
    one.frozen = two.frozen = true;
    add(one);
    add(two);
    add(at("trained", 150, 0));
    EXPECT_ZOFF_OK(check()) << "nor are there gradients of a frozen one";
}

TEST_F(Overlaps, AFrozenOneMayNotChange)
{
    zoff_param_desc still = at("still", 50, 500);
    still.frozen = true;
    add(at("wte", 0, 0));
    add(still);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of wte and still overlap in memory, but only still is frozen", check());
    parts.m.params[0].frozen = true;
    parts.m.params[1].frozen = false;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "wte and still overlap in memory, but only wte is frozen", check());
}

TEST_F(Overlaps, ALongFrozenOneIsSeenBehindAShortOne)
{
    zoff_param_desc lengthy = at("long", 0, 0, 500), brief = at("short", 50, 0, 10);
    lengthy.frozen = brief.frozen = true;
    add(lengthy);
    add(brief);
    add(at("wte", 100, 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of long and wte overlap in memory, but only long is frozen", check());
}

TEST_F(Overlaps, MissingBuffersDoNotOverlap)
{
    zoff_param_desc bare = at("bare", 0, 0), owned = at("owned", 50, 0);
    bare.value = bare.grad = nullptr;
    owned.engine_owned = true; // the engine reads its first weights there, and writes elsewhere
    owned.grad = nullptr;
    add(at("a", 0, 0));
    add(bare);
    add(owned);
    add(at("empty", 50, 50, 0));
    EXPECT_ZOFF_OK(check());
}

TEST_F(Overlaps, TiedOnesMayShareOneGradientOrHaveTwo)
{
    for (const auto &[name, grad] : {std::pair("one", 0), std::pair("two", 0), std::pair("three", 100)})
        add(at(name, 0, (size_t)grad));
    ASSERT_ZOFF_OK(zoff_model_ties_find(&parts.m)) << "which asks for overlaps";
    EXPECT_ZOFF_OK(check());
    parts.m.params[2].grad = (char *)(g + 50);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the gradients of one and three overlap", check());
}

TEST_F(Overlaps, WithoutMemoryNothingIsKnown)
{
    add_qkv(9);
    const int failures = fail_each_allocation([&] {
        const zoff_status status = check();
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
    });
    EXPECT_EQ(3, failures) << "one list, which grows twice";
}

// Each two regions of one parameter or of two: weights, frozen ones, gradients. Only frozen weights may share memory, and
// memory that the engine neither reads nor writes later. The second region begins one element before or behind the end of the
// first, or somewhere inside, or in a gap between its slices.
TEST_F(Overlaps, NoTwoRegionsMayShareAnElement)
{
    enum kind { WEIGHTS, FROZEN, OWNED, GRADIENT, KINDS };
    static const char *const NAMES[] = {"weights", "frozen", "owned", "gradient"};
    float *const elsewhere = g + 500;
    for (int one = 0; one < KINDS; one++) {
        for (int two = 0; two < KINDS; two++) {
            for (const bool is_same : {false, true}) {
                for (const int at : {-20, -19, 0, 5, 9, 10, 19, 29, 30, 49, 50}) {
                    if (is_same && !(one != GRADIENT && two == GRADIENT))
                        continue; // a parameter has one weight and one gradient
                    SCOPED_TRACE(std::string(NAMES[one]) + " and " + NAMES[two] + (is_same ? " of one" : "") + " at " +
                                 std::to_string(at));
                    small_model m;
                    // [0, 10), [20, 30), [40, 50) against [at, at + 20).
                    zoff_param_desc first = describe("first", 10), second = describe("second", 20);
                    first.slices = 3;
                    first.value_stride = first.grad_stride = 20;
                    first.value = w + 200;
                    second.value = elsewhere;
                    second.count = 20;
                    (one == GRADIENT ? first.grad : first.value) = w + 100;
                    (two == GRADIENT ? second.grad : second.value) = w + 100 + at;
                    first.frozen = one == FROZEN;
                    second.frozen = two == FROZEN;
                    first.engine_owned = one == OWNED;
                    second.engine_owned = two == OWNED;
                    if (is_same)
                        first.grad = w + 100 + at, first.grad_stride = 20;
                    m.add(first);
                    if (!is_same)
                        m.add(second);
                    bool meets = false;
                    for (int i = 0; i < 3; i++)
                        for (int k = 0; k < (is_same ? 3 : 1); k++) {
                            const int from = at + k * 20, to = from + (is_same ? 10 : 20);
                            meets = meets || (from < i * 20 + 10 && i * 20 < to);
                        }
                    const bool is_used = one != OWNED && two != OWNED && !(is_same && one == FROZEN);
                    const bool may = !meets || !is_used || (one == FROZEN && two == FROZEN);
                    const zoff_status status = check(&m.m);
                    EXPECT_EQ(may ? ZOFF_OK : ZOFF_ERR_INVALID, status) << zoff_last_error();
                    if (!may && (one == GRADIENT) != (two == GRADIENT)) {
                        EXPECT_NE(nullptr, strstr(zoff_last_error(), "the gradient of")) << zoff_last_error();
                    }
                }
            }
        }
    }
}
} // namespace
