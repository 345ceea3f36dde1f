/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c: find the block size and depth that suit a folder, by trying them. Reads and writes run together, as in a step: a disk
 * may be fast at each alone and slow at both.
 *
 *      fill      reserve and write the scratch file once: the first write of a block is slower than any later one
 *      rounds    try each way in turn, three times, so that a disturbance affects all alike; take the median of each
 *      choice    of the ways within 3 % of the best, the one with the fewest bytes in flight
 *      ends      reading alone and writing alone, with the chosen way */
#include "tune_priv.h"

#include "bits.h"
#include "budget.h"
#include "clock.h"
#include "log.h"
#include "map.h"
#include "mem.h"
#include "queue_priv.h"
#include "structs.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* A queue on a scratch file, and memory for its blocks. */
typedef struct scratch {
    zoff_aio *q;
    char *memory;
    size_t memory_bytes;
    uint64_t extent;            /* bytes of the file that are used; a multiple of the smallest extent */
    uint64_t read_at, write_at; /* where each direction continues */
    double rate;                /* bytes per second, as far as known; 0: unknown */
} scratch;

/* One way of moving bytes. */
typedef struct method {
    size_t block;
    unsigned depth;
    bool reads, writes;
} method;

/* ---- one sample ---- */

typedef struct slot {
    uint64_t ticket;
    bool busy;
} slot;

typedef struct sample {
    scratch *tuner;
    const method *way;
    double seconds, start;
    uint64_t limit; /* bytes; 0: none */
    uint64_t begun, done;
    slot slots[ZOFF_AIO_TUNE_DEPTH_MOST];
} sample;

/* Each direction walks through the file; they start half of it apart. */
static uint64_t next_offset(uint64_t *at, uint64_t extent, size_t block)
{
    uint64_t offset = *at + block <= extent ? *at : 0;
    *at = offset + block;
    return offset;
}

static zoff_status begin(sample *s, unsigned i)
{
    scratch *t = s->tuner;
    size_t block = s->way->block;
    char *memory = t->memory + i * block;
    bool writes = s->way->writes && (!s->way->reads || i % 2);
    if (writes)
        ZOFF_TRY(zoff_aio_write(t->q, next_offset(&t->write_at, t->extent, block), block, memory, &s->slots[i].ticket));
    else
        ZOFF_TRY(zoff_aio_read(t->q, next_offset(&t->read_at, t->extent, block), block, memory, &s->slots[i].ticket));
    s->slots[i].busy = true;
    s->begun += block;
    return ZOFF_OK;
}

/* Whether to stop: early enough that transfers in flight complete in time. */
static bool is_over(const sample *s)
{
    const size_t block = s->way->block;
    double in_flight = s->tuner->rate > 0 ? (double)(s->begun - s->done) / s->tuner->rate : 0;
    if (s->limit && s->begun + block > s->limit)
        return true;
    return s->begun >= s->way->depth * block && zoff_base_clock_seconds() - s->start + in_flight >= s->seconds;
}

/* Visit each place once: collect what has completed, submit the next. */
static zoff_status turn(sample *s, bool *out_busy)
{
    *out_busy = false;
    for (unsigned i = 0; i < s->way->depth; i++) {
        if (s->slots[i].busy) {
            zoff_status status = zoff_aio_poll(s->tuner->q, s->slots[i].ticket);
            if (status < 0)
                return status;
            s->slots[i].busy = status == ZOFF_PENDING;
            s->done += status == ZOFF_OK ? s->way->block : 0;
        }
        if (!s->slots[i].busy && !is_over(s))
            ZOFF_TRY(begin(s, i));
        *out_busy = *out_busy || s->slots[i].busy;
    }
    return ZOFF_OK;
}

/* Move bytes in this way for about this long, at least one block for each place in flight. If `bytes` is not 0, it
 * is the maximum. Return the rate and, if wanted, the bytes. */
static zoff_status move_bytes(scratch *tuner, const method *way, double seconds, uint64_t bytes, double *out_rate,
                              uint64_t *out_moved)
{
    sample s = {.tuner = tuner, .way = way, .seconds = seconds, .limit = bytes, .start = zoff_base_clock_seconds()};
    bool busy = true;
    while (busy) {
        ZOFF_TRY(turn(&s, &busy));
        if (busy)
            ZOFF_TRY(zoff_aio_wait_any(tuner->q));
    }
    double passed = zoff_base_clock_seconds() - s.start;
    *out_rate = (double)s.done / (passed > 1e-9 ? passed : 1e-9);
    tuner->rate = *out_rate;
    if (out_moved)
        *out_moved = s.done;
    return ZOFF_OK;
}

