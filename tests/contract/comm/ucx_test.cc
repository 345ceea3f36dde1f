/* SPDX-License-Identifier: Apache-2.0 */
// ucx_test.cc: ranks that only the variables of a launcher tell who they are, in processes of their own, joined by UCX. Who may
// join, who is told why not, and what the others are told when one stops, ends or is killed.
#include "free_port.h"
#include "zoff_test.h"

extern "C" {
#include "comm.h"
}

#include <chrono>
#include <functional>
#include <netinet/in.h>
#include <regex>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace zoff_test;

namespace
{
bool has(const std::string &words, const char *pattern)
{
    return std::regex_search(words, std::regex(pattern));
}

double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processes, each with the words that it has written. One that is still there at the end is killed.
class Ucx : public testing::Test
{
  protected:
    struct process {
        pid_t pid;
        int words;
    };

    void SetUp() override
    {
        if (!port)
            GTEST_SKIP() << "this machine has no loopback network";
    }

    ~Ucx() override
    {
        for (const process &p : all) {
            kill(p.pid, SIGKILL);
            waitpid(p.pid, nullptr, 0);
            close(p.words);
        }
    }

    // Start a rank. `run` returns what it has to say.
    size_t start(unsigned rank, unsigned size, const std::function<std::string()> &run, const char *job = nullptr)
    {
        int ends[2];
        EXPECT_EQ(0, pipe(ends));
        const pid_t pid = fork();
        if (pid == 0) {
            setenv("ZOFF_PLUGIN_PATH", PLUGINS, 1);
            setenv("RANK", std::to_string(rank).c_str(), 1);
            setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
            setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
            setenv("MASTER_ADDR", address, 1);
            setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
            if (job)
                setenv("TORCHELASTIC_RUN_ID", job, 1);
            const std::string words = run();
            _exit(write(ends[1], words.data(), words.size()) == (ssize_t)words.size() ? 0 : 1);
        }
        close(ends[1]);
        all.push_back({pid, ends[0]});
        return all.size() - 1;
    }

    // The words of a process that has ended in time, and by itself.
    std::string words_of(size_t process)
    {
        std::string words;
        char part[512];
        for (ssize_t got; (got = read(all[process].words, part, sizeof part)) > 0;)
            words.append(part, (size_t)got);
        int status = 0;
        EXPECT_EQ(all[process].pid, waitpid(all[process].pid, &status, 0));
        EXPECT_TRUE(WIFEXITED(status)) << "process " << process << " was ended by signal " << WTERMSIG(status);
        close(all[process].words);
        all.erase(all.begin() + (ptrdiff_t)process);
        return words;
    }

    // The words of all processes that are left.
    std::vector<std::string> all_words()
    {
        std::vector<std::string> words;
        while (!all.empty())
            words.insert(words.begin(), words_of(all.size() - 1));
        return words;
    }

    static std::string open(zoff_comm **out, double timeout_seconds, const char *backend = "ucx")
    {
        zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
        opts.backend = backend;
        opts.timeout_seconds = timeout_seconds;
        return zoff_comm_open(&opts, out) < 0 ? zoff_last_error() : "";
    }

    // Join, add up 1 of each rank, and leave.
    static std::string sum(double timeout_seconds, const char *backend = "ucx")
    {
        zoff_comm *comm = nullptr;
        const std::string failed = open(&comm, timeout_seconds, backend);
        if (!failed.empty())
            return failed;
        zoff_comm_work work = {};
        double one = 1;
        zoff_comm_info info = ZOFF_COMM_INFO_INIT;
        if (zoff_comm_sum_scalars(comm, &one, 1, &work) < 0 || zoff_comm_wait(comm, &work) < 0 ||
            zoff_comm_get_info(comm, &info) < 0)
            return zoff_last_error();
        zoff_comm_close(comm);
        return std::string(info.backend) + " " + std::to_string((int)one);
    }

    void start_all(unsigned size, const std::function<std::string()> &run)
    {
        for (unsigned rank = 0; rank < size; rank++)
            start(rank, size, run);
    }

