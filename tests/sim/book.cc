/* SPDX-License-Identifier: Apache-2.0 */
// book.cc: the reference of a program is an engine over as many ranks, so what is wrong in every engine is seen only here. Each
// rank keeps a book of the whole model by the textbook of tests/support/reference.h. It draws the gradients of all ranks itself
// and adds them in the order of docs/RANKS.md, so it shares neither code nor messages with the engines.
#include "life.h"

#include <math.h>

#include <algorithm>

using namespace sim;

enum { WEIGHTS = 3 }; // beside zoff_state_kind

static float get(const char *at, zoff_dtype dtype)
{
    float wide;
    uint16_t half;
    memcpy(&wide, at, dtype == ZOFF_F32 ? 4 : 2);
    memcpy(&half, at, 2);
    return dtype == ZOFF_F32 ? wide : reference::from_16(dtype, half);
}

// Weights as they are in memory.
static void take_weights(const param &q, std::vector<float> &out)
{
    out.resize(q.slices * q.count);
    for (size_t s = 0; s < q.slices; s++) {
        for (size_t k = 0; k < q.count; k++)
            out[s * q.count + k] = get(q.ref_value + (s * q.stride + k) * width_of(q.dtype), q.dtype);
    }
}

// Whether the patterns of program.cc for zoff.no_decay name a parameter, or another one of its tie.
static bool is_without_decay(const param &q, const std::vector<std::unique_ptr<param>> &all)
{
    return std::any_of(all.begin(), all.end(), [&](const auto &other) {
        const param *const owner = q.tie ? q.tie : &q;
        return (other.get() == owner || other->tie == owner) && (other->name.back() == '1' || other->name.back() == '4');
    });
}

// The book does not cover steps that take NaN into states (zoff.skip_nonfinite), nor blocks of moments behind a load,
// because it reads only their numbers. It has no messages, times, or counts of bytes either.
void life::open_book()
{
    std::string moments;
    bool no_decay = false, is_muon = false;
    for (const auto &[key, value] : both) {
        const std::string word = value.front() == '"' ? value.substr(1, value.size() - 2) : value;
        if (key == "zoff.skip_nonfinite")
            return;
        if (key == "zoff.moments")
            moments = word;
        if (key == "zoff.no_decay")
            no_decay = true;
        if (key == "gradient_clipping")
            clip = strtod(word.c_str(), nullptr);
        if (key == "gradient_allreduce_op")
            adds = word == "sum";
        if (key == "optimizer.type")
            is_muon = word == "Muon";
        if (key == "gradient_predivide_factor")
            factor = 1 / strtod(word.c_str(), nullptr);
        if (key == "prescale_gradients" && word == "true")
            factor = 1.0 / ranks;
        if (key == "communication_data_type")
            wire = word == "fp32" ? ZOFF_F32 : word == "bf16" ? ZOFF_BF16 : ZOFF_F16;
    }
    for (const auto &q : params) {
        reference::tensor x;
        x.count = q->count;
        x.slices = q->slices;
        x.dtype = q->dtype;
        x.grad_dtype = q->grad_dtype;
        x.group = q->group + (no_decay && is_without_decay(*q, params) ? 3 : 0);
        x.frozen = q->frozen || q->tie; // the states of tied weights are those of their owner
        x.name = q->name;
        x.halves = moments == "bf16";
        x.blocks = moments == "m8v16" || moments == "q8" ? moments : "";
        if (is_muon && q->dims[0])
            x.matrices = {{0, q->dims[0], q->dims[1]}};
        x.m.assign(x.total(), 0);
        x.v.assign(x.total(), 0);
        x.sum.resize(x.total());
        x.present.assign(x.slices, false);
        take_weights(*q, x.master);
        book.push_back(x);
    }
}

size_t life::owner_of(size_t i) const
{
    for (size_t k = 0; params[i]->tie && k < i; k++)
        i = params[k].get() == params[i]->tie ? k : i;
    return i;
}

