/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: makes a checkpoint of the persistent state files of all ranks, without an engine: zoff_state_files_checkpoint().
 * Each rank of the files gets one file of the checkpoint. An array of a chunk becomes a region as it lies. The description that
 * stands beside the files says which elements are where. */
#include "checkpoint_priv.h"

#include "array.h"
#include "bits.h"
#include "digest.h"
#include "log.h"
#include "structs.h"
#include "try.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char CALL[] = "zoff_state_files_checkpoint";

/* An array that goes into the file of a rank. */
typedef struct copy {
    zoff_store_source source;
    size_t file, chunk;
    uint32_t region;
    bool is_shared; /* the checkpoint shares the file's disk blocks */
} copy;

typedef struct conversion {
    zoff_state_files *files;
    zoff_archive_manifest manifest;                                  /* manifest; its files are one for each rank */
    char folder[4096], work[4096], name[ZOFF_ARCHIVE_NAME_MOST + 1]; /* work: the hidden folder until it is complete */
    uint64_t generation;
    bool is_replicated;     /* every rank has all states */
    zoff_archive_part part; /* part of the rank at work */
    zoff_fork_guard *lock;  /* lock on the file of rank 0, to the end */
    copy *copies;           /* copies of that rank */
    size_t copy_count, copy_room;
    zoff_map buffer;
    zoff_progress_fn progress;
    void *ctx;
    uint64_t done, total; /* bytes done, and in all; an estimate until all ranks are laid out */
} conversion;

/* ---- whose files they are ---- */

/* The number of a file in the list.  @return SIZE_MAX: it is not there */
static size_t find_file(const conversion *c, uint32_t rank, uint32_t file)
{
    for (size_t i = 0; i < zoff_offload_files_count(c->files); i++) {
        const zoff_state_file f = zoff_offload_files_file(c->files, i);
        if (f.has_commit && f.rank == rank && f.file == file)
            return i;
    }
    return SIZE_MAX;
}

/* A file belongs to the same run as the first one, and no other file is the same part of it. */
static zoff_status check_file(const conversion *c, size_t i, const zoff_state_file *first)
{
    const zoff_state_file f = zoff_offload_files_file(c->files, i);
    if (!f.has_commit)
        return ZOFF_OK;
    ZOFF_FAIL_IF(f.rank >= f.ranks || f.file >= f.files, ZOFF_ERR_CORRUPT,
                 "%s: '%s' says that it is file %u of %u, of rank %u of %u", CALL, f.path, f.file, f.files, f.rank, f.ranks);
    ZOFF_FAIL_IF(f.ranks != first->ranks || f.layout != first->layout, ZOFF_ERR_INVALID,
                 "%s: '%s' and '%s' are of different models or numbers of ranks: name the folders of one run", CALL,
                 first->path, f.path);
    const size_t same = find_file(c, f.rank, f.file);
    ZOFF_FAIL_IF(same != i, ZOFF_ERR_INVALID,
                 "%s: '%s' and '%s' are both file %u of rank %u: name the folders of one run, each once", CALL,
                 zoff_offload_files_file(c->files, same).path, f.path, f.file + 1, f.rank);
    return ZOFF_OK;
}

static zoff_status check_ranks(const conversion *c, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t files = 1;
        for (size_t i = 0; i < zoff_offload_files_count(c->files); i++) {
            const zoff_state_file f = zoff_offload_files_file(c->files, i);
            files = f.has_commit && f.rank == rank ? f.files : files;
        }
        for (uint32_t file = 0; file < files; file++)
            ZOFF_FAIL_IF(find_file(c, rank, file) == SIZE_MAX, ZOFF_ERR_INVALID,
                         "%s: file %u of %u of rank %u (of %u) is missing, or has no states: name all folders of nvme_path, of "
                         "all ranks",
                         CALL, file + 1, files, rank, ranks);
    }
    return ZOFF_OK;
}

