/* SPDX-License-Identifier: Apache-2.0 */
// program_bytes_test.cc: the block of the program's bytes and the loss scale: what goes in comes out, on the rank that needs
// it, and a block that does not fit its table is refused.
#include "small_model.h"

extern "C" {
#include "mem.h"
}

#include <string.h>

#include <random>

using namespace zoff_test;

namespace
{
class ProgramBytes : public testing::Test
{
  protected:
    ProgramBytes()
    {
        EXPECT_ZOFF_OK(zoff_base_mem_alloc(ZOFF_PROGRAM_BYTES_MOST, 1, "the block", &one.block));
        EXPECT_ZOFF_OK(zoff_base_mem_alloc(ZOFF_PROGRAM_BYTES_MOST, 1, "the block", &next.block));
        scaler.struct_size = sizeof scaler;
        scaler.scale = 512;
        scaler.iterations = 9;
        scaler.last_overflow = 4;
        scaler.hysteresis = 2;
    }
    ~ProgramBytes()
    {
        zoff_model_program_bytes_close(&one);
        zoff_model_program_bytes_close(&next);
    }
    zoff_checkpoint_data entry(const char *name, std::string &bytes, bool each_rank = false)
    {
        return {name, &bytes[0], bytes.size(), each_rank};
    }
    // Pack on a rank, and let the next engine take it.
    size_t pass(unsigned rank, const zoff_loss_scaler *with = nullptr, bool is_step = true, bool is_exact = false)
    {
        const size_t bytes = zoff_model_program_bytes_pack(&one, rank, with, is_exact, is_step);
        zoff_model_program_bytes_close(&next);
        EXPECT_ZOFF_OK(zoff_base_mem_alloc(ZOFF_PROGRAM_BYTES_MOST, 1, "the block", &next.block));
        EXPECT_ZOFF_OK(zoff_model_program_bytes_take(&next, one.block, bytes));
        return bytes;
    }

    zoff_program_bytes one = {}, next = {};
    zoff_loss_scaler scaler = {};
};

TEST_F(ProgramBytes, ComeBackByName)
{
    std::string position = "12345678", seed(5000, 'x'), none;
    const zoff_checkpoint_data list[] = {entry("position", position), entry("seed", seed, true), entry("none", none)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_check(list, 3));
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 3));
    EXPECT_LT(5008u, pass(0, &scaler));
    std::string position2(8, 0), seed2(5000, 0), new_one = "stays";
    const zoff_checkpoint_data other[] = {entry("new", new_one), entry("seed", seed2, true), entry("position", position2)};
    for (const bool dry : {true, false}) {
        ASSERT_ZOFF_OK(zoff_model_program_bytes_restore(&next, next.found, next.found_bytes, dry, other, 3));
        EXPECT_EQ(dry ? std::string(8, 0) : position, position2);
        EXPECT_EQ(dry ? std::string(5000, 0) : seed, seed2);
    }
    EXPECT_EQ("stays", new_one);
    zoff_loss_scaler found = {};
    ASSERT_TRUE(zoff_model_program_bytes_scaler(&next, &found));
    EXPECT_EQ(0, memcmp(&scaler, &found, sizeof found));
}

TEST_F(ProgramBytes, EntriesAreReadOneByOne)
{
    std::string position = "12345678", none;
    const std::string longest(255, 'n');
    const zoff_checkpoint_data list[] = {entry("position", position), entry(longest.c_str(), none, true)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 2));
    pass(0, &scaler);
    size_t at = 0;
    zoff_program_entry e;
    ASSERT_TRUE(zoff_model_program_bytes_next(next.found, next.found_bytes, &at, &e));
    EXPECT_STREQ("position", e.name);
    EXPECT_FALSE(e.each_rank);
    EXPECT_EQ(position, std::string(e.bytes, e.count));
    ASSERT_TRUE(zoff_model_program_bytes_next(next.found, next.found_bytes, &at, &e));
    EXPECT_EQ(longest, e.name);
    EXPECT_TRUE(e.each_rank);
    EXPECT_EQ(0u, e.count);
    EXPECT_FALSE(zoff_model_program_bytes_next(next.found, next.found_bytes, &at, &e));
    at = 0;
    EXPECT_FALSE(zoff_model_program_bytes_next(nullptr, 0, &at, &e)) << "no block";
}

