/* SPDX-License-Identifier: Apache-2.0 */
/* program_bytes.c: the program's own bytes, the loss scale and the rule of sums, packed into one block that the commit of a
 * step records beside the states (zoff_persist_data()).
 *
 *      | head with the facts | entry: sizes, name, bytes | entry | ...
 *
 * Bytes that all ranks share are packed by rank 0 alone. A block has no padding between entries, so numbers are copied out of
 * it. It has no checksum of its own: the record has one. */
#include "zoff_model.h"

#include "mem.h"
#include "try.h"

#include <string.h>

enum { NAME_MOST = 255 };

/* A reader of version 1 takes any fact for a loss scale. */
enum { BLOCK_VERSION = 1, BLOCK_VERSION_FACTS = 2 };

enum { HAS_SCALER = 1, HAS_EXACT_SUMS = 2 };

typedef struct block_head {
    uint32_t version;
    uint32_t facts;
    double scale;
    int64_t iterations, last_overflow;
    uint64_t hysteresis;
    uint64_t entries;
} block_head;

typedef struct block_entry {
    uint64_t count; /* bytes behind the name */
    uint32_t name_bytes;
    uint32_t each_rank;
} block_entry;

_Static_assert(sizeof(block_head) == 48 && sizeof(block_entry) == 16, "no padding in what is written");

/* ---- checks ---- */

bool zoff_model_program_bytes_overlap(const zoff_checkpoint_data *a, const zoff_checkpoint_data *b)
{
    const char *first = a->bytes, *second = b->bytes;
    return a->count && b->count && first < second + b->count && second < first + a->count;
}

static zoff_status check_one(const zoff_checkpoint_data *data, size_t i)
{
    ZOFF_FAIL_IF(!data[i].name || !data[i].name[0], ZOFF_ERR_INVALID, "zoff_persist_data: entry %zu has no name", i);
    ZOFF_FAIL_IF(strlen(data[i].name) > NAME_MOST, ZOFF_ERR_INVALID,
                 "zoff_persist_data: the name of entry %zu has %zu bytes, and may have %d", i, strlen(data[i].name),
                 (int)NAME_MOST);
    ZOFF_FAIL_IF(!data[i].bytes && data[i].count, ZOFF_ERR_INVALID,
                 "zoff_persist_data: \"%s\" has %zu bytes, but its pointer "
                 "is NULL",
                 data[i].name, data[i].count);
    for (size_t k = 0; k < i; k++) {
        ZOFF_FAIL_IF(strcmp(data[i].name, data[k].name) == 0, ZOFF_ERR_INVALID,
                     "zoff_persist_data: \"%s\" is in the list twice", data[i].name);
        ZOFF_FAIL_IF(zoff_model_program_bytes_overlap(&data[i], &data[k]), ZOFF_ERR_INVALID,
                     "zoff_persist_data: \"%s\" and \"%s\" overlap in memory", data[k].name, data[i].name);
    }
    return ZOFF_OK;
}

zoff_status zoff_model_program_bytes_check(const zoff_checkpoint_data *data, size_t count)
{
    size_t all = sizeof(block_head);
    for (size_t i = 0; i < count; i++) {
        ZOFF_TRY(check_one(data, i));
        const size_t head = sizeof(block_entry) + strlen(data[i].name);
        const bool fits = head <= ZOFF_PROGRAM_BYTES_MOST - all && data[i].count <= ZOFF_PROGRAM_BYTES_MOST - all - head;
        ZOFF_FAIL_IF(!fits, ZOFF_ERR_INVALID,
                     "zoff_persist_data: with \"%s\", which has %zu bytes, the list takes more than the %d bytes that a commit "
                     "records (names and sizes included). Write larger data to a checkpoint: zoff_checkpoint_opts.data",
                     data[i].name, data[i].count, (int)ZOFF_PROGRAM_BYTES_MOST);
        all += head + data[i].count;
    }
    return ZOFF_OK;
}

/* ---- the list ---- */

static void free_list(zoff_checkpoint_data *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        zoff_base_mem_free((char *)(uintptr_t)list[i].name);
    zoff_base_mem_free(list);
}

zoff_status zoff_model_program_bytes_set(zoff_program_bytes *p, const zoff_checkpoint_data *data, size_t count)
{
    zoff_checkpoint_data *list;
    ZOFF_TRY(zoff_base_mem_alloc(count + 1, sizeof *list, "the list of the program's bytes", &list));
    for (size_t i = 0; i < count; i++) {
        char *name;
        const zoff_status status = zoff_base_mem_copy_text(data[i].name, &name);
        if (status < 0) {
            free_list(list, i);
            return status;
        }
        list[i] = data[i];
        list[i].name = name;
    }
    free_list(p->list, p->count);
    p->list = list;
    p->count = count;
    p->is_set = true;
    return ZOFF_OK;
}

