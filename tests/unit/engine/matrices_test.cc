/* SPDX-License-Identifier: Apache-2.0 */
// matrices_test.cc: Muon in an engine. The states of a matrix are cut into chunks of any size, on any tier, and the bits are
// those of whole matrices.
#include "covering.h"
#include "rank_job.h"

extern "C" {
#include "engine_priv.h"
}

#include <time.h>

#include <atomic>
#include <numeric>
#include <string.h>

using namespace zoff_test;

// Products take so much longer, and pause as they do (the linker puts this in front of the library's function).
static double more_seconds = 0;
extern "C" zoff_status __real_zoff_adam_orthogonal_run(unsigned threads, zoff_orthogonal *o, zoff_adam_between between,
                                                       bool (*stops)(void *), void *ctx);
extern "C" zoff_status __wrap_zoff_adam_orthogonal_run(unsigned threads, zoff_orthogonal *o, zoff_adam_between between,
                                                       bool (*stops)(void *), void *ctx)
{
    for (double waited = 0; waited < more_seconds; waited += 0.01) {
        const timespec pause = {0, 10000000};
        nanosleep(&pause, nullptr);
        between(ctx);
    }
    return __real_zoff_adam_orthogonal_run(threads, o, between, stops, ctx);
}

namespace
{
zoff_optimizer_hyper muon(double weight_decay = 0.1)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_MUON);
    h.weight_decay = weight_decay;
    return h;
}

struct place {
    const char *name, *zero, *zoff; // sections of the configuration; FOLDER stands for a folder
};
const place PLACES[] = {
    {"host", "", ""},
    {"files", "\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 3}",
     ""},
    {"two_slots", "\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 2}",
     "\"verify\": \"off\""},
    {"persist", "\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 3}",
     "\"persist\": true"},
    {"thread", "\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 3}",
     "\"background_threads\": 1"},
};
struct format {
    const char *name;
    zoff_dtype dtype, grad_dtype;
    bool halves;
};
const format FORMATS[] = {{"fp32", ZOFF_F32, ZOFF_F32, false},
                          {"bf16", ZOFF_BF16, ZOFF_BF16, false},
                          {"halves", ZOFF_BF16, ZOFF_F32, true},
                          {"fp16", ZOFF_F16, ZOFF_F16, false}};
const size_t CHUNKS[] = {1024, 5000, 0};

using cell = std::tuple<place, format, size_t, unsigned, double>; // ..., chunk elements, accumulation, clip

std::string text_of(const cell &c, const std::string &folder)
{
    const auto &[where, format, chunk, accumulation, clip] = c;
    std::string zero = where.zero, zoff = where.zoff;
    if (const size_t at = zero.find("FOLDER"); at != std::string::npos)
        zero.replace(at, 6, folder);
    if (format.halves)
        zoff += std::string(zoff.empty() ? "" : ", ") + "\"moments\": \"bf16\"";
    return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\"}, \"gradient_clipping\": " + std::to_string(clip) +
           ", \"zero_optimization\": {" + zero + "}, \"zoff\": {" + zoff + "}}";
}

engine seal_muon(trainer &t, const cell &c, const std::string &folder, std::vector<zoff_optimizer_hyper> &groups)
{
    engine e = make_engine(t, text_of(c, folder), std::get<2>(c));
    for (unsigned g = 0; g < groups.size(); g++)
        EXPECT_ZOFF_OK(zoff_engine_set_group(e.get(), g, &groups[g]));
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    return e;
}

std::vector<zoff_optimizer_hyper> groups_of()
{
    std::vector<zoff_optimizer_hyper> groups = {muon(), {}};
    zoff_optimizer_hyper_init(&groups[1], ZOFF_OPTIMIZER_ADAM);
    return groups;
}

class MatrixCells : public testing::TestWithParam<cell>
{
  protected:
    log_catcher log;
    scratch_folder folder;
};