// Rank 1 packs only what each rank has; the rest comes from the block of rank 0. A name counts with its kind.
TEST_F(ProgramBytes, SharedOnesAreThoseOfRank0)
{
    std::string shared = "of all", own = "mine";
    const zoff_checkpoint_data list[] = {entry("shared", shared), entry("own", own, true)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 2));
    const size_t bytes0 = zoff_model_program_bytes_pack(&one, 0, nullptr, false, true);
    const std::string block0(one.block, bytes0);
    own = "hers";
    pass(1);
    size_t count = 7;
    EXPECT_EQ(nullptr, zoff_model_program_bytes_find(next.found, next.found_bytes, "shared", false, &count));
    EXPECT_EQ(nullptr, zoff_model_program_bytes_find(next.found, next.found_bytes, "own", false, &count));
    EXPECT_EQ(7u, count);
    shared = "??????";
    own = "????";
    ASSERT_ZOFF_OK(zoff_model_program_bytes_restore(&next, block0.data(), block0.size(), false, list, 2));
    EXPECT_EQ("of all", shared);
    EXPECT_EQ("hers", own);
}

TEST_F(ProgramBytes, AnotherSizeIsRefusedWithBoth)
{
    std::string three = "abc", five = "12345";
    const zoff_checkpoint_data before[] = {entry("a", three)}, after[] = {entry("a", five)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, before, 1));
    pass(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "\"a\" has 3 bytes in the state files, and 5 in the list",
                      zoff_model_program_bytes_restore(&next, next.found, next.found_bytes, false, after, 1));
    EXPECT_EQ("12345", five);
}

TEST_F(ProgramBytes, ListsThatContradictThemselvesAreRefused)
{
    std::string bytes = "abc", large(ZOFF_PROGRAM_BYTES_MOST - 48 - 16 - 1, 'l'), name(256, 'n');
    zoff_checkpoint_data list[] = {entry("a", bytes), entry("a", bytes)};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "\"a\" is in the list twice", zoff_model_program_bytes_check(list, 2));
    list[1].name = "";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "entry 1 has no name", zoff_model_program_bytes_check(list, 2));
    list[1].name = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "entry 1 has no name", zoff_model_program_bytes_check(list, 2));
    list[1].name = name.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has 256 bytes, and may have 255", zoff_model_program_bytes_check(list, 2));
    list[1].name = name.c_str() + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "overlap in memory", zoff_model_program_bytes_check(list, 2));
    list[1].bytes = large.data();
    EXPECT_ZOFF_OK(zoff_model_program_bytes_check(list, 2));
    list[1].bytes = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has 3 bytes, but its pointer is NULL", zoff_model_program_bytes_check(list, 2));
    list[1].count = 0;
    EXPECT_ZOFF_OK(zoff_model_program_bytes_check(list, 2));
    // The limit holds to the byte.
    list[0] = entry("l", large);
    EXPECT_ZOFF_OK(zoff_model_program_bytes_check(list, 1));
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 1));
    EXPECT_EQ((size_t)ZOFF_PROGRAM_BYTES_MOST, pass(0));
    for (const size_t count : {large.size() + 1, SIZE_MAX}) {
        list[0].count = count;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "more than the 65536 bytes that a commit records",
                          zoff_model_program_bytes_check(list, 1));
    }
}

TEST_F(ProgramBytes, NothingToRecordIsNoBlock)
{
    EXPECT_EQ(0u, zoff_model_program_bytes_pack(&one, 0, nullptr, false, true));
    EXPECT_EQ(48u, zoff_model_program_bytes_pack(&one, 0, &scaler, false, true)) << "the scale alone";
    zoff_loss_scaler found = {};
    EXPECT_FALSE(zoff_model_program_bytes_scaler(&next, &found));
    EXPECT_ZOFF_OK(zoff_model_program_bytes_take(&next, nullptr, 0));
}

// Readers of the first format take any fact for a loss scale, so a block with another fact has a format of its own.
TEST_F(ProgramBytes, TheRuleOfSumsComesBack)
{
    uint32_t format;
    zoff_loss_scaler found = {};
    for (const bool scales : {false, true}) {
        EXPECT_EQ(48u, pass(1, scales ? &scaler : nullptr, true, true));
        EXPECT_TRUE(zoff_model_program_bytes_exact_sums(&next));
        EXPECT_EQ(scales, zoff_model_program_bytes_scaler(&next, &found));
        memcpy(&format, one.block, sizeof format);
        EXPECT_EQ(2u, format);
    }
    pass(1, &scaler);
    EXPECT_FALSE(zoff_model_program_bytes_exact_sums(&next));
    memcpy(&format, one.block, sizeof format);
    EXPECT_EQ(1u, format);
    EXPECT_FALSE(zoff_model_program_bytes_exact_sums(&one)) << "it has found nothing";
}

