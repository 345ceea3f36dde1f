/* SPDX-License-Identifier: Apache-2.0 */
// tune_keep_test.cc: results as a section of a configuration, and the file in a folder that stores the last one. The file is
// used only if all of it is valid and was measured in this place. It is never half written, and never a reason to fail.
#include "aio_fault.h"
#include "aio_place.h"

#include <filesystem>
#include <fstream>

extern "C" {
#include "tune_priv.h"
}

using namespace zoff_test;

namespace
{
class AioTuneKeep : public testing::Test
{
  protected:
    void SetUp() override
    {
        found.struct_size = sizeof found;
        found.block_bytes = 1 << 20;
        found.depth = 16;
        found.read_rate = 3e9;
        found.write_rate = 2e9;
        found.mixed_rate = 4e9;
        found.backend = "posix";
        found.device = 42;
        found.seconds = 0.125;
        snprintf(found.file_system, sizeof found.file_system, "ext4");
    }
    // The place as it is before a measurement.
    zoff_aio_tune_result place() const
    {
        zoff_aio_tune_result asked = {};
        asked.struct_size = sizeof asked;
        asked.backend = found.backend;
        asked.device = found.device;
        asked.direct = found.direct;
        memcpy(asked.file_system, found.file_system, sizeof asked.file_system);
        return asked;
    }
    bool load(zoff_aio_tune_result *io) const { return zoff_aio_tune_keep_load(folder.path.c_str(), io); }
    void store() const { zoff_aio_tune_keep_store(folder.path.c_str(), &found); }
    std::string kept() const { return folder.file(ZOFF_AIO_TUNE_FILE); }
    size_t entries() const
    {
        size_t count = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder.path))
            count += !entry.path().empty();
        return count;
    }
    void keep(const std::string &text) const
    {
        std::ofstream file(kept());
        ASSERT_TRUE(file << text << std::flush);
    }
    void expect_not_believed(const std::string &why) const
    {
        const zoff_aio_tune_result before = place();
        zoff_aio_tune_result asked = before;
        EXPECT_FALSE(load(&asked)) << why;
        EXPECT_EQ(0, memcmp(&before, &asked, sizeof asked)) << why << ": it was changed all the same";
    }
    zoff_aio_tune_result found = {};
    scratch_folder folder;
};
} // namespace

TEST_F(AioTuneKeep, StoredResultsAreLoaded)
{
    expect_not_believed("there is nothing yet");
    for (bool flag : {false, true}) {
        found.direct = found.registered = flag;
        store();
        zoff_aio_tune_result asked = place();
        ASSERT_TRUE(load(&asked));
        EXPECT_TRUE(asked.cached);
        EXPECT_EQ(found.registered, asked.registered);
        EXPECT_EQ(found.seconds, asked.seconds);
        EXPECT_EQ(aio_tune_text(found), aio_tune_text(asked));
        EXPECT_EQ(aio_tune_text(found), file_content(kept()));
        EXPECT_EQ(1u, entries()) << "the one that is renamed is gone";
    }
    struct stat st;
    ASSERT_EQ(0, stat(kept().c_str(), &st));
    EXPECT_EQ(0600u, st.st_mode & 07777);
}

TEST_F(AioTuneKeep, LimitsAreBelievedAndWhatIsBehindThemIsNot)
{
    for (bool low : {false, true}) {
        found.block_bytes = low ? 4096 : ZOFF_AIO_TUNE_BLOCK_MOST;
        found.depth = low ? 1 : ZOFF_AIO_TUNE_DEPTH_MOST;
        found.read_rate = found.write_rate = found.mixed_rate = low ? 1 : 1e15;
        found.seconds = low ? 0 : 1e12;
        store();
        zoff_aio_tune_result asked = place();
        EXPECT_TRUE(load(&asked)) << file_content(kept());
    }
    const zoff_aio_tune_result good = found;
    const auto expect_refused = [&](auto change) {
        found = good;
        change(&found);
        store();
        expect_not_believed(file_content(kept()));
    };
    expect_refused([](zoff_aio_tune_result *r) { r->block_bytes = ZOFF_AIO_TUNE_BLOCK_MOST + 1; });
    expect_refused([](zoff_aio_tune_result *r) { r->block_bytes = 4095; });
    expect_refused([](zoff_aio_tune_result *r) { r->depth = ZOFF_AIO_TUNE_DEPTH_MOST + 1; });
    expect_refused([](zoff_aio_tune_result *r) { r->depth = 0; });
    expect_refused([](zoff_aio_tune_result *r) { r->read_rate = 0; });
    expect_refused([](zoff_aio_tune_result *r) { r->write_rate = 1.1e15; });
    expect_refused([](zoff_aio_tune_result *r) { r->mixed_rate = -1; });
    expect_refused([](zoff_aio_tune_result *r) { r->seconds = -1; });
}

TEST_F(AioTuneKeep, AnotherPlaceIsNotThisOne)
{
    store();
    zoff_aio_tune_result asked = place();
    asked.backend = "threads";
    EXPECT_FALSE(load(&asked));
    asked = place();
    asked.direct = true;
    EXPECT_FALSE(load(&asked));
    asked = place();
    asked.device++;
    EXPECT_FALSE(load(&asked));
    asked = place();
    snprintf(asked.file_system, sizeof asked.file_system, "ext3");
    EXPECT_FALSE(load(&asked));
    asked = place();
    EXPECT_TRUE(load(&asked));
}

