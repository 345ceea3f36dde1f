/* SPDX-License-Identifier: Apache-2.0 */
// life.cc: opens engines and compares them with the reference.
#include "life.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

using namespace sim;

// Stays until the process ends.
char *sim::allocate(size_t bytes)
{
    char *at = static_cast<char *>(aligned_alloc(64, (bytes + 127) / 64 * 64));
    memset(at, 0x11, bytes);
    return at;
}

void sim::put(char *at, zoff_dtype dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (dtype == ZOFF_F32) {
        memcpy(at, &bits, 4);
        return;
    }
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (dtype == ZOFF_F16) {
        const uint32_t exponent = bits >> 23 & 255, sign = bits >> 16 & 0x8000, digits = bits >> 13 & 0x3ff;
        half = static_cast<uint16_t>(sign | (exponent < 113   ? 0
                                             : exponent < 143 ? (exponent - 112) << 10 | digits
                                             : isnan(x)       ? 0x7e00
                                                              : 0x7c00));
    }
    memcpy(at, &half, 2);
}

bool sim::is_same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void life::stop(int code, const std::string &text)
{
    char trace[TRACE_DIGITS + 1];
    snprintf(trace, sizeof trace, "%016llx", (unsigned long long)world_trace());
    (void)!write(out, trace, TRACE_DIGITS);
    (void)!write(out, text.data(), text.size());
    _exit(code);
}

void life::fail(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    stop(FOUND, std::string(text) + "\n  in: " + now + (ranks > 1 ? "\n  on rank " + std::to_string(rank) : "") + "\n");
}

