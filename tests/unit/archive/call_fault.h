/* SPDX-License-Identifier: Apache-2.0 */
// call_fault.h: makes the nth system call of a save fail, ends the process there, does something else before it, or notes the
// calls. Add call_fault.cc to the sources of a test, and ${call_fault_links} of CMakeLists.txt to its LINKS. Flushes are
// counted, but not done: nothing here cuts the power.
#ifndef ZOFF_ARCHIVE_CALL_FAULT_H
#define ZOFF_ARCHIVE_CALL_FAULT_H

#include <functional>
#include <string>
#include <vector>

namespace zoff_test
{
extern bool has_locks; // false: the file system has none

// Calls are counted from its construction to its end. Only one object may exist at a time.
struct call_fault {
    // error 0: the process is killed at the nth call, or `before` is done; n 0: no fault.
    call_fault(int nth_, int error_);
    ~call_fault();
    call_fault(const call_fault &) = delete;
    // From the nth call on, calls that begin with this text fail, too: "open " as if no descriptor were left.
    std::string also;
    std::function<void()> before;
    unsigned clock_step = 0; // seconds by which the clock goes on each time it is read
    bool has_struck() const { return nth && count >= nth; }

    int nth, error, count = 0;
    unsigned late = 0;              // seconds by which the clock is wrong
    std::vector<std::string> calls; // "fsync latest"
};
} // namespace zoff_test

#endif
