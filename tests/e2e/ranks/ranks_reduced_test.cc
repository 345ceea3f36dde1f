/* SPDX-License-Identifier: Apache-2.0 */
// ranks_reduced_test.cc: gradients that the trainer has reduced (zoff_param_desc.reduced). All ranks hand over the same one, so
// zoff sends nothing of it. With a power of two of ranks, and gradients of few bits, sum and mean are exact. So bits equal
// those of an engine that reduces them itself.
#include "rank_job.h"

#include <string.h>

#include <cmath>

using namespace zoff_test;

namespace
{
struct tensor {
    std::string name;
    zoff_dtype grad_dtype;
    std::vector<float> value;
    std::vector<uint16_t> half; // the gradient where its type has 16 bits
    std::vector<float> grad;
};

struct worker {
    std::vector<tensor> tensors;
    engine e;
    zoff_step_info info;

    worker()
    {
        for (const auto &[name, count, dtype] : {std::tuple<const char *, size_t, zoff_dtype>{"a", 3001, ZOFF_F32},
                                                 {"b", 1300, ZOFF_BF16},
                                                 {"c", 2050, ZOFF_F32}}) {
            tensor t = {name, dtype, std::vector<float>(count), std::vector<uint16_t>(count), std::vector<float>(count)};
            for (size_t i = 0; i < count; i++)
                t.value[i] = std::sin((float)i + (float)name[0]);
            tensors.push_back(t);
        }
    }
    // Few bits, so that sums over ranks and micro-batches are exact.
    void fill(unsigned step)
    {
        for (tensor &t : tensors) {
            for (size_t i = 0; i < t.grad.size(); i++) {
                const float wave = std::cos((float)i * 0.37f + (float)step + (float)t.name[0]);
                t.grad[i] = (step == 2 ? 4.0f : 0.125f) * std::round(64 * wave) / 64;
                uint32_t bits;
                memcpy(&bits, &t.grad[i], sizeof bits);
                t.half[i] = (uint16_t)(bits >> 16);
            }
        }
    }
    // `lends`: gradients are in memory of the engine.
    void open(zoff_comm *comm, const std::string &text, const std::string &reduced, bool lends)
    {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        opts.comm = comm;
        e = make_engine(text, opts);
        for (tensor &t : tensors) {
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = t.name.c_str();
            d.value = t.value.data();
            d.grad_dtype = t.grad_dtype;
            d.grad = lends ? nullptr : gradient(t);
            d.count = t.value.size();
            d.reduced = reduced.find(t.name) != std::string::npos;
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }
    static void *gradient(tensor &t) { return t.grad_dtype == ZOFF_F32 ? (void *)t.grad.data() : (void *)t.half.data(); }
    void hand_over(bool lends, zoff_param count = 3)
    {
        for (zoff_param p = 0; lends && p < count; p++) {
            void *to;
            ASSERT_ZOFF_OK(zoff_grad_acquire(e.get(), p, 0, nullptr, &to));
            memcpy(to, gradient(tensors[p]), tensors[p].grad.size() * (tensors[p].grad_dtype == ZOFF_F32 ? 4 : 2));
            ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), p, 0, nullptr));
        }
    }
    void step(bool lends)
    {
        hand_over(lends);
        info = new_info();
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    }
};

std::string text_of(unsigned stage, unsigned accumulation = 1, const char *more = "")
{
    return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 8.0, "
           "\"gradient_accumulation_steps\": " +
           std::to_string(accumulation) + ", \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
           ", \"reduce_bucket_size\": 1024}" + more + "}";
}

struct ranks {
    ranks(unsigned size, const std::string &text, const std::string &reduced, bool lends_ = false)
        : job(size), workers(size), lends(lends_)
    {
        job.on_each([&](unsigned rank) { workers[rank].open(job.comm_of(rank), text, reduced, lends); });
    }
    ~ranks()
    {
        job.on_each([&](unsigned rank) { workers[rank].e.reset(); });
    }
    void step(unsigned number)
    {
        job.on_each([&](unsigned rank) {
            workers[rank].fill(number);
            workers[rank].step(lends);
        });
    }
    uint64_t sent_gradients() const
    {
        uint64_t sum = 0;
        for (const worker &w : workers)
            sum += w.info.bytes.sent_gradients;
        return sum;
    }
    rank_job job;
    std::vector<worker> workers;
    const bool lends;
};

