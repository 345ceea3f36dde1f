/* SPDX-License-Identifier: Apache-2.0 */
// safetensors_fuzz.cc: a folder with files of the safetensors format, and perhaps their index. It makes parameters that have
// every tensor once, or is refused by name. A file `options` asks for a stack.
#include "fuzz.h"

#include "../tools/tool_files.h"

extern "C" {
#include "import_kind.h"
#include "import_params.h"
}

#include <algorithm>
#include <map>
#include <set>

using namespace zoff_fuzz;

// Every byte of the data belongs to one tensor, and can be read.
static void use(const st_reader &r, const std::string &bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r.tensor_count; i++) {
        const st_tensor &t = r.tensors[i];
        require(t.begin == at, "tensors lie one behind the other");
        std::string data(t.count * (t.dtype == ZOFF_F32 ? 4 : 2), 0);
        require(st_reader_read(&r, &t, 0, t.count, data.data()) == EXIT_DONE, "a tensor can be read");
        require(bytes.compare(r.data_at + at, data.size(), data) == 0, "a tensor has its bytes");
        at += data.size();
    }
    require(r.data_at + at == bytes.size(), "tensors fill the file");
}

// Every tensor is in one parameter, and tied parameters name one that is there.
static void use(const import_files &files, const import_params &params)
{
    std::map<const source_tensor *, unsigned> uses;
    std::map<std::string, size_t> sizes;
    for (size_t i = 0; i < params.count; i++) {
        const import_param &p = params.params[i];
        uint64_t count = 0;
        for (size_t k = 0; k < p.tensor_count; k++) {
            uses[p.tensors[k]]++;
            count += p.tensors[k]->tensor->count;
        }
        require(p.facts.name, "a parameter has a name");
        require(p.facts.tied_to || count == p.facts.count * p.facts.slices, "a parameter has the elements of its tensors");
        require(!p.facts.tied_to || (sizes.count(p.facts.tied_to) && sizes[p.facts.tied_to] == p.facts.count * p.facts.slices),
                "a tied parameter has the size of its owner");
        require(sizes.emplace(p.facts.name, p.facts.count * p.facts.slices).second, "names are unique");
    }
    require(uses.size() == files.tensor_count, "every tensor is used");
    require(std::all_of(uses.begin(), uses.end(), [](const auto &use) { return use.second == 1; }), "no tensor is used twice");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const files all = unpack(data, bytes);
    const folder scratch(all);
    for (const auto &[name, text] : all) {
        st_reader r = {};
        quiet_output();
        (void)import_kind_tell(scratch.file(name).c_str());
        require(!quiet_output().empty(), "every file is told");
        if (st_reader_open(&r, scratch.file(name).c_str(), nullptr) == EXIT_DONE) {
            use(r, text);
            st_reader_close(&r);
        } else {
            require(quiet_output().find("error: ") == 0, "a refused file has a reason");
        }
    }
    std::string path = scratch.path, stack = "s=h.{}";
    char *paths[] = {path.data()}, *stacks[] = {stack.data()};
    const char *skip[] = {"*.skip", nullptr}, *frozen[] = {"*.frozen", nullptr};
    const import_options options = {paths, 1, "", 0, ZOFF_DTYPE_DEFAULT, 0, skip, frozen, stacks, all.count("options")};
    import_files files = {};
    import_params params = {};
    quiet_output();
    int result = import_files_open(&files, &IMPORT_SAFETENSORS, paths, 1, skip);
    result = result == EXIT_DONE ? import_params_make(&params, &files, &options) : result;
    require((result != EXIT_DONE) == (quiet_output().find("error: ") == 0), "only a failed import has an error");
    if (result == EXIT_DONE) {
        use(files, params);
        accept();
    }
    import_params_free(&params);
    import_files_close(&files);
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static const std::vector<std::string> WORDS = {
        "\"F32\"",
        "\"F16\"",
        "\"BF16\"",
        "\"I64\"",
        "\"__metadata__\"",
        "\"a\"",
        "\"h.0\"",
        "\"h.1\"",
        "\"g.0\"",
        "\"zoff.params\"",
        "\"weight_map\"",
        "\"m.safetensors\"",
        "\"%\"",
        "\"%41\"",
        "\"{}\"",
        "\"b.frozen\"",
        "\"c.skip\"",
        "\"[{\\\"name\\\":\\\"q\\\",\\\"slices\\\":4000000000}]\"",
        "\"[{\\\"name\\\":\\\"q\\\",\\\"slice_name\\\":\\\"h.{}\\\",\\\"slices\\\":2}]\"",
        "\"[{\\\"name\\\":\\\"q\\\",\\\"tied_to\\\":\\\"a\\\",\\\"dims\\\":[4611686018427387904,4]}]\""};
    changes c(seed);
    files all = unpack(data, bytes);
    if (all.empty())
        return give(pack({{"m.safetensors", tool_files::file_of("{}", "")}}), data, bytes, most);
    auto file = std::next(all.begin(), (ptrdiff_t)c.any(all.size()));
    std::string &text = file->second;
    uint64_t header = 0;
    memcpy(&header, text.data(), std::min(text.size(), (size_t)8));
    const bool is_tensors = text.size() > 8 && header <= text.size() - 8;
    if (c.any(40) == 0 && all.size() > 1) {
        all.erase(file);
    } else if (c.any(40) == 0) {
        all[c.any(2) ? "n.safetensors" : "m-00001-of-00002.safetensors"] = text;
    } else if (c.any(40) == 0) {
        all["options"] = "";
    } else if (is_tensors && c.any(20)) { // the header, and its length
        std::string words = text.substr(8, header), rest = text.substr(8 + header);
        c.json(&words, WORDS);
        if (c.any(8) == 0)
            c.bytes(&rest);
        text = tool_files::file_of(words, rest);
    } else if (is_tensors) {
        c.any(2) ? c.field(&text, 0, 8) : c.bytes(&text);
    } else {
        c.json(&text, WORDS);
    }
    return give(pack(all), data, bytes, most);
}

