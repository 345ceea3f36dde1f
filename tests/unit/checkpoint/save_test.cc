// save_test.cc: the public calls that save: arguments, names, phases of the engine, and saves that have not ended.
#include "aio_fault.h"
#include "small_save.h"

#include <dirent.h>
#include <errno.h>
#include <time.h>

using namespace zoff_test;

namespace
{
// Called in the thread of the test before it sleeps, and before it waits for the end of a thread.
std::function<void()> before_nap, before_join;
const pthread_t test_thread = pthread_self();

void call(const std::function<void()> &hook)
{
    if (hook && pthread_equal(pthread_self(), test_thread))
        hook();
}
} // namespace

extern "C" {
int __real_nanosleep(const timespec *time, timespec *rest);
int __wrap_nanosleep(const timespec *time, timespec *rest);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);
}

int __wrap_nanosleep(const timespec *time, timespec *rest)
{
    call(before_nap);
    return __real_nanosleep(time, rest);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    call(before_join);
    return __real_pthread_join(thread, result);
}

namespace
{
class Save : public testing::Test
{
  protected:
    Save() : t(1) { t.add(5000, 1, ZOFF_BF16, ZOFF_BF16); }
    void seal(const std::string &text = config_text("")) { e = seal_engine(t, text); }
    void step()
    {
        t.next_step();
        t.backward_all(0.1f);
        t.hand_over_all(e.get());
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    zoff_status save() { return zoff_checkpoint_save(e.get(), folder.path.c_str(), &opts); }
    zoff_status begin(zoff_checkpoint **out) { return zoff_checkpoint_begin(e.get(), folder.path.c_str(), &opts, out); }
    bool exists(const std::string &name) const { return access(folder.file(name).c_str(), F_OK) == 0; }
    size_t entries() const
    {
        size_t count = 0;
        DIR *list = opendir(folder.path.c_str());
        while (list && readdir(list))
            count++;
        closedir(list);
        return count - 2;
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
    engine e;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
};
using SaveArguments = Save;
using SaveNames = Save;
using SavePhase = Save;

TEST_F(SaveArguments, ImpossibleOnesAreRefused)
{
    zoff_checkpoint *c = nullptr;
    const char *path = folder.path.c_str();
    seal();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_save: engine must not be NULL",
                      zoff_checkpoint_save(nullptr, path, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_begin: engine must not be NULL",
                      zoff_checkpoint_begin(nullptr, path, nullptr, &c));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_begin: out must not be NULL",
                      zoff_checkpoint_begin(e.get(), path, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_poll: checkpoint must not be NULL", zoff_checkpoint_poll(nullptr));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(nullptr));
    for (const char *none : {(const char *)nullptr, ""}) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_save: folder must not be NULL or empty",
                          zoff_checkpoint_save(e.get(), none, nullptr));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is too long", zoff_checkpoint_save(e.get(), std::string(4000, 'x').c_str(), nullptr));
    EXPECT_EQ(nullptr, c);
    EXPECT_EQ(0u, entries());
}

TEST_F(SaveArguments, ImpossibleOptionsAreRefused)
{
    seal();
    opts.struct_size = 3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts", save());
    opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.label = "tp/0";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "label", save());
    opts.label = nullptr;
    opts.name = "../elsewhere";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "name", save());
    opts.name = nullptr;
    opts.engines = (1 << 24) + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.engines is 16777217, and may be 16777216", save());
    opts.engines = 0;
    opts.data_count = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_save: data must not be NULL", save());
    opts.data_count = 0;
    EXPECT_EQ(0u, entries());
    EXPECT_ZOFF_OK(save());
}

TEST_F(SaveNames, AreOfTheStepOrOfTheProgram)
{
    seal();
    step();
    ASSERT_ZOFF_OK(save());
    EXPECT_TRUE(exists("step-0000000001"));
    opts.name = "best";
    ASSERT_ZOFF_OK(save());
    EXPECT_TRUE(exists("best"));
    EXPECT_TRUE(exists("step-0000000001"));
    const archive a = open_archive(folder.path);
    EXPECT_EQ(folder.file("best"), a->folder) << "the newest one";
}

TEST_F(SaveNames, OldOnesAreRemovedBeyondKeep)
{
    seal();
    opts.keep = 2;
    for (int i = 0; i < 4; i++) {
        step();
        ASSERT_ZOFF_OK(save());
    }
    EXPECT_FALSE(exists("step-0000000001"));
    EXPECT_FALSE(exists("step-0000000002"));
    EXPECT_TRUE(exists("step-0000000003"));
    EXPECT_TRUE(exists("step-0000000004"));
}

TEST_F(SaveNames, TheSameNameReplacesTheOldOne)
{
    seal();
    opts.name = "only";
    for (int i = 0; i < 2; i++) {
        step();
        ASSERT_ZOFF_OK(save());
    }
    const archive a = open_archive(folder.path);
    EXPECT_EQ(2, a->manifest.t);
    size_t files = 0;
    DIR *list = opendir(folder.file("only").c_str());
    while (list && readdir(list))
        files++;
    closedir(list);
    EXPECT_EQ(2u, files - 2) << "a manifest and a file";
}

TEST_F(SavePhase, OnlyWholeUpdatesAreSaved)
{
    e = make_engine(t, config_text("", 2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_checkpoint_save", save());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    ASSERT_ZOFF_OK(save());
    step();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_checkpoint_save", save());
    zoff_checkpoint *c = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_checkpoint_begin", begin(&c));
    EXPECT_EQ(nullptr, c);
    step();
    EXPECT_ZOFF_OK(save());
}

/* ---- saves that have not ended ---- */

// The first write of a save waits until the test releases it.
class SaveBeside : public Save
{
  protected:
    SaveBeside()
    {
        seal();
        fault.result = [this](int, int res, bool writes, uint64_t, size_t) {
            while (holds && writes)
                usleep(100);
            return writes && fails ? -EIO : res;
        };
    }
    ~SaveBeside() override
    {
        holds = false;
        before_nap = before_join = nullptr;
    }
    aio_fault fault;
    std::atomic<bool> holds{true}, fails{false};
    zoff_checkpoint *first = nullptr, *second = nullptr;
};

TEST_F(SaveBeside, PollTellsOfTheEnd)
{
    ASSERT_ZOFF_OK(begin(&first));
    EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(first));
    EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(first));
    EXPECT_FALSE(exists("latest"));
    holds = false;
    zoff_status status;
    while ((status = zoff_checkpoint_poll(first)) == ZOFF_PENDING)
        usleep(100);
    EXPECT_ZOFF_OK(status);
    EXPECT_TRUE(exists("latest"));
    EXPECT_ZOFF_OK(zoff_checkpoint_poll(first));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
}

TEST_F(SaveBeside, AnErrorIsReturnedAgain)
{
    fails = true;
    ASSERT_ZOFF_OK(begin(&first));
    holds = false;
    zoff_status status;
    while ((status = zoff_checkpoint_poll(first)) == ZOFF_PENDING)
        usleep(100);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", status);
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_checkpoint_poll(nullptr)); // other words
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_checkpoint_poll(first));
    step();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_checkpoint_wait(first));
    EXPECT_EQ(0u, entries()) << "nothing is left of it";
    fails = false;
    EXPECT_ZOFF_OK(save());
}

