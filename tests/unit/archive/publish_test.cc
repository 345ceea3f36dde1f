/* SPDX-License-Identifier: Apache-2.0 */
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
    zoff_checkpoint_opts options(const char *name, unsigned keep, const char *label, unsigned engines) const
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name;
        opts.keep = keep;
        opts.label = label;
        opts.engines = engines;
        opts.pinned = pins;
        return opts;
    }
    zoff_status save(const std::string &name, unsigned keep = 0, const char *label = nullptr, unsigned engines = 1,
                     int64_t t = 1)
    {
        const zoff_checkpoint_opts opts = options(name.c_str(), keep, label, engines);
        return written.write(folder, &opts, t);
    }
    bool is_pinned(const char *name, const char *label = nullptr) const
    {
        zoff_checkpoint_reader *reader = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.file(name).c_str(), label, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        zoff_checkpoint_reader_close(reader);
        return info.pinned;
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
    bool pins = false; // zoff_checkpoint_opts.pinned of what is saved
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
    opts.label = "tp0"; // engines that save together share a folder, those that save alone do not
    opts.engines = 2;
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, 12, name));
    EXPECT_STREQ("best", name);
    opts.engines = 1;
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, 12, name));
    EXPECT_STREQ("tp0.best", name);
    opts.name = nullptr;
    ASSERT_ZOFF_OK(zoff_archive_publish_name(&opts, 12, name));
    EXPECT_STREQ("tp0.step-0000000012", name);
    const std::string longest(252, 'a');
    opts.name = longest.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "have 256 bytes together", zoff_archive_publish_name(&opts, 12, name));
    opts.name = "a.replaced";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "that are being replaced", zoff_archive_publish_name(&opts, 12, name));
}

TEST_F(publish, makes_ids_that_differ)
{
    std::set<std::string> ids;
    for (int i = 0; i < 100; i++) {
        char id[ZOFF_ARCHIVE_ID_BYTES];
        ASSERT_ZOFF_OK(zoff_archive_folder_id(id));
        EXPECT_EQ(16u, strspn(id, "0123456789abcdef"));
        ids.insert(id);
    }
    EXPECT_EQ(100u, ids.size());
}

TEST_F(publish, leaves_files_of_others)
{
    log_catcher log;
    log.expect("its folder is not");
    ASSERT_ZOFF_OK(save("a"));
    write_file(scratch.file("a/notes.txt"), "mine");
    ASSERT_ZOFF_OK(save("a")); // replaced
    EXPECT_EQ(3u, names_in(scratch.file("a")).size());
    ASSERT_ZOFF_OK(save("c", 1)); // removed
    EXPECT_EQ((names{"a", "c", "latest"}), names_in(folder));
    EXPECT_EQ(names{"notes.txt"}, names_in(scratch.file("a")));
}

