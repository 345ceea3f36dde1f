/* SPDX-License-Identifier: Apache-2.0 */
// save_faults_test.cc: each call fails once with which a checkpoint is saved, on one of two ranks or on the only one. Then the
// save ends with that error and the name of the file, or it is complete. The checkpoint before it is untouched, training goes
// on, and the next save succeeds.
#include "file_bytes.h"
#include "save_fault.h"
#include "saved_run.h"

#include <errno.h>
#include <limits.h>

#include <filesystem>
#include <map>
#include <regex>

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
        const std::string path = entry.path().string();
        all[path] = entry.is_regular_file() ? bytes_of(path) : "folder";
    }
    return all;
}

class SaveFaults : public testing::TestWithParam<cell>
{
  protected:
    // Save with the fault. Returns whether the checkpoint is complete.
    bool try_to_save(disk_call kind, int error, saved_run &r, const std::string &folder)
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
        unsigned failed = 0;
        for (const auto &one : results)
            failed += one.status < 0;
        EXPECT_TRUE(failed == 0 || failed == results.size()) << failed << " ranks of " << results.size() << " have failed";
        if (failed)
            expect_reason(kind, error, results, folder);
        return failed == 0;
    }

    // One rank has the error of the call, and names its file. The others refer to that rank.
    void expect_reason(disk_call kind, int error, const std::vector<rank_result> &results, const std::string &folder)
    {
        unsigned named = 0;
        for (const auto &one : results) {
            if (one.status == ZOFF_ERR_COMM && one.words.find("see the message of that rank") != std::string::npos)
                continue;
            // a call that makes new files
            const bool is_full = error == ENOSPC && (kind != CALL_OPEN || one.status == ZOFF_ERR_NO_SPACE);
            EXPECT_EQ(is_full ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO, one.status) << one.words;
            const char *const told = kind == CALL_FALLOCATE && error == ENOSPC ? "are free: remove files" : strerror(error);
            EXPECT_NE(std::string::npos, one.words.find(told)) << one.words;
            EXPECT_TRUE(std::regex_search(one.words, std::regex("'" + folder + file_of(kind) + "'"))) << one.words;
            named++;
        }
        EXPECT_EQ(1u, named) << results[0].words << " | " << results.back().words;
    }
    static std::string file_of(disk_call kind)
    {
        const std::string hidden = "/[.]step-[0-9]+[.][0-9a-f]+", states = hidden + "/[0-9a-f]+[.]rank-[0-9]+[.]states",
                          manifest = hidden + "/[.]manifest[.]json[.][0-9a-f]+[.]new";
        switch (kind) {
        case CALL_OPEN:
            return "(|/step-[0-9]+|" + hidden + "(|/[^/]+))";
        case CALL_MKDIR:
            return hidden;
        case CALL_WRITE:
            return manifest;
        case CALL_RENAME:
            return "(" + manifest + "|" + hidden + ")";
        case CALL_FSYNC:
            return "(|" + hidden + "|" + manifest + "|" + states + ")";
        default:
            return states;
        }
    }

    // After a save of step `saved`: the newest checkpoint is that one, or the one before it.
    void look(const std::string &folder, int64_t saved, bool is_complete)
    {
        char name[64];
        expect_newest(folder, is_complete ? saved : last);
        snprintf(name, sizeof name, "step-%010lld", (long long)saved);
        EXPECT_EQ(is_complete, fs::exists(folder + "/" + name)) << "a failed save leaves files";
    }

    // The nth call fails in a save. Returns whether there are as many.
    bool try_one(disk_call kind, int nth, saved_run &r, const std::string &folder)
    {
        const int error = nth % 2 ? EIO : ENOSPC;
        r.step(++t);
        const int64_t saved = t;
        const auto want = r.all.want.tensors;
        const size_t warnings = log.count(LATEST);
        fault.arm(kind, nth, error);
        const bool is_complete = try_to_save(kind, error, r, folder), struck = fault.has_struck();
        // Once the folder has its name, an error of `latest` is a warning. After others what was replaced is only not removed.
        const bool cleans = kind == CALL_OPEN || kind == CALL_FSYNC || kind == CALL_RENAME;
        EXPECT_TRUE(struck != is_complete || log.count(LATEST) > warnings || cleans) << "the error was not told";
        EXPECT_TRUE(struck || is_complete);
        look(folder, saved, is_complete);
        if (is_complete) {
            last = saved;
            last_want = want;
        } else if (strikes++ % 8 == 0) {
            expect_loads(GetParam().shape, folder, last, last_want);
        }
        r.step(++t);
        r.expect();
        return struck;
    }

    void try_all(disk_call kind, saved_run &r)
    {
        const std::string folder = checkpoints.file(DISK_CALL_NAMES[kind]);
        const int64_t first = t;
        const auto old = r.all.want.tensors;
        fault.arm(kind, INT_MAX, 0);
        expect_all_ok(r.save(folder));
        fault.disarm();
        last = first;
        last_want = old;
        const int most = fault.calls(),
                  strikes_before = strikes; // later saves have a few more calls, for each checkpoint there
        char name[64];
        snprintf(name, sizeof name, "/step-%010lld", (long long)first);
        const std::string first_folder = folder + name;
        const auto before = content_of(first_folder);
        bool struck = true;
        for (int nth = 1; struck && nth < most + 4 && !HasFailure(); nth++) {
            SCOPED_TRACE(std::string(DISK_CALL_NAMES[kind]) + " number " + std::to_string(nth));
            struck = try_one(kind, nth, r, folder);
            EXPECT_TRUE(before == content_of(first_folder)) << "the checkpoint before it has changed";
        }
        EXPECT_GT(strikes, strikes_before) << "no " << DISK_CALL_NAMES[kind] << " has failed";
        expect_all_ok(r.save(folder));
        expect_loads(GetParam().shape, folder, t, r.all.want.tensors);
        expect_loads(GetParam().shape, first_folder, first, old);
    }

    static constexpr const char *LATEST = "latest' may not name it";
    save_log log;
    save_fault fault;
    scratch_folder checkpoints, states;
    saved_run::tensors last_want; // states in the newest complete checkpoint
    int64_t t = 0, last = 0;
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
    log.expect(LATEST);
    saved_run r(GetParam().shape, states.path);
    r.step(++t);
    for (int kind = 0; kind < CALL_PREAD && !HasFailure(); kind++)
        try_all((disk_call)kind, r);
    if (!GetParam().beside) // otherwise steps transfer, too
        try_all(CALL_TRANSFER, r);
    EXPECT_GT(strikes, 15) << "saves that failed";
}
} // namespace
