/* SPDX-License-Identifier: Apache-2.0 */
// engine_model_test.cc: compares 10,000 random sequences of API calls, right and wrong ones mixed, with a small model of an
// engine. The model predicts for each call whether it must succeed, and the reference predicts the numbers.
#include "covering.h"
#include "small_engine.h"

#include <math.h>

using namespace zoff_test;

namespace
{
enum phase { BUILDING, IDLE, OPEN, DONE }; // DONE: another call has finished the step, and zoff_step_wait() has still to tell

class sequence
{
  public:
    sequence(unsigned seed, const std::string &folder) : random(seed), t(seed + 1)
    {
        accumulation = 1 + random() % 3;
        clip = random() % 2 ? 0.5 : 0.0;
        std::string text = config_text(folder, accumulation);
        if (!folder.empty())
            text = with_offloaded_weights(text, folder);
        if (clip > 0)
            text.replace(text.find("\"gradient_clipping\": 0"), 22, "\"gradient_clipping\": 0.5");
        static const char *const MOMENTS[] = {"fp32", "bf16", "m8v16", "q8"};
        const std::string moments = MOMENTS[random() % 4];
        const bool has_blocks = moments == "m8v16" || moments == "q8";
        text.insert(1, std::string("\"zoff\": {\"master\": \"") + (random() % 2 ? "auto" : "fp32") + "\", \"moments\": \"" +
                           moments + "\"}, ");
        zoff_engine_opts opts = {};
        opts.chunk_elements = 1 + random() % 4000;
        opts.threads = 1 + random() % 2;
        e = make_engine(text, opts);
        groups = config_groups(3);
        // The trainer's tensors exist from the start; they are added to the engine one by one.
        for (size_t i = 0, count = 1 + random() % 4; i < count; i++) {
            static const size_t SIZES[] = {0, 1, 2, 15, 17, 100, 1023, 1024, 1025, 1300};
            static const zoff_dtype TYPES[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
            zoff_dtype dtype = TYPES[random() % 3];
            const size_t size = has_blocks && random() % 2 ? 4090 + random() % 1100 : SIZES[random() % 10];
            t.add(size, 1 + random() % 3, dtype, random() % 4 ? dtype : TYPES[random() % 3], random() % 3, random() % 6 == 0,
                  random() % 3);
            if (random() % 3 == 0)
                t.give_away(i);
            t.tensors[i].halves = moments == "bf16";
            t.tensors[i].blocks = has_blocks ? moments : "";
        }
        lent.resize(t.tensors.size());
        for (size_t i = 0; i < lent.size(); i++)
            lent[i].assign(t.tensors[i].slices, 0);
        ready.resize(t.tensors.size());
        for (size_t i = 0; i < ready.size(); i++)
            ready[i].assign(t.tensors[i].slices, false);
    }

    void run(int calls)
    {
        for (int i = 0; i < calls && !testing::Test::HasFailure(); i++)
            call();
        if (testing::Test::HasFailure())
            ADD_FAILURE() << "calls: " << history;
    }

  private:
    // Compare a status with the model's prediction; `history` lists the calls so far.
    void expect(zoff_status want, zoff_status have, const char *name)
    {
        history += std::string(name) + "=" + std::to_string(have) + " ";
        EXPECT_EQ(want, have) << name << ": " << zoff_last_error();
        if (have < 0) {
            EXPECT_STRNE("", zoff_last_error());
        }
    }

    void call()
    {
        switch (random() % 20) {
        case 0:
        case 1:
            return add();
        case 2:
            if (phase == BUILDING && added < t.tensors.size() && random() % 3)
                return add(); // in most sequences all tensors are added before seal
            return seal();
        case 3:
        case 4:
            return grad_ready();
        case 5:
            return begin();
        case 6:
            return wait();
        case 7:
        case 8:
            return step();
        case 9:
            return drop();
        case 10:
            return random() % 2 ? pull() : push();
        case 11:
            return read_state();
        case 12:
            return write_state();
        case 13:
        case 14:
            return fetch();
        case 15:
            return release();
        case 16:
            return random() % 8 ? set_group() : request_stop();
        case 17:
            return wait_for_weights();
        case 18:
            return reuse();
        default:
            return set_group();
        }
    }

    void add()
    {
        if (added == t.tensors.size())
            return;
        zoff_param_desc d = t.desc(added);
        zoff_param p = 99;
        bool spoiled = random() % 5 == 0;
        if (spoiled)
            d.dtype = (zoff_dtype)7;
        zoff_status want = phase != BUILDING ? ZOFF_ERR_STATE : spoiled ? ZOFF_ERR_INVALID : ZOFF_OK;
        expect(want, zoff_engine_add_param(e.get(), &d, &p), "add");
        if (want == ZOFF_OK)
            EXPECT_EQ(added++, p);
        else
            EXPECT_EQ(99u, p);
    }

    void seal()
    {
        expect(phase == BUILDING ? ZOFF_OK : ZOFF_ERR_STATE, zoff_engine_seal(e.get()), "seal");
        if (phase != BUILDING)
            return;
        phase = IDLE;
        sealed = groups;
        // Tensors that were not added are not trained, so the reference must not see them.
        for (size_t i = added; i < t.tensors.size(); i++)
            t.tensors[i].frozen = true;
    }

    void grad_ready()
    {
        size_t p = random() % (t.tensors.size() + 1), slice = random() % 4;
        bool exists = p < added && slice < t.tensors[p].slices;
        zoff_status want = phase != IDLE     ? ZOFF_ERR_STATE
                           : !exists         ? ZOFF_ERR_INVALID
                           : ready[p][slice] ? ZOFF_ERR_STATE
                                             : ZOFF_OK;
        if (want == ZOFF_OK)
            t.backward(p, slice, 0.1f);
        expect(want, zoff_grad_ready(e.get(), (zoff_param)p, slice, nullptr), "ready");
        handed_over = handed_over || want == ZOFF_OK;
        // Frozen and empty slices are legal and are ignored.
        if (want == ZOFF_OK)
            ready[p][slice] = !t.tensors[p].frozen && t.tensors[p].count;
    }

    zoff_step_args args()
    {
        zoff_step_args a = {};
        a.struct_size = sizeof a;
        if (random() % 8 == 0)
            a.flags = 0x100; // an unknown flag
        return a;
    }

    void begin()
    {
        zoff_step_args a = args();
        zoff_status want = phase != IDLE ? ZOFF_ERR_STATE : a.flags ? ZOFF_ERR_INVALID : stopped_by_loans();
        expect(want, zoff_step_begin(e.get(), &a), "begin");
        if (want == ZOFF_OK)
            phase = OPEN;
    }

    void wait()
    {
        auto info = new_info();
        expect(phase == OPEN || phase == DONE ? ZOFF_OK : ZOFF_ERR_STATE, zoff_step_wait(e.get(), &info), "wait");
        if (phase == OPEN)
            finish(info);
        else if (phase == DONE)
            tell(info);
    }

    // A call that needs whole states or weights.
    void finish_open()
    {
        if (phase != OPEN)
            return;
        settle();
        phase = DONE;
    }

    // Between begin and wait it may advance the step; nothing that the model predicts depends on how far.
    void wait_for_weights()
    {
        const size_t p = random() % (t.tensors.size() + 1), slice = random() % 4;
        const bool exists = p < added && slice < t.tensors[p].slices && !t.is_given_away(p);
        const zoff_status want = !exists ? ZOFF_ERR_INVALID : phase == BUILDING ? ZOFF_ERR_STATE : ZOFF_OK;
        expect(want, zoff_param_wait(e.get(), (zoff_param)p, slice, nullptr), "weights");
    }

    // The next gradient may be written once this one is read. In a micro-step that adds gradients it finishes the step.
    void reuse()
    {
        const size_t p = random() % (t.tensors.size() + 1), slice = random() % 4;
        const bool exists = p < added && slice < t.tensors[p].slices, was_open = phase == OPEN;
        const zoff_status want = !exists ? ZOFF_ERR_INVALID : phase == BUILDING ? ZOFF_ERR_STATE : ZOFF_OK;
        expect(want, zoff_grad_reusable(e.get(), (zoff_param)p, slice, nullptr), "reusable");
        if (want == ZOFF_OK && micro + 1 < accumulation)
            finish_open();
        for (size_t k = 0; exists && was_open && k < t.tensors[p].count; k++)
            trainer::put(t.grad(p), t.tensors[p].grad_dtype, t.place(p, slice * t.tensors[p].count + k), NAN);
    }

    void step()
    {
        auto info = new_info();
        zoff_step_args a = args();
        zoff_status want = phase != IDLE ? ZOFF_ERR_STATE : a.flags ? ZOFF_ERR_INVALID : stopped_by_loans();
        if (want == ZOFF_OK) {
            // Hand over a gradient for every slice that has none; sometimes one that is not finite.
            for (size_t i = 0; i < added; i++) {
                for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                    if (!ready[i][slice])
                        t.backward(i, slice, 0.1f);
                    ready[i][slice] = true;
                }
            }
            if (random() % 10 == 0)
                poison();
        }
        expect(want, zoff_step(e.get(), &a, &info), "step");
        if (want == ZOFF_OK)
            finish(info);
    }

