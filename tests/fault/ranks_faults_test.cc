/* SPDX-License-Identifier: Apache-2.0 */
// ranks_faults_test.cc: one of four ranks stops, leaves or dies, in every phase of a step. The other ranks must get an error in
// time that names the rank, report the true state of their weights and states, and be able to leave without that rank.
#include "comm_fault.h"
#include "covering.h"
#include "rank_job.h"

#include <pthread.h>
#include <regex.h>
#include <string.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cmath>

extern "C" {
#include "try.h"
}

using namespace zoff_test;

namespace
{
enum phase { IN_GRAD_READY, BEFORE_BEGIN, BEFORE_WAIT, IN_MICRO_STEP, BEFORE_VOTE, AFTER_GATE };
enum fault { STALLS, LEAVES, DIES };
const char *const PHASES[] = {"InGradReady", "BeforeBegin", "BeforeWait", "InAMicroStep", "BeforeTheVote", "AfterTheGate"};
const char *const FAULTS[] = {"Stalls", "Leaves", "Dies"};
const char GIVEN_UP[] = "was begun, and is given up"; // a step, by zoff_engine_destroy()

// A slow rank must not be taken for one that has stopped. So the deadline is FACTOR times the duration of a healthy step,
// measured just before under the present load, and at least DEADLINE seconds.
enum { RANKS = 4, FACTOR = 25 };
#if defined(ZOFF_TEST_SANITIZED_THREAD)
enum { SEEDS = 6, AT_A_TIME = 2 };
const double DEADLINE = 2;
#else
enum { SEEDS = 20, AT_A_TIME = 4 };
const double DEADLINE = 1;
#endif

struct cell {
    phase when;
    fault what;
};

void add_tensors(trainer &t)
{
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
    t.add(4096, 2, ZOFF_BF16, ZOFF_F32);
}

std::string ranks_config(unsigned stage, unsigned accumulation, const std::string &folder = "", const std::string &more = "")
{
    return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0" + more +
           ", \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
           ", \"reduce_bucket_size\": 4096, \"offload_optimizer\": {" +
           (folder.empty() ? "\"device\": \"cpu\"" : "\"device\": \"nvme\", \"nvme_path\": \"" + folder + "\"") +
           ", \"buffer_count\": 3}}}";
}

double seconds_since(std::chrono::steady_clock::time_point from)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

// ---- the state of a rank ----

// Check this rank's part of the states, element by element; the other parts are no longer available. Returns the number of
// elements checked.
size_t expect_own_states(zoff_engine *e, const std::vector<reference::tensor> &want)
{
    enum { BLOCK = 1024 }; // the border of a part is always a multiple of this
    const zoff_state_kind kinds[] = {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V};
    size_t seen = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const reference::tensor &t = want[i];
        const std::vector<float> *lists[] = {&t.master, &t.m, &t.v};
        for (int kind = 0; kind < 3; kind++) {
            for (size_t at = 0; at < t.total();) {
                const size_t count = std::min<size_t>(BLOCK, t.count - at % t.count);
                std::vector<float> have(count, NAN);
                const zoff_status status = zoff_state_read(e, (zoff_param)i, kinds[kind], at, count, have.data());
                EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_COMM) << zoff_last_error();
                if (!std::isnan(have[0])) {
                    EXPECT_EQ(0, memcmp(have.data(), lists[kind]->data() + at, count * sizeof(float)))
                        << "state " << kind << " of tensor " << i << " from element " << at;
                    seen += count;
                }
                at += count;
                if (testing::Test::HasFailure())
                    return seen;
            }
        }
    }
    return seen;
}

// Each weight must be that of one of the two references.
void expect_weights_of_either(trainer &t, const std::vector<reference::tensor> &a, const std::vector<reference::tensor> &b)
{
    for (size_t i = 0; i < t.tensors.size(); i++) {
        const zoff_dtype dtype = t.tensors[i].dtype;
        for (size_t k = 0; k < t.tensors[i].total(); k++) {
            const float have = trainer::get(t.value(i), dtype, t.place(i, k));
            const float one = reference::rounded(dtype, a[i].master[k]), other = reference::rounded(dtype, b[i].master[k]);
            ASSERT_TRUE(memcmp(&have, &one, 4) == 0 || memcmp(&have, &other, 4) == 0)
                << "weight " << k << " of tensor " << i << " is " << have << ", neither " << one << " nor " << other;
        }
    }
}

