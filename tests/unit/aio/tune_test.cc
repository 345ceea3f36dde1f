/* SPDX-License-Identifier: Apache-2.0 */
// tune_test.cc: measuring a folder: the result, the file that stays in the folder and when it is used, and cleanup after a
// failure. No test measures the folder's speed.
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "aio_fault.h"
#include "aio_place.h"

using namespace zoff_test;

namespace
{
double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::set<std::string> entries(const std::string &path)
{
    std::set<std::string> found;
    DIR *folder = opendir(path.c_str());
    while (const dirent *entry = folder ? readdir(folder) : nullptr)
        if (entry->d_name[0] != '.')
            found.insert(entry->d_name);
    if (folder)
        closedir(folder);
    return found;
}

class AioTune : public testing::Test
{
  protected:
    zoff_status tune(bool fresh = false, double seconds = 0.06, const std::string &where = "")
    {
        zoff_aio_tune_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.seconds = seconds;
        opts.fresh = fresh;
        opts.backend = backend;
        opts.direct = direct;
        result = {};
        result.struct_size = sizeof result;
        return zoff_aio_tune(where.empty() ? folder.path.c_str() : where.c_str(), &opts, &result);
    }
    static void expect_sense(const zoff_aio_tune_result &r)
    {
        EXPECT_TRUE(r.block_bytes == 512 << 10 || r.block_bytes == 1 << 20 || r.block_bytes == 4 << 20) << r.block_bytes;
        EXPECT_TRUE(r.depth == 8 || r.depth == 16 || r.depth == 32) << r.depth;
        for (double rate : {r.read_rate, r.write_rate, r.mixed_rate})
            EXPECT_TRUE(std::isfinite(rate) && rate > 1e5) << rate;
        EXPECT_NE(r.file_system[0], 0);
        EXPECT_GT(r.seconds, 0);
    }
    std::string kept() const { return folder.file("zoff-aio-tune.json"); }
    void keep(const std::string &text) const
    {
        FILE *file = fopen(kept().c_str(), "w");
        ASSERT_TRUE(file && fwrite(text.data(), 1, text.size(), file) == text.size() && fclose(file) == 0);
    }
    void SetUp() override { unsetenv("ZOFF_AIO"); }
    const char *backend = "posix"; // prints no warning without locked memory, and runs everywhere
    zoff_aio_direct direct = ZOFF_DIRECT_AUTO;
    zoff_aio_tune_result result = {};
    scratch_folder folder;
};

TEST_F(AioTune, FindsWhatSuitsAFolderAndLeavesOnlyItsResult)
{
    int before = open_descriptors();
    for (const char *name : {"auto", "threads", "posix"}) {
        backend = name;
        double start = now();
        ASSERT_ZOFF_OK(tune(true, 0.5));
        EXPECT_LT(now() - start, 10) << "half a second, on a machine with other work and a slow disk";
        expect_sense(result);
        EXPECT_FALSE(result.cached);
        if (std::string(name) != "auto") {
            EXPECT_STREQ(result.backend, name);
        }
        EXPECT_EQ(entries(folder.path), std::set<std::string>{"zoff-aio-tune.json"});
        EXPECT_EQ(open_descriptors(), before);
    }
    struct stat st;
    ASSERT_EQ(stat(kept().c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
    EXPECT_EQ(result.device, static_cast<uint64_t>(st.st_dev));
}

TEST_F(AioTune, BelievesWhatTheFolderHasKept)
{
    ASSERT_ZOFF_OK(tune());
    zoff_aio_tune_result measured = result;
    ASSERT_ZOFF_OK(tune());
    EXPECT_TRUE(result.cached);
    EXPECT_EQ(aio_tune_text(result), aio_tune_text(measured));
    EXPECT_EQ(aio_tune_text(result), file_content(kept()));
    EXPECT_EQ(entries(folder.path), std::set<std::string>{"zoff-aio-tune.json"});
    ASSERT_ZOFF_OK(tune(true));
    EXPECT_FALSE(result.cached) << "unless it is not wanted";
    backend = "threads";
    ASSERT_ZOFF_OK(tune());
    EXPECT_FALSE(result.cached) << "of another back-end";
    direct = ZOFF_DIRECT_OFF;
    ASSERT_ZOFF_OK(tune());
    EXPECT_FALSE(result.cached) << "O_DIRECT or not";
    ASSERT_ZOFF_OK(tune());
    EXPECT_TRUE(result.cached);
}

TEST_F(AioTune, MeasuresAnewWhereWhatIsKeptCannotBeUsed)
{
    for (const char *text : {"", "{\"aio\": {}}"}) {
        keep(text);
        ASSERT_ZOFF_OK(tune(false, 0.01)) << text;
        EXPECT_FALSE(result.cached) << text;
        expect_sense(result);
        EXPECT_EQ(aio_tune_text(result), file_content(kept())) << "and keeps what it has found";
    }
    unlink(kept().c_str());
    ASSERT_EQ(mkdir(kept().c_str(), 0700), 0);
    log_catcher log;
    log.expect("zoff-aio-tune.json': Is a directory; the folder will be measured again");
    ASSERT_ZOFF_OK(tune());
    expect_sense(result);
}

TEST_F(AioTune, WrongArgumentsAreRefused)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open the folder", tune(false, 0.1, folder.file("absent")));
    keep("x");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Not a directory", tune(false, 0.1, kept()));
    for (double seconds : {-1.0, 61.0, std::nan(""), static_cast<double>(INFINITY)})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "seconds", tune(false, seconds));
    backend = "libaio";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "libaio", tune());
    zoff_aio_tune_opts opts = {};
    EXPECT_EQ(zoff_aio_tune(folder.path.c_str(), &opts, &result), ZOFF_ERR_INVALID);
    opts.struct_size = sizeof opts;
    EXPECT_EQ(zoff_aio_tune(nullptr, &opts, &result), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_tune("", &opts, &result), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_tune(folder.path.c_str(), nullptr, &result), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_tune(folder.path.c_str(), &opts, nullptr), ZOFF_ERR_INVALID);
    result.struct_size = 0;
    EXPECT_EQ(zoff_aio_tune(folder.path.c_str(), &opts, &result), ZOFF_ERR_INVALID);
    EXPECT_EQ(entries(folder.path), std::set<std::string>{"zoff-aio-tune.json"});
}

