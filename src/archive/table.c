/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the table at the end of each file of a checkpoint: which bytes have which checksum, and which elements lie where. It
 * is little-endian, like the machines that this library supports. */
#include "archive.h"

#include "array.h"
#include "bits.h"
#include "cpu_adam.h"
#include "try.h"

#include <string.h>

static const char MAGIC[8] = "zofftabl";

typedef struct head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t regions, checksums, pieces, items;
} head;

_Static_assert((int)ZOFF_ARCHIVE_F32 == (int)ZOFF_F32 && (int)ZOFF_ARCHIVE_F16 == (int)ZOFF_F16 &&
                   (int)ZOFF_ARCHIVE_BF16 == (int)ZOFF_BF16,
               "formats of one element are numbered as zoff_dtype");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checkpoints are little-endian");
_Static_assert(sizeof(head) == 48 && sizeof(zoff_archive_region) == 32 && sizeof(zoff_archive_piece) == 48 &&
                   sizeof(zoff_archive_item) == 272,
               "no padding in what is written");

/* ---- building ---- */

size_t zoff_archive_table_units(const zoff_archive_region *region)
{
    return region->unit ? zoff_base_bits_ceil_div(region->bytes, region->unit) : 0;
}

size_t zoff_archive_table_unit_bytes(const zoff_archive_region *region, size_t unit)
{
    return zoff_base_bits_min(region->unit, region->bytes - unit * region->unit);
}

zoff_status zoff_archive_table_add_region(zoff_archive_table *t, const zoff_archive_region *region)
{
    zoff_archive_region added = *region;
    const size_t units = zoff_archive_table_units(region);
    added.first_checksum = t->checksum_count;
    ZOFF_TRY(zoff_base_array_reserve(&t->regions, t->region_count, &t->region_room, t->region_count + 1, sizeof *t->regions,
                                     "regions of a checkpoint"));
    ZOFF_TRY(zoff_base_array_reserve(&t->checksums, t->checksum_count, &t->checksum_room, t->checksum_count + units,
                                     sizeof *t->checksums, "checksums of a checkpoint"));
    t->regions[t->region_count++] = added;
    t->checksum_count += units;
    return ZOFF_OK;
}

zoff_status zoff_archive_table_add_piece(zoff_archive_table *t, const zoff_archive_piece *piece)
{
    ZOFF_TRY(zoff_base_array_reserve(&t->pieces, t->piece_count, &t->piece_room, t->piece_count + 1, sizeof *t->pieces,
                                     "pieces of a checkpoint"));
    t->pieces[t->piece_count++] = *piece;
    return ZOFF_OK;
}

zoff_status zoff_archive_table_add_item(zoff_archive_table *t, const zoff_archive_item *item)
{
    ZOFF_TRY(zoff_base_array_reserve(&t->items, t->item_count, &t->item_room, t->item_count + 1, sizeof *t->items,
                                     "program data of a checkpoint"));
    t->items[t->item_count++] = *item;
    return ZOFF_OK;
}

void zoff_archive_table_free(zoff_archive_table *t)
{
    zoff_base_mem_free(t->regions);
    zoff_base_mem_free(t->checksums);
    zoff_base_mem_free(t->pieces);
    zoff_base_mem_free(t->items);
    *t = (zoff_archive_table){.regions = NULL};
}

size_t zoff_archive_table_element_bytes(unsigned format)
{
    return format == ZOFF_ARCHIVE_F32 ? 4 : 2;
}

_Static_assert((int)ZOFF_ARCHIVE_BLOCK == (int)ZOFF_NORM_BLOCK, "blocks of states are those of checkpoints");

static zoff_moment moment_of(unsigned format)
{
    return format == ZOFF_ARCHIVE_M8 ? ZOFF_MOMENT_M : ZOFF_MOMENT_V;
}

unsigned zoff_archive_table_block(unsigned format)
{
    return format == ZOFF_ARCHIVE_M8 || format == ZOFF_ARCHIVE_V8 ? ZOFF_ARCHIVE_BLOCK : 1;
}

size_t zoff_archive_table_bytes_of(unsigned format, size_t count)
{
    return zoff_archive_table_block(format) == 1 ? count * zoff_archive_table_element_bytes(format)
                                                 : zoff_adam_moments_size(ZOFF_MOMENTS_Q8, moment_of(format), count);
}

static zoff_moments moments_of(unsigned format)
{
    return zoff_archive_table_block(format) != 1 ? ZOFF_MOMENTS_Q8
           : format == ZOFF_ARCHIVE_F32          ? ZOFF_MOMENTS_F32
                                                 : ZOFF_MOMENTS_BF16;
}

void zoff_archive_table_load(unsigned format, const void *piece, size_t first, size_t count, float *out)
{
    zoff_adam_moments_load(moments_of(format), moment_of(format), piece, first, count, out);
}

