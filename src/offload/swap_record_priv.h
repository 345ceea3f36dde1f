/* SPDX-License-Identifier: Apache-2.0 */
/* swap_record_priv.h: the records in a persistent state file. Private to the offload room.
 *
 *      0         4 KiB     8 KiB
 *      | head 0  | head 1  | table 0, attachment 0 | table 1, attachment 1 | chunk: slot 0, slot 1 | chunk: slot 0, slot 1 |
 * ...
 *
 * Head g & 1, table g & 1 and attachment g & 1 describe generation g, so that the record of generation g - 1 stays complete
 * while that of g is written. The attachment is bytes of the store's user; it follows its table without a gap, so that both are
 * one write. A record counts if the checksums of head, table and attachment are right: one that was torn during its writing
 * does not. With several files the attachment is in the records of the first one. All numbers are little-endian, like the
 * machines that this library supports. */
#ifndef ZOFF_OFFLOAD_SWAP_RECORD_PRIV_H
#define ZOFF_OFFLOAD_SWAP_RECORD_PRIV_H

#include "map.h"
#include "offload.h"

#include <zoff/aio.h>

enum {
    ZOFF_RECORD_HEAD_BYTES = 4096,
    ZOFF_RECORD_VERSION = 4,
    ZOFF_RECORD_VERSION_BLOCKS = 5, /* version with moments in 8 bits, whose bytes had other meanings in version 4 */
};

/* Identifies the states in a file: whose they are, and which part. */
typedef struct zoff_swap_identity {
    uint64_t layout, cut; /* checksums of the model, and of its cut into chunks */
    uint64_t limit_bytes, limit_elements;
    uint64_t chunk_count; /* chunks in all files */
    uint32_t rank, ranks;
    uint32_t file, files;
} zoff_swap_identity;

/* One array of a chunk. */
typedef struct zoff_swap_entry_array {
    uint64_t end; /* end of the array in the chunk, in bytes; the array begins where the one before it ends */
    uint64_t checksum;
    uint32_t slot, flags;
} zoff_swap_entry_array;

/* One chunk in a table. */
typedef struct zoff_swap_entry {
    uint64_t chunk, offset;
    uint64_t first_bytes; /* bytes of the fresh arrays: those behind were never filled, and read as zeros */
    zoff_swap_entry_array arrays[ZOFF_STORE_ARRAYS];
} zoff_swap_entry;

enum { ZOFF_ENTRY_FRESH = 1, ZOFF_ENTRY_HAS_CHECKSUM = 2 };

enum { ZOFF_HEAD_STEPPED = 1 }; /* more than the first content was recorded, for any value of `t` */

typedef struct zoff_swap_head {
    char magic[8];
    uint32_t version, entry_bytes;
    uint64_t generation;
    int64_t t; /* step after which the states have this content */
    uint64_t flags;
    zoff_swap_identity identity;
    uint64_t entry_count, table_room; /* bytes of one table and the largest attachment, padded */
    uint64_t file_bytes;
    uint64_t write_bytes; /* bytes that all runs have written into this file */
    uint64_t table_checksum;
    uint64_t attached_bytes, attached_checksum;
    uint64_t checksum; /* checksum of all fields before it */
} zoff_swap_head;

/* The two records of a file. */
typedef struct zoff_swap_found {
    bool is_blank;    /* nothing was ever written to either head */
    bool is_whole[2]; /* head, table and attachment are right */
    bool has_head[2]; /* the head is right */
    bool is_empty[2]; /* the head is zero */
    bool is_taken_back[2];
    uint32_t other_version; /* the version in a head that this library does not read; 0: none */
    zoff_swap_head heads[2];
    zoff_swap_entry *tables[2]; /* tables of complete records; on the heap, with the attachment behind its entries */
} zoff_swap_found;

/* Bytes before the first chunk of a file with this many chunks. */
uint64_t zoff_offload_swap_record_room(size_t entries);

/* Write a record; `head` needs generation, t, identity, entry_count, file_bytes, write_bytes and attached_bytes.
 * @param attached at most ZOFF_STORE_ATTACHED_MOST bytes  @blocks until it is written */
zoff_status zoff_offload_swap_record_write(zoff_aio *aio, zoff_swap_head *head, const zoff_swap_entry *entries,
                                           const void *attached);

/* The attachment of a complete record. */
const void *zoff_offload_swap_record_attached(const zoff_swap_found *found, unsigned which);

/* Make both records of a file with this many chunks blank: writes all bytes before the first chunk.  @blocks yes */
zoff_status zoff_offload_swap_record_clear(zoff_aio *aio, size_t entries);

/* Overwrite the record of a generation, so that there is none.  @blocks yes */
zoff_status zoff_offload_swap_record_take_back(zoff_aio *aio, uint64_t generation);

/* Read both records. A record that is not right is no error: *out says so.  @owns out: zoff_offload_swap_record_free() */
zoff_status zoff_offload_swap_record_read(int fd, const char *name, zoff_swap_found *out);
void zoff_offload_swap_record_free(zoff_swap_found *found);

/* Refuse a file that another version of the library wrote. One that is newer is refused even beside a record that this library
 * reads, because that one is older. */
zoff_status zoff_offload_swap_record_check_version(const char *name, const zoff_swap_found *found);

/* Whether a damaged record is where that of a generation is written. A power cut during its writing leaves the same. */
bool zoff_offload_swap_record_is_damaged(const zoff_swap_found *found, uint64_t generation);

#endif
