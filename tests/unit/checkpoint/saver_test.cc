// saver_test.cc: the units of a checkpoint beside steps: what a step copies, what it waits for, and how a save ends.
#include "aio_fault.h"
#include "small_save.h"

#include <errno.h>
#include <pthread.h>
#include <thread>

using namespace zoff_test;

std::atomic<bool> zoff_test::refuses_threads;

// Writes by threads stand still.
static std::atomic<bool> stands{false};
static std::atomic<int> standing{0}; // such writes
// Limits of queues are this much shorter.
static std::atomic<double> hurry{1};

extern "C" {
#include "aio.h"
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
void __real_zoff_aio_queue_limit(zoff_aio *q, double seconds);
void __wrap_zoff_aio_queue_limit(zoff_aio *q, double seconds);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx);
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx)
{
    return refuses_threads ? EAGAIN : __real_pthread_create(out, attributes, run, ctx);
}

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    standing += stands;
    while (stands)
        usleep(100);
    return __real_pwrite(fd, src, bytes, offset);
}

void __wrap_zoff_aio_queue_limit(zoff_aio *q, double seconds)
{
    __real_zoff_aio_queue_limit(q, seconds / hurry);
}

namespace
{
// Begin to write beside steps, as zoff_checkpoint_begin() does.
zoff_status start_beside(zoff_saver *s)
{
    const zoff_status status = zoff_checkpoint_saver_start(s, true);
    if (status == ZOFF_OK)
        zoff_checkpoint_saver_attach(s);
    return status;
}

// One page of each state is a unit of its own: chunks have 1024 elements.
class Saver : public testing::Test
{
  protected:
    enum { FEWEST = 3 }; // buffers
    Saver() { naps.pump = nap; }
    ~Saver() override { refuses_threads = false; }

    // `memory`: for copies; 1: as few as possible.
    void open(const save_shape &shape, uint64_t memory)
    {
        ranks = std::make_unique<save_ranks>(shape, states.path, 1024);
        ranks->step(1);
        lay_out(memory);
    }
    void open(uint64_t memory = 1) { open({"host"}, memory); }
    void lay_out(uint64_t memory)
    {
        ASSERT_ZOFF_OK(zoff_engine_stores_drain(e()));
        save = std::make_unique<small_save>(e(), folder.path);
        zoff_saver &s = save->s;
        naps.ctx = &napping;
        zoff_base_progress_add(&progress, &naps);
        s.view.progress = &progress;
        ASSERT_ZOFF_OK(zoff_checkpoint_layout_make(&s, false));
        ASSERT_ZOFF_OK(zoff_archive_part_reserve(&s.part));
        ASSERT_ZOFF_OK(zoff_checkpoint_saver_open(&s, memory));
        zoff_checkpoint_saver_attach(&s); // sets the functions of the guard; tests that begin beside steps attach it again
        zoff_checkpoint_saver_detach(&s);
        for (size_t i = 0; i < s.unit_count; i++) {
            const zoff_save_unit &unit = s.units[i];
            const zoff_save_source &source = s.sources[unit.source];
            const char *from = source.memory ? source.memory + unit.number * save->region_of(unit).unit : nullptr;
            want.emplace_back(from, from ? from + save->bytes_of(unit) : nullptr);
        }
    }
    zoff_engine *e() { return ranks->engine_of(0); }
    zoff_saver &s() { return save->s; }
    zoff_guard *guard() { return *s().view.guard; }

