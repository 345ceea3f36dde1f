/* SPDX-License-Identifier: Apache-2.0 */
/* universal.h: a universal checkpoint folder of DeepSpeed.
 *
 *      FOLDER/zero/NAME/fp32.pt exp_avg.pt exp_avg_sq.pt step.pt    each parameter
 *      FOLDER/zero/optimizer_state.pt                               loss scale and hyper-parameters
 *      FOLDER/mp_rank_00_model_states.pt ...                        the model's part, which DeepSpeed's engine reads
 *      latest_universal, beside FOLDER                              its name
 *
 *  Tied parameters are in `shared_params` of the model's part. Those of stages 1 and 2 also have a file fp32.pt, of weights in
 * 16 bits, which DeepSpeed does not read: --inject_missing_state writes it.
 *
 *  The step of ZeRO stages 1 and 2 is in step.pt, that of stage 3 in optimizer_state.pt. The tensors of stages 1 and 2 are in a
 *  dict under "param", merged over tensor parallelism; those of stage 3 are flat, and the shapes are in the model's part.
 *
 *  Functions return false after an error, with its message in `f`. */
#ifndef ZOFF_TOOL_UNIVERSAL_H
#define ZOFF_TOOL_UNIVERSAL_H

#include "pool.h"
#include "torch_file.h"

#include <zoff/state.h>

enum {
    UNIVERSAL_STATES = 3, /* number of kinds of zoff_state_kind that have a file each: the first ones */
    UNIVERSAL_PATH_MAX = 4096
};

typedef struct universal_param {
    const char *name;
    size_t dims[TORCH_DIMS_MAX];
    size_t dim_count, count;
    bool is_flat;        /* the files have no dict, and perhaps another shape */
    bool has_step;       /* the parameter has a step.pt */
    unsigned states;     /* bit k is set if there is a file of state k of zoff_state_kind */
    zoff_dtype dtype;    /* type of the model's weights; ZOFF_DTYPE_DEFAULT: not known */
    size_t order;        /* place in the order of the model; SIZE_MAX: not known */
    const char *tied_to; /* parameter whose weights and states it shares; NULL: it has its own */
} universal_param;

typedef struct universal_folder {
    char path[UNIVERSAL_PATH_MAX]; /* path of the folder that has zero/ */
    universal_param *params;       /* parameters in the bytewise order of their names */
    size_t count;
    pool memory;
} universal_folder;

/* Facts beside the tensors. */
typedef struct universal_facts {
    int64_t step; /* updates made; -1: not known */
    bool has_scaler;
    zoff_loss_scaler scaler; /* a dynamic loss scale is known */
} universal_facts;

/* Write a path of FOLDER/A, or FOLDER/A/B where b is not NULL. */
bool universal_path(char out[UNIVERSAL_PATH_MAX], const char *folder, const char *a, const char *b, fault *f);

/* Find the folder that has zero/: `path`, or the one in it that latest_universal names. */
bool universal_find(const char *path, char out[UNIVERSAL_PATH_MAX], fault *f);

/* Read names and shapes of all parameters. Refuses files and keys that it does not know.
 * @param path  the folder that has zero/
 * On success the caller closes *out. */
bool universal_folder_open(const char *path, universal_folder *out, fault *f);
void universal_folder_close(universal_folder *u);

/* Find a parameter by name; NULL: none. */
universal_param *universal_folder_find(const universal_folder *u, const char *name, size_t name_bytes);

/* "fp32.pt" and so on. */
const char *universal_file_name(zoff_state_kind kind);

/* Open the file of a state of a parameter. On success the caller closes *out. */
bool universal_tensor_open(const universal_folder *u, const char *name, zoff_state_kind kind, torch_file **out,
                           torch_tensor *out_tensor, bool *out_is_flat, fault *f);

/* Read the step and the loss scale. The steps of all parameters must be equal. */
bool universal_facts_read(const universal_folder *u, universal_facts *out, fault *f);

/* Open zero/optimizer_state.pt. On success the caller closes *out. */
bool universal_optimizer_open(const universal_folder *u, torch_file **out, fault *f);
/* The state of a dynamic loss scaler in the optimizer's file, a dict; NULL: none. */
const pickle_value *universal_optimizer_scaler(const pickle_value *root);
/* The step of the first state or of the first group in that file; NULL: none. */
const pickle_value *universal_optimizer_step(const pickle_value *root);

/* Read from the model's part the order of the parameters, their types, the shapes of flat ones, and which are tied.
 * @param adds_tied  add tied ones that have no files, which are most */
bool universal_model_read(universal_folder *u, bool adds_tied, fault *f);

#endif
