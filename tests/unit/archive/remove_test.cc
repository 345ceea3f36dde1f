// remove_test.cc: which folders and files are removed, and which ones another program still needs.
#include "sample.h"

#include <sys/file.h>
#include <sys/resource.h>

using namespace zoff_test;

namespace
{
class remove_folders : public testing::Test
{
  protected:
    remove_folders() { EXPECT_ZOFF_OK(written.write(scratch.path)); }
    // The hidden folder of a save of `name` that was killed.
    std::string hidden(const std::string &name, const std::string &id, const std::string &label = "")
    {
        char part[512];
        const std::string folder = "." + name + "." + id;
        zoff_archive_folder_part_name(label.c_str(), id.c_str(), 0, part);
        EXPECT_ZOFF_OK(zoff_archive_folder_make(scratch.file(folder).c_str()));
        write_file(scratch.file(folder + "/" + part), "half");
        return folder;
    }
    void make_old(const std::string &path)
    {
        const timespec times[2] = {{time(nullptr) - 2 * 24 * 60 * 60, 0}, {time(nullptr) - 2 * 24 * 60 * 60, 0}};
        for (const std::string &name : names_in(scratch.file(path)))
            EXPECT_EQ(0, utimensat(AT_FDCWD, scratch.file(path + "/" + name).c_str(), times, 0));
        EXPECT_EQ(0, utimensat(AT_FDCWD, scratch.file(path).c_str(), times, 0));
    }
    void remove_left(const char *name, uint64_t sequence, bool of_others)
    {
        zoff_archive_remove_left(scratch.path.c_str(), name, sequence, of_others);
        zoff_archive_remove_hidden(scratch.path.c_str());
    }
    std::set<std::string> others() const
    {
        auto names = names_in(scratch.path);
        names.erase("latest");
        names.erase("step-0000000012");
        return names;
    }
    const char *const A = "0123456789abcdef", *const B = "fedcba9876543210";
    scratch_folder scratch;
    sample written;
};

TEST_F(remove_folders, those_of_saves_under_way_stay)
{
    const std::string dead = hidden("a", A), alive = hidden("a", B), other = hidden("ab", A), old = hidden("b", A);
    make_old(old);
    write_file(scratch.file(".a.txt"), "mine");
    const std::string part = scratch.file(alive) + "/" + B + ".rank-00000.states";
    const int lock = open(part.c_str(), O_RDWR);
    ASSERT_EQ(0, flock(lock, LOCK_EX | LOCK_NB));
    remove_left("a", 1, false);
    EXPECT_EQ((std::set<std::string>{".a.txt", alive, other, old}), others());
    close(lock);
    remove_left("a", 1, true);
    EXPECT_EQ((std::set<std::string>{".a.txt", other}), others());
    written.compare(scratch.path);
}

// One of more ranks than a process may open files.
TEST_F(remove_folders, those_of_many_ranks_go)
{
    const std::string path = scratch.file(hidden("a", A));
    char part[512];
    rlimit before, few;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    for (unsigned rank = 1; rank < 100; rank++) {
        zoff_archive_folder_part_name("", A, rank, part);
        write_file(path + "/" + part, "half");
    }
    few = before;
    few.rlim_cur = 64;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    remove_left("a", 1, false);
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    EXPECT_EQ(0u, others().size());
}

// An engine has ended, and waits for others in a folder that nobody has locked.
TEST_F(remove_folders, those_of_engines_that_wait_for_others_stay_until_a_later_save)
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "a";
    opts.label = "tp0";
    opts.engines = 2;
    ASSERT_ZOFF_OK(written.write(scratch.path, &opts, 1));
    const std::string folder = scratch.file(*others().begin());
    zoff_archive_manifest m = {};
    ASSERT_ZOFF_OK(zoff_archive_listing_read(folder.c_str(), "tp0", &m, nullptr, nullptr));
    const uint64_t sequence = m.sequence;
    zoff_archive_manifest_free(&m);
    remove_left("a", sequence, true);
    EXPECT_EQ(1u, others().size());
    remove_left("a", sequence + 1, false);
    EXPECT_EQ(0u, others().size());
}

TEST_F(remove_folders, files_of_one_save_go)
{
    zoff_archive_manifest m = {};
    m.label = const_cast<char *>("");
    strcpy(m.id, A);
    const std::string folder = hidden("a", A), path = scratch.file(folder);
    write_file(path + "/" + B + ".rank-00007.states", "of another save");
    zoff_archive_remove_own(path.c_str(), &m);
    EXPECT_EQ(std::set<std::string>{std::string(B) + ".rank-00007.states"}, names_in(path));
    zoff_archive_remove_ended(path.c_str(), "tp0");
    EXPECT_EQ(1u, names_in(path).size());
    zoff_archive_remove_ended(path.c_str(), "");
    EXPECT_EQ(0u, others().size());
}

// Files of others keep their place in the checkpoint, or the folder that they are in keeps its name.
TEST_F(remove_folders, files_of_others_stay)
{
    const std::string name = "step-0000000012", path = scratch.file(name);
    const auto hide = [&] {
        ASSERT_TRUE(zoff_archive_remove_hide(scratch.path.c_str(), name.c_str(), path.c_str()));
        EXPECT_NE(0, access(path.c_str(), F_OK));
    };
    write_file(path + "/notes.txt", "mine");
    ASSERT_EQ(0, mkdir((path + "/more").c_str(), 0777));
    hide();
    ASSERT_EQ(0, mkdir(path.c_str(), 0777)); // a later save has the name
    write_file(path + "/notes.txt", "newer");
    zoff_archive_remove_hidden(scratch.path.c_str());
    EXPECT_EQ((std::set<std::string>{"more", "notes.txt"}), names_in(path));
    EXPECT_EQ("newer", read_file(path + "/notes.txt"));
    const std::string hidden = scratch.file(*others().begin()); // it has no other place
    EXPECT_EQ(std::set<std::string>{"notes.txt"}, names_in(hidden));
    EXPECT_EQ("mine", read_file(hidden + "/notes.txt"));
    ASSERT_EQ(0, system(("rm -r '" + hidden + "'").c_str()));
    log_catcher log;
    log.expect("is removed, but its folder is not: Directory not empty");
    hide();
    zoff_archive_remove_hidden(scratch.path.c_str());
    EXPECT_EQ((std::set<std::string>{"more", "notes.txt"}), names_in(path));
}

// A process that is stopped while folders change their names holds up others for some seconds.
TEST_F(remove_folders, a_folder_is_locked_once)
{
    int lock = -1;
    bool is_locked = false;
    ASSERT_ZOFF_OK(zoff_archive_folder_lock(scratch.path.c_str(), &lock, &is_locked));
    EXPECT_TRUE(is_locked);
    const int other = open(scratch.path.c_str(), O_RDONLY);
    EXPECT_NE(0, flock(other, LOCK_EX | LOCK_NB));
    zoff_archive_folder_unlock(lock);
    EXPECT_EQ(0, flock(other, LOCK_EX | LOCK_NB));
    close(other);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder",
                      zoff_archive_folder_lock(scratch.file("none").c_str(), &lock, &is_locked));
}
} // namespace
