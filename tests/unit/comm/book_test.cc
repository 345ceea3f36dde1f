// book_test.cc: the communicator's record of its users: channels by id, and a lock that survives the end of a thread.
#include "zoff_test.h"

#include <pthread.h>

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

TEST(CommBook, AChannelIsFoundByItsIdWhileItIsOpen)
{
    zoff_comm *made = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &made));
    comm alone(made);
    EXPECT_EQ(&made->common, zoff_comm_channel_find(made, 0));
    zoff_comm_channel first = {}, second = {};
    for (zoff_comm_channel *channel : {&first, &second}) {
        zoff_comm_channel_come(made, channel);
        ASSERT_ZOFF_OK(zoff_comm_channel_open(made, channel));
        EXPECT_EQ(channel, zoff_comm_channel_find(made, channel->id));
    }
    EXPECT_NE(first.id, second.id);
    EXPECT_TRUE(zoff_comm_channel_is_shared(made));
    const uint32_t id = first.id;
    zoff_comm_channel_leave(made, &first);
    EXPECT_EQ(nullptr, zoff_comm_channel_find(made, id));
    EXPECT_EQ(&second, zoff_comm_channel_find(made, second.id));
    EXPECT_FALSE(zoff_comm_channel_is_shared(made));
    zoff_comm_channel_leave(made, &second);
}

TEST(CommBook, TheLockOfAThreadThatHasEndedIsFree)
{
    zoff_comm *made = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &made));
    comm alone(made);
    pthread_t thread;
    const auto lock_and_end = [](void *c) -> void * {
        zoff_comm_lock(static_cast<zoff_comm *>(c));
        return nullptr;
    };
    ASSERT_EQ(0, pthread_create(&thread, nullptr, lock_and_end, made));
    ASSERT_EQ(0, pthread_join(thread, nullptr));
    zoff_comm_lock(made);
    zoff_comm_unlock(made);
}
