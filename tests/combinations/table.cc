/* SPDX-License-Identifier: Apache-2.0 */
// table.cc: fields of the table, reasons without the numbers of one cell, and the cells that must have the same bits.
#include "table.h"

#include <algorithm>
#include <regex>

namespace combinations
{
namespace
{
const std::vector<std::string> COLUMNS = {"DRAM",
                                          "files",
                                          "files that persist",
                                          "DRAM, a share on the device",
                                          "files, a share on the device",
                                          "files that persist, a share on the device"};

std::string column_of(const cell &c)
{
    const size_t tier = c.tier == "cpu" ? 0 : c.tier == "nvme" ? 1 : 2;
    return COLUMNS[tier + (c.ratio < 1 ? 3 : 0)];
}

std::string row_of(const cell &c)
{
    const std::string whose = c.weights == "caller" ? "the program's" : "the engine's";
    const std::string wire = c.wire == "alone" ? "one rank" : c.wire == "nccl" ? "ranks over NCCL" : "ranks over the host";
    return whose + " | " + c.memory + " | " + wire;
}

// The reason of a refusal without the name of the call. Ratio, number of ranks and device are replaced, so that equal reasons
// are equal texts.
std::string reason_of(const std::string &result)
{
    std::string text = std::regex_replace(result, std::regex("^refused: [a-z_]+: (embedding: )?"), "");
    text = std::regex_replace(text, std::regex("ratio is [0-9.]+"), "ratio is below 1");
    text = std::regex_replace(text, std::regex("of [0-9]+ ranks"), "of several ranks");
    return std::regex_replace(text, std::regex("accelerator \"[a-z]+\""), "the accelerator");
}

// Cells with the same value of this text must train to the same bits.
std::string training_of(const cell &c)
{
    return std::to_string(c.ranks) + " rank(s), " + std::to_string(c.micro) + " micro-step(s), " +
           (c.tier == "persist" ? "opened again, " : "") + (c.weights == "caller" ? "" : "weights lent");
}
} // namespace

std::string table::field_of(const cell &c)
{
    return row_of(c) + " | " + column_of(c);
}

void table::add(const cell &c, const std::string &result)
{
    const bool works = result.find(' ') == std::string::npos;
    outcomes[{row_of(c), column_of(c)}].insert(works ? "yes" : reason_of(result));
    if (works)
        hashes[training_of(c)].insert({result, c.name()});
}

std::string table::text() const
{
    std::vector<std::string> rows, reasons;
    for (const auto &one : outcomes) {
        if (rows.empty() || rows.back() != one.first.first)
            rows.push_back(one.first.first);
    }
    std::string out = "| weights and gradients | where | ranks |", line = "|---|---|---|";
    for (const std::string &column : COLUMNS) {
        out += " " + column + " |";
        line += "---|";
    }
    out += "\n" + line + "\n";
    for (const std::string &row : rows) {
        out += "| " + row + " |";
        for (const std::string &column : COLUMNS) {
            const auto found = outcomes.find({row, column});
            std::string words;
            for (const std::string &one : found == outcomes.end() ? std::set<std::string>{"not tried"} : found->second) {
                const auto at = std::find(reasons.begin(), reasons.end(), one);
                const size_t number = static_cast<size_t>(at - reasons.begin()) + 1;
                if (one != "yes" && at == reasons.end())
                    reasons.push_back(one);
                words += (words.empty() ? "" : ", ") + (one == "yes" ? one : "no (" + std::to_string(number) + ")");
            }
            out += " " + words + " |";
        }
        out += "\n";
    }
    for (size_t i = 0; i < reasons.size(); i++)
        out += (i ? "" : "\n") + std::to_string(i + 1) + ". " + reasons[i] + "\n";
    return out;
}

std::vector<std::string> table::complaints() const
{
    std::vector<std::string> found;
    for (const auto &one : outcomes) {
        if (one.second.size() > 1)
            found.push_back(one.first.first + ", states in " + one.first.second + ": some cells end otherwise than others");
    }
    for (const auto &one : hashes) {
        for (const auto &hash : one.second) {
            if (hash.first != one.second.begin()->first)
                found.push_back(one.first + ": other bits in \"" + hash.second + "\" than in \"" + one.second.begin()->second +
                                "\"");
        }
    }
    return found;
}
} // namespace combinations
