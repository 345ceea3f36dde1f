/* SPDX-License-Identifier: Apache-2.0 */
// visits_test.cc: ranks number the calls in which their program waits. Calls inside a call do not count. A call that failed
// gives its number to the next one. A number from another rank is compared.
#include "comm_fault.h"
#include "thread_ranks.h"

using namespace zoff_test;

namespace
{
class Visits : public testing::Test
{
  protected:
    void enter(unsigned rank, unsigned call) { zoff_comm_enter(ranks[rank], &ranks[rank]->common, call, {}); }
    void leave(unsigned rank, bool counts = true) { zoff_comm_exit(ranks[rank], counts); }
    // The calls that a rank would report now.
    std::vector<zoff_comm_visit> visits(unsigned rank)
    {
        zoff_comm_visit all[ZOFF_COMM_VISITS_TOLD];
        const unsigned count = zoff_comm_get_visits(ranks[rank], all, ZOFF_COMM_VISITS_TOLD);
        return {all, all + count};
    }
    // Rank 1 receives rank 0's report, and compares.
    zoff_status hear(double now)
    {
        const std::vector<zoff_comm_visit> told = visits(0);
        zoff_comm_lock(ranks[1]);
        zoff_comm_heard(ranks[1], 0, told.data(), (unsigned)told.size());
        const zoff_comm_call of_all = {};
        const zoff_status status = zoff_comm_watch(ranks[1], &of_all, now);
        zoff_comm_unlock(ranks[1]);
        return status;
    }
    thread_ranks ranks{2, 1};
};
} // namespace

TEST_F(Visits, CallsInsideOfACallDoNotCount)
{
    enter(0, ZOFF_COMM_IN_SEAL);
    enter(0, ZOFF_COMM_IN_FETCH);
    ASSERT_EQ(1u, visits(0).size());
    EXPECT_EQ((unsigned)ZOFF_COMM_IN_SEAL, visits(0)[0].call);
    leave(0);
    leave(0);
    EXPECT_TRUE(visits(0).empty()) << "it is in no call";
    enter(0, ZOFF_COMM_IN_STEP_WAIT);
    ASSERT_EQ(2u, visits(0).size());
    EXPECT_EQ(2u, visits(0)[1].number);
    leave(0);
}

TEST_F(Visits, ACallThatFailedGivesItsNumberToTheNext)
{
    enter(0, ZOFF_COMM_IN_STEP_WAIT);
    leave(0, false);
    enter(0, ZOFF_COMM_IN_DROP);
    ASSERT_EQ(1u, visits(0).size());
    EXPECT_EQ(1u, visits(0)[0].number);
    leave(0);
    zoff_comm_uncount(ranks[0]);
    enter(0, ZOFF_COMM_IN_STEP_BEGIN);
    EXPECT_EQ(1u, visits(0)[0].number);
    leave(0);
}

TEST_F(Visits, TheSameCallsAgreeAndOthersAreNamed)
{
    for (unsigned rank = 0; rank < 2; rank++) {
        enter(rank, ZOFF_COMM_IN_SEAL);
        leave(rank);
        enter(rank, ZOFF_COMM_IN_STEP_WAIT);
    }
    EXPECT_ZOFF_OK(hear(0));
    leave(0);
    enter(0, ZOFF_COMM_IN_DROP);
    EXPECT_ZOFF_OK(hear(0)) << "rank 1 is a call behind";
    leave(1);
    enter(1, ZOFF_COMM_IN_FETCH);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "zoff_grads_drop()", hear(0));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("zoff_param_fetch()")) << zoff_last_error();
    leave(0);
    leave(1);
}

// Two engines have open steps, and a weight of one came to rank 0 first.
TEST_F(Visits, WaitsInOpenStepsOfSeveralEnginesMayDiffer)
{
    zoff_comm_channel actor = {}, critic = {};
    actor.id = 1;
    critic.id = 2;
    const auto wait = [&](unsigned rank, const zoff_comm_channel *channel, unsigned more) {
        zoff_comm_enter(ranks[rank], channel, ZOFF_COMM_IN_STEP_WAIT | more, {});
    };
    for (const unsigned last : {(unsigned)ZOFF_COMM_IN_OPEN, 0u}) {
        wait(0, &critic, last);
        wait(1, &actor, ZOFF_COMM_IN_OPEN);
        EXPECT_ZOFF_OK(hear(1e9));
        leave(0, false);
        leave(1, false);
    }
    wait(0, &critic, 0);
    wait(1, &actor, 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                      "rank 0 waits in zoff_step_wait() of engine 2 while rank 1 waits in zoff_step_wait() of engine 1",
                      hear(1e9));
    leave(0);
    leave(1);
}

// A rank that computes for long says so a few times in a timeout, and the others wait anew.
TEST_F(Visits, ARankThatComputesIsWaitedFor)
{
    zoff_comm_work work = {}, work0 = {};
    const zoff_comm_call call = {.kind = ZOFF_COMM_BARRIER};
    ASSERT_ZOFF_OK(zoff_comm_start(ranks[1], &call, &work));
    work.waited = 0.9; // of 1 s
    zoff_comm_works(ranks[0]);
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_poll(ranks[1], &work));
    EXPECT_EQ(0, work.waited);
    ASSERT_ZOFF_OK(zoff_comm_start(ranks[0], &call, &work0));
    EXPECT_ZOFF_OK(zoff_comm_wait(ranks[1], &work));
    EXPECT_ZOFF_OK(zoff_comm_wait(ranks[0], &work0));
}

// A wait for a group is told to the group only, and to all when the same call waits for all.
TEST(VisitsOfAGroup, AreToldToThoseWhoAreWaitedFor)
{
    struct told : comm_fault {
        explicit told(zoff_comm *comm) : comm_fault(comm)
        {
            ops.tell = [](zoff_comm *of, const zoff_comm_call *call, const zoff_comm_visit *, unsigned) {
                auto self = (told *)of->ops;
                self->members.push_back(call->members);
                return ZOFF_OK;
            };
        }
        std::vector<unsigned> members;
    };
    const thread_ranks ranks(4, 100);
    told heard(ranks[1]);
    zoff_comm_call of_group = {}, of_all = {};
    of_group.first = 0;
    of_group.members = 2;
    zoff_comm_enter(ranks[1], &ranks[1]->common, ZOFF_COMM_IN_FETCH, {});
    const double later = 1e9; // seconds
    for (const zoff_comm_call *call : {&of_group, &of_group, &of_all, &of_group, &of_all}) {
        zoff_comm_lock(ranks[1]);
        EXPECT_ZOFF_OK(zoff_comm_watch(ranks[1], call, later));
        zoff_comm_unlock(ranks[1]);
    }
    EXPECT_EQ((std::vector<unsigned>{2, 0}), heard.members);
    zoff_comm_exit(ranks[1], true);
    ranks[1]->ops = heard.real;
}