TEST_F(SaveBeside, ASecondOneIsRefusedIfAsked)
{
    ASSERT_ZOFF_OK(begin(&first));
    opts.refuse_if_busy = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "an earlier save of this engine is under way", begin(&second));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "an earlier save of this engine is under way", save());
    EXPECT_EQ(nullptr, second);
    holds = false;
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    EXPECT_ZOFF_OK(save());
}

TEST_F(SaveBeside, ASecondOneWaitsOtherwise)
{
    int naps = 0;
    before_nap = [&] { holds = ++naps < 3; };
    ASSERT_ZOFF_OK(begin(&first));
    opts.name = "second";
    ASSERT_ZOFF_OK(begin(&second));
    EXPECT_GE(naps, 3) << "it did not wait for the first one";
    holds = false;
    EXPECT_EQ(ZOFF_OK, zoff_checkpoint_poll(first)) << "it had to end before";
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(second));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    EXPECT_TRUE(exists("step-0000000000"));
    EXPECT_TRUE(exists("second"));
}

TEST_F(SaveBeside, TheProgramsBytesAreReadBeforeBeginReturns)
{
    uint64_t position = 5, got = 0;
    zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    opts.data = &data;
    opts.data_count = 1;
    holds = false;
    ASSERT_ZOFF_OK(begin(&first));
    position = 6;
    ASSERT_ZOFF_OK(zoff_checkpoint_wait(first));
    data.bytes = &got;
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), folder.path.c_str(), &opts));
    EXPECT_EQ(5u, got);
}