void zoff_archive_table_store(unsigned format, void *piece, size_t size, size_t first, size_t count, const float *in)
{
    zoff_adam_moments_store(moments_of(format), moment_of(format), piece, size, first, count, in);
}

size_t zoff_archive_table_unfit(unsigned format, size_t count, const float *in)
{
    return zoff_adam_moments_unfit(moments_of(format), moment_of(format), count, in);
}

/* ---- writing ---- */

size_t zoff_archive_table_bytes(const zoff_archive_table *t)
{
    return sizeof(head) + t->region_count * sizeof *t->regions + t->checksum_count * sizeof *t->checksums +
           t->piece_count * sizeof *t->pieces + t->item_count * sizeof *t->items;
}

static char *put(char *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return to + bytes;
}

void zoff_archive_table_write(const zoff_archive_table *t, void *dst)
{
    head h = {.version = ZOFF_ARCHIVE_VERSION,
              .regions = t->region_count,
              .checksums = t->checksum_count,
              .pieces = t->piece_count,
              .items = t->item_count};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    char *to = put(dst, &h, sizeof h);
    to = put(to, t->regions, t->region_count * sizeof *t->regions);
    to = put(to, t->checksums, t->checksum_count * sizeof *t->checksums);
    to = put(to, t->pieces, t->piece_count * sizeof *t->pieces);
    put(to, t->items, t->item_count * sizeof *t->items);
}

/* ---- reading ---- */

/* Check that regions lie one behind the other from the first page to the table, so that every byte of a file has a checksum. */
static zoff_status check_regions(const zoff_archive_table *t, uint64_t end)
{
    uint64_t at = ZOFF_ARCHIVE_PAGE, checksums = 0;
    for (size_t i = 0; i < t->region_count; i++) {
        const zoff_archive_region *r = &t->regions[i];
        ZOFF_FAIL_IF(r->offset != at || r->bytes == 0 || r->bytes % ZOFF_ARCHIVE_PAGE || r->bytes > end - at ||
                         r->first_checksum != checksums,
                     ZOFF_ERR_CORRUPT, "region %zu does not lie behind the one before it", i);
        /* Units are whole pages, so no element lies in two of them. */
        ZOFF_FAIL_IF(r->unit == 0 || r->unit % ZOFF_ARCHIVE_PAGE, ZOFF_ERR_CORRUPT, "region %zu has units of %llu bytes", i,
                     (unsigned long long)r->unit);
        at += r->bytes;
        checksums += zoff_archive_table_units(r);
    }
    ZOFF_FAIL_IF(at != end || checksums != t->checksum_count, ZOFF_ERR_CORRUPT, "its regions do not fill the file");
    return ZOFF_OK;
}

static zoff_status check_pieces(const zoff_archive_table *t)
{
    enum { FORMER_M8 = 5, FORMER_V8 = 6 };
    for (size_t i = 0; i < t->piece_count; i++) {
        const zoff_archive_piece *p = &t->pieces[i];
        ZOFF_FAIL_IF(
            p->format == FORMER_M8 || p->format == FORMER_V8, ZOFF_ERR_UNSUPPORTED,
            "piece %zu has moments in 8 bits in the former format %u, whose bytes mean other numbers now. Load the "
            "checkpoint with the version of zoff that saved it and \"zoff\": {\"moments\": \"fp32\"}, and save it again",
            i, p->format);
        ZOFF_FAIL_IF(
            p->format < ZOFF_ARCHIVE_F32 || p->format > ZOFF_ARCHIVE_V8 || p->block != zoff_archive_table_block(p->format),
            ZOFF_ERR_UNSUPPORTED,
            "piece %zu has its elements in format %u with blocks of %u, which this library does not know: use a newer one", i,
            p->format, p->block);
        ZOFF_FAIL_IF(p->reserved, ZOFF_ERR_UNSUPPORTED,
                     "piece %zu has a property that this library does not know: use a newer one", i);
        ZOFF_FAIL_IF(p->region >= t->region_count || p->kind >= ZOFF_ARCHIVE_PIECE_KINDS || p->count == 0 ||
                         p->first % ZOFF_ARCHIVE_BLOCK || p->at % ZOFF_ARCHIVE_PAD,
                     ZOFF_ERR_CORRUPT, "piece %zu is no piece", i);
        const uint64_t bytes = t->regions[p->region].bytes;
        ZOFF_FAIL_IF(p->at > bytes || p->count > bytes || zoff_archive_table_bytes_of(p->format, p->count) > bytes - p->at,
                     ZOFF_ERR_CORRUPT, "piece %zu does not lie in its region", i);
    }
    return ZOFF_OK;
}

