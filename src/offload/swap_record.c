/* SPDX-License-Identifier: Apache-2.0 */
/* swap_record.c: write and read the heads and tables of persistent state files. */
#include "swap_record_priv.h"

#include "bits.h"
#include "digest.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GENERATION_MOST ((uint64_t)1 << 62)

static const char MAGIC[8] = "zoffkept", TAKEN_BACK[8] = "zoffnone";

enum { HEADS = 2, PAGE = 4096 };

/* The file is little-endian because the machines are; these structs have no padding. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "state files are little-endian");
_Static_assert(sizeof(zoff_swap_identity) == 56 && sizeof(zoff_swap_entry) == 96, "no padding in what is written");
_Static_assert(sizeof(zoff_swap_head) == 160 && sizeof(zoff_swap_head) <= ZOFF_RECORD_HEAD_BYTES, "a head is one page");

static uint64_t head_checksum(const zoff_swap_head *head)
{
    return zoff_digest_blocks_small(head, offsetof(zoff_swap_head, checksum));
}

static size_t table_room(size_t entries)
{
    return zoff_base_bits_align(entries * sizeof(zoff_swap_entry) + ZOFF_STORE_ATTACHED_MOST, PAGE);
}

static uint64_t table_offset(const zoff_swap_head *head, unsigned which)
{
    return HEADS * ZOFF_RECORD_HEAD_BYTES + which * head->table_room;
}

uint64_t zoff_offload_swap_record_room(size_t entries)
{
    return HEADS * (ZOFF_RECORD_HEAD_BYTES + table_room(entries));
}

/* A write that does not end keeps its pages. */
static zoff_status write_wait(zoff_aio *aio, uint64_t offset, zoff_map *pages, size_t from, size_t bytes)
{
    uint64_t ticket;
    ZOFF_TRY(zoff_aio_write(aio, offset, bytes, (char *)pages->base + from, &ticket));
    zoff_status status = zoff_aio_wait(aio, ticket);
    if (status != ZOFF_PENDING)
        return status;
    *pages = (zoff_map){.base = NULL};
    return zoff_base_status_fail(
        ZOFF_ERR_IO,
        "a commit record of %zu bytes at offset %llu is not written in time: the disk neither writes it "
        "nor fails (timeout_seconds)",
        bytes, (unsigned long long)offset);
}

zoff_status zoff_offload_swap_record_write(zoff_aio *aio, zoff_swap_head *head, const zoff_swap_entry *entries,
                                           const void *attached)
{
    zoff_status status;
    zoff_map pages;
    const unsigned which = head->generation & 1;
    const size_t table_bytes = (size_t)head->entry_count * sizeof *entries, attached_bytes = (size_t)head->attached_bytes;
    const size_t written = zoff_base_bits_align(table_bytes + attached_bytes, PAGE);
    memcpy(head->magic, MAGIC, sizeof MAGIC);
    head->entry_bytes = sizeof *entries;
    head->table_room = table_room(head->entry_count);
    head->table_checksum = zoff_digest_blocks_small(entries, table_bytes);
    head->attached_checksum = zoff_digest_blocks_small(attached, attached_bytes);
    head->checksum = head_checksum(head);
    ZOFF_TRY(zoff_base_map_alloc(ZOFF_RECORD_HEAD_BYTES + written, "a commit record", ZOFF_MAP_FIRST_TOUCH, &pages));
    char *base = pages.base;
    memcpy(base, head, sizeof *head);
    if (written) {
        memcpy(base + ZOFF_RECORD_HEAD_BYTES, entries, table_bytes);
        if (attached_bytes)
            memcpy(base + ZOFF_RECORD_HEAD_BYTES + table_bytes, attached, attached_bytes);
        ZOFF_TRY_OR(unmap_pages, write_wait(aio, table_offset(head, which), &pages, ZOFF_RECORD_HEAD_BYTES, written));
    }
    status = write_wait(aio, (uint64_t)which * ZOFF_RECORD_HEAD_BYTES, &pages, 0, ZOFF_RECORD_HEAD_BYTES);
unmap_pages:
    zoff_base_map_free(&pages);
    return status;
}

zoff_status zoff_offload_swap_record_clear(zoff_aio *aio, size_t entries)
{
    zoff_map pages;
    const size_t bytes = (size_t)zoff_offload_swap_record_room(entries);
    ZOFF_TRY(zoff_base_map_alloc(bytes, "blank commit records", ZOFF_MAP_FIRST_TOUCH, &pages));
    zoff_status status = write_wait(aio, 0, &pages, 0, bytes);
    zoff_base_map_free(&pages);
    return status;
}

zoff_status zoff_offload_swap_record_take_back(zoff_aio *aio, uint64_t generation)
{
    zoff_map page;
    ZOFF_TRY(zoff_base_map_alloc(ZOFF_RECORD_HEAD_BYTES, "a blank commit record", ZOFF_MAP_FIRST_TOUCH, &page));
    memcpy(page.base, TAKEN_BACK, sizeof TAKEN_BACK);
    zoff_status status = write_wait(aio, (generation & 1) * ZOFF_RECORD_HEAD_BYTES, &page, 0, ZOFF_RECORD_HEAD_BYTES);
    zoff_base_map_free(&page);
    return status;
}

