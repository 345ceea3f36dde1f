// save_faults_test.cc: each call fails once with which a checkpoint is saved, on one of two ranks or on the only one. Then the
// save ends with an error that names a path, or it is complete. The checkpoint before it is untouched, training goes on, and
// the next save succeeds.
#include "save_fault.h"
#include "saved_run.h"

#include <errno.h>
#include <limits.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace zoff_test;
namespace fs = std::filesystem;

namespace
{
struct cell {
    run_shape shape;
    bool beside;
};

std::map<std::string, std::string> content_of(const std::string &folder)
{
    std::map<std::string, std::string> all;
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
        std::ostringstream bytes;
        bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
        all[entry.path().string()] = entry.is_regular_file() ? bytes.str() : "folder";
    }
    return all;
}

class SaveFaults : public testing::TestWithParam<cell>
{
  protected:
    // Save with the fault. Returns whether the checkpoint is complete.
    bool try_to_save(saved_run &r, const std::string &folder)
    {
        std::vector<rank_result> results;
        if (GetParam().beside) {
            results = r.begin(folder);
            if (results[0].status == ZOFF_OK) {
                r.step(++t);
                r.step(++t);
                results = r.wait();
            }
        } else {
            results = r.save(folder);
        }
        fault.disarm();
        unsigned failed = 0, with_path = 0;
        for (const auto &one : results) {
            failed += one.status < 0;
            with_path += one.words.find("'/") != std::string::npos; // of the checkpoint, or of a folder above it
        }
        EXPECT_TRUE(failed == 0 || failed == results.size()) << failed << " ranks of " << results.size() << " have failed";
        EXPECT_TRUE(failed == 0 || with_path > 0) << results[0].words;
        words = results[0].words;
        return failed == 0;
    }

    // The folder after a save of step `saved` that has failed or succeeded.
    void look(const std::string &folder, int64_t first, int64_t saved, bool is_complete)
    {
        zoff_checkpoint_reader *reader = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        char name[64];
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), nullptr, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
        const int64_t newest = info.t;
        zoff_checkpoint_reader_close(reader);
        EXPECT_TRUE(newest == saved || (!is_complete && newest >= first)) << newest;
        snprintf(name, sizeof name, "step-%010lld", (long long)saved);
        const std::string mine = folder + "/" + name;
        if (newest != saved) {
            EXPECT_FALSE(fs::exists(mine)) << "a failed save leaves files: " << words;
        }
    }

    void try_all(disk_call kind, saved_run &r)
    {
        const std::string folder = checkpoints.file(DISK_CALL_NAMES[kind]);
        const int64_t first = t;
        const auto old = r.all.want.tensors;
        fault.arm(kind, INT_MAX, 0);
        expect_all_ok(r.save(folder));
        fault.disarm();
        const int most = fault.calls(); // later saves have a few more, for each checkpoint that is there
        char name[64];
        snprintf(name, sizeof name, "/step-%010lld", (long long)first);
        const std::string first_folder = folder + name;
        const auto before = content_of(first_folder);
        bool struck = true;
        int nth = 0;
        while (struck && nth < most + 4 && !HasFailure()) {
            SCOPED_TRACE(std::string(DISK_CALL_NAMES[kind]) + " number " + std::to_string(++nth));
            r.step(++t);
            const int64_t saved = t;
            fault.arm(kind, nth, nth % 2 ? EIO : ENOSPC);
            const bool is_complete = try_to_save(r, folder);
            struck = fault.has_struck();
            EXPECT_TRUE(struck || is_complete) << words;
            strikes += struck && !is_complete;
            look(folder, first, saved, is_complete);
            EXPECT_TRUE(before == content_of(first_folder)) << "the checkpoint before it has changed";
            r.step(++t);
            r.expect();
        }
        expect_all_ok(r.save(folder));
        expect_loads(GetParam().shape, folder, t, r.all.want.tensors);
        expect_loads(GetParam().shape, first_folder, first, old);
    }

    save_fault fault;
    scratch_folder checkpoints, states;
    std::string words;
    int64_t t = 0;
    int strikes = 0;
};

run_shape shape_of(unsigned world, zoff_tier tier, bool persist)
{
    run_shape s;
    s.world = world;
    s.tier = tier;
    s.persist = persist;
    s.stage = world;
    return s;
}

INSTANTIATE_TEST_SUITE_P(Runs, SaveFaults,
                         testing::Values(cell{shape_of(1, ZOFF_TIER_HOST, false), false},
                                         cell{shape_of(1, ZOFF_TIER_NVME, true), true},
                                         cell{shape_of(2, ZOFF_TIER_NVME, false), false},
                                         cell{shape_of(2, ZOFF_TIER_HOST, false), true}),
                         [](const auto &p) { return name_of(p.param.shape) + (p.param.beside ? "_beside" : ""); });

TEST_P(SaveFaults, LeaveTheCheckpointBeforeAndTheRun)
{
    save_log log;
    saved_run r(GetParam().shape, states.path);
    r.step(++t);
    for (int kind = 0; kind < CALL_PREAD && !HasFailure(); kind++)
        try_all((disk_call)kind, r);
    if (!GetParam().beside) // otherwise steps transfer, too
        try_all(CALL_TRANSFER, r);
    EXPECT_GT(strikes, 15) << "saves that failed";
    if (log.contains("latest' may not name it")) // the save returned OK
        log.expect("latest' may not name it");
}
} // namespace
