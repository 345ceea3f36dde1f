/* SPDX-License-Identifier: Apache-2.0 */
// one_table.h: what a table of kernels must do, alone: every entry, on lengths at the edges of its vectors, against long double
// and against the bits of the scalar table. A short file for each table says which it is, and how many lanes its vectors have.
#ifndef ZOFF_TESTS_ONE_TABLE_H
#define ZOFF_TESTS_ONE_TABLE_H

#include "zoff_test.h"

extern "C" {
#include "cpu.h"
#include "kernels.h"
}

class one_table : public testing::Test
{
  protected:
    // Skips where this CPU cannot run it.
    void use(const char *isa, bool is_usable, size_t lanes_of_vector);
    void TearDown() override;

    void expect_complete(const char *isa, const struct zoff_kernels *of_this_build) const;
    void expect_steps_are_right();
    void expect_sums_are_right();
    void expect_casts_are_right();
    void expect_square_sums_are_right();

  private:
    std::vector<size_t> lengths() const;

    const struct zoff_kernels *table = nullptr;
    size_t width = 0; // lanes
    unsigned saved = 0;
};

// The tests of one table: its name, whether this CPU can run it, the lanes of its vectors, and the table of this build.
#define ONE_TABLE(isa, is_usable, lanes, of_this_build)                                                                        \
    namespace                                                                                                                  \
    {                                                                                                                          \
    class kernels_##isa : public one_table                                                                                     \
    {                                                                                                                          \
        void SetUp() override { use(#isa, is_usable, lanes); }                                                                 \
    };                                                                                                                         \
    TEST_F(kernels_##isa, are_all_there)                                                                                       \
    {                                                                                                                          \
        expect_complete(#isa, of_this_build);                                                                                  \
    }                                                                                                                          \
    TEST_F(kernels_##isa, step_as_long_double_does)                                                                            \
    {                                                                                                                          \
        expect_steps_are_right();                                                                                              \
    }                                                                                                                          \
    TEST_F(kernels_##isa, add_up_as_long_double_does)                                                                          \
    {                                                                                                                          \
        expect_sums_are_right();                                                                                               \
    }                                                                                                                          \
    TEST_F(kernels_##isa, convert_to_the_nearest)                                                                              \
    {                                                                                                                          \
        expect_casts_are_right();                                                                                              \
    }                                                                                                                          \
    TEST_F(kernels_##isa, sum_squares_as_long_double_does)                                                                     \
    {                                                                                                                          \
        expect_square_sums_are_right();                                                                                        \
    }                                                                                                                          \
    }

#endif