    // Request a stop, which is legal in each phase; the next update says it.
    void request_stop()
    {
        history += "stop ";
        zoff_engine_request_stop(e.get());
        stop_asked = true;
    }

    void poison()
    {
        size_t i = random() % t.tensors.size();
        auto &x = t.tensors[i];
        if (i >= added || x.total() == 0)
            return;
        size_t k = random() % x.total();
        trainer::put(t.grad(i), x.grad_dtype, t.place(i, k), INFINITY);
        x.sum[k] = INFINITY; // stays INFINITY whatever is added
    }

    // The step is over.
    void settle()
    {
        handed_over = false;
        for (auto &r : ready)
            r.assign(r.size(), false);
        told.micro_step = ++micro;
        stop_told = stop_told || (stop_asked && micro == accumulation);
        told.stops = stop_told;
        if (micro < accumulation)
            return;
        micro = 0;
        told.update = reference::step(t.tensors, groups, updates + 1, 1, accumulation, clip);
        t.next_step();
        updates += !told.update.skipped;
    }

    void finish(const zoff_step_info &info)
    {
        settle();
        tell(info);
    }

    void tell(const zoff_step_info &info)
    {
        phase = IDLE;
        EXPECT_EQ(told.micro_step, info.micro_step);
        EXPECT_EQ(told.micro_step < accumulation, info.accumulated);
        EXPECT_EQ(told.stops, info.stop_requested);
        if (told.micro_step < accumulation)
            return;
        EXPECT_EQ(told.update.skipped, info.skipped);
        EXPECT_EQ(told.update.updated, info.numbers.elements_updated);
        if (!told.update.skipped) {
            EXPECT_EQ(told.update.norm, info.numbers.grad_norm);
            EXPECT_EQ(told.update.clip, info.numbers.clip_factor);
        }
        int64_t count = -1;
        expect(ZOFF_OK, zoff_step_count(e.get(), &count), "count");
        EXPECT_EQ(updates, count);
        expect_weights();
    }

