// book.cc: the reference of a program is an engine, so what is wrong in every engine is seen only here: the same updates, by
// the textbook of tests/support/reference.h.
#include "life.h"

#include <math.h>

#include <algorithm>

using namespace sim;

static float get(const char *at, zoff_dtype dtype)
{
    float wide;
    uint16_t half;
    memcpy(&wide, at, dtype == ZOFF_F32 ? 4 : 2);
    memcpy(&half, at, 2);
    return dtype == ZOFF_F32 ? wide : reference::from_16(dtype, half);
}

// Weights as they are in memory.
static void take_weights(const param &q, reference::tensor &x)
{
    for (size_t s = 0; s < q.slices; s++) {
        for (size_t k = 0; k < q.count; k++)
            x.master[s * q.count + k] = get(q.ref_value + (s * q.stride + k) * width_of(q.dtype), q.dtype);
    }
}

// It leaves out sums over ranks and ties, weights of micro-batches, numbers near the end of fp32, and steps with NaN.
void life::open_book()
{
    const auto has = [&](const char *verb, const char *what) {
        return std::any_of(p.begin(), p.end(), [&](const std::string &text) {
            return line(text).verb == verb && text.find(what) != std::string::npos;
        });
    };
    bool follows =
        ranks == 1 && number == 0 && !has("step", " weight=") && !has("both", "skip_nonfinite") && !has("step", " mag=6e38");
    for (const auto &q : params)
        follows = follows && !q->tie;
    if (!follows)
        return;
    std::string moments;
    for (const auto &[key, value] : both) {
        if (key == "zoff.moments")
            moments = value.substr(1, value.size() - 2);
        if (key == "gradient_clipping")
            clip = strtod(value.c_str(), nullptr);
    }
    for (const auto &q : params) {
        reference::tensor x;
        x.count = q->count;
        x.slices = q->slices;
        x.dtype = q->dtype;
        x.grad_dtype = q->grad_dtype;
        x.group = q->group;
        x.frozen = q->frozen;
        x.name = q->name;
        x.halves = moments == "bf16";
        x.blocks = moments == "m8v16" || moments == "q8" ? moments : "";
        x.master.resize(x.total());
        x.m.assign(x.total(), 0);
        x.v.assign(x.total(), 0);
        x.sum.resize(x.total());
        x.present.assign(x.slices, false);
        take_weights(*q, x);
        book.push_back(x);
    }
}

// Before a micro-step of the reference, which may clear its gradients.
void life::add_to_book()
{
    for (size_t i = 0; i < book.size(); i++) {
        const param &q = *params[i];
        reference::tensor &x = book[i];
        for (size_t s = 0; s < q.slices; s++) {
            for (size_t k = 0; q.given[s] && k < q.count; k++) {
                const float g = get(q.ref_grad_of(s) + k * width_of(q.grad_dtype), q.grad_dtype);
                float &sum = x.sum[s * q.count + k];
                sum = x.present[s] ? sum + g : g;
            }
            x.present[s] = x.present[s] || q.given[s];
        }
    }
}

// The last micro-step of the reference is over.
void life::compare_book(const zoff_step_args &args, const zoff_step_info &info)
{
    std::vector<zoff_optimizer_hyper> groups(3);
    for (unsigned g = 0; g < 3; g++) {
        zoff_optimizer_hyper_init(&groups[g], ZOFF_OPTIMIZER_ADAM);
        (void)zoff_engine_get_group(ref, g, info.t, &groups[g]); // fails if no parameter is in it
    }
    const double scale = args.grad_scale ? args.grad_scale : 1, most = args.clip_norm ? args.clip_norm : clip;
    const reference::result r =
        reference::step(book, groups, info.t, scale / info.numbers.loss_scale, micro_steps, most > 0 ? most : 0);
    forget_book();
    if (r.skipped != info.skipped)
        fail("the reference has skipped=%d, the textbook %d", info.skipped, r.skipped);
    if (!r.skipped && (!is_same(r.norm, info.numbers.grad_norm) || !is_same(r.clip, info.numbers.clip_factor)))
        fail("the reference has norm %a, clip factor %a, the textbook %a, %a", info.numbers.grad_norm, info.numbers.clip_factor,
             r.norm, r.clip);
    std::vector<float> have;
    for (size_t i = 0; i < book.size(); i++) {
        const reference::tensor &x = book[i];
        const std::vector<float> *const states[] = {&x.master, &x.m, &x.v};
        have.resize(x.total() + 1);
        for (int kind = 0; kind < 3 && !x.frozen; kind++) {
            if (zoff_state_read(ref, params[i]->ref_id, static_cast<zoff_state_kind>(kind), 0, x.total(), have.data()) !=
                ZOFF_OK)
                continue; // the rule has no such state
            for (size_t k = 0; k < x.total(); k++) {
                const float want = (*states[kind])[k];
                if (memcmp(&have[k], &want, sizeof want) != 0 && !(isnan(have[k]) && isnan(want)))
                    fail("the reference is wrong: kind %d of %s, element %zu: %a, in the textbook %a", kind, x.name.c_str(), k,
                         have[k], want);
            }
        }
    }
}

// The gradients of this update are dropped.
void life::forget_book()
{
    for (reference::tensor &x : book)
        x.present.assign(x.slices, false);
}

void life::pull_book()
{
    for (size_t i = 0; i < book.size(); i++) {
        if (!book[i].frozen)
            take_weights(*params[i], book[i]);
    }
}

void life::write_book(const param &q, zoff_state_kind kind, size_t first, size_t count, const float *numbers)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    for (size_t i = 0; i < book.size(); i++) {
        if (params[i].get() == &q && zoff_engine_get_group(ref, q.group, 0, &h) == ZOFF_OK)
            reference::write(book[i], h, kind, first, count, numbers);
        std::vector<float> &halves = kind == ZOFF_STATE_M ? book[i].m : book[i].v;
        for (size_t k = first; book[i].halves && kind != ZOFF_STATE_MASTER && params[i].get() == &q && k < first + count; k++)
            halves[k] = reference::rounded(ZOFF_BF16, halves[k]);
    }
}
