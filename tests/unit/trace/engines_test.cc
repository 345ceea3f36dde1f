/* SPDX-License-Identifier: Apache-2.0 */
// engines_test.cc: the trace of a process: which engines and threads share a file, when it begins and ends, and who says what
// is wrong, once.
#include "aio_place.h"
#include "trace_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include "trace_priv.h"
#include "try.h"
}

using namespace zoff_test;

namespace
{
class Trace : public testing::Test
{
  protected:
    ~Trace() override { unsetenv("ZOFF_TRACE"); }
    void select(const std::string &range = "") { ASSERT_EQ(0, setenv("ZOFF_TRACE", (path + range).c_str(), 1)); }
    static zoff_trace *start(unsigned rank = 0, unsigned ranks = 1, bool are_threads = true)
    {
        const zoff_trace_rank who = {rank, ranks, are_threads};
        return zoff_trace_open(&who, 4);
    }
    // A step of the engine: one call with one row.
    static void step(zoff_trace *t, int64_t number, const char *row = "row")
    {
        zoff_trace_call call = zoff_trace_enter(t, "call", false);
        zoff_trace_step_begin(t, number);
        const zoff_trace_row r = {row, 1, 100};
        zoff_trace_end_row(t, &r, zoff_trace_begin_row(t, row), ZOFF_OK);
        zoff_trace_step_end(t);
        zoff_trace_leave(&call);
    }
    scratch_folder folder;
    const std::string path = folder.file("t.json");
    log_catcher log;
};
} // namespace

TEST_F(Trace, WithoutTheVariableThereIsNone)
{
    unsetenv("ZOFF_TRACE");
    EXPECT_EQ(nullptr, start());
    step(nullptr, 1);
    zoff_trace_close(nullptr);
    EXPECT_FALSE(zoff_trace_on());
}

TEST_F(Trace, HasTheSelectedStepsOnly)
{
    select(":2-3");
    zoff_trace *t = start();
    ASSERT_TRUE(t);
    for (int64_t i = 1; i <= 5; i++) {
        step(t, i);
        EXPECT_EQ(i == 2, zoff_trace_on()) << i;
        if (i == 3) {
            EXPECT_EQ(2u, count_events(read_trace(path), "X", "row")) << "the file is complete while the program goes on";
        }
    }
    zoff_trace_close(t);
    const auto events = read_trace(path);
    EXPECT_EQ(2u, count_events(events, "X", "row"));
    EXPECT_EQ(2u, count_events(events, "X", "call"));
    for (const auto &e : events)
        EXPECT_TRUE(e.step == -1 || e.step == 2 || e.step == 3) << e.name;
    expect_sound_tracks(events);
}

TEST_F(Trace, EnginesShareTheFileAndHaveNames)
{
    select();
    zoff_trace *a = start(0, 2), *b = start(1, 2);
    step(a, 1);
    step(b, 7);
    zoff_trace_close(a);
    EXPECT_EQ(2u, count_events(read_trace(path), "X", "row"));
    step(b, 8);
    zoff_trace_close(b);
    zoff_trace *c = start();
    step(c, 1);
    zoff_trace_close(c);
    const auto events = read_trace(path);
    EXPECT_EQ(4u, count_events(events, "X", "row"));
    std::set<int64_t> pids;
    std::set<std::string> names;
    for (const auto &e : events) {
        pids.insert(e.pid);
        if (e.name == "process_name")
            names.insert(e.text);
    }
    EXPECT_EQ(3u, pids.size());
    EXPECT_EQ((std::set<std::string>{"zoff engine 1, rank 0 of 2", "zoff engine 2, rank 1 of 2", "zoff engine 3"}), names);
    expect_sound_tracks(events);
}

TEST_F(Trace, RanksThatAreProcessesHaveAFileEach)
{
    select();
    zoff_trace *t = start(3, 4, false);
    step(t, 1);
    zoff_trace_close(t);
    EXPECT_EQ(1u, count_events(read_trace(folder.file("t.rank3.json")), "X", "row"));
    EXPECT_NE(0, access(path.c_str(), F_OK));
}

TEST_F(Trace, ABadValueIsToldOnceAndTheLibraryGoesOn)
{
    log.expect("it may be FILE, or FILE:FIRST-LAST");
    select(":5-3");
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(nullptr, start());
    EXPECT_EQ(1u, log.warnings.size());
}

TEST_F(Trace, AFileThatCannotBeOpenedIsToldOnce)
{
    log.expect("cannot open the trace");
    ASSERT_EQ(0, setenv("ZOFF_TRACE", folder.file("none/t.json").c_str(), 1));
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(nullptr, start());
    EXPECT_EQ(1u, log.warnings.size());
}