// A caller compiled with a shorter struct gets the fields that fit, and not a byte more.
TEST_F(AioTune, KnowsOlderCallers)
{
    ASSERT_ZOFF_OK(tune());
    zoff_aio_tune_opts opts = {};
    opts.struct_size = offsetof(zoff_aio_tune_opts, seconds);
    opts.backend = "posix";
    zoff_aio_tune_result older;
    memset(&older, 0x55, sizeof older);
    older.struct_size = offsetof(zoff_aio_tune_result, read_rate);
    ASSERT_ZOFF_OK(zoff_aio_tune(folder.path.c_str(), &opts, &older));
    EXPECT_EQ(older.block_bytes, result.block_bytes);
    const auto rest = reinterpret_cast<const unsigned char *>(&older) + older.struct_size;
    for (size_t i = 0; i < sizeof older - older.struct_size; i++)
        ASSERT_EQ(rest[i], 0x55) << i;
}

TEST_F(AioTune, TinyFileSystems)
{
    mounted small(folder.file("small"), "tmpfs", "size=20m"), tiny(folder.file("tiny"), "tmpfs", "size=15m");
    if (!small.why_not.empty() || !tiny.why_not.empty())
        GTEST_SKIP() << small.why_not << tiny.why_not;
    log_catcher log; // the tmpfs of an older kernel refuses O_DIRECT
    EXPECT_ZOFF_OK(tune(false, 0.1, small.folder)) << "with fewer bytes";
    expect_sense(result);
    EXPECT_STREQ(result.file_system, "tmpfs");
    EXPECT_EQ(entries(small.folder), std::set<std::string>{"zoff-aio-tune.json"});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "16 MiB must be free", tune(false, 0.1, tiny.folder));
    EXPECT_NE(std::string(zoff_last_error()).find(tiny.folder), std::string::npos);
    EXPECT_EQ(entries(tiny.folder), std::set<std::string>{});
    if (log.contains("refuses O_DIRECT"))
        log.expect("refuses O_DIRECT");
}

