/* SPDX-License-Identifier: Apache-2.0 */
// reference_matrices.cc: Muon as in <zoff/optimizer.h>: products of whole matrices by three loops, in the order of the
// contract.
#include "reference.h"

#include <algorithm>

namespace reference
{
namespace
{
// Row-major.
struct table {
    size_t rows, cols;
    std::vector<float> at;
    table(size_t rows_, size_t cols_) : rows(rows_), cols(cols_), at(rows_ * cols_) {}
    float &operator()(size_t i, size_t j) { return at[i * cols + j]; }
    float operator()(size_t i, size_t j) const { return at[i * cols + j]; }
};

table turned(const table &x)
{
    table t(x.cols, x.rows);
    for (size_t i = 0; i < x.rows; i++) {
        for (size_t j = 0; j < x.cols; j++)
            t(j, i) = x(i, j);
    }
    return t;
}

// Chains of 256 consecutive k, whose sums are added in order. Columns are the inner loop, so that the compiler has lanes.
table product(const table &a, const table &b)
{
    table sum(a.rows, b.cols);
    std::vector<float> chain(b.cols);
    for (size_t i = 0; i < a.rows; i++) {
        for (size_t first = 0; first < a.cols; first += 256) {
            std::fill(chain.begin(), chain.end(), 0.0f);
            for (size_t k = first; k < std::min(first + 256, a.cols); k++) {
                for (size_t j = 0; j < b.cols; j++)
                    chain[j] = fmaf(a(i, k), b(k, j), chain[j]);
            }
            for (size_t j = 0; j < b.cols; j++)
                sum(i, j) = first ? sum(i, j) + chain[j] : chain[j];
        }
    }
    return sum;
}

// A product that is symmetric but for rounding: the lower triangle is computed, and mirrored.
table symmetric(const table &a, const table &b)
{
    table x = product(a, b);
    for (size_t i = 0; i < x.rows; i++) {
        for (size_t j = 0; j < i; j++)
            x(j, i) = x(i, j);
    }
    return x;
}

// factor * x + y * add, element by element: fma(factor, x, add * y)
table blend(float factor, const table &x, float add, const table &y)
{
    table out(x.rows, x.cols);
    for (size_t i = 0; i < x.at.size(); i++)
        out.at[i] = fmaf(factor, x.at[i], add * y.at[i]);
    return out;
}

// fma(factor, x, y)
table scaled(float factor, const table &x, const table &y)
{
    table out(x.rows, x.cols);
    for (size_t i = 0; i < x.at.size(); i++)
        out.at[i] = fmaf(factor, x.at[i], y.at[i]);
    return out;
}

// The set "simple" has one polynomial, so the engine's tests need no other; those of the kernels have all.
const float A = 3.4445f, B = -4.7750f, C = 2.0315f;

table small_side(const table &x)
{
    return x.rows <= x.cols ? product(x, turned(x)) : product(turned(x), x);
}

table times(const table &small, const table &x)
{
    return x.rows <= x.cols ? product(small, x) : product(x, small);
}
} // namespace

void orthogonalize(const zoff_optimizer_hyper &h, size_t rows, size_t cols, float *u)
{
    table x(rows, cols);
    double squares = 0;
    for (size_t first = 0; first < rows * cols; first += 1024)
        squares += block_sum(u + first, std::min<size_t>(1024, rows * cols - first));
    const double factor = 1 / (sqrt(squares) + 1e-7);
    for (size_t i = 0; i < rows * cols; i++)
        x.at[i] = (float)(u[i] * factor);
    const size_t n = std::min(rows, cols), m = std::max(rows, cols);
    const bool gram = h.ns_method == ZOFF_MUON_GRAM && m >= 2 * n;
    table r(n, n), q(n, n);
    bool has_q = false;
    for (unsigned step = 0; step < h.ns_steps; step++) {
        if (!gram) {
            const table s = small_side(x);
            x = scaled(A, x, times(blend(C, product(s, s), B, s), x));
            continue;
        }
        const bool restarts = step % 3 == 2;
        if (restarts)
            x = times(q, x);
        if (restarts || step == 0) {
            r = small_side(x);
            has_q = false;
        }
        const table z = blend(C, product(r, r), B, r);
        q = has_q ? scaled(A, q, symmetric(z, q)) : z;
        for (size_t i = 0; !has_q && i < n; i++)
            q(i, i) += A;
        has_q = true;
        if (step + 1 < h.ns_steps && (step + 1) % 3 != 2) {
            const table t = scaled(A, r, symmetric(z, r));
            r = scaled(A, t, symmetric(z, t));
        }
    }
    if (gram)
        x = times(q, x);
    std::copy(x.at.begin(), x.at.end(), u);
}

double scale_of(zoff_muon_scale scale, size_t rows, size_t cols)
{
    const double r = (double)rows, c = (double)cols;
    switch (scale) {
    case ZOFF_MUON_SCALE_ORIGINAL:
        return sqrt(std::max(1.0, r / c));
    case ZOFF_MUON_SCALE_MATCH_RMS_ADAMW:
        return 0.2 * sqrt(std::max(r, c));
    case ZOFF_MUON_SCALE_SPECTRAL:
        return sqrt(std::max(r, c));
    case ZOFF_MUON_SCALE_UNIT_RMS_NORM:
        break;
    }
    return sqrt(r / c);
}

void step_matrices(tensor &x, const zoff_optimizer_hyper &h, size_t slice, int64_t t, float scale)
{
    const float keep = (float)h.momentum, take = (float)(1 - h.momentum);
    for (const matrix &one : x.matrices) {
        const size_t begin = slice * x.count + one.first, count = one.rows * one.cols;
        std::vector<float> u(count);
        for (size_t i = 0; i < count; i++) {
            const float g = x.sum[begin + i] * scale;
            float &m = x.m[begin + i];
            m = fmaf(take, g, keep * m);
            u[i] = h.nesterov ? fmaf(take, g, keep * m) : m;
            if (x.halves)
                m = dithered(m, 0, x.name, slice, one.first + i, t);
        }
        orthogonalize(h, one.rows, one.cols, u.data());
        const float rate = (float)(-h.lr * scale_of(h.scale, one.rows, one.cols)), shrink = (float)(-h.lr * h.weight_decay);
        for (size_t i = 0; i < count; i++) {
            float &p = x.master[begin + i];
            p = h.weight_decay != 0 ? p + fmaf(rate, u[i], shrink * p) : fmaf(rate, u[i], p);
        }
    }
}
} // namespace reference