struct cell {
    unsigned stage, world;
    bool lends;
};

class RanksReduced : public testing::TestWithParam<cell>
{
  protected:
    static unsigned stage() { return GetParam().stage; }
    static unsigned world() { return GetParam().world; }
    static bool lends() { return GetParam().lends; }
};
// Every pair of two of the three.
INSTANTIATE_TEST_SUITE_P(Pairs, RanksReduced,
                         testing::Values(cell{0, 2, false}, cell{0, 4, true}, cell{1, 2, true}, cell{1, 4, false},
                                         cell{2, 2, false}, cell{2, 4, true}, cell{3, 2, true}, cell{3, 4, false}),
                         [](const auto &p) {
                             return "stage" + std::to_string(p.param.stage) + "_world" + std::to_string(p.param.world) +
                                    (p.param.lends ? "_lent" : "_own");
                         });

TEST_P(RanksReduced, HasTheBitsOfGradientsThatAreReducedHere)
{
    unsigned accumulation = lends() ? 2 : 1;
    for (const char *more : {"", ", \"gradient_predivide_factor\": 2", ", \"prescale_gradients\": true"}) {
        ranks want(world(), text_of(stage(), accumulation, more), "", lends());
        ranks some(world(), text_of(stage(), accumulation, more), "ac", lends());
        ranks all(world(), text_of(stage(), accumulation, more), "abc", lends());
        unsigned clipped = 0;
        for (unsigned number = 1; number <= 4; number++) {
            for (ranks *one : {&want, &some, &all})
                one->step(number);
            clipped += want.workers[0].info.numbers.clip_factor < 1;
            for (const ranks *one : {&some, &all}) {
                for (const worker &w : one->workers) {
                    if (!w.info.accumulated) {
                        EXPECT_EQ(want.workers[0].info.numbers.grad_norm, w.info.numbers.grad_norm);
                    }
                    for (size_t i = 0; i < w.tensors.size(); i++)
                        EXPECT_EQ(want.workers[0].tensors[i].value, w.tensors[i].value) << w.tensors[i].name;
                }
            }
        }
        EXPECT_LT(0u, clipped) << "a step that clips, and others";
        accumulation = 3 - accumulation;
    }
}

// With "sum" the trainer hands over the sum: here that of equal gradients.
TEST_P(RanksReduced, ASumIsUsedAsItIs)
{
    ranks sums(world(), text_of(stage(), 1, ", \"gradient_allreduce_op\": \"sum\""), "abc", lends());
    ranks means(world(), text_of(stage()), "abc", lends());
    sums.step(1);
    means.step(1);
    EXPECT_EQ(means.workers[0].info.numbers.grad_norm, sums.workers[0].info.numbers.grad_norm);
    for (size_t i = 0; i < means.workers[0].tensors.size(); i++)
        EXPECT_EQ(means.workers[0].tensors[i].value, sums.workers[0].tensors[i].value);
}

// At stage 0 the fp32 sums go from their owners to all ranks, so that no copy can make weights differ.
TEST_P(RanksReduced, CostsNoBytesOfAReduction)
{
    ranks none(world(), text_of(stage()), "", lends()), some(world(), text_of(stage()), "ac", lends()),
        all(world(), text_of(stage()), "abc", lends());
    for (ranks *one : {&none, &some, &all}) {
        one->step(1);
        one->step(2);
    }
    const uint64_t others = world() - 1;
    const uint64_t wire_ac = others * 4 * (3001 + 2050), wire_b = others * 2 * 1300;
    EXPECT_EQ(wire_ac, none.sent_gradients() - some.sent_gradients());
    EXPECT_EQ(wire_ac + wire_b, none.sent_gradients() - all.sent_gradients());
    if (stage() > 0) {
        EXPECT_EQ(0u, all.sent_gradients());
    }
}

