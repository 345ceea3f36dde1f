/* SPDX-License-Identifier: Apache-2.0 */
// memory.h: keeps track of device memory and of pinned memory.
#ifndef ZOFF_TESTS_CUDA_MEMORY_H
#define ZOFF_TESTS_CUDA_MEMORY_H

#include <cstddef>
#include <cuda_runtime_api.h>

namespace zoff_test
{
void *get_memory(size_t bytes, cudaMemoryType kind);
void free_memory(void *memory);
bool add_memory(void *memory, size_t bytes, cudaMemoryType kind); // false: part of it is registered already
size_t remove_memory(void *memory);                               // returns the number of bytes; 0: the memory is not
                                                                  // registered
// The kind of all these bytes; "unregistered" if they are not within one range.
cudaMemoryType kind_of(const void *memory, size_t bytes);
size_t pin_most();
} // namespace zoff_test

#endif