/* The newest generation that all files have, as an engine chooses it. */
static zoff_status choose_generation(conversion *c)
{
    size_t oldest = SIZE_MAX;
    bool is_first = true;
    for (size_t i = 0; i < zoff_offload_files_count(c->files); i++) {
        const zoff_state_file f = zoff_offload_files_file(c->files, i);
        if (f.has_commit && (oldest == SIZE_MAX || f.generation < c->generation)) {
            c->generation = f.generation;
            oldest = i;
        }
    }
    for (size_t i = 0; i < zoff_offload_files_count(c->files); i++) {
        zoff_state_commit commit;
        const zoff_state_file f = zoff_offload_files_file(c->files, i), first = zoff_offload_files_file(c->files, oldest);
        if (!f.has_commit)
            continue;
        ZOFF_FAIL_IF(!zoff_offload_files_commit(c->files, i, c->generation, &commit), ZOFF_ERR_CORRUPT,
                     "%s: '%s' ends with commit %" PRIu64 ", and '%s' does not have that one any more: no step is in all files",
                     CALL, first.path, c->generation, f.path);
        ZOFF_FAIL_IF(!is_first && commit.t != c->manifest.t, ZOFF_ERR_CORRUPT,
                     "%s: commit %" PRIu64 " is step %" PRId64 " in one file, and step %" PRId64 " in '%s'", CALL,
                     c->generation, c->manifest.t, commit.t, f.path);
        c->manifest.t = commit.t;
        is_first = false;
        if (f.is_damaged)
            ZOFF_WARN("the record of a later commit in '%s' is not valid: it was damaged, or the power failed while it was "
                      "written. The checkpoint has the states after step %" PRId64,
                      f.path, commit.t);
    }
    return ZOFF_OK;
}

static zoff_status check_files(conversion *c)
{
    size_t first = 0;
    while (first < zoff_offload_files_count(c->files) && !zoff_offload_files_file(c->files, first).has_commit)
        first++;
    ZOFF_FAIL_IF(first == zoff_offload_files_count(c->files), ZOFF_ERR_INVALID,
                 "%s: the state files are blank: their run ended before its first commit", CALL);
    const zoff_state_file f = zoff_offload_files_file(c->files, first);
    for (size_t i = first; i < zoff_offload_files_count(c->files); i++)
        ZOFF_TRY(check_file(c, i, &f));
    ZOFF_TRY(check_ranks(c, f.ranks));
    ZOFF_TRY(choose_generation(c));
    c->manifest.file_count = f.ranks;
    return zoff_base_mem_alloc(f.ranks, sizeof *c->manifest.files, "files of a checkpoint", &c->manifest.files);
}

/* ---- what is where ---- */

/* Read which elements a rank has where, and with `m` the parameters. */
static zoff_status read_description(const conversion *c, uint32_t rank, zoff_archive_manifest *m, zoff_archive_table *out)
{
    char *content;
    size_t bytes;
    const size_t file = find_file(c, rank, 0);
    ZOFF_TRY(zoff_offload_files_description(c->files, file, &content, &bytes));
    const zoff_status status =
        zoff_archive_described_read(zoff_offload_files_file(c->files, file).path, content, bytes, m, out);
    zoff_base_mem_free(content);
    return status;
}

/* Whether two ranks have the same pieces in the same chunks. */
static bool are_equal(const zoff_archive_table *a, const zoff_archive_table *b)
{
    return a->region_count == b->region_count && a->piece_count == b->piece_count &&
           memcmp(a->regions, b->regions, a->region_count * sizeof *a->regions) == 0 &&
           memcmp(a->pieces, b->pieces, a->piece_count * sizeof *a->pieces) == 0;
}

/* Read the parameters, and whether all ranks have all states: then their descriptions are equal. */
static zoff_status describe(conversion *c)
{
    zoff_archive_table one = {.regions = NULL}, other = {.regions = NULL};
    zoff_status status = read_description(c, 0, &c->manifest, &one);
    if (status == ZOFF_OK && c->manifest.file_count > 1) {
        status = read_description(c, 1, NULL, &other);
        c->is_replicated = status == ZOFF_OK && are_equal(&one, &other);
    }
    zoff_archive_table_free(&one);
    zoff_archive_table_free(&other);
    return status;
}

