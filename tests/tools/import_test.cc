/* SPDX-License-Identifier: Apache-2.0 */
// import_test.cc: `zoff import safetensors` makes checkpoints of exports and of files from elsewhere.
#include "shell.h"
#include "tool_checkpoints.h"

using namespace tool_files;

namespace
{
// Write a safetensors file with tensors of random numbers; returns their values as fp32, by name.
std::map<std::string, std::vector<float>>
write_file(const std::string &path, const std::vector<std::tuple<std::string, zoff_dtype, std::vector<size_t>>> &list,
           const std::map<std::string, std::string> &metadata = {})
{
    std::map<std::string, std::vector<float>> values;
    std::vector<st_tensor> tensors;
    std::string data;
    for (const auto &[name, dtype, dims] : list) {
        size_t count = 1;
        for (size_t dim : dims)
            count *= dim;
        tensors.push_back({name.c_str(), dtype, dims.data(), dims.size(), count, 0});
        const std::string bytes = rounded(numbers(count, (unsigned)(list.size() * 31 + data.size())), dtype);
        values[name] = widened(bytes, dtype);
        data += bytes;
    }
    json_t *texts = json_object();
    for (const auto &[key, value] : metadata)
        json_object_set_new(texts, key.c_str(), json_string(value.c_str()));
    st_writer w;
    EXPECT_EQ(EXIT_DONE, st_writer_open(&w, path.c_str(), tensors.data(), tensors.size(), metadata.empty() ? nullptr : texts));
    EXPECT_EQ(EXIT_DONE, st_writer_append(&w, data.data(), data.size()));
    EXPECT_EQ(EXIT_DONE, st_writer_commit(&w));
    st_writer_close(&w);
    json_decref(texts);
    return values;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class import_verb : public testing::Test
{
  protected:
    // Import to a new folder, and read the checkpoint there.
    std::vector<param> imported(std::vector<std::string> arguments)
    {
        to = folder.file("checkpoints" + std::to_string(++imports));
        arguments.insert(arguments.end(), {"-o", to});
        last = run_import(arguments);
        EXPECT_EQ(EXIT_DONE, last.exit) << last.err;
        EXPECT_EQ("", last.err);
        moments = 0;
        return last.exit == EXIT_DONE ? read_checkpoint(to, &t, &moments) : std::vector<param>();
    }
    std::string refused(std::vector<std::string> arguments)
    {
        to = folder.file("refused");
        arguments.insert(arguments.end(), {"-o", to});
        last = run_import(arguments);
        EXPECT_EQ(EXIT_FAILED, last.exit) << last.out;
        EXPECT_NE(0, access((to + "/latest").c_str(), F_OK));
        return last.err;
    }
    std::string refused_header(const std::string &metadata, const std::string &tensors, const std::string &data)
    {
        write_bytes(path, file_of("{\"__metadata__\":{" + metadata + "}," + tensors + "}", data));
        return refused({path});
    }
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("model.safetensors");
    unsigned imports = 0;
    std::string to;
    verb_result last;
    int64_t t = -1;
    double moments = 0;
};

TEST_F(import_verb, tensors_become_masters)
{
    const auto values =
        write_file(path, {{"b", ZOFF_BF16, {3, 5}}, {"a", ZOFF_F32, {7}}, {"c", ZOFF_F16, {}}, {"d", ZOFF_BF16, {0, 2}}});
    const std::vector<param> params = imported({path});
    ASSERT_EQ(4u, params.size());
    EXPECT_EQ(0, t);
    EXPECT_EQ(0, moments);
    EXPECT_HAS(last.out, to + ": 4 parameters, 0 of them tied, from 60 B of weights, at update 0; the moments are zero\n");
    const char *const NAMES[] = {"b", "a", "c", "d"};
    const zoff_dtype DTYPES[] = {ZOFF_BF16, ZOFF_F32, ZOFF_F16, ZOFF_BF16};
    const std::vector<size_t> DIMS[] = {{3, 5}, {7}, {1}, {0, 2}};
    for (size_t i = 0; i < 4; i++) {
        EXPECT_EQ(NAMES[i], params[i].name) << "the order is that of the file";
        EXPECT_EQ(DTYPES[i], params[i].dtype);
        EXPECT_EQ(DIMS[i], params[i].dims);
        EXPECT_EQ(MASTER | M | V, params[i].states);
        EXPECT_TRUE(same_bits(values.at(NAMES[i]), params[i].values)) << NAMES[i];
    }
}

TEST_F(import_verb, an_export_comes_back_as_it_was)
{
    const std::string original = folder.file("original");
    std::vector<param> params = {{"wte", {33, 7}},
                                 {"h.w", {3, 5}, ZOFF_BF16, MASTER | M | V, 12, "layers.{}.w"},
                                 {"stack", {7, 2}, ZOFF_F16, MASTER | M | V, 3},
                                 {"ln", {5}, ZOFF_F32},
                                 {"\xff%{}", {2}, ZOFF_BF16},
                                 {"base", {4}, ZOFF_F16, FROZEN, 2, "base.{}\x80"},
                                 {"none", {0}},
                                 {"head", {33, 7}, ZOFF_BF16, MASTER | M | V, 1, "", "wte"},
                                 {"h2", {3, 5}, ZOFF_BF16, MASTER | M | V, 12, "tied.{}.w", "h.w"},
                                 {"h3", {15}, ZOFF_BF16, MASTER | M | V, 12, "", "h.w"},
                                 {"base2", {4}, ZOFF_F16, FROZEN, 2, "", "base"}};
    write_checkpoint(original, params);
    const std::vector<param> before = read_checkpoint(original);
    for (const char *size : {"5GB", "200B"}) {
        const std::string to_export = folder.file(std::string("export") + size);
        ASSERT_EQ(EXIT_DONE, run_export({original, "-o", to_export, "--max-shard-size", size}).exit);
        const std::vector<param> after = imported({to_export, "--step", "7"});
        EXPECT_EQ(7, t);
        ASSERT_EQ(before.size(), after.size()) << size;
        std::map<std::string, param> by_name;
        for (const param &p : after)
            by_name[p.name] = p;
        for (const param &want : before) {
            ASSERT_EQ(1u, by_name.count(want.name)) << want.name;
            const param &have = by_name[want.name];
            EXPECT_EQ(want.dims, have.dims) << want.name;
            EXPECT_EQ(want.dtype, have.dtype) << want.name;
            EXPECT_EQ(want.states, have.states) << want.name;
            EXPECT_EQ(want.slices, have.slices) << want.name;
            EXPECT_EQ(want.slice_name, have.slice_name) << want.name;
            EXPECT_EQ(want.tied_to, have.tied_to) << want.name;
            EXPECT_TRUE(same_bits(widened(rounded(want.values, want.dtype), want.dtype), have.values)) << want.name;
        }
    }
}

TEST_F(import_verb, fp32_exports_keep_every_bit_of_the_masters)
{
    std::vector<param> params = {{"a", {1000}}, {"b", {100}, ZOFF_F16}};
    write_checkpoint(folder.file("original"), params);
    ASSERT_EQ(EXIT_DONE, run_export({folder.file("original"), "-o", folder.file("x"), "--dtype", "fp32"}).exit);
    const std::vector<param> after = imported({folder.file("x")});
    ASSERT_EQ(2u, after.size());
    for (size_t i = 0; i < 2; i++) {
        EXPECT_TRUE(same_bits(params[i].values, after[i].values));
        EXPECT_EQ(ZOFF_F32, after[i].dtype);
    }
}

TEST_F(import_verb, names_in_metadata_are_tied_parameters)
{
    const auto values = write_file(path, {{"wte", ZOFF_BF16, {2, 3}}, {"x", ZOFF_F32, {1}}},
                                   {{"format", "pt"}, {"lm_head", "wte"}, {"author", "nobody"}, {"x", "wte"}});
    const std::vector<param> params = imported({path});
    ASSERT_EQ(3u, params.size());
    EXPECT_HAS(last.out, "3 parameters, 1 of them tied");
    EXPECT_EQ("lm_head", params[2].name);
    EXPECT_EQ("wte", params[2].tied_to);
    EXPECT_EQ((std::vector<size_t>{2, 3}), params[2].dims);
    EXPECT_TRUE(same_bits(values.at("wte"), params[2].values));
}

TEST_F(import_verb, options_choose_states_and_step)
{
    write_file(path, {{"a", ZOFF_BF16, {5}}, {"base.b", ZOFF_BF16, {3}}});
    const std::vector<std::pair<std::string, unsigned>> OPTIMIZERS = {
        {"adam", M | V}, {"lion", M}, {"adagrad", V}, {"sgd", M}, {"none", 0}};
    for (const auto &[optimizer, states] : OPTIMIZERS) {
        const std::vector<param> params =
            imported({path, "--optimizer", optimizer, "--step", "12", "--frozen", "base.*", "--frozen", "x"});
        ASSERT_EQ(2u, params.size());
        EXPECT_EQ(12, t);
        EXPECT_EQ(MASTER | states, params[0].states) << optimizer;
        EXPECT_EQ(+FROZEN, params[1].states);
        EXPECT_HAS(last.out, states ? "at update 12; the moments are zero" : "at update 12; without moments");
    }
}

TEST_F(import_verb, a_checkpoint_may_have_a_name)
{
    write_file(path, {{"a", ZOFF_BF16, {5}}});
    EXPECT_EQ(1u, imported({path, "--name", "start"}).size());
    EXPECT_EQ(1u, read_checkpoint(to + "/start").size());
    EXPECT_NE(0, access((to + "/step-0000000000").c_str(), F_OK));
    EXPECT_HAS(refused({path, "--name", "a/b"}), "a/b");
}

TEST_F(import_verb, dtype_is_that_of_the_weights_alone)
{
    const auto values = write_file(path, {{"a", ZOFF_F32, {50}}, {"base", ZOFF_F32, {50}}});
    const std::vector<param> params = imported({path, "--dtype", "fp16", "--frozen", "base"});
    ASSERT_EQ(2u, params.size());
    EXPECT_EQ(ZOFF_F16, params[0].dtype);
    EXPECT_TRUE(same_bits(values.at("a"), params[0].values)) << "masters keep every bit";
    EXPECT_EQ(ZOFF_F16, params[1].dtype);
    EXPECT_TRUE(same_bits(widened(rounded(values.at("base"), ZOFF_F16), ZOFF_F16), params[1].values));
}

TEST_F(import_verb, zero_moments_take_no_space)
{
    write_file(path, {{"a", ZOFF_BF16, {8 << 20}}});
    imported({path});
    struct stat about;
    uint64_t disk = 0;
    zoff_checkpoint_reader *r = nullptr;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(to.c_str(), nullptr, &r));
    const checkpoint_reader closes(r);
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
    const zoff_test::shell_result list = zoff_test::shell("ls " + std::string(info.folder) + "/*.states");
    ASSERT_EQ(0, stat(list.output.substr(0, list.output.find('\n')).c_str(), &about)) << list.output;
    disk = (uint64_t)about.st_blocks * 512;
    EXPECT_LT(96ull << 20, info.bytes) << "masters and two moments";
    EXPECT_GT(40ull << 20, disk) << "masters alone";
}

TEST_F(import_verb, an_index_gives_order_and_files)
{
    auto values = write_file(folder.file("one.safetensors"), {{"a", ZOFF_BF16, {2}}, {"b", ZOFF_F32, {3}}});
    values.merge(write_file(folder.file("two.safetensors"), {{"c", ZOFF_F16, {4}}}));
    const std::string index = folder.file("model.safetensors.index.json");
    write_bytes(index,
                R"({"metadata": {}, "weight_map": {"b": "one.safetensors", "c": "two.safetensors", "a": "one.safetensors"}})");
    std::vector<param> params = imported({folder.path});
    ASSERT_EQ(3u, params.size());
    std::string order;
    for (const param &p : params) {
        order += p.name;
        EXPECT_TRUE(same_bits(values.at(p.name), p.values)) << p.name;
    }
    EXPECT_EQ("bca", order);
    ASSERT_EQ(0, unlink(index.c_str()));
    params = imported({folder.path});
    ASSERT_EQ(3u, params.size());
    EXPECT_EQ("abc", params[0].name + params[1].name + params[2].name);
    params = imported({folder.file("two.safetensors"), folder.file("one.safetensors")});
    ASSERT_EQ(3u, params.size());
    EXPECT_EQ("cab", params[0].name + params[1].name + params[2].name);
}

// A part of a model is no model. The names of the files tell how many there are.
TEST_F(import_verb, some_of_several_files_without_an_index_are_refused)
{
    std::vector<std::string> shards;
    for (int i = 1; i <= 3; i++) {
        shards.push_back(folder.file("model-0000" + std::to_string(i) + "-of-00003.safetensors"));
        write_file(shards.back(), {{std::string(1, (char)('a' + i)), ZOFF_F32, {3}}});
    }
    EXPECT_NE(std::string::npos,
              refused({shards[0]}).find("1 of 3 files of this model are given; name all of them, or their folder"));
    EXPECT_NE(std::string::npos, refused({shards[0], shards[2]}).find("2 of 3 files"));
    EXPECT_EQ(3u, imported({folder.path}).size());
    EXPECT_EQ(3u, imported(shards).size());
    ASSERT_EQ(0, unlink(shards[1].c_str()));
    EXPECT_NE(std::string::npos, refused({folder.path}).find("2 of 3 files"));
    const std::string other = folder.file("other-00002-of-00003.safetensors");
    write_file(other, {{"z", ZOFF_F32, {3}}});
    EXPECT_NE(std::string::npos, refused({folder.path}).find("2 of 3 files")) << "that of another model does not count";
    const std::string alone = folder.file("x-00001-of-00001.safetensors");
    write_file(alone, {{"z", ZOFF_F32, {3}}});
    EXPECT_EQ(1u, imported({alone}).size());
}

TEST_F(import_verb, wrong_indexes_are_refused)
{
    write_file(folder.file("one.safetensors"), {{"a", ZOFF_BF16, {2}}, {"b", ZOFF_F32, {3}}});
    write_file(folder.file("two.safetensors"), {{"c", ZOFF_F16, {4}}});
    ASSERT_EQ(0, mkdir(folder.file("empty").c_str(), 0700));
    const std::string index = folder.file("model.safetensors.index.json");
    const auto refuses = [&](const std::string &map, const std::string &words) {
        write_bytes(index, map);
        EXPECT_HAS(refused({folder.path}), words);
    };
    const std::string here = index + ": ";
    refuses("{", here + "line 1: ");
    refuses("{\"metadata\": {}}", here + "has no \"weight_map\"");
    refuses(R"({"weight_map": {"a": 1}})", here + "tensor \"a\": its file is not a name in this folder");
    refuses(R"({"weight_map": {"a": "../one.safetensors"}})", here + "tensor \"a\": its file is not a name in this folder");
    refuses(R"({"weight_map": {"a": ""}})", "its file is not a name in this folder");
    refuses(R"({"weight_map": {"a": ".."}})", ": not a file");
    refuses(R"({"weight_map": {"a": "none.safetensors"}})", "none.safetensors: cannot open: No such file");
    refuses(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "one.safetensors"}})",
            here + "tensor \"c\": is not in one.safetensors");
    refuses(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})",
            "one.safetensors: tensor \"b\": is not in model.safetensors.index.json; name it in --skip");
    refuses(R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})",
            here + "tensor \"b\": is not in two.safetensors");
    refuses(R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})", "duplicate object key");
    write_bytes(index, R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})");
    EXPECT_EQ(2u, imported({folder.path, "--skip", "b"}).size());
    EXPECT_HAS(refused({folder.path, folder.file("two.safetensors")}),
               folder.path + ": a folder with an index is imported alone");
    EXPECT_HAS(refused({folder.file("empty")}), folder.file("empty") + ": has no file that is named *.safetensors");
    EXPECT_HAS(refused({folder.file("one.safetensors"), folder.file("one.safetensors")}),
               "one.safetensors: tensor \"a\": is in ");
    ASSERT_EQ(0, unlink(index.c_str()));
    ASSERT_EQ(0, mkfifo(index.c_str(), 0600));
    EXPECT_HAS(refused({folder.path}), here + "not a file");
}