    // Weights of tensors that were not added are compared too: they must not change.
    void expect_weights()
    {
        for (size_t i = 0; i < added; i++) {
            auto &x = t.tensors[i];
            std::vector<char> weights(x.total() * 4 + 1);
            if (!t.is_given_away(i))
                continue;
            ASSERT_ZOFF_OK(zoff_param_read(e.get(), (zoff_param)i, 0, x.total(), weights.data()));
            for (size_t k = 0; k < x.total(); k++)
                trainer::put(t.value(i), x.dtype, t.place(i, k), trainer::get(weights.data(), x.dtype, k));
        }
        t.expect_weights();
    }

    // Weights must not change while they are lent.
    bool any_lent() const
    {
        for (auto &slices : lent) {
            for (int times : slices) {
                if (times)
                    return true;
            }
        }
        return false;
    }

    // A micro-step that only accumulates changes no weights.
    zoff_status stopped_by_loans() const { return micro + 1 == accumulation && any_lent() ? ZOFF_ERR_STATE : ZOFF_OK; }

    zoff_status loan(size_t &p, size_t &slice)
    {
        p = random() % (t.tensors.size() + 1);
        slice = random() % 3;
        const bool exists = p < added && slice < t.tensors[p].slices && t.is_given_away(p);
        return phase == BUILDING ? ZOFF_ERR_STATE : exists ? ZOFF_OK : ZOFF_ERR_INVALID;
    }

    // In an open step that updates, a fetch lends the weights after it.
    std::vector<float> masters_to_lend(size_t p)
    {
        auto now = t.tensors;
        if (phase == OPEN && micro + 1 == accumulation)
            reference::step(now, groups, updates + 1, 1, accumulation, clip);
        return now[p].master;
    }

    void fetch()
    {
        size_t p, slice;
        zoff_status want = loan(p, slice);
        const void *weights = nullptr;
        expect(want, zoff_param_fetch(e.get(), (zoff_param)p, slice, nullptr, &weights), "fetch");
        if (want != ZOFF_OK)
            return;
        lent[p][slice]++;
        auto &x = t.tensors[p];
        const std::vector<float> masters = masters_to_lend(p);
        for (size_t k = 0; k < x.count; k++)
            ASSERT_EQ(reference::rounded(x.dtype, masters[slice * x.count + k]),
                      trainer::get((const char *)weights, x.dtype, k))
                << "weight " << k << " of slice " << slice << " of " << p;
    }

