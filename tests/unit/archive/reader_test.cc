/* SPDX-License-Identifier: Apache-2.0 */
// reader_test.cc: the public calls that read a checkpoint.
#include "ranks.h"

using namespace zoff_test;

namespace
{
class reader : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(written.write(scratch.path));
        zoff_checkpoint_reader *opened = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &opened));
        r.reset(opened);
    }
    scratch_folder scratch;
    sample written;
    checkpoint_reader r;
};
} // namespace

TEST_F(reader, reads_any_range)
{
    std::vector<float> got(15001);
    for (const auto &range :
         std::vector<std::pair<size_t, size_t>>{{0, 0}, {0, 1}, {4999, 2}, {4990, 5020}, {14999, 1}, {15000, 0}}) {
        got.assign(got.size(), -1);
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_M, range.first, range.second, got.data()));
        for (size_t k = 0; k < range.second; k++)
            ASSERT_EQ(sample::value(0, 1, range.first + k), got[k]);
        ASSERT_EQ(-1.0f, got[range.second]);
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "outside", zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_M, 15001, 0, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "outside", zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_M, 1, 15000, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "outside",
                      zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_M, 1, SIZE_MAX, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no state",
                      zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_WEIGHTS, 0, 1, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no state",
                      zoff_checkpoint_reader_read(r.get(), 0, (zoff_state_kind)77, 0, 1, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 6",
                      zoff_checkpoint_reader_read(r.get(), 6, ZOFF_STATE_M, 0, 1, got.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "dst", zoff_checkpoint_reader_read(r.get(), 0, ZOFF_STATE_M, 0, 1, nullptr));
}

TEST_F(reader, describes_the_checkpoint)
{
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(r.get(), &info));
    const std::string folder = scratch.file("step-0000000012"), text = read_file(folder + "/manifest.json");
    EXPECT_EQ(folder, info.folder);
    EXPECT_EQ(16u, strlen(info.id));
    EXPECT_STREQ("", info.label);
    EXPECT_EQ(text.size() + read_file(part_in(folder)).size(), info.bytes);
    std::vector<char> copy(text.size() + 1);
    size_t bytes = 0;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_manifest(r.get(), copy.data(), copy.size(), &bytes));
    EXPECT_EQ(text, std::string(copy.data(), bytes));
    char some[5] = "xxxx";
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_manifest(r.get(), some, sizeof some, &bytes));
    EXPECT_EQ(text.substr(0, 4), some);
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_manifest(r.get(), nullptr, 0, &bytes));
    EXPECT_EQ(text.size(), bytes);
    info.struct_size = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "ZOFF_CHECKPOINT_INFO_INIT", zoff_checkpoint_reader_info(r.get(), &info));
    zoff_checkpoint_param param = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "ZOFF_CHECKPOINT_PARAM_INIT", zoff_checkpoint_reader_param(r.get(), 0, &param));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 6", zoff_checkpoint_reader_param(r.get(), 6, &param));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 'x'", zoff_checkpoint_reader_find(r.get(), "x", &bytes));
}

TEST_F(reader, shows_the_progress_of_verify)
{
    struct seen {
        uint64_t done = 0, total = 0;
        int calls = 0, most = 99;
    } all, one;
    const zoff_progress_fn note = [](const char *, uint64_t done, uint64_t total, void *ctx) {
        auto *s = static_cast<seen *>(ctx);
        EXPECT_GT(done, s->done);
        s->done = done;
        s->total = total;
        return ++s->calls < s->most;
    };
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_verify(r.get(), note, &all));
    EXPECT_EQ(5, all.calls);
    EXPECT_EQ(all.total, all.done);
    one.most = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "canceled", zoff_checkpoint_reader_verify(r.get(), note, &one));
    EXPECT_EQ(1, one.calls);
}

TEST(reader_of_ranks, joins_pieces_and_data_of_each)
{
    scratch_folder scratch;
    zoff_checkpoint_reader *opened = nullptr;
    ranks_checkpoint written(scratch.path, 5);
    ASSERT_ZOFF_OK(written.write());
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), "", &opened));
    checkpoint_reader r(opened);
    std::vector<float> got(5 * 1024);
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(opened, 0, ZOFF_STATE_MASTER, 0, got.size(), got.data()));
    for (size_t k = 0; k < got.size(); k++)
        ASSERT_EQ((float)(k / 1024), got[k]);
    for (size_t i = 0, own = 0; i < 6; i++) {
        unsigned rank = 9;
        zoff_checkpoint_data data;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_data_at(opened, i, &data, &rank));
        EXPECT_EQ(data.each_rank, std::string(data.name) == "rng");
        EXPECT_EQ(data.each_rank ? own : 0, rank) << data.name;
        own += data.each_rank;
    }
    for (unsigned rank = 0; rank < 5; rank++) {
        char data[32];
        size_t count = 0;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_data(opened, "rng", rank, data, sizeof data, &count));
        EXPECT_EQ("data of " + std::to_string(rank), std::string(data, count));
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_data(opened, "position", rank, data, sizeof data, &count));
        EXPECT_EQ("12", std::string(data, count));
    }
    char data[32];
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "of rank 5", zoff_checkpoint_reader_data(opened, "rng", 5, data, sizeof data, nullptr));
}
