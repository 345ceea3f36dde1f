/* SPDX-License-Identifier: Apache-2.0 */
// save_ranks_test.cc: ranks that save or load with different arguments, not all together, or into different folders; and ranks
// that stop or leave in each phase of a save. Every other rank gets an error in time, and no checkpoint is lost.
#include "comm_fault.h"
#include "covering.h"
#include "saved_run.h"

#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <chrono>
#include <thread>

extern "C" {
#include "try.h"
}

using namespace zoff_test;
namespace fs = std::filesystem;

namespace
{
double seconds_since(std::chrono::steady_clock::time_point from)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

run_shape shape_of(unsigned world, zoff_tier tier = ZOFF_TIER_HOST, bool persist = false)
{
    run_shape s;
    s.world = world;
    s.tier = tier;
    s.persist = persist;
    return s;
}

void set_deadline(const saved_run &r, double seconds)
{
    for (unsigned rank = 0; rank < r.s.world; rank++)
        r.job.comm_of(rank)->timeout_seconds = seconds;
}

// ---- one rank alone ----

class Alone : public testing::TestWithParam<int>
{
};
const char *const CALLS[] = {"save", "begin", "load", "wait"};
INSTANTIATE_TEST_SUITE_P(Calls, Alone, testing::Values(0, 1, 2, 3), [](const auto &p) { return std::string(CALLS[p.param]); });

TEST_P(Alone, GetsAnErrorThatNamesTheOthers)
{
    save_log log;
    scratch_folder folder;
    saved_run r(shape_of(3), "");
    r.step(1);
    expect_all_ok(r.save(folder.path));
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "second";
    if (GetParam() == 3)
        expect_all_ok(r.begin(folder.path, opts));
    set_deadline(r, 0.5);
    const auto from = std::chrono::steady_clock::now();
    zoff_engine *e = r.engine_of(1);
    zoff_checkpoint *none = nullptr;
    const zoff_status status = GetParam() == 0   ? zoff_checkpoint_save(e, folder.path.c_str(), &opts)
                               : GetParam() == 1 ? zoff_checkpoint_begin(e, folder.path.c_str(), &opts, &none)
                               : GetParam() == 2 ? zoff_checkpoint_load(e, folder.path.c_str(), nullptr)
                                                 : zoff_checkpoint_wait(r.saves[1]);
    EXPECT_EQ(ZOFF_ERR_COMM, status);
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("ranks 0, 2 of 3 did not arrive")) << zoff_last_error();
    EXPECT_LT(seconds_since(from), 10);
    EXPECT_EQ(nullptr, none);
    for (unsigned rank = 0; rank < 3 && GetParam() == 3; rank += 2)
        EXPECT_EQ(ZOFF_ERR_COMM, zoff_checkpoint_wait(r.saves[rank]));
    expect_newest(folder.path, 1);
    EXPECT_FALSE(fs::exists(folder.file("second")));
}

// ---- different arguments ----

struct difference {
    const char *name, *words;
    std::function<void(zoff_checkpoint_opts &opts, std::string &folder, zoff_checkpoint_data &data)> make;
    bool loads; // the argument matters to a load
};

const std::vector<difference> &differences()
{
    static const std::vector<difference> all = {
        {"folder", "folder is", [](auto &, auto &folder, auto &) { folder += "/other"; }, true},
        {"name", "zoff_checkpoint_opts.name is one on", [](auto &opts, auto &, auto &) { opts.name = "two"; }, false},
        {"label", "zoff_checkpoint_opts.label is ", [](auto &opts, auto &, auto &) { opts.label = "tp1"; }, true},
        {"engines", "zoff_checkpoint_opts.engines is 1 on", [](auto &opts, auto &, auto &) { opts.engines = 3; }, false},
        {"keep", "zoff_checkpoint_opts.keep is 0 on", [](auto &opts, auto &, auto &) { opts.keep = 2; }, false},
        {"pinned", "zoff_checkpoint_opts.pinned is 0 on", [](auto &opts, auto &, auto &) { opts.pinned = true; }, false},
        {"skip", "skip_frozen is 0 on rank 0 and 1 on rank 1", [](auto &opts, auto &, auto &) { opts.skip_frozen = true; },
         false},
        {"count", "data_count is 1 on rank 0 and 0 on rank 1", [](auto &opts, auto &, auto &) { opts.data_count = 0; }, true},
        {"data", "name of data 0 is seed on rank 0 and position on", [](auto &, auto &, auto &data) { data.name = "position"; },
         true},
        {"each", "each_rank of data 0 is 0 on rank 0 and 1 on", [](auto &, auto &, auto &data) { data.each_rank = true; },
         false},
        {"allow", "zoff_checkpoint_opts.allow is  on rank 0 and * on", [](auto &opts, auto &, auto &) { opts.allow = "*"; },
         true},
        {"weights_only", "zoff_checkpoint_opts.weights_only is 0 on rank 0 and 1 on",
         [](auto &opts, auto &, auto &) { opts.weights_only = true; }, true}};
    return all;
}

