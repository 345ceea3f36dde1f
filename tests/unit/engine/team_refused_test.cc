/* SPDX-License-Identifier: Apache-2.0 */
// team_refused_test.cc: the system refuses threads, at every place. The library returns an error or works with fewer threads;
// the process continues. This file wraps pthread_create() (--wrap).
#include "process_threads.h"
#include "small_engine.h"

#include <pthread.h>

#include <atomic>
#include <thread>

extern "C" {
#include "team.h"
#include "workers.h"

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
}

using namespace zoff_test;

namespace
{
std::atomic<int> allowed{1 << 30}; // threads that the system still grants
} // namespace

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *ctx)
{
    return allowed.fetch_sub(1) > 0 ? __real_pthread_create(thread, attributes, fn, ctx) : EAGAIN;
}

namespace
{
class Refused : public testing::Test
{
  protected:
    void TearDown() override { allowed = 1 << 30; }
};

// A model large enough for a team, in an engine that wants eight threads.
struct model {
    trainer t{1};
    engine e;
    explicit model(size_t elements)
    {
        t.add(elements, 1, ZOFF_F32, ZOFF_F32);
        zoff_config *config = nullptr;
        const std::string text = R"({"zoff": {"threads": 8}})";
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "refused.json", &config));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = config;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(config);
        e.reset(made);
        for (size_t i = 0; i < t.tensors.size(); i++) {
            const zoff_param_desc d = t.desc(i);
            EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
    }
};
} // namespace

TEST_F(Refused, ASealIsAnErrorAndCanBeRepeated)
{
    // Each on a thread of its own, which has no team yet.
    for (int given : {0, 1, 6}) {
        std::thread([given] {
            log_catcher log;
            model m(70000);
            const size_t before = threads_of_this_process();
            allowed = given;
            EXPECT_EQ(ZOFF_ERR_NO_MEMORY, zoff_engine_seal(m.e.get()));
            allowed = 1 << 30;
            const std::string said = zoff_last_error();
            EXPECT_NE(std::string::npos, said.find("thread " + std::to_string(given + 2) + " of a team of 8")) << said;
            EXPECT_NE(std::string::npos, said.find("set zoff.threads to at most " + std::to_string(given + 1))) << said;
            EXPECT_TRUE(threads_come_down_to(before)) << "none is left behind";
            EXPECT_ZOFF_OK(zoff_engine_seal(m.e.get()));
            m.t.backward_all(1);
            EXPECT_ZOFF_OK(zoff_step(m.e.get(), nullptr, nullptr));
        }).join();
    }
}

TEST_F(Refused, AStepOnAnotherThreadWorksWithWhatThereIs)
{
    log_catcher log;
    log.expect("could not be started");
    model m(600000); // large enough for a team on every machine
    ASSERT_ZOFF_OK(zoff_engine_seal(m.e.get()));
    m.t.backward_all(1);
    allowed = 1; // the std::thread
    std::thread([&m] {
        for (int i = 0; i < 2; i++)
            EXPECT_ZOFF_OK(zoff_step(m.e.get(), nullptr, nullptr));
    }).join();
}

TEST_F(Refused, AStandaloneRunWorksWithWhatThereIs)
{
    log_catcher log;
    log.expect("could not be started");
    allowed = 1;
    std::thread([] {
        std::atomic<unsigned> visits{0};
        zoff_base_team_run(
            6, [](void *ctx, unsigned, unsigned threads) { *static_cast<std::atomic<unsigned> *>(ctx) += 100 + threads; },
            &visits);
        EXPECT_EQ(101u, visits);
    }).join();
}

// Which engines wake threads: counted in a process without spinning OpenMP threads.
namespace
{
uint64_t wakes_of(size_t elements, unsigned threads)
{
    log_catcher log;
    trainer t(1);
    t.add(elements, 1, ZOFF_F32, ZOFF_F32);
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.threads = threads;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    engine e(made);
    const zoff_param_desc d = t.desc(0);
    EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_seal(made));
    const uint64_t before = zoff_base_workers_wakes();
    for (int i = 0; i < 4; i++) {
        t.backward_all(1);
        EXPECT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    }
    return zoff_base_workers_wakes() - before;
}
} // namespace

TEST(Wakes, ASmallEngineStaysOnTheThreadThatSteps)
{
    for (size_t elements : {1000u, 5000u, 32780u, 65535u}) {
        EXPECT_EQ(0u, wakes_of(elements, 0)) << elements;
        EXPECT_EQ(0u, wakes_of(elements, 2)) << elements << ": two threads are allowed, and not worth it";
    }
    EXPECT_LE(4u, wakes_of(100000, 2)) << "who asks for threads gets them where they may be of use";
    EXPECT_LE(4u, wakes_of(600000, 2));
}