/* The first piece of an array of a chunk, or the one behind it. */
static size_t find_piece(const zoff_archive_table *t, size_t chunk, unsigned array)
{
    size_t low = 0, high = t->piece_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const zoff_archive_piece *p = &t->pieces[middle];
        if (p->region < chunk || (p->region == chunk && p->kind < array))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static zoff_status add_pieces(conversion *c, const zoff_archive_table *described, const copy *added, unsigned array,
                              size_t *out_count)
{
    const size_t first = find_piece(described, added->chunk, array);
    size_t i = first;
    for (; i < described->piece_count; i++) {
        zoff_archive_piece piece = described->pieces[i];
        if (piece.region != added->chunk || piece.kind != array)
            break;
        const uint64_t begin = added->source.begin, bytes = zoff_archive_table_bytes_of(piece.format, piece.count);
        ZOFF_FAIL_IF(piece.at < begin || bytes > added->source.bytes || piece.at - begin > added->source.bytes - bytes,
                     ZOFF_ERR_CORRUPT, "the description of '%s' has a piece of chunk %zu that is not in its array %u",
                     zoff_offload_files_file(c->files, added->file).path, added->chunk, array);
        piece.at -= begin;
        piece.region = added->region;
        ZOFF_TRY(zoff_archive_table_add_piece(&c->part.table, &piece));
    }
    *out_count = i - first;
    return ZOFF_OK;
}

static zoff_status add_array(conversion *c, const zoff_archive_table *described, size_t file, size_t index, unsigned array)
{
    size_t pieces = 0;
    copy added = {.file = file};
    added.chunk = zoff_offload_files_array(c->files, file, c->generation, index, array, &added.source);
    if (!added.source.bytes || (c->is_replicated && added.chunk % c->manifest.file_count != c->part.rank))
        return ZOFF_OK;
    const zoff_state_file f = zoff_offload_files_file(c->files, file);
    ZOFF_FAIL_IF(!added.source.has_checksum && !added.source.stays, ZOFF_ERR_INVALID,
                 "%s: step %" PRId64 " is the newest that all files have, but chunk %zu of it in '%s' has no checksum "
                 "(zoff.verify was not \"full\"), so nothing shows whether a later step has overwritten it",
                 CALL, c->manifest.t, added.chunk, f.path);
    added.region = (uint32_t)c->part.table.region_count;
    ZOFF_TRY(add_pieces(c, described, &added, array, &pieces));
    if (!pieces)
        return ZOFF_OK;
    ZOFF_TRY(zoff_archive_part_region(&c->part, added.source.bytes, 0, &added.region));
    ZOFF_TRY(zoff_base_array_reserve(&c->copies, c->copy_count, &c->copy_room, c->copy_count + 1, sizeof *c->copies,
                                     "arrays of state files"));
    c->copies[c->copy_count++] = added;
    return ZOFF_OK;
}

static zoff_status lay_out(conversion *c, const zoff_archive_table *described, uint32_t rank)
{
    c->copy_count = 0;
    for (size_t file = 0; file < zoff_offload_files_count(c->files); file++) {
        zoff_state_commit commit;
        const zoff_state_file f = zoff_offload_files_file(c->files, file);
        if (!f.has_commit || f.rank != rank || !zoff_offload_files_commit(c->files, file, c->generation, &commit))
            continue;
        for (size_t i = 0; i < commit.chunk_count; i++) {
            for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
                ZOFF_TRY(add_array(c, described, file, i, array));
        }
    }
    return ZOFF_OK;
}

/* ---- the program's bytes and the loss scale ---- */

/* Write the program's bytes, which are in the record of a rank's first file. */
static zoff_status write_program(conversion *c, uint32_t rank)
{
    zoff_state_commit commit;
    zoff_program_bytes program = {.list = NULL};
    zoff_program_entry entry;
    size_t at = 0;
    const size_t file = find_file(c, rank, 0);
    if (!zoff_offload_files_commit(c->files, file, c->generation, &commit))
        return ZOFF_OK;
    zoff_status status = zoff_model_program_bytes_take(&program, commit.attached, commit.attached_bytes);
    while (status == ZOFF_OK && zoff_model_program_bytes_next(program.found, program.found_bytes, &at, &entry))
        status = zoff_archive_part_item(&c->part, entry.name, entry.each_rank, entry.bytes, entry.count);
    if (status == ZOFF_OK && rank == 0) {
        c->manifest.has_scaler = zoff_model_program_bytes_scaler(&program, &c->manifest.scaler);
        c->manifest.exact_sums = zoff_model_program_bytes_exact_sums(&program);
    }
    zoff_model_program_bytes_close(&program);
    return status < 0 ? zoff_base_status_prefix(status, "'%s': ", zoff_offload_files_file(c->files, file).path) : ZOFF_OK;
}

/* ---- the file of a rank ---- */

static zoff_status make_room(conversion *c)
{
    size_t most = 0;
    for (size_t i = 0; i < c->copy_count; i++)
        most = zoff_base_bits_max(most, c->copies[i].source.bytes);
    if (c->buffer.bytes >= most)
        return ZOFF_OK;
    zoff_base_map_free(&c->buffer);
    return zoff_base_map_alloc(most, "an array of a state file", ZOFF_MAP_FIRST_TOUCH, &c->buffer);
}

/* Read an array and compare it, also where its disk blocks are shared: damage shows now, while there may be another copy. */
static zoff_status copy_array(conversion *c, const copy *one)
{
    const zoff_archive_region *r = &c->part.table.regions[one->region];
    uint64_t ticket;
    const zoff_status status = zoff_checkpoint_source_file(&one->source, one->chunk, c->buffer.base);
    if (status < 0)
        return zoff_base_status_prefix(status, "'%s': ", zoff_offload_files_file(c->files, one->file).path);
    if (!one->is_shared) {
        ZOFF_TRY(zoff_aio_write(c->part.aio, r->offset, r->bytes, c->buffer.base, &ticket));
        ZOFF_TRY(zoff_aio_wait(c->part.aio, ticket));
    }
    c->part.table.checksums[r->first_checksum] =
        one->source.has_checksum ? one->source.checksum : zoff_digest_blocks_whole(c->buffer.base, one->source.bytes, 1);
    c->done += one->source.bytes;
    ZOFF_FAIL_IF(c->progress && !c->progress("reshard", c->done, c->total, c->ctx), ZOFF_ERR_CANCELED,
                 "%s: the program ended it after %" PRIu64 " of %" PRIu64 " bytes", CALL, c->done, c->total);
    return ZOFF_OK;
}

static zoff_status fill_part(conversion *c, const zoff_archive_table *described, uint32_t rank)
{
    ZOFF_TRY(lay_out(c, described, rank));
    for (size_t i = 0; i < c->copy_count; i++)
        c->copies[i].is_shared =
            zoff_checkpoint_source_share(&c->copies[i].source, c->part.fd, c->part.table.regions[c->copies[i].region].offset);
    ZOFF_TRY(zoff_archive_part_reserve(&c->part));
    ZOFF_TRY(make_room(c));
    for (size_t i = 0; i < c->copy_count; i++)
        ZOFF_TRY(copy_array(c, &c->copies[i]));
    ZOFF_TRY(write_program(c, rank));
    return zoff_archive_part_finish(&c->part, &c->manifest.files[rank]);
}

static zoff_status write_part(conversion *c, uint32_t rank)
{
    zoff_archive_table described = {.regions = NULL};
    ZOFF_TRY(read_description(c, rank, NULL, &described));
    zoff_archive_manifest *m = &c->manifest;
    zoff_status status = rank ? zoff_archive_part_open(c->work, m->label, m->id, rank, &c->part)
                              : zoff_archive_publish_begin(c->folder, c->name, m, true, c->work, &c->part);
    if (status == ZOFF_OK) {
        status = fill_part(c, &described, rank);
        c->part.keeps = status == ZOFF_OK;
        if (rank == 0 && status == ZOFF_OK) {
            c->lock = c->part.lock;
            c->part.lock = NULL;
        }
        zoff_archive_part_close(&c->part);
    }
    zoff_archive_table_free(&described);
    return status;
}

/* ---- the checkpoint ---- */

static zoff_status prepare(conversion *c, const zoff_checkpoint_opts *opts)
{
    zoff_archive_manifest *m = &c->manifest;
    char about[160];
    ZOFF_FAIL_IF(opts->data_count, ZOFF_ERR_INVALID,
                 "%s: zoff_checkpoint_opts.data_count must be 0: the program's bytes are those of the state files", CALL);
    ZOFF_FAIL_IF(opts->engines > ZOFF_ARCHIVE_ENGINES_MOST, ZOFF_ERR_INVALID,
                 "%s: zoff_checkpoint_opts.engines is %u, and may be %d", CALL, opts->engines, ZOFF_ARCHIVE_ENGINES_MOST);
    ZOFF_TRY(zoff_archive_publish_name(opts, m->t, c->name));
    m->engines = opts->engines ? opts->engines : 1;
    m->pinned = opts->pinned;
    ZOFF_TRY(zoff_base_mem_copy_text(opts->label ? opts->label : "", &m->label));
    snprintf(about, sizeof about, "{\"zoff\": \"%d.%d.%d\", \"ranks\": %zu, \"from\": \"state files\"}", ZOFF_VERSION_MAJOR,
             ZOFF_VERSION_MINOR, ZOFF_VERSION_PATCH, m->file_count);
    return zoff_base_mem_copy_text(about, &m->about);
}

static uint64_t count_bytes(const conversion *c)
{
    uint64_t bytes = 0;
    for (size_t file = 0; file < zoff_offload_files_count(c->files); file++) {
        zoff_state_commit commit;
        const bool has_commit = zoff_offload_files_file(c->files, file).has_commit;
        if (!has_commit || !zoff_offload_files_commit(c->files, file, c->generation, &commit))
            continue;
        for (size_t i = 0; i < commit.chunk_count; i++) {
            for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
                zoff_store_source source;
                (void)zoff_offload_files_array(c->files, file, c->generation, i, array, &source);
                bytes += source.bytes;
            }
        }
    }
    return c->is_replicated ? bytes / c->manifest.file_count : bytes;
}

