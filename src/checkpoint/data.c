/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: the program's own bytes in a checkpoint. */
#include "checkpoint_priv.h"

#include "try.h"

#include <string.h>

zoff_status zoff_checkpoint_data_check(const zoff_checkpoint_opts *opts, const char *call)
{
    ZOFF_FAIL_IF(opts->data_count && !opts->data, ZOFF_ERR_INVALID, "%s: data must not be NULL where data_count is %zu", call,
                 opts->data_count);
    for (size_t i = 0; i < opts->data_count; i++) {
        const zoff_checkpoint_data *d = &opts->data[i];
        ZOFF_FAIL_IF(!d->name || !*d->name || strlen(d->name) > ZOFF_ARCHIVE_NAME_MOST, ZOFF_ERR_INVALID,
                     "%s: data %zu needs a name of 1 to %d bytes", call, i, ZOFF_ARCHIVE_NAME_MOST);
        ZOFF_FAIL_IF(d->count && !d->bytes, ZOFF_ERR_INVALID, "%s: the bytes of data '%s' are NULL", call, d->name);
        for (size_t k = 0; k < i; k++) {
            ZOFF_FAIL_IF(strcmp(opts->data[k].name, d->name) == 0, ZOFF_ERR_INVALID, "%s: there are two data '%s'", call,
                         d->name);
            ZOFF_FAIL_IF(zoff_model_program_bytes_overlap(&opts->data[k], d), ZOFF_ERR_INVALID,
                         "%s: data '%s' and '%s' overlap in memory", call, opts->data[k].name, d->name);
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_data_write(const zoff_checkpoint_opts *opts, unsigned rank, zoff_archive_part *part)
{
    for (size_t i = 0; i < opts->data_count; i++) {
        const zoff_checkpoint_data *d = &opts->data[i];
        if (d->each_rank || rank == 0)
            ZOFF_TRY(zoff_archive_part_item(part, d->name, d->each_rank, d->bytes, d->count));
    }
    return ZOFF_OK;
}

/* Whether the ranks that load an item are those that have saved it. */
static bool is_for_us(const zoff_archive *a, const zoff_archive_item *item, unsigned ranks)
{
    return !item->each_rank || a->manifest.file_count == ranks;
}

zoff_status zoff_checkpoint_data_match(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks)
{
    for (size_t i = 0; i < opts->data_count; i++) {
        uint32_t file;
        const zoff_checkpoint_data *d = &opts->data[i];
        /* A rank that the checkpoint lacks looks at the data of another, for the message. */
        const unsigned of = (unsigned)(rank % a->manifest.file_count);
        const zoff_archive_item *item = zoff_archive_item_find(a, d->name, of, &file);
        if (opts->data_found && !(item && is_for_us(a, item, ranks)))
            continue;
        ZOFF_FAIL_IF(!item, ZOFF_ERR_INVALID,
                     "the checkpoint '%s' has no data '%s': leave it out of zoff_checkpoint_opts.data, or set data_found",
                     a->folder, d->name);
        ZOFF_FAIL_IF(!is_for_us(a, item, ranks), ZOFF_ERR_INVALID,
                     "the data '%s' belongs to each of %zu ranks, and %u ranks load the checkpoint '%s': leave it out of "
                     "zoff_checkpoint_opts.data, or set data_found",
                     d->name, a->manifest.file_count, ranks, a->folder);
        ZOFF_FAIL_IF(
            item->count != d->count, ZOFF_ERR_INVALID,
            "the data '%s' has %llu bytes in the checkpoint '%s', and %zu in zoff_checkpoint_opts.data: give it %llu, or "
            "leave it out",
            d->name, (unsigned long long)item->count, a->folder, d->count, (unsigned long long)item->count);
    }
    return ZOFF_OK;
}

static const zoff_archive_item *find(const zoff_archive *a, const zoff_checkpoint_data *d, unsigned rank, unsigned ranks,
                                     uint32_t *out_file)
{
    const zoff_archive_item *item = zoff_archive_item_find(a, d->name, rank, out_file);
    return item && is_for_us(a, item, ranks) ? item : NULL;
}

zoff_status zoff_checkpoint_data_read(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks)
{
    for (size_t i = 0; i < opts->data_count; i++) {
        uint32_t file = 0;
        const zoff_checkpoint_data *d = &opts->data[i];
        const zoff_archive_item *item = find(a, d, rank, ranks, &file);
        if (item)
            ZOFF_TRY(zoff_archive_units_read_item(a, file, item, d->bytes, d->count));
    }
    return ZOFF_OK;
}

void zoff_checkpoint_data_tell(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks)
{
    uint32_t file;
    for (size_t i = 0; opts->data_found && i < opts->data_count; i++)
        opts->data_found[i] = find(a, &opts->data[i], rank, ranks, &file);
}

/* ---- the bytes before a load, for a load that fails ---- */

zoff_status zoff_checkpoint_data_keep(const zoff_checkpoint_opts *opts, char **out)
{
    size_t bytes = 1;
    for (size_t i = 0; i < opts->data_count; i++)
        bytes += opts->data[i].count;
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "the program's data", out));
    char *to = *out;
    for (size_t i = 0; i < opts->data_count; to += opts->data[i].count, i++) {
        if (opts->data[i].count)
            memcpy(to, opts->data[i].bytes, opts->data[i].count);
    }
    return ZOFF_OK;
}

void zoff_checkpoint_data_restore(const zoff_checkpoint_opts *opts, const char *kept)
{
    for (size_t i = 0; i < opts->data_count; kept += opts->data[i].count, i++) {
        if (opts->data[i].count)
            memcpy(opts->data[i].bytes, kept, opts->data[i].count);
    }
}