TEST_F(import_verb, tensors_are_stacked_by_a_pattern)
{
    const auto values = write_file(
        path, {{"h.1.w", ZOFF_BF16, {2, 3}}, {"x", ZOFF_F32, {1}}, {"h.0.w", ZOFF_BF16, {2, 3}}, {"h.2.b", ZOFF_BF16, {3}}});
    const std::vector<param> params = imported({path, "--stack", "h.w=h.{}.w"});
    ASSERT_EQ(3u, params.size());
    EXPECT_EQ("x", params[0].name);
    EXPECT_EQ("h.w", params[1].name) << "it stands where its first slice is";
    EXPECT_EQ("h.{}.w", params[1].slice_name);
    EXPECT_EQ(2u, params[1].slices);
    EXPECT_EQ((std::vector<size_t>{2, 3}), params[1].dims);
    std::vector<float> both = values.at("h.0.w");
    both.insert(both.end(), values.at("h.1.w").begin(), values.at("h.1.w").end());
    EXPECT_TRUE(same_bits(both, params[1].values));
}

TEST_F(import_verb, slices_that_differ_are_refused)
{
    write_file(path, {{"h.0", ZOFF_BF16, {2, 3}}, {"h.1", ZOFF_BF16, {3, 2}}, {"g.0", ZOFF_BF16, {2}}, {"g.1", ZOFF_F32, {2}}},
               {{"tied", "g.1"}});
    EXPECT_HAS(refused({path, "--stack", "h=h.{}"}), path + ": tensor \"h.1\": has another type, shape or states than \"h.0\"");
    EXPECT_HAS(refused({path, "--stack", "h=g.{}"}), "tensor \"g.1\": has another type, shape or states than \"g.0\"");
    EXPECT_HAS(refused({path, "--stack", "h=x.{}"}), "--stack h=x.{}: there is no tensor of this pattern with 0 for {}");
    EXPECT_HAS(refused({path, "--stack", "a=h.{}", "--stack", "b=h.{}"}), "tensor \"h.1\": has another type");
    write_file(path, {{"h.0", ZOFF_BF16, {2}}}, {{"tied", "h.0"}});
    EXPECT_HAS(refused({path, "--stack", "a=h.{}", "--stack", "b=h.{}"}),
               "--stack: parameter \"b\": its tensor \"h.0\" belongs to parameter \"a\", too");
    EXPECT_HAS(refused({path, "--stack", "a=h.{}"}), "tensor \"tied\" is tied to \"h.0\", which is a slice of a parameter");
}

