/* SPDX-License-Identifier: Apache-2.0 */
// identity_test.cc: ranks share one communicator among engines and make different calls. The error must come soon and name the
// ranks, both calls and both items. Other tests show correct programs that must work with any timing.
#include "identity_ranks.h"

using namespace zoff_test;

namespace
{
struct how {
    over kind;
    bool progress; // the engine has a progress thread
};

class Identity : public testing::TestWithParam<how>
{
  protected:
    void SetUp() override
    {
        if (is_over_nccl() && GetParam().kind == over::messages)
            GTEST_SKIP() << "there is only one kind of NCCL";
        alarm(200);
    }
    void TearDown() override { alarm(0); }

    enum { RANKS = 2 };
    log_catcher log;
};

const double TIMEOUT_SECONDS = 30, SOON_SECONDS = 10;

// Two engines on each rank, sealed in the same order.
struct two_engines {
    two_engines(const how &h, unsigned stage, std::vector<shape> shapes, const char *first = "actor.w",
                const char *second = "critic.w")
        : a(0, stage, first, shapes, h.progress), b(1, stage, second, shapes, h.progress)
    {
    }
    void seal(zoff_comm *comm)
    {
        for (tiny_engine *e : {&a, &b}) {
            EXPECT_ZOFF_OK(e->create(comm));
            EXPECT_ZOFF_OK(zoff_engine_seal(e->e.get()));
        }
    }
    tiny_engine a, b;
};

void expect_words(const std::string &text, const std::vector<std::string> &all)
{
    for (const std::string &words : all)
        EXPECT_NE(std::string::npos, text.find(words)) << "missing: " << words << "\nin: " << text;
}

// Each gradient is sent when it is handed over. Each rank hands them over in another order of engines.
TEST_P(Identity, GradientsMayComeInAnyOrderOfEngines)
{
    for (unsigned stage = 0; stage < 4; stage++) {
        for (const bool same : {true, false}) {
            rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
            group.on_each([&](unsigned rank) {
                two_engines e(GetParam(), stage, {{8192, stage == 3}, {3000, false}});
                e.seal(group.of(rank));
                for (int step = 0; step < 3; step++) {
                    const bool first = rank == 0 || same;
                    EXPECT_ZOFF_OK((first ? e.a : e.b).hand_over_rest(rank));
                    EXPECT_ZOFF_OK((first ? e.b : e.a).hand_over_rest(rank));
                    EXPECT_ZOFF_OK(e.a.step(rank, RANKS));
                    EXPECT_ZOFF_OK(e.b.step(rank, RANKS));
                }
                EXPECT_EQ(0u, e.a.wrong + e.b.wrong) << "stage " << stage << ", the " << (same ? "same" : "other") << " order";
            });
        }
    }
}

// Both ranks use the same order, but one is slower. The engines have no names and equal sizes.
TEST_P(Identity, TimingDoesNotMixEngines)
{
    for (unsigned round = 0; round < 6; round++) {
        rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
        group.on_each([&](unsigned rank) {
            std::mt19937 random(round * 2 + rank);
            two_engines e(GetParam(), 2, std::vector<shape>(6, {4096, false}), "", "");
            e.seal(group.of(rank));
            for (tiny_engine *one : {&e.a, &e.b}) {
                for (size_t p = one->shapes.size(); p-- > 0;) {
                    std::this_thread::sleep_for(std::chrono::microseconds(random() % (rank ? 400 : 50)));
                    EXPECT_ZOFF_OK(one->hand_over(p, rank));
                }
            }
            EXPECT_ZOFF_OK(e.a.step(rank, RANKS));
            EXPECT_ZOFF_OK(e.b.step(rank, RANKS));
            EXPECT_EQ(0u, e.a.wrong + e.b.wrong);
        });
    }
}

// Two parameters of equal size.
TEST_P(Identity, AnotherSliceIsNamed)
{
    rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
    group.on_each([&](unsigned rank) {
        tiny_engine e(0, 3, "layer", {{8192, true}, {8192, true}}, GetParam().progress);
        EXPECT_ZOFF_OK(e.create(group.of(rank)));
        EXPECT_ZOFF_OK(zoff_engine_seal(e.e.get()));
        zoff_status status = ZOFF_OK;
        const double took = seconds_of([&] { status = e.fetch(rank, RANKS); });
        EXPECT_EQ(ZOFF_ERR_COMM, status);
        expect_words(zoff_last_error(), {"zoff_param_fetch: layer" + std::to_string(rank), "slice 0 of layer0",
                                         "slice 0 of layer1", "rank 0 calls ", "rank 1 calls ", "of engine 1 (\"layer0\")"});
        EXPECT_LT(took, SOON_SECONDS);
    });
}

// Each rank waits in a call of another engine. Without the check both would wait forever.
TEST_P(Identity, CallsThatWaitInTheOppositeOrderAreNamed)
{
    if (is_over_nccl())
        GTEST_SKIP()
            << "the rank that notices names both calls and closes the lanes; the other rank learns nothing before its deadline";
    for (const unsigned stage : {0u, 2u, 3u}) {
        rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
        group.on_each([&](unsigned rank) {
            two_engines e(GetParam(), stage, {{8192, false}, {3000, false}});
            e.seal(group.of(rank));
            EXPECT_ZOFF_OK(e.a.hand_over_rest(rank));
            EXPECT_ZOFF_OK(e.b.hand_over_rest(rank));
            zoff_status status = ZOFF_OK;
            const double took = seconds_of([&] {
                status = (rank ? e.b : e.a).step(rank, RANKS);
                status = status < 0 ? status : (rank ? e.a : e.b).step(rank, RANKS);
            });
            EXPECT_EQ(ZOFF_ERR_COMM, status);
            expect_words(zoff_last_error(), {"rank 0", "rank 1", "zoff_step()", "of engine 1 (\"actor.w0\")",
                                             "of engine 2 (\"critic.w0\")", "in the same order, also over different engines"});
            EXPECT_LT(took, SOON_SECONDS);
            EXPECT_EQ(0u, e.a.wrong + e.b.wrong);
        });
    }
}

// One rank fetches from one engine while the other reads a window of another engine, or takes a step.
TEST_P(Identity, DifferentCallsAreNamed)
{
    if (is_over_nccl())
        GTEST_SKIP() << "the calls use different lanes, whose ranks do not hear of one another";
    for (const bool steps : {false, true}) {
        rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
        group.on_each([&](unsigned rank) {
            two_engines e(GetParam(), 3, {{8192, true}, {8192, true}});
            e.seal(group.of(rank));
            zoff_status status = ZOFF_OK;
            const double took = seconds_of([&] {
                status = rank == 0 ? e.a.fetch(1, RANKS) : steps ? e.b.step(rank, RANKS) : e.b.read(0, 5, 4000, RANKS);
            });
            EXPECT_EQ(ZOFF_ERR_COMM, status);
            expect_words(zoff_last_error(),
                         {"rank 0 ", "rank 1 ", "zoff_param_fetch() of engine 1 (\"actor.w0\") for slice 0 of actor.w1",
                          steps ? "zoff_step() of engine 2 (\"critic.w0\")"
                                : "zoff_param_read() of engine 2 (\"critic.w0\") for 4000 elements from 5 on of critic.w0"});
            EXPECT_LT(took, SOON_SECONDS);
        });
    }
}

TEST_P(Identity, EnginesSealedInAnotherOrderAreNamed)
{
    for (const bool have_names : {true, false}) {
        rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
        group.on_each([&](unsigned rank) {
            two_engines e(GetParam(), 1, {{5000, false}}, have_names ? "actor.w" : "", have_names ? "critic.w" : "");
            EXPECT_ZOFF_OK(e.a.create(group.of(rank)));
            EXPECT_ZOFF_OK(e.b.create(group.of(rank)));
            const zoff_status status = zoff_engine_seal((rank ? e.b : e.a).e.get());
            EXPECT_EQ(ZOFF_ERR_COMM, status);
            if (have_names)
                expect_words(zoff_last_error(), {"rank 0 seals the engine whose first parameter is \"actor.w0\"",
                                                 "Rank 1 seals the engine whose first parameter is \"critic.w0\"",
                                                 "Seal engines in the same order"});
            else
                expect_words(zoff_last_error(), {"rank 0 seals engine number 1 and rank 1 seals engine number 2", "\"param0\"",
                                                 "give their parameters different names (zoff_param_desc.name)"});
            // The communicator still works: in the right order the seals succeed.
            EXPECT_ZOFF_OK(zoff_engine_seal(e.a.e.get()));
            EXPECT_ZOFF_OK(zoff_engine_seal(e.b.e.get()));
            EXPECT_ZOFF_OK(e.b.step(rank, RANKS));
            EXPECT_ZOFF_OK(e.a.step(rank, RANKS));
            EXPECT_EQ(0u, e.a.wrong + e.b.wrong);
        });
    }
}

// A rank that only looks at a plan has one engine more than the others for a while.
TEST_P(Identity, AnEngineThatIsNotSealedDoesNotMatter)
{
    rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
    group.on_each([&](unsigned rank) {
        tiny_engine look(9, 1, "actor.w", {{5000, false}});
        if (rank == 0) {
            EXPECT_ZOFF_OK(look.create(group.of(rank)));
        }
        look.e.reset();
        two_engines e(GetParam(), 1, {{5000, false}});
        e.seal(group.of(rank));
        EXPECT_ZOFF_OK(e.a.step(rank, RANKS));
        EXPECT_EQ(0u, e.a.wrong);
    });
}

// Engine ids are never reused, so no message of a destroyed engine can reach a later one.
TEST_P(Identity, EnginesComeAndGoBesideOneThatStays)
{
    rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
    group.on_each([&](unsigned rank) {
        tiny_engine stays(0, 2, "stays", {{8192, false}}, GetParam().progress);
        EXPECT_ZOFF_OK(stays.create(group.of(rank)));
        EXPECT_ZOFF_OK(zoff_engine_seal(stays.e.get()));
        for (unsigned life = 0; life < 20; life++) {
            EXPECT_ZOFF_OK(stays.hand_over_rest(rank));
            tiny_engine comes(1, life % 4, "comes", {{3000, life % 4 == 3}, {3000, false}}, GetParam().progress);
            EXPECT_ZOFF_OK(comes.create(group.of(rank)));
            EXPECT_ZOFF_OK(zoff_engine_seal(comes.e.get()));
            EXPECT_ZOFF_OK(comes.step(rank, RANKS));
            if (life % 4 == 3) {
                EXPECT_ZOFF_OK(comes.fetch(0, RANKS));
            }
            EXPECT_EQ(0u, comes.wrong);
            comes.e.reset();
            EXPECT_ZOFF_OK(stays.step(rank, RANKS));
        }
        EXPECT_EQ(0u, stays.wrong);
    });
}

TEST_P(Identity, AnEngineThatAnotherRankHasDestroyedIsNamed)
{
    if (is_over_nccl())
        GTEST_SKIP() << "over NCCL no rank receives a message that it does not expect";
    rank_group group(RANKS, GetParam().kind, TIMEOUT_SECONDS);
    group.on_each([&](unsigned rank) {
        two_engines e(GetParam(), 1, {{5000, false}});
        e.seal(group.of(rank));
        EXPECT_ZOFF_OK(e.b.step(rank, RANKS));
        if (rank == 1) {
            e.a.e.reset();
            EXPECT_EQ(ZOFF_ERR_COMM, e.b.step(rank, RANKS)); // rank 0 does not make this call
        } else {
            const double took = seconds_of([&] { EXPECT_EQ(ZOFF_ERR_COMM, e.a.step(rank, RANKS)); });
            expect_words(zoff_last_error(), {"rank 1 has destroyed engine 1 (\"actor.w0\")"});
            EXPECT_LT(took, SOON_SECONDS);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Groups, Identity,
                         testing::Values(how{over::threads, false}, how{over::threads, true}, how{over::messages, false},
                                         how{over::messages, true}),
                         [](const auto &p) {
                             return std::string(p.param.kind == over::threads ? "threads" : "messages") +
                                    (p.param.progress ? "_progress_thread" : "");
                         });
} // namespace
