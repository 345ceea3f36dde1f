/* SPDX-License-Identifier: Apache-2.0 */
// agreement_structs_test.cc: changes, on one rank, every field of the public structs from which an engine is built.
#include "agreement.h"

#include <cstddef>

using namespace agreement;

namespace
{
enum verdict { REFUSED, WITHOUT_EFFECT };

struct mutation {
    const char *field, *named; // named: the text that the message must contain
    size_t offset, bytes;
    verdict expected;
    std::function<void(saying &)> change;
};

#define FIELD(type, name) #name, offsetof(type, name), sizeof(((type *)nullptr)->name)

mutation refused(const char *field, size_t offset, size_t bytes, std::function<void(saying &)> change,
                 const char *named = nullptr)
{
    return {field, named ? named : field, offset, bytes, REFUSED, std::move(change)};
}
mutation harmless(const char *field, size_t offset, size_t bytes, std::function<void(saying &)> change)
{
    return {field, "", offset, bytes, WITHOUT_EFFECT, std::move(change)};
}

// Every byte of a struct must belong to a field in the list, or be padding. A new field fails here until it is listed.
void expect_covered(const std::vector<mutation> &list, size_t size)
{
    std::vector<bool> covered(size, false);
    for (const auto &m : list) {
        for (size_t i = m.offset; i < m.offset + m.bytes; i++)
            covered[i] = true;
    }
    for (size_t i = 0, hole = 0; i < size; i++) {
        hole = covered[i] ? 0 : hole + 1;
        EXPECT_LT(hole, sizeof(size_t)) << "the bytes before offset " << i + 1 << " belong to a field that is not listed";
    }
}

const char BASE[] = "{\"optimizer\": {\"type\": \"AdamW\"}, \"zero_optimization\": {\"stage\": 1}}";

size_t try_all(
    const std::vector<mutation> &list, const std::string &base, const std::function<void(saying &)> &prepare = [](saying &) {})
{
    size_t number = 0;
    for (const auto &mutated : list) {
        SCOPED_TRACE(mutated.field);
        if (!mutated.change)
            continue;
        const unsigned ranks = is_full() || number++ % 4 == 0 ? 4 : 2;
        const auto say = [&](bool changes) {
            return [&, changes](model &m, unsigned rank) {
                saying s = m.usual(base);
                prepare(s);
                if (changes && rank == 1)
                    mutated.change(s);
                return s;
            };
        };
        const auto got = run(ranks, say(true));
        std::vector<outcome> want;
        if (mutated.expected == WITHOUT_EFFECT)
            want = run(ranks, say(false));
        for (unsigned rank = 0; rank < ranks; rank++) {
            if (mutated.expected == WITHOUT_EFFECT) {
                EXPECT_EQ(ZOFF_OK, got[rank].status) << got[rank].message;
                EXPECT_EQ(want[rank].weights.size(), got[rank].weights.size());
                EXPECT_TRUE(want[rank].weights == got[rank].weights) << "weights differ on rank " << rank;
            } else {
                EXPECT_EQ(ZOFF_ERR_INVALID, got[rank].status) << got[rank].message;
                EXPECT_EQ("seal", got[rank].call) << got[rank].message;
                EXPECT_NE(std::string::npos, got[rank].message.find(mutated.named)) << got[rank].message;
                EXPECT_NE(std::string::npos, got[rank].message.find(" on rank 1")) << got[rank].message;
            }
        }
    }
    return number;
}

void report(const char *what, size_t count)
{
    testing::Test::RecordProperty("values_changed", (int)count);
    printf("agreement: %zu values of %s changed on one rank\n", count, what);
}

TEST(Agreement, EveryFieldOfTheOptions)
{
    quiet log;
    scratch_folder folder;
    zoff_accel *host = nullptr;
    zoff_comm *alone = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("host", 0, &host));
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &alone));
    const std::vector<mutation> list = {
        harmless(FIELD(zoff_engine_opts, struct_size),
                 [](saying &s) { s.opts.struct_size = offsetof(zoff_engine_opts, progress_thread); }),
        harmless(FIELD(zoff_engine_opts, config_path), [](saying &s) { s.opts.config_path = "/not/read"; }),
        harmless(FIELD(zoff_engine_opts, config), nullptr), // keys have a test of their own
        harmless(FIELD(zoff_engine_opts, accel), [&](saying &s) { s.opts.accel = host; }),
        harmless(FIELD(zoff_engine_opts, comm), nullptr),  // each rank needs its own communicator
        harmless(FIELD(zoff_engine_opts, ranks), nullptr), // refused beside a communicator
        refused(FIELD(zoff_engine_opts, state_tier),
                [&](saying &s) {
                    s.opts.state_tier = ZOFF_TIER_NVME;
                    s.opts.nvme_path = folder.path.c_str();
                }),
        refused(
            FIELD(zoff_engine_opts, nvme_path), [&](saying &s) { s.opts.nvme_path = folder.path.c_str(); }, "state_tier"),
        harmless(FIELD(zoff_engine_opts, host_bytes), [](saying &s) { s.opts.host_bytes = 64 << 20; }),
        refused(FIELD(zoff_engine_opts, chunk_elements), [](saying &s) { s.opts.chunk_elements = 2048; }),
        harmless(FIELD(zoff_engine_opts, threads), [](saying &s) { s.opts.threads = 2; }),
        harmless(FIELD(zoff_engine_opts, progress_thread), [](saying &s) { s.opts.progress_thread = true; }),
        harmless(FIELD(zoff_engine_opts, persist_t), nullptr), // needs zoff.persist: tests/e2e/ranks
        harmless(FIELD(zoff_engine_opts, progress), nullptr),  // needs files: tests/e2e/ranks
        harmless(FIELD(zoff_engine_opts, progress_ctx), [](saying &s) { s.opts.progress_ctx = &s; }),
        refused(FIELD(zoff_engine_opts, norm_comm), [&](saying &s) { s.opts.norm_comm = alone; }),
    };
    expect_covered(list, sizeof(zoff_engine_opts));
    // Ranks may have folders of their own.
    scratch_folder other;
    const std::vector<mutation> folders = {
        harmless(FIELD(zoff_engine_opts, nvme_path), [&](saying &s) { s.opts.nvme_path = other.path.c_str(); })};
    const size_t own = try_all(folders, BASE, [&](saying &s) { s.opts.nvme_path = folder.path.c_str(); });
    report("zoff_engine_opts", own + try_all(list, BASE));
    zoff_comm_close(alone);
    zoff_accel_close(host);
}

