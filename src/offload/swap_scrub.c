/* SPDX-License-Identifier: Apache-2.0 */
/* swap_scrub.c: reads persistent state files without an engine: zoff_state_files_scrub() compares every array with its
 * checksum, and zoff_offload_files_open() shows the arrays to others. A file is locked meanwhile. It is read past the page
 * cache where the file system allows it, so that the drive is asked.
 *
 * A file has two commits. The step after the last one writes over the one before. So an array of the older commit that differs
 * is no damage; an array of the last one is. */
#include "swap_priv.h"

#include "array.h"
#include "bits.h"
#include "mem.h"

#include <zoff/checkpoint.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PART_BYTES = 8 << 20, PARTS = 2, COMPLAINTS_MOST = 16 };

_Static_assert(PART_BYTES % ZOFF_DIGEST_BLOCK == 0, "each block of a checksum is in one part");

/* An array in a file. */
typedef struct place {
    uint64_t offset;
    size_t bytes, written; /* bytes behind `written` are zero, and not in the file */
} place;

/* Results for one commit of a file. */
typedef struct counts {
    uint64_t arrays, without_checksum, wrong;
    bool is_last; /* whether it is the last commit: later steps overwrite the arrays of the one before */
} counts;

typedef struct scrub {
    zoff_text text;
    zoff_progress_fn progress;
    void *ctx;
    uint64_t done, total; /* bytes */
    uint64_t wrong;       /* wrong arrays of last commits, and files without a commit */
    char *parts[PARTS];
    zoff_text complaints; /* complaints about one file: JSON texts, separated by commas */
    unsigned complaint_count;
} scrub;

/* ---- text ---- */

static void complain(scrub *s, const char *text)
{
    if (s->complaint_count++ >= COMPLAINTS_MOST)
        return;
    zoff_base_array_print(&s->complaints, "%s", s->complaint_count > 1 ? ", " : "");
    zoff_base_array_print_json(&s->complaints, text);
}

/* ---- reading ---- */

static zoff_status advance(scrub *s, uint64_t bytes)
{
    s->done += bytes;
    ZOFF_FAIL_IF(s->progress && !s->progress("scrub", s->done, s->total, s->ctx), ZOFF_ERR_CANCELED,
                 "zoff_state_files_scrub: the program ended it after %" PRIu64 " of %" PRIu64 " bytes", s->done, s->total);
    return ZOFF_OK;
}

/* Begin to read a part of an array. */
static zoff_status start_part(const scrub *s, zoff_aio *file, const place *p, size_t part, uint64_t *ticket)
{
    const size_t at = part * PART_BYTES, count = at < p->written ? zoff_base_bits_min(p->written - at, (size_t)PART_BYTES) : 0;
    *ticket = 0;
    return count ? zoff_aio_read(file, p->offset + at, count, s->parts[part % PARTS], ticket) : ZOFF_OK;
}

/* Wait for a part, and hash its blocks. */
static zoff_status hash_part(const scrub *s, zoff_aio *file, const place *p, size_t part, uint64_t ticket, uint64_t *hashes)
{
    char *base = s->parts[part % PARTS];
    const size_t at = part * PART_BYTES, count = zoff_base_bits_min(p->bytes - at, (size_t)PART_BYTES);
    const size_t written = at < p->written ? zoff_base_bits_min(p->written - at, count) : 0;
    if (ticket)
        ZOFF_TRY(zoff_aio_wait(file, ticket));
    memset(base + written, 0, count - written);
    for (size_t block = 0; block * ZOFF_DIGEST_BLOCK < count; block++)
        hashes[at / ZOFF_DIGEST_BLOCK + block] = zoff_digest_blocks_small(
            base + block * ZOFF_DIGEST_BLOCK, zoff_base_bits_min(count - block * ZOFF_DIGEST_BLOCK, (size_t)ZOFF_DIGEST_BLOCK));
    return ZOFF_OK;
}

/* The checksum of an array, as digest.c computes it: one part is read while the one before it is hashed.
 * @return an error of the drive, or ERR_CANCELED */
