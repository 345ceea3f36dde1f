/* SPDX-License-Identifier: Apache-2.0 */
// drive_fault.cc: the functions that replace those of the system (see drive_fault.h).
#include "drive_fault.h"

#include <algorithm>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
}

static zoff_test::drive *active;

namespace zoff_test
{
drive::drive()
{
    active = this;
}

drive::~drive()
{
    active = nullptr;
}

void drive::arm(drive_fault_kind kind_, int n, unsigned seed_)
{
    kind = kind_;
    nth = n;
    seed = seed_;
    count = 0;
    struck = false;
    flushes.clear();
}

drive::file *drive::find(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return nullptr;
    const id key = {(uint64_t)st.st_dev, (uint64_t)st.st_ino};
    auto found = files.find(key);
    if (found != files.end())
        return &found->second;
    char path[PATH_MAX] = "";
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
    const std::string name(path, length > 0 ? (size_t)length : 0);
    // An unlinked file is still on the drive.
    if (name.find(".states") == std::string::npos && name.find(".swap") == std::string::npos)
        return nullptr;
    files[key] = {name, {}, ""};
    return &files[key];
}

// Write to the file and keep the old content: until a flush the drive may lose the new content.
long drive::put(file &f, int fd, const char *src, size_t bytes, int64_t offset)
{
    const uint64_t first = (uint64_t)offset / SECTOR, end = ((uint64_t)offset + bytes) / SECTOR;
    std::string before(bytes, 0); // bytes beyond the end of the file do not exist
    if (pread(fd, &before[0], bytes, offset) < 0)
        abort();
    writes++;
    for (uint64_t k = first; k < end; k++) {
        auto &contents = f.doubt[k];
        if (contents.empty())
            contents.push_back({0, before.substr((k - first) * SECTOR, SECTOR)});
        contents.push_back({writes, std::string(src + (k - first) * SECTOR, SECTOR)});
    }
    return __real_pwrite(fd, src, bytes, offset);
}

long drive::write(int fd, const void *src, size_t bytes, int64_t offset)
{
    file *f = find(fd);
    if (!f)
        return __real_pwrite(fd, src, bytes, offset);
    if (dead) {
        errno = EIO;
        return -1;
    }
    const auto *from = static_cast<const char *>(src);
    if (++count != nth)
        return put(*f, fd, from, bytes, offset);
    struck = true;
    const size_t part = bytes / 2 / 4096 * 4096;
    switch (kind) {
    case DRIVE_FORGETS:
        return (long)bytes;
    case DRIVE_IS_CUT:
        dead = true;
        if (part) // the write was in flight
            put(*f, fd, from, part, offset);
        break;
    case DRIVE_STOPS:
        nth = part ? nth + 1 : nth; // the rest fails
        if (part) {
            kind = DRIVE_FAILS;
            return put(*f, fd, from, part, offset);
        }
        break;
    case DRIVE_IS_FULL:
        errno = ENOSPC;
        return -1;
    case DRIVE_DIES:
        die_soon();
        break;
    default:
        break;
    }
    errno = EIO;
    return -1;
}

int drive::flush(int fd)
{
    file *f = find(fd);
    if (!f)
        return __real_fdatasync(fd);
    if (dead) {
        errno = EIO;
        return -1;
    }
    flushes.insert(count + 1);
    if (++count != nth) {
        f->doubt.clear();
        return 0;
    }
    struck = true;
    if (kind == DRIVE_FORGETS)
        return 0;
    if (kind == DRIVE_IS_CUT)
        dead = true;
    else
        settle(*f, fd, (drive_loss)(seed % DRIVE_LOSSES), seed); // like fsync: the pages are lost, marked clean, and the error
                                                                 // is reported once
    if (kind == DRIVE_DIES)
        die_soon();
    errno = EIO;
    return -1;
}

int drive::flush_folder(int fd)
{
    if (dead) {
        errno = EIO;
        return -1;
    }
    char path[PATH_MAX] = "";
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
    const std::string folder(path, length > 0 ? (size_t)length : 0);
    DIR *all = opendir(folder.c_str());
    for (dirent *one; all && (one = readdir(all));)
        names.insert(folder + "/" + one->d_name);
    if (all)
        closedir(all);
    return __real_fsync(fd);
}

void drive::die_soon()
{
    kind = DRIVE_IS_CUT;
    nth += 1 + (int)(seed / DRIVE_LOSSES % 8);
}

// Choose a content for each sector in doubt. After that no sector is in doubt.
void drive::settle(file &f, int fd, drive_loss which, unsigned with)
{
    std::mt19937 random(with * 7919 + 13);
    std::vector<int> ids;
    for (const auto &entry : f.doubt) {
        for (const auto &one : entry.second)
            ids.push_back(one.write);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    ids.erase(ids.begin(), ids.begin() + (!ids.empty() && ids[0] == 0));
    const int lost = ids.empty() ? 0 : ids[random() % ids.size()],
              young = ids.empty() ? 0 : ids[ids.size() - ids.size() / 4 - 1];
    for (auto &entry : f.doubt) {
        const auto &all = entry.second;
        size_t pick = all.size() - 1;
        if (which == LOSE_ALL)
            pick = 0;
        else if (which == LOSE_OLD) // the last writes are kept, earlier ones are lost
            pick = all.back().write > young ? pick : 0;
        else if (which == LOSE_ONE)
            pick -= all.back().write == lost;
        else if (which == LOSE_SECTORS)
            pick = random() % all.size();
        const auto at = (off_t)(entry.first * SECTOR);
        if (pick + 1 < all.size() && __real_pwrite(fd, all[pick].bytes.data(), SECTOR, at) < 0)
            abort();
    }
    f.doubt.clear();
}

void drive::lose(drive_loss which, unsigned with)
{
    for (auto &entry : files) {
        int fd = open(entry.second.path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        struct stat st;
        if (fstat(fd, &st) == 0 && (uint64_t)st.st_ino == entry.first.inode) {
            settle(entry.second, fd, which, with);
            if (!names.count(entry.second.path)) // its folder was not flushed after it was created
                __real_unlink(entry.second.path.c_str());
        }
        close(fd);
    }
    files.clear();
}

void drive::forget(const std::string &path)
{
    for (auto at = files.begin(); at != files.end();)
        at = at->second.path == path ? files.erase(at) : std::next(at);
}

void drive::revive()
{
    dead = false;
    arm(DRIVE_WORKS, 0, 0);
}
} // namespace zoff_test

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    return active ? active->write(fd, src, bytes, offset) : __real_pwrite(fd, src, bytes, offset);
}

int __wrap_fdatasync(int fd)
{
    return active ? active->flush(fd) : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    return active ? active->flush_folder(fd) : __real_fsync(fd);
}

// A process that ends in the power cut no longer removes files.
int __wrap_unlink(const char *path)
{
    if (active && active->is_dead())
        return 0;
    if (active)
        active->forget(path);
    return __real_unlink(path);
}
