// data_test.cc: the program's own bytes in a checkpoint: what is refused, what each rank gets, and what a failed load puts
// back.
#include "memory_fault.h"
#include "small_save.h"

using namespace zoff_test;

namespace
{
class Data : public testing::Test
{
  protected:
    // Each rank saves its number and a text; rank 0 saves a position, and nothing under a name.
    void save(unsigned ranks)
    {
        rank_job job(ranks);
        rank_trainers all(job, 1, [](trainer &t) { t.add(100, 1, ZOFF_F32, ZOFF_F32); });
        all.seal(config_text(""), 0);
        job.on_each([&](unsigned rank) {
            uint64_t number = 100 + rank, place = 77 + rank;
            zoff_checkpoint_data data[] = {
                {"own", &number, 8, true}, {"position", &place, 8, false}, {"none", nullptr, 0, false}};
            zoff_checkpoint_opts saved = ZOFF_CHECKPOINT_OPTS_INIT;
            saved.data = data;
            saved.data_count = 3;
            EXPECT_ZOFF_OK(zoff_checkpoint_save(all.engines[rank].get(), folder.path.c_str(), &saved));
        });
        a = open_archive(folder.path);
        ASSERT_NE(nullptr, a);
    }
    zoff_checkpoint_opts *ask(const std::vector<zoff_checkpoint_data> &list)
    {
        asked = list;
        opts.data = asked.data();
        opts.data_count = asked.size();
        return &opts;
    }
    zoff_status check(const std::vector<zoff_checkpoint_data> &list)
    {
        return zoff_checkpoint_data_check(ask(list), "the_call");
    }

