/* SPDX-License-Identifier: Apache-2.0 */
// bindings_test.cc: calls about the buffers and weights of single parameters, in every tier and over ranks: ZOFF_NO_GRAD,
// ZOFF_BIND_MOVED, zoff_grads_hand_over(), zoff_param_pull() and zoff_params_wait(). The oracle is an engine whose buffers
// never move, and whose program hands gradients over one by one.
#include "rank_job.h"

#include <string.h>

#include <algorithm>
#include <cmath>

using namespace zoff_test;

namespace
{
struct cell {
    const char *name;
    const char *place; // "host", "nvme", "persist", "device", "ratio": a share of the states on the device
    zoff_dtype dtype;
    unsigned world = 1, stage = 0, accumulation = 1;
    bool owned = false; // one more parameter, whose weights the engine owns
    const char *more = "";
};

const cell CELLS[] = {
    {"host_fp32", "host", ZOFF_F32},
    {"host_bf16", "host", ZOFF_BF16, 1, 0, 2},
    {"host_bf16_whole", "host", ZOFF_BF16, 1, 0, 1, false, "\"master\": \"fp32\""},
    {"host_bf16_ahead", "host", ZOFF_BF16, 1, 0, 1, false, "\"speculation_memory\": \"64MiB\", \"background_threads\": 1"},
    {"host_fp16", "host", ZOFF_F16, 1, 0, 1},
    {"host_bf16_owned", "host", ZOFF_BF16, 1, 3, 1, true},
    {"nvme_fp32", "nvme", ZOFF_F32, 1, 0, 2},
    {"nvme_bf16", "nvme", ZOFF_BF16},
    {"nvme_fp16_owned", "nvme", ZOFF_F16, 1, 3, 1, true},
    {"persist_fp32", "persist", ZOFF_F32},
    {"persist_bf16", "persist", ZOFF_BF16, 1, 0, 2},
    {"device_fp32", "device", ZOFF_F32, 1, 0, 1},
    {"device_bf16", "device", ZOFF_BF16, 1, 0, 2},
    {"ratio_bf16", "ratio", ZOFF_BF16, 1, 0, 1},
    {"ranks_stage0_bf16", "host", ZOFF_BF16, 2, 0, 1},
    {"ranks_stage1_fp32", "host", ZOFF_F32, 2, 1, 2},
    {"ranks_stage2_bf16", "nvme", ZOFF_BF16, 2, 2, 2},
    {"ranks_stage3_bf16_owned", "host", ZOFF_BF16, 2, 3, 1, true},
    {"ranks_persist_fp32", "persist", ZOFF_F32, 2, 2, 1},
    {"ranks_device_fp16", "device", ZOFF_F16, 2, 2, 1},
};

enum way {
    FIXED, // buffers never move; gradients are handed over one by one
    BINDS, // all buffers move; each is bound, and a missing gradient is ZOFF_NO_GRAD
    LISTS  // all buffers move; one list says so
};

struct tensor {
    const char *name;
    size_t count, slices;
    bool frozen = false, owned = false;
    int tied_to = -1;
    std::vector<char> first; // weights at the beginning
    char *value = nullptr;

    size_t total() const { return count * slices; }
};

// The parameters of one rank, and its engine. Buffers are on the device if there is one.
struct worker {
    worker(const cell &c_, unsigned rank_) : c(c_), rank(rank_)
    {
        tensors = {{"a", 1300, 3}, {"b", 5000, 1}, {"in", 700, 2}, {"frozen", 64, 1, true}, {"out", 700, 2}, {"c", 40, 1}};
        tensors[4].tied_to = 2;
        if (c.owned)
            tensors.push_back({"owned", 900, 2, false, true});
        for (tensor &t : tensors) {
            t.first.resize(t.total() * trainer::size(c.dtype));
            for (size_t k = 0; k < t.total(); k++)
                trainer::put(t.first.data(), c.dtype, k, std::sin((float)k + (float)t.name[0]));
        }
        if (on_device()) {
            device = std::make_unique<test_device>(rank + 1);
            memory = device->memory();
        }
    }
    bool on_device() const { return c.place == std::string("device") || c.place == std::string("ratio"); }
    char *alloc(size_t bytes) { return on_device() ? memory->alloc(bytes) : (char *)malloc(bytes); }
    void put(char *to, const void *from, size_t bytes)
    {
        on_device() ? device->copy(to, from, bytes) : (void)memcpy(to, from, bytes);
    }
    void get(void *to, const char *from, size_t bytes)
    {
        on_device() ? device->copy(to, from, bytes) : (void)memcpy(to, from, bytes);
    }
    // Nobody may read the memory any more.
    void drop(char *at, size_t bytes)
    {
        const std::vector<char> poison(bytes, 0x7f);
        put(at, poison.data(), bytes);
        if (!on_device())
            free(at);
    }
    size_t bytes_of(const tensor &t) const { return t.total() * trainer::size(c.dtype); }

