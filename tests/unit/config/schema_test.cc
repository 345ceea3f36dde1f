/* SPDX-License-Identifier: Apache-2.0 */
// schema_test.cc: the table itself: its rows are consistent, and every typing error in a key is caught.
#include "config_helpers.h"
#include "schema_rows.h"

#include <set>

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
std::string parent_of(const std::string &path)
{
    size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
}

TEST(config_schema, every_row_is_complete)
{
    std::set<std::string> seen;
    for (const auto *row : rows()) {
        SCOPED_TRACE(row->path);
        EXPECT_TRUE(seen.insert(row->path).second) << "twice";
        ASSERT_NE(nullptr, row->help);
        EXPECT_EQ(row->accepts != nullptr, row->why != nullptr);
        EXPECT_EQ(row->type == ZOFF_KEY_CHOICE, row->choices != nullptr);
        EXPECT_TRUE(row->class_ != ZOFF_CLASS_REFUSED || row->accepts);
        if (row->class_ == ZOFF_CLASS_ALIAS) {
            const zoff_config_key *target = zoff_config_schema_target(row);
            ASSERT_NE(nullptr, target);
            EXPECT_NE(ZOFF_CLASS_ALIAS, target->class_);
        }
        std::string section = parent_of(row->path);
        if (!section.empty()) {
            const zoff_config_key *parent = zoff_config_schema_find(section.c_str());
            ASSERT_NE(nullptr, parent) << "its section has no row";
            EXPECT_EQ(ZOFF_KEY_SECTION, parent->type);
        }
    }
}

TEST(config_schema, every_default_is_a_value_that_passes)
{
    for (const auto *row : rows()) {
        if (!row->fallback)
            continue;
        zoff_config_cell cell = {};
        ASSERT_ZOFF_OK(zoff_config_value_from_text(row, row->fallback, {"default", row->path}, &cell));
        EXPECT_TRUE(zoff_config_value_accepted(row, &cell)) << row->path;
        zoff_config_value_free(&cell);
    }
}

// A letter changed, dropped, added, swapped: never accepted, and the message names the right key, or one that is as near.
TEST(config_schema, every_key_with_one_letter_wrong_is_caught)
{
    zoff_test::log_catcher log;
    size_t tried = 0;
    for (const auto *row : rows()) {
        std::string path = row->path, section = parent_of(path),
                    word = section.empty() ? path : path.substr(section.size() + 1);
        std::set<std::string> slips;
        for (size_t i = 0; i < word.size(); i++) {
            std::string changed = word, dropped = word, doubled = word, swapped = word;
            changed[i] = changed[i] == 'q' ? 'z' : 'q';
            dropped.erase(i, 1);
            doubled.insert(i, 1, word[i]);
            if (i + 1 < word.size())
                std::swap(swapped[i], swapped[i + 1]);
            slips.insert({changed, dropped, doubled, swapped});
        }
        for (const std::string &slip : slips) {
            std::string full = section.empty() ? slip : section + "." + slip;
            if (slip.empty() || slip[0] == '_' || zoff_config_schema_find(full.c_str()))
                continue;
            tried++;
            zoff_status status;
            std::string words;
            parse(nest(full, "null"), &status, &words);
            const zoff_config_key *parent = section.empty() ? nullptr : zoff_config_schema_find(section.c_str());
            if (parent && parent->open) {
                log.expect("known keys that zoff ignores");
                EXPECT_EQ(ZOFF_OK, status) << full;
                continue;
            }
            ASSERT_EQ(ZOFF_ERR_INVALID, status) << full << " passed";
            size_t at = words.find("did you mean \"");
            if (zoff_config_schema_target(row)->class_ == ZOFF_CLASS_REFUSED && at == std::string::npos)
                continue; // a refused key is no remedy
            ASSERT_NE(std::string::npos, at) << words;
            std::string meant = words.substr(at + 14, words.rfind('"') - at - 14);
            std::string meant_word = meant.substr(meant.rfind('.') + 1);
            const zoff_config_key *named = zoff_config_schema_find(meant.c_str());
            ASSERT_NE(nullptr, named) << words;
            EXPECT_NE(ZOFF_CLASS_REFUSED, zoff_config_schema_target(named)->class_) << words;
            bool right = zoff_config_schema_target(row)->class_ == ZOFF_CLASS_REFUSED || meant == path ||
                         zoff_config_nearest_distance(slip.c_str(), meant_word.c_str()) <= 1;
            EXPECT_TRUE(right) << full << " should be " << path << ": " << words;
        }
    }
    EXPECT_GT(tried, 5000u);
}

// Refused keys: a value outside of `accepts` is refused in the file and through the API; those inside are accepted.
TEST(config_schema, every_refusal_refuses)
{
    size_t tried = 0;
    for (const auto *row : rows()) {
        if (!row->accepts)
            continue;
        SCOPED_TRACE(row->path);
        std::string bad;
        switch (row->type) {
        case ZOFF_KEY_ANY:
            bad = "{\"enabled\": true}";
            break;
        case ZOFF_KEY_BOOL:
            bad = strcmp(row->accepts, "true") == 0 ? "false" : "true";
            break;
        case ZOFF_KEY_CHOICE: {
            std::string choices = row->choices;
            bad = "\"" + choices.substr(choices.rfind('|') + 1) + "\"";
            break;
        }
        default:
            bad = row->ranged && row->max <= 3 && row->type == ZOFF_KEY_INTEGER ? "3" : row->max == 1 ? "0.5" : "7";
        }
        std::string words;
        tried++;
        words = error_of(nest(row->path, bad), ZOFF_ERR_UNSUPPORTED);
        EXPECT_NE(std::string::npos, words.find(row->path)) << words;
        EXPECT_NE(std::string::npos, words.find(row->why)) << words;
        auto config = parse("{}");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, row->why, zoff_config_set(config.get(), row->path, bad.c_str()));
        for (const char *fine : {"null", "\"auto\""})
            EXPECT_TRUE(parse(nest(row->path, fine))) << fine;
    }
    EXPECT_GE(tried, 28u);
}

TEST(config_schema, auto_and_null_are_legal_for_every_key)
{
    for (const auto *row : rows()) {
        for (const char *value : {"\"auto\"", "null"}) {
            zoff_test::log_catcher log;
            if (zoff_config_schema_target(row)->class_ == ZOFF_CLASS_IGNORED)
                log.expect("known keys that zoff ignores");
            auto config = parse(nest(row->path, value));
            ASSERT_TRUE(config) << row->path;
            EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 2));
        }
    }
}
} // namespace
