/* SPDX-License-Identifier: Apache-2.0 */
// ranks_exact_test.cc: with zoff.reduce_scatter "exact" the same 12 micro-batches give the same bits on any number of ranks,
// whichever rank gets which, over every route. The reference is the run of one rank, which the parity matrix compares.
#include "covering.h"
#include "rank_job.h"

extern "C" {
#include "engine_priv.h"
}

#include <cinttypes>
#include <cmath>
#include <fstream>
#include <sstream>

using namespace zoff_test;

namespace
{
enum { BATCHES = 12, STEPS = 2 };

// How micro-batches are dealt to ranks: rank by rank, in turns, or by lot.
enum deal { BLOCKS, TURNS, LOT };

enum owner { OF_PROGRAM, IN_DRAM, IN_FILES, ON_DEVICE };

struct cell {
    unsigned stage;
    zoff_tier tier;
    zoff_dtype dtype;
    owner weights;
    const char *wire;
    bool weighs, groups, leaves_out;
};

std::string name(const cell &c)
{
    static const char *const OWNERS[] = {"program", "dram", "files", "device"};
    return "stage" + std::to_string(c.stage) + "_" + (c.tier == ZOFF_TIER_HOST ? "host" : "nvme") + "_" +
           (c.dtype == ZOFF_F32 ? "fp32" : "bf16") + "_" + OWNERS[c.weights] + "_wire_" + c.wire + (c.weighs ? "_weighs" : "") +
           (c.groups ? "_groups" : "") + (c.leaves_out ? "_leavesOut" : "");
}

struct world {
    unsigned ranks;
    deal how;
    std::string route; // members of "zoff" in the configuration
};

class RanksExact : public testing::TestWithParam<cell>
{
  protected:
    std::string config_of(const world &w) const
    {
        const cell &c = GetParam();
        const bool owns = c.weights == IN_DRAM || c.weights == IN_FILES;
        return "{\"gradient_accumulation_steps\": " + std::to_string(BATCHES / w.ranks) +
               ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0.5" +
               (*c.wire ? std::string(", \"communication_data_type\": \"") + c.wire + "\"" : "") +
               ", \"zero_optimization\": {\"stage\": " + std::to_string(c.stage) +
               ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" +
               (c.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder.path + "\"}" +
               (owns ? std::string(", \"offload_param\": {\"device\": \"") + (c.weights == IN_FILES ? "nvme" : "cpu") +
                           "\", \"nvme_path\": \"" + folder.path +
                           "\"}, \"zero_hpz_partition_size\": " + (c.groups && w.ranks % 2 == 0 ? "2" : "1")
                     : "") +
               "}, \"zoff\": {\"reduce_scatter\": \"exact\"" + w.route + "}}";
    }

    // The rank that gets micro-batch `batch`.
    static unsigned rank_of(const world &w, unsigned batch)
    {
        const unsigned each = BATCHES / w.ranks, mixed = batch * 5 % BATCHES;
        return w.how == TURNS ? batch % w.ranks : (w.how == LOT ? mixed : batch) / each;
    }

    // Hand over the gradients of one micro-batch, the same for the same number.
    void backward(trainer &t, zoff_engine *e, unsigned batch) const
    {
        const cell &c = GetParam();
        t.random.seed(1 + batch);
        EXPECT_ZOFF_OK(zoff_grad_weight(e, c.weighs ? (batch % BATCHES % 4 ? 0.3f * (float)(batch % BATCHES) : 0) : 1));
        const float scale = batch % 3 ? 0.01f : 3000.0f;
        for (size_t i = t.tensors.size(); i-- > 0;) {
            for (size_t slice = t.tensors[i].slices; slice-- > 0;) {
                if (t.tensors[i].frozen || (c.leaves_out && t.random() % 3 == 0))
                    continue;
                t.backward(i, slice, scale);
                t.hand_over(e, i, slice);
            }
        }
    }

    std::string result_of(trainer &t, zoff_engine *e, const zoff_step_info &info) const
    {
        uint64_t hash = 14695981039346656037u;
        auto add = [&hash](const void *bytes, size_t count) {
            for (size_t i = 0; i < count; i++)
                hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
        };
        t.fetch_all(e);
        for (size_t i = 0; i < t.tensors.size(); i++) {
            for (size_t k = 0; k < t.tensors[i].master.size(); k++) {
                const float value = trainer::get(t.value(i), t.tensors[i].dtype, t.place(i, k));
                add(&value, sizeof value);
            }
            std::vector<float> state(t.tensors[i].master.size());
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                if (t.tensors[i].frozen)
                    continue;
                EXPECT_ZOFF_OK(zoff_state_read(e, (zoff_param)i, kind, 0, state.size(), state.data()));
                add(state.data(), state.size() * sizeof(float));
            }
        }
        char text[96];
        snprintf(text, sizeof text, "%016" PRIx64 " norm %.17g", hash, info.numbers.grad_norm);
        return text;
    }