void life::say(const char *format, ...)
{
    if (!with.is_loud)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

// ---- the model and its engines ----

void life::add_param(const line &l)
{
    auto q = std::make_unique<param>();
    q->name = l.name;
    q->count = l.number("count", 1);
    q->slices = std::max<uint64_t>(l.number("slices", 1), 1);
    q->stride = q->count + l.number("pad");
    q->dtype = static_cast<zoff_dtype>(l.number("dtype", 1));
    q->grad_dtype = static_cast<zoff_dtype>(l.number("grad", l.number("dtype", 1)));
    q->group = static_cast<unsigned>(l.number("group"));
    q->engine = engines == 2 && l.number("engine") ? 1 : 0;
    q->frozen = l.number("frozen");
    q->owned = l.number("owned");
    q->lent = l.number("lent");
    q->reduced = l.number("reduced");
    q->seed = l.number("seed");
    const uint64_t rows = l.number("rows");
    if (rows && q->count && q->count % rows == 0) {
        q->dims[0] = rows;
        q->dims[1] = q->count / rows;
    }
    for (const auto &other : params) {
        const bool can = l.has("tie") && other->name == l.fields.at("tie") && !other->tie && !other->owned && !other->frozen;
        if (other->name == q->name)
            return;
        if (!can || !other->count)
            continue;
        const bool lent = q->lent;
        const zoff_dtype grad_dtype = q->grad_dtype;
        *q = *other;
        q->name = l.name;
        q->tie = other.get();
        q->lent = lent;
        q->grad_dtype = grad_dtype;
    }
    q->grad_stride = q->count + l.number("gpad");
    if (!q->tie) {
        dice d(q->seed);
        q->value = allocate(q->value_bytes());
        q->ref_value = allocate(q->value_bytes());
        for (size_t i = 0; i < q->slices * q->stride; i++)
            put(q->value + i * width_of(q->dtype), q->dtype, static_cast<float>(d.unit() - 0.5));
        memcpy(q->ref_value, q->value, q->value_bytes());
        c("static _Alignas(64) char %s_value[%zu];", q->name.c_str(), q->value_bytes() + 1);
        c("fill(%s_value, %d, %zu, %lluu, 1);", q->name.c_str(), q->dtype, q->slices * q->stride, (unsigned long long)q->seed);
    }
    c("static _Alignas(64) char %s_grad[%zu];\n    zoff_param %s;", q->name.c_str(), q->grad_bytes() + 1, q->name.c_str());
    q->grad = allocate(q->grad_bytes());
    q->ref_grad = allocate(q->grad_bytes());
    memset(q->grad, 0, q->grad_bytes());
    memset(q->ref_grad, 0, q->grad_bytes());
    q->given.assign(q->slices, 0);
    params.push_back(std::move(q));
}

void life::describe()
{
    for (const std::string &text : p) {
        const line l(text);
        if (l.verb == "engines")
            engines = l.name == "2" ? 2 : 1;
        if (l.verb == "device" && !device)
            ok(zoff_accel_open("emulated", 0, &device), "zoff_accel_open()"),
                c("OK(zoff_accel_open(\"emulated\", 0, &device));");
        if (l.verb == "both")
            both.emplace_back(l.name, l.rest);
        if (l.verb == "both" && l.name == "gradient_accumulation_steps")
            micro_steps = static_cast<unsigned>(strtoul(l.rest.c_str(), nullptr, 10));
        if (l.verb == "opts") {
            chunk = l.number("chunk");
            host_bytes = l.number("host_bytes");
            progress_thread = l.number("progress_thread");
        }
        if (l.verb == "set" && !ref)
            own.emplace_back(l.name, l.rest);
        persist = persist || (l.verb == "set" && l.name == "zoff.persist");
        crashes = crashes || text.find(" fault=kill") != std::string::npos || text.find(" fault=power") != std::string::npos;
        if (l.verb == "set" && l.name == "zoff.durability")
            outlives_power = l.rest == "\"power\"";
        limits_live = limits_live || (l.verb == "set" && l.name == "zero_optimization.stage3_max_live_parameters");
    }
    crashes = crashes && persist && engines == 1;
    for (const std::string &text : p) {
        if (line(text).verb == "param")
            add_param(line(text));
    }
}

static std::string quoted(const std::string &text)
{
    std::string out = "\"";
    for (const char one : text)
        out += (one == '"' ? "\\" : "") + std::string(1, one);
    return out + "\"";
}

zoff_config *life::config(int engine)
{
    const bool is_ref = engine < 0;
    zoff_config *made = nullptr;
    if (!is_ref)
        c("OK(zoff_config_open(NULL, &config));");
    ok(repeat([&] { return zoff_config_open(nullptr, &made); }), "zoff_config_open()");
    const auto set = [&](const std::string &key, std::string value) {
        if (!is_ref)
            c("set(config, \"%s\", %s, \"%s\");", key.c_str(), quoted(value).c_str(), engine ? "b" : "a");
        for (size_t at; (at = value.find('$')) != std::string::npos;)
            value.replace(at, 1, folder + (engine ? "/b" : "/a"));
        if (repeat([&] { return zoff_config_set(made, key.c_str(), value.c_str()); }) != ZOFF_OK)
            stop(REFUSED, std::string(zoff_last_error()) + "\n");
    };
    for (const auto &[key, value] : both)
        set(key, value);
    if (is_ref)
        set("zoff.threads", "1");
    for (const auto &[key, value] : own) {
        if (!is_ref || key == "zoff.master")
            set(key, value);
    }
    return made;
}

zoff_param_desc life::desc(const param &q, bool is_ref) const
{
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    d.name = q.name.c_str();
    d.value = is_ref ? q.ref_value : q.value;
    d.grad = is_ref ? q.ref_grad : q.lent ? nullptr : q.grad;
    d.count = q.count;
    d.slices = q.slices;
    d.value_stride = q.stride;
    d.grad_stride = q.grad_stride;
    d.dtype = q.dtype;
    d.grad_dtype = q.grad_dtype;
    d.group = q.group;
    d.frozen = q.frozen;
    d.reduced = q.reduced;
    d.engine_owned = !is_ref && q.owned;
    d.dims = q.dims[0] ? q.dims : nullptr;
    d.dim_count = q.dims[0] ? 2 : 0;
    return d;
}

void life::open_ref()
{
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config = config(-1);
    opts.comm = ref_comm;
    if (zoff_engine_create(&opts, &ref) != ZOFF_OK)
        stop(REFUSED, std::string(zoff_last_error()) + "\n");
    zoff_config_close(opts.config);
    for (const auto &q : params) {
        const zoff_param_desc d = desc(*q, true);
        if (zoff_engine_add_param(ref, &d, &q->ref_id) != ZOFF_OK)
            stop(REFUSED, std::string(zoff_last_error()) + "\n");
    }
    if (zoff_engine_seal(ref) != ZOFF_OK)
        stop(REFUSED, std::string(zoff_last_error()) + "\n");
}

void life::c_add(const param &q)
{
    const std::string n = q.name;
    c("desc = (zoff_param_desc)ZOFF_PARAM_DESC_INIT;\n    desc.name = \"%s\";\n    desc.value = %s_value;", n.c_str(),
      (q.tie ? q.tie : &q)->name.c_str());
    if (!q.lent)
        c("desc.grad = %s_grad;", n.c_str());
    c("desc.count = %zu;\n    desc.slices = %zu;\n    desc.value_stride = %zu;\n    desc.grad_stride = %zu;", q.count, q.slices,
      q.stride, q.grad_stride);
    c("desc.dtype = %d;\n    desc.grad_dtype = %d;\n    desc.group = %u;\n    desc.frozen = %d;\n    desc.engine_owned = %d;",
      q.dtype, q.grad_dtype, q.group, q.frozen, q.owned);
    if (q.dims[0])
        c("desc.dims = (const size_t[]){%zu, %zu};\n    desc.dim_count = 2;", q.dims[0], q.dims[1]);
    c("OK(zoff_engine_add_param(e[%u], &desc, &%s));", q.engine, n.c_str());
}

zoff_status life::open_one(unsigned e)
{
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config = config(static_cast<int>(e));
    opts.accel = device;
    opts.comm = comm;
    opts.chunk_elements = chunk;
    opts.host_bytes = host_bytes;
    opts.progress_thread = progress_thread;
    c("opts = (zoff_engine_opts)ZOFF_ENGINE_OPTS_INIT;\n    opts.config = config;\n    opts.accel = device;\n    opts.comm = "
      "comm;");
    c("opts.chunk_elements = %llu;\n    opts.host_bytes = %llu;\n    opts.progress_thread = %d;", (unsigned long long)chunk,
      (unsigned long long)host_bytes, progress_thread);
    c("OK(zoff_engine_create(&opts, &e[%u]));\n    zoff_config_close(config);", e);
    zoff_status status = zoff_engine_create(&opts, &tested[e]);
    zoff_config_close(opts.config);
    for (const auto &q : params) {
        const zoff_param_desc d = desc(*q, false);
        q->unbound = q->unbound && q->engine != e;
        if (status == ZOFF_OK && q->engine == e)
            status = zoff_engine_add_param(tested[e], &d, &q->id), c_add(*q);
    }
    c("OK(zoff_engine_seal(e[%u]));", e);
    if (status == ZOFF_OK)
        status = zoff_engine_seal(tested[e]);
    if (status != ZOFF_OK) {
        const std::string why = zoff_last_error();
        zoff_engine_destroy(tested[e]);
        tested[e] = nullptr;
        last_error = why;
    }
    return status;
}

void life::open(bool again)
{
    for (unsigned e = 0; e < engines; e++) {
        if (repeat([&] { return open_one(e); }) == ZOFF_OK)
            continue;
        if (again)
            fail("the engine does not open again: %s", last_error.c_str());
        stop(REFUSED, last_error + "\n");
    }
}

// ---- what must be the same ----

void life::compare_weights(int engine)
{
    std::vector<char> copy;
    for (const auto &q : params) {
        const size_t bytes = q->count * width_of(q->dtype);
        copy.resize(bytes);
        if (engine >= 0 && (q->owned || q->engine != static_cast<unsigned>(engine)))
            continue;
        for (size_t s = 0; s < q->slices && q->count; s++) {
            const char *have = q->value + s * q->stride * width_of(q->dtype),
                       *want = q->ref_value + s * q->stride * width_of(q->dtype);
            if (q->owned)
                c("OK(zoff_param_read(e[%u], %s, %zu, %zu, bytes));", q->engine, q->name.c_str(), s * q->count, q->count);
            if (engine < 0)
                c_same(*q, s);
            if (q->owned) {
                persist_in("zoff_param_read()",
                           [&] { return zoff_param_read(tested[q->engine], q->id, s * q->count, q->count, copy.data()); });
                have = copy.data();
            }
            for (size_t k = 0; memcmp(have, want, bytes) != 0 && k < q->count; k++) {
                const size_t at = k * width_of(q->dtype);
                float x, y;
                if (memcmp(have + at, want + at, width_of(q->dtype)) == 0)
                    continue;
                memcpy(&x, have + at, width_of(q->dtype));
                memcpy(&y, want + at, width_of(q->dtype));
                if (q->dtype != ZOFF_F32 || !isnan(x) || !isnan(y))
                    fail("weights differ: element %zu of %zu, slice %zu of %s", k, q->count, s, q->name.c_str());
            }
        }
    }
}

void life::compare_counts()
{
    int64_t want, have;
    double want_scale, have_scale;
    ok(zoff_step_count(ref, &want), "zoff_step_count() of the reference");
    ok(zoff_loss_scale(ref, &want_scale), "zoff_loss_scale() of the reference");
    for (unsigned e = 0; e < engines; e++) {
        persist_in("zoff_step_count()", [&] { return zoff_step_count(tested[e], &have); });
        if (have != want)
            fail("counts differ: engine %u has made %lld updates, the reference %lld", e, (long long)have, (long long)want);
        persist_in("zoff_loss_scale()", [&] { return zoff_loss_scale(tested[e], &have_scale); });
        if (!is_same(have_scale, want_scale))
            fail("loss scales differ: engine %u has %g, the reference %g", e, have_scale, want_scale);
    }
}

void life::compare_states(param &q, int kind, size_t first, size_t count, bool may_refuse)
{
    std::vector<float> have(count + 1), want(count + 1);
    const auto state = static_cast<zoff_state_kind>(kind);
    const zoff_status expected = zoff_state_read(ref, q.ref_id, state, first, count, want.data());
    zoff_status status = zoff_state_read(tested[q.engine], q.id, state, first, count, have.data());
    while (status != expected && is_explained(status)) {
        disarm();
        status = zoff_state_read(tested[q.engine], q.id, state, first, count, have.data());
    }
    if (may_refuse && status == ZOFF_ERR_STATE)
        return;
    if (status != expected)
        fail("zoff_state_read() of kind %d of %s returns %d, and for the reference %d: %s", kind, q.name.c_str(), status,
             expected, zoff_last_error());
    for (size_t k = 0; status == ZOFF_OK && k < count; k++) {
        if (memcmp(&have[k], &want[k], sizeof(float)) != 0 && !(isnan(have[k]) && isnan(want[k])))
            fail("states differ: kind %d of %s, element %zu: %a, and for the reference %a", kind, q.name.c_str(), first + k,
                 have[k], want[k]);
    }
}

void life::read_states(const line &l, bool all)
{
    dice d(l.number("seed"));
    for (const auto &q : params) {
        const size_t count = q->count * q->slices;
        for (int kind = 0; kind < 3; kind++) {
            const size_t first = all ? 0 : d.below(count + 1);
            if (all || d.chance(50))
                compare_states(*q, kind, first, all ? count : d.below(count - first + 1), false);
        }
    }
}

void life::operation(const line &l)
{
    if (saving && (l.verb == "read" || l.verb == "progress")) {
        c("(void)zoff_checkpoint_poll(saving);");
        (void)zoff_checkpoint_poll(saving); // the wait returns its error
    }
    if (l.verb == "step")
        step(l);
    else if (l.verb == "states")
        states(l);
    else if (l.verb == "pull")
        pull(l);
    else if (l.verb == "move")
        move(l);
    else if (l.verb == "save")
        save(l);
    else if (l.verb == "load")
        load(l);
    else if (l.verb == "reopen")
        reopen(l);
    else if (l.verb == "group")
        group(l);
    if (l.verb == "read" && !micro) {
        arm(l);
        read_states(l, false);
    }
    for (uint64_t k = l.verb == "progress" ? l.number("turns", 1) : 0; k; k--) {
        for (unsigned e = 0; e < engines; e++) {
            const zoff_status status = zoff_engine_progress(tested[e]);
            c("(void)zoff_engine_progress(e[%u]);", e);
            if (status < 0 && !is_explained(status))
                fail("zoff_engine_progress(): %s", zoff_last_error());
        }
    }
    disarm();
}

void life::live()
{
    now = "open";
    describe();
    open_ref();
    open_book();
    if (number)
        after_crash();
    else
        open(false);
    for (; here < p.size(); here++) {
        const std::string &text = p[here];
        if (!is_operation(text))
            continue;
        now = text;
        note();
        say("%s", text.c_str());
        c("\n    /* %s */", text.c_str());
        world_operation();
        operation(line(text));
    }
    now = "end";
    world_operation();
    finish_save();
    if (!micro) {
        read_states(line("read"), true);
        compare_counts();
    }
    c("zoff_engine_destroy(e[0]);\n    zoff_engine_destroy(e[1]);");
    for (zoff_engine *e : tested)
        zoff_engine_destroy(e);
    zoff_engine_destroy(ref);
}

void life::run()
{
    const line first(p.empty() ? "world" : p[0]);
    world_opts opts;
    opts.seed = first.number("seed") + number;
    opts.stay = static_cast<unsigned>(first.number("stay", 4));
    setenv("ZOFF_AIO", "threads", 1); // files of checkpoints, too: io_uring is not of the world
    zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    for (const char *name : {"/a0", "/a1", "/b0", "/b1"})
        mkdir((folder + name).c_str(), 0700);
    world_start(
        opts, [this](const std::string &how) { fail("%s", how.c_str()); }, [this] { stop(CRASHED, ""); });
    for (const std::string &text : p) {
        if (text.find(" fault=power") != std::string::npos)
            world_remember();
        if (line(text).verb == "ranks")
            ranks = static_cast<unsigned>(std::clamp(atoi(line(text).name.c_str()), 1, 8));
    }
    std::vector<zoff_comm *> comms(ranks), ref_comms(ranks);
    std::vector<std::unique_ptr<life>> others;
    std::vector<pthread_t> threads(ranks);
    for (unsigned r = 0; ranks > 1 && r < ranks; r++) {
        if (r == 0) {
            ok(zoff_comm_open_threads(nullptr, ranks, comms.data()), "zoff_comm_open_threads()");
            ok(zoff_comm_open_threads(nullptr, ranks, ref_comms.data()), "zoff_comm_open_threads()");
        }
        life *one = this;
        if (r) {
            others.push_back(std::make_unique<life>(p, folder, out, run_opts{false, with.writes_c}, number));
            one = others.back().get();
        }
        one->rank = r;
        one->ranks = ranks;
        one->comm = comms[r];
        one->ref_comm = ref_comms[r];
        const auto begin = [](void *ctx) -> void * { return static_cast<life *>(ctx)->live(), nullptr; };
        if (r && pthread_create(&threads[r], nullptr, begin, one) != 0)
            fail("no thread for rank %u", r);
    }
    live();
    for (unsigned r = 1; r < ranks; r++)
        pthread_join(threads[r], nullptr);
    stop(FINE, world_was_hit() ? HIT : "");
}

void sim::run_program(const program &p, const std::string &folder, int out, run_opts opts, unsigned number)
{
    life one(p, folder, out, opts, number);
    one.run();
}
