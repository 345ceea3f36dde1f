/* SPDX-License-Identifier: Apache-2.0 */
// names_test.cc: operations, items, channels and calls in the words of error messages.
#include "thread_ranks.h"

using namespace zoff_test;

namespace
{
std::string words_of(const zoff_comm *comm, uint32_t channel, zoff_comm_item item)
{
    char words[240];
    zoff_comm_names_item(comm, channel, &item, words, sizeof words);
    return words;
}

std::string words_of(const zoff_comm *comm, uint32_t channel, uint32_t call, zoff_comm_item item = {})
{
    zoff_comm_visit visit = {};
    visit.channel = channel;
    visit.call = call;
    visit.item = item;
    char words[512];
    zoff_comm_names_visit(comm, &visit, words, sizeof words);
    return words;
}

// A rank with a channel of two parameters; the second has no name.
class Names : public testing::Test
{
  protected:
    Names()
    {
        snprintf(channel.name, sizeof channel.name, "critic");
        channel.param_name = [](const void *, uint32_t param) { return param == 0 ? "layer.w" : nullptr; };
        zoff_comm_channel_come(ranks[0], &channel);
        EXPECT_ZOFF_OK(zoff_comm_channel_open(ranks[0], &channel));
    }
    ~Names() override { zoff_comm_channel_leave(ranks[0], &channel); }
    thread_ranks ranks{1};
    zoff_comm_channel channel = {};
};
} // namespace

TEST_F(Names, OperationsHaveNames)
{
    const std::pair<zoff_comm_kind, const char *> kinds[] = {{ZOFF_COMM_EXCHANGE, "all_to_all"},
                                                             {ZOFF_COMM_GATHER, "all_gather"},
                                                             {ZOFF_COMM_SUM, "sum"},
                                                             {ZOFF_COMM_BROADCAST, "broadcast"},
                                                             {ZOFF_COMM_BARRIER, "barrier"}};
    for (const auto &kind : kinds)
        EXPECT_STREQ(kind.second, zoff_comm_names_kind(kind.first, false));
    EXPECT_STREQ("reduce_scatter", zoff_comm_names_kind(ZOFF_COMM_EXCHANGE, true));
}

TEST_F(Names, ChannelsHaveNames)
{
    char words[128];
    zoff_comm_names_channel(ranks[0], channel.id, words, sizeof words);
    EXPECT_STREQ("engine 1 (\"critic\")", words);
    zoff_comm_names_channel(ranks[0], 9, words, sizeof words);
    EXPECT_STREQ("engine 9", words) << "this rank has no such engine";
    channel.name[0] = 0;
    zoff_comm_names_channel(ranks[0], channel.id, words, sizeof words);
    EXPECT_STREQ("engine 1", words);
    zoff_comm_names_channel(ranks[0], 123456, words, 9);
    EXPECT_STREQ("engine 1", words) << "cut at the end of the caller's memory";
}

