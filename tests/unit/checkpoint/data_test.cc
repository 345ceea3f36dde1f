/* SPDX-License-Identifier: Apache-2.0 */
// data_test.cc: lists of the program's own bytes that no checkpoint can hold.
#include "zoff_test.h"

extern "C" {
#include "checkpoint_priv.h"
}

using namespace zoff_test;

TEST(Data, ImpossibleListsAreRefused)
{
    uint64_t own = 1, position = 2, other = 3;
    const std::string longest(ZOFF_ARCHIVE_NAME_MOST, 'x'), longer = longest + "x";
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    const auto check = [&](const std::vector<zoff_checkpoint_data> &list) {
        opts.data = const_cast<zoff_checkpoint_data *>(list.data());
        opts.data_count = list.size();
        return zoff_checkpoint_data_check(&opts, "the_call");
    };
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
