/* SPDX-License-Identifier: Apache-2.0 */
// marks_test.cc: which events the hooks of a step make.
#include "trace_file.h"

#include <functional>
#include <thread>

extern "C" {
#include "team.h"
#include "trace_priv.h"
}

using namespace zoff_test;

namespace
{
class Marks : public testing::Test
{
  protected:
    Marks()
    {
        setenv("ZOFF_TRACE", path.c_str(), 1);
        const zoff_trace_rank who = {0, 1, false};
        t = zoff_trace_open(&who, 4);
    }
    ~Marks() override
    {
        zoff_trace_close(t);
        unsetenv("ZOFF_TRACE");
    }
    void call(
        const char *name, const std::function<void()> &work = [] {}, bool is_poll = false)
    {
        zoff_trace_call call = zoff_trace_enter(t, name, is_poll);
        work();
        zoff_trace_leave(&call);
    }
    void begin()
    {
        call("begin", [this] { zoff_trace_step_begin(t, 5); });
    }
    void end()
    {
        call("end", [this] { zoff_trace_step_end(t); });
    }
    void row(const char *name, size_t bucket, zoff_status status = ZOFF_OK)
    {
        const zoff_trace_row r = {name, bucket, 10};
        zoff_trace_end_row(t, &r, zoff_trace_begin_row(t, name), status);
    }
    std::vector<trace_event> events()
    {
        zoff_trace_engines_flush();
        auto all = read_trace(path);
        expect_sound_tracks(all);
        return all;
    }
    scratch_folder folder;
    const std::string path = folder.file("t.json");
    log_catcher log;
    zoff_trace *t = nullptr;
};
} // namespace

TEST_F(Marks, TheProgramComputesBetweenCallsOfAnOpenStep)
{
    begin();
    call("wait");
    end();
    call("ready"); // the step is over
    begin();
    const auto all = events();
    EXPECT_EQ(2u, count_events(all, "X", "program computes"));
    int64_t left = 0;
    for (const auto &e : all) { // each begins where a call ended
        if (e.name == "program computes") {
            EXPECT_EQ(left, e.begin);
        }
        if (e.name == "wait") {
            EXPECT_LE(left, e.begin);
        }
        left = e.phase == "X" && e.name != "program computes" ? e.end : left;
    }
}

TEST_F(Marks, APollIsShownIfARowEndedInIt)
{
    begin();
    call(
        "poll", [] {}, true);
    call(
        "poll", [this] { row("fetch", 0, ZOFF_PENDING); }, true);
    EXPECT_EQ(0u, count_events(events(), "X", "poll"));
    call(
        "poll", [this] { row("fetch", 0); }, true);
    end();
    const auto all = events();
    EXPECT_EQ(1u, count_events(all, "X", "poll"));
    EXPECT_EQ(2u, count_events(all, "X", "program computes"));
}

TEST_F(Marks, ARowThatWaitsHasOneSpanAndItsLastCallAnother)
{
    begin();
    call("wait", [this] {
        for (int i = 0; i < 50; i++)
            row("fetch", 2, ZOFF_PENDING);
        row("fetch", 3);
        row("fetch", 2);
        row("update", 2);
    });
    const auto all = events();
    EXPECT_EQ(2u, count_events(all, "X", "fetch"));
    EXPECT_EQ(1u, count_events(all, "b", "fetch"));
    EXPECT_EQ(0u, count_events(all, "b", "update"));
    for (const auto &e : all) {
        if (e.name == "fetch" && e.phase == "b") {
            EXPECT_TRUE(e.bucket == 2 && e.step == 5 && e.category == "waiting");
        }
    }
}

TEST_F(Marks, ARowThatWaitsDoesNotWaitInTheNextStep)
{
    begin();
    call("wait", [this] { row("gate", 1, ZOFF_PENDING); });
    end();
    begin();
    call("wait", [this] { row("gate", 1); });
    EXPECT_EQ(0u, count_events(events(), "b", "gate"));
}

TEST_F(Marks, TransfersAreOfTheEngineWhoseCallItIs)
{
    begin();
    zoff_trace_transfer x = {};
    x.kind = "read";
    x.path = "a/\"quoted\"";
    x.item_kind = "bucket";
    x.item = 3;
    x.bytes = 4096;
    x.from = zoff_trace_now();
    x.to = zoff_trace_now();
    zoff_trace_end_transfer(&x); // outside of a call
    call("wait", [&x] {
        zoff_trace_end_transfer(&x);
        x.path = nullptr;
        x.kind = "download";
        zoff_trace_end_transfer(&x);
        x.from = 0; // the transfer began before the trace
        zoff_trace_end_transfer(&x);
        x.from = 1; // this transfer, too, began before the trace
        zoff_trace_end_transfer(&x);
    });
    const auto all = events();
    EXPECT_EQ(1u, count_events(all, "b", "read \"quoted\""));
    EXPECT_EQ(1u, count_events(all, "b", "download"));
    for (const auto &e : all) {
        if (e.phase == "b") {
            EXPECT_EQ(e.name == "download" ? "device" : "io", e.category);
        }
        if (e.name == "read \"quoted\"" && e.phase == "b") {
            EXPECT_EQ(3, e.bucket);
        }
    }
}

TEST_F(Marks, AMomentIsOnTheTrackOfItsThread)
{
    begin();
    call("wait", [this] { zoff_trace_instant(t, "gate open"); });
    const auto all = events();
    ASSERT_EQ(1u, count_events(all, "i", "gate open"));
    zoff_trace_instant(nullptr, "gate open");
}

TEST_F(Marks, SharesOfATeamAreNamedAfterTheRow)
{
    begin();
    call("wait", [this] {
        const zoff_trace_row r = {"update", 0, 10};
        const double from = zoff_trace_begin_row(t, "update");
        zoff_base_team_run(
            3, [](void *, unsigned, unsigned) {}, nullptr);
        zoff_trace_end_row(t, &r, from, ZOFF_OK);
    });
    const auto all = events();
    std::set<int64_t> tracks;
    for (const auto &e : all) {
        if (e.name == "share of update")
            tracks.insert(e.tid);
    }
    EXPECT_EQ(3u, tracks.size());
    end();
    zoff_base_team_run(
        3, [](void *, unsigned, unsigned) {}, nullptr); // threads of the program, not of the engine
    EXPECT_EQ(3u, count_events(events(), "X", "share of update") + count_events(events(), "X", "share of work"));
}

TEST_F(Marks, AThreadOfTheLibraryMakesNoCalls)
{
    begin();
    std::thread([this] {
        zoff_trace_name_thread("background thread");
        call(
            "poll", [this] { row("update", 1); }, true);
    }).join();
    const auto all = events();
    EXPECT_EQ(0u, count_events(all, "X", "poll"));
    EXPECT_EQ(1u, count_events(all, "X", "update"));
    bool named = false;
    for (const auto &e : all)
        named = named || (e.name == "thread_name" && e.text == "background thread");
    EXPECT_TRUE(named);
}