std::string name_of(const cell &c)
{
    const auto &[where, format, chunk, accumulation, clip] = c;
    return std::string(where.name) + "_" + format.name + "_" + std::to_string(chunk) + "_" + std::to_string(accumulation) +
           (clip > 0 ? "_clip" : "");
}

const covering<cell> &all_cells()
{
    static const covering<cell> all(
        "Cells/MatrixCells.HaveTheBitsOfWholeMatrices/", name_of,
        [](const cell &c) {
            const auto &[where, format, chunk, accumulation, clip] = c;
            return covering<cell>::values{{"place", where.name},
                                          {"format", format.name},
                                          {"chunk", std::to_string(chunk)},
                                          {"accumulation", std::to_string(accumulation)},
                                          {"clip", std::to_string(clip)}};
        },
        [](covering<cell> &to) {
            for (const auto &p : PLACES)
                for (const auto &f : FORMATS)
                    for (const size_t chunk : CHUNKS)
                        for (const unsigned accumulation : {1, 2})
                            for (const double clip : {0.0, 0.5})
                                to.add({p, f, chunk, accumulation, clip});
        });
    return all;
}

TEST(MatricesCells, CoverAllPairs)
{
    all_cells().expect_all_pairs();
}

TEST_P(MatrixCells, HaveTheBitsOfWholeMatrices)
{
    const auto &[where, format, chunk, accumulation, clip] = GetParam();
    trainer t(7);
    add_matrices(t, format.dtype, format.grad_dtype);
    for (auto &x : t.tensors) {
        x.halves = format.halves;
        if (x.group == 1)
            x.matrices.clear(); // its optimizer is AdamW
    }
    std::vector<zoff_optimizer_hyper> groups = groups_of();
    engine e = seal_muon(t, GetParam(), folder.path, groups);
    ASSERT_FALSE(HasFailure());
    for (int64_t step = 1; step <= 3; step++) {
        auto info = new_info();
        t.next_step();
        for (unsigned micro = 0; micro < accumulation; micro++) {
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        }
        const auto want = reference::step(t.tensors, groups, step, 1, accumulation, clip);
        ASSERT_FALSE(want.skipped);
        EXPECT_EQ(want.updated, info.numbers.elements_updated);
        EXPECT_GT(info.seconds.orthogonalize, 0);
        t.expect_weights();
        t.expect_states(e.get(), groups);
        ASSERT_FALSE(HasFailure()) << "step " << step;
    }
}
INSTANTIATE_TEST_SUITE_P(Cells, MatrixCells, testing::ValuesIn(all_cells().cells()),
                         [](const auto &p) { return name_of(p.param); });

// Bytes on the drive, each way: 2 of a split master and 4 of its momentum; 2 and 2 with momenta in bf16.
TEST(Matrices, MoveEachArrayOnce)
{
    log_catcher log;
    for (const bool halves : {false, true}) {
        const scratch_folder folder;
        trainer t(3);
        t.add(512 * 2048, 4, ZOFF_BF16, ZOFF_BF16);
        t.shape(0, {512, 2048}, {{0, 512, 2048}});
        std::vector<zoff_optimizer_hyper> groups = {muon()};
        groups[0].ns_steps = 1;
        engine e = seal_muon(t, cell{PLACES[1], FORMATS[halves ? 2 : 1], 1 << 19, 1, 0.0}, folder.path, groups);
        t.backward_all(0.1f);
        for (int step = 0; step < 2; step++) { // the second step has read ahead in the first
            auto info = new_info();
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            const double elements = 4.0 * 512 * 2048, most = halves ? 4.06 : 6.06;
            EXPECT_LE((double)info.bytes.nvme_written / elements, most);
            EXPECT_LE((double)info.bytes.nvme_read / elements, most);
            EXPECT_GE((double)info.bytes.nvme_written / elements, most - 0.06);
        }
    }
}