static zoff_status sum_array(scrub *s, zoff_aio *file, const place *p, uint64_t *hashes, uint64_t *out)
{
    const size_t parts = zoff_base_bits_ceil_div(p->bytes, (size_t)PART_BYTES);
    uint64_t tickets[PARTS];
    zoff_status status = start_part(s, file, p, 0, &tickets[0]);
    for (size_t part = 0; part < parts && status == ZOFF_OK; part++) {
        zoff_status next = ZOFF_OK;
        if (part + 1 < parts)
            next = start_part(s, file, p, part + 1, &tickets[(part + 1) % PARTS]);
        status = hash_part(s, file, p, part, tickets[part % PARTS], hashes);
        if (status == ZOFF_OK)
            status = advance(s, zoff_base_bits_min(p->bytes - part * PART_BYTES, (size_t)PART_BYTES));
        if (status == ZOFF_OK)
            status = next;
        else if (next == ZOFF_OK && part + 1 < parts && tickets[(part + 1) % PARTS])
            (void)zoff_aio_wait(file, tickets[(part + 1) % PARTS]); /* end this read, because its memory is used again */
    }
    *out = zoff_digest_blocks_small(hashes, zoff_base_bits_ceil_div(p->bytes, (size_t)ZOFF_DIGEST_BLOCK) * sizeof *hashes);
    return status;
}

/* ---- one commit ---- */

static uint64_t begin_of(const zoff_swap_entry *entry, unsigned array)
{
    return array ? entry->arrays[array - 1].end : 0;
}

/* Whether a table describes places that lie one behind the other and fill the file. */
static bool table_fits(const zoff_swap_head *head, const zoff_swap_entry *entries)
{
    uint64_t offset = zoff_offload_swap_record_room((size_t)head->entry_count);
    for (uint64_t i = 0; i < head->entry_count; i++) {
        const zoff_swap_entry *e = &entries[i];
        bool fits = e->offset == offset && e->first_bytes <= e->arrays[ZOFF_STORE_ARRAYS - 1].end;
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
            fits = fits && e->arrays[array].slot <= 1 && e->arrays[array].end % ZOFF_RECORD_HEAD_BYTES == 0 &&
                   begin_of(e, array) <= e->arrays[array].end && e->arrays[array].end <= (head->file_bytes - offset) / 2;
        if (!fits)
            return false;
        offset += 2 * e->arrays[ZOFF_STORE_ARRAYS - 1].end;
    }
    return offset == head->file_bytes;
}

static place place_of(const zoff_swap_entry *entry, unsigned array)
{
    const zoff_swap_entry_array *a = &entry->arrays[array];
    const uint64_t begin = begin_of(entry, array);
    const size_t bytes = (size_t)(a->end - begin);
    const uint64_t first = entry->first_bytes > begin ? entry->first_bytes - begin : 0;
    return (place){.offset = entry->offset + a->slot * entry->arrays[ZOFF_STORE_ARRAYS - 1].end + begin,
                   .bytes = bytes,
                   .written = a->flags & ZOFF_ENTRY_FRESH ? zoff_base_bits_min((size_t)first, bytes) : bytes};
}

static uint64_t bytes_of(const zoff_swap_head *head, const zoff_swap_entry *entries)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < head->entry_count; i++)
        bytes += entries[i].arrays[ZOFF_STORE_ARRAYS - 1].end;
    return bytes;
}

/* The checksum of an array in a file of `size` bytes. A record may name places behind its end: the file was cut, or the record
 * is not zoff's. Even zeros that are not in the file would take hours then. */
static zoff_status sum_if_there(scrub *s, zoff_aio *file, uint64_t size, const place *p, uint64_t *hashes, uint64_t *out)
{
    ZOFF_FAIL_IF(p->offset > size || p->bytes > size - p->offset, ZOFF_ERR_IO, "the file ends at byte %" PRIu64, size);
    return sum_array(s, file, p, hashes, out);
}

