/* SPDX-License-Identifier: Apache-2.0 */
// operations.cc: the operations of a program.

/*
 *      step          A micro-step.
 *        seed          Of the gradients and their order.
 *        form          whole: one call. split: begin and wait. measure: by a norm sum, as two engines always do.
 *        share, mag    Percent of the slices that get a gradient, and the size of its numbers.
 *        bad           nan or inf: one number.
 *        scale, clip, t, zero   Of zoff_step_args.
 *        prepare       1: zoff_step_prepare() with these arguments. 2: with none.
 *        weight        Of the micro-batch.
 *        calls         So many calls within the open step.
 *        drop          1: before the step begins. 2: while it is open.
 *        list          1: zoff_grads_hand_over(), with other buffers than those of the step before.
 *      states        Writes states. flush=1: and flushes them.
 *      read          Compares states.
 *      pull          Changes weights and pulls them. one=1: those that have changed, each by a call of its own.
 *      move          Moves weights in memory: ZOFF_BIND_MOVED. The program in C leaves them where they are.
 *      save, load    A checkpoint, its own or that of the reference. beside=1: it is written beside the operations behind it.
 *      reopen        zoff.persist: another engine goes on. open=1: the first one is destroyed with an open step. look=1: states
 *                    are read before zoff_params_push().
 *      group         Changes the hyper-parameters of a group.
 *      progress      turns=N
 */

// An operation may have a fault: fault=read|write|flush|slow|kill|power nth=N errno=N lasts=1, see world.h. The program then
// repeats, retries or drops, as a trainer would. With zoff.persist, a process that ends goes on in the next one.
#include "life.h"

#include <math.h>

#include <algorithm>
#include <fstream>

using namespace sim;

// ---- a step ----

void life::arm(const line &l)
{
    static const std::map<std::string, fault_kind> KINDS = {
        {"read", fault_kind::read}, {"write", fault_kind::write},   {"flush", fault_kind::flush}, {"slow", fault_kind::slow},
        {"some", fault_kind::some}, {"memory", fault_kind::memory}, {"kill", fault_kind::kill},   {"power", fault_kind::power}};
    auto kind = KINDS.find(l.has("fault") ? l.fields.at("fault") : "");
    if (kind != KINDS.end() && kind->second == fault_kind::power && !outlives_power)
        kind = KINDS.find("kill");
    if (kind != KINDS.end() && kind->second >= fault_kind::kill && !can_crash(l))
        kind = KINDS.end();
    // Calls of the reference come between those of the others there.
    if (kind != KINDS.end() && kind->second == fault_kind::memory && (l.verb == "states" || l.verb == "read"))
        kind = KINDS.end();
    if (kind != KINDS.end())
        c("/* fault=%s nth=%llu: see tests/sim/world.h */", kind->first.c_str(), (unsigned long long)l.number("nth", 1));
    flush_failed = flush_failed || (kind != KINDS.end() && kind->second == fault_kind::flush);
    // A rank without memory for the headers of others asks for it until the deadline, which is half an hour of short pauses.
    const bool lasts = l.number("lasts") && (ranks == 1 || kind == KINDS.end() || kind->second != fault_kind::memory);
    if (kind != KINDS.end())
        world_fault(kind->second, static_cast<unsigned>(l.number("nth", 1)), static_cast<int>(l.number("errno")), lasts);
    else
        disarm();
}

// Gradients of some slices, or of all, in some order. It has no effect, so each rank can draw those of all.
std::vector<gradient> life::draw(const line &l, unsigned of_rank, dice &d) const
{
    const bool all = hands_all_over(l);
    std::vector<gradient> todo;
    const auto same = [&](size_t i, size_t s) { return dice(l.number("seed") ^ (i * 64 + s + 1) << 20); }; // on all ranks
    for (size_t i = 0; i < params.size(); i++) {
        const param &q = *params[i];
        for (size_t s = 0; s < q.slices; s++) {
            dice equal = same(i, s);
            if ((all || (q.reduced ? equal : d).chance(static_cast<unsigned>(l.number("share", 100)))) && !(q.lent && q.frozen))
                todo.push_back({i, s, 0, l.real("mag", 0.02) * (q.reduced ? 1 : 1 + of_rank), SIZE_MAX, true, false, {}});
        }
    }
    const unsigned order = static_cast<unsigned>(d.below(3));
    if (order == 1)
        std::reverse(todo.begin(), todo.end());
    for (size_t k = 0; order == 2 && k < todo.size(); k++)
        std::swap(todo[k], todo[k + d.below(todo.size() - k)]);
    const size_t bad = l.has("bad") && !todo.empty() ? d.below(todo.size()) : SIZE_MAX;
    for (size_t k = 0; k < todo.size(); k++) {
        gradient &g = todo[k];
        const param &q = *params[g.of];
        dice equal = same(g.of, g.slice);
        dice &its = q.reduced ? equal : d;
        const bool is_bad = q.reduced ? l.has("bad") && equal.chance(10) : k == bad;
        g.from = its.seed();
        g.numbers.resize(q.count * width_of(q.grad_dtype));
        for (size_t i = 0; i < q.count; i++)
            put(&g.numbers[i * width_of(q.grad_dtype)], q.grad_dtype, static_cast<float>((its.unit() - 0.5) * g.size));
        const size_t place = is_bad ? its.below(q.count) : 0;
        if (is_bad && q.count && (q.reduced || l.number("seed") % ranks == of_rank)) {
            g.bad = place;
            put(&g.numbers[place * width_of(q.grad_dtype)], q.grad_dtype, l.fields.at("bad") == "nan" ? NAN : INFINITY);
        }
        g.is_early = !all || q.lent || d.chance(50);
        g.polls = d.chance(20);
    }
    return todo;
}

