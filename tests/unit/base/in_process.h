// in_process.h: what a test says in a process with another environment.
#ifndef ZOFF_TESTS_IN_PROCESS_H
#define ZOFF_TESTS_IN_PROCESS_H
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <string>

// Runs the current test again in a process with another environment, where ZOFF_TEST_TELL is set and it only prints
// lines that begin with "tell "; what stands behind that.
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