// Copies that differ are a mistake of the trainer. One bit of one element on one rank: the step is refused by all ranks, names
// the parameter, and changes nothing; with equal copies training goes on.
TEST_P(RanksReduced, CopiesThatDifferByABitAreRefused)
{
    ranks want(world(), text_of(stage()), "abc", lends()), all(world(), text_of(stage()), "abc", lends());
    const std::vector<float> before = all.workers[0].tensors[1].value;
    unsigned differing = 0;
    for (unsigned bit : {0u, 12u, 22u, 30u, 31u}) {
        for (unsigned param = 0; param < 3; param++) {
            all.job.on_each([&](unsigned rank) {
                worker &w = all.workers[rank];
                w.fill(1);
                if (rank == world() - 1) {
                    uint32_t bits;
                    tensor &t = w.tensors[param];
                    memcpy(&bits, &t.grad.back(), sizeof bits);
                    bits ^= 1u << bit;
                    memcpy(&t.grad.back(), &bits, sizeof bits);
                    t.half.back() ^= (uint16_t)(1u << bit % 16);
                }
                w.hand_over(all.lends);
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                                  "the checksum of the gradient of " + w.tensors[param].name + " (zoff_param_desc.reduced)",
                                  zoff_step(w.e.get(), nullptr, nullptr));
                EXPECT_NE(nullptr, strstr(zoff_last_error(), ("on rank " + std::to_string(world() - 1)).c_str()));
                EXPECT_EQ(before, w.tensors[1].value);
                EXPECT_ZOFF_OK(zoff_grads_drop(w.e.get()));
            });
            differing++;
        }
    }
    RecordProperty("cells", std::to_string(differing));
    for (unsigned number = 1; number <= 2; number++) {
        want.step(number);
        all.step(number);
    }
    for (size_t i = 0; i < 3; i++)
        EXPECT_EQ(want.workers[0].tensors[i].value, all.workers[0].tensors[i].value);
}

// Copies are summed with the weight of their micro-batch, so equal copies that come in another one are another sum. The same
// holds for a slice that comes in the first micro-batch on one rank, and in the second on the others.
TEST_P(RanksReduced, CopiesOfAnotherMicroBatchAreRefused)
{
    ranks want(world(), text_of(stage(), 2), "abc", true), all(world(), text_of(stage(), 2), "abc", true);
    const auto hand_over = [](worker &w, unsigned number, double weight, zoff_param count) {
        w.fill(number);
        ASSERT_ZOFF_OK(zoff_grad_weight(w.e.get(), weight));
        w.hand_over(true, count);
    };
    for (const bool only_c : {false, true}) {
        all.job.on_each([&](unsigned rank) {
            worker &w = all.workers[rank];
            const bool is_other = rank == world() - 1;
            hand_over(w, !only_c && is_other ? 2 : 1, 1, only_c && !is_other ? 2 : 3);
            EXPECT_ZOFF_OK(zoff_step(w.e.get(), nullptr, nullptr));
            hand_over(w, only_c || is_other ? 1 : 2, 3, only_c && is_other ? 2 : 3);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              std::string("the checksum of the gradient of ") + (only_c ? "c" : "a") +
                                  " (zoff_param_desc.reduced)",
                              zoff_step(w.e.get(), nullptr, nullptr));
            EXPECT_ZOFF_OK(zoff_grads_drop(w.e.get()));
        });
    }
    for (ranks *one : {&want, &all}) {
        one->job.on_each([&](unsigned rank) {
            for (unsigned number = 1; number <= 2; number++) {
                hand_over(one->workers[rank], number, number, 3);
                EXPECT_ZOFF_OK(zoff_step(one->workers[rank].e.get(), nullptr, nullptr));
            }
        });
    }
    for (size_t i = 0; i < 3; i++)
        EXPECT_EQ(want.workers[0].tensors[i].value, all.workers[0].tensors[i].value);
}

