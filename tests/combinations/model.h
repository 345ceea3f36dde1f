/* SPDX-License-Identifier: Apache-2.0 */
// model.h: a small model, its gradients, and a hash.
#ifndef ZOFF_TESTS_COMBINATIONS_MODEL_H
#define ZOFF_TESTS_COMBINATIONS_MODEL_H
#include "place.h"

#include <zoff/engine.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace combinations
{
// FNV-1a over bytes.
class hash
{
  public:
    void add(const void *bytes, size_t count)
    {
        for (size_t i = 0; i < count; i++)
            value = (value ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001b3ull;
    }
    template <typename T> void add(T number) { add(&number, sizeof number); }
    uint64_t value = 0xcbf29ce484222325ull;
};

inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

struct tensor {
    const char *name;
    size_t count, slices;
    zoff_dtype dtype, grad_dtype;
    bool frozen;
    size_t total() const { return count * slices; }
};

// Contains every pair of types for which the kernels have a path of their own, a parameter of several slices, and one without
// states.
const tensor TENSORS[] = {{"embedding", 3000, 1, ZOFF_BF16, ZOFF_BF16, false},
                          {"layers", 700, 3, ZOFF_F32, ZOFF_F32, false},
                          {"head", 1500, 1, ZOFF_BF16, ZOFF_F32, false},
                          {"fixed", 100, 1, ZOFF_F32, ZOFF_F32, true}};
enum { TENSOR_COUNT = 4 };

inline size_t bytes_of(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? 4 : 2;
}

// Random numbers in (-scale, scale), stored in the given type.
inline std::vector<char> numbers(zoff_dtype dtype, size_t count, uint64_t seed, double scale)
{
    std::vector<char> out(count * bytes_of(dtype));
    for (size_t k = 0; k < count; k++) {
        const float x = static_cast<float>((static_cast<double>(mix(seed * 1000003 + k) >> 11) * 0x1p-52 - 1) * scale);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        const uint16_t upper = static_cast<uint16_t>(bits >> 16); // bf16, rounded towards zero
        memcpy(&out[k * bytes_of(dtype)], dtype == ZOFF_F32 ? static_cast<const void *>(&bits) : &upper, bytes_of(dtype));
    }
    return out;
}
} // namespace combinations
#endif
