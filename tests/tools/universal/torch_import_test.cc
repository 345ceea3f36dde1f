/* SPDX-License-Identifier: Apache-2.0 */
// torch_import_test.cc: `zoff import torch`: state_dicts of torch.save() become checkpoints, with the moments of torch.optim
// where exactly one way to match them with the tensors exists.
#include "../tool_checkpoints.h"
#include "covering.h"
#include "torch_bytes.h"

#include <sys/stat.h>

using namespace torch_bytes;
using tool_files::checkpoint_reader;
using tool_files::verb_result;

namespace
{
using items = std::vector<std::pair<std::string, std::string>>;

enum : unsigned {
    MASTER = 1 << ZOFF_STATE_MASTER,
    M = 1 << ZOFF_STATE_M,
    V = 1 << ZOFF_STATE_V,
    FROZEN = 1 << ZOFF_STATE_WEIGHTS
};

std::string small(unsigned value)
{
    return "K" + std::string(1, (char)value);
}

std::string ordered(const items &all)
{
    std::string words = global("collections", "OrderedDict") + ")R(";
    for (const auto &item : all)
        words += item.first + item.second;
    return words + "u";
}

std::string list(const std::vector<std::string> &all)
{
    std::string words = "](";
    for (const auto &item : all)
        words += item;
    return words + "e";
}

// A file of torch.save() in the making.
struct pt_file {
    std::vector<std::string> data;

    // A tensor of a storage of its own, whose elements count from `first` on.
    std::string add(const std::vector<size_t> &dims, float first = 1)
    {
        tensor_words words = contiguous(dims);
        words.key = std::to_string(data.size());
        data.push_back(bytes_of_floats(counted(words.stored, first)));
        return tensor(words);
    }
    // The state of Adam for a parameter: its moments count from `first` and `first` + 1000 on.
    std::string adam(const std::vector<size_t> &dims, float first, float step = 5)
    {
        return dict({{text("step"), tensor_of({}, {step})},
                     {text("exp_avg"), add(dims, first)},
                     {text("exp_avg_sq"), add(dims, first + 1000)}});
    }
    std::string tensor_of(const std::vector<size_t> &dims, const std::vector<float> &values,
                          const std::string &storage = "FloatStorage")
    {
        tensor_words words = contiguous(dims);
        words.key = std::to_string(data.size());
        words.storage = storage;
        data.push_back(storage == "FloatStorage" ? bytes_of_floats(values) : std::string(words.stored * 8, 1));
        return tensor(words);
    }
    void write(const std::string &path, const std::string &root) const { write_pt(path, root, data); }
};

// An optimizer's state_dict: states by number, and the length of each group.
std::string optimizer(const items &states, const std::vector<unsigned> &groups, const std::vector<std::string> &names = {})
{
    std::vector<std::string> all;
    unsigned at = 0;
    for (const unsigned count : groups) {
        std::vector<std::string> numbers, texts;
        for (unsigned i = 0; i < count; i++, at++) {
            numbers.push_back(small(at));
            texts.push_back(at < names.size() ? text(names[at]) : "");
        }
        items group = {{text("lr"), real(0.1)}, {text("params"), list(numbers)}};
        if (!names.empty())
            group.push_back({text("param_names"), list(texts)});
        all.push_back(dict(group));
    }
    return dict({{text("state"), dict(states)}, {text("param_groups"), list(all)}});
}

class torch_import : public testing::Test
{
  protected:
    const zoff_test::scratch_folder folder;
    const std::string path = folder.file("ckpt.pt"), other = folder.file("optimizer.pt");
    std::string to;
    unsigned imports = 0;
    verb_result last;
    zoff_checkpoint_reader *opened = nullptr;
    checkpoint_reader reader;