void zoff_model_program_bytes_close(zoff_program_bytes *p)
{
    free_list(p->list, p->count);
    zoff_base_mem_free(p->block);
    zoff_base_mem_free(p->found);
    *p = (zoff_program_bytes){.list = NULL};
}

/* ---- packing ---- */

static char *put(char *at, const void *src, size_t bytes)
{
    if (bytes)
        memcpy(at, src, bytes);
    return at + bytes;
}

/* Bytes that all ranks share are in the block of rank 0 alone. */
static bool is_packed(const zoff_checkpoint_data *data, unsigned rank)
{
    return rank == 0 || data->each_rank;
}

static char *put_entry(char *at, const zoff_checkpoint_data *data, block_head *head)
{
    const block_entry entry = {.count = data->count, .name_bytes = (uint32_t)strlen(data->name), .each_rank = data->each_rank};
    at = put(at, &entry, sizeof entry);
    at = put(at, data->name, entry.name_bytes);
    head->entries++;
    return put(at, data->bytes, data->count);
}

size_t zoff_model_program_bytes_pack(zoff_program_bytes *p, unsigned rank, const zoff_loss_scaler *scaler, bool exact_sums,
                                     bool is_step)
{
    block_head head = {.version = BLOCK_VERSION};
    char *at = p->block + sizeof head;
    for (size_t i = 0; i < p->count; i++) {
        if (is_packed(&p->list[i], rank))
            at = put_entry(at, &p->list[i], &head);
    }
    if (!p->is_set && !is_step && p->found_bytes) {
        memcpy(p->block, p->found, p->found_bytes);
        memcpy(&head, p->block, sizeof head);
        at = p->block + p->found_bytes;
    }
    head.version = exact_sums ? BLOCK_VERSION_FACTS : BLOCK_VERSION;
    head.facts = (scaler ? HAS_SCALER : 0u) | (exact_sums ? HAS_EXACT_SUMS : 0u);
    if (scaler) {
        head.scale = scaler->scale;
        head.iterations = scaler->iterations;
        head.last_overflow = scaler->last_overflow;
        head.hysteresis = scaler->hysteresis;
    }
    memcpy(p->block, &head, sizeof head);
    return head.entries || head.facts ? (size_t)(at - p->block) : 0;
}

void zoff_model_program_bytes_committed(zoff_program_bytes *p, bool is_step)
{
    if (is_step)
        p->found_bytes = 0;
}

static bool fits(const zoff_checkpoint_data *data, size_t room)
{
    const size_t name = strlen(data->name), head = sizeof(block_entry) + name;
    return name <= NAME_MOST && head <= room && data->count <= room - head;
}

zoff_status zoff_model_program_bytes_replace(zoff_program_bytes *p, unsigned rank, const zoff_checkpoint_data *data,
                                             size_t count, zoff_program_found *before)
{
    char *block;
    block_head head = {.version = BLOCK_VERSION};
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PROGRAM_BYTES_MOST, 1, "the program's bytes", &block));
    char *at = block + sizeof head;
    for (size_t i = 0; i < count; i++) {
        if (is_packed(&data[i], rank) && fits(&data[i], ZOFF_PROGRAM_BYTES_MOST - (size_t)(at - block)))
            at = put_entry(at, &data[i], &head);
    }
    memcpy(block, &head, sizeof head);
    *before = (zoff_program_found){.block = p->found, .bytes = p->found_bytes};
    p->found = block;
    p->found_bytes = head.entries ? (size_t)(at - block) : 0;
    return ZOFF_OK;
}

void zoff_model_program_bytes_put_back(zoff_program_bytes *p, zoff_program_found *before)
{
    zoff_base_mem_free(p->found);
    p->found = before->block;
    p->found_bytes = before->bytes;
    *before = (zoff_program_found){.block = NULL};
}

/* ---- reading a block ---- */

/* The entry at `*at`, whose name and bytes follow it. NULL: it reaches beyond the end. */
static const char *next_entry(const char *block, size_t bytes, size_t *at, block_entry *out)
{
    if (bytes - *at < sizeof *out)
        return NULL;
    memcpy(out, block + *at, sizeof *out);
    const char *name = block + *at + sizeof *out;
    const size_t rest = bytes - *at - sizeof *out;
    if (out->name_bytes > rest || out->count > rest - out->name_bytes)
        return NULL;
    *at += sizeof *out + out->name_bytes + (size_t)out->count;
    return name;
}

