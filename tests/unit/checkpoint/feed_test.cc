/* SPDX-License-Identifier: Apache-2.0 */
// feed_test.cc: moments that change their format come in any portions, and end as if they had come at once.
#include "random.h"
#include "zoff_test.h"

extern "C" {
#include "checkpoint_priv.h"
}

using namespace zoff_test;

namespace
{
const unsigned FORMATS[] = {ZOFF_ARCHIVE_F32, ZOFF_ARCHIVE_BF16, ZOFF_ARCHIVE_M8, ZOFF_ARCHIVE_V8};

bool fits(unsigned format, zoff_moment which)
{
    return format != (which == ZOFF_MOMENT_M ? ZOFF_ARCHIVE_V8 : ZOFF_ARCHIVE_M8);
}

std::vector<char> stored(unsigned format, zoff_moment which, const std::vector<float> &numbers)
{
    std::vector<char> bytes(zoff_archive_table_bytes_of(format, numbers.size()));
    const zoff_moments moments = zoff_archive_table_block(format) != 1 ? ZOFF_MOMENTS_Q8
                                 : format == ZOFF_ARCHIVE_F32          ? ZOFF_MOMENTS_F32
                                                                       : ZOFF_MOMENTS_BF16;
    zoff_adam_moments_store(moments, which, bytes.data(), numbers.size(), 0, numbers.size(), numbers.data());
    return bytes;
}

TEST(Feed, PortionsOfAnySizeGiveTheSameBytes)
{
    fast_random random(3);
    const size_t count = 3000; // two blocks and a part
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        std::vector<float> numbers(count), seen(count);
        for (float &x : numbers)
            x = random.normal() * (which == ZOFF_MOMENT_M ? 1.0f : 0.0f) + 2;
        for (const unsigned from : FORMATS) {
            const std::vector<char> source = stored(from, which, numbers);
            zoff_archive_table_load(from, source.data(), 0, count, seen.data());
            for (const unsigned to : FORMATS) {
                if (!fits(from, which) || !fits(to, which))
                    continue;
                const std::vector<char> want = stored(to, which, seen);
                for (const size_t portion : {1, 7, 1024, 1088, 4096, 100000}) {
                    std::vector<char> got(want.size());
                    auto feed = std::make_unique<zoff_block_feed>();
                    feed->from = from;
                    feed->to = to;
                    feed->count = feed->room = count;
                    feed->dst = got.data();
                    for (size_t at = 0; at < source.size(); at += portion)
                        ASSERT_ZOFF_OK(
                            zoff_checkpoint_feed_take(feed.get(), source.data() + at, std::min(portion, source.size() - at)));
                    EXPECT_EQ(count, feed->done);
                    EXPECT_EQ(want, got) << from << " to " << to << " by " << portion;
                }
            }
        }
    }
}

// A block that is there in part is stored again with its other elements as they were.
TEST(Feed, APartOfABlockLeavesTheRest)
{
    fast_random random(4);
    const size_t room = 3000, count = 1500;
    std::vector<float> before(room), numbers(count), merged(room);
    for (float &x : before)
        x = random.normal();
    for (float &x : numbers)
        x = random.normal() * 8;
    for (const unsigned from : {ZOFF_ARCHIVE_F32, ZOFF_ARCHIVE_M8}) {
        std::vector<char> got = stored(ZOFF_ARCHIVE_M8, ZOFF_MOMENT_M, before);
        const std::vector<char> source = stored(from, ZOFF_MOMENT_M, numbers);
        zoff_archive_table_load(ZOFF_ARCHIVE_M8, got.data(), 0, room, merged.data());
        zoff_archive_table_load(from, source.data(), 0, count, merged.data());
        const std::vector<char> want = stored(ZOFF_ARCHIVE_M8, ZOFF_MOMENT_M, merged);
        const size_t whole = zoff_archive_table_bytes_of(ZOFF_ARCHIVE_M8, 2048), all = got.size();
        const std::vector<char> last(got.begin() + (long)whole, got.end());
        auto feed = std::make_unique<zoff_block_feed>();
        feed->from = from;
        feed->to = ZOFF_ARCHIVE_M8;
        feed->count = count;
        feed->room = room;
        feed->dst = got.data();
        ASSERT_ZOFF_OK(zoff_checkpoint_feed_take(feed.get(), source.data(), source.size()));
        EXPECT_EQ(0, memcmp(want.data(), got.data(), whole)) << from;
        EXPECT_EQ(0, memcmp(last.data(), got.data() + whole, all - whole)) << from;
    }
}

// Such a number is rare, but legal in fp32. In a block it would stop 1,024 weights. An infinite v that a step leaves as an
// outlier arrives as one.
TEST(Feed, ANumberThatABlockCannotStoreIsRefused)
{
    for (const auto &[odd, times] : {std::pair<float, size_t>{INFINITY, 1}, {INFINITY, 10}, {INFINITY, 11}, {NAN, 1}}) {
        for (const unsigned to : FORMATS) {
            std::vector<float> numbers(3000, 1.0f), loaded(3000);
            for (size_t i = 0; i < times; i++)
                numbers[1500 + 50 * i] = odd;
            std::vector<char> got(zoff_archive_table_bytes_of(to, 3000));
            auto feed = std::make_unique<zoff_block_feed>();
            feed->name = "wte";
            feed->from = ZOFF_ARCHIVE_F32;
            feed->to = to;
            feed->count = feed->room = 3000;
            feed->dst = got.data();
            const char *source = (const char *)numbers.data();
            if (zoff_archive_table_block(to) == 1) {
                EXPECT_ZOFF_OK(zoff_checkpoint_feed_take(feed.get(), source, 12000));
            } else if (to == ZOFF_ARCHIVE_V8 && odd > 0 && times <= 10) {
                EXPECT_ZOFF_OK(zoff_checkpoint_feed_take(feed.get(), source, 12000));
                zoff_archive_table_load(to, got.data(), 0, 3000, loaded.data());
                EXPECT_EQ(numbers, loaded);
            } else {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "a moment of 'wte' in the checkpoint is",
                                  zoff_checkpoint_feed_take(feed.get(), source, 12000));
            }
        }
    }
}
} // namespace