// Gradients of this step are in other buffers, which a list names, or those of the last list that left some out are bound.
void life::bind_grads(bool listed)
{
    for (const auto &q : params) {
        if (q->lent || !tested[q->engine])
            continue;
        if (listed) {
            q->other_grad = q->other_grad ? q->other_grad : allocate(q->grad_bytes());
            memset(q->grad, 0x7f, q->grad_bytes()); // nobody reads it
            std::swap(q->grad, q->other_grad);
        } else if (q->unbound) {
            persist_in("zoff_param_bind()", [&] { return zoff_param_bind(tested[q->engine], q->id, nullptr, q->grad); });
        }
        q->unbound = listed;
    }
}

// Behind an error of a transfer the rest is handed over one by one, as nobody knows what the list has reached.
void life::hand_over_list(unsigned engine, const std::vector<zoff_handover> &list)
{
    zoff_engine *e = tested[engine];
    const zoff_status status = zoff_grads_hand_over(e, list.data(), sizeof(zoff_handover), list.size());
    if (status < 0 && !is_explained(status))
        fail("zoff_grads_hand_over(): %d: %s", status, zoff_last_error());
    if (status < 0)
        disarm();
    for (size_t i = 0; status < 0 && i < list.size(); i++) {
        const zoff_status again = repeat([&] { return zoff_grad_ready(e, list[i].param, list[i].slice, nullptr); });
        if (again < 0 && !(again == ZOFF_ERR_STATE && strstr(zoff_last_error(), "handed over twice")))
            fail("zoff_grad_ready() behind a list: %d: %s", again, zoff_last_error());
    }
}

// Those that are not handed over here are declared by the step.
void life::hand_over(const line &l, dice &d)
{
    std::vector<zoff_handover> lists[2];
    for (const auto &q : params)
        q->given.assign(q->slices, 0);
    bind_grads(l.number("list"));
    for (const gradient &g : draw(l, rank, d)) {
        param &q = *params[g.of];
        zoff_engine *e = tested[q.engine];
        char *there = q.grad_of(g.slice);
        const std::string to =
            q.lent ? "to" : q.name + "_grad + " + std::to_string(g.slice * q.grad_stride * width_of(q.grad_dtype));
        if (q.lent && e)
            c("OK(zoff_grad_acquire(e[%u], %s, %zu, NULL, &to));", q.engine, q.name.c_str(), g.slice);
        c("fill(%s, %d, %zu, 0x%llxu, %g);", to.c_str(), q.grad_dtype, q.count, (unsigned long long)g.from, g.size);
        if (g.bad != SIZE_MAX)
            c("put(%s, %d, %zu, %s);", to.c_str(), q.grad_dtype, g.bad, l.fields.at("bad") == "nan" ? "NAN" : "INFINITY");
        if (q.lent && e)
            persist_in("zoff_grad_acquire()",
                       [&] { return zoff_grad_acquire(e, q.id, g.slice, nullptr, reinterpret_cast<void **>(&there)); });
        for (char *at : {q.ref_grad_of(g.slice), there})
            std::copy(g.numbers.begin(), g.numbers.end(), at);
        q.given[g.slice] = 1;
        if (l.number("list") && e) {
            lists[q.engine].push_back({sizeof(zoff_handover), q.id, 0, g.slice, nullptr, q.lent ? nullptr : q.grad, nullptr});
            q.unbound = false;
        }
        if ((g.is_early || l.number("list")) && e)
            c("OK(zoff_grad_ready(e[%u], %s, %zu, NULL));", q.engine, q.name.c_str(), g.slice);
        if (g.is_early && e && !l.number("list"))
            persist_in("zoff_grad_ready()", [&] { return zoff_grad_ready(e, q.id, g.slice, nullptr); });
        const zoff_status status =
            g.polls && e ? (c("(void)zoff_engine_progress(e[%u]);", q.engine), zoff_engine_progress(e)) : ZOFF_OK;
        if (status < 0 && !is_explained(status))
            fail("zoff_engine_progress(): %s", zoff_last_error());
    }
    for (unsigned e = 0; e < engines && l.number("list"); e++) {
        if (tested[e])
            hand_over_list(e, lists[e]);
    }
}

