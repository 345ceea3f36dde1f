// pipeline_test.cc: each bucket goes through its rows, each row once. An error names its place, and the walk continues from
// there.
#include "small_engine.h"

#include <algorithm>
#include <math.h>

extern "C" {
#include "engine_priv.h"
#include "try.h"
}

using namespace zoff_test;

namespace
{
// Replaces a row of the table, and calls it.
struct probe {
    zoff_row row;
    std::vector<std::string> *done; // "bucket row", for each call
    size_t fails_at = SIZE_MAX;     // the first call for this bucket is an error
    unsigned pending = 0;           // calls that return PENDING

    static zoff_status run(void *ctx, zoff_bucket_run *run)
    {
        auto self = static_cast<probe *>(ctx);
        if (run->chunk == self->fails_at) {
            self->fails_at = SIZE_MAX;
            return zoff_base_status_fail(ZOFF_ERR_IO, "provoked");
        }
        if (self->pending && self->pending--)
            return ZOFF_PENDING;
        const zoff_status status = self->row.run(self->row.ctx, run);
        if (status == ZOFF_OK)
            self->done->push_back(std::to_string(run->chunk) + " " + self->row.name);
        return status;
    }
};

class Pipeline : public testing::Test
{
  protected:
    Pipeline() : t(1)
    {
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        e = seal_engine(t, config_text(folder.path), 1024);
        zoff_rows &rows = e->walk.rows[0];
        std::vector<zoff_row *> of_step;
        for (unsigned i = 0; i < rows.count; i++) {
            if (rows.in[ZOFF_COLUMN_STEP] >> i & 1)
                of_step.push_back(&rows.row[i]);
        }
        for (const zoff_row *row : of_step)
            probes.push_back({*row, &done});
        for (size_t i = 0; i < of_step.size(); i++) {
            of_step[i]->run = probe::run;
            of_step[i]->ctx = &probes[i];
        }
        t.backward_all(0.1f);
    }
    probe &at(const std::string &name)
    {
        for (probe &p : probes) {
            if (p.row.name == name)
                return p;
        }
        ADD_FAILURE() << "no row " << name;
        return probes[0];
    }
    std::vector<std::string> sorted(std::vector<std::string> list) const
    {
        std::sort(list.begin(), list.end());
        return list;
    }
    // Every bucket through every row.
    std::vector<std::string> all() const
    {
        std::vector<std::string> list;
        for (size_t i = 0; i < e->plan.chunk_count; i++) {
            for (const probe &p : probes)
                list.push_back(std::to_string(i) + " " + p.row.name);
        }
        return sorted(list);
    }
    void expect_the_step()
    {
        reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
    scratch_folder folder;
    log_catcher log;
    std::vector<std::string> done;
    std::vector<probe> probes;
    trainer t;
    engine e;
};

TEST_F(Pipeline, EachBucketGoesThroughEachRowOnce)
{
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_EQ(5u, e->plan.chunk_count);
    EXPECT_EQ(all(), sorted(done));
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        EXPECT_EQ(std::to_string(i) + " measure", done[i]) << "all are measured before one is through the gate";
    ASSERT_NO_FATAL_FAILURE(expect_the_step());
}

TEST_F(Pipeline, ARowThatIsPendingIsAskedAgain)
{
    at("fetch").pending = 4;
    at("gate").pending = 2;
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_EQ(all(), sorted(done));
    ASSERT_NO_FATAL_FAILURE(expect_the_step());
}

TEST_F(Pipeline, AnErrorNamesItsPlaceAndTheRetryContinuesFromThere)
{
    for (const char *row : {"measure", "fetch", "update", "flush"}) {
        SCOPED_TRACE(row);
        done.clear();
        const int64_t number = e->t + 1;
        at(row).fails_at = 3;
        auto info = new_info();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, std::string("bucket 3, stage ") + row + ": provoked",
                          zoff_step(e.get(), nullptr, &info));
        EXPECT_EQ(0u, std::count(done.begin(), done.end(), std::string("3 ") + row));
        EXPECT_EQ(row == std::string("measure") ? ZOFF_OUTCOME_BEFORE : ZOFF_OUTCOME_TORN, info.outcome);
        ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
        EXPECT_EQ(all(), sorted(done)) << "nothing is done twice";
        EXPECT_EQ(5000u, info.numbers.elements_updated);
        reference::step(t.tensors, config_groups(), number, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_F(Pipeline, BehindAGateThatSkipsNothingHappens)
{
    trainer::put(t.grad(0), ZOFF_BF16, 4000, INFINITY);
    log.expect("step 1 skipped");
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    for (const std::string &each : done)
        EXPECT_NE(std::string::npos, each.find("measure")) << each;
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        EXPECT_EQ(nullptr, e->transfer.walk.runs[i].lent.states.base) << "what was borrowed is given back";
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_F(Pipeline, ReleaseGivesBackUnchanged)
{
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    zoff_bucket_run *first = &e->transfer.walk.runs[0];
    while (!first->lent.states.base)
        ASSERT_GE(zoff_engine_admit_borrow(e.get(), first), 0) << zoff_last_error();
    zoff_engine_pipeline_release(e.get());
    EXPECT_EQ(nullptr, first->lent.states.base);
    zoff_store_stats before, after;
    zoff_engine_stores_stats(e.get(), &before);
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    zoff_engine_stores_stats(e.get(), &after);
    EXPECT_EQ(before.write_bytes, after.write_bytes);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}
} // namespace
