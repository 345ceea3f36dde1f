/* SPDX-License-Identifier: Apache-2.0 */
// host_test.cc: the CPU as its own accelerator: one device, which uses weights and gradients in place.
#include "memory_fault.h"
#include "zoff_test.h"

extern "C" {
#include "accel.h"
}

using namespace zoff_test;

TEST(AccelHost, HasOneDevice)
{
    zoff_accel *none = nullptr;
    for (int index : {-1, 1, 7, INT32_MIN, INT32_MAX})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "accelerator \"host\" has one device, number 0; " + std::to_string(index) + " was asked for",
                          zoff_accel_open("host", index, &none));
    EXPECT_EQ(nullptr, none) << "outputs are written on success only";
}

TEST(AccelHost, TellsThatItIsTheCpuOnAllNodes)
{
    zoff_accel *first = nullptr, *second = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("host", 0, &first));
    ASSERT_ZOFF_OK(zoff_accel_open("host", 0, &second)) << "any number of users";
    const accel one(first), other(second);
    EXPECT_NE(first, second);
    zoff_accel_info info = {};
    info.struct_size = sizeof info;
    ASSERT_ZOFF_OK(zoff_accel_get_info(first, &info));
    EXPECT_STREQ("host", info.backend);
    EXPECT_STREQ("the CPU", info.name);
    EXPECT_EQ(0, info.index);
    EXPECT_EQ(-1, info.numa_node);
    EXPECT_EQ(0u, info.memory_bytes + info.pinned_bytes + info.pin_refused_bytes + info.bounced_bytes + info.pageable_copies);
}

TEST(AccelHost, MemoryThatIsNotThereIsAnError)
{
    zoff_accel *none = nullptr;
    memory_fault fault;
    fault.fail_allocation = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the host accelerator", zoff_accel_open("host", 0, &none));
    EXPECT_EQ(nullptr, none);
}
