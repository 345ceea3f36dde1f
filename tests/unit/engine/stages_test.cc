// stages_test.cc: each stage for the host alone, called for one bucket of a step that has begun.
#include "on_tiers.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Stages : public on_tiers
{
  protected:
    Stages() : t(1)
    {
        t.add(1024, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(2048, 1, ZOFF_BF16, ZOFF_BF16);
    }
    ~Stages() override { EXPECT_ZOFF_OK(zoff_grads_drop(e.get())); }

    // Three buckets; only the first parameter, which is the first bucket, has a gradient.
    void begin(unsigned accumulation = 1, const zoff_step_args *args = nullptr, const std::string &more = "")
    {
        e = seal_engine(t, text(accumulation, more), 1024);
        ASSERT_EQ(3u, e->plan.chunk_count);
        t.backward(0, 0, 0.1f);
        ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), args));
    }
    // A stage that may wait for a file.
    zoff_status until_done(zoff_status (*stage)(void *, zoff_bucket_run *), zoff_bucket_run *run)
    {
        zoff_status status;
        while ((status = stage(e.get(), run)) == ZOFF_PENDING)
            zoff_base_progress_pump(&e->progress);
        return status;
    }
    zoff_bucket_run *run(size_t i) const { return &e->transfer.walk.runs[i]; }
    trainer t;
    engine e;
};
INSTANTIATE_TEST_SUITE_P(Tiers, Stages, testing::Bool(), tier_name);

TEST_P(Stages, AccumulateSetsTheSumAndThenAddsToIt)
{
    ASSERT_NO_FATAL_FAILURE(begin(3));
    std::vector<float> first(t.tensors[0].sum);
    const float *sum = zoff_transfer_pieces_sum(&e->transfer, &e->plan.pieces[0]);
    ASSERT_ZOFF_OK(zoff_engine_stages_accumulate(e.get(), run(0)));
    EXPECT_EQ(first, std::vector<float>(sum, sum + first.size()));
    EXPECT_EQ(1024u * 2, e->run.info.bytes.host_read);
    EXPECT_EQ(1024u * 4, e->run.info.bytes.host_written);
    ASSERT_ZOFF_OK(zoff_engine_stages_accumulate(e.get(), run(1)));
    EXPECT_EQ(1024u * 2, e->run.info.bytes.host_read) << "a slice without a gradient is left out";
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    t.backward(0, 0, 0.1f);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_engine_stages_accumulate(e.get(), run(0)));
    EXPECT_EQ(t.tensors[0].sum, std::vector<float>(sum, sum + first.size()));
    EXPECT_EQ(1024u * (2 + 4), e->run.info.bytes.host_read) << "the sum so far is read, too";
}

TEST_P(Stages, MeasureCountsBucketsAndReadsGradientsOnlyWhereSomebodyLooks)
{
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    for (bool looks : {true, false}) {
        ASSERT_NO_FATAL_FAILURE(begin(1, &args, looks ? "" : ", \"zoff\": {\"skip_nonfinite\": false}"));
        ASSERT_EQ(looks, e->run.looks);
        ASSERT_ZOFF_OK(zoff_engine_stages_measure(e.get(), run(0)));
        ASSERT_ZOFF_OK(zoff_engine_stages_measure(e.get(), run(1)));
        EXPECT_EQ(2u, e->transfer.measure.buckets);
        EXPECT_EQ(looks ? 1024u * 2 : 0, e->run.info.bytes.host_read);
        double want = 0;
        for (size_t k = 0; k < 1024; k++)
            want += (double)t.tensors[0].sum[k] * (double)t.tensors[0].sum[k];
        EXPECT_NEAR(looks ? want : 0, zoff_base_exact_value(&e->transfer.measure.vote.squares), 1e-9 * want);
        ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
        t.next_step();
    }
}

TEST_P(Stages, TheGateWaitsForAllBucketsAndLetsThroughWhoMayBorrow)
{
    ASSERT_NO_FATAL_FAILURE(begin());
    for (size_t i = 0; i < 3; i++) {
        EXPECT_EQ(ZOFF_PENDING, zoff_engine_stages_gate(e.get(), run(0)));
        ASSERT_ZOFF_OK(zoff_engine_stages_measure(e.get(), run(i)));
    }
    EXPECT_ZOFF_OK(zoff_engine_stages_gate(e.get(), run(0)));
    (void)zoff_engine_admit_until(e.get());
    EXPECT_ZOFF_OK(zoff_engine_stages_gate(e.get(), run(2))) << "files: there are three slots";
    const bool files = GetParam();
    e->walk.any_order = false; // as with several ranks
    EXPECT_EQ(files ? ZOFF_OK : ZOFF_PENDING, zoff_engine_stages_gate(e.get(), run(2)));
    e->run.first = 2;
    EXPECT_ZOFF_OK(zoff_engine_stages_gate(e.get(), run(2)));
}

TEST_P(Stages, FetchBorrowsAndChecksWhatHasAGradient)
{
    ASSERT_NO_FATAL_FAILURE(begin());
    ASSERT_ZOFF_OK(until_done(zoff_engine_stages_fetch, run(0)));
    ASSERT_NE(nullptr, run(0)->lent.states.base);
    const float *m = (const float *)(void *)(run(0)->lent.states.base + e->plan.chunks[0].starts[ZOFF_STREAM_M]);
    EXPECT_EQ(t.tensors[0].m, std::vector<float>(m, m + 1024));
    ASSERT_ZOFF_OK(until_done(zoff_engine_stages_fetch, run(1)));
    EXPECT_EQ(nullptr, run(1)->lent.states.base);
    EXPECT_EQ(nullptr, run(0)->lent.weights.base) << "the engine keeps no weights here";
}

TEST_P(Stages, FlushGivesBackOnceAndForThisStep)
{
    ASSERT_NO_FATAL_FAILURE(begin());
    ASSERT_ZOFF_OK(until_done(zoff_engine_stages_fetch, run(0)));
    float *m = (float *)(void *)(run(0)->lent.states.base + e->plan.chunks[0].starts[ZOFF_STREAM_M]);
    m[7] = 0.5f;
    for (int again = 0; again < 2; again++) {
        ASSERT_ZOFF_OK(zoff_engine_stages_flush(e.get(), run(0)));
        EXPECT_EQ(nullptr, run(0)->lent.states.base);
        EXPECT_TRUE(run(0)->lent.states.done);
    }
    ASSERT_ZOFF_OK(until_done(zoff_engine_stages_fetch, run(0)));
    EXPECT_EQ(nullptr, run(0)->lent.states.base) << "what is done is not borrowed again";
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    t.tensors[0].m[7] = 0.5f;
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// The next stage that uses a store returns the error of background I/O.
TEST_P(Stages, AKeptErrorIsReturnedOnce)
{
    ASSERT_NO_FATAL_FAILURE(begin());
    zoff_base_progress_keep(&e->io.states, zoff_base_status_fail(ZOFF_ERR_IO, "provoked"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "provoked", zoff_engine_stages_fetch(e.get(), run(0)));
    EXPECT_ZOFF_OK(until_done(zoff_engine_stages_fetch, run(0)));
    zoff_base_progress_keep(&e->io.weights, zoff_base_status_fail(ZOFF_ERR_IO, "provoked"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "provoked", zoff_engine_stages_flush(e.get(), run(0)));
    EXPECT_ZOFF_OK(zoff_engine_stages_flush(e.get(), run(0)));
}
} // namespace
