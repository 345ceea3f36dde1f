/* SPDX-License-Identifier: Apache-2.0 */
// config_helpers.h: configurations from literal text, and the library's messages about them.
#ifndef CONFIG_HELPERS_H
#define CONFIG_HELPERS_H

#include "zoff_test.h"

extern "C" {
#include "config.h"
}

#include <fstream>
#include <sstream>

namespace config_test
{
// Parse `text` as "ds.json". After a failure the handle is empty, and *status and *words hold the error.
inline zoff_test::config parse(const std::string &text, zoff_status *status = nullptr, std::string *words = nullptr)
{
    zoff_config *config = nullptr;
    zoff_status result = zoff_test::config_from_text(text.data(), text.size(), "ds.json", &config);
    if (status)
        *status = result;
    else
        EXPECT_EQ(ZOFF_OK, result) << zoff_last_error() << "\nin " << text;
    if (words)
        *words = result < 0 ? zoff_last_error() : "";
    EXPECT_EQ(result == ZOFF_OK, config != nullptr) << "*out is written on success and only then";
    return zoff_test::config(config);
}

inline std::string error_of(const std::string &text, zoff_status expected = ZOFF_ERR_INVALID)
{
    zoff_status status;
    std::string words;
    parse(text, &status, &words);
    EXPECT_EQ(expected, status) << words << "\nin " << text;
    return words;
}

inline zoff_test::config resolved(const std::string &text, unsigned ranks = 1)
{
    zoff_test::config config = parse(text);
    if (config) {
        EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), ranks));
    }
    return config;
}

inline double number(const zoff_test::config &config, const char *key)
{
    double value = -12345;
    EXPECT_ZOFF_OK(zoff_config_number(config.get(), key, &value)) << key;
    return value;
}

inline std::string word(const zoff_test::config &config, const char *key)
{
    const char *value = nullptr;
    EXPECT_ZOFF_OK(zoff_config_string(config.get(), key, &value)) << key;
    return value ? value : "(null)";
}

inline zoff_config_values values(const zoff_test::config &config, unsigned ranks = 1)
{
    zoff_config_values out = {};
    EXPECT_ZOFF_OK(zoff_config_values_get(config.get(), ranks, &out));
    return out;
}

inline std::string dump(const zoff_test::config &config)
{
    size_t bytes = 0, again = 0;
    EXPECT_ZOFF_OK(zoff_config_dump(config.get(), nullptr, 0, &bytes));
    std::string text(bytes + 1, '?');
    EXPECT_ZOFF_OK(zoff_config_dump(config.get(), text.data(), text.size(), &again));
    EXPECT_EQ(bytes, again);
    EXPECT_EQ(0, text[bytes]);
    text.resize(bytes);
    return text;
}

inline std::string file_text(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// {"a": {"b": value}} for "a.b".
inline std::string nest(const std::string &path, const std::string &value)
{
    size_t dot = path.find('.');
    if (dot == std::string::npos)
        return "{\"" + path + "\": " + value + "}";
    return "{\"" + path.substr(0, dot) + "\": " + nest(path.substr(dot + 1), value) + "}";
}
} // namespace config_test

#endif
