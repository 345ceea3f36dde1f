/* SPDX-License-Identifier: Apache-2.0 */
// ranks_empty_test.cc: an engine that trains nothing beside one that trains, with one norm. It has no gradients, but every
// decision of a step is also its own: it clips, skips, scales, counts, stops, saves and reopens as the other does. The other
// does as if it were alone.
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
enum joined { BY_COMM, BY_SUM };
enum emptiness { NO_PARAMETER, NO_ELEMENTS, FROZEN_ONLY };
enum { PARTS = 2, COUNT = 2500, SCALE = 1024, STEPS = 8 };

struct cell {
    joined by;
    emptiness kind;
    unsigned world;
    bool persist;
};

std::string name_of(const cell &c)
{
    static const char *const KINDS[] = {"no_parameter", "no_elements", "frozen_only"};
    return std::string(c.by == BY_COMM ? "norm_comm_" : "norm_sum_") + KINDS[c.kind] + "_world" + std::to_string(c.world) +
           (c.persist ? "_persist" : "_host");
}

// The decisions of a step.
struct decision {
    bool skipped, accumulated, stop;
    int64_t t, count;
    double norm, clip, lr, loss_scale;
    bool operator==(const decision &o) const
    {
        const bool same_norm = norm == o.norm || (std::isnan(norm) && std::isnan(o.norm));
        return skipped == o.skipped && accumulated == o.accumulated && stop == o.stop && t == o.t && count == o.count &&
               same_norm && clip == o.clip && lr == o.lr && loss_scale == o.loss_scale;
    }
};
std::ostream &operator<<(std::ostream &out, const decision &d)
{
    return out << "t " << d.t << " of " << d.count << (d.skipped ? " skipped" : "") << (d.accumulated ? " accumulated" : "")
               << (d.stop ? " stop" : "") << " norm " << d.norm << " clip " << d.clip << " lr " << d.lr << " scale "
               << d.loss_scale;
}

struct part {
    std::vector<uint16_t> value;
    std::vector<float> grad;
    engine e;
    std::vector<decision> made;

    void open(const cell &c, bool trains, const std::string &folder, zoff_comm *comm, zoff_comm *norm)
    {
        const std::string offload =
            c.persist ? ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder + "\"}" : "";
        const std::string text =
            "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 1.0, "
            "\"gradient_accumulation_steps\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.01, "
            "\"warmup_num_steps\": 50}}, \"fp16\": {\"enabled\": true, \"initial_scale_power\": 10, \"hysteresis\": 1}, "
            "\"zero_optimization\": {\"stage\": 2" +
            offload + "}" + (c.persist ? ", \"zoff\": {\"persist\": true}" : "") + "}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        opts.comm = comm;
        opts.norm_comm = norm;
        const size_t count = trains || c.kind == FROZEN_ONLY ? (size_t)COUNT : 0;
        if (value.empty()) {
            for (size_t i = 0; i < count; i++)
                value.push_back(reference::to_16(ZOFF_F16, std::sin((float)i)));
        }
        grad.assign(count, trains ? 0.0f : INFINITY); // nobody looks at a frozen parameter's
        e = make_engine(text, opts);
        if (trains || c.kind != NO_PARAMETER) {
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = trains ? "trained" : "other";
            d.value = value.data();
            d.grad = grad.data();
            d.dtype = ZOFF_F16;
            d.grad_dtype = ZOFF_F32;
            d.count = count;
            d.frozen = !trains && count;
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        int64_t count_before = 0;
        ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count_before));
        if (count_before) {
            ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        }
    }
    // Some steps clip, one has an inf, and one a norm beyond fp32.
    void fill(unsigned step)
    {
        static const float SIZES[] = {1, 3000, 1, 3e38f, 1000, 1, 2000, 10};
        for (size_t i = 0; i < grad.size(); i++)
            grad[i] = SIZES[step % 8] * std::cos((float)i + (float)step);
        if (step % 8 == 2)
            grad[77] = INFINITY;
    }
    void take(unsigned step, const zoff_norm_sum *sum)
    {
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        zoff_step_info info = new_info();
        args.norm_sum = sum;
        args.t = step == 9 ? 40 : 0;
        if (step == 12)
            zoff_engine_request_stop(e.get());
        ASSERT_ZOFF_OK(zoff_step(e.get(), &args, &info)) << step;
        int64_t count = 0;
        ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
        made.push_back({info.skipped, info.accumulated, info.stop_requested, info.t, count, info.numbers.grad_norm,
                        info.numbers.clip_factor, info.numbers.lr, info.numbers.loss_scale});
    }
};
} // namespace

