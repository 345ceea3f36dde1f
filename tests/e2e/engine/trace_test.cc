/* SPDX-License-Identifier: Apache-2.0 */
// trace_test.cc: a trainer whose forward passes run beside the step, traced for two steps of six. The file has every row of
// every bucket of these steps and nothing else, and shows reads, updates and writes beside the program's work. Results are
// those of an engine without a trace.
#include "small_engine.h"
#include "trace_file.h"

#include <algorithm>

#include <unistd.h>

using namespace zoff_test;

namespace
{
enum { FIRST = 3, LAST = 4, STEPS = 6, CHUNK = 2048, HOST_BYTES = 256 << 10 };

class Traced : public testing::TestWithParam<unsigned> // background threads
{
  protected:
    ~Traced() override { unsetenv("ZOFF_TRACE"); }

    static void fill(trainer &t)
    {
        for (int i = 0; i < 4; i++)
            t.add(3000 + 700 * (size_t)i, 2, ZOFF_BF16, ZOFF_BF16);
    }

    std::string text(unsigned background) const
    {
        return config_text(folder.path, 1, ", \"zoff\": {\"background_threads\": " + std::to_string(background) + "}");
    }

    // The program computes for 4 ms on each slice.
    static void pass(trainer &t, zoff_engine *e)
    {
        for (size_t i = 0; i < t.tensors.size(); i++) {
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                ASSERT_ZOFF_OK(zoff_param_wait(e, (zoff_param)i, slice, nullptr));
                usleep(4000);
            }
        }
    }

    static void step(trainer &t, zoff_engine *e)
    {
        t.next_step();
        t.backward_all(0.01f);
        t.hand_over_all(e);
        ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
        ASSERT_NO_FATAL_FAILURE(pass(t, e));
        ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
    }

    // A thread measures gradients before the step begins. So those of the first step may be missing.
    static void expect_every_row_once(const std::vector<trace_event> &events, size_t buckets, bool measures_early)
    {
        std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> rows;
        for (const auto &e : events) {
            if (e.category == "row")
                rows[{e.step, e.bucket}].push_back(e.name);
        }
        EXPECT_EQ(buckets * (LAST - FIRST + 1), rows.size());
        for (auto &row : rows) {
            const auto measure = std::find(row.second.begin(), row.second.end(), "measure");
            if (measures_early && row.first.first == FIRST && measure == row.second.end())
                row.second.push_back("measure");
            std::sort(row.second.begin(), row.second.end());
            EXPECT_EQ((std::vector<std::string>{"fetch", "flush", "gate", "measure", "update"}), row.second)
                << "step " << row.first.first << ", bucket " << row.first.second;
        }
    }

    // Every event lies between the begin of the first selected step and the end of the last.
    static void expect_nothing_outside(const std::vector<trace_event> &events)
    {
        int64_t from = INT64_MAX, to = 0;
        for (const auto &e : events) {
            if (e.category == "call") {
                from = e.name == "zoff_step_begin" ? std::min(from, e.begin) : from;
                to = e.name == "zoff_step_wait" ? std::max(to, e.end) : to;
            }
        }
        for (const auto &e : events) {
            EXPECT_TRUE(e.phase == "M" || (e.begin >= from && e.end <= to)) << e.phase << " " << e.name;
            EXPECT_TRUE(e.step == -1 || (e.step >= FIRST && e.step <= LAST)) << e.name << " of step " << e.step;
        }
    }

    // Whether something of this name begins with these letters and is under way while the program computes.
    static bool is_beside(const std::vector<trace_event> &events, const std::string &prefix, int64_t step)
    {
        std::map<std::string, int64_t> ends;
        for (const auto &e : events) {
            if (e.phase == "e")
                ends[e.id] = e.begin;
        }
        for (const auto &work : events) {
            if (work.step != step || work.phase == "e" || work.name.compare(0, prefix.size(), prefix) != 0)
                continue;
            const int64_t end = work.phase == "b" ? ends[work.id] : work.end;
            for (const auto &e : events) {
                if (e.name == "program computes" && e.step == step && work.begin < e.end && end > e.begin)
                    return true;
            }
        }
        return false;
    }

    scratch_folder folder;
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Background, Traced, testing::Values(0u, 1u),
                         [](const auto &p) { return p.param ? "thread" : "calls"; });

TEST_P(Traced, ShowsTheSelectedStepsBesideTheForwardPass)
{
    const std::string path = folder.file("trace.json");
    trainer plain(5), traced(5);
    fill(plain);
    fill(traced);
    engine a = seal_engine(plain, text(0), CHUNK);
    ASSERT_EQ(0, setenv("ZOFF_TRACE", (path + ":3-4").c_str(), 1));
    engine b = seal_engine(traced, text(GetParam()), CHUNK, HOST_BYTES);
    const size_t buckets = plan_of(b.get()).chunk_count;
    ASSERT_LT(8u, buckets);
    for (int64_t i = 1; i <= STEPS; i++) {
        ASSERT_NO_FATAL_FAILURE(step(plain, a.get()));
        ASSERT_NO_FATAL_FAILURE(step(traced, b.get()));
        if (i == LAST) {
            EXPECT_EQ(2 * buckets, count_events(read_trace(path), "X", "update")) << "complete while the program goes on";
        }
    }
    b.reset();
    for (size_t i = 0; i < plain.tensors.size(); i++) {
        for (size_t k = 0; k < plain.tensors[i].total(); k++)
            ASSERT_EQ(trainer::get(plain.value(i), ZOFF_BF16, plain.place(i, k)),
                      trainer::get(traced.value(i), ZOFF_BF16, traced.place(i, k)));
    }
    const auto events = read_trace(path);
    expect_sound_tracks(events);
    expect_every_row_once(events, buckets, GetParam() > 0);
    expect_nothing_outside(events);
    EXPECT_EQ(2u, count_events(events, "X", "zoff_step_begin"));
    EXPECT_EQ(2u, count_events(events, "X", "zoff_step_wait"));
    EXPECT_EQ(2u * 8, count_events(events, "X", "zoff_param_wait"));
    EXPECT_EQ(2u * 8, count_events(events, "X", "zoff_grad_ready") + 8) << "those before step 3 are outside";
    EXPECT_EQ(2u * 9, count_events(events, "X", "program computes")) << "after step_begin, and after each wait";
    EXPECT_EQ(2u, count_events(events, "i", "gate open"));
    for (int64_t i = FIRST; i <= LAST; i++) {
        EXPECT_TRUE(is_beside(events, "write ", i)) << i;
        EXPECT_EQ(GetParam() == 1, is_beside(events, "update", i)) << i;
        EXPECT_TRUE(GetParam() == 0 || is_beside(events, "read ", i)) << i << "; a call may wait for all reads that it starts";
    }
}