TEST_F(Names, ItemsHaveNames)
{
    const struct {
        zoff_comm_item item;
        const char *words;
    } cells[] = {{{ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0}, ""},
                 {{ZOFF_COMM_ABOUT_CHANNEL, 0, 0, 0}, "the engine to seal"},
                 {{ZOFF_COMM_ABOUT_AGREEMENT, 0, 0, 0}, "values that ranks compare"},
                 {{ZOFF_COMM_ABOUT_FIRST_WEIGHTS, 0, 0, 0}, "first weights of batch 0"},
                 {{ZOFF_COMM_ABOUT_GRADIENTS, 0, 4, 0}, "gradients of bucket 4"},
                 {{ZOFF_COMM_ABOUT_GRADIENTS, 0, ZOFF_COMM_ALL, 0}, "gradients of bucket"},
                 {{ZOFF_COMM_ABOUT_BATCH, 0, 3, 0}, "the weights of micro-batches"},
                 {{ZOFF_COMM_ABOUT_ORDER, 0, 3, 0}, "the order of buckets"},
                 {{ZOFF_COMM_ABOUT_PARTICIPATION, 0, 0, 0}, "the slices with a gradient"},
                 {{ZOFF_COMM_ABOUT_VOTE, 0, 0, 0}, "the norm of the gradients"},
                 {{ZOFF_COMM_ABOUT_COMMIT, 0, 0, 0}, "the commit"},
                 {{ZOFF_COMM_ABOUT_WEIGHTS, 0, 5, 0}, "new weights of bucket 5"},
                 {{ZOFF_COMM_ABOUT_SUMS, 0, 6, 0}, "sums of gradients of bucket 6"},
                 {{ZOFF_COMM_ABOUT_SECONDARY, 0, 7, 0}, "secondary shards of bucket 7"},
                 {{ZOFF_COMM_ABOUT_HOSTS, 0, 0, 0}, "the hosts of the ranks"},
                 {{ZOFF_COMM_ABOUT_SLICE, 0, 2, ZOFF_COMM_ALL}, "slice 2 of layer.w"},
                 {{ZOFF_COMM_ABOUT_SLICE, 1, 2, 3}, "slice 2 of parameter 1 in bucket 3"},
                 {{ZOFF_COMM_ABOUT_MASTER, 0, 10, 20}, "20 elements from 10 on of the master weights of layer.w"},
                 {{ZOFF_COMM_ABOUT_M, 0, 10, 20}, "20 elements from 10 on of the first moments of layer.w"},
                 {{ZOFF_COMM_ABOUT_V, 0, 10, 20}, "20 elements from 10 on of the second moments of layer.w"},
                 {{ZOFF_COMM_ABOUT_ELEMENTS, 1, 10, 20}, "20 elements from 10 on of parameter 1"},
                 {{ZOFF_COMM_ABOUT_MATRICES, 0, 6, 0}, "directions of round 3 of matrices"},
                 {{ZOFF_COMM_ABOUT_MATRICES, 0, 7, 0}, "orthogonal directions of round 3 of matrices"},
                 {{ZOFF_COMM_ABOUTS, 0, 0, 0}, "an item that this version of zoff does not know"},
                 {{UINT32_MAX, 0, 0, 0}, "an item that this version of zoff does not know"}};
    std::set<uint32_t> named;
    for (const auto &cell : cells) {
        EXPECT_EQ(cell.words, words_of(ranks[0], channel.id, cell.item));
        named.insert(cell.item.about);
    }
    for (uint32_t about = 0; about < ZOFF_COMM_ABOUTS; about++)
        EXPECT_TRUE(named.count(about)) << "no cell for item " << about;
    EXPECT_EQ("slice 2 of parameter 0", words_of(ranks[0], 9, {ZOFF_COMM_ABOUT_SLICE, 0, 2, ZOFF_COMM_ALL}))
        << "of an engine that this rank does not have";
}

TEST_F(Names, CallsHaveNames)
{
    const zoff_comm_item slice = {ZOFF_COMM_ABOUT_SLICE, 0, 0, ZOFF_COMM_ALL};
    EXPECT_EQ("zoff_param_fetch() of engine 1 (\"critic\") for slice 0 of layer.w",
              words_of(ranks[0], channel.id, ZOFF_COMM_IN_FETCH, slice));
    EXPECT_EQ("zoff_step_wait() of engine 1 (\"critic\")", words_of(ranks[0], channel.id, ZOFF_COMM_IN_STEP_WAIT));
    EXPECT_EQ("zoff_persist_data()", words_of(ranks[0], 0, ZOFF_COMM_IN_PERSIST_DATA)) << "the last of the table, of no engine";
    EXPECT_EQ("zoff_step()", words_of(ranks[0], 0, ZOFF_COMM_IN_STEP_BEGIN | ZOFF_COMM_IN_STEP));
    EXPECT_EQ("zoff_step_retry()", words_of(ranks[0], 0, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_RETRY));
    EXPECT_EQ("a call", words_of(ranks[0], 0, ZOFF_COMM_IN_CALLS)) << "of a later version";
    std::set<std::string> all;
    for (uint32_t call = ZOFF_COMM_IN_SEAL; call < ZOFF_COMM_IN_CALLS; call++)
        all.insert(words_of(ranks[0], 0, call));
    EXPECT_EQ((size_t)ZOFF_COMM_IN_CALLS - 1, all.size()) << "each call has words of its own";
}
