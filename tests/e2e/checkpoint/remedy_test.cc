/* SPDX-License-Identifier: Apache-2.0 */
// remedy_test.cc: a run goes on with a model that differs from that of its checkpoint, by the remedy that the refusal names:
// zoff_checkpoint_opts.allow with the names in the message. States that are there are taken, and the rest stays as it was
// registered. An oracle computes both from the states of the engine that saved. With weights_only, of which the last test is,
// the engine goes on as a new one that has these weights, whatever optimizer and moments have saved them.
#include "covering.h"
#include "saved_run.h"

extern "C" {
#include "cpu_adam.h"
}

#include <map>
#include <set>

using namespace zoff_test;

namespace
{
enum change {
    THAWED,    // the parameter was frozen before
    FROZEN,    // the parameter is frozen now
    ROWS,      // more rows
    FEWER,     // fewer rows
    SLICES,    // more slices
    RESHAPED,  // other dims of the same elements
    UNRELATED, // other columns, so that no element has a place
    MISSING,
    EXTRA,
    RETYPED, // frozen in another type
    LACKING, // another optimizer: SGD with momentum has no v
    SURPLUS, // another optimizer: Lion has no v
    TIED,    // the parameter had states of its own, and is tied now
    CHANGES
};
const char *const CHANGE_NAMES[CHANGES] = {"thawed",  "frozen", "rows",    "fewer",   "slices",  "reshaped", "unrelated",
                                           "missing", "extra",  "retyped", "lacking", "surplus", "tied"};

struct side {
    unsigned world;
    zoff_dtype dtype;
    const char *moments;
    const char *place; // "host", "nvme", "persist"; "dram", "files": the engine owns the weights
    bool whole;        // fp32 masters also where they could be split
};

struct cell {
    change what;
    side from, to;
};

std::string name_of(zoff_dtype d)
{
    return d == ZOFF_F32 ? "fp32" : d == ZOFF_F16 ? "fp16" : "bf16";
}

std::string name(const side &s)
{
    return std::to_string(s.world) + "_" + name_of(s.dtype) + "_" + s.moments + "_" + s.place + (s.whole ? "_whole" : "");
}

std::string name(const cell &c)
{
    return std::string(CHANGE_NAMES[c.what]) + "_" + name(c.from) + "_to_" + name(c.to);
}

std::vector<side> sides()
{
    std::vector<side> all;
    for (const char *place : {"host", "nvme", "persist", "dram", "files"}) {
        for (zoff_dtype dtype : {ZOFF_BF16, ZOFF_F32, ZOFF_F16}) {
            for (const char *moments : {"fp32", "bf16", "m8v16", "q8"}) {
                const size_t i = all.size();
                all.push_back({1 + (unsigned)(i % 5 == 0), dtype, moments, place, i % 7 == 0});
            }
        }
    }
    return all;
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/Allowed.TakesWhatIsThere/", [](const cell &c) { return name(c); },
        [](const cell &c) {
            return covering<cell>::values{{"change", CHANGE_NAMES[c.what]},
                                          {"saving world", std::to_string(c.from.world)},
                                          {"loading world", std::to_string(c.to.world)},
                                          {"saved type", name_of(c.from.dtype)},
                                          {"loaded type", name_of(c.to.dtype)},
                                          {"saved moments", c.from.moments},
                                          {"loaded moments", c.to.moments},
                                          {"saved place", c.from.place},
                                          {"loaded place", c.to.place},
                                          {"saved masters", c.from.whole ? "fp32" : "auto"},
                                          {"loaded masters", c.to.whole ? "fp32" : "auto"}};
        },
        [](covering<cell> &cells) {
            const std::vector<side> every = sides();
            for (int what = 0; what < CHANGES; what++) {
                for (size_t i = 0; i < every.size(); i++) {
                    for (size_t k = (i * 5 + (size_t)what) % 13; k < every.size(); k += 13) {
                        cell c = {(change)what, every[i], every[k]};
                        auto has_blocks = [](const side &s) { return s.moments[0] == 'm' || s.moments[0] == 'q'; };
                        const bool is_adam = what != LACKING && what != SURPLUS; // 8 bits are for Adam
                        const bool is_owned = c.to.place == std::string("dram") || c.to.place == std::string("files");
                        if ((what == RETYPED && c.from.dtype == c.to.dtype) || (what == TIED && is_owned) ||
                            (!is_adam && (has_blocks(c.from) || has_blocks(c.to))))
                            continue;
                        cells.add(c);
                    }
                }
            }
        });
    return all;
}

