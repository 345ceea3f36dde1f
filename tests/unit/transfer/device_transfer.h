// device_transfer.h: the same rank with weights and gradients in memory of an emulated device. It is memory of this process: a
// test reads and writes it while no stream does.
#ifndef ZOFF_DEVICE_TRANSFER_H
#define ZOFF_DEVICE_TRANSFER_H

#include "accel_fault.h"
#include "small_transfer.h"

namespace zoff_test
{
struct device_holder {
    explicit device_holder(unsigned seed) : device(seed), there(device.memory()) {}
    test_device device;
    std::shared_ptr<device_memory> there;
};

class device_transfer : public device_holder, public small_transfer
{
  public:
    explicit device_transfer(zoff_comm *ranks = nullptr, unsigned seed = 0)
        : device_holder(seed), small_transfer(ranks, device.accel)
    {
        make_memory = [this](size_t bytes) { return there->alloc(bytes); };
    }
    ~device_transfer() { let_go = true; }

    // Block a stream from here on, until it is released.
    void hold(void *stream)
    {
        let_go = false;
        const auto wait = [](void *ctx) {
            while (!*static_cast<std::atomic<bool> *>(ctx))
                usleep(100);
        };
        ASSERT_ZOFF_OK(t.accel->ops->streams.call(t.accel, stream, wait, &let_go));
    }
    // Wait until a stream is idle.
    void settle(void *stream) { ASSERT_ZOFF_OK(zoff_transfer_streams_sync(&t, stream)); }

    std::atomic<bool> let_go{false};
};
} // namespace zoff_test

#endif