    log_catcher log;
    scratch_folder folder;
    archive a;
    std::vector<zoff_checkpoint_data> asked;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    uint64_t own = 1, position = 2, other = 3;
};

TEST_F(Data, ImpossibleListsAreRefused)
{
    const std::string longest(ZOFF_ARCHIVE_NAME_MOST, 'x'), longer = longest + "x";
    EXPECT_ZOFF_OK(check({}));
    EXPECT_ZOFF_OK(check({{"a", &own, 8, true}, {"b", nullptr, 0, false}, {longest.c_str(), &other, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: data 'a' and 'b' overlap in memory",
                      check({{"a", &own, 8, true}, {"b", (char *)&own + 7, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: data 0 needs a name of 1 to 255 bytes", check({{nullptr, &own, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: data 1 needs a name", check({{"a", &own, 8, false}, {"", &own, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "data 0 needs a name", check({{longer.c_str(), &own, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: the bytes of data 'a' are NULL", check({{"a", nullptr, 8, false}}));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: there are two data 'b'",
                      check({{"a", &own, 8, false}, {"b", &position, 8, false}, {"b", &other, 8, true}}));
    opts.data = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the_call: data must not be NULL where data_count is 3",
                      zoff_checkpoint_data_check(&opts, "the_call"));
}

TEST_F(Data, EachRankReadsItsOwn)
{
    save(3);
    for (unsigned rank = 0; rank < 3; rank++) {
        own = position = 0;
        ask({{"position", &position, 8, false}, {"own", &own, 8, true}, {"none", nullptr, 0, false}});
        ASSERT_ZOFF_OK(zoff_checkpoint_data_match(&opts, a.get(), rank, 3));
        ASSERT_ZOFF_OK(zoff_checkpoint_data_read(&opts, a.get(), rank, 3));
        EXPECT_EQ(100u + rank, own);
        EXPECT_EQ(77u, position) << "of rank 0";
    }
}

// Regions of data have units, and a region may be larger than the data in it.
TEST_F(Data, ManyUnitsAreRead)
{
    const std::vector<size_t> sizes = {ZOFF_ARCHIVE_UNIT - 1, ZOFF_ARCHIVE_UNIT, ZOFF_ARCHIVE_UNIT + 1, 10 << 20};
    std::vector<std::vector<char>> bytes, got;
    std::vector<zoff_checkpoint_data> list;
    const char *const names[] = {"a", "b", "c", "d"};
    trainer t(1);
    t.add(100, 1, ZOFF_F32, ZOFF_F32);
    const engine e = make_engine(t, config_text(""));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (size_t i = 0; i < sizes.size(); i++) {
        bytes.emplace_back(sizes[i]);
        got.emplace_back(sizes[i], 1);
        for (size_t k = 0; k < sizes[i]; k++)
            bytes[i][k] = (char)((k + i) * 2654435761u >> 13);
        list.push_back({names[i], bytes[i].data(), sizes[i], false});
    }
    ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folder.path.c_str(), ask(list)));
    for (size_t i = 0; i < sizes.size(); i++)
        list[i].bytes = got[i].data();
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), folder.path.c_str(), ask(list)));
    for (size_t i = 0; i < sizes.size(); i++)
        EXPECT_TRUE(bytes[i] == got[i]) << sizes[i];
    a = open_archive(folder.path);
    a->tables[0].items[3].count = 8; // as a file of another writer may say
    ASSERT_ZOFF_OK(zoff_checkpoint_data_read(ask({{"d", &own, 8, false}}), a.get(), 0, 1));
    EXPECT_EQ(0, memcmp(&own, bytes[3].data(), 8));
}

TEST_F(Data, ACheckpointWithoutThemIsRefused)
{
    save(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no data 'seed'",
                      zoff_checkpoint_data_match(ask({{"seed", &own, 8, false}}), a.get(), 0, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the data 'position' has 8 bytes in the checkpoint",
                      zoff_checkpoint_data_match(ask({{"position", &position, 4, false}}), a.get(), 0, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "and 1 in zoff_checkpoint_opts.data",
                      zoff_checkpoint_data_match(ask({{"none", &other, 1, false}}), a.get(), 0, 1));
    EXPECT_ZOFF_OK(zoff_checkpoint_data_match(ask({}), a.get(), 0, 1)) << "others of the checkpoint do not matter";
}

// With data_found a list may ask for more than there is.
TEST_F(Data, BytesThatAreMissingStayAndAreTold)
{
    bool found[4] = {};
    save(2);
    opts.data_found = found;
    ask({{"seed", &other, 8, false}, {"position", &position, 8, false}, {"own", &own, 8, true}, {"none", nullptr, 0, false}});
    for (const unsigned ranks : {2u, 3u}) {
        for (unsigned rank = 0; rank < ranks; rank++) {
            own = position = 1;
            ASSERT_ZOFF_OK(zoff_checkpoint_data_match(&opts, a.get(), rank, ranks));
            ASSERT_ZOFF_OK(zoff_checkpoint_data_read(&opts, a.get(), rank, ranks));
            zoff_checkpoint_data_tell(&opts, a.get(), rank, ranks);
            EXPECT_EQ(3u, other);
            EXPECT_EQ(77u, position);
            EXPECT_EQ(ranks == 2 ? 100u + rank : 1u, own) << "other ranks: it belongs to nobody here";
            EXPECT_FALSE(found[0]);
            EXPECT_TRUE(found[1]);
            EXPECT_EQ(ranks == 2, found[2]);
            EXPECT_TRUE(found[3]);
        }
    }
    ask({{"position", &position, 4, false}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the data 'position' has 8 bytes", zoff_checkpoint_data_match(&opts, a.get(), 0, 2));
}

// Also on a rank that the checkpoint does not have.
TEST_F(Data, DataOfEachRankNeedsAsManyRanks)
{
    save(2);
    for (unsigned ranks : {1u, 3u}) {
        for (unsigned rank = 0; rank < ranks; rank++) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              "the data 'own' belongs to each of 2 ranks, and " + std::to_string(ranks) + " ranks load",
                              zoff_checkpoint_data_match(ask({{"own", &own, 8, true}}), a.get(), rank, ranks));
            EXPECT_ZOFF_OK(zoff_checkpoint_data_match(ask({{"position", &position, 8, false}}), a.get(), rank, ranks));
        }
    }
}

TEST_F(Data, DamagedBytesAreNamedAndNotHandedOut)
{
    save(1);
    uint32_t file = 9;
    const zoff_archive_item *item = zoff_archive_item_find(a.get(), "position", 0, &file);
    ASSERT_NE(nullptr, item);
    flip_byte(path_of(a.get(), file), a->tables[file].regions[item->region].offset);
    ask({{"own", &own, 8, true}, {"position", &position, 8, false}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "the program's data 'position'", zoff_checkpoint_data_read(&opts, a.get(), 0, 1));
    EXPECT_EQ(2u, position);
    EXPECT_EQ(100u, own) << "the list is read in its order: the caller restores it";
}

TEST_F(Data, AKeptCopyRestoresTheList)
{
    char *kept = nullptr;
    ask({{"own", &own, 8, true}, {"none", nullptr, 0, false}, {"position", &position, 8, false}});
    ASSERT_ZOFF_OK(zoff_checkpoint_data_keep(&opts, &kept));
    own = position = 55;
    zoff_checkpoint_data_restore(&opts, kept);
    zoff_base_mem_free(kept);
    EXPECT_EQ(1u, own);
    EXPECT_EQ(2u, position);
    ask({});
    ASSERT_ZOFF_OK(zoff_checkpoint_data_keep(&opts, &kept));
    zoff_checkpoint_data_restore(&opts, kept);
    zoff_base_mem_free(kept);
}

TEST_F(Data, WithoutMemory)
{
    save(1);
    ask({{"own", &own, 8, true}, {"position", &position, 8, false}});
    EXPECT_LE(2, fail_each_allocation([&] { return zoff_checkpoint_data_read(&opts, a.get(), 0, 1); }));
    EXPECT_EQ(1, fail_each_allocation([&] {
                  char *kept = nullptr;
                  const zoff_status status = zoff_checkpoint_data_keep(&opts, &kept);
                  zoff_base_mem_free(kept);
                  return status;
              }));
}
} // namespace
