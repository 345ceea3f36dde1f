/* SPDX-License-Identifier: Apache-2.0 */
// persist_data_test.cc: zoff_persist_data() on an engine: which commits record the program's bytes, when they come back, and
// what is refused. tests/e2e/ranks has the same for several ranks, tests/e2e/kill for runs that are killed.
#include "aio_fault.h"
#include "small_engine.h"

#include <errno.h>
#include <string.h>

using namespace zoff_test;

namespace
{
class PersistData : public testing::Test
{
  protected:
    PersistData() : t(6) { t.add(9000, 1, ZOFF_BF16, ZOFF_BF16); }

    void open(const std::string &persist = "true", unsigned accumulation = 1)
    {
        e.reset();
        e = seal_engine(t, config_text(folder.path, accumulation, ", \"zoff\": {\"persist\": " + persist + "}"), 2048);
        int64_t count = 0;
        ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
        if (count) {
            ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        }
    }
    zoff_status give(size_t count = 1)
    {
        const zoff_checkpoint_data list[] = {{"position", &position, sizeof position, false}};
        return zoff_persist_data(e.get(), list, count);
    }
    void step(int64_t to)
    {
        position = to;
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    // The position that the next engine finds; -1: none.
    int64_t reopened()
    {
        open();
        position = -1;
        EXPECT_ZOFF_OK(give());
        return position;
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
    engine e;
    int64_t position = 0;
};

TEST_F(PersistData, IsThatOfTheLastUpdate)
{
    open();
    position = 100;
    ASSERT_ZOFF_OK(give());
    EXPECT_EQ(100, position) << "nothing was found";
    step(101);
    position = 999; // the value is set after the step
    EXPECT_EQ(101, reopened());
    step(102);
    step(103);
    EXPECT_EQ(103, reopened());
    EXPECT_EQ(103, reopened()) << "opening changes nothing";
}

TEST_F(PersistData, IsRecordedByFlushAndCount)
{
    open();
    ASSERT_ZOFF_OK(give());
    step(1);
    position = 2;
    ASSERT_ZOFF_OK(zoff_state_flush(e.get()));
    EXPECT_EQ(2, reopened());
    position = 3;
    ASSERT_ZOFF_OK(zoff_step_count_set(e.get(), 1)); // the count is the same
    EXPECT_EQ(3, reopened());
    position = 4;
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    EXPECT_EQ(4, reopened());
}

// A commit before the program has given its list does not lose what was found; an update does, for it is another position.
TEST_F(PersistData, IsNotLostBeforeTheListIsGiven)
{
    open();
    ASSERT_ZOFF_OK(give());
    step(5);
    open();
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    EXPECT_EQ(5, reopened());
    open();
    step(6); // step without the list
    EXPECT_EQ(-1, reopened());
    step(7);
    ASSERT_ZOFF_OK(give(0));
    step(8); // step with an empty list
    EXPECT_EQ(-1, reopened());
}

// A step whose commit fails records nothing; the repeated one records the bytes as they are then.
TEST_F(PersistData, AFailedCommitRecordsNothing)
{
    open();
    ASSERT_ZOFF_OK(give());
    step(1);
    {
        aio_fault fault;
        fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -EIO : res; };
        position = 2;
        t.next_step();
        t.backward_all(0.1f);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "step 2 failed", zoff_step(e.get(), nullptr, nullptr));
    }
    EXPECT_EQ(1, reopened());
    step(2);
    EXPECT_EQ(2, reopened());
}

// The commit before the last, by its number: states, data and count are those of one update.
TEST_F(PersistData, TheCommitBeforeTheLastHasItsOwn)
{
    const auto open_at = [&](int64_t persist_t) {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        zoff_config *made = nullptr;
        const std::string text = config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}");
        EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "ds.json", &made));
        const config c(made);
        opts.config = made;
        opts.chunk_elements = 2048;
        opts.persist_t = persist_t;
        zoff_engine *opened = nullptr;
        const auto params = t.descs();
        e.reset();
        const zoff_status status = zoff_engine_open(&opts, params.data(), params.size(), &opened);
        e.reset(opened);
        return status;
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "persist_t is 1, but nvme_path has no states of an earlier run", open_at(1));
    open();
    ASSERT_ZOFF_OK(give());
    std::vector<reference::tensor> second;
    for (int64_t i = 1; i <= 3; i++) {
        step(10 * i);
        reference::step(t.tensors, config_groups(), i, 1, 1, 0);
        second = i == 2 ? t.tensors : second;
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the states after step 3, and those after step 2", open_at(1));
    ASSERT_ZOFF_OK(open_at(3));
    ASSERT_ZOFF_OK(open_at(2));
    t.tensors = second;
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    t.expect_weights();
    t.expect_states(e.get());
    ASSERT_ZOFF_OK(give());
    EXPECT_EQ(20, position);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "expected a number of updates", open_at(-1));
}

TEST_F(PersistData, RefusalsSayWhatToDo)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine and data must not be NULL", give());
    e = make_engine(t, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}"), 2048);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the engine is not sealed yet", give());
    e.reset();
    open("false");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "Set zoff.persist to true, which needs states on NVMe, or save the bytes in checkpoints", give());
    open("true", 2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_persist_data(e.get(), nullptr, 1));
    ASSERT_ZOFF_OK(give());
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_persist_data: 1 of 2 micro-steps", give());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_state_flush: 1 of 2 micro-steps", zoff_state_flush(e.get()));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(give(0)) << "it finishes the step";
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    EXPECT_ZOFF_OK(zoff_state_flush(e.get()));
    std::vector<char> large(70000);
    const zoff_checkpoint_data list[] = {{"large", large.data(), large.size(), true}};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "\"large\", which has 70000 bytes, the list takes more than the 65536 bytes",
                      zoff_persist_data(e.get(), list, 1));
}

TEST_F(PersistData, AnotherSizeChangesNothing)
{
    open();
    ASSERT_ZOFF_OK(give());
    step(5);
    open();
    char small[] = "abc";
    position = -1;
    const zoff_checkpoint_data list[] = {{"other", small, 3, false}, {"position", &position, 4, false}};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "\"position\" has 8 bytes in the state files, and 4 in the list",
                      zoff_persist_data(e.get(), list, 2));
    EXPECT_EQ(-1, position);
    ASSERT_ZOFF_OK(give());
    EXPECT_EQ(5, position);
}

// A step with bytes to record makes as many writes and flushes as one without.
TEST_F(PersistData, CostsNoWriteOfItsOwn)
{
    int writes[2] = {};
    for (const bool with : {false, true}) {
        t = trainer(6);
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        const std::string files = folder.path;
        ASSERT_EQ(0, system(("rm -f '" + files + "'/*").c_str()));
        open();
        if (with) {
            ASSERT_ZOFF_OK(give());
        }
        step(1);
        aio_fault fault;
        fault.result = [&](int, int res, bool is_write, uint64_t, size_t) {
            writes[with] += is_write;
            return res;
        };
        step(2);
        e.reset();
    }
    EXPECT_LT(0, writes[0]);
    EXPECT_EQ(writes[0], writes[1]);
}
} // namespace
