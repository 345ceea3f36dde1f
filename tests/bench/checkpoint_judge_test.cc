/* SPDX-License-Identifier: Apache-2.0 */
// checkpoint_judge_test.cc: tests the verdicts of the checkpoints' benchmark on results that are made up: which one is a value,
// which one is void and why.
#include "zoff_test.h"

#include <jansson.h>
#include <string.h>
#include <zoff/zoff.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "checkpoint_bench.h"
}

namespace
{
// A figure of 1 has no limit that it misses: its yardstick took as long.
class checkpoint_judge : public testing::Test
{
  protected:
    checkpoint_judge()
    {
        disk.elements = 96u << 20;
        disk.busy = DISK_ALONE;
        disk.in_memory = false;
        checkpoint = {};
    }
    ~checkpoint_judge() override
    {
        while (race_book.count)
            free(race_book.races[--race_book.count]);
    }

    static race_entry *add(race *r, const char *name)
    {
        race_line line = {};
        line.name = name;
        line.what = "";
        return race_add(r, &line, 1, nullptr, 1);
    }
    // Add a race of two, one round for each pair: seconds of both, and whether somebody disturbed them.
    void add_duel(const char *part, const char *label, const std::vector<std::pair<double, double>> &rounds,
                  const std::vector<size_t> &disturbed = {})
    {
        const bool save = strstr(part, "save"), host = strcmp(label, "host") == 0;
        race *r = race_open(part, label);
        race_entry *a = add(r, save ? (host ? "save_host" : "save_nvme") : host ? "load_host" : "load_nvme");
        race_entry *b = add(r, host ? (save ? "aio_new_file" : "aio_read") : strcmp(part, "save") == 0 ? "copy" : "aio_mix");
        for (const auto &[ours, theirs] : rounds) {
            a->seconds[r->rounds] = ours;
            b->seconds[r->rounds++] = theirs;
        }
        for (size_t round : disturbed)
            b->disturbed[round] = true;
    }
    const bench_figure &judge(const std::string &name)
    {
        judge_all();
        return *bench_figures_find(name.c_str());
    }
    void judge_all()
    {
        bench_figures.count = 0;
        ::checkpoint_judge();
    }
    // Expect this value, with a verdict.
    void expect_value(const char *name, double value, bool held)
    {
        const bench_figure &f = judge(name);
        EXPECT_DOUBLE_EQ(value, f.value) << name;
        EXPECT_STREQ("", f.spoilt) << name;
        EXPECT_EQ(held, bench_figures_held(&f)) << name;
    }
    void expect_void(const char *name, const char *why)
    {
        const bench_figure &f = judge(name);
        EXPECT_TRUE(bench_figures_measured(&f)) << name;
        EXPECT_FALSE(bench_figures_held(&f)) << name;
        EXPECT_NE(std::string::npos, std::string(f.spoilt).find(why)) << name << ": " << f.spoilt;
    }
    void expect_missing(const char *name, const char *why)
    {
        const bench_figure &f = judge(name);
        EXPECT_TRUE(std::isnan(f.value)) << name << ": " << f.value;
        EXPECT_FALSE(bench_figures_held(&f)) << name;
        EXPECT_NE(std::string::npos, std::string(f.missing).find(why)) << name << ": " << f.missing;
    }
};

const std::vector<std::pair<double, double>> FIVE = {{2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}};
const char NO_PART[] = "not among the parts";

TEST_F(checkpoint_judge, nothing_is_measured_in_an_empty_run)
{
    judge_all();
    EXPECT_EQ(17u, bench_figures.count);
    for (unsigned i = 0; i < bench_figures.count; i++)
        expect_missing(bench_figures.list[i].asked.name, NO_PART);
}

TEST_F(checkpoint_judge, a_speed_is_the_median_of_the_rounds)
{
    add_duel("save", "host", {{1, 0.7}, {1, 0.8}, {1, 0.95}, {1, 1.1}, {1, 1.2}});
    expect_value("save_host_vs_aio", 0.95, true);
    add_duel("save", "nvme", {{1, 0.7}, {1, 0.8}, {1, 0.85}, {1, 1.1}, {1, 1.2}});
    expect_value("save_nvme_vs_copy", 0.85, false);
}

TEST_F(checkpoint_judge, disturbed_rounds_do_not_count)
{
    add_duel("save", "host", {{1, 1}, {1, 1}, {1, 9}, {1, 9}, {1, 9}, {1, 1}, {1, 1}, {1, 1}}, {2, 3, 4});
    expect_value("save_host_vs_aio", 1, true);
}

TEST_F(checkpoint_judge, too_few_quiet_rounds_are_void)
{
    add_duel("save", "host", FIVE, {1});
    expect_void("save_host_vs_aio", "other processes used the CPUs in 1 of 5 rounds");
}

// The machine was quiet, so the reason must not be other processes.
TEST_F(checkpoint_judge, too_few_rounds_are_void)
{
    add_duel("save", "host", {{1, 1}, {1, 1}, {1, 1}, {1, 1}});
    expect_void("save_host_vs_aio", "4 rounds ended in time; a verdict needs 5");
}

TEST_F(checkpoint_judge, a_yardstick_without_registered_memory_proves_nothing)
{
    for (const char *part : {"save", "load", "throttled_save", "throttled_load"}) {
        for (const char *tier : {"host", "nvme"})
            add_duel(part, tier, FIVE);
    }
    expect_value("load_vs_aio", 1, true);
    checkpoint.unregistered = true;
    for (const char *name :
         {"save_host_vs_aio", "load_host_vs_aio", "load_nvme_vs_aio", "load_vs_aio", "throttled_save_host_vs_aio",
          "throttled_save_nvme_vs_aio", "throttled_load_host_vs_aio", "throttled_load_nvme_vs_aio"})
        expect_void(name, "was not registered");
    expect_value("save_nvme_vs_copy", 1, true); // a copy registers nothing
}

TEST_F(checkpoint_judge, the_slower_load_counts)
{
    add_duel("load", "host", FIVE);
    expect_missing("load_vs_aio", NO_PART);
    add_duel("load", "nvme", {{2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}});
    expect_value("load_vs_aio", 0.5, false);
}

TEST_F(checkpoint_judge, a_void_load_makes_both_void)
{
    add_duel("load", "host", FIVE);
    add_duel("load", "nvme", FIVE, {0});
    expect_void("load_vs_aio", "other processes");
}

// The host's save reads nothing, so a 0 there is a measured one.
TEST_F(checkpoint_judge, moved_bytes_are_those_of_both_tiers)
{
    checkpoint.tiers[CHECKPOINT_HOST] = {{0, 1.01}, {1, 0}, 0, 0};
    expect_missing("moved_over_state", "only one of the two tiers");
    checkpoint.tiers[CHECKPOINT_NVME] = {{1, 1}, {0, 0}, 0, 0}; // the tier's load was not counted
    expect_missing("moved_over_state", "only one of the two tiers");
    checkpoint.tiers[CHECKPOINT_NVME] = {{1, 1}, {1, 1}, 0, 0};
    expect_value("moved_over_state", 1.01, true);
    checkpoint.tiers[CHECKPOINT_NVME].loaded[1] = 1.03;
    expect_value("moved_over_state", 1.03, false);
}

TEST_F(checkpoint_judge, memory_is_that_of_both_tiers)
{
    checkpoint.tiers[CHECKPOINT_NVME].save_peak = 0.9;
    expect_missing("save_peak_over_plan", "only one of the two tiers");
    expect_missing("load_peak_over_plan", NO_PART);
    checkpoint.tiers[CHECKPOINT_HOST].save_peak = 1;
    expect_value("save_peak_over_plan", 1, true);
    checkpoint.tiers[CHECKPOINT_HOST].load_peak = 1.03;
    checkpoint.tiers[CHECKPOINT_NVME].load_peak = -0.1; // the load failed
    expect_missing("load_peak_over_plan", "only one of the two tiers");
    race_open("memory", "peaks")->missing = "the reason";
    expect_missing("load_peak_over_plan", "the reason");
    checkpoint.tiers[CHECKPOINT_NVME].load_peak = 1;
    expect_value("load_peak_over_plan", 1.03, false);
}

TEST_F(checkpoint_judge, a_save_beside_steps_costs_the_difference_over_its_bytes)
{
    race *r = race_open("async", "half of the time is compute");
    std::fill_n(add(r, "steps")->seconds, 5, 10);
    std::fill_n(add(r, "steps_and_save")->seconds, 5, 12);
    std::fill_n(add(r, "aio_mix")->seconds, 5, 2);
    r->rounds = 5;
    expect_value("async_save_over_bytes_compute", 1, true);
    expect_missing("async_save_over_bytes", NO_PART);
    checkpoint.unregistered = true;
    expect_void("async_save_over_bytes_compute", "was not registered");
}

TEST_F(checkpoint_judge, void_reasons_are_those_of_the_run)
{
    add_duel("save", "host", FIVE);
    disk.in_memory = true;
    expect_void("save_host_vs_aio", "in memory");
    disk.elements = 32u << 20;
    expect_void("save_host_vs_aio", "384 MiB");
    disk.busy = 0;
    expect_void("save_host_vs_aio", "--busy");
}

TEST_F(checkpoint_judge, missing_figures_have_the_reason_of_their_part)
{
    for (const char *part : {"throttled_save", "throttled_load"}) {
        for (const char *tier : {"host", "nvme"})
            race_open(part, tier)->missing = "no cgroup";
    }
    race_open("async", "the disk is held at 1 GB/s each way")->missing = "no cgroup";
    race_open("reflink", "XFS")->missing = "no mount";
    for (const char *name : {"throttled_save_host_vs_aio", "throttled_load_nvme_vs_aio", "async_save_over_bytes_throttled"})
        expect_missing(name, "no cgroup");
    for (const char *name : {"async_save_over_bytes_reflink", "save_nvme_reflink_seconds_per_gib"})
        expect_missing(name, "no mount");
    expect_missing("load_nvme_vs_aio", NO_PART);
}
} // namespace
