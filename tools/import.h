/* import.h: what the formats of `zoff import` share. */
#ifndef ZOFF_TOOL_IMPORT_H
#define ZOFF_TOOL_IMPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zoff/types.h>

/* The arguments of `zoff import`. */
typedef struct import_options {
    char **paths; /* files or folders to read */
    size_t path_count;
    const char *to;      /* folder of checkpoints */
    int64_t step;        /* updates made */
    zoff_dtype dtype;    /* type of the weights; ZOFF_DTYPE_DEFAULT: that of each tensor */
    unsigned moments;    /* bit k is set for state k of zoff_state_kind, which is filled with zeros */
    const char **skip;   /* patterns of tensors to leave out; they end with NULL */
    const char **frozen; /* patterns of parameters that are frozen; they end with NULL */
    char **stacks;       /* texts NAME=PATTERN */
    size_t stack_count;
    const char *name; /* name of the checkpoint; NULL: "step-" and ten digits */
} import_options;

/* Import files of the safetensors format.  @return the exit status */
int import_safetensors(const import_options *o);

#endif
