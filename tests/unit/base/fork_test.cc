/* SPDX-License-Identifier: Apache-2.0 */
// fork_test.cc: a child of fork() has another number than its parent, and none of the guarded descriptors. So a lock ends with
// the process that took it.
#include "aio_place.h"
#include "memory_fault.h"

#include <sys/file.h>

#include <atomic>
#include <thread>

extern "C" {
#include "fork.h"
}

using namespace zoff_test;

namespace
{
bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

class fork_guard : public testing::Test
{
  protected:
    int open_one() const { return open(folder.file("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }
    zoff_fork_guard *guard(int fd)
    {
        zoff_fork_guard *made = nullptr;
        EXPECT_ZOFF_OK(zoff_base_fork_guard(fd, &made));
        return made;
    }
    scratch_folder folder;
};
} // namespace

TEST(fork_number, counts_the_forks_between_a_process_and_the_first)
{
    const unsigned mine = zoff_base_fork_number();
    EXPECT_EQ("", in_child([mine]() -> std::string {
                  if (zoff_base_fork_number() != mine + 1)
                      return "the child";
                  return in_child(
                      [mine]() -> std::string { return zoff_base_fork_number() == mine + 2 ? "" : "the grandchild"; });
              }));
    EXPECT_EQ(mine, zoff_base_fork_number());
}

TEST_F(fork_guard, a_child_has_none_of_the_descriptors_and_its_parent_all)
{
    int fds[4];
    zoff_fork_guard *guards[4];
    for (int i = 0; i < 4; i++)
        guards[i] = guard(fds[i] = open_one());
    zoff_base_fork_close(guards[1]); // take a guard from the middle of the list
    EXPECT_FALSE(is_open(fds[1]));
    const int free_one = open_one();
    EXPECT_EQ("", in_child([&]() -> std::string {
                  for (int i : {0, 2, 3}) {
                      if (is_open(fds[i]) || zoff_base_fork_descriptor(guards[i]) != -1)
                          return "the child has descriptor " + std::to_string(i);
                  }
                  return is_open(free_one) ? "" : "a descriptor that nobody guards was closed";
              }));
    for (int i : {0, 2, 3}) {
        EXPECT_TRUE(is_open(fds[i]));
        EXPECT_EQ(fds[i], zoff_base_fork_descriptor(guards[i]));
        zoff_base_fork_close(guards[i]);
        EXPECT_FALSE(is_open(fds[i]));
    }
    zoff_base_fork_close(nullptr);
    close(free_one);
}

// In the child the same number may be another file by then.
TEST_F(fork_guard, a_child_that_closes_its_copy_closes_nothing_else)
{
    const int fd = open_one();
    zoff_fork_guard *g = guard(fd);
    EXPECT_EQ("", in_child([&]() -> std::string {
                  const int another = open_one();
                  if (another != fd)
                      return "the number was not free";
                  zoff_base_fork_close(g);
                  return is_open(another) ? "" : "it closed a file of the child's";
              }));
    zoff_base_fork_close(g);
}

TEST_F(fork_guard, a_lock_does_not_outlive_its_owner_in_a_child)
{
    int ends[2], is_there[2];
    char byte = 0;
    const int fd = open_one(), other = open_one();
    zoff_fork_guard *g = guard(fd);
    ASSERT_EQ(0, flock(fd, LOCK_EX));
    ASSERT_EQ(0, pipe(ends));
    ASSERT_EQ(0, pipe(is_there));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) { // lives until the pipe ends
        close(ends[1]);
        _exit(write(is_there[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    EXPECT_EQ(1, read(is_there[0], &byte, 1)) << "fork() has returned in the child";
    EXPECT_NE(0, flock(other, LOCK_EX | LOCK_NB)) << "the parent has it still";
    zoff_base_fork_close(g);
    EXPECT_EQ(0, flock(other, LOCK_EX | LOCK_NB)) << "the child keeps it";
    for (int end : {ends[0], ends[1], is_there[0], is_there[1]})
        close(end);
    EXPECT_EQ(child, waitpid(child, nullptr, 0));
    close(other);
}

// The child gets a complete list, even if another thread was changing it at the fork.
TEST_F(fork_guard, forks_and_guards_on_several_threads_do_not_meet)
{
    std::atomic<bool> stops{false};
    std::thread other([&] {
        while (!stops)
            zoff_base_fork_close(guard(open_one()));
    });
    for (int round = 0; round < 100; round++) {
        EXPECT_EQ("", in_child([&]() -> std::string {
                      alarm(20); // end the child if it waits for a lock for ever
                      const int fd = open_one();
                      zoff_base_fork_close(guard(fd));
                      return is_open(fd) ? "not closed" : "";
                  }))
            << "round " << round;
    }
    stops = true;
    other.join();
}

TEST_F(fork_guard, memory_that_is_not_there_leaves_the_descriptor_to_its_owner)
{
    const int fd = open_one();
    zoff_fork_guard *none = nullptr;
    {
        memory_fault fault;
        fault.fail_allocation = 1;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the guard of a lock", zoff_base_fork_guard(fd, &none));
    }
    EXPECT_EQ(nullptr, none);
    EXPECT_TRUE(is_open(fd));
    EXPECT_EQ("", in_child([fd]() -> std::string { return is_open(fd) ? "" : "it is guarded all the same"; }));
    close(fd);
}
