/* SPDX-License-Identifier: Apache-2.0 */
/* units.c: reads units of a checkpoint and compares them with their checksums. */
#include "archive_priv.h"

#include "bits.h"
#include "digest.h"
#include "try.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const zoff_archive_region *region_of(const zoff_archive *a, zoff_archive_unit unit)
{
    return &a->tables[unit.file].regions[unit.region];
}

size_t zoff_archive_units_bytes(const zoff_archive *a, zoff_archive_unit unit)
{
    return zoff_archive_table_unit_bytes(region_of(a, unit), (size_t)unit.unit);
}

uint64_t zoff_archive_units_offset(const zoff_archive *a, zoff_archive_unit unit)
{
    const zoff_archive_region *r = region_of(a, unit);
    return r->offset + unit.unit * r->unit;
}

zoff_archive_unit zoff_archive_units_of(const zoff_archive *a, uint32_t file, uint32_t region, uint64_t byte)
{
    return (zoff_archive_unit){.file = file, .region = region, .unit = byte / a->tables[file].regions[region].unit};
}

size_t zoff_archive_units_largest(const zoff_archive *a)
{
    size_t most = 0;
    for (size_t file = 0; file < a->manifest.file_count; file++) {
        for (size_t i = 0; i < a->tables[file].region_count; i++)
            most = zoff_base_bits_max(most, zoff_archive_table_unit_bytes(&a->tables[file].regions[i], 0));
    }
    return most;
}

/* List the first parameters with elements in a unit. */
static void print_params(const zoff_archive *a, zoff_archive_unit unit, char *dst, size_t room)
{
    enum { MOST = 3 };
    const zoff_archive_table *t = &a->tables[unit.file];
    const uint64_t from = unit.unit * region_of(a, unit)->unit, to = from + zoff_archive_units_bytes(a, unit);
    size_t named = 0, used = 0;
    dst[0] = 0;
    for (size_t i = 0; i < a->ref_count; i++) {
        const zoff_archive_piece *p = &a->refs[i].piece;
        const uint64_t end = p->at + zoff_archive_table_bytes_of(p->format, p->count);
        if (a->refs[i].file != unit.file || p->region != unit.region || p->at >= to || end <= from)
            continue;
        if (named < MOST)
            used += (size_t)snprintf(dst + used, room - used, "%s%s of '%.100s'", named ? ", " : "",
                                     zoff_archive_manifest_kind(p->kind), a->manifest.params[p->param].name);
        named++;
    }
    if (named > MOST)
        snprintf(dst + used, room - used, " and %zu more", named - MOST);
    for (size_t i = 0; named == 0 && i < t->item_count; i++) {
        if (t->items[i].region == unit.region && t->items[i].count)
            snprintf(dst, room, "the program's data '%.255s'", t->items[i].name);
    }
}

zoff_status zoff_archive_units_check(const zoff_archive *a, zoff_archive_unit unit, const void *bytes, unsigned threads)
{
    char path[4096], params[512];
    const size_t count = zoff_archive_units_bytes(a, unit);
    const uint64_t have = zoff_digest_blocks_whole(bytes, count, threads), offset = zoff_archive_units_offset(a, unit);
    if (have == a->tables[unit.file].checksums[region_of(a, unit)->first_checksum + unit.unit])
        return ZOFF_OK;
    zoff_archive_path(a, unit.file, path);
    print_params(a, unit, params, sizeof params);
    return zoff_base_status_fail(ZOFF_ERR_CORRUPT, "'%s' is damaged in the bytes from %llu to %llu, which hold %s", path,
                                 (unsigned long long)offset, (unsigned long long)(offset + count - 1),
                                 params[0] ? params : "no state");
}

/* Bytes that the system reads ahead: enough for a disk to have several requests. */
enum { AHEAD = 4 << 20 };

void zoff_archive_units_expect(const zoff_archive *a, zoff_archive_unit unit)
{
    int fd;
    const zoff_archive_region *r = region_of(a, unit);
    const uint64_t begin = unit.unit * r->unit;
    if (begin >= r->bytes || zoff_archive_descriptor(a, unit.file, &fd) < 0)
        return;
    (void)posix_fadvise(fd, (off_t)(r->offset + begin), (off_t)zoff_base_bits_min(r->bytes - begin, AHEAD),
                        POSIX_FADV_WILLNEED);
}

zoff_status zoff_archive_units_read(const zoff_archive *a, zoff_archive_unit unit, void *dst, unsigned threads)
{
    int fd;
    char path[4096];
    zoff_archive_path(a, unit.file, path);
    ZOFF_TRY(zoff_archive_descriptor(a, unit.file, &fd));
    ZOFF_TRY(zoff_archive_folder_pread(fd, path, zoff_archive_units_offset(a, unit), dst, zoff_archive_units_bytes(a, unit)));
    return zoff_archive_units_check(a, unit, dst, threads);
}

zoff_status zoff_archive_units_read_item(const zoff_archive *a, uint32_t file, const zoff_archive_item *item, void *dst,
                                         size_t room)
{
    char *bytes;
    const size_t end = zoff_base_bits_min(room, item->count);
    if (end == 0)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(zoff_archive_table_unit_bytes(&a->tables[file].regions[item->region], 0), 1,
                                 "the program's data", &bytes));
    zoff_status status = ZOFF_OK;
    for (size_t at = 0, now; at < end && status == ZOFF_OK; at += now) {
        const zoff_archive_unit unit = zoff_archive_units_of(a, file, item->region, at);
        status = zoff_archive_units_read(a, unit, bytes, 1);
        now = zoff_base_bits_min(end - at, zoff_archive_units_bytes(a, unit));
        if (status == ZOFF_OK)
            memcpy((char *)dst + at, bytes, now);
    }
    zoff_base_mem_free(bytes);
    return status;
}