    void open(zoff_comm *comm, const std::string &folder)
    {
        const bool persists = c.place == std::string("persist"), in_files = persists || c.place == std::string("nvme");
        std::string text = config_text(in_files ? folder : "", c.accumulation,
                                       std::string(", \"zoff\": {") + (persists ? "\"persist\": true" : c.more) + "}");
        const std::string stage = "\"stage\": " + std::to_string(c.stage);
        if (in_files)
            text.replace(text.find("\"stage\": 1"), 10, stage);
        else if (c.place == std::string("ratio"))
            text = with_ratio(text, 0.5);
        else
            text.insert(1, "\"zero_optimization\": {" + stage + "}, ");
        zoff_engine_opts opts = {};
        opts.chunk_elements = 1024;
        opts.threads = 1;
        opts.comm = comm;
        opts.accel = device ? device->accel : nullptr;
        e = make_engine(text, opts);
        if (grads.empty()) { // room for the gradients of all parameters, of which a step uses another part than the one before
            for (const tensor &t : tensors)
                room += t.total() * sizeof(float) + 64;
            grads = {alloc(2 * room)};
        }
        size_t at = 0;
        for (tensor &t : tensors) {
            if (t.tied_to >= 0)
                t.value = tensors[(size_t)t.tied_to].value;
            else if (!t.value && !t.owned)
                put(t.value = alloc(bytes_of(t)), t.first.data(), bytes_of(t));
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = t.name;
            d.value = t.owned ? t.first.data() : t.value;
            d.grad = t.frozen || t.owned ? nullptr : grads[0] + at;
            at += t.total() * sizeof(float) + 64;
            d.count = t.count;
            d.slices = t.slices;
            d.dtype = c.dtype;
            d.grad_dtype = ZOFF_F32;
            d.frozen = t.frozen;
            d.engine_owned = t.owned;
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }

    // Which gradients a micro-step has: in the first ones all, and then others each time.
    bool has(unsigned micro, size_t i) const
    {
        return !tensors[i].frozen && !tensors[i].owned && (micro < 2 || (micro * 5 + i * 3 + rank) % 4 != 0);
    }
    std::vector<float> gradient(unsigned micro, size_t i) const
    {
        std::vector<float> g(tensors[i].total());
        for (size_t k = 0; k < g.size(); k++)
            g[k] = std::round(64 * std::cos((float)k * 0.37f + (float)(micro * 7 + i + rank))) / 64;
        return g;
    }
    void take_step(unsigned number, way how)
    {
        for (unsigned micro = number * c.accumulation; micro < (number + 1) * c.accumulation; micro++)
            ASSERT_NO_FATAL_FAILURE(micro_step(micro, how));
    }
    void micro_step(unsigned micro, way how)
    {
        std::vector<zoff_handover> list;
        size_t at = how == FIXED ? 0 : micro * 4096 % room / 64 * 64;
        std::vector<std::pair<char *, size_t>> old;
        for (size_t i = 0; i < tensors.size(); i++) {
            tensor &t = tensors[i];
            char *grad = grads[0] + at, *value = nullptr;
            if (has(micro, i)) {
                const std::vector<float> numbers = gradient(micro, i);
                put(grad, numbers.data(), numbers.size() * sizeof(float));
            }
            if (how == FIXED || has(micro, i)) /* others use the memory of a gradient that is missing */
                at += t.total() * sizeof(float) + 64;
            if (how == FIXED)
                continue;
            if (!t.owned && t.tied_to < 0) {
                std::vector<char> bytes(bytes_of(t));
                get(bytes.data(), t.value, bytes.size());
                put(value = alloc(bytes.size()), bytes.data(), bytes.size());
                drop(t.value, bytes.size());
                t.value = value;
                for (tensor &other : tensors)
                    other.value = other.tied_to == (int)i ? value : other.value;
            }
            if (how == BINDS) {
                ASSERT_ZOFF_OK(zoff_param_bind_opts(e.get(), (zoff_param)i, value, has(micro, i) ? grad : ZOFF_NO_GRAD,
                                                    value ? (unsigned)ZOFF_BIND_MOVED : 0u));
                continue;
            }
            zoff_handover h = ZOFF_HANDOVER_INIT;
            h.param = (zoff_param)i;
            h.flags = value ? (unsigned)ZOFF_BIND_MOVED : 0u;
            h.value = value;
            h.grad = has(micro, i) ? grad : ZOFF_NO_GRAD;
            h.native_stream = on_device() ? device->stream : nullptr;
            for (h.slice = 0; has(micro, i) && h.slice < t.slices; h.slice++)
                list.push_back(h);
            if (!has(micro, i) && value)
                list.push_back(h);
        }
        if (how == LISTS) {
            ASSERT_ZOFF_OK(zoff_grads_hand_over(e.get(), list.data(), sizeof list[0], list.size()));
        }
        for (size_t i = 0; how == FIXED && i < tensors.size(); i++) {
            for (size_t slice = 0; has(micro, i) && slice < tensors[i].slices; slice++)
                ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), (zoff_param)i, slice, on_device() ? device->stream : nullptr));
        }
        if (how == BINDS) {
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            return;
        }
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    }
    std::vector<char> weights(size_t i)
    {
        std::vector<char> bytes(bytes_of(tensors[i]));
        if (tensors[i].owned) {
            EXPECT_ZOFF_OK(zoff_param_read(e.get(), (zoff_param)i, 0, tensors[i].total(), bytes.data()));
        } else {
            get(bytes.data(), tensors[i].value, bytes.size());
        }
        return bytes;
    }
    std::vector<float> state(size_t i, zoff_state_kind kind)
    {
        std::vector<float> numbers(tensors[i].total());
        EXPECT_ZOFF_OK(zoff_state_read(e.get(), (zoff_param)i, kind, 0, numbers.size(), numbers.data()));
        return numbers;
    }
    // Everything about the trained parameters.
    std::vector<std::vector<float>> states()
    {
        std::vector<std::vector<float>> all;
        for (size_t i = 0; i < tensors.size(); i++) {
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                if (!tensors[i].frozen)
                    all.push_back(state(i, kind));
            }
        }
        return all;
    }
    // The program changes weights of a parameter.
    void change(size_t i)
    {
        std::vector<char> bytes(bytes_of(tensors[i]));
        for (size_t k = 0; k < tensors[i].total(); k++)
            trainer::put(bytes.data(), c.dtype, k, std::cos((float)k));
        put(tensors[i].value, bytes.data(), bytes.size());
    }
    ~worker()
    {
        e.reset();
        for (tensor &t : tensors) {
            if (!on_device() && t.tied_to < 0)
                free(t.value);
        }
        if (!on_device())
            free(grads.empty() ? nullptr : grads[0]);
    }

    const cell &c;
    const unsigned rank;
    std::vector<tensor> tensors;
    std::unique_ptr<test_device> device;
    std::shared_ptr<device_memory> memory;
    std::vector<char *> grads;
    size_t room = 0;
    engine e;
};

