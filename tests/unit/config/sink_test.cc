// sink_test.cc: text that grows in a buffer: characters that do not fit are counted, and the text in the buffer always has an
// end.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
}

TEST(config_sink, text_that_fits_is_written_and_all_is_counted)
{
    const std::string whole = "one, 2, three";
    for (size_t room = 0; room <= whole.size() + 2; room++) {
        char text[32];
        memset(text, '?', sizeof text);
        zoff_config_sink sink = {text, room, 0};
        zoff_config_sink_add(&sink, "%s, ", "one");
        zoff_config_sink_add(&sink, "%s", "");
        zoff_config_sink_add(&sink, "%d, ", 2);
        zoff_config_sink_add(&sink, "three");
        EXPECT_EQ(whole.size(), sink.used) << room;
        if (room) {
            EXPECT_EQ(whole.substr(0, room - 1), text) << room;
        }
        EXPECT_EQ('?', text[room]) << "behind the end of the buffer of " << room;
    }
}

TEST(config_sink, without_a_buffer_it_only_counts)
{
    zoff_config_sink sink = {};
    zoff_config_sink_add(&sink, "%05d", 7);
    zoff_config_sink_add(&sink, "%c", 0);
    EXPECT_EQ(6u, sink.used) << "a zero byte counts, too";
}