static std::vector<std::string> seeds()
{
    using namespace tool_files;
    const std::string records = R"([{\"name\":\"h\",\"slice_name\":\"h.{}\",\"slices\":2},{\"name\":\"%FF\"},)"
                                R"({\"name\":\"g\",\"slice_name\":\"g.{}\",\"tied_to\":\"h\",\"slices\":2,\"dims\":[2]},)"
                                R"({\"name\":\"s\",\"slices\":2,\"frozen\":true}])";
    const std::string h = entry("h.0", "F32", "[2]", 0, 8) + "," + entry("h.1", "F32", "[2]", 8, 16),
                      letters = "0123456789abcdefghijklmnopqrstuvwx";
    const std::string recorded =
        "{\"__metadata__\":{\"format\":\"pt\",\"tied\":\"a\",\"g.0\":\"h.0\",\"g.1\":\"h.1\",\"zoff.params\":\"" + records +
        "\"}," + h + "," + entry("%FF", "BF16", "[4]", 16, 24) + "," + entry("a", "F16", "[]", 24, 26) + "," +
        entry("s", "F16", "[2,2]", 26, 34) + "}";
    const std::string plain = "{\"__metadata__\":{\"format\":\"pt\",\"tied\":\"a\"}," + entry("a", "F32", "[2,3]", 0, 24) +
                              "," + entry("b.frozen", "BF16", "[4]", 24, 32) + "," + entry("c", "F16", "[]", 32, 34) + "," +
                              entry("d", "F32", "[0,5]", 34, 34) + "}";
    const std::string index = "{\"metadata\":{\"total_size\":40},\"weight_map\":{\"h.0\":\"1.safetensors\",\"h.1\":\"1."
                              "safetensors\",\"a\":\"2.safetensors\"}}";
    return {
        pack({{"m.safetensors", file_of(recorded, letters)}}), pack({{"m.safetensors", file_of(plain, letters)}}),
        pack({{"m.safetensors", file_of("{" + h + "}", std::string(16, 1))}, {"options", ""}}),
        pack({{"1.safetensors", file_of("{" + h + "}", std::string(16, 1))},
              {"2.safetensors", file_of("{" + entry("a", "F32", "[2,3]", 0, 24) + "}", std::string(24, 2))},
              {"model.safetensors.index.json", index}}),
        pack({{"m-00001-of-00002.safetensors", file_of("{" + h + "}", std::string(16, 1))},
              {"m-00002-of-00002.safetensors", file_of("{" + entry("c.skip", "I64", "[1]", 0, 8) + "}", std::string(8, 0))}})};
}

const target zoff_fuzz::TARGET = {60000, 0.02, seeds};
