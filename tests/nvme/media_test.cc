/* SPDX-License-Identifier: Apache-2.0 */
// media_test.cc: run by run_nvme.py in its guest, on an NVMe drive with a bad sector that can be switched on and off. A step
// that uses the sector must fail with the drive's own error and change nothing wrongly. A retry must finish the step when the
// sector works again. In the last test the drive is removed.
#include "small_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <fstream>

using namespace zoff_test;

namespace
{
// Each command to write zeroes moves the emulated drive to the next of these conditions, and from the last to the first.
// run_nvme.py sets this up. The bad place is one sector.
enum condition { WELL, CANNOT_WRITE, CANNOT_READ, CONDITIONS };

const char *environment(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

class drive
{
  public:
    drive()
        : bad_byte(strtoull(environment("ZOFF_TEST_BAD_BYTE"), nullptr, 10)), fd(open(device(), O_RDWR | O_DIRECT | O_CLOEXEC))
    {
        EXPECT_GE(fd, 0) << device() << ": " << strerror(errno);
        EXPECT_GT(bad_byte, 0u);
        page = aligned_alloc(4096, 4096);
        for (int i = 0; i < CONDITIONS && readable(); i++)
            zero_the_end();
        state = CANNOT_READ;
        for (condition each : {CANNOT_READ, WELL, CANNOT_WRITE, CANNOT_READ, WELL})
            become(each);
    }
    ~drive()
    {
        become(WELL);
        free(page);
        close(fd);
    }
    drive(const drive &) = delete;

    void become(condition wanted)
    {
        for (; state != wanted; state = (condition)((state + 1) % CONDITIONS))
            zero_the_end();
        EXPECT_EQ(state != CANNOT_READ, readable()) << "the emulated drive is not in the expected condition";
    }

    const uint64_t bad_byte;

  private:
    static const char *device() { return environment("ZOFF_TEST_DRIVE"); }

    // Write zeroes behind the end of the file system.
    void zero_the_end()
    {
        uint64_t bytes = 0;
        ASSERT_EQ(0, ioctl(fd, BLKGETSIZE64, &bytes));
        uint64_t range[2] = {bytes - 4096, 4096};
        ASSERT_EQ(0, ioctl(fd, BLKZEROOUT, range)) << strerror(errno);
    }

    bool readable() { return pread(fd, page, 4096, (off_t)(bad_byte / 4096 * 4096)) == 4096; }

    int fd;
    void *page;
    condition state = WELL;
};

// The only file in a folder.
std::string only_file(const std::string &folder)
{
    std::string name;
    FILE *list = popen(("ls -A '" + folder + "'").c_str(), "r");
    char line[512];
    for (int i = 0; list && fgets(line, sizeof line, list); i++) {
        EXPECT_EQ(0, i) << "more than one file";
        name = std::string(line).substr(0, strcspn(line, "\n"));
    }
    if (list)
        pclose(list);
    return folder + "/" + name;
}

// The position of a byte of the drive in the file of the states; -1: the file does not contain it.
int64_t place_in_file(const std::string &folder, uint64_t byte)
{
    const std::vector<std::string> files = state_files(folder);
    std::string path;
    off_t largest = -1;
    for (const std::string &file : files) { // the marker that reserves the name is a file, too
        struct stat st;
        if (stat(file.c_str(), &st) == 0 && st.st_size > largest) {
            path = file;
            largest = st.st_size;
        }
    }
    const unsigned most = 64;
    std::vector<char> memory(sizeof(fiemap) + most * sizeof(fiemap_extent));
    auto *map = (fiemap *)memory.data();
    map->fm_length = FIEMAP_MAX_OFFSET;
    map->fm_extent_count = most;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(fd, 0) << folder;
    EXPECT_EQ(0, ioctl(fd, FS_IOC_FIEMAP, map)) << strerror(errno);
    close(fd);
    for (unsigned i = 0; i < map->fm_mapped_extents; i++) {
        const fiemap_extent &x = map->fm_extents[i];
        if (x.fe_physical <= byte && byte < x.fe_physical + x.fe_length)
            return (int64_t)(x.fe_logical + byte - x.fe_physical);
    }
    return -1;
}

const size_t ELEMENTS = 500000; // 6 MB of states: most of the drive, and certainly its middle
const size_t CHUNK = 1 << 15;
const unsigned LIMIT_SECONDS = 60;

class Media : public testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        alarm(LIMIT_SECONDS); // ends the program if a call hangs
        t.add(ELEMENTS, 1, ZOFF_BF16, ZOFF_BF16);
        t.backward_all(0.1f);
    }
    void TearDown() override { alarm(0); }

    std::string config(const std::string &folder) const
    {
        return config_text(folder, 1,
                           std::string(", \"zoff\": {\"master\": \"fp32\", \"io_backend\": \"") + GetParam() + "\"}");
    }

