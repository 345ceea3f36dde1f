/* SPDX-License-Identifier: Apache-2.0 */
// identity_random_test.cc: random programs of several ranks with several engines on one communicator. They take steps, fetch
// and read weights, also while a step is open, and destroy and remake engines. Each rank hands over gradients in its own order
// of engines and parameters.
//
// If the blocking calls come in one order on all ranks, all results must be right. If one rank makes a different call, each
// call must fail or return the right result. No program may hang.
#include "identity_ranks.h"

#include <stdio.h>

using namespace zoff_test;

namespace
{
struct op {
    enum { STEP, FETCH, READ, AGAIN } what;
    unsigned engine;
    size_t param, first, count;
};

struct program {
    unsigned ranks;
    over kind;
    bool progress;
    unsigned group; // zero_hpz_partition_size
    std::vector<unsigned> stages;
    std::vector<std::vector<shape>> shapes;
    std::vector<op> ops;
    unsigned odd = 0; // the rank with different calls
    size_t at = 0;    // the position of the first different call
    int how = 0;      // 0: no difference; 1: two calls are exchanged; 2: another item
};

op any_op(const program &p, std::mt19937 &random)
{
    op o = {op::STEP, (unsigned)(random() % p.stages.size()), 0, 0, 0};
    const std::vector<shape> &shapes = p.shapes[o.engine];
    o.param = random() % shapes.size();
    const unsigned kind = random() % 10;
    if (kind < 5 || !shapes[o.param].owned)
        o.what = kind == 0 ? op::AGAIN : op::STEP;
    else
        o.what = kind < 8 ? op::FETCH : op::READ;
    o.first = random() % shapes[o.param].count;
    o.count = 1 + random() % (shapes[o.param].count - o.first);
    return o;
}

// Whether this change makes the program wrong. For a call without an item, another item changes nothing.
bool is_wrong(const program &p, int how)
{
    const op &a = p.ops[p.at], &b = p.ops[p.at + 1];
    const bool has_item = a.what == op::FETCH || a.what == op::READ;
    if (how == 2)
        return has_item && p.shapes[a.engine].size() > 1;
    return a.what != b.what || a.engine != b.engine || (has_item && a.param != b.param);
}

program make(unsigned seed, bool only_right)
{
    std::mt19937 random(seed);
    program p = {};
    p.ranks = random() % 4 ? 2 : 4;
    p.kind = random() % 3 ? over::threads : over::messages;
    p.progress = random() % 3 == 0;
    p.group = p.ranks == 4 && seed % 2 ? 2 : 1;
    const unsigned engines = random() % 4 ? 2 + random() % 2 : 1;
    for (unsigned e = 0; e < engines; e++) {
        p.stages.push_back(random() % 4);
        p.shapes.emplace_back();
        const unsigned params = 1 + random() % 3;
        const size_t same = 1024 + random() % 4000; // parameters of equal size are easily confused
        for (unsigned i = 0; i < params; i++)
            p.shapes.back().push_back({random() % 2 ? same : 1 + random() % 5000, p.stages[e] == 3 || random() % 4 == 0});
    }
    const unsigned count = 3 + random() % 8;
    for (unsigned i = 0; i < count; i++)
        p.ops.push_back(any_op(p, random));
    for (unsigned e = 0; e < engines; e++) // the last step of each engine uses up all gradients
        p.ops.push_back({op::STEP, e, 0, random() % 6, random() % 2});
    p.odd = random() % p.ranks;
    for (unsigned tries = only_right || random() % 2 ? 0 : 20; tries > 0 && !p.how; tries--) {
        p.at = random() % (p.ops.size() - 1);
        const int how = 1 + (int)(random() % 2);
        p.how = is_wrong(p, how) ? how : 0;
    }
    return p;
}

// The calls of one rank.
std::vector<op> calls_of(const program &p, unsigned rank)
{
    std::vector<op> ops = p.ops;
    if (p.how == 0 || rank != p.odd)
        return ops;
    if (p.how == 1)
        std::swap(ops[p.at], ops[p.at + 1]);
    else
        ops[p.at].param = (ops[p.at].param + 1) % p.shapes[ops[p.at].engine].size();
    return ops;
}

class one_rank
{
  public:
    one_rank(const program &p_, unsigned seed, unsigned rank_, zoff_comm *comm_)
        : p(p_), rank(rank_), comm(comm_), random(seed * 31 + rank_)
    {
    }

    // Returns the first error, or OK.
    zoff_status run()
    {
        zoff_status status = ZOFF_OK;
        for (unsigned e = 0; e < p.stages.size(); e++)
            engines.push_back(std::make_unique<tiny_engine>(e, p.stages[e], random_name(e), p.shapes[e], p.progress,
                                                            p.stages[e] == 3 ? p.group : 1));
        for (auto &e : engines)
            EXPECT_ZOFF_OK(e->create(comm));
        for (auto &e : engines)
            status = status < 0 ? status : zoff_engine_seal(e->e.get());
        const std::vector<op> ops = calls_of(p, rank);
        for (size_t i = 0; i < ops.size(); i++) {
            for (unsigned n = random() % 4; n > 0 && status >= 0; n--)
                status = hand_over_any({ops.begin() + (long)i, ops.end()});
            if (status >= 0)
                status = call(ops[i]);
        }
        if (status < 0)
            words = zoff_last_error();
        for (auto &e : engines)
            wrong += e->wrong;
        return status;
    }
    size_t wrong = 0;
    std::string words;

