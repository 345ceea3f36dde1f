/* SPDX-License-Identifier: Apache-2.0 */
/* mlp.c: trains a perceptron of two layers in fp32, with an AdamW of its own. The patches beside it give the update to zoff. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, IN = 16, HIDDEN = 64, FIRST = (IN + 1) * HIDDEN, SECOND = HIDDEN + 1, COUNT = FIRST + SECOND };
static float w[COUNT], g[COUNT];                       /* weights and gradients of both layers, biases behind weights */
static float x[BATCH][IN], h[BATCH][HIDDEN], y[BATCH]; /* inputs, activations, errors of the output */

static float noise(uint64_t i) /* a number from -1 to 1 */
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)(i >> 40) / (1 << 23) - 1;
}
static float forward(int64_t batch) /* returns the loss */
{
    float loss = 0;
    for (int i = 0; i < BATCH * IN; i++)
        x[i / IN][i % IN] = noise((uint64_t)(batch * BATCH * IN + i));
    for (int s = 0; s < BATCH; s++)
        for (int j = 0; j < HIDDEN; j++) {
            float sum = w[IN * HIDDEN + j];
            for (int k = 0; k < IN; k++)
                sum += w[j * IN + k] * x[s][k];
            h[s][j] = tanhf(sum);
        }
    for (int s = 0; s < BATCH; s++) {
        y[s] = w[COUNT - 1] - x[s][0] * x[s][1] - x[s][2]; /* minus the function to learn */
        for (int j = 0; j < HIDDEN; j++)
            y[s] += w[FIRST + j] * h[s][j];
        loss += y[s] * y[s] / 2 / BATCH;
    }
    return loss;
}
static void backward(void)
{
    memset(g, 0, sizeof g);
    for (int s = 0; s < BATCH; s++) {
        const float dy = y[s] / BATCH;
        for (int j = 0; j < HIDDEN; j++) {
            const float dh = dy * w[FIRST + j] * (1 - h[s][j] * h[s][j]);
            g[FIRST + j] += dy * h[s][j], g[IN * HIDDEN + j] += dh;
            for (int k = 0; k < IN; k++)
                g[j * IN + k] += dh * x[s][k];
        }
        g[COUNT - 1] += dy;
    }
}
static void update(int64_t t) /* AdamW */
{
    static float m[COUNT], v[COUNT];
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01;
    for (int i = 0; i < COUNT; i++) {
        m[i] = (float)(beta1 * m[i] + (1 - beta1) * g[i]);
        v[i] = (float)(beta2 * v[i] + (1 - beta2) * g[i] * g[i]);
        const double up = m[i] / (1 - pow(beta1, (double)t)), down = sqrt(v[i] / (1 - pow(beta2, (double)t))) + eps;
        w[i] -= (float)(lr * (up / down + decay * w[i]));
    }
}
int main(int argc, char **argv)
{
    int64_t t = 0, steps = argc > 1 ? atoi(argv[1]) : 40;
    for (int i = 0; i < COUNT; i++)
        w[i] = noise((uint64_t)i) / 4;
    while (t < steps) {
        const float loss = forward(++t);
        backward();
        update(t);
        printf("step %d: loss %.6f\n", (int)t, loss);
    }
    return 0;
}