static zoff_status scrub_array(scrub *s, zoff_aio *file, uint64_t size, const zoff_swap_head *head,
                               const zoff_swap_entry *entry, unsigned array, uint64_t *hashes, counts *out)
{
    const place p = place_of(entry, array);
    const zoff_swap_entry_array *a = &entry->arrays[array];
    char text[4096];
    uint64_t sum = 0;
    if (!p.bytes)
        return ZOFF_OK;
    out->arrays++;
    out->without_checksum += !(a->flags & ZOFF_ENTRY_HAS_CHECKSUM);
    /* An array without a checksum is read, too, because the drive shall say whether it can read it. */
    const uint64_t done = s->done;
    const zoff_status status = sum_if_there(s, file, size, &p, hashes, &sum);
    if (status < 0 && status != ZOFF_ERR_IO)
        return status;
    s->done = done + p.bytes;
    if (status == ZOFF_OK && (!(a->flags & ZOFF_ENTRY_HAS_CHECKSUM) || sum == a->checksum))
        return ZOFF_OK;
    out->wrong++;
    if (status == ZOFF_OK && !out->is_last)
        return ZOFF_OK;
    snprintf(text, sizeof text, "step %" PRId64 ": chunk %" PRIu64 ", array %u: %zu bytes at offset %" PRIu64 " %s%s", head->t,
             entry->chunk, array, p.bytes, p.offset, status < 0 ? "cannot be read: " : "are not what was written there",
             status < 0 ? zoff_last_error() : "");
    complain(s, text);
    return ZOFF_OK;
}

static zoff_status scrub_commit(scrub *s, zoff_aio *file, uint64_t size, const zoff_swap_found *found, unsigned which,
                                counts *out)
{
    zoff_status status = ZOFF_OK;
    const zoff_swap_head *head = &found->heads[which];
    const zoff_swap_entry *entries = found->tables[which];
    uint64_t largest = 0, *hashes;
    for (uint64_t i = 0; i < head->entry_count; i++)
        largest = zoff_base_bits_max(largest, entries[i].arrays[ZOFF_STORE_ARRAYS - 1].end);
    largest = zoff_base_bits_min(largest, size);
    ZOFF_TRY(zoff_base_mem_alloc((size_t)largest / ZOFF_DIGEST_BLOCK + 1, sizeof *hashes, "checksums", &hashes));
    for (uint64_t i = 0; status == ZOFF_OK && i < head->entry_count; i++) {
        for (unsigned array = 0; status == ZOFF_OK && array < ZOFF_STORE_ARRAYS; array++)
            status = scrub_array(s, file, size, head, &entries[i], array, hashes, out);
    }
    zoff_base_mem_free(hashes);
    return status;
}

/* ---- one file ---- */

typedef struct state_file {
    char path[PATH_MAX];
    int lock;
    uint64_t bytes; /* bytes of the file, which may be fewer than its records say */
    zoff_swap_found found;
    unsigned commits[2], commit_count; /* commits that can be read, the last one first: 0 or 1 */
} state_file;

static void list_commits(state_file *f)
{
    const zoff_swap_found *found = &f->found;
    unsigned count = 0, *out = f->commits;
    for (unsigned which = 0; which < 2; which++) {
        if (found->is_whole[which] && table_fits(&found->heads[which], found->tables[which]))
            out[count++] = which;
    }
    if (count == 2 && found->heads[out[0]].generation < found->heads[out[1]].generation) {
        out[0] = 1;
        out[1] = 0;
    }
    f->commit_count = count;
}

