// process_test.cc: the number of this process differs from that of a child made by fork(), and from no other.
#include "aio_place.h"

#include <thread>

extern "C" {
#include "queue_priv.h"
}

using namespace zoff_test;

TEST(AioProcess, KeepsItsNumber)
{
    const unsigned mine = zoff_aio_process_number();
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ("", in_child([] { return std::string(); }));
        EXPECT_EQ(mine, zoff_aio_process_number()) << "its children change nothing";
    }
    std::thread([mine] { EXPECT_EQ(mine, zoff_aio_process_number()) << "of all threads"; }).join();
    EXPECT_EQ(0, system("true"));
    EXPECT_EQ(mine, zoff_aio_process_number());
}

TEST(AioProcess, AChildHasAnotherNumberThanAllBeforeIt)
{
    const unsigned mine = zoff_aio_process_number();
    EXPECT_EQ("", in_child([mine]() -> std::string {
                  const unsigned child = zoff_aio_process_number();
                  if (child == mine)
                      return "the child is taken for its parent";
                  if (child != zoff_aio_process_number())
                      return "the child's number changes";
                  return in_child([mine, child]() -> std::string {
                      const unsigned grandchild = zoff_aio_process_number();
                      return grandchild == mine || grandchild == child ? "the grandchild is taken for another" : "";
                  });
              }));
}

TEST(AioProcess, AForkFromAnyThreadCounts)
{
    const unsigned mine = zoff_aio_process_number();
    std::thread([mine] {
        EXPECT_EQ("", in_child([mine]() -> std::string {
                      return zoff_aio_process_number() == mine ? "the child is taken for its parent" : "";
                  }));
    }).join();
}
