/* SPDX-License-Identifier: Apache-2.0 */
/* swap_reopen.c: files of an earlier process: whose they are, which generation all of them have, and the places of its arrays.
 */
#include "swap_priv.h"

#include "log.h"
#include "mem.h"
#include "try.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Erase records of later generations, because they would name places that are written next. */
static zoff_status forget_later(const zoff_swap_store *s, zoff_swap_found *found, uint64_t last)
{
    for (size_t i = 0; i < s->file_count; i++) {
        for (unsigned which = 0; which < 2; which++) {
            if (!found[i].is_whole[which] || found[i].heads[which].generation <= last)
                continue;
            ZOFF_TRY(zoff_offload_swap_record_take_back(s->files[i].aio, found[i].heads[which].generation));
            found[i].is_whole[which] = false;
            found[i].is_taken_back[which] = true;
        }
        ZOFF_TRY(zoff_offload_swap_move_flush_drive(s, &s->files[i]));
    }
    return ZOFF_OK;
}

/* The generation that a file offers: its newest complete one, or the one before that; 0: none. */
static uint64_t newest(const zoff_swap_found *found)
{
    uint64_t generation = 0;
    for (unsigned which = 0; which < 2; which++) {
        if (found->is_whole[which] && found->heads[which].generation > generation)
            generation = found->heads[which].generation;
    }
    return generation;
}

/* Whether its engine died before the first commit: the file is blank, or its very first record, of generation 1, is torn. */
static bool is_begun(const zoff_swap_found *found)
{
    static const zoff_swap_head NONE;
    return found->is_blank || (!newest(found) && memcmp(&found->heads[0], &NONE, sizeof NONE) == 0);
}

static zoff_status check_identity(const zoff_swap_store *s, uint32_t index, const zoff_swap_head *head)
{
    const zoff_swap_identity *mine = &s->record.identity, *theirs = &head->identity;
    const char *name = s->files[index].name;
    ZOFF_FAIL_IF(theirs->rank != mine->rank || theirs->ranks != mine->ranks, ZOFF_ERR_INVALID,
                 "'%s' holds the states of rank %u of %u, and this is rank %u of %u; start as many ranks as then, or choose "
                 "another nvme_path. The command `zoff checkpoint reshard` makes a checkpoint for any number of ranks",
                 name, theirs->rank, theirs->ranks, mine->rank, mine->ranks);
    ZOFF_FAIL_IF(theirs->files != mine->files || theirs->file != index, ZOFF_ERR_INVALID,
                 "'%s' is file %u of %u, and nvme_path names it as %u of %u; give the same folders in the same order as then",
                 name, theirs->file + 1, theirs->files, index + 1, mine->files);
    ZOFF_FAIL_IF(
        theirs->layout != mine->layout, ZOFF_ERR_INVALID,
        "'%s' holds the states of another model: names, sizes, order, optimizers (also zoff.muon_params, zoff.adam_params) or "
        "moments (zoff.moments, zoff.fp32_moments) of the parameters differ. The command `zoff checkpoint reshard` makes a "
        "checkpoint of it. That "
        "loads into moments of any format, with zoff_checkpoint_opts.allow into a model that differs, and with weights_only "
        "into another optimizer. Or remove the file to start anew, or choose another nvme_path",
        name);
    ZOFF_FAIL_IF(head->version != s->record.version, ZOFF_ERR_UNSUPPORTED,
                 "'%s' is a state file of format %u, whose moments in 8 bits mean other numbers now, and this library writes "
                 "format %u. Open it with the version of zoff that began it, save a checkpoint with \"zoff\": {\"moments\": "
                 "\"fp32\"}, and remove the file",
                 name, head->version, s->record.version);
    ZOFF_FAIL_IF(theirs->cut != mine->cut || theirs->chunk_count != mine->chunk_count, ZOFF_ERR_INVALID,
                 "'%s' holds the states of this model in another cut: %" PRIu64 " chunks, and here they are %" PRIu64
                 ". Set zero_optimization.stage and reduce_bucket_size as they were in the run that made the file, remove the "
                 "file to start anew, or choose another nvme_path",
                 name, theirs->chunk_count, mine->chunk_count);
    return ZOFF_OK;
}

/* Chunks of a file follow one another in the order of their numbers, and each chunk is in one file. So no two chunks share a
 * byte, and if the counts agree none is missing. */