// ---- one fault ----

class scene
{
  public:
    scene(cell c, unsigned seed)
        : when(c.when), what(c.what), faulty(seed % RANKS), accumulation(c.when == IN_MICRO_STEP ? 3 : 1), job(RANKS),
          all(job, seed, add_tensors)
    {
        const unsigned stage = when == IN_GRAD_READY ? 2 : seed / RANKS % 3;
        all.seal(ranks_config(stage, accumulation, seed % 3 ? "" : folder.path), 2048);
        picked = 1 + seed % 3;
        if (when == BEFORE_VOTE)
            picked = 1 + seed % 2; // the summary of who takes part, and the vote
        if (when == AFTER_GATE)
            picked = 3 + seed % 4;
        stream = when == BEFORE_VOTE || when == AFTER_GATE ? ZOFF_COMM_STEP : ZOFF_COMM_REDUCE;
        for (unsigned rank = 0; rank < RANKS; rank++)
            wrapped.push_back(std::make_unique<comm_fault>(job.comm_of(rank)));
        wrapped[faulty]->before = [this](const zoff_comm_work &work) { return strike(work); };
    }

    void play()
    {
        if (testing::Test::HasFailure())
            return;
        for (unsigned micro = 0; micro < accumulation; micro++) {
            all.backward(micro, 0.5f);
            const auto from = std::chrono::steady_clock::now();
            job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(take(rank, nullptr)); });
            deadline = std::max(deadline, FACTOR * seconds_since(from));
        }
        for (unsigned rank = 0; rank < RANKS; rank++)
            job.comm_of(rank)->timeout_seconds = deadline;
        all.step(config_groups(), 1, 0);
        before = all.want.tensors;
        all.backward(accumulation, 0.5f);
        if (accumulation == 1)
            all.step(config_groups(), 2, 0);
        after = all.want.tensors;
        is_armed = true;
        if (!testing::Test::HasFailure())
            job.on_each([&](unsigned rank) { rank == faulty ? fail() : survive(rank); });
        EXPECT_TRUE(has_struck) << "the fault did not happen";
        EXPECT_EQ(RANKS - 1, survivors) << "number of ranks that ended in order";
    }

  private:
    // ---- the faulty rank ----

    // Called where operations start. The first error ends what the rank is doing.
    zoff_status strike(const zoff_comm_work &work)
    {
        if (!is_armed || when == BEFORE_BEGIN || when == BEFORE_WAIT || work.call.stream != stream || ++started < picked)
            return ZOFF_OK;
        has_struck = true;
        if (what == LEAVES)
            return zoff_base_status_fail(ZOFF_ERR_IO, "provoked"); // this operation and all that follow
        if (started > picked)
            return ZOFF_OK;
        if (what == DIES)
            pthread_exit(nullptr);
        stall();
        return ZOFF_OK;
    }

    void stall() const
    {
        while (survivors < RANKS - 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    // Called between two calls. Returns true if the rank is gone.
    bool strike_outside(phase here)
    {
        if (when != here)
            return false;
        has_struck = true;
        if (what == STALLS)
            stall();
        return what != STALLS;
    }

    void fail()
    {
        zoff_step_info info = new_info();
        const zoff_status status = take(faulty, &info);
        if (what == DIES)
            return;
        if (what == STALLS) {
            EXPECT_EQ(ZOFF_ERR_COMM, status) << zoff_last_error(); // the rank comes too late and gets the reason
        }
        all.engines[faulty].reset();
        job.leave(faulty);
    }

    // ---- all ranks ----

    zoff_status take(unsigned rank, zoff_step_info *info)
    {
        zoff_engine *e = all.engines[rank].get();
        const bool strikes = is_armed && rank == faulty;
        for (size_t i = all.trainers[rank]->tensors.size(); i-- > 0;) {
            for (size_t slice = all.trainers[rank]->tensors[i].slices; slice-- > 0;)
                EXPECT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, nullptr));
        }
        if (strikes && strike_outside(BEFORE_BEGIN))
            return ZOFF_ERR_IO;
        const zoff_status status = zoff_step_begin(e, nullptr);
        if (strikes && strike_outside(BEFORE_WAIT))
            return ZOFF_ERR_IO;
        return status < 0 ? status : zoff_step_wait(e, info);
    }

    void survive(unsigned rank)
    {
        const auto from = std::chrono::steady_clock::now();
        zoff_step_info info = new_info();
        const zoff_status status = take(rank, &info);
        EXPECT_EQ(ZOFF_ERR_COMM, status) << zoff_last_error();
        EXPECT_LT(seconds_since(from), 2 * deadline + 5);
        expect_words(zoff_last_error());
        zoff_engine *e = all.engines[rank].get();
        trainer &t = *all.trainers[rank];
        if (info.outcome == ZOFF_OUTCOME_TORN) {
            EXPECT_EQ(AFTER_GATE, when);
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "step 2 failed half way")) << zoff_last_error();
            EXPECT_EQ(nullptr, strstr(zoff_last_error(), "zoff_step_retry()")) << "it cannot finish the step";
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "start all ranks again from the last checkpoint"))
                << zoff_last_error();
            expect_weights_of_either(t, before, after);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "step 2 failed half way", zoff_step_retry(e, &info));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the group of ranks is over", zoff_grads_drop(e));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the group of ranks is over", zoff_step(e, nullptr, nullptr));
        } else {
            EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
            if (strstr(zoff_last_error(), "step 2 failed")) { // the error comes in a call of the step
                EXPECT_NE(nullptr, strstr(zoff_last_error(), "start all ranks again from the last checkpoint"))
                    << zoff_last_error();
            }
            expect_weights_of_either(t, before, before);
            EXPECT_ZOFF_OK(zoff_grads_drop(e));
            EXPECT_LT(0u, expect_own_states(e, before));
            expect_words(step_again(e));
        }
        EXPECT_LT(seconds_since(from), 2 * deadline + 5) << "after the error no call waits";
        survivors++;
        all.engines[rank].reset();
        job.leave(rank);
    }

    static std::string step_again(zoff_engine *e)
    {
        EXPECT_EQ(ZOFF_ERR_COMM, zoff_step(e, nullptr, nullptr));
        return zoff_last_error();
    }

    void expect_words(const std::string &words) const
    {
        regex_t operation;
        ASSERT_EQ(0, regcomp(&operation,
                             "(all_to_all|all_gather|sum|broadcast|barrier) number [0-9]+ of the [a-z]+( of engine [0-9]+ "
                             "\\(\"[^\"]*\"\\))? \\([0-9]+ bytes\\)",
                             REG_EXTENDED | REG_NOSUB));
        EXPECT_EQ(0, regexec(&operation, words.c_str(), 0, nullptr, 0)) << words;
        regfree(&operation);
        const std::string who = "rank " + std::to_string(faulty);
        const bool named = words.find(who + " of 4 did not arrive") != std::string::npos ||
                           words.find(who + " of 4 stopped before it was done") != std::string::npos ||
                           (what == LEAVES && (words.find(who + " has left the group") != std::string::npos ||
                                               words.find(who + " has destroyed engine 1") != std::string::npos));
        EXPECT_TRUE(named) << who << ": " << words;
    }

    const phase when;
    const fault what;
    const unsigned faulty, accumulation;
    scratch_folder folder;
    std::vector<std::unique_ptr<comm_fault>> wrapped; // destroyed after the communicators
    rank_job job;
    rank_trainers all;
    std::vector<reference::tensor> before, after;
    zoff_comm_stream stream;
    unsigned picked = 0, started = 0; // operations of `stream`
    double deadline = DEADLINE;
    bool is_armed = false;
    std::atomic<bool> has_struck{false};
    std::atomic<unsigned> survivors{0};
};