static zoff_status open_file(const char *call, const char *folder, const char *name, state_file *out)
{
    struct stat st;
    ZOFF_FAIL_IF(snprintf(out->path, sizeof out->path, "%s/%s", folder, name) >= (int)sizeof out->path, ZOFF_ERR_INVALID,
                 "%s: the path of '%s' in '%s' is too long", call, name, folder);
    out->lock = open(out->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ZOFF_FAIL_IF(out->lock < 0, ZOFF_ERR_IO, "%s: cannot open '%s': %s", call, out->path, zoff_base_status_errno(errno));
    ZOFF_FAIL_IF(fstat(out->lock, &st) != 0 || !S_ISREG(st.st_mode), ZOFF_ERR_IO, "%s: '%s' is not a regular file", call,
                 out->path);
    ZOFF_FAIL_IF(flock(out->lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK, ZOFF_ERR_STATE,
                 "%s: '%s' is in use by an engine, in this process or another; wait until it has ended", call, out->path);
    out->bytes = (uint64_t)st.st_size;
    ZOFF_TRY(zoff_offload_swap_record_read(out->lock, out->path, &out->found));
    ZOFF_TRY(zoff_offload_swap_record_check_version(out->path, &out->found));
    list_commits(out);
    return ZOFF_OK;
}

static void close_file(state_file *f)
{
    zoff_offload_swap_record_free(&f->found);
    if (f->lock >= 0)
        close(f->lock);
}

/* Without its description no checkpoint is made of the file. */
static zoff_status scrub_layout(scrub *s, const state_file *f)
{
    char *content;
    size_t bytes;
    const zoff_status status =
        zoff_offload_swap_layout_read(f->path, &f->found.heads[f->commits[0]].identity, &content, &bytes);
    if (status == ZOFF_OK)
        zoff_base_mem_free(content);
    if (status != ZOFF_ERR_IO && status != ZOFF_ERR_CORRUPT && status != ZOFF_ERR_UNSUPPORTED)
        return status;
    s->wrong++;
    complain(s, zoff_last_error());
    return ZOFF_OK;
}

/* Print a file and its commits, and compare them. */
static zoff_status scrub_file(scrub *s, const state_file *f, bool is_first)
{
    zoff_aio *file;
    zoff_status status = ZOFF_OK;
    const zoff_aio_opts opts = {.struct_size = sizeof opts};
    const unsigned count = f->commit_count, *commits = f->commits;
    zoff_base_array_print(&s->text, "%s\n  {\"path\": ", is_first ? "" : ",");
    zoff_base_array_print_json(&s->text, f->path);
    if (count) {
        const zoff_swap_identity *id = &f->found.heads[commits[0]].identity;
        zoff_base_array_print(&s->text,
                              ", \"rank\": %u, \"ranks\": %u, \"file\": %u, \"files\": %u, \"layout\": \"%016" PRIx64 "\"",
                              id->rank, id->ranks, id->file, id->files, id->layout);
    } else if (!f->found.is_blank) {
        s->wrong++;
        complain(s, "it has no whole commit record: it is damaged, or not a state file");
    }
    if (count && zoff_offload_swap_record_is_damaged(&f->found, f->found.heads[commits[0]].generation + 1)) {
        s->wrong++;
        complain(s, "the record of a later commit is not valid: it was damaged, or the power failed while it was written");
    }
    if (count)
        ZOFF_TRY(scrub_layout(s, f));
    ZOFF_TRY(zoff_aio_open(f->path, &opts, &file));
    zoff_base_array_print(&s->text, ", \"commits\": [");
    for (unsigned i = 0; status == ZOFF_OK && i < count; i++) {
        counts c = {.is_last = i == 0};
        const zoff_swap_head *head = &f->found.heads[commits[i]];
        status = scrub_commit(s, file, f->bytes, &f->found, commits[i], &c);
        s->wrong += i == 0 ? c.wrong : 0;
        zoff_base_array_print(&s->text,
                              "%s{\"generation\": %" PRIu64 ", \"t\": %" PRId64 ", \"last\": %s, \"arrays\": %" PRIu64
                              ", \"without_checksum\": %" PRIu64 ", \"wrong\": %" PRIu64 "}",
                              i ? ", " : "", head->generation, head->t, i ? "false" : "true", c.arrays, c.without_checksum,
                              c.wrong);
    }
    zoff_aio_close(file);
    zoff_base_array_print(&s->text, "], \"complaints\": [%s]}", s->complaints.words ? s->complaints.words : "");
    return status;
}

/* ---- folders ---- */

struct zoff_state_files {
    state_file *files;
    size_t count, capacity;
};

static int by_path(const void *a, const void *b)
{
    const state_file *x = a, *y = b;
    const size_t one = strlen(x->path), other = strlen(y->path); /* sort rank 10 behind rank 9 */
    return one != other ? (one < other ? -1 : 1) : strcmp(x->path, y->path);
}

static zoff_status list_folder(const char *call, const char *folder, zoff_state_files *list)
{
    const size_t before = list->count;
    zoff_status status = ZOFF_OK;
    DIR *dir = opendir(folder);
    ZOFF_FAIL_IF(!dir, ZOFF_ERR_IO, "%s: cannot read the folder '%s': %s", call, folder, zoff_base_status_errno(errno));
    for (struct dirent *entry; status == ZOFF_OK && (entry = readdir(dir));) {
        if (!zoff_offload_swap_file_is_kept(entry->d_name))
            continue;
        status = zoff_base_array_reserve(&list->files, list->count, &list->capacity, list->count + 1, sizeof *list->files,
                                         "the list of state files");
        if (status == ZOFF_OK) {
            list->files[list->count].lock = -1;
            status = open_file(call, folder, entry->d_name, &list->files[list->count++]);
        }
    }
    closedir(dir);
    if (list->count > before)
        qsort(list->files + before, list->count - before, sizeof *list->files, by_path);
    ZOFF_FAIL_IF(status == ZOFF_OK && list->count == before, ZOFF_ERR_IO,
                 "%s: there is no state file in '%s' (zoff-r<rank>.states, zoff-p<part>-r<rank>.states)", call, folder);
    return status;
}

/* Open the files of all folders. The caller closes the list also after an error. */
static zoff_status list_folders(const char *call, const char *const *folders, size_t count, zoff_state_files *list)
{
    ZOFF_FAIL_IF(!folders || !count, ZOFF_ERR_INVALID, "%s: folders must not be NULL, and count must be at least 1", call);
    for (size_t i = 0; i < count; i++)
        ZOFF_FAIL_IF(!folders[i], ZOFF_ERR_INVALID, "%s: folder %zu is NULL", call, i);
    for (size_t i = 0; i < count; i++)
        ZOFF_TRY(list_folder(call, folders[i], list));
    return ZOFF_OK;
}

static void close_list(zoff_state_files *list)
{
    for (size_t i = 0; i < list->count; i++)
        close_file(&list->files[i]);
    zoff_base_mem_free(list->files);
}

/* ---- scrub ---- */

static zoff_status scrub_all(scrub *s, const char *const *folders, size_t count, zoff_state_files *list)
{
    size_t most = 1;
    ZOFF_TRY(list_folders("zoff_state_files_scrub", folders, count, list));
    for (size_t i = 0; i < list->count; i++) {
        const state_file *f = &list->files[i];
        most = zoff_base_bits_max(most, (size_t)f->bytes);
        for (unsigned k = f->commit_count; k-- > 0;)
            s->total += bytes_of(&f->found.heads[f->commits[k]], f->found.tables[f->commits[k]]);
    }
    for (size_t i = 0; i < PARTS; i++)
        ZOFF_TRY(zoff_base_mem_alloc(zoff_base_bits_min(most, (size_t)PART_BYTES), 1, "parts of state files", &s->parts[i]));
    zoff_base_array_print(&s->text, "{\"files\": [");
    for (size_t i = 0; i < list->count; i++) {
        s->complaint_count = 0;
        s->complaints.bytes = 0;
        if (s->complaints.words)
            s->complaints.words[0] = 0;
        ZOFF_TRY(scrub_file(s, &list->files[i], i == 0));
    }
    zoff_base_array_print(&s->text, "\n], \"bytes\": %" PRIu64 ", \"wrong\": %" PRIu64 "}", s->done, s->wrong);
    ZOFF_TRY(s->complaints.status);
    return s->text.status;
}

zoff_status zoff_state_files_scrub(const char *const *folders, size_t count, zoff_progress_fn progress, void *ctx, char *dst,
                                   size_t dst_bytes, size_t *out_bytes, uint64_t *out_wrong)
{
    scrub s = {.progress = progress, .ctx = ctx};
    zoff_state_files list = {.files = NULL};
    ZOFF_FAIL_IF(!dst && dst_bytes, ZOFF_ERR_INVALID, "zoff_state_files_scrub: dst must not be NULL");
    const zoff_status status = scrub_all(&s, folders, count, &list);
    if (status == ZOFF_OK && dst_bytes)
        snprintf(dst, dst_bytes, "%s", s.text.words);
    if (status == ZOFF_OK && out_bytes)
        *out_bytes = s.text.bytes;
    if (status == ZOFF_OK && out_wrong)
        *out_wrong = s.wrong;
    close_list(&list);
    for (size_t i = 0; i < PARTS; i++)
        zoff_base_mem_free(s.parts[i]);
    zoff_base_mem_free(s.text.words);
    zoff_base_mem_free(s.complaints.words);
    return status;
}

/* ---- the files for others ---- */

static zoff_status check_commits(const zoff_state_files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        const state_file *one = &f->files[i];
        ZOFF_FAIL_IF(!one->commit_count && !one->found.is_blank, ZOFF_ERR_CORRUPT,
                     "'%s' has no whole commit record: it is damaged, or not a state file", one->path);
        for (unsigned k = 0; k < one->commit_count; k++)
            ZOFF_FAIL_IF(one->found.heads[one->commits[k]].file_bytes > one->bytes, ZOFF_ERR_CORRUPT,
                         "'%s' has %" PRIu64 " bytes, and its commit record says %" PRIu64
                         ": it was cut. Go back to a checkpoint",
                         one->path, one->bytes, one->found.heads[one->commits[k]].file_bytes);
    }
    return ZOFF_OK;
}

zoff_status zoff_offload_files_open(const char *call, const char *const *folders, size_t count, zoff_state_files **out)
{
    zoff_state_files *f;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *f, "the list of state files", &f));
    zoff_status status = list_folders(call, folders, count, f);
    if (status == ZOFF_OK)
        status = check_commits(f);
    if (status < 0)
        zoff_offload_files_close(f);
    else
        *out = f;
    return status;
}

