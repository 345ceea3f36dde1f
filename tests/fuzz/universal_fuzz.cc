/* SPDX-License-Identifier: Apache-2.0 */
// universal_fuzz.cc: a universal checkpoint folder of DeepSpeed. An import that succeeds makes a whole checkpoint; any other
// has a reason.
#include "fuzz.h"

#include "../tools/universal/universal_files.h"

extern "C" {
#include "universal_verbs.h"
#include "verbs.h"
}

#include <filesystem>

using namespace zoff_fuzz;

// Thousands of checkpoints are written, and no power fails here.
extern "C" int fsync(int)
{
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const folder scratch(unpack(data, bytes)), made({});
    const std::string from = scratch.path;
    const char *arguments[] = {from.c_str(), "-o", made.path.c_str(), "--step", "1"};
    std::vector<std::string> copies(arguments, arguments + 5);
    std::vector<char *> argv;
    for (auto &copy : copies)
        argv.push_back(copy.data());
    quiet_output();
    const int result = universal_import((int)argv.size(), argv.data());
    const std::string printed = quiet_output();
    require((result != EXIT_DONE) == (printed.find("error: ") != std::string::npos), "only a failed import has an error");
    if (result != EXIT_DONE)
        return 0;
    zoff_checkpoint_reader *r = nullptr;
    require(zoff_checkpoint_reader_open(made.path.c_str(), nullptr, &r) == ZOFF_OK, "the checkpoint can be opened");
    require(zoff_checkpoint_reader_verify(r, nullptr, nullptr) == ZOFF_OK, "the checkpoint is whole");
    zoff_checkpoint_reader_close(r);
    accept();
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    changes c(seed);
    files all = unpack(data, bytes);
    if (all.empty())
        return give(pack({{"latest_universal", "x"}}), data, bytes, most);
    auto file = std::next(all.begin(), (ptrdiff_t)c.any(all.size()));
    std::string name = file->first, text = file->second;
    switch (c.any(24)) {
    case 0:
        all.erase(file);
        break;
    case 1:
        c.bytes(&name);
        all[name] = text;
        break;
    case 2:
        all[std::next(all.begin(), (ptrdiff_t)c.any(all.size()))->first] = text;
        break;
    default:
        c.zip(&file->second, most);
    }
    return give(pack(all), data, bytes, most);
}

static std::string file(const std::string &root, const std::vector<std::string> &data = {})
{
    std::vector<std::pair<std::string, std::string>> all = {{"a/data.pkl", torch_bytes::pickled(root)}};
    for (size_t i = 0; i < data.size(); i++)
        all.push_back({"a/data/" + std::to_string(i), data[i]});
    return changes::make_zip(all);
}

static std::vector<std::string> seeds()
{
    using namespace universal_files;
    files stage1, stage3, named;
    const std::vector<made_param> params = {
        {"w", {2, 3}, 1, {{text("cat_dim"), "K" + std::string(1, 0)}}}, {"s", {}, 60}, {"e", {0, 3}, 70}};
    for (const auto &p : params) {
        int k = 0;
        for (const char *state : {"fp32", "exp_avg", "exp_avg_sq"}) {
            const std::string numbers_ = bytes_of_floats(counted(count_of(p.dims), p.first + 100.0f * (float)k++));
            auto items = p.extra;
            items.push_back({text("param"), tensor(contiguous(p.dims))});
            stage1["zero/" + p.name + "/" + state + ".pt"] = file(dict(items), {numbers_});
            stage3["zero/" + p.name + "/" + state + ".pt"] = file(tensor(contiguous({count_of(p.dims)})), {numbers_});
        }
        stage1["zero/" + p.name + "/step.pt"] = file(tensor(contiguous({})), {bytes_of_floats({2})});
    }
    // The model's part, as write_model() of universal_files.h makes it, with a tied name.
    std::vector<std::pair<std::string, std::string>> module, shapes;
    for (const auto &p : params) {
        tensor_words words = contiguous({0});
        words.storage = "BFloat16Storage";
        module.push_back({text(p.name), tensor(words)});
        shapes.push_back({text(p.name), global("torch", "Size") + tuple({numbers(p.dims)}) + "R"});
    }
    const std::string model = file(dict({{text("module"), ordered(module)},
                                         {text("param_shapes"), "](" + ordered(shapes) + "e"},
                                         {text("shared_params"), dict({{text("t"), text("w")}})},
                                         {text("args"), global("argparse", "Namespace") + ")\x81"}}),
                                   {""});
    stage1["mp_rank_00_model_states.pt"] = model;
    stage3["zero_pp_rank_0_mp_rank_00_model_states.pt"] = model;
    stage1["zero/optimizer_state.pt"] =
        file(dict({{text("loss_scaler"), scaler(4096)},
                   {text("param_groups"), "](" + dict({{text("lr"), real(0.5)}, {text("step"), "K\x02"}}) + "e"}}));
    const std::string state = dict({{"K" + std::string(1, 0), dict({{text("step"), tensor(contiguous({}))}})}});
    stage3["zero/optimizer_state.pt"] =
        file(dict({{text("optimizer_state_dict"),
                    dict({{text("state"), state}, {text("param_groups"), "](" + dict({{text("lr"), real(0.5)}}) + "e"}})}}),
             {bytes_of_floats({2})});
    for (const auto &[name, bytes] : stage1)
        if (name.find("zero/e") == std::string::npos && name.find("zero/s") == std::string::npos)
            named["x/" + name] = bytes;
    named["latest_universal"] = "x\n";
    return {pack(stage1), pack(stage3), pack(named)};
}

const target zoff_fuzz::TARGET = {6000, 0.05, seeds};
