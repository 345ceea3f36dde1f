/* SPDX-License-Identifier: Apache-2.0 */
// torch_fuzz.cc: a file of torch.save(). It is named, imported or refused with a reason. No tensor leaves its storage, and a
// copy with other contents is such a file again.
#include "fuzz.h"

#include "../tools/universal/torch_bytes.h"

extern "C" {
#include "import_kind.h"
#include "import_params.h"
#include "torch_model.h"
#include "verbs.h"
}

#include <sys/stat.h>

#include <cmath>

using namespace zoff_fuzz;

static uint64_t file_bytes;

static void read_tensor(torch_file *t, const torch_tensor &tensor, fault *f)
{
    require(tensor.count <= tensor.stored && tensor.stored * tensor.element <= file_bytes,
            "a tensor is not larger than its storage, nor that than the file");
    if (tensor.dtype == ZOFF_DTYPE_DEFAULT || !torch_file_begin(t, &tensor, f))
        return;
    const size_t first = tensor.count / 2;
    std::vector<float> values(tensor.count);
    if (torch_file_next(t, first, values.data(), f) && torch_file_next(t, tensor.count - first, values.data() + first, f))
        accept();
}

// Numbers that nobody saved, for a copy.
static bool give_numbers(void *, size_t first, size_t count, float *dst, fault *)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)(first + i);
    return true;
}

static void read_tensors(const folder &scratch, const std::string &path, pickle_names names)
{
    torch_file *t = nullptr;
    fault f = {""};
    if (!torch_file_open(path.c_str(), names, TORCH_TENSOR_PICKLE, &t, &f)) {
        require(f.text[0], "a refused file has a reason");
        return;
    }
    const pickle_value *root = torch_file_root(t);
    for (const pickle_value *v :
         {root, pickle_find(root, "param"), pickle_find(root, "step"), pickle_at(root, 0), pickle_at(root, 1)}) {
        torch_tensor tensor;
        int64_t number;
        if (!v)
            continue;
        (void)torch_file_number(t, v, &number, &f);
        if (!torch_file_tensor(t, v, &tensor, &f))
            continue;
        read_tensor(t, tensor, &f);
        torch_change change = {};
        change.tensor = &tensor;
        change.source = give_numbers;
        const std::string copy = scratch.file("copy.pt");
        if (tensor.dtype != ZOFF_F32 || tensor.element != 4 || !torch_file_copy(t, copy.c_str(), &change, &f))
            continue;
        torch_file *again = nullptr;
        require(torch_file_open(copy.c_str(), names, TORCH_TENSOR_PICKLE, &again, &f), "the copy of a file can be read");
        torch_file_close(again);
        unlink(copy.c_str());
    }
    torch_file_close(t);
}

// Read all that `zoff import torch` reads.
static int import(const std::string &path)
{
    std::string name = path;
    char *paths[] = {name.data()};
    const char *none[] = {nullptr};
    import_options options = {paths, 1, "", -1, ZOFF_DTYPE_DEFAULT, 3 << ZOFF_STATE_M, none, none, nullptr, 0};
    import_files files = {};
    import_params params = {};
    int result = import_files_open(&files, &IMPORT_TORCH, paths, 1, none);
    if (result == EXIT_DONE)
        result = torch_optimizer_read(&files, &options);
    if (result == EXIT_DONE)
        result = import_params_make(&params, &files, &options);
    for (size_t i = 0; i < params.count && result == EXIT_DONE; i++) {
        const import_param &p = params.params[i];
        for (unsigned k = 0; k < 4; k++) {
            if (p.tensor_count == 0 || !(p.facts.states & 1u << k) || ((k == 1 || k == 2) && !p.tensors[0]->moments))
                continue;
            require(p.facts.count * 2 <= file_bytes, "a parameter is not larger than the file");
            std::vector<float> values(p.facts.count + 1);
            if (p.facts.count > 0 && result == EXIT_DONE)
                result = IMPORT_TORCH.read(p.tensors[0], (zoff_state_kind)k, 0, p.facts.count, values.data());
        }
    }
    import_params_free(&params);
    import_files_close(&files);
    return result;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const folder scratch({{"a.pt", std::string((const char *)data, bytes)}});
    const std::string path = scratch.file("a.pt");
    file_bytes = bytes;
    quiet_output();
    require(import_kind_tell(path.c_str()) != EXIT_DONE && !quiet_output().empty(), "every file is told");
    read_tensors(scratch, path, PICKLE_NAMES_LISTED);
    read_tensors(scratch, path, PICKLE_NAMES_ANY);
    quiet_output();
    const int result = import(path);
    require((result != EXIT_DONE) == (quiet_output().find("error: ") != std::string::npos),
            "only a failed import has an error");
    if (result == EXIT_DONE)
        accept();
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    changes c(seed);
    std::string archive((const char *)data, bytes);
    c.zip(&archive, most);
    return give(archive, data, bytes, most);
}