void zoff_offload_files_close(zoff_state_files *f)
{
    if (!f)
        return;
    close_list(f);
    zoff_base_mem_free(f);
}

size_t zoff_offload_files_count(const zoff_state_files *f)
{
    return f->count;
}

zoff_state_file zoff_offload_files_file(const zoff_state_files *f, size_t file)
{
    const state_file *one = &f->files[file];
    zoff_state_file out = {.path = one->path, .fd = one->lock, .has_commit = one->commit_count > 0};
    if (!out.has_commit)
        return out;
    const zoff_swap_head *head = &one->found.heads[one->commits[0]];
    out.rank = head->identity.rank;
    out.ranks = head->identity.ranks;
    out.file = head->identity.file;
    out.files = head->identity.files;
    out.layout = head->identity.layout;
    out.cut = head->identity.cut;
    out.generation = head->generation;
    out.is_damaged = zoff_offload_swap_record_is_damaged(&one->found, head->generation + 1);
    return out;
}

zoff_status zoff_offload_files_description(const zoff_state_files *f, size_t file, char **out, size_t *out_bytes)
{
    const state_file *one = &f->files[file];
    return zoff_offload_swap_layout_read(one->path, &one->found.heads[one->commits[0]].identity, out, out_bytes);
}

/* The commit of a generation, 0 or 1; 2: the file does not have it. */
static unsigned find_commit(const state_file *f, uint64_t generation)
{
    for (unsigned i = 0; i < f->commit_count; i++) {
        if (f->found.heads[f->commits[i]].generation == generation)
            return f->commits[i];
    }
    return 2;
}

