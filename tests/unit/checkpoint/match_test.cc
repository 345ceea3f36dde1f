/* SPDX-License-Identifier: Apache-2.0 */
// match_test.cc: whether a checkpoint is of the engine's model: patterns of names, messages, ties, and hyper-parameters. Loads
// of each kind of difference are in e2e/checkpoint/remedy_test.cc.
#include "named_model.h"

using namespace zoff_test;

namespace
{
class Match : public testing::Test
{
  protected:
    ~Match() override { zoff_checkpoint_match_close(&match); }
    // Compare the engine `here` with what a save of `there` has.
    zoff_status compare(const char *allow = nullptr, bool skip_frozen = false, bool weights_only = false)
    {
        if (!here.made)
            here.seal(text);
        if (!there.made)
            there.seal();
        there.describe(skip_frozen);
        zoff_checkpoint_match_close(&match);
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.allow = allow;
        opts.weights_only = weights_only;
        return zoff_checkpoint_match_open(here.view(), &there.a, &opts, &match);
    }
    std::vector<uint32_t> found() const { return {match.to, match.to + here.descs.size()}; }
    void expect_difference(const std::string &words, const char *allow = nullptr)
    {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, compare(allow));
        EXPECT_EQ(nullptr, match.to);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "the checkpoint 'the/checkpoint' is of another model"));
    }
    static size_t count_of(const std::string &text, const std::string &words)
    {
        size_t count = 0;
        for (size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1))
            count++;
        return count;
    }

    log_catcher log;
    named_model here, there;
    std::string text = config_text("");
    zoff_match match = {};
};
using Names = Match;
using Shapes = Match;
using States = Match;
using Ties = Match;
using Groups = Match;

TEST_F(Names, PatternsAreWholeNames)
{
    here.add("same", 10);
    here.add("head.weight", 10);
    there.add("same", 10);
    for (const char *allow : {"*", "head.*", "*.weight", "*ad.w*t", "  other   head.weight  ", "h*e*a*d*", "head.weight*"}) {
        ASSERT_ZOFF_OK(compare(allow)) << allow;
        EXPECT_EQ((std::vector<uint32_t>{1, 0}), found());
    }
    for (const char *allow : {"", " ", "head", "weight", "head.*.bias", "*head", "head.weigh?", "HEAD.*", "same"})
        expect_difference("'head.weight' is not in the checkpoint", allow);
    expect_difference("'head.weight' is not in the checkpoint");
}

// Names may have any bytes. Only "*" is special in a pattern.
TEST_F(Names, OtherCharactersMeanThemselves)
{
    here.add("same", 10);
    here.add("layers[3].w\\b?\xff", 10);
    there.add("same", 10);
    EXPECT_ZOFF_OK(compare("layers[3].w\\b?\xff"));
    EXPECT_ZOFF_OK(compare("layers[*].w\\b?*"));
    EXPECT_ZOFF_OK(compare("layers*\xff"));
    expect_difference("'layers[3]", "layers?3?.w\\b?\xff");
    expect_difference("'layers[3]", "layers[0-9].*");
}

TEST_F(Names, AMessageNamesTheFirstAndCountsTheRest)
{
    for (int i = 0; i < 9; i++)
        here.add("long" + std::string(300, 'g') + std::to_string(i), 10);
    there.add("same", 10);
    expect_difference("in 10 places: 'long");
    const std::string words = zoff_last_error();
    EXPECT_EQ(6u, count_of(words, "is not in the checkpoint")) << words;
    EXPECT_NE(words.npos, words.find("; .... zoff_checkpoint_opts.allow")) << words;
    EXPECT_EQ(0u, count_of(words, "checkpoint only")) << "it comes last";
}

TEST_F(Shapes, DimsThatBothKnow)
{
    here.add("a", 12);
    here.shape({3, 4});
    there.add("a", 12);
    there.shape({4, 3});
    expect_difference("in 1 places: 'a' has the dims [4, 3], here [3, 4]. zoff_checkpoint_opts.allow names parameters that may "
                      "be missing, extra or different");
    log.expect("'a' has the dims [4, 3], here [3, 4]. Its states are taken, and the rest stays as it is");
    ASSERT_ZOFF_OK(compare("a"));
    EXPECT_EQ((std::vector<uint32_t>{1}), found()) << "elements in their order";
}

TEST_F(Shapes, DimsThatOneKnows)
{
    here.add("a", 12);
    here.shape({3, 4});
    here.add("b", 12);
    here.add("c", 12);
    here.shape({2, 6});
    there.add("a", 12);
    there.add("b", 12);
    there.shape({4, 3});
    there.add("c", 12);
    there.shape({2, 6});
    EXPECT_ZOFF_OK(compare());
}

