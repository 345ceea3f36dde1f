// publish_test.cc: identity and name of a checkpoint, when `latest` changes, and which checkpoints are removed.
#include "ranks.h"
#include "replacing.h"

extern "C" {
#include "archive_priv.h"
}

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
class publish : public testing::Test
{
  protected:
    zoff_status save(const std::string &name, unsigned keep = 0, const char *label = nullptr, unsigned engines = 1,
                     int64_t t = 1)
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name.c_str();
        opts.keep = keep;
        opts.label = label;
        opts.engines = engines;
        return written.write(folder, &opts, t);
    }
    std::string latest()
    {
        char name[ZOFF_ARCHIVE_NAME_MOST + 1] = "";
        return zoff_archive_latest_read(folder.c_str(), name) == ZOFF_OK ? name : "";
    }
    using names = std::set<std::string>;
    scratch_folder scratch;
    std::string folder = scratch.path;
    sample written;
    replacing as_engines_do;
};
} // namespace

TEST_F(publish, makes_names_from_steps)
{
    char name[ZOFF_ARCHIVE_NAME_MOST + 1];
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, 12, name));
    EXPECT_STREQ("step-0000000012", name);
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, INT64_MAX, name));
    EXPECT_STREQ("step-9223372036854775807", name);
    opts.label = "";
    opts.name = "best";
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, 12, name));
    EXPECT_STREQ("best", name);
}

TEST_F(publish, makes_ids_that_differ)
{
    std::set<std::string> ids;
    for (int i = 0; i < 100; i++) {
        char id[ZOFF_ARCHIVE_ID_BYTES];
        ASSERT_ZOFF_OK(zoff_archive_publish_id(id));
        EXPECT_EQ(16u, strspn(id, "0123456789abcdef"));
        ids.insert(id);
    }
    EXPECT_EQ(100u, ids.size());
}

TEST_F(publish, keeps_as_many_as_it_is_told)
{
    log_catcher log;
    for (const char *name : {"a", "b", "c", "d"})
        ASSERT_ZOFF_OK(save(name));
    EXPECT_EQ((names{"a", "b", "c", "d", "latest"}), names_in(folder));
    ASSERT_ZOFF_OK(save("e", 3));
    EXPECT_EQ((names{"c", "d", "e", "latest"}), names_in(folder));
    EXPECT_EQ("e", latest());
    ASSERT_ZOFF_OK(save("f", 1));
    EXPECT_EQ((names{"f", "latest"}), names_in(folder));
    ASSERT_ZOFF_OK(save("f", 1)); // the same name again
    EXPECT_EQ((names{"f", "latest"}), names_in(folder));
    EXPECT_EQ(2u, names_in(scratch.file("f")).size());
    written.compare(folder, 1);
}

TEST_F(publish, follows_no_link_to_remove_a_checkpoint)
{
    scratch_folder elsewhere;
    const auto link = [&](const std::string &to, const char *name) {
        ASSERT_EQ(0, symlink(to.c_str(), scratch.file(name).c_str()));
    };
    log_catcher log;
    ASSERT_ZOFF_OK(written.write(elsewhere.path, nullptr, 1));
    link(elsewhere.file("step-0000000001"), "elsewhere");
    ASSERT_ZOFF_OK(save("a"));
    link("a", "best");
    ASSERT_ZOFF_OK(save("b", 2)); // "best" does not count
    EXPECT_EQ((names{"a", "b", "best", "elsewhere", "latest"}), names_in(folder));
    ASSERT_ZOFF_OK(save("b", 1));
    EXPECT_EQ((names{"b", "best", "elsewhere", "latest"}), names_in(folder));
    link("b", "newest");
    ASSERT_ZOFF_OK(save("b", 1));
    EXPECT_EQ((names{"b", "best", "elsewhere", "latest", "newest"}), names_in(folder));
    written.compare(folder, 1);
    written.compare(elsewhere.path, 1);
}

TEST_F(publish, counts_only_complete_checkpoints)
{
    log_catcher log;
    for (const char *name : {"a", "b", "c"})
        ASSERT_ZOFF_OK(save(name));
    std::string text = read_file(scratch.file("c/manifest.json"));
    write_file(scratch.file("c/manifest.json"), replaced(text, "\"step\": 1", "\"step\": 2"));
    ASSERT_ZOFF_OK(save("d", 2));
    EXPECT_EQ((names{"b", "c", "d", "latest"}), names_in(folder)); // `c` cannot be loaded
}