bool zoff_offload_files_commit(const zoff_state_files *f, size_t file, uint64_t generation, zoff_state_commit *out)
{
    const zoff_swap_found *found = &f->files[file].found;
    const unsigned which = find_commit(&f->files[file], generation);
    if (which == 2)
        return false;
    *out = (zoff_state_commit){.t = found->heads[which].t,
                               .chunk_count = (size_t)found->heads[which].entry_count,
                               .attached = zoff_offload_swap_record_attached(found, which),
                               .attached_bytes = (size_t)found->heads[which].attached_bytes};
    return true;
}

size_t zoff_offload_files_array(const zoff_state_files *f, size_t file, uint64_t generation, size_t index, unsigned array,
                                zoff_store_source *out)
{
    const zoff_swap_found *found = &f->files[file].found;
    const unsigned which = find_commit(&f->files[file], generation), other = !which;
    const zoff_swap_entry *entry = &found->tables[which][index];
    const zoff_swap_entry_array *a = &entry->arrays[array];
    const bool is_older = find_commit(&f->files[file], generation + 1) == other;
    const place p = place_of(entry, array);
    *out = (zoff_store_source){.fd = f->files[file].lock,
                               .offset = p.offset,
                               .begin = (size_t)begin_of(entry, array),
                               .bytes = p.bytes,
                               .written = p.written,
                               .has_checksum = a->flags & ZOFF_ENTRY_HAS_CHECKSUM,
                               .checksum = a->checksum,
                               .stays = !is_older || (index < found->heads[other].entry_count &&
                                                      found->tables[other][index].arrays[array].slot == a->slot)};
    return (size_t)entry->chunk;
}
