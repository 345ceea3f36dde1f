/* SPDX-License-Identifier: Apache-2.0 */
// memory.cc: keeps track of device memory and of pinned memory.
#include "memory.h"

#include "control.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>

namespace zoff_test
{
namespace
{
enum : size_t {
    LARGE = 1 << 20,     // larger blocks are mapped, so that freeing returns them to the kernel, as freeing device memory does
    POISONED = 256 << 10 // poisoned bytes at each end of a block
};
struct range {
    size_t bytes;
    cudaMemoryType kind;
};
std::mutex lock;
std::map<const char *, range> ranges; // ranges by their first byte
std::atomic<size_t> most{(size_t)-1};

// The range that contains this byte, or the end.
std::map<const char *, range>::iterator find(const char *byte)
{
    auto after = ranges.upper_bound(byte);
    if (after == ranges.begin())
        return ranges.end();
    --after;
    return byte < after->first + after->second.bytes ? after : ranges.end();
}
} // namespace

bool add_memory(void *memory, size_t bytes, cudaMemoryType kind)
{
    std::lock_guard<std::mutex> hold(lock);
    const char *first = (const char *)memory;
    const auto next = ranges.lower_bound(first);
    if (find(first) != ranges.end() || (next != ranges.end() && next->first < first + bytes))
        return false;
    ranges[first] = {bytes, kind};
    return true;
}

size_t remove_memory(void *memory)
{
    std::lock_guard<std::mutex> hold(lock);
    const auto found = ranges.find((const char *)memory);
    const size_t bytes = found == ranges.end() ? 0 : found->second.bytes;
    if (bytes)
        ranges.erase(found);
    return bytes;
}

void *get_memory(size_t bytes, cudaMemoryType kind)
{
    const size_t aligned = (std::max<size_t>(bytes, 1) + 255) / 256 * 256; // CUDA aligns device memory to 256 bytes
    void *memory = bytes < LARGE ? aligned_alloc(256, aligned)
                                 : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!memory || memory == MAP_FAILED)
        return nullptr;
    // Code that reads memory before it writes must not find zeros. A default run poisons only the ends of a block: touching
    // every page of mostly unused memory would take most of a test's time.
    const char *full = getenv("ZOFF_TEST_FULL");
    const size_t end = full && *full && strcmp(full, "0") ? bytes : std::min<size_t>(bytes, POISONED);
    memset(memory, 0xa5, end);
    memset((char *)memory + (bytes - end), 0xa5, end);
    add_memory(memory, bytes ? bytes : 1, kind);
    return memory;
}

void free_memory(void *memory)
{
    const size_t bytes = memory ? remove_memory(memory) : 0;
    if (bytes >= LARGE)
        munmap(memory, bytes);
    else if (bytes)
        free(memory);
}

cudaMemoryType kind_of(const void *memory, size_t bytes)
{
    std::lock_guard<std::mutex> hold(lock);
    const char *first = (const char *)memory;
    const auto found = find(first);
    if (found == ranges.end() || first + bytes > found->first + found->second.bytes)
        return cudaMemoryTypeUnregistered;
    return found->second.kind;
}

size_t pin_most()
{
    return most;
}
} // namespace zoff_test

extern "C" void zoff_cudart_pin_most(size_t bytes)
{
    zoff_test::most = bytes;
}