    const char *address = "127.0.0.1";
    const int port = free_port();
    std::vector<process> all;
};

TEST_F(Ucx, RanksOfEachNumberJoin)
{
    for (const unsigned size : {1u, 2u, 5u}) {
        start_all(size, [] { return sum(20); });
        EXPECT_EQ(std::vector<std::string>(size, "ucx " + std::to_string(size)), all_words());
    }
}

// Without a GPU, variables of torchrun mean UCX. A host name and IPv6 are addresses, too.
TEST_F(Ucx, AutoTakesItUnderTorchrun)
{
    for (const char *at : {"localhost", "::1"}) {
        address = at;
        start_all(2, [] { return sum(20, "auto"); });
        const std::vector<std::string> words = all_words();
        if (std::string(at) == "::1" && words[1].find("not available") == std::string::npos && words[1] != "ucx 2")
            continue; // this host has no IPv6
        EXPECT_EQ(std::vector<std::string>(2, "ucx 2"), words);
    }
}

// Also one that was killed while it waited, and comes again; and rank 0 as the last one.
TEST_F(Ucx, RanksComeInAnyOrder)
{
    start(2, 3, [] { return sum(20); });
    start(1, 3, [] { return sum(20); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    start(0, 3, [] { return sum(20); });
    EXPECT_EQ(std::vector<std::string>(3, "ucx 3"), all_words());

    const size_t lost = start(1, 3, [] { return sum(20); });
    start(0, 3, [] { return sum(20); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(all[lost].pid, SIGKILL);
    waitpid(all[lost].pid, nullptr, 0);
    close(all[lost].words);
    all.erase(all.begin() + (ptrdiff_t)lost);
    start(1, 3, [] { return sum(20); });
    start(2, 3, [] { return sum(20); });
    EXPECT_EQ(std::vector<std::string>(3, "ucx 3"), all_words());
}

TEST_F(Ucx, RanksThatDoNotComeAreNamed)
{
    start(0, 4, [] { return sum(1); });
    start(2, 4, [] { return sum(1); });
    const std::vector<std::string> words = all_words();
    // On a busy machine rank 2 may not come in time, either.
    EXPECT_TRUE(has(words[0], "[23] of 4 ranks did not come: 1, (2, )?3")) << words[0];
    EXPECT_NE(std::string::npos,
              words[1].find("rank 2 of 4 has tried to join at 127.0.0.1:" + std::to_string(port + 1) + " for 1 s"))
        << words[1];
    start(1, 2, [] { return sum(0.5); });
    EXPECT_NE(std::string::npos, words_of(0).find("Connection refused")) << "nobody listens";
}

// Two jobs that were given one port: the second waits for it, and neither takes ranks of the other.
TEST_F(Ucx, JobsDoNotMix)
{
    start(
        0, 2, [] { return sum(20); }, "first");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    start(
        0, 2, [] { return sum(1); }, "second");
    start(
        1, 2, [] { return sum(1); }, "second");
    start(
        1, 3, [] { return sum(1); }, "first");
    const std::string size = words_of(3), other = words_of(2), taken = words_of(1);
    EXPECT_NE(std::string::npos, size.find("this is the job \"first\" of 2 ranks")) << size;
    EXPECT_NE(std::string::npos, other.find("this is the job \"first\" of 2 ranks")) << other;
    EXPECT_NE(std::string::npos, taken.find("another job may use it")) << taken;
    start(
        1, 2, [] { return sum(20); }, "first");
    EXPECT_EQ(std::vector<std::string>(2, "ucx 2"), all_words());
}

TEST_F(Ucx, TheSameNumberTwiceIsRefused)
{
    start(0, 3, [] { return sum(20); });
    const size_t first = start(1, 3, [] { return sum(20); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    start(1, 3, [] { return sum(20); });
    const std::string words = words_of(first + 1);
    EXPECT_NE(std::string::npos, words.find("rank 1 has come already: two processes have the same number")) << words;
    start(2, 3, [] { return sum(20); });
    EXPECT_EQ(std::vector<std::string>(3, "ucx 3"), all_words());
}

// A stranger sends nothing, rubbish, or the words of another version.
TEST_F(Ucx, StrangersAreTurnedAway)
{
    start(0, 2, [] { return sum(20); });
    std::vector<int> fds;
    const auto knock = [&](const std::string &words) {
        sockaddr_in at = {};
        at.sin_family = AF_INET;
        at.sin_port = htons((uint16_t)(port + 1));
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        fds.push_back(fd);
        for (int tries = 0; connect(fd, (const sockaddr *)&at, sizeof at) != 0 && tries < 100; tries++)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ((ssize_t)words.size(), write(fd, words.data(), words.size()));
        return fd;
    };
    const auto answer = [](int fd) {
        std::string words;
        char part[512];
        for (ssize_t got; (got = read(fd, part, sizeof part)) > 0;)
            words.append(part, (size_t)got);
        return words;
    };
    struct {
        char magic[8] = "zoffucx";
        uint32_t order = 0x01020304, zoff_version = 1, ucx_version = 1, rank = 1, size = 2, bytes = 8;
        char job[32] = "";
        char address[8] = "";
    } hello;
    const auto text = [&] { return std::string((const char *)&hello, sizeof hello); };
    knock("");
    EXPECT_EQ("", answer(knock(std::string(200, 'x'))));
    EXPECT_NE(std::string::npos, answer(knock(text())).find("version: rank 0 has zoff 0."));
    hello.zoff_version = ZOFF_VERSION_NUMBER;
    hello.bytes = 1u << 30;
    EXPECT_EQ("", answer(knock(text())));
    hello.bytes = 0;
    EXPECT_EQ("", answer(knock(text())));
    start(1, 2, [] { return sum(20); });
    EXPECT_EQ(std::vector<std::string>(2, "ucx 2"), all_words());
    for (const int fd : fds)
        close(fd);
}

// A rank is lost while all exchange large pieces, again and again. `how` is what the rank does.
struct loss {
    const char *name;
    void (*how)(zoff_comm *comm);
};

class UcxLoss : public Ucx, public testing::WithParamInterface<loss>
{
  protected:
    enum { RANKS = 4, LOST = 1, PIECE = 1 << 20 };
    static constexpr double DEADLINE = 1;

    // Returns seconds from the loss to the error, and its words.
    static std::string exchange(unsigned rank, volatile double *lost)
    {
        zoff_comm *comm = nullptr;
        const std::string failed = open(&comm, 20);
        if (!failed.empty())
            return failed;
        comm->timeout_seconds = DEADLINE;
        std::vector<char> in(PIECE * RANKS), out(PIECE * RANKS);
        const std::vector<size_t> bytes(RANKS, PIECE);
        for (int round = 0;; round++) {
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_EXCHANGE;
            call.stream = ZOFF_COMM_REDUCE;
            call.in = in.data();
            call.out = out.data();
            call.send_bytes = call.receive_bytes = bytes.data();
            zoff_comm_work work = {};
            zoff_status status = zoff_comm_start(comm, &call, &work);
            if (rank == LOST && round == 5) {
                *lost = now();
                GetParam().how(comm);
                return "";
            }
            status = status < 0 ? status : zoff_comm_wait(comm, &work);
            if (status < 0) {
                const std::string words = zoff_last_error();
                const double seconds = now() - *lost;
                zoff_comm_close(comm);
                return std::to_string(seconds) + " " + words;
            }
        }
    }
};
const loss LOSSES[] = {{"Killed", [](zoff_comm *) { raise(SIGKILL); }},
                       {"Ends", [](zoff_comm *) { _exit(0); }},
                       {"Leaves", [](zoff_comm *comm) { zoff_comm_close(comm); }},
                       {"Stops", [](zoff_comm *) { raise(SIGSTOP); }}};
INSTANTIATE_TEST_SUITE_P(Ways, UcxLoss, testing::ValuesIn(LOSSES), [](const auto &p) { return std::string(p.param.name); });

TEST_P(UcxLoss, IsNamedByAllOthersInTime)
{
    volatile double *const lost =
        (volatile double *)mmap(nullptr, sizeof *lost, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned rank = 0; rank < RANKS; rank++)
        start(rank, RANKS, [=] { return exchange(rank, lost); });
    for (unsigned rank = RANKS; rank-- > 0;) {
        if (rank == LOST)
            continue;
        const std::string words = words_of(rank);
        EXPECT_TRUE(has(words, " ranks? (\\d, )*1\\b")) << rank << ": " << words;
        EXPECT_GT(DEADLINE + 1.5 + 5, atof(words.c_str())) << words; // 5 s for a busy machine
    }
}
} // namespace
