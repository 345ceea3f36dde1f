/* SPDX-License-Identifier: Apache-2.0 */
// folder_test.cc: names in a checkpoint, folders, and files that appear whole.
#include "sample.h"

extern "C" {
#include "archive_priv.h"
}

#include <sys/stat.h>
#include <sys/wait.h>

using namespace zoff_test;

TEST(folder, checks_names)
{
    for (const char *name : {"a", "step-1", "A_b.c", "0"})
        EXPECT_ZOFF_OK(zoff_archive_folder_check_name("x", name));
    for (const char *name : {"", ".", "..", ".a", "a/b", "a b", "\xff", "a*", "a\n"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "x is '", zoff_archive_folder_check_name("x", name));
    EXPECT_ZOFF_OK(zoff_archive_folder_check_name("x", std::string(255, 'a').c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "1 to 255", zoff_archive_folder_check_name("x", std::string(256, 'a').c_str()));
    EXPECT_ZOFF_OK(zoff_archive_folder_check_label("x", std::string(200, 'a').c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "1 to 200", zoff_archive_folder_check_label("x", std::string(201, 'a').c_str()));
}

TEST(folder, reads_the_names_that_it_makes)
{
    char name[512], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    for (const std::string &given : {std::string(), std::string("tp0.pp1"), std::string(200, 'x')}) {
        zoff_archive_folder_manifest_name(given.c_str(), name);
        EXPECT_LE(strlen(name), 250u); // with "." and ".new" a file system's 255
        ASSERT_TRUE(zoff_archive_folder_is_manifest(name, label)) << name;
        EXPECT_EQ(given, label);
        EXPECT_FALSE(zoff_archive_folder_is_part(name, label, id));
        for (unsigned rank : {0u, 99999u, 100000u, 1u << 24}) {
            zoff_archive_folder_part_name(given.c_str(), "0123456789abcdef", rank, name);
            EXPECT_LE(strlen(name), 255u);
            ASSERT_TRUE(zoff_archive_folder_is_part(name, label, id)) << name;
            EXPECT_EQ(given, label);
            EXPECT_STREQ("0123456789abcdef", id);
            EXPECT_FALSE(zoff_archive_folder_is_manifest(name, label));
            EXPECT_FALSE(zoff_archive_folder_is_pin(name, label, id));
        }
        zoff_archive_folder_pin_name(given.c_str(), "0123456789abcdef", name);
        EXPECT_LE(strlen(name), 250u);
        ASSERT_TRUE(zoff_archive_folder_is_pin(name, label, id)) << name;
        EXPECT_EQ(given, label);
        EXPECT_STREQ("0123456789abcdef", id);
        EXPECT_FALSE(zoff_archive_folder_is_part(name, label, id) || zoff_archive_folder_is_manifest(name, label));
    }
}

TEST(folder, takes_no_other_name_for_its_own)
{
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    for (const char *name : {"", "manifest.jso", "xmanifest.json", ".manifest.json", "..manifest.json", ".manifest.json.new",
                             "a b.manifest.json", ".a.manifest.json"})
        EXPECT_FALSE(zoff_archive_folder_is_manifest(name, label)) << name;
    EXPECT_FALSE(zoff_archive_folder_is_manifest((std::string(201, 'a') + ".manifest.json").c_str(), label));
    for (const char *name :
         {".states", "0123456789abcdef.rank-0000.states", "0123456789abcdeg.rank-00000.states",
          "123456789abcdef.rank-00000.states", "0123456789abcdef.rank-00000.state", "a0123456789abcdef.rank-00000.states",
          "0123456789ABCDEF.rank-00000.states", "0123456789abcdef-rank-00000.states", ".0123456789abcdef.rank-00000.states"})
        EXPECT_FALSE(zoff_archive_folder_is_part(name, label, id)) << name;
    for (const char *name : {".pinned", "pinned", "0123456789abcde.pinned", "0123456789abcdeg.pinned", "0123456789abcdef.pinne",
                             ".0123456789abcdef.pinned", "a0123456789abcdef.pinned", ".0123456789abcdef.pinned.new"})
        EXPECT_FALSE(zoff_archive_folder_is_pin(name, label, id)) << name;
    // A label that looks like a file of the engine without a label.
    ASSERT_TRUE(zoff_archive_folder_is_part("0123456789abcdef.rank-00000.fedcba9876543210.rank-00001.states", label, id));
    EXPECT_STREQ("0123456789abcdef.rank-00000", label);
    EXPECT_STREQ("fedcba9876543210", id);
}

// Engines that save a step together meet in one hidden folder; two saves of one engine do not.
TEST(folder, hides_a_save_until_it_is_complete)
{
    zoff_archive_manifest m = {};
    char path[4096], name[ZOFF_ARCHIVE_WORK_MOST + 1];
    bool is_removed = true;
    strcpy(m.id, "0123456789abcdef");
    const auto work = [&](const std::string &of, unsigned engines, int64_t t) {
        m.engines = engines;
        m.t = t;
        zoff_archive_folder_work("/f", of.c_str(), &m, path);
        return std::string(path).substr(3);
    };
    EXPECT_EQ(".a.b.0123456789abcdef", work("a.b", 1, 5));
    EXPECT_EQ(work("a", 2, 5), work("a", 2, 5));
    EXPECT_NE(work("a", 2, 5), work("a", 2, 6));
    EXPECT_NE(work("a", 2, 5), work("a", 3, 5));
    EXPECT_NE(work(std::string(255, 'a'), 2, 5), work(std::string(254, 'a'), 2, 5));
    EXPECT_EQ(0u, work("a", 2, 5).find(".a."));
    for (const std::string &of : {std::string("a"), std::string("a.b"), std::string(255, 'x')}) {
        const std::string entry = work(of, 1, 1);
        EXPECT_LE((entry + ZOFF_ARCHIVE_REMOVED).size(), 255u);
        for (const char *end : {"", ZOFF_ARCHIVE_REMOVED}) {
            ASSERT_TRUE(zoff_archive_folder_is_work((entry + end).c_str(), name, &is_removed)) << entry;
            EXPECT_EQ(of.substr(0, ZOFF_ARCHIVE_WORK_MOST), name);
            EXPECT_EQ(*end != 0, is_removed);
        }
    }
    for (const char *entry :
         {"", ".", "..", ".0123456789abcdef", "..0123456789abcdef", ".a.0123456789abcde", ".a.0123456789abcdeg",
          ".a.0123456789abcdef0", "a.0123456789abcdef", ".a0123456789abcdef", ".removed", ".a.removed"})
        EXPECT_FALSE(zoff_archive_folder_is_work(entry, name, &is_removed)) << entry;
}

TEST(folder, is_made_with_those_above_it_or_not_at_all)
{
    scratch_folder scratch;
    const std::string impossible = std::string(300, 'x');
    ASSERT_EQ(0, mkdir(scratch.file("there").c_str(), 0777));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot make the folder",
                      zoff_archive_folder_make((scratch.path + "/there//a/b/" + impossible).c_str()));
    EXPECT_EQ(std::set<std::string>{"there"}, names_in(scratch.path));
    EXPECT_TRUE(names_in(scratch.file("there")).empty());
}

// Another program's file of this name may have gigabytes.
TEST(folder, reads_no_large_file_that_does_not_begin_as_a_manifest)
{
    scratch_folder scratch;
    char *text = nullptr;
    size_t bytes = 0;
    write_file(scratch.file("manifest.json"), "{\"weights\": [");
    ASSERT_EQ(0, truncate(scratch.file("manifest.json").c_str(), (off_t)3 << 30));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_CORRUPT, "is no manifest: its first 4096 bytes",
        zoff_archive_folder_read_file(scratch.path.c_str(), "manifest.json", ZOFF_ARCHIVE_MANIFEST_MOST, &text, &bytes));
}

TEST(folder, is_made_absolute_for_programs_that_call_chdir)
{
    char whole[4096], here[4096];
    const size_t most = ZOFF_ARCHIVE_FOLDER_MOST;
    ASSERT_NE(nullptr, getcwd(here, sizeof here));
    ASSERT_ZOFF_OK(zoff_archive_folder_absolute("a/b", most, whole));
    EXPECT_EQ(std::string(here) + "/a/b", whole);
    ASSERT_ZOFF_OK(zoff_archive_folder_absolute("/a//b/", most, whole));
    EXPECT_STREQ("/a//b/", whole);
    for (size_t bytes : {3000u, 3001u})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is too long",
                          zoff_archive_folder_absolute(std::string(bytes, 'x').c_str(), most, whole));
}

// A program that has given up its rights may be in a folder whose path it cannot walk.
TEST(folder, stays_relative_where_its_path_cannot_be_walked)
{
    scratch_folder scratch;
    ASSERT_EQ(0, mkdir(scratch.file("above").c_str(), 0777));
    ASSERT_EQ(0, mkdir(scratch.file("above/here").c_str(), 0777));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char whole[4096];
        const bool works = chdir(scratch.file("above/here").c_str()) == 0 && chmod(scratch.file("above").c_str(), 0) == 0 &&
                           (geteuid() != 0 || setuid(65534) == 0) &&
                           zoff_archive_folder_absolute("a/b", ZOFF_ARCHIVE_FOLDER_MOST, whole) == ZOFF_OK;
        _exit(works && strcmp(whole, "a/b") == 0 ? 0 : 1);
    }
    int how = -1;
    EXPECT_EQ(child, waitpid(child, &how, 0));
    EXPECT_EQ(0, how);
    EXPECT_EQ(0, chmod(scratch.file("above").c_str(), 0777));
}