TEST_F(AioTune, RoomThatGoesBetweenAskingAndTakingIsAnError)
{
    aio_fault fault;
    fault.refuse_fallocate = ENOSPC;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "too little room", tune());
    fault.refuse_fallocate = EIO;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot reserve", tune());
    EXPECT_EQ(entries(folder.path), std::set<std::string>{});
}

TEST_F(AioTune, ErrorsOfTheDiskAreReported)
{
    for (const char *name : {"auto", "threads", "posix"}) {
        backend = name;
        for (int which : {1, 2, 9, 60}) {
            SCOPED_TRACE(testing::Message() << name << ", transfer " << which);
            aio_fault fault;
            int before = open_descriptors();
            fault.result = [which](int nth, int res, bool, uint64_t, size_t) { return nth == which ? -EIO : res; };
            /* Long enough for a slow disk; the first error ends it. */
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", tune(true, 5));
            EXPECT_EQ(entries(folder.path), std::set<std::string>{}) << "nothing is kept of a failure";
            EXPECT_EQ(open_descriptors(), before);
        }
    }
}

TEST_F(AioTune, MemoryThatIsNotThereIsAnError)
{
    bool succeeded = false;
    log_catcher log;
    for (int nth = 1; !succeeded && nth < 100; nth++) {
        aio_fault fault;
        fault.fail_allocation = nth;
        int before = open_descriptors();
        zoff_status status = tune(true, 0.01);
        // Failing to read or store a measurement is no error.
        succeeded = status == ZOFF_OK && fault.allocations < nth;
        if (status != ZOFF_OK) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", status);
            EXPECT_EQ(entries(folder.path), std::set<std::string>{}) << nth;
        }
        unlink(kept().c_str());
        EXPECT_EQ(open_descriptors(), before) << nth;
    }
    EXPECT_TRUE(succeeded);
    log.expect("zoff-aio-tune.json': Cannot allocate memory; the folder will be measured again");
}

TEST_F(AioTune, FoldersThatMayNotBeWrittenAreRefused)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "becoming nobody needs root";
    EXPECT_EQ(in_child([&]() -> std::string {
                  if (chmod(folder.path.c_str(), 0755) != 0 || chdir(folder.path.c_str()) != 0 || setuid(65534) != 0)
                      return "cannot prepare";
                  if (tune(false, 0.1, ".") != ZOFF_ERR_IO)
                      return "it did not fail";
                  std::string message = zoff_last_error();
                  return message.find("cannot make a scratch file in '.': Permission denied") == message.npos ? message : "";
              }),
              "");
}

// On a disk that stands still meanwhile, the others stop waiting and measure themselves. So a measurement that took twice its
// time proves nothing, and is repeated with more time.
TEST_F(AioTune, OneOfSeveralMeasuresAndTheOthersRead)
{
    for (const double seconds : {1.0, 4.0, 16.0}) {
        const scratch_folder own;
        zoff_aio_tune_result results[3] = {};
        std::vector<std::thread> threads;
        for (auto &each : results)
            threads.emplace_back([&] {
                zoff_aio_tune_opts opts = {};
                opts.struct_size = sizeof opts;
                opts.backend = "posix";
                opts.seconds = seconds;
                each.struct_size = sizeof each;
                EXPECT_ZOFF_OK(zoff_aio_tune(own.path.c_str(), &opts, &each));
            });
        for (auto &thread : threads)
            thread.join();
        if (seconds < 16 && std::max({results[0].seconds, results[1].seconds, results[2].seconds}) > 2 * seconds)
            continue;
        EXPECT_EQ(results[0].cached + results[1].cached + results[2].cached, 2) << "one measures, the others read";
        EXPECT_EQ(aio_tune_text(results[0]), aio_tune_text(results[1]));
        EXPECT_EQ(aio_tune_text(results[0]), aio_tune_text(results[2]));
        return;
    }
}

TEST_F(AioTune, NobodyIsWaitedForForEver)
{
    int fd = open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    double start = now();
    ASSERT_ZOFF_OK(tune(false, 0.1));
    EXPECT_GE(now() - start, 0.1);
    expect_sense(result);
    close(fd);
}
} // namespace
