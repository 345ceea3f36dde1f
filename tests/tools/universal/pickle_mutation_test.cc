/* SPDX-License-Identifier: Apache-2.0 */
// pickle_mutation_test.cc: mutated pickles and .pt files are refused or read; nothing crashes, and no tensor leaves its
// storage.
#include "covering.h"
#include "random.h"
#include "torch_bytes.h"

#include "../tool_files.h"

extern "C" {
#include "import_params.h"
#include "torch_model.h"
}

using namespace torch_bytes;
using zoff_test::share_of;

namespace
{
std::string good_pickle()
{
    return pickled(dict({{text("cat_dim"), std::string("K\0q\0", 4)},
                         {text("param"), tensor(contiguous({3, 4}))},
                         {text("list"), std::string("](h\0h\0e", 7)},
                         {text("sub_param_shape"), global("deepspeed.checkpoint.universal_checkpoint", "SubparamShape") +
                                                       ")\x81" + dict({{text("shape"), numbers({1, 2})}}) + "b"},
                         {text("real"), real(1.5)}}));
}

// Put something in place of nothing, of a byte, or of a few.
void mutate(std::string &bytes, zoff_test::fast_random &random)
{
    static const char OPCODES[] = ".(NJKMGX)t]ae}suqrhjcRbQ\x80\x81\x85\x86\x87\x88\x89\x8a";
    const size_t at = random() % bytes.size(), removed = random() % 4 ? random() % 2 : random() % 9;
    std::string inserted;
    const unsigned choice = random() % 6;
    if (choice == 0)
        inserted = std::string(1, (char)(bytes[at] ^ 1 << random() % 8));
    else if (choice == 1)
        inserted = std::string(1, (char)random());
    else if (choice == 2)
        inserted = std::string(1, OPCODES[random() % (sizeof OPCODES - 1)]);
    else if (choice == 3) // a large number
        inserted = std::string(4, (char)(random() % 2 ? 0xff : 0x7f));
    else if (choice == 4) // a part from another place
        inserted = bytes.substr(random() % bytes.size(), 1 + random() % 40);
    bytes.replace(at, removed, inserted);
    bytes += bytes.empty() ? "." : "";
}

// Look at everything that callers look at.
void use(const pickle *p)
{
    const pickle_value *root = pickle_root(p);
    int64_t number;
    for (const char *key : {"param", "cat_dim", "list", "sub_param_shape", "real", "shape"}) {
        const pickle_value *v = pickle_find(root, key);
        pickle_number(v, &number);
        pickle_is_text(v, key);
        pickle_is_global(v, "torch Size");
        pickle_find(v, key);
        for (size_t i = 0; pickle_at(v, i) && i < 20; i++)
            pickle_is_global(pickle_at(v, i), "torch FloatStorage");
    }
}
} // namespace

TEST(pickle_mutations, AreRefusedOrRead)
{
    zoff_test::fast_random random(18);
    unsigned read = 0;
    const unsigned all = share_of(300000);
    for (unsigned i = 0; i < all; i++) {
        std::string bytes = good_pickle();
        for (unsigned n = 1 + random() % 4; n > 0; n--)
            mutate(bytes, random);
        const std::vector<char> exact(bytes.begin(), bytes.end());
        pickle *p = nullptr;
        fault f = {""};
        if (pickle_open(exact.data(), exact.size(), i % 2 ? PICKLE_NAMES_ANY : PICKLE_NAMES_LISTED, &p, &f)) {
            use(p);
            pickle_close(p);
            read++;
        } else {
            ASSERT_NE('\0', f.text[0]) << i;
        }
    }
    EXPECT_GT(read, all / 100); // not all mutants die at once: the rest of the code is reached
    EXPECT_LT(read, all);
}

