/* SPDX-License-Identifier: Apache-2.0 */
// phases_test.cc: every public call with an engine in every phase, and beside everything else that may be under way: gradients
// handed over, micro-steps done, weights lent, a reopened engine, a save. The table ZOFF_CALLS says which are refused. A
// refused call changes nothing: training goes on to the same bytes as without it.
#include "aio_fault.h"
#include "covering.h"
#include "small_engine.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
struct rule {
    const char *name, *phases;
    unsigned needs;
};
#define LINE(call, name, phases, needs) {name, phases, needs},
const rule RULES[] = {ZOFF_CALLS(LINE)};

// The declarations in the public headers, without comments.
std::string declarations()
{
    std::string all;
    DIR *folder = opendir(ZOFF_HEADERS);
    while (const dirent *entry = readdir(folder)) {
        std::ifstream file(std::string(ZOFF_HEADERS) + "/" + entry->d_name);
        std::stringstream text;
        text << file.rdbuf();
        all += text.str();
    }
    closedir(folder);
    return std::regex_replace(all, std::regex("/\\*[^*]*\\*+([^/*][^*]*\\*+)*/"), "");
}

TEST(Phases, TheTableHasALineForEachCall)
{
    std::set<std::string> declared, listed;
    const std::string text = declarations();
    const std::regex call("ZOFF_API[^;(]*\\b(zoff_\\w+)\\((const )?zoff_engine \\*e\\b");
    for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i)
        declared.insert((*i)[1]);
    for (const rule &r : RULES) {
        EXPECT_TRUE(listed.insert(r.name).second) << r.name;
        EXPECT_EQ(9u, strlen(r.phases)) << r.name;
        EXPECT_EQ(std::string::npos, std::string(r.phases).find_first_not_of("+-fe")) << r.name;
    }
    EXPECT_EQ(declared, listed);
    EXPECT_LT(38u, listed.size());
}

enum situation {
    BUILDING,
    IDLE,
    OPEN,
    FAILED,
    MEASURED,
    UNLOADED,
    LOST,
    UNSENT,
    UNTOLD, // up to here the columns of the table
    TOLD,
    HANDED,
    MICRO,
    REOPENED,
    ON_LOAN,
    SAVING,
    SITUATIONS
};
const char *const NAMES[SITUATIONS] = {"building", "idle", "open",   "failed", "measured", "unloaded", "lost",  "unsent",
                                       "untold",   "told", "handed", "micro",  "reopened", "on_loan",  "saving"};

// LOST and UNSENT need other ranks, and UNLOADED a damaged disk: there the phase alone is set.
bool is_set_by_hand(situation when)
{
    return when == UNLOADED || when == LOST || when == UNSENT;
}

