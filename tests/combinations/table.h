/* SPDX-License-Identifier: Apache-2.0 */
// table.h: the results of all cells as one table. Rows: who owns weights and gradients, and the communicator. Columns: where
// the states are.
#ifndef ZOFF_TESTS_COMBINATIONS_TABLE_H
#define ZOFF_TESTS_COMBINATIONS_TABLE_H
#include "cell.h"

#include <map>
#include <set>

namespace combinations
{
class table
{
  public:
    // The field of the table to which a cell belongs.
    static std::string field_of(const cell &c);

    void add(const cell &c, const std::string &result);
    // Markdown: "yes" if all cells of a field work, otherwise the number of the reason below the table.
    std::string text() const;
    // Faults: a field in which some cells work and others are refused, and two cells of the same training with different bits.
    std::vector<std::string> complaints() const;

  private:
    typedef std::pair<std::string, std::string> field;                // row, column
    std::map<field, std::set<std::string>> outcomes;                  // "yes", or the reason of a refusal
    std::map<std::string, std::map<std::string, std::string>> hashes; // training -> hash -> a cell that has this hash
};
} // namespace combinations
#endif
