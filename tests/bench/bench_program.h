/* SPDX-License-Identifier: Apache-2.0 */
// bench_program.h: runs a benchmark as a program and checks its JSON and its table. No check depends on the speed of the
// machine.
#ifndef ZOFF_TESTS_BENCH_PROGRAM_H
#define ZOFF_TESTS_BENCH_PROGRAM_H

#include "shell.h"
#include "zoff_test.h"

#include <jansson.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>

namespace zoff_test
{
// The text under a key of a JSON object; "" if there is none.
inline std::string json_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

class bench_program : public testing::Test
{
  protected:
    ~bench_program() override { json_decref(root); }

    // Run a command line that names a benchmark and most of its options.
    shell_result start(const std::string &command)
    {
        const shell_result r = shell(command + " --rounds 1 --json='" + path() + "'");
        output = r.output;
        status = r.status;
        return r;
    }
    // Load the JSON that the run wrote. On a busy machine no round may be clean; the program then ends with status 3, which is
    // no error.
    void load()
    {
        ASSERT_TRUE(status == 0 || status == 3) << status << "\n" << output;
        json_error_t error;
        json_decref(root);
        root = json_load_file(path().c_str(), 0, &error);
        ASSERT_TRUE(root) << error.text << "\n" << output;
        expect_spreads();
    }

    std::string path() const { return folder.file("out.json"); }
    json_t *at(const char *object, const char *key) const { return json_object_get(json_object_get(root, object), key); }
    void for_each_row(const std::function<void(json_t *race, json_t *row)> &look) const
    {
        size_t index, line;
        json_t *race, *row;
        json_array_foreach(json_object_get(root, "races"), index, race)
        {
            json_array_foreach(json_object_get(race, "rows"), line, row) look(race, row);
        }
    }

    // Each figure has a number or a reason why it has none, a meaning, and a line in the table.
    void expect_figure(const char *name) const
    {
        const json_t *value = at("ratios", name);
        ASSERT_TRUE(value) << name;
        if (json_is_null(value))
            EXPECT_LT(0u, json_string_length(at("not_measured", name))) << name << " has neither a number nor a reason";
        else
            EXPECT_TRUE(std::isfinite(json_real_value(value))) << name;
        EXPECT_TRUE(json_is_string(at("meanings", name))) << name;
        EXPECT_NE(std::string::npos, output.find(name)) << "the table lacks " << name;
    }
    // As expect_figure(). If there is a number, it must be positive.
    void expect_ratio(const char *name) const
    {
        expect_figure(name);
        EXPECT_TRUE(json_is_null(at("ratios", name)) || json_real_value(at("ratios", name)) > 0) << name;
    }

    // The percentiles of each figure and each contestant are in order. A figure that is scaled must have its percentiles
    // scaled.
    void expect_spreads() const
    {
        const char *name;
        json_t *both;
        json_object_foreach(json_object_get(root, "percentiles"), name, both)
        {
            const double value = json_real_value(at("ratios", name)), rounding = 1e-5 * std::fabs(value);
            EXPECT_LE(json_real_value(json_object_get(both, "p10")), value + rounding) << name;
            EXPECT_GE(json_real_value(json_object_get(both, "p90")), value - rounding) << name;
        }
        for_each_row([](json_t *, json_t *row) {
            double before = 0;
            for (const char *key : {"seconds_min", "seconds_p10", "seconds_median", "seconds_p90", "seconds_max"}) {
                const json_t *value = json_object_get(row, key);
                ASSERT_TRUE(value) << key;
                if (json_is_null(value))
                    continue; // the figure has no clean sample
                EXPECT_LE(before, json_real_value(value)) << json_text(row, "name") << ": " << key;
                before = json_real_value(value);
            }
        });
    }

    scratch_folder folder;
    json_t *root = nullptr;
    std::string output;
    int status = -1;
};

inline void expect_help(const std::string &program, std::initializer_list<const char *> options)
{
    const shell_result r = shell(program + " --help");
    EXPECT_EQ(0, r.status);
    for (const char *option : options)
        EXPECT_NE(std::string::npos, r.output.find(option)) << option;
}

// Each option must be refused with status 2 and a message that begins with the program's name.
inline void expect_refused(const std::string &program, const std::string &name, std::initializer_list<const char *> options)
{
    for (const char *option : options) {
        const shell_result r = shell(program + " " + option);
        EXPECT_EQ(2, r.status) << option << "\n" << r.output;
        EXPECT_NE(std::string::npos, r.output.find(name + ": ")) << option << ": no message";
    }
}
} // namespace zoff_test

#endif