// The weight of a rank's micro-batch. One of 0 is that of all ranks, or of each second one.
double life::weight_of(const line &l, unsigned of_rank) const
{
    if (!l.has("weight") || (micro_steps == 1 && ranks == 1))
        return 1;
    const double weight = l.real("weight");
    return weight != 0 ? weight + 0.3 * of_rank : l.number("seed") % 2 * (of_rank % 2);
}

void life::drop()
{
    for (unsigned e = 0; e < engines; e++)
        c("OK(zoff_grads_drop(e[%u]));", e), persist_in("zoff_grads_drop()", [&] { return zoff_grads_drop(tested[e]); });
    ok(zoff_grads_drop(ref), "zoff_grads_drop() of the reference");
    forget_book();
    micro = 0;
    compare_weights();
}

// Calls that are legal while a step is open.
void life::calls(const line &l, dice &d, unsigned engine, bool zero)
{
    zoff_engine *const e = tested[engine];
    // A rank that fails makes fewer calls than others, which would wait for it in a fetch.
    const bool fails_alone = ranks > 1 && l.has("fault") && l.fields.at("fault") != "slow";
    for (uint64_t k = l.number("calls"); k && !params.empty(); k--) {
        param &q = *params[d.below(params.size())];
        const size_t slice = d.below(q.slices);
        const unsigned kind = static_cast<unsigned>(d.below(6));
        zoff_status status = ZOFF_OK;
        const void *lent;
        double scale;
        if (q.engine != engine)
            continue;
        if (kind < 3 && !q.owned) {
            c("(void)zoff_param_wait(e[%u], %s, %zu, NULL);", engine, q.name.c_str(), slice);
            status = zoff_param_wait(e, q.id, slice, nullptr);
        } else if (kind < 3 && q.count && !fails_alone) {
            c("if (zoff_param_fetch(e[%u], %s, %zu, NULL, &lent) == ZOFF_OK)\n        OK(zoff_param_release(e[%u], %s, %zu, "
              "NULL));",
              engine, q.name.c_str(), slice, engine, q.name.c_str(), slice);
            status = zoff_param_fetch(e, q.id, slice, nullptr, &lent);
            if (status == ZOFF_OK)
                status = zoff_param_release(e, q.id, slice, nullptr);
            else if (status == ZOFF_ERR_NO_MEMORY && limits_live)
                status = ZOFF_OK;
        } else if (kind == 3 && !q.lent && !q.unbound && q.count) {
            c("if (zoff_grad_reusable(e[%u], %s, %zu, NULL) == ZOFF_OK)\n        memset(%s_grad + %zu, 0xff, %zu);", engine,
              q.name.c_str(), slice, q.name.c_str(), slice * q.grad_stride * width_of(q.grad_dtype),
              q.count * width_of(q.grad_dtype));
            status = zoff_grad_reusable(e, q.id, slice, nullptr);
            for (size_t i = 0; status == ZOFF_OK && zero && q.given[slice] && !q.frozen && i < q.count * width_of(q.grad_dtype);
                 i++) {
                if (q.given[slice] == 1 && q.grad_of(slice)[i])
                    fail("a reusable gradient of %s was not cleared", q.name.c_str());
            }
            if (status == ZOFF_OK) {
                memset(q.grad_of(slice), 0xff, q.count * width_of(q.grad_dtype));
                q.given[slice] = q.given[slice] ? 2 : 0; // written again
            }
        } else if (kind == 4) {
            c("(void)zoff_engine_progress(e[%u]);", engine);
            status = zoff_engine_progress(e);
        } else if (kind == 5) {
            status = zoff_loss_scale(e, &scale);
            world_sleep(d.below(500000));
        }
        if (is_weightless(status))
            return;
        if (status < 0 && told >= world_errors()) // zoff_step_wait() returns it, too
            fail("call %u within a step on %s: %d: %s", kind, q.name.c_str(), status, zoff_last_error());
        if (status < 0)
            return;
    }
}

// Retry a failed step, or drop it where that undoes it. @return false: it was dropped
bool life::finish(dice &d, unsigned engine, zoff_status &status, zoff_step_info &info)
{
    zoff_engine *const e = tested[engine];
    for (unsigned tries = 0; status < 0 && status != ZOFF_ERR_OVERFLOW; tries++) {
        const bool can_drop = engines == 1 && ranks == 1 && (persist || info.outcome == ZOFF_OUTCOME_BEFORE);
        if (info.outcome == ZOFF_OUTCOME_BEFORE && status != ZOFF_OK)
            compare_weights(static_cast<int>(engine));
        // Where a drive has lost writes, the library says that only this is left.
        if (ranks > 1 && flush_failed && strstr(zoff_last_error(), "End the program, and start all ranks again"))
            start_again();
        if (can_drop && persist && flush_failed && strstr(zoff_last_error(), "Call zoff_grads_drop()")) {
            persist_in("zoff_grads_drop() of a failed step", [&] { return zoff_grads_drop(e); });
            return false;
        }
        if (!is_explained(status))
            fail("a step fails without a fault: %d, outcome %d: %s", status, info.outcome, zoff_last_error());
        if (tries > 2 || d.chance(50))
            disarm();
        if (can_drop && d.chance(40)) {
            persist_in("zoff_grads_drop() of a failed step", [&] { return zoff_grads_drop(e); });
            return false;
        }
        status = zoff_step_retry(e, &info);
    }
    return true;
}