    verb_result run(std::vector<std::string> arguments)
    {
        to = folder.file("checkpoints" + std::to_string(++imports));
        arguments.insert(arguments.end(), {"-o", to});
        last = tool_files::run_verb(verb_import_torch, std::move(arguments));
        return last;
    }
    void imported(std::vector<std::string> arguments)
    {
        run(std::move(arguments));
        ASSERT_EQ(EXIT_DONE, last.exit) << last.err;
        zoff_checkpoint_reader *r = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(to.c_str(), nullptr, &r));
        reader.reset(r);
    }
    void refused(const std::string &words, std::vector<std::string> arguments)
    {
        run(std::move(arguments));
        EXPECT_EQ(EXIT_FAILED, last.exit) << last.out;
        EXPECT_HAS(last.err, words);
        EXPECT_NE(0, access((to + "/latest").c_str(), F_OK));
    }
    int64_t step()
    {
        zoff_checkpoint_info about = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader.get(), &about));
        return about.t;
    }
    zoff_checkpoint_param find(const std::string &name, size_t *index)
    {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_find(reader.get(), name.c_str(), index));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_param(reader.get(), *index, &p));
        return p;
    }
    // A parameter has these states, and each counts from a first number on; moments of `first` < 0 are zero.
    void expect(const std::string &name, const std::vector<size_t> &dims, unsigned states, float weights, float first = 0)
    {
        size_t index;
        const zoff_checkpoint_param p = find(name, &index);
        EXPECT_EQ(dims, std::vector<size_t>(p.dims, p.dims + p.dim_count)) << name;
        EXPECT_EQ(states, p.states) << name;
        for (unsigned k = 0; k < 4; k++) {
            if (!(states & 1u << k))
                continue;
            std::vector<float> values(p.count);
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(reader.get(), index, (zoff_state_kind)k, 0, p.count, values.data()));
            const bool is_moment = k == ZOFF_STATE_M || k == ZOFF_STATE_V;
            const bool is_zero = is_moment && first < 0;
            const float begin = !is_moment ? weights : k == ZOFF_STATE_M ? first : first + 1000;
            EXPECT_EQ(is_zero ? std::vector<float>(p.count) : counted(p.count, begin), values) << name << " state " << k;
        }
    }
};

// As nanoGPT saves it: names of torch.compile, two groups, a tied head, a mask and a counter beside the parameters, and the
// optimizer in the same file.
TEST_F(torch_import, ACheckpointWithItsOptimizer)
{
    pt_file file;
    const std::string wte = file.add({5, 3}, 10), names[] = {"module._orig_mod.wte.weight", "module._orig_mod.h.ln.weight"};
    const items model = {{text(names[0]), wte},
                         {text(names[1]), file.add({3}, 30)},
                         {text("module._orig_mod.h.mask"), file.add({1, 2, 2}, 40)},
                         {text("module._orig_mod.h.count"), file.tensor_of({2}, {}, "LongStorage")},
                         {text("module._orig_mod.h.fc.weight"), file.add({3, 3}, 50)},
                         {text("module._orig_mod.h.fc.bias"), file.add({3}, 60)},
                         {text("module._orig_mod.head.weight"), wte}};
    const std::string state = optimizer({{small(0), file.adam({5, 3}, 100)},
                                         {small(1), file.adam({3, 3}, 200)},
                                         {small(2), file.adam({3}, 300)},
                                         {small(3), file.adam({3}, 400)}},
                                        {2, 2});
    file.write(path, dict({{text("model"), ordered(model)},
                           {text("optimizer"), state},
                           {text("best_val_loss"), file.tensor_of({}, {2})},
                           {text("config"), dict({{text("n"), small(3)}})}}));
    imported({path});
    EXPECT_EQ(5, step());
    EXPECT_HAS(last.out, "6 parameters, 1 of them tied, from 136 B of weights, at update 5; the moments are those of " + path);
    EXPECT_HAS(last.err, "the names lose \"_orig_mod.\" of torch.compile and \"module.\" of DistributedDataParallel\n");
    EXPECT_HAS(last.err, "1 value without floating-point numbers, such as \"h.count\", is left out\n");
    EXPECT_HAS(last.err,
               "the optimizer does not have 1 of the tensors, such as \"h.mask\": they are frozen, and --skip leaves");
    expect("wte.weight", {5, 3}, MASTER | M | V, 10, 100);
    expect("h.ln.weight", {3}, MASTER | M | V, 30, 300);
    expect("h.mask", {1, 2, 2}, FROZEN, 40);
    expect("h.fc.weight", {3, 3}, MASTER | M | V, 50, 200);
    expect("h.fc.bias", {3}, MASTER | M | V, 60, 400);
    size_t index;
    EXPECT_STREQ("wte.weight", find("head.weight", &index).tied_to);
    // --optimizer takes the same file, or none of its moments; --step and --frozen are what they are for other formats
    imported({path, "--optimizer", path, "--step", "9", "--skip", "*.mask", "--frozen", "*.ln.weight", "--dtype", "bf16"});
    EXPECT_EQ(9, step());
    EXPECT_EQ(std::string::npos, last.err.find("they are frozen")) << last.err;
    expect("h.ln.weight", {3}, FROZEN, 30);
    expect("h.fc.bias", {3}, MASTER | M | V, 60, 400);
    EXPECT_EQ(ZOFF_BF16, find("h.fc.bias", &index).dtype);
    imported({path, "--optimizer", "lion"});
    EXPECT_EQ(0, step());
    expect("h.fc.bias", {3}, MASTER | M, 60, -1);
    expect("h.mask", {1, 2, 2}, MASTER | M, 40, -1);
}

