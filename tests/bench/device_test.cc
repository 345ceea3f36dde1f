/* SPDX-License-Identifier: Apache-2.0 */
// device_test.cc: tests the benchmark of the device step as a program. It runs over the emulated device and, if CUDA's plug-in
// was built, over a CUDA runtime made of threads. Every figure must be there, counts must be right, and wrong options must be
// refused.
#include "bench_program.h"

namespace
{
using zoff_test::json_text;
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" DEVICE "'";
const char *const RATIOS[] = {"wall_over_slowest",    "wall_over_kernels",       "slices_over_memcpy_both",
                              "bus_in_step",          "slices_over_memcpy_down", "slices_over_memcpy_up",
                              "two_way_over_one_way", "visible_over_update",     "push_beside_over_push"};

class bench_device : public zoff_test::bench_program
{
  protected:
    // The checks that hold for every device and do not depend on speed.
    void expect_whole(const char *backend)
    {
        for (const char *name : RATIOS)
            expect_ratio(name);
        expect_figure("fetches_hidden_share"); // a difference of times: on a busy machine it may be zero or negative
        for (const char *name : {"pageable_copies", "bounced_bytes"}) {
            expect_figure(name);
            EXPECT_EQ(0.0, json_real_value(at("ratios", name))) << name;
            EXPECT_TRUE(json_is_true(json_object_get(at("verdict", name), "held"))) << name;
        }
        expect_figure("bytes_per_parameter");
        EXPECT_EQ(4.0, json_real_value(at("ratios", "bytes_per_parameter")))
            << "each gradient is downloaded once and each weight uploaded once";
        EXPECT_TRUE(json_is_true(json_object_get(at("verdict", "bytes_per_parameter"), "held")));
        for (const char *name : {"wall_over_slowest", "slices_over_memcpy_both"}) {
            EXPECT_FALSE(json_is_true(json_object_get(at("verdict", name), "held")))
                << name << " must not hold without a real bus";
            EXPECT_NE("", json_text(at("verdict", name), "void")) << name;
        }
        EXPECT_EQ(backend, json_text(json_object_get(root, "accelerator"), "backend"));
        EXPECT_NE("", json_text(json_object_get(root, "accelerator"), "name"));
        EXPECT_NE("", json_text(json_object_get(root, "machine"), "cpu"));
        EXPECT_EQ(0, json_integer_value(at("accelerator", "pageable_copies")));
        EXPECT_EQ(0, json_integer_value(at("accelerator", "bounced_bytes")));
        EXPECT_EQ(json_integer_value(json_object_get(root, "elements")),
                  json_integer_value(at("last_step", "elements_updated")));
        size_t rows = 0;
        for_each_row([&](json_t *, json_t *row) {
            rows++;
            EXPECT_EQ(1u, json_array_size(json_object_get(row, "seconds")));
        });
        EXPECT_EQ(14u, rows);
    }
};

TEST_F(bench_device, has_every_figure)
{
    start(PROGRAM + " --accel emulated --quick --elements 1Mi");
    ASSERT_NO_FATAL_FAILURE(load());
    expect_whole("emulated");
    EXPECT_EQ(1 << 20, json_integer_value(json_object_get(root, "elements")));
}

TEST_F(bench_device, runs_one_part_alone)
{
    start(PROGRAM + " --accel emulated --quick --elements 1Mi --only copies,step");
    ASSERT_NO_FATAL_FAILURE(load());
    size_t rows = 0;
    for_each_row([&](json_t *, json_t *) { rows++; });
    EXPECT_EQ(4u, rows);
    expect_ratio("bus_in_step");
    EXPECT_TRUE(json_is_null(at("ratios", "visible_over_update")));
    expect_figure("visible_over_update");
}

#ifdef ON_THREADS
TEST_F(bench_device, runs_over_cuda)
{
    start("LD_LIBRARY_PATH='" ON_THREADS "' ZOFF_PLUGIN_PATH='" PLUGINS "' " + PROGRAM + " --quick --elements 1Mi");
    ASSERT_NO_FATAL_FAILURE(load());
    expect_whole("cuda");
    EXPECT_LT(0, json_integer_value(at("accelerator", "pinned_bytes")));
}
#endif

TEST(bench_device_options, help_lists_them)
{
    zoff_test::expect_help(PROGRAM,
                           {"--accel", "--elements", "--only", "--rounds", "--seconds", "--quick", "--full", "--json"});
}

TEST(bench_device_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "device",
                              {"--accel=host", "--elements=7", "--only=everything", "--rounds=65", "surplus"});
}

TEST(bench_device_options, more_than_the_machine_has_is_refused)
{
    const shell_result r = shell(PROGRAM + " --accel emulated --elements 60Gi");
    EXPECT_EQ(1, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("--elements")) << r.output;
}
} // namespace