zoff_status zoff_model_program_bytes_take(zoff_program_bytes *p, const void *block, size_t bytes)
{
    block_head head;
    block_entry entry;
    if (!bytes)
        return ZOFF_OK;
    bool holds = bytes >= sizeof head && bytes <= ZOFF_PROGRAM_BYTES_MOST;
    memcpy(&head, block, holds ? sizeof head : 0);
    ZOFF_FAIL_IF(
        holds && head.version != BLOCK_VERSION && head.version != BLOCK_VERSION_FACTS, ZOFF_ERR_UNSUPPORTED,
        "the state files hold the program's bytes in format %u, and this library reads formats up to %d: finish the run "
        "with the version of zoff that began it",
        head.version, (int)BLOCK_VERSION_FACTS);
    size_t at = sizeof head;
    for (uint64_t i = 0; holds && i < head.entries; i++)
        holds = next_entry(block, bytes, &at, &entry) != NULL;
    ZOFF_FAIL_IF(!holds || at != bytes, ZOFF_ERR_CORRUPT,
                 "the program's bytes in the state files (zoff_persist_data()) do not fit their table of contents; go back to "
                 "a checkpoint, and remove the files to start anew");
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "the program's bytes", &p->found));
    memcpy(p->found, block, bytes);
    p->found_bytes = bytes;
    return ZOFF_OK;
}

static block_head head_of(const zoff_program_bytes *p)
{
    block_head head = {.version = 0};
    if (p->found_bytes)
        memcpy(&head, p->found, sizeof head);
    return head;
}

bool zoff_model_program_bytes_exact_sums(const zoff_program_bytes *p)
{
    return head_of(p).facts & HAS_EXACT_SUMS;
}

bool zoff_model_program_bytes_scaler(const zoff_program_bytes *p, zoff_loss_scaler *out)
{
    const block_head head = head_of(p);
    if (head.facts & HAS_SCALER)
        *out = (zoff_loss_scaler){.struct_size = sizeof *out,
                                  .scale = head.scale,
                                  .iterations = head.iterations,
                                  .last_overflow = head.last_overflow,
                                  .hysteresis = head.hysteresis};
    return head.facts & HAS_SCALER;
}

const char *zoff_model_program_bytes_find(const char *block, size_t bytes, const char *name, bool each_rank, size_t *out_count)
{
    block_entry entry;
    size_t at = sizeof(block_head);
    while (at < bytes) {
        const char *found = next_entry(block, bytes, &at, &entry);
        if (!found)
            return NULL;
        if (entry.name_bytes == strlen(name) && memcmp(found, name, entry.name_bytes) == 0 && !entry.each_rank == !each_rank) {
            *out_count = (size_t)entry.count;
            return found + entry.name_bytes;
        }
    }
    return NULL;
}

bool zoff_model_program_bytes_next(const char *block, size_t bytes, size_t *at, zoff_program_entry *out)
{
    block_entry entry;
    _Static_assert(sizeof out->name == NAME_MOST + 1, "each name fits");
    *at = *at ? *at : sizeof(block_head);
    const char *name = *at < bytes ? next_entry(block, bytes, at, &entry) : NULL;
    if (!name || entry.name_bytes > NAME_MOST)
        return false;
    memcpy(out->name, name, entry.name_bytes);
    out->name[entry.name_bytes] = 0;
    out->each_rank = entry.each_rank;
    out->bytes = name + entry.name_bytes;
    out->count = (size_t)entry.count;
    return true;
}

zoff_status zoff_model_program_bytes_restore(const zoff_program_bytes *p, const char *shared, size_t shared_bytes, bool dry,
                                             const zoff_checkpoint_data *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t found_count = 0;
        const char *block = data[i].each_rank ? p->found : shared;
        const char *found = zoff_model_program_bytes_find(block, data[i].each_rank ? p->found_bytes : shared_bytes,
                                                          data[i].name, data[i].each_rank, &found_count);
        ZOFF_FAIL_IF(found && found_count != data[i].count, ZOFF_ERR_INVALID,
                     "zoff_persist_data: \"%s\" has %zu bytes in the state files, and %zu in the list", data[i].name,
                     found_count, data[i].count);
        if (found && found_count && !dry)
            memcpy(data[i].bytes, found, found_count);
    }
    return ZOFF_OK;
}
