/* SPDX-License-Identifier: Apache-2.0 */
/* uring.c: the io_uring back-end: one ring per queue, no thread of its own, no polling by the kernel.
 *
 * Flags of the ring: one thread at a time uses a queue, but not always the same one. That excludes three features which bind a
 * ring to a thread. SINGLE_ISSUER and DEFER_TASKRUN: a second thread could not even collect completions of the first. The
 * registered ring descriptor: it is an index into a table of one thread, and would address another ring from another thread.
 * COOP_TASKRUN keeps the important part: a completion does not interrupt arithmetic. TASKRUN_FLAG shows in shared memory
 * whether a system call would find anything. */
#include "backend_priv.h"

#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    REGISTER_SHIFT = 30,   /* the kernel accepts at most 1 GiB in a registered buffer */
    REFUSALS_BORNE = 2000, /* times in a row, 1 ms apart, that the kernel may lack memory for a request */
    REFUSAL_WAIT_NS = 1000000
};

typedef struct uring {
    struct io_uring ring;
    int fd;
    bool file_known; /* registered as file 0 of the ring */
    char *base;      /* registered memory, in buffers of 1 GiB; NULL: none */
    size_t bytes;
    unsigned out;      /* transfers that were taken and not returned, refused ones included */
    unsigned refusals; /* refusals in a row */
    unsigned refused_count;
    int refused_res;
    zoff_aio_io *refused[]; /* transfers that were taken, but that the kernel did not start; `depth` places */
} uring;

/* The value of the kernel's switch, 0 to 2; -1 if the kernel does not have it. */
static int read_sysctl(void)
{
    char text[8] = "";
    int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t ret = read(fd, text, sizeof text - 1);
    close(fd);
    return ret > 0 && text[0] >= '0' && text[0] <= '2' ? text[0] - '0' : -1;
}

/* One errno has several causes, each with its own remedy. */
static zoff_status fail_setup(int error)
{
    int disabled = read_sysctl();
    struct rlimit limit = {0};
    const char *words = zoff_base_status_errno(error);
    if (error == EPERM && disabled > 0)
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "io_uring cannot be used: the sysctl kernel.io_uring_disabled is %d (%s); an administrator "
            "can set it to 0",
            disabled, words);
    if (error == EPERM || error == EACCES || (error == ENOSYS && disabled >= 0))
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "io_uring cannot be used: a seccomp filter forbids it, as container runtimes do (%s); allow "
            "io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
            words);
    if (error == ENOSYS)
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "io_uring cannot be used: the kernel has none, or a seccomp filter hides it (%s); Linux 5.6 "
            "or later has it",
            words);
    if (error == ENOMEM) {
        getrlimit(RLIMIT_MEMLOCK, &limit);
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "io_uring cannot be used: no memory for its rings (%s); before Linux 5.12 they count against "
            "RLIMIT_MEMLOCK, which is %llu bytes here (ulimit -l)",
            words, (unsigned long long)limit.rlim_cur);
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "io_uring cannot be used: %s", words);
}

/* Read through the ring. A filter may allow io_uring_setup() and forbid io_uring_enter(); a kernel before 5.6 has neither plain
 * reads nor plain writes. A filter that forbids io_uring_register() costs registered memory only. */
static zoff_status try_read(struct io_uring *ring)
{
    char byte;
    struct io_uring_cqe *cqe = NULL;
    const int fd = memfd_create("zoff", MFD_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_UNSUPPORTED, "io_uring cannot be tried: memfd_create(): %s", zoff_base_status_errno(errno));
    io_uring_prep_read(io_uring_get_sqe(ring), fd, &byte, 1, 0);
    int ret = io_uring_submit(ring);
    while (ret >= 0 && !cqe) {
        ret = io_uring_wait_cqe(ring, &cqe);
        ret = ret == -EINTR ? 0 : ret;
    }
    close(fd);
    if (ret < 0)
        return fail_setup(-ret);
    const int res = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    ZOFF_FAIL_IF(res < 0, ZOFF_ERR_UNSUPPORTED,
                 "io_uring cannot be used: a plain read fails (%s); Linux 5.6 or later has plain reads and writes",
                 zoff_base_status_errno(-res));
    return ZOFF_OK;
}

