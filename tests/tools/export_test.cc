/* SPDX-License-Identifier: Apache-2.0 */
// export_test.cc: `zoff export` writes the weights of a checkpoint with the bits that zoff_params_push() would write.
#include "tool_checkpoints.h"

#include <dirent.h>
#include <sys/syscall.h>

extern "C" {
#include "out_file.h"
}

using namespace tool_files;

// Files and folders that the process flushes, in order. A path in `bad_flush` cannot be flushed once `bad_flush_after` is
// there.
static std::vector<std::string> flushed;
static std::string bad_flush, bad_flush_after;

extern "C" int fsync(int fd)
{
    char path[4096];
    const ssize_t bytes = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    flushed.emplace_back(path, bytes > 0 ? (size_t)bytes : 0);
    if (flushed.back() == bad_flush && access(bad_flush_after.c_str(), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

namespace
{
class export_verb : public testing::Test
{
  protected:
    void save(std::vector<param> all)
    {
        params = std::move(all);
        write_checkpoint(checkpoints, params);
    }
    // Export to a new folder, and return the number of its files.
    size_t exported(std::vector<std::string> options = {})
    {
        to = folder.file("export" + std::to_string(++exports));
        options.insert(options.begin(), {checkpoints, "-o", to});
        last = run_export(options);
        EXPECT_EQ(EXIT_DONE, last.exit) << last.err;
        EXPECT_EQ("", last.err);
        return names_in(to).size();
    }
    static std::set<std::string> names_in(const std::string &path)
    {
        std::set<std::string> names;
        DIR *d = opendir(path.c_str());
        for (const dirent *e; d && (e = readdir(d));) {
            if (e->d_name[0] != '.')
                names.insert(e->d_name);
        }
        if (d)
            closedir(d);
        return names;
    }
    file single() { return read_file(to + "/model.safetensors"); }
    void expect_tensor(const file &f, const std::string &name, const std::vector<size_t> &dims, zoff_dtype dtype,
                       const std::vector<float> &values)
    {
        ASSERT_EQ(1u, f.tensors.count(name)) << name;
        const tensor &t = f.tensors.at(name);
        EXPECT_EQ(dims, t.dims) << name;
        EXPECT_EQ(dtype, t.dtype) << name;
        EXPECT_TRUE(rounded(values, dtype) == t.bytes) << name;
    }
    json_t *load_json(const std::string &path)
    {
        json_error_t error;
        json_t *json = json_load_file(path.c_str(), 0, &error);
        EXPECT_NE(nullptr, json) << path << ": " << error.text;
        return json;
    }
    zoff_test::scratch_folder folder;
    const std::string checkpoints = folder.file("checkpoints");
    std::vector<param> params;
    std::string to;
    unsigned exports = 0;
    verb_result last;
};

std::vector<float> part(const std::vector<float> &values, size_t first, size_t count)
{
    return std::vector<float>(values.begin() + (long)first, values.begin() + (long)(first + count));
}

TEST_F(export_verb, rounds_each_parameter_to_its_own_type)
{
    save({{"wte", {33, 7}, ZOFF_BF16},
          {"ln.bias", {5}, ZOFF_F32},
          {"half", {3, 1, 11}, ZOFF_F16},
          {"none", {0, 4}, ZOFF_BF16},
          {"one", {1}, ZOFF_F16, MASTER}});
    ASSERT_EQ(1u, exported());
    EXPECT_HAS(last.out, to + ": 5 tensors and 0 tied parameters, 550 B in 1 file\n");
    const file f = single();
    for (const param &p : params)
        expect_tensor(f, p.name, p.dims, p.dtype, p.values);
    EXPECT_EQ(params.size(), f.tensors.size());
    EXPECT_EQ((std::map<std::string, std::string>{{"format", "pt"}}), f.metadata);
}

TEST_F(export_verb, has_the_bits_that_an_engine_pushes)
{
    const std::vector<float> masters = numbers(1000, 9);
    std::string bits[3] = {std::string(2000, 0), std::string(2000, 0), std::string(4000, 0)};
    const zoff_dtype DTYPES[] = {ZOFF_BF16, ZOFF_F16, ZOFF_F32};
    zoff_engine *e = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &e));
    const zoff_test::engine closes(e);
    std::vector<param> all;
    for (zoff_param i = 0; i < 3; i++) {
        zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
        desc.value = bits[i].data();
        desc.count = 1000;
        desc.dtype = DTYPES[i];
        ASSERT_ZOFF_OK(zoff_engine_add_param(e, &desc, nullptr));
        all.push_back({"p" + std::to_string(i), {1000}, DTYPES[i], MASTER, 1, "", "", masters});
    }
    ASSERT_ZOFF_OK(zoff_engine_seal(e));
    for (zoff_param i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(zoff_state_write(e, i, ZOFF_STATE_MASTER, 0, 1000, masters.data()));
    ASSERT_ZOFF_OK(zoff_params_push(e));
    save(all);
    ASSERT_EQ(1u, exported());
    const file f = single();
    for (size_t i = 0; i < 3; i++)
        EXPECT_TRUE(bits[i] == f.tensors.at(params[i].name).bytes) << i;
}

TEST_F(export_verb, rounds_all_to_one_type)
{
    save({{"a", {64, 33}, ZOFF_BF16}, {"b", {100}, ZOFF_F32}, {"c", {7}, ZOFF_F16}});
    for (const auto &[name, dtype] : {std::pair{"fp32", ZOFF_F32}, {"bf16", ZOFF_BF16}, {"fp16", ZOFF_F16}}) {
        ASSERT_EQ(1u, exported({"--dtype", name}));
        const file f = single();
        for (const param &p : params)
            expect_tensor(f, p.name, p.dims, dtype, p.values);
    }
    ASSERT_EQ(1u, exported({"--dtype", "keep"}));
    expect_tensor(single(), "b", {100}, ZOFF_F32, params[1].values);
}

TEST_F(export_verb, tensors_longer_than_a_block_are_whole)
{
    save({{"long", {(3 << 20) + 17}, ZOFF_BF16}, {"next", {5}, ZOFF_BF16}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    for (const param &p : params)
        expect_tensor(f, p.name, p.dims, p.dtype, p.values);
}

TEST_F(export_verb, frozen_parameters_are_there)
{
    save({{"a", {4}, ZOFF_BF16}, {"base", {3, 5}, ZOFF_F16, FROZEN}, {"base32", {6}, ZOFF_F32, FROZEN}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    for (const param &p : params)
        expect_tensor(f, p.name, p.dims, p.dtype, p.values);
    EXPECT_EQ("[{\"name\":\"base\",\"frozen\":true},{\"name\":\"base32\",\"frozen\":true}]", f.metadata.at("zoff.params"));
}

TEST_F(export_verb, frozen_parameters_that_were_left_out_are_counted)
{
    save({{"a", {4}}, {"base", {3}, ZOFF_F16, 0, 2, "base.{}"}, {"other", {3}, ZOFF_F16, 0}});
    ASSERT_EQ(1u, exported());
    EXPECT_HAS(last.out, "1 tensor and 0 tied parameters, 8 B in 1 file; without 2 frozen parameters, which the checkpoint "
                         "leaves out\n");
    EXPECT_EQ((std::map<std::string, std::string>{{"format", "pt"}}), single().metadata);
}

TEST_F(export_verb, parameters_without_weights_are_refused)
{
    save({{"a", {4}, ZOFF_BF16, M}});
    last = run_export({checkpoints, "-o", folder.file("x")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, "parameter \"a\": the checkpoint has neither masters nor weights of it");
}

TEST_F(export_verb, slices_are_tensors_by_the_pattern)
{
    save({{"h.w", {3, 5}, ZOFF_BF16, MASTER, 12, "layers.{}.w"},
          {"stack", {7}, ZOFF_F16, MASTER, 3},
          {"x", {2}, ZOFF_BF16, MASTER, 1, "x.{}"}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    EXPECT_EQ(14u, f.tensors.size());
    for (size_t i = 0; i < 12; i++)
        expect_tensor(f, "layers." + std::to_string(i) + ".w", {3, 5}, ZOFF_BF16, part(params[0].values, 15 * i, 15));
    expect_tensor(f, "stack", {3, 7}, ZOFF_F16, params[1].values);
    expect_tensor(f, "x.0", {2}, ZOFF_BF16, params[2].values);
}

TEST_F(export_verb, fp32_tensors_come_first_and_are_aligned)
{
    save({{"a", {3}, ZOFF_BF16}, {"b", {2}, ZOFF_F32}, {"c", {5}, ZOFF_F16}, {"d", {1}, ZOFF_F32}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    for (const auto &[name, t] : f.tensors)
        EXPECT_EQ(0u, t.begin % (t.dtype == ZOFF_F32 ? 4 : 2)) << name;
    EXPECT_LT(f.tensors.at("d").begin, f.tensors.at("a").begin);
    for (const param &p : params)
        expect_tensor(f, p.name, p.dims, p.dtype, p.values);
}

TEST_F(export_verb, large_models_are_several_files_with_an_index)
{
    save({{"a", {100}},
          {"b", {100}},
          {"c", {300}},
          {"d", {50}},
          {"e", {50}},
          {"lm_head", {100}, ZOFF_BF16, MASTER, 1, "", "a"}});
    ASSERT_EQ(4u, exported({"--max-shard-size", "400B"}));
    const std::vector<std::vector<std::string>> files = {{"a", "b"}, {"c"}, {"d", "e"}};
    json_t *index = load_json(to + "/model.safetensors.index.json");
    json_t *map = json_object_get(index, "weight_map"), *metadata = json_object_get(index, "metadata");
    EXPECT_EQ(5u, json_object_size(map)) << "loaders look for each name of the map in its file";
    EXPECT_EQ(1200, json_integer_value(json_object_get(metadata, "total_size")));
    EXPECT_STREQ("a", json_string_value(json_object_get(json_object_get(metadata, "aliases"), "lm_head")));
    for (size_t i = 0; i < files.size(); i++) {
        const std::string name = "model-0000" + std::to_string(i + 1) + "-of-00003.safetensors";
        const file f = read_file(to + "/" + name);
        EXPECT_EQ(files[i].size(), f.tensors.size());
        EXPECT_EQ("pt", f.metadata.at("format"));
        EXPECT_EQ(i == 0 ? 1u : 0u, f.metadata.count("lm_head"));
        for (const std::string &tensor : files[i]) {
            EXPECT_STREQ(name.c_str(), json_string_value(json_object_get(map, tensor.c_str())));
            const param &p = params[(size_t)(tensor[0] - 'a')];
            expect_tensor(f, p.name, p.dims, p.dtype, p.values);
        }
    }
    json_decref(index);
    for (const char *size : {"1200", "1.2KB", "2kb", "1KiB", "5GB"})
        EXPECT_EQ(strcmp(size, "1KiB") == 0 ? 3u : 1u, exported({"--max-shard-size", size})) << size;
}

TEST_F(export_verb, tied_parameters_are_stored_once_and_named)
{
    save({{"lm_head.weight", {4, 2}, ZOFF_BF16, MASTER, 1, "", "wte.weight"},
          {"wte.weight", {4, 2}},
          {"h", {2}, ZOFF_BF16, MASTER, 2, "h.{}"},
          {"g", {2}, ZOFF_BF16, MASTER, 2, "g.{}", "h"},
          {"whole", {2}, ZOFF_BF16, MASTER, 2, "", "h"},
          {"format", {4, 2}, ZOFF_BF16, MASTER, 1, "", "wte.weight"}});
    ASSERT_EQ(1u, exported());
    EXPECT_HAS(last.out, "3 tensors and 4 tied parameters, 24 B in 1 file");
    const file f = single();
    EXPECT_EQ(3u, f.tensors.size());
    EXPECT_EQ("wte.weight", f.metadata.at("lm_head.weight"));
    EXPECT_EQ("h.0", f.metadata.at("g.0"));
    EXPECT_EQ("h.1", f.metadata.at("g.1"));
    EXPECT_EQ("pt", f.metadata.at("format"));
    EXPECT_HAS(f.metadata.at("zoff.params"), "{\"name\":\"whole\",\"tied_to\":\"h\",\"slices\":2,\"dims\":[2]}");
    EXPECT_HAS(f.metadata.at("zoff.params"), "{\"name\":\"format\",\"tied_to\":\"wte.weight\",\"dims\":[4,2]}");
}

TEST_F(export_verb, names_that_are_not_utf8_are_encoded)
{
    save({{"\xffw%", {1}}, {"caf\xc3\xa9%41\n", {2}}, {"\xed\xa0\x80{}", {3}, ZOFF_BF16, MASTER, 2, "s\x80{}"}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    std::set<std::string> names;
    for (const auto &[name, t] : f.tensors)
        names.insert(name);
    EXPECT_EQ((std::set<std::string>{"%FFw%25", "caf\xc3\xa9%41\n", "s%800", "s%801"}), names);
    EXPECT_EQ("[{\"name\":\"%FFw%25\"},{\"name\":\"%ED%A0%80{}\",\"slice_name\":\"s%80{}\",\"slices\":2}]",
              f.metadata.at("zoff.params"));
}

TEST_F(export_verb, names_stay_different_when_they_are_encoded)
{
    save({{"\xff", {1}}, {"%FF", {2}}, {"%25FF", {3}}, {"__metadata__", {4}}, {"%5F_metadata__", {5}}, {"a_", {6}}});
    ASSERT_EQ(1u, exported());
    const file f = single();
    size_t count = 1;
    for (const char *name : {"%FF", "%25FF", "%2525FF", "%5F_metadata__", "%255F_metadata__", "a_"})
        EXPECT_EQ((std::vector<size_t>{count++}), f.tensors.at(name).dims) << name;
}

TEST_F(export_verb, slices_that_would_have_one_name_are_refused)
{
    save({{"w.1", {1}}, {"w", {2}, ZOFF_BF16, MASTER, 2, "w.{}"}});
    last = run_export({checkpoints, "-o", folder.file("x")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, "parameter \"w\": its tensor would be named \"w.1\", as another one");
    EXPECT_NE(0, access(folder.file("x").c_str(), F_OK));
}

TEST_F(export_verb, one_of_several_engines_is_chosen_by_its_label)
{
    params = {{"a", {3}}};
    write_checkpoint(checkpoints, params, 7, "tp0");
    to = folder.file("x");
    last = run_export({checkpoints, "-o", to, "--label", "tp0"});
    ASSERT_EQ(EXIT_DONE, last.exit) << last.err;
    expect_tensor(single(), "a", {3}, ZOFF_BF16, params[0].values);
    last = run_export({checkpoints, "-o", folder.file("y"), "--label", "tp1"});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, "tp1");
}

TEST_F(export_verb, a_folder_with_an_export_is_refused)
{
    save({{"a", {3}}});
    ASSERT_EQ(1u, exported());
    const std::string before = bytes_of(to + "/model.safetensors");
    last = run_export({checkpoints, "-o", to});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, to + ": has model.safetensors already; remove the older export, or name another folder");
    EXPECT_EQ(before, bytes_of(to + "/model.safetensors"));
    for (const char *name : {"model.safetensors.index.json", "model-00001-of-00002.safetensors"}) {
        const std::string other = folder.file(std::string("of-") + name);
        ASSERT_EQ(0, mkdir(other.c_str(), 0700));
        write_bytes(other + "/" + name, "");
        EXPECT_EQ(EXIT_FAILED, run_export({checkpoints, "-o", other}).exit);
        EXPECT_EQ(1u, names_in(other).size());
    }
    const std::string other = folder.file("with-others");
    ASSERT_EQ(0, mkdir(other.c_str(), 0700));
    write_bytes(other + "/config.json", "{}");
    EXPECT_EQ(EXIT_DONE, run_export({checkpoints, "-o", other}).exit);
}

TEST_F(export_verb, files_that_a_killed_export_has_left_are_removed)
{
    save({{"a", {3}}});
    to = folder.file("killed");
    ASSERT_EQ(0, mkdir(to.c_str(), 0700));
    const std::string parts[] = {"model-00002-of-00003.safetensors.zoff-part", "model.safetensors.index.json.zoff-part"};
    for (const std::string &name : parts)
        write_bytes(to + "/" + name, "half");
    for (const char *name : {"model.safetensors.part", "config.json.zoff-part"})
        write_bytes(to + "/" + name, "of another program");
    last = run_export({checkpoints, "-o", to});
    EXPECT_EQ(EXIT_DONE, last.exit) << last.err;
    for (const std::string &name : parts)
        EXPECT_HAS(last.err, "note: " + to + "/" + name + " is removed: an export that was killed has left it\n");
    EXPECT_EQ((std::set<std::string>{"model.safetensors", "model.safetensors.part", "config.json.zoff-part"}), names_in(to));

    // An export that is under way has its file locked.
    to = folder.file("busy");
    ASSERT_EQ(0, mkdir(to.c_str(), 0700));
    out_file busy = {};
    ASSERT_EQ(EXIT_DONE, out_file_open(&busy, (to + "/model-00001-of-00002.safetensors").c_str()));
    last = run_export({checkpoints, "-o", to});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, to + "/model-00001-of-00002.safetensors.zoff-part: another command writes this file");
    EXPECT_EQ(EXIT_DONE, out_file_commit(&busy));
    out_file_close(&busy);
    EXPECT_EQ(1u, names_in(to).size());
}

namespace
{
// A model with slices, a stack, ties and a frozen parameter.
std::vector<param> model_with_all()
{
    return {{"wte.weight", {4, 2}},
            {"h.w", {2}, ZOFF_F32, MASTER, 12, "h.{}.w"},
            {"h.b", {3}, ZOFF_F16, FROZEN, 2, "h.{}.b"},
            {"stack", {5}, ZOFF_BF16, MASTER, 2},
            {"lm_head.weight", {4, 2}, ZOFF_BF16, MASTER, 1, "", "wte.weight"},
            {"out.weight", {4, 2}, ZOFF_BF16, MASTER, 1, "", "wte.weight"},
            {"g.w", {2}, ZOFF_F32, MASTER, 12, "g.{}.w", "h.w"}};
}
} // namespace

// Names of tensors, their parameters, and their places in these.
TEST_F(export_verb, tensors_are_chosen_and_named)
{
    using names = std::map<std::string, std::pair<size_t, size_t>>; // by name: parameter and slice
    const auto expect = [&](const std::vector<std::string> &options, const names &wanted,
                            const std::map<std::string, std::string> &ties, const std::string &records) {
        SCOPED_TRACE(options.back());
        ASSERT_EQ(1u, exported(options));
        const file f = single();
        EXPECT_EQ(wanted.size(), f.tensors.size());
        for (const auto &[name, place] : wanted) {
            const param &p = params[place.first];
            const bool is_stack = p.slices > 1 && p.slice_name.empty();
            const size_t count = p.count() * (is_stack ? p.slices : 1);
            std::vector<size_t> dims = p.dims;
            if (is_stack)
                dims.insert(dims.begin(), p.slices);
            expect_tensor(f, name, dims, p.dtype, part(params[place.first].values, place.second * p.count(), count));
        }
        std::map<std::string, std::string> metadata = ties;
        metadata["format"] = "pt";
        if (!records.empty())
            metadata["zoff.params"] = records;
        EXPECT_EQ(metadata, f.metadata);
    };
    save(model_with_all());
    const std::string h_b = "{\"name\":\"h.b\",\"slice_name\":\"h.{}.b\",\"slices\":2,\"frozen\":true}";
    const names slices_b = {{"h.0.b", {2, 0}}, {"h.1.b", {2, 1}}};
    expect({"--only", "*.b"}, slices_b, {}, "[" + h_b + "]");
    expect({"--only", "wte*", "--only", "lm*"}, {{"wte.weight", {0, 0}}}, {{"lm_head.weight", "wte.weight"}},
           "[{\"name\":\"lm_head.weight\",\"tied_to\":\"wte.weight\",\"dims\":[4,2]}]");
    // Without its owner a tied parameter has the data, and others are tied to it.
    params[4].values = params[0].values;
    expect({"--only", "*t.weight", "--only", "lm_*"}, {{"lm_head.weight", {4, 0}}}, {{"out.weight", "lm_head.weight"}},
           "[{\"name\":\"out.weight\",\"tied_to\":\"lm_head.weight\",\"dims\":[4,2]}]");
    // Slices alone are parameters of their own, and stay frozen.
    expect({"--only", "h.1.*"}, {{"h.1.w", {1, 1}}, {"h.1.b", {2, 1}}}, {}, "[{\"name\":\"h.1.b\",\"frozen\":true}]");
    params[6].values = params[1].values;
    expect({"--only", "h.11.w", "--only", "g.1*.w"},
           {{"h.11.w", {1, 11}}, {"g.1.w", {6, 1}}, {"g.10.w", {6, 10}}, {"g.11.w", {6, 11}}}, {}, "");
    // A new name for all slices is a pattern.
    expect({"--only", "*.b", "--rename", "h.*.b=model.layers.*.bias"},
           {{"model.layers.0.bias", {2, 0}}, {"model.layers.1.bias", {2, 1}}}, {},
           "[{\"name\":\"h.b\",\"slice_name\":\"model.layers.{}.bias\",\"slices\":2,\"frozen\":true}]");
    expect({"--only", "*.b", "--rename", "h.1.b=last"}, {{"h.0.b", {2, 0}}, {"last", {2, 1}}}, {},
           "[{\"name\":\"h.0.b\",\"frozen\":true},{\"name\":\"last\",\"frozen\":true}]");
    // The first that matches counts, and names may be exchanged.
    expect({"--only", "*.b", "--rename", "h.0.b=h.1.b", "--rename", "h.*.b=h.0.b"}, {{"h.1.b", {2, 0}}, {"h.0.b", {2, 1}}}, {},
           "[{\"name\":\"h.1.b\",\"frozen\":true},{\"name\":\"h.0.b\",\"frozen\":true}]");
    expect({"--only", "stack", "--rename", "*ack=*-**.x"}, {{"st-stst.x", {3, 0}}}, {},
           "[{\"name\":\"st-stst.x\",\"slices\":2}]");
    expect({"--only", "wte*", "--only", "lm*", "--rename", "*.weight=m.*"}, {{"m.wte", {0, 0}}}, {{"m.lm_head", "m.wte"}},
           "[{\"name\":\"m.lm_head\",\"tied_to\":\"m.wte\",\"dims\":[4,2]}]");
}

TEST_F(export_verb, renamed_tensors_in_several_files_make_a_checkpoint)
{
    save(model_with_all());
    ASSERT_LT(3u, exported({"--max-shard-size", "40B", "--only", "*.w*", "--only", "*.b", "--rename", "*=model.*"}));
    json_t *index = load_json(to + "/model.safetensors.index.json");
    EXPECT_EQ(15u, json_object_size(json_object_get(index, "weight_map")));
    EXPECT_NE(nullptr, json_object_get(json_object_get(index, "weight_map"), "model.h.11.w"));
    EXPECT_STREQ("model.wte.weight", json_string_value(json_object_get(
                                         json_object_get(json_object_get(index, "metadata"), "aliases"), "model.out.weight")));
    json_decref(index);
    const verb_result imported = run_import({to, "-o", folder.file("imported")});
    ASSERT_EQ(EXIT_DONE, imported.exit) << imported.err;
    std::map<std::string, param> again;
    for (const param &p : read_checkpoint(folder.file("imported")))
        again[p.name] = p;
    EXPECT_EQ(6u, again.size());
    EXPECT_EQ("model.h.{}.w", again["h.w"].slice_name);
    EXPECT_EQ("model.h.{}.b", again["h.b"].slice_name);
    EXPECT_EQ(FROZEN, again["h.b"].states);
    EXPECT_EQ("model.wte.weight", again["model.lm_head.weight"].tied_to);
    EXPECT_EQ("model.g.{}.w", again["g.w"].slice_name);
    EXPECT_EQ("h.w", again["g.w"].tied_to);
    EXPECT_TRUE(rounded(params[1].values, ZOFF_F32) == rounded(again["h.w"].values, ZOFF_F32));
}

TEST_F(export_verb, patterns_that_do_nothing_and_names_that_clash_are_refused)
{
    save(model_with_all());
    const std::vector<std::pair<std::vector<std::string>, std::string>> WRONG = {
        {{"--only", "w*", "--only", "x*"},
         "--only \"x*\" matches no tensor of the checkpoint, whose first one is \"wte.weight\""},
        {{"--only", "h.w"}, "--only \"h.w\" matches no tensor"},
        {{"--rename", "x.*=y.*"}, "--rename \"x.*=y.*\" matches no tensor; the first one of the checkpoint is \"wte.weight\""},
        {{"--only", "h*", "--rename", "wte*=y"}, "--rename \"wte*=y\" matches no tensor that --only chooses; the first"},
        {{"--rename", "h.{}.b=y.{}", "--rename", "*.b=*.c"}, "--rename \"h.{}.b=y.{}\" matches no tensor"},
        {{"--rename", "*.b=*.c", "--rename", "h.1.b=y"}, "--rename \"h.1.b=y\": an earlier --rename has all of its tensors"},
        {{"--rename", "h.*.b=b"}, "tensors \"h.0.b\" and \"h.1.b\" would both be named \"b\"; change --rename"},
        {{"--rename", "stack=wte.weight"}, "tensors \"wte.weight\" and \"stack\" would both be named \"wte.weight\""},
        {{"--rename", "stack=out.weight"}, "tensors \"stack\" and \"out.weight\" would both be named \"out.weight\""},
        {{"--rename", "stack=__metadata__"}, "tensor \"stack\" cannot be named \"__metadata__\""},
        {{"--rename", "stack=a\xff"}, "tensor \"stack\" cannot be named \"a\\xff\": a name is UTF-8"}};
    for (const auto &[options, words] : WRONG) {
        std::vector<std::string> arguments = {checkpoints, "-o", folder.file("x")};
        arguments.insert(arguments.end(), options.begin(), options.end());
        last = run_export(arguments);
        EXPECT_EQ(EXIT_FAILED, last.exit) << words;
        EXPECT_HAS(last.err, words);
        EXPECT_NE(0, access(folder.file("x").c_str(), F_OK)) << "nothing is written";
    }
}

TEST_F(export_verb, a_damaged_checkpoint_leaves_no_files)
{
    save({{"a", {300000}}, {"b", {300000}}});
    const std::string step = checkpoints + "/step-0000000007";
    std::string states;
    for (const std::string &name : names_in(step))
        states = name.find(".states") == std::string::npos ? states : step + "/" + name;
    std::string bytes = bytes_of(states);
    const float last_value = params[1].values.back();
    const size_t at = bytes.rfind(std::string((const char *)&last_value, 4));
    ASSERT_NE(std::string::npos, at);
    bytes[at] = (char)(bytes[at] ^ 1);
    write_bytes(states, bytes);
    last = run_export({checkpoints, "-o", folder.file("x"), "--max-shard-size", "600KB"});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, "is damaged in the bytes from ");
    EXPECT_NE(0, access(folder.file("x").c_str(), F_OK)) << "the first file was complete, and is removed, too";
}

TEST_F(export_verb, a_new_folder_is_flushed_into_the_one_around_it)
{
    save({{"a", {2}}});
    for (const char *slash : {"", "/"}) {
        to = folder.file("new" + std::to_string(++exports));
        flushed.clear();
        last = run_export({checkpoints, "-o", to + slash});
        ASSERT_EQ(EXIT_DONE, last.exit) << last.err;
        char *real = realpath(folder.path.c_str(), nullptr);
        EXPECT_EQ(1, std::count(flushed.begin(), flushed.end(), real)) << slash;
        free(real);
    }
}

TEST_F(export_verb, a_flush_that_fails_at_the_end_leaves_no_files)
{
    save({{"a", {2}}, {"b", {2}}});
    to = folder.file("export");
    char *real = realpath(folder.path.c_str(), nullptr);
    bad_flush = std::string(real) + "/export";
    free(real);
    bad_flush_after = to + "/model.safetensors.index.json";
    last = run_export({checkpoints, "-o", to, "--max-shard-size", "4B"});
    bad_flush.clear();
    EXPECT_EQ(EXIT_FAILED, last.exit) << last.out;
    EXPECT_HAS(last.err, "cannot make its folder durable: Input/output error");
    EXPECT_NE(0, access(to.c_str(), F_OK));
}

TEST_F(export_verb, errors_name_what_to_change)
{
    last = run_export({folder.file("none"), "-o", folder.file("x")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, folder.file("none"));
    save({{"a", {3}}});
    last = run_export({checkpoints, "-o", folder.file("no/folder")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, folder.file("no/folder") + ": cannot make this folder: No such file");
    write_bytes(folder.file("taken"), "");
    last = run_export({checkpoints, "-o", folder.file("taken")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, folder.file("taken") + ": cannot open this folder: Not a directory");
}

TEST_F(export_verb, wrong_arguments_are_named)
{
    const std::vector<std::pair<std::vector<std::string>, std::string>> WRONG = {
        {{}, "export needs a checkpoint, and -o with the folder to write"},
        {{"a"}, "export needs a checkpoint, and -o with"},
        {{"a", "-o"}, "-o needs a value"},
        {{"a", "b", "-o", "c"}, "export takes one folder, not both \"a\" and \"b\""},
        {{"a", "-o", "c", "--dtype", "fp8"}, "--dtype must be bf16, fp16, fp32 or keep, not \"fp8\""},
        {{"a", "-o", "c", "--only"}, "--only needs a value"},
        {{"a", "-o", "c", "--rename", "x"},
         "--rename needs OLD=NEW, with at most one * in OLD, and * in NEW only if OLD has it, not \"x\""},
        {{"a", "-o", "c", "--rename", "=y"}, "not \"=y\""},
        {{"a", "-o", "c", "--rename", "x="}, "not \"x=\""},
        {{"a", "-o", "c", "--rename", "*x*=*y"}, "not \"*x*=*y\""},
        {{"a", "-o", "c", "--rename", "x=*y"}, "not \"x=*y\""},
        {{"a", "-o", "c", "--size", "1"}, "export: there is no option \"--size\""},
        {{"a", "-o", "c", "--max-shard-size", "5 GB"},
         "--max-shard-size needs a number of bytes such as 5GB, 500MB or 1GiB, not"},
        {{"a", "-o", "c", "--max-shard-size", "GB"}, "not \"GB\""},
        {{"a", "-o", "c", "--max-shard-size", "0"}, "not \"0\""},
        {{"a", "-o", "c", "--max-shard-size", "-1GB"}, "not \"-1GB\""},
        {{"a", "-o", "c", "--max-shard-size", "1e30TB"}, "not \"1e30TB\""},
        {{"a", "-o", "c", "--max-shard-size", "nan"}, "not \"nan\""}};
    for (const auto &[arguments, words] : WRONG) {
        last = run_export(arguments);
        EXPECT_EQ(EXIT_USAGE, last.exit);
        EXPECT_HAS(last.err, words);
    }
}
} // namespace
