/* SPDX-License-Identifier: Apache-2.0 */
// memory_main.cc: compares the memory that an engine uses on each rank, besides the program's own, with zoff_engine_plan().
// Runs as one rank of a job. Prints the rows of docs/MEMORY.md, and fails if the two differ by more than 2 % and 32 MiB.
#include "covering.h"
#include "zoff_test.h"

#include <algorithm>
#include <fstream>
#include <memory>

extern "C" {
#include "model.h"
}

namespace
{
constexpr double MIB = 1024 * 1024;

double anonymous_bytes()
{
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
        double kib = 0;
        if (word == "RssAnon:" && file >> kib)
            return kib * 1024;
    }
    return 0;
}

struct cell {
    int stage;
    bool owned; // the engine owns weights and gradients
};

// One engine over the tensors of a GPT, for two steps. The passes fetch and allocate as those of examples/gpt do.
class job
{
  public:
    job(const cell &what, zoff_comm *comm) : c(what)
    {
        const gpt_shape shape = {16, 8, 512, 256, 0};
        require(!gpt_model_create_kept(shape, &gpt_alone, true, nullptr, &model), "no model");
        const std::string path = "memory." + std::to_string(getpid()) + ".json";
        std::ofstream(path) << "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": " << c.stage
                            << ", \"reduce_bucket_size\": 1048576, \"stage3_max_live_parameters\": 4194304, "
                               "\"stage3_prefetch_bucket_size\": 2097152}}";
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config_path = path.c_str();
        opts.comm = comm;
        try_(zoff_engine_create(&opts, &engine));
        unlink(path.c_str());
        if (!c.owned) { // the program's own pages, touched before the measurement
            values.assign(model.parameter_count, 0);
            grads.assign(model.parameter_count, 0);
        }
        // Add layer after layer, so that gradients that a backward pass makes in sequence share few buckets.
        add(GPT_WTE, 0);
        add(GPT_WPE, 0);
        for (size_t l = 0; l < model.shape.layers; l++) {
            for (int id = GPT_LN1_G; id <= GPT_OUT_B; id++)
                add(id, l);
        }
        add(GPT_LNF_G, 0);
        add(GPT_LNF_B, 0);
        plan.struct_size = sizeof plan;
        try_(zoff_engine_plan(engine, &plan));
    }
    ~job()
    {
        zoff_engine_destroy(engine);
        gpt_model_destroy(&model);
    }

    // The peak of the memory added since `before`.
    double measure()
    {
        before = anonymous_bytes();
        try_(zoff_engine_seal(engine));
        for (int step = 0; step < 2; step++) {
            for (size_t l = 0; l < model.shape.layers; l++)
                pass(l, false);
            edges();
            hand_over(GPT_LNF_G, 0);
            hand_over(GPT_LNF_B, 0);
            for (size_t l = model.shape.layers; l-- > 0;)
                pass(l, true);
            hand_over(GPT_WPE, 0);
            hand_over(GPT_WTE, 0);
            look();
            try_(zoff_step(engine, nullptr, nullptr));
            look();
        }
        return most;
    }

    // DRAM of the plan, plus gradients that wait for the step. From stage 2 on gradients leave with their bucket; those in
    // flight are within the tolerance.
    double predicted(unsigned ranks) const
    {
        const bool wait = c.owned && (ranks == 1 || c.stage < 2);
        return static_cast<double>(plan.host_bytes + plan.accumulator_bytes + plan.weight_host_bytes + plan.exchange_bytes) +
               (wait ? 2.0 * static_cast<double>(model.parameter_count) : 0);
    }

    zoff_plan_info plan = {};
    gpt_model model = {};

  private:
    static void require(bool holds, const char *words)
    {
        if (!holds) {
            fprintf(stderr, "gpt_memory: %s\n", words);
            exit(1);
        }
    }
    static void try_(zoff_status status) { require(status >= 0, zoff_last_error()); }
    void look() { most = std::max(most, anonymous_bytes() - before); }

    void add(int id, size_t slice)
    {
        const gpt_tensor &t = model.tensor[id];
        const size_t first = t.first + slice * t.count;
        zoff_param_desc desc = {};
        desc.struct_size = sizeof desc;
        desc.value = c.owned ? nullptr : &values[first];
        desc.grad = c.owned ? nullptr : &grads[first];
        desc.count = t.count;
        desc.dtype = ZOFF_BF16;
        desc.engine_owned = c.owned;
        params[id].resize(t.slices);
        try_(zoff_engine_add_param(engine, &desc, &params[id][slice]));
    }
    void fetch(int id, size_t slice)
    {
        const void *weights;
        if (!c.owned)
            return;
        try_(zoff_param_fetch(engine, params[id][slice], 0, nullptr, &weights));
        try_(zoff_param_release(engine, params[id][slice], 0, nullptr));
    }
    void hand_over(int id, size_t slice)
    {
        void *grad;
        if (c.owned)
            try_(zoff_grad_acquire(engine, params[id][slice], 0, nullptr, &grad));
        try_(zoff_grad_ready(engine, params[id][slice], 0, nullptr));
    }
    void edges()
    {
        for (int id : {GPT_WTE, GPT_WPE, GPT_LNF_G, GPT_LNF_B})
            fetch(id, 0);
    }
    void pass(size_t layer, bool back)
    {
        for (int i = GPT_LN1_G; i <= GPT_OUT_B; i++) {
            const int id = back ? GPT_OUT_B + GPT_LN1_G - i : i;
            fetch(id, layer);
            if (back)
                hand_over(id, layer);
        }
        look();
    }

    const cell c;
    zoff_engine *engine = nullptr;
    std::vector<uint16_t> values, grads;
    std::vector<zoff_param> params[GPT_TENSORS];
    double before = 0, most = 0;
};
} // namespace

int main()
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.backend = "auto";
    opts.timeout_seconds = 60;
    zoff_comm *comm;
    if (zoff_comm_open(&opts, &comm) < 0) {
        fprintf(stderr, "%s\n", zoff_last_error());
        return 1;
    }
    const unsigned ranks = zoff_comm_size(comm), rank = zoff_comm_rank(comm);
    int failed = 0;
    // By default every other cell, which has each stage and each owner.
    for (bool owned : {false, true}) {
        for (int stage = 0; stage < 4; stage++) {
            if (!zoff_test::is_full_run() && (static_cast<unsigned>(stage) + owned + (ranks == 2)) % 2)
                continue;
            job j({stage, owned}, comm);
            const double measured = j.measure(), predicted = j.predicted(ranks);
            const bool holds = std::abs(measured - predicted) <= 0.02 * predicted + 32 * MIB;
            failed += !holds;
            if (rank == 0 || !holds)
                printf("| %s | %u | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |%s\n", owned ? "engine" : "program", ranks,
                       stage, static_cast<double>(j.plan.host_bytes) / MIB, static_cast<double>(j.plan.accumulator_bytes) / MIB,
                       static_cast<double>(j.plan.exchange_bytes) / MIB, static_cast<double>(j.plan.weight_host_bytes) / MIB,
                       predicted / MIB, measured / MIB, holds ? "" : " FAIL");
            if (rank == 0 && !owned && stage == 0)
                fprintf(stderr, "%zu parameters\n", j.model.parameter_count);
        }
    }
    zoff_comm_close(comm);
    return failed ? 1 : 0;
}
