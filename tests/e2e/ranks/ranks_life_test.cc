/* SPDX-License-Identifier: Apache-2.0 */
// ranks_life_test.cc: engines over several ranks are created and destroyed: two groups side by side, and a hundred groups one
// after another.
#include "rank_job.h"

#include <fstream>
#include <malloc.h>

using namespace zoff_test;

namespace
{
std::string config_text(unsigned stage, const std::string &folder)
{
    return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
           "\"zero_optimization\": {\"stage\": " +
           std::to_string(stage) +
           ", \"reduce_bucket_size\": 6000, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder +
           "\", \"buffer_count\": 3}}}";
}

void add_tensors(trainer &t)
{
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
}

// A group of ranks that trains for a while and compares itself with its reference.
void train(unsigned seed, unsigned size, unsigned stage, const std::string &folder, int64_t steps)
{
    rank_job job(size);
    rank_trainers all(job, seed, add_tensors);
    all.seal(config_text(stage, folder), 2048);
    for (int64_t t = 1; t <= steps && !testing::Test::HasFailure(); t++) {
        all.backward((unsigned)t, 0.5f);
        all.step(config_groups(), t, 0);
        job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            trainer &mine = *all.trainers[rank];
            for (size_t i = mine.tensors.size(); t % 2 && i-- > 0;) {
                for (size_t slice = 0; slice < mine.tensors[i].slices; slice++)
                    EXPECT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, nullptr));
            }
            EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
            trainer copy = mine;
            copy.tensors = all.want.tensors;
            copy.expect_weights();
        });
    }
}

// By default each thread gets a malloc arena of its own, which keeps freed pages. The number of arenas depends on the
// scheduler, so one arena is used.
[[maybe_unused]] const int ONE_ARENA = mallopt(M_ARENA_MAX, 1); // a sanitizer's malloc has no such limit

size_t resident_bytes()
{
    malloc_trim(0);
    size_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(RanksLife, TwoGroupsSideBySide)
{
    if (program_comm())
        GTEST_SKIP() << "a program under mpirun is one group";
    scratch_folder folder;
    log_catcher log;
    std::vector<std::thread> groups;
    for (unsigned group = 0; group < 2; group++)
        groups.emplace_back([&, group] { train(group, 2 + group, 1 + group, folder.path, 12); });
    for (auto &thread : groups)
        thread.join();
}

// Memory that one group does not free would show after a hundred.
TEST(RanksLife, AHundredGroupsLeakNoMemory)
{
    if (!rank_job::is_possible(3))
        GTEST_SKIP() << "this job has another number of ranks";
    enum { LIVES = 100, WARM = 20 };
    scratch_folder folder;
    log_catcher log;
    size_t warm = 0;
    for (unsigned life = 0; life < LIVES && !HasFailure(); life++) {
        train(life, 3, life % 3, folder.path, 2);
        warm = life < WARM ? std::max(warm, resident_bytes()) : warm;
    }
#if !defined(ZOFF_TEST_SANITIZED) // sanitizers keep freed memory
    EXPECT_LT(resident_bytes(), warm + (4u << 20)) << "bytes after " << WARM << " lives: " << warm;
#endif
}

// Each rank has the memory that its host can give. The smallest chunk holds for all, and results do not depend on it. Files
// keep their chunks, also when the budgets are others.
TEST(RanksLife, MemoryBudgetsMayDiffer)
{
    enum { RANKS = 3 };
    if (!rank_job::is_possible(RANKS))
        GTEST_SKIP() << "this job has another number of ranks";
    const char *const budgets[][RANKS] = {
        {"300KiB", "8MiB", "100KiB"}, {"8MiB", "100KiB", "100KiB"}, {"100KiB", "300KiB", "8MiB"}};
    for (unsigned stage = 0; stage <= 3; stage++) {
        scratch_folder folder;
        rank_job job(RANKS);
        rank_trainers all(job, 3, [](trainer &t) { t.add(60000, 1, ZOFF_BF16, ZOFF_BF16); });
        int64_t t = 0;
        for (const auto &budget : budgets) {
            job.on_each([&](unsigned rank) {
                std::string text = config_text(stage, folder.path);
                text.insert(text.size() - 1,
                            std::string(", \"zoff\": {\"persist\": true, \"host_memory\": \"") + budget[rank] + "\"}");
                all.engines[rank].reset();
                all.engines[rank] = make_engine(*all.trainers[rank], text, 0, 0, job.comm_of(rank));
                ASSERT_ZOFF_OK(zoff_engine_seal(all.engines[rank].get()));
                EXPECT_ZOFF_OK(zoff_params_push(all.engines[rank].get()));
                EXPECT_LE(plan_of(all.engines[rank].get()).chunk_bytes, 100u << 10);
            });
            ASSERT_FALSE(HasFailure()) << "stage " << stage;
            for (int step = 0; step < 2; step++) {
                all.backward((unsigned)++t, 0.5f);
                all.step(config_groups(), t, 0);
                job.on_each([&](unsigned rank) {
                    EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
                    trainer copy = *all.trainers[rank];
                    copy.tensors = all.want.tensors;
                    copy.expect_weights();
                });
            }
        }
    }
}

// Over threads or MPI only the engine can add gradients. NCCL cannot add memory of the host either.
TEST(RanksLife, OnlyACommunicatorThatAddsIsAskedTo)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(2);
    rank_trainers all(job, 1, add_tensors);
    const auto text = [](const char *who) { return "{\"zoff\": {\"reduce_scatter\": \"" + std::string(who) + "\"}}"; };
    job.on_each([&](unsigned rank) {
        engine e = make_engine(*all.trainers[rank], text("nccl"), 0, 0, job.comm_of(rank));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                          "cannot do so in memory of accelerator \"host\". Open \"nccl\" and \"cuda\", or",
                          zoff_engine_seal(e.get()));
        e = make_engine(*all.trainers[rank], text("ordered"), 0, 0, job.comm_of(rank));
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    });
    engine alone = make_engine(*all.trainers[0], text("nccl"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "\"self\" cannot do so in memory of accelerator \"host\"",
                      zoff_engine_seal(alone.get()));
}
} // namespace
