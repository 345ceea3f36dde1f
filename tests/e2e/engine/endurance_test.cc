/* SPDX-License-Identifier: Apache-2.0 */
// endurance_test.cc: a thousand steps must not change the number of open descriptors, the memory of the process or the length
// of its files. Covers persistent and other states, and every I/O back-end.
#include "small_engine.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
// Resources of this process.
struct footprint {
    int descriptors = 0;
    long resident_kib = 0;
    off_t file_bytes = 0, file_blocks = 0;
    int files = 0;
};

footprint measure(const std::string &folder)
{
    footprint f;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        f.descriptors++;
    closedir(dir);
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmRSS: %ld", &f.resident_kib);
    fclose(status);
    struct stat st;
    for (const std::string &file : state_files(folder)) {
        if (stat(file.c_str(), &st) != 0)
            continue;
        f.files++;
        f.file_bytes += st.st_size;
        f.file_blocks += st.st_blocks;
    }
    return f;
}

class Endurance : public testing::TestWithParam<const char *>
{
};

INSTANTIATE_TEST_SUITE_P(Kinds, Endurance,
                         testing::Values("\"persist\": false", "\"persist\": true, \"durability\": \"process\"",
                                         "\"io_backend\": \"posix\""),
                         [](const auto &p) {
                             return std::string(p.index == 0 ? "temporary" : p.index == 1 ? "persistent" : "posix");
                         });

TEST_P(Endurance, AThousandSteps)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(3);
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    engine e = seal_engine(t, config_text(folder.path, 1, std::string(", \"zoff\": {") + GetParam() + "}"), 2048);
    t.backward_all(0.1f);
    footprint warm;
    for (int step = 1; step <= 1000; step++) {
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        if (step == 100)
            warm = measure(folder.path);
    }
    const footprint end = measure(folder.path);
    EXPECT_EQ(warm.descriptors, end.descriptors);
    EXPECT_EQ(1, end.files);
    EXPECT_EQ(warm.files, end.files);
    EXPECT_EQ(warm.file_bytes, end.file_bytes);
    EXPECT_EQ(warm.file_blocks, end.file_blocks);
    // The library's memory is fixed at seal. Caches of the C library and of sanitizers may still grow a little.
    EXPECT_LE(end.resident_kib, warm.resident_kib + 1024);
    int64_t count = 0;
    ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
    EXPECT_EQ(1000, count);
}

// The budget determines the memory, not the model: ten times the model, the same budget. Weights and gradients belong to the
// trainer and are subtracted.
TEST(Window, MemoryDependsOnTheBudgetNotOnTheModel)
{
    log_catcher log;
    const size_t SMALL = 3 << 20;
    long beyond[2];
    for (int large = 0; large < 2; large++) {
        scratch_folder folder;
        const size_t count = large ? 10 * SMALL : SMALL;
        const footprint before = measure(folder.path);
        std::vector<uint16_t> value(count, 0x3c00), grad(count, 0x2c00);
        zoff_param_desc desc = {};
        desc.struct_size = sizeof desc;
        desc.value = value.data();
        desc.grad = grad.data();
        desc.count = count;
        desc.dtype = desc.grad_dtype = ZOFF_BF16;
        const std::string text = config_text(folder.path);
        zoff_config *config = nullptr;
        ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &config));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = config;
        opts.host_bytes = 6 << 20;
        opts.threads = 2;
        zoff_engine *made = nullptr;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(config);
        engine e(made);
        ASSERT_ZOFF_OK(zoff_engine_add_param(made, &desc, nullptr));
        ASSERT_ZOFF_OK(zoff_engine_seal(made));
        const zoff_plan_info plan = plan_of(made);
        EXPECT_GE(plan.state_bytes, (large ? 40u : 4u) * plan.host_bytes);
        for (int step = 0; step < 3; step++)
            ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
        beyond[large] = measure(folder.path).resident_kib - before.resident_kib - (long)(4 * count / 1024);
    }
    EXPECT_LE(beyond[1], beyond[0] + 16 * 1024) << "KiB beside weights and gradients: " << beyond[0] << ", " << beyond[1];
}
} // namespace