TEST_F(publish, takes_no_name_of_something_else)
{
    write_file(scratch.file("file"), "");
    ASSERT_EQ(0, symlink(".", scratch.file("link").c_str()));
    for (const char *name : {"file", "link"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "no checkpoint can have its name", save(name));
    ASSERT_ZOFF_OK(save("a", 0, "gen"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is a checkpoint of the engine 'gen'", save("gen.a"));
    written.compare(folder, 1, "gen");
}

TEST_F(publish, waits_for_all_engines)
{
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
    EXPECT_EQ("a", latest());
    ASSERT_ZOFF_OK(save("b", 1, "tp0", 2));
    EXPECT_EQ("a", latest());
    EXPECT_EQ(3u, names_in(folder).size()) << "one of them is hidden";
    ASSERT_ZOFF_OK(save("b", 1, "tp1", 2));
    EXPECT_EQ("b", latest());
    EXPECT_EQ((names{"b", "latest"}), names_in(folder));
}

// A name is used again: the earlier save stays whole until all engines have saved.
TEST_F(publish, does_not_mix_two_saves_of_one_name)
{
    sample later;
    later.shift = 1;
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
    std::swap(written, later);
    for (int round = 0; round < 2; round++) {
        ASSERT_ZOFF_OK(save("a", 0, "tp1", 2));
        for (const char *label : {"tp0", "tp1"})
            later.compare(scratch.file("a"), 1, label);
    }
    ASSERT_ZOFF_OK(save("a", 0, "tp0", 2));
    for (const char *label : {"tp0", "tp1"})
        written.compare(scratch.file("a"), 1, label);
    EXPECT_EQ((names{"a", "latest"}), names_in(folder));
    EXPECT_EQ(4u, names_in(scratch.file("a")).size());
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
    for (const char *label : {"tp0.pp0", "tp1.pp0"})
        ASSERT_ZOFF_OK(save("a", 0, label, 2));
    for (const char *label : {"tp0.pp1", "tp1.pp1"})
        ASSERT_ZOFF_OK(save("a", 0, label, 2));
    for (const char *label : {"tp0.pp1", "tp1.pp1"})
        written.compare(scratch.file("a"), 1, label);
    EXPECT_EQ(4u, names_in(scratch.file("a")).size());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is a checkpoint of the engine 'tp", save("a"));
}

// Pinned checkpoints are not counted, however they are pinned, and wherever they stand among the others.
TEST_F(publish, keeps_pinned_checkpoints_beside_the_newest)
{
    for (const char *name : {"a", "b", "c", "d"}) {
        pins = strcmp(name, "b") == 0;
        ASSERT_ZOFF_OK(save(name, 1));
    }
    EXPECT_EQ((names{"b", "d", "latest"}), names_in(folder));
    EXPECT_EQ((std::pair(true, false)), std::pair(is_pinned("b"), is_pinned("d")));
    ASSERT_ZOFF_OK(zoff_checkpoint_pin(folder.c_str(), nullptr)); // the newest
    ASSERT_ZOFF_OK(zoff_checkpoint_pin(scratch.file("d").c_str(), nullptr));
    ASSERT_EQ(0, symlink("b", scratch.file("best").c_str()));
    ASSERT_ZOFF_OK(zoff_checkpoint_unpin(scratch.file("best").c_str(), ""));
    EXPECT_EQ((std::pair(false, true)), std::pair(is_pinned("b"), is_pinned("d")));
    EXPECT_EQ(2u, names_in(scratch.file("b")).size());
    pins = true;
    ASSERT_ZOFF_OK(save("e", 1)); // beside it the newest one that is not pinned
    EXPECT_EQ((names{"b", "best", "d", "e", "latest"}), names_in(folder));
    pins = false;
    ASSERT_ZOFF_OK(save("f", 1));
    EXPECT_EQ((names{"best", "d", "e", "f", "latest"}), names_in(folder));
    for (const char *name : {"d", "e"}) {
        written.compare(scratch.file(name), 1);
        ASSERT_ZOFF_OK(zoff_checkpoint_unpin(scratch.file(name).c_str(), nullptr));
    }
    ASSERT_ZOFF_OK(save("f", 1));
    EXPECT_EQ((names{"best", "f", "latest"}), names_in(folder));
    written.compare(folder, 1);
}

TEST_F(publish, replaces_a_pinned_checkpoint_with_its_pin)
{
    log_catcher log;
    for (const bool was : {false, true}) {
        for (const bool is : {true, false}) {
            pins = was;
            ASSERT_ZOFF_OK(save("a"));
            pins = is;
            ASSERT_ZOFF_OK(save("a"));
            EXPECT_EQ(is, is_pinned("a"));
            EXPECT_EQ(is ? 3u : 2u, names_in(scratch.file("a")).size());
            EXPECT_EQ((names{"a", "latest"}), names_in(folder));
            if (was && !is)
                log.expect(
                    "/a' was pinned, and is replaced by a checkpoint that is not: to keep both, give the new one another "
                    "zoff_checkpoint_opts.name");
        }
    }
}

// The pin of one engine is that of the checkpoint. A save that was cut short leaves none to the next one.
TEST_F(publish, pins_what_several_engines_save)
{
    const auto begin = [&](const char *label) {
        checkpoint_writer w;
        const zoff_checkpoint_opts opts = options("a", 0, label, 2);
        EXPECT_ZOFF_OK(written.open(folder, &opts, 1, &w));
        EXPECT_ZOFF_OK(written.fill(w.get()));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(w.get()));
    };
    pins = true;
    begin("tp0");
    pins = false;
    begin("tp0");
    begin("tp1");
    EXPECT_FALSE(is_pinned("a", "tp0"));
    begin("tp1");
    pins = true;
    begin("tp0");
    for (const char *label : {"tp0", "tp1"}) {
        EXPECT_TRUE(is_pinned("a", label));
        written.compare(folder, 1, label);
    }
    ASSERT_ZOFF_OK(zoff_checkpoint_unpin(scratch.file("a").c_str(), "tp1"));
    EXPECT_FALSE(is_pinned("a", "tp0"));
    EXPECT_EQ(4u, names_in(scratch.file("a")).size());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "but of 'tp", zoff_checkpoint_pin(scratch.file("a").c_str(), nullptr));
}

TEST_F(publish, refuses_to_pin_what_is_no_checkpoint)
{
    for (auto *call : {zoff_checkpoint_pin, zoff_checkpoint_unpin}) {
        const std::string name = call == zoff_checkpoint_pin ? "zoff_checkpoint_pin: " : "zoff_checkpoint_unpin: ";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, name + "folder must not be NULL or empty", call(nullptr, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, name + "folder must not be NULL or empty", call("", nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, name + "label is 'a b'", call(folder.c_str(), "a b"));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "there is no complete checkpoint in '" + folder, call(folder.c_str(), nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder", call(scratch.file("none").c_str(), nullptr));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is the name of a file in a checkpoint", save("0123456789abcdef.pinned"));
}

TEST_F(publish, notices_files_that_are_not_there)
{
    ranks_checkpoint ranks(folder, 2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "of rank 1 is not there", ranks.write([&](unsigned rank, zoff_archive_piece *) {
        if (rank == 1) { // while its file is open
            EXPECT_EQ(0, system(("rm '" + folder + "'/.step-7.*/*rank-00001*").c_str()));
        }
    }));
    EXPECT_EQ("", latest());
    EXPECT_EQ(0, access(folder.c_str(), F_OK));
    EXPECT_NE(0, access(scratch.file("step-7").c_str(), F_OK));
}