static zoff_status check_items(const zoff_archive_table *t)
{
    for (size_t i = 0; i < t->item_count; i++) {
        const zoff_archive_item *item = &t->items[i];
        ZOFF_FAIL_IF(item->each_rank > 1, ZOFF_ERR_UNSUPPORTED,
                     "program data %zu has a property that this library does not know: use a newer one", i);
        ZOFF_FAIL_IF(!memchr(item->name, 0, sizeof item->name) || (item->count && item->region >= t->region_count) ||
                         (item->count && item->count > t->regions[item->region].bytes),
                     ZOFF_ERR_CORRUPT, "program data %zu does not lie in its region", i);
    }
    return ZOFF_OK;
}

static zoff_status take(const char **from, size_t *left, uint64_t count, size_t size, const char *what, void *out_pointer)
{
    void *copy;
    ZOFF_FAIL_IF(count > *left / size, ZOFF_ERR_CORRUPT, "it is shorter than it says");
    ZOFF_TRY(zoff_base_mem_alloc((size_t)count + 1, size, what, &copy));
    memcpy(copy, *from, (size_t)count * size);
    *from += (size_t)count * size;
    *left -= (size_t)count * size;
    memcpy(out_pointer, &copy, sizeof copy);
    return ZOFF_OK;
}

/* Regions are chunks, one behind the other. The records of a state file say where those are, and have their checksums. */
static zoff_status check_places(const zoff_archive_table *t)
{
    uint64_t at = 0;
    ZOFF_FAIL_IF(t->checksum_count || t->item_count, ZOFF_ERR_CORRUPT, "it has checksums or program data");
    for (size_t i = 0; i < t->region_count; i++) {
        const zoff_archive_region *r = &t->regions[i];
        ZOFF_FAIL_IF(r->offset != at || r->bytes % ZOFF_ARCHIVE_PAGE || r->bytes > INT64_MAX - at || r->unit ||
                         r->first_checksum,
                     ZOFF_ERR_CORRUPT, "region %zu does not lie behind the one before it", i);
        at += r->bytes;
    }
    for (size_t i = 1; i < t->piece_count; i++) {
        const zoff_archive_piece *p = &t->pieces[i], *before = p - 1;
        ZOFF_FAIL_IF(p->region < before->region || (p->region == before->region && p->kind < before->kind), ZOFF_ERR_CORRUPT,
                     "piece %zu is not in the order of regions and kinds", i);
    }
    return ZOFF_OK;
}

static zoff_status read_all(const char *from, size_t left, uint64_t end, zoff_archive_table *t)
{
    head h;
    ZOFF_FAIL_IF(left < sizeof h, ZOFF_ERR_CORRUPT, "it is too short");
    memcpy(&h, from, sizeof h);
    ZOFF_FAIL_IF(memcmp(h.magic, MAGIC, sizeof MAGIC) != 0, ZOFF_ERR_CORRUPT, "it does not begin as a table");
    ZOFF_FAIL_IF(h.version != ZOFF_ARCHIVE_VERSION, ZOFF_ERR_UNSUPPORTED,
                 "it has version %u, and this library reads version %d: use a newer one", h.version, ZOFF_ARCHIVE_VERSION);
    ZOFF_FAIL_IF(h.reserved, ZOFF_ERR_UNSUPPORTED, "it has a property that this library does not know: use a newer one");
    from += sizeof h;
    left -= sizeof h;
    ZOFF_TRY(take(&from, &left, h.regions, sizeof *t->regions, "regions of a checkpoint", &t->regions));
    ZOFF_TRY(take(&from, &left, h.checksums, sizeof *t->checksums, "checksums of a checkpoint", &t->checksums));
    ZOFF_TRY(take(&from, &left, h.pieces, sizeof *t->pieces, "pieces of a checkpoint", &t->pieces));
    ZOFF_TRY(take(&from, &left, h.items, sizeof *t->items, "program data of a checkpoint", &t->items));
    ZOFF_FAIL_IF(left, ZOFF_ERR_CORRUPT, "it is longer than it says");
    t->region_count = (size_t)h.regions;
    t->checksum_count = (size_t)h.checksums;
    t->piece_count = (size_t)h.pieces;
    t->item_count = (size_t)h.items;
    ZOFF_TRY(end ? check_regions(t, end) : check_places(t));
    ZOFF_TRY(check_pieces(t));
    return check_items(t);
}

zoff_status zoff_archive_table_read(const char *where, const void *src, size_t bytes, uint64_t end, zoff_archive_table *out)
{
    zoff_archive_table t = {.regions = NULL};
    const zoff_status status = read_all(src, bytes, end, &t);
    if (status < 0) {
        zoff_archive_table_free(&t);
        return zoff_base_status_prefix(status, "the table of '%s' cannot be used: ", where);
    }
    *out = t;
    return ZOFF_OK;
}
