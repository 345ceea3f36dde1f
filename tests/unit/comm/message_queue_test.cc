// message_queue_test.cc: headers arrive in order and unchanged, lanes send bytes in messages of limited size, and a failure of
// the transport is an error with its text.
#include "memory_fault.h"
#include "message_queues.h"

#include <functional>
#include <numeric>
#include <set>

#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
#include <sanitizer/lsan_interface.h>
#endif

using namespace zoff_test;

namespace
{
const size_t HEAD_BYTES = offsetof(zoff_comm_header, data);

// Stands between a queue and its transport: it sees messages, and can delay the news of their arrival.
struct watched {
    explicit watched(const zoff_comm_transport &transport_) : real(transport_), seen(transport_)
    {
        seen.ctx = this;
        seen.send = [](void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out) {
            auto w = static_cast<watched *>(ctx);
            const int ret = w->refuses ? w->refuse() : w->real.send(w->real.ctx, to, tag, data, bytes, out);
            if (ret < 0)
                return ret;
            w->sent.push_back(bytes);
            w->memory.insert(data);
            w->sends.insert(*out);
            w->most_sends = std::max(w->most_sends, w->sends.size());
            return ret;
        };
        seen.receive = [](void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out) {
            auto w = static_cast<watched *>(ctx);
            w->receives++;
            return w->refuses ? w->refuse() : w->real.receive(w->real.ctx, from, tag, data, bytes, out);
        };
        seen.test = [](void *ctx, void **request) {
            auto w = static_cast<watched *>(ctx);
            if (w->holds && w->sends.count(*request))
                return 0;
            void *const asked = *request;
            const int ret = w->real.test(w->real.ctx, request);
            if (ret == 1)
                w->sends.erase(asked);
            return ret;
        };
        seen.cancel = [](void *ctx, void **request) {
            auto w = static_cast<watched *>(ctx);
            w->cancels++;
            return w->real.cancel(w->real.ctx, request);
        };
        seen.error = [](void *ctx) -> const char * {
            auto w = static_cast<watched *>(ctx);
            return w->is_silent ? nullptr : w->real.error(w->real.ctx);
        };
        seen.close = [](void *ctx, int is_clean) {
            auto w = static_cast<watched *>(ctx);
            w->clean = is_clean;
            w->real.close(w->real.ctx, is_clean);
        };
    }
    int refuse()
    {
        refuses--;
        return -1;
    }
    zoff_comm_transport real, seen;
    std::vector<size_t> sent;      // bytes of each message
    std::set<const void *> memory; // addresses from which they were sent
    std::set<void *> sends;        // sends in flight
    size_t most_sends = 0;
    int receives = 0, cancels = 0, clean = -1;
    int refuses = 0; // sends and receives that fail
    bool holds = false, is_silent = false;
};

// Three ranks, of which rank 0 is watched.
class MessageQueue : public testing::Test
{
  protected:
    MessageQueue()
        : watch(office.transport(0, 1000)), queues{open_queue(watch.seen), open_queue(office.transport(1, 1000)),
                                                   open_queue(office.transport(2))}
    {
    }
    // The next header of rank `rank`.
    const zoff_comm_header *take(unsigned rank)
    {
        const zoff_comm_header *header = nullptr;
        const zoff_status status = zoff_comm_message_queue_take(queues[rank].get(), &header);
        EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_PENDING) << zoff_last_error();
        return header;
    }
    zoff_status send(unsigned from, unsigned to, const zoff_comm_header &header)
    {
        return zoff_comm_message_queue_send(queues[from].get(), to, &header);
    }
    zoff_comm_lane lane(std::vector<char> &memory, bool sends, unsigned peer)
    {
        zoff_comm_lane lane = {};
        lane.at = memory.data();
        lane.left = memory.size();
        lane.sends = sends;
        lane.peer = peer;
        lane.tag = 5;
        return lane;
    }
    post_office office{3};
    watched watch;
    queue_ptr queues[3];
};
} // namespace

// The order is kept also with more headers than posted receives.
TEST_F(MessageQueue, HeadersOfARankKeepTheirOrder)
{
    enum { EACH = 100 };
    for (uint64_t i = 0; i < EACH; i++) {
        ASSERT_ZOFF_OK(send(1, 0, header_of(i)));
        ASSERT_ZOFF_OK(send(2, 0, header_of(i)));
    }
    uint64_t next[3] = {};
    for (unsigned i = 0; i < 2 * EACH; i++) {
        const zoff_comm_header *header = take(0);
        ASSERT_NE(nullptr, header) << i;
        ASSERT_TRUE(header->from == 1 || header->from == 2);
        ASSERT_EQ(next[header->from]++, header->number);
    }
    EXPECT_EQ(nullptr, take(0));
    EXPECT_EQ(nullptr, take(1)) << "they are not for the others";
}

