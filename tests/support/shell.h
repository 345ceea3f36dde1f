/* SPDX-License-Identifier: Apache-2.0 */
// shell.h: runs a program by the shell and returns its status and output.
#ifndef ZOFF_TESTS_SHELL_H
#define ZOFF_TESTS_SHELL_H

#include <stdio.h>
#include <sys/wait.h>

#include <string>

namespace zoff_test
{
struct shell_result {
    int status;         // exit status; -1 if there is none
    std::string output; // standard output and standard error
};

inline shell_result shell(const std::string &command)
{
    shell_result r = {-1, ""};
    FILE *pipe = popen(("exec 2>&1; " + command).c_str(), "r");
    if (!pipe)
        return r;
    char piece[4096];
    for (size_t got; (got = fread(piece, 1, sizeof piece, pipe)) > 0;)
        r.output.append(piece, got);
    const int status = pclose(pipe);
    r.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return r;
}
} // namespace zoff_test

#endif
