/* SPDX-License-Identifier: Apache-2.0 */
/* import.h: what the formats of `zoff import` share. */
#ifndef ZOFF_TOOL_IMPORT_H
#define ZOFF_TOOL_IMPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zoff/state.h>

struct st_reader;

/* The arguments of `zoff import`. */
typedef struct import_options {
    char **paths; /* files or folders to read */
    size_t path_count;
    const char *to;      /* folder of checkpoints */
    int64_t step;        /* updates made; -1: not given */
    zoff_dtype dtype;    /* type of the weights; ZOFF_DTYPE_DEFAULT: that of each tensor */
    unsigned moments;    /* bit k is set for state k of zoff_state_kind, which is filled with zeros */
    const char **skip;   /* patterns of tensors to leave out; they end with NULL */
    const char **frozen; /* patterns of parameters that are frozen; they end with NULL */
    char **stacks;       /* texts NAME=PATTERN */
    size_t stack_count;
    const char *name;      /* name of the checkpoint; NULL: "step-" and ten digits */
    const char *optimizer; /* file with the moments; NULL: none is named */
    bool has_zeros;        /* --optimizer names an optimizer, whose moments are zero */
} import_options;

typedef struct import_files import_files;
typedef struct source_tensor source_tensor;

/* A format of files. Each function returns the exit status. */
typedef struct import_format {
    const char *name; /* name of the verb */
    const char *index, *begin,
        *end;                 /* name of the index in a folder; begin and end of names of files in a folder without one */
    bool is_ordered_by_index; /* the index, and not the files, has the order of the parameters */
    bool has_optimizers;      /* --optimizer may be a file */
    int (*open)(struct st_reader *r, const char *path, const char *const *skip);
    void (*close)(struct st_reader *r);
    /* Read what is beside the tensors once all files are open: their states, the step and the moments. NULL: nothing is. */
    int (*prepare)(import_files *f, import_options *o);
    /* Read elements of a state as fp32. Those of one state are read in order. */
    int (*read)(const source_tensor *t, zoff_state_kind kind, uint64_t first, size_t count, float *dst);
} import_format;

/* Read the arguments behind the name of a format, and import its files.  @return the exit status */
int import_run(const import_format *format, int argc, char **argv);

/* Import files.  @return the exit status */
int import_model(const import_format *format, const import_options *o);

extern const import_format IMPORT_SAFETENSORS;

#endif
