/* SPDX-License-Identifier: Apache-2.0 */
// accel_test.cc: the list of back-ends, a device's description, and the checks and the wait that all back-ends share.
#include "zoff_test.h"

#include <string.h>

#include <algorithm>

extern "C" {
#include "accel.h"
#include "try.h"
}

using namespace zoff_test;

TEST(AccelDoor, EachNameOpensItsBackEnd)
{
    for (const char *name : {"host", "emulated"}) {
        zoff_accel *opened = nullptr;
        ASSERT_ZOFF_OK(zoff_accel_open(name, 0, &opened));
        const accel held(opened);
        EXPECT_STREQ(name, zoff_accel_name(opened));
        EXPECT_EQ(strcmp(name, "host") == 0, zoff_accel_in_place(opened));
        EXPECT_EQ(opened->ops->numa_node(opened), zoff_accel_numa_node(opened));
    }
}

TEST(AccelDoor, WrongNamesAndArgumentsAreRefused)
{
    zoff_accel *opened = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "backend and out must not be NULL", zoff_accel_open(nullptr, 0, &opened));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "backend and out must not be NULL", zoff_accel_open("host", 0, nullptr));
    for (const char *name : {"", "Host", "hos", "host ", "rocm"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                          std::string("no accelerator \"") + name + "\"; it has: host, emulated, cuda (a plug-in)",
                          zoff_accel_open(name, 0, &opened));
    EXPECT_EQ(nullptr, opened) << "outputs are written on success only";
    zoff_accel_close(nullptr);
}

// A caller compiled with a shorter or longer struct gets the fields that fit, and not a byte more.
TEST(AccelDoor, InfoFillsTheStructThatTheCallerHas)
{
    zoff_accel *opened = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 3, &opened));
    const accel device(opened);
    struct {
        zoff_accel_info info;
        unsigned char behind[16];
    } whole;
    for (size_t size : {sizeof(size_t), offsetof(zoff_accel_info, index), sizeof(zoff_accel_info), sizeof whole}) {
        memset(&whole, 0x55, sizeof whole);
        whole.info.struct_size = size;
        ASSERT_ZOFF_OK(zoff_accel_get_info(opened, &whole.info));
        EXPECT_EQ(size, whole.info.struct_size);
        if (size > offsetof(zoff_accel_info, index)) {
            EXPECT_STREQ("emulated", whole.info.backend);
            EXPECT_EQ(3, whole.info.index);
            EXPECT_EQ(zoff_accel_numa_node(opened), whole.info.numa_node);
            EXPECT_EQ(0u, whole.info.pageable_copies);
        }
        const auto bytes = reinterpret_cast<const unsigned char *>(&whole);
        for (size_t i = sizeof whole.info; i < size; i++)
            ASSERT_EQ(0, bytes[i]) << "byte " << i << " of a struct of " << size << ": a field of a newer program";
        for (size_t i = size; i < sizeof whole; i++)
            ASSERT_EQ(0x55, bytes[i]) << "byte " << i << " of a struct of " << size;
    }
    whole.info.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sets it to sizeof(zoff_accel_info)", zoff_accel_get_info(opened, &whole.info));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_accel_get_info(opened, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_accel_get_info(nullptr, &whole.info));
}

TEST(AccelDoor, InPlaceDevicesHaveNoStreams)
{
    zoff_accel *opened = nullptr;
    void *stream = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("host", 0, &opened));
    const accel host(opened);
    const char *words = "\"host\" works in the caller's thread, it has no streams";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_accel_stream_open(opened, &stream));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words,
                      zoff_accel_stream_call(
                          opened, &stream, [](void *) {}, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_accel_stream_wait(opened, &stream));
    EXPECT_EQ(nullptr, stream);
}

TEST(AccelDoor, CallsOfAStreamAreChecked)
{
    zoff_accel *opened = nullptr;
    void *stream = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &opened));
    const accel device(opened);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_accel_stream_open: accel must not be NULL",
                      zoff_accel_stream_open(nullptr, &stream));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out_stream must not be NULL", zoff_accel_stream_open(opened, nullptr));
    ASSERT_ZOFF_OK(zoff_accel_stream_open(opened, &stream));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "stream and run must not be NULL",
                      zoff_accel_stream_call(opened, stream, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "stream and run must not be NULL",
                      zoff_accel_stream_call(
                          opened, nullptr, [](void *) {}, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "stream must not be NULL", zoff_accel_stream_wait(opened, nullptr));
    zoff_accel_stream_close(opened, nullptr);
    zoff_accel_stream_close(nullptr, stream);
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(opened, stream)) << "closing on no device closes nothing";
    zoff_accel_stream_close(opened, stream);
}

namespace
{
// The table of "emulated" with a call of the wait that fails.
struct failing {
    enum call { NONE, OPEN, RECORD, POLL };
    static inline call which = NONE;
    static inline int open = 0; // events
    static zoff_status count(call at) { return at == which ? zoff_base_status_fail(ZOFF_ERR_DEVICE, "it is gone") : ZOFF_OK; }
    static zoff_status event_open(zoff_accel *a, void **out)
    {
        ZOFF_TRY(count(OPEN));
        open++;
        return zoff_accel_emulated_ops.event_open(a, out);
    }
    static void event_close(zoff_accel *a, void *event)
    {
        open--;
        zoff_accel_emulated_ops.event_close(a, event);
    }
    static zoff_status event_record(zoff_accel *a, void *event, void *stream)
    {
        ZOFF_TRY(count(RECORD));
        return zoff_accel_emulated_ops.event_record(a, event, stream);
    }
    static zoff_status event_poll(zoff_accel *a, void *event)
    {
        ZOFF_TRY(count(POLL));
        return zoff_accel_emulated_ops.event_poll(a, event);
    }
};
} // namespace

TEST(AccelDoor, AWaitThatFailsSaysWhyAndLeavesNoEvent)
{
    zoff_accel *opened = nullptr;
    void *stream = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &opened));
    const accel device(opened);
    ASSERT_ZOFF_OK(zoff_accel_stream_open(opened, &stream));
    zoff_accel_ops table = zoff_accel_emulated_ops;
    table.event_open = failing::event_open;
    table.event_close = failing::event_close;
    table.event_record = failing::event_record;
    table.event_poll = failing::event_poll;
    opened->ops = &table;
    for (failing::call which : {failing::OPEN, failing::RECORD, failing::POLL}) {
        failing::which = which;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "it is gone", zoff_accel_stream_wait(opened, stream));
        EXPECT_EQ(0, failing::open);
    }
    failing::which = failing::NONE;
    int done = 0;
    for (int i = 1; i <= 3; i++) {
        ASSERT_ZOFF_OK(zoff_accel_stream_call(
            opened, stream,
            [](void *ctx) {
                usleep(2000);
                ++*static_cast<int *>(ctx);
            },
            &done));
        EXPECT_ZOFF_OK(zoff_accel_stream_wait(opened, stream));
        EXPECT_EQ(i, done) << "it did not wait";
        EXPECT_EQ(0, failing::open);
    }
    opened->ops = &zoff_accel_emulated_ops;
    zoff_accel_stream_close(opened, stream);
}
