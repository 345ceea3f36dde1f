/* SPDX-License-Identifier: Apache-2.0 */
// process_threads.h: how many threads this process has.
#ifndef ZOFF_TESTS_PROCESS_THREADS_H
#define ZOFF_TESTS_PROCESS_THREADS_H
#include <filesystem>
#include <unistd.h>

inline size_t threads_of_this_process()
{
    size_t count = 0;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task"))
        count += !entry.path().empty();
    return count;
}

// Whether there are at most this many in the end: the system lists a thread for a moment after it is joined.
inline bool threads_come_down_to(size_t most)
{
    for (int i = 0; i < 2000 && threads_of_this_process() > most; i++)
        usleep(5000);
    return threads_of_this_process() <= most;
}
#endif