class Different : public testing::TestWithParam<size_t>
{
};
INSTANTIATE_TEST_SUITE_P(Arguments, Different, testing::Range(size_t(0), differences().size()),
                         [](const auto &p) { return std::string(differences()[p.param].name); });

TEST_P(Different, ArgumentsAreRefusedWithBothValues)
{
    const difference &d = differences()[GetParam()];
    scratch_folder folder;
    saved_run r(shape_of(2), "");
    uint64_t seed[2] = {5, 5};
    auto call = [&](bool loads, bool differs) {
        return r.on_each([&](zoff_engine *e, unsigned rank) {
            zoff_checkpoint_data data = {"seed", &seed[rank], sizeof seed[rank], false};
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            std::string path = folder.path;
            opts.data = &data;
            opts.data_count = 1;
            opts.name = "one";
            if (differs && rank == 1)
                d.make(opts, path, data);
            return loads ? zoff_checkpoint_load(e, path.c_str(), &opts) : zoff_checkpoint_save(e, path.c_str(), &opts);
        });
    };
    auto expect_refused = [&](bool loads) {
        for (const auto &one : call(loads, true)) {
            EXPECT_EQ(ZOFF_ERR_INVALID, one.status);
            EXPECT_NE(std::string::npos, one.words.find(d.words)) << one.words;
        }
    };
    r.step(1);
    if (std::string(d.name) != "allow" && std::string(d.name) != "weights_only") {
        expect_refused(false);
        EXPECT_FALSE(fs::exists(folder.file("one")));
        EXPECT_FALSE(fs::exists(folder.file("other")));
    }
    expect_all_ok(call(false, false));
    r.step(2);
    const auto after = r.all.want.tensors;
    if (d.loads)
        expect_refused(true);
    r.expect(after);
    expect_all_ok(call(true, false));
}

// ---- folders that are not one ----

void expect_not_shared(saved_run &r, const std::string &folder, const std::function<void(unsigned rank)> &before)
{
    const auto results = r.on_each([&](zoff_engine *e, unsigned rank) {
        before(rank);
        return zoff_checkpoint_save(e, folder.c_str(), nullptr);
    });
    EXPECT_EQ(ZOFF_ERR_COMM, results[0].status);
    EXPECT_NE(std::string::npos, results[0].words.find("rank 1 has failed")) << results[0].words;
    EXPECT_EQ(ZOFF_ERR_INVALID, results[1].status);
    EXPECT_NE(std::string::npos, results[1].words.find("must be one that all ranks share")) << results[1].words;
}

TEST(NotShared, AreWorkingFoldersThatDiffer)
{
    save_log log;
    scratch_folder folder;
    saved_run r(shape_of(2), "");
    const std::string one = folder.file("0"), other = folder.file("1");
    fs::create_directory(one);
    fs::create_directory(other);
    r.step(1);
    expect_not_shared(r, "saves", [&](unsigned rank) {
        ASSERT_EQ(0, unshare(CLONE_FS)); // the thread gets a working folder of its own
        ASSERT_EQ(0, chdir((rank ? other : one).c_str()));
    });
    EXPECT_TRUE(fs::is_empty(other));
    EXPECT_TRUE(fs::is_empty(one + "/saves"));
    expect_all_ok(r.save(one));
    expect_newest(one, 1);
}

