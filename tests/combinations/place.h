/* SPDX-License-Identifier: Apache-2.0 */
// place.h: the memory that holds a trainer's weights and gradients, and the stream that orders access to it.
#ifndef ZOFF_TESTS_COMBINATIONS_PLACE_H
#define ZOFF_TESTS_COMBINATIONS_PLACE_H
#include <zoff/accel.h>

#include <memory>
#include <string>

namespace combinations
{
class place
{
  public:
    virtual ~place() = default;
    virtual void *alloc(size_t bytes) = 0;
    virtual void free(void *memory) = 0;
    virtual void put(void *there, const void *here, size_t bytes) = 0;
    virtual void get(void *here, const void *there, size_t bytes) = 0; // waits for everything enqueued on the stream
    virtual void wait() = 0;
    virtual zoff_accel *accel() { return nullptr; }
    virtual void *stream() { return nullptr; }
};

// Makes the host, the device "emulated", or a CUDA device (for cells with NCCL). Returns NULL with a reason if there is no such
// device.
std::unique_ptr<place> make_host();
std::unique_ptr<place> make_emulated(std::string *reason);
std::unique_ptr<place> make_cuda(int index, std::string *reason);
} // namespace combinations
#endif
