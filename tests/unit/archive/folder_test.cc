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
        }
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
    const char *end = nullptr;
    for (const char *name : {".new", "manifest.json.new", ".manifest.json", ".manifest.json.swp", ".xmanifest.json.old",
                             "..new", ".a b.manifest.json.removed"})
        EXPECT_FALSE(zoff_archive_folder_is_hidden(name, label, id, &end)) << name;
    EXPECT_FALSE(zoff_archive_folder_is_hidden(("." + std::string(600, 'a') + ".manifest.json.new").c_str(), label, id, &end));
    EXPECT_FALSE(zoff_archive_folder_is_hidden(".latest.new", label, id, &end)) << "it is no save's";
    EXPECT_FALSE(zoff_archive_folder_is_hidden(".x.manifest.json.0123456789abcdeg.new", label, id, &end));
    ASSERT_TRUE(zoff_archive_folder_is_hidden(".manifest.json.manifest.json.removed", label, id, &end));
    EXPECT_STREQ("manifest.json", label);
    EXPECT_STREQ(".removed", end);
    EXPECT_STREQ("", id);
    char name[512];
    for (const char *what : {"manifest.json", "latest"}) {
        for (const std::string &given : {std::string(), std::string("tp0"), std::string(200, 'a')}) {
            zoff_archive_folder_hidden_name(given.c_str(), what, "0123456789abcdef", ".new", name);
            EXPECT_LE(strlen(name), 255u);
            ASSERT_TRUE(zoff_archive_folder_is_hidden(name, label, id, &end)) << name;
            EXPECT_EQ(given, label);
            EXPECT_STREQ("0123456789abcdef", id);
            EXPECT_STREQ(".new", end);
        }
    }
    // A label that looks like a file of the engine without a label.
    ASSERT_TRUE(zoff_archive_folder_is_part("0123456789abcdef.rank-00000.fedcba9876543210.rank-00001.states", label, id));
    EXPECT_STREQ("0123456789abcdef.rank-00000", label);
    EXPECT_STREQ("fedcba9876543210", id);
}

TEST(folder, is_made_with_those_above_it)
{
    scratch_folder scratch;
    struct stat about;
    for (const char *path : {"/a/b/c", "/a/b/c", "/a/b/c/", "/x//y///z//"}) {
        ASSERT_ZOFF_OK(zoff_archive_folder_make((scratch.path + path).c_str())) << path;
        EXPECT_EQ(0, stat((scratch.path + path).c_str(), &about));
    }
    write_file(scratch.file("file"), "");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is no folder", zoff_archive_folder_make(scratch.file("file").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is no folder", zoff_archive_folder_make(scratch.file("file/a").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the folder of checkpoints", zoff_archive_folder_make(""));
    EXPECT_ZOFF_OK(zoff_archive_folder_make("/"));
    EXPECT_ZOFF_OK(zoff_archive_folder_make("."));
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

TEST(folder, relative_to_the_working_folder_is_made)
{
    scratch_folder scratch;
    const std::string name = scratch.path.substr(scratch.path.rfind('/') + 1) + "-relative";
    ASSERT_ZOFF_OK(zoff_archive_folder_make(name.c_str()));
    EXPECT_EQ(0, rmdir(name.c_str()));
}

TEST(folder, writes_files_whole)
{
    scratch_folder scratch;
    const auto write = [&](const std::string &name, const std::string &text) {
        return zoff_archive_folder_write_file(scratch.file(name).c_str(), text.data(), text.size());
    };
    ASSERT_ZOFF_OK(write("x", "old text"));
    ASSERT_ZOFF_OK(write("x", "new"));
    EXPECT_EQ("new", read_file(scratch.file("x")));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot create", write("none/x", "1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot rename 'a' to 'b'", zoff_archive_folder_fail_rename("a", "b", EIO));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "cannot rename", zoff_archive_folder_fail_rename("a", "b", ENOSPC));
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

TEST(folder, reads_files_up_to_a_limit)
{
    scratch_folder scratch;
    char *text = nullptr;
    size_t bytes = 0;
    write_file(scratch.file("x"), "12345");
    ASSERT_ZOFF_OK(zoff_archive_folder_read_file(scratch.path.c_str(), "x", 5, &text, &bytes));
    EXPECT_EQ(5u, bytes);
    EXPECT_STREQ("12345", text);
    zoff_base_mem_free(text);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "has 5 bytes, too many",
                      zoff_archive_folder_read_file(scratch.path.c_str(), "x", 4, &text, &bytes));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "cannot open",
                      zoff_archive_folder_read_file(scratch.path.c_str(), "y", 4, &text, &bytes));
    // A pipe would stop a program that opens it.
    ASSERT_EQ(0, mkfifo(scratch.file("pipe").c_str(), 0600));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is no file",
                      zoff_archive_folder_read_file(scratch.path.c_str(), "pipe", 4, &text, &bytes));
}