class RanksFaults : public testing::TestWithParam<cell>
{
};

std::vector<cell> cells()
{
    std::vector<cell> all;
    for (phase when : {IN_GRAD_READY, BEFORE_BEGIN, BEFORE_WAIT, IN_MICRO_STEP, BEFORE_VOTE, AFTER_GATE}) {
        for (fault what : {STALLS, LEAVES, DIES})
            all.push_back({when, what});
    }
    return all;
}
INSTANTIATE_TEST_SUITE_P(Phases, RanksFaults, testing::ValuesIn(cells()),
                         [](const auto &p) { return std::string(FAULTS[p.param.what]) + PHASES[p.param.when]; });

// Most of the time all ranks wait for the deadline, so several scenes run at a time.
TEST_P(RanksFaults, OthersHearOfItAndCanGoAway)
{
    log_catcher log;
    // By default seeds 0, 5, 10, 15: each rank is the faulty one once, and each stage and tier occurs. A sanitizer takes two.
    const unsigned seeds = is_full_run() ? SEEDS : 2 * STRENGTH, stride = is_full_run() ? 1 : 5;
    for (unsigned first = 0; first < seeds && !HasFailure(); first += AT_A_TIME) {
        std::vector<std::thread> scenes;
        for (unsigned i = first; i < std::min<unsigned>(seeds, first + AT_A_TIME); i++) {
            scenes.emplace_back([&, seed = i * stride] {
                SCOPED_TRACE("seed " + std::to_string(seed));
                scene(GetParam(), seed).play();
            });
        }
        for (auto &thread : scenes)
            thread.join();
        if (log.contains(GIVEN_UP)) { // by the rank that goes away
            EXPECT_NE(IN_GRAD_READY, GetParam().when);
            EXPECT_NE(BEFORE_BEGIN, GetParam().when);
            log.expect(GIVEN_UP);
        }
    }
}

