/* SPDX-License-Identifier: Apache-2.0 */
// ranks_norm_test.cc: engines that train parts of one model and share a norm (zoff_engine_opts.norm_comm). Each part has ranks
// of its own, which share their states. Norm, clip factor and weights must be those of one engine over all parameters, bit for
// bit, and all parts skip, stop and refuse the same steps.
#include "rank_job.h"

#include <string.h>

#include <cmath>

using namespace zoff_test;

namespace
{
struct tensor {
    std::string name;
    std::vector<float> value, grad;
    bool replicated = false;
};

enum { PARTS = 2 };

// The parameters of a part. Both parts have the same "shared", and each has an own one.
std::vector<tensor> tensors_of(unsigned part)
{
    const std::string own = "own" + std::to_string(part);
    std::vector<tensor> all = {{own, std::vector<float>(3000 + 1025 * part)}, {"shared", std::vector<float>(1300)}};
    for (tensor &t : all) {
        t.grad.resize(t.value.size());
        t.replicated = t.name == "shared";
        for (size_t i = 0; i < t.value.size(); i++)
            t.value[i] = std::sin((float)(i + t.name.size()) + (float)part * (t.replicated ? 0.0f : 7.0f));
    }
    return all;
}

void fill_grads(std::vector<tensor> &all, int64_t step)
{
    const float scale = step == 2 ? 3.0f : 0.001f;
    for (tensor &t : all) {
        for (size_t i = 0; i < t.grad.size(); i++)
            t.grad[i] = scale * std::cos((float)i * 0.37f + (float)step + (float)t.name.back());
    }
}

struct worker {
    std::vector<tensor> tensors;
    engine e;
    std::string text = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 1.0, "
                       "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1024}}";

    // `norm` NULL: this engine is the whole model.
    zoff_status open(zoff_comm *comm, zoff_comm *norm)
    {
        zoff_config *settings = nullptr;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "test.json", &settings));
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config = settings;
        opts.threads = 1;
        opts.comm = comm;
        opts.norm_comm = norm;
        const zoff_status created = zoff_engine_create(&opts, &made);
        zoff_config_close(settings);
        if (created < 0)
            return created;
        e.reset(made);
        for (tensor &t : tensors) {
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = t.name.c_str();
            d.value = t.value.data();
            d.grad = t.grad.data();
            d.count = t.value.size();
            d.norm_replicated = norm && t.replicated;
            EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
        return zoff_engine_seal(made);
    }
    zoff_status step(zoff_step_info *info, const zoff_step_args *args = nullptr)
    {
        *info = new_info();
        return zoff_step(e.get(), args, info);
    }
};

