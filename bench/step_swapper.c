/* SPDX-License-Identifier: Apache-2.0 */
/* step_swapper.c: the optimizer step over files in the order of DeepSpeed's two swappers. Each tensor of a sub-group has a
 * file, which each request opens and closes. Blocks are 1 MiB, the queue depth is its default of 8, buffers are plain pages
 * locked in memory. The update is zoff's own, so that only the path of the bytes differs. Its Python and the norm are left out.
 */
#include "step_bench.h"

#ifndef BENCH_HAVE_LIBAIO

int step_swapper_open(const step_model *m, size_t group_elements, race *rivals, race *extra, step_states *out)
{
    extra->missing = rivals->missing =
        "built without libaio, which the yardstick is made of: install libaio-dev and configure again";
    return -1;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATES = 3, GRAD = STATES, TENSORS, SETS = 3, BLOCK = 1 << 20, DEPTH = 8, PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* A file that is read or written as a whole. */
typedef struct request {
    int fd;
    char *memory;
    size_t bytes;
    bool writes;
} request;

/* A thread that transfers files one after the other, cut into blocks, with DEPTH in flight. It lives as long as the benchmark.
 * It begins with the first file while the next one is opened. */
typedef struct handle {
    io_context_t context;
    pthread_t thread;
    sem_t begun, done; /* requests that the thread has not taken yet; those that nobody has waited for */
    request requests[TENSORS];
    unsigned count, awaited; /* number of requests since the start */
} handle;

/* Buffers for sub-groups in one block of memory: p, m, v and the fp32 gradient of each. */
typedef struct buffers {
    char *base;
    size_t pitch;
} buffers;

static struct {
    const step_model *model;
    const char *folder;
    size_t group_elements, group_count;
    buffers plain, huge;
    handle read, write;
    int64_t steps;
    _Atomic int error; /* errno of the first request that failed */
} own;

/* --- sub-groups, their memory and their files --- */

static size_t elements_of(size_t group)
{
    const size_t left = own.model->elements - group * own.group_elements;
    return left < own.group_elements ? left : own.group_elements;
}

/* A file holds whole pages. */
static size_t bytes_of(size_t group)
{
    return (elements_of(group) * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static void *tensor_of(const buffers *b, size_t set, unsigned tensor)
{
    return b->base + (set % SETS * TENSORS + tensor) * b->pitch;
}

static int open_file(size_t group, unsigned tensor, int flags)
{
    static const char *const NAMES[TENSORS] = {"", "exp_avg-", "exp_avg_sq-", "gradient-"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%zu.tensor.swp", own.folder, NAMES[tensor], group);
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    own.error = fd < 0 ? errno : own.error;
    return fd;
}

BENCH_CLOSER(free_buffers, free(x))

/* Allocate locked memory, in plain pages or with a request for huge ones. If a limit forbids locking, the pages still exist. */
static void open_buffers(bool huge, buffers *out, size_t *huge_bytes)
{
    const size_t before = bench_streams_huge_bytes(), unit = huge ? HUGE_PAGE : PAGE;
    void *base;
    out->pitch = (bytes_of(0) + unit - 1) / unit * unit;
    const size_t bytes = SETS * TENSORS * out->pitch;
    if (posix_memalign(&base, unit, bytes) != 0)
        bench_die("no memory for the buffers of the libaio yardsticks");
    bench_later(free_buffers, base, 0);
    out->base = base;
    if (huge)
        madvise(base, bytes, MADV_HUGEPAGE);
    memset(base, 0, bytes);
    found.locked = mlock(base, bytes) == 0 && (found.locked || !huge);
    found.buffer_bytes = SETS * TENSORS * bytes_of(0);
    const size_t after = bench_streams_huge_bytes();
    *huge_bytes = after > before ? after - before : 0;
}

/* --- transfers --- */

/* Unlike the trainer that this follows, look at every result. 0 or an errno. */
static int move(io_context_t context, const request *r)
{
    struct iocb blocks[DEPTH], *idle[DEPTH], *batch[DEPTH];
    struct io_event events[DEPTH];
    unsigned idle_count = 0;
    size_t next = 0;
    int error = 0;
    for (; idle_count < DEPTH; idle_count++)
        idle[idle_count] = &blocks[idle_count];
    while (idle_count < DEPTH || (!error && next < r->bytes)) {
        unsigned count = 0, begun = 0;
        for (; !error && idle_count && next < r->bytes; next += BLOCK) {
            struct iocb *block = batch[count++] = idle[--idle_count];
            const size_t bytes = r->bytes - next < BLOCK ? r->bytes - next : BLOCK;
            (r->writes ? io_prep_pwrite : io_prep_pread)(block, r->fd, r->memory + next, bytes, (long long)next);
        }
        while (begun < count && !error) {
            const int ret = io_submit(context, (long)(count - begun), batch + begun);
            error = ret < 0 && ret != -EINTR && ret != -EAGAIN ? -ret : 0;
            begun += ret > 0 ? (unsigned)ret : 0;
        }
        while (begun < count)
            idle[idle_count++] = batch[begun++];
        const int got = idle_count < DEPTH ? io_getevents(context, 1, DEPTH, events, NULL) : 0;
        for (int i = 0; i < got; i++) {
            const long long moved = (long long)events[i].res;
            if (moved != (long long)events[i].obj->u.c.nbytes)
                error = moved < 0 ? (int)-moved : EIO;
            idle[idle_count++] = events[i].obj;
        }
    }
    return error;
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        continue;
}

/* A request without a file ends the thread. */
static void *work(void *ctx)
{
    handle *h = ctx;
    for (unsigned i = 0;; i++) {
        wait_for(&h->begun);
        const request r = h->requests[i % TENSORS];
        if (r.fd < 0)
            return NULL;
        const int error = move(h->context, &r);
        close(r.fd);
        own.error = own.error ? own.error : error;
        sem_post(&h->done);
    }
}

static void tell(handle *h, request r)
{
    h->requests[h->count++ % TENSORS] = r;
    sem_post(&h->begun);
}

/* Wait until everything that was begun is done. */
static void await(handle *h)
{
    for (; h->awaited < h->count; h->awaited++)
        wait_for(&h->done);
}

/* Begin to read or write files of a sub-group; a request opens each. Wait for earlier requests first. */
static void begin(handle *h, size_t group, unsigned first, unsigned count, const buffers *from, size_t set, bool writes)
{
    await(h);
    for (unsigned i = first; i < first + count && !own.error; i++) {
        const int fd = open_file(group, i, (writes ? O_WRONLY | O_CREAT : O_RDONLY) | O_DIRECT);
        if (fd >= 0)
            tell(h, (request){fd, tensor_of(from, set, i), bytes_of(group), writes});
    }
}

static void close_handle(void *ctx, size_t value)
{
    handle *h = ctx;
    tell(h, (request){.fd = -1});
    pthread_join(h->thread, NULL);
    io_queue_release(h->context);
}

static void open_handle(handle *h)
{
    int error = -io_queue_init(DEPTH, &h->context);
    sem_init(&h->begun, 0, 0);
    sem_init(&h->done, 0, 0);
    if (!error)
        error = pthread_create(&h->thread, NULL, work, h);
    if (!error)
        bench_later(close_handle, h, 0);
    own.error = own.error ? own.error : error;
}

/* --- the orders --- */

enum {
    PATTERN,       /* PartitionedOptimizerSwapper: read, wait, update, write, wait */
    PATTERN_GRADS, /* the pattern with its fp32 gradients, which go to the disk and come back */
    PIPELINED,     /* PipelinedOptimizerSwapper: during an update the next sub-group is read and the last one written */
    PIPELINED_THP, /* PIPELINED with huge pages for its buffers */
    ORDERS
};

static void update(size_t group, const buffers *from, size_t set, bool grads)
{
    const size_t first = group * own.group_elements;
    const zoff_optimizer_tensor tensor = {.struct_size = sizeof tensor,
                                          .count = elements_of(group),
                                          .master = tensor_of(from, set, ZOFF_STATE_MASTER),
                                          .m = tensor_of(from, set, ZOFF_STATE_M),
                                          .v = tensor_of(from, set, ZOFF_STATE_V),
                                          .grad = grads ? tensor_of(from, set, GRAD) : own.model->grads + first,
                                          .grad_dtype = grads ? ZOFF_F32 : ZOFF_BF16,
                                          .copy_out = own.model->weights + first};
    bench_must(zoff_optimizer_step(&own.model->hyper, own.steps, 1, &tensor));
}

static void step_in_order(bool grads)
{
    for (size_t i = 0; i < own.group_count; i++) {
        begin(&own.read, i, 0, grads ? TENSORS : STATES, &own.plain, 0, false);
        await(&own.read);
        update(i, &own.plain, 0, grads);
        begin(&own.read, i, 0, STATES, &own.plain, 0, true);
        await(&own.read);
    }
}

/* Before the step write all gradients to the disk as fp32; the next is converted while the last one is written. */
static void spill_gradients(void)
{
    for (size_t i = 0; i < own.group_count; i++) {
        float *const wide = tensor_of(&own.plain, i, GRAD);
        const uint16_t *grads = own.model->grads + i * own.group_elements;
        const size_t count = elements_of(i);
#pragma omp parallel for schedule(static)
        for (size_t k = 0; k < count; k++)
            wide[k] = bench_from_bf16(grads[k]);
        begin(&own.read, i, GRAD, 1, &own.plain, i, true);
    }
    await(&own.read);
}

static void step_pipelined(const buffers *from)
{
    begin(&own.read, 0, 0, STATES, from, 0, false);
    for (size_t i = 0; i < own.group_count; i++) {
        await(&own.read);
        if (i + 1 < own.group_count)
            begin(&own.read, i + 1, 0, STATES, from, i + 1, false);
        update(i, from, i, false);
        begin(&own.write, i, 0, STATES, from, i, true);
    }
    await(&own.write);
}

static void take_turn(void *ctx, int which)
{
    own.steps++;
    if (which == PATTERN_GRADS)
        spill_gradients();
    if (which == PATTERN || which == PATTERN_GRADS)
        step_in_order(which == PATTERN_GRADS);
    else
        step_pipelined(which == PIPELINED_THP ? &own.huge : &own.plain);
    if (own.error)
        bench_die("a libaio yardstick failed: %s", strerror(own.error));
}

/* --- life --- */

/* The closest rival runs next to zoff, for the same time. */
static const race_line LINES[ORDERS] = {
    {"libaio_pipelined_thp", "libaio_pipelined with buffers in huge pages", 24, take_turn, PIPELINED_THP},
    {"libaio_pattern", "sub-group by sub-group: read, update, write", 24, take_turn, PATTERN},
    {"libaio_pipelined", "next read and last write during the update", 24, take_turn, PIPELINED},
    {"libaio_pattern_grads", "libaio_pattern, fp32 gradients over the disk too", 32, take_turn, PATTERN_GRADS}};

/* Write every file once in full, because the first write to new blocks of a file is slow. Only masters are not zero. */
static void fill_files(void)
{
    float *const master = tensor_of(&own.plain, 0, ZOFF_STATE_MASTER);
    for (size_t group = 0; group < own.group_count && !own.error; group++) {
        for (size_t i = 0; i < elements_of(group); i++)
            master[i] = bench_from_bf16(bench_bf16(bench_value(group * own.group_elements + i, STEP_WEIGHT)));
        begin(&own.read, group, 0, TENSORS, &own.plain, 0, true);
        await(&own.read);
    }
}

static void read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    while (count) {
        const size_t group = first / own.group_elements, at = first % own.group_elements;
        const size_t left = elements_of(group) - at, taken = left < count ? left : count;
        const int fd = open_file(group, (unsigned)kind, O_RDONLY);
        if (fd < 0 || pread(fd, dst, taken * sizeof *dst, (off_t)(at * sizeof *dst)) != (ssize_t)(taken * sizeof *dst))
            bench_die("the states of a libaio yardstick cannot be read: %s", strerror(errno));
        close(fd);
        first += taken;
        count -= taken;
        dst += taken;
    }
}

int step_swapper_open(const step_model *m, size_t group_elements, race *rivals, race *extra, step_states *out)
{
    own.model = m;
    own.group_elements = group_elements;
    own.group_count = (m->elements + group_elements - 1) / group_elements;
    own.folder = bench_text("%s/libaio", disk.folder);
    own.error = mkdir(own.folder, 0700) != 0 ? errno : 0;
    open_buffers(false, &own.plain, &found.plain_huge);
    open_buffers(true, &own.huge, &found.thp_huge);
    open_handle(&own.read);
    open_handle(&own.write);
    fill_files();
    if (own.error) {
        rivals->missing = extra->missing =
            bench_text("the libaio yardsticks cannot run in this folder: %s", strerror(own.error));
        return -1;
    }
    for (unsigned i = 0; i < ORDERS; i++)
        race_add(LINES[i].which == PATTERN_GRADS ? extra : rivals, &LINES[i], (double)m->elements, NULL, i ? 1 : 2);
    *out = (step_states){"libaio", NULL, take_turn, read_states, &own.steps};
    take_turn(NULL, PIPELINED_THP);
    return 0;
}

#endif