static bool entry_fits(const zoff_swap_store *s, const zoff_swap_entry *entry, size_t least, uint64_t offset)
{
    if (entry->chunk < least || entry->chunk >= s->chunk_count || s->places[entry->chunk].offset)
        return false;
    const zoff_store_chunk *chunk = &s->chunks[entry->chunk];
    bool fits = chunk->bytes && entry->offset == offset && entry->first_bytes <= chunk->bytes &&
                entry->first_bytes % ZOFF_RECORD_HEAD_BYTES == 0;
    for (unsigned i = 0; i < ZOFF_STORE_ARRAYS; i++) {
        const zoff_swap_entry_array *array = &entry->arrays[i];
        fits = fits && array->end == chunk->ends[i] && array->slot <= 1 &&
               !(array->flags & ~(uint32_t)(ZOFF_ENTRY_FRESH | ZOFF_ENTRY_HAS_CHECKSUM));
    }
    return fits;
}

/* Take places and contents from a record. */
static zoff_status take_entries(zoff_swap_store *s, uint32_t index, const zoff_swap_head *head, const zoff_swap_entry *entries)
{
    zoff_swap_file *file = &s->files[index];
    struct stat st = {.st_size = 0};
    uint64_t offset = zoff_offload_swap_record_room(head->entry_count);
    size_t least = 0;
    for (size_t i = 0; i < head->entry_count; i++) {
        const zoff_swap_entry *entry = &entries[i];
        ZOFF_FAIL_IF(!entry_fits(s, entry, least, offset), ZOFF_ERR_CORRUPT,
                     "the commit record of '%s' does not fit its model (entry %zu: chunk %" PRIu64 " at offset %" PRIu64
                     "); go back to a checkpoint, and remove the file to start anew",
                     file->name, i, entry->chunk, entry->offset);
        zoff_swap_place *place = &s->places[entry->chunk];
        least = entry->chunk + 1;
        offset += 2 * s->chunks[entry->chunk].bytes;
        place->file = index;
        place->offset = entry->offset;
        place->first_bytes = entry->first_bytes;
        for (unsigned k = 0; k < ZOFF_STORE_ARRAYS; k++) {
            const zoff_swap_entry_array *array = &entry->arrays[k];
            place->now.arrays[k] = (zoff_swap_array){.checksum = array->checksum,
                                                     .slot = array->slot,
                                                     .fresh = array->flags & ZOFF_ENTRY_FRESH,
                                                     .has_checksum = array->flags & ZOFF_ENTRY_HAS_CHECKSUM};
        }
        place->committed = place->now;
    }
    ZOFF_FAIL_IF(head->file_bytes != offset || fstat(file->lock, &st) != 0 || (uint64_t)st.st_size < offset, ZOFF_ERR_CORRUPT,
                 "'%s' has %lld bytes, and its chunks take %" PRIu64 " (its commit record says %" PRIu64
                 "): it was cut; go back to a checkpoint, and remove the file to start anew",
                 file->name, (long long)st.st_size, offset, head->file_bytes);
    file->chunk_count = head->entry_count;
    file->bytes = head->file_bytes;
    file->write_bytes = head->write_bytes;
    file->keep = true;
    return ZOFF_OK;
}

/* Whether no step and no count of steps was ever recorded, so that the program has all the states, and may have changed. */
static bool is_before_first_step(const zoff_swap_found *found, uint64_t generation)
{
    const unsigned which = generation & 1;
    return generation && found->is_whole[which] && found->heads[which].generation == generation &&
           !(found->heads[which].flags & ZOFF_HEAD_STEPPED);
}

/* Warn of a damaged record that is newer than the chosen one. */
static void warn_of_damage(const zoff_swap_store *s, uint32_t index, const zoff_swap_found *found)
{
    const unsigned which = (s->record.generation + 1) & 1;
    const zoff_swap_head *head = &found->heads[which];
    char step[64] = "a later step";
    if (!zoff_offload_swap_record_is_damaged(found, s->record.generation + 1))
        return;
    if (head->generation == s->record.generation + 1 && head->t > 0)
        snprintf(step, sizeof step, "step %" PRId64, head->t);
    ZOFF_WARN(
        "the commit record of %s in '%s' is not valid: it was damaged, or the power failed while it was written. Continuing "
        "with the states after step %" PRId64 ", one record back",
        step, s->files[index].name, s->store.t);
}