/* ---- the choice ---- */

enum {
    ROUNDS = 3,
    EXTENT_LEAST = 2 * ZOFF_AIO_TUNE_BLOCK_MOST, /* one place to read from and one to write to */
    EXTENT_MOST = 256 << 20,
    MEMORY_SHARE = 8, /* use one part in this many of the memory that the process may still take */
    TURN_WAIT_NS = 10000000
};

static const double SECONDS_DEFAULT = 2, SECONDS_MOST = 60;
static const double FILL_SHARE = 0.25; /* largest share of the time for the first writing */
static const double NEAR_BEST = 0.97;
static const double SAMPLE_SHARE = 0.9; /* share of its time that a sample uses, because its end cannot be predicted exactly */

/* Sorted by bytes in flight; for equal bytes fewer requests come first. */
static const method WAYS[] = {{512 << 10, 8, true, true}, {1 << 20, 8, true, true},    {512 << 10, 16, true, true},
                              {1 << 20, 16, true, true},  {512 << 10, 32, true, true}, {4 << 20, 8, true, true},
                              {1 << 20, 32, true, true},  {4 << 20, 16, true, true},   {4 << 20, 32, true, true}};
enum { WAY_COUNT = sizeof WAYS / sizeof WAYS[0] };

typedef struct rates {
    double values[ROUNDS];
    unsigned count;
} rates;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(rates r)
{
    if (!r.count)
        return 0;
    qsort(r.values, r.count, sizeof r.values[0], compare);
    return (r.values[r.count / 2] + r.values[(r.count - 1) / 2]) / 2;
}

static zoff_status read_opts(const zoff_aio_tune_opts *opts, zoff_aio_tune_opts *out)
{
    ZOFF_FAIL_IF(!opts, ZOFF_ERR_INVALID,
                 "zoff_aio_tune: opts is NULL; pass a zoff_aio_tune_opts that starts from ZOFF_AIO_TUNE_OPTS_INIT");
    *out = (zoff_aio_tune_opts)ZOFF_AIO_TUNE_OPTS_INIT;
    ZOFF_TRY(zoff_base_structs_read("zoff_aio_tune_opts", "ZOFF_AIO_TUNE_OPTS_INIT", opts, out, sizeof *out));
    if (out->seconds == 0)
        out->seconds = SECONDS_DEFAULT;
    ZOFF_FAIL_IF(!(out->seconds > 0 && out->seconds <= SECONDS_MOST), ZOFF_ERR_INVALID,
                 "zoff_aio_tune: seconds is %g; expected a number above 0 and up to %g", out->seconds, SECONDS_MOST);
    return ZOFF_OK;
}

/* ---- the scratch file ---- */

/* Create the file in a folder of its own, to which nobody else can add anything. Remove it as soon as it is open, so that it is
 * gone however the process ends. */
static zoff_status open_scratch(const char *folder, const zoff_aio_tune_opts *opts, zoff_aio **out)
{
    static const char NAME[] = "zoff-aio-tune-XXXXXX/file";
    zoff_aio_opts queue = {.struct_size = sizeof queue,
                           .backend = opts->backend,
                           .block_bytes = ZOFF_AIO_TUNE_BLOCK_MOST,
                           .depth = ZOFF_AIO_TUNE_DEPTH_MOST,
                           .direct = opts->direct,
                           .writable = true,
                           .create = true};
    char *path;
    size_t bytes = strlen(folder) + sizeof NAME + 1;
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "a path", &path));
    snprintf(path, bytes, "%s/%s", folder, NAME);
    char *slash = strrchr(path, '/');
    zoff_status status;
    *slash = 0;
    if (!mkdtemp(path)) {
        status = zoff_base_status_fail(errno == ENOSPC || errno == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO,
                                       "cannot make a scratch file in '%s': %s", folder, zoff_base_status_errno(errno));
    } else {
        *slash = '/';
        status = zoff_aio_open(path, &queue, out);
        unlink(path);
        *slash = 0;
        rmdir(path);
    }
    zoff_base_mem_free(path);
    return status;
}