// Rows of the thread beside the backward pass in four steps, each of which gives it this pause.
struct thread_rows {
    size_t fetched, put, shared;
};
thread_rows rows_of_a_thread(useconds_t pause)
{
    enum { LARGE = 1 << 20, PIECE = 1 << 18 };
    scratch_folder folder;
    const std::string path = folder.file("trace.json");
    trainer t(9);
    for (int i = 0; i < 3; i++)
        t.add(LARGE, 1, ZOFF_BF16, ZOFF_BF16);
    setenv("ZOFF_TRACE", path.c_str(), 1);
    const std::string own = ", \"zoff\": {\"background_threads\": 1, \"threads\": 2, \"speculation_memory\": \"16MiB\"}";
    engine e = seal_engine(t, config_text(folder.path, 1, own), PIECE);
    unsetenv("ZOFF_TRACE");
    for (int i = 0; i < 4; i++) {
        t.next_step();
        t.backward_all(0.01f);
        t.hand_over_all(e.get());
        usleep(pause);
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    e.reset();
    int64_t thread = -1;
    const auto events = read_trace(path);
    for (const auto &x : events)
        thread = x.phase == "M" && x.text == "background thread" ? x.tid : thread;
    thread_rows rows = {0, 0, 0};
    for (const auto &x : events) {
        rows.fetched += x.tid == thread && x.name == "fetch";
        rows.put += x.tid == thread && x.name == "put";
        rows.shared += x.tid == thread && x.name.compare(0, 9, "share of ") == 0;
    }
    return rows;
}

// One thread beside the backward pass updates, checks what it has read and computes checksums alone, although calls have two.
// (A part of a row that a team works on is shown for each of its threads.) Where 50 ms are too few, it gets longer pauses.
TEST(TracedThread, WorksAloneIfItIsOne)
{
    log_catcher log;
    thread_rows rows = {0, 0, 0};
    for (useconds_t pause = 50000; pause < 10000000 && (rows.fetched == 0 || rows.put == 0); pause *= 5) {
        rows = rows_of_a_thread(pause);
        EXPECT_EQ(0u, rows.shared);
    }
    EXPECT_LT(0u, rows.fetched);
    EXPECT_LT(0u, rows.put);
}

// The thread has 20 ms for it in the first step, and twice as long in each later one: a busy machine may need it.
TEST_P(Traced, AThreadMeasuresGradientsBeforeTheStep)
{
    const std::string path = folder.file("trace.json");
    trainer t(7);
    fill(t);
    ASSERT_EQ(0, setenv("ZOFF_TRACE", path.c_str(), 1));
    engine e = seal_engine(t, text(GetParam()), CHUNK, HOST_BYTES);
    const size_t buckets = plan_of(e.get()).chunk_count;
    for (int i = 0; i < STEPS; i++) {
        t.next_step();
        t.backward_all(0.01f);
        t.hand_over_all(e.get());
        usleep(20000u << i);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    e.reset();
    const auto events = read_trace(path);
    size_t most = 0;
    for (const auto &call : events) {
        size_t early = 0;
        for (const auto &row : events)
            early += row.name == "measure" && row.step == call.step && row.end <= call.begin;
        most = call.name == "zoff_step" ? std::max(most, early) : most;
    }
    EXPECT_EQ(GetParam() ? buckets : 0, most);
}

TEST_P(Traced, ASkippedStepSaysSo)
{
    const std::string path = folder.file("trace.json");
    log.expect("skipped");
    trainer t(6);
    fill(t);
    ASSERT_EQ(0, setenv("ZOFF_TRACE", path.c_str(), 1));
    engine e = seal_engine(t, text(GetParam()), CHUNK);
    ASSERT_NO_FATAL_FAILURE(step(t, e.get()));
    t.next_step();
    t.backward_all(0.01f);
    trainer::put(t.grad(0), ZOFF_BF16, t.place(0, 5), INFINITY);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    ASSERT_NO_FATAL_FAILURE(step(t, e.get()));
    e.reset();
    const auto events = read_trace(path);
    EXPECT_EQ(2u, count_events(events, "i", "gate open"));
    EXPECT_EQ(1u, count_events(events, "i", "gate skip"));
    EXPECT_EQ(1u, count_events(events, "X", "zoff_step"));
    expect_sound_tracks(events);
}
} // namespace
