/* SPDX-License-Identifier: Apache-2.0 */
// overlap_test.cc: what two programs do in one folder at the same time: one of them is held before some system call while the
// other one saves, removes, or has the lock. The save that began last stays, and a load always finds a checkpoint.
#include "call_fault.h"
#include "covering.h"
#include "replacing.h"
#include "sample.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

using namespace zoff_test;

namespace
{
class overlap : public testing::Test
{
  protected:
    void SetUp() override
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
        early.shift = 1;
        late.shift = 2;
        opts.name = "a";
    }
    void TearDown() override
    {
        zoff_log_set(nullptr, nullptr);
        has_locks = true;
    }
    // One save is committed within each call of the commit of another, which may fail then.
    int overlap_each(bool outer_is_late, bool fails);

    uint64_t least = 0; // of zoff_archive_choose()
    replacing as_engines_do;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    sample before, early, late; // the checkpoint that is there, and two saves of its name
};

int overlap::overlap_each(bool outer_is_late, bool fails)
{
    int first = 0, end = 1;
    for (int n = 0; n < end && !HasFailure(); n += n ? 1 : first) { // the first round finds the calls
        scratch_folder scratch;
        checkpoint_writer writers[2];
        zoff_status ended[2] = {ZOFF_PENDING, ZOFF_PENDING};
        call_fault fault(0, 0);
        EXPECT_ZOFF_OK(before.write(scratch.path, &opts));
        for (unsigned i = 0; i < 2; i++) {
            const sample &s = i ? late : early;
            EXPECT_ZOFF_OK(s.open(scratch.path, &opts, 12, &writers[i]));
            EXPECT_ZOFF_OK(s.fill(writers[i].get()));
        }
        fault.before = [&] { ended[!outer_is_late] = zoff_checkpoint_writer_commit(writers[!outer_is_late].get()); };
        fault.also = n && fails ? "fsync " : "";
        fault.calls.clear();
        fault.nth = n;
        fault.count = 0;
        ended[outer_is_late] = zoff_checkpoint_writer_commit(writers[outer_is_late].get());
        const std::vector<std::string> calls = std::exchange(fault.calls, {});
        fault.nth = 0;
        SCOPED_TRACE(testing::Message() << "before call " << n << (n ? ": " + calls[(size_t)n - 1] : ""));
        for (checkpoint_writer &w : writers)
            w.reset();
        (ended[1] == ZOFF_OK ? late : ended[0] == ZOFF_OK ? early : before).compare(scratch.path);
        if (n == 0) { // the range of calls from the look at the earlier checkpoint to its end
            first = (int)(std::find(calls.begin(), calls.end(), "lstat a") - calls.begin()) + 1;
            end = (int)(std::find(calls.begin(), calls.end(), "open .latest.new") - calls.begin()) + 1;
        }
    }
    return end - first;
}
} // namespace

// A program that is stopped while it has the lock must not let others go on without it.
TEST_F(overlap, changes_nothing_while_another_program_has_the_lock)
{
    scratch_folder scratch;
    call_fault none(0, 0);
    ASSERT_ZOFF_OK(before.write(scratch.path, &opts));
    checkpoint_writer w;
    ASSERT_ZOFF_OK(late.open(scratch.path, &opts, 12, &w));
    ASSERT_ZOFF_OK(late.fill(w.get()));
    const int other = open(scratch.path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(0, flock(other, LOCK_EX | LOCK_NB));
    none.clock_step = 7;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "another program has locked '" + scratch.path, zoff_checkpoint_writer_commit(w.get()));
    before.compare(scratch.path);
    close(other);
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    late.compare(scratch.path);
}

