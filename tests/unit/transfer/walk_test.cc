/* SPDX-License-Identifier: Apache-2.0 */
// walk_test.cc: a step visits each bucket once, in an order that depends on where states and gradients are.
#include "small_model.h"

extern "C" {
#include "transfer.h"
}

using namespace zoff_test;

namespace
{
using order = std::vector<size_t>;

// A rank with so many buckets. Rank and size are those of a communicator without messages.
struct walker {
    explicit walker(size_t buckets, unsigned number = 0, unsigned ranks = 1)
    {
        comm.rank = number;
        comm.size = ranks;
        parts.plan.chunk_count = buckets;
        t.model = &parts.m;
        t.plan = &parts.plan;
        t.comm = &comm;
        t.ranks.reduce = ranks > 1 ? (zoff_reduce *)&comm : nullptr;
        EXPECT_ZOFF_OK(zoff_transfer_walk_open(&t));
    }
    ~walker()
    {
        parts.plan.chunk_count = 0;
        zoff_transfer_walk_close(&t);
    }
    order walk() const
    {
        order all;
        for (size_t position = 0; position < parts.plan.chunk_count; position++) {
            all.push_back(zoff_transfer_walk_bucket(&t, position));
            EXPECT_EQ(position, zoff_transfer_walk_position(&t, all.back()));
        }
        return all;
    }
    // The next step, after one in which gradients came from one bucket to another.
    void begin(size_t first, size_t last, bool reads_ahead = false)
    {
        t.device.first_bucket = first;
        t.device.last_bucket = last;
        zoff_transfer_walk_begin(&t, reads_ahead);
        EXPECT_EQ(SIZE_MAX, t.device.first_bucket) << "none has come yet";
    }
    // The program's uses of one step, in descending order.
    void use_all()
    {
        const size_t count = parts.plan.chunk_count;
        for (size_t b = 0; b < count; b++)
            t.walk.runs[b] = {};
        zoff_transfer_walk_begin(&t, false);
        for (size_t b = count; b-- > 0;)
            zoff_transfer_walk_use(&t, {(uint32_t)b, (uint32_t)b});
    }
    small_model parts;
    zoff_comm comm = {};
    zoff_transfer t = {};
};

TEST(Walk, AscendsOnTheHost)
{
    walker self(5);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), self.walk());
    self.begin(4, 0);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), self.walk());
}

// Gradients of the last layers come first. Files are read ahead in the expected order, so that is kept.
TEST(Walk, DescendsOverADeviceUnlessTheTrainerAscends)
{
    walker self(5);
    self.t.device.turns = true;
    self.begin(4, 0);
    EXPECT_EQ((order{4, 3, 2, 1, 0}), self.walk());
    self.begin(0, 4);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), self.walk());
    self.begin(0, 4, true);
    EXPECT_EQ((order{4, 3, 2, 1, 0}), self.walk());
}

TEST(Walk, EndsWithTheBucketsOfTheDevice)
{
    walker self(5);
    self.t.device.turns = true;
    self.t.device.tier.count = 2;
    EXPECT_EQ(3u, zoff_transfer_walk_host_count(&self.t));
    self.begin(4, 0);
    EXPECT_EQ((order{4, 3, 2, 0, 1}), self.walk());
    self.begin(0, 4);
    EXPECT_EQ((order{2, 3, 4, 0, 1}), self.walk());
    self.t.device.tier.count = 5;
    EXPECT_EQ((order{0, 1, 2, 3, 4}), self.walk());
}

TEST(Walk, LearnsTheOrderOfUses)
{
    walker self(5);
    EXPECT_FALSE(zoff_transfer_walk_learn(&self.t)) << "without uses";
    zoff_transfer_walk_use(&self.t, {3, 4});
    zoff_transfer_walk_use(&self.t, {2, 3});
    EXPECT_TRUE(zoff_transfer_walk_learn(&self.t));
    EXPECT_EQ((order{3, 4, 2, 0, 1}), self.walk());
    self.use_all();
    EXPECT_TRUE(zoff_transfer_walk_learn(&self.t));
    EXPECT_EQ((order{4, 3, 2, 1, 0}), self.walk());
    self.use_all();
    EXPECT_FALSE(zoff_transfer_walk_learn(&self.t)) << "the same again";
}

// An order takes three votes. All ranks change it in the same step, also when one of them has missed a vote.
TEST(Walk, SeveralRanksLearnFromTheVotesOfTheFirst)
{
    enum { STEPS = 12, MISSED = 2, BUCKETS = 2 * ZOFF_WALK_NEWS + 6 };
    walker first(BUCKETS, 0, 2), second(BUCKETS, 1, 2);
    zoff_vote votes[2] = {}, joined;
    size_t changed_in = 0;
    for (size_t step = 1; step <= STEPS; step++) {
        for (walker *self : {&first, &second}) {
            self->use_all();
            zoff_transfer_walk_tell(&self->t, &votes[self->comm.rank].order);
        }
        joined = votes[step % 2]; // in any order
        zoff_transfer_measure_join(&joined, &votes[1 - step % 2], sizeof joined);
        for (walker *self : {&first, &second}) {
            if (step != MISSED || self == &first)
                zoff_transfer_walk_hear(&self->t, &joined);
            changed_in = zoff_transfer_walk_learn(&self->t) && self == &first ? step : changed_in;
        }
        EXPECT_EQ(first.walk(), second.walk()) << "step " << step;
    }
    EXPECT_EQ((size_t)BUCKETS - 1, first.walk()[0]);
    EXPECT_LE((size_t)MISSED + 3, changed_in) << "the order was told anew";
    EXPECT_GT((size_t)STEPS, changed_in);
}
} // namespace
