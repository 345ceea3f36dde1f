/* SPDX-License-Identifier: Apache-2.0 */
/* c_side.c: takes steps with given gradients, as a trainer in C does.
 *
 *      c_side CONFIG INPUT OUTPUT
 *
 * INPUT has 64-bit numbers: parameters, steps, bytes of an element, zoff_dtype, and the elements of each parameter. Weights of
 * each parameter follow, and the gradients of each step. OUTPUT gets the weights. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <zoff/zoff.h>

enum { PARAMS_MOST = 16 };

static void must(int works, const char *what)
{
    if (!works)
        fprintf(stderr, "%s: %s\n", what, zoff_last_error()), exit(1);
}

int main(int argc, char **argv)
{
    uint64_t head[4], counts[PARAMS_MOST];
    zoff_param_desc params[PARAMS_MOST] = {0};
    char names[PARAMS_MOST][16];
    must(argc == 4, "usage: c_side CONFIG INPUT OUTPUT");
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    must(in && out && fread(head, sizeof head, 1, in) == 1 && head[0] <= PARAMS_MOST, argv[2]);
    must(fread(counts, sizeof *counts, head[0], in) == head[0], "counts");
    for (uint64_t i = 0; i < head[0]; i++) {
        snprintf(names[i], sizeof names[i], "p%d", (int)i);
        params[i] = (zoff_param_desc){.value = malloc(counts[i] * head[2]),
                                      .grad = malloc(counts[i] * head[2]),
                                      .count = counts[i],
                                      .dtype = (zoff_dtype)head[3],
                                      .name = names[i]};
        must(fread(params[i].value, head[2], counts[i], in) == counts[i], "weights");
    }
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    zoff_engine *engine = NULL;
    opts.config_path = argv[1];
    must(zoff_engine_open(&opts, params, head[0], &engine) >= 0, "open");
    for (uint64_t t = 0; t < head[1]; t++) {
        for (uint64_t i = 0; i < head[0]; i++)
            must(fread(params[i].grad, head[2], counts[i], in) == counts[i], "gradients");
        must(zoff_step(engine, NULL, NULL) >= 0, "step");
    }
    zoff_engine_destroy(engine);
    for (uint64_t i = 0; i < head[0]; i++) {
        must(fwrite(params[i].value, head[2], counts[i], out) == counts[i], argv[3]);
        free(params[i].value);
        free(params[i].grad);
    }
    fclose(in);
    return fclose(out);
}