/* Reserve as many bytes as allowed, at most half of the free space. */
static zoff_status reserve(const char *folder, scratch *t)
{
    struct statvfs fs;
    uint64_t room = EXTENT_MOST;
    if (fstatvfs(t->q->file.fd, &fs) == 0 && fs.f_blocks)
        room = zoff_base_bits_min(room, (uint64_t)fs.f_bavail * fs.f_frsize / 2);
    zoff_status status = ZOFF_ERR_NO_SPACE;
    for (room -= room % EXTENT_LEAST; status == ZOFF_ERR_NO_SPACE && room >= EXTENT_LEAST;) {
        status = zoff_aio_reserve(t->q, room);
        t->extent = room;
        room = room / 2 - room / 2 % EXTENT_LEAST;
    }
    ZOFF_FAIL_IF(status == ZOFF_ERR_NO_SPACE, ZOFF_ERR_NO_SPACE,
                 "'%s' has too little room to be measured: %d MiB must be free; free some space, or give aio.block_size and "
                 "aio.queue_depth",
                 folder, 2 * EXTENT_LEAST >> 20);
    return status;
}

/* Write the file once. If the time is too short for all of it, the written part is used. */
static zoff_status fill(scratch *t, double seconds)
{
    static const method WAY = {1 << 20, EXTENT_LEAST >> 20, false, true};
    double start = zoff_base_clock_seconds(), rate;
    uint64_t written = 0;
    while (written < t->extent && (!written || zoff_base_clock_seconds() - start < seconds)) {
        ZOFF_TRY(move_bytes(t, &WAY, seconds, EXTENT_LEAST, &rate, NULL));
        written += EXTENT_LEAST;
    }
    t->extent = written;
    t->read_at = 0;
    t->write_at = written / 2;
    return ZOFF_OK;
}

/* ---- measuring ---- */

/* Fill with bytes that differ everywhere, because some disks are faster for zeros or repeated data. */
static void make_noise(char *memory, size_t bytes)
{
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i + sizeof state <= bytes; i += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(memory + i, &state, sizeof state);
    }
}

/* Whether a sample of this length is longer than the first requests of this way, in the available memory. */
static bool can_try(const scratch *t, const method *way, double seconds)
{
    double in_flight = (double)way->block * way->depth;
    return in_flight <= (double)t->memory_bytes && (way == WAYS || in_flight <= t->rate * seconds);
}

static zoff_status run_rounds(scratch *t, double seconds, double deadline, rates found[WAY_COUNT])
{
    double rate;
    bool tried[WAY_COUNT];
    ZOFF_TRY(move_bytes(t, WAYS, seconds, 0, &rate,
                        NULL)); /* the first sample is slower than the others, so only its rate is used */
    for (unsigned i = 0; i < WAY_COUNT; i++)
        tried[i] = can_try(t, &WAYS[i], seconds);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < WAY_COUNT; i++) {
            /* Try at least one way, even if no time is left. */
            if (!tried[i] || (found[0].count && zoff_base_clock_seconds() + seconds > deadline))
                continue;
            ZOFF_TRY(move_bytes(t, &WAYS[i], seconds, 0, &found[i].values[found[i].count], NULL));
            found[i].count++;
        }
    }
    return ZOFF_OK;
}

static unsigned choose(const rates found[WAY_COUNT])
{
    unsigned chosen = 0;
    double best = 0;
    for (unsigned i = 0; i < WAY_COUNT; i++)
        best = fmax(best, median(found[i]));
    while (median(found[chosen]) < NEAR_BEST * best)
        chosen++;
    return chosen;
}

/* Reading alone and writing alone. */
static zoff_status run_ends(scratch *t, const method *way, double seconds, double deadline, zoff_aio_tune_result *out)
{
    rates reads = {.count = 0}, writes = {.count = 0};
    method reading = {way->block, way->depth, true, false}, writing = {way->block, way->depth, false, true};
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round && zoff_base_clock_seconds() + 2 * seconds > deadline)
            break;
        ZOFF_TRY(move_bytes(t, &reading, seconds, 0, &reads.values[reads.count++], NULL));
        ZOFF_TRY(move_bytes(t, &writing, seconds, 0, &writes.values[writes.count++], NULL));
    }
    out->read_rate = median(reads);
    out->write_rate = median(writes);
    return ZOFF_OK;
}

