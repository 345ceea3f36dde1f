/* SPDX-License-Identifier: Apache-2.0 */
// ties_test.cc: which parameters are tied, what this changes in the list, and that nothing changes without ties.
#include "allocation_fault.h"
#include "small_model.h"

#include <string.h>

using namespace zoff_test;

namespace
{
class TiedParams : public testing::Test
{
  protected:
    zoff_param_desc at(const char *name, size_t value, size_t grad, size_t count = 100)
    {
        zoff_param_desc d = describe(name, count);
        d.dtype = ZOFF_BF16;
        d.value = w + value;
        d.grad = g + grad;
        return d;
    }
    // The list as bytes. Names are pointers, which stay.
    std::string list() const { return std::string((const char *)parts.m.params, parts.m.param_count * sizeof *parts.m.params); }
    std::vector<uint32_t> members(size_t tie) const
    {
        const zoff_tie &t = parts.m.ties.all[tie];
        return std::vector<uint32_t>(parts.m.ties.members + t.first, parts.m.ties.members + t.first + t.count);
    }
    void expect_none() const
    {
        EXPECT_EQ(0u, parts.m.ties.count);
        EXPECT_EQ(0u, parts.m.ties.member_count);
        EXPECT_EQ(nullptr, parts.m.ties.all);
    }

    small_model parts;
    zoff_model *m = &parts.m;
    uint16_t w[1000] = {}, g[1000] = {};
};

TEST_F(TiedParams, TheFirstOneOwnsTheWeights)
{
    parts.add(at("other", 500, 500));
    parts.add(at("wte", 0, 0));
    parts.add(at("alone", 700, 700));
    parts.add(at("lm_head", 0, 100));
    const std::string before = list();
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    ASSERT_EQ(1u, m->ties.count);
    EXPECT_EQ(1u, m->ties.all[0].owner);
    EXPECT_EQ((std::vector<uint32_t>{1, 3}), members(0));
    EXPECT_EQ(1u, m->params[1].tie);
    EXPECT_EQ(1u, m->params[3].tie);
    EXPECT_EQ(0u, m->params[0].tie);
    EXPECT_EQ(1u, zoff_model_params_owner(m, 3));
    EXPECT_EQ(2u, zoff_model_params_owner(m, 2));
    EXPECT_FALSE(m->params[1].frozen);
    EXPECT_TRUE(m->params[3].frozen) << "nothing of it is trained but by its owner";
    EXPECT_EQ(ZOFF_F32, m->params[1].grad_dtype) << "the sum of all";
    EXPECT_EQ(400u, m->params[1].grad_stride);
    EXPECT_EQ(ZOFF_BF16, m->ties.all[0].given.dtype);
    EXPECT_EQ(200u, m->ties.all[0].given.stride);
    EXPECT_EQ((char *)g, m->ties.all[0].given.grad);
    zoff_model_ties_dissolve(m);
    EXPECT_EQ(before, list());
    expect_none();
}

TEST_F(TiedParams, EachSetOfWeightsIsATieOfItsOwn)
{
    for (size_t i = 0; i < 6; i++)
        parts.add(at("p", 200 * (i % 3), 100 * i));
    parts.add(at("p", 0, 600));
    const std::string before = list();
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    ASSERT_EQ(3u, m->ties.count);
    EXPECT_EQ((std::vector<uint32_t>{0, 3, 6}), members(0));
    EXPECT_EQ((std::vector<uint32_t>{1, 4}), members(1));
    EXPECT_EQ((std::vector<uint32_t>{2, 5}), members(2));
    zoff_model_ties_dissolve(m);
    EXPECT_EQ(before, list());
}

TEST_F(TiedParams, SumsLieOneBehindTheOther)
{
    zoff_param_desc d = at("wte", 0, 0, 10);
    d.slices = 3;
    parts.add(d);
    parts.add(at("b", 500, 500, 7));
    d.grad = g + 100;
    parts.add(d);
    parts.add(at("b", 500, 600, 7));
    EXPECT_EQ(0u, zoff_model_ties_bytes(m));
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    EXPECT_EQ((30u + 7u) * 4, zoff_model_ties_bytes(m));
    alignas(4) char sums[37 * 4];
    zoff_model_ties_place(m, sums);
    EXPECT_EQ(sums, m->params[0].grad);
    EXPECT_EQ(sums + 30 * 4, m->params[1].grad);
    EXPECT_EQ((char *)(g + 100), m->params[2].grad) << "of a name it is what the program gave";
}

TEST_F(TiedParams, OnlyTheSameWeightsThatAreTrainedAreTied)
{
    zoff_param_desc frozen = at("frozen", 0, 0), owned = at("owned", 100, 0), bare = at("bare", 0, 0), empty = at("e", 200, 0);
    frozen.frozen = owned.engine_owned = true;
    owned.grad = bare.grad = bare.value = nullptr;
    empty.count = 0;
    for (int twice = 0; twice < 2; twice++) {
        for (const zoff_param_desc &d : {frozen, owned, bare, empty})
            parts.add(d);
    }
    const std::string before = list();
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    EXPECT_EQ(0u, m->ties.count);
    EXPECT_EQ(before, list());
}

TEST_F(TiedParams, TheStrideOfOneSliceMeansNothing)
{
    zoff_param_desc d = at("wte", 0, 0, 10);
    parts.add(d);
    d.value_stride = 20;
    d.grad = g + 100;
    parts.add(d);
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    EXPECT_EQ(1u, m->ties.count);
}

TEST_F(TiedParams, OneMasterHasOneGroup)
{
    parts.add(at("a", 500, 500));
    parts.add(at("a", 500, 600));
    zoff_param_desc head = at("lm_head", 0, 100);
    head.group = 1;
    parts.add(at("wte", 0, 0));
    parts.add(head);
    const std::string before = list();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_seal: wte and lm_head share their weights, but their groups are 0 and 1",
                      zoff_model_ties_find(m));
    EXPECT_EQ(before, list());
    expect_none();
}

