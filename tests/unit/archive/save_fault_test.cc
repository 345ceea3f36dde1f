/* SPDX-License-Identifier: Apache-2.0 */
// save_fault_test.cc: a save whose nth system call fails or is its last, where engines save together, remove old checkpoints,
// or have no descriptor left. tests/e2e/checkpoint has the calls of one engine (save_faults_test.cc, kill_calls_test.cc).
#include "call_fault.h"
#include "covering.h"
#include "replacing.h"
#include "sample.h"

#include <errno.h>
#include <sys/wait.h>

using namespace zoff_test;

namespace
{
uint64_t least; // of zoff_archive_choose()

// The distance of the calls that fail in turn: a save has about sixty.
int stride()
{
    return is_full_run() ? 1 : 3 * fault_stride();
}

class save_fault : public testing::Test
{
  protected:
    void SetUp() override
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
        late.shift = 1;
    }
    void TearDown() override { zoff_log_set(nullptr, nullptr); }

    static zoff_checkpoint_opts options(const char *name, const char *label = nullptr)
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name;
        opts.label = label;
        opts.engines = label ? 2 : 0;
        return opts;
    }
    static zoff_status save(const sample &s, const std::string &folder, const char *name, const char *label = nullptr)
    {
        const zoff_checkpoint_opts opts = options(name, label);
        return s.write(folder, &opts);
    }
    // Save the first checkpoint without flushes.
    static void save_first(const sample &s, const std::string &folder, const char *name, const char *label = nullptr)
    {
        const call_fault none(0, 0);
        ASSERT_ZOFF_OK(save(s, folder, name, label));
    }
    static std::string chosen(const std::string &folder, const char *label = "")
    {
        char *path = nullptr;
        EXPECT_ZOFF_OK(zoff_archive_choose(folder.c_str(), label, &path, &least));
        const std::string name = path ? strrchr(path, '/') + 1 : "";
        zoff_base_mem_free(path);
        return name;
    }
    static float first_value(const std::string &folder, const char *label = nullptr)
    {
        zoff_checkpoint_reader *r = nullptr;
        float first = 0;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), label, &r));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(r, 0, ZOFF_STATE_MASTER, 0, 1, &first));
        zoff_checkpoint_reader_close(r);
        return first;
    }
    // After the fault: the next save with this name is as any other, and leaves nothing behind.
    void check_next(const std::string &folder, const char *name)
    {
        sample next;
        next.shift = 2;
        save_first(next, folder, name);
        EXPECT_EQ(name, chosen(folder));
        next.compare(folder);
        EXPECT_EQ(2u, names_in(folder + "/" + name).size());
        std::set<std::string> known = {"a", "latest", name};
        EXPECT_EQ(known, names_in(folder));
    }
    // Returns how many failed.
    int fail_each(const char *name);

    replacing as_engines_do;
    sample early, late; // the checkpoint "a", and the one that is saved
};

// Each call of a save of `name` fails once, and those after it that open a file, as if no descriptor were left.
int save_fault::fail_each(const char *name)
{
    for (int n = 1; n < 1000 && !HasFailure(); n += stride()) {
        scratch_folder scratch;
        save_first(early, scratch.path, "a");
        SCOPED_TRACE(testing::Message() << "call " << n << " of a save of '" << name << "'");
        checkpoint_writer w;
        const zoff_checkpoint_opts opts = options(name);
        bool has_struck = false;
        zoff_status status;
        {
            call_fault fault(n, EMFILE);
            fault.also = "open ";
            status = late.open(scratch.path, &opts, 12, &w);
            if (status == ZOFF_OK)
                status = late.fill(w.get());
            if (status == ZOFF_OK)
                status = zoff_checkpoint_writer_commit(w.get());
            has_struck = fault.has_struck();
        }
        const call_fault none(0, 0);
        w.reset();
        if (status == ZOFF_OK) { // a call whose failure does no harm
            late.compare(scratch.path);
        } else {
            EXPECT_EQ(ZOFF_ERR_IO, status) << zoff_last_error();
            EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find(scratch.path)) << zoff_last_error();
            early.compare(scratch.path);
            EXPECT_EQ((std::set<std::string>{"a", "latest"}), names_in(scratch.path));
            EXPECT_EQ(2u, names_in(scratch.file("a")).size());
        }
        check_next(scratch.path, name);
        if (!has_struck)
            return n - 1;
    }
    return 0;
}
} // namespace

