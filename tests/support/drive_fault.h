// drive_fault.h: a drive of a test. It stands under the library's file calls and keeps what was written since the last flush in
// doubt: a power cut leaves each such sector with any content that it has had since, and no file whose folder was not flushed.
// Calls can fail, be cut short, or lie. Add drive_fault.cc to the sources of a test, wrap what tests/fault/lost/CMakeLists.txt
// wraps, and use the "posix" back-end without O_DIRECT: it writes with pwrite(), any number of bytes. Only state files are on
// the drive.
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
    DRIVE_FAILS,   // the nth write or flush fails once. A failed flush loses a part of what was in doubt, for good
    DRIVE_IS_FULL, // likewise a write, with ENOSPC
    DRIVE_STOPS,   // the nth write moves a part and then fails
    DRIVE_FORGETS, // the nth write or flush says OK and does nothing
    DRIVE_IS_CUT,  // the power goes at the nth write or flush: nothing after it happens
    DRIVE_DIES     // it fails at the nth, and the power goes at one of the next eight
};

// Which of the sectors in doubt a power cut keeps.
enum drive_loss { LOSE_ALL, LOSE_OLD, LOSE_ONE, LOSE_SECTORS, LOSE_NOTHING, DRIVE_LOSSES };

class drive
{
  public:
    enum { SECTOR = 512 };
    drive();
    ~drive();
    drive(const drive &) = delete;

    // From now on calls are counted anew; the nth does what `kind` says. n 0: none.
    void arm(drive_fault_kind kind, int n, unsigned seed);
    bool has_struck() const { return struck; }
    bool is_dead() const { return dead; }
    int calls() const { return count; }
    // Whether the nth call since arm() was a flush.
    bool was_flush(int n) const { return flushes.count(n) != 0; }

    // Behind a power cut, or at any time when nobody uses the files: put into them what the drive has kept.
    void lose(drive_loss which, unsigned seed);
    // The power is back.
    void revive();

    // For the functions that stand in front of the system's.
    long write(int fd, const void *src, size_t bytes, int64_t offset);
    int flush(int fd);
    int flush_folder(int fd);
    void forget(const std::string &path); // it is removed

  private:
    struct content { // of a sector at some moment; `write` is which write brought it, 0: the flushed one
        int write;
        std::string bytes;
    };
    struct file {
        std::string path;
        std::map<uint64_t, std::vector<content>> doubt; // by sector
        std::string image;                              // at the power cut
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
    std::set<std::string> names; // of files that a power cut leaves in their folders
};
} // namespace zoff_test

#endif