// A small model, whose gradients depend on the number of the step and micro-step alone: a step that is repeated is the same.
class subject
{
  public:
    enum { COUNT = 700, SLICES = 3, OWN = 0, ENGINES = 1, LENT = 2, LAST = 3 };
    subject(const std::string &tier_, unsigned accumulation_, const std::string &folder_)
        : tier(tier_), folder(folder_), accumulation(accumulation_), own(COUNT * SLICES, 0.5f), first(COUNT * SLICES, 0.25f),
          grads(2 * COUNT * SLICES)
    {
        open();
    }
    void open()
    {
        std::string text = config_text(
            tier == "dram" ? "" : folder, accumulation,
            std::string(", \"fp16\": {\"enabled\": true, \"loss_scale\": 8}, \"zoff\": {\"persist\": ") +
                (tier == "persist" ? "true" : "false") + ", \"durability\": \"process\", \"io_backend\": \"posix\"}");
        zoff_engine_opts opts = {};
        opts.chunk_elements = 1024;
        opts.threads = 1;
        e = make_engine(text, opts);
        zoff_param_desc d[3] = {{}, {}, {}};
        for (auto &one : d) {
            one.struct_size = sizeof one;
            one.count = COUNT;
            one.slices = SLICES;
        }
        d[OWN].value = own.data();
        d[OWN].grad = grads.data();
        d[ENGINES].value = first.data();
        d[ENGINES].grad = grads.data() + COUNT * SLICES;
        d[ENGINES].engine_owned = true;
        d[LENT].value = lent_weights;
        d[LENT].count = 8;
        d[LENT].slices = 1;
        for (const auto &one : d) {
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &one, nullptr));
        }
    }
    void fill()
    {
        const int64_t number = t() * accumulation + (int64_t)e->transfer.batch.micro;
        for (size_t k = 0; k < grads.size(); k++)
            grads[k] = 8.0f * sinf((float)(number * 131 + (int64_t)k)); // times the loss scale
    }
    int64_t t() const { return e->t; }
    void hand_over()
    {
        fill();
        for (zoff_param p : {OWN, ENGINES})
            for (size_t slice = 0; slice < SLICES; slice++) {
                ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), p, slice, nullptr));
            }
    }
    void step()
    {
        fill();
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    void update()
    {
        for (unsigned i = 0; i < accumulation; i++) {
            ASSERT_NO_FATAL_FAILURE(step());
        }
    }
    // From any phase that is not lost to the end of step LAST.
    void finish()
    {
        for (int turns = 0; t() < LAST || e->life.phase != ZOFF_PHASE_IDLE || e->life.is_untold; turns++) {
            ASSERT_LT(turns, 40);
            while (e->lending.cache.lent && e->life.phase == ZOFF_PHASE_IDLE) {
                ASSERT_ZOFF_OK(zoff_param_release(e.get(), ENGINES, 0, nullptr));
            }
            if (save) {
                EXPECT_ZOFF_OK(zoff_checkpoint_wait(save));
                save = nullptr;
            }
            zoff_step_args args = ZOFF_STEP_ARGS_INIT;
            args.norm_sum = &sum;
            if (e->life.phase == ZOFF_PHASE_BUILDING) {
                ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            } else if (e->life.phase == ZOFF_PHASE_OPEN || e->life.is_untold) {
                ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
            } else if (e->life.phase == ZOFF_PHASE_FAILED) {
                ASSERT_ZOFF_OK(zoff_step_retry(e.get(), nullptr));
            } else if (e->life.phase == ZOFF_PHASE_MEASURED) {
                ASSERT_ZOFF_OK(zoff_step(e.get(), &args, nullptr));
            } else if (e->life.awaits_weights && e->transfer.batch.handed_over) {
                ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
            } else if (e->life.awaits_weights) {
                ASSERT_ZOFF_OK(zoff_params_push(e.get()));
            } else if (e->transfer.batch.handed_over) {
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            } else {
                ASSERT_NO_FATAL_FAILURE(step());
            }
        }
    }
    std::vector<float> state(zoff_param p, zoff_state_kind kind)
    {
        std::vector<float> x(COUNT * SLICES);
        EXPECT_ZOFF_OK(zoff_state_read(e.get(), p, kind, 0, x.size(), x.data()));
        return x;
    }
    // All states and weights.
    std::vector<float> numbers()
    {
        std::vector<float> all = own, x(COUNT * SLICES);
        for (zoff_param p : {OWN, ENGINES}) {
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                const auto one = state(p, kind);
                all.insert(all.end(), one.begin(), one.end());
            }
        }
        EXPECT_ZOFF_OK(zoff_param_read(e.get(), ENGINES, 0, x.size(), x.data()));
        all.insert(all.end(), x.begin(), x.end());
        return all;
    }

    void begin()
    {
        ASSERT_NO_FATAL_FAILURE(hand_over());
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    }
    void bring_to(situation when)
    {
        if (when == BUILDING)
            return;
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        ASSERT_NO_FATAL_FAILURE(update());
        const void *weights;
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        if (is_set_by_hand(when))
            e->life.phase = (zoff_phase)when;
        if (when == OPEN || when == UNTOLD) {
            ASSERT_NO_FATAL_FAILURE(begin());
        }
        if (when == UNTOLD) {
            ASSERT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &scaler));
        }
        if (when == FAILED || when == TOLD) {
            ASSERT_NO_FATAL_FAILURE(fail());
        }
        if (when == TOLD) {
            ASSERT_EQ(ZOFF_ERR_IO, zoff_step_wait(e.get(), nullptr));
        }
        if (when == MEASURED) {
            fill();
            ASSERT_ZOFF_OK(zoff_step_measure(e.get(), nullptr, &sum));
        }
        if (when == HANDED) {
            ASSERT_NO_FATAL_FAILURE(hand_over());
        }
        if (when == MICRO) {
            ASSERT_NO_FATAL_FAILURE(step());
        }
        if (when == REOPENED) {
            ASSERT_NO_FATAL_FAILURE(reopen());
        }
        if (when == ON_LOAN) {
            ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), ENGINES, 0, nullptr, &weights));
        }
        if (when == SAVING) {
            ASSERT_ZOFF_OK(zoff_checkpoint_begin(e.get(), (folder + "/saving").c_str(), nullptr, &save));
        }
    }
    void fail()
    {
        aio_fault fault;
        ASSERT_NO_FATAL_FAILURE(begin());
        fault.result = [](int, int, bool, uint64_t, size_t) { return -EIO; };
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT; // the call finishes the step
        ASSERT_EQ(ZOFF_ERR_IO, zoff_loss_scaler_get(e.get(), &scaler)) << zoff_last_error();
        ASSERT_EQ(ZOFF_PHASE_FAILED, e->life.phase);
    }
    void reopen()
    {
        e.reset();
        own.assign(own.size(), -42.0f);
        ASSERT_NO_FATAL_FAILURE(open());
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }

    const std::string tier, folder;
    const unsigned accumulation;
    std::vector<float> own, first, grads;
    float lent_weights[8] = {};
    zoff_norm_sum sum = {};
    zoff_checkpoint *save = nullptr;
    engine e;
};

