// describe_test.cc: the description of a model is JSON, and has every parameter and every piece of this rank's states once.
// tests/fault/persist_files_test.cc finds each state in the files by it.
#include "small_model.h"

#include <jansson.h>

#include <map>

extern "C" {
#include "mem.h"
}

using namespace zoff_test;

namespace
{
struct json_closer {
    void operator()(json_t *j) const { json_decref(j); }
};
using json = std::unique_ptr<json_t, json_closer>;

json described(small_model &parts)
{
    char *text = nullptr;
    json_error_t error;
    EXPECT_ZOFF_OK(zoff_model_describe(&parts.m, &parts.plan, 0xabc, 0xdef, &text));
    json made(json_loads(text, 0, &error));
    EXPECT_NE(nullptr, made) << error.text << "\n" << text;
    zoff_base_mem_free(text);
    return made;
}

TEST(Describe, HasEveryParameterAndItsStates)
{
    small_model parts;
    parts.m.in_place = false; // as on a device: fp32 weights have masters, too
    zoff_param_desc half = describe("h\"a\\l\xffy", 40, 3);
    half.dtype = ZOFF_BF16;
    zoff_param_desc frozen = describe("frozen", 5);
    frozen.frozen = true;
    parts.add(half);
    parts.add(frozen);
    parts.add(describe("nothing", 0));
    ASSERT_NO_FATAL_FAILURE(parts.make_plan(64));
    const json d = described(parts);
    EXPECT_STREQ("zoff states", json_string_value(json_object_get(d.get(), "format")));
    EXPECT_EQ(1, json_integer_value(json_object_get(d.get(), "version")));
    EXPECT_STREQ("0000000000000abc", json_string_value(json_object_get(d.get(), "layout")));
    EXPECT_STREQ("0000000000000def", json_string_value(json_object_get(d.get(), "cut")));
    json_t *params = json_object_get(d.get(), "params");
    ASSERT_EQ(3u, json_array_size(params));
    json_t *first = json_array_get(params, 0), *second = json_array_get(params, 1);
    EXPECT_STREQ("h\"a\\l\xc3\xbfy", json_string_value(json_object_get(first, "name"))) << "one character for each byte";
    EXPECT_EQ(40, json_integer_value(json_object_get(first, "count")));
    EXPECT_EQ(3, json_integer_value(json_object_get(first, "slices")));
    EXPECT_STREQ("bf16", json_string_value(json_object_get(first, "dtype")));
    EXPECT_EQ(3u, json_array_size(json_object_get(first, "states")));
    EXPECT_EQ(nullptr, json_object_get(first, "frozen"));
    EXPECT_TRUE(json_is_true(json_object_get(second, "frozen")));
    EXPECT_EQ(0u, json_array_size(json_object_get(second, "states")));
}

// Every element of every rank is in one piece, and no two pieces of a chunk share a byte.
TEST(Describe, HasEveryElementOnce)
{
    std::map<std::vector<json_int_t>, int> owners; // param, slice, element
    for (unsigned rank = 0; rank < 3; rank++) {
        small_model parts;
        parts.add(describe("a", 100, 2));
        parts.add(describe("b", 33));
        parts.m.in_place = false;
        ASSERT_NO_FATAL_FAILURE(parts.make_plan(64, rank, 3));
        const json d = described(parts);
        EXPECT_EQ((json_int_t)rank, json_integer_value(json_object_get(d.get(), "rank")));
        size_t i, k;
        json_t *chunk, *piece;
        json_array_foreach(json_object_get(d.get(), "chunks"), i, chunk)
        {
            const json_int_t bytes = json_integer_value(json_object_get(chunk, "bytes"));
            std::vector<int> used((size_t)bytes);
            json_array_foreach(json_object_get(chunk, "pieces"), k, piece)
            {
                ASSERT_EQ(7u, json_array_size(piece));
                std::vector<json_int_t> n;
                for (size_t w = 0; w < 7; w++)
                    n.push_back(json_integer_value(json_array_get(piece, w)));
                for (json_int_t e = n[2]; e < n[2] + n[3]; e++)
                    owners[{n[0], n[1], e}]++;
                for (size_t state = 4; state < 7; state++) {
                    for (json_int_t at = n[state]; at < n[state] + 4 * n[3]; at++)
                        ASSERT_EQ(1, ++used.at((size_t)at));
                }
            }
        }
    }
    EXPECT_EQ(233u, owners.size());
    for (const auto &o : owners)
        EXPECT_EQ(1, o.second);
}
} // namespace
