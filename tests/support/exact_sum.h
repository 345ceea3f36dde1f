/* SPDX-License-Identifier: Apache-2.0 */
// exact_sum.h: a sum of doubles that does not depend on their order.
#ifndef ZOFF_TEST_EXACT_SUM_H
#define ZOFF_TEST_EXACT_SUM_H

#include <math.h>
#include <stddef.h>

#include <utility>
#include <vector>

namespace reference
{
// A sum of doubles that is rounded only once, at the end. Keeps partial sums that do not overlap, as Shewchuk describes.
class exact_sum
{
  public:
    void add(double x)
    {
        if (!isfinite(x))
            finite = false;
        size_t kept = 0;
        for (double y : partials) {
            if (fabs(x) < fabs(y))
                std::swap(x, y);
            const double high = x + y, low = y - (high - x);
            if (low != 0)
                partials[kept++] = low;
            x = high;
        }
        partials.resize(kept);
        partials.push_back(x);
    }

    double value() const
    {
        if (!finite)
            return NAN;
        double high = 0, low = 0;
        size_t n = partials.size();
        while (n > 0 && low == 0) {
            const double x = high, y = partials[--n];
            high = x + y;
            low = y - (high - x);
        }
        // At a tie between two doubles, the next lower partial sum decides, if it has the same sign.
        if (n > 0 && ((low < 0 && partials[n - 1] < 0) || (low > 0 && partials[n - 1] > 0))) {
            const double twice = 2 * low, x = high + twice;
            if (twice == x - high)
                return x;
        }
        return high;
    }

  private:
    std::vector<double> partials; // partial sums from the smallest to the largest
    bool finite = true;
};
} // namespace reference

#endif