    // The results after each step, which all ranks have alike.
    std::vector<std::string> run(const world &w) const
    {
        const cell &c = GetParam();
        rank_job job(w.ranks);
        rank_trainers all(job, 7, [&](trainer &t) {
            add_awkward(t, c.dtype, c.dtype);
            for (size_t i = 1; (c.weights == IN_DRAM || c.weights == IN_FILES) && i < t.tensors.size(); i++)
                t.give_away(i);
        });
        if (c.weights == ON_DEVICE)
            all.use_devices(w.ranks);
        all.seal(config_of(w), 3000);
        std::vector<std::vector<std::string>> results(w.ranks);
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            zoff_engine *e = all.engines[rank].get();
            for (unsigned step = 0; step < STEPS && !HasFailure(); step++) {
                zoff_step_info info = new_info();
                for (unsigned batch = 0; batch < BATCHES; batch++) {
                    if (rank_of(w, batch) != rank)
                        continue;
                    t.fetch_all(e);
                    t.next_step();
                    backward(t, e, step * BATCHES + batch);
                    EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr)); // takes nothing that was not handed over
                    EXPECT_ZOFF_OK(zoff_step_wait(e, &info));
                }
                results[rank].push_back(result_of(t, e, info));
            }
        });
        for (unsigned rank = 1; rank < w.ranks; rank++)
            EXPECT_EQ(results[0], results[rank]) << "rank " << rank << " of " << w.ranks;
        return results[0];
    }

    scratch_folder folder;
};

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/RanksExact.NoDealChangesABit/", name,
        [](const cell &c) {
            return covering<cell>::values{{"stage", std::to_string(c.stage)},
                                          {"states", c.tier == ZOFF_TIER_HOST ? "host" : "nvme"},
                                          {"type", c.dtype == ZOFF_F32 ? "fp32" : "bf16"},
                                          {"weights", std::to_string(c.weights)},
                                          {"wire", c.wire},
                                          {"weighs", std::to_string(c.weighs)},
                                          {"groups", std::to_string(c.groups)},
                                          {"leaves out", std::to_string(c.leaves_out)}};
        },
        [](covering<cell> &cells) {
            for (unsigned bits = 0; bits < 64; bits++) {
                for (owner weights : {OF_PROGRAM, IN_DRAM, IN_FILES, ON_DEVICE}) {
                    for (unsigned stage : {0u, 1u, 2u, 3u}) {
                        const bool owns = weights == IN_DRAM || weights == IN_FILES, groups = bits & 16;
                        if ((owns && stage != 3) || (groups && !owns))
                            continue;
                        cells.add({stage, bits & 1 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST, bits & 2 ? ZOFF_F32 : ZOFF_BF16, weights,
                                   bits & 4 ? "fp32" : "", (bits & 8) != 0, groups, (bits & 32) != 0});
                    }
                }
            }
        });
    return all;
}
INSTANTIATE_TEST_SUITE_P(Matrix, RanksExact, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name(one.param); });