static zoff_status take_generation(zoff_swap_store *s, const zoff_swap_found *found, uint64_t generation)
{
    size_t entries = 0, wanted = 0;
    for (uint32_t i = 0; i < s->file_count; i++) {
        const unsigned which = generation & 1;
        const zoff_swap_head *head = &found[i].heads[which];
        ZOFF_FAIL_IF(!found[i].is_whole[which] || head->generation != generation, ZOFF_ERR_CORRUPT,
                     "'%s' does not have generation %" PRIu64
                     " any more, which is the newest that all files have; go back to a "
                     "checkpoint, and remove the files to start anew",
                     s->files[i].name, generation);
        ZOFF_TRY(check_identity(s, i, head));
        ZOFF_TRY(take_entries(s, i, head, found[i].tables[which]));
        entries += head->entry_count;
        s->store.t = head->t;
        s->record.stepped = head->flags & ZOFF_HEAD_STEPPED;
        if (i == 0)
            zoff_offload_store_attach(&s->store, zoff_offload_swap_record_attached(&found[i], which),
                                      (size_t)head->attached_bytes);
    }
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++)
        wanted += s->chunks[chunk].bytes != 0;
    ZOFF_FAIL_IF(entries != wanted, ZOFF_ERR_CORRUPT, "the commit records in '%s' name %zu chunks of %zu", s->files[0].name,
                 entries, wanted);
    s->record.generation = generation;
    s->store.stats.lifetime_write_bytes = zoff_offload_swap_move_lifetime(s);
    return ZOFF_OK;
}

/* Report that one of several folders has no states, although others have committed a step. */
static zoff_status tell_lost(const zoff_swap_store *s, const zoff_swap_found *found)
{
    size_t lost = 0, last = 0;
    for (size_t i = 0; i < s->file_count; i++) {
        lost = newest(&found[i]) ? lost : i;
        last = newest(&found[i]) > newest(&found[last]) ? i : last;
    }
    const zoff_swap_head *head = &found[last].heads[newest(&found[last]) & 1];
    ZOFF_FAIL_IF(head->identity.files != s->file_count, ZOFF_ERR_CORRUPT,
                 "nvme_path names %zu folders, but '%s' is file %u of %u of its run, and '%s' has no states; give the same "
                 "folders in the same order as then",
                 s->file_count, s->files[last].name, head->identity.file + 1, head->identity.files, s->files[lost].name);
    return zoff_base_status_fail(
        ZOFF_ERR_CORRUPT,
        "nvme_path has several folders, and one of them has lost its state file: '%s' has no states, and '%s' has those after "
        "step %" PRId64 ". Is its drive mounted? Otherwise go back to a checkpoint, and remove the files to start anew",
        s->files[lost].name, s->files[last].name, head->t);
}

/* A rank without a file is in the folder of another rank, if that has states: the hosts were given other ranks than in the
 * earlier run. Several ranks of a run may share the folder, but then each has a file there. A folder of one rank has few files,
 * so only a few are read: thousands of ranks may begin a run in one folder. */
static void find_other(const zoff_swap_file *own, char out[sizeof((zoff_store_found *)0)->other])
{
    enum { FILES_MOST = 64 };
    char folder[PATH_MAX];
    unsigned seen = 0;
    const char *base = strrchr(own->name, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(base - own->name), own->name);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && !out[0] && seen < FILES_MOST && (entry = readdir(dir));) {
        zoff_swap_found found;
        if (!zoff_offload_swap_file_is_kept(entry->d_name) || strcmp(entry->d_name, base + 1) == 0)
            continue;
        seen++;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && zoff_offload_swap_record_read(fd, entry->d_name, &found) == ZOFF_OK) {
            const uint64_t generation = newest(&found);
            if (generation && found.heads[generation & 1].flags & ZOFF_HEAD_STEPPED)
                snprintf(out, sizeof((zoff_store_found *)0)->other, "%.47s", entry->d_name);
            zoff_offload_swap_record_free(&found);
        }
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
}