// A parameter of a side.
struct described {
    std::string name;
    std::vector<size_t> dims;
    size_t slices;
    bool frozen;
    int tied_to = -1;
    size_t count() const
    {
        size_t product = 1;
        for (size_t d : dims)
            product *= d;
        return product;
    }
    size_t total() const { return count() * slices; }
};

std::vector<described> model(change what, bool is_new)
{
    std::vector<described> all = {{"first", {100, 60}, 1, false}, {"x", {100, 41}, 1, false}, {"last", {700}, 2, false}};
    described &x = all[1];
    switch (what) {
    case THAWED:
        x.frozen = !is_new;
        break;
    case FROZEN:
        x.frozen = is_new;
        break;
    case ROWS:
        x.dims[0] = is_new ? 150 : 100;
        break;
    case FEWER:
        x.dims[0] = is_new ? 100 : 150;
        break;
    case SLICES:
        x.slices = is_new ? 3 : 2;
        break;
    case RESHAPED:
        x.dims = is_new ? std::vector<size_t>{41, 100} : x.dims;
        break;
    case UNRELATED:
        x.dims[1] = is_new ? 42 : 41;
        break;
    case MISSING:
    case EXTRA:
        if (is_new == (what == EXTRA))
            all.erase(all.begin() + 1);
        break;
    case RETYPED:
        x.frozen = true;
        break;
    case TIED:
        x.dims = {100, 60};
        x.tied_to = is_new ? 0 : -1;
        break;
    default:
        break;
    }
    return all;
}

// The states of a parameter as fp32 numbers. A frozen one has weights alone, in `numbers[0]`.
struct stored {
    std::vector<float> numbers[3];
};

float rounded(float value, zoff_dtype dtype)
{
    uint16_t narrow = 0;
    float wide = value;
    zoff_cast_piece piece = {};
    piece.count = 1;
    piece.dst = &narrow;
    piece.src = &value;
    piece.dst_dtype = dtype;
    piece.src_dtype = ZOFF_F32;
    if (dtype == ZOFF_F32)
        return value;
    zoff_adam_cast_run(1, &piece, 1);
    std::swap(piece.dst_dtype, piece.src_dtype);
    piece.src = &narrow;
    piece.dst = &wide;
    zoff_adam_cast_run(1, &piece, 1);
    return wide;
}

class run
{
  public:
    run(const side &s_, const std::vector<described> &params_, const std::string &folder, const std::string &optimizer,
        float first)
        : s(s_), params(params_), job(s.world)
    {
        members.resize(s.world);
        job.on_each([&](unsigned rank) { open(rank, text(folder, optimizer), first); });
    }
    ~run()
    {
        job.on_each([&](unsigned rank) { members[rank].e.reset(); });
    }

    std::string text(const std::string &folder, const std::string &optimizer) const
    {
        const std::string place = s.place;
        const bool owned = place == "dram" || place == "files", files = place != "host" && place != "dram";
        return "{\"optimizer\": " + optimizer +
               ", \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": " + (owned ? "3" : "1") +
               ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" + (files ? "nvme" : "cpu") +
               "\", \"nvme_path\": \"" + folder + "\", \"buffer_count\": 3}" +
               (owned ? ", \"offload_param\": {\"device\": \"" + std::string(files ? "nvme" : "cpu") + "\", \"nvme_path\": \"" +
                            folder + "\", \"buffer_count\": 2, \"max_in_cpu\": 0}"
                      : "") +
               "}, \"zoff\": {\"persist\": " + (place == "persist" ? "true" : "false") + ", \"moments\": \"" + s.moments +
               "\", \"master\": \"" + (s.whole ? "fp32" : "auto") + "\"}}";
    }

