/* SPDX-License-Identifier: Apache-2.0 */
// gpt_runs.h: a folder with a training text and the JSON files that runs of the example trainer write.
#ifndef ZOFF_TESTS_GPT_RUNS_H
#define ZOFF_TESTS_GPT_RUNS_H

#include "shell.h"
#include "zoff_test.h"

#include <fstream>
#include <sstream>

namespace zoff_test
{
inline std::string read_file(const std::string &path)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

inline void write_file(const std::string &path, const std::string &text)
{
    std::ofstream(path) << text;
}

class gpt_runs : public testing::Test
{
  protected:
    void SetUp() override
    {
        std::string text; // sentences made of a few words, so that a model can learn
        const char *const words[] = {"the ", "program ", "is ", "free ", "software ", "you ", "may ", "copy ", "it.\n", "and "};
        for (unsigned i = 0, state = 1; i < 4000; i++) {
            state = state * 1103515245u + 12345u;
            text += words[(state >> 16) % 10];
        }
        write_file(folder.file("text"), text);
    }

    // The text of the value of "key" in <name>.json.
    std::string value(const std::string &name, const std::string &key, const std::string &suffix = "")
    {
        const std::string json = read_file(folder.file(name + ".json" + suffix));
        const size_t at = json.find("\"" + key + "\": ");
        if (at == std::string::npos) {
            ADD_FAILURE() << name << suffix << " has no " << key;
            return "";
        }
        const size_t start = at + key.size() + 4;
        return json.substr(start,
                           json[start] == '[' ? json.find(']', start) + 1 - start : json.find_first_of(",\n", start) - start);
    }
    double number(const std::string &name, const std::string &key, const std::string &suffix = "")
    {
        return strtod(value(name, key, suffix).c_str(), nullptr);
    }
    std::vector<double> numbers(const std::string &name, const std::string &key, const std::string &suffix = "")
    {
        std::vector<double> list;
        std::stringstream text(value(name, key, suffix));
        text.get();
        for (std::string word; std::getline(text, word, ',');)
            list.push_back(strtod(word.c_str(), nullptr));
        return list;
    }

    scratch_folder folder;
};
} // namespace zoff_test

#endif