TEST_F(import_verb, two_parameters_of_one_name_are_refused)
{
    write_file(path, {{"h", ZOFF_BF16, {2}}, {"h.0", ZOFF_BF16, {2}}});
    EXPECT_HAS(refused({path, "--stack", "h=h.{}"}), "two parameters would be named \"h\"; choose another name in --stack");
}

TEST_F(import_verb, tensors_that_are_no_weights_can_be_skipped)
{
    write_bytes(path, file_of("{" + entry("a.ids", "I64", "[1]", 0, 8) + "," + entry("b", "F32", "[1]", 8, 12) + "}",
                              std::string(12, 1)));
    EXPECT_HAS(refused({path}), path + ": tensor \"a.ids\": type I64 cannot be weights");
    const std::vector<param> params = imported({path, "--skip", "*.ids"});
    ASSERT_EQ(1u, params.size());
    EXPECT_EQ("b", params[0].name);
}

TEST_F(import_verb, records_that_are_wrong_are_refused)
{
    const std::string two = entry("a", "F32", "[2]", 0, 8), data = "12345678", start = path + ": ";
    const auto record = [&](const std::string &text) {
        std::string escaped;
        for (char c : text)
            escaped += c == '"' ? "\\\"" : std::string(1, c);
        return refused_header("\"zoff.params\":\"" + escaped + "\"", two, data);
    };
    EXPECT_HAS(record("{"), start + "\"zoff.params\" of its metadata is not a list of records");
    EXPECT_HAS(record("{}"), start + "\"zoff.params\" of its metadata is not a list of records");
    EXPECT_HAS(record("[1]"), start + "a record in \"zoff.params\" has no name");
    EXPECT_HAS(record("[{}]"), start + "a record in \"zoff.params\" has no name");
    EXPECT_HAS(record(R"([{"name":1}])"), "\"name\" of a record in \"zoff.params\" is not an encoded name");
    EXPECT_HAS(record(R"([{"name":"%zz"}])"), "\"name\" of a record in \"zoff.params\" is not an encoded name");
    EXPECT_HAS(record(R"([{"name":"a","slice_name":1}])"), "\"slice_name\" of a record");
    EXPECT_HAS(record(R"([{"name":"a","tied_to":null}])"), "\"tied_to\" of a record");
    for (const char *slices : {"0", "-1", "1.5", "null"})
        EXPECT_HAS(record(R"([{"name":"a","slices":)" + std::string(slices) + "}]"),
                   start + "\"slices\" of parameter \"a\" in \"zoff.params\" is not a number from 1 on");
    EXPECT_HAS(record(R"([{"name":"b"}])"), start + "parameter \"b\": its tensor \"b\" is missing");
    EXPECT_HAS(record(R"([{"name":"b","slices":9000000000000000000,"slice_name":"b.{}"}])"),
               "parameter \"b\": would have 9000000000000000000 slices, but there are only 1 tensors");
    EXPECT_HAS(record(R"([{"name":"a","slices":3}])"),
               "tensor \"a\": its first dimension is not the 3 slices of the parameter");
    EXPECT_HAS(record(R"([{"name":"a"},{"name":"a"}])"), "parameter \"a\": its tensor \"a\" belongs to parameter \"a\", too");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"c","dims":[2]}])"), "parameter \"b\" is tied to \"c\", which has no tensor");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"a","dims":[3]}])"),
               "parameter \"b\" is tied to \"a\", which has another size");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"a","dims":[2],"slices":2}])"), "which has another size");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"a","dims":[-2]}])"),
               "\"dims\" of parameter \"b\" in \"zoff.params\" are no shape");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"a","dims":[4294967296,4294967296]}])"), "are no shape");
    EXPECT_HAS(record(R"([{"name":"b","tied_to":"a","dims":[2],"slices":9000000000000000000,"slice_name":"{}"}])"),
               "which has another size");
}

