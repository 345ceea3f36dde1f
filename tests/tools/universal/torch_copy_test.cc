/* SPDX-License-Identifier: Apache-2.0 */
// torch_copy_test.cc: a copy of a .pt file has other elements, and all else as it was; elements of any size are aligned.
#include "covering.h"
#include "torch_bytes.h"

using namespace torch_bytes;

namespace
{
struct given {
    std::vector<float> values;
    size_t next = 0, fails_at = SIZE_MAX;
};

bool give(void *ctx, size_t first, size_t count, float *dst, fault *f)
{
    given *g = (given *)ctx;
    EXPECT_EQ(g->next, first); // the elements come in order, each once
    g->next = first + count;
    if (first + count > g->fails_at)
        return fault_set(f, "no element %zu", g->fails_at);
    std::copy_n(g->values.begin() + (long)first, count, dst);
    return true;
}

// Where the contents of an entry begin in the archive, from its local header.
size_t place_of(const std::string &bytes, const std::string &name)
{
    const size_t header = bytes.find(name) - 30;
    EXPECT_EQ("PK\x03\x04", bytes.substr(header, 4));
    const auto number = [&](size_t at) {
        return (size_t)(unsigned char)bytes[header + at] | (size_t)(unsigned char)bytes[header + at + 1] << 8;
    };
    return header + 30 + number(26) + number(28);
}

class torch_copy : public testing::Test
{
  protected:
    const zoff_test::scratch_folder folder;
    const std::string from = folder.file("from.pt"), to = folder.file("to.pt");
    bool (*stops)() = nullptr;

    // Copy with other elements in the tensor under "param".
    bool copy(given *g, fault *f, const std::vector<std::pair<std::string, double>> &changes = {})
    {
        const pt t = open_pt(from);
        torch_tensor found;
        std::vector<pickle_edit> edits;
        for (const auto &change : changes)
            edits.push_back({pickle_find(torch_file_root(t.get()), change.first.c_str()), change.second});
        torch_change change = {edits.data(), edits.size(), nullptr, give, g, stops};
        if (g) {
            EXPECT_TRUE(torch_file_tensor(t.get(), pickle_find(torch_file_root(t.get()), "param"), &found, f)) << f->text;
            change.tensor = &found;
        }
        return torch_file_copy(t.get(), to.c_str(), &change, f);
    }
};
} // namespace

TEST_F(torch_copy, HasTheGivenElementsAndAllElseAsItWas)
{
    for (const std::vector<size_t> &dims : std::vector<std::vector<size_t>>{{}, {0}, {1}, {3, 5}, {1000, 3}}) {
        const tensor_words words = contiguous(dims);
        tensor_words beside = contiguous({4});
        beside.key = "1";
        write_pt(from,
                 dict({{text("cat_dim"), "K\x01"},
                       {text("param"), tensor(words)},
                       {text("beside"), tensor(beside)},
                       {text("step"), "K\x02"}}),
                 {bytes_of_floats(counted(words.stored)), bytes_of_floats(counted(4, 100))});
        given g = {counted(words.stored, -7)};
        fault f = {""};
        ASSERT_TRUE(copy(&g, &f, {{"step", 300}})) << f.text;
        const pt t = open_pt(to);
        ASSERT_TRUE(t);
        const pickle_value *root = torch_file_root(t.get());
        int64_t number = 0;
        EXPECT_EQ(g.values, read_tensor(t.get(), pickle_find(root, "param"), 64));
        EXPECT_EQ(counted(4, 100), read_tensor(t.get(), pickle_find(root, "beside")));
        EXPECT_TRUE(pickle_number(pickle_find(root, "step"), &number));
        EXPECT_EQ(300, number);
        EXPECT_TRUE(pickle_number(pickle_find(root, "cat_dim"), &number));
        EXPECT_EQ(1, number);
        const std::string bytes = read_all(to);
        for (const char *entry : {"archive/data.pkl", "archive/data/0", "archive/data/1"})
            EXPECT_EQ(0u, place_of(bytes, entry) % 64) << entry;
        // a format version would promise places that no longer hold
        EXPECT_EQ(std::string::npos, bytes.find(".format_version"));
        EXPECT_NE(std::string::npos, bytes.find("archive/version"));
        EXPECT_EQ(0, remove(to.c_str()));
    }
}

TEST_F(torch_copy, TakesBlocksInOrder)
{
    const size_t count = 2 * (size_t)TORCH_BLOCK + 11;
    write_pt(from, dict({{text("param"), tensor(contiguous({count}))}}), {std::string(count * 4, 0)});
    given g = {counted(count)};
    fault f = {""};
    ASSERT_TRUE(copy(&g, &f)) << f.text;
    const pt t = open_pt(to);
    EXPECT_EQ(g.values, read_tensor(t.get(), pickle_find(torch_file_root(t.get()), "param"), 1 << 20));
}

TEST_F(torch_copy, HasZerosBesideATensorThatIsAPartOfItsStorage)
{
    tensor_words words = contiguous({2, 3});
    words.offset = 3;
    words.stored = 16;
    write_pt(from, dict({{text("param"), tensor(words)}}), {bytes_of_floats(counted(16))});
    given g = {counted(6, 50)};
    fault f = {""};
    ASSERT_TRUE(copy(&g, &f)) << f.text;
    const pt t = open_pt(to);
    EXPECT_EQ(g.values, read_tensor(t.get(), pickle_find(torch_file_root(t.get()), "param")));
    const std::string bytes = read_all(to);
    std::vector<float> stored(16, 0);
    std::copy(g.values.begin(), g.values.end(), stored.begin() + 3);
    EXPECT_EQ(bytes_of_floats(stored), bytes.substr(place_of(bytes, "archive/data/0"), 64));
}