// `ranks` ranks for each part, all with the same gradients, whose mean is then exact. The number is a power of two: rank *
// PARTS + part is the number of a worker.
class RanksNorm : public testing::TestWithParam<unsigned>
{
  protected:
    RanksNorm() : ranks(GetParam()), workers(ranks * PARTS), infos(ranks * PARTS)
    {
        for (unsigned part = 0; part < PARTS; part++)
            of_part.push_back(std::make_unique<rank_job>(ranks, 60.0));
        for (unsigned rank = 0; rank < ranks; rank++)
            over_parts.push_back(std::make_unique<rank_job>((unsigned)PARTS, 60.0));
        for (unsigned i = 0; i < workers.size(); i++)
            workers[i].tensors = tensors_of(i % PARTS);
    }
    ~RanksNorm() override
    {
        on_each([&](unsigned i) { workers[i].e.reset(); });
    }
    void on_each(const std::function<void(unsigned i)> &run)
    {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < workers.size(); i++)
            threads.emplace_back([&run, i] { run(i); });
        for (auto &one : threads)
            one.join();
    }
    zoff_comm *comm_of(unsigned i) { return of_part[i % PARTS]->comm_of(i / PARTS); }
    zoff_comm *norm_of(unsigned i) { return over_parts[i / PARTS]->comm_of(i % PARTS); }
    void seal()
    {
        on_each([&](unsigned i) { EXPECT_ZOFF_OK(workers[i].open(comm_of(i), norm_of(i))); });
        for (unsigned part = 0; part < PARTS; part++) {
            for (tensor &t : tensors_of(part)) {
                if (part == 0 || !t.replicated)
                    whole.tensors.push_back(t);
            }
        }
        ASSERT_ZOFF_OK(whole.open(nullptr, nullptr));
    }
    void step_all(int64_t number)
    {
        on_each([&](unsigned i) {
            fill_grads(workers[i].tensors, number);
            EXPECT_ZOFF_OK(workers[i].step(&infos[i]));
        });
    }
    const tensor &of_whole(const std::string &name) const
    {
        for (const tensor &t : whole.tensors) {
            if (t.name == name)
                return t;
        }
        ADD_FAILURE() << "no " << name;
        return whole.tensors.front();
    }
    void expect_weights()
    {
        for (const worker &w : workers) {
            for (const tensor &t : w.tensors)
                EXPECT_EQ(of_whole(t.name).value, t.value) << t.name;
        }
    }

    log_catcher log;
    const unsigned ranks;
    std::vector<std::unique_ptr<rank_job>> of_part, over_parts;
    std::vector<worker> workers;
    std::vector<zoff_step_info> infos;
    worker whole;
};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksNorm, testing::Values(1u, 2u, 4u),
                         [](const auto &p) { return "ranks" + std::to_string(p.param); });

TEST_P(RanksNorm, IsThatOfOneEngineOverAllParameters)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    unsigned clipped = 0;
    for (int64_t number = 1; number <= 4; number++) {
        zoff_step_info want;
        fill_grads(whole.tensors, number);
        ASSERT_ZOFF_OK(whole.step(&want));
        step_all(number);
        clipped += want.numbers.clip_factor < 1;
        for (const zoff_step_info &got : infos) {
            EXPECT_EQ(want.numbers.grad_norm, got.numbers.grad_norm) << number;
            EXPECT_EQ(want.numbers.clip_factor, got.numbers.clip_factor) << number;
        }
        expect_weights();
    }
    EXPECT_EQ(1u, clipped) << "a step that clips, and others";
}

TEST_P(RanksNorm, AGradientThatIsNotFiniteIsSkippedByAll)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    log.expect("the gradient of own1, slice 0, has an inf or nan");
    log.expect("rank 1 of zoff_engine_opts.norm_comm says: the gradient of own1, slice 0, has an inf or nan");
    on_each([&](unsigned i) {
        fill_grads(workers[i].tensors, 1);
        if (i % PARTS == 1)
            workers[i].tensors[0].grad[77] = INFINITY;
        EXPECT_ZOFF_OK(workers[i].step(&infos[i]));
    });
    for (unsigned i = 0; i < workers.size(); i++) {
        EXPECT_TRUE(infos[i].skipped) << i;
        EXPECT_EQ(tensors_of(i % PARTS)[0].value, workers[i].tensors[0].value) << i;
    }
    step_all(1);
    for (const zoff_step_info &got : infos)
        EXPECT_FALSE(got.skipped);
}

TEST_P(RanksNorm, ARequestToStopReachesAllInTheSameStep)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    step_all(1);
    zoff_engine_request_stop(workers.back().e.get());
    step_all(2);
    for (const zoff_step_info &got : infos)
        EXPECT_TRUE(got.stop_requested);
}

TEST_P(RanksNorm, StepsThatDifferAreRefusedByAll)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    on_each([&](unsigned i) {
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        args.clip_norm = 1 + i % PARTS;
        fill_grads(workers[i].tensors, 1);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step_args.clip_norm (or gradient_clipping) is 1 on rank 0 and 2 on rank 1",
                          workers[i].step(&infos[i], &args));
        EXPECT_EQ(ZOFF_OUTCOME_BEFORE, infos[i].outcome);
        EXPECT_ZOFF_OK(zoff_grads_drop(workers[i].e.get()));
    });
    zoff_step_info want;
    fill_grads(whole.tensors, 1);
    ASSERT_ZOFF_OK(whole.step(&want));
    step_all(1);
    EXPECT_EQ(want.numbers.grad_norm, infos[0].numbers.grad_norm) << "training goes on";
}