    void step()
    {
        job.on_each([&](unsigned rank) {
            member &mine = members[rank];
            for (size_t i = 0; i < params.size(); i++) {
                fast_random random((unsigned)i + 7);
                for (size_t k = 0; k < params[i].total(); k++)
                    trainer::put(mine.grads[i].data(), s.dtype, k, random.normal());
                for (size_t slice = 0; slice < params[i].slices && !params[i].frozen; slice++)
                    EXPECT_ZOFF_OK(zoff_grad_ready(mine.e.get(), (zoff_param)i, slice, nullptr));
            }
            EXPECT_ZOFF_OK(zoff_step(mine.e.get(), nullptr, nullptr));
        });
    }

    // The states by name, which are the same on all ranks.
    std::map<std::string, stored> states()
    {
        std::map<std::string, stored> all;
        job.on_each([&](unsigned rank) {
            std::map<std::string, stored> mine;
            for (size_t i = 0; i < params.size(); i++)
                mine[params[i].name] = params[i].frozen ? weights_of(rank, i) : states_of(rank, i);
            if (rank == 0)
                all = mine;
        });
        return all;
    }

    // Set the masters of trained parameters.
    void give(const std::map<std::string, stored> &masters)
    {
        job.on_each([&](unsigned rank) {
            zoff_engine *e = members[rank].e.get();
            for (size_t i = 0; i < params.size(); i++) {
                const std::vector<float> &numbers = masters.at(params[i].name).numbers[0];
                if (params[i].frozen)
                    continue;
                EXPECT_ZOFF_OK(zoff_state_write(e, (zoff_param)i, ZOFF_STATE_MASTER, 0, numbers.size(), numbers.data()));
            }
            EXPECT_ZOFF_OK(zoff_params_push(e));
        });
    }

    std::vector<rank_result> call(const std::function<zoff_status(zoff_engine *e)> &what)
    {
        std::vector<rank_result> results(s.world);
        job.on_each([&](unsigned rank) {
            results[rank].status = what(members[rank].e.get());
            results[rank].words = zoff_last_error();
        });
        return results;
    }

    // Weights of trained parameters are their masters, rounded.
    void expect_weights()
    {
        const std::map<std::string, stored> all = states();
        job.on_each([&](unsigned rank) {
            for (size_t i = 0; i < params.size(); i++) {
                const std::vector<float> have = weights_of(rank, i).numbers[0];
                const std::vector<float> &want = all.at(params[i].name).numbers[0];
                for (size_t k = 0; k < have.size(); k++)
                    ASSERT_EQ(rounded(want[k], s.dtype), have[k]) << params[i].name << " " << k;
            }
        });
    }

    const side s;
    const std::vector<described> params;
    rank_job job;

  private:
    struct member {
        engine e;
        std::vector<std::vector<char>> values, grads;
    };

