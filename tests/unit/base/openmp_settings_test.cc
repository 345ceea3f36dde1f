/* SPDX-License-Identifier: Apache-2.0 */
// openmp_settings_test.cc: the settings that the program and its user gave to the program's OpenMP runtime.
#include "in_process.h"
#include "zoff_test.h"

#include <omp.h>

extern "C" {
#include "openmp.h"
}

TEST(openmp_settings, inside_is_true_in_a_region_of_several_threads)
{
    bool inside[2] = {false, false};
    EXPECT_FALSE(zoff_base_openmp_settings_inside());
#pragma omp parallel num_threads(2)
    inside[omp_get_thread_num()] = zoff_base_openmp_settings_inside();
    EXPECT_TRUE(inside[0] && inside[1]);
    EXPECT_FALSE(zoff_base_openmp_settings_inside());
}

TEST(openmp_settings, places_are_told_where_threads_are_bound)
{
    zoff_cpus places;
    if (getenv("ZOFF_TEST_TELL")) {
        const bool bound = zoff_base_openmp_settings_places(&places);
        printf("tell %s, CPU 0 %s\n", bound ? "bound" : "free", bound && places.words[0] & 1 ? "is one" : "is none");
        return;
    }
    EXPECT_EQ("free, CPU 0 is none\n", in_process("OMP_PROC_BIND=false OMP_PLACES={0}"));
    EXPECT_EQ("bound, CPU 0 is one\n", in_process("OMP_PROC_BIND=true OMP_PLACES={0}"));
}

TEST(openmp_settings, the_program_is_before_the_user)
{
    const char *who = "";
    if (getenv("ZOFF_TEST_TELL")) {
        const unsigned user = zoff_base_openmp_settings_limit(&who);
        printf("tell %u %s", user, who ? who : "nobody");
        omp_set_num_threads(1);
        const unsigned program = zoff_base_openmp_settings_limit(&who);
        printf(", %u %s\n", program, who ? who : "nobody");
        return;
    }
    if (omp_get_num_procs() < 2)
        GTEST_SKIP() << "one CPU: there is nothing to limit";
    EXPECT_EQ("0 nobody, 1 omp_set_num_threads()\n", in_process("env -u OMP_NUM_THREADS"));
    EXPECT_EQ("2 OMP_NUM_THREADS, 1 omp_set_num_threads()\n", in_process("OMP_NUM_THREADS=2"));
    // A number that the program sets to the user's value is still the user's. A number that torchrun sets is nobody's choice.
    EXPECT_EQ("1 OMP_NUM_THREADS, 1 OMP_NUM_THREADS\n", in_process("OMP_NUM_THREADS=1"));
    EXPECT_EQ("0 nobody, 0 nobody\n",
              in_process("OMP_NUM_THREADS=1 WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=x"));
}