    // Weights and states must be those of an undisturbed run.
    void expect_step(int64_t step)
    {
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        t.next_step();
        t.backward_all(0.1f);
    }

    static void expect_told(const std::string &path)
    {
        const std::string words = zoff_last_error();
        EXPECT_NE(std::string::npos, words.find(path)) << words;
        EXPECT_NE(std::string::npos, words.find(strerror(ENODATA))) << words; // Linux reports a medium error by this errno
    }

    // Expect such words, and that the request they name contains the bad place.
    static void expect_told(const std::string &path, int64_t place)
    {
        const std::string words = zoff_last_error(), mark = " bytes at offset ";
        const size_t at = words.find(mark), number = at == std::string::npos ? at : words.rfind(' ', at - 1);
        ASSERT_NE(std::string::npos, number) << words;
        const int64_t bytes = atoll(words.c_str() + number + 1), offset = atoll(words.c_str() + at + mark.size());
        EXPECT_TRUE(offset <= place && place < offset + bytes) << place << " is not inside the request: " << words;
        expect_told(path);
    }

    // Take a step, one that meets the bad place, and more steps after it.
    void meet(condition trouble)
    {
        log_catcher log;
        scratch_folder folder;
        drive d;
        e = seal_engine(t, config(folder.path), CHUNK);
        const std::string file = only_file(folder.path);
        const int64_t place = place_in_file(folder.path, d.bad_byte);
        // The bad place must not be in the first chunks, because those are read before the step starts.
        ASSERT_GT(place, 4 * (int64_t)plan_of(e.get()).chunk_bytes)
            << "the bad place is not at the expected position in the state file";
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        ASSERT_NO_FATAL_FAILURE(expect_step(1));

        auto info = new_info();
        d.become(trouble);
        ASSERT_EQ(ZOFF_ERR_IO, zoff_step(e.get(), nullptr, &info)) << zoff_last_error();
        expect_told(file, place);
        EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(ZOFF_ERR_IO, zoff_step_retry(e.get(), &info)) << "the sector is still bad: " << zoff_last_error();
            expect_told(file, place);
        }
        EXPECT_LT(info.numbers.elements_updated, ELEMENTS);
        float x;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, &x));

        d.become(WELL);
        ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        EXPECT_EQ(ELEMENTS, info.numbers.elements_updated);
        ASSERT_NO_FATAL_FAILURE(expect_step(2));
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        ASSERT_NO_FATAL_FAILURE(expect_step(3));
        e.reset();
    }

    engine e;
    trainer t{3};
};
INSTANTIATE_TEST_SUITE_P(BackEnds, Media, testing::Values("io_uring", "threads"),
                         [](const auto &p) { return std::string(p.param); });

TEST_P(Media, AStepThatCannotWriteIsFinishedLater)
{
    meet(CANNOT_WRITE);
}

TEST_P(Media, AStepThatCannotReadIsFinishedLater)
{
    meet(CANNOT_READ);
}

TEST_P(Media, ABadPlaceIsFoundWhenTheFileIsMade)
{
    log_catcher log;
    scratch_folder folder;
    drive d;
    e = make_engine(t, config(folder.path), CHUNK);
    d.become(CANNOT_WRITE);
    ASSERT_EQ(ZOFF_ERR_IO, zoff_engine_seal(e.get())) << zoff_last_error();
    expect_told(folder.path);
    EXPECT_EQ(folder.path + "/", only_file(folder.path)) << "a refused seal must leave no file";
    d.become(WELL);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    ASSERT_NO_FATAL_FAILURE(expect_step(1));
    e.reset();
}

// Runs alone and last, because afterwards no I/O works. Each boot runs it for one back-end.
TEST_P(Media, TheDriveIsPulled)
{
    log_catcher log;
    const std::string folder = environment("ZOFF_TEST_DIR");
    e = seal_engine(t, config(folder), CHUNK);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    ASSERT_NO_FATAL_FAILURE(expect_step(1));
    const std::string name = std::string(environment("ZOFF_TEST_DRIVE")).substr(strlen("/dev/"));
    std::ofstream("/sys/block/" + name + "/device/device/remove") << "1" << std::flush;
    ASSERT_NE(0, access(("/sys/block/" + name).c_str(), F_OK)) << "the drive is still there";
    auto info = new_info();
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(ZOFF_ERR_IO, i ? zoff_step_retry(e.get(), &info) : zoff_step(e.get(), nullptr, &info)) << zoff_last_error();
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find(folder)) << zoff_last_error();
        EXPECT_NE(ZOFF_OUTCOME_AFTER, info.outcome);
    }
    e.reset();
    for (auto &line : log.warnings) // warnings about the file that cannot be removed
        log.expect(line);
}
} // namespace
