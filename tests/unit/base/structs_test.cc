/* SPDX-License-Identifier: Apache-2.0 */
// structs_test.cc: structs of callers that are older or newer than the library.
#include "zoff_test.h"

extern "C" {
#include "structs.h"
}

#include <string.h>

using namespace zoff_test;

namespace
{
struct sample {
    size_t struct_size;
    uint64_t a, b;
};

// The struct of a newer program.
struct newer {
    sample known;
    uint64_t c;
};

zoff_status read(const void *given, sample *out)
{
    return zoff_base_structs_read("zoff_sample", "ZOFF_SAMPLE_INIT", given, out, sizeof *out);
}
} // namespace

TEST(Structs, SizesThatNoVersionHasAreRefused)
{
    sample known = {};
    for (size_t bytes : {size_t{0}, size_t{1}, sizeof(size_t) - 1, size_t{1} << 17, SIZE_MAX}) {
        const sample given = {bytes, 1, 2};
        const std::string words = "zoff_sample.struct_size is " + std::to_string(bytes) +
                                  "; start from ZOFF_SAMPLE_INIT, which sets it to sizeof(zoff_sample)";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, read(&given, &known));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_base_structs_check_out("zoff_sample", "ZOFF_SAMPLE_INIT", &given));
    }
    EXPECT_EQ(0u, known.a);
}

TEST(Structs, AnOlderCallersFieldsAreReadAndTheRestKeepsItsDefault)
{
    const sample given = {offsetof(sample, b), 7, 8};
    sample known = {0, 1, 2};
    ASSERT_ZOFF_OK(read(&given, &known));
    EXPECT_EQ(sizeof known, known.struct_size);
    EXPECT_EQ(7u, known.a);
    EXPECT_EQ(2u, known.b);
}

TEST(Structs, ANewerCallersFieldMustBeZero)
{
    newer given = {{sizeof given, 7, 8}, 0};
    sample known = {};
    ASSERT_ZOFF_OK(read(&given, &known));
    EXPECT_EQ(8u, known.b);
    for (unsigned byte = 0; byte < sizeof given.c; byte++) {
        given.c = uint64_t{1} << 8 * byte;
        known = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                          "zoff_sample has a field at byte " + std::to_string(sizeof known + byte) +
                              " that zoff 0.1.0 does not",
                          read(&given, &known));
        EXPECT_EQ(0u, known.a) << "nothing is taken of a struct that is refused";
    }
}

TEST(Structs, OutputsKeepTheirSizeAndAnUnknownFieldBecomesZero)
{
    const sample known = {sizeof known, 7, 8};
    sample older = {offsetof(sample, b), 0, 99};
    zoff_base_structs_write(&known, sizeof known, &older);
    EXPECT_EQ(offsetof(sample, b), older.struct_size);
    EXPECT_EQ(7u, older.a);
    EXPECT_EQ(99u, older.b) << "not a byte behind the struct of the caller";
    newer out = {{sizeof out, 0, 0}, 99};
    zoff_base_structs_write(&known, sizeof known, &out);
    EXPECT_EQ(sizeof out, out.known.struct_size);
    EXPECT_EQ(8u, out.known.b);
    EXPECT_EQ(0u, out.c);
}

// The macros of all public structs, as C++ compiles them.
TEST(Structs, InitializersSetTheSizeAndNothingElse)
{
    const zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    zoff_engine_opts plain;
    memset(&plain, 0, sizeof plain);
    plain.struct_size = sizeof plain;
    EXPECT_EQ(0, memcmp(&plain, &opts, offsetof(zoff_engine_opts, progress_thread)));
    const zoff_step_info info = ZOFF_STEP_INFO_INIT;
    EXPECT_EQ(sizeof info, info.struct_size);
    EXPECT_EQ(0u, info.bytes.sent);
}