TEST(RanksExactCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(RanksExact, NoDealChangesABit)
{
    const std::vector<std::string> want = run({1, BLOCKS, ""});
    const cell &c = GetParam();
    unsigned number = c.stage + (unsigned)c.weights + c.weighs;
    const char *const by_batch = ", \"between_nodes\": \"micro_step\"", *const at_end = ", \"between_nodes\": \"step\"";
    const auto nodes = [](unsigned of, const char *when = "") { return ", \"node_ranks\": " + std::to_string(of) + when; };
    for (const world &w :
         {world{2, BLOCKS, ""}, world{3, TURNS, ""}, world{4, LOT, ""}, world{6, BLOCKS, ""}, world{12, LOT, ""},
          world{4, BLOCKS, nodes(2, at_end)}, world{4, TURNS, nodes(2, by_batch)}, world{6, LOT, nodes(3, by_batch)},
          world{6, TURNS, nodes(2)}, world{12, LOT, nodes(4)}, world{12, BLOCKS, nodes(6, at_end)}}) {
        if (number++ % 2 && !is_full_run()) // another half in the next cell
            continue;
        EXPECT_EQ(want, run(w)) << w.ranks << " ranks, deal " << w.how << w.route;
        if (HasFailure())
            return;
    }
}

// ---- the rule of a run that goes on ----

// A run on two ranks, of which each step has two micro-batches.
class ExactIsKept : public testing::Test
{
  protected:
    std::string config_of(const char *rule, const std::string &states) const
    {
        return std::string("{\"gradient_accumulation_steps\": 2, \"zero_optimization\": {\"stage\": 1") +
               (states.empty() ? "" : ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + states + "\"}") +
               "}, \"zoff\": {\"persist\": " + (states.empty() ? "false" : "true") +
               (*rule ? std::string(", \"reduce_scatter\": \"") + rule + "\"" : "") + nodes + "}}";
    }

    // Open engines, `use` them on each rank, and destroy them.
    void with(const char *rule, const std::string &states, const std::function<void(trainer &, zoff_engine *, unsigned)> &use)
    {
        rank_job job(ranks);
        rank_trainers all(job, 3, [](trainer &t) { t.add(5000, 1, ZOFF_F32, ZOFF_F32); });
        all.seal(config_of(rule, states), 0);
        job.on_each([&](unsigned rank) { use(*all.trainers[rank], all.engines[rank].get(), rank); });
    }

    // Steps [first, last), and the masters after them.
    static std::vector<float> train(trainer &t, zoff_engine *e, unsigned rank, unsigned first, unsigned last)
    {
        std::vector<float> masters(5000);
        for (unsigned batch = 2 * first; batch < 2 * last; batch++) {
            t.random.seed(4 * batch + rank);
            t.next_step();
            t.backward_all(1.0f);
            EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_state_read(e, 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
        return masters;
    }

    static void save(zoff_engine *e, const std::string &to, bool expect_exact)
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = "now";
        EXPECT_ZOFF_OK(zoff_checkpoint_save(e, to.c_str(), &opts));
        std::ostringstream text;
        text << std::ifstream(to + "/now/manifest.json").rdbuf();
        EXPECT_EQ(expect_exact, text.str().find("\"reduce_scatter\": \"exact\"") != std::string::npos);
    }

    scratch_folder folder, other;
    unsigned ranks = 2;
    std::string nodes; // zoff.node_ranks
    std::vector<float> want[4];
};

TEST_F(ExactIsKept, FromACheckpointUnlessAKeySaysOtherwise)
{
    with("exact", "", [&](trainer &t, zoff_engine *e, unsigned rank) {
        train(t, e, rank, 0, 2);
        save(e, folder.path, true);
        want[rank] = train(t, e, rank, 2, 4);
    });
    with("", "", [&](trainer &t, zoff_engine *e, unsigned rank) {
        train(t, e, rank, 0, 2);
        save(e, other.path, false);
        EXPECT_NE(want[rank], train(t, e, rank, 2, 4)) << "the two rules have the same bits here";
        ASSERT_ZOFF_OK(zoff_checkpoint_load(e, folder.path.c_str(), nullptr));
        EXPECT_EQ(want[rank], train(t, e, rank, 2, 4));
        save(e, other.path, true);
    });
    for (const char *rule : {"ordered", ""}) {
        with(rule, "", [&](trainer &t, zoff_engine *e, unsigned rank) {
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            opts.weights_only = !*rule;
            ASSERT_ZOFF_OK(zoff_checkpoint_load(e, folder.path.c_str(), &opts));
            EXPECT_NE(want[rank], train(t, e, rank, 2, 4));
            save(e, other.path, false);
        });
    }
}

class ExactIsKeptInFiles : public ExactIsKept, public testing::WithParamInterface<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(NodesOf, ExactIsKeptInFiles, testing::Values(0u, 2u));

TEST_P(ExactIsKeptInFiles, UntilAKeySaysOtherwise)
{
    ranks = GetParam() ? 4 : 2;
    nodes = ", \"node_ranks\": " + std::to_string(GetParam());
    with("exact", "", [&](trainer &t, zoff_engine *e, unsigned rank) { want[rank] = train(t, e, rank, 0, 4); });
    with("exact", folder.path, [&](trainer &t, zoff_engine *e, unsigned rank) { train(t, e, rank, 0, 2); });
    with("", folder.path, [&](trainer &t, zoff_engine *e, unsigned rank) {
        ASSERT_ZOFF_OK(zoff_params_push(e));
        EXPECT_EQ(want[rank], train(t, e, rank, 2, 4));
        save(e, other.path, true);
    });
    with("ordered", folder.path, [&](trainer &t, zoff_engine *e, unsigned rank) {
        ASSERT_ZOFF_OK(zoff_params_push(e));
        train(t, e, rank, 4, 5);
        save(e, other.path, false);
    });
    with("", folder.path, [&](trainer &, zoff_engine *e, unsigned) {
        ASSERT_ZOFF_OK(zoff_params_push(e));
        save(e, other.path, false); // the run before has set the rule
    });
}

// From two nodes on sums are exact by default, and take two hops. A checkpoint of the other rule changes the route, too.
TEST_F(ExactIsKept, OverNodes)
{
    const std::string two_nodes = ", \"node_ranks\": 2";
    ranks = 4;
    with("ordered", "", [&](trainer &t, zoff_engine *e, unsigned rank) {
        train(t, e, rank, 0, 2);
        save(e, folder.path, false);
        want[rank] = train(t, e, rank, 2, 4);
    });
    nodes = two_nodes;
    with("", "", [&](trainer &t, zoff_engine *e, unsigned rank) {
        train(t, e, rank, 0, 2);
        save(e, other.path, true);
        EXPECT_NE(want[rank], train(t, e, rank, 2, 4));
        ASSERT_ZOFF_OK(zoff_checkpoint_load(e, folder.path.c_str(), nullptr));
        EXPECT_EQ(want[rank], train(t, e, rank, 2, 4)) << "ordered, and in one hop";
        ASSERT_ZOFF_OK(zoff_checkpoint_load(e, other.path.c_str(), nullptr));
        want[rank] = train(t, e, rank, 2, 4);
        EXPECT_TRUE(e->model.exact_sums);
        EXPECT_EQ(2u, e->transfer.ranks.levels.sums.node_ranks);
    });
    nodes = "";
    with("", "", [&](trainer &t, zoff_engine *e, unsigned rank) {
        ASSERT_ZOFF_OK(zoff_checkpoint_load(e, other.path.c_str(), nullptr));
        EXPECT_EQ(want[rank], train(t, e, rank, 2, 4)) << "exact, in one hop";
    });
}

// ---- two levels ----

class ExactLevels : public testing::TestWithParam<const char *>
{
  protected:
    std::string config_of(unsigned accumulation, unsigned node_ranks) const
    {
        return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
               ", \"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 200000}, \"zoff\": {\"reduce_scatter\": "
               "\"exact\", \"node_ranks\": " +
               std::to_string(node_ranks) + ", \"between_nodes\": \"" + GetParam() + "\"}}";
    }
};
INSTANTIATE_TEST_SUITE_P(When, ExactLevels, testing::Values("micro_step", "step"),
                         [](const auto &p) { return std::string(p.param); });

// A rank sends 7 bytes of an element of its node's sums to each other node in a micro-step, or 9 in a step. It sends 2 bytes of
// each new weight. All of it is divided by the ranks of a node.
TEST_P(ExactLevels, BytesBetweenNodes)
{
    enum { NODES = 3, NODE_RANKS = 4, BATCHES_HERE = 2, COUNT = 600000 };
    rank_job job(NODES * NODE_RANKS);
    rank_trainers all(job, 3, [](trainer &t) { t.add(COUNT, 1, ZOFF_BF16, ZOFF_BF16); });
    all.seal(config_of(BATCHES_HERE, NODE_RANKS), 0);
    const bool at_end = std::string(GetParam()) == "step";
    const double each = ((at_end ? 9.0 : 7.0 * BATCHES_HERE) + 2) / NODE_RANKS * (NODES - 1) / NODES;
    job.on_each([&](unsigned rank) {
        trainer &t = *all.trainers[rank];
        zoff_comm_info before = ZOFF_COMM_INFO_INIT, after = ZOFF_COMM_INFO_INIT;
        for (unsigned batch = 0; batch < 2 * BATCHES_HERE; batch++) {
            if (batch == BATCHES_HERE) {
                EXPECT_ZOFF_OK(zoff_comm_get_info(job.comm_of(rank), &before));
            }
            t.next_step();
            t.backward_all(1.0f);
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_comm_get_info(job.comm_of(rank), &after));
        const uint64_t sent = after.sent_bytes - before.sent_bytes, in_node = after.node_bytes - before.node_bytes;
        EXPECT_NEAR(each, (double)(sent - in_node) / COUNT, 0.01 * each) << "rank " << rank;
    });
}

// The owner of a sum has no terms, so a rank of the culprit's node names it.
TEST_P(ExactLevels, NameTheRankOfAGradientThatIsNotFinite)
{
    for (const unsigned bad_batch : {0u, 1u}) {
        log_catcher log;
        rank_job job(6);
        rank_trainers all(job, 3, [](trainer &t) { t.add(30000, 2, ZOFF_F32, ZOFF_F32); });
        all.seal(config_of(2, 3), 0);
        log.expect(bad_batch
                       ? "the gradient of param0, slice 1, has an inf or nan between its elements 5120 and 6143 on rank 4"
                       : "the gradient of param0, slice 1, has an inf or nan between its elements 5120 and 6143 in the sum");
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            zoff_step_info info = new_info();
            for (unsigned batch = 0; batch < 2; batch++) {
                t.next_step();
                t.backward_all(1.0f);
                if (rank == 4 && batch == bad_batch)
                    trainer::put(t.grad(0), ZOFF_F32, t.place(0, 30000 + 5200), NAN);
                EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &info));
            }
            EXPECT_TRUE(info.skipped);
            EXPECT_EQ(1u, info.culprit.slice);
            EXPECT_TRUE(!bad_batch || info.culprit.rank == 4) << info.culprit.rank;
        });
    }
}