struct team {
    explicit team(const cell &c) : job(c.world)
    {
        for (unsigned rank = 0; rank < c.world; rank++)
            workers.push_back(std::make_unique<worker>(c, rank));
        open();
    }
    void open()
    {
        each([&](worker &w) { w.open(workers.size() > 1 ? job.comm_of(w.rank) : nullptr, folder.path); });
    }
    void close()
    {
        each([](worker &w) { w.e.reset(); });
    }
    void each(const std::function<void(worker &)> &run)
    {
        job.on_each([&](unsigned rank) { run(*workers[rank]); });
    }
    void step(unsigned number, way how)
    {
        each([&](worker &w) { w.take_step(number, how); });
    }
    std::vector<std::vector<float>> states()
    {
        std::vector<std::vector<std::vector<float>>> all(workers.size());
        each([&](worker &w) { all[w.rank] = w.states(); });
        for (const auto &one : all)
            EXPECT_EQ(all[0], one) << "ranks agree";
        return all[0];
    }
    void expect_weights_of(team &other)
    {
        for (size_t i = 0; i < workers[0]->tensors.size(); i++) {
            std::vector<std::vector<char>> want(workers.size()), have(workers.size());
            other.each([&](worker &w) { want[w.rank] = w.weights(i); });
            each([&](worker &w) { have[w.rank] = w.weights(i); });
            for (size_t rank = 0; rank < have.size(); rank++)
                EXPECT_TRUE(want[0] == have[rank]) << workers[0]->tensors[i].name << " of rank " << rank;
        }
    }
    ~team() { close(); }

