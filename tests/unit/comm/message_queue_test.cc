/* SPDX-License-Identifier: Apache-2.0 */
// message_queue_test.cc: headers that this version does not send. tests/contract/comm shows, on every
// back-end, what queues carry and how they fail.
#include "post_office.h"

#include <functional>

extern "C" {
#include "message_queue_priv.h"
}

using namespace zoff_test;

namespace
{
struct queue_closer {
    void operator()(zoff_comm_message_queue *queue) const { zoff_comm_message_queue_close(queue, true); }
};
using queue_ptr = std::unique_ptr<zoff_comm_message_queue, queue_closer>;

queue_ptr open_queue(const zoff_comm_transport &transport)
{
    zoff_comm_message_queue *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_message_queue_open(&transport, 1 << 20, false, &made));
    return queue_ptr(made);
}
} // namespace

TEST(MessageQueue, AHeaderThatThisVersionDoesNotSendIsRefused)
{
    const std::function<void(zoff_comm_header &)> changes[] = {[](zoff_comm_header &h) { h.magic++; },
                                                               [](zoff_comm_header &h) { h.from = 3; },
                                                               [](zoff_comm_header &h) { h.data_bytes = sizeof h.data + 1; },
                                                               [](zoff_comm_header &h) { h.says = ZOFF_COMM_WAITS + 1; },
                                                               [](zoff_comm_header &h) { h.kind = ZOFF_COMM_BARRIER + 1; },
                                                               [](zoff_comm_header &h) { h.stream = ZOFF_COMM_STREAMS; },
                                                               [](zoff_comm_header &h) { h.tag = ZOFF_COMM_TAGS; }};
    post_office office(3);
    const queue_ptr sender = open_queue(office.transport(0)), other = open_queue(office.transport(2));
    const zoff_comm_header *taken = nullptr;
    zoff_comm_header sent = {};
    sent.number = 1;
    ASSERT_ZOFF_OK(zoff_comm_message_queue_send(sender.get(), 2, &sent));
    ASSERT_ZOFF_OK(zoff_comm_message_queue_take(other.get(), &taken));
    const zoff_comm_header good = *taken;
    queue_ptr reader = open_queue(office.transport(1));
    for (const auto &change : changes) {
        zoff_comm_header bad = good;
        change(bad);
        const zoff_comm_transport stranger = office.transport(0);
        void *request = nullptr;
        ASSERT_EQ(0, stranger.send(stranger.ctx, 1, 0, &bad, sizeof bad, &request));
        ASSERT_EQ(1, stranger.test(stranger.ctx, &request));
        queue_ptr next = open_queue(office.transport(1));
        SCOPED_TRACE(&change - changes);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1: a message is not from this version of zoff",
                          zoff_comm_message_queue_take(reader.get(), &taken));
        reader = std::move(next); // it uses the next receives
    }
}
