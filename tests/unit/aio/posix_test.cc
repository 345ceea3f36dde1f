/* SPDX-License-Identifier: Apache-2.0 */
// posix_test.cc: the last back-end of the list, alone. Each reap does one transfer on the calling thread, in the order of
// submission.
#include "aio_fault.h"
#include "aio_place.h"

extern "C" {
#include "backend_priv.h"
}

using namespace zoff_test;

namespace
{
const zoff_aio_backend &posix = zoff_aio_posix_backend;

class AioPosix : public testing::Test
{
  protected:
    void SetUp() override
    {
        fd = ::open(folder.file("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
    }
    void TearDown() override
    {
        if (self)
            posix.close(self, false);
        ::close(fd);
    }
    void open(int of, unsigned depth)
    {
        if (self)
            posix.close(self, false);
        self = nullptr;
        ASSERT_ZOFF_OK(posix.open(of, depth, &self));
    }
    int reap(zoff_aio_io *expected)
    {
        zoff_aio_done done = {};
        EXPECT_EQ(1u, posix.reap(self, &done, 1));
        EXPECT_EQ(expected, done.io);
        return done.res;
    }
    scratch_folder folder;
    int fd = -1;
    void *self = nullptr;
};
} // namespace

TEST_F(AioPosix, MovesOneTransferAReapInOrder)
{
    const unsigned depth = 3;
    char text[] = "abcdefgh", back[9] = "";
    zoff_aio_io writes[4], read = {false, 0, 8, back};
    zoff_aio_done done[4] = {};
    open(fd, depth);
    EXPECT_EQ(0u, posix.reap(self, done, 4)) << "nothing is out";
    for (int round = 0; round < 5; round++) { // there are more rounds than places, so all places are used again
        for (unsigned i = 0; i < 2; i++) {
            writes[i] = {true, 4 * i, 4, text + 4 * i};
            posix.start(self, &writes[i]);
        }
        EXPECT_ZOFF_OK(posix.submit(self));
        EXPECT_ZOFF_OK(posix.wait(self, -1));
        EXPECT_EQ(4 * (round > 0), file_bytes(folder.file("file")) / 2) << "nothing is done before somebody reaps";
        EXPECT_EQ(0u, posix.reap(self, done, 0)) << "for nobody";
        EXPECT_EQ(1u, posix.reap(self, done, 4));
        EXPECT_EQ(&writes[0], done[0].io);
        EXPECT_EQ(4, done[0].res);
        EXPECT_EQ(round ? 8 : 4, file_bytes(folder.file("file"))) << "one, for a caller that has other work";
        EXPECT_EQ(4, reap(&writes[1]));
    }
    posix.start(self, &read);
    EXPECT_EQ(8, reap(&read));
    EXPECT_STREQ(text, back);
}

TEST_F(AioPosix, AsManyAreOutAsThereArePlaces)
{
    for (unsigned depth : {1u, 2u, 7u}) {
        std::vector<zoff_aio_io> all(depth);
        std::vector<char> bytes(depth, 'x');
        open(fd, depth);
        for (int round = 0; round < 3; round++) {
            for (unsigned i = 0; i < depth; i++) {
                all[i] = {true, i, 1, &bytes[i]};
                posix.start(self, &all[i]);
            }
            for (auto &io : all)
                EXPECT_EQ(1, reap(&io));
        }
    }
}

TEST_F(AioPosix, TellsWhatTheSystemTells)
{
    char byte[8] = "1234567";
    zoff_aio_io write = {true, 0, 5, byte}, over_the_end = {false, 3, 5, byte}, behind = {false, 5, 5, byte},
                nothing = {false, 0, 0, byte}, nowhere = {false, 0, 5, nullptr};
    open(fd, 2);
    posix.start(self, &write);
    EXPECT_EQ(5, reap(&write));
    posix.start(self, &over_the_end);
    EXPECT_EQ(2, reap(&over_the_end)) << "short, where the file ends";
    posix.start(self, &behind);
    EXPECT_EQ(0, reap(&behind));
    posix.start(self, &nothing);
    EXPECT_EQ(0, reap(&nothing));
    posix.start(self, &nowhere);
    EXPECT_EQ(-EFAULT, reap(&nowhere));
    open(-1, 2);
    posix.start(self, &write);
    EXPECT_EQ(-EBADF, reap(&write)) << "an error is a result";
}

TEST_F(AioPosix, RegistersNothing)
{
    char memory[64];
    bool registered = true;
    open(fd, 1);
    EXPECT_ZOFF_OK(posix.register_memory(self, memory, sizeof memory, &registered));
    EXPECT_FALSE(registered);
}

TEST_F(AioPosix, AChildOfForkClosesItsCopy)
{
    open(fd, 1);
    EXPECT_EQ("", in_child([&]() -> std::string {
                  posix.close(self, true);
                  self = nullptr;
                  return "";
              }));
    char byte = 'x';
    zoff_aio_io write = {true, 0, 1, &byte};
    posix.start(self, &write);
    EXPECT_EQ(1, reap(&write)) << "the parent goes on";
}

TEST_F(AioPosix, MemoryThatIsNotThereIsAnError)
{
    aio_fault fault;
    fault.fail_allocation = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the posix I/O back-end", posix.open(fd, 8, &self));
    EXPECT_EQ(nullptr, self);
}