static std::string place(const std::string &key, const std::vector<size_t> &dims, const std::string &storage = "FloatStorage")
{
    torch_bytes::tensor_words words = torch_bytes::contiguous(dims);
    words.key = key;
    words.storage = storage;
    return torch_bytes::tensor(words);
}

static std::vector<std::string> seeds()
{
    using namespace torch_bytes;
    const auto file = [](const std::string &root, const std::vector<std::string> &data) {
        std::vector<std::pair<std::string, std::string>> all = {{"a/data.pkl", pickled(root)}, {"a/byteorder", "little"}};
        for (size_t i = 0; i < data.size(); i++)
            all.push_back({"a/data/" + std::to_string(i), data[i]});
        all.push_back({"a/version", "3\n"});
        return changes::make_zip(all);
    };
    // A model with a tied name and a mask, and an optimizer of two groups.
    const std::string zero(1, 0), wte = place("0", {2, 3});
    const auto adam = [&](const std::string &key, const std::vector<size_t> &dims) {
        return dict({{text("step"), "K\x03"}, {text("exp_avg"), place(key, dims)}, {text("exp_avg_sq"), place(key, dims)}});
    };
    const std::string model = dict({{text("_orig_mod.wte"), wte},
                                    {text("_orig_mod.b"), place("1", {4})},
                                    {text("_orig_mod.mask"), place("2", {5})},
                                    {text("_orig_mod.head"), wte}});
    const std::string groups = "](" + dict({{text("params"), "](K" + zero + "e"}}) +
                               dict({{text("params"), "](K\x01"
                                                      "e"}}) +
                               "e";
    const std::string state = dict({{"K" + zero, adam("0", {2, 3})}, {"K\x01", adam("1", {4})}});
    tensor_words strided = contiguous({2, 3});
    strided.strides = {1, 2};
    strided.offset = 1, strided.stored = 7;
    const std::string parameter = global("torch._utils", "_rebuild_parameter") +
                                  tuple({place("0", {2}), "\x88", global("collections", "OrderedDict") + ")R"}) + "R";
    return {
        file(
            dict({{text("model"), model}, {text("optimizer"), dict({{text("state"), state}, {text("param_groups"), groups}})}}),
            {bytes_of_floats(counted(6)), bytes_of_floats(counted(4)), bytes_of_floats(counted(5))}),
        file(dict({{text("param"), tensor(strided)}, {text("step"), place("1", {})}}),
             {bytes_of_floats(counted(7)), bytes_of_floats({2})}),
        file(dict({{text("module.module.w"), place("0", {2, 2}, "BFloat16Storage")},
                   {text("module.module.h"), place("1", {3}, "HalfStorage")}}),
             {std::string(8, 1), std::string(6, 2)}),
        file(tuple({parameter, place("1", {1}, "LongStorage"), place("1", {1}, "DoubleStorage")}),
             {bytes_of_floats({1, 2}), std::string(8, 0)}),
        file(dict({{text("state_dict"), dict({{text("d"), place("0", {2}, "DoubleStorage")}})}, {text("iteration"), "K\x05"}}),
             {std::string(16, 3)})};
}

const target zoff_fuzz::TARGET = {40000, 0.05, seeds};
