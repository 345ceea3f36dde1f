// mailbox_test.cc: headers that arrive before this rank needs them are kept in order. Tags are assigned in turn. Other ranks
// are told of a channel that is closed.
#include "memory_fault.h"
#include "message_queues.h"

#include <set>

extern "C" {
#include "book_priv.h"
#include "messages_priv.h"
}

using namespace zoff_test;

namespace
{
// The numbers of a list, which is freed.
std::vector<uint64_t> numbers_of(zoff_comm_early *list)
{
    std::vector<uint64_t> numbers;
    for (zoff_comm_early *one = list; one; one = one->next) {
        numbers.push_back(one->header.number);
        EXPECT_TRUE(has_data_of(one->header, one->header.data_bytes));
    }
    zoff_comm_mailbox_free(list);
    return numbers;
}
using numbers = std::vector<uint64_t>;

// Rank 0 of two, and the messages that the other one receives.
class Mailbox : public testing::Test
{
  protected:
    Mailbox() : ours(open_queue(office.transport(0))), theirs(open_queue(office.transport(1)))
    {
        m->comm.size = 2;
        m->queue = ours.get();
        m->unknown_end = &m->unknown;
        EXPECT_ZOFF_OK(zoff_comm_prepare(&m->comm));
    }
    ~Mailbox() override
    {
        zoff_comm_mailbox_free(m->unknown);
        zoff_comm_forget(m->comm.book);
    }
    // A channel with this id, open or joined.
    void open(uint32_t id)
    {
        channel.id = id;
        ASSERT_ZOFF_OK(zoff_comm_mailbox_open(&m->comm, &channel));
        m->comm.book->open = &channel;
    }
    void close()
    {
        zoff_comm_mailbox_close(&m->comm, &channel);
        m->comm.book->open = nullptr;
        EXPECT_EQ(nullptr, channel.port);
    }
    zoff_comm_port *port() { return static_cast<zoff_comm_port *>(channel.port); }
    const zoff_comm_header *heard()
    {
        const zoff_comm_header *header = nullptr;
        EXPECT_LE(ZOFF_OK, zoff_comm_message_queue_take(theirs.get(), &header)) << zoff_last_error();
        return header;
    }
    zoff_comm_work work_of(zoff_comm_stream stream, uint64_t number)
    {
        zoff_comm_work work = {};
        work.call.channel = &channel;
        work.call.stream = stream;
        work.number = number;
        return work;
    }
    // A header for an unknown channel is kept.
    void keep_unknown(uint64_t number, uint32_t id)
    {
        zoff_comm_port *found = port();
        const zoff_comm_header header = header_of(number, id, 20);
        ASSERT_ZOFF_OK(zoff_comm_mailbox_find(m.get(), &header, &found));
        EXPECT_EQ(nullptr, found);
    }
    post_office office{2};
    queue_ptr ours, theirs;
    std::unique_ptr<zoff_comm_messages> m = std::make_unique<zoff_comm_messages>();
    zoff_comm_channel channel = {};
};
} // namespace

TEST_F(Mailbox, HeadersOfAnOperationAreKeptUntilItStarts)
{
    ASSERT_NO_FATAL_FAILURE(open(1));
    const size_t most = sizeof zoff_comm_header{}.data;
    for (const size_t bytes : {size_t{0}, size_t{1}, most}) {
        zoff_comm_header header = header_of(7, 1, bytes);
        header.stream = ZOFF_COMM_REDUCE;
        ASSERT_ZOFF_OK(zoff_comm_mailbox_keep(port(), &header));
    }
    // Ranks are at most this far ahead of one another.
    zoff_comm_header later = header_of(7 + ZOFF_COMM_AHEAD - 1, 1);
    later.stream = ZOFF_COMM_REDUCE;
    ASSERT_ZOFF_OK(zoff_comm_mailbox_keep(port(), &later));
    zoff_comm_work work = work_of(ZOFF_COMM_STEP, 7);
    EXPECT_EQ((numbers{}), numbers_of(zoff_comm_mailbox_take(&work))) << "of another stream";
    work = work_of(ZOFF_COMM_REDUCE, 7);
    EXPECT_EQ((numbers{7, 7, 7}), numbers_of(zoff_comm_mailbox_take(&work)));
    EXPECT_EQ((numbers{}), numbers_of(zoff_comm_mailbox_take(&work))) << "they are taken out";
    work = work_of(ZOFF_COMM_REDUCE, 7 + ZOFF_COMM_AHEAD - 1);
    EXPECT_EQ((numbers{7 + ZOFF_COMM_AHEAD - 1}), numbers_of(zoff_comm_mailbox_take(&work)));
    close();
}