    // Units of a chunk.
    std::vector<zoff_save_unit *> units_of(size_t chunk)
    {
        std::vector<zoff_save_unit *> all;
        for (size_t i = 0; i < s().unit_count; i++) {
            if (s().sources[s().units[i].source].chunk == chunk)
                all.push_back(&s().units[i]);
        }
        return all;
    }
    std::vector<zoff_save_state> states_of(size_t chunk)
    {
        std::vector<zoff_save_state> all;
        for (const zoff_save_unit *unit : units_of(chunk))
            all.push_back(unit->state);
        return all;
    }
    // Tell the guard that a step is about to change a chunk.
    void before(size_t chunk)
    {
        const zoff_plan_chunk &c = s().view.plan->chunks[chunk];
        zoff_chunk_memory memory = {};
        for (const zoff_save_unit *unit : units_of(chunk)) {
            const zoff_save_source &source = s().sources[unit->source];
            if (source.place == ZOFF_SAVE_MEMORY)
                memory.states = (char *)source.memory - source.begin;
        }
        pages other(c.bytes); // chunks of files are borrowed; here nobody reads the copies
        memory.states = memory.states ? memory.states : other.data();
        s().guard.before_chunk(s().guard.ctx, memory, chunk);
        for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++)
            s().guard.before(s().guard.ctx, memory, &s().view.plan->pieces[i], 0, s().view.plan->pieces[i].count);
    }
    // The step changes it.
    void scribble(size_t chunk)
    {
        for (const zoff_save_unit *unit : units_of(chunk))
            memset((char *)s().sources[unit->source].memory, 0x77, save->region_of(*unit).bytes);
    }
    // The file has what was there when it was laid out.
    void expect_written()
    {
        for (size_t i = 0; i < s().unit_count; i++)
            EXPECT_TRUE(want[i] == save->in_file(s().units[i])) << "unit " << i;
        save->expect_checksums();
    }
    // Run `work` in another thread until it waits for the save, then `release`, and then until its end.
    void while_waiting(const std::function<void()> &work, const std::function<void()> &release)
    {
        napping = 0;
        std::thread other(work);
        while (napping == 0)
            usleep(100);
        release();
        other.join();
    }
    static zoff_status nap(void *ctx)
    {
        ++*static_cast<std::atomic<int> *>(ctx);
        return ZOFF_OK;
    }

    log_catcher log;
    scratch_folder folder, states;
    std::unique_ptr<save_ranks> ranks;
    zoff_progress progress = {};
    zoff_poller naps = {};
    std::atomic<int> napping{0};
    std::unique_ptr<small_save> save;
    std::vector<std::vector<char>> want;
};

using SaverRun = Saver;
using SaverGuard = Saver;
using SaverEnd = Saver;

TEST_F(SaverRun, InTheCallingThread)
{
    open();
    EXPECT_FALSE(zoff_checkpoint_saver_is_over(&s()));
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_run(&s()));
    EXPECT_TRUE(zoff_checkpoint_saver_is_over(&s()));
    EXPECT_ZOFF_OK(zoff_checkpoint_saver_wait(&s()));
    EXPECT_EQ(nullptr, guard());
    EXPECT_LT(s().part.end, s().work.file.bytes) << "the file is finished";
    expect_written();
}

TEST_F(SaverRun, InAThread)
{
    open();
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_start(&s(), false));
    EXPECT_EQ(nullptr, guard()) << "no steps run";
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_wait(&s()));
    EXPECT_TRUE(zoff_checkpoint_saver_is_over(&s()));
    expect_written();
}

TEST_F(SaverRun, BesideStepsTheEngineAsks)
{
    open();
    ASSERT_ZOFF_OK(start_beside(&s()));
    EXPECT_EQ(&s().guard, guard());
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_wait(&s()));
    before(0); // it is over: nothing happens
    zoff_checkpoint_saver_detach(&s());
    EXPECT_EQ(nullptr, guard());
    zoff_checkpoint_saver_detach(&s());
    expect_written();
}

TEST_F(SaverRun, WithoutAThread)
{
    open();
    refuses_threads = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "no thread can be started for a checkpoint", start_beside(&s()));
    EXPECT_EQ(nullptr, guard());
}

TEST_F(SaverRun, WithoutMemoryForCopies)
{
    open();
    save.reset();
    save = std::make_unique<small_save>(e(), folder.path);
    ASSERT_ZOFF_OK(zoff_checkpoint_layout_make(&s(), false));
    aio_fault fault;
    fault.fail_allocation = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "copies of states for a checkpoint", zoff_checkpoint_saver_open(&s(), 1 << 20));
}

