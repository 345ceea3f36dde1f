/* SPDX-License-Identifier: Apache-2.0 */
// oracle_q8.h: a step with moments in 8 bits as plain loops, written from the formulas in src/cpu_adam/q8.h without its code.
// Codes are found by search, and scales by trying.
#ifndef ZOFF_TESTS_ORACLE_Q8_H
#define ZOFF_TESTS_ORACLE_Q8_H

#include <zoff/optimizer.h>

extern "C" {
#include "cpu_adam.h"
}

namespace oracle_q8
{
// `moment` is 0 for m and 1 for v.

// A code without its sign, in multiples of the scale: two less than this number of 3 fraction bits and an exponent.
double value(unsigned code);
double number(unsigned code);
// Number of codes without sign.
unsigned codes(unsigned moment);
// Exponent of the scale of a block with this bound.
int scale(unsigned moment, float bound);
// The code for a number that is not negative, in multiples of the scale: up if its distance from the code below, and the random
// number over 65536, are 1 together.
unsigned round(unsigned moment, double multiple, unsigned random);

// A parameter: the masters with gradients and copy as for oracle_step(), and the memory of its moments, in these formats.
struct parameter {
    zoff_optimizer_tensor tensor;
    zoff_moments moments;
    unsigned char *m, *v;
    uint64_t key;                  // key of the first block
    double over_m = 0, over_v = 0; // the largest of all moments, before they were rounded, over their bounds,
                                   // or over the least normal number of fp32
    size_t outliers = 0;           // outliers of all blocks and steps
};

// Step `t`; `k` are its constants.
void step(const zoff_adam_consts &k, int64_t t, parameter *p);
} // namespace oracle_q8

#endif
