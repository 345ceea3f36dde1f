/* SPDX-License-Identifier: Apache-2.0 */
// drive_fault.h: a simulated drive below the library's file calls. All writes since the last flush are in doubt. After a power
// cut each sector in doubt has one of the contents it had since then, and a file disappears if its folder was not flushed.
// Calls can fail, be short, or report a false success.
//
// Add drive_fault.cc to the sources of a test, and wrap the functions listed in tests/fault/lost/CMakeLists.txt. Use the
// "posix" back-end without O_DIRECT: it writes any number of bytes with pwrite(). Only state files are on this drive.
#ifndef ZOFF_DRIVE_FAULT_H
#define ZOFF_DRIVE_FAULT_H

#include <map>
#include <random>
#include <set>
#include <stdint.h>
#include <string>
#include <vector>

namespace zoff_test
{
enum drive_fault_kind {
    DRIVE_WORKS,
    DRIVE_FAILS,   // The nth write or flush fails once. A failed flush loses part of the data in doubt for good.
    DRIVE_IS_FULL, // The nth write fails once with ENOSPC.
    DRIVE_STOPS,   // The nth write writes a part and then fails.
    DRIVE_FORGETS, // The nth write or flush reports success and does nothing.
    DRIVE_IS_CUT,  // The power fails at the nth write or flush: no later call has an effect.
    DRIVE_DIES     // The nth call fails, and the power fails at one of the next eight.
};

// The sectors in doubt that a power cut keeps.
enum drive_loss { LOSE_ALL, LOSE_OLD, LOSE_ONE, LOSE_SECTORS, LOSE_NOTHING, DRIVE_LOSSES };

class drive
{
  public:
    enum { SECTOR = 512 };
    drive();
    ~drive();
    drive(const drive &) = delete;

    // Count calls from 0 again; the nth behaves as `kind` says. n 0: none does.
    void arm(drive_fault_kind kind, int n, unsigned seed);
    bool has_struck() const { return struck; }
    bool is_dead() const { return dead; }
    int calls() const { return count; }
    // True if the nth call since arm() was a flush.
    bool was_flush(int n) const { return flushes.count(n) != 0; }

    // After a power cut, or at any time while no process uses the files: give them the content that the drive has kept.
    void lose(drive_loss which, unsigned seed);
    // Switch the power on again.
    void revive();

    // Act for the functions that replace those of the system.
    long write(int fd, const void *src, size_t bytes, int64_t offset);
    int flush(int fd);
    int flush_folder(int fd);
    void forget(const std::string &path); // the file is removed

  private:
    struct content { // content of a sector at some time; `write`: the write that produced it, 0: the flushed content
        int write;
        std::string bytes;
    };
    struct file {
        std::string path;
        std::map<uint64_t, std::vector<content>> doubt; // contents of each sector that may be there after a power cut
        std::string image;                              // content at the power cut
    };
    struct id {
        uint64_t device, inode;
        bool operator<(const id &o) const { return device != o.device ? device < o.device : inode < o.inode; }
    };
    file *find(int fd);
    long put(file &f, int fd, const char *src, size_t bytes, int64_t offset);
    void die_soon();
    void settle(file &f, int fd, drive_loss which, unsigned seed);

    std::map<id, file> files;
    drive_fault_kind kind = DRIVE_WORKS;
    int nth = 0, count = 0, writes = 0;
    unsigned seed = 0;
    bool struck = false, dead = false;
    std::set<int> flushes;
    std::set<std::string> names; // paths of files whose names survive a power cut
};
} // namespace zoff_test

#endif