// A third program removes what it takes for leftovers within each call of a commit, all whose later flushes fail. The save that
// would have been replaced is put back, with its files.
TEST_F(overlap, leaves_the_files_of_a_save_that_is_being_replaced)
{
    int failed = 0;
    bool has_struck = true;
    for (int n = 1; has_struck && !HasFailure(); n++) {
        scratch_folder scratch;
        call_fault fault(0, 0);
        checkpoint_writer w;
        ASSERT_ZOFF_OK(before.write(scratch.path, &opts));
        ASSERT_ZOFF_OK(late.open(scratch.path, &opts, 12, &w));
        ASSERT_ZOFF_OK(late.fill(w.get()));
        fault.before = [&] {
            call_fault in_time(0, 0);
            in_time.clock_step = 7; // a save waits for a lock no longer than this
            int lock = -1;
            bool is_locked = false;
            if (zoff_archive_folder_lock(scratch.path.c_str(), &lock, &is_locked) == ZOFF_OK) {
                zoff_archive_remove_left(scratch.path.c_str(), "a", UINT64_MAX, true);
                zoff_archive_folder_unlock(lock);
            }
        };
        fault.also = "fsync ";
        fault.calls.clear();
        fault.count = 0;
        fault.nth = n;
        const zoff_status status = zoff_checkpoint_writer_commit(w.get());
        has_struck = fault.has_struck();
        fault.nth = 0;
        SCOPED_TRACE(testing::Message() << "before call " << n << ": " << (has_struck ? fault.calls[(size_t)n - 1] : ""));
        w.reset();
        failed += status < 0;
        (status < 0 ? before : late).compare(scratch.path);
    }
    EXPECT_LT(5, failed);
}

// Where there are no locks, another save may come between any two calls of this one, which may even fail afterwards.
TEST_F(overlap, without_locks_the_save_that_began_last_stays)
{
    has_locks = false;
    EXPECT_GT(overlap_each(false, false), 10);
    EXPECT_GT(overlap_each(true, false), 10);
    EXPECT_GT(overlap_each(false, true), 10);
}

// Writers without an engine replace nothing, whoever comes first.
TEST(overlap_without_an_engine, replaces_no_checkpoint_that_was_made_meanwhile)
{
    std::vector<std::string> calls;
    has_locks = false;
    for (const char *before : {"", "lstat step-0000000012", "rename step-0000000012"}) {
        scratch_folder scratch;
        sample one, other;
        other.shift = 1;
        checkpoint_writer w;
        ASSERT_ZOFF_OK(one.open(scratch.path, nullptr, 12, &w));
        ASSERT_ZOFF_OK(one.fill(w.get()));
        const auto found = std::find(calls.begin(), calls.end(), before);
        call_fault fault(found == calls.end() ? 0 : (int)(found - calls.begin()) + 1, 0);
        fault.before = [&] { EXPECT_ZOFF_OK(other.write(scratch.path)); };
        const zoff_status status = zoff_checkpoint_writer_commit(w.get());
        EXPECT_EQ(*before != 0, fault.has_struck()) << before;
        if (*before)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is a checkpoint already, and is not replaced", status);
        else
            EXPECT_ZOFF_OK(status);
        if (!*before)
            calls = fault.calls;
        fault.nth = 0;
        w.reset();
        (*before ? other : one).compare(scratch.path);
    }
    has_locks = true;
}

// While a folder with "a" and the newer "b" is looked at, "b" is replaced, once or twice. Whoever looks at the folder of the
// old one meanwhile finds it empty.
TEST_F(overlap, no_choice_goes_back_while_the_newest_is_replaced)
{
    bool has_struck = true;
    zoff_checkpoint_opts other = opts;
    other.name = "b";
    for (int n = 1; has_struck && !HasFailure(); n += 1 + fault_stride()) {
        for (int then = 0; then < 24 && !HasFailure(); then += then ? 5 : 4) {
            scratch_folder scratch;
            call_fault fault(0, 0);
            char *path = nullptr;
            zoff_archive *a = nullptr;
            EXPECT_ZOFF_OK(before.write(scratch.path, &opts));
            EXPECT_ZOFF_OK(early.write(scratch.path, &other));
            fault.calls.clear();
            fault.count = 0;
            fault.nth = n;
            fault.before = [&] {
                EXPECT_ZOFF_OK(late.write(scratch.path, &other));
                fault.nth += then;
                fault.count = then ? n : fault.count;
            };
            EXPECT_ZOFF_OK(zoff_archive_choose(scratch.path.c_str(), "", &path, &least));
            has_struck = fault.has_struck() || fault.nth > n;
            fault.nth = 0;
            SCOPED_TRACE(testing::Message() << "before calls " << n << " and " << n + then);
            EXPECT_EQ(scratch.file("b"), path ? path : "");
            EXPECT_ZOFF_OK(zoff_archive_open(scratch.file("b").c_str(), "", least, &a));
            zoff_archive_close(a);
            zoff_base_mem_free(path);
        }
    }
}

