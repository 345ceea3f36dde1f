/* SPDX-License-Identifier: Apache-2.0 */
// universal_files.h: universal checkpoint folders for tests, of the two forms that DeepSpeed writes.
#ifndef ZOFF_TESTS_UNIVERSAL_FILES_H
#define ZOFF_TESTS_UNIVERSAL_FILES_H

#include "torch_bytes.h"

#include <map>

extern "C" {
#include "universal.h"
}

namespace universal_files
{
using namespace torch_bytes;

struct made_param {
    std::string name;
    std::vector<size_t> dims;
    float first;                                                 // masters count from here, moments from 1000 and 2000 on
    std::vector<std::pair<std::string, std::string>> extra = {}; // more members of the dict
};

inline size_t count_of(const std::vector<size_t> &dims)
{
    return contiguous(dims).stored;
}

inline std::string ordered(const std::vector<std::pair<std::string, std::string>> &items)
{
    std::string all = global("collections", "OrderedDict") + ")R(";
    for (const auto &item : items)
        all += item.first + item.second;
    return all + "u";
}

// The model's part: order, shapes and types.
inline void write_model(const std::string &path, const std::vector<made_param> &params,
                        const std::string &storage = "BFloat16Storage", const std::map<std::string, std::string> &ties = {})
{
    std::vector<std::pair<std::string, std::string>> module, shapes, shared;
    for (const auto &[name, owner] : ties)
        shared.push_back({text(name), text(owner)});
    for (const auto &p : params) {
        tensor_words words = contiguous({0}); // words of a rank that has no part of the parameter
        words.storage = storage;
        module.push_back({text(p.name), tensor(words)});
        shapes.push_back({text(p.name), global("torch", "Size") + tuple({numbers(p.dims)}) + "R"});
    }
    write_pt(path,
             dict({{text("module"), ordered(module)},
                   {text("param_shapes"), "](" + ordered(shapes) + "e"},
                   {text("shared_params"), dict(shared)},
                   {text("args"), global("argparse", "Namespace") + ")\x81"}}),
             {""});
}

inline std::string scaler(double scale)
{
    return global("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler") + ")\x81" +
           dict({{text("cur_scale"), real(scale)},
                 {text("cur_iter"), "K\x05"},
                 {text("last_overflow_iter"), "K\x01"},
                 {text("cur_hysteresis"), "K\x02"}}) +
           "b";
}

// A folder of stage 1 or 2: dicts, and step.pt as a number or as a tensor.
inline void write_stage1(const std::string &folder, const std::vector<made_param> &params, bool step_is_tensor = true)
{
    ASSERT_EQ(0, system(("mkdir -p '" + folder + "/zero'").c_str()));
    for (const auto &p : params) {
        const std::string at = folder + "/zero/" + p.name;
        ASSERT_EQ(0, mkdir(at.c_str(), 0777));
        const char *const files[] = {"fp32", "exp_avg", "exp_avg_sq"};
        for (int k = 0; k < 3; k++) {
            std::vector<std::pair<std::string, std::string>> items = p.extra;
            items.push_back({text("param"), tensor(contiguous(p.dims))});
            write_pt(at + "/" + files[k] + ".pt", dict(items),
                     {bytes_of_floats(counted(count_of(p.dims), p.first + 1000.0f * (float)k))});
        }
        if (step_is_tensor)
            write_pt(at + "/step.pt", tensor(contiguous({})), {bytes_of_floats({2})});
        else
            write_pt(at + "/step.pt", "K\x02");
    }
    write_pt(folder + "/zero/optimizer_state.pt",
             dict({{text("loss_scaler"), scaler(4096)},
                   {text("param_groups"), "](" + dict({{text("lr"), real(0.5)}, {text("step"), "K\x02"}}) + "e"}}));
    write_model(folder + "/mp_rank_00_model_states.pt", params);
}

// A folder of stage 3: flat tensors, and the step in optimizer_state.pt.
inline void write_stage3(const std::string &folder, const std::vector<made_param> &params)
{
    ASSERT_EQ(0, system(("mkdir -p '" + folder + "/zero'").c_str()));
    for (const auto &p : params) {
        const std::string at = folder + "/zero/" + p.name;
        ASSERT_EQ(0, mkdir(at.c_str(), 0777));
        const char *const files[] = {"fp32", "exp_avg", "exp_avg_sq"};
        for (int k = 0; k < 3; k++)
            write_pt(at + "/" + files[k] + ".pt", tensor(contiguous({count_of(p.dims)})),
                     {bytes_of_floats(counted(count_of(p.dims), p.first + 1000.0f * (float)k))});
    }
    tensor_words other = contiguous({2});
    other.key = "1";
    const std::string state =
        dict({{"K" + std::string(1, 0), dict({{text("step"), tensor(contiguous({}))}, {text("exp_avg"), tensor(other)}})}});
    const std::string groups = "](" + dict({{text("lr"), real(0.5)}}) + "e";
    write_pt(folder + "/zero/optimizer_state.pt",
             dict({{text("optimizer_state_dict"), dict({{text("state"), state}, {text("param_groups"), groups}})}}),
             {bytes_of_floats({2}), bytes_of_floats({8, 9})});
    write_model(folder + "/zero_pp_rank_0_mp_rank_00_model_states.pt", params);
}

// A folder that is open.
struct opened {
    universal_folder folder = {};
    bool is_open = false;
    std::string message;

    explicit opened(const std::string &path)
    {
        fault f = {""};
        is_open = universal_folder_open(path.c_str(), &folder, &f);
        message = f.text;
    }
    ~opened()
    {
        if (is_open)
            universal_folder_close(&folder);
    }
    opened(const opened &) = delete;

    std::vector<float> values(const std::string &name, zoff_state_kind kind) const
    {
        torch_file *t = nullptr;
        torch_tensor found;
        bool is_flat;
        fault f = {""};
        EXPECT_TRUE(universal_tensor_open(&folder, name.c_str(), kind, &t, &found, &is_flat, &f)) << f.text;
        const pt owned(t);
        std::vector<float> all(found.count);
        EXPECT_TRUE(torch_file_begin(t, &found, &f)) << f.text;
        if (found.count > 0) {
            EXPECT_TRUE(torch_file_next(t, found.count, all.data(), &f)) << f.text;
        }
        return all;
    }
};

inline const std::vector<made_param> PARAMS = {
    {"wte.weight", {5, 4}, 1, {{text("cat_dim"), "K" + std::string(1, 0)}, {text("vocab_tensor"), "\x88"}}},
    {"h.0.bias", {7}, 30},
    {"scale", {}, 60},
    {"empty", {0, 3}, 70},
    {"h.0.weight", {2, 3, 4}, 100, {{text("cat_dim"), "K\x01"}}},
};
} // namespace universal_files

#endif