TEST_F(publish, leaves_files_of_others)
{
    ASSERT_ZOFF_OK(save("a"));
    write_file(scratch.file("a/notes.txt"), "mine");
    ASSERT_EQ(0, system(("mkdir '" + scratch.file("b") + "'").c_str()));
    write_file(scratch.file("b/0123456789abcdef.rank-00000.states"), "of a save that was killed, or that is under way");
    log_catcher log;
    log.expect("its folder is not");
    ASSERT_ZOFF_OK(save("c", 1));
    EXPECT_EQ((names{"a", "b", "c", "latest"}), names_in(folder));
    EXPECT_EQ(names{"notes.txt"}, names_in(scratch.file("a")));
}

TEST_F(publish, removes_what_killed_saves_have_left_under_other_names_a_day_ago)
{
    const auto make = [&](const char *name, const char *label, long age) {
        const std::string file = scratch.file(name) + "/" + label + "0123456789abcdef.rank-00000.states";
        const timespec times[2] = {{time(nullptr) - age, 0}, {time(nullptr) - age, 0}};
        EXPECT_EQ(0, mkdir(scratch.file(name).c_str(), 0777));
        write_file(file, "half");
        EXPECT_EQ(0, utimensat(AT_FDCWD, file.c_str(), times, 0));
        return file;
    };
    enum { DAY = 24 * 60 * 60 };
    const std::string living = make("living", "", 2 * DAY);
    make("fresh", "", DAY / 2);
    make("other", "tp0.", 2 * DAY);
    make("killed", "", 2 * DAY);
    const int lock = open(living.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(0, flock(lock, LOCK_EX | LOCK_NB));
    ASSERT_ZOFF_OK(save("a", 1));
    EXPECT_EQ((names{"a", "fresh", "latest", "living", "other"}), names_in(folder));
    close(lock);
    ASSERT_ZOFF_OK(save("a", 1));
    EXPECT_EQ((names{"a", "fresh", "latest", "other"}), names_in(folder));
}

TEST_F(publish, removes_files_of_an_earlier_save_with_this_name)
{
    ASSERT_EQ(0, system(("mkdir '" + scratch.file("a") + "'").c_str()));
    const std::string killed = "0123456789abcdef.rank-00000.states", of_tp0 = "tp0.0123456789abcdef.rank-00000.states";
    write_file(scratch.file("a/" + killed), "half");
    write_file(scratch.file("a/" + of_tp0), "of another engine");
    write_file(scratch.file("a/.manifest.json.new"), "half");
    write_file(scratch.file("a/.manifest.json.old"), "of a save that was killed");
    ASSERT_ZOFF_OK(save("a"));
    const auto left = names_in(scratch.file("a"));
    EXPECT_EQ(0u, left.count(killed));
    EXPECT_EQ(1u, left.count(of_tp0));
    EXPECT_EQ(3u, left.size());
}

TEST_F(publish, points_latest_at_what_was_begun_last)
{
    checkpoint_writer early, late;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.keep = 1;
    opts.name = "early";
    ASSERT_ZOFF_OK(written.open(folder, &opts, 1, &early));
    opts.name = "late";
    ASSERT_ZOFF_OK(written.open(folder, &opts, 2, &late));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(late.get()));
    EXPECT_EQ("late", latest());
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(early.get()));
    EXPECT_EQ("late", latest());
    EXPECT_EQ((names{"early", "late", "latest"}), names_in(folder)); // neither the newest nor the new one is removed
}

TEST_F(publish, ends_only_the_removal_that_was_begun)
{
    log_catcher log;
    ASSERT_ZOFF_OK(save("a"));
    const std::string a = scratch.file("a"), other = "fedcba9876543210.rank-00000.states";
    ASSERT_EQ(0, rename((a + "/manifest.json").c_str(), (a + "/.manifest.json.removed").c_str()));
    write_file(a + "/" + other, "of a save that is under way");
    write_file(a + "/.tp0.manifest.json.removed", "damaged");
    ASSERT_ZOFF_OK(save("b", 1));
    EXPECT_EQ((names{".tp0.manifest.json.removed", other}), names_in(a));
    ASSERT_ZOFF_OK(save("a")); // the name is used again
    EXPECT_EQ(3u, names_in(a).size());
}

