/* SPDX-License-Identifier: Apache-2.0 */
// choose_test.cc: which checkpoint of a folder is loaded, whatever happened to the folder.
#include "replacing.h"
#include "sample.h"

extern "C" {
#include "archive_priv.h"
}

#include <fcntl.h>
#include <sys/stat.h>

using namespace zoff_test;

namespace
{
uint64_t least; // of zoff_archive_choose()

class choose : public testing::Test
{
  protected:
    void SetUp() override
    {
        for (int64_t t = 1; t <= 3; t++)
            ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, t));
    }
    std::string chosen(const char *label = "")
    {
        char *path = nullptr;
        EXPECT_ZOFF_OK(zoff_archive_choose(scratch.path.c_str(), label, &path, &least));
        const std::string copy = path ? path : "";
        zoff_base_mem_free(path);
        return copy.substr(std::min(copy.size(), scratch.path.size() + 1));
    }
    std::string manifest(int t) { return scratch.file("step-000000000" + std::to_string(t) + "/manifest.json"); }
    void flip(const std::string &path, size_t byte)
    {
        std::string text = read_file(path);
        text[byte] = (char)(text[byte] ^ 1);
        write_file(path, text);
    }
    // As a copy without times: all files are as old as the copy, or the other way around.
    void touch(const std::string &path, time_t when)
    {
        const timespec times[2] = {{when, 0}, {when, 0}};
        ASSERT_EQ(0, utimensat(AT_FDCWD, path.c_str(), times, 0));
    }
    scratch_folder scratch;
    sample written;
    replacing as_engines_do;
};
} // namespace

TEST_F(choose, does_not_need_latest)
{
    {
        log_catcher log;
        ASSERT_EQ(0, remove(scratch.file("latest").c_str()));
        EXPECT_EQ("step-0000000003", chosen());
        // Killed between the renames of the manifest and of `latest`.
        ASSERT_ZOFF_OK(point_latest(scratch.path, "step-0000000002", ""));
        EXPECT_EQ("step-0000000003", chosen());
    }
    for (size_t byte : {14u, 3u, 20u}) { // step-0000000002, stdp-0000000003, and the checksum
        log_catcher log;
        log.expect("/latest' is damaged");
        ASSERT_ZOFF_OK(point_latest(scratch.path, "step-0000000003", ""));
        flip(scratch.file("latest"), byte);
        EXPECT_EQ("step-0000000003", chosen());
    }
    log_catcher log;
    log.expect("latest' names 'gone', which is not there");
    ASSERT_ZOFF_OK(point_latest(scratch.path, "gone", ""));
    EXPECT_EQ("step-0000000003", chosen());
}

TEST_F(choose, names_what_it_ignores)
{
    log_catcher log;
    log.expect("step-0000000003' is no complete checkpoint, and is ignored: the manifest '" + manifest(3));
    log.expect("step-0000000009' is no complete checkpoint, and is ignored: '" + scratch.file("step-0000000009") +
               "' has no manifest: its save ended early");
    flip(manifest(3), 300);
    ASSERT_ZOFF_OK(zoff_archive_folder_make(scratch.file("step-0000000009").c_str()));
    write_file(scratch.file("step-0000000009/0123456789abcdef.rank-00000.states"), "half");
    EXPECT_EQ("step-0000000002", chosen());
}

TEST_F(choose, ignores_what_no_save_makes)
{
    log_catcher log;
    for (const char *name : {"pipe.manifest.json", "manifest.json"}) {
        const std::string folder = scratch.file("of_" + std::string(name));
        ASSERT_EQ(0, mkdir(folder.c_str(), 0777));
        ASSERT_EQ(0, mkfifo((folder + "/" + name).c_str(), 0600));
        if (strcmp(name, "manifest.json") == 0) // the other is of another engine
            log.expect(folder + "' is no complete checkpoint");
    }
    ASSERT_EQ(0, mkdir(scratch.file("folder").c_str(), 0777));
    ASSERT_EQ(0, mkdir(scratch.file("folder/manifest.json").c_str(), 0777));
    log.expect("folder/manifest.json' is no file");
    ASSERT_EQ(0, mkdir(scratch.file("loop").c_str(), 0777));
    ASSERT_EQ(0, symlink("manifest.json", scratch.file("loop/manifest.json").c_str()));
    log.expect("loop/manifest.json' is no file");
    ASSERT_EQ(0, symlink("nowhere", scratch.file("link").c_str()));
    ASSERT_EQ(0, symlink("itself", scratch.file("itself").c_str()));
    EXPECT_EQ("step-0000000003", chosen());
}

TEST_F(choose, ignores_a_foreign_file_beside_checkpoints)
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.label = "tp0";
    opts.name = "other";
    const std::string name = scratch.file("manifest.json");
    log_catcher log;
    log.expect("it is ignored, as there are checkpoints beside it");
    write_file(name, "{}");
    EXPECT_EQ("step-0000000003", chosen());
    ASSERT_ZOFF_OK(written.write(scratch.path, &opts, 4));
    EXPECT_EQ("tp0.other", chosen("tp0"));
    ASSERT_EQ(0, remove(name.c_str()));
    ASSERT_EQ(0, mkdir(name.c_str(), 0777));
    EXPECT_EQ("step-0000000003", chosen());
}