void life::compare_step(const zoff_step_info *infos, const zoff_step_info &want)
{
    uint64_t updated = 0;
    for (unsigned e = 0; e < engines; e++) {
        const zoff_step_info &have = infos[e];
        if (have.outcome != want.outcome || have.skipped != want.skipped || have.t != want.t ||
            have.micro_step != want.micro_step || have.accumulated != want.accumulated)
            fail("steps differ: engine %u outcome %d, skipped %d, t %lld, micro-step %u; the reference %d, %d, %lld, %u", e,
                 have.outcome, have.skipped, (long long)have.t, have.micro_step, want.outcome, want.skipped, (long long)want.t,
                 want.micro_step);
        if (engines == 1 && have.skipped &&
            (have.culprit.param != want.culprit.param || have.culprit.slice != want.culprit.slice))
            fail("a step blames slice %zu of parameter %u, the reference slice %zu of %u", have.culprit.slice,
                 have.culprit.param, want.culprit.slice, want.culprit.param);
        const zoff_step_numbers &a = have.numbers, &b = want.numbers;
        if (a.elements_owned && (!is_same(a.grad_norm, b.grad_norm) || !is_same(a.clip_factor, b.clip_factor)))
            fail("numbers differ: engine %u norm %a, clip factor %a; the reference %a, %a", e, a.grad_norm, a.clip_factor,
                 b.grad_norm, b.clip_factor);
        if (!is_same(a.loss_scale, b.loss_scale) || (engines == 1 && !is_same(a.lr, b.lr)))
            fail("numbers differ: engine %u scale %g, lr %g; the reference %g, %g", e, a.loss_scale, a.lr, b.loss_scale, b.lr);
        updated += a.elements_updated;
    }
    if (ranks == 1 && updated != want.numbers.elements_updated) // over several, stages give ranks other elements
        fail("numbers differ: %llu elements were updated, by the reference %llu", (unsigned long long)updated,
             (unsigned long long)want.numbers.elements_updated);
}

void life::check_cleared()
{
    for (const auto &q : params) {
        for (size_t s = 0; s < q->slices; s++) {
            const char *bytes = q->grad_of(s);
            const size_t count = q->count * width_of(q->grad_dtype);
            if (q->given[s] == 1 && !q->lent && (!q->frozen || q->tie) &&
                std::any_of(bytes, bytes + count, [](char c) { return c != 0; }))
                fail("the gradient of slice %zu of %s was not cleared", s, q->name.c_str());
        }
    }
}

zoff_step_args life::begin_args(const line &l)
{
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    if (micro == 0)
        update_scale = l.real("scale");
    args.grad_scale = update_scale;
    args.clip_norm = l.real("clip");
    args.flags = l.number("zero") ? static_cast<unsigned>(ZOFF_STEP_ZERO_GRADS) : 0;
    int64_t count;
    ok(zoff_step_count(ref, &count), "zoff_step_count()");
    if (l.has("t") && micro_steps == 1)
        args.t = count + static_cast<int64_t>(l.number("t"));
    c_args(args);
    for (zoff_engine *e : tested) {
        if (e && l.has("prepare"))
            c("OK(zoff_step_prepare(e[%d], %s));", e == tested[1], l.number("prepare") == 1 ? "&args" : "NULL"),
                persist_in("zoff_step_prepare()",
                           [&] { return zoff_step_prepare(e, l.number("prepare") == 1 ? &args : nullptr); });
    }
    for (zoff_engine *e : {tested[0], tested[1], ref}) {
        if (!e || !l.has("weight"))
            continue;
        if (e != ref)
            c("OK(zoff_grad_weight(e[%d], %.17g));", e == tested[1], weight_of(l, rank));
        ok(zoff_grad_weight(e, weight_of(l, rank)), "zoff_grad_weight()");
    }
    return args;
}

zoff_status life::step_of_ref(const line &l, const zoff_step_args &args, zoff_step_info &info)
{
    for (const auto &q : params) {
        for (size_t s = 0; s < q->slices; s++) {
            if (q->given[s])
                ok(zoff_grad_ready(ref, q->ref_id, s, nullptr), "zoff_grad_ready() of the reference");
        }
    }
    add_to_book(l);
    zoff_status status = zoff_step_begin(ref, &args);
    if (status == ZOFF_OK)
        status = zoff_step_wait(ref, &info);
    if (status == ZOFF_OK && !info.accumulated && !book.empty())
        compare_book(args, info);
    if (status != ZOFF_OK)
        forget_book();
    return status;
}

