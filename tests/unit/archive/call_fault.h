// call_fault.h: makes the nth system call of a save fail, ends the process there, or notes the calls. Add call_fault.cc to the
// sources of a test, and ${call_fault_links} of CMakeLists.txt to its LINKS. Flushes are counted, but not done: nothing here
// cuts the power.
#ifndef ZOFF_ARCHIVE_CALL_FAULT_H
#define ZOFF_ARCHIVE_CALL_FAULT_H

#include <string>
#include <vector>

namespace zoff_test
{
// Calls are counted from its construction to its end. Only one object may exist at a time.
struct call_fault {
    // error 0: the process is killed at the nth call; n 0: no fault.
    call_fault(int nth_, int error_);
    ~call_fault();
    call_fault(const call_fault &) = delete;
    // From the nth call on, calls that begin with this text fail, too: "open " as if no descriptor were left.
    std::string also;
    bool has_struck() const { return nth && count >= nth; }

    int nth, error, count = 0;
    std::vector<std::string> calls; // "fsync latest"
};
} // namespace zoff_test

#endif
