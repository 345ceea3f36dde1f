/* SPDX-License-Identifier: Apache-2.0 */
// fork_test.cc: a trainer forks its data loaders. A living child keeps neither locks nor memory of an engine's files. Calls on
// its copy of the engine do no harm.
#include "small_engine.h"

#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
class Fork : public testing::TestWithParam<bool>
{
  protected:
    Fork() : t(2) { t.add(40000, 1, ZOFF_BF16, ZOFF_BF16); }
    engine open()
    {
        return seal_engine(t, config_text(folder.path, 1, GetParam() ? ", \"zoff\": {\"persist\": true}" : ""), 8192);
    }
    // A child that does `work` and then lives until it is killed.
    pid_t fork_child(const std::function<int()> &work)
    {
        int ends[2];
        EXPECT_EQ(0, pipe(ends));
        const pid_t child = fork();
        if (child == 0) {
            char result = (char)work();
            if (write(ends[1], &result, 1) == 1)
                pause();
            _exit(1);
        }
        char result = -1;
        close(ends[1]);
        EXPECT_EQ(1, read(ends[0], &result, 1)) << "the child has died";
        EXPECT_EQ(0, result);
        close(ends[0]);
        return child;
    }
    static void end(pid_t child)
    {
        int state;
        kill(child, SIGKILL);
        EXPECT_EQ(child, waitpid(child, &state, 0));
    }
    static size_t mapped() // bytes of this process
    {
        std::ifstream statm("/proc/self/statm");
        size_t pages = 0;
        statm >> pages;
        return pages * (size_t)sysconf(_SC_PAGESIZE);
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
};
INSTANTIATE_TEST_SUITE_P(Files, Fork, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "persist" : "plain"); });

TEST_P(Fork, AChildKeepsNoLock)
{
    engine e = open();
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    const pid_t child = fork_child([] { return 0; });
    e.reset();
    e = open();
    EXPECT_TRUE(e);
    end(child);
}

TEST_P(Fork, AChildIsRefusedAndMayDestroyItsCopy)
{
    engine e = open();
    const float x = 3;
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_M, 0, 1, &x));
    const pid_t child = fork_child([&] {
        float y;
        if (zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, &y) != ZOFF_ERR_STATE || !strstr(zoff_last_error(), "fork()"))
            return 1;
        if (zoff_step(e.get(), nullptr, nullptr) != ZOFF_ERR_STATE || zoff_state_flush(e.get()) != ZOFF_ERR_STATE)
            return 2;
        if (!strstr(zoff_engine_error(e.get()), "zoff_state_flush: a child of fork()"))
            return 3;
        zoff_engine_destroy(e.release());
        return 0;
    });
    float y = 0;
    ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, &y));
    EXPECT_EQ(x, y);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    e.reset();
    end(child);
    if (!GetParam())
        EXPECT_EQ(0, system(("test $(ls '" + folder.path + "' | wc -l) = 0").c_str()));
    else
        open();
}

TEST_P(Fork, AChildHasNoneOfTheSlots)
{
    engine e = open();
    const size_t before = mapped(), slots = plan_of(e.get()).host_bytes;
    end(fork_child([&] { return mapped() + slots <= before ? 0 : 1; }));
}

// A program that returns from main() without destroying its engine.
TEST_P(Fork, AnEndWithoutDestroyLeavesNothingThatDoesNotPersist)
{
    end(fork_child([&] {
        static engine left = open();
        return zoff_step(left.get(), nullptr, nullptr);
    }));
    EXPECT_EQ(GetParam() ? 1 : 0, system(("test $(ls '" + folder.path + "' | wc -l) = 0").c_str()) == 0 ? 0 : 1);
}
} // namespace