/* Try the best ring first, and last the one that every kernel supports. */
static int set_up(unsigned depth, struct io_uring *ring)
{
    static const unsigned LADDER[] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL, 0};
    int ret = -EINVAL;
    for (unsigned i = 0; ret == -EINVAL && i < sizeof LADDER / sizeof LADDER[0]; i++)
        ret = io_uring_queue_init(depth, ring, LADDER[i]);
    return ret;
}

static zoff_status uring_open(int fd, unsigned depth, void **out_self)
{
    uring *self;
    zoff_status status;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *self + depth * sizeof self->refused[0], "the io_uring back-end", &self));
    int ret = set_up(depth, &self->ring);
    if (ret < 0) {
        status = fail_setup(-ret);
        goto free_self;
    }
    ZOFF_TRY_OR(exit_ring, try_read(&self->ring));
    self->fd = fd;
    /* Registration is optional: without it each request looks the file up, which costs little. */
    self->file_known = io_uring_register_files(&self->ring, &fd, 1) == 0;
    *out_self = self;
    return ZOFF_OK;

exit_ring:
    io_uring_queue_exit(&self->ring);
free_self:
    zoff_base_mem_free(self);
    return status;
}

static void uring_close(void *ctx, bool inherited)
{
    uring *self = ctx;
    /* The kernel tears the ring down later. Free these now, so that the file system can be unmounted and the memory reused. A
     * child of fork() shares the ring with its parent, which still uses them. */
    if (self->base && !inherited)
        io_uring_unregister_buffers(&self->ring);
    if (self->file_known && !inherited)
        io_uring_unregister_files(&self->ring);
    io_uring_queue_exit(&self->ring);
    zoff_base_mem_free(self);
}

/* Anybody may raise the soft limit up to the hard one. Restore it when the memory is pinned. */
static int register_buffers(uring *self, const struct iovec *buffers, unsigned count)
{
    struct rlimit limit;
    int ret = io_uring_register_buffers(&self->ring, buffers, count);
    if (ret != -ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return ret;
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_MEMLOCK, &raised) == 0) {
        ret = io_uring_register_buffers(&self->ring, buffers, count);
        setrlimit(RLIMIT_MEMLOCK, &limit);
    }
    return ret;
}

static void warn_unregistered(size_t bytes, int error)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error == ENOMEM)
        ZOFF_WARN(
            "memory of %zu bytes is not registered with io_uring: RLIMIT_MEMLOCK is %llu bytes (hard limit %llu; ulimit -l, "
            "LimitMEMLOCK= of systemd, --ulimit memlock= of docker); continuing without that, at a little more CPU per "
            "transfer",
            bytes, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    else
        ZOFF_WARN("memory of %zu bytes is not registered with io_uring: %s; continuing without that, at a little more CPU per "
                  "transfer",
                  bytes, zoff_base_status_errno(error));
}

static zoff_status uring_register_memory(void *ctx, void *base, size_t bytes, bool *out_registered)
{
    uring *self = ctx;
    struct iovec *buffers;
    const size_t most = (size_t)1 << REGISTER_SHIFT;
    size_t count = (bytes + most - 1) >> REGISTER_SHIFT;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *buffers, "the list of registered buffers", &buffers));
    for (size_t i = 0; i < count; i++) {
        size_t left = bytes - (i << REGISTER_SHIFT);
        buffers[i] = (struct iovec){.iov_base = (char *)base + (i << REGISTER_SHIFT), .iov_len = left < most ? left : most};
    }
    int ret = register_buffers(self, buffers, (unsigned)count);
    zoff_base_mem_free(buffers);
    *out_registered = ret == 0;
    if (ret == 0) {
        self->base = base;
        self->bytes = bytes;
    } else {
        warn_unregistered(bytes, -ret);
    }
    return ZOFF_OK;
}

/* The registered buffer that contains the whole transfer; -1: none, for example if it crosses from one buffer to the next. */
static int find_buffer(const uring *self, const zoff_aio_io *io)
{
    size_t from = (size_t)((uintptr_t)io->address - (uintptr_t)self->base);
    if (!self->base || (uintptr_t)io->address < (uintptr_t)self->base || from >= self->bytes || io->bytes > self->bytes - from)
        return -1;
    return from >> REGISTER_SHIFT == (from + io->bytes - 1) >> REGISTER_SHIFT ? (int)(from >> REGISTER_SHIFT) : -1;
}

