/* SPDX-License-Identifier: Apache-2.0 */
// savers_test.cc: several programs save under the same names into one folder, with one rank or two, some remove old
// checkpoints, others load, or pin and unpin, and each may be killed at any moment. A load always finds a whole checkpoint,
// which is at least as new as each that was reported complete before. One that stays pinned stays.
#include "covering.h"
#include "saved_run.h"

#include <random>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern "C" {
#include "archive.h"
}

#include <atomic>

using namespace zoff_test;

// The disk of a program. A flush of a folder, with the lock of the folder or without, may take long, or fail then. Without
// locks none fails: two saves that have failed can put no third one back.
static struct {
    bool has_locks = true; // false: as on some network file systems
    bool is_stalling;
    std::minstd_rand random;
} disk;

// No power fails here, and flushes would leave time for few saves.
extern "C" int fsync(int fd)
{
    struct stat about;
    if (!disk.is_stalling || fstat(fd, &about) != 0 || !S_ISDIR(about.st_mode) || disk.random() % 16)
        return 0;
    usleep(20000);
    errno = EIO;
    return !disk.has_locks || disk.random() % 2 ? 0 : -1;
}

// Whoever waits for a lock looks at the clock each time. After some times much time seems to have passed.
static thread_local unsigned waits;

extern "C" int flock(int fd, int operation)
{
    if (disk.has_locks) {
        const int result = (int)syscall(SYS_flock, fd, operation);
        if (operation == (LOCK_EX | LOCK_NB))
            waits = result != 0 && errno == EWOULDBLOCK ? waits + 1 : 0;
        return result;
    }
    errno = ENOLCK;
    return -1;
}

extern "C" int clock_gettime(clockid_t clock, timespec *out) noexcept
{
    enum { MOST = 20 };
    const int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (waits > MOST && clock == CLOCK_MONOTONIC) {
        out->tv_sec += 3600;
        waits = 0;
    }
    return result;
}

