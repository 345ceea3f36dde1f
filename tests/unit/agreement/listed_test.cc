// listed_test.cc: the lists that ranks compare at seal. They contain everything that decides a number, under a name that the
// program knows. They contain nothing that may differ.
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
// A rank's report: a trained parameter, a frozen one, and one whose weights the engine keeps.
struct saying {
    std::string keys = std::string("train_batch_size\0"
                                   "8\0"
                                   "zoff.chunk\0"
                                   "64\0",
                                   33);
    zoff_listed_settings settings = {};
    std::vector<float> whole = std::vector<float>(40), fixed = std::vector<float>(60), owned = std::vector<float>(60);
    std::vector<zoff_param_desc> params;
    std::vector<std::pair<unsigned, zoff_optimizer_hyper>> groups;
    std::vector<size_t> dims;

    saying()
    {
        settings.chunk_elements = 64;
        params = {describe("whole", 40), describe("fixed", 30, 2), describe("owned", 30, 2)};
        params[0].value = whole.data();
        params[1].value = fixed.data();
        params[1].frozen = true;
        params[2].value = owned.data();
        params[2].engine_owned = true;
        params[2].group = 1;
    }
    void shape(size_t i, const std::vector<size_t> &of_slice)
    {
        dims = of_slice;
        params[i].dims = dims.data();
        params[i].dim_count = dims.size();
    }
    zoff_optimizer_hyper &group(unsigned number)
    {
        zoff_optimizer_hyper usual;
        zoff_optimizer_hyper_init(&usual, ZOFF_OPTIMIZER_ADAM);
        groups.emplace_back(number, usual);
        return groups.back().second;
    }
    void prepare(small_agreement &self)
    {
        settings.keys = keys.data();
        settings.key_bytes = keys.size();
        for (const auto &d : params)
            self.parts.add(d);
        for (const auto &[number, hyper] : groups)
            ASSERT_ZOFF_OK(zoff_model_groups_set(&self.parts.m, number, &hyper, "a test"));
    }
};

struct change {
    const char *name, *words; // "": it may differ
    void (*make)(saying &s, small_agreement &self);
};

void PrintTo(const change &c, std::ostream *out)
{
    *out << c.name;
}

class Listed : public testing::TestWithParam<change>
{
};

