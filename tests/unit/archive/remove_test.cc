// remove_test.cc: which files are removed from the folder of a checkpoint, and which ones another program still needs.
#include "sample.h"

#include <sys/file.h>

using namespace zoff_test;

namespace
{
const char *const DEAD = "0123456789abcdef", *const ALIVE = "fedcba9876543210";

class remove_files : public testing::Test
{
  protected:
    remove_files()
    {
        EXPECT_ZOFF_OK(written.write(scratch.path));
        folder = scratch.file("step-0000000012");
        own = names_in(folder);
    }
    std::string part(const std::string &id, unsigned rank, const std::string &label = "") const
    {
        char name[512];
        zoff_archive_folder_part_name(label.c_str(), id.c_str(), rank, name);
        return name;
    }
    void make(const std::string &name) { write_file(folder + "/" + name, "half"); }
    std::set<std::string> foreign() const
    {
        std::set<std::string> names;
        for (const std::string &name : names_in(folder))
            if (!own.count(name))
                names.insert(name);
        return names;
    }

    scratch_folder scratch;
    sample written;
    std::string folder;
    std::set<std::string> own;
};

TEST_F(remove_files, those_of_saves_under_way_stay)
{
    for (const char *id : {DEAD, ALIVE}) {
        for (unsigned rank : {0u, 1u})
            make(part(id, rank));
        make(std::string(".manifest.json.") + id + ".new");
        make(std::string(".latest.") + id + ".new");
    }
    make("notes.txt");
    make(part(DEAD, 0, "tp0"));
    const int lock = open((folder + "/" + part(ALIVE, 0)).c_str(), O_RDWR);
    ASSERT_EQ(0, flock(lock, LOCK_EX | LOCK_NB));
    zoff_archive_remove_left(folder.c_str(), "");
    const std::set<std::string> alive = {part(ALIVE, 0), part(ALIVE, 1), std::string(".manifest.json.") + ALIVE + ".new",
                                         std::string(".latest.") + ALIVE + ".new"};
    std::set<std::string> left = alive;
    left.insert({"notes.txt", part(DEAD, 0, "tp0")});
    EXPECT_EQ(left, foreign());
    written.compare(scratch.path);
    close(lock);
    zoff_archive_remove_left(folder.c_str(), nullptr);
    EXPECT_EQ(std::set<std::string>{"notes.txt"}, foreign());
    written.compare(scratch.path);
}

TEST_F(remove_files, those_of_one_save_go)
{
    zoff_archive_manifest m = {};
    m.label = const_cast<char *>("");
    strcpy(m.id, DEAD);
    make(part(DEAD, 7));
    make(part(ALIVE, 7));
    zoff_archive_remove_own(folder.c_str(), &m);
    EXPECT_EQ(std::set<std::string>{part(ALIVE, 7)}, foreign());
}

// The list from which a removal comes may be old.
TEST_F(remove_files, a_checkpoint_that_was_saved_since_stays)
{
    zoff_archive *a = nullptr;
    ASSERT_ZOFF_OK(zoff_archive_open(folder.c_str(), "", &a));
    const uint64_t sequence = a->manifest.sequence;
    zoff_archive_close(a);
    zoff_archive_remove_checkpoint(folder.c_str(), "", sequence);
    written.compare(scratch.path);
    make(part(ALIVE, 0));
    const int lock = open((folder + "/" + part(ALIVE, 0)).c_str(), O_RDWR);
    ASSERT_EQ(0, flock(lock, LOCK_EX | LOCK_NB));
    zoff_archive_remove_checkpoint(folder.c_str(), "", sequence + 1);
    EXPECT_EQ(std::set<std::string>{part(ALIVE, 0)}, names_in(folder)) << "another save is under way there";
    close(lock);
}

// A process that is stopped while it looks at a manifest holds up others for some seconds.
TEST_F(remove_files, a_folder_is_locked_once)
{
    int lock = -1;
    ASSERT_ZOFF_OK(zoff_archive_folder_lock(folder.c_str(), &lock));
    const int other = open(folder.c_str(), O_RDONLY);
    EXPECT_NE(0, flock(other, LOCK_EX | LOCK_NB));
    zoff_archive_folder_unlock(lock);
    EXPECT_EQ(0, flock(other, LOCK_EX | LOCK_NB));
    close(other);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder", zoff_archive_folder_lock(scratch.file("none").c_str(), &lock));
}
} // namespace
