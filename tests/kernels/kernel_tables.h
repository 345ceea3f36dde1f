/* SPDX-License-Identifier: Apache-2.0 */
// kernel_tables.h: the fixture of all kernel tests. Runs each test on one table after the other, and skips tables that this CPU
// or build lacks.
#ifndef ZOFF_TESTS_KERNEL_TABLES_H
#define ZOFF_TESTS_KERNEL_TABLES_H

#include "kernel_data.h"
#include "zoff_test.h"

extern "C" {
#include "cpu.h"
#include "kernels.h"
}

class kernel_tables : public ::testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        table = zoff_adam_dispatch_table(GetParam());
        if (!table)
            GTEST_SKIP() << "this CPU or build has no " << GetParam() << " kernels";
        ASSERT_STREQ(table->name, GetParam());
        saved = zoff_base_cpu_float_enter();
    }
    void TearDown() override
    {
        if (table)
            zoff_base_cpu_float_leave(saved);
    }
    const struct zoff_kernels *table = nullptr;
    unsigned saved = 0;
};

inline std::string isa_name(const ::testing::TestParamInfo<const char *> &info)
{
    return info.param;
}
#define ZOFF_EVERY_TABLE(suite)                                                                                                \
    INSTANTIATE_TEST_SUITE_P(every, suite, ::testing::Values("scalar", "avx2", "avx512", "neon", "sve"), isa_name)

constexpr size_t LARGE = 100003;

// Sizes with every tail of every register, sizes around a block, and a large one.
inline std::vector<size_t> sizes()
{
    std::vector<size_t> all;
    for (size_t n = 0; n <= 130; n++)
        all.push_back(n);
    all.push_back(1023);
    all.push_back(1025);
    all.push_back(LARGE);
    return all;
}

#endif
