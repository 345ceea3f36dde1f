/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the command line of the trainer. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "model.h"
#include "plain_adamw.h"

typedef struct gpt_options {
    const char **texts; /* the array is owned, the texts are not */
    size_t text_count;
    const char *held_out; /* a text that is not trained on; NULL: none */
    gpt_shape shape;
    size_t steps, print_every; /* print_every 0: never */
    uint64_t seed;
    bool bf16;
    bool with_zoff;
    const char *config;     /* ds_config for zoff; NULL: its defaults */
    const char *ranks;      /* how to find the other ranks; NULL: this rank is alone */
    size_t tensor_parallel; /* ranks that share one copy of the model */
    bool owned;             /* the library owns weights and gradients */
    bool just_in_time;      /* a forward pass begins before the step is over */
    gpt_hyper hyper;        /* hyper-parameters of the plain optimizer */
    const char *name, *json;
    const char *save;        /* folder of checkpoints; NULL: none */
    const char *resume;      /* "latest", a folder of checkpoints, or one of them; NULL: begin anew */
    size_t save_every, keep; /* updates between two saves (0: save only at the end), and checkpoints that stay (0: all) */
    bool async;
} gpt_options;

/* Returns 0; 1 after --help; -1 after an error message on stderr. */
int gpt_options_parse(int argc, char **argv, gpt_options *out);
void gpt_options_free(gpt_options *options);

#endif