static zoff_status write_all(conversion *c, unsigned keep)
{
    c->total = count_bytes(c);
    for (uint32_t rank = 0; rank < c->manifest.file_count; rank++)
        ZOFF_TRY(write_part(c, rank));
    /* A description that another program wrote may lack elements. */
    const zoff_status status = zoff_archive_check(c->work, &c->manifest);
    if (status < 0)
        return zoff_base_status_prefix(status, "%s: '%s.layout' does not describe the states: ", CALL,
                                       zoff_offload_files_file(c->files, find_file(c, 0, 0)).path);
    return zoff_archive_publish_manifest(c->folder, c->name, &c->manifest, true, keep);
}

static zoff_status convert(conversion *c, const char *const *folders, size_t count, const zoff_checkpoint_opts *opts)
{
    zoff_saved_error saved;
    ZOFF_TRY(zoff_offload_files_open(CALL, folders, count, &c->files));
    ZOFF_TRY(check_files(c));
    ZOFF_TRY(describe(c));
    ZOFF_TRY(prepare(c, opts));
    const zoff_status status = write_all(c, opts->keep);
    zoff_base_status_save(&saved);
    zoff_base_fork_close(c->lock);
    if (status < 0 && *c->work)
        zoff_archive_remove_own(c->work, &c->manifest);
    zoff_base_status_restore(&saved);
    return status;
}

zoff_status zoff_state_files_checkpoint(const char *const *folders, size_t count, const char *checkpoints,
                                        const zoff_checkpoint_opts *opts, zoff_progress_fn progress, void *ctx)
{
    conversion c = {.part = {.fd = -1}, .progress = progress, .ctx = ctx};
    zoff_checkpoint_opts known = ZOFF_CHECKPOINT_OPTS_INIT;
    ZOFF_FAIL_IF(!checkpoints || !*checkpoints, ZOFF_ERR_INVALID, "%s: checkpoints must not be NULL or empty", CALL);
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_checkpoint_opts", "ZOFF_CHECKPOINT_OPTS_INIT", opts, &known, sizeof known));
    /* make the path absolute, because `progress` may call chdir() */
    ZOFF_TRY(zoff_archive_folder_absolute(checkpoints, ZOFF_ARCHIVE_FOLDER_MOST, c.folder));
    const zoff_status status = convert(&c, folders, count, &known);
    zoff_offload_files_close(c.files);
    zoff_archive_manifest_free(&c.manifest);
    zoff_base_map_free(&c.buffer);
    zoff_base_mem_free(c.copies);
    return status;
}