// ---- ranks that differ at seal ----

class RanksSeal : public testing::Test
{
  protected:
    // Seal an engine on each rank and check the status and message of each. No rank may wait for the deadline.
    void seal(rank_job &job, const std::function<engine(unsigned rank)> &make, zoff_status want, const std::string &words)
    {
        job.on_each([&](unsigned rank) {
            engine e = make(rank);
            const auto from = std::chrono::steady_clock::now();
            EXPECT_ZOFF_FAILS(want, words, zoff_engine_seal(e.get()));
            EXPECT_LT(seconds_since(from), 20);
            expect_still_building(e.get());
        });
    }

    static void expect_still_building(zoff_engine *e) { EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grads_drop(e)); }

    engine make(unsigned rank, const std::string &text, const rank_job &job, unsigned more_tensors = 0)
    {
        trainers[rank] = std::make_unique<trainer>(7);
        add_tensors(*trainers[rank]);
        for (unsigned i = 0; i < more_tensors; i++)
            trainers[rank]->add(5, 1, ZOFF_F32, ZOFF_F32);
        return make_engine(*trainers[rank], text, 2048, 0, job.comm_of(rank));
    }

    std::unique_ptr<trainer> trainers[RANKS];
    log_catcher log;
};

TEST_F(RanksSeal, RanksThatDifferAreRefusedOnAllOfThem)
{
    struct difference {
        const char *words;
        std::string text;
        unsigned more_tensors = 0;
    };
    const std::string usual = ranks_config(1, 2);
    std::string buckets = usual;
    buckets.replace(buckets.find("4096"), 4, "9000");
    std::string rate = usual, clip = usual;
    rate.replace(rate.find("0.01"), 4, "0.02");
    clip.replace(clip.find("clipping\": 0"), 12, "clipping\": 1");
    const difference differences[] = {
        {"the number of parameters is 4 on ranks 0, 1 and 3 and 6 on rank 2", usual, 2},
        {"zero_optimization.stage is 1 on ranks 0, 1 and 3 and 2 on rank 2", ranks_config(2, 2)},
        {"gradient_accumulation_steps is 2 on ranks 0, 1 and 3 and 3 on rank 2", ranks_config(1, 3)},
        {"communication_data_type is null on ranks 0, 1 and 3 and \"fp32\" on rank 2",
         ranks_config(1, 2, "", ", \"communication_data_type\": \"fp32\"")},
        {"zero_optimization.reduce_bucket_size is 4096 on ranks 0, 1 and 3 and 9000 on rank 2", buckets},
        {"optimizer.params.lr is 0.01 on ranks 0, 1 and 3 and 0.02 on rank 2", rate},
        {"gradient_clipping is 0 on ranks 0, 1 and 3 and 1 on rank 2", clip},
        {"prescale_gradients is false on ranks 0, 1 and 3 and true on rank 2",
         ranks_config(1, 2, "", ", \"prescale_gradients\": true")},
    };
    for (const difference &d : differences) {
        rank_job job(RANKS);
        seal(
            job, [&](unsigned rank) { return make(rank, rank == 2 ? d.text : usual, job, rank == 2 ? d.more_tensors : 0); },
            ZOFF_ERR_INVALID, d.words);
    }
}

