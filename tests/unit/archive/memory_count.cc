/* SPDX-License-Identifier: Apache-2.0 */
// memory_count.cc: the functions that replace those of the library (see memory_count.h).
#include "memory_count.h"

#include <algorithm>
#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

extern "C" {
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void __wrap_zoff_base_mem_free(void *pointer);
}

static thread_local long in_use, most_in_use;

static void *count_memory(void *pointer)
{
    in_use += (long)malloc_usable_size(pointer);
    most_in_use = std::max(most_in_use, in_use);
    return pointer;
}

static void count_free(void *pointer)
{
    in_use -= (long)malloc_usable_size(pointer);
    free(pointer);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return count_memory(__real_calloc(count, bytes));
}

void __wrap_zoff_base_mem_free(void *pointer)
{
    count_free(pointer);
}

size_t zoff_test::memory_of(const std::function<void()> &call, long *out_left)
{
    json_set_alloc_funcs([](size_t bytes) { return count_memory(malloc(bytes)); }, count_free);
    in_use = most_in_use = 0;
    call();
    *out_left = in_use;
    json_set_alloc_funcs(malloc, free);
    return (size_t)most_in_use;
}
