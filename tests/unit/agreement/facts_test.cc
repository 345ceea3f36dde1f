// facts_test.cc: lists are compared between ranks. If they differ, every rank names the items, their values and the ranks.
#include "allocation_fault.h"
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
struct item {
    std::string name, text; // without a text the item is its count
    uint64_t count = 0;
};

// A list of a test; it counts how often it was made, and can fail.
struct items {
    std::vector<item> all;
    mutable std::vector<bool> made_as_text;
    bool fails = false;

    static zoff_status list(const void *ctx, zoff_facts *out)
    {
        const auto self = (const items *)ctx;
        self->made_as_text.push_back(out->as_text);
        if (self->fails)
            return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for the list");
        for (const item &i : self->all) {
            const zoff_status status = i.text.empty()
                                           ? zoff_agreement_facts_add_count(out, i.count, "%s", i.name.c_str())
                                           : zoff_agreement_facts_add_text(out, i.text.c_str(), "%s", i.name.c_str());
            if (status != ZOFF_OK)
                return status;
        }
        return ZOFF_OK;
    }
};

zoff_status compare(small_agreement &self, const items &mine)
{
    return zoff_agreement_facts_compare(&self.a, items::list, &mine, "the call", "Do better");
}

// Each rank's message; `make` gives the list of a rank.
std::string said(unsigned size, const std::function<std::vector<item>(unsigned rank)> &make)
{
    std::vector<std::string> words(size);
    on_ranks(size, [&](small_agreement &self, unsigned rank) {
        items mine;
        mine.all = make(rank);
        EXPECT_EQ(ZOFF_ERR_INVALID, compare(self, mine));
        words[rank] = zoff_last_error();
        EXPECT_EQ((std::vector<bool>{false, true}), mine.made_as_text);
        items same;
        EXPECT_ZOFF_OK(compare(self, same)) << "the next comparison is a new one";
    });
    for (unsigned rank = 1; rank < size; rank++) {
        EXPECT_EQ(words[0], words[rank]) << "rank " << rank;
    }
    return words[0];
}

TEST(Facts, AgreeingRanksFormatNoText)
{
    on_ranks(3, [](small_agreement &self, unsigned) {
        items mine;
        mine.all = {{"a", "x"}, {"b", "", 7}};
        EXPECT_ZOFF_OK(compare(self, mine));
        EXPECT_EQ((std::vector<bool>{false}), mine.made_as_text);
    });
}

TEST(Facts, ASingleRankMakesNoFacts)
{
    on_ranks(1, [](small_agreement &self, unsigned) {
        items mine;
        mine.fails = true;
        EXPECT_ZOFF_OK(compare(self, mine));
        EXPECT_TRUE(mine.made_as_text.empty());
    });
}

TEST(FactsThatDiffer, AreNamedWithTheirValuesAndRanks)
{
    EXPECT_EQ("the call: size is 7 on rank 0 and 8 on rank 1; colour is red on rank 0 and blue on rank 1. Do better",
              said(2, [](unsigned rank) {
                  return std::vector<item>{
                      {"same", "x"}, {"size", "", 7u + rank}, {"also", "", 1}, {"colour", rank ? "blue" : "red"}};
              }));
}

// Ranks 1 and 4 have another value than rank 0; rank 3 has a third one.
TEST(FactsThatDiffer, AreThoseOfRank0AndOfTheFirstOtherRank)
{
    EXPECT_EQ("the call: size is 0 on ranks 0 and 2 and 1 on ranks 1 and 4. Do better", said(5, [](unsigned rank) {
                  return std::vector<item>{{"size", "", rank == 3 ? 9u : rank == 1 || rank == 4}};
              }));
}

TEST(FactsThatDiffer, AreEightAtMost)
{
    for (const unsigned count : {8u, 9u, 12u}) {
        const std::string words = said(2, [count](unsigned rank) {
            std::vector<item> list;
            for (unsigned i = 0; i < count; i++)
                list.push_back({"item" + std::to_string(i), "", rank});
            return list;
        });
        EXPECT_NE(std::string::npos, words.find("item7 is")) << words;
        EXPECT_EQ(std::string::npos, words.find("item8 is")) << words;
        const std::string more = count == 8 ? "on rank 1. Do" : "; and " + std::to_string(count - 8) + " more. Do";
        EXPECT_NE(std::string::npos, words.find(more)) << words;
    }
}

TEST(FactsThatDiffer, AreCutWhereValuesAreLong)
{
    const std::string most(120, 'v');
    EXPECT_EQ("the call: n is " + most + " on rank 0 and w" + most.substr(1) + " on rank 1. Do better",
              said(2, [&](unsigned rank) {
                  return std::vector<item>{{"n", (rank ? "w" + most.substr(1) : most) + "beyond"}};
              }));
}