// Names of parameters decide where there are any: those of named_parameters(), or those in place of numbers, as FSDP writes
// them.
TEST_F(torch_import, AnOptimizerWithNames)
{
    pt_file file;
    const std::string a = file.add({2}, 1);
    file.write(path, ordered({{text("a"), a}, {text("b"), file.add({2}, 20)}, {text("c"), a}, {text("d"), file.add({2}, 40)}}));
    pt_file states;
    const std::string first = states.adam({2}, 100), second = states.adam({2}, 200);
    const std::string groups = list({dict({{text("params"), list({text("d"), text("c")})}})});
    for (const std::string &root :
         {optimizer({{small(0), first}, {small(1), second}}, {2}, {"module.d", "module._orig_mod.c"}),
          dict({{text("state"), dict({{text("d"), first}, {text("c"), second}})}, {text("param_groups"), groups}})}) {
        const bool has_numbers = root.find("param_names") != std::string::npos;
        if (has_numbers) // the model's names have lost the same words
            file.write(path, ordered({{text("module.a"), a},
                                      {text("module.b"), file.add({2}, 20)},
                                      {text("module.c"), a},
                                      {text("module.d"), file.add({2}, 40)}}));
        else
            file.write(
                path,
                ordered({{text("a"), a}, {text("b"), file.add({2}, 20)}, {text("c"), a}, {text("d"), file.add({2}, 40)}}));
        states.write(other, root);
        imported({path, "--optimizer", other});
        expect("a", {2}, MASTER | M | V, 1, 200); // c is tied to it
        expect("b", {2}, FROZEN, 20);
        expect("d", {2}, MASTER | M | V, 40, 100);
    }
    states.write(other, optimizer({{small(0), first}, {small(1), second}}, {2}, {"a", "x"}));
    refused("parameter \"x\" of the optimizer is no tensor of the model", {path, "--optimizer", other});
    states.write(other, optimizer({{small(0), first}, {small(1), second}}, {2}, {"a", "c"}));
    refused("parameter \"c\" of the optimizer is there twice", {path, "--optimizer", other});
    states.write(other, optimizer({{small(0), states.adam({3}, 1)}}, {1}, {"a"}));
    refused("parameter \"a\" has another shape in the optimizer than in " + path, {path, "--optimizer", other});
}