static void uring_start(void *ctx, zoff_aio_io *io)
{
    uring *self = ctx;
    /* There is always an entry, because the ring has at least `depth`, and at most `depth` transfers are in flight. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);
    int fd = self->file_known ? 0 : self->fd;
    int buffer = find_buffer(self, io);
    unsigned bytes = (unsigned)io->bytes;
    if (buffer >= 0 && io->writes)
        io_uring_prep_write_fixed(sqe, fd, io->address, bytes, io->offset, buffer);
    else if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, io->address, bytes, io->offset, buffer);
    else if (io->writes)
        io_uring_prep_write(sqe, fd, io->address, bytes, io->offset);
    else
        io_uring_prep_read(sqe, fd, io->address, bytes, io->offset);
    if (self->file_known)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, io);
    self->out++;
}

/* Take transfers that the kernel did not accept out of the ring, so that reap() returns them. The kernel reads the ring only
 * inside io_uring_enter(), so the tail may be moved back here. */
static zoff_status withdraw(uring *self, int error)
{
    struct io_uring_sq *sq = &self->ring.sq;
    unsigned head = *sq->khead;
    for (unsigned i = head; i != sq->sqe_tail; i++)
        self->refused[self->refused_count++] = (zoff_aio_io *)(uintptr_t)sq->sqes[i & sq->ring_mask].user_data;
    sq->sqe_head = sq->sqe_tail = head;
    io_uring_smp_store_release(sq->ktail, head);
    self->refused_res = -error;
    return zoff_base_status_fail(ZOFF_ERR_IO, "io_uring takes no more requests: %s", zoff_base_status_errno(error));
}

/* Judge the result of a submission. Without memory it is tried again at the next call, a bounded number of times. */
static zoff_status judge(uring *self, int ret)
{
    if (ret >= 0) {
        self->refusals = 0;
        return ZOFF_OK;
    }
    if (ret == -EINTR)
        return ZOFF_OK;
    if (ret != -EAGAIN && ret != -EBUSY)
        return withdraw(self, -ret);
    return ++self->refusals > REFUSALS_BORNE ? withdraw(self, ENOMEM) : ZOFF_OK;
}

static zoff_status uring_submit(void *ctx)
{
    uring *self = ctx;
    return io_uring_sq_ready(&self->ring) ? judge(self, io_uring_submit(&self->ring)) : ZOFF_OK;
}

static size_t uring_reap(void *ctx, zoff_aio_done *out, size_t capacity)
{
    uring *self = ctx;
    size_t count = 0;
    if (!self->out)
        return 0;
    while (count < capacity && self->refused_count)
        out[count++] = (zoff_aio_done){.io = self->refused[--self->refused_count], .res = self->refused_res};
    if (!io_uring_cq_ready(&self->ring) &&
        IO_URING_READ_ONCE(*self->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
        io_uring_get_events(&self->ring);
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&self->ring, head, cqe)
    {
        if (count == capacity)
            break;
        out[count++] = (zoff_aio_done){.io = io_uring_cqe_get_data(cqe), .res = cqe->res};
        seen++;
    }
    io_uring_cq_advance(&self->ring, seen);
    self->out -= (unsigned)count;
    return count;
}

/* Kernels before 5.11 can only wait without a limit. */
static int submit_and_wait(uring *self, double seconds)
{
    struct __kernel_timespec limit = {.tv_sec = (long long)seconds,
                                      .tv_nsec = (long long)(1e9 * (seconds - (double)(long long)seconds))};
    struct io_uring_cqe *first;
    if (seconds < 0 || !(self->ring.features & IORING_FEAT_EXT_ARG))
        return io_uring_submit_and_wait(&self->ring, 1);
    const int ret = io_uring_submit_and_wait_timeout(&self->ring, &first, 1, &limit, NULL);
    return ret == -ETIME ? 0 : ret;
}

static zoff_status uring_wait(void *ctx, double seconds)
{
    uring *self = ctx;
    if (!self->out || self->refused_count || io_uring_cq_ready(&self->ring))
        return ZOFF_OK;
    int ret = submit_and_wait(self, seconds);
    zoff_status status = judge(self, ret);
    /* Completions also arrive without io_uring_enter(), only later: wait a little and check. */
    if (ret < 0 && ret != -EINTR && !self->refused_count)
        nanosleep(&(struct timespec){.tv_nsec = REFUSAL_WAIT_NS}, NULL);
    return status;
}

const zoff_aio_backend zoff_aio_uring_backend = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .register_memory = uring_register_memory,
    .start = uring_start,
    .submit = uring_submit,
    .reap = uring_reap,
    .wait = uring_wait,
};