TEST_P(RanksNorm, AnEngineThatCannotTakeTheStepHoldsUpNobody)
{
    if (ranks == 1) // the mean of a single rank has no weight
        return;
    ASSERT_NO_FATAL_FAILURE(seal());
    on_each([&](unsigned i) {
        fill_grads(workers[i].tensors, 1);
        EXPECT_ZOFF_OK(zoff_grad_weight(workers[i].e.get(), i % PARTS ? 0 : 1));
        if (i % PARTS)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "weight 0", workers[i].step(&infos[i]));
        else
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 of zoff_engine_opts.norm_comm cannot take the step",
                              workers[i].step(&infos[i]));
        EXPECT_ZOFF_OK(zoff_grads_drop(workers[i].e.get()));
    });
    step_all(1);
}

TEST_P(RanksNorm, ItsCommunicatorIsAnotherOne)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_opts.norm_comm is zoff_engine_opts.comm",
                      workers[0].open(comm_of(0), comm_of(0)));
}

// One bit of one element in one part: the step is refused by all parts, names the parameter, and changes nothing. The sign is
// not compared, because the comparison is one of squares.
TEST_P(RanksNorm, AReplicaThatDiffersByABitIsRefused)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    for (unsigned bit : {0u, 5u, 12u, 22u, 24u}) {
        on_each([&](unsigned i) {
            fill_grads(workers[i].tensors, 1);
            if (i % PARTS == 1) { // on all its ranks, or the sum over them might lose it
                uint32_t bits;
                memcpy(&bits, &workers[i].tensors[1].grad[1100], sizeof bits);
                bits ^= 1u << bit;
                memcpy(&workers[i].tensors[1].grad[1100], &bits, sizeof bits);
            }
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              "the gradients of shared differ between ranks 0 and 1 of zoff_engine_opts.norm_comm",
                              workers[i].step(&infos[i]));
            EXPECT_EQ(ZOFF_OUTCOME_BEFORE, infos[i].outcome);
            EXPECT_EQ(tensors_of(i % PARTS)[1].value, workers[i].tensors[1].value);
            EXPECT_ZOFF_OK(zoff_grads_drop(workers[i].e.get()));
        });
    }
    zoff_step_info want;
    fill_grads(whole.tensors, 1);
    ASSERT_ZOFF_OK(whole.step(&want));
    step_all(1);
    EXPECT_EQ(want.numbers.grad_norm, infos[0].numbers.grad_norm) << "training goes on";
    expect_weights();
}

TEST_P(RanksNorm, AReplicaWithoutAGradientInOnePartIsRefused)
{
    ASSERT_NO_FATAL_FAILURE(seal());
    on_each([&](unsigned i) {
        fill_grads(workers[i].tensors, 1);
        for (zoff_param p = 0; p < 2 - i % PARTS; p++)
            EXPECT_ZOFF_OK(zoff_grad_ready(workers[i].e.get(), p, 0, nullptr));
        EXPECT_ZOFF_OK(zoff_step_begin(workers[i].e.get(), nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the gradients of shared differ", zoff_step_wait(workers[i].e.get(), nullptr));
        EXPECT_ZOFF_OK(zoff_grads_drop(workers[i].e.get()));
    });
}

TEST_P(RanksNorm, FirstWeightsOfAReplicaThatDifferAreRefused)
{
    for (worker &w : workers) {
        if (&w - workers.data() == PARTS - 1)
            w.tensors[1].value[1299] = std::nextafter(w.tensors[1].value[1299], 9.0f);
    }
    on_each([&](unsigned i) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "the first weights of shared differ between ranks 0 and 1 of zoff_engine_opts.norm_comm",
                          workers[i].open(comm_of(i), norm_of(i)));
        workers[i].tensors = tensors_of(i % PARTS);
        for (zoff_param p = 0; p < 2; p++)
            EXPECT_ZOFF_OK(
                zoff_param_bind(workers[i].e.get(), p, workers[i].tensors[p].value.data(), workers[i].tensors[p].grad.data()));
        EXPECT_ZOFF_OK(zoff_engine_seal(workers[i].e.get())) << "after an error the engine is as before";
    });
}