TEST_F(MessageQueue, DataOfAnySizeComesWithAHeader)
{
    const size_t small = 256 - HEAD_BYTES; // the capacity of a small letter
    for (const size_t bytes : {size_t{0}, size_t{1}, small, small + 1, sizeof zoff_comm_header{}.data}) {
        ASSERT_ZOFF_OK(send(0, 1, header_of(3, 4, bytes)));
        EXPECT_EQ(HEAD_BYTES + bytes, watch.sent.back()) << "and no more is sent";
        const zoff_comm_header *header = take(1);
        ASSERT_NE(nullptr, header);
        EXPECT_EQ(0u, header->from);
        EXPECT_EQ(4u, header->channel);
        EXPECT_TRUE(has_data_of(*header, bytes)) << bytes;
    }
}

TEST_F(MessageQueue, AHeaderStaysUntilTheNextIsTaken)
{
    ASSERT_ZOFF_OK(send(1, 0, header_of(1, 0, 10)));
    const zoff_comm_header *header = take(0);
    ASSERT_NE(nullptr, header);
    for (uint64_t i = 2; i < 60; i++)
        ASSERT_ZOFF_OK(send(1, 0, header_of(i, 0, 10)));
    EXPECT_EQ(1u, header->number);
    EXPECT_TRUE(has_data_of(*header, 10));
    header = take(0);
    ASSERT_NE(nullptr, header);
    EXPECT_EQ(2u, header->number);
}

TEST_F(MessageQueue, AHeaderThatIsGivenBackIsTakenAgain)
{
    for (uint64_t i = 1; i <= 2; i++)
        ASSERT_ZOFF_OK(send(1, 0, header_of(i)));
    const uint64_t numbers[] = {1, 1, 2};
    for (const uint64_t &number : numbers) {
        const zoff_comm_header *header = take(0);
        ASSERT_NE(nullptr, header);
        EXPECT_EQ(number, header->number);
        if (&number == &numbers[0])
            zoff_comm_message_queue_untake(queues[0].get());
    }
}

TEST_F(MessageQueue, AllOthersAreInformed)
{
    const zoff_comm_header header = header_of(9);
    zoff_comm_message_queue_say(queues[0].get(), &header);
    EXPECT_EQ(2u, watch.sent.size());
    for (unsigned rank : {1, 2}) {
        const zoff_comm_header *taken = take(rank);
        ASSERT_NE(nullptr, taken);
        EXPECT_EQ(9u, taken->number);
    }
}

// The memory of a header in flight stays; the memory of one that has arrived is used again.
TEST_F(MessageQueue, HeadersOnTheirWayKeepTheirMemory)
{
    watch.holds = true;
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(send(0, 1, header_of(i)));
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_flush(queues[0].get()));
    EXPECT_EQ(3u, watch.memory.size());
    watch.holds = false;
    EXPECT_ZOFF_OK(zoff_comm_message_queue_flush(queues[0].get()));
    ASSERT_ZOFF_OK(send(0, 1, header_of(3)));
    EXPECT_EQ(3u, watch.memory.size());
    ASSERT_ZOFF_OK(send(0, 1, header_of(4, 0, 1000)));
    EXPECT_EQ(4u, watch.memory.size()) << "a large one has memory of its own";
}

TEST_F(MessageQueue, ReservedHeadersNeedNoMemory)
{
    const size_t most = sizeof zoff_comm_header{}.data;
    watch.holds = true; // no letter is used again
    for (const size_t bytes : {size_t{10}, most, size_t{10}}) {
        ASSERT_ZOFF_OK(zoff_comm_message_queue_reserve(queues[0].get(), 3, bytes));
        memory_countdown::left = 1;
        for (uint64_t i = 0; i < 3; i++)
            EXPECT_ZOFF_OK(send(0, 1, header_of(i, 0, bytes)));
        EXPECT_EQ(1, memory_countdown::left);
        memory_countdown::left = 0;
    }
    memory_countdown::left = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", zoff_comm_message_queue_reserve(queues[0].get(), 2, most));
    EXPECT_ZOFF_OK(send(0, 1, header_of(3))) << "a large letter serves as a small one";
    watch.holds = false;
}

