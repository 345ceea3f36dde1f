/* SPDX-License-Identifier: Apache-2.0 */
// ranks_experts_test.cc: expert data parallelism. Four ranks share a dense parameter. Ranks 0 and 2 have expert 0, ranks 1 and
// 3 have expert 1. Each rank has an engine for the dense parameter over all ranks, and one for its expert over the two ranks
// that have it. They clip by one norm, in which each parameter counts once. The bits are those of one engine over the whole
// model.
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
enum { RANKS = 4, EXPERTS = 2, DENSE = EXPERTS /* the number of the dense tensor */, TENSORS };
const char *const NAMES[] = {"expert0", "expert1", "dense"};
const size_t COUNTS[] = {1300, 2049, 3001};

// Integers over a power of two: their sums over ranks are exact.
float gradient(int tensor, unsigned rank, size_t i, int64_t step)
{
    const int spread = step % 2 ? 3 : 2000;
    return (float)((int)((i * 31 + rank * 17 + (size_t)tensor * 7 + (size_t)step) % 41) - 20) * (float)spread / 4096;
}

struct part {
    std::vector<float> value[TENSORS], grad[TENSORS];
    engine e;
    zoff_step_info info;

    void open(zoff_comm *comm, const std::vector<int> &tensors)
    {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        opts.comm = comm;
        e = make_engine("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 1.0, "
                        "\"gradient_allreduce_op\": \"sum\", "
                        "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1024}}",
                        opts);
        for (int i : tensors) {
            value[i].resize(COUNTS[i]);
            grad[i].resize(COUNTS[i]);
            for (size_t k = 0; k < COUNTS[i]; k++)
                value[i][k] = std::sin((float)k + (float)i);
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = NAMES[i];
            d.value = value[i].data();
            d.grad = grad[i].data();
            d.count = COUNTS[i];
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }
    // The sum over all ranks is divided by their number, for experts too.
    static zoff_step_args args(const zoff_norm_sum *sum = nullptr)
    {
        zoff_step_args a = ZOFF_STEP_ARGS_INIT;
        a.grad_scale = 1.0 / RANKS;
        a.norm_sum = sum;
        return a;
    }
    void step(const zoff_norm_sum *sum)
    {
        const zoff_step_args a = args(sum);
        info = new_info();
        ASSERT_ZOFF_OK(zoff_step(e.get(), &a, &info));
    }
};

struct member {
    part dense, expert;
    zoff_norm_sum sums[2];
};

TEST(RanksExperts, ClipWithTheDenseWeightsAsOneEngineDoes)
{
    rank_job all(RANKS), first(EXPERTS), second(EXPERTS);
    rank_job *const of_expert[] = {&first, &second};
    std::vector<member> ranks(RANKS);
    part whole;
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(whole.open(nullptr, {0, 1, DENSE}));
    all.on_each([&](unsigned rank) {
        ranks[rank].dense.open(all.comm_of(rank), {DENSE});
        ranks[rank].expert.open(of_expert[rank % EXPERTS]->comm_of(rank / EXPERTS), {(int)(rank % EXPERTS)});
    });
    for (int64_t step = 1; step <= 4; step++) {
        for (auto &grads : whole.grad)
            std::fill(grads.begin(), grads.end(), 0.0f);
        all.on_each([&](unsigned rank) {
            member &m = ranks[rank];
            const int mine = (int)(rank % EXPERTS);
            for (size_t k = 0; k < COUNTS[DENSE]; k++)
                m.dense.grad[DENSE][k] = gradient(DENSE, rank, k, step);
            for (size_t k = 0; k < COUNTS[mine]; k++)
                m.expert.grad[mine][k] = gradient(mine, rank, k, step);
            const zoff_step_args a = part::args();
            ASSERT_ZOFF_OK(zoff_step_measure(m.dense.e.get(), &a, &m.sums[0]));
            ASSERT_ZOFF_OK(zoff_step_measure(m.expert.e.get(), &a, &m.sums[1]));
        });
        for (unsigned rank = 0; rank < RANKS; rank++) {
            for (int i : {(int)(rank % EXPERTS), (int)DENSE}) {
                for (size_t k = 0; k < COUNTS[i]; k++)
                    whole.grad[i][k] += gradient(i, rank, k, step);
            }
        }
        ASSERT_NO_FATAL_FAILURE(whole.step(nullptr));
        EXPECT_EQ(step % 2 == 0, whole.info.numbers.clip_factor < 1);
        // A trainer sends its expert's sum to one rank of each other expert: rank 0 to rank 1, rank 2 to rank 3, and back.
        all.on_each([&](unsigned rank) {
            member &m = ranks[rank];
            zoff_norm_sum sum = m.sums[0];
            ASSERT_ZOFF_OK(zoff_norm_sum_join(&sum, &m.sums[1]));
            ASSERT_ZOFF_OK(zoff_norm_sum_join(&sum, &ranks[rank ^ 1].sums[1]));
            for (part *p : {&m.dense, &m.expert}) {
                ASSERT_NO_FATAL_FAILURE(p->step(&sum));
                EXPECT_EQ(whole.info.numbers.grad_norm, p->info.numbers.grad_norm) << "rank " << rank << ", step " << step;
                EXPECT_EQ(whole.info.numbers.clip_factor, p->info.numbers.clip_factor);
            }
            EXPECT_EQ(whole.value[DENSE], m.dense.value[DENSE]) << "rank " << rank << ", step " << step;
            EXPECT_EQ(whole.value[rank % EXPERTS], m.expert.value[rank % EXPERTS]) << "rank " << rank << ", step " << step;
        });
        if (HasFailure())
            break;
    }
    all.on_each([&](unsigned rank) { ranks[rank] = member(); });
}
} // namespace