// The micro-step of a process that crashed, on the reference.
void life::replay(const line &l)
{
    dice d = dice_of(l, rank);
    zoff_step_info info = ZOFF_STEP_INFO_INIT;
    const zoff_step_args args = begin_args(l);
    hand_over(l, d);
    if (l.number("drop") == 1)
        fail("the next process has a step that was dropped");
    ok(step_of_ref(l, args, info), "a step of the reference");
    micro = is_last() ? 0 : micro + 1;
}

void life::step(const line &l)
{
    const bool last = is_last(), measures = is_measured(l);
    const std::string form = form_of(l);
    dice d = dice_of(l, rank);
    const zoff_step_args args = begin_args(l);
    arm(l);
    hand_over(l, d);
    if (ranks > 1)
        d = dice(l.number("seed") + 2); // calls within the step are those of all ranks
    if (l.number("drop") == 1)
        return drop();

    zoff_norm_sum sums[2];
    for (unsigned e = 0; measures && e < engines; e++) {
        c("(void)zoff_step_measure(e[%u], &args, &sums[%u]);", e, e);
        const zoff_status status = zoff_step_measure(tested[e], &args, &sums[e]);
        if (status < 0) {
            const bool is_alone = ranks > 1 && !is_weightless(status); // other ranks go on with the step
            if (!is_weightless(status) && !is_explained(status))
                fail("zoff_step_measure(): %d: %s", status, zoff_last_error());
            if (is_alone)
                start_again();
            return drop();
        }
    }
    if (measures && engines == 2)
        c("OK(zoff_norm_sum_join(&sums[0], &sums[1]));"), ok(zoff_norm_sum_join(&sums[0], &sums[1]), "zoff_norm_sum_join()");
    zoff_step_args full = args;
    full.norm_sum = measures ? &sums[0] : nullptr;
    if (measures)
        c("args.norm_sum = &sums[0];");

    zoff_step_info infos[2] = {ZOFF_STEP_INFO_INIT, ZOFF_STEP_INFO_INIT}, want = ZOFF_STEP_INFO_INIT;
    zoff_status ended[2] = {ZOFF_OK, ZOFF_OK};
    dice tries(l.number("seed") + 1); // the same on each rank, whatever calls within the step have drawn
    for (unsigned e = 0; e < engines; e++) {
        if (form == "whole") {
            c("(void)zoff_step(e[%u], &args, &info);", e);
            ended[e] = zoff_step(tested[e], &full, &infos[e]);
            while (ended[e] < 0 && infos[e].t == 0 && is_explained(ended[e])) { // an error before it has begun
                disarm();
                ended[e] = zoff_step(tested[e], &full, &infos[e]);
            }
        } else {
            c("(void)zoff_step_begin(e[%u], &args);", e);
            ended[e] = repeat([&] { return zoff_step_begin(tested[e], &full); });
            if (ended[e] == ZOFF_OK && l.number("drop") == 2 && engines == 1 && !measures)
                return drop();
            if (ended[e] == ZOFF_OK) {
                calls(l, d, e, l.number("zero"));
                c("(void)zoff_step_wait(e[%u], &info);", e);
                ended[e] = zoff_step_wait(tested[e], &infos[e]);
            }
        }
        if (is_weightless(ended[e]) && infos[e].outcome == ZOFF_OUTCOME_BEFORE) {
            say("%s", zoff_last_error());
            return drop();
        }
        if (!finish(tries, e, ended[e], infos[e])) {
            ok(zoff_grads_drop(ref), "zoff_grads_drop() of the reference");
            forget_book();
            micro = 0;
            compare_weights();
            return compare_counts();
        }
    }
    disarm();
    const zoff_status expected = step_of_ref(l, args, want);
    for (unsigned e = 0; e < engines; e++) {
        if (ended[e] != expected)
            fail("a step of engine %u returns %d, of the reference %d: %s", e, ended[e], expected, zoff_last_error());
    }
    if (expected < 0 && expected != ZOFF_ERR_OVERFLOW)
        return drop();
    compare_step(infos, want);
    if (args.flags & ZOFF_STEP_ZERO_GRADS)
        check_cleared();
    say("step %lld%s%s, norm %g", (long long)want.t, want.skipped ? " skipped" : "", want.accumulated ? " added" : "",
        want.numbers.grad_norm);
    micro = last ? 0 : micro + 1;
    if (last && !want.skipped) {
        recorded[0] = recorded[1] = true;
        has_put_off = false;
        told = std::max(told, before); // what had failed before the update before this one is over
        before = world_errors();
    }
    compare_weights();
    if (micro == 0)
        compare_counts();
}

// ---- between steps ----