/* Check the records of all files before any file is changed. */
static zoff_status look(const zoff_swap_store *s, const zoff_swap_found *found, zoff_store_found *out)
{
    uint64_t oldest = UINT64_MAX, last = 0;
    bool is_new = false;
    for (size_t i = 0; i < s->file_count; i++) {
        const uint64_t generation = newest(&found[i]);
        ZOFF_TRY(zoff_offload_swap_record_check_version(s->files[i].name, &found[i]));
        ZOFF_FAIL_IF(!generation && !is_begun(&found[i]), ZOFF_ERR_CORRUPT,
                     "'%s' is not a state file of this version, or both of its commit records are damaged; go back to a "
                     "checkpoint, and remove the file to start anew",
                     s->files[i].name);
        is_new = is_new || !generation || is_before_first_step(&found[i], generation);
        oldest = generation < oldest ? generation : oldest;
        last = generation > last ? generation : last;
    }
    if (!oldest && last > 1)
        return tell_lost(s, found);
    *out = (zoff_store_found){.generation = oldest, .reopened = !is_new, .has_before = !is_new && oldest > 1};
    for (size_t i = 0; !last && i < s->file_count; i++) {
        if (found[i].is_blank && !out->other[0])
            find_other(&s->files[i], out->other);
    }
    for (uint32_t i = 0; !is_new && i < s->file_count; i++) {
        const unsigned before = (oldest - 1) & 1;
        out->has_before = out->has_before && found[i].is_whole[before] && found[i].heads[before].generation == oldest - 1;
        out->t_before = out->has_before ? found[i].heads[before].t : 0;
        ZOFF_TRY(check_identity(s, i, &found[i].heads[newest(&found[i]) & 1]));
        if (found[i].is_whole[oldest & 1] && found[i].heads[oldest & 1].generation == oldest)
            out->t = found[i].heads[oldest & 1].t;
    }
    return ZOFF_OK;
}

/* Arrays of an older commit that the last one has at another place, and that have no checksum. The step after the last commit
 * writes to these places, and nothing shows whether it has begun. */
static size_t count_unknown(const zoff_swap_store *s, const zoff_swap_found *found, uint64_t generation)
{
    size_t unknown = 0;
    for (size_t i = 0; i < s->file_count; i++) {
        const unsigned older = generation & 1, newer = !older;
        for (size_t k = 0; found[i].is_whole[newer] && k < found[i].heads[older].entry_count; k++) {
            const zoff_swap_entry *was = &found[i].tables[older][k], *is = &found[i].tables[newer][k];
            for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
                unknown +=
                    was->arrays[array].slot != is->arrays[array].slot && !(was->arrays[array].flags & ZOFF_ENTRY_HAS_CHECKSUM);
        }
    }
    return unknown;
}

/* Read a chunk and compare it with its checksums.  @return PENDING: it is being read */
static zoff_status verify_chunk(zoff_swap_store *s, size_t chunk)
{
    void *base;
    if (!s->chunks[chunk].bytes)
        return ZOFF_OK;
    if (s->places[chunk].home)
        return zoff_offload_swap_lend_reload(s, s->places[chunk].home);
    const zoff_status status = zoff_offload_swap_lend_fetch(&s->store, chunk, ZOFF_STORE_ALL, &base);
    if (status == ZOFF_PENDING) {
        ZOFF_TRY(zoff_offload_swap_wait_any(&s->store));
        ZOFF_TRY(zoff_offload_swap_wait_report(s));
    }
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(zoff_offload_swap_lend_check(&s->store, chunk));
    zoff_offload_swap_lend_release(&s->store, chunk);
    return ZOFF_OK;
}

/* Begin to verify the commit that places name now. */
static zoff_status begin_to_verify(zoff_swap_store *s, const zoff_store_opts *opts)
{
    const size_t unknown = count_unknown(s, s->opening.found, s->record.generation);
    uint64_t bytes = 0;
    ZOFF_FAIL_IF(unknown, ZOFF_ERR_INVALID,
                 "zoff_engine_opts.persist_t is %" PRId64
                 ", but %zu arrays of that commit in '%s' have no checksum (zoff.verify "
                 "was not \"full\"), so nothing shows whether a later step has overwritten them. The files are unchanged: open "
                 "the last commit with persist_t 0",
                 s->store.t, unknown, s->files[0].name);
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++)
        bytes += s->chunks[chunk].bytes;
    zoff_offload_swap_wait_begin_report(s, opts->progress.verify, bytes);
    return ZOFF_OK;
}

/* Verify one more chunk, with any zoff.verify, because it costs one reading, and the newer commit is lost after it. */
static zoff_status verify_next(zoff_swap_store *s)
{
    const zoff_store_verify verify = s->sums.verify;
    size_t *next = &s->opening.next;
    zoff_status status = ZOFF_OK;
    s->sums.verify = ZOFF_VERIFY_FULL;
    if (*next < s->chunk_count)
        status = verify_chunk(s, *next);
    s->sums.verify = verify;
    if (status == ZOFF_OK && (*next)++ < s->chunk_count)
        return ZOFF_PENDING;
    if (status == ZOFF_OK)
        status = zoff_offload_swap_wait_end_report(s);
    if (status >= 0 || status == ZOFF_ERR_CANCELED)
        return status;
    return zoff_base_status_prefix(
        status,
        "zoff_engine_opts.persist_t is %" PRId64 ", but that commit is not whole any more: a later step has begun to "
        "overwrite it, or it is damaged. The files are unchanged: open the last commit with persist_t 0. ",
        s->store.t);
}