// Moments of other optimizers, and parameters that have none.
TEST_F(torch_import, StatesOfOtherOptimizers)
{
    pt_file file;
    file.write(
        path,
        ordered({{text("a"), file.add({2}, 1)}, {text("b"), file.add({3}, 20)}, {text("bn.running_mean"), file.add({3}, 30)}}));
    pt_file sgd;
    sgd.write(other, optimizer({{small(0), dict({{text("momentum_buffer"), sgd.add({2}, 5)}})},
                                {small(1), dict({{text("momentum_buffer"), "N"}})}},
                               {2}));
    refused(other + " does not tell how many updates it has; give --step N", {path, "--optimizer", other});
    imported({path, "--optimizer", other, "--step", "3"});
    expect("a", {2}, MASTER | M, 1, 5);
    expect("b", {3}, MASTER | M, 20, -1);
    expect("bn.running_mean", {3}, FROZEN, 30);
    EXPECT_HAS(last.err, "1 of the tensors, such as \"b\", have no moments yet");
    pt_file adagrad;
    adagrad.write(other, optimizer({{small(0), dict({{text("step"), small(7)}, {text("sum"), adagrad.add({2}, 1005)}})}}, {2}));
    imported({path, "--optimizer", other});
    EXPECT_EQ(7, step());
    expect("a", {2}, MASTER | V, 1, 5);
    pt_file fresh;
    fresh.write(other, optimizer({}, {2}));
    imported({path, "--optimizer", other});
    EXPECT_EQ(0, step());
    EXPECT_HAS(last.err, "the optimizer has no states yet, so the moments are zero");
    expect("a", {2}, MASTER | M | V, 1, -1);
}

TEST_F(torch_import, OptimizersThatCannotBeTakenOver)
{
    pt_file file;
    file.write(path, ordered({{text("a"), file.add({2}, 1)}, {text("b"), file.add({2}, 20)}}));
    const auto refuses = [&](const std::string &words, const std::function<std::string(pt_file &)> &root) {
        pt_file states;
        const std::string made = root(states);
        states.write(other, made);
        refused(words, {path, "--optimizer", other});
    };
    refuses("the optimizer has a state \"max_exp_avg_sq\", and zoff knows exp_avg, exp_avg_sq, momentum_buffer and sum",
            [](pt_file &f) {
                return optimizer({{small(0), dict({{text("max_exp_avg_sq"), f.add({2})}})}}, {2});
            });
    refuses("tensor \"b\" has step 6, and \"a\" has 5; zoff has one number of updates for all: give --step N", [](pt_file &f) {
        return optimizer({{small(0), f.adam({2}, 1)}, {small(1), f.adam({2}, 1, 6)}}, {2});
    });
    refuses("parameter 0 of the optimizer has no valid \"step\"", [](pt_file &f) {
        return optimizer({{small(0), f.adam({2}, 1, -1)}}, {2});
    });
    refuses("parameter 1 of the optimizer has no valid \"step\"", [](pt_file &f) {
        return optimizer({{small(1), f.adam({2}, 1, 1.5)}}, {2});
    });
    refuses("the optimizer has other moments for parameter 1 than for others", [](pt_file &f) {
        return optimizer({{small(0), f.adam({2}, 1)}, {small(1), dict({{text("exp_avg"), f.add({2})}})}}, {2});
    });
    refuses("parameter 0 of the optimizer has moments of two shapes", [](pt_file &f) {
        return optimizer({{small(0), dict({{text("exp_avg"), f.add({2})}, {text("exp_avg_sq"), f.add({3})}})}}, {2});
    });
    refuses("parameter 0 of the optimizer has a moment of integers", [](pt_file &f) {
        return optimizer({{small(0), dict({{text("exp_avg"), f.tensor_of({2}, {}, "LongStorage")}})}}, {2});
    });
    refuses("there is no tensor where one is needed; this is a state of parameter 0 of the optimizer", [](pt_file &) {
        return optimizer({{small(0), dict({{text("exp_avg"), small(1)}})}}, {2});
    });
    refuses("more parameters than the model's 2 tensors", [](pt_file &f) {
        return optimizer({{small(0), f.adam({2}, 1)}}, {2, 1});
    });
    const std::string form = "its optimizer has not the form of torch.optim";
    refuses(form, [](pt_file &f) { return optimizer({{small(2), f.adam({2}, 1)}}, {2}); });
    refuses(form, [](pt_file &f) { return optimizer({{text("a"), f.adam({2}, 1)}}, {2}); });
    refuses(form, [](pt_file &f) { return optimizer({{small(0), f.adam({2}, 1)}, {small(0), f.adam({2}, 1)}}, {2}); });
    refuses(form, [](pt_file &f) {
        return dict({{text("state"), dict({{small(0), f.adam({2}, 1)}})},
                     {text("param_groups"), list({dict({{text("params"), list({small(1)})}})})}});
    });
    refuses(form, [](pt_file &f) {
        return dict({{text("state"), dict({{small(0), f.adam({2}, 1)}})}, {text("param_groups"), list({dict({})})}});
    });
    refuses(form, [](pt_file &f) { // two names for three parameters
        return dict(
            {{text("state"), dict({{small(0), f.adam({2}, 1)}})},
             {text("param_groups"),
              list({dict({{text("params"), list({small(0)})}, {text("param_names"), list({text("a"), text("b")})}})})}});
    });
    refuses("has no state_dict of an optimizer", [](pt_file &f) { return ordered({{text("a"), f.add({2})}}); });
}

