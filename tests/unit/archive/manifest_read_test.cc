/* SPDX-License-Identifier: Apache-2.0 */
// manifest_read_test.cc: a manifest with a right checksum and wrong contents is refused, and says what is wrong. Members that
// this version does not know are ignored; versions and needs that it does not know are refused by name.
#include "sample.h"

using namespace zoff_test;

namespace
{
class manifest_read : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(written.write(scratch.path));
        text = read_file(scratch.file("step-0000000012/manifest.json"));
    }
    zoff_status read(const std::string &changed)
    {
        const std::string whole = with_checksum(changed);
        zoff_archive_manifest m = {};
        const zoff_status status = zoff_archive_manifest_read("M", whole.data(), whole.size(), &m);
        zoff_archive_manifest_free(&m);
        return status;
    }
    void refuses(zoff_status status, const char *words, const std::string &from, const std::string &to)
    {
        {
            SCOPED_TRACE(testing::Message() << from << " -> " << to);
            EXPECT_ZOFF_FAILS(status, words, read(replaced(text, from, to)));
        }
        EXPECT_EQ(0u, std::string(zoff_last_error()).find("the manifest 'M' cannot be used: "));
    }
    scratch_folder scratch;
    sample written;
    std::string text;
};
} // namespace

TEST_F(manifest_read, ignores_members_that_it_does_not_know)
{
    EXPECT_ZOFF_OK(read(replaced(text, "\"needs\": [],", "\"needs\": [], \"later\": {\"x\": [1, {}, \"]\"]},")));
    EXPECT_ZOFF_OK(read(replaced(text, "\"dtype\": ", "\"later\": [null, true], \"dtype\": ")));
    EXPECT_ZOFF_OK(read(replaced(text, "\"head\": ", "\"later\": 1.5e300, \"head\": ")));
    EXPECT_ZOFF_OK(read(replaced(text, "  \"about\": {}", "  \"about\": {\"library\": \"x\"}")));
}

TEST_F(manifest_read, refuses_newer_versions_by_name)
{
    refuses(ZOFF_ERR_UNSUPPORTED, "version 2 of the format", "\"version\": 1", "\"version\": 2");
    refuses(ZOFF_ERR_UNSUPPORTED, "needs \"sparse pieces\"", "\"needs\": []", "\"needs\": [\"sparse pieces\"]");
    refuses(ZOFF_ERR_UNSUPPORTED, "version 2 of the format", "\"version\": 1,\n  \"needs\": []",
            "\"version\": 2, \"needs\": [\"x\"]");
    refuses(ZOFF_ERR_CORRUPT, "\"version\"", "\"version\": 1", "\"version\": 0");
    refuses(ZOFF_ERR_CORRUPT, "\"version\"", "\"version\": 1", "\"version\": \"1\"");
    refuses(ZOFF_ERR_CORRUPT, "\"needs\"", "\"needs\": []", "\"needs\": {}");
    refuses(ZOFF_ERR_CORRUPT, "\"format\" is 'other'", "\"zoff checkpoint\"", "\"other\"");
}

TEST_F(manifest_read, refuses_wrong_members)
{
    refuses(ZOFF_ERR_CORRUPT, "\"id\"", "\"id\": \"", "\"id\": \"../");
    refuses(ZOFF_ERR_CORRUPT, "\"id\"", "\"id\": \"", "\"id\": 1, \"x\": \"");
    refuses(ZOFF_ERR_CORRUPT, "\"label\" is '../x'", "\"label\": \"\"", "\"label\": \"../x\"");
    refuses(ZOFF_ERR_CORRUPT, "\"engines\"", "\"engines\": 1", "\"engines\": 0");
    refuses(ZOFF_ERR_CORRUPT, "\"sequence\"", "\"sequence\": 1", "\"sequence\": 8");
    refuses(ZOFF_ERR_CORRUPT, "too big", "\"sequence\": ", "\"sequence\": 99");
    refuses(ZOFF_ERR_CORRUPT, "\"sequence\"", "\"sequence\": ", "\"sequence\": -");
    refuses(ZOFF_ERR_CORRUPT, "\"replaces\"", "\"replaces\"", "\"replaced\"");
    refuses(ZOFF_ERR_CORRUPT, "\"step\"", "\"step\": 12", "\"step\": -1");
    refuses(ZOFF_ERR_CORRUPT, "\"step\"", "\"step\": 12", "\"step\": 1.5");
    refuses(ZOFF_ERR_CORRUPT, "loss_scaler", "\"loss_scaler\": {", "\"loss_scaler\": 3, \"x\": {");
    refuses(ZOFF_ERR_CORRUPT, "loss_scaler", "\"scale\": ", "\"scale\": -");
    refuses(ZOFF_ERR_CORRUPT, "\"hysteresis\"", "\"hysteresis\": 2", "\"hysteresis\": -2");
    refuses(ZOFF_ERR_CORRUPT, "two members \"step\"", "\"step\": 12", "\"step\": 12, \"step\": 12");
    refuses(ZOFF_ERR_CORRUPT, "two members \"files\"", "\"files\"", "\"files\": [], \"files\"");
}

