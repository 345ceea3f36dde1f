/* SPDX-License-Identifier: Apache-2.0 */
// open_test.cc: ranks that open their stores side by side continue with a commit that all of them have.
#include "small_agreement.h"

extern "C" {
#include "tier.h"
}

using namespace zoff_test;

namespace
{
const zoff_store_ops WRITTEN = {}; // a store that has written all of its content, and has nothing to record

// A rank that opens a store; the test decides what the store does.
struct opening : small_agreement {
    explicit opening(zoff_comm *ranks) : small_agreement(ranks) {}
    ~opening() { zoff_agreement_open_free(&a); }

    void open(float first = 1)
    {
        value.assign(20, first);
        zoff_param_desc d = weights("owned", value.data(), 20);
        d.engine_owned = true;
        parts.add(d);
        ASSERT_NO_FATAL_FAILURE(plan());
        ASSERT_ZOFF_OK(zoff_agreement_open_allocate(&a));
        ASSERT_NO_FATAL_FAILURE(wire.open());
    }
    zoff_status run(const std::function<zoff_status()> &work) { return zoff_agreement_open_end(&a, work()); }
    zoff_status decide(const zoff_store_found &found, int64_t wanted_t = 0)
    {
        const zoff_status status = zoff_agreement_open_decide(&a, &found, wanted_t, &generation);
        return status;
    }
    // Returns when all ranks have written.
    zoff_status write()
    {
        zoff_store store = {};
        zoff_store_opts opts = {};
        store.ops = &WRITTEN;
        opts.persist = true;
        const zoff_status status = zoff_agreement_open_fill(&a, &store, &opts);
        EXPECT_EQ(status == ZOFF_OK, store.is_open);
        return status;
    }
    std::vector<float> value;
    uint64_t generation = 12345;
};

// A round is a note to each other rank: a rank sends about as many in a second, whatever the number of ranks.
TEST(OpenPause, GrowsWithTheRanks)
{
    zoff_comm comm = {};
    comm.timeout_seconds = 600;
    for (const unsigned ranks : {2u, 64u, 127u, 128u, 1024u, 16384u}) {
        comm.size = ranks;
        const double seconds = zoff_agreement_open_pause(&comm);
        EXPECT_LE(0.02, seconds);
        EXPECT_LE(ranks / seconds, 6400) << "notes of a rank in a second";
    }
    comm.timeout_seconds = 1;
    EXPECT_EQ(0.1, zoff_agreement_open_pause(&comm)) << "others hear of it in time";
    comm.timeout_seconds = -1;
    EXPECT_LT(5, zoff_agreement_open_pause(&comm));
}

constexpr zoff_store_found NEW = {0, 0, false};       // no file
constexpr zoff_store_found BEGINNING = {1, 0, false}; // the first content was committed

// Let all ranks decide, and check what the stores do then.
void decide(const std::vector<zoff_store_found> &found, uint64_t want, const std::string &words = "")
{
    each_rank<opening>((unsigned)found.size(), [&](opening &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        bool is_written = false;
        const zoff_status status = self.run([&] {
            const zoff_status decided = self.decide(found[rank]);
            if (decided != ZOFF_OK)
                return decided;
            const zoff_status written = self.write();
            is_written = written == ZOFF_OK;
            return written;
        });
        EXPECT_EQ(words.empty(), is_written);
        if (words.empty()) {
            EXPECT_ZOFF_OK(status);
            EXPECT_EQ(want, self.generation);
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, words, status);
        }
    });
}

TEST(OpenDecides, AllStartAnewIfNoRankHasStates)
{
    decide({NEW, NEW, NEW}, 0);
    decide({BEGINNING, BEGINNING}, 0);
    decide({NEW, BEGINNING, NEW}, 0);
}

TEST(OpenDecides, OnTheCommitThatAllHave)
{
    decide({{5, 4, true}, {5, 4, true}, {5, 4, true}}, 5);
    decide({{6, 5, true}, {5, 4, true}, {6, 5, true}}, 5);
    decide({{5, 4, true}, {6, 5, true}}, 5);
}

// Some ranks have committed the very first step, and one died before it could.
TEST(OpenDecides, AllStartAnewIfOneHasOnlyTheFirstContent)
{
    decide({{2, 1, true}, BEGINNING}, 0);
    decide({NEW, {1, 0, true}, NEW}, 0);
}