TEST_F(save_fault, warns_if_only_latest_cannot_be_written)
{
    unsigned failed = 0;
    for (int n = 1; !HasFailure(); n++) {
        scratch_folder scratch;
        zoff_checkpoint_opts opts = options("b");
        opts.keep = 1;
        save_first(early, scratch.path, "a");
        log_catcher log;
        call_fault fault(n, EIO);
        const zoff_status status = late.write(scratch.path, &opts);
        if (!fault.has_struck())
            break;
        const std::string call = fault.calls[(size_t)n - 1];
        if (call != "rename latest" && call.find(".latest.new") == std::string::npos) {
            log.warnings.clear();
            continue;
        }
        SCOPED_TRACE(call);
        EXPECT_ZOFF_OK(status);
        log.expect("b' is saved, but '" + scratch.path + "/latest' may not name it");
        late.compare(scratch.path);
        EXPECT_EQ((std::set<std::string>{"a", "b", "latest"}), names_in(scratch.path));
        failed++;
    }
    EXPECT_GE(failed, 4u);
}

// fsync() reports lost bytes once, and succeeds the next time.
TEST_F(save_fault, commits_nothing_after_a_flush_has_failed)
{
    std::vector<int> flushes; // numbers of those calls of a commit
    for (size_t round = 0; round <= flushes.size(); round++) {
        scratch_folder scratch;
        checkpoint_writer w;
        const zoff_checkpoint_opts opts = options("b");
        const call_fault fault(round ? flushes[round - 1] : 0, EIO);
        ASSERT_ZOFF_OK(late.open(scratch.path, &opts, 12, &w));
        ASSERT_ZOFF_OK(late.fill(w.get()));
        const zoff_status status = zoff_checkpoint_writer_commit(w.get());
        if (round) {
            EXPECT_EQ(ZOFF_ERR_IO, status) << zoff_last_error();
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a flush failed", zoff_checkpoint_writer_commit(w.get()));
            continue;
        }
        ASSERT_ZOFF_OK(status);
        for (size_t i = 0; i < fault.calls.size() && fault.calls[i] != "open .manifest.json.new"; i++) {
            if (fault.calls[i].find("aio ") == 0)
                flushes.clear(); // drop flushes before the states were written
            if (fault.calls[i].find("fsync ") == 0)
                flushes.push_back((int)i + 1);
        }
        flushes.resize(2); // keep those of the file and its folder, which is flushed again
    }
}

// The manifests of large models are long. Only the newest `keep` have to be complete, and only if there are more.
TEST_F(save_fault, reads_no_more_manifests_than_it_needs)
{
    scratch_folder scratch;
    zoff_checkpoint_opts opts = options("e");
    for (const char *name : {"a", "b", "c", "d"})
        save_first(early, scratch.path, name);
    std::vector<long> counts;
    for (unsigned keep : {100u, 100u, 5u, 4u}) { // the first save replaces none
        checkpoint_writer w;
        opts.keep = keep;
        ASSERT_ZOFF_OK(late.open(scratch.path, &opts, 12, &w));
        ASSERT_ZOFF_OK(late.fill(w.get()));
        const call_fault none(0, 0);
        ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
        counts.push_back(std::count(none.calls.begin(), none.calls.end(), "open manifest.json"));
    }
    EXPECT_EQ(counts[1], counts[2]);
    EXPECT_EQ(counts[2] + 4, counts[3]); // three that stay, and that which is removed
}

TEST_F(save_fault, leaves_earlier_checkpoints_when_no_file_can_be_opened_any_more)
{
    for (const char *name : {"b", "a"})
        EXPECT_GT(fail_each(name), 25);
}

// The error names neither an older checkpoint nor "there is none".
TEST_F(save_fault, is_no_reason_to_load_an_older_checkpoint)
{
    const call_fault none(0, 0);
    scratch_folder scratch;
    for (const char *label : {"tp0", "tp1"}) {
        save_first(early, scratch.path, "a", label);
        save_first(late, scratch.path, "b", label);
    }
    write_file(scratch.file("b/foreign.manifest.json"), "{}"); // not needed
    for (int error : {EIO, EACCES, EMFILE}) {
        unsigned failed = 0;
        for (bool has_struck = true; has_struck && !HasFailure(); failed++) {
            call_fault fault((int)failed + 1, error);
            fault.also = error == EMFILE ? "open" : "";
            char *path = nullptr;
            const zoff_status status = zoff_archive_choose(scratch.path.c_str(), "tp1", &path, &least);
            has_struck = fault.has_struck();
            const std::string call = has_struck ? fault.calls[failed] : "no fault";
            SCOPED_TRACE(call);
            EXPECT_TRUE(status == ZOFF_OK || call != "pread foreign.manifest.json" || error == EMFILE);
            EXPECT_EQ(status == ZOFF_OK ? ZOFF_OK : ZOFF_ERR_IO, status) << zoff_last_error();
            if (status == ZOFF_OK)
                EXPECT_EQ(scratch.file("b"), path);
            else
                EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find(strerror(error))) << zoff_last_error();
            zoff_base_mem_free(path);
        }
        EXPECT_GT(failed, 20u);
    }
}