TEST(Matrices, TravelToTheirWorkersAndBack)
{
    log_catcher log;
    for (const unsigned ranks : {1u, 2u, 4u}) {
        rank_job job(ranks);
        rank_trainers all(job, 1, [](trainer &t) {
            t.add(64 * 256, 8, ZOFF_BF16, ZOFF_BF16);
            t.shape(0, {64, 256}, {{0, 64, 256}});
        });
        all.seal("{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": 1}}", 0);
        all.backward(0, 0.1f);
        std::vector<double> sent(ranks);
        job.on_each([&](unsigned rank) {
            auto info = new_info();
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &info));
            sent[rank] = (double)info.bytes.sent_matrices;
        });
        EXPECT_EQ(8.0 * 64 * 256 * 8 * (ranks - 1) / ranks, std::accumulate(sent.begin(), sent.end(), 0.0)) << ranks;
    }
}

// Two engines of one communicator have open steps at a time, and their weights are used by turns.
TEST(Matrices, GoBesideThoseOfAnotherEngine)
{
    log_catcher log;
    rank_job job(2);
    const auto fill = [](trainer &t) {
        t.add(96 * 64, 2, ZOFF_BF16, ZOFF_BF16);
        t.shape(0, {96, 64}, {{0, 96, 64}});
        t.add(700, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(64 * 300, 1, ZOFF_BF16, ZOFF_BF16);
        t.shape(2, {64, 300}, {{0, 64, 300}});
    };
    rank_trainers actor(job, 1, fill), critic(job, 2, fill);
    actor.seal("{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": 2}}", 2048);
    critic.seal("{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": 1}}", 1024);
    for (int64_t step = 1; step <= 3; step++) {
        rank_trainers *const order[] = {step % 2 ? &actor : &critic, step % 2 ? &critic : &actor};
        for (rank_trainers *all : order)
            all->backward((unsigned)step, 0.1f);
        job.on_each([&](unsigned rank) {
            for (rank_trainers *all : order) {
                all->trainers[rank]->hand_over_all(all->engines[rank].get());
                ASSERT_ZOFF_OK(zoff_step_begin(all->engines[rank].get(), nullptr));
            }
            for (size_t i = 0; i < 3; i++) {
                for (rank_trainers *all : order)
                    ASSERT_ZOFF_OK(zoff_param_wait(all->engines[rank].get(), (zoff_param)i, 0, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_step_wait(order[1]->engines[rank].get(), nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(order[0]->engines[rank].get(), nullptr));
        });
        for (rank_trainers *all : order) {
            (void)all->step({muon(0)}, step, 0);
            for (const auto &t : all->trainers) {
                for (size_t i = 0; i < t->tensors.size(); i++)
                    t->tensors[i].master = all->want.tensors[i].master;
                t->expect_weights();
            }
        }
        ASSERT_FALSE(HasFailure()) << "step " << step;
    }
}

// A rank waits longer for the worker of a matrix than the timeout, because the worker tells that it computes.
TEST(Matrices, MayTakeLongerThanTheTimeout)
{
    log_catcher log;
    rank_job job(2, 1.0);
    rank_trainers all(job, 1, [](trainer &t) {
        t.add(40 * 60, 1, ZOFF_BF16, ZOFF_BF16);
        t.shape(0, {40, 60}, {{0, 40, 60}});
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
    });
    all.seal("{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": 2}}", 0);
    all.backward(0, 0.1f);
    more_seconds = 2.2;
    job.on_each([&](unsigned rank) {
        all.trainers[rank]->hand_over_all(all.engines[rank].get());
        EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
    });
    more_seconds = 0;
}

// The plan, the allocation and the reports. A tall matrix has the method gram, and a square one the other.
TEST(Matrices, AreCountedInPlansAndReports)
{
    const uint64_t tall = 6 * 32 * 32 * 64 + 14 * 32 * 32 * 32, square = 5 * 4 * 48 * 48 * 48;
    for (const unsigned ranks : {1u, 2u}) {
        log_catcher log;
        rank_job job(ranks);
        rank_trainers all(job, 1, [](trainer &t) {
            t.add(64 * 32, 2, ZOFF_F32, ZOFF_F32);
            t.shape(0, {64, 32}, {{0, 64, 32}});
            t.add(48 * 48, 1, ZOFF_F32, ZOFF_F32);
            t.shape(1, {48, 48}, {{0, 48, 48}});
            t.add(77, 1, ZOFF_F32, ZOFF_F32);
        });
        std::atomic<uint64_t> elements{0}, flop{0}, done{0};
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            engine e = make_engine(t,
                                   "{\"steps_per_print\": 1, \"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": "
                                   "{\"stage\": 1}}",
                                   0, 0, job.comm_of(rank));
            zoff_plan_info before = ZOFF_PLAN_INFO_INIT, after = ZOFF_PLAN_INFO_INIT;
            ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &before));
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &after));
            EXPECT_EQ(e->walk.matrices.all.memory.map.bytes, after.matrix_bytes);
            EXPECT_EQ(before.matrix_bytes, after.matrix_bytes);
            EXPECT_GT(after.memory_bytes, after.host_bytes + after.exchange_bytes + after.accumulator_bytes);
            elements += after.matrix_elements;
            flop += after.matrix_flop;
            zoff_step_info info = new_info();
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            done += (uint64_t)e->walk.matrices.all.flop; // all of them have a gradient
            char json[2048];
            ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, nullptr));
            EXPECT_NE(nullptr, strstr(json, "\"orthogonalize_seconds\": ")) << json;
        });
        EXPECT_EQ(2 * 64 * 32 + 48 * 48u, elements);
        EXPECT_EQ(2 * tall + square, flop);
        EXPECT_EQ(2 * tall + square, done);
        EXPECT_TRUE(log.contains("matrices: this rank updates ")) << ranks;
        EXPECT_TRUE(log.contains(" orthogonalize 0.")) << ranks;
        EXPECT_TRUE(log.contains(" GFLOP/s) checksums ")) << ranks;
    }
}

