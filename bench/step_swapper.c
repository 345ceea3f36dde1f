/* step_swapper.c: the optimizer step over files in the order of DeepSpeed's two swappers. Each tensor of a sub-group has a
 * file, which each request opens and closes. Blocks are 1 MiB, the queue depth is its default of 8, buffers are plain pages
 * locked in memory. The update is zoff's own, so that only the path of the bytes differs. Its Python and the norm are left out.
 */
#include "step_bench.h"

#ifndef BENCH_HAVE_LIBAIO

int step_swapper_open(const step_model *m, size_t group_elements, race *rivals, race *extra, step_run *run, step_states *out)
{
    (void)m, (void)group_elements, (void)run, (void)out;
    race_excuse(rivals, "built without libaio, which the yardstick is made of: install libaio-dev and configure again");
    race_excuse(extra, "%s", rivals->missing);
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
    pthread_mutex_t lock;
    pthread_cond_t changed;
    request requests[TENSORS];
    unsigned count, done; /* requests of the batch; those that are done */
    bool lives, ends;
    int error; /* of the first request that failed */
} handle;

/* Buffers for sub-groups in one block of memory: p, m, v and the fp32 gradient of each. */
typedef struct buffers {
    char *base;
    size_t pitch, bytes;
} buffers;

static struct {
    const step_model *model;
    char folder[DISK_PATH];
    size_t group_elements, group_count;
    buffers plain, huge;
    handle read, write;
    int64_t steps;
} own = {.read = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
         .write = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};

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

static const char *name_of(size_t group, unsigned tensor)
{
    static const char *const NAMES[TENSORS] = {"", "exp_avg-", "exp_avg_sq-", "gradient-"};
    static char path[DISK_PATH + 64];
    snprintf(path, sizeof path, "%s/%s%zu.tensor.swp", own.folder, NAMES[tensor], group);
    return path;
}

/* Allocate locked memory, in plain pages or with a request for huge ones. If a limit forbids locking, the pages exist all the
 * same. */