TEST_F(torch_copy, IsNotLeftBehindByAnError)
{
    write_pt(from, dict({{text("param"), tensor(contiguous({30}))}}), {bytes_of_floats(counted(30))});
    given g = {counted(30), 0, 12};
    fault f = {""};
    EXPECT_FALSE(copy(&g, &f));
    EXPECT_STREQ("no element 12", f.text);
    EXPECT_NE(0, access(to.c_str(), F_OK));
    given good = {counted(30)};
    EXPECT_TRUE(copy(&good, &f)) << f.text;
    given again = {counted(30)};
    EXPECT_FALSE(copy(&again, &f)); // the file is there
    EXPECT_NE(nullptr, strstr(f.text, "cannot create")) << f.text;
}

TEST_F(torch_copy, EndsBetweenEntriesWhenItIsToldTo)
{
    write_pt(from, dict({{text("param"), tensor(contiguous({30}))}}), {bytes_of_floats(counted(30))});
    fault f = {""};
    stops = [] { return true; };
    EXPECT_FALSE(copy(nullptr, &f));
    EXPECT_NE(nullptr, strstr(f.text, "interrupted")) << f.text;
    EXPECT_NE(0, access(to.c_str(), F_OK));
    stops = [] { return false; };
    EXPECT_TRUE(copy(nullptr, &f)) << f.text;
}

TEST_F(torch_copy, NeedsElementsOfFp32)
{
    tensor_words words = contiguous({2});
    words.storage = "BFloat16Storage";
    write_pt(from, dict({{text("param"), tensor(words)}}), {"abcd"});
    given g = {counted(2)};
    fault f = {""};
    EXPECT_FALSE(copy(&g, &f));
    EXPECT_NE(nullptr, strstr(f.text, "only contiguous float32")) << f.text;
    words = contiguous({2, 2});
    words.strides = {1, 2};
    write_pt(from, dict({{text("param"), tensor(words)}}), {bytes_of_floats(counted(4))});
    EXPECT_FALSE(copy(&g, &f));
    EXPECT_NE(nullptr, strstr(f.text, "only contiguous float32")) << f.text;
}

// Entries from 4 GiB on have another header. Two such files take 9 GB, so that only full runs have the room.
TEST_F(torch_copy, HasEntriesBeyond4GiB)
{
    if (!zoff_test::is_full_run())
        GTEST_SKIP() << "only scripts/test --full writes 9 GB";
    const size_t rows = 1 << 15, count = rows * ((1 << 15) + 32);
    tensor_words words = contiguous({rows, (1 << 15) + 32});
    int code;
    zip_t *zip = zip_open(from.c_str(), ZIP_CREATE, &code);
    const std::string root = pickled(dict({{text("param"), tensor(words)}}));
    const zip_int64_t pickle = zip_file_add(zip, "archive/data.pkl", zip_source_buffer(zip, root.data(), root.size(), 0), 0);
    zip_set_file_compression(zip, (zip_uint64_t)pickle, ZIP_CM_STORE, 0);
    size_t left = count * 4;
    const auto zeros = [](void *ctx, void *data, zip_uint64_t bytes, zip_source_cmd_t command) -> zip_int64_t {
        size_t *rest = (size_t *)ctx;
        if (command == ZIP_SOURCE_SUPPORTS)
            return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
                                                  ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
        if (command == ZIP_SOURCE_STAT)
            zip_stat_init((zip_stat_t *)data);
        if (command != ZIP_SOURCE_READ)
            return 0;
        const size_t now = std::min((size_t)bytes, *rest);
        memset(data, 0, now);
        *rest -= now;
        return (zip_int64_t)now;
    };
    const zip_int64_t index = zip_file_add(zip, "archive/data/0", zip_source_function(zip, zeros, &left), 0);
    zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
    ASSERT_EQ(0, zip_close(zip));
    const pt t = open_pt(from);
    ASSERT_TRUE(t);
    torch_tensor found;
    fault f = {""};
    ASSERT_TRUE(torch_file_tensor(t.get(), pickle_find(torch_file_root(t.get()), "param"), &found, &f)) << f.text;
    const auto indexes = [](void *, size_t first, size_t n, float *dst, fault *) {
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)((first + i) >> 8);
        return true;
    };
    const torch_change change = {nullptr, 0, &found, indexes, nullptr};
    ASSERT_TRUE(torch_file_copy(t.get(), to.c_str(), &change, &f)) << f.text;
    std::string head(4096, 0);
    std::ifstream(to, std::ios::binary).read(head.data(), (std::streamsize)head.size());
    EXPECT_EQ(0u, place_of(head, "archive/data/0") % 64);
    const pt copy = open_pt(to);
    ASSERT_TRUE(torch_file_tensor(copy.get(), pickle_find(torch_file_root(copy.get()), "param"), &found, &f)) << f.text;
    ASSERT_TRUE(torch_file_begin(copy.get(), &found, &f)) << f.text;
    std::vector<float> block(1 << 20);
    for (size_t first = 0; first < count; first += block.size()) {
        const size_t now = std::min(block.size(), count - first);
        ASSERT_TRUE(torch_file_next(copy.get(), now, block.data(), &f)) << f.text;
        ASSERT_EQ((float)(first >> 8), block[0]);
        ASSERT_EQ((float)((first + now - 1) >> 8), block[now - 1]);
    }
}
