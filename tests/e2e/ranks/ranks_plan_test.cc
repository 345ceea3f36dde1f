/* SPDX-License-Identifier: Apache-2.0 */
// ranks_plan_test.cc: zoff_engine_plan() says what a rank sends in a step. The counters of the communicator must be equal, on
// every rank, over every route. An engine that is not sealed says the same, on a rank of others that do not exist.
#include "covering.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
enum route { FLAT, LEVELS, ONCE };

struct cell {
    unsigned world, stage;
    route way;
    bool owns, groups;
};

std::string name(const cell &c)
{
    static const char *const ROUTES[] = {"flat", "levels", "once"};
    return "stage" + std::to_string(c.stage) + "_world" + std::to_string(c.world) + "_" + ROUTES[c.way] +
           (c.owns ? "_owns" : "") + (c.groups ? "_groups" : "");
}

// The largest number of ranks of a node that leaves several nodes.
unsigned node_of(unsigned world)
{
    unsigned node = world / 2;
    while (node && world % node)
        node--;
    return node ? node : 1;
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Routes/RanksPlan.EqualsTheCounters/", name,
        [](const cell &c) {
            return covering<cell>::values{{"world", std::to_string(c.world)},
                                          {"stage", std::to_string(c.stage)},
                                          {"route", std::to_string(c.way)},
                                          {"weights", c.groups ? "groups"
                                                      : c.owns ? "owned"
                                                               : "program"}};
        },
        [](covering<cell> &cells) {
            for (unsigned world = 2; world <= 16; world++) {
                if (!is_full_run() && world != 2 && world != 3 && world != 6 && world != 8 && world != 16)
                    continue;
                for (unsigned stage : {0u, 1u, 2u, 3u}) {
                    for (route way : {FLAT, LEVELS, ONCE}) {
                        cells.add({world, stage, way, false, false});
                        cells.add({world, stage, way, true, false});
                        if (stage == 3 && node_of(world) > 1)
                            cells.add({world, stage, way, true, true});
                    }
                }
            }
        });
    return all;
}
zoff_comm_info counters_of(const zoff_comm *comm)
{
    zoff_comm_info info = ZOFF_COMM_INFO_INIT;
    EXPECT_ZOFF_OK(zoff_comm_get_info(comm, &info));
    return info;
}

zoff_plan_info plan_of(const zoff_engine *e)
{
    zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
    EXPECT_ZOFF_OK(zoff_engine_plan(e, &plan));
    return plan;
}

void expect_counted(const char *what, const zoff_comm_info &before, const zoff_comm_info &after,
                    const std::vector<zoff_plan_traffic> &planned)
{
    zoff_plan_traffic sum = {};
    for (const auto &one : planned) {
        sum.sent_bytes += one.sent_bytes;
        sum.node_bytes += one.node_bytes;
        sum.notes += one.notes;
        sum.messages += one.messages;
    }
    EXPECT_EQ(sum.sent_bytes, after.sent_bytes - before.sent_bytes) << what;
    EXPECT_EQ(sum.node_bytes, after.node_bytes - before.node_bytes) << what;
    EXPECT_EQ(sum.notes, after.notes - before.notes) << what;
    EXPECT_EQ(sum.messages, after.messages - before.messages) << what;
}

// A rank of others that do not exist.
zoff_comm *alone(unsigned rank, unsigned size, unsigned node_ranks)
{
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    t.name = "nobody";
    t.rank = rank;
    t.size = size;
    t.node_ranks = node_ranks;
    t.send = [](void *, unsigned, int, const void *, size_t, void **) { return 0; };
    t.receive = [](void *, unsigned, int, void *, size_t, void **out) {
        *out = new bool(false);
        return 0;
    };
    t.test = [](void *, void **request) {
        auto canceled = (bool *)*request;
        const bool is_done = !canceled || *canceled;
        if (is_done)
            delete canceled;
        return (int)is_done;
    };
    t.cancel = [](void *, void **request) {
        *(bool *)*request = true;
        return 0;
    };
    t.error = [](void *) -> const char * { return "none"; };
    t.close = [](void *, int) {};
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_open_transport(nullptr, &t, &made));
    return made;
}

class RanksPlan : public testing::TestWithParam<cell>
{
  protected:
    enum { BATCHES = 2 };