// States and weights after each step, and a checkpoint of the first one.
struct path {
    path() : run("dram", 1, folder.path), halves("dram", 2, folder.path)
    {
        EXPECT_ZOFF_OK(zoff_engine_seal(run.e.get()));
        for (int64_t t = 0; t <= subject::LAST; t++) {
            if (t == 1) {
                EXPECT_ZOFF_OK(zoff_checkpoint_save(run.e.get(), (folder.path + "/base").c_str(), nullptr));
            }
            after[t] = run.numbers();
            m[t] = run.state(subject::OWN, ZOFF_STATE_M);
            weights[t] = run.state(subject::ENGINES, ZOFF_STATE_MASTER);
            if (t < subject::LAST)
                run.update();
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(halves.e.get()));
        halves.finish();
        of_halves = halves.numbers();
    }
    scratch_folder folder;
    subject run, halves;
    std::map<int64_t, std::vector<float>> after, m, weights;
    std::vector<float> of_halves;
};

// The calls, with arguments that change nothing: what is written is what is there.
class Phases : public testing::TestWithParam<std::tuple<const char *, int>>
{
  protected:
    Phases() { log.expect("but param0 is fp32"); }
    static void SetUpTestSuite()
    {
        log_catcher quiet;
        quiet.expect("but param0 is fp32");
        reference = new path;
    }
    static void TearDownTestSuite() { delete reference; }

    // The number of the step whose states a legal call meets.
    int64_t t_of(const subject &s) const { return s.t() + (s.e->life.phase == ZOFF_PHASE_OPEN); }

    // A new gradient may be written.
    void renew(subject &s)
    {
        if (s.e->life.phase == ZOFF_PHASE_IDLE && !s.e->life.is_untold && !s.e->transfer.batch.handed_over)
            s.fill();
    }

