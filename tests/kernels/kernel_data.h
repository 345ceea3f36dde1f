/* SPDX-License-Identifier: Apache-2.0 */
// kernel_data.h: special and random numbers of every type, arrays that end at a page which must not be touched, and comparison
// of bits.
#ifndef ZOFF_TESTS_KERNEL_DATA_H
#define ZOFF_TESTS_KERNEL_DATA_H

#include <gtest/gtest.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zoff/types.h>

#include <vector>

namespace kernel_data
{
// A small random generator that gives the same numbers on every machine.
class random_source
{
  public:
    explicit random_source(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
    uint64_t next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545F4914F6CDD1Dull;
    }
    // A number in [-1, 1).
    double unit() { return (double)(int64_t)next() / 9223372036854775808.0; }

  private:
    uint64_t state;
};

inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Zeros, subnormals, ties of the bf16 rounding, the largest, infinities, NaN of both kinds and signs.
inline float nasty(random_source &random)
{
    static const uint32_t values[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00400000, 0x00800000,
                                      0x00008000, 0x00018000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7f7fff,
                                      0x7f7f8000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                      0x7fffffff, 0x7f800001, 0xff812345, 0x60ad78ec, 0x1e3ce508, 0x3f800000, 0xbf800000};
    const uint64_t which = random.next() >> 32;
    return float_of(values[which % (sizeof values / sizeof values[0])]);
}

// Mostly ordinary numbers over some decades; with `nasties` one in five is special.
inline float number(random_source &random, bool nasties)
{
    if (nasties && (random.next() >> 40) % 5 == 0)
        return nasty(random);
    const double decade = (double)((random.next() >> 33) % 9) - 6;
    return (float)(random.unit() * __builtin_pow(10.0, decade));
}

// fp32 numbers where the rounding to fp16 changes: ties between normal numbers, between subnormals, at the border of both,
// below the smallest and at the largest, and their neighbours in fp32.
inline float nasty_for_f16(random_source &random)
{
    static const uint32_t ties[] = {0x3f801000, 0x3f803000, 0x33000000, 0x33800000, 0x33c00000, 0x34200000, 0x38000000,
                                    0x387fc000, 0x387fe000, 0x387ff000, 0x38800000, 0x38801000, 0x477fe000, 0x477fefff,
                                    0x477ff000, 0x47800000, 0x37ffe000, 0x35a00000, 0x42c81000, 0x1b000000};
    const uint64_t word = random.next();
    const uint32_t tie = ties[(word >> 32) % (sizeof ties / sizeof ties[0])];
    return float_of((tie + (uint32_t)(word >> 20) % 3 - 1) | (uint32_t)(word >> 10 & 1) << 31);
}

// fp16 patterns: random ones, or a border of their ranges.
inline uint16_t nasty_f16(random_source &random)
{
    static const uint16_t borders[] = {0x0000, 0x0001, 0x03ff, 0x0400, 0x0401, 0x3bff, 0x3c00,
                                       0x3c01, 0x7bff, 0x7c00, 0x7c01, 0x7dff, 0x7e00, 0x7fff};
    const uint64_t word = random.next();
    if (word >> 62)
        return (uint16_t)(word >> 40);
    return (uint16_t)(borders[(word >> 32) % (sizeof borders / sizeof borders[0])] | (word >> 10 & 1) << 15);
}

// Numbers of every type, half of them special in some way. They are drawn once and handed out in parts, because drawing is
// slower than any kernel.
class number_pool
{
  public:
    static constexpr size_t SIZE = (size_t)1 << 18;

    static const number_pool &get()
    {
        static const number_pool pool;
        return pool;
    }
    // Fill `array` with `count` elements; each `stretch` gives other numbers.
    void fill(void *array, zoff_dtype dtype, size_t count, size_t stretch) const
    {
        const size_t at = stretch * 40009 % (SIZE - count);
        if (count && dtype == ZOFF_BF16)
            memcpy(array, bf16.data() + at, count * sizeof(uint16_t));
        else if (count && dtype == ZOFF_F16)
            memcpy(array, f16.data() + at, count * sizeof(uint16_t));
        else if (count)
            memcpy(array, f32.data() + at, count * sizeof(float));
    }

  private:
    number_pool() : f32(SIZE), bf16(SIZE), f16(SIZE)
    {
        random_source random(16);
        for (size_t i = 0; i < SIZE; i++) {
            f32[i] = random.next() >> 62 ? number(random, true) : nasty_for_f16(random);
            bf16[i] = (uint16_t)(bits_of(number(random, true)) >> 16);
            f16[i] = nasty_f16(random);
        }
    }
    std::vector<float> f32;
    std::vector<uint16_t> bf16, f16;
};

// Memory for up to `capacity` elements that ends at a page which must not be touched: a kernel that reads or writes beyond the
// end crashes. The bytes before the elements must not change, nor those behind if the elements are shifted.
template <typename T> class fenced
{
  public:
    explicit fenced(size_t capacity)
    {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        bytes = (capacity * sizeof(T) + GUARD + page - 1) / page * page;
        base = static_cast<char *>(mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base == MAP_FAILED || mprotect(base + bytes, page, PROT_NONE) != 0)
            abort();
        reserved = bytes + page;
    }
    ~fenced() { munmap(base, reserved); }
    fenced(const fenced &) = delete;

    // Place `count` elements so that `shift` guard elements follow them.
    T *place(size_t count, size_t shift)
    {
        behind = shift * sizeof(T);
        length = count * sizeof(T);
        start = base + bytes - behind - length;
        memset(start - FRONT, 0xA5, FRONT);
        memset(start + length, 0xA5, behind);
        return reinterpret_cast<T *>(start);
    }
    void expect_guards() const
    {
        for (size_t i = 0; i < FRONT; i++)
            ASSERT_EQ((unsigned char)start[-1 - (ptrdiff_t)i], 0xA5) << "changed " << i + 1 << " bytes in front of the array";
        for (size_t i = 0; i < behind; i++)
            ASSERT_EQ((unsigned char)start[length + i], 0xA5) << "changed byte " << i << " behind the array";
    }

  private:
    static constexpr size_t FRONT = 64, GUARD = 256;
    char *base, *start = nullptr;
    size_t bytes, reserved, behind = 0, length = 0;
};

// The sign and payload of an fp32 or fp64 NaN depend on the CPU; all other bits must agree.
inline uint64_t canonical(float x)
{
    return x != x ? 0x7fc00000u : bits_of(x);
}
inline uint64_t canonical(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7ff8000000000000u : bits;
}
inline uint64_t canonical(uint16_t bits)
{
    return bits;
}

// Compare whole arrays bit by bit; report the first element that differs.
template <typename T>::testing::AssertionResult same_bits(const T *expected, const T *actual, size_t count)
{
    if (count == 0 || memcmp(expected, actual, count * sizeof(T)) == 0)
        return ::testing::AssertionSuccess();
    for (size_t i = 0; i < count; i++) {
        if (canonical(expected[i]) != canonical(actual[i]))
            return ::testing::AssertionFailure() << "element " << i << " of " << count << ": expected " << std::hex << "0x"
                                                 << canonical(expected[i]) << ", got 0x" << canonical(actual[i]);
    }
    return ::testing::AssertionSuccess();
}
} // namespace kernel_data

#endif
