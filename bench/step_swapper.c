/* step_swapper.c: the optimizer step over files as DeepSpeed's two swappers order it: one file for each tensor of a sub-group,
 * opened and closed by each request; blocks of 1 MiB, its default queue depth of 8, buffers of plain pages locked in memory.
 * The update is zoff's own, so that only the way of the bytes differs; its Python is left out, and so is the norm. */
#include "step_bench.h"

#ifndef BENCH_HAVE_LIBAIO

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_found *found, step_states *out)
{
    (void)m, (void)folder, (void)group_elements, (void)out;
    snprintf(found->no_rivals, sizeof found->no_rivals,
             "built without libaio, which the yardstick is made of: install libaio-dev and configure again");
    return -1;
}

void step_swapper_close(void) {}

#else

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATES = 3, GRAD = STATES, TENSORS, SETS = 3, BLOCK = 1 << 20, DEPTH = 8 };

/* --- a handle: a thread that moves whole files, cut into blocks, of which it keeps some in flight --- */

typedef struct request {
    int fd;
    char *memory;
    size_t bytes;
    bool writes;
} request;

typedef struct handle {
    io_context_t context;
    struct iocb blocks[DEPTH];
    pthread_t thread;
    bool started, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    request ring[TENSORS]; /* more are never handed over before a wait */
    unsigned head, tail;   /* next to do, next free place; both only grow */
    int error;             /* of the first request that failed */
} handle;

/* Unlike in the trainer that is followed here, every result is looked at. 0 or an errno. */
static int move(handle *h, const request *r)
{
    struct iocb *idle[DEPTH], *batch[DEPTH];
    struct io_event events[DEPTH];
    unsigned idle_count = 0;
    size_t next = 0;
    int error = 0;
    for (; idle_count < DEPTH; idle_count++)
        idle[idle_count] = &h->blocks[DEPTH - 1 - idle_count];
    while (idle_count < DEPTH || (!error && next < r->bytes)) {
        unsigned count = 0, begun = 0;
        for (; !error && idle_count && next < r->bytes; next += BLOCK) {
            struct iocb *block = batch[count++] = idle[--idle_count];
            const size_t bytes = r->bytes - next < BLOCK ? r->bytes - next : BLOCK;
            (r->writes ? io_prep_pwrite : io_prep_pread)(block, r->fd, r->memory + next, bytes, (long long)next);
        }
        while (begun < count && !error) {
            const int ret = io_submit(h->context, (long)(count - begun), batch + begun);
            error = ret < 0 && ret != -EINTR && ret != -EAGAIN ? -ret : 0;
            begun += ret > 0 ? (unsigned)ret : 0;
        }
        while (begun < count)
            idle[idle_count++] = batch[begun++];
        const int got = idle_count < DEPTH ? io_getevents(h->context, 1, DEPTH, events, NULL) : 0;
        for (int i = 0; i < got; i++) {
            const long long moved = (long long)events[i].res;
            if (moved != (long long)events[i].obj->u.c.nbytes)
                error = moved < 0 ? (int)-moved : EIO;
            idle[idle_count++] = events[i].obj;
        }
    }
    return error;
}