    zoff_status call(subject &s, const std::string &name)
    {
        zoff_engine *e = s.e.get();
        const auto is = [&](const char *other) { return name == std::string("zoff_") + other; };
        zoff_param_desc extra = {};
        extra.struct_size = sizeof extra;
        extra.value = more;
        extra.count = 4;
        extra.frozen = true;
        zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        zoff_step_args joined = ZOFF_STEP_ARGS_INIT;
        zoff_norm_sum sum;
        zoff_optimizer_hyper hyper;
        char text[64];
        double scale;
        int64_t count;
        const void *weights;
        void *grad;
        zoff_param param;
        std::vector<float> x(s.own.size());
        const zoff_step_args *args = s.e->life.phase == ZOFF_PHASE_MEASURED ? &joined : nullptr;
        joined.norm_sum = &s.sum;
        zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_ADAM);
        scaler.scale = 8;
        scaler.last_overflow = -1;
        scaler.hysteresis = 1;
        if (is("engine_add_param"))
            return zoff_engine_add_param(e, &extra, nullptr);
        if (is("engine_seal"))
            return zoff_engine_seal(e);
        if (is("engine_get_group"))
            return zoff_engine_get_group(e, 0, 0, &hyper);
        if (is("engine_set_group"))
            return zoff_engine_get_group(e, 0, 0, &hyper) < 0 ? ZOFF_ERR_INVALID : zoff_engine_set_group(e, 0, &hyper);
        if (is("engine_set_lr"))
            return zoff_engine_set_lr(e, 0, ZOFF_KEEP);
        if (is("engine_find_param"))
            return zoff_engine_find_param(e, s.e->model.params[0].name, &param);
        if (is("engine_error"))
            return zoff_engine_error(e) ? ZOFF_OK : ZOFF_ERR_INVALID;
        if (is("engine_plan"))
            return zoff_engine_plan(e, &plan);
        if (is("engine_comm"))
            return zoff_engine_comm(e) ? ZOFF_OK : ZOFF_ERR_INVALID;
        if (is("engine_progress"))
            return zoff_engine_progress(e);
        if (is("engine_request_stop"))
            return zoff_engine_request_stop(e), ZOFF_OK;
        if (is("stats_print"))
            return zoff_stats_print(e, text, sizeof text, nullptr);
        if (is("engine_destroy")) {
            if (s.save)
                log.expect("the checkpoint is given up");
            s.e.reset();
            (void)zoff_checkpoint_wait(s.save); // the save was given up
            s.save = nullptr;
            return ZOFF_OK;
        }
        if (is("param_bind"))
            return zoff_param_bind(e, subject::OWN, s.own.data(), nullptr);
        if (is("param_bind_opts"))
            return zoff_param_bind_opts(e, subject::OWN, s.own.data(), nullptr, ZOFF_BIND_MOVED);
        if (is("param_pull"))
            return zoff_param_pull(e, subject::LENT);
        if (is("params_pull"))
            return zoff_params_pull(e);
        if (is("params_push"))
            return zoff_params_push(e);
        if (is("state_read"))
            return zoff_state_read(e, subject::OWN, ZOFF_STATE_MASTER, 0, x.size(), x.data());
        if (is("state_write"))
            return zoff_state_write(e, subject::OWN, ZOFF_STATE_M, 0, x.size(), reference->m[t_of(s)].data());
        if (is("state_flush"))
            return zoff_state_flush(e);
        if (is("param_fetch"))
            return zoff_param_fetch(e, subject::ENGINES, 0, nullptr, &weights);
        if (is("param_release"))
            return zoff_param_release(e, subject::ENGINES, 0, nullptr);
        if (is("param_write"))
            return zoff_param_write(e, subject::ENGINES, 700, 700, reference->weights[t_of(s)].data() + 700);
        if (is("param_read"))
            return zoff_param_read(e, subject::ENGINES, 0, x.size(), x.data());
        if (is("persist_data"))
            return zoff_persist_data(e, nullptr, 0);
        if (is("loss_scale"))
            return zoff_loss_scale(e, &scale);
        if (is("loss_scaler_get"))
            return zoff_loss_scaler_get(e, &scaler);
        if (is("loss_scaler_set"))
            return zoff_loss_scaler_set(e, &scaler);
        if (is("grad_ready"))
            return renew(s), zoff_grad_ready(e, subject::OWN, 0, nullptr);
        if (is("grads_hand_over")) {
            zoff_handover all[2 * subject::SLICES] = {};
            for (unsigned i = 0; i < 2 * subject::SLICES; i++) {
                all[i].struct_size = sizeof all[i];
                all[i].param = i < subject::SLICES ? subject::OWN : subject::ENGINES;
                all[i].slice = i % subject::SLICES;
            }
            return renew(s), zoff_grads_hand_over(e, all, sizeof all[0], 2 * subject::SLICES);
        }
        if (is("grad_acquire"))
            return zoff_grad_acquire(e, subject::LENT, 0, nullptr, &grad);
        if (is("grad_weight"))
            return zoff_grad_weight(e, 1);
        if (is("grad_reusable"))
            return zoff_grad_reusable(e, subject::OWN, 0, nullptr);
        if (is("grads_drop"))
            return zoff_grads_drop(e);
        if (is("step"))
            return renew(s), zoff_step(e, args, nullptr);
        if (is("step_measure"))
            return renew(s), zoff_step_measure(e, nullptr, s.e->life.phase == ZOFF_PHASE_MEASURED ? &sum : &s.sum);
        if (is("step_prepare"))
            return zoff_step_prepare(e, nullptr);
        if (is("step_begin")) {
            if (s.e->life.phase == ZOFF_PHASE_IDLE && !s.e->life.is_untold && !s.e->transfer.batch.handed_over)
                s.hand_over();
            return zoff_step_begin(e, args);
        }
        if (is("step_wait"))
            return zoff_step_wait(e, nullptr);
        if (is("step_retry"))
            return zoff_step_retry(e, nullptr);
        if (is("step_count"))
            return zoff_step_count(e, &count);
        if (is("step_count_set"))
            return zoff_step_count_set(e, t_of(s));
        if (is("param_wait"))
            return zoff_param_wait(e, subject::OWN, 0, nullptr);
        if (is("params_wait"))
            return zoff_params_wait(e, subject::OWN, 1, 0, nullptr);
        if (is("checkpoint_save"))
            return zoff_checkpoint_save(e, (s.folder + "/saved").c_str(), nullptr);
        if (is("checkpoint_begin"))
            return s.save ? ZOFF_OK : zoff_checkpoint_begin(e, (s.folder + "/saved").c_str(), nullptr, &s.save);
        if (is("checkpoint_load"))
            return zoff_checkpoint_load(e, (reference->folder.path + "/base").c_str(), nullptr);
        ADD_FAILURE() << "no arguments for " << name << "()";
        return ZOFF_ERR_INVALID;
    }

    // Errors that are not about the phase: the arguments do not fit to what the program has done before.
    static bool is_about_arguments(const std::string &words)
    {
        for (const char *known : {"is not lent", "is still lent", "handed over twice", "handed over already", "is half done",
                                  "weights do not exist yet", "was handed over"})
            if (words.find(known) != std::string::npos)
                return true;
        return false;
    }

    void try_call(const rule &r, situation when)
    {
        const scratch_folder folder;
        const char *tier = std::get<0>(GetParam());
        subject s(tier, when == MICRO ? 2 : 1, folder.path);
        ASSERT_NO_FATAL_FAILURE(s.bring_to(when));
        const char letter = r.phases[when <= UNTOLD ? when : when == TOLD ? FAILED : IDLE];
        const bool reads_weights = std::string(r.name) == "zoff_state_read"; // fp32 weights are their own masters
        const bool is_refused = letter == '-' || (letter == 'e' && when == TOLD) ||
                                (r.needs & ZOFF_NEEDS_WHOLE && (when == HANDED || when == MICRO)) ||
                                ((r.needs & ZOFF_NEEDS_WEIGHTS || reads_weights) && when == REOPENED) ||
                                (r.needs & ZOFF_NEEDS_RETURNED && when == ON_LOAN);
        const bool may_be_invalid = std::string(r.name) == "zoff_persist_data" && s.tier != "persist";
        const zoff_status status = call(s, r.name);
        const std::string words = status < 0 ? zoff_last_error() : "";
        if (status < 0 && s.e) {
            EXPECT_STREQ(words.c_str(), zoff_engine_error(s.e.get()));
        }
        if (is_refused) {
            EXPECT_EQ(ZOFF_ERR_STATE, status) << words;
            EXPECT_NE(std::string::npos, words.find("zoff_")) << words;
        } else if (letter == 'e' && when == FAILED) {
            EXPECT_EQ(ZOFF_ERR_IO, status) << words;
        } else if (!is_about_arguments(words)) {
            EXPECT_TRUE(status >= 0 || (may_be_invalid && status == ZOFF_ERR_INVALID)) << status << ": " << words;
        }
        if (letter == 'f' && !is_refused && when == OPEN && std::string(r.name) != "zoff_checkpoint_load") {
            EXPECT_TRUE(s.e->life.is_untold);
        }
        if (!s.e)
            return;
        if (is_set_by_hand(when) && s.e->life.phase == (zoff_phase)when)
            s.e->life.phase = ZOFF_PHASE_IDLE;
        ASSERT_NO_FATAL_FAILURE(s.finish());
        EXPECT_EQ(when == MICRO && s.accumulation == 2 ? reference->of_halves : reference->after[subject::LAST], s.numbers())
            << "the run has other numbers";
        if (when != SAVING)
            return;
        ASSERT_ZOFF_OK(zoff_checkpoint_load(s.e.get(), (s.folder + "/saving").c_str(), nullptr));
        EXPECT_EQ(reference->after[1], s.numbers()) << "the checkpoint has other numbers";
    }

    static path *reference;
    log_catcher log;
    float more[4] = {};
};
path *Phases::reference;