// A commit between two steps, before the program has given its list, must not lose what was found. An update does not carry
// bytes of an older one.
TEST_F(ProgramBytes, FoundBytesStayUntilAnUpdate)
{
    std::string bytes = "abc";
    const zoff_checkpoint_data list[] = {entry("a", bytes)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 1));
    pass(0, &scaler);
    zoff_loss_scaler other = scaler, found = {};
    other.scale = 2;
    const size_t again = zoff_model_program_bytes_pack(&next, 0, &other, false, false);
    ASSERT_ZOFF_OK(zoff_model_program_bytes_take(&one, next.block, again));
    size_t count;
    EXPECT_NE(nullptr, zoff_model_program_bytes_find(one.found, one.found_bytes, "a", false, &count));
    ASSERT_TRUE(zoff_model_program_bytes_scaler(&one, &found));
    EXPECT_EQ(2, found.scale) << "the scale is the present one";
    EXPECT_EQ(48u, zoff_model_program_bytes_pack(&next, 0, &other, false, true));
    zoff_model_program_bytes_committed(&next, false);
    EXPECT_NE(0u, next.found_bytes);
    zoff_model_program_bytes_committed(&next, true);
    EXPECT_EQ(0u, zoff_model_program_bytes_pack(&next, 0, nullptr, false, false));
    // A list of the program replaces what was found, also an empty list.
    pass(0);
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&next, nullptr, 0));
    EXPECT_EQ(0u, zoff_model_program_bytes_pack(&next, 0, nullptr, false, false));
}

TEST_F(ProgramBytes, AnotherBlockStandsForTheFoundOneUntilItIsPutBack)
{
    std::string found = "abc", loaded = "xy", shared = "s", large(ZOFF_PROGRAM_BYTES_MOST, 'l');
    const std::string longest(256, 'n');
    const zoff_checkpoint_data list[] = {entry("a", found)};
    const zoff_checkpoint_data others[] = {entry("large", large), entry(longest.c_str(), loaded, true),
                                           entry("a", loaded, true), entry("s", shared)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 1));
    pass(0, &scaler);
    size_t count = 0;
    zoff_program_found before;
    ASSERT_ZOFF_OK(zoff_model_program_bytes_replace(&next, 1, others, 4, &before));
    const size_t bytes = zoff_model_program_bytes_pack(&next, 1, nullptr, false, false);
    EXPECT_EQ(nullptr, zoff_model_program_bytes_find(next.block, bytes, "a", false, &count)) << "what seal found";
    const char *a = zoff_model_program_bytes_find(next.block, bytes, "a", true, &count);
    ASSERT_NE(nullptr, a);
    EXPECT_EQ(loaded, std::string(a, count));
    EXPECT_EQ(nullptr, zoff_model_program_bytes_find(next.block, bytes, "s", false, &count)) << "those of rank 0";
    EXPECT_EQ(nullptr, zoff_model_program_bytes_find(next.block, bytes, "large", false, &count));
    zoff_model_program_bytes_put_back(&next, &before);
    EXPECT_NE(nullptr, zoff_model_program_bytes_find(next.found, next.found_bytes, "a", false, &count));
    ASSERT_ZOFF_OK(zoff_model_program_bytes_replace(&next, 1, others, 1, &before));
    EXPECT_EQ(0u, zoff_model_program_bytes_pack(&next, 1, nullptr, false, false)) << "nothing fits";
    zoff_base_mem_free(before.block);
}

TEST_F(ProgramBytes, ADamagedBlockIsNeverReadBeyondItsEnd)
{
    std::string a = "abc", b(100, 'b');
    const zoff_checkpoint_data list[] = {entry("first", a), entry("second", b, true)};
    ASSERT_ZOFF_OK(zoff_model_program_bytes_set(&one, list, 2));
    const std::string good(one.block, pass(0, &scaler));
    for (size_t cut = 1; cut < good.size(); cut++) {
        // memory of its own, so that a read beyond it is seen
        const std::vector<char> part(good.begin(), good.begin() + (long)cut);
        zoff_program_bytes p = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "do not fit their table", zoff_model_program_bytes_take(&p, part.data(), cut));
    }
    std::mt19937 random(11);
    for (int i = 0; i < 2000; i++) {
        std::vector<char> bad(good.begin(), good.end());
        bad[random() % bad.size()] ^= (char)(1 << random() % 8);
        zoff_program_bytes p = {};
        size_t count, at = 0;
        zoff_program_entry e;
        if (zoff_model_program_bytes_take(&p, bad.data(), bad.size()) == ZOFF_OK)
            (void)zoff_model_program_bytes_find(p.found, p.found_bytes, "nothing", true, &count);
        while (zoff_model_program_bytes_next(p.found, p.found_bytes, &at, &e))
            EXPECT_LE(strlen(e.name), 255u);
        zoff_model_program_bytes_close(&p);
    }
    std::string later = good;
    later[0] = 9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "in format 9, and this library reads formats up to 2",
                      zoff_model_program_bytes_take(&next, later.data(), later.size()));
}
} // namespace
