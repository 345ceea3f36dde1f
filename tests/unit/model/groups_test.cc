/* SPDX-License-Identifier: Apache-2.0 */
// groups_test.cc: which hyper-parameters a group has in a step, and that no step needs states that were not laid out.
#include "allocation_fault.h"
#include "small_model.h"

#include <math.h>
#include <stddef.h>

using namespace zoff_test;

namespace
{
zoff_optimizer_hyper hyper_of(zoff_optimizer optimizer, double lr = 0.25, double momentum = 0)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, optimizer);
    h.lr = lr;
    h.momentum = momentum;
    return h;
}

class Groups : public testing::Test
{
  protected:
    // A trained parameter in each of `count` groups.
    void use(unsigned count)
    {
        zoff_param_desc d = describe("p", 4);
        for (d.group = 0; d.group < count; d.group++)
            parts.add(d);
    }
    zoff_status set(unsigned group, const zoff_optimizer_hyper &h) { return zoff_model_groups_set(m, group, &h, "set"); }
    // The lr of a group in step `t`; negative: an error.
    double lr_of(const zoff_step_args &args, size_t group, int64_t t = 1)
    {
        zoff_optimizer_hyper h = {};
        return zoff_model_groups_of_step(m, &args, group, t, &h) == ZOFF_OK ? h.lr : -1;
    }

    small_model parts;
    zoff_model *m = &parts.m;
    const zoff_step_args no_args = {};
};

TEST_F(Groups, TheListNeverGetsShorter)
{
    ASSERT_ZOFF_OK(zoff_model_groups_reserve(m, 20));
    EXPECT_EQ(21u, m->group_count);
    ASSERT_ZOFF_OK(zoff_model_groups_reserve(m, 3));
    EXPECT_EQ(21u, m->group_count);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "group 1048576 is out of range: groups are dense, from 0, and below 1048576",
                      zoff_model_groups_reserve(m, 1 << 20));
    EXPECT_EQ(21u, m->group_count);
}

TEST_F(Groups, HaveTheHyperParametersOfTheConfigurationUntilTheyAreSet)
{
    use(2);
    parts.values.hyper.lr = 0.5;
    EXPECT_EQ(&parts.values.hyper, zoff_model_groups_own(m, 1));
    ASSERT_ZOFF_OK(set(1, hyper_of(ZOFF_OPTIMIZER_ADAM, 0.125)));
    EXPECT_EQ(0.5, zoff_model_groups_own(m, 0)->lr);
    EXPECT_EQ(0.125, zoff_model_groups_own(m, 1)->lr);
}

// An older caller has a shorter struct.
TEST_F(Groups, FieldsThatACallerDoesNotKnowAreDefaults)
{
    use(1);
    zoff_optimizer_hyper h = hyper_of(ZOFF_OPTIMIZER_ADAM, 0.125);
    h.struct_size = offsetof(zoff_optimizer_hyper, flags);
    h.flags = 12345;
    ASSERT_ZOFF_OK(set(0, h));
    EXPECT_EQ(0.125, m->groups[0].hyper.lr);
    EXPECT_EQ(0u, m->groups[0].hyper.flags);
    EXPECT_EQ(sizeof h, m->groups[0].hyper.struct_size);
}

TEST_F(Groups, ValuesOutOfRangeAreRefusedByGroupAndNothingChanges)
{
    use(1);
    zoff_optimizer_hyper h = hyper_of(ZOFF_OPTIMIZER_ADAM);
    h.beta1 = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "set: group 7: beta1 is 1; it must lie in [0, 1)", set(7, h));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "set: group 0: beta1 is 1", set(0, h));
    EXPECT_EQ(1u, m->group_count);
    EXPECT_FALSE(m->groups[0].set);
}

TEST_F(Groups, WithoutMemoryNothingIsSet)
{
    const int failures = fail_each_allocation([&] {
        small_model own;
        const zoff_optimizer_hyper h = hyper_of(ZOFF_OPTIMIZER_ADAM);
        const zoff_status status = zoff_model_groups_set(&own.m, 3, &h, "set");
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
        EXPECT_EQ(status == ZOFF_OK ? 4u : 0u, own.m.group_count);
    });
    EXPECT_EQ(1, failures);
}

TEST_F(Groups, StatesAreFixedWhenTheyAreLaidOut)
{
    use(1);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.1, 0.5)));
    EXPECT_TRUE(zoff_model_groups_states(m, 0).m);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_ADAM)));
    EXPECT_TRUE(zoff_model_groups_states(m, 0).v);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.1, 0.5)));
    zoff_model_groups_fix(m);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.1))) << "a momentum of 0 leaves the state alone";
    EXPECT_TRUE(zoff_model_groups_states(m, 0).m);
    EXPECT_FALSE(zoff_model_groups_states(m, 0).v);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.1, 0.75))) << "and it may come back";
}

TEST_F(Groups, OtherStatesAreRefusedAfterSeal)
{
    use(2);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.5)));
    ASSERT_ZOFF_OK(set(2, hyper_of(ZOFF_OPTIMIZER_LION))); // no parameter has this group
    zoff_model_groups_fix(m);
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_STATE,
        "set: group 0 was sealed for SGD without momentum and has no states for SGD with momentum; choose the optimizer",
        set(0, hyper_of(ZOFF_OPTIMIZER_SGD, 0.25, 0.5)));
    EXPECT_EQ(std::string::npos, std::string(zoff_last_error()).find("zoff_optimizer_hyper_init"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "set: group 1 was sealed for Adam and has no states for Adagrad; choose the optimizer",
                      set(1, hyper_of(ZOFF_OPTIMIZER_ADAGRAD)));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("zoff_optimizer_hyper_init() fills in"));
    EXPECT_EQ(0.5, zoff_model_groups_own(m, 0)->lr);
    EXPECT_FALSE(m->groups[1].set);
    EXPECT_ZOFF_OK(set(2, hyper_of(ZOFF_OPTIMIZER_ADAM))) << "nothing of it is trained";
    // Give the hyper-parameters with the call.
    const zoff_optimizer_hyper lion = hyper_of(ZOFF_OPTIMIZER_LION);
    zoff_step_args args = {};
    args.hyper = &lion;
    args.hyper_count = 1;
    zoff_optimizer_hyper h = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step: group 1 was sealed for Adam and has no states for Lion",
                      zoff_model_groups_of_step(m, &args, 1, 1, &h));
    EXPECT_EQ(0u, h.struct_size) << "nothing was written";
}