// A step fails only where states are in files, and an engine is opened again only where they stay.
std::vector<std::tuple<const char *, int>> all_situations()
{
    std::vector<std::tuple<const char *, int>> all;
    for (const char *tier : {"dram", "files", "persist"}) {
        for (int when = 0; when < SITUATIONS; when++) {
            const bool needs_files = when == FAILED || when == TOLD || when == REOPENED;
            if (!(needs_files && !strcmp(tier, "dram")) && !(when == REOPENED && !strcmp(tier, "files")))
                all.emplace_back(tier, when);
        }
    }
    return all;
}
INSTANTIATE_TEST_SUITE_P(All, Phases, testing::ValuesIn(all_situations()),
                         [](const auto &p) { return std::string(std::get<0>(p.param)) + "_" + NAMES[std::get<1>(p.param)]; });

// By default all cells in DRAM, in files those of phases that exist only there, and an eighth of the others.
TEST_P(Phases, ACallIsRefusedAsTheTableSays)
{
    const std::string tier = std::get<0>(GetParam());
    const situation when = (situation)std::get<1>(GetParam());
    const bool needs_files = when == FAILED || when == TOLD, needs_persist = when == REOPENED;
    const char *given_up = "was begun, and is given up, so some weights are those before it. Call zoff_step_wait() first";
    unsigned number = 0;
    for (const rule &r : RULES) {
        SCOPED_TRACE(std::string(r.name) + " when " + NAMES[when]);
        const bool is_dear = !needs_files && !needs_persist && (tier != "dram" || when == SAVING); // the disk is waited for
        const bool runs = is_full_run() || !is_dear || (number + when) % 8 == 0;
        number++;
        if (runs) {
            ASSERT_NO_FATAL_FAILURE(try_call(r, when));
        }
    }
    if (log.contains(given_up)) {
        EXPECT_EQ(OPEN, when);
        log.expect(given_up);
    }
    EXPECT_TRUE(when != OPEN || tier != "dram" || log.contains(given_up));
}
} // namespace