TEST_F(Trace, AFileThatCannotGrowEndsTheTraceAndNoStep)
{
    log.expect("it ends here");
    select();
    zoff_trace *t = start();
    step(t, 1);
    rlimit before, small;
    ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
    small = {16384, before.rlim_max};
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &small));
    for (int64_t i = 2; i < 200; i++)
        step(t, i);
    EXPECT_FALSE(zoff_trace_on());
    step(t, 200);
    zoff_trace_close(t);
    EXPECT_EQ(0, setrlimit(RLIMIT_FSIZE, &before));
    signal(SIGXFSZ, handler);
    EXPECT_EQ(1u, log.warnings.size());
    const size_t rows = count_events(read_trace(path), "X", "row");
    EXPECT_TRUE(rows > 20 && rows < 200) << rows << " are there still";
}

TEST_F(Trace, ThreadsHaveATrackEach)
{
    enum { THREADS = 8, ROWS = 500 };
    select();
    zoff_trace *t = start();
    zoff_trace_step_begin(t, 1);
    std::vector<std::thread> threads;
    for (unsigned k = 0; k < THREADS; k++) {
        threads.emplace_back([t, k] {
            for (unsigned i = 0; i < ROWS; i++) {
                zoff_trace_event event = {};
                event.phase = 'X';
                event.name = "work";
                event.from = event.to = zoff_trace_now();
                zoff_trace_engines_emit(t, &event, k);
            }
        });
    }
    for (auto &thread : threads)
        thread.join();
    zoff_trace_close(t);
    std::map<int64_t, size_t> tracks;
    for (const auto &e : read_trace(path))
        tracks[e.tid] += e.name == "work";
    tracks.erase(0); // the track of the process
    EXPECT_EQ((size_t)THREADS, tracks.size());
    for (const auto &track : tracks)
        EXPECT_EQ((size_t)ROWS, track.second);
}

TEST_F(Trace, TwoEnginesInTurnsKeepTheirTracks)
{
    select();
    zoff_trace *a = start(), *b = start();
    for (int64_t i = 1; i <= 4; i++) {
        step(a, i);
        step(b, i);
    }
    zoff_trace_close(a);
    zoff_trace_close(b);
    EXPECT_EQ(2u, count_events(read_trace(path), "M", "thread_name"));
}

TEST_F(Trace, WithoutARangeItEndsAtTheLimit)
{
    log.expect("gets no more; select steps");
    select();
    zoff_trace *t = start();
    zoff_trace_step_begin(t, 1);
    zoff_trace_event event = {};
    event.phase = 'i';
    event.name = "x";
    for (unsigned i = 0; i < ZOFF_TRACE_EVENTS_MOST + 100; i++) {
        event.from = zoff_trace_clock();
        zoff_trace_engines_emit(t, &event, 0);
    }
    EXPECT_FALSE(zoff_trace_on());
    zoff_trace *other = start();
    step(other, 1);
    zoff_trace_close(other);
    zoff_trace_close(t);
    EXPECT_EQ(nullptr, start()) << "the same value is of no use any more";
    EXPECT_EQ(1u, log.warnings.size());
    char tail[5] = "";
    FILE *file = fopen(path.c_str(), "r");
    ASSERT_TRUE(file && fseek(file, -4, SEEK_END) == 0 && fread(tail, 1, 4, file) == 4);
    fclose(file);
    EXPECT_STREQ("\n]}\n", tail);
}

TEST_F(Trace, AChildWritesNothing)
{
    select();
    zoff_trace *t = start();
    step(t, 1);
    zoff_trace_step_begin(t, 2);
    EXPECT_EQ("", in_child([&]() -> std::string {
                  step(t, 2, "of the child");
                  zoff_trace_engines_flush();
                  const bool opens = start() != nullptr;
                  zoff_trace_close(t);
                  return opens ? "a child has a trace" : "";
              }));
    step(t, 2);
    zoff_trace_close(t);
    const auto events = read_trace(path);
    EXPECT_EQ(2u, count_events(events, "X", "row"));
    EXPECT_EQ(0u, count_events(events, "X", "of the child"));
}

TEST_F(Trace, AnErrorOfTheProgramStaysItsOwn)
{
    select(":x");
    log.expect("FILE:FIRST-LAST");
    zoff_base_status_fail(ZOFF_ERR_INVALID, "of the program");
    EXPECT_EQ(nullptr, start());
    EXPECT_STREQ("of the program", zoff_last_error());
}
