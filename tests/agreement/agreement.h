/* SPDX-License-Identifier: Apache-2.0 */
// agreement.h: ranks that train a small model, one of them with a different setting. The result is a message on every rank, or
// weights after a few steps.
#ifndef ZOFF_AGREEMENT_H
#define ZOFF_AGREEMENT_H

#include "rank_job.h"

namespace agreement
{
using namespace zoff_test;

// The complete set-up of an engine and its steps on one rank.
struct saying {
    std::string json;
    std::vector<std::pair<std::string, std::string>> sets; // passed to zoff_config_set()
    zoff_engine_opts opts = {};
    std::vector<zoff_param_desc> params;
    std::vector<zoff_optimizer_hyper> groups; // passed to zoff_engine_set_group() before seal; empty: as the configuration says
    zoff_step_args args = {};
    std::function<void(zoff_engine *)> after_seal;
};

// The memory of a rank, and the set-up that it uses unless a test changes it.
struct model {
    enum { COUNT = 3000, SLICES = 2, STRIDE = 640, SLICE = 600, OWNED = 700 };
    std::vector<float> whole, gradient, owned, owned_gradient;
    std::vector<uint16_t> half, half_gradient;

    model()
        : whole(COUNT), gradient(COUNT), owned(OWNED), owned_gradient(OWNED), half(SLICES * STRIDE),
          half_gradient(SLICES * STRIDE)
    {
        for (size_t i = 0; i < whole.size(); i++)
            whole[i] = (float)(i % 37) * 0.01f;
        for (size_t i = 0; i < owned.size(); i++)
            owned[i] = (float)(i % 11) * 0.02f;
        for (size_t i = 0; i < half.size(); i++)
            half[i] = (uint16_t)(0x3c00 + i % 64); // near 1 in fp16, small in bf16
        new_gradients(0);
    }
    void new_gradients(unsigned seed)
    {
        std::mt19937 random(seed);
        for (auto *list : {&gradient, &owned_gradient}) {
            for (float &g : *list)
                g = (float)(random() % 1000) * 1e-3f - 0.5f;
        }
        for (auto &g : half_gradient)
            g = (uint16_t)((random() % 2 << 15) | (0x3000 + random() % 256));
    }
    saying usual(const std::string &json)
    {
        saying s;
        s.json = json;
        s.opts.struct_size = sizeof s.opts;
        s.opts.threads = 1;
        s.args.struct_size = sizeof s.args;
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = whole.data();
        d.grad = gradient.data();
        d.count = COUNT;
        d.name = "whole";
        s.params.push_back(d);
        d.value = half.data();
        d.grad = half_gradient.data();
        d.count = SLICE;
        d.slices = SLICES;
        d.value_stride = d.grad_stride = STRIDE;
        d.dtype = ZOFF_BF16;
        d.group = 1;
        d.name = "half";
        s.params.push_back(d);
        d = {};
        d.struct_size = sizeof d;
        d.value = owned.data();
        d.grad = owned_gradient.data();
        d.count = OWNED;
        d.engine_owned = true;
        d.name = "owned";
        s.params.push_back(d);
        return s;
    }
    std::vector<char> bytes() const
    {
        std::vector<char> all((const char *)whole.data(), (const char *)(whole.data() + whole.size()));
        for (size_t slice = 0; slice < SLICES; slice++) {
            const char *from = (const char *)(half.data() + slice * STRIDE);
            all.insert(all.end(), from, from + SLICE * 2);
        }
        return all;
    }
};

struct outcome {
    zoff_status status = ZOFF_OK;
    std::string message, call;
    std::vector<char> weights; // weights after the steps
};

inline zoff_status make(const saying &s, zoff_comm *ranks, zoff_engine **out)
{
    zoff_config *parsed = nullptr;
    zoff_status status = zoff_test::config_from_text(s.json.data(), s.json.size(), "test.json", &parsed);
    for (const auto &[key, value] : s.sets)
        status = status < 0 ? status : zoff_config_set(parsed, key.c_str(), value.c_str());
    zoff_engine_opts opts = s.opts;
    opts.config = parsed;
    opts.comm = ranks;
    status = status < 0 ? status : zoff_engine_create(&opts, out);
    zoff_config_close(parsed);
    for (const auto &d : s.params)
        status = status < 0 ? status : zoff_engine_add_param(*out, &d, nullptr);
    for (unsigned i = 0; i < s.groups.size(); i++)
        status = status < 0 ? status : zoff_engine_set_group(*out, i, &s.groups[i]);
    return status;
}

inline outcome failed(const char *call, zoff_status status)
{
    return {status, zoff_last_error(), call, {}};
}

// Each rank makes an engine from its set-up, seals it, and takes a few steps. If one rank cannot make its engine, no rank
// seals: the others would wait for it.
inline std::vector<outcome> run(unsigned ranks, const std::function<saying(model &, unsigned rank)> &say, unsigned steps = 2)
{
    rank_job job(ranks, 20);
    std::vector<outcome> all(ranks);
    std::vector<model> models(ranks);
    std::vector<saying> sayings;
    std::vector<engine> engines(ranks);
    bool is_made = true;
    for (unsigned rank = 0; rank < ranks; rank++)
        sayings.push_back(say(models[rank], rank));
    for (unsigned rank = 0; rank < ranks; rank++) {
        zoff_engine *made = nullptr;
        const zoff_status status = make(sayings[rank], job.comm_of(rank), &made);
        engines[rank].reset(made);
        if (status < 0)
            all[rank] = failed("create", status);
        is_made = is_made && status >= 0;
    }
    if (!is_made)
        return all;
    job.on_each([&](unsigned rank) {
        zoff_engine *e = engines[rank].get();
        zoff_status status = zoff_engine_seal(e);
        if (status < 0) {
            all[rank] = failed("seal", status);
            return;
        }
        if (sayings[rank].after_seal)
            sayings[rank].after_seal(e);
        for (unsigned step = 0; step < steps; step++) {
            models[rank].new_gradients(step * ranks + rank);
            if ((status = zoff_step(e, &sayings[rank].args, nullptr)) < 0) {
                all[rank] = failed("step", status);
                break;
            }
        }
        all[rank].weights = models[rank].bytes();
    });
    return all;
}

// Switches logging off: these tests provoke refusals, and warnings about keys without effect.
class quiet
{
  public:
    quiet()
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    }
    ~quiet() { zoff_log_set(nullptr, nullptr); }
};

inline bool is_full()
{
    const char *text = getenv("ZOFF_TEST_FULL");
    return text && *text && *text != '0';
}
} // namespace agreement

#endif
