/* SPDX-License-Identifier: Apache-2.0 */
// mutations.h: small random changes of a safetensors file, most of which leave its header readable as JSON.
#ifndef ZOFF_TESTS_TOOL_MUTATIONS_H
#define ZOFF_TESTS_TOOL_MUTATIONS_H

#include "random.h"
#include "tool_files.h"

namespace tool_files
{
inline void mutate(std::string &bytes, zoff_test::fast_random &random)
{
    static const char *const PIECES[] = {"0",
                                         "9",
                                         "-",
                                         "[",
                                         "]",
                                         "{",
                                         "}",
                                         ",",
                                         "\"",
                                         "1e9",
                                         "F32",
                                         "null",
                                         "\xff",
                                         "18446744073709551616",
                                         "9223372036854775807",
                                         ":",
                                         "\\u0000",
                                         "a",
                                         " "};
    const size_t at = random() % bytes.size();
    switch (random() % 6) {
    case 0:
        bytes[at] = (char)(bytes[at] ^ 1 << random() % 8);
        break;
    case 1:
        bytes[at] = (char)random();
        break;
    case 2:
        bytes.erase(at, 1 + random() % 8);
        break;
    case 3:
        bytes.insert(at, PIECES[random() % (sizeof PIECES / sizeof PIECES[0])]);
        break;
    case 4:
        bytes.replace(at, 1, PIECES[random() % (sizeof PIECES / sizeof PIECES[0])]);
        break;
    default: // copy a part of the header to another place
        bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 40));
    }
    bytes += bytes.empty() ? "x" : "";
}

// Make the length of the header fit again, so that most mutations reach the parser.
inline void mend_length(std::string &bytes, size_t data_bytes)
{
    if (bytes.size() < 8 + data_bytes)
        return;
    const std::string rest = bytes.substr(8);
    bytes = file_of(rest.substr(0, rest.size() - data_bytes), rest.substr(rest.size() - data_bytes));
}
} // namespace tool_files

#endif
