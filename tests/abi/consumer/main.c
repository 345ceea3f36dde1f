/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: a program outside the tree that uses only the installed headers and one library. It takes one Adam step with a
 * kernel, and one with an engine. The engine needs all libraries on which zoff depends. */
#include <math.h>
#include <stdio.h>
#include <zoff/zoff.h>

static int step_with_engine(void)
{
    float weight = 1.0f, grad = 0.5f;
    const zoff_param_desc desc = {.struct_size = sizeof desc, .value = &weight, .grad = &grad, .count = 1};
    zoff_engine *engine;
    if (zoff_engine_open(NULL, &desc, 1, &engine) != ZOFF_OK)
        return -1;
    const zoff_status status = zoff_step(engine, NULL, NULL);
    zoff_engine_destroy(engine);
    return status == ZOFF_OK && weight < 1.0f ? 0 : -1;
}

int main(void)
{
    float weight = 1.0f, m = 0.0f, v = 0.0f, grad = 0.5f;
    zoff_optimizer_hyper hyper;
    zoff_optimizer_tensor tensor = {
        .struct_size = sizeof tensor, .count = 1, .master = &weight, .m = &m, .v = &v, .grad = &grad};
    zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_ADAM);
    hyper.lr = 0.125;
    if (zoff_optimizer_step(&hyper, 1, 1.0, &tensor) != ZOFF_OK || step_with_engine() != 0) {
        fprintf(stderr, "zoff: %s\n", zoff_last_error());
        return 1;
    }
    /* The first Adam step moves each weight by the learning rate, against the sign of the gradient. The size of the gradient
     * does not matter. */
    printf("zoff %u: %.6f\n", zoff_version(), (double)weight);
    return fabsf(weight - 0.875f) < 1e-6f ? 0 : 1;
}