/* Report that there is nothing to continue with, although zoff.persist is "require": name each folder and what it has. */
static zoff_status tell_nothing(const zoff_swap_store *s, const zoff_swap_found *found)
{
    char text[1024];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < s->file_count && used < sizeof text; i++) {
        const uint64_t generation = newest(&found[i]);
        char has[96] = "begins a run that has not taken a step";
        if (!s->files[i].keep)
            snprintf(has, sizeof has, "does not exist");
        else if (generation && found[i].heads[generation & 1].flags & ZOFF_HEAD_STEPPED)
            snprintf(has, sizeof has, "has the states after step %" PRId64 ", which other files or ranks do not have",
                     found[i].heads[generation & 1].t);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s' %s", i ? "; " : "", s->files[i].name, has);
    }
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "zoff.persist is \"require\", but nvme_path has no states to continue with: %s. Mount the "
        "drives, and give the folders of the earlier run. To start a new run, set zoff.persist to true",
        text);
}

zoff_status zoff_offload_swap_reopen_find(zoff_swap_store *s, zoff_store_found *out)
{
    ZOFF_TRY(zoff_base_mem_alloc(s->file_count, sizeof *s->opening.found, "commit records", &s->opening.found));
    for (size_t i = 0; i < s->file_count; i++)
        ZOFF_TRY(zoff_offload_swap_record_read(s->files[i].lock, s->files[i].name, &s->opening.found[i]));
    ZOFF_TRY(look(s, s->opening.found, out));
    s->opening.generation = out->generation;
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_reopen_verify(zoff_store *store, const zoff_store_opts *opts, uint64_t generation)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    const bool verifies = generation != s->opening.generation && opts->wanted_t;
    if (!s->persist)
        return ZOFF_OK;
    if (!generation)
        return opts->required ? tell_nothing(s, s->opening.found) : ZOFF_OK;
    if (!store->reopened) {
        ZOFF_TRY(take_generation(s, s->opening.found, generation));
        store->reopened = store->is_open = true;
        if (verifies)
            ZOFF_TRY(begin_to_verify(s, opts));
    }
    return verifies ? verify_next(s) : ZOFF_OK;
}

zoff_status zoff_offload_swap_reopen_go_on(zoff_swap_store *s)
{
    if (s->record.generation != s->opening.generation)
        ZOFF_TRY(forget_later(s, s->opening.found, s->record.generation));
    for (uint32_t i = 0; i < s->file_count; i++)
        warn_of_damage(s, i, &s->opening.found[i]);
    ZOFF_INFO("opened '%s'%s again: the states are those after step %" PRId64 " (generation %" PRIu64 ")", s->files[0].name,
              s->file_count > 1 ? " and others" : "", s->store.t, s->record.generation);
    return ZOFF_OK;
}

void zoff_offload_swap_reopen_forget(zoff_swap_store *s)
{
    for (size_t i = 0; s->opening.found && i < s->file_count; i++)
        zoff_offload_swap_record_free(&s->opening.found[i]);
    zoff_base_mem_free(s->opening.found);
    s->opening.found = NULL;
}

uint64_t zoff_offload_layout(const void *words, size_t bytes)
{
    return zoff_digest_blocks_small(words, bytes);
}

bool zoff_offload_persisted_limits(const char *folder, zoff_store_owner owner, size_t *out_limit_bytes,
                                   size_t *out_limit_elements)
{
    zoff_swap_found found;
    char *name;
    int fd = zoff_offload_swap_file_peek(folder, owner, &name);
    if (fd < 0)
        return false;
    const bool is_read = zoff_offload_swap_record_read(fd, name, &found) == ZOFF_OK;
    const uint64_t generation = is_read ? newest(&found) : 0;
    const zoff_swap_head head = generation ? found.heads[generation & 1] : (zoff_swap_head){.t = 0};
    if (is_read)
        zoff_offload_swap_record_free(&found);
    close(fd);
    zoff_base_mem_free(name);
    *out_limit_bytes = (size_t)head.identity.limit_bytes;
    *out_limit_elements = (size_t)head.identity.limit_elements;
    return head.flags & ZOFF_HEAD_STEPPED;
}
