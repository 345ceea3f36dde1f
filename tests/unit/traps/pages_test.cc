// pages_test.cc: pages that are inaccessible for a while. The first use is remembered, and the program goes on.
#include "small_engine.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "traps.h"
}

using namespace zoff_test;

namespace
{
class Pages : public testing::Test
{
  protected:
    enum { PAGES = 4 };

    void SetUp() override
    {
        base = static_cast<char *>(mmap(nullptr, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(MAP_FAILED, static_cast<void *>(base));
        for (size_t i = 0; i < 2; i++) { // two pages each
            traps[i].from = reinterpret_cast<uintptr_t>(base) + 2 * i * page;
            traps[i].to = traps[i].from + 2 * page;
        }
        all.list = traps;
        all.count = 2;
        ASSERT_ZOFF_OK(zoff_traps_pages_register(&all));
    }
    void TearDown() override
    {
        for (zoff_trap &trap : traps)
            zoff_traps_pages_lift(&trap);
        zoff_traps_pages_unregister(&all);
        munmap(base, PAGES * page);
    }

    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = nullptr;
    zoff_trap traps[2] = {};
    zoff_trap_list all = {};
    size_t index = 9;
    uintptr_t place = 0;
};

TEST_F(Pages, TheFirstUseIsRememberedAndTheProgramGoesOn)
{
    zoff_traps_pages_set(&traps[0]);
    zoff_traps_pages_set(&traps[1]);
    EXPECT_FALSE(zoff_traps_pages_take(&all, &index, &place));
    volatile char *at = base + 3 * page;
    EXPECT_EQ(0, *at);
    *(base + page) = 7; // another trap: told already
    EXPECT_TRUE(zoff_traps_pages_take(&all, &index, &place));
    EXPECT_EQ(1u, index);
    EXPECT_NE(0u, place);
    EXPECT_FALSE(zoff_traps_pages_take(&all, &index, &place)) << "once";
    EXPECT_EQ(7, base[page]);
}

TEST_F(Pages, TheEngineMayEnterAndTheTrapStays)
{
    zoff_traps_pages_set(&traps[0]);
    zoff_traps_pages_enter(&traps[0], traps[0].from + page + 5, 3); // the second page
    base[page] = 1;
    EXPECT_FALSE(zoff_traps_pages_take(&all, &index, &place));
    zoff_traps_pages_leave(&traps[0], traps[0].from + page + 5, 3);
    base[page] = 2;
    EXPECT_TRUE(zoff_traps_pages_take(&all, &index, &place));
    EXPECT_EQ(0u, index);
}

TEST_F(Pages, ATrapThatWasLiftedStaysLifted)
{
    zoff_traps_pages_set(&traps[0]);
    zoff_traps_pages_lift(&traps[0]);
    zoff_traps_pages_enter(&traps[0], traps[0].from, page);
    zoff_traps_pages_leave(&traps[0], traps[0].from, page);
    base[0] = 1;
    EXPECT_FALSE(zoff_traps_pages_take(&all, &index, &place));
}

// Any other fault ends the program as without the handler.
TEST_F(Pages, AnotherFaultIsNotTouched)
{
    const pid_t child = fork();
    if (child == 0) {
        munmap(base, PAGES * page);
        zoff_traps_pages_unregister(&all);
        *(volatile char *)base = 1;
        _exit(0);
    }
    int how = 0;
    ASSERT_EQ(child, waitpid(child, &how, 0));
    EXPECT_FALSE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}
} // namespace
