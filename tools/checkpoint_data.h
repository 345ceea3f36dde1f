/* checkpoint_data.h: the manifest of a checkpoint, and the names of the program's own bytes in it. */
#ifndef ZOFF_TOOL_CHECKPOINT_DATA_H
#define ZOFF_TOOL_CHECKPOINT_DATA_H

#include "pool.h"

#include <stdbool.h>
#include <zoff/checkpoint.h>

/* Bytes that a program has saved, as zoff_checkpoint_data. */
typedef struct checkpoint_datum {
    const char *name;
    unsigned rank; /* that has saved them; 0 for those of all ranks */
    bool each_rank;
    size_t count; /* bytes */
} checkpoint_datum;

typedef struct checkpoint_data {
    checkpoint_datum *data; /* in the order of ranks, and of a rank's file */
    size_t count;
    pool memory;
} checkpoint_data;

/* The text of the manifest. The caller frees *out.  @return the exit status */
int checkpoint_data_manifest(const zoff_checkpoint_reader *r, char **out, size_t *out_bytes);

/* List them.  @return the exit status; pool_free() of the memory also after an error */
int checkpoint_data_list(zoff_checkpoint_reader *r, checkpoint_data *out);

/* Find those of the same name and rank.  @return NULL: there are none */
const checkpoint_datum *checkpoint_data_find(const checkpoint_data *all, const checkpoint_datum *like);

#endif
