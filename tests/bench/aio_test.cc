/* SPDX-License-Identifier: Apache-2.0 */
// aio_test.cc: tests the benchmark of the file queue as a program. The JSON must hold every required figure, and mark a figure
// that is missing or proves nothing. The program must remove its files and refuse wrong options. No test depends on the speed
// of the disk. Only one test runs beside fio, because the huge pages that it reserves belong to the whole machine.
#include "bench_program.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace
{
using zoff_test::json_text;
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" AIO "'";

const char *const RATIOS[] = {
    "read_vs_fio_1gib",
    "read_vs_fio_16mib",
    "write_vs_fio_1gib",
    "write_vs_fio_16mib",
    "mix_vs_fio_1gib",
    "mix_vs_fio_16mib",
    "cpu_s_per_gb_1gib",
    "cpu_s_per_gb_16mib",
    "throttled_read_vs_fio_whole",
    "throttled_read_vs_fio_16mib",
    "throttled_write_vs_fio_whole",
    "throttled_write_vs_fio_16mib",
    "throttled_mix_vs_fio_whole",
    "throttled_mix_vs_fio_16mib",
    "read_vs_libaio_4k_pages",
    "read_4k_pages_vs_huge",
    "write_vs_libaio_4k_pages",
    "write_4k_pages_vs_huge",
    "mix_vs_libaio_4k_pages",
    "mix_4k_pages_vs_huge",
};

std::string first_line(const char *path)
{
    return shell(std::string("head -n 1 ") + path).output;
}

class aio : public zoff_test::bench_program
{
  protected:
    void run(const std::string &before, const std::string &options)
    {
        start(before + " " + PROGRAM + " --size 64Mi --folder '" + folder.path + "' " + options);
        load();
        EXPECT_EQ("aio", json_text(root, "bench"));
        EXPECT_EQ("", shell("ls '" + folder.path + "' | grep -v out.json").output) << "it left files behind";
    }
    void check_figures() const
    {
        for (const char *name : RATIOS)
            expect_ratio(name);
    }
};

// The number of reserved huge pages, read while no benchmark on this machine holds any. A benchmark locks the file while it
// holds some.
std::string pages_set_aside()
{
    const char *const path = "/proc/sys/vm/nr_hugepages";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(0, flock(fd, LOCK_SH));
    const std::string pages = first_line(path);
    close(fd);
    return pages;
}

TEST_F(aio, races_with_fio_and_leaves_no_trace)
{
    if (shell("fio --version").status != 0)
        GTEST_SKIP() << "fio is not installed";
    const std::string pages = pages_set_aside();
    run("", "--quick --seconds 12");
    check_figures();
    EXPECT_EQ(pages, pages_set_aside());
    // A verdict needs more than these 64 MiB. The JSON must say that this one is void.
    json_t *verdict = at("verdict", "read_vs_fio_1gib");
    EXPECT_TRUE(json_is_false(json_object_get(verdict, "held")));
    EXPECT_NE(std::string::npos, json_text(verdict, "void").find("64 MiB"));
    EXPECT_DOUBLE_EQ(0.92, json_real_value(json_object_get(verdict, "at_least")));
    EXPECT_DOUBLE_EQ(0.98, json_real_value(json_object_get(at("verdict", "throttled_mix_vs_fio_whole"), "at_least")));
    EXPECT_DOUBLE_EQ(0.010, json_real_value(json_object_get(at("verdict", "cpu_s_per_gb_16mib"), "at_most")));
    size_t fio = 0, ours = 0;
    for_each_row([&](json_t *race, json_t *row) {
        const bool own = json_text(row, "program") == "zoff";
        fio += json_text(row, "program") == "fio";
        ours += own;
        EXPECT_EQ(own, json_is_null(json_object_get(row, "depth"))) << "ours are the defaults";
        EXPECT_EQ(json_integer_value(json_object_get(race, "rounds")),
                  (json_int_t)json_array_size(json_object_get(row, "seconds")));
    });
    EXPECT_GE(fio, 6u * 3);
    EXPECT_GE(ours, 2u * 3);
}

TEST_F(aio, tells_that_fio_is_missing_and_measures_the_rest)
{
    run("PATH=" + folder.path, "--only contest,throttle --seconds 20");
    check_figures();
    for (const char *name : {"read_vs_fio_1gib", "mix_vs_fio_16mib", "throttled_write_vs_fio_whole"}) {
        const char *why = json_string_value(at("not_measured", name));
        ASSERT_TRUE(why) << name;
        EXPECT_NE(std::string::npos, std::string(why).find("apt-get install fio")) << why;
        EXPECT_TRUE(json_is_false(json_object_get(at("verdict", name), "held")));
    }
}

TEST_F(aio, takes_other_pieces_than_the_default)
{
    run("PATH=" + folder.path, "--only contest --seconds 20 --block 4Mi --depth 8");
    json_t *row = json_array_get(json_object_get(json_array_get(json_object_get(root, "races"), 0), "rows"), 0);
    EXPECT_EQ(4 << 20, json_integer_value(json_object_get(row, "block_bytes")));
    EXPECT_EQ(8, json_integer_value(json_object_get(row, "depth")));
}

TEST_F(aio, sweeps_blocks_and_depths_without_fio)
{
    run("PATH=" + folder.path, "--only sweep --seconds 20");
    EXPECT_EQ(3u, json_array_size(json_object_get(root, "races")));
    EXPECT_EQ(20u, json_array_size(json_object_get(json_array_get(json_object_get(root, "races"), 0), "rows")));
}

TEST(aio_options, help_tells_them)
{
    zoff_test::expect_help(PROGRAM, {"--folder", "--size", "--block", "--depth", "--only", "--rounds", "--seconds", "--quick",
                                     "--full", "--json"});
}

TEST(aio_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "aio",
                              {"--size 0", "--size 100Mi", "--size 12Q", "--size 128Gi", "--size=-64Mi", "--size ''",
                               "--block 1000", "--block 2Gi", "--depth 0", "--depth 5000", "--rounds 0", "--rounds 65",
                               "--seconds 1h", "--only everything", "--only contest,", "--folder ''", "--no-such-option",
                               "--json=x extra"});
}

TEST(aio_options, a_folder_that_is_not_there_is_an_error)
{
    const shell_result r = shell(PROGRAM + " --size 64Mi --folder /no/such/folder");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("/no/such/folder")) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("--folder")) << r.output;
}

TEST_F(aio, a_json_that_cannot_be_written_is_an_error)
{
    const shell_result r = shell("PATH=" + folder.path + " " + PROGRAM + " --size 64Mi --only contest --rounds 1 --folder '" +
                                 folder.path + "' --json=/no/such/folder/x");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("cannot write")) << r.output;
}
} // namespace
