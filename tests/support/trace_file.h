/* SPDX-License-Identifier: Apache-2.0 */
// trace_file.h: a file of ZOFF_TRACE, parsed. A file that is no JSON object with a list of events has no events, and fails the
// test.
#ifndef ZOFF_TRACE_FILE_H
#define ZOFF_TRACE_FILE_H

#include "zoff_test.h"

#include <jansson.h>
#include <math.h>

#include <map>
#include <utility>

namespace zoff_test
{
struct trace_event {
    std::string phase, name, category, id;
    int64_t pid, tid, begin, end; // times are in ns
    int64_t step, bucket;         // -1: none
    std::string text;             // args.name
};

inline int64_t trace_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

inline std::string trace_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

inline std::vector<trace_event> read_trace(const std::string &path)
{
    std::vector<trace_event> events;
    json_error_t error;
    json_t *root = json_load_file(path.c_str(), JSON_REJECT_DUPLICATES, &error);
    EXPECT_TRUE(root) << path << ", line " << error.line << ": " << error.text;
    const json_t *list = json_object_get(root, "traceEvents");
    EXPECT_TRUE(json_is_array(list)) << path;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i), *args = json_object_get(e, "args");
        const auto ns = [e](const char *key) { return (int64_t)llround(1000 * json_number_value(json_object_get(e, key))); };
        events.push_back({trace_text(e, "ph"), trace_text(e, "name"), trace_text(e, "cat"), trace_text(e, "id"),
                          trace_number(e, "pid"), trace_number(e, "tid"), ns("ts"), ns("ts") + ns("dur"),
                          trace_number(args, "step"), trace_number(args, "bucket"), trace_text(args, "name")});
    }
    json_decref(root);
    return events;
}

inline size_t count_events(const std::vector<trace_event> &events, const std::string &phase, const std::string &name)
{
    size_t found = 0;
    for (const auto &e : events)
        found += e.phase == phase && e.name == name;
    return found;
}

// Spans of one track must nest, and each "b" needs an "e" of its id that is not before it.
inline void expect_sound_tracks(const std::vector<trace_event> &events)
{
    std::map<std::pair<int64_t, int64_t>, std::vector<trace_event>> tracks;
    std::map<std::string, int64_t> open;
    for (const auto &e : events) {
        if (e.phase == "X")
            tracks[{e.pid, e.tid}].push_back(e);
        if (e.phase == "b") {
            EXPECT_TRUE(open.emplace(e.id, e.begin).second) << e.name << ": two of id " << e.id;
        }
        if (e.phase != "e")
            continue;
        ASSERT_EQ(1u, open.count(e.id)) << e.name << " ends and did not begin";
        EXPECT_LE(open[e.id], e.begin) << e.name;
        open.erase(e.id);
    }
    EXPECT_TRUE(open.empty()) << open.size() << " did not end";
    for (auto &track : tracks) {
        std::vector<trace_event> &spans = track.second, within;
        std::stable_sort(spans.begin(), spans.end(), [](const trace_event &a, const trace_event &b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
        });
        for (const auto &e : spans) {
            while (!within.empty() && within.back().end <= e.begin)
                within.pop_back();
            if (!within.empty()) {
                EXPECT_LE(e.end, within.back().end) << e.name << " overlaps the end of " << within.back().name;
            }
            within.push_back(e);
        }
    }
}
} // namespace zoff_test

#endif
