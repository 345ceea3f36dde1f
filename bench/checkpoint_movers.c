/* checkpoint_movers.c: the yardsticks of saves and loads: bench/aio's queue, and a plain copy. */
#include "aio_bench.h"
#include "checkpoint_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Move bytes as bench/aio does by default: one request, registered memory. */
static int move(checkpoint_mover *m, const char *path, aio_way way, uint64_t bytes)
{
    static aio_place place;
    const aio_line line = {.block = 0};
    double seconds, cpu;
    if (snprintf(place.path, sizeof place.path, "%s", path) >= (int)sizeof place.path)
        return bench_fail("the path %s is too long", path);
    place.huge = m->memory;
    place.registered = true;
    const int ret = aio_ours_run(&place, &line, way, bytes, &seconds, &cpu);
    m->registered = m->registered && place.registered;
    m->registering += place.registering;
    return ret;
}

/* Make a file with its space reserved, as zoff makes its own. */
static int make(const char *path, uint64_t bytes)
{
    const zoff_aio_opts opts = {.struct_size = sizeof opts, .writable = true, .create = true};
    zoff_aio *queue = NULL;
    int ret = bench_told(zoff_aio_open(path, &opts, &queue));
    if (ret == 0)
        ret = bench_told(zoff_aio_reserve(queue, bytes));
    zoff_aio_close(queue);
    return ret;
}

static int flush(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const int ret = fd >= 0 ? fsync(fd) : -1;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    return ret == 0 ? 0 : bench_fail("cannot flush %s: %s", path, strerror(error));
}

int checkpoint_mover_open(const char *folder, uint64_t bytes, checkpoint_mover *out)
{
    *out = (checkpoint_mover){.bytes = bytes, .registered = true};
    snprintf(out->scratch, sizeof out->scratch, "%.4000s/scratch", folder);
    snprintf(out->made, sizeof out->made, "%.4000s/made", folder);
    if (bench_streams_open(2 * bytes, 1, true, &out->mapping) != 0)
        return -1;
    out->memory = bench_streams_take(&out->mapping, 2 * bytes);
    bench_fill_float((float *)(void *)out->memory, 2 * bytes / sizeof(float), 0, 1);
    return make(out->scratch, 2 * bytes) != 0 ? -1 : move(out, out->scratch, WAY_WRITE, 2 * bytes);
}

void checkpoint_mover_close(checkpoint_mover *m)
{
    if (m->made[0])
        (void)unlink(m->made);
    if (m->scratch[0])
        (void)unlink(m->scratch);
    bench_streams_close(&m->mapping);
}

int checkpoint_mover_forget(void *ctx, int which)
{
    checkpoint_mover *m = ctx;
    if (m->rest)
        step_engine_rest(&m->rest->engine);
    (void)unlink(m->made);
    sync();           /* the disk frees its blocks before the turn */
    if (m->from[0]) { /* a copy has left it in the page cache */
        const int fd = open(m->from, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
    return 0;
}

int checkpoint_mover_write(void *ctx, int which)
{
    checkpoint_mover *m = ctx;
    if (make(m->made, m->bytes) != 0 || move(m, m->made, WAY_WRITE, m->bytes) != 0)
        return -1;
    return flush(m->made);
}

int checkpoint_mover_read(void *ctx, int which)
{
    checkpoint_mover *m = ctx;
    return move(m, m->from, WAY_READ, m->bytes);
}

int checkpoint_mover_mix(void *ctx, int which)
{
    checkpoint_mover *m = ctx;
    return move(m, m->scratch, WAY_MIX, 2 * m->bytes);
}

/* As `cp --reflink=auto`: clone, or let the kernel copy. */
static int copy(int from, int to)
{
    enum { AT_ONCE = 1 << 30 };
    ssize_t got = 1;
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    while (got > 0)
        got = copy_file_range(from, NULL, to, NULL, AT_ONCE, 0);
    return (int)got;
}

int checkpoint_mover_copy(void *ctx, int which)
{
    const checkpoint_mover *m = ctx;
    const int from = open(m->from, O_RDONLY | O_CLOEXEC), to = open(m->made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int ret = from >= 0 && to >= 0 && copy(from, to) == 0 ? fsync(to) : -1;
    const int error = errno;
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return ret == 0 ? 0 : bench_fail("cannot copy %s to %s: %s", m->from, m->made, strerror(error));
}

double checkpoint_sample(race *r, race_entry *e, double deadline)
{
    checkpoint_mover *m = r->user;
    m->registering = 0;
    const bench_sample sample = bench_stopwatch_sample(&e->work, 1, 0, 1, deadline);
    e->disturbed[r->rounds] = !sample.status;
    return sample.status < 0 ? -1 : sample.seconds - m->registering;
}
