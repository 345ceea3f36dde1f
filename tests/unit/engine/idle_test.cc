/* SPDX-License-Identifier: Apache-2.0 */
// idle_test.cc: between steps an engine leaves the cores to the trainer. This is counted in CPU time, so that a busy machine
// does not matter, in a process of its own with a known environment. Also: the start lines about machine and environment.
#include "small_engine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

using namespace zoff_test;

namespace
{
double seconds(clockid_t clock)
{
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Run the trainer's work for half a second of this thread's CPU time; returns its rate.
struct loop {
    double rate = 0, used = 0;
    static void *run(void *ctx)
    {
        auto self = static_cast<loop *>(ctx);
        volatile double sum = 0;
        double rounds = 0;
        const double from = seconds(CLOCK_THREAD_CPUTIME_ID);
        for (; self->used < 0.5; self->used = seconds(CLOCK_THREAD_CPUTIME_ID) - from, rounds++) {
            for (int i = 1; i < 20000; i++)
                sum = sum + 1.0 / i;
        }
        self->rate = rounds / self->used;
        return nullptr;
    }
};

// Run two loops at once: their mean rate, and the CPU time of the process's other threads meanwhile.
void compete(double *rate, double *others)
{
    loop loops[2];
    pthread_t threads[2];
    const double from = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], nullptr, loop::run, &loops[i]);
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    *others = seconds(CLOCK_PROCESS_CPUTIME_ID) - from - loops[0].used - loops[1].used;
    *rate = (loops[0].rate + loops[1].rate) / 2;
}

// The cost of a process's engine while it has nothing to do.
struct idle {
    double asleep;                 // CPU seconds in a second of sleep
    double beside;                 // CPU seconds while the trainer's loops run for half a second on each of two cores
    double rate_before, rate_with; // rates of the loops
};

idle measure()
{
    idle result = {};
    double unused;
    log_catcher log;
    trainer t(1);
    t.add(1 << 20, 1, ZOFF_BF16, ZOFF_BF16);
    compete(&result.rate_before, &unused);
    engine e = seal_engine(t, config_text("")); // two threads
    t.backward_all(1);
    EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    const double from = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const timespec second = {1, 0};
    nanosleep(&second, nullptr);
    result.asleep = seconds(CLOCK_PROCESS_CPUTIME_ID) - from;
    EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    compete(&result.rate_with, &result.beside);
    return result;
}

class Idle : public testing::Test
{
  protected:
    // Measure in a process with this and no other OpenMP variable in its environment. The process runs the same test again;
    // there this prints its result and returns false.
    bool run(const std::string &environment, idle *out)
    {
        if (getenv("ZOFF_TEST_TELL")) {
            const idle i = measure();
            printf("idle %.6f %.6f %.6f %.6f\n", i.asleep, i.beside, i.rate_before, i.rate_with);
            return false;
        }
        char self[4096] = "", line[512];
        EXPECT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
        const std::string command = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u OMP_NUM_THREADS -u OMP_PROC_BIND " +
                                    environment + " ZOFF_TEST_TELL=1 '" + self + "' --gtest_filter=Idle." +
                                    testing::UnitTest::GetInstance()->current_test_info()->name();
        FILE *pipe = popen(command.c_str(), "r");
        int found = 0;
        while (pipe && fgets(line, sizeof line, pipe)) {
            if (strncmp(line, "idle ", 5) == 0)
                found = sscanf(line, "idle %lf %lf %lf %lf", &out->asleep, &out->beside, &out->rate_before, &out->rate_with);
        }
        EXPECT_EQ(0, pipe ? pclose(pipe) : -1);
        EXPECT_EQ(4, found);
        return found == 4;
    }
};
} // namespace

TEST_F(Idle, AnEngineLeavesTheCoresToTheTrainer)
{
    idle i = {};
    if (!run("", &i))
        return;
    EXPECT_LT(i.asleep, 0.05) << "CPU seconds in a second of sleep after a step";
    EXPECT_LT(i.beside, 0.05) << "CPU seconds beside a trainer that computes";
    EXPECT_GT(i.rate_with, 0.6 * i.rate_before) << "what the trainer gets done in a CPU second";
}