    void release()
    {
        size_t p, slice;
        const zoff_status may = loan(p, slice), want = may == ZOFF_OK && !lent[p][slice] ? ZOFF_ERR_STATE : may;
        expect(want, zoff_param_release(e.get(), (zoff_param)p, slice, nullptr), "release");
        if (want == ZOFF_OK)
            lent[p][slice]--;
    }

    void release_all()
    {
        for (size_t i = 0; i < lent.size(); i++) {
            for (size_t slice = 0; slice < lent[i].size(); slice++) {
                for (; lent[i][slice]; lent[i][slice]--)
                    expect(ZOFF_OK, zoff_param_release(e.get(), (zoff_param)i, slice, nullptr), "release");
            }
        }
    }

    void drop()
    {
        const zoff_status got = zoff_grads_drop(e.get());
        if (phase == OPEN && got == ZOFF_ERR_STATE) // the step has updated weights already, and goes on
            return;
        expect(phase == BUILDING || phase == DONE ? ZOFF_ERR_STATE : ZOFF_OK, got, "drop");
        if (phase == BUILDING || phase == DONE)
            return;
        phase = IDLE;
        micro = 0;
        handed_over = false;
        t.next_step();
        for (auto &r : ready)
            r.assign(r.size(), false);
    }

    // Between updates no gradient is accumulated or in flight, so states are complete.
    bool is_between_updates() const { return phase != BUILDING && phase != OPEN && micro == 0 && !handed_over; }

    void pull()
    {
        finish_open();
        const bool may = is_between_updates() && !any_lent();
        expect(may ? ZOFF_OK : ZOFF_ERR_STATE, zoff_params_pull(e.get()), "pull");
        if (may)
            expect_weights();
        for (size_t i = 0; may && i < added; i++) {
            auto &x = t.tensors[i];
            for (size_t k = 0; !x.frozen && k < x.total(); k++)
                x.master[k] = trainer::get(t.value(i), x.dtype, t.place(i, k));
        }
    }

    void push()
    {
        finish_open();
        const bool may = is_between_updates() && !any_lent();
        expect(may ? ZOFF_OK : ZOFF_ERR_STATE, zoff_params_push(e.get()), "push");
        if (may)
            expect_weights();
    }

    std::vector<float> &state(size_t i, zoff_state_kind kind)
    {
        return kind == ZOFF_STATE_MASTER ? t.tensors[i].master : kind == ZOFF_STATE_M ? t.tensors[i].m : t.tensors[i].v;
    }

    // Choose a window; two of three are valid.
    zoff_status window(size_t &p, zoff_state_kind &kind, size_t &first, size_t &count)
    {
        p = random() % (t.tensors.size() + 1);
        kind = (zoff_state_kind)(random() % 3);
        size_t total = p < t.tensors.size() ? t.tensors[p].total() : 0;
        first = random() % (total + 1);
        count = random() % (total - first + 1) + (random() % 3 == 0);
        finish_open();
        if (!is_between_updates())
            return ZOFF_ERR_STATE;
        if (p >= added || t.tensors[p].frozen || count > total - first)
            return ZOFF_ERR_INVALID;
        const zoff_optimizer_hyper &h = sealed[t.tensors[p].group];
        bool kept = kind == ZOFF_STATE_MASTER || (kind == ZOFF_STATE_M ? reference::keeps_m(h) : reference::keeps_v(h));
        return kept ? ZOFF_OK : ZOFF_ERR_INVALID;
    }

    void read_state()
    {
        size_t p, first, count;
        zoff_state_kind kind;
        zoff_status want = window(p, kind, first, count);
        std::vector<float> have(count + 1, -77);
        expect(want, zoff_state_read(e.get(), (zoff_param)p, kind, first, count, have.data()), "read");
        for (size_t k = 0; want == ZOFF_OK && k < count; k++)
            ASSERT_EQ(0, memcmp(&state(p, kind)[first + k], &have[k], 4))
                << "state " << kind << " of " << p << " at " << first + k;
        EXPECT_EQ(-77, have[want == ZOFF_OK ? count : 0]);
    }

    bool in_blocks(size_t p, zoff_state_kind kind) const
    {
        const reference::tensor &x = t.tensors[p];
        return reference::has_blocks(x, sealed[x.group]) && (kind == ZOFF_STATE_M || x.blocks == "q8");
    }