TEST_F(publish, removes_no_checkpoint_of_an_engine_that_saves_alone)
{
    log_catcher log;
    log.expect("has no manifest of the engine 'gen', but of 'disc'");
    const std::string hidden = scratch.file("a/.disc.manifest.json.old");
    ASSERT_ZOFF_OK(save("a", 1, "gen"));
    ASSERT_ZOFF_OK(save("a", 1, "disc"));
    write_file(hidden, "of a save that is under way");
    ASSERT_ZOFF_OK(save("b", 1, "gen"));
    EXPECT_EQ((names{"a", "b", "latest"}), names_in(folder));
    EXPECT_EQ(3u, names_in(scratch.file("a")).size());
    written.compare(scratch.path, 1, "gen");
    written.compare(scratch.file("a"), 1, "disc");
    ASSERT_ZOFF_OK(save("b", 1, "disc"));
    EXPECT_EQ((names{"b", "latest"}), names_in(folder));
    for (const char *label : {"gen", "disc"})
        written.compare(folder, 1, label);
}

TEST_F(publish, waits_for_all_engines)
{
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
    EXPECT_EQ("a", latest());
    ASSERT_ZOFF_OK(save("b", 1, "tp0", 2));
    EXPECT_EQ("a", latest());
    EXPECT_EQ((names{"a", "b", "latest"}), names_in(folder));
    ASSERT_ZOFF_OK(save("b", 1, "tp1", 2));
    EXPECT_EQ("b", latest());
    EXPECT_EQ((names{"b", "latest"}), names_in(folder));
}

// A name is used again: manifests of the earlier save must not complete the later one.
TEST_F(publish, does_not_mix_two_saves_of_one_name)
{
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(scratch.file("a").c_str(), "tp0"));
    written.shift = 1;
    for (int round = 0; round < 2; round++) {
        ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not all have", zoff_archive_listing_judge(scratch.file("a").c_str(), "tp0"));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not all have", zoff_archive_listing_judge(scratch.file("a").c_str(), "tp1"));
    }
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(scratch.file("a").c_str(), "tp0"));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(scratch.file("a").c_str(), "tp1"));
    written.compare(scratch.file("a"), 1, "tp0");
    written.compare(scratch.file("a"), 1, "tp1");
}

// An engine begins its next save before the other one has ended the save before.
TEST_F(publish, does_not_replace_itself)
{
    checkpoint_writer early;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "a";
    opts.label = "tp0";
    opts.engines = 2;
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2, 10));
    ASSERT_ZOFF_OK(written.open(folder, &opts, 20, &early));
    ASSERT_ZOFF_OK(written.fill(early.get()));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2, 10));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(early.get()));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2, 20));
    for (const char *label : {"tp0", "tp1"})
        written.compare(folder, 20, label);
}

// A run with other labels uses the name again: each of its engines finds no manifest of its own.
TEST_F(publish, does_not_mix_saves_of_other_labels)
{
    const std::string a = scratch.file("a");
    for (const char *label : {"tp0.pp0", "tp1.pp0"})
        ASSERT_ZOFF_OK(save("a", 0, label, 2));
    written.shift = 1;
    ASSERT_ZOFF_OK(save("a", 0, "tp0.pp1", 2));
    for (const char *label : {"tp0.pp0", "tp1.pp0", "tp0.pp1"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not all have", zoff_archive_listing_judge(a.c_str(), label));
    ASSERT_ZOFF_OK(save("a", 0, "tp1.pp1", 2));
    for (const char *label : {"tp0.pp1", "tp1.pp1"})
        written.compare(a, 1, label);
    for (const char *label : {"tp0.pp0", "tp1.pp0"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not all have", zoff_archive_listing_judge(a.c_str(), label));
}

TEST_F(publish, notices_files_that_are_not_there)
{
    ranks_checkpoint ranks(folder, 2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "of rank 1 is not there", ranks.write([&](unsigned rank, zoff_archive_piece *) {
        if (rank == 1) { // while its file is open
            EXPECT_EQ(0, system(("rm '" + scratch.file("step-7") + "/'*rank-00001*").c_str()));
        }
    }));
    EXPECT_EQ("", latest());
    EXPECT_EQ(0u, names_in(scratch.file("step-7")).count("manifest.json"));
}
