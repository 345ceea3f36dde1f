/* SPDX-License-Identifier: Apache-2.0 */
// step_large_test.cc: a tensor of more than 2^31 elements, whose bytes are more than 2^32: every element is updated once.
#include "covering.h"
#include "every_rule.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "budget.h"
}

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
constexpr size_t COUNT = ((size_t)1 << 31) + ((size_t)1 << 20) + 37; // elements
constexpr size_t BYTES = COUNT * 2;
// The gradient is a file mapped repeatedly. It has an odd number of pages, so that a power of two never leads to the same place
// in it.
constexpr size_t PERIOD = 16383 * (size_t)4096;
constexpr uint64_t NEEDED = (uint64_t)8 << 30;

// Address space that is freed with its mapping.
struct mapping {
    explicit mapping(size_t bytes)
        : size(bytes), base(static_cast<char *>(
                           mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)))
    {
    }
    ~mapping()
    {
        if (base != MAP_FAILED)
            munmap(base, size);
    }
    mapping(const mapping &) = delete;
    size_t size;
    char *base;
};

// A gradient whose value identifies its place in the period, finite and never zero.
uint16_t gradient_at(size_t i)
{
    return (uint16_t)(0x3c00 + i % 1021 + (i / 1021 % 2 ? 0x8000 : 0));
}

// One file with a period, mapped at every place.
bool map_gradients(const mapping &grads)
{
    const int file = memfd_create("gradients", 0);
    if (file < 0 || ftruncate(file, (off_t)PERIOD) != 0)
        return false;
    bool good = true;
    for (size_t at = 0; good && at < grads.size; at += PERIOD) {
        const size_t bytes = grads.size - at < PERIOD ? grads.size - at : PERIOD;
        good = mmap(grads.base + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    }
    close(file);
    return good;
}

TEST(step_large, more_than_two_to_the_31_elements)
{
    if (!zoff_test::is_full_run())
        GTEST_SKIP() << "only in full, ZOFF_TEST_FULL=1: it is a minute of one core";
#if defined(ZOFF_TEST_SANITIZED)
    GTEST_SKIP() << "a sanitizer makes this take minutes";
#endif
    const char *source = "";
    const uint64_t available = zoff_base_budget_memory("", &source);
    if (available < NEEDED)
        GTEST_SKIP() << (available >> 20) << " MiB of memory left (" << source << "), and " << (NEEDED >> 20) << " are needed";
    mapping weights(BYTES), grads(BYTES);
    ASSERT_NE(weights.base, MAP_FAILED);
    ASSERT_NE(grads.base, MAP_FAILED);
    madvise(weights.base, BYTES, MADV_HUGEPAGE); // 4 GiB of small pages would take longer than the step
    ASSERT_TRUE(map_gradients(grads)) << strerror(errno);
    auto grad = reinterpret_cast<uint16_t *>(grads.base), weight = reinterpret_cast<uint16_t *>(weights.base);
    std::vector<uint16_t> expected(PERIOD / 2); // the new weights of a period
    for (size_t i = 0; i < PERIOD / 2; i++) {
        grad[i] = gradient_at(i);
        expected[i] = oracle_to_bf16(0 - 0.5f * oracle_from_bf16(grad[i]));
    }

    zoff_optimizer_hyper sgd;
    zoff_optimizer_hyper_init(&sgd, ZOFF_OPTIMIZER_SGD);
    sgd.lr = 0.5;
    uint16_t last_weight = 0, last_grad = gradient_at(7);
    zoff_optimizer_tensor tensors[2] = {};
    for (auto &t : tensors) {
        t.struct_size = sizeof t;
        t.grad_dtype = t.master_dtype = ZOFF_BF16;
    }
    tensors[0].count = COUNT;
    tensors[0].master = weight;
    tensors[0].grad = grad;
    tensors[1].count = 1; // the next one in the list
    tensors[1].master = &last_weight;
    tensors[1].grad = &last_grad;
    ASSERT_ZOFF_OK(zoff_optimizer_step_list(&sgd, 0, 1, 1, tensors, sizeof tensors[0], 2));

    for (size_t at : {(size_t)0, ((size_t)1 << 30) - 1, (size_t)1 << 30, ((size_t)1 << 31) - 1, (size_t)1 << 31,
                      ((size_t)1 << 31) + 1, COUNT - 1})
        EXPECT_EQ(weight[at], expected[at % (PERIOD / 2)]) << "element " << at;
    EXPECT_EQ(last_weight, expected[7]);
    for (size_t at = 0; at < BYTES; at += PERIOD) {
        const size_t bytes = BYTES - at < PERIOD ? BYTES - at : PERIOD;
        ASSERT_EQ(memcmp(weights.base + at, expected.data(), bytes), 0) << "of the elements from " << at / 2 << " on";
    }
}
} // namespace
