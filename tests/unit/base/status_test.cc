/* SPDX-License-Identifier: Apache-2.0 */
// status_test.cc: names of statuses, the last error text of each thread, bits.h.
#include "zoff_test.h"

#include <errno.h>
#include <string.h>

#include <set>
#include <thread>

extern "C" {
#include "bits.h"
#include "try.h"
}

TEST(status, each_status_has_words_of_its_own)
{
    std::set<std::string> seen;
#define XX(name, value, text)                                                                                                  \
    EXPECT_EQ(value, ZOFF_##name);                                                                                             \
    EXPECT_STREQ(text, zoff_status_text(ZOFF_##name));                                                                         \
    EXPECT_TRUE(seen.insert(zoff_status_text(ZOFF_##name)).second) << text;
    ZOFF_STATUS_MAP(XX)
#undef XX
    EXPECT_STREQ("not a zoff status", zoff_status_text(static_cast<zoff_status>(-99)));
}

TEST(status, version_is_that_of_the_headers)
{
    EXPECT_EQ(ZOFF_VERSION_MAJOR * 10000u + ZOFF_VERSION_MINOR * 100u + ZOFF_VERSION_PATCH, zoff_version());
}

TEST(status, last_error_is_empty_before_a_failure)
{
    std::string text = "not asked";
    std::thread([&] { text = zoff_last_error(); }).join();
    EXPECT_EQ("", text);
}

TEST(status, fail_sets_the_text_and_returns_the_status)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "reading /x at 7 failed",
                      zoff_base_status_fail(ZOFF_ERR_IO, "reading %s at %d failed", "/x", 7));
    EXPECT_STREQ("reading /x at 7 failed", zoff_last_error());
}

TEST(status, each_thread_has_its_own_text)
{
    zoff_base_status_fail(ZOFF_ERR_IO, "here");
    std::string there;
    std::thread([&] {
        zoff_base_status_fail(ZOFF_ERR_STATE, "there");
        there = zoff_last_error();
    }).join();
    EXPECT_EQ("there", there);
    EXPECT_STREQ("here", zoff_last_error());
}

TEST(status, prefix_goes_in_front)
{
    zoff_base_status_fail(ZOFF_ERR_IO, "disk on fire");
    EXPECT_EQ(ZOFF_ERR_IO, zoff_base_status_prefix(ZOFF_ERR_IO, "while sealing %s: ", "run 3"));
    EXPECT_STREQ("while sealing run 3: disk on fire", zoff_last_error());
}

TEST(status, the_old_text_may_be_an_argument_of_the_new)
{
    zoff_base_status_fail(ZOFF_ERR_IO, "inner");
    zoff_base_status_fail(ZOFF_ERR_IO, "outer (%s)", zoff_last_error());
    EXPECT_STREQ("outer (inner)", zoff_last_error());
}

TEST(status, long_messages_are_cut_and_ended)
{
    const std::string many(5000, 'x');
    zoff_base_status_fail(ZOFF_ERR_INVALID, "%s", many.c_str());
    EXPECT_EQ(2047u, strlen(zoff_last_error()));
    EXPECT_EQ(many.substr(0, 2047), zoff_last_error());
    // A prefix pushes the end of the text out, and stays complete itself.
    zoff_base_status_prefix(ZOFF_ERR_INVALID, "front: ");
    EXPECT_EQ(2047u, strlen(zoff_last_error()));
    EXPECT_EQ("front: " + many.substr(0, 2040), zoff_last_error());
    // A prefix as long as the text leaves no room for the rest.
    zoff_base_status_prefix(ZOFF_ERR_INVALID, "%s", std::string(3000, 'y').c_str());
    EXPECT_EQ(std::string(2047, 'y'), zoff_last_error());
}

TEST(status, errno_words_are_the_systems)
{
    EXPECT_STREQ("No such file or directory", zoff_base_status_errno(ENOENT));
    EXPECT_NE(std::string(zoff_base_status_errno(12345)).find("12345"), std::string::npos);
}

static zoff_status tries(zoff_status inner)
{
    ZOFF_TRY(inner);
    return ZOFF_OK;
}

static zoff_status tries_and_undoes(zoff_status inner, bool *undone)
{
    zoff_status status = ZOFF_OK;
    ZOFF_TRY_OR(undo, inner);
    return ZOFF_OK;
undo:
    *undone = true;
    return status;
}

static zoff_status refuses(int value)
{
    ZOFF_FAIL_IF(value > 3, ZOFF_ERR_INVALID, "%d is more than 3", value);
    return ZOFF_OK;
}

TEST(status, macros_forward_and_decide)
{
    bool undone = false;
    EXPECT_EQ(ZOFF_ERR_COMM, tries(ZOFF_ERR_COMM));
    EXPECT_EQ(ZOFF_OK, tries(ZOFF_PENDING)) << "only negative values are errors";
    EXPECT_EQ(ZOFF_OK, tries_and_undoes(ZOFF_OK, &undone));
    EXPECT_FALSE(undone);
    EXPECT_EQ(ZOFF_ERR_IO, tries_and_undoes(ZOFF_ERR_IO, &undone));
    EXPECT_TRUE(undone);
    EXPECT_EQ(ZOFF_OK, refuses(3));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "4 is more than 3", refuses(4));
}

TEST(bits, rounding_and_checked_product)
{
    size_t product = 77;
    EXPECT_EQ(0u, zoff_base_bits_align(0, 4096));
    EXPECT_EQ(4096u, zoff_base_bits_align(1, 4096));
    EXPECT_EQ(4096u, zoff_base_bits_align(4096, 4096));
    EXPECT_EQ(9u, zoff_base_bits_align(7, 3));
    EXPECT_EQ(0u, zoff_base_bits_ceil_div(0, 7));
    EXPECT_EQ(2u, zoff_base_bits_ceil_div(8, 7));
    EXPECT_EQ(SIZE_MAX / 2 + 1, zoff_base_bits_ceil_div(SIZE_MAX, 2)) << "no overflow at the end of the range";
    EXPECT_EQ(3u, zoff_base_bits_min(3, 5));
    EXPECT_EQ(5u, zoff_base_bits_max(3, 5));
    EXPECT_TRUE(zoff_base_bits_mul(1u << 20, 1u << 20, &product));
    EXPECT_EQ(size_t{1} << 40, product);
    EXPECT_FALSE(zoff_base_bits_mul(SIZE_MAX, 2, &product));
}
