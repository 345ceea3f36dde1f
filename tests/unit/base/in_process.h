/* SPDX-License-Identifier: Apache-2.0 */
// in_process.h: run a test in a process with another environment, and read its output.
#ifndef ZOFF_TESTS_IN_PROCESS_H
#define ZOFF_TESTS_IN_PROCESS_H
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <string>

// Run the current test again in a process with another environment. There ZOFF_TEST_TELL is set, and the test only prints lines
// that begin with "tell ". Returns the rest of those lines.
inline std::string in_process(const std::string &environment)
{
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        return "";
    const auto *test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string command = "ZOFF_TEST_TELL=1 " + environment + " '" + self +
                                "' --gtest_filter=" + test->test_suite_name() + "." + test->name() + " | sed -n 's/^tell //p'";
    FILE *pipe = popen(command.c_str(), "r");
    std::string told;
    for (int c; pipe && (c = fgetc(pipe)) != EOF;)
        told += static_cast<char>(c);
    if (pipe)
        pclose(pipe);
    return told;
}
#endif