TEST_F(save_fault, leaves_no_removal_undone_when_killed_at_any_call)
{
    int n = 1;
    unsigned cut_short = 0;
    zoff_checkpoint_opts opts = options("b");
    opts.keep = 1;
    for (bool is_done = false; !is_done && !HasFailure(); n += stride()) {
        scratch_folder scratch;
        SCOPED_TRACE(testing::Message() << "killed at call " << n);
        save_first(early, scratch.path, "a");
        const pid_t child = fork();
        if (child == 0) {
            const call_fault fault(n, 0);
            _exit(late.write(scratch.path, &opts) == ZOFF_OK ? 0 : 1);
        }
        int how = 0;
        EXPECT_EQ(child, waitpid(child, &how, 0));
        is_done = WIFEXITED(how);
        const call_fault none(0, 0);
        for (const std::string &entry : names_in(scratch.path))
            cut_short += entry.find(".a.") == 0;
        ASSERT_ZOFF_OK(late.write(scratch.path, &opts));
        late.compare(scratch.path);
        EXPECT_EQ(2u, names_in(scratch.file("b")).size());
        EXPECT_EQ((std::set<std::string>{"b", "latest"}), names_in(scratch.path));
    }
    EXPECT_GT(cut_short, 3u / (unsigned)stride());
}

// The best checkpoint and the newest, as a trainer keeps them: a new best one is saved, and the one before is unpinned.
// Wherever the program is killed, the best one or the one before is pinned, and the next save removes neither.
TEST_F(save_fault, leaves_the_best_checkpoint_pinned_when_killed_at_any_call)
{
    zoff_checkpoint_opts opts = options("b");
    opts.keep = 1;
    opts.pinned = true;
    unsigned both = 0;
    int n = 1;
    for (bool is_done = false; !is_done && !HasFailure(); n += stride()) {
        scratch_folder scratch;
        SCOPED_TRACE(testing::Message() << "killed at call " << n);
        const std::string before = scratch.file("before");
        save_first(early, scratch.path, "before");
        ASSERT_ZOFF_OK(zoff_checkpoint_pin(before.c_str(), nullptr));
        const pid_t child = fork();
        if (child == 0) {
            const call_fault fault(n, 0);
            _exit(late.write(scratch.path, &opts) == ZOFF_OK && zoff_checkpoint_unpin(before.c_str(), nullptr) == ZOFF_OK ? 0
                                                                                                                          : 1);
        }
        int how = 0;
        EXPECT_EQ(child, waitpid(child, &how, 0));
        is_done = WIFEXITED(how);
        EXPECT_TRUE(!is_done || WEXITSTATUS(how) == 0);
        const call_fault none(0, 0);
        const bool has_saved = access(scratch.file("b").c_str(), F_OK) == 0,
                   is_kept = zoff_archive_pin_is_there(before.c_str());
        EXPECT_EQ(has_saved, zoff_archive_pin_is_there(scratch.file("b").c_str()));
        EXPECT_TRUE(has_saved || is_kept);
        EXPECT_FALSE(is_done && is_kept);
        both += has_saved && is_kept;
        zoff_checkpoint_opts next = options("c");
        next.keep = 1;
        ASSERT_ZOFF_OK(late.write(scratch.path, &next));
        std::set<std::string> known = {"c", "latest"};
        if (has_saved)
            known.insert("b");
        if (is_kept)
            known.insert("before");
        std::set<std::string> have = names_in(scratch.path);
        for (auto at = have.begin(); at != have.end();)
            at = at->find(".b.") == 0 ? have.erase(at) : std::next(at); // the next save of that name removes it
        EXPECT_EQ(known, have);
        if (has_saved)
            late.compare(scratch.file("b"));
        if (is_kept)
            early.compare(before);
    }
    EXPECT_GT(both, 3u / (unsigned)stride());
}