// Micro-batch by micro-batch and, within each, in the order of the ranks.
void life::add_to_book(const line &l)
{
    double total = 0;
    for (unsigned r = 0; r < ranks; r++)
        total += static_cast<float>(weight_of(l, r) * factor);
    for (unsigned r = 0; !book.empty() && r < ranks; r++)
        add_rank_to_book(l, r, static_cast<float>(weight_of(l, r) * factor), static_cast<float>(total / (adds ? ranks : 1)));
    weights += total;
}

// A rank adds the gradients of tied weights in the order of their names, and sends the sum.
void life::add_rank_to_book(const line &l, unsigned of_rank, float weight, float of_all)
{
    std::vector<std::vector<float>> sent(book.size());
    std::vector<std::vector<bool>> has(book.size());
    dice d = dice_of(l, of_rank);
    std::vector<gradient> todo = draw(l, of_rank, d);
    std::sort(todo.begin(), todo.end(), [](const gradient &a, const gradient &b) { return a.of < b.of; });
    for (size_t i = 0; i < book.size(); i++) {
        sent[i].resize(book[i].total());
        has[i].resize(book[i].slices);
    }
    for (const gradient &g : todo) {
        const size_t i = owner_of(g.of), count = book[i].count;
        const param &q = *params[g.of];
        for (size_t k = 0; k < count; k++) {
            float &x = sent[i][g.slice * count + k];
            const float one = get(&g.numbers[k * width_of(q.grad_dtype)], q.grad_dtype);
            x = has[i][g.slice] ? x + one : one;
        }
        has[i][g.slice] = true;
    }
    for (size_t i = 0; i < book.size(); i++) {
        reference::tensor &x = book[i];
        const bool reduced = params[i]->reduced && ranks > 1;
        for (size_t s = 0; s < x.slices; s++) {
            const bool is_sent = ranks == 1 ? has[i][s] : !reduced || of_rank == 0;
            const bool is_first = ranks == 1 ? !x.present[s] : micro == 0 && of_rank == 0;
            const float w = !reduced ? weight : has[i][s] ? of_all : 0;
            for (size_t k = s * x.count; is_sent && k < (s + 1) * x.count; k++) {
                const bool is_cast = wire != ZOFF_DTYPE_DEFAULT && !reduced && ranks > 1;
                const float g = is_cast ? reference::rounded(wire, sent[i][k]) : sent[i][k];
                if (w == 0) // the gradient is not read, because 0 * NaN is NaN
                    x.sum[k] = is_first ? 0 : x.sum[k];
                else
                    x.sum[k] = is_first ? w * g : fmaf(w, g, x.sum[k]);
            }
            x.present[s] = x.present[s] || has[i][s];
        }
    }
}

// The first gradient that is not finite.
static bool find_culprit(const std::vector<reference::tensor> &book, size_t &i, size_t &slice)
{
    for (i = 0; i < book.size(); i++) {
        const reference::tensor &x = book[i];
        for (size_t k = 0; k < x.total() && !x.frozen; k++) {
            slice = k / x.count;
            if (x.present[slice] && !isfinite(x.sum[k]))
                return true;
        }
    }
    return false;
}