// The team is the library's own: the program's settings for its OpenMP threads do not matter.
TEST_F(Idle, AnActiveWaitPolicyLetsNoThreadSpin)
{
    idle i = {};
    if (!run("OMP_WAIT_POLICY=active", &i))
        return;
    EXPECT_LT(i.asleep, 0.05);
    EXPECT_LT(i.beside, 0.05);
}

#if defined(__x86_64__)
namespace
{
// Whether the upper halves of vector registers are in use.
bool vectors_in_use()
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low & 0x44; // AVX, and the upper halves of AVX-512's first sixteen
}

// XGETBV tells it where CPUID's leaf 13 says so. A CPU may also count registers as in use that are clear.
bool tells_vectors_in_use()
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__builtin_cpu_supports("avx") || !__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a >> 2 & 1))
        return false;
    __asm__ volatile("vcmpps $15, %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
    const bool is_told = vectors_in_use();
    __asm__ volatile("vzeroupper");
    return is_told && !vectors_in_use();
}
} // namespace

// Code that was compiled without AVX, as most trainers are, is slow on a thread whose vector registers were left in use.
TEST(VectorRegisters, AStepLeavesThemClear)
{
    if (!tells_vectors_in_use())
        GTEST_SKIP() << "this CPU does not tell which registers are in use";
    scratch_folder folder;
    for (const std::string &path : {std::string(), folder.path}) {
        trainer t(1);
        t.add(1 << 20, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, config_text(path));
        for (int64_t i = 1; i <= 2; i++) {
            t.backward_all(i);
            EXPECT_FALSE(vectors_in_use()) << "after a backward pass, " << path;
            EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            EXPECT_FALSE(vectors_in_use()) << "after a step, " << path;
        }
    }
}
#endif

namespace
{
// Sets a variable for its lifetime.
class variable
{
  public:
    variable(const char *variable_name, const char *value) : name(variable_name), was_set(getenv(name))
    {
        before = was_set ? getenv(name) : "";
        setenv(name, value, 1);
    }
    ~variable() { was_set ? setenv(name, before.c_str(), 1) : unsetenv(name); }
    variable(const variable &) = delete;

  private:
    const char *name;
    bool was_set;
    std::string before;
};

// The log of an engine's start.
void start(log_catcher &log, std::string *json = nullptr)
{
    char text[1024];
    trainer t(1);
    t.add(4 << 20, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text(""));
    EXPECT_EQ(1u, log.count("in huge pages"));
    EXPECT_ZOFF_OK(zoff_stats_print(e.get(), text, sizeof text, nullptr));
    if (json)
        *json = text;
}
} // namespace

TEST(Surroundings, ARankAmongOthersIsReported)
{
    variable rank("LOCAL_RANK", "3");
    for (const char *ranks : {"1", "4"}) {
        variable size("LOCAL_WORLD_SIZE", ranks);
        log_catcher log;
        start(log);
        EXPECT_EQ(ranks[0] == '4' ? 1u : 0u, log.count("rank 3 of 4 on this host (by the variables of torchrun)"));
    }
}

TEST(Surroundings, HugePagesAreReported)
{
    log_catcher log;
    std::string json;
    start(log, &json);
    size_t bytes = 0;
    const size_t at = json.find("\"huge_page_bytes\": ");
    ASSERT_NE(std::string::npos, at) << json;
    ASSERT_EQ(1, sscanf(json.c_str() + at, "\"huge_page_bytes\": %zu,", &bytes));
    EXPECT_EQ(log.count("(0 bytes in huge pages)"), bytes ? 0u : 1u);
    EXPECT_LE(bytes, size_t{12 * (4 << 20) + (1 << 20)}) << "more than the states take";
    if (bytes == 0)
        GTEST_SKIP() << "the kernel gives no huge pages here";
}
