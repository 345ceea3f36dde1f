/* SPDX-License-Identifier: Apache-2.0 */
// openmp_late_test.cc: libzoff.so is loaded into a program without OpenMP, and works. Then a library brings OpenMP: its threads
// become the team of the next steps. So does Python that imports zoff before its framework.
#include "in_process.h"

#include <dlfcn.h>
#include <zoff/zoff.h>

#include <vector>

namespace
{
void *load(const char *path, int mode)
{
    void *library = dlopen(path, RTLD_NOW | mode);
    EXPECT_TRUE(library) << dlerror();
    return library;
}

#define CALL(name) ((decltype(&name))dlsym(zoff, #name))

// Whether steps become regions of the library that is loaded after the first one.
void tell(int mode)
{
    enum { COUNT = 1 << 17 };
    std::vector<float> value(COUNT, 1), grad(COUNT, 1);
    zoff_config *config = nullptr;
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    zoff_engine *e = nullptr;
    ASSERT_FALSE(dlsym(RTLD_DEFAULT, "GOMP_parallel")) << "the program has OpenMP already";
    void *zoff = load(ZOFF_LIBRARY, mode);
    ASSERT_TRUE(zoff);
    ASSERT_EQ(ZOFF_OK, CALL(zoff_config_open)(nullptr, &config));
    opts.config = config;
    opts.threads = 2;
    ASSERT_EQ(ZOFF_OK, CALL(zoff_engine_create)(&opts, &e));
    d.count = COUNT;
    d.value = value.data();
    d.grad = grad.data();
    ASSERT_EQ(ZOFF_OK, CALL(zoff_engine_add_param)(e, &d, nullptr));
    ASSERT_EQ(ZOFF_OK, CALL(zoff_engine_seal)(e));
    const auto step = [&] { ASSERT_EQ(ZOFF_OK, CALL(zoff_step)(e, nullptr, nullptr)) << CALL(zoff_last_error)(); };
    step();
    void *late = load(LATE_LIBRARY, RTLD_GLOBAL);
    ASSERT_TRUE(late);
    auto *const region = (void (*)(int))dlsym(late, "late_region");
    auto *const regions = (unsigned (*)())dlsym(late, "late_regions");
    ASSERT_TRUE(region && regions);
    // A region of the program, then a step. The region that only looks who is in the pool comes once.
    unsigned joined = 0;
    const time_t end = time(nullptr) + 30;
    while (joined < 3 && time(nullptr) < end) { // at first threads may still be starting
        region(2);
        const unsigned before = regions();
        step();
        joined = regions() > before ? joined + 1 : 0;
        usleep(5000);
    }
    CALL(zoff_engine_destroy)(e);
    CALL(zoff_config_close)(config);
    if (!testing::Test::HasFailure())
        printf("tell %s\n", joined == 3 ? "the team is the program's" : "the team is zoff's own");
}

void expect_late_pool(int mode)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        GTEST_SKIP() << "one CPU: no pool spins";
    if (getenv("ZOFF_TEST_TELL"))
        tell(mode);
    else
        EXPECT_EQ("the team is the program's\n", in_process("OMP_WAIT_POLICY=active"));
}
} // namespace

TEST(openmp_late, a_local_library_finds_a_later_runtime)
{
    expect_late_pool(RTLD_LOCAL);
}

TEST(openmp_late, a_global_library_finds_a_later_runtime)
{
    expect_late_pool(RTLD_GLOBAL);
}