TEST(Agreement, EveryFieldOfAParameter)
{
    quiet log;
    static uint16_t wide[2 * 1000];
    static const size_t dims[] = {30, 100}, one_more[] = {30, 100, 1};
    const std::vector<mutation> list = {
        harmless(FIELD(zoff_param_desc, struct_size),
                 [](saying &s) { s.params[0].struct_size = offsetof(zoff_param_desc, engine_owned); }),
        refused(
            FIELD(zoff_param_desc, value), [](saying &s) { s.params[2].value = nullptr; },
            "the checksum of the first weights of parameter 2"),
        harmless(FIELD(zoff_param_desc, grad), nullptr), // a rank without gradients is allowed: it contributes nothing
        refused(FIELD(zoff_param_desc, count), [](saying &s) { s.params[0].count -= 8; }),
        refused(FIELD(zoff_param_desc, slices), [](saying &s) { s.params[1].slices = 1; }),
        harmless(FIELD(zoff_param_desc, value_stride),
                 [](saying &s) {
                     memcpy(wide, s.params[1].value, 600 * 2);
                     memcpy(wide + 1000, (uint16_t *)s.params[1].value + 640, 600 * 2);
                     s.params[1].value = wide;
                     s.params[1].value_stride = 1000;
                 }),
        harmless(FIELD(zoff_param_desc, grad_stride), nullptr),
        refused(FIELD(zoff_param_desc, dtype), [](saying &s) { s.params[1].dtype = ZOFF_F16; }),
        refused(FIELD(zoff_param_desc, grad_dtype), [](saying &s) { s.params[1].grad_dtype = ZOFF_F16; }),
        refused(FIELD(zoff_param_desc, group), [](saying &s) { s.params[1].group = 0; }),
        refused(FIELD(zoff_param_desc, frozen), [](saying &s) { s.params[0].frozen = true; }),
        refused(FIELD(zoff_param_desc, name), [](saying &s) { s.params[0].name = "other"; }),
        refused(FIELD(zoff_param_desc, engine_owned), [](saying &s) { s.params[0].engine_owned = true; }),
        refused(
            FIELD(zoff_param_desc, dims),
            [](saying &s) {
                s.params[0].dims = dims;
                s.params[0].dim_count = 2;
            },
            "zoff_param_desc.dims of parameter 0 (whole) is [3000] on"),
        refused(
            FIELD(zoff_param_desc, dim_count),
            [](saying &s) {
                s.params[0].dims = one_more;
                s.params[0].dim_count = 3;
            },
            "and [30, 100, 1] on"),
        refused(FIELD(zoff_param_desc, slice_name), [](saying &s) { s.params[1].slice_name = "half.{}"; }),
        refused(FIELD(zoff_param_desc, norm_replicated), [](saying &s) { s.params[0].norm_replicated = true; }),
        refused(FIELD(zoff_param_desc, reduced), [](saying &s) { s.params[0].reduced = true; }),
        harmless(FIELD(zoff_param_desc, matrix_rows), nullptr), // below, because it needs a shape
        harmless(FIELD(zoff_param_desc, matrix_row_count), nullptr),
    };
    expect_covered(list, sizeof(zoff_param_desc));
    size_t count = 0;
    for (const auto &one : list) {
        if (strcmp(one.field, "value_stride") != 0) {
            count += try_all({one}, BASE);
            continue;
        }
        // Rank 1 has its weights at another stride or place. The bits must equal those of the unchanged run.
        count++;
        const auto want = run(2, [&](model &m, unsigned) { return m.usual(BASE); });
        const auto got = run(2, [&](model &m, unsigned rank) {
            saying s = m.usual(BASE);
            if (rank == 1)
                one.change(s);
            return s;
        });
        EXPECT_EQ(ZOFF_OK, got[1].status) << got[1].message;
        EXPECT_TRUE(want[0].weights == got[0].weights);
    }
    static const size_t rows[] = {20, 10}, turned[] = {10, 20};
    const auto give = [](saying &s, const size_t *numbers) {
        s.params[0].dims = dims;
        s.params[0].dim_count = 2;
        s.params[0].matrix_rows = numbers;
        s.params[0].matrix_row_count = numbers ? 2 : 0;
    };
    const std::vector<mutation> cut = {
        refused(FIELD(zoff_param_desc, matrix_rows), [&](saying &s) { give(s, turned); }),
        refused(
            FIELD(zoff_param_desc, matrix_row_count), [&](saying &s) { give(s, nullptr); }, "zoff_param_desc.matrix_rows")};
    count += try_all(cut, BASE, [&](saying &s) { give(s, rows); });
    report("zoff_param_desc", count);
}