// The last micro-step of the reference is over.
void life::compare_book(const zoff_step_args &args, const zoff_step_info &info)
{
    std::vector<zoff_optimizer_hyper> groups(6); // the last three: without decay
    for (unsigned g = 0; g < 3; g++) {
        zoff_optimizer_hyper_init(&groups[g], ZOFF_OPTIMIZER_ADAM);
        (void)zoff_engine_get_group(ref, g, info.t, &groups[g]); // fails if no parameter is in it
        groups[3 + g] = groups[g];
        groups[3 + g].weight_decay = 0;
    }
    const double scale = args.grad_scale ? args.grad_scale : 1, most = args.clip_norm ? args.clip_norm : clip;
    const reference::result r = reference::step(book, groups, info.t, scale / info.numbers.loss_scale,
                                                weights > 0 ? weights / (adds ? ranks : 1) : 1, most > 0 ? most : 0);
    size_t bad, slice;
    if (r.skipped && find_culprit(book, bad, slice) &&
        (info.culprit.param != params[bad]->ref_id || info.culprit.slice != slice))
        fail("the reference blames slice %zu of parameter %u, the textbook slice %zu of %s", info.culprit.slice,
             info.culprit.param, slice, params[bad]->name.c_str());
    forget_book();
    if (r.skipped != info.skipped)
        fail("the reference has skipped=%d, the textbook %d", info.skipped, r.skipped);
    if (!r.skipped && (!is_same(r.norm, info.numbers.grad_norm) || !is_same(r.clip, info.numbers.clip_factor)))
        fail("the reference has norm %a, clip factor %a, the textbook %a, %a", info.numbers.grad_norm, info.numbers.clip_factor,
             r.norm, r.clip);
    std::vector<float> have, want;
    for (size_t i = 0; i < book.size(); i++) {
        const reference::tensor &x = book[i];
        const auto compare = [&](int kind, const std::vector<float> &textbook) {
            for (size_t k = 0; k < x.total(); k++) {
                if (memcmp(&have[k], &textbook[k], sizeof have[k]) != 0 && !(isnan(have[k]) && isnan(textbook[k])))
                    fail("the reference is wrong: kind %d of %s, element %zu: %a, in the textbook %a", kind, x.name.c_str(), k,
                         have[k], textbook[k]);
            }
        };
        const std::vector<float> *const states[] = {&x.master, &x.m, &x.v};
        have.resize(x.total() + 1);
        for (int kind = 0; kind < 3 && !x.frozen; kind++) {
            if (zoff_state_read(ref, params[i]->ref_id, static_cast<zoff_state_kind>(kind), 0, x.total(), have.data()) ==
                ZOFF_OK) // otherwise the rule has no such state
                compare(kind, *states[kind]);
        }
        if (params[i]->tie)
            continue;
        take_weights(*params[i], have);
        want = x.master;
        for (float &one : want)
            one = reference::rounded(x.dtype, one);
        compare(WEIGHTS, want);
    }
}

// The gradients of this update are dropped.
void life::forget_book()
{
    for (reference::tensor &x : book)
        x.present.assign(x.slices, false);
    weights = 0;
}

void life::load_book()
{
    for (size_t i = 0; i < book.size(); i++) {
        reference::tensor &x = book[i];
        std::vector<float> *const states[] = {&x.master, &x.m, &x.v};
        for (int kind = 0; kind < 3 && !x.frozen && x.total(); kind++)
            (void)zoff_state_read(ref, params[i]->ref_id, static_cast<zoff_state_kind>(kind), 0, x.total(),
                                  states[kind]->data());
    }
    if (!book.empty() && !book[0].blocks.empty())
        book.clear();
}

void life::pull_book(const std::vector<const param *> &of)
{
    for (size_t i = 0; i < book.size(); i++) {
        if (!book[i].frozen && std::find(of.begin(), of.end(), params[i].get()) != of.end())
            take_weights(*params[i], book[i].master);
    }
}

void life::write_book(const param &q, zoff_state_kind kind, size_t first, size_t count, const float *numbers)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    const param *const owner = q.tie ? q.tie : &q;
    for (size_t i = 0; i < book.size(); i++) {
        if (params[i].get() == owner && zoff_engine_get_group(ref, q.group, 0, &h) == ZOFF_OK)
            reference::write(book[i], h, kind, first, count, numbers);
        std::vector<float> &halves = kind == ZOFF_STATE_M ? book[i].m : book[i].v;
        for (size_t k = first; book[i].halves && kind != ZOFF_STATE_MASTER && params[i].get() == owner && k < first + count;
             k++)
            halves[k] = reference::rounded(ZOFF_BF16, halves[k]);
    }
}