    void open(unsigned rank, const std::string &settings, float first)
    {
        member &mine = members[rank];
        const bool owned = s.place == std::string("dram") || s.place == std::string("files");
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.comm = job.comm_of(rank);
        opts.threads = 1;
        opts.chunk_elements = 3000;
        mine.e = make_engine(settings, opts);
        for (const described &p : params) {
            mine.values.emplace_back(p.total() * trainer::size(s.dtype) + 64);
            mine.grads.emplace_back(p.total() * trainer::size(s.dtype) + 64);
        }
        for (size_t i = 0; i < params.size(); i++) {
            const described &p = params[i];
            const size_t from = p.tied_to < 0 ? i : (size_t)p.tied_to;
            for (size_t k = 0; k < p.total(); k++)
                trainer::put(mine.values[from].data(), s.dtype, k, first + (float)(k % 97) / 128 + (float)from);
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = p.name.c_str();
            d.count = p.count();
            d.slices = p.slices;
            d.dims = p.dims.data();
            d.dim_count = p.dims.size();
            d.frozen = p.frozen;
            d.dtype = d.grad_dtype = s.dtype;
            d.value = mine.values[from].data();
            d.grad = mine.grads[i].data();
            d.engine_owned = owned;
            EXPECT_ZOFF_OK(zoff_engine_add_param(mine.e.get(), &d, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(mine.e.get()));
    }

    stored states_of(unsigned rank, size_t i)
    {
        stored one;
        for (unsigned kind = 0; kind < 3; kind++) {
            std::vector<float> numbers(params[i].total());
            const zoff_status status =
                zoff_state_read(members[rank].e.get(), (zoff_param)i, (zoff_state_kind)kind, 0, numbers.size(), numbers.data());
            if (status == ZOFF_OK)
                one.numbers[kind] = numbers;
            EXPECT_TRUE(status == ZOFF_OK || (kind && status == ZOFF_ERR_INVALID)) << zoff_last_error();
        }
        return one;
    }
    stored weights_of(unsigned rank, size_t i)
    {
        stored one;
        member &mine = members[rank];
        const size_t from = params[i].tied_to < 0 ? i : (size_t)params[i].tied_to;
        std::vector<char> bytes = mine.values[from];
        if (s.place == std::string("dram") || s.place == std::string("files")) {
            EXPECT_ZOFF_OK(zoff_param_read(mine.e.get(), (zoff_param)i, 0, params[i].total(), bytes.data()));
        }
        for (size_t k = 0; k < params[i].total(); k++)
            one.numbers[0].push_back(trainer::get(bytes.data(), s.dtype, k));
        return one;
    }

    std::vector<member> members;
};

// The names in the message of a refusal, separated by spaces.
std::string names_in(const std::string &words)
{
    std::string names;
    size_t at = words.find(" places: "), end;
    const size_t last = words.find(". zoff_checkpoint_opts.allow");
    EXPECT_NE(words.npos, last) << words;
    for (at = words.find('\'', at); at < last; at = words.find('\'', end + 1)) {
        end = words.find('\'', at + 1);
        names += words.substr(at + 1, end - at - 1) + " ";
    }
    return names;
}

// The number format of a moment. Short slices have no blocks.
zoff_moments format_of(const side &s, unsigned kind, size_t count)
{
    const std::string m = s.moments;
    if (m == "bf16")
        return ZOFF_MOMENTS_BF16;
    if (m == "fp32" || count < 4096)
        return ZOFF_MOMENTS_F32;
    return m == "q8" || kind == ZOFF_STATE_M ? ZOFF_MOMENTS_Q8 : ZOFF_MOMENTS_BF16;
}

// Round the moments of a slice as the engine stores them. Whole blocks that come from the same format stay as they are.
void store(float *numbers, size_t count, size_t taken, zoff_moments from, zoff_moments to, zoff_moment which)
{
    for (size_t at = 0, now; at < count; at += now) {
        now = std::min(count - at, (size_t)1024);
        if (from == to && (at + now <= taken || at >= taken))
            continue;
        std::vector<char> bytes(zoff_adam_moments_size(to, which, now));
        zoff_adam_moments_store(to, which, bytes.data(), now, 0, now, numbers + at);
        zoff_adam_moments_load(to, which, bytes.data(), 0, now, numbers + at);
    }
}

class Allowed : public testing::TestWithParam<cell>
{
  protected:
    static std::string optimizer(change what, bool is_new)
    {
        const bool is_sgd = what == LACKING && !is_new, is_lion = what == SURPLUS && is_new;
        return is_sgd    ? "{\"type\": \"SGD\", \"params\": {\"lr\": 0.01, \"momentum\": 0.9}}"
               : is_lion ? "{\"type\": \"Lion\", \"params\": {\"lr\": 0.01}}"
                         : "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}";
    }
    // The right states: `old` where the checkpoint has it, and `mine` elsewhere.
    static stored expected(const cell &c, const described &p, const described &was, const stored &old, const stored &mine)
    {
        stored want = mine;
        const bool is_split = c.from.dtype == ZOFF_BF16 && !c.from.whole && std::string(c.from.place) != "persist";
        const size_t count = std::min(p.count(), was.count()), slices = std::min(p.slices, was.slices);
        for (unsigned kind = 0; kind < (p.frozen ? 1 : 3); kind++) {
            if (old.numbers[kind].empty() || mine.numbers[kind].empty())
                continue;
            for (size_t slice = 0; slice < p.slices; slice++) {
                for (size_t k = 0; slice < slices && k < count; k++)
                    want.numbers[kind][slice * p.count() + k] = old.numbers[kind][slice * was.count() + k];
                const size_t first = slice * p.count();
                if (kind != ZOFF_STATE_MASTER)
                    store(&want.numbers[kind][first], p.count(), slice < slices ? count : 0,
                          format_of(c.from, kind, was.count()), format_of(c.to, kind, p.count()),
                          kind == ZOFF_STATE_M ? ZOFF_MOMENT_M : ZOFF_MOMENT_V);
                for (size_t k = 0; p.frozen && k < p.count(); k++) {
                    float &x = want.numbers[0][first + k];
                    x = rounded(!was.frozen && is_split && c.to.dtype != ZOFF_F32 ? rounded(x, ZOFF_BF16) : x, c.to.dtype);
                }
            }
        }
        return want;
    }
    static const described *find(const std::vector<described> &all, const std::string &wanted)
    {
        for (const described &p : all) {
            if (p.name == wanted)
                return &p;
        }
        return nullptr;
    }

    save_log log;
    scratch_folder folder, states, other_states;
};

INSTANTIATE_TEST_SUITE_P(Matrix, Allowed, testing::ValuesIn(matrix().cells()), [](const auto &one) { return name(one.param); });

TEST(AllowedCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(Allowed, TakesWhatIsThere)
{
    const cell &c = GetParam();
    std::map<std::string, stored> old;
    const char *path = folder.path.c_str();
    {
        run from(c.from, model(c.what, false), states.path, optimizer(c.what, false), 1);
        from.step();
        from.step();
        for (const rank_result &r : from.call([&](zoff_engine *e) { return zoff_checkpoint_save(e, path, nullptr); }))
            ASSERT_EQ(ZOFF_OK, r.status) << r.words;
        old = from.states();
    }
    run to(c.to, model(c.what, true), other_states.path, optimizer(c.what, true), -3);
    const std::map<std::string, stored> registered = to.states();
    std::string names;
    for (const rank_result &r : to.call([&](zoff_engine *e) { return zoff_checkpoint_load(e, path, nullptr); })) {
        ASSERT_EQ(ZOFF_ERR_INVALID, r.status) << r.words;
        names = names_in(r.words);
    }
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.allow = names.c_str();
    if (c.what != MISSING && c.what != EXTRA)
        log.expect("as zoff_checkpoint_opts.allow permits");
    if (c.what == LACKING || c.what == SURPLUS)
        log.expect("with other hyper-parameters, in ");
    for (const rank_result &r : to.call([&](zoff_engine *e) { return zoff_checkpoint_load(e, path, &opts); }))
        ASSERT_EQ(ZOFF_OK, r.status) << r.words;
    const std::map<std::string, stored> have = to.states();
    for (const described &p : to.params) {
        const std::string owner = p.tied_to < 0 ? p.name : to.params[(size_t)p.tied_to].name;
        const std::vector<described> before = model(c.what, false);
        const described *was = find(before, owner);
        const stored want = was && (c.what != UNRELATED || p.name != "x")
                                ? expected(c, p, *was, old.at(owner), registered.at(p.name))
                                : registered.at(p.name);
        for (unsigned kind = 0; kind < 3; kind++)
            EXPECT_EQ(want.numbers[kind], have.at(p.name).numbers[kind]) << p.name << " kind " << kind;
    }
    to.expect_weights();
    to.step();
    to.expect_weights();
}

// ---- weights only ----

const struct {
    const char *name, *settings;
    bool has_blocks; // moments in 8 bits are for it
} OPTIMIZERS[] = {{"adam", R"({"type": "Adam", "params": {"lr": 0.01}})", true},
                  {"adamw", R"({"type": "AdamW", "params": {"lr": 0.01}})", true},
                  {"lion", R"({"type": "Lion", "params": {"lr": 0.01}})", false},
                  {"adagrad", R"({"type": "Adagrad", "params": {"lr": 0.01, "initial_accumulator_value": 0.5}})", false},
                  {"sgd", R"({"type": "SGD", "params": {"lr": 0.01}})", false},
                  {"momentum", R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}})", false}};
enum { OPTIMIZER_COUNT = sizeof OPTIMIZERS / sizeof OPTIMIZERS[0] };

struct begun_anew {
    size_t before, now; // optimizers
    cell c;
    bool has_run; // the engine has taken steps before the load
};

std::string name(const begun_anew &b)
{
    return std::string(OPTIMIZERS[b.before].name) + "_" + OPTIMIZERS[b.now].name + "_" + name(b.c) + (b.has_run ? "_run" : "");
}

const covering<begun_anew> &new_states()
{
    static const covering<begun_anew> all(
        "Matrix/WeightsOnly.BeginAsANewEngine/", [](const begun_anew &b) { return name(b); },
        [](const begun_anew &b) {
            return covering<begun_anew>::values{
                {"optimizers", std::string(OPTIMIZERS[b.before].name) + " " + OPTIMIZERS[b.now].name},
                {"change", CHANGE_NAMES[b.c.what]},
                {"worlds", std::to_string(b.c.from.world) + " " + std::to_string(b.c.to.world)},
                {"saved moments", b.c.from.moments},
                {"moments", b.c.to.moments},
                {"type", name_of(b.c.to.dtype)},
                {"saved place", b.c.from.place},
                {"place", b.c.to.place},
                {"masters", b.c.to.whole ? "fp32" : "auto"},
                {"has run", b.has_run ? "yes" : "no"}};
        },
        [](covering<begun_anew> &cells) {
            static const change CHANGED[] = {SURPLUS, THAWED, FROZEN, ROWS}; // SURPLUS: the model is the same
            const std::vector<side> every = sides();
            for (size_t n = 0, pair = 0; pair < OPTIMIZER_COUNT * OPTIMIZER_COUNT; pair++) {
                const size_t before = pair / OPTIMIZER_COUNT, now = pair % OPTIMIZER_COUNT;
                for (size_t i = 0; i < every.size(); i++) {
                    for (size_t k = (i * 5 + pair) % 17; k < every.size(); k += 17, n++) {
                        auto fits = [](const side &s, size_t optimizer) {
                            return OPTIMIZERS[optimizer].has_blocks || (s.moments[0] != 'm' && s.moments[0] != 'q');
                        };
                        if (fits(every[i], before) && fits(every[k], now))
                            cells.add({before, now, {CHANGED[n % 4], every[i], every[k]}, n / 4 % 2 != 0});
                    }
                }
            }
        });
    return all;
}

class WeightsOnly : public testing::TestWithParam<begun_anew>
{
  protected:
    save_log log;
    scratch_folder folder, states, other_states, new_states;
};
INSTANTIATE_TEST_SUITE_P(Matrix, WeightsOnly, testing::ValuesIn(new_states().cells()),
                         [](const auto &one) { return name(one.param); });

TEST(WeightsOnlyCells, CoverAllPairs)
{
    new_states().expect_all_pairs();
}

TEST_P(WeightsOnly, BeginAsANewEngine)
{
    const begun_anew &b = GetParam();
    const cell &c = b.c;
    const char *path = folder.path.c_str();
    std::map<std::string, stored> old;
    {
        run from(c.from, model(c.what, false), states.path, OPTIMIZERS[b.before].settings, 1);
        from.step();
        from.step();
        for (const rank_result &r : from.call([&](zoff_engine *e) { return zoff_checkpoint_save(e, path, nullptr); }))
            ASSERT_EQ(ZOFF_OK, r.status) << r.words;
        old = from.states();
    }
    run to(c.to, model(c.what, true), other_states.path, OPTIMIZERS[b.now].settings, -3);
    if (b.has_run)
        to.step();
    std::map<std::string, stored> wanted = to.states(); // rows that are new stay
    for (auto &[name, one] : wanted)
        std::copy(old.at(name).numbers[0].begin(), old.at(name).numbers[0].end(), one.numbers[0].begin());
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.weights_only = true;
    if (c.what == ROWS) {
        opts.allow = "x";
        log.expect("as zoff_checkpoint_opts.allow permits");
    }
    for (const rank_result &r : to.call([&](zoff_engine *e) { return zoff_checkpoint_load(e, path, &opts); }))
        ASSERT_EQ(ZOFF_OK, r.status) << r.words;
    run fresh(c.to, model(c.what, true), new_states.path, OPTIMIZERS[b.now].settings, -3);
    fresh.give(wanted);
    for (int64_t t = 0; t < 3 && !HasFailure(); t++) {
        for (const rank_result &r : to.call([&](zoff_engine *e) {
                 int64_t count = -1;
                 EXPECT_ZOFF_OK(zoff_step_count(e, &count));
                 EXPECT_EQ(t, count);
                 return ZOFF_OK;
             }))
            ASSERT_EQ(ZOFF_OK, r.status);
        const std::map<std::string, stored> have = to.states(), want = fresh.states();
        for (const described &p : to.params) {
            EXPECT_EQ(t > 0 || p.frozen || have.at(p.name).numbers[0] == wanted.at(p.name).numbers[0], true) << p.name;
            for (unsigned kind = 0; kind < 3 && !p.frozen; kind++)
                EXPECT_TRUE(want.at(p.name).numbers[kind] == have.at(p.name).numbers[kind])
                    << t << " " << p.name << " " << kind;
        }
        to.expect_weights();
        to.step();
        fresh.step();
    }
}

// The loss scale stays, a schedule begins again, and bytes of the program come where they are asked for.
TEST(WeightsOnlyFacts, AreThoseOfTheEngineThatLoads)
{
    save_log log;
    const scratch_folder folder;
    const std::string settings = R"({"fp16": {"enabled": true, "initial_scale_power": 4},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1, "warmup_num_steps": 8, "warmup_type": "linear"}}})";
    int64_t position = 7;
    const zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
    std::vector<uint16_t> values[2], grad(3);
    engine engines[2];
    for (int i = 0; i < 2; i++) {
        values[i].assign(3, i ? 0x3c00 : 0x4000);
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = "w";
        d.count = grad.size();
        d.dtype = d.grad_dtype = ZOFF_F16;
        d.value = values[i].data();
        d.grad = grad.data();
        engines[i] = make_engine(settings, ZOFF_ENGINE_OPTS_INIT);
        ASSERT_ZOFF_OK(zoff_engine_add_param(engines[i].get(), &d, nullptr));
        ASSERT_ZOFF_OK(zoff_engine_seal(engines[i].get()));
    }
    zoff_engine *const from = engines[0].get(), *const to = engines[1].get();
    scaler.scale = 1024;
    scaler.hysteresis = 2;
    scaler.last_overflow = -1;
    ASSERT_ZOFF_OK(zoff_loss_scaler_set(from, &scaler));
    ASSERT_ZOFF_OK(zoff_step_count_set(from, 5));
    opts.data = &data;
    opts.data_count = 1;
    ASSERT_ZOFF_OK(zoff_checkpoint_save(from, folder.path.c_str(), &opts));
    for (const bool asks : {false, true}) {
        position = 0;
        opts.data_count = asks;
        opts.weights_only = true;
        ASSERT_ZOFF_OK(zoff_checkpoint_load(to, folder.path.c_str(), &opts));
        EXPECT_EQ(asks ? 7 : 0, position);
        EXPECT_EQ(values[0], values[1]);
        ASSERT_ZOFF_OK(zoff_loss_scaler_get(to, &scaler));
        EXPECT_EQ(16, scaler.scale);
        zoff_step_info info = ZOFF_STEP_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_step(to, nullptr, &info));
        EXPECT_EQ(1, info.t);
        EXPECT_LT(info.numbers.lr, 0.3); // 6 / 8 with the number of updates of the checkpoint
    }
}
} // namespace
