/* SPDX-License-Identifier: Apache-2.0 */
// life.cc: a small training that uses every kind of call that moves weights or states.
#include "life.h"

#include "config_text.h"

namespace combinations
{
life::life(const cell &c_, const std::string &folder_, zoff_comm *comm_, unsigned rank_, place &where_)
    : c(c_), folder(folder_), comm(comm_), rank(rank_), where(where_)
{
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        const tensor &t = TENSORS[i];
        const std::vector<char> first = numbers(t.dtype, t.total(), i, 1);
        firsts[i] = first;
        value[i] = where.alloc(first.size());
        where.put(value[i], first.data(), first.size());
        grad[i] = where.alloc(t.total() * bytes_of(t.grad_dtype));
    }
    where.wait();
}

life::~life()
{
    zoff_engine_destroy(engine);
    where.wait();
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        where.free(value[i]);
        where.free(grad[i]);
    }
}

bool life::fails(zoff_status status, const char *call)
{
    if (status >= 0)
        return false;
    words = std::string(call) + ": " + zoff_last_error();
    for (size_t at; (at = words.find(folder)) != std::string::npos;) // the folder's name differs between runs
        words.replace(at, folder.size(), "FOLDER");
    return true;
}

bool life::open()
{
    const std::string text = c.config(folder);
    zoff_config *config = nullptr;
    refused = true; // every failure up to seal counts as a refusal
    if (fails(zoff_test::config_from_text(text.data(), text.size(), "cell.json", &config), "configuration"))
        return false;
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    opts.accel = where.accel();
    opts.comm = comm;
    opts.chunk_elements = 1024;
    opts.threads = 1;
    const zoff_status created = zoff_engine_create(&opts, &engine);
    zoff_config_close(config);
    if (fails(created, "create"))
        return false;
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        const tensor &t = TENSORS[i];
        const bool owned = c.weights != "caller";
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.name = t.name;
        d.count = t.count;
        d.slices = t.slices;
        d.dtype = t.dtype;
        d.grad_dtype = t.grad_dtype;
        d.frozen = t.frozen;
        d.engine_owned = owned;
        d.value = owned ? firsts[i].data() : value[i];
        d.grad = t.frozen || owned ? nullptr : grad[i];
        if (fails(zoff_engine_add_param(engine, &d, nullptr), "add_param"))
            return false;
    }
    if (fails(zoff_engine_seal(engine), "seal"))
        return false;
    refused = false;
    return true;
}

// Fetch, read and release each slice, as a forward pass does with weights that the engine owns.
bool life::borrow_weights()
{
    if (c.weights == "caller")
        return true;
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        const tensor &t = TENSORS[i];
        for (size_t slice = 0; slice < t.slices; slice++) {
            const void *lent = nullptr;
            if (fails(zoff_param_fetch(engine, static_cast<zoff_param>(i), slice, where.stream(), &lent), "fetch"))
                return false;
            std::vector<char> here(t.count * bytes_of(t.dtype));
            where.get(here.data(), lent, here.size());
            sum.add(here.data(), here.size());
            if (fails(zoff_param_release(engine, static_cast<zoff_param>(i), slice, where.stream()), "release"))
                return false;
        }
    }
    return true;
}

bool life::hand_over(size_t i, size_t slice, unsigned round)
{
    const tensor &t = TENSORS[i];
    const std::vector<char> now = numbers(t.grad_dtype, t.count, 100 + round * 64 + rank * 16 + i * 4 + slice, 0.1);
    void *there = static_cast<char *>(grad[i]) + slice * now.size();
    if (c.weights != "caller" &&
        fails(zoff_grad_acquire(engine, static_cast<zoff_param>(i), slice, where.stream(), &there), "grad_acquire"))
        return false;
    where.put(there, now.data(), now.size());
    return !fails(zoff_grad_ready(engine, static_cast<zoff_param>(i), slice, where.stream()), "grad_ready");
}