// Digits of 4 bytes hold 4,095 terms, those of 8 more.
TEST(ExactWidth, ManyTerms)
{
    for (const unsigned batches : {2u, 4096u}) {
        trainer t(5);
        t.add(1000, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = make_engine(t, "{\"gradient_accumulation_steps\": " + std::to_string(batches) +
                                      ", \"zoff\": {\"reduce_scatter\": \"exact\"}}");
        EXPECT_EQ(1008u * (batches == 2 ? 4 + 5 : 4 + 17), plan_of(e.get()).accumulator_bytes);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        zoff_step_info info = new_info();
        for (unsigned batch = 0; batch < batches; batch++) {
            for (size_t i = 0; i < 1000; i++)
                trainer::put(t.grad(0), ZOFF_BF16, t.place(0, i), 1.0f);
            EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        }
        EXPECT_DOUBLE_EQ(std::sqrt(1000.0), info.numbers.grad_norm) << "the mean of ones is one";
    }
}

TEST(ExactKeys, WithoutNodesOfThatSizeAreRefused)
{
    rank_job job(2);
    struct refusal {
        const char *keys, *words;
    };
    for (const refusal &row : {refusal{"\"reduce_scatter\": \"ordered\", \"between_nodes\": \"step\"",
                                       "by zoff.reduce_scatter \"ordered\" each gradient goes to its owner"},
                               refusal{"\"reduce_scatter\": \"exact\", \"node_ranks\": 3", "3"}}) {
        std::vector<std::string> said(2);
        job.on_each([&](unsigned rank) {
            trainer t(1);
            t.add(10, 1, ZOFF_F32, ZOFF_F32);
            engine e = make_engine(t, std::string("{\"zoff\": {") + row.keys + "}}", 0, 0, job.comm_of(rank));
            EXPECT_GT(ZOFF_OK, zoff_engine_seal(e.get())) << row.keys;
            said[rank] = zoff_last_error();
        });
        EXPECT_NE(std::string::npos, (said[0] + said[1]).find(row.words)) << said[0] << said[1];
    }
}
} // namespace
