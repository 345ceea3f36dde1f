/* SPDX-License-Identifier: Apache-2.0 */
// rows_test.cc: the rows of every kind of bucket, as src/engine/README.md lists them.
#include "rank_job.h"

#include <fstream>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
struct kind {
    const char *place, *tier;
    unsigned ranks, stage, accumulation;
    bool on_device, reaches, bucket_on_device;
    bool lends = false; // the engine lends the memory of gradients
    bool owns = false;  // the engine stores the weights, once more in each group of two ranks
    bool persists = false;
    bool is_matrix = false;
};

void PrintTo(const kind &k, std::ostream *out)
{
    *out << k.place << ", " << k.tier;
}

const kind KINDS[] = {
    {"one rank, host", "host, files", 1, 1, 1, false, false, false},
    {"the same, micro-batches added up", "host, files", 1, 1, 2, false, false, false},
    {"one rank, host, matrices", "host, files", 1, 1, 1, false, false, false, false, false, false, true},
    {"one rank, device", "host, files", 1, 1, 1, true, false, false},
    {"the same", "device", 1, 1, 1, true, false, true},
    {"the same, files that persist", "device", 1, 1, 1, true, false, true, false, false, true},
    {"one rank, device, gradients lent", "host, files", 1, 3, 1, true, false, false, true},
    {"one rank, device, weights of the engine", "host, files", 1, 3, 1, true, false, false, true, true},
    {"the same", "device", 1, 3, 1, true, false, true, true, true},
    {"one rank, device, micro-batches added up", "host, files", 1, 1, 2, true, false, false},
    {"the same", "device", 1, 1, 2, true, false, true},
    {"several ranks, host, partitioned", "host, files", 2, 1, 1, false, false, false},
    {"the same, weights of the engine in groups of ranks", "host, files", 4, 3, 1, false, false, false, false, true},
    {"several ranks, host, replicated", "host, files", 2, 0, 1, false, false, false},
    {"several ranks, device, partitioned", "host, files", 2, 2, 1, true, false, false},
    {"the same", "device", 2, 2, 1, true, false, true},
    {"several ranks, device, replicated", "host, files", 2, 0, 1, true, false, false},
    {"the same", "device", 2, 0, 1, true, false, true},
    {"several ranks, device to device, partitioned", "device", 2, 2, 1, true, true, true},
    {"several ranks, device to device, replicated", "device", 2, 0, 1, true, true, true},
};

std::string words(const zoff_rows &rows, zoff_column column)
{
    std::string all;
    for (unsigned i = 0; i < rows.count; i++) {
        if (rows.in[column] >> i & 1)
            all += std::string(all.empty() ? "" : " ") + rows.row[i].name;
    }
    return all;
}

class Rows : public testing::TestWithParam<kind>
{
};
INSTANTIATE_TEST_SUITE_P(Kinds, Rows, testing::ValuesIn(KINDS), [](const auto &p) { return "kind" + std::to_string(p.index); });

TEST_P(Rows, AreTheDocumentedOnes)
{
    const kind &k = GetParam();
    const scratch_folder folder;
    rank_job job(k.ranks);
    rank_trainers all(job, 1, [&k](trainer &t) {
        t.add(30000, 1, ZOFF_BF16, ZOFF_BF16);
        if (k.is_matrix)
            t.shape(0, {100, 300});
        if (k.lends)
            t.give_away_grad(0);
        if (k.owns)
            t.give_away(0);
    });
    if (k.reaches)
        job.reach_devices();
    if (k.on_device)
        all.use_devices(0);
    all.seal("{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": " + std::to_string(k.accumulation) +
                 ", \"optimizer\": {\"type\": \"" + (k.is_matrix ? "Muon" : "AdamW") +
                 "\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": " + std::to_string(k.stage) +
                 ", \"zero_hpz_partition_size\": 2, \"stage3_param_persistence_threshold\": 0" +
                 ", \"offload_optimizer\": {\"device\": \"" + (k.persists ? "nvme" : "cpu") + "\", \"nvme_path\": \"" +
                 folder.path + "\", \"ratio\": " + (k.bucket_on_device ? "0.5" : "1") +
                 "}}, \"zoff\": {\"persist\": " + (k.persists ? "true" : "false") + "}}",
             3000);
    ASSERT_FALSE(HasFailure());
    const zoff_engine *e = all.engines[0].get();
    const size_t bucket = k.bucket_on_device ? 0 : e->plan.chunk_count - 1;
    const zoff_rows &rows = *zoff_engine_rows_of(e, bucket);
    const std::string line = std::string("| ") + k.place + " | " + k.tier + " | " + words(rows, ZOFF_COLUMN_STEP) + " |";
    std::ifstream file(ZOFF_ENGINE_README);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(std::string::npos, text.find(line + "\n")) << "not in src/engine/README.md:\n" << line;
    // A micro-step that only accumulates ends where the last one measures, or has everything for that.
    const std::string add = words(rows, ZOFF_COLUMN_ADD), step = words(rows, ZOFF_COLUMN_STEP);
    if (k.ranks > 1 || k.accumulation > 1) {
        EXPECT_EQ(0u, step.find(add)) << add << "; " << step;
    }
}
} // namespace
