/* SPDX-License-Identifier: Apache-2.0 */
// main.cc: prints one line for each cell, or one table of all cells.
#include "group.h"
#include "model.h"
#include "table.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace
{
const char USAGE[] =
    "usage: combinations [--nccl] [--sample N] [--list | --table | --page FILE] [WORD ...]\n"
    "A line for each cell: its name, and a hash of all its weights, states and norms, or why it is refused.\n"
    "  --nccl       cells over NCCL, instead of those without\n"
    "  --sample N   one in N of them, and at least one of each field of the table; in full (ZOFF_TEST_FULL=1) all\n"
    "  --list       names alone\n"
    "  --table      one table instead of lines\n"
    "  --page FILE  likewise; fails where FILE has another one, or where cells contradict each other\n"
    "  WORD ...     cells with all these words in their names\n";

struct options {
    bool nccl = false, list = false, table = false, help = false;
    size_t sample = 1;
    std::string page;
    std::vector<std::string> words;
};

bool parse(int argc, char **argv, options *out)
{
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        const bool has_value = i + 1 < argc;
        if (word == "--nccl")
            out->nccl = true;
        else if (word == "--list")
            out->list = true;
        else if (word == "--table")
            out->table = true;
        else if (word == "--page" && has_value)
            out->page = argv[++i];
        else if (word == "--sample" && has_value && atoi(argv[i + 1]) > 0)
            out->sample = static_cast<size_t>(atoi(argv[++i]));
        else if (word == "--help")
            out->help = true;
        else if (word[0] == '-')
            return false;
        else
            out->words.push_back(word);
    }
    const char *full = getenv("ZOFF_TEST_FULL");
    out->sample = full && *full && strcmp(full, "0") ? 1 : out->sample;
    out->table = out->table || !out->page.empty();
    return true;
}

bool has_all(const std::string &name, const std::vector<std::string> &words)
{
    for (const std::string &word : words) {
        if ((" " + name + " ").find(" " + word + " ") == std::string::npos)
            return false;
    }
    return true;
}

std::vector<combinations::cell> chosen_cells(const options &o)
{
    std::vector<combinations::cell> chosen;
    std::set<std::string> fields;
    uint64_t number = 0;
    for (const combinations::cell &c : combinations::all_cells(o.nccl)) {
        number++;
        if (!has_all(c.name(), o.words))
            continue;
        const bool is_first = fields.insert(combinations::table::field_of(c)).second;
        if (is_first || combinations::mix(number) % o.sample == 0)
            chosen.push_back(c);
    }
    return chosen;
}

// Print the faults of a table and of the page that contains it; return their number.
size_t judge(const combinations::table &found, const std::string &page)
{
    std::vector<std::string> complaints = found.complaints();
    std::ifstream file(page);
    std::stringstream text;
    text << file.rdbuf();
    if (!page.empty() && text.str().find(found.text()) == std::string::npos)
        complaints.push_back(page + " has another table than this one: put it there, if it is right");
    for (const std::string &complaint : complaints)
        fprintf(stderr, "combinations: %s\n", complaint.c_str());
    return complaints.size();
}
} // namespace

int main(int argc, char **argv)
{
    options o;
    if (!parse(argc, argv, &o) || o.help)
        return fputs(USAGE, o.help ? stdout : stderr), o.help ? 0 : 2;
    std::string folder = std::filesystem::temp_directory_path() / "zoff-combinations-XXXXXX";
    if (!mkdtemp(folder.data())) {
        perror(folder.c_str());
        return 1;
    }
    size_t errors = 0, count = 0;
    combinations::group ranks;
    combinations::table found;
    for (const combinations::cell &c : chosen_cells(o)) {
        const std::string states = folder + "/states";
        std::filesystem::create_directory(states);
        const std::string result = o.list ? "" : ranks.run(c, states);
        std::filesystem::remove_all(states);
        const bool is_error = result.compare(0, 6, "error:") == 0;
        errors += is_error;
        count++;
        found.add(c, result);
        if (!o.table || is_error)
            printf("%s%s%s\n", c.name().c_str(), o.list ? "" : ": ", result.c_str());
        fflush(stdout);
    }
    std::filesystem::remove_all(folder);
    if (o.table) {
        errors += judge(found, o.page);
        fputs(found.text().c_str(), stdout);
        fprintf(stderr, "%zu cells were tried\n", count);
    }
    return errors ? 1 : 0;
}
