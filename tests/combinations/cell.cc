/* SPDX-License-Identifier: Apache-2.0 */
// cell.cc: the list of cells, and the configuration of each.
#include "cell.h"

#include <cstdio>

namespace combinations
{
std::string cell::name() const
{
    char text[128];
    snprintf(text, sizeof text, "%s %s%u stage%u %s weights=%s ratio=%g micro=%u", memory.c_str(), wire.c_str(), ranks, stage,
             tier.c_str(), weights.c_str(), ratio, micro);
    return text;
}

// A slice of 700 elements is below stage3_param_persistence_threshold, so its weights stay replicated. Larger slices are
// gathered.
std::string cell::config(const std::string &folder) const
{
    const std::string path = "\"nvme_path\": \"" + folder + "\"";
    std::string text =
        "{\"gradient_accumulation_steps\": " + std::to_string(micro) +
        ", \"gradient_clipping\": 0.7, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, "
        "\"weight_decay\": 0.02}}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 3, "
        "\"warmup_max_lr\": 0.01}}, \"zero_optimization\": {\"stage\": " +
        std::to_string(stage) + ", \"stage3_param_persistence_threshold\": 800, \"offload_optimizer\": {";
    text += tier == "cpu" ? "\"device\": \"cpu\"" : "\"device\": \"nvme\", \"buffer_count\": 2, " + path;
    text += ratio == 1 ? "" : ", \"ratio\": " + std::to_string(ratio);
    text += "}";
    if (weights == "cpu")
        text += ", \"offload_param\": {\"device\": \"cpu\"}";
    if (weights == "nvme")
        text += ", \"offload_param\": {\"device\": \"nvme\", \"max_in_cpu\": 0, \"buffer_count\": 2, " + path + "}";
    return text + "}, \"zoff\": {\"persist\": " + (tier == "persist" ? "true" : "false") + "}}";
}

namespace
{
struct job {
    const char *wire;
    unsigned ranks;
};
} // namespace

std::vector<cell> all_cells(bool nccl)
{
    std::vector<job> jobs = {{"alone", 1}, {"threads", 2}, {"threads", 4}};
    if (nccl)
        jobs = {{"nccl", 2}, {"nccl", 4}};
    std::vector<cell> cells;
    for (const char *memory : {"host", "device"})
        for (const job &j : jobs)
            for (unsigned stage = 0; stage < 4; stage++)
                for (const char *tier : {"cpu", "nvme", "persist"})
                    for (const char *weights : {"caller", "kept", "cpu", "nvme"})
                        for (const double ratio : {1.0, 0.5, 0.0})
                            for (const unsigned micro : {1u, 2u})
                                cells.push_back({memory, j.wire, j.ranks, stage, tier, weights, ratio, micro});
    return cells;
}
} // namespace combinations