    scratch_folder folder;
    rank_job job;
    std::vector<std::unique_ptr<worker>> workers;
};

class Bindings : public testing::TestWithParam<cell>
{
  protected:
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Cells, Bindings, testing::ValuesIn(CELLS), [](const auto &p) { return std::string(p.param.name); });

// The old buffers are poisoned and freed before the engine hears of new ones, and gradients come and go.
TEST_P(Bindings, MovedBuffersAndMissingGradientsTrainAsFixedOnes)
{
    team want(GetParam()), binds(GetParam()), lists(GetParam());
    for (unsigned number = 0; number < 6; number++) {
        want.step(number, FIXED);
        binds.step(number, BINDS);
        lists.step(number, LISTS);
        ASSERT_NO_FATAL_FAILURE(binds.expect_weights_of(want)) << "step " << number;
        ASSERT_NO_FATAL_FAILURE(lists.expect_weights_of(want)) << "step " << number;
        if (HasFailure())
            return;
    }
    const auto states = want.states();
    EXPECT_TRUE(states == binds.states());
    EXPECT_TRUE(states == lists.states());
}

// One after the other they do what one call does for all. Masters that were not pulled keep all bits.
TEST_P(Bindings, OneParameterIsPulled)
{
    team one(GetParam()), all(GetParam());
    for (team *t : {&one, &all}) {
        t->step(0, FIXED);
        t->step(1, FIXED);
    }
    const auto before = one.states();
    auto want = before;
    for (size_t i : {0, 4}) { // `out` is another name of `in`
        one.each([&](worker &w) {
            w.change(i);
            ASSERT_ZOFF_OK(zoff_param_pull(w.e.get(), (zoff_param)i));
        });
        all.each([&](worker &w) { w.change(i); });
        for (const size_t name : {i, i ? (size_t)2 : i}) {
            const std::vector<char> bytes = one.workers[0]->weights(i);
            std::vector<float> &masters = want[3 * (name > 3 ? name - 1 : name)];
            for (size_t k = 0; k < masters.size(); k++)
                masters[k] = trainer::get(bytes.data(), GetParam().dtype, k);
        }
    }
    EXPECT_TRUE(want == one.states()) << "only the masters of two parameters have changed";
    one.each([](worker &w) { ASSERT_ZOFF_OK(zoff_params_push(w.e.get())); });
    EXPECT_TRUE(want == one.states()) << "the weights are those of the masters";
    all.each([](worker &w) { ASSERT_ZOFF_OK(zoff_params_pull(w.e.get())); });
    one.each([](worker &w) {
        for (zoff_param p = 0; p < w.tensors.size(); p++)
            ASSERT_ZOFF_OK(zoff_param_pull(w.e.get(), p)) << p;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_param_pull: there is no parameter 99", zoff_param_pull(w.e.get(), 99));
    });
    EXPECT_TRUE(all.states() == one.states());
    for (team *t : {&one, &all})
        t->step(2, FIXED);
    ASSERT_NO_FATAL_FAILURE(one.expect_weights_of(all));
    EXPECT_TRUE(all.states() == one.states());
}