TEST_F(AioTuneKeep, DamagedResultsAreNotUsed)
{
    store();
    const std::string good = file_content(kept());
    auto changed = [&](const std::string &key, const std::string &value) {
        size_t at = good.find("\"" + key + "\": "), from = at + key.size() + 4;
        EXPECT_NE(at, good.npos) << key;
        return good.substr(0, from) + value + good.substr(good.find_first_of(",}\n", from));
    };
    std::vector<std::string> bad = {
        "", "{", "[]", "null", good.substr(0, good.size() / 2), good + "x", std::string(70000, ' ')};
    bad.push_back(good + std::string(65537 - good.size(), ' ')); // valid JSON that is too long
    for (const char *key : {"block_size", "queue_depth", "read_bytes_per_second", "write_bytes_per_second",
                            "mixed_bytes_per_second", "milliseconds"})
        for (const char *value : {"-1", "\"8\"", "1.5", "9223372036854775807"})
            bad.push_back(changed(key, value));
    for (auto [key, value] : {std::pair<const char *, const char *>{"zoff_version", "1"},
                              {"device", "1"},
                              {"file_system", "\"minix\""},
                              {"back_end", "\"io_uring\""},
                              {"direct", "null"},
                              {"registered", "0"}})
        bad.push_back(changed(key, value));
    for (const std::string &text : bad) {
        keep(text);
        expect_not_believed(text.substr(0, 500));
    }
    keep(changed("read_bytes_per_second", "123456789") + std::string(1000, ' '));
    zoff_aio_tune_result asked = place();
    EXPECT_TRUE(load(&asked)) << "none of this is because a file was written by another than us";
    EXPECT_EQ(123456789, asked.read_rate);
}

TEST_F(AioTuneKeep, OnlyRegularFilesAreRead)
{
    store();
    ASSERT_EQ(0, rename(kept().c_str(), folder.file("elsewhere").c_str()));
    ASSERT_EQ(0, symlink("elsewhere", kept().c_str()));
    expect_not_believed("a link");
    unlink(kept().c_str());
    ASSERT_EQ(0, mkfifo(kept().c_str(), 0600));
    expect_not_believed("a pipe");
    store();
    zoff_aio_tune_result asked = place();
    EXPECT_TRUE(load(&asked)) << "it is replaced";
    unlink(kept().c_str());
    ASSERT_EQ(0, mkdir(kept().c_str(), 0700));
    expect_not_believed("a folder");
    log_catcher log;
    log.expect("cannot keep '" + kept() + "': Is a directory; the folder will be measured again the next time");
    store();
    EXPECT_EQ(2u, entries()) << "nothing half done is left";
}

TEST_F(AioTuneKeep, AFolderThatIsNotThereIsAWarning)
{
    log_catcher log;
    log.expect("No such file or directory; the folder will be measured again the next time");
    zoff_aio_tune_keep_store(folder.file("absent").c_str(), &found);
    zoff_aio_tune_result asked = place();
    EXPECT_FALSE(zoff_aio_tune_keep_load(folder.file("absent").c_str(), &asked));
}

TEST_F(AioTuneKeep, MemoryThatIsNotThereIsAWarning)
{
    store();
    const std::string before = file_content(kept());
    found.depth = 8;
    log_catcher log;
    log.expect("Cannot allocate memory; the folder will be measured again the next time");
    for (int nth = 1; nth <= 2; nth++) {
        aio_fault fault;
        fault.fail_allocation = nth;
        store();
        EXPECT_EQ(before, file_content(kept()));
    }
    aio_fault fault;
    fault.fail_allocation = 1;
    expect_not_believed("no memory for its name");
    EXPECT_EQ(2u, log.warnings.size());
    EXPECT_EQ(1u, entries());
}

TEST_F(AioTuneKeep, PrintsASectionThatAConfigurationTakes)
{
    const std::string text = aio_tune_text(found);
    zoff_config *raw = nullptr;
    ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "tuned", &raw));
    const config parsed(raw);
    double block = 0, depth = 0;
    ASSERT_ZOFF_OK(zoff_config_resolve(raw, 1));
    EXPECT_ZOFF_OK(zoff_config_number(raw, "aio.block_size", &block));
    EXPECT_ZOFF_OK(zoff_config_number(raw, "aio.queue_depth", &depth));
    EXPECT_EQ(block, static_cast<double>(found.block_bytes));
    EXPECT_EQ(depth, found.depth);
}

TEST_F(AioTuneKeep, PrintsAsMuchAsThereIsRoomFor)
{
    const std::string text = aio_tune_text(found);
    for (size_t room : {size_t(0), size_t(1), size_t(9), text.size(), text.size() + 1}) {
        std::vector<char> buffer(room + 1, 'X');
        size_t bytes = 0;
        ASSERT_ZOFF_OK(zoff_aio_tune_print(&found, room ? buffer.data() : nullptr, room, &bytes));
        EXPECT_EQ(bytes, text.size());
        EXPECT_EQ(buffer[room], 'X');
        if (room) {
            EXPECT_EQ(std::string(buffer.data()), text.substr(0, room - 1));
        }
    }
    EXPECT_ZOFF_OK(zoff_aio_tune_print(&found, nullptr, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the result is NULL", zoff_aio_tune_print(nullptr, nullptr, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "dst is NULL", zoff_aio_tune_print(&found, nullptr, 1, nullptr));
    found.struct_size = 8;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a result of zoff_aio_tune()", zoff_aio_tune_print(&found, nullptr, 0, nullptr));
    found.struct_size = sizeof found;
    found.backend = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a result of zoff_aio_tune()", zoff_aio_tune_print(&found, nullptr, 0, nullptr));
}
