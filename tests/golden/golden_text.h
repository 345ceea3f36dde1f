/* SPDX-License-Identifier: Apache-2.0 */
// golden_text.h: compares a text with a golden file, or writes the file with ZOFF_GOLDEN_WRITE=1.
#ifndef ZOFF_GOLDEN_TEXT_H
#define ZOFF_GOLDEN_TEXT_H

#include "zoff_test.h"

#include <fstream>
#include <sstream>

namespace zoff_test
{
inline void expect_golden(const std::string &name, const std::string &text)
{
    const std::string path = std::string(GOLDEN) + "/" + name;
    if (getenv("ZOFF_GOLDEN_WRITE"))
        std::ofstream(path) << text;
    std::istringstream have(text);
    std::ifstream want(path);
    std::string a, b;
    for (unsigned line = 1;; line++) {
        const bool more = (bool)std::getline(have, a), expected = (bool)std::getline(want, b);
        if (!more && !expected)
            return;
        ASSERT_TRUE(more && expected && a == b)
            << path << ":" << line << "\nhave: " << (more ? a : "nothing") << "\nwant: " << (expected ? b : "nothing");
    }
}
} // namespace zoff_test

#endif
