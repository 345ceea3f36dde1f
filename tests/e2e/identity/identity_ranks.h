/* SPDX-License-Identifier: Apache-2.0 */
// identity_ranks.h: ranks that are threads, with several engines on one communicator. All numbers are small integers and SGD
// has a learning rate of 1. So the weights after t steps are known exactly.
#ifndef ZOFF_IDENTITY_RANKS_H
#define ZOFF_IDENTITY_RANKS_H

#include "nccl_group.h"
#include "post_office.h"

#include <chrono>
#include <random>

extern "C" {
#include "comm.h"
}

namespace zoff_test
{
enum class over { threads, messages };

inline bool is_over_nccl()
{
    const char *name = getenv("ZOFF_TEST_COMM");
    return name && strcmp(name, "nccl") == 0;
}

class rank_group
{
  public:
    rank_group(unsigned size, over kind, double timeout_seconds) : made(size), office(size)
    {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.timeout_seconds = timeout_seconds;
        if (is_over_nccl()) {
            EXPECT_EQ("", open_nccl_group(timeout_seconds, made));
        } else if (kind == over::threads) {
            EXPECT_ZOFF_OK(zoff_comm_open_threads(&opts, size, made.data()));
        } else {
            for (unsigned rank = 0; rank < size; rank++) {
                zoff_comm_transport t = office.transport(rank);
                t.any_thread = 1; // the transport has a lock
                EXPECT_ZOFF_OK(zoff_comm_open_transport(&opts, &t, &made[rank]));
            }
        }
    }
    ~rank_group() { close_group(made); }
    rank_group(const rank_group &) = delete;

    zoff_comm *of(unsigned rank) const { return made[rank]; }
    void on_each(const std::function<void(unsigned rank)> &run) const { on_threads((unsigned)made.size(), run); }

  private:
    std::vector<zoff_comm *> made;
    post_office office;
};

// Parameter `p` of engine `id`.
struct shape {
    size_t count;
    bool owned; // the engine owns weights and gradients
};

inline float first_weight(unsigned id, size_t p, size_t k)
{
    return (float)(id * 64 + p * 8 + k % 5);
}

inline float gradient(unsigned id, size_t p, size_t k, int64_t t, unsigned rank)
{
    return (float)((id * 3 + p + (size_t)t + rank) % 7 + k % 3);
}

// The weight after `t` steps of `ranks` ranks; exact if the number of ranks is a power of 2.
inline float weight_after(unsigned id, size_t p, size_t k, int64_t t, unsigned ranks)
{
    float w = first_weight(id, p, k);
    for (int64_t step = 1; step <= t; step++) {
        float sum = 0;
        for (unsigned rank = 0; rank < ranks; rank++)
            sum += gradient(id, p, k, step, rank);
        w -= sum / (float)ranks;
    }
    return w;
}

// One engine of one rank.
class tiny_engine
{
  public:
    tiny_engine(unsigned id_, unsigned stage, std::string name_, std::vector<shape> shapes_, bool progress_ = false,
                unsigned group = 1)
        : id(id_), name(std::move(name_)), shapes(std::move(shapes_)), progress(progress_)
    {
        text =
            "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1.0}}, \"gradient_clipping\": 0, \"zero_optimization\": "
            "{\"stage\": " +
            std::to_string(stage) +
            ", \"reduce_bucket_size\": 2048, \"stage3_param_persistence_threshold\": 0, "
            "\"stage3_prefetch_bucket_size\": 3000, \"zero_hpz_partition_size\": " +
            std::to_string(group) + "}}";
    }

