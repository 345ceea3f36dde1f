// save_fault_test.cc: a save whose nth system call fails or is its last. Earlier checkpoints stay as they were, the newest
// complete one is found and intact, and the next save with the same name works.
#include "call_fault.h"
#include "covering.h"
#include "replacing.h"
#include "sample.h"

#include <errno.h>
#include <random>
#include <signal.h>
#include <sys/wait.h>

using namespace zoff_test;

namespace
{
class save_fault : public testing::Test
{
  protected:
    void SetUp() override
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
        late.shift = 1;
    }
    void TearDown() override
    {
        zoff_log_set(nullptr, nullptr);
        has_exchange = true;
    }

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
    // Without flushes.
    static void save_first(const sample &s, const std::string &folder, const char *name, const char *label = nullptr)
    {
        const call_fault none(0, 0);
        ASSERT_ZOFF_OK(save(s, folder, name, label));
    }
    static std::string chosen(const std::string &folder, const char *label = "")
    {
        char *path = nullptr;
        EXPECT_ZOFF_OK(zoff_archive_choose(folder.c_str(), label, &path));
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
    // Each call of a save of `name` fails once, and those after it that begin with `also`. Returns how many did.
    int fail_each(const char *name, int error, const char *also = "");
    int kill_each(const char *name);
    static void commit_again(zoff_checkpoint_writer *w, const std::string &call, zoff_status *out);

    replacing as_engines_do;
    sample early, late; // the checkpoint "a", and the one that is saved
};

int save_fault::fail_each(const char *name, int error, const char *also)
{
    for (int n = 1; n < 1000 && !HasFailure(); n += fault_stride()) {
        scratch_folder scratch;
        save_first(early, scratch.path, "a");
        SCOPED_TRACE(testing::Message() << "call " << n << " of a save of '" << name << "'");
        checkpoint_writer w;
        const zoff_checkpoint_opts opts = options(name);
        bool has_struck = false, in_commit = false;
        zoff_status status;
        std::string call;
        {
            call_fault fault(n, error);
            fault.also = also;
            status = late.open(scratch.path, &opts, 12, &w);
            if (status == ZOFF_OK)
                status = late.fill(w.get());
            if (status == ZOFF_OK) {
                in_commit = true;
                status = zoff_checkpoint_writer_commit(w.get());
            }
            has_struck = fault.has_struck();
            call = has_struck ? fault.calls[(size_t)n - 1] : "";
        }
        SCOPED_TRACE(call);
        const call_fault none(0, 0);
        if (status == ZOFF_OK) { // a call whose failure does no harm
            late.compare(scratch.path);
        } else {
            const bool writes = call.find("write ") != std::string::npos || call == "aio states";
            EXPECT_TRUE(status == (error == ENOSPC ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO) || (!writes && status == ZOFF_ERR_IO))
                << status << ": " << zoff_last_error();
            EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find(scratch.path)) << zoff_last_error();
            early.compare(scratch.path);
            if (in_commit && n % 2)
                commit_again(w.get(), *also ? also : call, &status); // later calls have failed, too
            if (status == ZOFF_OK)
                late.compare(scratch.path);
        }
        w.reset();
        if (status < 0) {
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

// After a flush of the file of states, or of the folders that have its name, has failed, it has to be written again.
void save_fault::commit_again(zoff_checkpoint_writer *w, const std::string &call, zoff_status *out)
{
    const bool of_states = call.find(".states") != std::string::npos;
    *out = zoff_checkpoint_writer_commit(w);
    const bool flushes = call.find("fsync ") == 0;
    EXPECT_EQ(*out == ZOFF_ERR_STATE ? ZOFF_ERR_STATE : ZOFF_OK, *out) << zoff_last_error();
    EXPECT_TRUE(*out == ZOFF_ERR_STATE || !flushes || !of_states);
    EXPECT_TRUE(*out == ZOFF_OK || flushes || call.find("open ") == 0);
}

int save_fault::kill_each(const char *name)
{
    for (int n = 1; n < 1000 && !HasFailure(); n += fault_stride()) {
        scratch_folder scratch;
        save_first(early, scratch.path, "a");
        SCOPED_TRACE(testing::Message() << "killed at call " << n << " of a save of '" << name << "'");
        const pid_t child = fork();
        if (child == 0) {
            const call_fault fault(n, 0);
            _exit(save(late, scratch.path, name) == ZOFF_OK ? 0 : 1);
        }
        int how = 0;
        EXPECT_EQ(child, waitpid(child, &how, 0));
        const bool is_done = WIFEXITED(how);
        EXPECT_TRUE(!is_done || WEXITSTATUS(how) == 0);
        const call_fault none(0, 0);
        const bool is_late = first_value(scratch.path) == sample::value(0, 0, 0) + late.shift;
        EXPECT_TRUE(is_late || !is_done);
        (is_late ? late : early).compare(scratch.path);
        if (strcmp(name, "a") == 0)
            (is_late ? late : early).compare(scratch.file("a")); // by its own name, too
        check_next(scratch.path, name);
        if (is_done)
            return n - 1;
    }
    return 0;
}
} // namespace

TEST_F(save_fault, leaves_earlier_checkpoints_after_an_error_of_any_call)
{
    for (int error : {ENOSPC, EIO}) {
        for (const char *name : {"b", "a"})
            EXPECT_GT(fail_each(name, error), 25);
    }
}

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
                flushes.clear(); // those before the states were written
            if (fault.calls[i].find("fsync ") == 0)
                flushes.push_back((int)i + 1);
        }
        flushes.resize(2); // of the file and its folder, which is flushed again
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

// Where names cannot be exchanged, an earlier checkpoint is aside for a moment: a reader finds it there.
TEST_F(save_fault, replaces_by_two_renames_where_names_cannot_be_exchanged)
{
    has_exchange = false;
    EXPECT_GT(fail_each("a", EIO), 25);
    EXPECT_GT(kill_each("a"), 25);
}

TEST_F(save_fault, leaves_earlier_checkpoints_when_no_file_can_be_opened_any_more)
{
    for (const char *name : {"b", "a"})
        EXPECT_GT(fail_each(name, EMFILE, "open "), 25);
}

TEST_F(save_fault, leaves_the_newest_complete_one_when_killed_at_any_call)
{
    for (const char *name : {"b", "a"})
        EXPECT_GT(kill_each(name), 25);
}

// Neither an older checkpoint nor "there is none".
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
            const zoff_status status = zoff_archive_choose(scratch.path.c_str(), "tp1", &path);
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
    for (bool is_done = false; !is_done && !HasFailure(); n += fault_stride()) {
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
    EXPECT_GT(cut_short, 3u / (unsigned)fault_stride());
}

// Two engines: both find the same checkpoint, wherever the second one is killed, also where they replace one.
TEST_F(save_fault, leaves_what_both_engines_have)
{
    for (const char *name : {"b", "a"}) {
        int n = 1;
        for (bool is_done = false; !is_done && !HasFailure(); n += fault_stride()) {
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

// A process that saves one checkpoint after the other is killed at any time.
TEST_F(save_fault, leaves_the_newest_complete_one_when_killed_at_random)
{
    std::mt19937 random(18);
    const unsigned kills = share_of(200);
    unsigned saved = 0;
    for (unsigned i = 0; i < kills && !HasFailure(); i++) {
        scratch_folder scratch;
        int done[2];
        ASSERT_EQ(0, pipe(done));
        const pid_t child = fork();
        if (child == 0) {
            for (int64_t t = 1;; t++) {
                sample s;
                zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
                opts.keep = 2;
                s.shift = (float)(t % 100);
                if (s.write(scratch.path, &opts, t) < 0 || write(done[1], &t, sizeof t) != sizeof t)
                    _exit(1);
            }
        }
        close(done[1]);
        usleep(random() % 200000);
        EXPECT_EQ(0, kill(child, SIGKILL));
        EXPECT_EQ(child, waitpid(child, nullptr, 0));
        int64_t last = 0;
        while (read(done[0], &last, sizeof last) == sizeof last)
            saved++;
        close(done[0]);
        zoff_checkpoint_reader *r = nullptr;
        const zoff_status status = zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r);
        if (last == 0 && status < 0)
            continue;
        ASSERT_ZOFF_OK(status);
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
        const int64_t t = info.t;
        zoff_checkpoint_reader_close(r);
        EXPECT_TRUE(t == last || t == last + 1) << t << " after " << last;
        sample s;
        s.shift = (float)(t % 100);
        s.compare(scratch.path, t);
        EXPECT_LE(names_in(scratch.path).size(), 6u); // two, one that is being removed, one being written, `latest` twice
    }
    printf("%u kills, %u checkpoints\n", kills, saved);
    EXPECT_GT(saved, 0u);
}