// Files that can share blocks are cloned, others are copied.
TEST_F(SaverRun, CopiesTakeNoMoreThanThePlanSays)
{
    for (const save_shape &shape : save_shapes()) {
        open(shape, ZOFF_SAVE_COPIES);
        EXPECT_LE(s().buffers.count * s().buffers.bytes, plan_of(e()).save_bytes) << shape.name;
        save.reset();
        want.clear();
        zoff_base_progress_remove(&progress, &naps);
    }
}

TEST_F(SaverRun, StatesOfFiles)
{
    open({"persist", 1, 1, true, true}, 1);
    zoff_checkpoint_saver_clone(&s());
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_run(&s()));
    save->expect_checksums();
    for (size_t i = 0; i < s().source_count; i++)
        EXPECT_EQ(s().sources[i].file.checksum, save->checksum_of(save->region_of(s().sources[i]), 0));
}

TEST_F(SaverRun, StatesThatOnlyABorrowedChunkShows)
{
    for (const char *name : {"device_only", "stateless_owned"}) {
        SCOPED_TRACE(name);
        for (const save_shape &shape : save_shapes()) {
            if (strcmp(shape.name, name) == 0)
                open(shape, 1);
        }
        ASSERT_ZOFF_OK(zoff_checkpoint_saver_visit(&s(), e()));
        size_t visited = 0;
        for (size_t i = 0; i < s().unit_count; i++) {
            const bool visits = s().sources[s().units[i].source].place == ZOFF_SAVE_VISIT;
            EXPECT_EQ(visits ? ZOFF_UNIT_SAFE : ZOFF_UNIT_PENDING, s().units[i].state);
            visited += visits;
        }
        EXPECT_LT(10u, visited);
        ASSERT_ZOFF_OK(zoff_checkpoint_saver_run(&s()));
        save->expect_checksums();
        save.reset();
        zoff_base_progress_remove(&progress, &naps);
    }
}

/* ---- what a step changes ---- */

TEST_F(SaverGuard, CopiesHaveTheOldContent)
{
    open(1 << 20);
    ASSERT_EQ(s().unit_count, s().buffers.count) << "not more than there are units";
    for (size_t chunk = 0; chunk < s().view.plan->chunk_count; chunk += 2) {
        before(chunk);
        EXPECT_EQ(std::vector<zoff_save_state>(3, ZOFF_UNIT_COPIED), states_of(chunk));
        scribble(chunk);
        before(chunk); // the next step: nothing is left to do
    }
    EXPECT_EQ(std::vector<zoff_save_state>(3, ZOFF_UNIT_PENDING), states_of(1));
    EXPECT_EQ(0, napping);
    EXPECT_EQ(0, *s().view.save_wait_seconds);
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_run(&s()));
    expect_written();
    EXPECT_EQ(s().buffers.count, s().buffers.free_count);
}

TEST_F(SaverGuard, OnlyTheUnitsOfTheTileAreCopied)
{
    ranks = std::make_unique<save_ranks>(save_shape{"host"}, states.path, 4 << 20);
    lay_out(1 << 30);
    const zoff_plan &plan = *s().view.plan;
    const size_t big = zoff_zero_plan_find(&plan, 8, 0, 0); // 33333 elements: one unit of each state has them all
    zoff_chunk_memory memory = {(char *)s().sources[0].memory - s().sources[0].begin, nullptr};
    s().guard.before(s().guard.ctx, memory, &plan.pieces[big], 5, 0);
    EXPECT_EQ(std::vector<zoff_save_state>(3, ZOFF_UNIT_PENDING), states_of(0)) << "no element";
    s().guard.before(s().guard.ctx, memory, &plan.pieces[big], 5, 1);
    EXPECT_EQ(std::vector<zoff_save_state>(3, ZOFF_UNIT_COPIED), states_of(0));
}

