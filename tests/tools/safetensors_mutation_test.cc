/* SPDX-License-Identifier: Apache-2.0 */
// safetensors_mutation_test.cc: mutated files are refused, or read as what they say; nothing crashes or reads outside of a
// file.
#include "covering.h"
#include "mutations.h"

using namespace tool_files;

namespace
{
std::string good_file()
{
    const std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"tied\":\"a\"}," + entry("a", "F32", "[2,3]", 0, 24) +
                               "," + entry("b.0", "BF16", "[4]", 24, 32) + "," + entry("c", "F16", "[]", 32, 34) + "," +
                               entry("d", "F32", "[0,5]", 34, 34) + "}";
    return file_of(header + std::string((8 - header.size() % 8) % 8, ' '), "0123456789abcdefghijklmnopqrstuvwx");
}

TEST(SafetensorsMutations, AreRefusedOrRead)
{
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("m"), good = good_file();
    unsigned read = 0, refused = 0;
    const unsigned cases = zoff_test::share_of(100000);
    for (unsigned seed = 0; seed < cases; seed++) {
        zoff_test::fast_random random(seed);
        std::string bytes = good;
        for (unsigned i = 1 + random() % 3; i > 0; i--)
            mutate(bytes, random);
        if (random() % 4)
            mend_length(bytes, 34);
        write_bytes(path, bytes);
        st_reader reader = {};
        const outcome result = run([&] { return st_reader_open(&reader, path.c_str(), nullptr); });
        if (result.exit == EXIT_FAILED) {
            ASSERT_EQ(0u, result.err.find("error: " + path + ": ")) << "seed " << seed << ": " << result.err;
            refused++;
            continue;
        }
        // An accepted file covers its data exactly, and can be read.
        uint64_t at = 0;
        for (size_t i = 0; i < reader.tensor_count; i++) {
            const st_tensor &t = reader.tensors[i];
            ASSERT_EQ(at, t.begin) << "seed " << seed;
            std::string data(t.count * (t.dtype == ZOFF_F32 ? 4 : 2), 0);
            ASSERT_EQ(EXIT_DONE, st_reader_read(&reader, &t, 0, t.count, data.data())) << "seed " << seed;
            ASSERT_EQ(bytes.substr(reader.data_at + at, data.size()), data) << "seed " << seed;
            at += data.size();
        }
        ASSERT_EQ(bytes.size(), reader.data_at + at) << "seed " << seed;
        st_reader_close(&reader);
        read++;
    }
    EXPECT_LT(cases / 2, refused);
    EXPECT_LT(cases / 100, read) << "some mutations, as of the data, change nothing that could be refused";
}
} // namespace