const change CHANGES[] = {
    {"nothing", "", [](saying &, small_agreement &) {}},
    {"key", "train_batch_size is 8 on rank 0 and 9 on rank 1. ", [](saying &s, small_agreement &) { s.keys[17] = '9'; }},
    {"last_key", "zoff.chunk is 64 on rank 0 and 65 on rank 1. ", [](saying &s, small_agreement &) { s.keys[31] = '5'; }},
    {"fewer_keys", "the list of rank 0 has \"zoff.chunk\" where that of rank 1 has \"zoff_engine_opts.state_tier\"",
     [](saying &s, small_agreement &) { s.keys.resize(19); }},
    {"tier", "zoff_engine_opts.state_tier is ZOFF_TIER_HOST on rank 0 and ZOFF_TIER_NVME on rank 1. ",
     [](saying &s, small_agreement &) { s.settings.states_in_files = true; }},
    {"chunk", "zoff_engine_opts.chunk_elements is 64 on rank 0 and 65 on rank 1. ",
     [](saying &s, small_agreement &) { s.settings.chunk_elements++; }},
    {"reaches",
     "whether zoff_engine_opts.comm accesses the memory of zoff_engine_opts.accel is false on rank 0 and true on rank 1. ",
     [](saying &, small_agreement &self) { self.transfer.route.reaches = true; }},
    {"more_params", "the number of parameters is 3 on rank 0 and 4 on rank 1. ",
     [](saying &s, small_agreement &) { s.params.push_back(s.params[1]); }},
    {"more_groups", "the number of groups is 2 on rank 0 and 6 on rank 1. ", [](saying &s, small_agreement &) { s.group(5); }},
    {"name", "zoff_param_desc.name of parameter 1 is fixed on rank 0 and another on rank 1. ",
     [](saying &s, small_agreement &) { s.params[1].name = "another"; }},
    {"dims", "zoff_param_desc.dims of parameter 1 (fixed) is [30] on rank 0 and [5, 6] on rank 1. ",
     [](saying &s, small_agreement &) {
         s.shape(1, {5, 6});
     }},
    {"one_dimension", "", [](saying &s, small_agreement &) { s.shape(1, {30}); }}, // the same as no dimensions
    {"slice_name", "zoff_param_desc.slice_name of parameter 2 (owned) is NULL on rank 0 and h{} on rank 1. ",
     [](saying &s, small_agreement &) { s.params[2].slice_name = "h{}"; }},
    {"count",
     "zoff_param_desc.dims of parameter 1 (fixed) is [30] on rank 0 and [29] on rank 1; zoff_param_desc.count of parameter 1 "
     "(fixed) is 30 on rank 0 and 29 on rank 1. ",
     [](saying &s, small_agreement &) { s.params[1].count = 29; }},
    {"slices", "zoff_param_desc.slices of parameter 1 (fixed) is 2 on rank 0 and 1 on rank 1. ",
     [](saying &s, small_agreement &) { s.params[1].slices = 1; }},
    {"dtype",
     "zoff_param_desc.dtype of parameter 0 (whole) is ZOFF_F32 on rank 0 and ZOFF_BF16 on rank 1; zoff_param_desc.grad_dtype "
     "of "
     "parameter 0 (whole) is ZOFF_F32 on rank 0 and ZOFF_BF16 on rank 1. ",
     [](saying &s, small_agreement &) { s.params[0].dtype = ZOFF_BF16; }},
    {"grad_dtype", "zoff_param_desc.grad_dtype of parameter 0 (whole) is ZOFF_F32 on rank 0 and ZOFF_F16 on rank 1. ",
     [](saying &s, small_agreement &) { s.params[0].grad_dtype = ZOFF_F16; }},
    {"group", "zoff_param_desc.group of parameter 0 (whole) is 0 on rank 0 and 1 on rank 1",
     [](saying &s, small_agreement &) { s.params[0].group = 1; }},
    {"frozen", "zoff_param_desc.frozen of parameter 0 (whole) is false on rank 0 and true on rank 1",
     [](saying &s, small_agreement &) { s.params[0].frozen = true; }},
    {"frozen_value", "zoff_param_desc.value of parameter 1 (fixed) is given on rank 0 and NULL on rank 1. ",
     [](saying &s, small_agreement &) { s.params[1].value = nullptr; }},
    {"engine_owned", "zoff_param_desc.engine_owned of parameter 0 (whole) is false on rank 0 and true on rank 1",
     [](saying &s, small_agreement &) { s.params[0].engine_owned = true; }},
    {"hyper", "zoff_optimizer_hyper.eps of group 1 (zoff_engine_set_group()) is 1e-08 on rank 0 and 0.5 on rank 1. ",
     [](saying &s, small_agreement &) { s.group(1).eps = 0.5; }},
    {"default_hyper", "zoff_optimizer_hyper.lr of group 0 (zoff_engine_set_group()) is 0.001 on rank 0 and 0.25 on rank 1",
     [](saying &, small_agreement &self) { self.parts.values.hyper.lr = 0.25; }},
    {"owned_value", "", [](saying &s, small_agreement &) { s.params[2].value = nullptr; }},
    {"stride", "",
     [](saying &s, small_agreement &) {
         s.fixed.resize(100);
         s.params[1].value = s.fixed.data();
         s.params[1].value_stride = 50;
     }},
};

INSTANTIATE_TEST_SUITE_P(Settings, Listed, testing::ValuesIn(CHANGES), [](const auto &p) { return std::string(p.param.name); });

TEST_P(Listed, HasWhatDecidesANumber)
{
    const change &c = GetParam();
    on_ranks(3, [&](small_agreement &self, unsigned rank) {
        saying s;
        if (rank == 1)
            c.make(s, self);
        ASSERT_NO_FATAL_FAILURE(s.prepare(self));
        const zoff_status status = zoff_agreement_listed_compare_settings(&self.a, &s.settings);
        if (!*c.words) {
            EXPECT_ZOFF_OK(status);
            return;
        }
        std::string words = c.words; // on two ranks
        for (size_t at = 0; (at = words.find("rank 0 ", at)) != std::string::npos; at += 10)
            words.replace(at, 7, "ranks 0 and 2 ");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, status);
        EXPECT_EQ(0u, std::string(zoff_last_error()).find("zoff_engine_seal: "));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "Every rank must have the same configuration and register the same "
                                                     "parameters in the same order"));
    });
}