// While a name is looked for that nothing has, a save takes it.
TEST_F(overlap, chooses_a_checkpoint_that_has_just_got_its_name_or_none)
{
    bool has_struck = true;
    unsigned chosen = 0;
    for (int n = 1; has_struck && !HasFailure(); n++) {
        scratch_folder scratch;
        call_fault fault(n, 0);
        char *path = nullptr;
        fault.before = [&] { EXPECT_ZOFF_OK(late.write(scratch.path, &opts)); };
        const zoff_status status = zoff_archive_choose(scratch.file("a").c_str(), "", &path, &least);
        has_struck = fault.has_struck();
        SCOPED_TRACE(testing::Message() << "before call " << n << ": " << (has_struck ? fault.calls[(size_t)n - 1] : ""));
        EXPECT_EQ(status == ZOFF_OK ? scratch.file("a") : "none", path ? path : "none");
        chosen += status == ZOFF_OK;
        zoff_base_mem_free(path);
    }
    EXPECT_GT(chosen, 0u);
}

// The checkpoint that was chosen is removed, and an older save takes its name.
TEST_F(overlap, opens_nothing_older_than_what_was_chosen)
{
    scratch_folder scratch;
    char *path = nullptr;
    zoff_archive *a = nullptr;
    ASSERT_ZOFF_OK(before.write(scratch.path, &opts));
    const std::string folder = scratch.file("a"), aside = scratch.file("older");
    ASSERT_EQ(0, rename(folder.c_str(), aside.c_str()));
    ASSERT_ZOFF_OK(early.write(scratch.path, &opts));
    ASSERT_ZOFF_OK(zoff_archive_choose(scratch.path.c_str(), "", &path, &least));
    ASSERT_EQ(folder, path);
    std::filesystem::remove_all(folder);
    ASSERT_EQ(0, rename(aside.c_str(), folder.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "older checkpoint", zoff_archive_open(path, "", least, &a));
    zoff_base_mem_free(path);
}

// While a folder is listed, a save makes a checkpoint that the list does not have, and removes the one that it has.
TEST_F(overlap, hides_no_checkpoint_from_a_choice_that_is_under_way)
{
    bool has_struck = true;
    zoff_checkpoint_opts other = opts;
    other.name = "b";
    other.keep = 1;
    for (int n = 1; has_struck && !HasFailure(); n += fault_stride()) {
        scratch_folder scratch;
        call_fault fault(0, 0);
        char *path = nullptr;
        EXPECT_ZOFF_OK(before.write(scratch.path, &opts));
        fault.calls.clear();
        fault.count = 0;
        fault.nth = n;
        fault.before = [&] { EXPECT_ZOFF_OK(late.write(scratch.path, &other)); };
        EXPECT_ZOFF_OK(zoff_archive_choose(scratch.path.c_str(), "", &path, &least));
        has_struck = fault.has_struck();
        fault.nth = 0;
        SCOPED_TRACE(testing::Message() << "before call " << n << ": " << (has_struck ? fault.calls[(size_t)n - 1] : ""));
        EXPECT_TRUE(path && (scratch.file("a") == path || scratch.file("b") == path));
        zoff_base_mem_free(path);
    }
}
