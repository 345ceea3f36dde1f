/* digest_priv.h: the checksum of a chunk, by which it is known again when it comes back from a file. Private to the offload
 * room. */
#ifndef ZOFF_OFFLOAD_DIGEST_PRIV_H
#define ZOFF_OFFLOAD_DIGEST_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks that are hashed each for itself, so that a team can share them, and each while it is still in a cache. */
enum { ZOFF_DIGEST_BLOCK = 64 << 10 };

/* The blocks of one chunk, hashed in any order. */
typedef struct zoff_digest {
    uint64_t *hashes;
    bool *done;  /* of each block */
    size_t room; /* blocks */
} zoff_digest;

/* How many blocks `bytes` have. */
size_t zoff_offload_digest_blocks(size_t bytes);

/* Begin anew with a chunk of `bytes`. */
void zoff_offload_digest_begin(zoff_digest *d, size_t bytes);

/* Hash those blocks of a chunk of `bytes` at `base` that lie in [from, to) as a whole and are not hashed yet. */
void zoff_offload_digest_add(zoff_digest *d, unsigned threads, const void *base, size_t bytes, size_t from, size_t to);

/* Hash what is left: XXH3-64 over the XXH3-64 of the blocks, the same for any number of threads and in any order. */
uint64_t zoff_offload_digest_end(zoff_digest *d, unsigned threads, const void *base, size_t bytes);

/* XXH3-64 of a few bytes, for heads and tables. */
uint64_t zoff_offload_digest_small(const void *base, size_t bytes);

#endif