// Ways to give the parameters of the groups tensors of the same shape, in the order of the tensors within each group.
// @param at parameters of each group so far  @param out the tensor of each parameter, on the last way
unsigned ways(const std::vector<size_t> &tensors, const std::vector<std::vector<size_t>> &groups, size_t tensor,
              std::vector<size_t> &at, size_t spare, std::vector<std::vector<size_t>> &way,
              std::vector<std::vector<size_t>> *out)
{
    if (tensor == tensors.size()) {
        *out = way;
        return 1;
    }
    unsigned count = spare > 0 ? ways(tensors, groups, tensor + 1, at, spare - 1, way, out) : 0;
    for (size_t g = 0; g < groups.size(); g++) {
        if (at[g] == groups[g].size() || groups[g][at[g]] != tensors[tensor])
            continue;
        way[g].push_back(tensor);
        at[g]++;
        count += ways(tensors, groups, tensor + 1, at, spare, way, out);
        at[g]--;
        way[g].pop_back();
    }
    return count;
}

// Small models with random shapes, groups, and tensors that are not the optimizer's: they are imported exactly if one way
// exists, and then by that way.
TEST_F(torch_import, MomentsAreMatchedIfThereIsOneWay)
{
    unsigned none = 0, one = 0, several = 0;
    const unsigned cases = zoff_test::share_of(2000);
    for (unsigned seed = 0; seed < cases; seed++) {
        zoff_test::fast_random random(seed);
        const size_t tensor_count = 1 + random() % 7, group_count = 1 + random() % 3, shapes = 1 + random() % 4;
        std::vector<size_t> tensors, at(group_count);
        std::vector<std::vector<size_t>> groups(group_count), way(group_count), found;
        size_t spare = 0;
        for (size_t i = 0; i < tensor_count; i++) {
            tensors.push_back(1 + random() % shapes);
            const size_t g = shapes > 2 && random() % 4 ? tensors[i] % group_count : random() % (group_count + 1);
            if (g < group_count)
                groups[g].push_back(tensors[i]);
            spare += g == group_count;
        }
        if (random() % 4 == 0 && !groups[0].empty()) // another model
            groups[0][random() % groups[0].size()] = 1 + random() % shapes;
        const unsigned count = ways(tensors, groups, 0, at, spare, way, &found);
        pt_file file, states;
        items model, all;
        for (size_t i = 0; i < tensor_count; i++)
            model.push_back({text("t" + std::to_string(i)), file.add({tensors[i]}, (float)i)});
        std::vector<unsigned> lengths;
        for (const auto &group : groups) {
            for (const size_t shape : group)
                all.push_back({small((unsigned)all.size()), states.adam({shape}, (float)(100 * all.size()))});
            lengths.push_back((unsigned)group.size());
        }
        if (all.empty())
            continue;
        file.write(path, ordered(model));
        states.write(other, optimizer(all, lengths));
        SCOPED_TRACE(seed);
        if (count != 1) {
            (count ? several : none)++;
            refused(count ? "can be matched with the tensors in several ways"
                          : "the optimizer has no parameter of the shape of tensor",
                    {path, "--optimizer", other});
            continue;
        }
        one++;
        ASSERT_NO_FATAL_FAILURE(imported({path, "--optimizer", other}));
        std::vector<float> first(tensor_count, -1);
        size_t number = 0;
        for (const auto &group : found) {
            for (const size_t tensor : group)
                first[tensor] = (float)(100 * number++);
        }
        for (size_t i = 0; i < tensor_count; i++)
            expect("t" + std::to_string(i), {tensors[i]}, first[i] < 0 ? FROZEN : MASTER | M | V, (float)i, first[i]);
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_LT(0u, none);
    EXPECT_LT(cases / 20, one);
    EXPECT_LT(0u, several);
}

// Many groups, or many ways, end the search with a message.
TEST_F(torch_import, TheSearchForAWayIsBounded)
{
    pt_file file, states;
    items model, all;
    for (unsigned i = 0; i < 260; i++)
        model.push_back({text("t" + std::to_string(i)), file.add({2})});
    all.push_back({small(0), states.adam({2}, 1)});
    file.write(path, ordered(model));
    states.write(other, optimizer(all, std::vector<unsigned>(250, 1)));
    refused("can be matched with the tensors in several ways", {path, "--optimizer", other});
    states.write(other, optimizer(all, std::vector<unsigned>(128, 2)));
    refused("can be matched with the tensors in several ways", {path, "--optimizer", other});
    const std::string none = dict({{text("lr"), real(1)}, {text("params"), "]"}});
    const std::string full = dict({{text("params"), list({small(0)})}});
    std::vector<std::string> groups(300, none);
    groups.push_back(full);
    states.write(other, dict({{text("state"), dict(all)}, {text("param_groups"), list(groups)}}));
    refused("the optimizer has 301 groups without names, more than 256; give each group its names",
            {path, "--optimizer", other});
    // a state of more members than any optimizer has
    std::string repeated;
    for (unsigned i = 0; i < 3000; i++)
        repeated += text("exp_avg") + "N";
    states.write(other, optimizer({{small(0), "}(" + repeated + "u"}}, {1}));
    refused("has not the form of torch.optim", {path, "--optimizer", other});
}

TEST_F(torch_import, NamesAndValuesOfEveryForm)
{
    pt_file file;
    tensor_words turned;
    turned.dims = {3, 2}, turned.strides = {1, 3}, turned.stored = 6, turned.key = "0";
    file.data.push_back(bytes_of_floats({1, 3, 5, 2, 4, 6})); // column by column
    const std::string extra = dict({{text("a"), small(1)}});
    file.write(path, dict({{text("turned"), tensor(turned)},
                           {text("module.inside"), file.add({}, 7)},
                           {text("_extra_state"), extra},
                           {text("none"), file.add({0, 2})},
                           {text("\u00e9 %"), file.add({1}, 9)}}));
    imported({path});
    EXPECT_HAS(last.err, "1 value without floating-point numbers, such as \"_extra_state\", is left out");
    EXPECT_EQ(std::string::npos, last.err.find("lose")) << "not all names have \"module.\": " << last.err;
    expect("turned", {3, 2}, MASTER | M | V, 1, -1);
    expect("module.inside", {1}, MASTER | M | V, 7, -1);
    expect("none", {0, 2}, MASTER | M | V, 0, -1);
    expect("\u00e9 %", {1}, MASTER | M | V, 9, -1);
    // slices of one parameter, with their moments
    pt_file layers, states;
    layers.write(path, dict({{text("state_dict"),
                              ordered({{text("h.0.w"), layers.add({2}, 1)}, {text("h.1.w"), layers.add({2}, 3)}})}}));
    states.write(other, optimizer({{small(0), states.adam({2}, 10)}, {small(1), states.adam({2}, 12)}}, {2}));
    imported({path, "--optimizer", other, "--stack", "h=h.{}.w"});
    size_t index;
    const zoff_checkpoint_param p = find("h", &index);
    EXPECT_EQ(2u, p.slices);
    for (unsigned k = 0; k < 3; k++) {
        std::vector<float> values(4);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(reader.get(), index, (zoff_state_kind)k, 0, 4, values.data()));
        EXPECT_EQ(counted(4, k == 0 ? 1.f : k == 1 ? 10.f : 1010.f), values);
    }
}

