/* SPDX-License-Identifier: Apache-2.0 */
// orthogonal_test.cc: the orthogonalization of matrices against plain loops, bit for bit, on teams of several sizes, at once
// and stopped after each part; and matrices whose numbers are at the ends of their range.
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <algorithm>
#include <cmath>

namespace
{
std::vector<float> drawn(size_t count, uint64_t seed)
{
    kernel_data::random_source random(seed);
    std::vector<float> all(count);
    for (auto &x : all)
        x = (float)random.unit();
    return all;
}

struct calls {
    bool stops;
    size_t between, asked;
};

void count_between(void *ctx)
{
    static_cast<calls *>(ctx)->between++;
}

bool say_stop(void *ctx)
{
    calls *c = static_cast<calls *>(ctx);
    c->asked++;
    return c->stops;
}

// Orthogonalize as a caller does who must return now and then. `team`: one size for each call in turn.
void run(size_t rows, size_t cols, std::vector<float> *x, zoff_muon_consts consts, const std::vector<unsigned> &team,
         bool stops)
{
    const unsigned most = *std::max_element(team.begin(), team.end());
    const size_t bytes = zoff_adam_orthogonal_scratch(rows, cols, consts.gram, most);
    std::vector<char> memory(bytes + 128, 0x55);
    zoff_orthogonal o = {};
    o.rows = rows;
    o.cols = cols;
    o.x = x->data();
    o.scratch = memory.data() + (64 - (uintptr_t)memory.data() % 64) % 64;
    o.consts = consts;
    calls c = {stops, 0, 0};
    zoff_status status = ZOFF_PENDING;
    size_t returns = 0;
    for (; status == ZOFF_PENDING; returns++) {
        ASSERT_LT(returns, 100000u);
        status = zoff_adam_orthogonal_run(team[returns % team.size()], &o, count_between, say_stop, &c);
    }
    ASSERT_EQ(ZOFF_OK, status);
    ASSERT_EQ(c.between, c.asked);
    const bool is_counted = !stops || most == 1;
    EXPECT_TRUE(!is_counted || returns == (stops ? c.between : 1)) << "each part of an only thread is followed by a return";
    EXPECT_TRUE(std::all_of((char *)o.scratch + bytes, memory.data() + memory.size(), [](char b) { return b == 0x55; }))
        << "bytes behind the scratch were written";
}

void check(size_t rows, size_t cols, zoff_muon_consts consts, const std::vector<std::vector<unsigned>> &teams, bool stops)
{
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", set " << consts.coefficients << ", " << consts.steps
                                      << " steps, " << (consts.gram ? "gram" : "standard"));
    const std::vector<float> given = drawn(rows * cols, rows * 1000 + cols);
    std::vector<float> expected = given;
    oracle_orthogonal(rows, cols, expected.data(), consts.coefficients, consts.steps, consts.gram);
    for (const auto &team : teams) {
        std::vector<float> x = given;
        run(rows, cols, &x, consts, team, stops);
        EXPECT_TRUE(kernel_data::same_bits(expected.data(), x.data(), x.size()))
            << team[0] << " threads" << (stops ? ", stopped" : "");
        stops = !stops;
    }
}

TEST(orthogonal, equals_plain_loops)
{
    const std::vector<std::vector<unsigned>> TEAMS = {{1}, {2}, {7}, {7, 1, 2}};
    size_t k = 0;
    for (size_t n = 1; n <= 70; n++, k++) {
        const size_t other = k % 3 == 0 ? n : k % 3 == 1 ? 2 * n + k % 5 : n * 31 % 70 + 1;
        const zoff_muon_consts consts = {(zoff_muon_coefficients)(k % 5), 1 + (unsigned)(k * 7 % 10), k % 2 == 1};
        check(k % 4 < 2 ? n : other, k % 4 < 2 ? other : n, consts, {TEAMS[k / 3 % 4]}, k / 12 % 2);
    }
    // Parts of several tiles, several blocks of a sum, and several chunks of elements.
    const size_t SHAPES[][2] = {{150, 300}, {300, 150}, {257, 257}, {130, 1030}, {1030, 130}, {3, 70000}, {70000, 2}};
    for (const auto &shape : SHAPES) {
        for (bool gram : {false, true}) {
            check(shape[0], shape[1], {(zoff_muon_coefficients)(k % 5), 3 + (unsigned)(k % 2), gram}, TEAMS, k % 2);
            k++;
        }
    }
}

TEST(orthogonal, numbers_at_the_ends_of_their_range_stay_finite)
{
    for (const auto &shape : {std::array<size_t, 2>{1, 50}, {50, 1}, {1, 1}, {20, 20}, {10, 40}, {40, 10}}) {
        for (int kind = 0; kind < 5; kind++) {
            for (unsigned set = 0; set < 5; set++) {
                for (bool gram : {false, true}) {
                    SCOPED_TRACE(::testing::Message() << shape[0] << " x " << shape[1] << ", kind " << kind << ", set " << set);
                    std::vector<float> x = drawn(shape[0] * shape[1], 3);
                    for (size_t i = 0; i < x.size(); i++) {
                        const float row = (float)(i / shape[1] % 7) - 3, col = (float)(i % shape[1] % 5) + 1;
                        const float KINDS[] = {0, row * col, x[i] * 1e-30f, x[i] * 1e30f, x[i] > 0 ? 3.4e38f : -3.4e38f};
                        x[i] = KINDS[kind];
                    }
                    const bool is_zero = kind == 0;
                    run(shape[0], shape[1], &x, {(zoff_muon_coefficients)set, 10, gram}, {1}, false);
                    EXPECT_TRUE(std::all_of(x.begin(), x.end(), [&](float y) { return is_zero ? y == 0 : std::abs(y) < 2; }));
                }
            }
        }
    }
}
} // namespace
