/* options.h: the command line of the trainer. */
#ifndef CUDA_TRAINER_OPTIONS_H
#define CUDA_TRAINER_OPTIONS_H

#include "model.h"

typedef struct trainer_options {
    const char *data;
    gpt_shape shape;
    size_t steps;
    uint64_t seed;
    const char *config; /* ds_config for zoff; NULL: its defaults */
    int device;
    const char *accel; /* zoff's name of the device */
} trainer_options;

/* Returns 0; 1 after --help; -1 after an error message on stderr. */
int trainer_options_parse(int argc, char **argv, trainer_options *out);

#endif
