/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: checksums of states in files: of the arrays of a chunk while they are updated, and of whole runs of bytes. State
 * files and checkpoints use the same checksum, so the checksum of an array stays valid in a copy of it. */
#ifndef ZOFF_DIGEST_H
#define ZOFF_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a block. Blocks are hashed one by one, so that a team can share them, and each is hashed while it is in a cache. */
enum { ZOFF_DIGEST_BLOCK = 64 << 10 };

/* The number of arrays of a chunk. */
enum { ZOFF_DIGEST_ARRAYS = 3 };

/* The blocks of one chunk, hashed in any order. Each array starts a new block. */
typedef struct zoff_digest {
    uint64_t *hashes;
    bool *done;                            /* one flag per block: it is hashed */
    size_t room;                           /* blocks */
    size_t ends[ZOFF_DIGEST_ARRAYS];       /* ends of the arrays in bytes; each array begins where the one before it ends */
    size_t block_ends[ZOFF_DIGEST_ARRAYS]; /* ends of the arrays in blocks */
} zoff_digest;

/* The most blocks that the arrays of a chunk of `bytes` can have together. */
size_t zoff_digest_blocks_room(size_t bytes);

/* Start again with a chunk whose arrays have these ends. */
void zoff_digest_blocks_begin(zoff_digest *d, const size_t ends[ZOFF_DIGEST_ARRAYS]);

/* Hash the blocks of the chunk at `base` that lie completely in its bytes [from, to) and are not hashed yet. */
void zoff_digest_blocks_add(zoff_digest *d, unsigned threads, const void *base, size_t from, size_t to);

/* Hash the remaining blocks of some arrays (bit k: array k), and write their checksums: XXH3-64 over the XXH3-64 of an array's
 * blocks. They do not depend on the number of threads or the order. Other elements of `out` stay unchanged. */
void zoff_digest_blocks_end(zoff_digest *d, unsigned threads, const void *base, unsigned arrays,
                            uint64_t out[ZOFF_DIGEST_ARRAYS]);

/* The checksum of one run of bytes: XXH3-64 over the XXH3-64 of its blocks. `threads`: of the calling thread's team. */
uint64_t zoff_digest_blocks_whole(const void *base, size_t bytes, unsigned threads);

/* XXH3-64 of a few bytes, for heads and tables. */
uint64_t zoff_digest_blocks_small(const void *base, size_t bytes);

#endif
