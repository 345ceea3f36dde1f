/* SPDX-License-Identifier: Apache-2.0 */
// save_fault.h: makes the calls fail, or wait, with which a checkpoint is written and read. Add save_fault.cc to the sources of
// a test, and ${SAVE_FAULT_LINKS} to its LINKS. Nothing is flushed to the disk: no test here cuts the power.
#ifndef ZOFF_SAVE_FAULT_H
#define ZOFF_SAVE_FAULT_H

#include <limits.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace zoff_test
{
// Calls of the system; and one of the library for each write or read of a queue that has ended: CALL_TRANSFER, CALL_READ.
enum disk_call {
    CALL_OPEN,
    CALL_MKDIR,
    CALL_FALLOCATE,
    CALL_PWRITE,
    CALL_WRITE,
    CALL_FSYNC,
    CALL_RENAME,
    CALL_FTRUNCATE,
    CALL_PREAD,
    CALL_TRANSFER,
    CALL_READ,
    DISK_CALLS
};
const char *const DISK_CALL_NAMES[] = {"open",   "mkdir",     "fallocate", "pwrite",   "write", "fsync",
                                       "rename", "ftruncate", "pread",     "transfer", "read"};

inline bool is_read(disk_call kind)
{
    return kind == CALL_READ || kind == CALL_PREAD;
}

// Whether this is a thread of the library: only those block all signals.
inline bool is_library_thread()
{
    sigset_t blocked;
    return pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && sigismember(&blocked, SIGTERM) == 1;
}

// Only one object may exist at a time.
struct save_fault {
    save_fault();
    ~save_fault();
    save_fault(const save_fault &) = delete;

    // The nth call of a kind fails with an errno. Counts from 1 again.
    void arm(disk_call kind, int nth, int error);
    // Arm a fault that counts only calls of this thread.
    void arm_here(disk_call kind, int nth, int error);
    void disarm();
    bool has_struck() const { return struck; }
    // Calls since arm().
    int calls() const { return count; }

    // Called before each call, in its thread. Set it while no save is under way.
    std::function<void(disk_call kind)> before;
    std::atomic<int> seen[DISK_CALLS] = {};
    std::atomic<bool> has_exchange{true}; // false: renameat2() knows no flags
    std::atomic<bool> fail_frozen{false}; // the next load of frozen weights fails, when the states are loaded
    std::atomic<int> copies{0};           // units that a step has copied
    std::atomic<int> waits{0};            // times that a step has begun to wait for a save

    // Shares blocks where the file system has none to share: the bytes of the range are copied instead. From call number
    // `refused_from` on it fails with an errno. Counts from 1 again.
    void share(int refused_from, int error);
    std::atomic<int> asked_to_share{0}, shared{0};

    // Count a call of a function that replaces one of the system. Returns an errno, or 0.
    int turn(disk_call kind);
    bool shares() const { return refused_from > 0; }
    int share_turn();

  private:
    std::atomic<int> armed{DISK_CALLS}, count{0}, nth{0}, error{0};
    std::atomic<int> refused_from{0}, share_error{0}; // 0: the file system shares, or refuses
    std::atomic<bool> struck{false}, here{false};
    std::atomic<std::thread::id> thread;
};

// Holds back the threads of the library at calls of the disk, until it is opened, or for some time.
class disk_gate
{
  public:
    explicit disk_gate(save_fault &fault_, std::function<bool(disk_call kind)> stops_) : fault(fault_), stops(std::move(stops_))
    {
        fault.before = [this](disk_call kind) { pass(kind); };
    }
    ~disk_gate()
    {
        open();
        fault.before = nullptr;
    }
    disk_gate(const disk_gate &) = delete;

    void open()
    {
        is_open = true;
        moved.notify_all();
    }
    void open_after(std::chrono::milliseconds time)
    {
        until = std::chrono::steady_clock::now() + time;
        has_end = true;
    }
    // Open it when a step waits for the save. One that never waits opens it after a while, so that the test can fail.
    void open_when_a_step_waits()
    {
        waits = fault.waits.load();
        open_after(std::chrono::seconds(20));
    }
    // Wait until a thread is held back.
    void expect_one()
    {
        std::unique_lock<std::mutex> guard(lock);
        moved.wait(guard, [this] { return held > 0; });
    }

  private:
    void pass(disk_call kind)
    {
        if (!is_library_thread() || !stops(kind))
            return;
        std::unique_lock<std::mutex> guard(lock);
        held++;
        moved.notify_all();
        while (!is_open && fault.waits <= waits && !(has_end && std::chrono::steady_clock::now() >= until.load()))
            moved.wait_for(guard, std::chrono::milliseconds(1));
        held--;
    }

    save_fault &fault;
    const std::function<bool(disk_call kind)> stops;
    std::mutex lock;
    std::condition_variable moved;
    std::atomic<bool> is_open{false}, has_end{false};
    std::atomic<int> waits{INT_MAX}; // it is open when steps have waited more often
    std::atomic<std::chrono::steady_clock::time_point> until{};
    int held = 0;
};
} // namespace zoff_test

#endif