void life::states(const line &l)
{
    dice d(l.number("seed"));
    if (micro || params.empty())
        return;
    finish_save();
    arm(l);
    for (uint64_t k = 1 + d.below(3); k; k--) {
        param &q = *params[d.below(params.size())];
        const size_t first = d.below(q.slices), count = (1 + d.below(q.slices - first)) * q.count;
        const auto kind = static_cast<zoff_state_kind>(d.below(3));
        std::vector<float> numbers(count + 1);
        const uint64_t from = d.seed();
        for (float &x : numbers)
            x = static_cast<float>(kind == ZOFF_STATE_V ? d.unit() : d.unit() - 0.5);
        c("fill_from(bytes, ZOFF_F32, %zu, 0x%llxu, 1, %g);", count, (unsigned long long)from, kind == ZOFF_STATE_V ? 0 : -0.5);
        c("(void)zoff_state_write(e[%u], %s, %d, %zu, %zu, (float *)(void *)bytes);", q.engine, q.name.c_str(), kind,
          first * q.count, count);
        const zoff_status expected = zoff_state_write(ref, q.ref_id, kind, first * q.count, count, numbers.data());
        zoff_status status = zoff_state_write(tested[q.engine], q.id, kind, first * q.count, count, numbers.data());
        while (status != expected && is_explained(status)) {
            disarm();
            status = zoff_state_write(tested[q.engine], q.id, kind, first * q.count, count, numbers.data());
        }
        if (status != expected)
            fail("zoff_state_write() of kind %d of %s returns %d, and for the reference %d: %s", kind, q.name.c_str(), status,
                 expected, zoff_last_error());
        recorded[q.engine] = recorded[q.engine] || (status == ZOFF_OK && count);
        if (status == ZOFF_OK)
            write_book(q, kind, first * q.count, count, numbers.data());
    }
    has_put_off = !l.number("flush");
    for (unsigned e = 0; e < engines && l.number("flush"); e++)
        c("OK(zoff_state_flush(e[%u]));", e), persist_in("zoff_state_flush()", [&] { return zoff_state_flush(tested[e]); });
    for (unsigned e = 0; e < engines; e++)
        c("OK(zoff_params_push(e[%u]));", e), persist_in("zoff_params_push()", [&] { return zoff_params_push(tested[e]); });
    ok(zoff_params_push(ref), "zoff_params_push() of the reference");
    compare_weights();
}

void life::pull(const line &l)
{
    dice d(l.number("seed"));
    if (micro)
        return;
    finish_save();
    arm(l);
    has_put_off = true;
    const bool one = l.number("one");
    std::vector<const param *> changed;
    for (const auto &q : params) {
        if (q->tie || q->frozen || d.chance(60)) {
            if (!one)
                changed.push_back(q.get());
            continue;
        }
        changed.push_back(q.get());
        for (size_t s = 0; s < q->slices && q->count; s++) {
            char *want = q->ref_value + s * q->stride * width_of(q->dtype);
            const std::string to =
                q->owned ? "bytes" : q->name + "_value + " + std::to_string(s * q->stride * width_of(q->dtype));
            c("fill(%s, %d, %zu, 0x%llxu, 1);", to.c_str(), q->dtype, q->count, (unsigned long long)d.seed());
            if (q->owned)
                c("OK(zoff_param_write(e[%u], %s, %zu, %zu, bytes));", q->engine, q->name.c_str(), s * q->count, q->count);
            for (size_t k = 0; k < q->count; k++)
                put(want + k * width_of(q->dtype), q->dtype, static_cast<float>(d.unit() - 0.5));
            if (q->owned)
                persist_in("zoff_param_write()",
                           [&] { return zoff_param_write(tested[q->engine], q->id, s * q->count, q->count, want); });
            else
                memcpy(q->value + s * q->stride * width_of(q->dtype), want, q->count * width_of(q->dtype));
        }
    }
    for (unsigned e = 0; e < engines && !one; e++)
        c("OK(zoff_params_pull(e[%u]));", e), persist_in("zoff_params_pull()", [&] { return zoff_params_pull(tested[e]); });
    for (size_t i = 0; one && i < changed.size(); i++) {
        const param &q = *changed[i];
        c("OK(zoff_param_pull(e[%u], %s));", q.engine, q.name.c_str());
        persist_in("zoff_param_pull()", [&] { return zoff_param_pull(tested[q.engine], q.id); });
        ok(zoff_param_pull(ref, q.ref_id), "zoff_param_pull() of the reference");
    }
    ok(one ? ZOFF_OK : zoff_params_pull(ref), "zoff_params_pull() of the reference");
    pull_book(changed);
    compare_weights();
}

void life::move(const line &l)
{
    dice d(l.number("seed"));
    for (const auto &q : params) {
        if (q->tie || q->owned || !q->count || d.chance(40))
            continue;
        char *const was = q->value, *const to = allocate(q->value_bytes());
        memcpy(to, was, q->value_bytes());
        if (!saving) // otherwise the save may read it before the call
            memset(was, 0xff, q->value_bytes());
        persist_in("zoff_param_bind_opts()",
                   [&] { return zoff_param_bind_opts(tested[q->engine], q->id, to, nullptr, ZOFF_BIND_MOVED); });
        memset(was, 0xff, q->value_bytes());
        for (const auto &name : params)
            name->value = name->value == was ? to : name->value;
    }
}