TEST_F(manifest_read, refuses_wrong_parameters)
{
    refuses(ZOFF_ERR_CORRUPT, "\"params\"", "\"params\"", "\"param\"");
    refuses(ZOFF_ERR_CORRUPT, "parameter 0: it is no object", "{\"name\": \"a%25", "[], {\"name\": \"a%25");
    refuses(ZOFF_ERR_CORRUPT, "parameter 1: \"name\"", "\"name\": \"frozen\"", "\"name\": 3");
    refuses(ZOFF_ERR_CORRUPT, "two parameters 'one'", "\"frozen\"", "\"one\"");
    refuses(ZOFF_ERR_CORRUPT, "is not escaped", "\"frozen\"", "\"fro%7Aen\"");
    refuses(ZOFF_ERR_CORRUPT, "\"dtype\" is 'fp8'", "\"dtype\": \"fp16\"", "\"dtype\": \"fp8\"");
    refuses(ZOFF_ERR_CORRUPT, "\"dims\" is no list", "\"dims\": [7]", "\"dims\": []");
    refuses(ZOFF_ERR_CORRUPT, "\"dims\" is no list", "\"dims\": [7]", "\"dims\": 7");
    refuses(ZOFF_ERR_CORRUPT, "a dimension is no number", "\"dims\": [7]", "\"dims\": [-7]");
    refuses(ZOFF_ERR_CORRUPT, "too many elements", "\"dims\": [7]", "\"dims\": [4294967296, 4294967296]");
    refuses(ZOFF_ERR_CORRUPT, "too many elements", "\"dims\": [7], \"slices\": 1",
            "\"dims\": [7], \"slices\": 9223372036854775807");
    refuses(ZOFF_ERR_CORRUPT, "\"slices\"", "\"dims\": [7], \"slices\": 1", "\"dims\": [7], \"slices\": 0");
    refuses(ZOFF_ERR_CORRUPT, "\"group\"", "\"group\": 0", "\"group\": 4294967296");
    refuses(ZOFF_ERR_CORRUPT, "\"states\" has 'x'", "[\"weights\"]", "[\"x\"]");
    refuses(ZOFF_ERR_CORRUPT, "is there twice", "[\"weights\"]", "[\"weights\", \"weights\"]");
    refuses(ZOFF_ERR_CORRUPT, "\"states\" is no list", "[\"weights\"]", "\"weights\"");
    refuses(ZOFF_ERR_CORRUPT, "which is not there", "\"tied_to\": \"", "\"tied_to\": \"x");
    refuses(ZOFF_ERR_CORRUPT, "another size", "\"tied_to\": \"a%25%FF b\"", "\"tied_to\": \"one\"");
    refuses(ZOFF_ERR_CORRUPT, "another size", "\"tied_to\": \"a%25%FF b\"", "\"tied_to\": \"tied\"");
    refuses(ZOFF_ERR_CORRUPT, "it is tied, and has states", "\"slices\": 1,", "\"slices\": 1, \"tied_to\": \"one\",");
    refuses(ZOFF_ERR_CORRUPT, "\"rule\" is missing or is no text", "\"rule\": \"muon\"", "\"rule\": 1");
    refuses(ZOFF_ERR_CORRUPT, "\"rule\" is longer than 40 bytes", "\"muon\"", "\"" + std::string(41, 'x') + "\"");
    EXPECT_ZOFF_OK(read(replaced(text, "\"muon\"", "\"a later rule\"")));
    refuses(ZOFF_ERR_CORRUPT, "longer than 4095", "\"frozen\"", "\"" + std::string(4096, 'x') + "\"");
    EXPECT_ZOFF_OK(read(replaced(text, "\"frozen\"", "\"" + std::string(4095, 'x') + "\"")));
}

TEST_F(manifest_read, names_no_file_outside_of_its_folder)
{
    refuses(ZOFF_ERR_CORRUPT, "file 0: its name is '../", "{\"name\": \"" + text.substr(text.find("\"id\": \"") + 7, 16),
            "{\"name\": \"../" + text.substr(text.find("\"id\": \"") + 7, 16));
    refuses(ZOFF_ERR_CORRUPT, "is expected", ".rank-00000.states", ".rank-00001.states");
    refuses(ZOFF_ERR_CORRUPT, "\"files\"", "\"files\"", "\"file\"");
    refuses(ZOFF_ERR_CORRUPT, "\"bytes\"", "\"bytes\": ", "\"bytes\": -");
    refuses(ZOFF_ERR_CORRUPT, "does not lie at its end", "\"offset\": ", "\"offset\": 1");
    refuses(ZOFF_ERR_CORRUPT, "\"offset\"", "\"table\": {", "\"table\": 1, \"x\": {");
    refuses(ZOFF_ERR_CORRUPT, "\"head\" is not 16", "\"head\": \"", "\"head\": \"0");
    const size_t begin = text.find("    {\"name\": \"" + text.substr(text.find("\"id\": \"") + 7, 16)),
                 end = text.find("\n  ]", begin);
    refuses(ZOFF_ERR_CORRUPT, "\"files\" has 0", text.substr(begin, end - begin), "");
}

TEST_F(manifest_read, finds_every_flipped_bit)
{
    for (size_t bit = 0; bit < text.size() * 8; bit++) {
        std::string changed = text;
        zoff_archive_manifest m = {};
        changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
        ASSERT_EQ(ZOFF_ERR_CORRUPT, zoff_archive_manifest_read("M", changed.data(), changed.size(), &m)) << "bit " << bit;
    }
    for (size_t bytes = 0; bytes < text.size(); bytes++) {
        zoff_archive_manifest m = {};
        ASSERT_EQ(ZOFF_ERR_CORRUPT, zoff_archive_manifest_read("M", text.data(), bytes, &m)) << bytes;
    }
}
