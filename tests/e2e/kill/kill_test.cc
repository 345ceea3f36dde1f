/* SPDX-License-Identifier: Apache-2.0 */
// kill_test.cc: kills a trainer with SIGKILL at 200 random moments of its start, its steps and its commits (by default a tenth
// of them) and restarts it each time. No step that returned may be lost, and no step may be taken twice. The trainer's own data
// must be that of the update which the states are of: the victim compares it each time it opens. In the end all states,
// weights, the loss scaler and the data must equal, bit for bit, those of a trainer that was never killed.
#include "covering.h"
#include "file_bytes.h"
#include "lives.h"
#include "zoff_test.h"

#include <chrono>
#include <fstream>
#include <random>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    unsigned paths;
    const char *more; // more keys of the section "zoff"
    int kills;
    unsigned ranks = 1;
    bool muon = false;
};

class Kill : public testing::TestWithParam<kind>
{
  protected:
    // Write a configuration with its own folders. One of seven batches halves the loss scale, and the six others double it
    // once.
    std::string config(scratch_folder *folders)
    {
        std::string paths;
        for (unsigned i = 0; i < GetParam().paths; i++)
            paths += (i ? ", \"" : "\"") + folders[i].path + "\"";
        const std::string name = folders[0].file("ds_config.json");
        std::ofstream(name) << "{\"optimizer\": {\"type\": \"" << (GetParam().muon ? "Muon" : "AdamW")
                            << "\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}}, "
                               "\"fp16\": {\"enabled\": true, \"loss_scale_window\": 4, \"hysteresis\": 1, "
                               "\"initial_scale_power\": 8}, "
                               "\"zero_optimization\": {\"stage\": 1, \"sub_group_size\": 6144, \"offload_optimizer\": "
                               "{\"device\": \"nvme\", \"nvme_path\": ["
                            << paths << "]}}, \"zoff\": {\"persist\": true, \"threads\": 1" << GetParam().more << "}}";
        return name;
    }

    // Start the trainer and kill it after `usec`, or let it end by itself if `usec` is 0.
    static life live(const std::string &config, int64_t last, const std::string &digest, unsigned usec)
    {
        const std::string ranks = std::to_string(GetParam().ranks), until = std::to_string(last);
        return zoff_test::live(
            [&](int to) {
                dup2(to, STDOUT_FILENO);
                close(to);
                setenv("ZOFF_LOG_LEVEL", "error", 1); // skipped steps are warnings
                execl(ZOFF_VICTIM, "victim", config.c_str(), until.c_str(), digest.c_str(), ranks.c_str(), nullptr);
                return 127;
            },
            usec);
    }
};

INSTANTIATE_TEST_SUITE_P(Kinds, Kill,
                         testing::Values(kind{"process", 1, ", \"durability\": \"process\"", (int)share_of(100)},
                                         kind{"power_two_paths_residents", 2, ", \"host_memory\": \"700KiB\"",
                                              (int)share_of(70)},
                                         kind{"posix", 1, ", \"io_backend\": \"posix\"", (int)share_of(30)},
                                         kind{"two_ranks", 1, "", (int)share_of(60), 2},
                                         kind{"ahead", 1, ", \"speculation_memory\": \"64MiB\"", (int)share_of(200)},
                                         kind{"ahead_residents_background", 1,
                                              ", \"host_memory\": \"700KiB\", \"background_threads\": 1, "
                                              "\"speculation_memory\": \"64MiB\"",
                                              (int)share_of(100)},
                                         kind{"muon", 1, "", (int)share_of(120), 1, true},
                                         kind{"muon_two_ranks", 1, ", \"background_threads\": 1", (int)share_of(80), 2, true}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(Kill, ContinuesBitForBit)
{
    scratch_folder folders[2], undisturbed[2], first[2], digests;
    const std::string killed = config(folders), other = config(undisturbed);
    std::mt19937 random(11);
    // The range of kill times: 40 ms, or the time of a start and two steps if that is longer (an emulator, a busy machine).
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(2, live(config(first), 2, digests.file("none"), 0).done);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    unsigned moments = std::max(40000u, (unsigned)took.count());
    int64_t returned = 0; // the last step that is known to have returned
    int killed_in_steps = 0, killed_early = 0;
    // Continue until a quarter of the kills hit an open engine. If most kills come too early, later times are used.
    const int most = 50 * GetParam().kills, wanted = GetParam().kills / 4 + 1;
    for (int i = 0; i < GetParam().kills || (i < most && (killed_in_steps < wanted || returned < wanted)); i++) {
        const life l = live(killed, 1 << 30, digests.file("none"), 1000 + random() % moments);
        ASSERT_TRUE(l.was_killed()) << "life " << i << " ended by itself";
        if (l.opened >= 0) {
            // A kill may come after the commit of one step and before the trainer prints it. Two such steps are an error.
            ASSERT_GE(l.opened, returned) << "life " << i << " lost a step that had returned";
            ASSERT_LE(l.opened, returned + 1) << "life " << i;
            returned = std::max(l.opened, l.done);
            killed_in_steps++;
        } else {
            killed_early++;
            moments += moments < 5000000 ? moments / 8 : 0;
        }
    }
    RecordProperty("killed_in_steps", killed_in_steps);
    EXPECT_GT(killed_in_steps, GetParam().kills / 4) << killed_early << " were killed before they had opened their engine";
    EXPECT_GT(returned, GetParam().kills / 4);
    const life last = live(killed, returned + 3, digests.file("killed"), 0);
    ASSERT_TRUE(WIFEXITED(last.status) && WEXITSTATUS(last.status) == 0);
    ASSERT_EQ(returned + 3, last.done);
    const life whole = live(other, returned + 3, digests.file("undisturbed"), 0);
    ASSERT_EQ(0, whole.opened);
    ASSERT_EQ(returned + 3, whole.done);
    const std::string want = bytes_of(digests.file("undisturbed"));
    const unsigned bytes = GetParam().muon ? 10 : 14; // of an element of a matrix
    EXPECT_EQ(60000u * bytes + 30001u * 16 + 777u * bytes + sizeof(zoff_loss_scaler) + 3 * 8, want.size());
    EXPECT_TRUE(want == bytes_of(digests.file("killed"))) << "states, weights, loss scaler or data differ";
}
} // namespace