// A micro-batch that no rank weighs adds nothing to the sums, so nothing of it is compared either.
TEST_P(RanksReduced, AMicroBatchWithoutWeightIsNotCompared)
{
    ranks want(world(), text_of(stage(), 2), "abc", lends()), all(world(), text_of(stage(), 2), "abc", lends());
    for (ranks *one : {&want, &all}) {
        one->job.on_each([&](unsigned rank) {
            worker &w = one->workers[rank];
            for (const double weight : {1.0, 0.0}) {
                ASSERT_ZOFF_OK(zoff_grad_weight(w.e.get(), weight));
                w.fill(weight > 0 || one == &want ? 1 : 3 + rank);
                w.step(one->lends);
            }
            EXPECT_FALSE(w.info.accumulated);
        });
    }
    for (size_t i = 0; i < 3; i++)
        EXPECT_EQ(want.workers[0].tensors[i].value, all.workers[0].tensors[i].value);
}

struct large_ranks {
    enum { BLOCKS = 100 };
    rank_job job{2};
    std::vector<float> value[2], grad[2];
    std::vector<engine> engines{2};
    large_ranks(unsigned stage, unsigned accumulation)
    {
        job.on_each([&](unsigned rank) {
            value[rank].assign(BLOCKS * 1024, 1.0f);
            grad[rank].assign(BLOCKS * 1024, 0.5f);
            for (size_t block = 0; block < BLOCKS; block++)
                grad[rank][block * 1024] = (float)block; /* no two blocks are equal */
            zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
            opts.threads = 1;
            opts.comm = job.comm_of(rank);
            engines[rank] = make_engine(text_of(stage, accumulation), opts);
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = "large";
            d.value = value[rank].data();
            d.grad = grad[rank].data();
            d.count = value[rank].size();
            d.reduced = true;
            ASSERT_ZOFF_OK(zoff_engine_add_param(engines[rank].get(), &d, nullptr));
            ASSERT_ZOFF_OK(zoff_engine_seal(engines[rank].get()));
        });
    }
    ~large_ranks()
    {
        job.on_each([&](unsigned rank) { engines[rank].reset(); });
    }
};

// A step compares 16 blocks of a large slice, and the next steps others: a difference that lasts is found.
TEST(RanksReducedLarge, EveryBlockIsComparedInItsTurn)
{
    enum { BLOCKS = large_ranks::BLOCKS, TURNS = (BLOCKS + 15) / 16 };
    for (const unsigned accumulation : {1u, 2u}) {
        large_ranks all(2, accumulation);
        for (unsigned block = 0; block < BLOCKS; block += accumulation == 1 ? 18 : 45) {
            unsigned found[2] = {0, 0};
            for (unsigned turn = 0; turn < TURNS; turn++) {
                all.job.on_each([&](unsigned rank) {
                    zoff_engine *e = all.engines[rank].get();
                    float *element = &all.grad[rank][block * 1024 + 1000];
                    for (unsigned micro = 1; micro < accumulation; micro++)
                        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
                    *element = rank ? std::nextafter(0.5f, 1.0f) : 0.5f;
                    if (zoff_step(e, nullptr, nullptr) == ZOFF_ERR_INVALID) {
                        found[rank]++;
                        EXPECT_ZOFF_OK(zoff_grads_drop(e));
                    }
                    *element = 0.5f;
                });
            }
            EXPECT_EQ(1u, found[0]) << "block " << block;
            EXPECT_EQ(1u, found[1]) << "block " << block;
        }
    }
}

TEST_P(RanksReduced, AGradientThatIsNotFiniteIsSkippedByAll)
{
    log_catcher log;
    log.expect("the gradient of a, slice 0, has an inf or nan between its elements 0 and 1023 on rank");
    ranks all(world(), text_of(stage()), "abc", lends());
    all.job.on_each([&](unsigned rank) {
        worker &w = all.workers[rank];
        w.fill(1);
        w.tensors[0].grad[77] = INFINITY;
        const std::vector<float> before = w.tensors[0].value;
        w.step(all.lends);
        EXPECT_TRUE(w.info.skipped);
        EXPECT_EQ(before, w.tensors[0].value);
    });
    all.step(2);
    EXPECT_FALSE(all.workers[0].info.skipped);
}