TEST_F(SaveBeside, AnEngineThatIsGoneEndsIt)
{
    log.expect("the engine is destroyed before its checkpoint");
    ASSERT_ZOFF_OK(begin(&first));
    before_join = [this] { holds = !log.contains("the engine is destroyed before its checkpoint"); };
    e.reset();
    EXPECT_FALSE(holds) << "the engine did not wait for the thread of the save";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the engine was destroyed before its checkpoint", zoff_checkpoint_poll(first));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the engine was destroyed before its checkpoint", zoff_checkpoint_wait(first));
    EXPECT_EQ(0u, entries());
}

/* ---- several ranks ---- */

TEST(SaveRanks, ArgumentsMustBeAlike)
{
    log_catcher log;
    const scratch_folder folder;
    save_ranks ranks({"stage1", 2}, "");
    ranks.job.on_each([&](unsigned rank) {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.keep = rank;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.keep",
                          zoff_checkpoint_save(ranks.engine_of(rank), folder.path.c_str(), &opts));
        opts.keep = 0;
        const std::string own = folder.file(std::to_string(rank));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "folder", zoff_checkpoint_save(ranks.engine_of(rank), own.c_str(), &opts));
        EXPECT_ZOFF_OK(zoff_checkpoint_save(ranks.engine_of(rank), folder.path.c_str(), &opts));
    });
    const archive a = open_archive(folder.path);
    EXPECT_EQ(2u, a->manifest.file_count);
}

TEST(SaveRanks, AnErrorOfOneIsThatOfAll)
{
    log_catcher log;
    const scratch_folder folder, states;
    save_ranks ranks({"nvme", 3, 1, true}, states.path);
    ranks.step(1);
    ranks.job.on_each([&](unsigned rank) {
        zoff_engine *e = ranks.engine_of(rank);
        zoff_store_source damaged = {};
        const zoff_engine_view view = zoff_engine_rooms_view(e);
        EXPECT_ZOFF_OK(zoff_engine_stores_drain(e));
        EXPECT_ZOFF_OK(zoff_offload_store_source(view.store, 1, 0, &damaged));
        if (rank == 2)
            flip_byte(damaged.fd, damaged.offset);
        const zoff_status status = zoff_checkpoint_save(e, folder.path.c_str(), nullptr);
        const std::string words = zoff_last_error();
        if (rank == 2)
            flip_byte(damaged.fd, damaged.offset);
        if (status == ZOFF_OK) // the file system shares blocks: nothing was read
            return;
        EXPECT_EQ(rank == 2 ? ZOFF_ERR_CORRUPT : ZOFF_ERR_COMM, status) << words;
        EXPECT_NE(words.npos, words.find(rank == 2 ? "is not what was written" : "rank 2 has failed")) << words;
        EXPECT_ZOFF_OK(zoff_checkpoint_save(e, folder.path.c_str(), nullptr));
    });
}
} // namespace
