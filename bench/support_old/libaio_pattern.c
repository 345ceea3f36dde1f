/* libaio_pattern.c: one libaio context and the thread that drives it. */
#include "libaio_pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct request {
    int fd;
    char *buffer;
    size_t bytes;
    bool writes;
} request;

struct libaio_handle {
    size_t block_bytes;
    unsigned depth;
    io_context_t context;
    struct iocb *blocks, **free_blocks, **batch;
    unsigned free_count;
    struct io_event *events;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    request ring[LIBAIO_REQUESTS];
    unsigned head, tail; /* next to do, next free place; both only grow */
    bool ending;
    int error; /* of the first request that failed */
};

/* Begin as many blocks as may be in flight. 0 or -errno. */
static int begin_blocks(libaio_handle *h, const request *r, size_t *next)
{
    unsigned count = 0, begun = 0;
    for (; h->free_count && *next < r->bytes; *next += h->block_bytes) {
        const size_t left = r->bytes - *next, bytes = left < h->block_bytes ? left : h->block_bytes;
        struct iocb *block = h->free_blocks[--h->free_count];
        if (r->writes)
            io_prep_pwrite(block, r->fd, r->buffer + *next, bytes, (long long)*next);
        else
            io_prep_pread(block, r->fd, r->buffer + *next, bytes, (long long)*next);
        h->batch[count++] = block;
    }
    while (begun < count) {
        const int ret = io_submit(h->context, (long)(count - begun), h->batch + begun);
        if (ret < 0 && ret != -EINTR && ret != -EAGAIN) {
            while (begun < count)
                h->free_blocks[h->free_count++] = h->batch[begun++];
            return ret;
        }
        begun += ret > 0 ? (unsigned)ret : 0;
    }
    return 0;
}

/* Wait for at least one block. 0 or -errno: of the wait, or of a block that was not moved in full. */
static int end_blocks(libaio_handle *h)
{
    int error = 0;
    const int got = io_getevents(h->context, 1, (long)h->depth, h->events, NULL);
    for (int i = 0; i < got; i++) {
        struct iocb *block = h->events[i].obj;
        const int64_t moved = (int64_t)h->events[i].res;
        if (moved < 0)
            error = (int)moved;
        else if ((size_t)moved != block->u.c.nbytes)
            error = -EIO;
        h->free_blocks[h->free_count++] = block;
    }
    return got < 0 && got != -EINTR ? got : error;
}

static int move(libaio_handle *h, const request *r)
{
    size_t next = 0;
    int error = 0;
    while (h->free_count < h->depth || (!error && next < r->bytes)) {
        if (!error)
            error = begin_blocks(h, r, &next);
        if (h->free_count < h->depth) {
            const int ret = end_blocks(h);
            error = error ? error : ret;
        }
    }
    return error;
}

static void *work(void *ctx)
{
    libaio_handle *h = ctx;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (h->head == h->tail && !h->ending)
            pthread_cond_wait(&h->changed, &h->lock);
        if (h->head == h->tail)
            break;
        const request r = h->ring[h->head % LIBAIO_REQUESTS];
        pthread_mutex_unlock(&h->lock);
        const int error = move(h, &r);
        close(r.fd);
        pthread_mutex_lock(&h->lock);
        h->error = h->error ? h->error : -error;
        h->head++;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

int libaio_handle_open(size_t block_bytes, unsigned depth, libaio_handle **out)
{
    libaio_handle *h = calloc(1, sizeof *h);
    int error = ENOMEM;
    if (!h)
        return -1;
    h->block_bytes = block_bytes;
    h->depth = h->free_count = depth;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->blocks = calloc(depth, sizeof *h->blocks);
    h->free_blocks = calloc(depth, sizeof *h->free_blocks);
    h->batch = calloc(depth, sizeof *h->batch);
    h->events = calloc(depth, sizeof *h->events);
    if (h->blocks && h->free_blocks && h->batch && h->events) {
        for (unsigned i = 0; i < depth; i++)
            h->free_blocks[i] = &h->blocks[i];
        error = -io_queue_init((int)depth, &h->context);
        if (!error)
            error = pthread_create(&h->thread, NULL, work, h);
        h->started = !error;
    }
    if (error) {
        libaio_handle_close(h);
        errno = error;
        return -1;
    }
    *out = h;
    return 0;
}

void libaio_handle_close(libaio_handle *h)
{
    if (!h)
        return;
    if (h->started) {
        pthread_mutex_lock(&h->lock);
        h->ending = true;
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    if (h->context)
        io_queue_release(h->context);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h->blocks);
    free(h->free_blocks);
    free(h->batch);
    free(h->events);
    free(h);
}

int libaio_handle_start(libaio_handle *h, const char *path, void *buffer, size_t bytes, bool writes)
{
    const int flags = writes ? O_WRONLY | O_CREAT : O_RDONLY;
    const int fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    pthread_mutex_lock(&h->lock);
    while (h->tail - h->head == LIBAIO_REQUESTS)
        pthread_cond_wait(&h->changed, &h->lock);
    h->ring[h->tail++ % LIBAIO_REQUESTS] = (request){.fd = fd, .buffer = buffer, .bytes = bytes, .writes = writes};
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

int libaio_handle_wait(libaio_handle *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->head != h->tail)
        pthread_cond_wait(&h->changed, &h->lock);
    const int error = h->error;
    h->error = 0;
    pthread_mutex_unlock(&h->lock);
    errno = error;
    return error ? -1 : 0;
}

int libaio_buffer_open(size_t bytes, bool huge, libaio_buffer *out)
{
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };
    const size_t unit = huge ? HUGE_PAGE : PAGE, rounded = (bytes + unit - 1) / unit * unit;
    void *base;
    const int error = posix_memalign(&base, unit, rounded);
    if (error) {
        errno = error;
        return -1;
    }
    if (huge)
        madvise(base, rounded, MADV_HUGEPAGE);
    memset(base, 0, rounded);
    *out = (libaio_buffer){.base = base, .bytes = rounded, .locked = mlock(base, rounded) == 0};
    return 0;
}

void libaio_buffer_close(libaio_buffer *buffer)
{
    if (buffer->locked)
        munlock(buffer->base, buffer->bytes);
    free(buffer->base);
    *buffer = (libaio_buffer){0};
}
