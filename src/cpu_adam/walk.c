/* walk.c: cuts a list of pieces into the shares of the team's threads. No result depends on where it cuts. */
#include "walk.h"

#include "bits.h"
#include "team.h"

enum {
    SHARED_FROM = 32 * 1024,   /* elements: below it, waking the team costs more than it saves */
    BETWEEN_EVERY = 64 * 1024, /* elements of thread 0 between two calls of between() */
};
_Static_assert(BETWEEN_EVERY % ZOFF_NORM_BLOCK == 0, "kernels start at block borders");

/* A place in a list: element `offset` of piece `index`. */
typedef struct walk_place {
    size_t index, offset;
} walk_place;

typedef struct walk_job {
    const zoff_adam_walk *walk;
    const struct zoff_kernels *kernels;
    size_t total;
} walk_job;

static const void *piece_at(const zoff_adam_walk *walk, size_t index)
{
    return (const char *)walk->pieces + index * walk->piece_bytes;
}

static size_t piece_count(const zoff_adam_walk *walk, size_t index)
{
    return *(const size_t *)piece_at(walk, index);
}

/* Where the share of thread `thread` begins; that of `threads` is the end of the list. Neighbours compute the same place. */
static walk_place find_border(const walk_job *job, unsigned thread, unsigned threads)
{
    size_t target = job->total / threads * thread + job->total % threads * thread / threads;
    walk_place at = {0, 0};
    for (; at.index < job->walk->count; at.index++) {
        size_t count = piece_count(job->walk, at.index);
        if (target < count && thread < threads) {
            at.offset = target - target % ZOFF_NORM_BLOCK;
            break;
        }
        target -= zoff_base_bits_min(target, count);
    }
    return at;
}

/* Thread 0's way through a piece, with a breath for I/O where `*io_due` elements have passed. */
static void run_with_breaths(const walk_job *job, const void *piece, size_t begin, size_t end, size_t *io_due)
{
    const zoff_adam_walk *walk = job->walk;
    while (begin < end) {
        size_t count = zoff_base_bits_min(end - begin, BETWEEN_EVERY);
        walk->fn(job->kernels, piece, begin, count);
        begin += count;
        *io_due += count;
        if (*io_due >= BETWEEN_EVERY) {
            walk->between(walk->ctx);
            *io_due = 0;
        }
    }
}

static void run_share(void *ctx, unsigned thread, unsigned threads)
{
    const walk_job *job = ctx;
    const zoff_adam_walk *walk = job->walk;
    const bool breathes = thread == 0 && walk->between;
    const walk_place stop = find_border(job, thread + 1, threads);
    size_t io_due = 0;
    for (walk_place at = find_border(job, thread, threads); at.index <= stop.index && at.index < walk->count; at.index++) {
        const void *piece = piece_at(walk, at.index);
        size_t end = at.index == stop.index ? stop.offset : piece_count(walk, at.index);
        if (at.offset < end && breathes)
            run_with_breaths(job, piece, at.offset, end, &io_due);
        else if (at.offset < end)
            walk->fn(job->kernels, piece, at.offset, end - at.offset);
        at.offset = 0;
    }
}

bool zoff_adam_walk_shares(size_t count)
{
    return count >= SHARED_FROM;
}

void zoff_adam_walk_run(unsigned threads, const zoff_adam_walk *walk)
{
    walk_job job = {.walk = walk, .kernels = zoff_adam_dispatch_kernels()};
    for (size_t i = 0; i < walk->count; i++)
        job.total += piece_count(walk, i);
    if (job.total)
        zoff_base_team_run(zoff_adam_walk_shares(job.total) ? threads : 1, run_share, &job);
}