// The engine adds up their gradients, so all of them come reduced, or none.
TEST_F(TiedParams, OneMasterHasOneReduction)
{
    zoff_param_desc head = at("lm_head", 0, 100);
    head.reduced = true;
    parts.add(at("wte", 0, 0));
    parts.add(head);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "but only those of lm_head are reduced over the ranks", zoff_model_ties_find(m));
    expect_none();
    m->params[0].reduced = true;
    EXPECT_ZOFF_OK(zoff_model_ties_find(m));
}

TEST_F(TiedParams, OneMasterHasOneShape)
{
    const size_t dims[] = {20, 5};
    zoff_param_desc wte = at("wte", 0, 0), head = at("lm_head", 0, 100);
    wte.dims = dims;
    wte.dim_count = 2;
    head.slice_name = "head{}"; // a tied name may have a pattern of its own
    parts.add(wte);
    parts.add(head);
    const std::string before = list();
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "zoff_engine_seal: wte and lm_head share their weights, but their shapes are [20, 5] and [100]: give both "
        "the same zoff_param_desc.dims",
        zoff_model_ties_find(m));
    EXPECT_EQ(before, list());
    expect_none();
}

TEST_F(TiedParams, TheSameShapeMayBeGivenByEachName)
{
    const size_t dims[] = {20, 5}, same[] = {20, 5};
    zoff_param_desc wte = at("wte", 0, 0), head = at("lm_head", 0, 100);
    wte.dims = dims;
    head.dims = same;
    wte.dim_count = head.dim_count = 2;
    parts.add(wte);
    parts.add(head);
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    EXPECT_EQ(1u, m->ties.count);
}

TEST_F(TiedParams, WhereBuffersOverlapNothingIsTied)
{
    parts.add(at("wte", 0, 0));
    parts.add(at("lm_head", 0, 100));
    parts.add(at("in the way", 99, 200));
    const std::string before = list();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_seal: the weights of wte and in the way overlap", zoff_model_ties_find(m));
    EXPECT_EQ(before, list());
    expect_none();
}

TEST_F(TiedParams, WithoutMemoryNothingIsTied)
{
    for (size_t i = 0; i < 4; i++)
        parts.add(at("p", 200 * (i % 2), 100 * i));
    const std::string before = list();
    const int failures = fail_each_allocation([&] {
        const zoff_status status = zoff_model_ties_find(m);
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
        EXPECT_EQ(status == ZOFF_OK ? 2u : 0u, m->ties.count);
        zoff_model_ties_dissolve(m);
        EXPECT_EQ(before, list());
    });
    EXPECT_EQ(4, failures) << "the list, ties and members, regions";
}

TEST_F(TiedParams, BuffersOfATieMoveTogether)
{
    parts.add(at("wte", 0, 0));
    parts.add(at("lm_head", 0, 100));
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    alignas(4) char sums[400];
    zoff_model_ties_place(m, sums);
    zoff_model_ties_bind(m, 1, w + 300, g + 400);
    EXPECT_EQ((char *)(w + 300), m->params[0].value);
    EXPECT_EQ((char *)(w + 300), m->params[1].value);
    EXPECT_EQ((char *)(g + 400), m->params[1].grad);
    EXPECT_EQ((char *)g, m->ties.all[0].given.grad);
    zoff_model_ties_bind(m, 0, nullptr, g + 500);
    EXPECT_EQ((char *)(w + 300), m->params[0].value) << "NULL leaves it as it is";
    EXPECT_EQ((char *)(g + 500), m->ties.all[0].given.grad);
    EXPECT_EQ(sums, m->params[0].grad) << "the sum stays where it is";
}

TEST_F(TiedParams, OverlapsAreLookedForOnceAfterBuffersHaveMoved)
{
    parts.add(at("a", 0, 0));
    parts.add(at("b", 100, 100));
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    m->params[1].value = (char *)(w + 50);
    EXPECT_ZOFF_OK(zoff_model_ties_check(m)) << "nothing was bound";
    m->ties.rebound = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step, after zoff_param_bind(): the weights of a and b overlap",
                      zoff_model_ties_check(m));
    EXPECT_TRUE(m->ties.rebound) << "the next step looks again";
    m->params[1].value = (char *)(w + 100);
    EXPECT_ZOFF_OK(zoff_model_ties_check(m));
    EXPECT_FALSE(m->ties.rebound);
}
} // namespace
