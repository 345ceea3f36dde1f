/* SPDX-License-Identifier: Apache-2.0 */
// plans_test.cc: what engines plan, as text that is read in a review: for each rank the memory of each class, and which
// elements lie where in which chunk. A change of a plan moves states in files and numbers between ranks, and is a change of
// plans.txt: run the program with ZOFF_GOLDEN_WRITE=1, and read the difference.
#include "golden_text.h"
#include "small_engine.h"
#include "thread_ranks.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
struct row {
    const char *name;
    unsigned ranks;
    zoff_dtype dtype;
    const char *optimizer;
    std::string zero, zoff; // members of zero_optimization and of zoff; FOLDER stands for one
    unsigned accumulation;
    bool owned, on_device;
    uint64_t host_bytes; // DRAM for states; 0: as much as they need
};

const char NVME[] = "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 3}";
const char STAGE_3[] = "\"stage\": 3, \"stage3_param_persistence_threshold\": 1000, ";

std::vector<row> rows()
{
    const std::string nvme = NVME, three = STAGE_3;
    const std::string weights = "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"FOLDER\", \"buffer_count\": 2}";
    return {
        {"bf16, states in DRAM", 1, ZOFF_BF16, "AdamW", "", "", 1, false, false, 0},
        {"fp32, SGD: no states", 1, ZOFF_F32, "SGD", "", "", 1, false, false, 0},
        {"fp16, Lion, 4 micro-batches", 1, ZOFF_F16, "Lion", "", "", 4, false, false, 0},
        {"moments in 8 bits, fp32 masters", 1, ZOFF_BF16, "AdamW", "", "\"moments\": \"q8\", \"master\": \"fp32\"", 1, false,
         false, 0},
        {"files, with residents", 1, ZOFF_BF16, "AdamW", nvme, "", 1, false, false, 163840},
        {"files that persist", 1, ZOFF_BF16, "AdamW", nvme, "\"persist\": true", 1, false, false, 0},
        {"updates ahead of a step", 1, ZOFF_BF16, "AdamW", "", "\"speculation_memory\": \"1MiB\"", 1, false, false, 0},
        {"2 ranks, stage 0: replicated", 2, ZOFF_BF16, "AdamW", "\"stage\": 0", "", 1, false, false, 0},
        {"2 ranks, stage 1, 2 micro-batches", 2, ZOFF_F32, "AdamW", "\"stage\": 1", "", 2, false, false, 0},
        {"4 ranks, stage 2, files", 4, ZOFF_BF16, "AdamW", "\"stage\": 2, " + nvme, "", 1, false, false, 0},
        {"2 ranks, stage 3, weights of the engine", 2, ZOFF_BF16, "AdamW", three + "\"offload_param\": {\"device\": \"cpu\"}",
         "", 1, true, false, 0},
        {"weights of the engine in files", 1, ZOFF_BF16, "AdamW", three + nvme + ", " + weights, "\"master\": \"fp32\"", 1,
         true, false, 0},
        {"a device, half of the states stay there", 1, ZOFF_BF16, "AdamW",
         "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5}", "", 1, false, true, 0},
    };
}

std::string text_of(const row &r, const std::string &folder)
{
    std::string text = "{\"gradient_accumulation_steps\": " + std::to_string(r.accumulation) +
                       ", \"optimizer\": {\"type\": \"" + r.optimizer +
                       "\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {" + r.zero + "}, \"zoff\": {" + r.zoff + "}}";
    for (size_t at; (at = text.find("FOLDER")) != std::string::npos;)
        text.replace(at, 6, folder);
    return text;
}

// Memory that depends on the machine is left out: what is free, and files on a tmpfs.
void print_info(const zoff_plan_info &i, std::ostringstream &out)
{
    const std::pair<const char *, uint64_t> FIELDS[] = {{"elements", i.elements},
                                                        {"states", i.state_bytes},
                                                        {"DRAM", i.memory_bytes - i.nvme_memory_bytes},
                                                        {"of states", i.host_bytes},
                                                        {"resident", i.resident_bytes},
                                                        {"accumulator", i.accumulator_bytes},
                                                        {"weights", i.weight_bytes},
                                                        {"DRAM of weights", i.weight_host_bytes},
                                                        {"exchange", i.exchange_bytes},
                                                        {"to a device", i.device_host_bytes},
                                                        {"ahead", i.speculation_bytes},
                                                        {"device", i.device_bytes},
                                                        {"files", i.nvme_bytes},
                                                        {"files of weights", i.weight_nvme_bytes},
                                                        {"read in a step", i.step_read_bytes},
                                                        {"written", i.step_write_bytes},
                                                        {"save", i.save_bytes},
                                                        {"slots", i.slots}};
    const char *comma = "";
    for (const auto &[name, value] : FIELDS) {
        if (value)
            out << comma << name << " " << value;
        comma = value ? ", " : comma;
    }
    out << "\n";
}