TEST_F(Groups, EveryOptimizerHasAName)
{
    EXPECT_STREQ("Adam", zoff_model_groups_optimizer(ZOFF_OPTIMIZER_ADAM, {true, true}));
    EXPECT_STREQ("Adagrad", zoff_model_groups_optimizer(ZOFF_OPTIMIZER_ADAGRAD, {false, true}));
    EXPECT_STREQ("Lion", zoff_model_groups_optimizer(ZOFF_OPTIMIZER_LION, {true, false}));
    EXPECT_STREQ("SGD with momentum", zoff_model_groups_optimizer(ZOFF_OPTIMIZER_SGD, {true, false}));
    EXPECT_STREQ("SGD without momentum", zoff_model_groups_optimizer(ZOFF_OPTIMIZER_SGD, {false, false}));
}

TEST_F(Groups, AStepTakesWhatTheCallGives)
{
    use(3);
    ASSERT_ZOFF_OK(set(3, hyper_of(ZOFF_OPTIMIZER_ADAM, 0.875))); // no parameter has this group
    zoff_model_groups_fix(m);
    const zoff_optimizer_hyper each[] = {hyper_of(ZOFF_OPTIMIZER_ADAM, 0.25), hyper_of(ZOFF_OPTIMIZER_ADAM, 0.5),
                                         hyper_of(ZOFF_OPTIMIZER_ADAM, 0.75)};
    zoff_step_args args = {};
    args.hyper = each;
    args.hyper_count = 3;
    EXPECT_EQ(0.25, lr_of(args, 0));
    EXPECT_EQ(0.75, lr_of(args, 2));
    EXPECT_EQ(0.875, lr_of(args, 3)) << "what nobody uses need not be given";
    args.hyper_stride = 2 * sizeof each[0];
    args.hyper_count = 2;
    EXPECT_EQ(0.75, lr_of(args, 1));
    args.hyper_count = 1;
    EXPECT_EQ(0.25, lr_of(args, 2)) << "one for all";
    EXPECT_EQ(parts.values.hyper.lr, lr_of(no_args, 2));
}

TEST_F(Groups, HyperParametersOfACallAreChecked)
{
    use(2);
    zoff_model_groups_fix(m);
    zoff_optimizer_hyper each[] = {hyper_of(ZOFF_OPTIMIZER_ADAM), hyper_of(ZOFF_OPTIMIZER_ADAM)}, out = {};
    zoff_step_args args = {};
    const auto of_step = [&](size_t group) { return zoff_model_groups_of_step(m, &args, group, 1, &out); };
    args.hyper = each;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step_args.hyper is set and hyper_count is 0: ", of_step(0));
    args.hyper_count = 2;
    for (size_t stride : {sizeof each[0] - 8, sizeof each[0] + 4}) {
        args.hyper_stride = stride;
        EXPECT_ZOFF_OK(of_step(0)) << "the first one lies where it lies";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "zoff_step: hyper_stride is " + std::to_string(stride) + ", but hyper[0] has 120 bytes", of_step(1));
    }
    args.hyper_stride = 0;
    each[1].struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "zoff_step: hyper[1]: zoff_optimizer_hyper.struct_size is 0; start from zoff_optimizer_hyper_init()",
                      of_step(1));
    each[1] = hyper_of(ZOFF_OPTIMIZER_ADAM, NAN);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 1: lr is nan", of_step(1));
    EXPECT_EQ(0.25, lr_of(args, 0));
}

TEST_F(Groups, TheScheduleActsOnAGroupsOwn)
{
    use(1);
    ASSERT_ZOFF_OK(set(0, hyper_of(ZOFF_OPTIMIZER_ADAM, 0.5)));
    parts.values.schedule.type = ZOFF_SCHEDULE_WARMUP;
    parts.values.schedule.max_lr = -1;
    parts.values.schedule.warmup = 4;
    parts.values.schedule.linear = true;
    zoff_model_groups_fix(m);
    EXPECT_EQ(0.25, lr_of(no_args, 0, 4));
    const zoff_optimizer_hyper given = hyper_of(ZOFF_OPTIMIZER_ADAM, 0.75);
    zoff_step_args args = {};
    args.hyper = &given;
    args.hyper_count = 1;
    EXPECT_EQ(0.75, lr_of(args, 0, 4)) << "and not on what the call gives";
    EXPECT_EQ(0.5, zoff_model_groups_own(m, 0)->lr) << "and changes none of it";
    // An error says where the number comes from.
    zoff_optimizer_hyper out = {};
    parts.values.schedule.min_lr = -4;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0, values of the scheduler: lr is -4",
                      zoff_model_groups_of_step(m, &no_args, 0, 1, &out));
    parts.values.schedule.type = ZOFF_SCHEDULE_NONE;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0: step number t is 0",
                      zoff_model_groups_of_step(m, &no_args, 0, 0, &out));
}
} // namespace
