// message_queue_test.cc: headers that this version does not send, and the tags of messages. tests/contract/comm shows, on every
// back-end, what queues carry and how they fail.
#include "post_office.h"

#include <functional>
#include <set>

extern "C" {
#include "message_queue_priv.h"
#include "messages_priv.h"
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
    EXPECT_ZOFF_OK(zoff_comm_message_queue_open(&transport, false, &made));
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

TEST(Mailbox, TagsAreGivenOutInTurn)
{
    const auto m = std::make_unique<zoff_comm_messages>();
    std::set<int> given;
    for (int i = 1; i < ZOFF_COMM_TAGS; i++)
        given.insert(zoff_comm_mailbox_tag(m.get()));
    EXPECT_EQ((size_t)ZOFF_COMM_TAGS - 1, given.size());
    EXPECT_EQ(1, *given.begin()) << "0 is that of headers";
    EXPECT_EQ(ZOFF_COMM_TAGS - 1, *given.rbegin());
    m->tags[7] = false;
    EXPECT_EQ(7, zoff_comm_mailbox_tag(m.get())) << "0 is passed over";
    EXPECT_EQ(0, zoff_comm_mailbox_tag(m.get())) << "all are in use";
    m->tags[7] = m->tags[900] = false;
    m->last_tag = 6;
    EXPECT_EQ(7, zoff_comm_mailbox_tag(m.get()));
    m->tags[7] = false;
    EXPECT_EQ(900, zoff_comm_mailbox_tag(m.get())) << "7 was in use a moment ago";
    EXPECT_EQ(7, zoff_comm_mailbox_tag(m.get()));
}
