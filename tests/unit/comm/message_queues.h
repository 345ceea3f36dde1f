// message_queues.h: the queues of several ranks over a network of threads, and headers.
#ifndef ZOFF_TESTS_MESSAGE_QUEUES_H
#define ZOFF_TESTS_MESSAGE_QUEUES_H

#include "post_office.h"

extern "C" {
#include "message_queue_priv.h"
}

namespace zoff_test
{
struct queue_closer {
    void operator()(zoff_comm_message_queue *queue) const { zoff_comm_message_queue_close(queue, true); }
};
using queue_ptr = std::unique_ptr<zoff_comm_message_queue, queue_closer>;

inline queue_ptr open_queue(const zoff_comm_transport &transport, bool is_local = false)
{
    zoff_comm_message_queue *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_message_queue_open(&transport, is_local, &made));
    return queue_ptr(made);
}

// A header of operation `number` of a channel, with this many bytes that count up from the number.
inline zoff_comm_header header_of(uint64_t number, uint32_t channel = 0, size_t data_bytes = 0)
{
    zoff_comm_header header = {};
    header.number = number;
    header.channel = channel;
    header.data_bytes = data_bytes;
    for (size_t i = 0; i < data_bytes; i++)
        header.data[i] = (char)(number + i);
    return header;
}

inline bool has_data_of(const zoff_comm_header &header, size_t data_bytes)
{
    const zoff_comm_header want = header_of(header.number, header.channel, data_bytes);
    return header.data_bytes == data_bytes && memcmp(want.data, header.data, data_bytes) == 0;
}
} // namespace zoff_test

#endif