// First weights given to the engine must be equal on all ranks. A difference in one element is an error.
TEST(Agreement, FirstWeightsOfTheEngine)
{
    quiet log;
    for (unsigned stage : {0u, 1u, 3u}) {
        const auto got = run(2, [&](model &m, unsigned rank) {
            saying s = m.usual("{\"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}}");
            m.owned[699] += rank ? 1.0f : 0.0f;
            return s;
        });
        for (const auto &one : got) {
            EXPECT_EQ(ZOFF_ERR_INVALID, one.status) << one.message;
            EXPECT_NE(std::string::npos, one.message.find("the first weights of parameter 2 (owned), slice 0")) << one.message;
            EXPECT_NE(std::string::npos, one.message.find("zoff_param_desc.value")) << one.message;
        }
    }
}

// Weights of the program become those of rank 0 on every rank, frozen ones too, for every type and stride. Bytes between slices
// do not change.
TEST(Agreement, WeightsOfTheProgramBecomeThoseOfRank0)
{
    enum { MANY = 700 };
    for (const bool frozen : {true, false}) {
        log_catcher log;
        rank_job job(3, 20);
        std::vector<std::vector<uint16_t>> half(3), small(3);
        std::vector<std::vector<float>> large(3);
        job.on_each([&](unsigned rank) {
            zoff_engine *made = nullptr;
            saying s;
            s.json = "{\"zero_optimization\": {\"stage\": 2}}";
            s.opts.struct_size = sizeof s.opts;
            s.opts.threads = 1;
            half[rank].assign(3 * 1000, (uint16_t)(100 + rank));
            small[rank].assign(MANY, (uint16_t)(200 + rank));
            large[rank].assign(1500001, (float)rank);
            zoff_param_desc d = {};
            d.struct_size = sizeof d;
            d.frozen = frozen;
            d.value = half[rank].data();
            d.count = 901;
            d.slices = 3;
            d.value_stride = 1000;
            d.dtype = ZOFF_BF16;
            s.params.push_back(d);
            d.value = large[rank].data();
            d.count = large[rank].size();
            d.slices = 1;
            d.value_stride = 0;
            d.dtype = ZOFF_F32;
            s.params.push_back(d);
            d.value = small[rank].data();
            d.count = 1;
            d.slices = MANY;
            d.dtype = ZOFF_F16;
            s.params.push_back(d);
            EXPECT_ZOFF_OK(make(s, job.comm_of(rank), &made));
            const engine e(made);
            EXPECT_ZOFF_OK(zoff_engine_seal(made));
        });
        EXPECT_EQ(
            1u, log.count("rank 1: the first weights of 2 of 3 ranks differed from rank 0's, here in param0, param1, param2"));
        for (unsigned rank = 1; rank < 3; rank++) {
            EXPECT_TRUE(large[rank] == large[0]);
            EXPECT_TRUE(small[rank] == small[0]);
            for (size_t i = 0; i < half[rank].size(); i++)
                ASSERT_EQ(i % 1000 < 901 ? 100u : 100u + rank, half[rank][i]) << i;
        }
    }
}

