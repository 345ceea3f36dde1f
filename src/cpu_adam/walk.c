/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c: cut a list of pieces into shares for the team's threads. No result depends on the cuts. */
#include "update_priv.h"

#include "bits.h"
#include "team.h"
#include "worth.h"

enum {
    BETWEEN_EVERY = 64 * 1024, /* elements of thread 0 between two calls of between() */
};
_Static_assert(BETWEEN_EVERY % ZOFF_NORM_BLOCK == 0, "kernels start at block borders");

/* A place in a list: element `offset` of piece `index`. */
typedef struct walk_place {
    size_t index, offset;
} walk_place;

/* A copy of the walk, in which data lies together that a thread must fetch from another core before it begins. */
typedef struct walk_job {
    zoff_adam_walk walk;
    const struct zoff_kernels *kernels;
    size_t total; /* cost of the whole list */
} walk_job;

static const void *piece_at(const zoff_adam_walk *walk, size_t index)
{
    return (const char *)walk->pieces + index * walk->stride;
}

static size_t piece_count(const zoff_adam_walk *walk, const void *piece)
{
    return *(const size_t *)(const void *)((const char *)piece + walk->count_at);
}

static size_t piece_cost(const zoff_adam_walk *walk, const void *piece)
{
    return walk->cost ? walk->cost(walk->fn_ctx, piece) : 1;
}

/* Find where the share of a thread begins; `threads` gives the end of the list. The search continues from `at`; *passed is the
 * cost before it. Neighbouring threads compute the same place. */
static walk_place find_border(const walk_job *job, unsigned thread, unsigned threads, walk_place at, size_t *passed)
{
    const size_t target = job->total / threads * thread + job->total % threads * thread / threads;
    for (; at.index < job->walk.count; at.index++, at.offset = 0) {
        const void *piece = piece_at(&job->walk, at.index);
        const size_t count = piece_count(&job->walk, piece), cost = piece_cost(&job->walk, piece);
        if (thread < threads && target - *passed < count * cost) {
            const size_t offset = (target - *passed) / cost;
            at.offset = offset - offset % ZOFF_NORM_BLOCK;
            break;
        }
        *passed += count * cost;
    }
    return at;
}

/* Thread 0's work on a piece, with a call of between() every `*io_due` elements. */
static void run_with_breaths(const walk_job *job, const void *piece, size_t begin, size_t end, size_t *io_due)
{
    const zoff_adam_walk *walk = &job->walk;
    while (begin < end) {
        size_t count = zoff_base_bits_min(end - begin, BETWEEN_EVERY);
        walk->fn(job->kernels, walk->fn_ctx, piece, begin, count);
        begin += count;
        *io_due += count;
        if (*io_due >= BETWEEN_EVERY) {
            walk->between(walk->between_ctx);
            *io_due = 0;
        }
    }
}

/* Run the kernel on the pieces and parts of pieces from one place to another. */
static void run_between(const walk_job *job, walk_place at, walk_place stop, bool breathes)
{
    const zoff_adam_walk *walk = &job->walk;
    size_t io_due = 0;
    for (; at.index <= stop.index && at.index < walk->count; at.index++) {
        const void *piece = piece_at(walk, at.index);
        const size_t end = at.index == stop.index ? stop.offset : piece_count(walk, piece);
        if (at.offset < end && breathes)
            run_with_breaths(job, piece, at.offset, end, &io_due);
        else if (at.offset < end)
            walk->fn(job->kernels, walk->fn_ctx, piece, at.offset, end - at.offset);
        at.offset = 0;
    }
}

static void run_share(void *ctx, unsigned thread, unsigned threads)
{
    const walk_job *job = ctx;
    walk_place at = {0, 0}, stop = {job->walk.count, 0};
    if (threads > 1) {
        __builtin_prefetch(job->walk.pieces);
        if (job->walk.fn_ctx) {
            __builtin_prefetch(job->walk.fn_ctx);
            __builtin_prefetch((const char *)job->walk.fn_ctx + 64);
        }
        size_t passed = 0;
        at = find_border(job, thread, threads, at, &passed);
        stop = find_border(job, thread + 1, threads, (walk_place){at.index, 0}, &passed);
    }
    run_between(job, at, stop, thread == 0 && job->walk.between);
}

size_t zoff_adam_walk_total(const zoff_adam_walk *walk)
{
    size_t total = 0;
    for (size_t i = 0; i < walk->count; i++) {
        const void *piece = piece_at(walk, i);
        total += piece_count(walk, piece) * piece_cost(walk, piece);
    }
    return total;
}

void zoff_adam_walk_run(unsigned threads, const zoff_adam_walk *walk)
{
    walk_job job = {.walk = *walk, .kernels = zoff_adam_dispatch_kernels(), .total = walk->total};
    size_t elements = 0;
    for (size_t i = 0; threads > 1 && i < walk->count && elements < ZOFF_WORTH_ASLEEP_MOST; i++)
        elements += piece_count(walk, piece_at(walk, i));
    if (!job.total)
        job.total = zoff_adam_walk_total(walk);
    if (job.total)
        zoff_base_team_run(zoff_adam_dispatch_shares(threads, elements) ? threads : 1, run_share, &job);
}