// The masters are in no step: a flush, or the end of the engine, records them.
TEST_P(Bindings, PulledMastersAreFound)
{
    if (GetParam().place != std::string("persist"))
        return;
    for (const bool flushes : {true, false}) {
        team t(GetParam());
        t.step(0, FIXED);
        t.each([&](worker &w) {
            w.change(1);
            ASSERT_ZOFF_OK(zoff_param_pull(w.e.get(), 1));
            ASSERT_ZOFF_OK(flushes ? zoff_state_flush(w.e.get()) : ZOFF_OK);
        });
        t.close();
        const std::vector<char> changed = t.workers[0]->tensors[1].first, had = [&] {
            std::vector<char> bytes(t.workers[0]->bytes_of(t.workers[0]->tensors[1]));
            t.workers[0]->get(bytes.data(), t.workers[0]->tensors[1].value, bytes.size());
            return bytes;
        }();
        t.each([](worker &w) { memset(w.tensors[1].value, 0, w.bytes_of(w.tensors[1])); });
        t.open();
        t.each([&](worker &w) {
            w.change(0); // weights of this run, and the states of the others
            ASSERT_ZOFF_OK(zoff_param_pull(w.e.get(), 0));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the weights may be others", zoff_step(w.e.get(), nullptr, nullptr));
            ASSERT_ZOFF_OK(zoff_params_push(w.e.get()));
            EXPECT_TRUE(had == w.weights(1)) << w.rank;
            const std::vector<char> mine = w.weights(0);
            EXPECT_EQ(1.0f, trainer::get(mine.data(), w.c.dtype, 0)) << "cos(0)";
        });
    }
}