namespace
{
// All programs of a test share it.
struct shared {
    std::atomic<uint64_t> newest;  // begin of the newest save that was complete, in nanoseconds
    std::atomic<unsigned> done;    // saves that were complete
    std::atomic<unsigned> refused; // saves for which another one had the name
    std::atomic<unsigned> loads, numbers;
    std::atomic<bool> stops;
};

struct setup {
    const char *name;
    unsigned savers, loaders, ranks, names, keep;
    bool beside, has_locks, stalls, kills;
};

uint64_t now()
{
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void raise(std::atomic<uint64_t> &most, uint64_t value)
{
    for (uint64_t old = most; old < value && !most.compare_exchange_weak(old, value);)
        ;
}

// Say what is wrong, and end the program: the test reads its status.
void wrong(const std::string &what)
{
    fprintf(stderr, "%s\n", (what + ": " + zoff_last_error()).c_str());
    _exit(1);
}

class program
{
  public:
    program(const setup &s_, const std::string &folder_, shared *all_, unsigned seed)
        : s(s_), folder(folder_), all(all_), random(seed)
    {
        disk.has_locks = s.has_locks;
        disk.is_stalling = s.stalls;
        disk.random.seed(seed);
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    }

    // Each save has one number in all weights.
    void save_until_stopped()
    {
        save_while([&] { return !all->stops; }, [&] { return std::string(1, (char)('a' + random() % s.names)); });
    }

    void save_once(const std::string &name)
    {
        bool is_first = true;
        s.keep = 0;
        save_while([&] { return std::exchange(is_first, false); }, [&] { return name; });
    }

    void load_until_stopped()
    {
        std::vector<float> w(COUNT), g(COUNT);
        const engine e = open(w, g, nullptr);
        while (!all->stops) {
            if (random() % 4 == 0)
                change_pin();
            else if (random() % 2)
                read();
            else if (zoff_checkpoint_load(e.get(), folder.c_str(), nullptr) < 0)
                wrong("a load found no checkpoint");
            else
                expect_one(w, "a load");
            all->loads++;
        }
    }

    static constexpr size_t COUNT = 3000;
    static constexpr const char *PINNED = "best"; // saved once, and never unpinned

  private:
    void save_while(const std::function<bool()> &goes_on, const std::function<std::string()> &choose)
    {
        const rank_job job(s.ranks);
        std::vector<std::vector<float>> w(s.ranks, std::vector<float>(COUNT)), g = w;
        std::vector<engine> engines(s.ranks);
        job.on_each([&](unsigned rank) { engines[rank] = open(w[rank], g[rank], job.comm_of(rank)); });
        while (goes_on()) {
            const float number = (float)++all->numbers;
            const std::string name = choose();
            pins = name == PINNED || random() % 4 == 0;
            job.on_each([&](unsigned rank) { save(rank, engines[rank].get(), w[rank], name, number); });
        }
        job.on_each([&](unsigned rank) { engines[rank].reset(); });
    }

    engine open(std::vector<float> &w, std::vector<float> &g, zoff_comm *comm)
    {
        zoff_engine_opts o = ZOFF_ENGINE_OPTS_INIT;
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        zoff_engine *e = nullptr;
        o.comm = comm;
        o.threads = 1;
        d.name = "w";
        d.value = w.data();
        d.grad = g.data();
        d.count = w.size();
        if (zoff_engine_open(&o, &d, 1, &e) < 0)
            wrong("an engine does not open");
        return engine(e);
    }

    void save(unsigned rank, zoff_engine *e, std::vector<float> &w, const std::string &name, float number)
    {
        static const char *const REASONS[] = {"two programs save under this name", "another program has locked",
                                              "cannot flush the folder"};
        zoff_checkpoint_opts o = ZOFF_CHECKPOINT_OPTS_INIT;
        zoff_checkpoint *c = nullptr;
        std::fill(w.begin(), w.end(), number);
        if (zoff_params_pull(e) < 0)
            wrong("the engine takes no weights");
        o.name = name.c_str();
        o.keep = s.keep;
        o.pinned = pins;
        const uint64_t begun = now();
        zoff_status status =
            s.beside ? zoff_checkpoint_begin(e, folder.c_str(), &o, &c) : zoff_checkpoint_save(e, folder.c_str(), &o);
        if (s.beside && status == ZOFF_OK)
            status = zoff_checkpoint_wait(c);
        if (status < 0 && rank == 0 &&
            std::none_of(std::begin(REASONS), std::end(REASONS), [](const char *r) { return strstr(zoff_last_error(), r); }))
            wrong("a save failed");
        if (rank == 0 && status == ZOFF_OK)
            raise(all->newest, begun);
        if (rank == 0)
            (status == ZOFF_OK ? all->done : all->refused)++;
    }

    // All files are those of one save.
    void expect_one(const std::vector<float> &w, const char *what)
    {
        for (float x : w)
            if (x != w[0])
                wrong(what + std::string(" found two saves in one: ") + std::to_string(x) + " and " + std::to_string(w[0]));
    }

    void read()
    {
        const uint64_t newest = all->newest;
        uint64_t least = 0;
        zoff_checkpoint_reader *r = nullptr;
        std::vector<float> w(COUNT);
        char *chosen = nullptr;
        if (zoff_checkpoint_reader_open(folder.c_str(), nullptr, &r) < 0)
            wrong("there is nothing to read");
        if (zoff_checkpoint_reader_read(r, 0, ZOFF_STATE_MASTER, 0, COUNT, w.data()) < 0)
            wrong("a checkpoint cannot be read");
        expect_one(w, "a read");
        zoff_checkpoint_reader_close(r);
        zoff_archive *a = nullptr;
        if (zoff_archive_choose(folder.c_str(), "", &chosen, &least) < 0)
            wrong("there is nothing to choose");
        const bool compares = (s.has_locks || !s.kills) && zoff_archive_open(chosen, "", least, &a) == ZOFF_OK;
        if (compares && a->manifest.sequence < newest)
            wrong("a save that was complete is lost: " + std::to_string(newest - a->manifest.sequence) + " ns");
        zoff_archive_close(a);
        zoff_base_mem_free(chosen);
    }

    // Pin or unpin a checkpoint that others replace and remove, or pin the newest one, which may be the one that stays.
    void change_pin()
    {
        const unsigned which = (unsigned)random() % (s.names + 1);
        const std::string path = which ? folder + "/" + (char)('a' + which - 1) : folder;
        const bool exists = access(path.c_str(), F_OK) == 0 && s.keep == 0 && s.has_locks;
        const auto call = which && random() % 2 ? zoff_checkpoint_unpin : zoff_checkpoint_pin;
        if (call(path.c_str(), nullptr) < 0 && exists && !strstr(zoff_last_error(), "another program has locked"))
            wrong("a checkpoint is not pinned");
    }

    setup s;
    const std::string folder;
    shared *all;
    std::mt19937 random;
    bool pins = false; // what the next save has in zoff_checkpoint_opts.pinned
};

class Savers : public testing::TestWithParam<setup>
{
  protected:
    Savers() { all = new (mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) shared{}; }
    ~Savers() override { munmap(all, sizeof(shared)); }

    pid_t start(bool saves, unsigned seed)
    {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            program p(GetParam(), folder(), all, seed);
            saves ? p.save_until_stopped() : p.load_until_stopped();
            _exit(0);
        }
        return child;
    }
    std::string folder() const { return scratch.file("saves"); }

    static void expect_ends_well(pid_t child)
    {
        int status = -1;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << "a program has found a fault";
    }

    void save_once(const std::string &name)
    {
        const pid_t child = fork();
        if (child == 0) {
            program(GetParam(), folder(), all, 5).save_once(name);
            _exit(0);
        }
        expect_ends_well(child);
    }

    // The id of the pinned checkpoint, which is whole.
    std::string pinned()
    {
        zoff_checkpoint_reader *r = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open((folder() + "/" + program::PINNED).c_str(), nullptr, &r));
        const handle<zoff_checkpoint_reader, zoff_checkpoint_reader_close> owner(r);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
        EXPECT_TRUE(info.pinned);
        return info.id ? info.id : "";
    }