  private:
    // Engines have names or not, the same on all ranks.
    std::string random_name(unsigned e) const { return p.ops.size() % 2 ? "engine" + std::to_string(e) + ".w" : ""; }

    // Hand over a gradient of a random engine that has a step to come.
    zoff_status hand_over_any(const std::vector<op> &to_come)
    {
        tiny_engine &e = *engines[random() % engines.size()];
        const size_t param = random() % e.shapes.size();
        if (random() % 2)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        for (const op &o : to_come) {
            if (o.engine == e.id && o.what == op::STEP)
                return e.handed[param] ? ZOFF_OK : e.hand_over(param, rank);
            if (o.engine == e.id && o.what == op::AGAIN)
                return ZOFF_OK; // without such a step the gradient would be lost
        }
        return ZOFF_OK;
    }

    zoff_status call(const op &o)
    {
        tiny_engine &e = *engines[o.engine];
        switch (o.what) {
        case op::STEP:
            return o.count % 2 ? e.step_in_time(rank, p.ranks, o.first % 6, random) : e.step(rank, p.ranks);
        case op::FETCH:
            return e.fetch(o.param, p.ranks);
        case op::READ:
            return e.read(o.param, std::min(o.first, e.shapes[o.param].count - 1),
                          std::min(o.count, e.shapes[o.param].count - std::min(o.first, e.shapes[o.param].count - 1)), p.ranks);
        case op::AGAIN:
            e.e.reset();
            EXPECT_ZOFF_OK(e.create(comm));
            return zoff_engine_seal(e.e.get());
        }
        return ZOFF_OK;
    }

    const program &p;
    const unsigned rank;
    zoff_comm *comm;
    std::mt19937 random; // different on each rank
    std::vector<std::unique_ptr<tiny_engine>> engines;
};

TEST(IdentityRandom, ProgramsAreRightOrAnError)
{
    const bool only_right = is_over_nccl(); // NCCL notices a wrong call only at the deadline
    const unsigned programs = (only_right ? 12 : 40) * (getenv("ZOFF_TEST_FULL") ? 10 : 1);
    const double timeout_seconds = 30;
    unsigned right = 0, errors = 0, harmless = 0;
    log_catcher log;
    alarm(280);                                         // kills a program that hangs
    const char *failed_seed = getenv("ZOFF_TEST_SEED"); // the seed of a program that failed before
    for (unsigned seed = failed_seed ? (unsigned)atoi(failed_seed) : 1;
         seed <= (failed_seed ? (unsigned)atoi(failed_seed) : programs) && !HasFailure(); seed++) {
        const program p = make(seed, only_right);
        SCOPED_TRACE("program " + std::to_string(seed) + ": " + std::to_string(p.ranks) + " ranks over " +
                     (p.kind == over::threads ? "threads" : "messages") + (p.progress ? ", progress threads" : "") +
                     (p.group > 1 ? ", in groups" : ""));
        rank_group group(p.ranks, p.kind, timeout_seconds);
        std::vector<zoff_status> status(p.ranks);
        std::vector<size_t> wrong(p.ranks);
        std::vector<std::string> words(p.ranks);
        const double took = seconds_of([&] {
            group.on_each([&](unsigned rank) {
                one_rank one(p, seed, rank, group.of(rank));
                status[rank] = one.run();
                wrong[rank] = one.wrong;
                words[rank] = one.words;
            });
        });
        bool failed = false;
        for (unsigned rank = 0; rank < p.ranks; rank++) {
            failed |= status[rank] < 0;
            EXPECT_EQ(0u, wrong[rank]) << "program " << seed << ", rank " << rank << ": calls return OK, but weights are wrong";
            EXPECT_TRUE(status[rank] >= 0 || p.how) << "program " << seed << ", rank " << rank << ": " << words[rank];
            EXPECT_TRUE(status[rank] >= 0 || !words[rank].empty());
        }
        EXPECT_LT(took, timeout_seconds / 2) << "program " << seed << ": only the deadline found it: " << words[0];
        right += p.how == 0;
        errors += p.how && failed;
        harmless += p.how && !failed;
    }
    alarm(0);
    const char *given_up = "was begun, and is given up"; // by a rank whose step waits for one that had an error
    if (errors > 0 && log.contains(given_up))
        log.expect(given_up);
    RecordProperty("programs", (int)programs);
    printf("identity: %u random programs: %u with the same calls on all ranks, all right; %u with others on one rank: %u an "
           "error, %u right\n",
           programs, right, errors + harmless, errors, harmless);
    EXPECT_TRUE(only_right || failed_seed || errors > programs / 8) << "too few programs were wrong";
}
} // namespace
