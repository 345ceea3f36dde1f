/* SPDX-License-Identifier: Apache-2.0 */
// import_mutation_test.cc: mutated records and names make no parameters, or parameters that hold each tensor once.
#include "covering.h"
#include "mutations.h"

extern "C" {
#include "import_params.h"
}

using namespace tool_files;

namespace
{
std::string good_file()
{
    const std::string records = R"([{\"name\":\"h\",\"slice_name\":\"h.{}\",\"slices\":2},{\"name\":\"%FF\"},)"
                                R"({\"name\":\"g\",\"slice_name\":\"g.{}\",\"tied_to\":\"h\",\"slices\":2,\"dims\":[2]},)"
                                R"({\"name\":\"s\",\"slices\":2,\"frozen\":true}])";
    const std::string header =
        "{\"__metadata__\":{\"format\":\"pt\",\"tied\":\"a\",\"g.0\":\"h.0\",\"g.1\":\"h.1\",\"zoff.params\":\"" + records +
        "\"}," + entry("h.0", "F32", "[2]", 0, 8) + "," + entry("h.1", "F32", "[2]", 8, 16) + "," +
        entry("%FF", "BF16", "[4]", 16, 24) + "," + entry("a", "F16", "[]", 24, 26) + "," + entry("s", "F16", "[2,2]", 26, 34) +
        "}";
    return file_of(header + std::string((8 - header.size() % 8) % 8, ' '), "0123456789abcdefghijklmnopqrstuvwx");
}

// Every tensor is in one parameter, and tied parameters name one that is there.
void expect_sound(const import_files &files, const import_params &params, unsigned seed)
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
        ASSERT_NE(nullptr, p.facts.name);
        if (p.facts.tied_to)
            ASSERT_EQ(sizes.at(p.facts.tied_to), p.facts.count * p.facts.slices) << "seed " << seed;
        else
            ASSERT_EQ(count, p.facts.count * p.facts.slices) << "seed " << seed;
        ASSERT_TRUE(sizes.emplace(p.facts.name, p.facts.count * p.facts.slices).second) << "seed " << seed;
    }
    ASSERT_EQ(files.tensor_count, uses.size()) << "seed " << seed;
    for (const auto &[tensor, count] : uses)
        ASSERT_EQ(1u, count) << "seed " << seed << ": " << tensor->tensor->name;
}

TEST(ImportMutations, AreRefusedOrMakeSoundParameters)
{
    zoff_test::scratch_folder folder;
    std::string path = folder.file("m");
    char *paths[] = {path.data()};
    const char *none[] = {nullptr};
    const import_options options = {paths, 1, "", 0, ZOFF_DTYPE_DEFAULT, 0, none, none, nullptr, 0};
    unsigned made = 0;
    const unsigned cases = zoff_test::share_of(50000);
    const std::string good = good_file();
    for (unsigned seed = 0; seed <= cases; seed++) {
        zoff_test::fast_random random(seed);
        std::string bytes = good;
        for (unsigned i = seed == 0 ? 0 : 1 + random() % 2; i > 0; i--) // the first file stays as it is
            mutate(bytes, random);
        mend_length(bytes, 34);
        write_bytes(path, bytes);
        import_files files = {};
        import_params params = {};
        const outcome result = run([&] {
            const int opened = import_files_open(&files, &IMPORT_SAFETENSORS, paths, 1, none);
            return opened == EXIT_DONE ? import_params_make(&params, &files, &options) : opened;
        });
        if (result.exit == EXIT_DONE) {
            expect_sound(files, params, seed);
            made++;
        }
        EXPECT_EQ(result.exit != EXIT_DONE, result.err.find("error: ") == 0) << "seed " << seed << ": " << result.err;
        import_params_free(&params);
        import_files_close(&files);
        ASSERT_FALSE(HasFatalFailure());
        ASSERT_LT(0u, made) << "the file without a mutation is good";
    }
    EXPECT_LT(cases / 100, made);
}
} // namespace
