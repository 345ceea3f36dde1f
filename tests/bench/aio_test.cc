// aio_test.cc: the benchmark of the file queue as a program: its JSON holds every figure that is asked of the project, what is
// not measured or proves nothing is marked, it leaves nothing behind, and wrong options are refused. Nothing here depends on
// how fast a disk is. One test alone runs it beside fio: the huge pages that it sets aside are the machine's.
#include "shell.h"
#include "zoff_test.h"

#include <jansson.h>

#include <cmath>

namespace
{
using zoff_test::shell;
using zoff_test::shell_result;

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

class aio : public testing::Test
{
  protected:
    ~aio() override { json_decref(root); }

    // On a busy disk no sample may be clean, which is status 3 and no fault of the program.
    void run(const std::string &before, const std::string &options)
    {
        const std::string path = folder.file("out.json");
        const shell_result r =
            shell(before + " '" AIO "' --size 64Mi --folder '" + folder.path + "' --json='" + path + "' " + options);
        ASSERT_TRUE(r.status == 0 || r.status == 3) << r.status << "\n" << r.output;
        json_error_t error;
        root = json_load_file(path.c_str(), 0, &error);
        ASSERT_TRUE(root) << error.text << "\n" << r.output;
        output = r.output;
        EXPECT_STREQ("aio", json_string_value(json_object_get(root, "bench")));
        EXPECT_EQ("", shell("ls '" + folder.path + "' | grep -v out.json").output) << "it left something behind";
    }
    json_t *at(const char *object, const char *key) const { return json_object_get(json_object_get(root, object), key); }
    std::string text(json_t *object, const char *key) const
    {
        const char *value = json_string_value(json_object_get(object, key));
        return value ? value : "";
    }
    void check_figures() const
    {
        for (const char *name : RATIOS) {
            const json_t *value = at("ratios", name);
            ASSERT_TRUE(value) << name;
            if (json_is_null(value))
                EXPECT_TRUE(json_is_string(at("not_measured", name))) << name << " is neither measured nor excused";
            else
                EXPECT_TRUE(std::isfinite(json_real_value(value)) && json_real_value(value) > 0) << name;
            EXPECT_TRUE(json_is_string(at("meanings", name))) << name;
            EXPECT_NE(std::string::npos, output.find(name)) << "the table lacks " << name;
        }
    }

    zoff_test::scratch_folder folder;
    json_t *root = nullptr;
    std::string output;
};

TEST_F(aio, races_with_fio_and_leaves_no_trace)
{
    if (shell("fio --version").status != 0)
        GTEST_SKIP() << "fio is not installed";
    const std::string pages = first_line("/proc/sys/vm/nr_hugepages");
    run("", "--quick --rounds 1 --seconds 12");
    check_figures();
    EXPECT_EQ(pages, first_line("/proc/sys/vm/nr_hugepages"));
    // What was measured on 64 MiB is not what is asked for, and says so.
    json_t *verdict = at("verdict", "read_vs_fio_1gib");
    EXPECT_TRUE(json_is_false(json_object_get(verdict, "held")));
    EXPECT_NE(std::string::npos, text(verdict, "void").find("64 MiB"));
    EXPECT_DOUBLE_EQ(0.92, json_real_value(json_object_get(verdict, "at_least")));
    EXPECT_DOUBLE_EQ(0.98, json_real_value(json_object_get(at("verdict", "throttled_mix_vs_fio_whole"), "at_least")));
    EXPECT_DOUBLE_EQ(0.010, json_real_value(json_object_get(at("verdict", "cpu_s_per_gb_16mib"), "at_most")));
    size_t index, fio = 0, ours = 0;
    json_t *race;
    json_array_foreach(json_object_get(root, "races"), index, race)
    {
        size_t line;
        json_t *row;
        json_array_foreach(json_object_get(race, "rows"), line, row)
        {
            fio += text(row, "program") == "fio";
            ours += text(row, "program") == "zoff";
            EXPECT_EQ(text(row, "program") == "zoff", json_is_null(json_object_get(row, "depth"))) << "ours are the defaults";
            EXPECT_EQ(json_integer_value(json_object_get(race, "rounds")),
                      (json_int_t)json_array_size(json_object_get(row, "seconds")));
        }
    }
    EXPECT_GE(fio, 6u * 3);
    EXPECT_GE(ours, 2u * 3);
}

TEST_F(aio, tells_that_fio_is_missing_and_measures_the_rest)
{
    run("PATH=" + folder.path, "--only contest,throttle --rounds 1 --seconds 20");
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
    run("PATH=" + folder.path, "--only contest --rounds 1 --seconds 20 --block 4Mi --depth 8");
    json_t *row = json_array_get(json_object_get(json_array_get(json_object_get(root, "races"), 0), "rows"), 0);
    EXPECT_EQ(4 << 20, json_integer_value(json_object_get(row, "block_bytes")));
    EXPECT_EQ(8, json_integer_value(json_object_get(row, "depth")));
}

TEST_F(aio, sweeps_blocks_and_depths_without_fio)
{
    run("PATH=" + folder.path, "--only sweep --rounds 1 --seconds 20");
    EXPECT_EQ(3u, json_array_size(json_object_get(root, "races")));
    EXPECT_EQ(20u, json_array_size(json_object_get(json_array_get(json_object_get(root, "races"), 0), "rows")));
}

TEST(aio_options, help_tells_them)
{
    const shell_result r = shell("'" AIO "' --help");
    EXPECT_EQ(0, r.status);
    for (const char *option :
         {"--folder", "--size", "--block", "--depth", "--only", "--rounds", "--seconds", "--quick", "--full", "--json"})
        EXPECT_NE(std::string::npos, r.output.find(option)) << option;
}

TEST(aio_options, wrong_ones_are_refused)
{
    for (const char *options :
         {"--size 0", "--size 100Mi", "--size 12Q", "--size 128Gi", "--size=-64Mi", "--size ''", "--block 1000", "--block 2Gi",
          "--depth 0", "--depth 5000", "--rounds 0", "--rounds 65", "--seconds 1h", "--only everything", "--only contest,",
          "--folder ''", "--no-such-option", "--json=x extra"}) {
        const shell_result r = shell(std::string("'" AIO "' ") + options);
        EXPECT_EQ(2, r.status) << options << "\n" << r.output;
        EXPECT_NE(std::string::npos, r.output.find("aio: ")) << options << ": no message";
    }
}

TEST(aio_options, a_folder_that_is_not_there_is_an_error)
{
    const shell_result r = shell("'" AIO "' --size 64Mi --folder /no/such/folder");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("/no/such/folder")) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("--folder")) << r.output;
}

TEST_F(aio, a_json_that_cannot_be_written_is_an_error)
{
    const shell_result r = shell("PATH=" + folder.path + " '" AIO "' --size 64Mi --only contest --rounds 1 --folder '" +
                                 folder.path + "' --json=/no/such/folder/x");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("cannot write")) << r.output;
}
} // namespace
