/* SPDX-License-Identifier: Apache-2.0 */
// nccl_tests.h: shared by the tests of the NCCL plug-in: finds functions of the libraries below it, and steers them.
#ifndef ZOFF_NCCL_TESTS_H
#define ZOFF_NCCL_TESTS_H

#include "nccl_group.h"

#include "host/nccl_control.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

extern "C" {
#include "comm.h"
}

namespace zoff_test
{
inline const char *const CUDART = CUDART_VERSION / 1000 == 13 ? "libcudart.so.13" : "libcudart.so.12";
inline const char *const NCCL = "libnccl.so.2";

// A function of a library, which the loader finds as the plug-in does.
template <typename function> function in_library(const char *library, const char *name)
{
    void *found = dlopen(library, RTLD_NOW);
    EXPECT_NE(nullptr, found) << dlerror();
    void *at = found ? dlsym(found, name) : nullptr;
    EXPECT_NE(nullptr, at) << name;
    return (function)at;
}

class NcclTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        fail = in_library<decltype(fail)>(NCCL, "zoff_nccl_fail");
        brk = in_library<decltype(brk)>(NCCL, "zoff_nccl_break");
        stop = in_library<decltype(stop)>(NCCL, "zoff_nccl_stop");
        delay = in_library<decltype(delay)>(NCCL, "zoff_nccl_delay");
        pretend = in_library<decltype(pretend)>(NCCL, "zoff_nccl_pretend");
        is_under_way = in_library<decltype(is_under_way)>(NCCL, "zoff_nccl_under_way");
        communicators = in_library<decltype(communicators)>(NCCL, "zoff_nccl_count");
        ASSERT_NE(nullptr, fail);
        EXPECT_EQ(0, communicators());
    }
    void TearDown() override
    {
        in_library<void (*)()>(NCCL, "zoff_nccl_heal")();
        EXPECT_EQ(0, communicators()) << "communicators of NCCL are left";
    }

    void (*fail)(const char *call, int after) = nullptr;
    void (*brk)(int rank) = nullptr;
    void (*stop)(int rank) = nullptr;
    void (*delay)(int rank, int milliseconds) = nullptr;
    void (*pretend)(int version) = nullptr;
    int (*is_under_way)(void) = nullptr;
    int (*communicators)(void) = nullptr;
};

// A group of ranks that have joined.
class NcclGroupTest : public NcclTest
{
  protected:
    void open(unsigned size, double timeout_seconds = 20)
    {
        comms.resize(size);
        ASSERT_EQ("", open_nccl_group(20, comms));
        for (zoff_comm *one : comms)
            one->timeout_seconds = timeout_seconds;
    }
    void TearDown() override
    {
        close_group(comms);
        comms.clear();
        NcclTest::TearDown();
    }
    std::vector<zoff_comm *> comms;
};

// Open a communicator as a program does for itself.
inline ncclComm_t open_communicator(const ncclUniqueId &id, int size, int rank)
{
    ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
    settings.blocking = 0;
    ncclComm_t out = nullptr;
    ncclResult_t state = ncclInProgress;
    EXPECT_EQ(ncclInProgress,
              in_library<decltype(&ncclCommInitRankConfig)>(NCCL, "ncclCommInitRankConfig")(&out, size, id, rank, &settings));
    const auto look = in_library<decltype(&ncclCommGetAsyncError)>(NCCL, "ncclCommGetAsyncError");
    while (state == ncclInProgress)
        EXPECT_EQ(ncclSuccess, look(out, &state));
    return out;
}
} // namespace zoff_test

#endif
