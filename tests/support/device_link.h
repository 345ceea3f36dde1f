/* SPDX-License-Identifier: Apache-2.0 */
// device_link.h: the stream over which a store of a test gets its chunks to a device.
#ifndef ZOFF_DEVICE_LINK_H
#define ZOFF_DEVICE_LINK_H

#include "zoff_test.h"

extern "C" {
#include "accel.h"
#include "offload.h"
}

namespace zoff_test
{
class device_link : public zoff_store_link
{
  public:
    explicit device_link(zoff_accel *of) : zoff_store_link{}
    {
        accel = of;
        progress = &waits;
        poller = &device;
        advice = "a test has no other place";
        device.timeout_seconds = -1;
        zoff_base_progress_add(&waits, &device);
        EXPECT_ZOFF_OK(accel->ops->streams.open(accel, &stream));
    }
    ~device_link() { close(); }
    device_link(const device_link &) = delete;

    // Before the store is closed: copies may be in flight.
    void close()
    {
        if (stream)
            accel->ops->streams.close(accel, stream);
        stream = nullptr;
    }

  private:
    zoff_progress waits = {};
    zoff_poller device = {};
};
} // namespace zoff_test

#endif