static zoff_status measure(const char *folder, scratch *t, double seconds, zoff_aio_tune_result *out)
{
    const char *source;
    zoff_map memory = {0};
    zoff_status status;
    rates found[WAY_COUNT] = {{.count = 0}};
    const double start = zoff_base_clock_seconds(), deadline = start + seconds;
    const size_t least = WAYS[0].block * WAYS[0].depth, most = (size_t)ZOFF_AIO_TUNE_BLOCK_MOST * ZOFF_AIO_TUNE_DEPTH_MOST;
    const uint64_t share = zoff_base_budget_memory("", &source) / MEMORY_SHARE;
    ZOFF_TRY(reserve(folder, t));
    t->memory_bytes = zoff_base_bits_max(zoff_base_bits_min(share, most), least);
    ZOFF_TRY(zoff_base_map_alloc(t->memory_bytes, "measuring a folder", ZOFF_MAP_FIRST_TOUCH, &memory));
    t->memory = memory.base;
    make_noise(t->memory, t->memory_bytes);
    ZOFF_TRY_OR(free_memory, zoff_aio_register(t->q, t->memory, t->memory_bytes));
    out->registered = t->q->registered;
    ZOFF_TRY_OR(free_memory, fill(t, seconds * FILL_SHARE));
    /* Divide the remaining time between the rounds, the warm-up round, and three rounds for each of the two ends. */
    const double each = SAMPLE_SHARE * fmax(deadline - zoff_base_clock_seconds(), 0) / (WAY_COUNT * ROUNDS + 1 + 2 * ROUNDS);
    ZOFF_TRY_OR(free_memory, run_rounds(t, each, deadline - 2 * ROUNDS * each, found));
    const unsigned chosen = choose(found);
    ZOFF_TRY_OR(free_memory, run_ends(t, &WAYS[chosen], each, deadline, out));
    out->block_bytes = WAYS[chosen].block;
    out->depth = WAYS[chosen].depth;
    out->mixed_rate = median(found[chosen]);
    out->seconds = zoff_base_clock_seconds() - start;

free_memory:
    /* Close the queue first, because after a failure some of the memory may be in flight, and the kernel has it registered. */
    ZOFF_KEEP_ERROR(zoff_aio_close(t->q));
    t->q = NULL;
    zoff_base_map_free(&memory);
    return status;
}

/* ---- the call ---- */

/* All ranks come here at once: the first one measures, and the others find its result. They wait for it as long as it may take
 * on a slow disk, and no longer: a process that is stopped with the lock blocks nobody. On a file system without locks nobody
 * waits. */
static zoff_status lock_folder(const char *folder, double seconds, int *out_fd)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    double deadline = zoff_base_clock_seconds() + 2 * seconds + 1;
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && zoff_base_clock_seconds() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = TURN_WAIT_NS}, NULL);
    *out_fd = fd;
    return ZOFF_OK;
}

static zoff_status describe(const zoff_aio *q, zoff_aio_tune_result *out)
{
    struct stat st;
    char buffer[32];
    ZOFF_FAIL_IF(fstat(q->file.fd, &st) != 0, ZOFF_ERR_IO, "cannot examine '%s': %s", q->file.path,
                 zoff_base_status_errno(errno));
    *out = (zoff_aio_tune_result){.backend = q->backend->name, .device = (uint64_t)st.st_dev, .direct = q->file.direct};
    snprintf(out->file_system, sizeof out->file_system, "%s", zoff_aio_file_system(&q->file, buffer));
    return ZOFF_OK;
}

zoff_status zoff_aio_tune(const char *folder, const zoff_aio_tune_opts *opts, zoff_aio_tune_result *out)
{
    int lock = -1;
    zoff_status status;
    zoff_aio_tune_opts chosen;
    zoff_aio_tune_result result;
    scratch tuner = {0};
    ZOFF_FAIL_IF(!folder || !*folder || !out, ZOFF_ERR_INVALID, "zoff_aio_tune: %s", out ? "name a folder" : "out is NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_aio_tune_result", "ZOFF_AIO_TUNE_RESULT_INIT", out));
    ZOFF_TRY(read_opts(opts, &chosen));
    ZOFF_TRY(lock_folder(folder, chosen.seconds, &lock));
    ZOFF_TRY_OR(close_lock, open_scratch(folder, &chosen, &tuner.q));
    ZOFF_TRY_OR(close_queue, describe(tuner.q, &result));
    if (chosen.fresh || !zoff_aio_tune_keep_load(folder, &result)) {
        ZOFF_TRY_OR(close_queue, measure(folder, &tuner, chosen.seconds, &result));
        zoff_aio_tune_keep_store(folder, &result);
    }
    zoff_base_structs_write(&result, sizeof result, out);

close_queue:
    zoff_aio_close(tuner.q);
close_lock:
    close(lock);
    return status;
}