// Parameter, slice, first element and count; `+` marks those of a replicated chunk that this rank reduces and saves. Then the
// byte of the chunk where each state begins.
void print_pieces(const zoff_engine *e, size_t number, std::ostringstream &out)
{
    const zoff_plan_chunk &c = e->plan.chunks[number];
    const zoff_plan_span own = zoff_zero_plan_own(&e->plan, number);
    for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++) {
        const zoff_plan_piece &p = e->plan.pieces[i];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(&e->model, &e->model.params[p.param]);
        out << "    " << e->model.params[p.param].name << "." << p.slice << " " << p.first << " + " << p.count
            << (i - own.first_piece < own.piece_count ? "" : " of another rank");
        const char *before = ": ";
        for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
            if (!zoff_zero_plan_bytes(&tensor, stream, p.count))
                continue;
            out << before << c.starts[stream] + p.offsets[stream];
            before = ", ";
        }
        out << "\n";
    }
}

// Slices of one block and a little, tied, frozen, short and long parameters.
std::string plan_of_rank(const row &r, const std::string &folder, zoff_comm *ranks)
{
    std::ostringstream out;
    test_device device;
    trainer t(1);
    for (const auto &[count, slices, frozen] : {std::tuple(5000, 1, false), {1100, 3, false}, {70, 2, false}, {300, 1, true}})
        t.add((size_t)count, (size_t)slices, r.dtype, r.dtype, 0, frozen);
    if (r.owned)
        t.give_all_away();
    if (r.on_device)
        t.put_on(&device);
    zoff_engine_opts opts = {};
    opts.chunk_elements = 4096;
    opts.host_bytes = r.host_bytes;
    opts.threads = 1;
    opts.comm = ranks;
    opts.accel = r.on_device ? device.accel : nullptr;
    engine e = make_engine(text_of(r, folder), opts);
    static const char *const NAMES[] = {"table", "layer", "norm", "base", "head"};
    for (size_t i = 0; i < 5 - (r.owned ? 1 : 0); i++) {
        zoff_param_desc d = t.desc(i % 4);
        d.name = NAMES[i];
        d.grad = i == 4 ? nullptr : d.grad; // tied to the table
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    }
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    print_info(plan_of(e.get()), out);
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        const zoff_plan_chunk &c = e->plan.chunks[i];
        out << "  chunk " << i << ": " << c.elements << " elements, " << c.bytes << " bytes";
        if (c.weight_bytes)
            out << ", " << c.weight_bytes << " of weights";
        out << "\n";
        print_pieces(e.get(), i, out);
    }
    return out.str();
}

TEST(Plans, MeanWhatTheyMeant)
{
    log_catcher log;
    std::ostringstream all;
    for (const row &r : rows()) {
        const scratch_folder folder;
        const thread_ranks ranks(r.ranks);
        std::vector<std::string> texts(r.ranks);
        ranks.on_each(
            [&](zoff_comm *comm, unsigned rank) { texts[rank] = plan_of_rank(r, folder.path, r.ranks > 1 ? comm : nullptr); });
        all << r.name << "\n";
        for (unsigned rank = 0; rank < r.ranks; rank++)
            all << "rank " << rank << ": " << texts[rank];
        all << "\n";
    }
    // Large models are planned without memory, and only their chunks are counted.
    static const char *const LARGE[] = {"{\"zoff\": {\"host_memory\": \"1TiB\"}}",
                                        "{\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 3, "
                                        "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/none\"}}, \"zoff\": "
                                        "{\"host_memory\": \"16GiB\", \"moments\": \"m8v16\"}}"};
    for (const char *text : LARGE) {
        const thread_ranks ranks(4);
        all << text << "\n7e9 elements, rank 3 of 4: ";
        const zoff_plan_info plan = plan_of(plan_one((uint64_t)7e9, text, nullptr, ranks[3]).get());
        print_info(plan, all);
        all << "  " << plan.chunk_count << " chunks of at most " << plan.chunk_bytes << " bytes\n\n";
    }
    expect_golden("plans.txt", all.str());
}
} // namespace
