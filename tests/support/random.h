/* SPDX-License-Identifier: Apache-2.0 */
// random.h: a random generator for tests that need millions of numbers: fast in every build, the same on each machine.
#ifndef ZOFF_TEST_RANDOM_H
#define ZOFF_TEST_RANDOM_H

#include <stdint.h>

namespace zoff_test
{
// A uniform random bit generator for std::shuffle(): SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014).
class fast_random
{
  public:
    using result_type = uint32_t;

    explicit fast_random(uint64_t seed_ = 0) { seed(seed_); }
    void seed(uint64_t value) { state = value; }
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return UINT32_MAX; }
    result_type operator()() { return (result_type)(next() >> 32); }

    // Approximately normal, mean 0 and variance 1: the sum of four uniform 16-bit numbers.
    float normal()
    {
        const uint64_t x = next();
        const int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) + (int)(x >> 48);
        return (float)(sum - 2 * 0xffff) * (1.0f / 37837.0f); // 65536 * sqrt(4 / 12)
    }

  private:
    uint64_t next()
    {
        uint64_t x = state += 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        return x ^ x >> 31;
    }

    uint64_t state;
};
} // namespace zoff_test

#endif