static int open_buffers(bool huge, buffers *out, size_t *huge_bytes, step_run *run)
{
    const size_t before = bench_streams_huge_bytes(), unit = huge ? HUGE_PAGE : PAGE;
    void *base;
    out->pitch = (bytes_of(0) + unit - 1) / unit * unit;
    out->bytes = SETS * TENSORS * out->pitch;
    errno = posix_memalign(&base, unit, out->bytes);
    if (errno)
        return -1;
    out->base = base;
    if (huge)
        madvise(base, out->bytes, MADV_HUGEPAGE);
    memset(base, 0, out->bytes);
    run->locked = mlock(base, out->bytes) == 0 && (run->locked || !huge);
    run->buffer_bytes = SETS * TENSORS * bytes_of(0);
    const size_t after = bench_streams_huge_bytes();
    *huge_bytes = after > before ? after - before : 0;
    return 0;
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

static void *work(void *ctx)
{
    handle *h = ctx;
    pthread_mutex_lock(&h->lock);
    while (!h->ends || h->done < h->count) {
        if (h->done == h->count) {
            pthread_cond_wait(&h->changed, &h->lock);
            continue;
        }
        const request r = h->requests[h->done];
        pthread_mutex_unlock(&h->lock);
        const int error = move(h->context, &r);
        close(r.fd);
        pthread_mutex_lock(&h->lock);
        h->error = h->error ? h->error : error;
        h->done++;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void tell(handle *h, const request *r, bool ends)
{
    pthread_mutex_lock(&h->lock);
    if (r)
        h->requests[h->count++] = *r;
    h->ends = ends;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

/* Wait until everything that was begun is done. 0, or -1 with the errno of the first failure. */
static int await(handle *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->done < h->count)
        pthread_cond_wait(&h->changed, &h->lock);
    const int error = h->error;
    h->count = h->done = 0;
    h->error = 0;
    pthread_mutex_unlock(&h->lock);
    errno = error;
    return error ? -1 : 0;
}

/* Begin to read or write files of a sub-group; a request opens each. Wait for earlier requests first. 0, or -1 with errno. */
static int begin(handle *h, size_t group, unsigned first, unsigned count, const buffers *from, size_t set, bool writes)
{
    int ret = await(h);
    for (unsigned i = first; i < first + count && ret == 0; i++) {
        const int fd = open(name_of(group, i), (writes ? O_WRONLY | O_CREAT : O_RDONLY) | O_DIRECT | O_CLOEXEC, 0600);
        if (fd < 0)
            ret = -1;
        else
            tell(h, &(request){fd, tensor_of(from, set, i), bytes_of(group), writes}, false);
    }
    return ret;
}

/* 0 or an errno. */
static int open_handle(handle *h)
{
    int error = -io_queue_init(DEPTH, &h->context);
    if (!error)
        error = pthread_create(&h->thread, NULL, work, h);
    h->lives = !error;
    return error;
}

static void close_handle(handle *h)
{
    if (h->lives) {
        tell(h, NULL, true);
        pthread_join(h->thread, NULL);
    }
    if (h->context)
        io_queue_release(h->context);
    h->context = NULL;
    h->lives = h->ends = false;
}

/* --- the orders --- */

enum {
    PATTERN,       /* PartitionedOptimizerSwapper: read, wait, update, write, wait */
    PATTERN_GRADS, /* the same with its fp32 gradients, which go to the disk and come back */
    PIPELINED,     /* PipelinedOptimizerSwapper: meanwhile the next one is read and the last one written */
    PIPELINED_THP, /* with huge pages for its buffers */
    ORDERS
};

static int update(size_t group, const buffers *from, size_t set, bool grads)
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
    return bench_told(zoff_optimizer_step(&own.model->hyper, own.steps, 1, &tensor));
}

static int step_in_order(bool grads)
{
    int ret = 0;
    for (size_t i = 0; i < own.group_count && ret == 0; i++) {
        ret = begin(&own.read, i, 0, grads ? TENSORS : STATES, &own.plain, 0, false);
        ret = ret == 0 ? await(&own.read) : ret;
        ret = ret == 0 ? update(i, &own.plain, 0, grads) : ret;
        ret = ret == 0 ? begin(&own.read, i, 0, STATES, &own.plain, 0, true) : ret;
        ret = ret == 0 ? await(&own.read) : ret;
    }
    return ret;
}

/* Before the step write all gradients to the disk as fp32; the next is converted while the last one is written. */
static int spill_gradients(void)
{
    int ret = 0;
    for (size_t i = 0; i < own.group_count && ret == 0; i++) {
        float *const wide = tensor_of(&own.plain, i, GRAD);
        const uint16_t *grads = own.model->grads + i * own.group_elements;
        const size_t count = elements_of(i);
#pragma omp parallel for schedule(static)
        for (size_t k = 0; k < count; k++)
            wide[k] = bench_from_bf16(grads[k]);
        ret = begin(&own.read, i, GRAD, 1, &own.plain, i, true);
    }
    return ret == 0 ? await(&own.read) : ret;
}

static int step_pipelined(const buffers *from)
{
    int ret = begin(&own.read, 0, 0, STATES, from, 0, false);
    for (size_t i = 0; i < own.group_count && ret == 0; i++) {
        ret = await(&own.read);
        if (ret == 0 && i + 1 < own.group_count)
            ret = begin(&own.read, i + 1, 0, STATES, from, i + 1, false);
        ret = ret == 0 ? update(i, from, i, false) : ret;
        ret = ret == 0 ? begin(&own.write, i, 0, STATES, from, i, true) : ret;
    }
    return ret == 0 ? await(&own.write) : ret;
}

static int take_turn(void *ctx, int which)
{
    int ret = 0;
    own.steps++;
    if (which == PATTERN_GRADS)
        ret = spill_gradients();
    if (ret == 0 && (which == PATTERN || which == PATTERN_GRADS))
        ret = step_in_order(which == PATTERN_GRADS);
    else if (ret == 0)
        ret = step_pipelined(which == PIPELINED_THP ? &own.huge : &own.plain);
    return ret == 0 ? 0 : bench_fail("a libaio yardstick failed: %s", strerror(errno));
}

/* --- life --- */

/* The closest rival runs next to zoff, for the same time. */
static const race_line LINES[ORDERS] = {
    {"libaio_pipelined_thp", "libaio_pipelined with buffers in huge pages", 24, take_turn, PIPELINED_THP},
    {"libaio_pattern", "sub-group by sub-group: read, update, write", 24, take_turn, PATTERN},
    {"libaio_pipelined", "next read and last write during the update", 24, take_turn, PIPELINED},
    {"libaio_pattern_grads", "libaio_pattern, fp32 gradients over the disk too", 32, take_turn, PATTERN_GRADS}};

/* Write every file once in full before a measurement: the first write to new blocks of a file is slow. Only masters are not
 * zero. */
static int fill_files(void)
{
    float *const master = tensor_of(&own.plain, 0, ZOFF_STATE_MASTER);
    int ret = 0;
    for (size_t group = 0; group < own.group_count && ret == 0; group++) {
        for (size_t i = 0; i < elements_of(group); i++)
            master[i] = bench_from_bf16(bench_bf16(bench_value(group * own.group_elements + i, STEP_WEIGHT)));
        ret = begin(&own.read, group, 0, TENSORS, &own.plain, 0, true);
        ret = ret == 0 ? await(&own.read) : ret;
    }
    return ret;
}

static int read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
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
    free(own.plain.base);
    free(own.huge.base);
    own.plain.base = own.huge.base = NULL;
}

int step_swapper_open(const step_model *m, size_t group_elements, race *rivals, race *extra, step_run *run, step_states *out)
{
    own.model = m;
    own.group_elements = group_elements;
    own.group_count = (m->elements + group_elements - 1) / group_elements;
    snprintf(own.folder, sizeof own.folder, "%.4000s/libaio", run->folder);
    int ret = mkdir(own.folder, 0700);
    if (ret == 0)
        ret = open_buffers(false, &own.plain, &run->plain_huge, run);
    if (ret == 0)
        ret = open_buffers(true, &own.huge, &run->thp_huge, run);
    if (ret == 0 && (errno = open_handle(&own.read)) == 0)
        errno = open_handle(&own.write);
    if (ret != 0 || errno || fill_files() != 0) {
        race_excuse(rivals, "the libaio yardsticks cannot run in this folder: %s", strerror(errno));
        race_excuse(extra, "%s", rivals->missing);
        return -1;
    }
    for (unsigned i = 0; i < ORDERS; i++)
        race_add(LINES[i].which == PATTERN_GRADS ? extra : rivals, &LINES[i], (double)m->elements, NULL, i ? 1 : 2);
    *out = (step_states){"libaio", NULL, take_turn, read_states, &own.steps};
    return take_turn(NULL, PIPELINED_THP);
}

#endif