// Three parts, each with parameters that only some of the others have, in lists of other orders and lengths. A tied parameter
// has its owner's states.
TEST(RanksNormLists, EachParameterIsComparedWhereItIs)
{
    log_catcher log;
    const std::vector<std::vector<const char *>> lists = {
        {"x", "embed", "head", "norm.a", "norm.b"}, {"norm.b", "middle", "norm.a"}, {"norm.a", "embed", "head"}};
    rank_job parts(3, 30);
    for (const char *differs : {"", "embed", "norm.a", "norm.b"}) {
        for (unsigned where = 0; where < 3; where++) {
            std::vector<std::vector<std::vector<float>>> value(3), grad(3);
            std::vector<engine> engines(3);
            std::vector<zoff_status> status(3);
            std::vector<std::string> said(3);
            parts.on_each([&](unsigned part) {
                zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
                opts.threads = 1;
                opts.norm_comm = parts.comm_of(part);
                const size_t count = lists[part].size();
                value[part].assign(count, std::vector<float>(3000, 0.5f));
                grad[part].assign(count, std::vector<float>(3000));
                engines[part] = make_engine("{\"gradient_clipping\": 1.0}", opts);
                for (size_t i = 0; i < count; i++) {
                    const std::string name = lists[part][i];
                    const bool tied = name == "head" && part == 0; // part 0 ties it to embed, which is before it
                    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
                    d.name = name.c_str();
                    d.value = value[part][tied ? 1 : i].data();
                    d.grad = tied ? nullptr : grad[part][i].data();
                    d.count = 3000;
                    d.norm_replicated = name != "x" && name != "middle";
                    for (size_t k = 0; k < 3000; k++)
                        grad[part][i][k] = std::cos((float)k + (float)name.size() * 3 + (float)name.back());
                    if (name == differs && part == where)
                        grad[part][i][2999] = std::nextafter(grad[part][i][2999], 9.0f);
                    ASSERT_ZOFF_OK(zoff_engine_add_param(engines[part].get(), &d, nullptr));
                }
                ASSERT_ZOFF_OK(zoff_engine_seal(engines[part].get()));
                status[part] = zoff_step(engines[part].get(), nullptr, nullptr);
                said[part] = zoff_last_error();
            });
            bool is_there = false;
            for (const char *name : lists[where])
                is_there = is_there || !strcmp(name, differs);
            for (unsigned part = 0; part < 3; part++) {
                EXPECT_EQ(is_there ? ZOFF_ERR_INVALID : ZOFF_OK, status[part]) << differs << " in part " << where << said[part];
                if (is_there) {
                    EXPECT_NE(std::string::npos, said[part].find("zoff_param_desc.norm_replicated")) << said[part];
                }
            }
            if (is_there) {
                EXPECT_NE(std::string::npos, said[where].find(std::string("the gradients of ") + differs)) << said[where];
            }
            parts.on_each([&](unsigned part) { engines[part].reset(); });
        }
    }
}

// A part that does not come is named at the deadline.
TEST(RanksNormDeadline, NamesTheRankThatDoesNotCome)
{
    log_catcher log;
    rank_job parts(2, 0.5);
    std::vector<worker> workers(2);
    parts.on_each([&](unsigned i) {
        zoff_step_info info;
        workers[i].tensors = tensors_of(i);
        EXPECT_ZOFF_OK(workers[i].open(nullptr, parts.comm_of(i)));
        fill_grads(workers[i].tensors, 1);
        if (i == 0) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the norm of the gradients has waited for 0.5 s: rank 1 of 2 did not arrive",
                              workers[i].step(&info));
        }
    });
    parts.on_each([&](unsigned i) { workers[i].e.reset(); });
}
} // namespace
