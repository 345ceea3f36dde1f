/* SPDX-License-Identifier: Apache-2.0 */
// lives.h: lives of a trainer that is killed with SIGKILL at some moment, and says how far it came.
#ifndef ZOFF_LIVES_H
#define ZOFF_LIVES_H

#include "zoff_test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <sstream>
#include <string>

namespace zoff_test
{
// The last step that the trainer reported of each kind; -1: none.
struct life {
    int64_t opened = -1; // the life has opened the states of this step
    int64_t done = -1;   // the test says what is done: a step or a save
    int status = 0;      // status that waitpid() gives

    bool was_killed() const { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
};

// Run a trainer in a process of its own. It writes lines with a word and a number to the file descriptor: "open T", or any
// other word and the step that is done. Kill it after `usec`; 0: it ends by itself, with the number that it returns. `opens`:
// the time counts from its first line, because a machine under load may take any time to get there.
inline life live(const std::function<int(int to)> &trainer, unsigned usec, bool opens = false)
{
    int ends[2];
    EXPECT_EQ(0, pipe(ends));
    fflush(stdout); // or the child prints it, too
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const int status = trainer(ends[1]);
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    if (opens) {
        pollfd line = {ends[0], POLLIN, 0};
        EXPECT_EQ(1, poll(&line, 1, -1));
    }
    if (usec) {
        usleep(usec);
        kill(child, SIGKILL);
    }
    std::stringstream said;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        said.write(buffer, got);
    close(ends[0]);
    life l;
    waitpid(child, &l.status, 0);
    std::string word;
    for (int64_t t; said >> word >> t;)
        (word == "open" ? l.opened : l.done) = t;
    return l;
}
} // namespace zoff_test

#endif
