/* digest_priv.h: the checksum of a chunk, by which it is known again when it comes back from a file. */
#ifndef ZOFF_OFFLOAD_DIGEST_PRIV_H
#define ZOFF_OFFLOAD_DIGEST_PRIV_H

#include <stddef.h>
#include <stdint.h>

/* Blocks that are hashed each for itself, so that a team can share them: as large as the second-level cache likes. */
enum { ZOFF_DIGEST_BLOCK = 256 << 10 };

/* How many blocks `bytes` have. */
size_t zoff_offload_digest_blocks(size_t bytes);

/* XXH3-64 over the XXH3-64 of the blocks: the same for any number of threads. `scratch` has room for the blocks' hashes. */
uint64_t zoff_offload_digest(unsigned threads, const void *base, size_t bytes, uint64_t *scratch);

/* XXH3-64 of a few bytes, for heads and tables. */
uint64_t zoff_offload_digest_small(const void *base, size_t bytes);

#endif
