/* SPDX-License-Identifier: Apache-2.0 */
// aio_place.h: environments for I/O tests: queues and buffers made in one line, child processes with fewer rights, file systems
// mounted for a test.
#ifndef ZOFF_AIO_PLACE_H
#define ZOFF_AIO_PLACE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <functional>

#include "zoff_test.h"

namespace zoff_test
{
// The usual options: create the file and allow writes.
inline zoff_aio_opts aio_opts(const char *backend, zoff_aio_direct direct = ZOFF_DIRECT_AUTO)
{
    zoff_aio_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.backend = backend;
    opts.direct = direct;
    opts.writable = opts.create = true;
    return opts;
}

inline zoff_aio_info aio_info(zoff_aio *q)
{
    zoff_aio_info info = {};
    info.struct_size = sizeof info;
    EXPECT_ZOFF_OK(zoff_aio_get_info(q, &info));
    return info;
}

inline zoff_status aio_write(zoff_aio *q, uint64_t offset, const void *src, size_t bytes)
{
    uint64_t ticket = 0;
    zoff_status status = zoff_aio_write(q, offset, bytes, src, &ticket);
    return status == ZOFF_OK ? zoff_aio_wait(q, ticket) : status;
}

inline zoff_status aio_read(zoff_aio *q, uint64_t offset, void *dst, size_t bytes)
{
    uint64_t ticket = 0;
    zoff_status status = zoff_aio_read(q, offset, bytes, dst, &ticket);
    return status == ZOFF_OK ? zoff_aio_wait(q, ticket) : status;
}

// Memory `skew` bytes behind a page border, filled with a pattern that depends on `seed` and on the position.
class aio_buffer
{
  public:
    explicit aio_buffer(size_t count, unsigned seed = 0, size_t skew = 0) : bytes(count)
    {
        origin = static_cast<unsigned char *>(aligned_alloc(4096, (count + skew) / 4096 * 4096 + 4096));
        data = origin + skew;
        fill(seed);
    }
    ~aio_buffer() { free(origin); }
    aio_buffer(const aio_buffer &) = delete;
    void fill(unsigned seed)
    {
        for (size_t i = 0; i < bytes; i++)
            data[i] = static_cast<unsigned char>(seed * 41 + i * 7 + (i >> 8) * 13 + (i >> 17));
    }
    bool operator==(const aio_buffer &other) const { return bytes == other.bytes && memcmp(data, other.data, bytes) == 0; }
    size_t bytes;
    unsigned char *origin, *data;
};

// A measured result, as a section of a configuration.
inline std::string aio_tune_text(const zoff_aio_tune_result &printed)
{
    size_t bytes = 0;
    char text[2048];
    EXPECT_ZOFF_OK(zoff_aio_tune_print(&printed, text, sizeof text, &bytes));
    EXPECT_EQ(strlen(text), bytes);
    return text;
}

// The content of a file, as another program sees it.
inline std::string file_content(const std::string &path)
{
    std::string content;
    char buffer[65536];
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ssize_t ret;
    while (fd >= 0 && (ret = read(fd, buffer, sizeof buffer)) > 0)
        content.append(buffer, static_cast<size_t>(ret));
    if (fd >= 0)
        close(fd);
    return content;
}

inline off_t file_bytes(const std::string &path)
{
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? st.st_size : -1;
}

inline int open_descriptors()
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

// Runs `work` in a child process, for changes that cannot be undone. Returns the result of `work`: "" for success, otherwise
// the error. A crash is an error, too.
inline std::string in_child(const std::function<std::string()> &work)
{
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0)
        return "no pipe";
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pipe_ends[0]);
        alarm(60);
        std::string wrong = work();
        if (wrong.empty() && testing::Test::HasFailure())
            wrong = "an expectation failed";
        ssize_t ret = write(pipe_ends[1], wrong.data(), wrong.size());
        _exit(ret == static_cast<ssize_t>(wrong.size()) ? 0 : 1);
    }
    close(pipe_ends[1]);
    std::string wrong;
    char buffer[4096];
    ssize_t ret;
    while ((ret = read(pipe_ends[0], buffer, sizeof buffer)) > 0)
        wrong.append(buffer, static_cast<size_t>(ret));
    close(pipe_ends[0]);
    int state = 0;
    waitpid(child, &state, 0);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        wrong += " (child ended with wait status " + std::to_string(state) + ")";
    return wrong;
}

// Makes system call `number` fail with `error` in this process from now on, like a container's seccomp profile.
inline bool forbid_call(long number, int error)
{
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (static_cast<unsigned>(error) & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

inline int run(const std::string &command)
{
    return system((command + " >/dev/null 2>&1").c_str());
}

// A file system mounted for one test; needs root. `why_not` says why it could not be mounted.
class mounted
{
  public:
    // type "tmpfs" or "ramfs"
    mounted(const std::string &where, const std::string &type, const std::string &options) : folder(where)
    {
        if (geteuid() != 0)
            why_not = "mounting needs root";
        else if (run("mkdir -p '" + folder + "' && mount -t " + type + " -o " + options + " zoff-test '" + folder + "'") != 0)
            why_not = "cannot mount a " + type;
        is_mounted = why_not.empty();
    }
    // An ext4 on a loop device with sectors of `sector` bytes, stored in a file of `mib` MiB beside the folder.
    mounted(const std::string &where, unsigned sector, unsigned mib) : folder(where)
    {
        std::string image = folder + ".img";
        if (geteuid() != 0) {
            why_not = "loop devices need root";
            return;
        }
        if (run("mkdir -p '" + folder + "' && truncate -s " + std::to_string(mib) + "M '" + image + "'") != 0) {
            why_not = "cannot make an image";
            return;
        }
        std::string command = "losetup -f --show -b " + std::to_string(sector) + " '" + image + "' 2>/dev/null";
        if (FILE *out = popen(command.c_str(), "r")) {
            char line[64] = "";
            if (fgets(line, sizeof line, out))
                device = std::string(line).substr(0, strcspn(line, "\n"));
            pclose(out);
        }
        if (device.empty())
            why_not = "no loop device with such sectors";
        else if (run("mkfs.ext4 -q -m 0 '" + device + "' && mount '" + device + "' '" + folder + "'") != 0)
            why_not = "cannot make and mount an ext4";
        is_mounted = why_not.empty();
    }
    ~mounted()
    {
        // The kernel tears a ring down a little after its queue is closed, so umount may fail at first.
        for (int i = 0; is_mounted && run("umount '" + folder + "'") != 0; i++) {
            if (i == 100) {
                ADD_FAILURE() << "cannot unmount " << folder;
                break;
            }
            usleep(20000);
        }
        if (!device.empty() && run("losetup -d '" + device + "'") != 0)
            ADD_FAILURE() << "cannot free " << device;
    }
    mounted(const mounted &) = delete;
    std::string file(const std::string &name) const { return folder + "/" + name; }
    std::string folder, device, why_not;

  private:
    bool is_mounted = false;
};
} // namespace zoff_test

#endif