// One rank lacks a frozen weight that the other has.
TEST(Agreement, AFrozenWeightIsThereOnAllRanksOrOnNone)
{
    quiet log;
    for (const bool nowhere : {true, false}) {
        const auto got = run(2, [&](model &m, unsigned rank) {
            saying s = m.usual("{}");
            s.params[0].frozen = true;
            s.params[0].value = nowhere || rank ? nullptr : s.params[0].value;
            return s;
        });
        for (const auto &one : got) {
            EXPECT_EQ(nowhere ? ZOFF_OK : ZOFF_ERR_INVALID, one.status) << one.message;
            EXPECT_TRUE(nowhere ||
                        one.message.find("zoff_param_desc.value of parameter 0 (whole) is given on rank 0 and NULL on "
                                         "rank 1") != std::string::npos)
                << one.message;
        }
    }
}

std::vector<mutation> hyper_list()
{
    const auto set = [](auto field, auto value) { return [=](saying &s) { s.groups[1].*field = value; }; };
    using h = zoff_optimizer_hyper;
    return {
        harmless(FIELD(h, struct_size), [](saying &s) { s.groups[1].struct_size = offsetof(h, optimizer); }),
        refused(FIELD(h, lr), set(&h::lr, 0.5)),
        refused(FIELD(h, beta1), set(&h::beta1, 0.5)),
        refused(FIELD(h, beta2), set(&h::beta2, 0.5)),
        refused(FIELD(h, eps), set(&h::eps, 0.5)),
        refused(FIELD(h, weight_decay), set(&h::weight_decay, 0.5)),
        refused(FIELD(h, decay), set(&h::decay, ZOFF_DECAY_L2)),
        refused(FIELD(h, momentum), set(&h::momentum, 0.5)),
        refused(FIELD(h, dampening), set(&h::dampening, 0.5)),
        refused(FIELD(h, lr_decay), set(&h::lr_decay, 0.5)),
        refused(FIELD(h, optimizer), set(&h::optimizer, ZOFF_OPTIMIZER_SGD)),
        refused(FIELD(h, flags), set(&h::flags, uint64_t{ZOFF_HYPER_NO_BIAS_CORRECTION})),
        refused(FIELD(h, adam_lr), set(&h::adam_lr, 0.5)),
        refused(FIELD(h, ns_steps), set(&h::ns_steps, 3u)),
        refused(FIELD(h, ns_method), set(&h::ns_method, ZOFF_MUON_STANDARD)),
        refused(FIELD(h, scale), set(&h::scale, ZOFF_MUON_SCALE_SPECTRAL)),
        refused(FIELD(h, coefficients), set(&h::coefficients, ZOFF_MUON_CANS)),
        refused(FIELD(h, nesterov),
                [](saying &s) {
                    s.groups[1].nesterov = true;
                    s.groups[1].momentum = 0.5;
                }),
    };
}

TEST(Agreement, EveryHyperParameterOfAGroup)
{
    quiet log;
    const std::vector<mutation> list = hyper_list();
    expect_covered(list, sizeof(zoff_optimizer_hyper));
    report("zoff_optimizer_hyper at seal", try_all(list, BASE, [](saying &s) {
               s.groups.resize(2);
               for (auto &h : s.groups)
                   zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
           }));
}
} // namespace
