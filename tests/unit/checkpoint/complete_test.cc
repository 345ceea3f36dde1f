// complete_test.cc: the end of a save: who publishes the manifest and when the ranks learn of it, errors of the publisher, and
// a later save that ends an earlier one.
#include "small_save.h"

#include <atomic>
#include <thread>

using namespace zoff_test;

extern "C" {
zoff_status __real_zoff_archive_publish_manifest(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                                 unsigned keep);
zoff_status __wrap_zoff_archive_publish_manifest(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                                 unsigned keep);
}

// Calls that publish a manifest: they wait while they are held, and one of them may fail.
static struct {
    std::atomic<bool> holds{false};
    std::atomic<unsigned> calls{0}, failing{0}; // counted from 1; 0: none fails
    std::thread::id thread;                     // of the last call
} publishing;

zoff_status __wrap_zoff_archive_publish_manifest(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                                 unsigned keep)
{
    publishing.thread = std::this_thread::get_id();
    const unsigned call = ++publishing.calls;
    while (publishing.holds)
        usleep(100);
    if (call == publishing.failing)
        return zoff_base_status_fail(ZOFF_ERR_IO, "a provoked error");
    return __real_zoff_archive_publish_manifest(folder, name, m, is_new, keep);
}

namespace
{
class Complete : public testing::Test
{
  protected:
    Complete()
    {
        publishing.holds = false;
        publishing.calls = publishing.failing = 0;
    }
    ~Complete() override
    {
        publishing.holds = false;
        refuses_threads = false;
    }
    void open(unsigned world = 1)
    {
        save_shape shape = {"stage1"};
        shape.world = world;
        ranks = std::make_unique<save_ranks>(shape, "");
        ranks->step(1);
    }
    zoff_engine *e(unsigned rank = 0) { return ranks->engine_of(rank); }
    zoff_status begin(zoff_checkpoint **out) { return zoff_checkpoint_begin(e(), folder.path.c_str(), &opts, out); }
    // Poll until rank 0 publishes, and hold it there.
    void begin_held()
    {
        publishing.holds = true;
        ASSERT_ZOFF_OK(begin(&first));
        while (publishing.calls == 0)
            ASSERT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(first)) << zoff_last_error();
    }
    bool exists(const std::string &name) const { return access(folder.file(name).c_str(), F_OK) == 0; }

    log_catcher log;
    scratch_folder folder;
    std::unique_ptr<save_ranks> ranks;
    zoff_checkpoint *first = nullptr, *second = nullptr;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
};

// A removal of gigabytes is in the same call, so steps must not wait for it.
TEST_F(Complete, StepsGoOnWhileAThreadPublishes)
{
    open();
    ASSERT_NO_FATAL_FAILURE(begin_held());
    EXPECT_NE(std::this_thread::get_id(), publishing.thread);
    ranks->step(2);
    EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(first));
    EXPECT_FALSE(exists("latest"));
    publishing.holds = false;
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    EXPECT_TRUE(exists("latest"));
    EXPECT_EQ(1u, publishing.calls);
}

TEST_F(Complete, WithoutAThreadTheCallerPublishes)
{
    open();
    ASSERT_ZOFF_OK(begin(&first));
    refuses_threads = true;
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    EXPECT_EQ(std::this_thread::get_id(), publishing.thread);
    EXPECT_TRUE(exists("latest"));
}

TEST_F(Complete, AnErrorOfTheThreadIsThatOfTheSave)
{
    open();
    publishing.failing = 1;
    ASSERT_NO_FATAL_FAILURE(begin_held());
    publishing.holds = false;
    zoff_status status;
    while ((status = zoff_checkpoint_poll(first)) == ZOFF_PENDING)
        usleep(100);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "a provoked error", status);
    ranks->step(2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "a provoked error", zoff_checkpoint_wait(first));
    EXPECT_FALSE(exists("step-0000000001")) << "its files are removed";
}

// The later save ends the earlier one, whose owner still learns its result.
TEST_F(Complete, ALaterSaveLeavesTheErrorToItsOwner)
{
    open();
    publishing.failing = 1;
    ASSERT_NO_FATAL_FAILURE(begin_held());
    publishing.holds = false;
    ranks->step(2);
    ASSERT_ZOFF_OK(begin(&second));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(second));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "a provoked error", zoff_checkpoint_wait(first));
    EXPECT_FALSE(exists("step-0000000001"));
    EXPECT_TRUE(exists("step-0000000002"));
}

TEST_F(Complete, APublisherIsAnEarlierSaveToo)
{
    open();
    ASSERT_NO_FATAL_FAILURE(begin_held());
    opts.refuse_if_busy = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "an earlier save of this engine is under way", begin(&second));
    publishing.holds = false;
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    ASSERT_ZOFF_OK(begin(&second));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(second));
}

// The engine is gone, but all files are durable: the thread ends what it has begun.
TEST_F(Complete, TheThreadOutlivesTheEngine)
{
    open();
    ASSERT_NO_FATAL_FAILURE(begin_held());
    ranks.reset();
    publishing.holds = false;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the engine was destroyed before its checkpoint", zoff_checkpoint_wait(first));
    const archive a = open_archive(folder.path);
    ASSERT_NE(nullptr, a);
    EXPECT_EQ(1, a->manifest.t);
}

TEST_F(Complete, RanksLearnTheResultOfRank0)
{
    open(3);
    for (const unsigned failing : {0u, 2u}) {
        publishing.failing = failing;
        ranks->job.on_each([&](unsigned rank) {
            const zoff_status status = zoff_checkpoint_save(e(rank), folder.path.c_str(), nullptr);
            const std::string words = zoff_last_error();
            EXPECT_EQ(!failing ? ZOFF_OK : rank == 0 ? ZOFF_ERR_IO : ZOFF_ERR_COMM, status) << words;
            if (failing) {
                EXPECT_NE(words.npos, words.find(rank == 0 ? "a provoked error" : "rank 0 has failed")) << words;
            }
        });
    }
    EXPECT_EQ(2u, publishing.calls) << "rank 0 alone publishes";
}
} // namespace
