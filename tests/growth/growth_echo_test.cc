/* SPDX-License-Identifier: Apache-2.0 */
// growth_echo_test.cc: the cost on one rank of seal and steps must be linear in the ranks, and seal must send no weights where
// all ranks have the same. Rank 0 is real. An echo stands for the others: it answers each of rank 0's headers with the same
// call, with the sizes that a rank would have and rank 0's own values.
#include "counted.h"
#include "zoff_test.h"

#include <stddef.h>
#include <string.h>

#include <deque>

extern "C" {
#include "budget.h"
#include "message_queue_priv.h"
}

using namespace zoff_test;

namespace
{
enum { PARAMS = 4, ELEMENTS = 64 << 10 };

unsigned few()
{
    return getenv("ZOFF_TEST_FULL") ? 4096 : 256;
}

struct echo {
    struct receive {
        bool done;
        char *data;
    };
    std::deque<std::string> headers;  // headers on their way to rank 0
    std::deque<receive *> listening;  // receives in the order in which they were posted
    uint64_t messages = 0, bytes = 0; // traffic that rank 0 has sent

    void deliver()
    {
        for (; !headers.empty() && !listening.empty(); headers.pop_front(), listening.pop_front()) {
            memcpy(listening.front()->data, headers.front().data(), headers.front().size());
            listening.front()->done = true;
        }
    }
    static int send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
    {
        auto self = (echo *)ctx;
        *out = nullptr;
        self->messages++;
        self->bytes += bytes;
        if (tag == 0)
            self->answer(to, (const zoff_comm_header *)data);
        return 0;
    }
    void answer(unsigned from, const zoff_comm_header *h)
    {
        enum { HEAD = offsetof(zoff_comm_header, data), HOST_SHARE = 16 + ZOFF_BUDGET_LEVELS * sizeof(zoff_budget_level) };
        if (h->says != ZOFF_COMM_CALLS && h->says != ZOFF_COMM_CLOSES && h->says != ZOFF_COMM_LEAVES)
            return;
        const size_t theirs = h->says == ZOFF_COMM_CALLS && h->expects <= sizeof h->data ? h->expects : 0;
        zoff_comm_header a;
        memset(&a, 0, sizeof a);
        memcpy(&a, h, HEAD);
        if (h->data_bytes == theirs)
            memcpy(a.data, h->data, theirs);
        if (theirs == HOST_SHARE)
            memset(a.data, 0, 8); // another host
        a.from = from;
        a.sends = h->expects;
        a.expects = h->sends;
        a.data_bytes = (uint32_t)theirs;
        a.tag = 5;
        headers.emplace_back((const char *)&a, HEAD + theirs);
        deliver();
    }
    static int post(void *ctx, unsigned, int tag, void *data, size_t, void **out)
    {
        auto self = (echo *)ctx;
        auto r = new receive{tag != 0, (char *)data}; // a piece arrives at once, as it was
        *out = r;
        if (tag == 0) {
            self->listening.push_back(r);
            self->deliver();
        }
        return 0;
    }
    static int test(void *, void **request)
    {
        auto r = (receive *)*request;
        if (r && !r->done)
            return 0;
        delete r;
        return 1;
    }
    static int cancel(void *ctx, void **request)
    {
        auto self = (echo *)ctx;
        auto r = (receive *)*request;
        for (auto at = self->listening.begin(); at != self->listening.end(); ++at) {
            if (*at == r) {
                self->listening.erase(at);
                break;
            }
        }
        if (r)
            r->done = true;
        return 0;
    }
};

struct bill {
    uint64_t blocks, messages, bytes;
};

struct costs {
    bill seal, step;
};

enum { NODE_RANKS = 8 };

// `stage` from 10 on: over two levels.
costs of(unsigned ranks, int stage)
{
    echo office;
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    t.name = "echo";
    t.ctx = &office;
    t.size = ranks;
    t.node_ranks = stage < 10 ? 0 : NODE_RANKS;
    t.send = echo::send;
    t.receive = echo::post;
    t.test = echo::test;
    t.cancel = echo::cancel;
    t.error = [](void *) -> const char * { return "none"; };
    t.close = [](void *, int) {};
    t.close_seconds = 1;
    zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
    opts.timeout_seconds = 60;
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_open_transport(&opts, &t, &made));
    const std::string text = "{\"gradient_clipping\": 1, \"zero_optimization\": {\"stage\": " + std::to_string(stage % 10) +
                             ", \"reduce_bucket_size\": 65536}, \"zoff\": {\"node_ranks\": " + (stage < 10 ? "1" : "0") + "}}";
    zoff_config *config = nullptr;
    EXPECT_ZOFF_OK(zoff_config_open(nullptr, &config));
    EXPECT_ZOFF_OK(zoff_config_read_text(config, text.c_str(), text.size(), nullptr));
    std::vector<uint16_t> weights(PARAMS * ELEMENTS, 0x3c00), grads(PARAMS * ELEMENTS, 0x3c01);
    zoff_param_desc descs[PARAMS];
    for (size_t p = 0; p < PARAMS; p++) {
        descs[p] = ZOFF_PARAM_DESC_INIT;
        descs[p].value = &weights[p * ELEMENTS];
        descs[p].grad = &grads[p * ELEMENTS];
        descs[p].count = ELEMENTS;
        descs[p].dtype = ZOFF_BF16;
    }
    zoff_engine_opts engine_opts = ZOFF_ENGINE_OPTS_INIT;
    engine_opts.config = config;
    engine_opts.comm = made;
    engine_opts.threads = 1;
    zoff_engine *e = nullptr;
    const auto pay = [&office](const std::function<zoff_status()> &call) {
        const bill before = {blocks_counted, office.messages, office.bytes};
        EXPECT_ZOFF_OK(call());
        return bill{blocks_counted - before.blocks, office.messages - before.messages, office.bytes - before.bytes};
    };
    costs all = {};
    all.seal = pay([&] { return zoff_engine_open(&engine_opts, descs, PARAMS, &e); });
    if (e) {
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr)); // the order of buckets is known
        zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
        zoff_comm_info before = ZOFF_COMM_INFO_INIT, after = before;
        EXPECT_ZOFF_OK(zoff_engine_plan(e, &plan));
        EXPECT_ZOFF_OK(zoff_comm_get_info(made, &before));
        all.step = pay([&] { return zoff_step(e, nullptr, nullptr); });
        EXPECT_ZOFF_OK(zoff_comm_get_info(made, &after));
        const zoff_plan_traffic &r = plan.reduce, &v = plan.report, &g = plan.gather;
        EXPECT_EQ(r.sent_bytes + v.sent_bytes + g.sent_bytes, after.sent_bytes - before.sent_bytes);
        EXPECT_EQ(r.node_bytes + v.node_bytes + g.node_bytes, after.node_bytes - before.node_bytes);
        EXPECT_EQ(r.notes + v.notes + g.notes, after.notes - before.notes);
        EXPECT_EQ(r.messages + v.messages + g.messages, after.messages - before.messages);
        EXPECT_EQ(stage < 10 ? 1 : (unsigned)NODE_RANKS, plan.sum_ranks);
    }
    zoff_engine_destroy(e);
    zoff_config_close(config);
    zoff_comm_close(made);
    return all;
}