    void write_state()
    {
        size_t p, first, count;
        zoff_state_kind kind;
        zoff_status want = window(p, kind, first, count);
        if (want == ZOFF_OK && count && kind != ZOFF_STATE_MASTER && in_blocks(p, kind)) {
            const size_t of_slice = t.tensors[p].count;
            if (random() % 2) { // whole blocks
                first -= first % of_slice % 1024;
                count = std::min(of_slice - first % of_slice, (count + 1023) / 1024 * 1024);
            }
            if (first % of_slice % 1024 || (first + count) % of_slice % 1024)
                want = ZOFF_ERR_INVALID;
        }
        if (want == ZOFF_OK && kind == ZOFF_STATE_MASTER)
            release_all(); // the masters are pushed at once, which changes weights
        std::vector<float> fresh(count + 1);
        for (auto &x : fresh)
            x = (float)(random() % 256) / 128; // exact in 16 bits; v stays positive
        expect(want, zoff_state_write(e.get(), (zoff_param)p, kind, first, count, fresh.data()), "write");
        if (want != ZOFF_OK)
            return;
        reference::write(t.tensors[p], sealed[t.tensors[p].group], kind, first, count, fresh.data());
        if (kind == ZOFF_STATE_MASTER)
            push();
    }

    zoff_optimizer_hyper new_hyper(zoff_optimizer optimizer)
    {
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, optimizer);
        h.lr = 0.001 * (random() % 10);
        h.weight_decay = 0.1 * (random() % 2);
        h.decay = random() % 2 ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED;
        h.momentum = 0.5 * (random() % 2);
        h.nesterov = h.momentum > 0 && random() % 2;
        h.dampening = h.nesterov ? 0 : 0.25 * (random() % 2);
        h.lr_decay = 0.125 * (random() % 2);
        h.flags = random() % 4 ? 0 : ZOFF_HYPER_NO_BIAS_CORRECTION;
        return h;
    }

    void set_group()
    {
        unsigned g = random() % 3;
        zoff_optimizer_hyper h = new_hyper(random() % 3 ? groups[g].optimizer : (zoff_optimizer)(random() % 4));
        bool bad = random() % 6 == 0;
        if (bad)
            h.lr = -1;
        bool named = phase == BUILDING, used = false;
        for (unsigned i = 0; i < added; i++) {
            named = named || t.tensors[i].group >= g;
            used = used || (t.tensors[i].group == g && !t.tensors[i].frozen);
        }
        for (unsigned i : set)
            named = named || i >= g;
        // After seal a group with parameters keeps its optimizer, and cannot add momentum that it did not have.
        bool fits = phase == BUILDING || !used ||
                    (h.optimizer == sealed[g].optimizer && reference::keeps_m(h) <= reference::keeps_m(sealed[g]));
        zoff_status want = phase == OPEN ? ZOFF_ERR_STATE : !named || bad ? ZOFF_ERR_INVALID : fits ? ZOFF_OK : ZOFF_ERR_STATE;
        expect(want, zoff_engine_set_group(e.get(), g, &h), "group");
        if (want == ZOFF_OK) {
            groups[g] = h;
            set.push_back(g);
        }
    }

    std::mt19937 random;
    trainer t;
    engine e;
    std::vector<zoff_optimizer_hyper> groups, sealed; // groups: current values; sealed: values at seal
    std::vector<unsigned> set;                        // groups set by set_group
    std::vector<std::vector<bool>> ready;
    std::vector<std::vector<int>> lent; // number of times each slice is lent
    std::string history;
    enum phase phase = BUILDING;
    size_t added = 0;
    unsigned accumulation = 1, micro = 0;
    bool stop_asked = false, stop_told = false;
    struct { // values that zoff_step_wait() must return
        unsigned micro_step;
        bool stops;
        decltype(reference::step(t.tensors, groups, 1, 1, 1, 0)) update;
    } told = {};
    bool handed_over = false; // a gradient of the next micro-step was handed over
    double clip = 0;
    int64_t updates = 0;
};

// Drops all log lines: skipped steps log warnings, which are expected here.
void silence(zoff_log_level, const char *, const char *, void *) {}

void run_sequences(unsigned from, unsigned to, const std::string &folder)
{
    zoff_log_set(silence, nullptr);
    for (unsigned seed = from; seed < to && !testing::Test::HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        sequence(seed, folder).run(30);
    }
    zoff_log_set(nullptr, nullptr);
}

// Three thousand sequences each in a full run, a tenth by default.
class Model : public testing::TestWithParam<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(Seeds, Model, testing::Values(0u, 3000u, 6000u));

TEST_P(Model, RandomCallsInDram)
{
    run_sequences(GetParam(), GetParam() + share_of(3000), "");
}

TEST(ModelOnNvme, RandomCalls)
{
    scratch_folder folder;
    run_sequences(9000, 9000 + share_of(1000), folder.path);
    EXPECT_EQ(0, system(("test -z \"$(ls -A '" + folder.path + "')\"").c_str()));
}
} // namespace