TEST_F(import_verb, an_error_leaves_no_checkpoint)
{
    write_file(path, {{"a", ZOFF_BF16, {3 << 20}}});
    ASSERT_EQ(0, truncate(path.c_str(), (off_t)bytes_of(path).size()));
    write_bytes(folder.file("bad"), bytes_of(path).substr(0, 100000));
    EXPECT_HAS(refused({path, folder.file("bad")}), folder.file("bad") + ": tensor \"a\": bytes 0 to 6291456 are not inside");
    EXPECT_NE(0, access(to.c_str(), F_OK)) << "everything is checked before something is written";
    write_bytes(folder.file("taken"), "");
    last = run_import({path, "-o", folder.file("taken")});
    EXPECT_EQ(EXIT_FAILED, last.exit);
    EXPECT_HAS(last.err, folder.file("taken"));
}

TEST_F(import_verb, wrong_arguments_are_named)
{
    const auto usage = [](std::vector<std::string> arguments, const std::string &words) {
        const verb_result result = run_import(std::move(arguments));
        EXPECT_EQ(EXIT_USAGE, result.exit);
        EXPECT_HAS(result.err, words);
    };
    for (const std::vector<std::string> &none : {std::vector<std::string>(), {"no/such", "-o"}}) {
        const verb_result result = run_verb(verb_import, none);
        EXPECT_EQ(EXIT_USAGE, result.exit);
        EXPECT_HAS(result.err, "import needs safetensors, torch or universal, or a file to tell what it is");
        EXPECT_EQ(none.empty(), result.err.find("; there is no file no/such") == std::string::npos) << result.err;
    }
    usage({}, "import safetensors needs files or a folder to read, and -o with the folder of checkpoints");
    usage({"a"}, "import safetensors needs files or a folder");
    usage({"-o", "a"}, "import safetensors needs files or a folder");
    usage({"a", "-o"}, "-o needs a value");
    usage({"a", "-o", "b", "--optimizer", "lamb"}, "--optimizer must be adam, lion, adagrad, sgd or none, not \"lamb\"");
    for (const char *step : {"-1", "x", "1x", "", "99999999999999999999"})
        usage({"a", "-o", "b", "--step", step}, "--step needs a number of updates from 0 on, not \"");
    for (const char *stack : {"x", "=h.{}", "h=x", "h{}=x", "h={}.{}"})
        usage({"a", "-o", "b", "--stack", stack}, "--stack needs NAME=PATTERN with {} once in the pattern, not \"");
    usage({"a", "-o", "b", "--dtype", "x"}, "--dtype must be bf16, fp16, fp32 or keep, not \"x\"");
    usage({"a", "-o", "b", "--label", "x"}, "import safetensors: there is no option \"--label\"");
}
} // namespace
