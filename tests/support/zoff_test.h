/* SPDX-License-Identifier: Apache-2.0 */
// zoff_test.h: thin C++ wrappers of the C API for tests: owning handles, a check that prints the library's message, a log
// catcher.
#ifndef ZOFF_TEST_H
#define ZOFF_TEST_H

#include "config_text.h"

#include <sys/stat.h>

#include <gtest/gtest.h>
#include <set>
#include <stdlib.h>
#include <unistd.h>
#include <zoff/zoff.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define ASSERT_ZOFF_OK(call) ASSERT_EQ(ZOFF_OK, (call)) << zoff_last_error()
#define EXPECT_ZOFF_OK(call) EXPECT_EQ(ZOFF_OK, (call)) << zoff_last_error()
// The call must fail with `status`, and the message must contain `words`.
#define EXPECT_ZOFF_FAILS(status, words, call)                                                                                 \
    do {                                                                                                                       \
        EXPECT_EQ((status), (call)) << zoff_last_error();                                                                      \
        EXPECT_NE(std::string(zoff_last_error()).find(words), std::string::npos) << zoff_last_error();                         \
    } while (0)

namespace zoff_test
{
template <typename T, void (*Close)(T *)> struct closer {
    void operator()(T *handle) const { Close(handle); }
};
template <typename T, void (*Close)(T *)> using handle = std::unique_ptr<T, closer<T, Close>>;
using engine = handle<zoff_engine, zoff_engine_destroy>;
using config = handle<zoff_config, zoff_config_close>;
using aio = handle<zoff_aio, zoff_aio_close>;
using accel = handle<zoff_accel, zoff_accel_close>;
using comm = handle<zoff_comm, zoff_comm_close>;

// Collects log lines as long as it exists. An unexpected warning fails the test: call expect() with a part of an expected one,
// before or after it is logged.
class log_catcher
{
  public:
    log_catcher() { zoff_log_set(take, this); }
    ~log_catcher()
    {
        zoff_log_set(nullptr, nullptr);
        for (const auto &line : warnings) {
            bool announced = false;
            for (const auto &words : expected)
                announced = announced || line.find(words) != std::string::npos;
            EXPECT_TRUE(announced) << "unexpected warning: " << line;
        }
        for (const auto &words : expected)
            EXPECT_TRUE(contains(words)) << "missing log line: " << words;
    }
    void expect(const std::string &words) { expected.push_back(words); }
    bool contains(const std::string &words) const { return count(words) > 0; }
    size_t count(const std::string &words) const
    {
        size_t found = 0;
        for (const auto &line : lines)
            found += line.find(words) != std::string::npos;
        return found;
    }
    std::vector<std::string> lines, warnings;

  private:
    static void take(zoff_log_level level, const char *room, const char *line, void *ctx)
    {
        auto self = static_cast<log_catcher *>(ctx);
        const std::lock_guard<std::mutex> guard(self->lock); // ranks may be threads
        self->lines.push_back(std::string(room) + ": " + line);
        /* The caller of the test program may have forced slower kernels, as the tsan preset does. Then this warning is
         * expected. */
        const bool asked_for = started_with_isa && strstr(line, "forces slower kernels");
        if (level <= ZOFF_LOG_WARN && !asked_for)
            self->warnings.push_back(self->lines.back());
    }
    inline static const bool started_with_isa = getenv("ZOFF_ISA") != nullptr;
    std::vector<std::string> expected;
    std::mutex lock;
};

// A new folder, removed at the end. It is under ZOFF_TEST_DIR or the build folder, because /tmp may be a tmpfs without
// O_DIRECT.
class scratch_folder
{
  public:
    scratch_folder()
    {
        const char *root = getenv("ZOFF_TEST_DIR");
        std::string name = std::string(root ? root : ".") + "/zoff-test-XXXXXX";
        std::vector<char> buffer(name.begin(), name.end());
        buffer.push_back(0);
        path = mkdtemp(buffer.data()) ? buffer.data() : "";
        char *full = realpath(path.c_str(), nullptr);
        path = full ? full : "";
        free(full);
    }
    ~scratch_folder()
    {
        std::error_code error; // tests have thousands of folders, so no process is started for one
        std::filesystem::remove_all(path, error);
        if (error)
            ADD_FAILURE() << "cannot remove " << path << ": " << error.message();
    }
    scratch_folder(const scratch_folder &) = delete;
    std::string file(const std::string &name) const { return path + "/" + name; }
    bool is_empty() const { return std::filesystem::is_empty(path); }
    std::string path;
};

// The state files of this process in a folder, as paths that can be opened. Most of them are unlinked.
inline std::vector<std::string> state_files(const std::string &folder)
{
    std::vector<std::string> files;
    std::set<ino_t> seen;
    for (int fd = 0; fd < 1024; fd++) {
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        char target[4096];
        struct stat st;
        const ssize_t length = readlink(link.c_str(), target, sizeof target);
        if (length < 0 || std::string(target, (size_t)length).compare(0, folder.size() + 6, folder + "/zoff-") != 0)
            continue;
        if (stat(link.c_str(), &st) == 0 && seen.insert(st.st_ino).second)
            files.push_back(link);
    }
    return files;
}
} // namespace zoff_test

#endif