TEST_P(RanksReduced, ARankThatLacksOneIsNamed)
{
    ranks all(world(), text_of(stage()), "abc", false);
    all.job.on_each([&](unsigned rank) {
        worker &w = all.workers[rank];
        w.fill(1);
        for (zoff_param p = rank == 1 ? 1 : 0; p < w.tensors.size(); p++)
            EXPECT_ZOFF_OK(zoff_grad_ready(w.e.get(), p, 0, nullptr));
        EXPECT_ZOFF_OK(zoff_step_begin(w.e.get(), nullptr));
        w.info = new_info();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "a has zoff_param_desc.reduced, but only rank 0 of ranks 0 and 1 has handed over the gradient of its "
                          "slice 0",
                          zoff_step_wait(w.e.get(), &w.info));
        EXPECT_EQ(ZOFF_OUTCOME_BEFORE, w.info.outcome);
        EXPECT_ZOFF_OK(zoff_grads_drop(w.e.get()));
    });
    all.step(1);
}

// Downloaded, and read by their owner.
TEST(RanksReducedDevice, HasTheBitsOfTheHost)
{
    for (unsigned stage : {0u, 1u, 2u}) {
        ranks want(2, text_of(stage), "abc");
        rank_job job(2);
        std::vector<worker> workers(2);
        for (unsigned number = 1; number <= 3; number++)
            want.step(number);
        job.on_each([&](unsigned rank) {
            worker &w = workers[rank];
            test_device device(5 + rank);
            const std::shared_ptr<device_memory> memory = device.memory();
            std::vector<char *> values, grads;
            zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
            opts.comm = job.comm_of(rank);
            opts.accel = device.accel;
            opts.threads = 1;
            engine e = make_engine(text_of(stage), opts);
            for (tensor &t : w.tensors) {
                zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
                d.name = t.name.c_str();
                values.push_back(memory->alloc(4 * t.value.size()));
                grads.push_back(memory->alloc(4 * t.value.size()));
                d.value = values.back();
                d.grad = grads.back();
                d.count = t.value.size();
                d.grad_dtype = t.grad_dtype;
                d.reduced = true;
                device.copy(d.value, t.value.data(), 4 * t.value.size());
                ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            for (unsigned number = 1; number <= 3; number++) {
                w.fill(number);
                for (zoff_param p = 0; p < w.tensors.size(); p++) {
                    tensor &t = w.tensors[p];
                    device.launch_copy(grads[p], worker::gradient(t), t.grad.size() * (t.grad_dtype == ZOFF_F32 ? 4 : 2));
                    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), p, 0, device.stream));
                }
                w.info = new_info();
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &w.info));
                EXPECT_EQ(want.workers[0].info.bytes.sent_gradients == 0, w.info.bytes.sent_gradients == 0);
            }
            for (size_t i = 0; i < w.tensors.size(); i++)
                device.copy(w.tensors[i].value.data(), values[i], 4 * w.tensors[i].value.size());
        });
        for (const worker &w : workers) {
            EXPECT_EQ(want.workers[0].info.numbers.grad_norm, w.info.numbers.grad_norm);
            for (size_t i = 0; i < w.tensors.size(); i++)
                EXPECT_EQ(want.workers[0].tensors[i].value, w.tensors[i].value) << stage;
        }
    }
}

TEST(RanksReducedDevice, IsRefusedWhereTheCommunicatorReachesIt)
{
    rank_job job(2);
    job.reach_devices();
    job.on_each([&](unsigned rank) {
        test_device device;
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.comm = job.comm_of(rank);
        opts.accel = device.accel;
        engine e = make_engine(text_of(2), opts);
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = "a";
        d.reduced = true;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "a has zoff_param_desc.reduced", zoff_engine_seal(e.get()));
    });
}
} // namespace