TEST_F(MessageQueue, AHeaderThatThisVersionDoesNotSendIsRefused)
{
    const std::function<void(zoff_comm_header &)> changes[] = {[](zoff_comm_header &h) { h.magic++; },
                                                               [](zoff_comm_header &h) { h.from = 3; },
                                                               [](zoff_comm_header &h) { h.data_bytes = sizeof h.data + 1; },
                                                               [](zoff_comm_header &h) { h.says = ZOFF_COMM_WAITS + 1; },
                                                               [](zoff_comm_header &h) { h.kind = ZOFF_COMM_BARRIER + 1; },
                                                               [](zoff_comm_header &h) { h.stream = ZOFF_COMM_STREAMS; },
                                                               [](zoff_comm_header &h) { h.tag = ZOFF_COMM_TAGS; }};
    ASSERT_ZOFF_OK(send(0, 2, header_of(1)));
    const zoff_comm_header good = *take(2);
    for (const auto &change : changes) {
        zoff_comm_header bad = good;
        change(bad);
        const zoff_comm_transport stranger = office.transport(0);
        void *request = nullptr;
        ASSERT_EQ(0, stranger.send(stranger.ctx, 1, 0, &bad, sizeof bad, &request));
        ASSERT_EQ(1, stranger.test(stranger.ctx, &request));
        queue_ptr reader = open_queue(office.transport(1));
        const zoff_comm_header *header = nullptr;
        SCOPED_TRACE(&change - changes);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1: a message is not from this version of zoff",
                          zoff_comm_message_queue_take(queues[1].get(), &header));
        queues[1] = std::move(reader); // the next one uses the next receives
    }
}

TEST_F(MessageQueue, ALaneMovesBytesInMessagesOfLimitedSize)
{
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{1001}, size_t{5001}}) {
        std::vector<char> in(bytes), out(bytes);
        for (size_t i = 0; i < bytes; i++)
            in[i] = (char)(i * 7);
        zoff_comm_lane there = lane(in, true, 1), here = lane(out, false, 0);
        watch.sent.clear();
        if (bytes) {
            EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_move(queues[0].get(), &there)) << "it is not open";
            EXPECT_TRUE(watch.sent.empty());
        }
        there.is_open = here.is_open = true;
        zoff_status sends = ZOFF_PENDING, receives = ZOFF_PENDING;
        for (int turn = 0; turn < 100 && (sends == ZOFF_PENDING || receives == ZOFF_PENDING); turn++) {
            sends = zoff_comm_message_queue_move(queues[0].get(), &there);
            receives = zoff_comm_message_queue_move(queues[1].get(), &here);
        }
        EXPECT_ZOFF_OK(sends);
        EXPECT_ZOFF_OK(receives);
        EXPECT_EQ(in, out);
        ASSERT_EQ((bytes + 999) / 1000, watch.sent.size());
        EXPECT_EQ(bytes, std::accumulate(watch.sent.begin(), watch.sent.end(), size_t{0}));
        for (const size_t message : watch.sent)
            EXPECT_GE(1000u, message);
    }
    EXPECT_EQ(2u, watch.most_sends) << "few are in flight";
}

TEST_F(MessageQueue, ReceivesThatNothingComesForAreCalledBackOnce)
{
    std::vector<char> out(2000);
    zoff_comm_lane here = lane(out, false, 1);
    here.is_open = true;
    ASSERT_EQ(ZOFF_PENDING, zoff_comm_message_queue_move(queues[0].get(), &here));
    EXPECT_EQ(2u, here.flying);
    zoff_comm_message_queue_cancel(queues[0].get(), &here);
    zoff_comm_message_queue_cancel(queues[0].get(), &here);
    EXPECT_EQ(2, watch.cancels);
    EXPECT_ZOFF_OK(zoff_comm_message_queue_move(queues[0].get(), &here));
    EXPECT_EQ(0u, here.flying);
}

TEST_F(MessageQueue, ErrorsHaveTheTransportsMessage)
{
    const char *words = "rank 0: messages failed: the post office is on strike";
    const zoff_comm_header *header = nullptr;
    std::vector<char> memory(10);
    zoff_comm_lane there = lane(memory, true, 1);
    there.is_open = true;
    office.fails_after = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, send(0, 1, header_of(1)));
    office.fails_after = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_message_queue_take(queues[0].get(), &header));
    office.fails_after = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, zoff_comm_message_queue_move(queues[0].get(), &there));
    watch.is_silent = true;
    office.fails_after = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0: messages failed: it gives no reason", send(0, 1, header_of(1)));
    ASSERT_ZOFF_OK(send(0, 1, header_of(2))) << "what failed is not in the way of the next";
    header = take(1);
    ASSERT_NE(nullptr, header);
    EXPECT_EQ(2u, header->number);
}