// In an open step, the weights of a layer are new when the call returns.
TEST_P(Bindings, ALayerIsWaitedFor)
{
    team t(GetParam());
    t.each([](worker &w) {
        for (size_t i = 0; i < w.tensors.size(); i++) {
            const std::vector<float> numbers = w.gradient(0, i);
            size_t at = 0;
            for (size_t k = 0; k < i; k++)
                at += w.tensors[k].total() * sizeof(float) + 64;
            w.put(w.grads[0] + at, numbers.data(), numbers.size() * sizeof(float));
        }
        for (unsigned micro = 1; micro < w.c.accumulation; micro++)
            ASSERT_ZOFF_OK(zoff_step(w.e.get(), nullptr, nullptr));
        for (zoff_param p = 0; p < 6; p++) {
            for (size_t slice = 0; p != 3 && slice < w.tensors[p].slices; slice++)
                ASSERT_ZOFF_OK(zoff_grad_ready(w.e.get(), p, slice, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_step_begin(w.e.get(), nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_params_wait: there is no slice 1 of parameter 1",
                          zoff_params_wait(w.e.get(), 0, 3, 1, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "there are no 9 parameters from 1 on",
                          zoff_params_wait(w.e.get(), 1, 9, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_params_wait(w.e.get(), 0, 6, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_params_wait(w.e.get(), 0, 0, 0, nullptr));
        std::vector<std::vector<char>> early;
        for (size_t i = 0; i < 6; i++)
            early.push_back(w.weights(i));
        ASSERT_ZOFF_OK(zoff_step_wait(w.e.get(), nullptr));
        for (size_t i = 0; i < 6; i++) {
            const std::vector<char> late = w.weights(i);
            const size_t bytes = w.tensors[i].count * trainer::size(w.c.dtype); // slice 0
            EXPECT_TRUE(std::equal(late.begin(), late.begin() + (ptrdiff_t)bytes, early[i].begin())) << w.tensors[i].name;
            EXPECT_EQ(i == 3, late == w.tensors[i].first) << w.tensors[i].name;
        }
        if (w.c.owned) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "owned are the engine's", zoff_params_wait(w.e.get(), 5, 2, 0, nullptr));
        }
    });
}

// A rank that leaves the pull out is told so, where all ranks record the masters together.
TEST(BindingsRanks, PullTheSameParameters)
{
    log_catcher log;
    for (const cell &c : CELLS) {
        if (c.name != std::string("ranks_persist_fp32"))
            continue;
        log.expect("since the last commit is lost"); // on rank 0
        team t(c);
        t.each([](worker &w) {
            EXPECT_ZOFF_OK(w.rank == 0 ? zoff_param_pull(w.e.get(), 1) : ZOFF_OK);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "zoff_param_pull()", zoff_step(w.e.get(), nullptr, nullptr));
        });
    }
}

// Nothing of a list acts before all of it is right.
TEST(BindingsList, EachMistakeIsNamedAndChangesNothing)
{
    const cell &c = CELLS[0];
    log_catcher log;
    team t(c);
    t.step(0, FIXED);
    worker &w = *t.workers[0];
    zoff_engine *e = w.e.get();
    std::vector<float> g[3] = {std::vector<float>(3900, 1), std::vector<float>(5000, 1), std::vector<float>(1400, 1)};
    const std::vector<char> before = w.weights(0);
    std::vector<zoff_handover> list(3);
    for (size_t i = 0; i < 3; i++) {
        list[i].struct_size = sizeof list[i];
        list[i].param = (zoff_param)i;
        list[i].grad = g[i].data();
    }
    const auto refuses = [&](zoff_status status, const char *words, const std::function<void(zoff_handover &)> &spoil) {
        std::vector<zoff_handover> wrong = list;
        spoil(wrong[2]);
        EXPECT_ZOFF_FAILS(status, words, zoff_grads_hand_over(e, wrong.data(), sizeof wrong[0], wrong.size()));
    };
    using entry = zoff_handover;
    refuses(ZOFF_ERR_INVALID, "zoff_grads_hand_over: entry 2: there is no parameter 77", [](entry &h) { h.param = 77; });
    refuses(ZOFF_ERR_INVALID, "zoff_grads_hand_over: entry 2: there is no slice 2 of parameter 2",
            [](entry &h) { h.slice = 2; });
    refuses(ZOFF_ERR_INVALID, "entry 2: in: value and grad must be aligned", [](entry &h) { h.grad = (char *)h.grad + 1; });
    refuses(ZOFF_ERR_INVALID, "entry 2: unknown flags 0x6 for in", [](entry &h) { h.flags = 6; });
    refuses(ZOFF_ERR_INVALID, "entry 2: ZOFF_BIND_MOVED says that in has a new buffer",
            [](entry &h) { h.flags = ZOFF_BIND_MOVED; });
    refuses(ZOFF_ERR_INVALID, "entry 2: accelerator \"host\" has no streams", [&](entry &h) { h.native_stream = &h; });
    refuses(ZOFF_ERR_STATE, "entry 2: frozen has no gradient buffer", [](entry &h) { h.param = 3, h.grad = nullptr; });
    refuses(ZOFF_ERR_INVALID, "entry 2: b has other buffers or flags than in entry 1", [](entry &h) { h.param = 1; });
    refuses(ZOFF_ERR_INVALID, "entry 2: b has other buffers or flags than in entry 1",
            [](entry &h) { h.param = 1, h.grad = ZOFF_NO_GRAD; });
    refuses(ZOFF_ERR_INVALID, "entry 2: slice 0 of b is in the list twice", [](entry &h) { h.param = 1, h.grad = nullptr; });
    refuses(ZOFF_ERR_INVALID, "entry 2: zoff_handover.struct_size", [](entry &h) { h.struct_size = 0; });
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "pass sizeof *list", zoff_grads_hand_over(e, list.data(), 8, 3));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "list must not be NULL", zoff_grads_hand_over(e, nullptr, 48, 3));
    // Nothing was bound: gradients come from the old buffers, and none is ready.
    ASSERT_ZOFF_OK(zoff_grads_drop(e));
    ASSERT_ZOFF_OK(zoff_grad_ready(e, 1, 0, nullptr));
    refuses(ZOFF_ERR_STATE, "entry 1: slice 0 of b was handed over", [](entry &) {});
    ASSERT_ZOFF_OK(zoff_grads_hand_over(e, list.data(), sizeof list[0], 1)) << "the rest in another list: b stays";
    ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_FALSE(before == w.weights(0)) << "slice 0";
    // An empty list takes all gradients away, so the step updates nothing.
    log.expect("updates nothing");
    const std::vector<char> last = w.weights(1);
    ASSERT_ZOFF_OK(zoff_grads_hand_over(e, nullptr, 0, 0));
    ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_TRUE(last == w.weights(1));
}

// Without memory of the device to lend there is one way out: a buffer of the program.
TEST(BindingsDevice, MemoryIsNotLentWhereNoneWasReserved)
{
    log_catcher log;
    for (const cell &c : CELLS) {
        if (c.name != std::string("device_fp32"))
            continue;
        team t(c);
        worker &w = *t.workers[0];
        void *lent;
        ASSERT_ZOFF_OK(zoff_param_bind(w.e.get(), 1, nullptr, ZOFF_NO_GRAD));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "reserved no memory of the device to lend",
                          zoff_grad_acquire(w.e.get(), 1, 0, nullptr, &lent));
        ASSERT_ZOFF_OK(zoff_param_bind(w.e.get(), 1, nullptr, w.grads[0] + w.room));
        ASSERT_ZOFF_OK(zoff_step(w.e.get(), nullptr, nullptr));
    }
}
} // namespace