// There is nothing to take.
TEST_F(States, ATrainedOneThatWasFrozenAndLeftOut)
{
    here.add("a", 10);
    here.add("b", 10);
    there.add("a", 10);
    there.add_frozen("b", 10);
    for (const bool weights_only : {false, true}) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "in 1 places: 'b' was frozen, and its weights were left out. zoff_checkpoint_opts",
                          compare(nullptr, true, weights_only));
        EXPECT_EQ(nullptr, strstr(zoff_last_error(), "weights_only"));
        log.expect("'b' was frozen, and its weights were left out");
        ASSERT_ZOFF_OK(compare("b", true, weights_only));
        EXPECT_EQ((std::vector<uint32_t>{1, 0}), found());
    }
}

// The message names the option that helps, and only where it does.
TEST_F(States, AnotherOptimizer)
{
    static const char REMEDY[] =
        "may be missing, extra or different; weights_only takes the weights of any optimizer, and begins "
        "with new states";
    text = "{\"optimizer\": {\"type\": \"Lion\"}}";
    here.add("a", 10);
    here.add_frozen("b", 10);
    here.add("c", 10);
    here.add("d", 10);
    there.add("a", 10);
    there.add("b", 10);
    there.add_frozen("c", 10);
    expect_difference("'a' has states that its optimizer has not here; 'b' is trained, here frozen");
    expect_difference(REMEDY);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "in 1 places: 'd' is not in the checkpoint", compare(nullptr, false, true));
    EXPECT_EQ(nullptr, strstr(zoff_last_error(), "weights_only"));
    ASSERT_ZOFF_OK(compare("d", false, true));
    EXPECT_EQ((std::vector<uint32_t>{1, 2, 3, 0}), found());
}

// Moments have the same names and sizes in several optimizers, so the rule of matrices is compared by its name.
TEST_F(States, AnotherRule)
{
    static const char ADAM[] = "begins with new states; zoff.adam_params names parameters that go on with AdamW";
    const auto muon = [](const char *more) {
        return "{\"optimizer\": {\"type\": \"Muon\"}, \"zoff\": {" + std::string(more) + "}}";
    };
    const auto type = [](const char *name) {
        return "{\"optimizer\": {\"type\": \"" + std::string(name) + "\", \"params\": {" +
               (std::string(name) == "SGD" ? "\"momentum\": 0.5" : "") + "}}}";
    };
    const struct {
        std::string there, here, words;
        bool adam;
    } all[] = {
        {type("AdamW"), muon(""), "in 1 places: 'w' has the moments of AdamW, here of muon. ", true},
        {type("Adam"), muon(""), "'w' has the moments of AdamW, here of muon", true},
        {type("Lion"), muon(""), "in 2 places: 'w' has the moments of Lion, here of muon; 'b' lacks states", false},
        {type("SGD"), muon(""), "'w' has the moments of SGD, here of muon", false},
        {type("Adagrad"), muon(""), "'w' has the moments of Adagrad, here of muon", false},
        {muon(""), type("AdamW"), "in 1 places: 'w' has the moments of muon, here of AdamW. ", false},
        {muon(""), type("Lion"), "'w' has the moments of muon, here of Lion; 'b' has states", false},
        {muon(""), type("SGD"), "'w' has the moments of muon, here of SGD", false},
        {muon("\"adam_params\": \"w\""), muon(""), "in 1 places: 'w' has the moments of AdamW, here of muon. ", true},
        {muon(""), muon("\"adam_params\": \"w\""), "in 1 places: 'w' has the moments of muon, here of AdamW. ", false},
    };
    for (const auto &one : all) {
        SCOPED_TRACE(one.there + one.here);
        named_model from, to;
        for (named_model *m : {&from, &to}) {
            m->add("w", 12);
            m->shape({3, 4});
            m->add("b", 5);
            m->seal(m == &from ? one.there : one.here);
        }
        from.describe();
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, one.words, zoff_checkpoint_match_open(to.view(), &from.a, &opts, &match));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "; weights_only takes the weights of any optimizer"));
        EXPECT_EQ(one.adam, strstr(zoff_last_error(), ADAM) != nullptr) << zoff_last_error();
        opts.weights_only = true;
        EXPECT_ZOFF_OK(zoff_checkpoint_match_open(to.view(), &from.a, &opts, &match));
        zoff_checkpoint_match_close(&match);
    }
    // A tool knows no groups.
    named_model from, to;
    for (named_model *m : {&from, &to}) {
        m->add("w", 12);
        m->shape({3, 4});
        m->seal(m == &from ? type("Lion") : muon(""));
    }
    from.describe();
    from.a.manifest.params[0].group = 9;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "'w' has the moments of an element rule, here of muon",
                      zoff_checkpoint_match_open(to.view(), &from.a, &opts, &match));
}