class RanksEmpty : public testing::TestWithParam<cell>
{
  protected:
    RanksEmpty() : c(GetParam()), workers(c.world * PARTS), alone(c.world)
    {
        for (unsigned i = 0; i < PARTS + 1; i++)
            of_part.push_back(std::make_unique<rank_job>(c.world, 60.0));
        for (unsigned rank = 0; rank < c.world; rank++)
            over_parts.push_back(std::make_unique<rank_job>((unsigned)PARTS, 60.0));
    }
    // One thread for each rank of each part: with zoff_norm_sum the ranks of a rank's parts share one.
    void on_each(const std::function<void(unsigned rank, unsigned part)> &run)
    {
        std::vector<std::thread> threads;
        for (unsigned rank = 0; rank < c.world; rank++) {
            for (unsigned p = 0; p < PARTS; p++)
                threads.emplace_back([&run, rank, p] { run(rank, p); });
        }
        for (auto &one : threads)
            one.join();
    }
    part &of(unsigned rank, unsigned p) { return workers[rank * PARTS + p]; }
    std::string folder_of(unsigned p) const { return folder.path + "/" + std::to_string(p); }
    void open()
    {
        on_each([&](unsigned rank, unsigned p) {
            of(rank, p).open(c, p == 0, folder_of(p), of_part[p]->comm_of(rank),
                             c.by == BY_COMM ? over_parts[rank]->comm_of(p) : nullptr);
        });
        of_part[PARTS]->on_each(
            [&](unsigned rank) { alone[rank].open(c, true, folder_of(PARTS), of_part[PARTS]->comm_of(rank), nullptr); });
    }
    void close()
    {
        on_each([&](unsigned rank, unsigned p) { of(rank, p).e.reset(); });
        of_part[PARTS]->on_each([&](unsigned rank) { alone[rank].e.reset(); });
    }
    void step(unsigned number)
    {
        std::vector<zoff_norm_sum> sums(c.world * PARTS);
        const bool measures = c.by == BY_SUM && number % 2;
        for (unsigned rank = 0; rank < c.world; rank++) {
            of(rank, 0).fill(number / 2);
            alone[rank].fill(number / 2);
        }
        if (measures)
            on_each([&](unsigned rank, unsigned p) {
                zoff_step_args args = ZOFF_STEP_ARGS_INIT;
                args.t = number == 9 ? 40 : 0;
                ASSERT_ZOFF_OK(zoff_step_measure(of(rank, p).e.get(), &args, &sums[rank * PARTS + p]));
            });
        for (unsigned rank = 0; measures && rank < c.world; rank++) {
            ASSERT_ZOFF_OK(zoff_norm_sum_join(&sums[rank * PARTS], &sums[rank * PARTS + 1]));
            sums[rank * PARTS + 1] = sums[rank * PARTS];
        }
        on_each([&](unsigned rank, unsigned p) { of(rank, p).take(number, measures ? &sums[rank * PARTS + p] : nullptr); });
        of_part[PARTS]->on_each([&](unsigned rank) { alone[rank].take(number, nullptr); });
    }
    void expect_alike()
    {
        for (unsigned rank = 0; rank < c.world; rank++) {
            for (size_t i = 0; i < alone[rank].made.size(); i++) {
                EXPECT_EQ(alone[rank].made[i], of(rank, 0).made[i]) << "trained, step " << i;
                decision empty = of(rank, 1).made[i];
                if (c.kind == NO_PARAMETER) // such a rank has no group, and so no rate
                    empty.lr = alone[rank].made[i].lr;
                EXPECT_EQ(alone[rank].made[i], empty) << "empty, step " << i;
            }
            EXPECT_EQ(alone[rank].value, of(rank, 0).value);
        }
    }

    const cell c;
    const scratch_folder folder;
    std::vector<std::unique_ptr<rank_job>> of_part, over_parts;
    std::vector<part> workers, alone;
};

TEST_P(RanksEmpty, DecidesAsTheOthersDo)
{
    log_catcher log;
    for (unsigned p = 0; p <= PARTS; p++)
        ASSERT_EQ(0, mkdir(folder_of(p).c_str(), 0700));
    ASSERT_NO_FATAL_FAILURE(open());
    for (unsigned number = 0; number < 2 * STEPS; number++)
        ASSERT_NO_FATAL_FAILURE(step(number));
    expect_alike();
    unsigned skipped = 0, clipped = 0, stopped = 0;
    for (const decision &d : alone[0].made) {
        skipped += d.skipped;
        clipped += d.clip < 1;
        stopped += d.stop;
    }
    EXPECT_EQ(2u, skipped);
    EXPECT_LE(2u, clipped);
    EXPECT_LT(0u, stopped);
    // Saved, and loaded into others.
    on_each([&](unsigned rank, unsigned p) {
        ASSERT_ZOFF_OK(zoff_checkpoint_save(of(rank, p).e.get(), (folder_of(p) + "/saved").c_str(), nullptr));
    });
    int64_t count = 0;
    ASSERT_ZOFF_OK(zoff_step_count(alone[0].e.get(), &count));
    close();
    ASSERT_NO_FATAL_FAILURE(open());
    on_each([&](unsigned rank, unsigned p) {
        int64_t got = 0;
        if (!c.persist) {
            ASSERT_ZOFF_OK(zoff_checkpoint_load(of(rank, p).e.get(), (folder_of(p) + "/saved").c_str(), nullptr));
        }
        ASSERT_ZOFF_OK(zoff_step_count(of(rank, p).e.get(), &got));
        EXPECT_EQ(count, got) << p;
    });
    close();
    for (const char *words : {"skipped", "loss scale"})
        log.expect(words);
}

static std::vector<cell> cells()
{
    std::vector<cell> all;
    for (joined by : {BY_COMM, BY_SUM})
        for (emptiness kind : {NO_PARAMETER, NO_ELEMENTS, FROZEN_ONLY})
            for (unsigned world : {1u, 2u})
                for (bool persist : {false, true})
                    all.push_back({by, kind, world, persist});
    return all;
}
INSTANTIATE_TEST_SUITE_P(Cells, RanksEmpty, testing::ValuesIn(cells()), [](const auto &p) { return name_of(p.param); });