TEST(torch_file_mutations, AreRefusedOrReadInsideTheirStorage)
{
    const zoff_test::scratch_folder folder;
    const std::string path = folder.file("a.pt"), pickle_bytes = good_pickle();
    zoff_test::fast_random random(19);
    unsigned read = 0;
    const unsigned all = share_of(20000);
    for (unsigned i = 0; i < all; i++) {
        std::string mutant = pickle_bytes;
        mutate(mutant, random);
        write_zip(path, {{"data.pkl", mutant}, {"data/0", bytes_of_floats(counted(12))}, {"version", "3"}});
        if (i % 4 == 0) { // the archive itself
            std::string bytes = read_all(path);
            mutate(bytes, random);
            std::ofstream(path, std::ios::binary) << bytes;
        }
        torch_file *t = nullptr;
        fault f = {""};
        torch_tensor tensor;
        if (!torch_file_open(path.c_str(), PICKLE_NAMES_LISTED, TORCH_TENSOR_PICKLE, &t, &f)) {
            ASSERT_NE('\0', f.text[0]) << i;
            continue;
        }
        if (torch_file_tensor(t, pickle_find(torch_file_root(t), "param"), &tensor, &f)) {
            std::vector<float> values(tensor.count);
            ASSERT_LE(tensor.count, 12u);
            if (torch_file_begin(t, &tensor, &f) && tensor.count > 0 && torch_file_next(t, tensor.count, values.data(), &f))
                read++;
        }
        torch_file_close(t);
    }
    EXPECT_GT(read, all / 100);
}

namespace
{
// A checkpoint with a model, a tied name, a mask and an optimizer of two groups.
std::string good_checkpoint()
{
    const auto place = [](const std::string &key, const std::vector<size_t> &dims) {
        tensor_words words = contiguous(dims);
        words.key = key;
        return tensor(words);
    };
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
    return pickled(
        dict({{text("model"), model}, {text("optimizer"), dict({{text("state"), state}, {text("param_groups"), groups}})}}));
}

// Read all that an import reads. Returns the exit status.
int read_model(const std::string &path, size_t *frozen)
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
        *frozen += p.facts.states == 1u << ZOFF_STATE_WEIGHTS;
        for (unsigned k = 0; k < 4; k++) {
            if (p.tensor_count == 0 || !(p.facts.states & 1u << k) || ((k == 1 || k == 2) && !p.tensors[0]->moments))
                continue;
            std::vector<float> values(p.facts.count + 1);
            EXPECT_LE(p.facts.count, 6u);
            if (p.facts.count > 0 && result == EXIT_DONE)
                result = IMPORT_TORCH.read(p.tensors[0], (zoff_state_kind)k, 0, p.facts.count, values.data());
        }
    }
    import_params_free(&params);
    import_files_close(&files);
    return result;
}
} // namespace

TEST(torch_import_mutations, AreRefusedOrRead)
{
    const zoff_test::scratch_folder folder;
    const std::string path = folder.file("a.pt"), good = good_checkpoint();
    zoff_test::fast_random random(20);
    unsigned read = 0;
    const unsigned all = share_of(20000);
    for (unsigned i = 0; i < all; i++) {
        std::string mutant = good;
        for (unsigned n = i == 0 ? 0 : 1 + random() % 2; n > 0; n--) // the first file stays as it is
            mutate(mutant, random);
        write_zip(path, {{"data.pkl", mutant},
                         {"data/0", bytes_of_floats(counted(6))},
                         {"data/1", bytes_of_floats(counted(4))},
                         {"data/2", bytes_of_floats(counted(5))}});
        size_t frozen = 0;
        const tool_files::outcome result = tool_files::run([&] { return read_model(path, &frozen); });
        ASSERT_TRUE(i > 0 || (result.exit == EXIT_DONE && frozen == 1)) << result.err;
        ASSERT_EQ(result.exit != EXIT_DONE, result.err.find("error: ") != std::string::npos) << i << ": " << result.err;
        read += result.exit == EXIT_DONE;
    }
    EXPECT_GT(read, all / 20);
    EXPECT_LT(read, all);
}
