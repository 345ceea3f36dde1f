// table.h: what the cells come to, as one table: who has weights and gradients, and over what ranks speak, down; where states
// are, across.
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
    // Which field of the table a cell is in.
    static std::string field_of(const cell &c);

    void add(const cell &c, const std::string &result);
    // Markdown: "yes" where all cells of a field work, else the number of the reason below.
    std::string text() const;
    // What must not be: a field of which one cell works and another is refused; two cells of the same training with other bits.
    std::vector<std::string> complaints() const;

  private:
    typedef std::pair<std::string, std::string> field;                // row, column
    std::map<field, std::set<std::string>> outcomes;                  // "yes", or a reason
    std::map<std::string, std::map<std::string, std::string>> hashes; // training -> hash -> a cell that has it
};
} // namespace combinations
#endif
