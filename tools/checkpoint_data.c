/* checkpoint_data.c: lists the program's own bytes of a checkpoint from the tables of its files, as docs/CHECKPOINT.md
 * describes them: the library reads such bytes by their name alone. */
#include "checkpoint_data.h"

#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a table: of its head, where the number of program data is in it, and of one of them, which end the table. */
enum { HEAD = 48, HEAD_ITEMS = 40, ITEM = 272, ITEM_COUNT = 256, ITEM_EACH_RANK = 268, NAME = 256 };

/* A file of a rank. */
typedef struct part {
    const char *name;
    json_int_t table_at, table_bytes;
    unsigned char head[HEAD], *items;
    uint64_t count;
} part;

static uint64_t number_at(const unsigned char *bytes, unsigned count)
{
    uint64_t number = 0;
    while (count-- > 0)
        number = number << 8 | bytes[count];
    return number;
}

int checkpoint_data_manifest(const zoff_checkpoint_reader *r, char **out, size_t *out_bytes)
{
    size_t bytes = 0;
    if (zoff_checkpoint_reader_manifest(r, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("out of memory for a manifest of %zu bytes", bytes);
    if (zoff_checkpoint_reader_manifest(r, text, bytes + 1, NULL) < 0) {
        free(text);
        return library_error();
    }
    *out = text;
    *out_bytes = bytes;
    return EXIT_DONE;
}

/* Read the manifest. The caller frees *out by json_decref(). */
static int read_manifest(const zoff_checkpoint_reader *r, json_t **out)
{
    char *text;
    size_t bytes;
    const int result = checkpoint_data_manifest(r, &text, &bytes);
    if (result != EXIT_DONE)
        return result;
    *out = json_loads(text, 0, NULL);
    free(text);
    return *out ? EXIT_DONE : failed("out of memory for a manifest of %zu bytes", bytes);
}

/* Read the descriptions at the end of a table, which the library has compared with its checksum. */
static int read_items(int fd, const char *folder, part *p, pool *memory)
{
    const bool has_head = p->table_bytes >= HEAD && pread(fd, p->head, HEAD, p->table_at) == HEAD;
    p->count = number_at(p->head + HEAD_ITEMS, 8);
    if (!has_head || p->count > (uint64_t)(p->table_bytes - HEAD) / ITEM)
        return failed("%s/%s: cannot read its table: %s", folder, p->name, has_head ? "it is too short" : strerror(errno));
    const size_t bytes = (size_t)p->count * ITEM;
    p->items = pool_take(memory, bytes, 1);
    if (!p->items)
        return EXIT_FAILED;
    return pread(fd, p->items, bytes, p->table_at + p->table_bytes - (json_int_t)bytes) == (ssize_t)bytes
               ? EXIT_DONE
               : failed("%s/%s: cannot read its table: %s", folder, p->name, strerror(errno));
}

static int read_part(const char *folder, const json_t *file, part *p, pool *memory)
{
    char path[4096];
    const json_t *table = json_object_get(file, "table");
    *p = (part){.name = json_string_value(json_object_get(file, "name")),
                .table_at = json_integer_value(json_object_get(table, "offset")),
                .table_bytes = json_integer_value(json_object_get(table, "bytes"))};
    snprintf(path, sizeof path, "%s/%s", folder, p->name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed("%s: cannot open: %s", path, strerror(errno));
    const int result = read_items(fd, folder, p, memory);
    close(fd);
    return result;
}

/* Describe the data of all files. */
static int describe(const part *parts, size_t part_count, checkpoint_data *out)
{
    size_t count = 0;
    for (size_t i = 0; i < part_count; i++)
        count += (size_t)parts[i].count;
    out->data = pool_take(&out->memory, count, sizeof *out->data);
    for (size_t i = 0; out->data && i < part_count; i++) {
        for (const unsigned char *item = parts[i].items, *end = item + parts[i].count * ITEM; item < end; item += ITEM) {
            checkpoint_datum *d = &out->data[out->count++];
            d->name = pool_text(&out->memory, (const char *)item, strnlen((const char *)item, NAME));
            if (!d->name)
                return EXIT_FAILED;
            d->each_rank = number_at(item + ITEM_EACH_RANK, 4) != 0;
            d->rank = d->each_rank ? (unsigned)i : 0;
            d->count = (size_t)number_at(item + ITEM_COUNT, 8);
        }
    }
    return out->data ? EXIT_DONE : EXIT_FAILED;
}

int checkpoint_data_list(zoff_checkpoint_reader *r, checkpoint_data *out)
{
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    json_t *manifest = NULL;
    *out = (checkpoint_data){.count = 0};
    if (zoff_checkpoint_reader_info(r, &info) < 0)
        return library_error();
    int result = read_manifest(r, &manifest);
    const json_t *files = json_object_get(manifest, "files");
    const size_t count = json_array_size(files);
    part *parts = pool_take(&out->memory, count, sizeof *parts);
    result = parts ? result : EXIT_FAILED;
    for (size_t i = 0; i < count && result == EXIT_DONE; i++)
        result = read_part(info.folder, json_array_get(files, i), &parts[i], &out->memory);
    if (result == EXIT_DONE)
        result = describe(parts, count, out);
    json_decref(manifest);
    return result;
}

const checkpoint_datum *checkpoint_data_find(const checkpoint_data *all, const checkpoint_datum *like)
{
    for (size_t i = 0; i < all->count; i++) {
        const checkpoint_datum *d = &all->data[i];
        if (d->rank == like->rank && d->each_rank == like->each_rank && strcmp(d->name, like->name) == 0)
            return d;
    }
    return NULL;
}
