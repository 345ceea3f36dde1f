/* SPDX-License-Identifier: Apache-2.0 */
// file_bytes.h: reads, writes and damages whole files.
#ifndef ZOFF_FILE_BYTES_H
#define ZOFF_FILE_BYTES_H

#include <stdint.h>

#include <fstream>
#include <sstream>
#include <string>

namespace zoff_test
{
// "" for a file that cannot be read.
inline std::string bytes_of(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
}

inline void write_bytes(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

// Change one bit. The same call again changes it back.
inline void flip_bit(const std::string &path, uint64_t byte, unsigned bit)
{
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg((std::streamoff)byte);
    const int was = file.get();
    file.seekp((std::streamoff)byte);
    file.put((char)(was ^ 1 << bit));
}
} // namespace zoff_test

#endif