    std::string text() const
    {
        const cell &c = GetParam();
        const std::string node = std::to_string(c.way == FLAT ? 1 : node_of(c.world));
        return "{\"gradient_accumulation_steps\": " + std::to_string(BATCHES) +
               ", \"gradient_clipping\": 1, \"zero_optimization\": {\"stage\": " + std::to_string(c.stage) +
               ", \"reduce_bucket_size\": 20000, \"stage3_param_persistence_threshold\": 100" +
               (c.owns ? ", \"offload_param\": {\"device\": \"cpu\"}" : "") +
               ", \"zero_hpz_partition_size\": " + std::to_string(c.groups ? node_of(c.world) : 1) +
               "}, \"zoff\": {\"node_ranks\": " + node +
               (c.way != FLAT && node != "1" ? std::string(", \"reduce_scatter\": \"exact\", \"between_nodes\": \"") +
                                                   (c.way == ONCE ? "step" : "micro_step") + "\""
                                             : "") +
               "}}";
    }

    void fill(trainer &t) const
    {
        add_awkward(t, ZOFF_BF16, ZOFF_BF16);
        for (size_t i = 0; GetParam().owns && i < t.tensors.size(); i++)
            t.give_away(i);
    }
};

INSTANTIATE_TEST_SUITE_P(Routes, RanksPlan, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name(one.param); });

TEST_P(RanksPlan, EqualsTheCounters)
{
    const cell &c = GetParam();
    rank_job job(c.world);
    rank_trainers all(job, 7, [&](trainer &t) { fill(t); });
    all.seal(text(), 3000);
    const auto update = [&](unsigned round) {
        for (unsigned batch = 0; batch < BATCHES; batch++) {
            all.backward(round + batch, 0.5f);
            job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr)); });
        }
        all.want.next_step();
    };
    update(100); // its first micro-batch also sends the order of buckets
    std::vector<zoff_comm_info> before;
    for (unsigned rank = 0; rank < c.world; rank++)
        before.push_back(counters_of(job.comm_of(rank)));
    update(200);
    for (unsigned rank = 0; rank < c.world; rank++) {
        const auto plan = plan_of(all.engines[rank].get());
        expect_counted("step", before[rank], counters_of(job.comm_of(rank)), {plan.reduce, plan.report, plan.gather});
        EXPECT_LT(0u, plan.reduce.notes);
        EXPECT_LT(0u, plan.report.sent_bytes);
        const bool wants = c.way != FLAT && node_of(c.world) > 1;
        const unsigned terms = (c.way == ONCE ? 9 : 7), sends = 2 * node_of(c.world) * (c.way == ONCE ? BATCHES : 1);
        EXPECT_EQ(wants && terms < sends ? node_of(c.world) : 1, plan.sum_ranks);
        EXPECT_EQ(wants && terms < sends && c.way == ONCE, plan.sums_once != 0);

        // Before seal, without others.
        zoff_comm *comm = alone(rank, c.world, 0);
        trainer t(7);
        fill(t);
        auto e = make_engine(t, text(), 3000, 0, comm, nullptr);
        const auto early = plan_of(e.get());
        for (auto part : {&zoff_plan_info::reduce, &zoff_plan_info::report, &zoff_plan_info::gather, &zoff_plan_info::fetch}) {
            EXPECT_EQ((plan.*part).sent_bytes, (early.*part).sent_bytes);
            EXPECT_EQ((plan.*part).notes, (early.*part).notes);
            EXPECT_EQ((plan.*part).messages, (early.*part).messages);
        }
        EXPECT_EQ(plan.exchange_bytes, early.exchange_bytes);
        e.reset();
        zoff_comm_close(comm);
    }
    // The first pass prefetches nothing for the next one.
    job.on_each([&](unsigned rank) {
        const auto before = counters_of(job.comm_of(rank));
        all.trainers[rank]->fetch_all(all.engines[rank].get());
        expect_counted("fetch", before, counters_of(job.comm_of(rank)), {plan_of(all.engines[rank].get()).fetch});
    });
}

TEST(RanksPlanCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST(RanksPlanNodes, MustDivideTheRanks)
{
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    t.name = "nobody";
    t.size = 4;
    t.node_ranks = 3;
    t.send = [](void *, unsigned, int, const void *, size_t, void **) { return 0; };
    t.receive = [](void *, unsigned, int, void *, size_t, void **) { return 0; };
    t.test = t.cancel = [](void *, void **) { return 1; };
    t.error = [](void *) -> const char * { return "none"; };
    t.close = [](void *, int) {};
    zoff_comm *made = nullptr;
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_comm_open_transport(nullptr, &t, &made));
    EXPECT_STREQ("zoff_comm_open_transport: nodes of 3 ranks do not divide 4 ranks: set node_ranks to a number that does, or 0",
                 zoff_last_error());
}
} // namespace