void life::save(const line &l)
{
    if (micro || engines == 2)
        return;
    finish_save();
    arm(l);
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.keep = 1;
    c("save.keep = 1;\n    snprintf(path, sizeof path, \"%%ssaved\", folder);");
    const std::string name = folder + "/saved";
    before_save = world_errors();
    if (l.number("beside")) {
        c("OK(zoff_checkpoint_begin(e[0], path, &save, &saving));");
        persist_in("zoff_checkpoint_begin()", [&] { return zoff_checkpoint_begin(tested[0], name.c_str(), &opts, &saving); });
        if (l.has("fault"))
            world_sleep(3000000); // its thread meets the fault meanwhile
    } else {
        c("OK(zoff_checkpoint_save(e[0], path, &save));");
        persist_in("zoff_checkpoint_save()", [&] { return zoff_checkpoint_save(tested[0], name.c_str(), &opts); });
    }
    disarm();
    ok(zoff_checkpoint_save(ref, (folder + "/saved.ref").c_str(), &opts), "zoff_checkpoint_save() of the reference");
    has_saved = !saving;
}

void life::finish_save()
{
    if (!saving)
        return;
    c("OK(zoff_checkpoint_wait(saving));\n    saving = NULL;");
    const zoff_status status = zoff_checkpoint_wait(saving);
    saving = nullptr;
    if (status < 0 && world_errors() == before_save) // it keeps its error until now
        fail("zoff_checkpoint_wait(): %d: %s", status, zoff_last_error());
    has_saved = status == ZOFF_OK;
}

void life::load(const line &l)
{
    if (micro)
        return;
    finish_save();
    if (!has_saved)
        return;
    const bool crosses = l.number("seed") % 2;
    arm(l);
    c("snprintf(path, sizeof path, \"%%ssaved\", folder);\n    OK(zoff_checkpoint_load(e[0], path, NULL));");
    persist_in("zoff_checkpoint_load()", [&] {
        return zoff_checkpoint_load(tested[0], (folder + (crosses ? "/saved.ref" : "/saved")).c_str(), nullptr);
    });
    disarm();
    ok(zoff_checkpoint_load(ref, (folder + (crosses ? "/saved" : "/saved.ref")).c_str(), nullptr),
       "zoff_checkpoint_load() of the reference");
    recorded[0] = true;
    load_book();
    compare_weights();
    compare_counts();
    read_states(l, true);
}

void life::reopen(const line &l)
{
    if (!persist || micro || !recorded[0] || (engines == 2 && !recorded[1]))
        return;
    finish_save();
    arm(l);
    for (unsigned e = 0; e < engines && ranks == 1 && l.number("open"); e++)
        c("OK(zoff_step_begin(e[%u], NULL));", e),
            persist_in("zoff_step_begin()", [&] { return zoff_step_begin(tested[e], nullptr); });
    for (zoff_engine *&e : tested) {
        c("zoff_engine_destroy(e[%d]);", &e != &tested[0]);
        zoff_engine_destroy(e);
        e = nullptr;
    }
    has_put_off = false;
    forget_weights();
    open(true);
    go_on(l);
}

// The memory of another process.
void life::forget_weights()
{
    for (const auto &q : params) {
        if (!q->tie && !q->frozen && recorded[0] && q->value_bytes())
            c("memset(%s_value, 0x42, %zu);", q->name.c_str(), q->value_bytes()), memset(q->value, 0x42, q->value_bytes());
        else if (!q->tie && q->value_bytes())
            memcpy(q->value, q->ref_value, q->value_bytes());
    }
}

void life::go_on(const line &l)
{
    for (const auto &q : params) {
        for (int kind = 0; kind < 3 && l.number("look"); kind++)
            compare_states(*q, kind, 0, q->count * q->slices, true);
    }
    for (unsigned e = 0; e < engines; e++)
        c("OK(zoff_params_push(e[%u]));", e), persist_in("zoff_params_push()", [&] { return zoff_params_push(tested[e]); });
    for (auto &[group, hyper] : hypers) {
        c_group(group, hyper, false);
        for (unsigned e = 0; e < engines; e++)
            (void)zoff_engine_set_group(tested[e], group, &hyper);
    }
    zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT; // that of the last commit: skipped steps commit nothing
    if (zoff_loss_scaler_get(tested[0], &scaler) == ZOFF_OK) {
        for (zoff_engine *e : {tested[1], ref}) {
            if (e)
                (void)zoff_loss_scaler_set(e, &scaler);
        }
    }
    compare_weights();
    compare_counts();
    read_states(l, true);
}

