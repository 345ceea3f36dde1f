/* digest_priv.h: the checksums of the arrays of a chunk, by which each is known again when it comes back from a file. Private
 * to the offload room. */
#ifndef ZOFF_OFFLOAD_DIGEST_PRIV_H
#define ZOFF_OFFLOAD_DIGEST_PRIV_H

#include "offload.h"

/* Blocks that are hashed each for itself, so that a team can share them, and each while it is still in a cache. */
enum { ZOFF_DIGEST_BLOCK = 64 << 10 };

/* The blocks of one chunk, hashed in any order. Each array begins with a block of its own. */
typedef struct zoff_digest {
    uint64_t *hashes;
    bool *done;                           /* of each block */
    size_t room;                          /* blocks */
    size_t ends[ZOFF_STORE_ARRAYS];       /* of the arrays, in bytes: each begins where the one before it ends */
    size_t block_ends[ZOFF_STORE_ARRAYS]; /* likewise in blocks */
} zoff_digest;

/* How many blocks the arrays of `bytes` have together, at most. */
size_t zoff_offload_digest_room(size_t bytes);

/* Begin anew with a chunk whose arrays end there. */
void zoff_offload_digest_begin(zoff_digest *d, const size_t ends[ZOFF_STORE_ARRAYS]);

/* Hash those blocks of the chunk at `base` that lie in its bytes [from, to) as a whole and are not hashed yet. */
void zoff_offload_digest_add(zoff_digest *d, unsigned threads, const void *base, size_t from, size_t to);

/* Hash what is left of some arrays (bit k: array k), and write their checksums: XXH3-64 over the XXH3-64 of an array's blocks,
 * the same for any number of threads and in any order. Other elements of `out` stay as they are. */
void zoff_offload_digest_end(zoff_digest *d, unsigned threads, const void *base, unsigned arrays,
                             uint64_t out[ZOFF_STORE_ARRAYS]);

/* XXH3-64 of a few bytes, for heads and tables. */
uint64_t zoff_offload_digest_small(const void *base, size_t bytes);

#endif