    // A further save of each name removes what killed ones have left.
    void expect_no_leftovers()
    {
        for (unsigned i = 0; i < GetParam().names; i++) {
            const std::string name(1, (char)('a' + i));
            save_once(name);
            std::set<std::string> files;
            for (const auto &entry : std::filesystem::directory_iterator(folder() + "/" + name))
                if (entry.path().extension() != ".pinned")
                    files.insert(entry.path().filename());
            EXPECT_EQ(1u + GetParam().ranks, files.size()) << name << ": " << testing::PrintToString(files);
        }
        for (const auto &entry : std::filesystem::directory_iterator(folder()))
            EXPECT_NE('.', entry.path().filename().string()[0]) << entry.path();
    }

    // The first save: from then on there is always one.
    void save_first()
    {
        const pid_t first = start(true, 1);
        while (all->done == 0 && waitpid(first, nullptr, WNOHANG) == 0)
            usleep(1000);
        all->stops = true;
        expect_ends_well(first);
        all->stops = false;
    }

    scratch_folder scratch;
    shared *all;
};

TEST_P(Savers, ALoadAlwaysFindsAWholeCheckpoint)
{
    const setup &s = GetParam();
    const unsigned kills = share_of(200);
    std::mt19937 random(7);
    std::vector<pid_t> savers, loaders;
    save_first();
    save_once(program::PINNED);
    const std::string id = pinned();
    for (unsigned i = 0; i < s.savers; i++)
        savers.push_back(start(true, 10 + i));
    for (unsigned i = 0; i < s.loaders; i++)
        loaders.push_back(start(false, 100 + i));
    for (unsigned i = 0; i < kills; i++) {
        usleep(5000 + random() % 30000);
        if (!s.kills)
            continue;
        pid_t &victim = savers[random() % savers.size()];
        int status = 0;
        kill(victim, SIGKILL);
        waitpid(victim, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << "a saver ended by itself";
        victim = start(true, 1000 + i);
    }
    all->stops = true;
    for (const auto &list : {savers, loaders})
        for (pid_t child : list)
            expect_ends_well(child);
    printf("%u saves complete, %u refused, %u loads, %u kills\n", all->done.load(), all->refused.load(), all->loads.load(),
           kills);
    EXPECT_EQ(id, pinned());
    if (s.has_locks)
        expect_no_leftovers();
}

const setup SETUPS[] = {
    // name, savers, loaders, ranks, names, keep, beside, has_locks, stalls, kills
    {"one_name", 3, 2, 1, 1, 0, false, true, false, true},
    {"two_names", 4, 1, 1, 2, 1, false, true, false, true},
    {"beside_steps", 2, 2, 1, 1, 0, true, true, false, true},
    {"ranks", 2, 1, 2, 2, 1, false, true, false, true},
    {"many_names", 3, 2, 1, 5, 2, false, true, false, true},
    {"stalls", 4, 2, 1, 2, 1, false, true, true, true},
    {"without_locks", 3, 1, 1, 1, 0, false, false, true, true},
    {"without_locks_or_kills", 2, 2, 1, 1, 0, false, false, true, false},
};
INSTANTIATE_TEST_SUITE_P(Each, Savers, testing::ValuesIn(SETUPS), [](const auto &i) { return i.param.name; });
} // namespace
