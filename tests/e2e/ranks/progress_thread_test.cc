/* SPDX-License-Identifier: Apache-2.0 */
// progress_thread_test.cc: the engine's own thread that makes progress while the program makes no calls.
#include "comm_fault.h"
#include "post_office.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
// Rank 0 hands over more gradients than can be in flight at a time, and then makes no call. The rest can start only after rank
// 1 arrives, so the engine's thread must start it.
TEST(ProgressThread, GradientsTravelWhileNobodyCalls)
{
    enum { RANKS = 2, SLICES = 6 };
    std::vector<std::unique_ptr<comm_fault>> watched; // destroyed after the communicators
    rank_job job(RANKS);
    std::atomic<unsigned> by_others{0};
    std::atomic<bool> rank_0_rests{false};
    trainer trainers[RANKS] = {trainer(1), trainer(1)};
    for (unsigned rank = 0; rank < RANKS; rank++) {
        watched.push_back(std::make_unique<comm_fault>(job.comm_of(rank)));
        trainers[rank].add(4096, SLICES, ZOFF_BF16, ZOFF_BF16);
    }
    job.on_each([&](unsigned rank) {
        const std::thread::id program = std::this_thread::get_id();
        watched[rank]->before = [&, rank, program](const zoff_comm_work &work) {
            by_others += rank == 0 && work.call.stream == ZOFF_COMM_REDUCE && std::this_thread::get_id() != program;
            return ZOFF_OK;
        };
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.comm = job.comm_of(rank);
        opts.threads = 1;
        opts.progress_thread = true;
        zoff_config *parsed = nullptr;
        const std::string text = "{\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 4096}}";
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &parsed));
        opts.config = parsed;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(parsed);
        engine e(made);
        const zoff_param_desc d = trainers[rank].desc(0);
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        while (rank == 1 && !rank_0_rests)
            usleep(1000);
        for (size_t slice = SLICES; slice-- > 0;)
            EXPECT_ZOFF_OK(zoff_grad_ready(e.get(), 0, slice, nullptr));
        rank_0_rests = true;
        for (int ms = 0; rank == 0 && ms < 20000 && by_others < 2; ms++)
            usleep(1000);
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    });
    EXPECT_LE(2u, by_others) << "exchanges that a thread of the engine has started";
}

TEST(ProgressThread, IsRefusedWhereOnlyTheProgramMayUseTheNetwork)
{
    post_office office(1);
    zoff_comm_transport transport = office.transport(0);
    for (int any_thread : {0, 1}) {
        zoff_comm *ranks = nullptr;
        transport.any_thread = any_thread;
        ASSERT_ZOFF_OK(zoff_comm_open_transport(nullptr, &transport, &ranks));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.comm = ranks;
        opts.progress_thread = true;
        zoff_engine *e = nullptr;
        if (any_thread) {
            EXPECT_ZOFF_OK(zoff_engine_create(&opts, &e));
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "MPI_THREAD_MULTIPLE", zoff_engine_create(&opts, &e));
            EXPECT_EQ(nullptr, e);
        }
        zoff_engine_destroy(e);
        zoff_comm_close(ranks);
    }
}

// The thread ends with its engine, also while gradients are in flight.
TEST(ProgressThread, EndsWithItsEngine)
{
    for (int i = 0; i < 50; i++) {
        test_device device(1);
        trainer t(1);
        t.add(3000, 3, ZOFF_BF16, ZOFF_BF16);
        t.put_on(&device);
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.accel = device.accel;
        opts.progress_thread = true;
        zoff_engine *made = nullptr;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
        engine e(made);
        const zoff_param_desc d = t.desc(0);
        ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        ASSERT_ZOFF_OK(zoff_engine_seal(made));
        for (size_t slice = 0; slice < 3; slice++)
            t.hand_over(made, 0, slice);
        if (i % 2) {
            ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
        }
    }
}
} // namespace