TEST(MessageQueueLife, ATransportIsTheCallersUntilTheQueueIsOpen)
{
    post_office office(2);
    const zoff_comm_transport transport = office.transport(0);
    zoff_comm_message_queue *made = nullptr;
    int failed = 0;
    for (; failed < 100; failed++) {
        office.fails_after = failed;
        const zoff_status status = zoff_comm_message_queue_open(&transport, false, &made);
        office.fails_after = -1;
        if (status == ZOFF_OK)
            break;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "on strike", status);
        EXPECT_EQ(nullptr, made);
    }
    EXPECT_LT(1, failed) << "it listens with several receives";
    EXPECT_EQ(0u, office.closed);
    zoff_comm_message_queue_close(made, true);
    EXPECT_EQ(1u, office.closed);
    made = nullptr;
    EXPECT_EQ(1, fail_each_allocation([&] { return zoff_comm_message_queue_open(&transport, false, &made); }));
    zoff_comm_message_queue_close(made, true);
}

// The transport of threads fails only for lack of memory.
TEST(MessageQueueLife, ALocalTransportIsTriedAgain)
{
    post_office office(2);
    watched watch(office.transport(0, 1000));
    const queue_ptr ours = open_queue(watch.seen, true), theirs = open_queue(office.transport(1, 1000));
    const zoff_comm_header *header = nullptr;
    watch.refuses = 2;
    for (uint64_t i = 0; i < 3; i++) {
        const zoff_comm_header sent = header_of(i);
        ASSERT_ZOFF_OK(zoff_comm_message_queue_send(ours.get(), 1, &sent));
    }
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_take(theirs.get(), &header)) << "the second one waits for the first";
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_flush(ours.get()));
    EXPECT_EQ(0, watch.refuses);
    EXPECT_ZOFF_OK(zoff_comm_message_queue_flush(ours.get()));
    for (uint64_t i = 0; i < 3; i++) {
        ASSERT_ZOFF_OK(zoff_comm_message_queue_take(theirs.get(), &header));
        EXPECT_EQ(i, header->number);
    }
    for (uint64_t i = 0; i < 2; i++) {
        const zoff_comm_header sent = header_of(i);
        ASSERT_ZOFF_OK(zoff_comm_message_queue_send(theirs.get(), 0, &sent));
    }
    ASSERT_ZOFF_OK(zoff_comm_message_queue_take(ours.get(), &header));
    watch.refuses = 1;
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_take(ours.get(), &header));
    ASSERT_ZOFF_OK(zoff_comm_message_queue_take(ours.get(), &header));
    EXPECT_EQ(1u, header->number);
    std::vector<char> in(1500, 7), out(1500);
    zoff_comm_lane there = {}, here = {};
    there.at = in.data();
    here.at = out.data();
    there.left = here.left = in.size();
    there.is_open = here.is_open = there.sends = true;
    there.peer = 1;
    there.tag = here.tag = 5;
    watch.refuses = 2;
    for (zoff_status sends = ZOFF_PENDING, receives = ZOFF_PENDING; sends != ZOFF_OK || receives != ZOFF_OK;) {
        ASSERT_LE(ZOFF_OK, sends = zoff_comm_message_queue_move(ours.get(), &there));
        ASSERT_LE(ZOFF_OK, receives = zoff_comm_message_queue_move(theirs.get(), &here));
    }
    EXPECT_EQ(in, out);
}

TEST(MessageQueueLife, OneRankAloneListensToNobody)
{
    post_office office(1);
    watched watch(office.transport(0));
    const queue_ptr queue = open_queue(watch.seen);
    const zoff_comm_header *header = nullptr;
    EXPECT_EQ(ZOFF_PENDING, zoff_comm_message_queue_take(queue.get(), &header));
    EXPECT_EQ(0, watch.receives);
}

TEST(MessageQueueLife, ACloseIsCleanWhenNothingIsUnderWay)
{
    post_office office(2);
    for (const bool clean : {true, false}) {
        watched watch(office.transport(0));
        queue_ptr queue = open_queue(watch.seen);
        zoff_comm_message_queue_close(queue.release(), clean);
        EXPECT_EQ((int)clean, watch.clean);
    }
#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
    __lsan::ScopedDisabler disabler; // bytes in flight are left to the network
#endif
    watched watch(office.transport(0));
    queue_ptr queue = open_queue(watch.seen);
    const zoff_comm_header header = header_of(1);
    watch.holds = true;
    ASSERT_ZOFF_OK(zoff_comm_message_queue_send(queue.get(), 1, &header));
    zoff_comm_message_queue_close(queue.release(), true);
    EXPECT_EQ(0, watch.clean);
}