TEST_F(choose, does_not_go_back_because_the_library_is_old)
{
    char *path = nullptr;
    const std::string text = read_file(manifest(3));
    write_file(manifest(3), with_checksum(replaced(text, "\"needs\": []", "\"needs\": [\"x\"]")));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "needs \"x\"", zoff_archive_choose(scratch.path.c_str(), "", &path, &least));
}

TEST_F(choose, says_why_there_is_none)
{
    char *path = nullptr;
    {
        log_catcher log;
        for (int t = 1; t <= 3; t++) {
            flip(manifest(t), 300);
            log.expect(manifest(t));
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "no complete checkpoint in '" + scratch.path + "': the manifest '" + manifest(3),
                          zoff_archive_choose(scratch.path.c_str(), "", &path, &least));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, manifest(2),
                      zoff_archive_choose(scratch.file("step-0000000002").c_str(), "", &path, &least));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder",
                      zoff_archive_choose(scratch.file("none").c_str(), "", &path, &least));
    ASSERT_ZOFF_OK(zoff_archive_folder_make(scratch.file("empty").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "no complete checkpoint in",
                      zoff_archive_choose(scratch.file("empty").c_str(), "", &path, &least));
    ASSERT_EQ(0, remove(manifest(2).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "its save ended early",
                      zoff_archive_choose(scratch.file("step-0000000002").c_str(), "", &path, &least));
}

TEST_F(choose, wants_all_engines)
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.engines = 2;
    const auto save = [&](const char *label, int64_t t) {
        opts.label = label;
        ASSERT_ZOFF_OK(written.write(scratch.file("two"), &opts, t));
    };
    save("tp0", 1);
    save("tp1", 1);
    save("tp1", 2);
    for (const char *label : {"tp0", "tp1"}) {
        log_catcher log;
        char *path = nullptr;
        ASSERT_ZOFF_OK(zoff_archive_choose(scratch.file("two").c_str(), label, &path, &least));
        EXPECT_EQ(scratch.file("two/step-0000000001"), path);
        zoff_base_mem_free(path);
    }
    char *path = nullptr;
    EXPECT_NE(0, access(scratch.file("two/step-0000000002").c_str(), F_OK));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "name one as the label",
                      zoff_archive_choose(scratch.file("two/step-0000000001").c_str(), "", &path, &least));
    log_catcher log;
    save("tp0", 2);
    ASSERT_ZOFF_OK(zoff_archive_choose(scratch.file("two").c_str(), "tp0", &path, &least));
    EXPECT_EQ(scratch.file("two/step-0000000002"), path);
    zoff_base_mem_free(path);
}

// A save that could not exchange two folders was killed between its renames.
TEST_F(choose, finds_a_checkpoint_that_is_aside)
{
    log_catcher log;
    char *path = nullptr;
    const std::string name = scratch.file("step-0000000003"), aside = name + ".0123456789abcdef.replaced";
    ASSERT_EQ(0, rename(name.c_str(), aside.c_str()));
    log.expect("latest' names 'step-0000000003', which is not there");
    EXPECT_EQ("step-0000000003.0123456789abcdef.replaced", chosen());
    for (const std::string &given : {name, name + "/"}) {
        ASSERT_ZOFF_OK(zoff_archive_choose(given.c_str(), "", &path, &least));
        EXPECT_EQ(aside, path);
        zoff_base_mem_free(path);
    }
    ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, 3));
    EXPECT_EQ("step-0000000003", chosen());
    EXPECT_NE(0, access(aside.c_str(), F_OK));
}

TEST_F(choose, gives_the_next_save_a_greater_sequence)
{
    const uint64_t now = zoff_archive_choose_sequence(scratch.path.c_str());
    EXPECT_GE(zoff_archive_choose_sequence(scratch.file("none").c_str()), now);
    std::string text = read_file(manifest(1)); // this checkpoint is from the future, and not the newest by name
    const size_t at = text.find("\n  \"sequence\": ") + 15;
    write_file(manifest(1), text.replace(at, text.find(',', at) - at, "4000000000000000000"));
    EXPECT_EQ(4000000000000000001u, zoff_archive_choose_sequence(scratch.path.c_str()));
    write_file(manifest(1), text.replace(at, text.find(',', at) - at, "4611686018427387904")); // the greatest has no next one
    EXPECT_LT(zoff_archive_choose_sequence(scratch.path.c_str()), 4000000000000000000u);
    write_file(manifest(1), text.replace(at, text.find(',', at) - at, "99999999999999999999999"));
    EXPECT_LT(zoff_archive_choose_sequence(scratch.path.c_str()), 4000000000000000000u);
}