static void *serve(void *ctx)
{
    handle *h = ctx;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (h->head == h->tail && !h->ending)
            pthread_cond_wait(&h->changed, &h->lock);
        if (h->head == h->tail)
            break;
        const request r = h->ring[h->head % TENSORS];
        pthread_mutex_unlock(&h->lock);
        const int error = move(h, &r);
        close(r.fd);
        pthread_mutex_lock(&h->lock);
        h->error = h->error ? h->error : error;
        h->head++;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* 0, or -1 with errno set. */
static int open_handle(handle *h)
{
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    errno = -io_queue_init(DEPTH, &h->context);
    if (!errno)
        errno = pthread_create(&h->thread, NULL, serve, h);
    h->started = !errno;
    return errno ? -1 : 0;
}

static void close_handle(handle *h)
{
    if (h->started) {
        pthread_mutex_lock(&h->lock);
        h->ending = true;
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    if (h->context)
        io_queue_release(h->context);
    h->context = NULL;
    h->started = false;
}

/* Hand over the first `bytes` of a file, which are to be read or written. 0, or -1 with errno set when it cannot be opened. */
static int hand_over(handle *h, const char *path, void *memory, size_t bytes, bool writes)
{
    const int fd = open(path, (writes ? O_WRONLY | O_CREAT : O_RDONLY) | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    pthread_mutex_lock(&h->lock);
    h->ring[h->tail++ % TENSORS] = (request){.fd = fd, .memory = memory, .bytes = bytes, .writes = writes};
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

/* Wait until all that was handed over is done. 0, or -1 with errno set: of the first that failed. */
static int await(handle *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->head != h->tail)
        pthread_cond_wait(&h->changed, &h->lock);
    errno = h->error;
    h->error = 0;
    pthread_mutex_unlock(&h->lock);
    return errno ? -1 : 0;
}

/* --- a page-aligned buffer locked in memory: of pages as they come, or asked to be huge --- */

typedef struct buffer {
    void *base;
    size_t bytes;
} buffer;

static int open_buffer(size_t bytes, bool huge, buffer *out, bool *locked)
{
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };
    const size_t unit = huge ? HUGE_PAGE : PAGE;
    out->bytes = (bytes + unit - 1) / unit * unit;
    errno = posix_memalign(&out->base, unit, out->bytes);
    if (errno)
        return -1;
    if (huge)
        madvise(out->base, out->bytes, MADV_HUGEPAGE);
    memset(out->base, 0, out->bytes);
    *locked = mlock(out->base, out->bytes) == 0 && *locked; /* a limit may forbid it; the pages are there all the same */
    return 0;
}

static void close_buffer(buffer *b)
{
    if (b->base)
        munlock(b->base, b->bytes);
    free(b->base);
    b->base = NULL;
}

/* --- the orders --- */

typedef enum order {
    PATTERN,       /* PartitionedOptimizerSwapper: read, wait, update, write, wait */
    PATTERN_GRADS, /* the same with its fp32 gradients, which go to the disk and come back */
    PIPELINED,     /* PipelinedOptimizerSwapper: the next is read and the last one written meanwhile */
    PIPELINED_THP, /* with huge pages for its buffers */
    ORDERS
} order;

/* What holds a sub-group: p, m, v and its fp32 gradient. */
typedef buffer buffer_set[TENSORS];

static struct {
    const step_model *model;
    char folder[STEP_PATH];
    size_t group_elements, group_count;
    buffer_set plain[SETS], huge[SETS];
    handle read, write;
    int64_t steps;
} own;

static size_t elements_of(size_t group)
{
    const size_t left = own.model->elements - group * own.group_elements;
    return left < own.group_elements ? left : own.group_elements;
}

/* A file holds whole pages. */
static size_t bytes_of(size_t group)
{
    enum { PAGE = 4096 };
    return (elements_of(group) * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static const char *name_of(size_t group, unsigned tensor)
{
    static const char *const NAMES[TENSORS] = {"", "exp_avg-", "exp_avg_sq-", "gradient-"};
    static char path[STEP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s%zu.tensor.swp", own.folder, NAMES[tensor], group);
    return path;
}

static int start(handle *h, size_t group, unsigned tensor, void *memory, bool writes)
{
    return hand_over(h, name_of(group, tensor), memory, bytes_of(group), writes);
}

/* Hand over the first `tensors` of a sub-group. */
static int start_group(handle *h, size_t group, unsigned tensors, buffer_set set, bool writes)
{
    int ret = 0;
    for (unsigned i = 0; i < tensors && ret == 0; i++)
        ret = start(h, group, i, set[i].base, writes);
    return ret;
}

static int update(size_t group, buffer_set set, bool grads)
{
    const size_t first = group * own.group_elements;
    const zoff_adam_tensor tensor = {.struct_size = sizeof tensor,
                                     .count = elements_of(group),
                                     .master = set[ZOFF_STATE_MASTER].base,
                                     .m = set[ZOFF_STATE_M].base,
                                     .v = set[ZOFF_STATE_V].base,
                                     .grad = grads ? set[GRAD].base : own.model->grads + first,
                                     .grad_dtype = grads ? ZOFF_F32 : ZOFF_BF16,
                                     .copy_out = own.model->weights + first};
    return bench_told(zoff_adam_step(&own.model->hyper, own.steps, 1, &tensor));
}

static int step_in_order(bool grads)
{
    buffer_set *set = &own.plain[0];
    for (size_t i = 0; i < own.group_count; i++) {
        if (start_group(&own.read, i, grads ? TENSORS : STATES, *set, false) != 0 || await(&own.read) != 0 ||
            update(i, *set, grads) != 0 || start_group(&own.read, i, STATES, *set, true) != 0 || await(&own.read) != 0)
            return -1;
    }
    return 0;
}

/* Before the step all gradients go to the disk as fp32, through whatever buffers are there, which is a set of four. */
static int spill_gradients(void)
{
    for (size_t i = 0; i < own.group_count; i++) {
        float *const wide = own.plain[0][i % TENSORS].base;
        const uint16_t *grads = own.model->grads + i * own.group_elements;
        const size_t count = elements_of(i);
        if (i && i % TENSORS == 0 && await(&own.read) != 0)
            return -1;
#pragma omp parallel for schedule(static)
        for (size_t k = 0; k < count; k++) {
            const uint32_t bits = (uint32_t)grads[k] << 16;
            memcpy(&wide[k], &bits, sizeof bits);
        }
        if (start(&own.read, i, GRAD, wide, true) != 0)
            return -1;
    }
    return await(&own.read);
}

static int step_pipelined(buffer_set sets[SETS])
{
    if (start_group(&own.read, 0, STATES, sets[0], false) != 0)
        return -1;
    for (size_t i = 0; i < own.group_count; i++) {
        if (await(&own.read) != 0)
            return -1;
        if (i + 1 < own.group_count && start_group(&own.read, i + 1, STATES, sets[(i + 1) % SETS], false) != 0)
            return -1;
        if (update(i, sets[i % SETS], false) != 0 || await(&own.write) != 0 ||
            start_group(&own.write, i, STATES, sets[i % SETS], true) != 0)
            return -1;
    }
    return await(&own.write);
}

static int take_turn(void *ctx, int which)
{
    int ret = 0;
    (void)ctx;
    own.steps++;
    if (which == PATTERN_GRADS)
        ret = spill_gradients();
    if (ret == 0 && (which == PATTERN || which == PATTERN_GRADS))
        ret = step_in_order(which == PATTERN_GRADS);
    else if (ret == 0)
        ret = step_pipelined(which == PIPELINED_THP ? own.huge : own.plain);
    return ret == 0 ? 0 : bench_fail("a libaio yardstick failed: %s", strerror(errno));
}

/* --- life --- */

static void enter(step_found *found)
{
    /* The closest one next to zoff, and for as long. */
    static const race_line LINES[ORDERS] = {
        {"libaio_pipelined_thp", "libaio_pipelined with buffers in huge pages", NULL, 24, take_turn, PIPELINED_THP, 0},
        {"libaio_pattern", "sub-group by sub-group: read, update, write", NULL, 24, take_turn, PATTERN, 0},
        {"libaio_pipelined", "next read and last write during the update", NULL, 24, take_turn, PIPELINED, 0},
        {"libaio_pattern_grads", "libaio_pattern, fp32 gradients by way of the disk too", NULL, 32, take_turn, PATTERN_GRADS,
         0}};
    const size_t elements = own.model->elements;
    for (unsigned i = 0; i < ORDERS; i++) {
        race *r = race_open(&found->book, LINES[i].which == PATTERN_GRADS ? "extra" : "rivals", "%zu elements", elements);
        race_add(r, &LINES[i], (double)elements, NULL, i ? 1 : 2);
    }
}

static int open_buffers(step_found *found)
{
    found->locked = true;
    for (unsigned huge = 0; huge < 2; huge++) {
        const size_t before = bench_streams_huge_bytes();
        for (unsigned i = 0; i < SETS * TENSORS; i++) {
            if (open_buffer(bytes_of(0), huge, &(huge ? own.huge : own.plain)[i / TENSORS][i % TENSORS], &found->locked) != 0)
                return -1;
        }
        const size_t after = bench_streams_huge_bytes();
        *(huge ? &found->thp_huge : &found->plain_huge) = after > before ? after - before : 0;
    }
    found->buffer_bytes = SETS * TENSORS * bytes_of(0);
    return 0;
}

/* Every file is written once in full before anything is timed: the first write to new blocks of a file is slow. */
static int fill_files(void)
{
    buffer_set *set = &own.plain[0];
    for (size_t group = 0; group < own.group_count; group++) {
        float *const master = (*set)[ZOFF_STATE_MASTER].base;
        for (size_t i = 0; i < elements_of(group); i++)
            master[i] = bench_from_bf16(bench_bf16(bench_value(group * own.group_elements + i, STEP_WEIGHT)));
        for (unsigned i = 1; i < TENSORS; i++)
            memset((*set)[i].base, 0, bytes_of(group));
        if (start_group(&own.read, group, TENSORS, *set, true) != 0 || await(&own.read) != 0)
            return -1;
    }
    return 0;
}

static int read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    (void)ctx;
    while (count) {
        const size_t group = first / own.group_elements, at = first % own.group_elements;
        const size_t left = elements_of(group) - at, taken = left < count ? left : count;
        const int fd = open(name_of(group, (unsigned)kind), O_RDONLY | O_CLOEXEC);
        const ssize_t got = fd < 0 ? -1 : pread(fd, dst, taken * sizeof *dst, (off_t)(at * sizeof *dst));
        if (fd >= 0)
            close(fd);
        if (got != (ssize_t)(taken * sizeof *dst))
            return -1;
        first += taken;
        count -= taken;
        dst += taken;
    }
    return 0;
}

void step_swapper_close(void)
{
    close_handle(&own.read);
    close_handle(&own.write);
    for (unsigned i = 0; i < SETS * TENSORS; i++) {
        close_buffer(&own.plain[i / TENSORS][i % TENSORS]);
        close_buffer(&own.huge[i / TENSORS][i % TENSORS]);
    }
}

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_found *found, step_states *out)
{
    own.model = m;
    own.group_elements = group_elements;
    own.group_count = (m->elements + group_elements - 1) / group_elements;
    snprintf(own.folder, sizeof own.folder, "%s/libaio", folder);
    if (mkdir(own.folder, 0700) != 0 || open_buffers(found) != 0 || open_handle(&own.read) != 0 ||
        open_handle(&own.write) != 0 || fill_files() != 0) {
        snprintf(found->no_rivals, STEP_REASON, "the libaio yardsticks cannot run in this folder: %s", strerror(errno));
        return -1;
    }
    enter(found);
    *out = (step_states){"libaio", NULL, take_turn, read_states, &own.steps};
    return take_turn(NULL, PIPELINED_THP);
}

#endif