// The last item that is shown is cut; the number of those left out is reported anyway.
TEST(FactsThatDiffer, MayHaveLongNames)
{
    const std::string words = said(2, [](unsigned rank) {
        std::vector<item> list;
        for (int i = 0; i < 4; i++)
            list.push_back({"short" + std::to_string(i), std::string(120, (char)('a' + rank))});
        for (int i = 0; i < 5; i++)
            list.push_back({std::string(600, (char)('A' + i)), std::string(200, (char)('a' + rank))});
        return list;
    });
    EXPECT_EQ(0u, words.find("the call: short0 is aaa")) << words;
    EXPECT_NE(std::string::npos, words.find("; short3 is aaa")) << words;
    EXPECT_NE(std::string::npos, words.find("; " + std::string(400, 'A'))) << words;
    EXPECT_NE(std::string::npos, words.find("; and 4 more. Do better")) << words;
}

TEST(FactsOfOtherItems, AreNamed)
{
    EXPECT_EQ("the call: the list of rank 0 has \"a\" where that of ranks 1 and 2 has \"b\": all ranks need the same version "
              "of zoff. Do better",
              said(3, [](unsigned rank) {
                  return std::vector<item>{{"same", "x"}, {rank ? "b" : "a", "", rank > 0}};
              }));
    EXPECT_EQ("the call: the list of rank 0 has \"more\" where that of rank 1 has \"nothing\": all ranks need the same version "
              "of zoff. Do better",
              said(2, [](unsigned rank) {
                  std::vector<item> list{{"same", "x"}, {"more", "y"}};
                  list.resize(2 - rank);
                  return list;
              }));
}

TEST(FactsOfARankThatFails, FailOnEveryRank)
{
    on_ranks(3, [](small_agreement &self, unsigned rank) {
        items mine;
        mine.fails = rank == 1;
        EXPECT_ZOFF_FAILS(rank == 1 ? ZOFF_ERR_NO_MEMORY : ZOFF_ERR_COMM,
                          rank == 1 ? "no memory for the list" : "rank 1 has failed, and this one has not",
                          compare(self, mine));
        mine.fails = false;
        EXPECT_ZOFF_OK(compare(self, mine));
    });
}

// If an allocation fails on one rank, the others learn of it at once. Nobody waits for the deadline of 60 seconds.
TEST(FactsWithoutMemory, OnOneRankFailOnEveryRank)
{
    int failures = 0;
    for (long nth = 0, done = 0; !done; nth++) {
        on_ranks(
            3,
            [&](small_agreement &self, unsigned rank) {
                items mine;
                mine.all = {{"name", "long enough for a list of its own"}, {"value", rank == 2 ? "b" : "a"}};
                const bool is_it = rank == 1;
                allocations_left = is_it ? nth : -1;
                const zoff_status status = compare(self, mine);
                const std::string words = zoff_last_error();
                if (is_it && allocations_left >= 0)
                    done = 1;
                allocations_left = -1;
                EXPECT_TRUE(status == ZOFF_ERR_NO_MEMORY || status == ZOFF_ERR_COMM || status == ZOFF_ERR_INVALID) << status;
                EXPECT_EQ(std::string::npos, words.find("did not come")) << words;
                if (status == ZOFF_ERR_COMM) {
                    EXPECT_NE(std::string::npos, words.find("rank 1 has failed")) << words;
                }
                if (is_it)
                    failures += status == ZOFF_ERR_NO_MEMORY;
            },
            60);
    }
    EXPECT_GT(failures, 3);
}

TEST(FactsWithoutMemory, LeaveTheListAsItWas)
{
    for (const bool as_text : {false, true}) {
        zoff_facts facts = {};
        facts.as_text = as_text;
        ASSERT_ZOFF_OK(zoff_agreement_facts_add_count(&facts, 5, "first"));
        const size_t before = as_text ? facts.text_bytes : facts.word_count;
        EXPECT_EQ(as_text ? 8u : 1u, before);
        zoff_status status = ZOFF_OK;
        size_t filled = before;
        for (int i = 0; status == ZOFF_OK && i < 10000; i++) { // until there is no room for another one
            filled = as_text ? facts.text_bytes : facts.word_count;
            allocations_left = 0;
            status = zoff_agreement_facts_add_count(&facts, 5, "n");
            allocations_left = -1;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "values of ranks", status);
        if (!as_text) {
            EXPECT_EQ(filled, facts.word_count);
        }
        ASSERT_ZOFF_OK(zoff_agreement_facts_add_text(&facts, "value", "last"));
        if (as_text) {
            EXPECT_STREQ("first", facts.text);
            EXPECT_STREQ("5", facts.text + 6);
            EXPECT_EQ(std::string("last\0value", 11), std::string(facts.text + facts.text_bytes - 11, 11));
        } else {
            EXPECT_EQ(5u, facts.words[0]);
            EXPECT_EQ(zoff_offload_layout("value", 5), facts.words[filled]);
        }
        zoff_base_mem_free(facts.text);
        zoff_base_mem_free(facts.words);
    }
}