TEST_F(SaverGuard, BeyondTheMemoryAnUpdateWaits)
{
    open();
    ASSERT_EQ((unsigned)FEWEST, s().buffers.count);
    before(0);
    EXPECT_EQ(0u, s().buffers.free_count);
    scribble(0);
    while_waiting(
        [&] {
            before(1);
            scribble(1);
        },
        [&] { EXPECT_ZOFF_OK(zoff_checkpoint_saver_run(&s())); });
    EXPECT_LT(0, *s().view.save_wait_seconds);
    expect_written();
}

TEST_F(SaverGuard, ManyStepsBesideAThread)
{
    open();
    ASSERT_ZOFF_OK(start_beside(&s()));
    for (int step = 0; step < 3; step++) {
        for (size_t chunk = 0; chunk < s().view.plan->chunk_count; chunk++) {
            before(chunk);
            scribble(chunk);
        }
    }
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_wait(&s()));
    expect_written();
}

TEST_F(SaverGuard, ACallOutsideOfAStepWaitsForAll)
{
    open();
    before(0);
    ASSERT_ZOFF_OK(start_beside(&s()));
    guard()->before_all(guard()->ctx);
    for (size_t chunk = 0; chunk < s().view.plan->chunk_count; chunk++)
        scribble(chunk);
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_wait(&s()));
    expect_written();
}

// The first flush writes the other place of a persistent array.
TEST_F(SaverGuard, APlaceThatStaysServesForOneUpdate)
{
    open({"persist", 1, 1, true, true}, 1);
    for (const zoff_save_unit *unit : units_of(1))
        ASSERT_TRUE(s().sources[unit->source].file.stays);
    before(0);
    ASSERT_EQ(0u, s().buffers.free_count);
    before(1);
    EXPECT_EQ(0, napping) << "it did not wait";
    for (const zoff_save_unit *unit : units_of(1)) {
        EXPECT_EQ(ZOFF_UNIT_PENDING, unit->state);
        EXPECT_TRUE(unit->passed);
    }
    while_waiting([&] { before(1); }, [&] { (void)zoff_checkpoint_saver_run(&s()); });
    EXPECT_EQ(std::vector<zoff_save_state>(3, ZOFF_UNIT_SAFE), states_of(1));
}

/* ---- the end ---- */

TEST_F(SaverEnd, AnErrorEndsTheSaveAndNotTheSteps)
{
    const std::pair<int, zoff_status> ERRORS[] = {{EIO, ZOFF_ERR_IO}, {ENOSPC, ZOFF_ERR_NO_SPACE}};
    for (const auto &[error, status] : ERRORS) {
        open();
        const std::string path = s().part.path;
        const int failing = error;
        aio_fault fault;
        fault.result = [failing](int nth, int res, bool writes, uint64_t, size_t) {
            return writes && nth == 4 ? -failing : res;
        };
        EXPECT_EQ(status, zoff_checkpoint_saver_run(&s())) << zoff_last_error();
        EXPECT_TRUE(zoff_checkpoint_saver_is_over(&s()));
        EXPECT_ZOFF_OK(zoff_step_count_set(e(), 7)); // another call of this thread
        EXPECT_ZOFF_FAILS(status, strerror(error), zoff_checkpoint_saver_wait(&s()));
        for (size_t chunk = 0; chunk < s().view.plan->chunk_count; chunk++)
            before(chunk);
        s().guard.before_all(s().guard.ctx);
        EXPECT_EQ(0, napping) << "nobody waits for a save that has failed";
        save.reset();
        want.clear();
        zoff_base_progress_remove(&progress, &naps);
        EXPECT_NE(0, access(path.c_str(), F_OK)) << "its file is removed";
    }
}

TEST_F(SaverEnd, AnErrorReleasesAStepThatWaits)
{
    open();
    before(0);
    aio_fault fault;
    fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -EIO : res; };
    while_waiting([&] { before(1); }, [&] { EXPECT_EQ(ZOFF_ERR_IO, zoff_checkpoint_saver_run(&s())); });
}

