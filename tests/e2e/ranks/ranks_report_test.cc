/* SPDX-License-Identifier: Apache-2.0 */
// ranks_report_test.cc: ranks report presence, norm, culprits and stops over their nodes, then over rails. Each step is that of
// ranks that report to all others, and takes fewer headers.
#include "rank_job.h"

#include <cmath>

extern "C" {
#include "try.h"
}

using namespace zoff_test;

namespace
{
enum { PARAMS = 3, COUNT = 2500 };

struct grid {
    unsigned world, node;
};

// Ranks, each with an engine: the gradient of "reduced" is the same on all, those of the others are not.
struct ranks {
    explicit ranks(grid g) : job(g.world), engines(g.world), infos(g.world), weights(g.world), grads(g.world)
    {
        job.on_each([&](unsigned rank) {
            static const char *const NAMES[PARAMS] = {"first", "second", "reduced"};
            zoff_comm_grid made = {};
            if (g.node > 1) {
                EXPECT_ZOFF_OK(zoff_comm_open_grid(job.comm_of(rank), g.node, &made));
            }
            zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
            opts.threads = 1;
            opts.comm = job.comm_of(rank);
            engines[rank] = make_engine("{\"gradient_clipping\": 1, \"zero_optimization\": {\"stage\": 2, "
                                        "\"reduce_bucket_size\": 1024}}",
                                        opts);
            for (unsigned p = 0; p < PARAMS; p++) {
                zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
                weights[rank][p].assign(COUNT, 0.5f);
                grads[rank][p].resize(COUNT);
                d.name = NAMES[p];
                d.value = weights[rank][p].data();
                d.grad = grads[rank][p].data();
                d.count = COUNT;
                d.reduced = p == 2;
                ASSERT_ZOFF_OK(zoff_engine_add_param(engines[rank].get(), &d, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_engine_seal(engines[rank].get()));
        });
    }
    ~ranks()
    {
        job.on_each([&](unsigned rank) { engines[rank].reset(); });
    }
    // Hand over the gradients of a rank, of "second" on every third rank only. `poisoned`: a rank with a nan.
    zoff_status step(unsigned rank, unsigned number, unsigned poisoned, unsigned without = 99)
    {
        zoff_engine *e = engines[rank].get();
        for (unsigned p = 0; p < PARAMS; p++) {
            for (size_t i = 0; i < COUNT; i++)
                grads[rank][p][i] = std::round(8 * std::cos((float)(i + 7 * number + (p == 2 ? 0 : 31 * rank)))) / 8;
            if (p < 2 && rank == poisoned)
                grads[rank][p][1500] = NAN;
            if ((p == 1 && rank % 3) || (p == 2 && rank == without))
                continue;
            EXPECT_ZOFF_OK(zoff_grad_ready(e, p, 0, nullptr));
        }
        zoff_step_begin(e, nullptr);
        infos[rank] = new_info();
        return zoff_step_wait(e, &infos[rank]);
    }
    uint64_t notes() const
    {
        uint64_t sum = 0;
        for (unsigned rank = 0; rank < job.size; rank++)
            sum += job.comm_of(rank)->info.notes;
        return sum;
    }
    rank_job job;
    std::vector<engine> engines;
    std::vector<zoff_step_info> infos;
    std::vector<std::array<std::vector<float>, PARAMS>> weights, grads;
};

class RanksReport : public testing::TestWithParam<grid>
{
};
INSTANTIATE_TEST_SUITE_P(Grids, RanksReport, testing::Values(grid{4, 2}, grid{6, 3}, grid{6, 2}), [](const auto &p) {
    return std::to_string(p.param.world / p.param.node) + "x" + std::to_string(p.param.node);
});

TEST_P(RanksReport, StepsAreThoseOfRanksThatReportToAll)
{
    log_catcher log;
    log.expect("step 4 skipped: the gradient of first, slice 0, has an inf or nan");
    const grid g = GetParam();
    ranks flat({g.world, 1}), leveled(g);
    for (unsigned number = 1; number <= 6; number++) {
        const uint64_t before = flat.notes(), leveled_before = leveled.notes();
        for (ranks *all : {&flat, &leveled}) {
            all->job.on_each([&](unsigned rank) {
                if (number == 5 && rank == g.world - 1)
                    zoff_engine_request_stop(all->engines[rank].get());
                EXPECT_ZOFF_OK(all->step(rank, number, number == 4 ? g.world - 2 : 99));
            });
        }
        for (unsigned rank = 0; rank < g.world; rank++) {
            const zoff_step_info &want = flat.infos[0], &info = leveled.infos[rank];
            EXPECT_EQ(number == 4, info.skipped);
            EXPECT_EQ(number >= 5, info.stop_requested);
            if (number == 4) {
                EXPECT_EQ(want.culprit.param, info.culprit.param);
                EXPECT_EQ(want.culprit.rank, info.culprit.rank);
            } else {
                EXPECT_EQ(want.numbers.grad_norm, info.numbers.grad_norm);
                EXPECT_EQ(want.numbers.clip_factor, info.numbers.clip_factor);
            }
            for (unsigned p = 0; p < PARAMS; p++)
                EXPECT_EQ(flat.weights[0][p], leveled.weights[rank][p]) << "step " << number << " parameter " << p;
        }
        EXPECT_LT(leveled.notes() - leveled_before, flat.notes() - before);
    }
}

// A gradient that only some ranks have, and a rank with another factor. All ranks say so.
TEST_P(RanksReport, DifferencesAreNamedOnAllRanks)
{
    const grid g = GetParam();
    for (const unsigned who : {0u, g.node, g.world - 1}) {
        ranks all(g);
        const unsigned other = who ? 0 : 1;
        all.job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              "reduced has zoff_param_desc.reduced, but only rank " + std::to_string(other) +
                                  " of ranks 0 and " + std::to_string(who ? who : 1) +
                                  " has handed over the gradient of its slice 0",
                              all.step(rank, 1, 99, who));
            EXPECT_ZOFF_OK(zoff_grads_drop(e));
            EXPECT_ZOFF_OK(all.step(rank, 1, 99));
        });
        all.job.on_each([&](unsigned rank) {
            zoff_step_args args = ZOFF_STEP_ARGS_INIT;
            args.grad_scale = rank == who ? 2 : 1;
            for (unsigned p = 0; p < PARAMS; p++)
                EXPECT_ZOFF_OK(zoff_grad_ready(all.engines[rank].get(), p, 0, nullptr));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "ranks take different steps",
                              zoff_step(all.engines[rank].get(), &args, nullptr));
            EXPECT_ZOFF_OK(zoff_grads_drop(all.engines[rank].get()));
            EXPECT_ZOFF_OK(all.step(rank, 2, 99));
        });
    }
}
} // namespace