// Lines of other optimizers stay as they are.
TEST(Matrices, AreNotReportedWhereThereAreNone)
{
    log_catcher log;
    trainer t(3);
    t.add(64 * 32, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{\"steps_per_print\": 1}");
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    char json[2048];
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, nullptr));
    EXPECT_EQ(nullptr, strstr(json, "orthogonalize"));
    EXPECT_FALSE(log.contains("orthogonalize"));
    EXPECT_FALSE(log.contains("matrices"));
}

TEST(Matrices, OverNcclAreRefused)
{
    log_catcher log;
    rank_job job(2);
    rank_trainers all(job, 1, [](trainer &t) {
        t.add(64 * 32, 1, ZOFF_F32, ZOFF_F32);
        t.shape(0, {64, 32}, {{0, 64, 32}});
    });
    for (const unsigned stage : {1u, 0u}) {
        job.on_each([&](unsigned rank) {
            const std::string text =
                "{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}}";
            engine e = make_engine(*all.trainers[rank], text, 0, 0, job.comm_of(rank));
            job.comm_of(rank)->info.backend = "nccl"; // no device is here
            if (stage)
                EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "ranks that join over NCCL", zoff_engine_seal(e.get()));
            else
                EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        });
    }
}

// Seal allocates nothing of what it refuses.
TEST(Matrices, TooLargeForTheMachineAreRefusedByName)
{
    log_catcher log;
    trainer none(1);
    engine e = make_engine(none, "{\"optimizer\": {\"type\": \"Muon\"}}");
    static const size_t dims[] = {(size_t)1 << 20, (size_t)1 << 20}; // not where the values would be
    float one[1];                                                    // the weights are not read before seal
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    d.name = "vast";
    d.value = one;
    d.count = dims[0] * dims[1];
    d.dims = dims;
    d.dim_count = 2;
    ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "vast has a matrix of 1048576 x 1048576", zoff_engine_seal(e.get()));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("zoff.adam_params"));
}
} // namespace
