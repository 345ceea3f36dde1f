/* SPDX-License-Identifier: Apache-2.0 */
// pickle_test.cc: a pickle is read as the values that it describes, and copied with other numbers.
#include "torch_bytes.h"

using namespace torch_bytes;

namespace
{
struct closer {
    void operator()(pickle *p) const { pickle_close(p); }
};
using handle = std::unique_ptr<pickle, closer>;

handle opened(const std::string &bytes, pickle_names names = PICKLE_NAMES_LISTED)
{
    pickle *p = nullptr;
    fault f;
    EXPECT_TRUE(pickle_open(bytes.data(), bytes.size(), names, &p, &f)) << f.text;
    return handle(p);
}

int64_t whole(const pickle_value *v)
{
    int64_t number = -12345;
    EXPECT_TRUE(pickle_number(v, &number));
    return number;
}
} // namespace

TEST(pickle_reads, IntegersOfEveryOpcode)
{
    const std::vector<std::pair<std::string, int64_t>> cases = {{"K\xff", 255},
                                                                {"M\x01\x80", 0x8001},
                                                                {"J\xff\xff\xff\xff", -1},
                                                                {std::string("J\0\0\0\x80", 5), INT32_MIN},
                                                                {std::string("\x8a\0", 2), 0},
                                                                {"\x8a\x01\x80", -128},
                                                                {std::string("\x8a\x02\x80\0", 4), 128},
                                                                {"\x8a\x05" + little(1ull << 32, 5), 1ll << 32},
                                                                {"\x8a\x08" + little(UINT64_MAX, 8), -1},
                                                                {"\x8a\x08" + little(INT64_MAX, 8), INT64_MAX}};
    for (const auto &one : cases) {
        const std::string bytes = pickled(one.first);
        const handle p = opened(bytes);
        ASSERT_TRUE(p);
        EXPECT_EQ(one.second, whole(pickle_root(p.get())));
    }
}

TEST(pickle_reads, IntegersBeyond64BitsWithoutAValue)
{
    const std::string bytes = pickled("\x8a\x09" + little(1, 9));
    const handle p = opened(bytes);
    ASSERT_TRUE(p);
    int64_t number;
    EXPECT_EQ(PICKLE_LARGE, pickle_root(p.get())->type);
    EXPECT_FALSE(pickle_number(pickle_root(p.get()), &number));
}

TEST(pickle_reads, WholeFloatsAsNumbers)
{
    for (const double value : {0.0, -3.0, 65536.0}) {
        const std::string bytes = pickled(real(value));
        const handle p = opened(bytes);
        EXPECT_EQ((int64_t)value, whole(pickle_root(p.get())));
    }
    for (const double value : {0.5, 1e16, (double)NAN, (double)INFINITY}) {
        const std::string bytes = pickled(real(value));
        const handle p = opened(bytes);
        int64_t number;
        EXPECT_FALSE(pickle_number(pickle_root(p.get()), &number)) << value;
    }
}

TEST(pickle_reads, ContainersAndTheMemo)
{
    // {"a": [1, (2, 3), "b"], "b": <the same text>}
    const std::string bytes = pickled(std::string("}q") + '\0' + "(" + text("a") + "](K\x01K\x02K\x03\x86" + text("b") +
                                      "q\x01" + "e" + "h\x01h\x01u");
    const handle p = opened(bytes);
    ASSERT_TRUE(p);
    const pickle_value *root = pickle_root(p.get()), *list = pickle_find(root, "a");
    ASSERT_EQ(PICKLE_DICT, root->type);
    ASSERT_TRUE(list && list->type == PICKLE_LIST);
    EXPECT_EQ(1, whole(pickle_at(list, 0)));
    EXPECT_EQ(3, whole(pickle_at(pickle_at(list, 1), 1)));
    EXPECT_TRUE(pickle_is_text(pickle_at(list, 2), "b"));
    EXPECT_EQ(pickle_at(list, 2), pickle_find(root, "b"));
    EXPECT_EQ(nullptr, pickle_at(list, 3));
    EXPECT_EQ(nullptr, pickle_find(root, "c"));
    EXPECT_EQ(nullptr, pickle_find(list, "a"));
    EXPECT_EQ(nullptr, pickle_at(nullptr, 0));
}

TEST(pickle_reads, CallsAsObjectsWithTheirState)
{
    const std::string bytes = pickled(global("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler") + ")\x81" +
                                      dict({{text("cur_iter"), "K\x07"}}) + "b");
    const handle p = opened(bytes, PICKLE_NAMES_ANY);
    ASSERT_TRUE(p);
    const pickle_value *root = pickle_root(p.get());
    ASSERT_EQ(PICKLE_OBJECT, root->type);
    EXPECT_TRUE(pickle_is_global(root->callee, "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler"));
    EXPECT_FALSE(pickle_is_global(root->callee, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler"));
    EXPECT_FALSE(pickle_is_text(root->callee, "deepspeed.runtime.fp16.loss_scaler\nDynamicLossScaler"));
    EXPECT_EQ(7, whole(pickle_find(root, "cur_iter")));
}

TEST(pickle_reads, OrderedDictsLikeDicts)
{
    const std::string bytes =
        pickled(global("collections", "OrderedDict") + ")R(" + text("a") + "K\x01" + text("b") + "K\x02u");
    const handle p = opened(bytes);
    ASSERT_TRUE(p);
    EXPECT_EQ(2, whole(pickle_find(pickle_root(p.get()), "b")));
}

namespace
{
std::string edited(const std::string &bytes, const std::vector<std::pair<std::string, double>> &changes)
{
    const handle p = opened(bytes);
    std::vector<pickle_edit> edits;
    for (const auto &change : changes)
        edits.push_back({pickle_find(pickle_root(p.get()), change.first.c_str()), change.second});
    unsigned char *copy = nullptr;
    size_t count = 0;
    fault f;
    EXPECT_TRUE(pickle_copy_edited(bytes.data(), bytes.size(), edits.data(), edits.size(), &copy, &count, &f)) << f.text;
    const std::string result((char *)copy, count);
    free(copy);
    return result;
}
} // namespace

TEST(pickle_copies, HaveOtherNumbersAndNothingElse)
{
    const auto bytes = [](const std::string &a, const std::string &b, const std::string &c) {
        return pickled(dict({{text("a"), a}, {text("x"), "K\x05"}, {text("b"), b}, {text("c"), c}}));
    };
    const std::string from = bytes("K\x02", real(1), number(9));
    EXPECT_EQ(bytes("\x8a\x08" + little(70000, 8), real(0.25), "\x8a\x08" + little((uint64_t)-1, 8)),
              edited(from, {{"c", -1}, {"a", 70000}, {"b", 0.25}})); // edits may come in any order
    EXPECT_EQ(bytes("\x8a\x08" + little(3, 8), real(1), number(9)), edited(from, {{"a", 3}, {"a", 3}}));
    EXPECT_EQ(bytes(real(0.5), real(1), number(9)), edited(from, {{"a", 0.5}})); // a fraction is no integer
    for (const double beyond : {1e300, -1e300, 0x1p63, (double)INFINITY, (double)-INFINITY, (double)NAN})
        EXPECT_EQ(bytes(real(beyond), real(1), number(9)), edited(from, {{"a", beyond}}));
    EXPECT_EQ(bytes("\x8a\x08" + little(1ULL << 63, 8), real(1), number(9)), edited(from, {{"a", -0x1p63}}));
    EXPECT_EQ(from, edited(from, {}));
}