// They load, and one warning names all. The groups may have other numbers: a parameter knows its own.
TEST_F(Groups, OtherHyperParametersAreTold)
{
    for (const char *name : {"a", "b"}) {
        here.add(name, 10).group = name[0] == 'b' ? 1 : 2;
        there.add(name, 10).group = name[0] == 'b' ? 1 : 0;
    }
    there.seal();
    here.seal(text);
    ASSERT_ZOFF_OK(compare());
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    ASSERT_ZOFF_OK(zoff_engine_get_group(here.made.get(), 2, 0, &h));
    h.weight_decay = 0.25;
    h.beta2 = 0.5;
    ASSERT_ZOFF_OK(zoff_engine_set_group(here.made.get(), 2, &h));
    log.expect(
        "the run goes on from the checkpoint 'the/checkpoint' with other hyper-parameters, in 2 places: 'group 2' has beta2 "
        "0.999, here 0.5; 'group 2' has weight_decay 0, here 0.25");
    ASSERT_ZOFF_OK(compare());
    h.decay = ZOFF_DECAY_L2;
    h.flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    ASSERT_ZOFF_OK(zoff_engine_set_group(here.made.get(), 2, &h));
    log.expect(
        "in 4 places: 'group 2' has optimizer.type AdamW, here Adam; 'group 2' has beta2 0.999, here 0.5; 'group 2' has "
        "weight_decay 0, here 0.25; 'group 2' has bias_correction 1, here 0. zoff_checkpoint_opts.weights_only begins with "
        "new states");
    ASSERT_ZOFF_OK(compare());
}

// A program may set the rate before each step. Another rate from the beginning is told.
TEST_F(Groups, TheLearningRateIsThatOfTheBeginning)
{
    here.add("a", 10);
    there.add("a", 10);
    ASSERT_ZOFF_OK(compare());
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    ASSERT_ZOFF_OK(zoff_engine_get_group(there.made.get(), 0, 0, &h));
    const double rate = h.lr;
    h.lr = rate / 7;
    ASSERT_ZOFF_OK(zoff_engine_set_group(there.made.get(), 0, &h));
    there.forget();
    ASSERT_ZOFF_OK(compare());
    text = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}}";
    here.made.reset();
    log.expect("in 1 places: 'group 0' has lr 0.01, here 0.5");
    ASSERT_ZOFF_OK(compare());
}

// Two parameters that are not tied any more begin with the states of the former owner.
TEST_F(Ties, MayBeInTheCheckpointOnly)
{
    here.add("a", 10);
    here.add("b", 10);
    there.add("a", 10);
    there.add_tied("b", 0);
    EXPECT_ZOFF_OK(compare());
}

TEST_F(Ties, MayHaveAnotherOrder)
{
    here.add("a", 10);
    here.add_tied("b", 0);
    there.add("b", 10);
    there.add_tied("a", 0);
    EXPECT_ZOFF_OK(compare());
}

TEST_F(Ties, MustHaveTheSameOwner)
{
    here.add("a", 10);
    here.add("c", 10);
    here.add_tied("b", 0);
    there.add("a", 10);
    there.add("c", 10);
    there.add_tied("b", 1);
    expect_difference("in 1 places: 'b' is tied to 'c', here to 'a'");
    log.expect("'b' is tied to 'c'");
    EXPECT_ZOFF_OK(compare("b"));
}

// One set of states is enough, under any of the names.
TEST_F(Ties, NeedOneSetOfStates)
{
    here.add("a", 10);
    here.add_tied("b", 0);
    there.add("a", 10);
    ASSERT_ZOFF_OK(compare());
    EXPECT_EQ((std::vector<uint32_t>{1, 0}), found()) << "a tied parameter has no states that could be missing";
    there.descs[0].name = "b";
    there.made.reset();
    there.forget();
    ASSERT_ZOFF_OK(compare());
    EXPECT_EQ((std::vector<uint32_t>{1, 1}), found());
    there.descs[0].name = "c";
    there.made.reset();
    there.forget();
    expect_difference("in 2 places: 'a' is not in the checkpoint; 'c' is in the checkpoint only");
}

// The states of a name that is tied in the checkpoint are those of its owner, so neither is left over.
TEST_F(Ties, OneNameOfTheCheckpointIsEnough)
{
    there.add("a", 10);
    there.add_tied("b", 0);
    for (const char *name : {"a", "b"}) {
        here.descs.clear();
        here.made.reset();
        here.add(name, 10);
        EXPECT_ZOFF_OK(compare()) << name;
    }
}
} // namespace