// A pin that was not made, or may not be durable, is an error.
TEST_F(save_fault, pins_durably_or_not_at_all)
{
    scratch_folder scratch;
    save_first(early, scratch.path, "a");
    const std::string path = scratch.file("a");
    for (auto *call : {zoff_checkpoint_pin, zoff_checkpoint_unpin}) {
        unsigned failed = 0;
        const bool pins = call == zoff_checkpoint_pin;
        std::vector<std::string> calls;
        for (int n = 1; !HasFailure(); n++) {
            EXPECT_ZOFF_OK((pins ? zoff_checkpoint_unpin : zoff_checkpoint_pin)(path.c_str(), nullptr));
            const call_fault fault(n, EIO);
            const zoff_status status = call(path.c_str(), nullptr);
            calls = fault.calls;
            if (!fault.has_struck())
                break;
            SCOPED_TRACE(calls[(size_t)n - 1]);
            failed += status < 0;
            EXPECT_EQ(status < 0 ? ZOFF_ERR_IO : ZOFF_OK, status) << zoff_last_error();
            EXPECT_TRUE(status == ZOFF_OK || strstr(zoff_last_error(), scratch.path.c_str())) << zoff_last_error();
            EXPECT_TRUE(status < 0 || pins == zoff_archive_pin_is_there(path.c_str()));
        }
        EXPECT_GT(failed, pins ? 6u : 4u);
        const auto change = std::find_if(calls.begin(), calls.end(), [&](const std::string &one) {
            return one.find(pins ? "rename " : "unlink ") == 0 && one.find(".pinned") == one.size() - 7;
        });
        EXPECT_NE(calls.end(), std::find(change, calls.end(), "fsync a"));
        early.compare(scratch.path);
    }
}

// Two engines: both find the same checkpoint, wherever the second one is killed, also where they replace one.
TEST_F(save_fault, leaves_what_both_engines_have)
{
    for (const char *name : {"b", "a"}) {
        int n = 1;
        for (bool is_done = false; !is_done && !HasFailure(); n += stride()) {
            scratch_folder scratch;
            SCOPED_TRACE(testing::Message() << "killed at call " << n << " of a save of '" << name << "'");
            for (const char *label : {"tp0", "tp1"})
                save_first(early, scratch.path, "a", label);
            save_first(late, scratch.path, name, "tp0");
            const pid_t child = fork();
            if (child == 0) {
                const call_fault fault(n, 0);
                _exit(save(late, scratch.path, name, "tp1") == ZOFF_OK ? 0 : 1);
            }
            int how = 0;
            EXPECT_EQ(child, waitpid(child, &how, 0));
            is_done = WIFEXITED(how);
            const call_fault none(0, 0);
            const bool is_late = first_value(scratch.path, "tp0") == sample::value(0, 0, 0) + late.shift;
            EXPECT_TRUE(is_late || !is_done);
            EXPECT_EQ(is_late ? name : "a", chosen(scratch.path, "tp0"));
            for (const char *label : {"tp0", "tp1"})
                (is_late ? late : early).compare(scratch.path, 12, label);
        }
        EXPECT_GT(n, 25);
    }
}

TEST_F(save_fault, prepares_for_a_power_cut_by_the_order_of_calls)
{
    scratch_folder scratch;
    std::vector<std::string> calls;
    {
        const call_fault none(0, 0);
        ASSERT_ZOFF_OK(save(early, scratch.file("new"), "a"));
        calls = none.calls;
    }
    const std::string part = part_in(scratch.file("new/a"));
    const std::string states = part.substr(part.rfind('/') + 1);
    size_t at = 0;
    for (const std::string &call :
         {std::string("mkdir new"), "fsync " + scratch.path.substr(scratch.path.rfind('/') + 1), std::string("mkdir .a"),
          std::string("fsync new"), std::string("aio states"), "pwrite " + states, "fsync " + states, std::string("fsync .a"),
          std::string("write .manifest.json.new"), std::string("fsync .manifest.json.new"), std::string("rename manifest.json"),
          std::string("fsync .a"), std::string("rename a"), std::string("fsync new"), std::string("write .latest.new"),
          std::string("fsync .latest.new"), std::string("rename latest"), std::string("fsync new")}) {
        while (at < calls.size() && calls[at] != call)
            at++;
        ASSERT_LT(at, calls.size()) << call << " is missing, or comes too early";
        at++;
    }
    for (size_t i = 0; i < calls.size(); i++) { // nothing is written behind the flush of the file
        if (calls[i] == "fsync " + states) {
            EXPECT_EQ(calls.end(), std::find(calls.begin() + (long)i, calls.end(), "pwrite " + states));
        }
    }
}
