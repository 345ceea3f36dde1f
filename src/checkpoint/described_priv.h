/* described_priv.h: the description that stands beside a persistent state file, read without an engine. */
#ifndef ZOFF_CHECKPOINT_DESCRIBED_PRIV_H
#define ZOFF_CHECKPOINT_DESCRIBED_PRIV_H

#include "archive.h"
#include "offload.h"

#include <jansson.h>

/* One description. Zero: closed. */
typedef struct zoff_described {
    char *path;
    json_t *root;
} zoff_described;

/* Elements of a parameter in a chunk. */
typedef struct zoff_described_piece {
    uint32_t param;
    size_t slice, first, count;
    int64_t at[ZOFF_STORE_ARRAYS]; /* byte from the begin of the chunk's place; -1: the parameter lacks the state */
} zoff_described_piece;

/* Read the description of a state file, and check that it is of these states.
 * @owns out: zoff_checkpoint_described_close()  @return ERR_IO: there is none; ERR_CORRUPT */
zoff_status zoff_checkpoint_described_open(const char *state_file, uint64_t layout, uint64_t cut, unsigned rank,
                                           zoff_described *out);
void zoff_checkpoint_described_close(zoff_described *d);
/* Fill in the parameters of a manifest. Frozen ones have no states. zoff_archive_manifest_free() frees them, also after an
 * error. */
zoff_status zoff_checkpoint_described_params(const zoff_described *d, zoff_archive_manifest *m);
/* Whether two ranks have the same pieces in the same chunks. */
bool zoff_checkpoint_described_equal(const zoff_described *a, const zoff_described *b);
/* Find a chunk by its number.  @return false: it is not described */
bool zoff_checkpoint_described_find(const zoff_described *d, size_t chunk, size_t *out_entry);
size_t zoff_checkpoint_described_pieces(const zoff_described *d, size_t entry);
/* Read a piece, which is inside of its parameter in `m`. */
zoff_status zoff_checkpoint_described_piece(const zoff_described *d, const zoff_archive_manifest *m, size_t entry, size_t index,
                                            zoff_described_piece *out);

#endif
