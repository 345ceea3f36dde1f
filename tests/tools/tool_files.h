/* SPDX-License-Identifier: Apache-2.0 */
// tool_files.h: safetensors files for tests: written as bytes, and read back, with what the tool prints on stderr.
#ifndef ZOFF_TESTS_TOOL_FILES_H
#define ZOFF_TESTS_TOOL_FILES_H

#include "file_bytes.h"
#include "zoff_test.h"

#include <stdint.h>
#include <string.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "safetensors.h"
#include "verbs.h"
}

namespace tool_files
{
// The result of a call, and its text on stderr.
struct outcome {
    int exit;
    std::string err;
};

inline outcome run(const std::function<int()> &call)
{
    testing::internal::CaptureStderr();
    const int exit = call();
    return {exit, testing::internal::GetCapturedStderr()};
}

using zoff_test::bytes_of;
using zoff_test::write_bytes;

// A file as the format describes it: length, header, data.
inline std::string file_of(const std::string &header, const std::string &data)
{
    std::string bytes(8, 0);
    for (int i = 0; i < 8; i++)
        bytes[(size_t)i] = (char)(header.size() >> 8 * i);
    return bytes + header + data;
}

// The entry of a tensor in a header.
inline std::string entry(const std::string &name, const std::string &type, const std::string &shape, size_t begin, size_t end)
{
    return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) +
           "," + std::to_string(end) + "]}";
}

inline std::vector<size_t> dims_of(const st_tensor &t)
{
    return std::vector<size_t>(t.dims, t.dims + t.dim_count);
}
} // namespace tool_files

#define EXPECT_HAS(text, words) EXPECT_NE(std::string::npos, (text).find(words)) << (text)

#endif
