/* SPDX-License-Identifier: Apache-2.0 */
// aio_choice.h: a file and a queue on it, with the back-end that a test names.
#ifndef ZOFF_TESTS_AIO_CHOICE_H
#define ZOFF_TESTS_AIO_CHOICE_H

#include "aio_place.h"

namespace zoff_test
{
class aio_choice : public testing::Test
{
  protected:
    zoff_status open(const char *backend)
    {
        zoff_aio_opts opts = aio_opts(backend);
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        q.reset(raw);
        return status;
    }
    // Returns "" if a write and a read give the same bytes.
    std::string round_trip()
    {
        aio_buffer out(3000001, 1), in(3000001);
        if (aio_write(q.get(), 5, out.data, out.bytes) != ZOFF_OK || aio_read(q.get(), 5, in.data, in.bytes) != ZOFF_OK)
            return zoff_last_error();
        return in == out ? "" : "other bytes came back";
    }
    static bool have_uring()
    {
        char page[248] = {}; // struct io_uring_params
        long fd = syscall(SYS_io_uring_setup, 4, page);
        if (fd >= 0)
            close(static_cast<int>(fd));
        return fd >= 0;
    }
    void SetUp() override { unsetenv("ZOFF_AIO"); }
    void TearDown() override { unsetenv("ZOFF_AIO"); }
    scratch_folder folder;
    std::string path = folder.file("file");
    aio q;
};
} // namespace zoff_test

#endif
