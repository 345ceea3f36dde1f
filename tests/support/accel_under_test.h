// accel_under_test.h: which accelerator a test is about: ZOFF_TEST_ACCEL, or "emulated". Where it is not to be had, all tests
// of the program are skipped, with the library's words.
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

// Memory of a program that a device may read and write: of "cuda" pinned, for as long as both live.
class device_memory
{
  public:
    explicit device_memory(zoff_accel *accel_) : accel(accel_) {}
    ~device_memory() { let_go(); }
    device_memory(const device_memory &) = delete;
    void add(void *memory, size_t bytes)
    {
        if (bytes && accel) {
            EXPECT_ZOFF_OK(ops_of(accel)->pin(accel, memory, bytes));
            ranges.push_back(memory);
        }
    }
    // The device goes away.
    void let_go()
    {
        for (void *memory : ranges)
            ops_of(accel)->unpin(accel, memory);
        ranges.clear();
        accel = nullptr;
    }

  private:
    // Not those that a test has put in front of it.
    static const zoff_accel_ops *ops_of(zoff_accel *a) { return a->ops; }

    zoff_accel *accel;
    std::vector<void *> ranges;
};
} // namespace zoff_test

#endif
