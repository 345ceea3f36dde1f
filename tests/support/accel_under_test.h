/* SPDX-License-Identifier: Apache-2.0 */
// accel_under_test.h: selects the accelerator of a test: ZOFF_TEST_ACCEL, or "emulated". If it is not available, all tests of
// the program are skipped with the library's message.
#ifndef ZOFF_ACCEL_UNDER_TEST_H
#define ZOFF_ACCEL_UNDER_TEST_H

#include "zoff_test.h"

extern "C" {
#include "accel.h"
}

namespace zoff_test
{
inline const char *accel_under_test()
{
    const char *name = getenv("ZOFF_TEST_ACCEL");
    return name && *name ? name : "emulated";
}

class skips_without_accel : public testing::Environment
{
    void SetUp() override
    {
        zoff_accel *found = nullptr;
        if (zoff_accel_open(accel_under_test(), 0, &found) == ZOFF_ERR_UNSUPPORTED)
            GTEST_SKIP() << zoff_last_error();
        zoff_accel_close(found);
    }
};
inline testing::Environment *const skipping = testing::AddGlobalTestEnvironment(new skips_without_accel);

// A program's memory on a device, valid as long as both exist.
class device_memory
{
  public:
    explicit device_memory(zoff_accel *accel_, const zoff_accel_ops *ops_) : accel(accel_), ops(ops_) {}
    ~device_memory() { let_go(); }
    device_memory(const device_memory &) = delete;
    char *alloc(size_t bytes)
    {
        void *memory = nullptr;
        EXPECT_ZOFF_OK(ops->alloc(accel, bytes, &memory));
        allocated.push_back(memory);
        return (char *)memory;
    }
    // Call before the device is closed.
    void let_go()
    {
        for (void *memory : allocated)
            ops->free(accel, memory);
        allocated.clear();
    }

  private:
    zoff_accel *accel;
    const zoff_accel_ops *ops;
    std::vector<void *> allocated;
};
} // namespace zoff_test

#endif
