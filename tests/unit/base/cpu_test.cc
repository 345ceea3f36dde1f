/* SPDX-License-Identifier: Apache-2.0 */
// cpu_test.cc: features are those that the kernel reports. Between enter and leave floating point is set for the kernels, and
// restored afterwards.
#include "float_control.h"
#include "zoff_test.h"

#include <fenv.h>
#include <float.h>

#include <cmath>
#include <fstream>
#include <thread>

extern "C" {
#include "cpu.h"
}

namespace
{
float sum_of_one_and_little()
{
    volatile float one = 1.0f, little = 1e-20f, sum = one + little; // computed at run time, not by the compiler
    return sum;
}
} // namespace

TEST(cpu, enter_rounds_to_nearest_and_leave_restores)
{
    const int mine = fegetround();
    for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
        ASSERT_EQ(0, fesetround(mode));
        const float before = sum_of_one_and_little();
        const unsigned saved = zoff_base_cpu_float_enter();
        const float inside = sum_of_one_and_little();
        zoff_base_cpu_float_leave(saved);
        const float after = sum_of_one_and_little();
        fesetround(mine);
        EXPECT_EQ(mode == FE_UPWARD, before > 1.0f) << "the test tests nothing";
        EXPECT_EQ(1.0f, inside);
        EXPECT_EQ(before, after);
    }
}

TEST(cpu, enter_inside_of_enter_changes_nothing)
{
    const int mine = fegetround();
    ASSERT_EQ(0, fesetround(FE_UPWARD));
    const unsigned outer = zoff_base_cpu_float_enter(), inner = zoff_base_cpu_float_enter();
    zoff_base_cpu_float_leave(inner);
    const float inside = sum_of_one_and_little();
    zoff_base_cpu_float_leave(outer);
    const float after = sum_of_one_and_little();
    fesetround(mine);
    EXPECT_EQ(1.0f, inside);
    EXPECT_LT(1.0f, after);
}

TEST(cpu, enter_and_leave_concern_the_calling_thread_alone)
{
    const int mine = fegetround();
    ASSERT_EQ(0, fesetround(FE_UPWARD));
    std::thread([] {
        fesetround(FE_TONEAREST);
        zoff_base_cpu_float_leave(zoff_base_cpu_float_enter());
    }).join();
    const float here = sum_of_one_and_little();
    fesetround(mine);
    EXPECT_LT(1.0f, here);
}

TEST(cpu, tables_of_other_machines_are_never_usable)
{
#if defined(__aarch64__)
    EXPECT_TRUE(zoff_base_cpu_has_neon());
#else
    EXPECT_FALSE(zoff_base_cpu_has_neon());
    EXPECT_FALSE(zoff_base_cpu_has_sve());
#endif
#if !defined(__x86_64__)
    EXPECT_FALSE(zoff_base_cpu_has_avx2());
    EXPECT_FALSE(zoff_base_cpu_has_avx512());
#endif
}

#if defined(__x86_64__)
TEST(cpu, enter_honours_subnormals_and_leave_restores)
{
    const unsigned mine = get_control();
    set_control(FLUSH_TO_ZERO_AND_ROUND_UP);
    const float flushed = halved(FLT_MIN);
    const unsigned saved = zoff_base_cpu_float_enter();
    const float subnormal = halved(FLT_MIN);
    zoff_base_cpu_float_leave(saved);
    const unsigned restored = get_control();
    set_control(mine);
    ASSERT_EQ(0.0f, flushed) << "subnormals are not flushed: the test tests nothing";
    EXPECT_EQ(FLT_MIN / 2, subnormal);
    EXPECT_EQ(FLUSH_TO_ZERO_AND_ROUND_UP, restored & FLOAT_MODES);
}

// A program may let a division by zero raise SIGFPE to find its errors. Such a division in a kernel is no error.
TEST(cpu, enter_masks_traps)
{
    const unsigned mine = get_control(), trapping = 0x1f80 & ~0x0280u; // trap invalid operations and divisions by zero
    set_control(trapping);
    const unsigned saved = zoff_base_cpu_float_enter();
    volatile float one = 1.0f, zero = 0.0f, infinite = one / zero, nan = zero / zero;
    zoff_base_cpu_float_leave(saved);
    const unsigned restored = get_control();
    set_control(mine);
    EXPECT_TRUE(std::isinf(static_cast<float>(infinite)));
    EXPECT_TRUE(std::isnan(static_cast<float>(nan)));
    EXPECT_EQ(trapping, restored & FLOAT_MODES);
}

TEST(cpu, feature_bits_agree_with_the_kernel)
{
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::string line;
    while (std::getline(cpuinfo, line) && line.compare(0, 5, "flags") != 0)
        ;
    ASSERT_FALSE(line.empty());
    line += " ";
    const auto has = [&line](const char *flag) { return line.find(std::string(" ") + flag + " ") != std::string::npos; };
    EXPECT_EQ(has("avx2") && has("fma") && has("f16c"), zoff_base_cpu_has_avx2());
    EXPECT_EQ(has("avx2") && has("fma") && has("f16c") && has("avx512f") && has("avx512bw") && has("avx512dq") &&
                  has("avx512vl"),
              zoff_base_cpu_has_avx512());
}
#endif