TEST(OpenDecides, CommitsTooFarApartAreCorrupt)
{
    decide({{5, 4, true}, {7, 6, true}, {6, 5, true}}, 0,
           "zoff_engine_seal: rank 1 has the states after step 6 (generation 7), and rank 0 those after step 4 (generation 5): "
           "no generation is on both. Remove the files and restart from a checkpoint");
}

// One generation is one step on all ranks. That of a rank that is ahead is the one before its last.
TEST(OpenDecides, AGenerationOfDifferentStepsIsCorrupt)
{
    decide(
        {{5, 4, true}, {5, 4, true}, {5, 3, true}}, 0,
        "zoff_engine_seal: the files of rank 0 have the states after step 4 as generation 5, and those of rank 2 the states "
        "after step 3: they are of different runs. Give each rank its former folders, or remove the files and restart from a "
        "checkpoint");
    decide({{6, 5, true, true, 3}, {5, 4, true, true, 3}}, 0,
           "the files of rank 1 have the states after step 4 as generation 5, and those of rank 0 the states after step 3");
    decide({{6, 5, true, true, 4}, {5, 4, true, true, 3}}, 5);
}

TEST(OpenDecides, ARankWithoutStatesIsCorrupt)
{
    const std::string words =
        "zoff_engine_seal: rank 2 has the states after step 6, but rank 1 has none in its nvme_path. Give "
        "each rank its former folders";
    decide({{7, 6, true}, NEW, {8, 6, true}}, 0, words);
    decide({{7, 6, true}, BEGINNING, {8, 6, true}}, 0, words);
    decide({{1, 6, true}, BEGINNING, {2, 6, true}}, 0, words);
}

// The program asks for the states after a step, on one rank and on several.
TEST(OpenDecides, OnTheCommitThatIsWanted)
{
    const struct {
        std::vector<zoff_store_found> found;
        int64_t wanted_t;
        uint64_t generation;
        std::string words;
    } cases[] = {
        {{{5, 9, true, true, 8}, {5, 9, true, true, 8}}, 9, 5, ""},
        {{{5, 9, true, true, 8}, {5, 9, true, true, 8}}, 8, 4, ""},
        {{{5, 9, true, true, 9}}, 9, 5, ""},
        {{{5, 9, true, true, 8}}, 8, 4, ""},
        {{{5, 9, true, false, 0}}, 9, 5, ""},
        {{{5, 9, true, true, 8}},
         7,
         0,
         "persist_t is 7, but the state files have the states after step 9, and those after step 8"},
        {{{5, 9, true, false, 0}}, 8, 0, "persist_t is 8, but the state files have the states after step 9 alone"},
        // A rank that is ahead has overwritten the commit before.
        {{{5, 9, true, true, 8}, {6, 10, true, true, 9}}, 9, 5, ""},
        {{{6, 10, true, true, 9}, {5, 9, true, true, 8}}, 8, 0, "have the states after step 9 alone"},
        {{{6, 10, true, true, 9}, {5, 9, true, true, 8}}, 10, 0, "have the states after step 9 alone"},
        {{NEW, BEGINNING}, 3, 0, "persist_t is 3, but nvme_path has no states of an earlier run"},
        {{NEW}, 3, 0, "persist_t is 3, but nvme_path has no states of an earlier run"},
    };
    for (const auto &c : cases) {
        each_rank<opening>((unsigned)c.found.size(), [&](opening &self, unsigned rank) {
            ASSERT_NO_FATAL_FAILURE(self.open());
            const zoff_status status = self.run([&] { return self.decide(c.found[rank], c.wanted_t); });
            if (c.words.empty()) {
                EXPECT_ZOFF_OK(status);
                EXPECT_EQ(c.generation, self.generation) << c.wanted_t;
            } else {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, status);
            }
        });
    }
}

TEST(OpenDecides, FirstWeightsAreTheSameIfAllStartAnew)
{
    for (const bool is_new : {true, false}) {
        each_rank<opening>(2, [is_new](opening &self, unsigned rank) {
            ASSERT_NO_FATAL_FAILURE(self.open((float)rank));
            const zoff_status status = self.run([&] { return self.decide(is_new ? NEW : zoff_store_found{3, 2, true}); });
            if (is_new) {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the checksum of the first weights of parameter 0 (owned), slice 0,",
                                  status);
                EXPECT_TRUE(self.a.ranks.is_over);
            } else {
                EXPECT_ZOFF_OK(status);
            }
        });
    }
}
} // namespace