TEST_F(RanksSeal, AnotherOrderOfParametersIsRefused)
{
    rank_job job(RANKS);
    seal(
        job,
        [&](unsigned rank) {
            trainers[rank] = std::make_unique<trainer>(7);
            trainers[rank]->add(rank == 3 ? 2000 : 1000, 1, ZOFF_F32, ZOFF_F32);
            trainers[rank]->add(rank == 3 ? 1000 : 2000, 1, ZOFF_F32, ZOFF_F32);
            return make_engine(*trainers[rank], ranks_config(1, 1), 0, 0, job.comm_of(rank));
        },
        ZOFF_ERR_INVALID, "zoff_param_desc.count of parameter 0 (param0) is 1000 on ranks 0, 1 and 2 and 2000 on rank 3");
}

// The failing rank reports its error, and the others name that rank. After the cause is removed all can continue.
TEST_F(RanksSeal, ARankThatCannotSealStopsAll)
{
    scratch_folder folder;
    rank_job job(RANKS);
    engine engines[RANKS];
    job.on_each([&](unsigned rank) {
        const std::string own = folder.path + (rank == 2 ? "/missing" : "");
        engines[rank] = make(rank, ranks_config(2, 1, own), job);
        const auto from = std::chrono::steady_clock::now();
        const zoff_status status = zoff_engine_seal(engines[rank].get());
        EXPECT_LT(seconds_since(from), 20);
        if (rank == 2) {
            EXPECT_EQ(ZOFF_ERR_IO, status) << zoff_last_error();
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "missing")) << zoff_last_error();
        } else {
            EXPECT_EQ(ZOFF_ERR_COMM, status) << zoff_last_error();
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "rank 2 has failed, and this one has not")) << zoff_last_error();
        }
        expect_still_building(engines[rank].get());
    });
    ASSERT_EQ(0, mkdir((folder.path + "/missing").c_str(), 0777));
    job.on_each([&](unsigned rank) {
        EXPECT_ZOFF_OK(zoff_engine_seal(engines[rank].get()));
        EXPECT_ZOFF_OK(zoff_step(engines[rank].get(), nullptr, nullptr));
    });
    job.on_each([&](unsigned rank) { engines[rank].reset(); });
}

// ---- gradients that are not finite ----

class RanksNonFinite : public testing::TestWithParam<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(Stages, RanksNonFinite, testing::Values(0u, 1u, 2u));

