// listing_test.cc: the checkpoints of a folder in the order of their sequences, and which are complete.
#include "replacing.h"
#include "sample.h"

extern "C" {
#include "archive_priv.h"
}

using namespace zoff_test;

namespace
{
std::vector<std::string> names_of(const std::string &folder, const char *label)
{
    zoff_archive_listing l = {};
    std::vector<std::string> names;
    EXPECT_ZOFF_OK(zoff_archive_listing_make(folder.c_str(), label, &l));
    for (size_t i = 0; i < l.count; i++)
        names.push_back(std::string(l.all[i].name) + (l.all[i].sequence ? "" : "?"));
    zoff_archive_listing_free(&l);
    return names;
}

zoff_status write(const std::string &folder, const char *name, const char *label, unsigned engines, int64_t t = 1)
{
    sample written;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = name;
    opts.label = label;
    opts.engines = engines;
    return written.write(folder, &opts, t);
}

// Give a manifest another sequence.
void set_sequence(const std::string &manifest, const std::string &sequence)
{
    std::string text = read_file(manifest);
    const size_t at = text.find("\n  \"sequence\": ") + 15, end = text.find(',', at);
    write_file(manifest, with_checksum(text.replace(at, end - at, sequence)));
}
} // namespace

TEST(listing, has_the_newest_first)
{
    scratch_folder scratch;
    for (const char *name : {"c", "a", "b"})
        ASSERT_ZOFF_OK(write(scratch.path, name, nullptr, 1));
    ASSERT_ZOFF_OK(zoff_archive_folder_make(scratch.file("other").c_str())); // has no file of a checkpoint
    ASSERT_ZOFF_OK(zoff_archive_folder_make(scratch.file(".hidden").c_str()));
    write_file(scratch.file(".hidden/manifest.json"), "");
    write_file(scratch.file("file"), "");
    EXPECT_EQ((std::vector<std::string>{"b", "a", "c"}), names_of(scratch.path, ""));
    set_sequence(scratch.file("c/manifest.json"), "4000000000000000000");
    EXPECT_EQ((std::vector<std::string>{"c", "b", "a"}), names_of(scratch.path, ""));
    write_file(scratch.file("a/manifest.json"), "{}"); // looked at first, and then named
    EXPECT_EQ((std::vector<std::string>{"a", "c", "b"}), names_of(scratch.path, ""));
    ASSERT_EQ(0, remove(scratch.file("a/manifest.json").c_str()));
    EXPECT_EQ((std::vector<std::string>{"c", "b", "a?"}), names_of(scratch.path, ""));
    EXPECT_EQ((std::vector<std::string>{"c?", "b?", "a?"}), names_of(scratch.path, "tp0"));
    zoff_archive_listing l = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder", zoff_archive_listing_make(scratch.file("none").c_str(), "", &l));
}

TEST(listing, judges_files)
{
    scratch_folder scratch;
    ASSERT_ZOFF_OK(write(scratch.path, "a", nullptr, 1));
    const std::string folder = scratch.file("a"), part = part_in(folder), text = read_file(part);
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), ""));
    write_file(part, text + "x");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, part, zoff_archive_listing_judge(folder.c_str(), ""));
    ASSERT_EQ(0, remove(part.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "of rank 0 is not there", zoff_archive_listing_judge(folder.c_str(), ""));
    ASSERT_EQ(0, remove((folder + "/manifest.json").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "has no manifest: its save ended early", zoff_archive_listing_judge(folder.c_str(), ""));
    EXPECT_FALSE(zoff_archive_listing_has_any(folder.c_str()));
    write_file(part, text);
    EXPECT_TRUE(zoff_archive_listing_has_any(folder.c_str()));
}

TEST(listing, names_the_labels_that_are_there)
{
    scratch_folder scratch;
    ASSERT_ZOFF_OK(write(scratch.path, "a", "tp0", 1));
    const std::string folder = scratch.file("tp0.a");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no manifest of the engine '', but of 'tp0': name one",
                      zoff_archive_listing_judge(folder.c_str(), ""));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), "tp0"));
    write_file(folder + "/tp1.manifest.json", read_file(folder + "/tp0.manifest.json"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "another engine", zoff_archive_listing_judge(folder.c_str(), "tp1"));
}

TEST(listing, counts_engines)
{
    scratch_folder scratch;
    const std::string folder = scratch.file("a");
    for (const char *label : {"tp0", "tp1"})
        ASSERT_ZOFF_OK(write(scratch.path, "a", label, 2));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), "tp0"));
    const std::string path = folder + "/tp1.manifest.json", text = read_file(path);
    for (const auto &other : {replaced(text, "\"step\": 1", "\"step\": 2"), replaced(text, "\"engines\": 2", "\"engines\": 3"),
                              std::string("{}")}) {
        write_file(path, with_checksum(other));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "2 engines save into it", zoff_archive_listing_judge(folder.c_str(), "tp0"));
    }
    write_file(path, text);
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), "tp1"));
    // A file of the other engine is missing.
    for (const auto &name : names_in(folder)) {
        if (name.find("tp1.") == 0 && name.find(".states") != std::string::npos) {
            ASSERT_EQ(0, remove((folder + "/" + name).c_str()));
        }
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "2 engines save into it", zoff_archive_listing_judge(folder.c_str(), "tp0"));
}