TEST_F(SaverEnd, TheFileStaysIfItIsKept)
{
    open();
    const std::string path = s().part.path;
    ASSERT_ZOFF_OK(zoff_checkpoint_saver_run(&s()));
    s().part.keeps = true;
    save.reset();
    EXPECT_EQ(0, access(path.c_str(), F_OK));
}

// Let the worker wait, at its first write, until it is told to stop.
class SaverStop : public Saver
{
  protected:
    void hold()
    {
        fault.result = [this](int, int res, bool, uint64_t, size_t) {
            for (bool stops = false; !stops; usleep(100)) {
                pthread_mutex_lock(&held->work.lock);
                stops = held->work.stops;
                pthread_mutex_unlock(&held->work.lock);
            }
            return res;
        };
        held = &s();
    }
    aio_fault fault;
    zoff_saver *held = nullptr;
};

TEST_F(SaverStop, ClosingGivesUp)
{
    open();
    hold();
    const std::string path = s().part.path;
    ASSERT_ZOFF_OK(start_beside(&s()));
    EXPECT_FALSE(zoff_checkpoint_saver_is_over(&s()));
    zoff_guard **place = s().view.guard;
    save.reset();
    EXPECT_EQ(nullptr, *place);
    EXPECT_NE(0, access(path.c_str(), F_OK));
}

TEST_F(SaverStop, AnEngineThatIsDestroyedGivesUp)
{
    log.expect("the engine is destroyed before its checkpoint");
    open();
    hold();
    ASSERT_ZOFF_OK(start_beside(&s()));
    ranks.reset();
    EXPECT_TRUE(s().is_gone);
    EXPECT_TRUE(zoff_checkpoint_saver_is_over(&s()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the save was given up: its engine is destroyed", zoff_checkpoint_saver_wait(&s()));
}

// A disk that neither completes a write nor fails it.
class SaverDisk : public Saver
{
  protected:
    ~SaverDisk() override
    {
        hurry = 1;
        stands = false;
    }
    void open_at(double timeout)
    {
        zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
        opts.writable = true;
        opts.backend = "threads";
        ranks = std::make_unique<save_ranks>(save_shape{"host"}, states.path, 1024);
        ranks->step(1);
        ranks->job.comm_of(0)->timeout_seconds = timeout;
        lay_out(1);
        zoff_aio_close(s().part.aio);
        ASSERT_ZOFF_OK(zoff_aio_open(s().part.path, &opts, &s().part.aio));
        zoff_aio_queue_limit(s().part.aio, timeout > 0 ? timeout / 4 : -1);
    }
};

TEST_F(SaverDisk, StandingStillFailsTheSaveAndNotTheSteps)
{
    hurry = 100;
    open_at(20); // a quarter of it, in a hurry: 50 ms
    stands = true;
    ASSERT_ZOFF_OK(start_beside(&s()));
    for (size_t chunk = 0; chunk < s().view.plan->chunk_count; chunk++)
        before(chunk);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is not written in time: the disk neither completes a transfer nor fails it",
                      zoff_checkpoint_saver_wait(&s()));
    EXPECT_TRUE(s().work.is_stuck);
}

// Without a limit the save waits for ever, but a program that ends does not.
TEST_F(SaverDisk, StandingStillDoesNotHoldUpTheEnd)
{
    hurry = 100; // 100 ms instead of 10 s
    log.expect("the engine is destroyed before its checkpoint");
    log.expect("before anybody asked for its result"); // the writes that stood still, of memory that is gone
    open_at(-1);
    stands = true;
    standing = 0;
    ASSERT_ZOFF_OK(start_beside(&s()));
    while (standing == 0)
        usleep(100);
    ranks.reset();
    EXPECT_TRUE(zoff_checkpoint_saver_is_over(&s()));
    EXPECT_TRUE(s().work.is_stuck);
}
} // namespace
