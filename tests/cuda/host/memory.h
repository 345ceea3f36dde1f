// memory.h: which memory is a device's, and which is pinned.
#ifndef ZOFF_TESTS_CUDA_MEMORY_H
#define ZOFF_TESTS_CUDA_MEMORY_H

#include <cstddef>
#include <cuda_runtime_api.h>

namespace zoff_test
{
void *get_memory(size_t bytes, cudaMemoryType kind);
void free_memory(void *memory);
bool add_memory(void *memory, size_t bytes, cudaMemoryType kind); // false: part of it is known already
size_t remove_memory(void *memory);                               // how many bytes; 0: it is not known
// Of all of these bytes; unregistered where they are not all of one range.
cudaMemoryType kind_of(const void *memory, size_t bytes);
size_t pin_most();
} // namespace zoff_test

#endif