/* Read at most `bytes`, up to the end of the file; the rest of `dst` stays unchanged. */
static zoff_status read_at(int fd, const char *name, uint64_t offset, void *dst, size_t bytes, size_t *out_bytes)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t ret = pread(fd, (char *)dst + got, bytes - got, (off_t)(offset + got));
        if (ret < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(ret < 0, ZOFF_ERR_IO, "cannot read the commit record at offset %llu of '%s': %s",
                     (unsigned long long)offset, name, zoff_base_status_errno(errno));
        if (ret == 0)
            break;
        got += (size_t)ret;
    }
    *out_bytes = got;
    return ZOFF_OK;
}

const void *zoff_offload_swap_record_attached(const zoff_swap_found *found, unsigned which)
{
    return found->tables[which] + found->heads[which].entry_count;
}

/* The sizes of a table and an attachment are trusted only if the head's checksum is right. No run counts its generations to the
 * end of 64 bits; callers add to them. */
static bool head_holds(const zoff_swap_head *head)
{
    return memcmp(head->magic, MAGIC, sizeof MAGIC) == 0 && head->checksum == head_checksum(head) &&
           (head->version == ZOFF_RECORD_VERSION || head->version == ZOFF_RECORD_VERSION_BLOCKS) &&
           head->entry_bytes == sizeof(zoff_swap_entry) && head->table_room == table_room(head->entry_count) &&
           head->attached_bytes <= ZOFF_STORE_ATTACHED_MOST && head->generation > 0 && head->generation <= GENERATION_MOST;
}

/* Earlier heads had other fields. Later ones keep the place of the checksum, so that a damaged head is not taken for one. */
static bool is_other(const zoff_swap_head *head)
{
    return (head->version && head->version < ZOFF_RECORD_VERSION) ||
           (head->version > ZOFF_RECORD_VERSION_BLOCKS && head->checksum == head_checksum(head));
}

static zoff_status read_one(int fd, const char *name, unsigned which, zoff_swap_found *out)
{
    char page[ZOFF_RECORD_HEAD_BYTES] = {0};
    zoff_swap_head *head = &out->heads[which];
    size_t got = 0;
    ZOFF_TRY(read_at(fd, name, (uint64_t)which * sizeof page, page, sizeof page, &got));
    out->is_empty[which] = true;
    for (size_t i = 0; i < sizeof page; i++)
        out->is_empty[which] = out->is_empty[which] && !page[i];
    out->is_blank = out->is_blank && out->is_empty[which];
    out->is_taken_back[which] = memcmp(page, TAKEN_BACK, sizeof TAKEN_BACK) == 0;
    memcpy(head, page, sizeof *head);
    if (memcmp(head->magic, MAGIC, sizeof MAGIC) == 0 && is_other(head))
        out->other_version = head->version;
    out->has_head[which] = head_holds(head) && (head->generation & 1) == which && head->t >= 0;
    if (!out->has_head[which])
        return ZOFF_OK;
    struct stat about;
    ZOFF_FAIL_IF(fstat(fd, &about) != 0, ZOFF_ERR_IO, "cannot look at '%s': %s", name, zoff_base_status_errno(errno));
    if (head->entry_count > (uint64_t)about.st_size / sizeof(zoff_swap_entry)) /* the file's table is cut, so it is not whole */
        return ZOFF_OK;
    const size_t bytes = (size_t)head->entry_count * sizeof(zoff_swap_entry), all = bytes + (size_t)head->attached_bytes;
    ZOFF_TRY(zoff_base_mem_alloc(all + 1, 1, "the table of a state file", &out->tables[which]));
    ZOFF_TRY(read_at(fd, name, table_offset(head, which), out->tables[which], all, &got));
    out->is_whole[which] = got == all && zoff_digest_blocks_small(out->tables[which], bytes) == head->table_checksum &&
                           zoff_digest_blocks_small(zoff_offload_swap_record_attached(out, which),
                                                    (size_t)head->attached_bytes) == head->attached_checksum;
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_record_read(int fd, const char *name, zoff_swap_found *out)
{
    zoff_swap_found found = {.is_blank = true};
    for (unsigned which = 0; which < HEADS; which++) {
        zoff_status status = read_one(fd, name, which, &found);
        if (status < 0) {
            zoff_offload_swap_record_free(&found);
            return status;
        }
    }
    *out = found;
    return ZOFF_OK;
}

void zoff_offload_swap_record_free(zoff_swap_found *found)
{
    for (unsigned which = 0; which < HEADS; which++) {
        zoff_base_mem_free(found->tables[which]);
        found->tables[which] = NULL;
    }
}

zoff_status zoff_offload_swap_record_check_version(const char *name, const zoff_swap_found *found)
{
    const bool is_newer = found->other_version > ZOFF_RECORD_VERSION_BLOCKS;
    ZOFF_FAIL_IF(found->other_version && (is_newer || !(found->is_whole[0] || found->is_whole[1])), ZOFF_ERR_UNSUPPORTED,
                 "'%s' is a state file of format %u, and this library reads formats %d and %d. Go on with the version of zoff "
                 "that wrote it, or save a checkpoint with that and remove the file",
                 name, found->other_version, ZOFF_RECORD_VERSION, ZOFF_RECORD_VERSION_BLOCKS);
    return ZOFF_OK;
}

bool zoff_offload_swap_record_is_damaged(const zoff_swap_found *found, uint64_t generation)
{
    const unsigned which = generation & 1;
    if (found->is_whole[which] || found->is_taken_back[which] || (found->is_empty[which] && generation == 2))
        return false;
    /* A right head of another generation: that of the older record, whose table is being replaced. */
    return !found->has_head[which] || found->heads[which].generation == generation;
}
