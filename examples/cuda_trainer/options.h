/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the command line of the trainer, and the ds_config that results from it. */
#ifndef CUDA_TRAINER_OPTIONS_H
#define CUDA_TRAINER_OPTIONS_H

#include "model.h"

typedef struct trainer_options {
    const char *data;
    gpt_shape shape;
    size_t steps;
    uint64_t seed;
    const char *config_path;           /* ds_config for zoff; NULL: its defaults */
    const char *stage, *offload_param; /* values of the command line; NULL: what the configuration says */
    bool just_in_time;                 /* a forward pass begins before the step is over */
    int device;
    const char *accel; /* zoff's name of the device */

    /* Set by trainer_settings_open(). */
    struct zoff_config *config;
    bool lent; /* stage 3, where zoff owns the weights */
} trainer_options;

/* Returns 0; 1 after --help; -1 after an error message on stderr. */
int trainer_options_parse(int argc, char **argv, trainer_options *out);

/* Read the configuration. Returns 0; -1 after an error message on stderr. */
int trainer_settings_open(trainer_options *options);
void trainer_settings_close(trainer_options *options);

#endif