TEST_P(RanksNonFinite, OneRankIsNamedAndAllSkip)
{
    log_catcher log;
    rank_job job(RANKS);
    rank_trainers all(job, 3, add_tensors);
    all.seal(ranks_config(GetParam(), 1), 2048);
    for (unsigned round = 0; round < 4; round++) {
        all.backward(round, 0.5f);
        const bool poisoned = round % 2;
        const unsigned culprit = round == 1 ? 2 : 0;
        trainer &t = *all.trainers[culprit];
        if (poisoned)
            trainer::put(t.grad(3), ZOFF_F32, t.place(3, 4096 + 2050), round == 1 ? INFINITY : NAN);
        const std::vector<reference::tensor> before = all.want.tensors;
        if (poisoned)
            all.forget();
        else
            all.step(config_groups(), round / 2 + 1, 0);
        job.on_each([&](unsigned rank) {
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &info));
            EXPECT_EQ(poisoned, info.skipped);
            EXPECT_EQ(poisoned ? ZOFF_OUTCOME_BEFORE : ZOFF_OUTCOME_AFTER, info.outcome);
            EXPECT_EQ((int64_t)round / 2 + 1, info.t - (poisoned ? 1 : 0));
            if (poisoned) {
                EXPECT_EQ(3u, info.culprit.param);
                EXPECT_EQ(1u, info.culprit.slice);
                EXPECT_EQ(culprit, info.culprit.rank);
            }
            const std::vector<reference::tensor> &want = poisoned ? before : all.want.tensors;
            expect_weights_of_either(*all.trainers[rank], want, want);
        });
        job.on_each([&](unsigned rank) {
            trainer copy = *all.trainers[rank];
            copy.tensors = poisoned ? before : all.want.tensors;
            copy.expect_states(all.engines[rank].get());
        });
        if (HasFailure())
            return;
    }
    // Rank 0 logs for all ranks.
    log.expect("skipped: the gradient of ");
    EXPECT_EQ(2u, log.warnings.size());
    ASSERT_EQ(2u, log.count("slice 1, has an inf or nan between its elements 2048 and 3071"));
    EXPECT_EQ(1u, log.count("on rank 2"));
    EXPECT_EQ(1u, log.count("on rank 0"));
}

// ---- the weight of a micro-batch ----

TEST(RanksWeight, InvalidWeightsAreRefused)
{
    log_catcher log;
    rank_job job(2);
    rank_trainers all(job, 5, add_tensors);
    all.seal(ranks_config(2, 1), 2048);
    all.backward(0, 0.5f);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine must not be NULL", zoff_grad_weight(nullptr, 1));
    job.on_each([&](unsigned rank) {
        zoff_engine *e = all.engines[rank].get();
        for (double weight : {-1.0, (double)NAN, (double)INFINITY, 1e39})
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is not a finite fp32 number of at least 0", zoff_grad_weight(e, weight));
        EXPECT_ZOFF_OK(zoff_grad_weight(e, 3));
        EXPECT_ZOFF_OK(zoff_grad_ready(e, 0, 0, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "were handed over already", zoff_grad_weight(e, 2));
        EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_grad_weight", zoff_grad_weight(e, 2));
        EXPECT_ZOFF_OK(zoff_step_wait(e, nullptr));
        EXPECT_ZOFF_OK(zoff_grad_weight(e, 0)) << "one rank may have weight 0";
    });
}

// All weights are zero, so there is no mean. Every rank must get an error, and nothing may change.
TEST(RanksWeight, AllWeightsZeroIsAnError)
{
    log_catcher log;
    for (unsigned stage : {0u, 1u, 2u}) {
        rank_job job(RANKS);
        rank_trainers all(job, 5, add_tensors);
        all.seal(ranks_config(stage, 1), 2048);
        const std::vector<reference::tensor> before = all.want.tensors;
        all.backward(0, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_grad_weight(e, 0));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "all micro-batches of this step have weight 0", zoff_step(e, nullptr, &info));
            EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
            EXPECT_ZOFF_OK(zoff_grads_drop(e));
            expect_weights_of_either(*all.trainers[rank], before, before);
        });
        all.step(config_groups(), 1, 0); // rank_trainers uses weights of 1
        job.on_each([&](unsigned rank) {
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
            expect_weights_of_either(*all.trainers[rank], all.want.tensors, all.want.tensors);
        });
    }
}
} // namespace