TEST(NotShared, AreOtherFileSystemsUnderOnePath)
{
    save_log log;
    scratch_folder folder;
    saved_run r(shape_of(2), "");
    std::atomic<int> error{0};
    r.step(1);
    std::thread([&] {
        error = unshare(CLONE_NEWNS) ? errno : 0;
        error = !error && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ? errno : error.load();
    }).join();
    if (error)
        GTEST_SKIP() << "mount namespaces are not allowed: " << strerror(error);
    expect_not_shared(r, folder.path, [&](unsigned rank) {
        if (rank == 0)
            return;
        ASSERT_EQ(0, unshare(CLONE_NEWNS));
        ASSERT_EQ(0, mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
        ASSERT_EQ(0, mount("other", folder.path.c_str(), "tmpfs", 0, nullptr));
    });
    EXPECT_TRUE(fs::is_empty(folder.path));
    expect_all_ok(r.save(folder.path));
    expect_newest(folder.path, 1);
}

// ---- a rank that stops ----

enum fault { STALLS, LEAVES, HEARS_NOTHING };

// One rank stops where it starts its nth operation of a save; or it does not hear how the nth one ends.
class scene
{
  public:
    enum { RANKS = 3, LAST_WORD = 0 };

    scene(fault what_, int nth_, unsigned faulty_, bool beside_)
        : what(what_), nth(nth_), faulty(faulty_), beside(beside_),
          r(shape_of(RANKS, beside_ ? ZOFF_TIER_NVME : ZOFF_TIER_HOST), states.path)
    {
        for (unsigned rank = 0; rank < RANKS; rank++)
            wrapped.push_back(std::make_unique<comm_fault>(r.job.comm_of(rank)));
        wrapped[faulty]->before = [this](const zoff_comm_work &work) { return strike(work); };
        wrapped[faulty]->not_yet = [this](const zoff_comm_work &work) {
            return has_struck && what == HEARS_NOTHING && go_on(work);
        };
    }

    // Returns whether the save had so many operations.
    bool play()
    {
        r.step(1);
        expect_all_ok(r.save(folder.path));
        r.step(2);
        set_deadline(r, 1);
        is_armed = true;
        r.job.on_each([&](unsigned rank) { rank == faulty ? fail() : survive(rank); });
        EXPECT_TRUE(!has_struck || survivors == RANKS - 1);
        look(); // the faulty rank has ended, too
        for (unsigned rank = 0; rank < RANKS; rank++) {
            r.all.engines[rank].reset();
            r.job.leave(rank);
        }
        return has_struck;
    }

  private:
    // Others get what this rank has sent.
    bool go_on(const zoff_comm_work &work)
    {
        auto it = const_cast<zoff_comm_work *>(&work);
        is_done = is_done || wrapped[faulty]->real->poll(r.job.comm_of(faulty), it) != ZOFF_PENDING;
        return true;
    }

    // The operation in which ranks say that their files are durable follows the one with their reports, which are longer.
    bool is_last_word(const zoff_comm_work &work)
    {
        const size_t bytes = work.call.kind == ZOFF_COMM_GATHER ? work.call.count : 0;
        has_reported = has_reported || bytes == 48;
        return has_reported && bytes == sizeof(uint64_t);
    }

    zoff_status strike(const zoff_comm_work &work)
    {
        if (!is_armed || (nth == LAST_WORD ? !has_struck && !is_last_word(work) : ++started < nth))
            return ZOFF_OK;
        has_struck = true;
        if (what == LEAVES)
            return zoff_base_status_fail(ZOFF_ERR_IO, "provoked"); // the error is that of this operation and all that follow
        for (; what == STALLS && survivors < RANKS - 1;)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return ZOFF_OK;
    }

    zoff_status save(unsigned rank)
    {
        zoff_checkpoint *save;
        if (!beside)
            return zoff_checkpoint_save(r.engine_of(rank), folder.path.c_str(), nullptr);
        const zoff_status status = zoff_checkpoint_begin(r.engine_of(rank), folder.path.c_str(), nullptr, &save);
        return status < 0 ? status : zoff_checkpoint_wait(save);
    }

    void fail()
    {
        const zoff_status status = save(faulty);
        if (!has_struck) {
            EXPECT_EQ(ZOFF_OK, status) << zoff_last_error();
            return;
        }
        EXPECT_GT(0, status);
        if (what == LEAVES) {
            r.all.engines[faulty].reset();
            r.job.leave(faulty);
        }
    }

    void survive(unsigned rank)
    {
        const auto from = std::chrono::steady_clock::now();
        const zoff_status status = save(rank);
        const std::string words = zoff_last_error();
        if (!has_struck) {
            EXPECT_EQ(ZOFF_OK, status) << words;
            return;
        }
        EXPECT_LT(seconds_since(from), 20);
        EXPECT_TRUE(status == ZOFF_ERR_COMM || (status == ZOFF_OK && what == HEARS_NOTHING)) << words;
        if (what != HEARS_NOTHING) {
            EXPECT_NE(std::string::npos, words.find("rank " + std::to_string(faulty))) << words;
        }
        if (++survivors == RANKS - 1)
            look();
    }

    // The checkpoint before is there, or the new one as a whole. Only where rank 0 is silent may files be left.
    void look()
    {
        zoff_checkpoint_reader *reader = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.path.c_str(), nullptr, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        EXPECT_TRUE(info.t == 1 || info.t == 2);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
        zoff_checkpoint_reader_close(reader);
        const std::string second = folder.file("step-0000000002");
        if (info.t == 1 && faulty != 0 && fs::exists(second)) {
            EXPECT_TRUE(fs::is_empty(second)) << *fs::directory_iterator(second);
        }
    }

    const fault what;
    const int nth;
    const unsigned faulty;
    const bool beside;
    scratch_folder folder, states;
    std::vector<std::unique_ptr<comm_fault>> wrapped; // destroyed after the communicators
    saved_run r;
    int started = 0;
    bool has_reported = false, is_done = false;
    std::atomic<bool> is_armed{false}, has_struck{false};
    std::atomic<unsigned> survivors{0};
};

// Rank 0 hears that all files are durable, and another rank does not hear it. The manifest names the file of that rank.
TEST(RanksThatHearNothing, KeepTheirFiles)
{
    save_log log;
    for (unsigned faulty : {1u, 2u})
        EXPECT_TRUE(scene(HEARS_NOTHING, scene::LAST_WORD, faulty, faulty == 1).play());
}

class RanksThatStop : public testing::TestWithParam<fault>
{
};
INSTANTIATE_TEST_SUITE_P(Faults, RanksThatStop, testing::Values(STALLS, LEAVES, HEARS_NOTHING), [](const auto &p) {
    return std::string(p.param == STALLS ? "Stalls" : p.param == LEAVES ? "Leaves" : "HearsNothing");
});

// Most of the time ranks wait for their deadline, so several scenes run at a time.
TEST_P(RanksThatStop, LoseNoCheckpoint)
{
    save_log log;
    enum { AT_A_TIME = 6, MOST = 60 };
    std::atomic<bool> ended{false};
    int phases = 0;
    for (int first = 1; !ended && first < MOST && !HasFailure(); first += AT_A_TIME) {
        std::vector<std::thread> scenes;
        for (int nth = first; nth < first + AT_A_TIME; nth++) {
            scenes.emplace_back([&, nth] {
                SCOPED_TRACE("operation " + std::to_string(nth));
                const unsigned faulty = is_full_run() ? 0 : nth % 3;
                for (unsigned k = 0; k < (is_full_run() ? 3 : 1); k++)
                    ended = !scene(GetParam(), nth, (faulty + k) % 3, nth % 2).play() || ended;
            });
        }
        for (auto &thread : scenes)
            thread.join();
        phases += AT_A_TIME;
    }
    EXPECT_GE(phases, 12) << "operations of a save";
    if (log.contains("is no complete checkpoint")) // rank 0 has stopped, and left files
        log.expect("is no complete checkpoint");
}
} // namespace