    zoff_status create(zoff_comm *ranks)
    {
        zoff_config *parsed = nullptr;
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test", &parsed));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = parsed;
        opts.comm = ranks;
        opts.threads = 1;
        opts.progress_thread = progress;
        zoff_engine *made = nullptr;
        const zoff_status status = zoff_engine_create(&opts, &made);
        zoff_config_close(parsed);
        e.reset(made);
        t = 0;
        weights.assign(shapes.size(), {});
        grads.assign(shapes.size(), {});
        handed.assign(shapes.size(), false);
        for (size_t p = 0; status == ZOFF_OK && p < shapes.size(); p++) {
            for (size_t k = 0; k < shapes[p].count; k++)
                weights[p].push_back(first_weight(id, p, k));
            grads[p].resize(shapes[p].count);
            zoff_param_desc d = {};
            d.struct_size = sizeof d;
            const std::string param = name.empty() ? "" : name + std::to_string(p);
            d.name = name.empty() ? nullptr : param.c_str();
            d.value = weights[p].data();
            d.grad = shapes[p].owned ? nullptr : grads[p].data();
            d.count = shapes[p].count;
            d.engine_owned = shapes[p].owned;
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        return status;
    }

    // Hand over the next gradient of a parameter.
    zoff_status hand_over(size_t p, unsigned rank)
    {
        float *at = grads[p].data();
        if (shapes[p].owned) {
            void *lent = nullptr;
            const zoff_status status = zoff_grad_acquire(e.get(), (zoff_param)p, 0, nullptr, &lent);
            if (status < 0)
                return status;
            at = (float *)lent;
        }
        for (size_t k = 0; k < shapes[p].count; k++)
            at[k] = gradient(id, p, k, t + 1, rank);
        handed[p] = true;
        return zoff_grad_ready(e.get(), (zoff_param)p, 0, nullptr);
    }

    zoff_status hand_over_rest(unsigned rank)
    {
        zoff_status status = ZOFF_OK;
        for (size_t p = shapes.size(); p-- > 0 && status >= 0;)
            status = handed[p] ? ZOFF_OK : hand_over(p, rank);
        return status;
    }

    // Take a step. If it succeeds, check the weights.
    zoff_status step(unsigned rank, unsigned ranks)
    {
        zoff_status status = hand_over_rest(rank);
        status = status < 0 ? status : zoff_step(e.get(), nullptr, nullptr);
        if (status < 0)
            return status;
        t++;
        return end_step(ranks);
    }

    // Take a step with a forward pass while it is open: all ranks fetch the same weights, and each waits for what `own`
    // says.
    zoff_status step_in_time(unsigned rank, unsigned ranks, size_t fetches, std::mt19937 &own)
    {
        zoff_status status = hand_over_rest(rank);
        status = status < 0 ? status : zoff_step_begin(e.get(), nullptr);
        t++;
        for (size_t k = 0; k < fetches && status >= 0; k++) {
            const size_t p = k % shapes.size(), other = own() % shapes.size();
            if (!shapes[other].owned)
                status = zoff_param_wait(e.get(), (zoff_param)other, 0, nullptr);
            if (shapes[p].owned && status >= 0)
                status = fetch(p, ranks);
        }
        status = status < 0 ? status : zoff_step_wait(e.get(), nullptr);
        return status < 0 ? status : end_step(ranks);
    }

    zoff_status end_step(unsigned ranks)
    {
        handed.assign(shapes.size(), false);
        for (size_t p = 0; p < shapes.size(); p++)
            wrong += shapes[p].owned ? 0 : count_wrong(p, weights[p].data(), 0, shapes[p].count, ranks);
        return ZOFF_OK;
    }

    zoff_status fetch(size_t p, unsigned ranks)
    {
        const void *lent = nullptr;
        zoff_status status = zoff_param_fetch(e.get(), (zoff_param)p, 0, nullptr, &lent);
        if (status < 0)
            return status;
        wrong += count_wrong(p, (const float *)lent, 0, shapes[p].count, ranks);
        return zoff_param_release(e.get(), (zoff_param)p, 0, nullptr);
    }

    zoff_status read(size_t p, size_t first, size_t count, unsigned ranks)
    {
        std::vector<float> out(count, -1e30f);
        const zoff_status status = zoff_param_read(e.get(), (zoff_param)p, first, count, out.data());
        wrong += status < 0 ? 0 : count_wrong(p, out.data(), first, count, ranks);
        return status;
    }

    size_t count_wrong(size_t p, const float *have, size_t first, size_t count, unsigned ranks) const
    {
        size_t found = 0;
        for (size_t k = 0; k < count; k++)
            found += have[k] != weight_after(id, p, first + k, t, ranks);
        return found;
    }

    const unsigned id;
    const std::string name;
    const std::vector<shape> shapes;
    const bool progress;
    std::string text;
    engine e;
    int64_t t = 0;
    std::vector<std::vector<float>> weights, grads;
    std::vector<bool> handed;
    size_t wrong = 0; // number of wrong elements after calls that returned success
};

inline double seconds_of(const std::function<void()> &run)
{
    const auto from = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}
} // namespace zoff_test

#endif