// Gradients come last to first, as in a backward pass. In every third round one slice has none.
bool life::micro_step(unsigned step, unsigned micro)
{
    const unsigned round = step * c.micro + micro;
    if (!borrow_weights())
        return false;
    for (size_t i = TENSOR_COUNT; i-- > 0;) {
        for (size_t slice = TENSORS[i].slices; slice-- > 0;) {
            const bool left_out = i == 1 && slice == 1 && round % 3 == 2;
            if (!TENSORS[i].frozen && !left_out && !hand_over(i, slice, round))
                return false;
        }
    }
    zoff_step_info info = {};
    info.struct_size = sizeof info;
    if (fails(zoff_step(engine, nullptr, &info), "step"))
        return false;
    if (info.accumulated != (micro + 1 < c.micro)) {
        words = "step: it was to add up, and updated; or the other way round";
        return false;
    }
    sum.add(info.t);
    sum.add(info.skipped);
    if (!info.accumulated) {
        sum.add(info.numbers.grad_norm);
        sum.add(info.numbers.clip_factor);
    }
    return true;
}

bool life::add_weights()
{
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        std::vector<char> here(TENSORS[i].total() * bytes_of(TENSORS[i].dtype));
        if (c.weights == "caller")
            where.get(here.data(), value[i], here.size());
        else if (fails(zoff_param_read(engine, static_cast<zoff_param>(i), 0, TENSORS[i].total(), here.data()), "param_read"))
            return false;
        sum.add(here.data(), here.size());
    }
    return true;
}

bool life::add_states()
{
    for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
        for (size_t i = 0; i < TENSOR_COUNT; i++) {
            std::vector<float> here(TENSORS[i].total(), 0);
            const zoff_status status = TENSORS[i].frozen
                                           ? ZOFF_OK
                                           : zoff_state_read(engine, static_cast<zoff_param>(i),
                                                             static_cast<zoff_state_kind>(kind), 0, here.size(), here.data());
            if (fails(status, "state_read"))
                return false;
            sum.add(here.data(), here.size() * sizeof here[0]);
        }
    }
    return true;
}

// Change windows of states, and weights, between two steps.
bool life::change()
{
    const std::vector<float> some(900, 0.25f);
    if (fails(zoff_state_write(engine, 0, ZOFF_STATE_M, 50, some.size(), some.data()), "state_write") ||
        fails(zoff_state_write(engine, 1, ZOFF_STATE_MASTER, 600, some.size(), some.data()), "state_write") ||
        fails(zoff_state_flush(engine), "state_flush") || fails(zoff_params_push(engine), "push") || !add_weights())
        return false;
    const std::vector<char> others = numbers(TENSORS[2].dtype, 200, 77, 2);
    if (c.weights == "caller")
        where.put(static_cast<char *>(value[2]) + 100 * bytes_of(TENSORS[2].dtype), others.data(), others.size());
    else if (fails(zoff_param_write(engine, 2, 100, 200, others.data()), "param_write"))
        return false;
    where.wait();
    return !fails(zoff_params_pull(engine), "pull");
}

std::string life::run()
{
    enum { STEPS = 3 };
    bool good = open();
    for (unsigned step = 0; good && step < STEPS; step++) {
        for (unsigned micro = 0; good && micro < c.micro; micro++)
            good = micro_step(step, micro);
    }
    good = good && add_weights() && add_states() && change();
    for (unsigned micro = 0; good && micro < c.micro; micro++)
        good = micro_step(STEPS, micro);
    if (good && c.tier == "persist") { // another process opens the files and derives its weights from the states
        zoff_engine_destroy(engine);
        engine = nullptr;
        int64_t t = 0;
        good = open() && !fails(zoff_step_count(engine, &t), "step_count") && !fails(zoff_params_push(engine), "push");
        sum.add(t);
        for (unsigned micro = 0; good && micro < c.micro; micro++)
            good = micro_step(STEPS + 1, micro);
    }
    good = good && add_weights() && add_states();
    char text[32];
    snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum.value));
    return good ? text : (refused ? "refused: " : "error: ") + words;
}
} // namespace combinations