TEST_F(torch_import, NamesAndValuesThatAreRefused)
{
    const auto refuses = [&](const std::string &words, const items &more) {
        pt_file file;
        items all = {{text("a"), file.add({2})}};
        all.insert(all.end(), more.begin(), more.end());
        file.write(path, ordered(all));
        refused(words, {path});
    };
    tensor_words words = contiguous({2});
    words.storage = "ComplexFloatStorage";
    refuses(
        "the type \"torch.ComplexFloatStorage\"; float32, float16, bfloat16 and float64 are read; this is tensor \"b\", which "
        "--skip 'b' leaves out",
        {{text("b"), tensor(words)}});
    words = contiguous({2, 2});
    words.strides = {0, 1}, words.stored = 2;
    refuses("repeats its elements, as .expand() does; save it with .clone(); this is tensor \"b\"",
            {{text("b"), tensor(words)}});
    refuses("tensor \"b\": is no plain tensor; make it one in Python, such as by .full_tensor() or .dequantize()",
            {{text("b"), global("torch._tensor", "_rebuild_from_type_v2") + ")R"}});
    refuses("a key of the state_dict is no text in UTF-8", {{text("\xff"), "N"}});
    refuses("a key of the state_dict is no text in UTF-8", {{small(1), "N"}});
    refuses("tensor \"a\": is there twice", {{text("_orig_mod.a"), "N"}});
}