TEST_F(Mailbox, AHeaderOfAChannelFindsItsPort)
{
    ASSERT_NO_FATAL_FAILURE(open(5));
    EXPECT_EQ(nullptr, zoff_comm_mailbox_join(&m->comm, &channel));
    zoff_comm_port *found = nullptr;
    zoff_comm_header header = header_of(1, 5);
    ASSERT_ZOFF_OK(zoff_comm_mailbox_find(m.get(), &header, &found));
    EXPECT_EQ(channel.port, found);
    header.channel = 4; // the channel was closed here, because ids only grow
    ASSERT_ZOFF_OK(zoff_comm_mailbox_find(m.get(), &header, &found));
    EXPECT_EQ(nullptr, found);
    close();
    header.channel = 5;
    ASSERT_ZOFF_OK(zoff_comm_mailbox_find(m.get(), &header, &found));
    EXPECT_EQ(nullptr, found);
    EXPECT_EQ(nullptr, m->unknown) << "there is no use for either";
}

TEST_F(Mailbox, HeadersOfAChannelThatComesAreKeptInTheirOrder)
{
    for (const auto &one : {std::make_pair(1, 2), {2, 3}, {3, 4}, {4, 3}, {5, 2}, {6, 4}})
        ASSERT_NO_FATAL_FAILURE(keep_unknown((uint64_t)one.first, (uint32_t)one.second));
    ASSERT_NO_FATAL_FAILURE(open(3));
    EXPECT_EQ((numbers{2, 4}), numbers_of(zoff_comm_mailbox_join(&m->comm, &channel)));
    close();
    ASSERT_NO_FATAL_FAILURE(keep_unknown(7, 4)); // the header goes behind the remaining ones
    ASSERT_NO_FATAL_FAILURE(keep_unknown(8, 2)); // this rank does not need the header any more
    ASSERT_NO_FATAL_FAILURE(open(4));
    EXPECT_EQ((numbers{3, 6, 7}), numbers_of(zoff_comm_mailbox_join(&m->comm, &channel)));
    EXPECT_EQ(nullptr, m->unknown);
    ASSERT_NO_FATAL_FAILURE(keep_unknown(9, 5));
    EXPECT_NE(nullptr, m->unknown) << "the list goes on where it was emptied";
    close();
}

TEST_F(Mailbox, TagsAreGivenOutInTurn)
{
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

TEST_F(Mailbox, OthersHearOfAChannelThatIsClosed)
{
    ASSERT_NO_FATAL_FAILURE(open(6));
    EXPECT_EQ(nullptr, zoff_comm_mailbox_join(&m->comm, &channel));
    const zoff_comm_header early = header_of(3, 6, 50);
    ASSERT_ZOFF_OK(zoff_comm_mailbox_keep(port(), &early)); // the header is freed with the channel
    close();
    const zoff_comm_header *header = heard();
    ASSERT_NE(nullptr, header);
    EXPECT_EQ((uint32_t)ZOFF_COMM_CLOSES, header->says);
    EXPECT_EQ(6u, header->channel);
    ASSERT_NO_FATAL_FAILURE(open(7)); // the channel is never joined
    close();
    ASSERT_NO_FATAL_FAILURE(open(8));
    EXPECT_EQ(nullptr, zoff_comm_mailbox_join(&m->comm, &channel));
    m->is_over = true;
    close();
    EXPECT_EQ(nullptr, heard()) << "nobody waits for these two";
}

TEST_F(Mailbox, OthersHearInWhichCallThisRankWaits)
{
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD] = {};
    for (unsigned i = 0; i < ZOFF_COMM_VISITS_TOLD; i++)
        visits[i].number = 10 + i;
    zoff_comm_call call = {};
    ASSERT_ZOFF_OK(zoff_comm_mailbox_tell(&m->comm, &call, visits, ZOFF_COMM_VISITS_TOLD));
    const zoff_comm_header *header = heard();
    ASSERT_NE(nullptr, header);
    EXPECT_EQ((uint32_t)ZOFF_COMM_WAITS, header->says);
    EXPECT_EQ((uint64_t)ZOFF_COMM_VISITS_TOLD, header->count);
    EXPECT_EQ(0, memcmp(visits, header->data, sizeof visits));
    call.first = m->comm.rank;
    call.members = 1;
    EXPECT_ZOFF_OK(zoff_comm_mailbox_tell(&m->comm, &call, visits, 1));
    EXPECT_EQ(nullptr, heard()) << "it is in another group";
    call.members = 0;
    m->is_over = true;
    EXPECT_ZOFF_OK(zoff_comm_mailbox_tell(&m->comm, &call, visits, 1));
    EXPECT_EQ(nullptr, heard());
}

TEST_F(Mailbox, WithoutMemoryNothingIsKept)
{
    EXPECT_EQ(2, fail_each_allocation([&] {
                  channel.port = nullptr;
                  const zoff_status status = zoff_comm_mailbox_open(&m->comm, &channel);
                  EXPECT_EQ(status == ZOFF_OK, channel.port != nullptr);
                  return status;
              }));
    zoff_comm_header header = header_of(7, 9);
    zoff_comm_work work = work_of(ZOFF_COMM_STEP, 7);
    memory_countdown::left = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", zoff_comm_mailbox_keep(port(), &header));
    EXPECT_EQ(nullptr, zoff_comm_mailbox_take(&work));
    zoff_comm_port *found = nullptr;
    memory_countdown::left = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", zoff_comm_mailbox_find(m.get(), &header, &found));
    EXPECT_EQ(nullptr, m->unknown);
    close();
}
