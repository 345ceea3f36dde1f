/* SPDX-License-Identifier: Apache-2.0 */
// memory_count.h: counts the memory of the library and of jansson. Add memory_count.cc to the sources of a test, and
// PkgConfig::jansson -Wl,--wrap=calloc -Wl,--wrap=zoff_base_mem_free to its LINKS.
#ifndef ZOFF_ARCHIVE_MEMORY_COUNT_H
#define ZOFF_ARCHIVE_MEMORY_COUNT_H

#include <functional>
#include <stddef.h>

namespace zoff_test
{
// The most memory that a call of this thread takes at a time. *out_left is what it has not freed.
size_t memory_of(const std::function<void()> &call, long *out_left);
} // namespace zoff_test

#endif