// They update nothing.
TEST(ListedGroups, AreThoseThatAreUsed)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        saying s;
        s.group(3).lr = 0.25 * (rank + 1);
        ASSERT_NO_FATAL_FAILURE(s.prepare(self));
        EXPECT_ZOFF_OK(zoff_agreement_listed_compare_settings(&self.a, &s.settings));
    });
}

void compare_plans(const std::function<void(saying &s, small_agreement &self)> &make, size_t chunk, const std::string &words)
{
    on_ranks(2, [&](small_agreement &self, unsigned rank) {
        saying s;
        if (rank == 1)
            make(s, self);
        ASSERT_NO_FATAL_FAILURE(s.prepare(self));
        ASSERT_ZOFF_OK(zoff_model_ties_find(&self.parts.m));
        ASSERT_NO_FATAL_FAILURE(self.plan(rank ? chunk : 16));
        const zoff_status status = zoff_agreement_listed_compare_plan(&self.a);
        if (words.empty()) {
            EXPECT_ZOFF_OK(status);
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, status);
        }
    });
}

TEST(ListedPlan, MayBeCutByAnotherLimit)
{
    compare_plans([](saying &, small_agreement &) {}, 17, "");
}

TEST(ListedPlan, HasAsManyBuckets)
{
    compare_plans([](saying &, small_agreement &) {}, 1000,
                  "the number of buckets (decided by the state files in nvme_path) is");
}

TEST(ListedPlan, HasAsManyBucketsOnTheDevice)
{
    compare_plans([](saying &, small_agreement &self) { self.transfer.device.tier.count = 2; }, 16,
                  "the number of buckets on the device (offload_optimizer.ratio) is 0 on rank 0 and 2 on rank 1. ");
}

// The list of parameters is the same on both ranks, and both plans have the same number of buckets.
TEST(ListedPlan, HasTheSameTies)
{
    on_ranks(2, [&](small_agreement &self, unsigned rank) {
        std::vector<float> a(40), b(40), c(40);
        self.parts.add(self.weights("a", a.data(), 40));
        self.parts.add(self.weights("b", rank ? b.data() : a.data(), 40));
        self.parts.add(self.weights("c", rank ? a.data() : c.data(), 40));
        ASSERT_ZOFF_OK(zoff_model_ties_find(&self.parts.m));
        ASSERT_NO_FATAL_FAILURE(self.plan(64));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "the list of tied parameters, which have the same zoff_param_desc.value (as a checksum) is",
                          zoff_agreement_listed_compare_plan(&self.a));
        EXPECT_EQ(nullptr, strstr(zoff_last_error(), "the number of")) << zoff_last_error();
    });
}

// Compare two ranks, of which the second has other first weights.
void compare_weights(const std::function<void(saying &s)> &make, const std::string &words)
{
    on_ranks(2, [&](small_agreement &self, unsigned rank) {
        saying s;
        s.owned.resize(100);
        s.params[2].value = s.owned.data();
        s.params[2].value_stride = 50;
        if (rank == 1)
            make(s);
        ASSERT_NO_FATAL_FAILURE(s.prepare(self));
        const zoff_status status = zoff_agreement_listed_compare_weights(&self.a);
        if (words.empty()) {
            EXPECT_ZOFF_OK(status);
            return;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, status);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "Give every rank the same zoff_param_desc.value for parameters with "
                                                     "engine_owned, for example by a broadcast"));
    });
}

TEST(ListedWeights, EngineOwnedWeightsAreCompared)
{
    compare_weights([](saying &) {}, "");
    compare_weights([](saying &s) { s.owned[79] = 1; },
                    "the checksum of the first weights of parameter 2 (owned), slice 1, is ");
    compare_weights([](saying &s) { s.owned[0] = -0.0f; },
                    "the checksum of the first weights of parameter 2 (owned), slice 0, is ");
    compare_weights([](saying &s) { s.params[2].value = nullptr; }, " on rank 0 and none on rank 1; ");
}

TEST(ListedWeights, TheProgramsWeightsAreNotCompared)
{
    compare_weights([](saying &s) { s.whole[0] = s.fixed[0] = 1; }, "");
    compare_weights([](saying &s) { s.owned[30] = s.owned[49] = s.owned[80] = 1; }, ""); // in the gaps
}
} // namespace