class GrowthEcho : public testing::TestWithParam<int>
{
};
INSTANTIATE_TEST_SUITE_P(Stages, GrowthEcho, testing::Values(0, 2, 3, 11, 12));

TEST_P(GrowthEcho, SealAndStepsAreLinearInTheRanks)
{
    const unsigned n = few();
    const costs small = of(n, GetParam()), large = of(4 * n, GetParam());
    const struct {
        const char *name;
        bill small, large;
    } calls[] = {{"zoff_engine_open", small.seal, large.seal}, {"zoff_step", small.step, large.step}};
    for (const auto &c : calls) {
        printf("growth: %s, %u and %u ranks: %llu, %llu blocks; %llu, %llu messages; %llu, %llu bytes\n", c.name, n, 4 * n,
               (unsigned long long)c.small.blocks, (unsigned long long)c.large.blocks, (unsigned long long)c.small.messages,
               (unsigned long long)c.large.messages, (unsigned long long)c.small.bytes, (unsigned long long)c.large.bytes);
        ASSERT_LT(n, c.small.blocks) << "nothing was counted";
        EXPECT_LE((double)c.large.blocks, 6.0 * (double)c.small.blocks) << c.name;
        EXPECT_LE((double)c.large.messages, 6.0 * (double)c.small.messages) << c.name;
        EXPECT_LE((double)c.large.bytes, 6.0 * (double)c.small.bytes) << c.name;
    }
    // A header and a value of each comparison; weights would be 512 KiB for each rank.
    EXPECT_LT(large.seal.bytes, (uint64_t)4 * n * 24 * 1024);
    RecordProperty("largest_ranks", (int)(4 * n));
}
} // namespace
