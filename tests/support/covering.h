/* SPDX-License-Identifier: Apache-2.0 */
// covering.h: selects a few cells of a large test matrix that cover all pairs. A matrix is a list of cells, each with a value
// for each factor. The covering array contains every pair of values of two factors that occurs in the matrix; under a
// sanitizer, every value. With ZOFF_TEST_FULL=1 the whole matrix runs.
#ifndef ZOFF_COVERING_H
#define ZOFF_COVERING_H

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zoff_test
{
// True if the whole matrix, every seed and every kill must run: `scripts/test --full` sets ZOFF_TEST_FULL=1.
inline bool is_full_run()
{
    const char *value = getenv("ZOFF_TEST_FULL");
    return value && *value && std::string(value) != "0";
}

// Sanitizers make programs slow, and the same cases also run without them. They look at the memory and the threads of each way
// through the code, not at numbers, so each value of a factor is enough. STRENGTH: how many values the array combines.
#if defined(ZOFF_TEST_SANITIZED_ADDRESS) || defined(ZOFF_TEST_SANITIZED_THREAD)
enum { SHARE = 60, STRIDE = 7, STRENGTH = 1 };
#else
enum { SHARE = 10, STRIDE = 1, STRENGTH = 2 };
#endif

// The number of `all` random cases to run: all of them in a full run, otherwise a tenth, at least one.
inline unsigned share_of(unsigned all)
{
    return is_full_run() ? all : std::max(all / SHARE, 1u);
}

// The distance of the calls that fail in turn.
inline int fault_stride()
{
    return is_full_run() ? 1 : STRIDE;
}

// The limit of a reduced run: ZOFF_TEST_CELLS=10 runs the ten cells of each matrix that cover the most pairs. 0: no limit.
inline size_t most_cells()
{
    const char *value = getenv("ZOFF_TEST_CELLS");
    return value && !is_full_run() ? strtoul(value, nullptr, 10) : 0;
}

// Google Test's wildcards: '*' is any text, '?' is one character.
inline bool matches_glob(const char *glob, const char *text)
{
    if (!*glob)
        return !*text;
    if (*glob == '*')
        return matches_glob(glob + 1, text) || (*text && matches_glob(glob, text + 1));
    return *text && (*glob == '?' || *glob == *text) && matches_glob(glob + 1, text + 1);
}

// True if --gtest_filter selects a test: "one:other-not:nor".
inline bool matches_filter(const std::string &filter, const std::string &name)
{
    const size_t minus = filter.find('-');
    auto any = [&name](const std::string &globs) {
        for (size_t from = 0, to; from <= globs.size(); from = to + 1) {
            to = std::min(globs.find(':', from), globs.size());
            if (matches_glob(globs.substr(from, to - from).c_str(), name.c_str()))
                return true;
        }
        return false;
    };
    const std::string wanted = filter.substr(0, minus);
    return (wanted.empty() || any(wanted)) && (minus == std::string::npos || !any(filter.substr(minus + 1)));
}

template <typename Cell> class covering
{
  public:
    using values = std::vector<std::pair<const char *, std::string>>; // name of each factor, and the cell's value

    // `title` is the text before the names of the cells: "Matrix/Suite.Test/". `fill` adds the cells of the matrix. The array
    // covers the cells that --gtest_filter selects, so that any cell can be run by its name.
    covering(std::string title_, std::function<std::string(const Cell &)> name_, std::function<values(const Cell &)> factors_,
             const std::function<void(covering &)> &fill)
        : title(std::move(title_)), name(std::move(name_)), factors(std::move(factors_))
    {
        fill(*this);
        choose();
    }

    void add(const Cell &cell) { take(cell, false); }
    // Add a cell outside of the matrix. It always runs, but under a sanitizer only if a value needs it.
    void corner(const Cell &cell) { take(cell, true); }

    // The cells to run: corners first. Then repeatedly the cell that covers the most new pairs, the first of equals.
    std::vector<Cell> cells() const
    {
        std::vector<Cell> chosen;
        for (size_t i : picked)
            chosen.push_back(all[i]);
        return is_full_run() ? all : chosen;
    }

    // Test the array: count the pairs again by their names, and print the cells with the pairs that each covers first.
    void expect_all_pairs() const
    {
        std::map<std::string, size_t> want, have;
        for (const Cell &cell : all) {
            for (const std::string &pair : pairs_of(cell))
                want[pair]++;
        }
        std::string table;
        const std::vector<Cell> run = cells();
        for (const Cell &cell : run) {
            size_t fresh_ones = 0;
            for (const std::string &pair : pairs_of(cell))
                fresh_ones += have[pair]++ == 0;
            table += "  " + name(cell) + ": " + std::to_string(fresh_ones) + " new pairs\n";
        }
        std::cout << title << ": " << run.size() << " of " << all.size() << " cells have " << have.size() << " of "
                  << want.size() << " pairs\n"
                  << table;
        EXPECT_LT(0u, run.size());
        if (most_cells())
            return;
        for (const auto &[pair, count] : want)
            EXPECT_EQ(1u, have.count(pair)) << "no cell has " << pair << ", which " << count << " cells of the matrix have";
    }

  private:
    void take(const Cell &cell, bool is_corner)
    {
        if (!matches_filter(testing::GTEST_FLAG(filter), title + name(cell)) && !is_about_all())
            return;
        std::vector<size_t> ids;
        for (const auto &[factor, value] : factors(cell)) {
            const auto [place, is_new] = value_ids.emplace(std::string(factor) + "=" + value, value_count);
            value_count += is_new;
            ids.push_back(place->second);
        }
        all.push_back(cell);
        corners.push_back(is_corner);
        of_cell.push_back(ids);
    }
    // True if the filter selects no cell: it selects the test of the array itself.
    bool is_about_all() const
    {
        const std::string filter = testing::GTEST_FLAG(filter);
        return filter.find("CoverAllPairs") != std::string::npos || filter.find("Cells.") != std::string::npos;
    }

    void choose()
    {
        const size_t most = most_cells();
        std::vector<bool> seen(value_count * value_count);
        for (size_t i = 0; most == 0 && STRENGTH > 1 && i < all.size(); i++) {
            if (corners[i])
                pick(i, seen);
        }
        while (most == 0 || picked.size() < most) {
            size_t best = 0, best_count = 0;
            for (size_t i = 0; i < all.size(); i++) {
                const size_t count = fresh(i, seen);
                best = count > best_count ? i : best;
                best_count = std::max(best_count, count);
            }
            if (best_count == 0)
                return;
            pick(best, seen);
        }
    }
    size_t fresh(size_t cell, const std::vector<bool> &seen) const
    {
        size_t count = 0;
        const std::vector<size_t> &ids = of_cell[cell];
        for (size_t i = 0; i < ids.size(); i++) {
            for (size_t k = first_with(i); k < end_with(i, ids.size()); k++)
                count += !seen[ids[i] * value_count + ids[k]];
        }
        return count;
    }
    void pick(size_t cell, std::vector<bool> &seen)
    {
        const std::vector<size_t> &ids = of_cell[cell];
        for (size_t i = 0; i < ids.size(); i++) {
            for (size_t k = first_with(i); k < end_with(i, ids.size()); k++)
                seen[ids[i] * value_count + ids[k]] = true;
        }
        picked.push_back(cell);
    }
    // The factors that are combined with factor `i`: those behind it, or it alone.
    static size_t first_with(size_t i) { return STRENGTH == 1 ? i : i + 1; }
    static size_t end_with(size_t i, size_t count) { return STRENGTH == 1 ? i + 1 : count; }
    std::vector<std::string> pairs_of(const Cell &cell) const
    {
        std::vector<std::string> pairs;
        const values of = factors(cell);
        for (size_t i = 0; i < of.size(); i++) {
            for (size_t k = first_with(i); k < end_with(i, of.size()); k++)
                pairs.push_back(std::string(of[i].first) + "=" + of[i].second + " with " + of[k].first + "=" + of[k].second);
        }
        return pairs;
    }

    const std::string title;
    const std::function<std::string(const Cell &)> name;
    const std::function<values(const Cell &)> factors;
    std::vector<Cell> all;
    std::vector<bool> corners;
    std::vector<std::vector<size_t>> of_cell; // ids of the values of each cell
    std::map<std::string, size_t> value_ids;
    size_t value_count = 0;
    std::vector<size_t> picked;
};
} // namespace zoff_test

#endif