void life::c_group(unsigned group, const zoff_optimizer_hyper &hyper, unsigned form)
{
    for (unsigned e = 0; e < engines; e++) {
        if (form == SET_LR)
            c("(void)zoff_engine_set_lr(e[%u], %u, %.17g);", e, group, hyper.lr);
        else if (form == KEEP_OTHERS)
            c("zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_KEEP);\n    hyper.lr = %.17g;\n"
              "    (void)zoff_engine_set_group(e[%u], %u, &hyper);",
              hyper.lr, e, group);
        else
            c("hyper.struct_size = sizeof hyper;\n    (void)zoff_engine_get_group(e[%u], %u, 0, &hyper);\n    hyper.lr = "
              "%.17g;\n"
              "    (void)zoff_engine_set_group(e[%u], %u, &hyper);",
              e, group, hyper.lr, e, group);
    }
}

// ---- the end of a process ----

void life::start_again()
{
    say("%s", zoff_last_error());
    stop(is_noted ? CRASHED : FINE, "");
}

bool life::can_crash(const line &l) const
{
    return is_noted && (l.verb == "step" || l.verb == "read" || l.verb == "save" || l.verb == "reopen");
}

// The reference before an update is kept as its checkpoint. That takes a while, so it is done only where a crash may be near.
void life::note()
{
    if (micro == 0) {
        safe = here;
        is_noted = false;
        for (size_t k = here; crashes && !has_put_off && k < p.size() && k < here + micro_steps + 3; k++)
            is_noted =
                is_noted || p[k].find(" fault=kill") != std::string::npos || p[k].find(" fault=power") != std::string::npos;
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.keep = 1;
        if (is_noted)
            ok(zoff_checkpoint_save(ref, (folder + "/before").c_str(), &opts), "zoff_checkpoint_save() of the reference");
    }
    if (is_noted)
        std::ofstream(note_path(rank)) << safe << " " << here << " " << recorded[0] << " " << has_saved;
}

void life::after_crash()
{
    int64_t have, want;
    for (unsigned r = 0; r < ranks; r++) { // that of the rank that was ahead: the others had not begun this operation
        size_t first = 0, then = 0;
        bool has_recorded = false, has_one = false;
        std::ifstream(note_path(r)) >> first >> then >> has_recorded >> has_one;
        if (then < here)
            continue;
        safe = first;
        here = then;
        recorded[0] = has_recorded;
        has_saved = has_one;
    }
    now = "after: " + p[here];
    say("%s", now.c_str());
    for (size_t k = 0; k < safe; k++) {
        if (line(p[k]).verb == "group")
            group(line(p[k]));
    }
    ok(zoff_checkpoint_load(ref, (folder + "/before").c_str(), nullptr), "zoff_checkpoint_load() of the reference");
    load_book();
    forget_weights();
    open(recorded[0]);
    zoff_engine *const opened = tested[0];
    tested[0] = nullptr; // what follows is for the reference
    ok(zoff_step_count(opened, &have), "zoff_step_count()");
    ok(zoff_step_count(ref, &want), "zoff_step_count() of the reference");
    if (have != want && line(p[here]).verb != "step")
        fail("after %lld updates, the next process has %lld", (long long)want, (long long)have);
    for (size_t k = safe; k <= here; k++) {
        if (line(p[k]).verb == "group")
            group(line(p[k]));
        if (line(p[k]).verb == "step" && have != want)
            replay(line(p[k]));
    }
    tested[0] = opened;
    recorded[0] = recorded[0] || have != want;
    has_saved = has_saved && line(p[here]).verb != "save";
    go_on(line(p[here]));
    here++;
}

void life::group(const line &l)
{
    dice d(l.number("seed"));
    const unsigned group = static_cast<unsigned>(d.below(3));
    zoff_optimizer_hyper hyper;
    memset(&hyper, 0, sizeof hyper);
    hyper.struct_size = sizeof hyper;
    if (zoff_engine_get_group(ref, group, 0, &hyper) != ZOFF_OK)
        return;
    hyper.lr = static_cast<float>(d.unit() * 0.02);
    const zoff_status expected = zoff_engine_set_group(ref, group, &hyper);
    unsigned form = static_cast<unsigned>(d.below(3));
    if (form == SET_LR && zoff_engine_set_lr(ref, group, hyper.lr) != ZOFF_OK) // not with every scheduler
        form = SET_GROUP;
    zoff_optimizer_hyper kept;
    zoff_optimizer_hyper_init(&kept, ZOFF_OPTIMIZER_KEEP);
    kept.lr = hyper.lr;
    c_group(group, hyper, form);
    for (unsigned e = 0; e < engines; e++) {
        const zoff_status status = !tested[e] ? expected
                                   : form == SET_LR
                                       ? zoff_engine_set_lr(tested[e], group, hyper.lr)
                                       : zoff_engine_set_group(tested[e], group, form == SET_GROUP ? &hyper : &kept);
        const bool has =
            std::any_of(params.begin(), params.end(), [&](const auto &q) { return q->engine == e && q->group == group; });
        if (has && status != expected)
            fail("zoff_engine_set_group() returns %d, for the reference %d: %s", status, expected, zoff_last_error());
    }
    hypers[group] = hyper;
}