std::string ranks_in_words(unsigned ranks, const std::set<unsigned> &those, size_t bytes = 128)
{
    std::vector<char> dst(bytes + 1, '#');
    zoff_agreement_facts_print_ranks(
        ranks, [](const void *ctx, unsigned rank) { return ((const std::set<unsigned> *)ctx)->count(rank) > 0; }, &those,
        dst.data(), bytes);
    EXPECT_EQ('#', dst[bytes]) << "it has written too far";
    return dst.data();
}

TEST(FactsPrintRanks, NamesEightAtMost)
{
    EXPECT_EQ("rank 3", ranks_in_words(4, {3}));
    EXPECT_EQ("ranks 0 and 3", ranks_in_words(4, {0, 3}));
    EXPECT_EQ("ranks 1, 2 and 4", ranks_in_words(6, {1, 2, 4}));
    EXPECT_EQ("ranks 0, 1, 2, 3, 4, 5, 6 and 7", ranks_in_words(8, {0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more", ranks_in_words(9, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more", ranks_in_words(20, {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 18, 19}));
}

TEST(FactsPrintRanks, StopsWhereThereIsNoRoom)
{
    for (size_t bytes = 1; bytes < 20; bytes++)
        EXPECT_EQ(std::string("ranks 1, 2 and 4").substr(0, bytes - 1), ranks_in_words(6, {1, 2, 4}, bytes)) << bytes;
}

struct field {
    const char *name, *value;
    void (*set)(zoff_optimizer_hyper &h);
};

const field FIELDS[] = {
    {"lr", "0.25", [](zoff_optimizer_hyper &h) { h.lr = 0.25; }},
    {"beta1", "0.5", [](zoff_optimizer_hyper &h) { h.beta1 = 0.5; }},
    {"beta2", "0.75", [](zoff_optimizer_hyper &h) { h.beta2 = 0.75; }},
    {"eps", "0.10000000000000001", [](zoff_optimizer_hyper &h) { h.eps = 0.1; }},
    {"decay", "L2", [](zoff_optimizer_hyper &h) { h.decay = ZOFF_DECAY_L2; }},
    {"momentum", "3", [](zoff_optimizer_hyper &h) { h.momentum = 3; }},
    {"dampening", "2", [](zoff_optimizer_hyper &h) { h.dampening = 2; }},
    {"lr_decay", "-0.5", [](zoff_optimizer_hyper &h) { h.lr_decay = -0.5; }},
    {"nesterov", "true", [](zoff_optimizer_hyper &h) { h.nesterov = true; }},
    {"optimizer", "Lion", [](zoff_optimizer_hyper &h) { h.optimizer = ZOFF_OPTIMIZER_LION; }},
    {"weight_decay", "0.125", [](zoff_optimizer_hyper &h) { h.weight_decay = 0.125; }},
    {"flags", "0x11", [](zoff_optimizer_hyper &h) { h.flags = 0x11; }},
};

TEST(FactsHyper, EachFieldHasAWordAndAName)
{
    const size_t count = zoff_agreement_facts_hyper_count();
    ASSERT_EQ(sizeof FIELDS / sizeof FIELDS[0], count);
    zoff_optimizer_hyper usual;
    zoff_optimizer_hyper_init(&usual, ZOFF_OPTIMIZER_ADAM);
    std::vector<uint64_t> before(count), after(count);
    zoff_agreement_facts_hyper_words(&usual, before.data());
    for (const field &f : FIELDS) {
        zoff_optimizer_hyper other = usual;
        f.set(other);
        zoff_agreement_facts_hyper_words(&other, after.data());
        std::vector<std::string> changed;
        for (size_t i = 0; i < count; i++) {
            char value[64];
            const char *name = zoff_agreement_facts_hyper_print(i, after[i], value, sizeof value);
            if (before[i] != after[i])
                changed.push_back(name + std::string(" ") + value);
        }
        EXPECT_EQ((std::vector<std::string>{f.name + std::string(" ") + f.value}), changed);
    }
}

TEST(FactsHyper, WordsArePrintedAsTheirFieldIs)
{
    std::vector<std::string> all;
    for (size_t i = 0; i < zoff_agreement_facts_hyper_count(); i++) {
        for (const uint64_t word : {0u, 1u, 3u, 4u}) {
            char value[64];
            const std::string name = zoff_agreement_facts_hyper_print(i, word, value, sizeof value);
            if (name == "decay" || name == "optimizer" || name == "nesterov" || name == "flags")
                all.push_back(value);
        }
    }
    EXPECT_EQ((std::vector<std::string>{"decoupled", "L2", "decoupled", "decoupled", "false", "true", "true", "true", "Adam",
                                        "Adagrad", "SGD", "unknown", "0", "0x1", "0x3", "0x4"}),
              all);
}
} // namespace