TEST_F(torch_import, AFolderWithAnIndex)
{
    const std::string hub = folder.file("hub"), index = hub + "/pytorch_model.bin.index.json";
    ASSERT_EQ(0, mkdir(hub.c_str(), 0777));
    pt_file one, two, states;
    const std::string wte = one.add({3}, 1);
    one.write(hub + "/pytorch_model-00001-of-00002.bin", ordered({{text("wte"), wte},
                                                                  {text("head"), wte},
                                                                  {text("z"), one.add({2}, 10)},
                                                                  {text("mask"), one.tensor_of({2}, {}, "LongStorage")}}));
    two.write(hub + "/pytorch_model-00002-of-00002.bin", ordered({{text("b"), two.add({2}, 20)}}));
    states.write(
        other,
        optimizer({{small(0), states.adam({3}, 100)}, {small(1), states.adam({2}, 200)}, {small(2), states.adam({2}, 300)}},
                  {3}));
    const std::string rest = "\"mask\": \"pytorch_model-00001-of-00002.bin\", \"head\": \"pytorch_model-00001-of-00002.bin\", "
                             "\"wte\": \"pytorch_model-00001-of-00002.bin\", "
                             "\"z\": \"pytorch_model-00001-of-00002.bin\"}}";
    tool_files::write_bytes(index, "{\"weight_map\": {\"b\": \"pytorch_model-00002-of-00002.bin\", " + rest); // sorted by name
    imported({hub, "--optimizer", other});
    expect("wte", {3}, MASTER | M | V, 1, 100);
    expect("z", {2}, MASTER | M | V, 10, 200); // the order is that of the files
    expect("b", {2}, MASTER | M | V, 20, 300);
    size_t at;
    EXPECT_STREQ("wte", find("head", &at).tied_to);
    tool_files::write_bytes(index, "{\"weight_map\": {" + rest);
    imported({hub}); // no name of the second file is in the index, so that it is not read
    expect("z", {2}, MASTER | M | V, 10, -1);
    ASSERT_EQ(0, unlink(index.c_str()));
    imported({hub, "--optimizer", other});
    expect("b", {2}, MASTER | M | V, 20, 300);
    refused("pytorch_model-00002-of-00002.bin: 1 of 2 files of this model are given",
            {hub + "/pytorch_model-00002-of-00002.bin"});
}
} // namespace
