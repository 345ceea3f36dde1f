/* step_io.c: the transfers of a step and nothing else: what the disk allows. */
#include "step_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef enum slot_state { FREE, READING, WRITING } slot_state;

typedef struct slot {
    slot_state state;
    size_t chunk;
    uint64_t ticket;
} slot;

enum { MOST_SLOTS = 64, HEAD = 4096 };

/* Every byte of a file is written once before anything is timed, as the engine does with its own, which has no name. */
static int fill_file(const char *path, uint64_t bytes)
{
    static char block[1 << 20];
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int ret = file < 0 ? -1 : 0;
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(i * 2654435761u >> 24);
    while (ret == 0 && bytes) {
        const ssize_t written = write(file, block, bytes < sizeof block ? (size_t)bytes : sizeof block);
        ret = written > 0 ? 0 : -1;
        bytes -= written > 0 ? (uint64_t)written : 0;
    }
    if (ret == 0)
        ret = fsync(file);
    if (file >= 0)
        close(file);
    return ret;
}

int step_io_open(const step_engine *like, step_io *out)
{
    char file[STEP_PATH];
    zoff_aio_info info = {.struct_size = sizeof info};
    const zoff_aio_opts opts = {
        .struct_size = sizeof opts, .block_bytes = like->aio_block_bytes, .depth = like->aio_depth, .writable = true};
    *out = (step_io){.like = like,
                     .chunk_bytes = like->plan.chunk_bytes,
                     .slots = like->plan.slots < MOST_SLOTS ? like->plan.slots : MOST_SLOTS};
    if (snprintf(file, sizeof file, "%s/io_only", like->folder) >= (int)sizeof file || !like->read_bytes ||
        fill_file(file, HEAD + like->read_bytes) != 0) {
        fprintf(stderr, "step: no file of %llu bytes in %s, which is what the step read: %s\n",
                (unsigned long long)like->read_bytes, like->folder, strerror(errno));
        return -1;
    }
    out->chunk_count = (size_t)((like->read_bytes + out->chunk_bytes - 1) / out->chunk_bytes);
    out->last_bytes = (size_t)(like->read_bytes - (out->chunk_count - 1) * out->chunk_bytes);
    out->first_offset = HEAD;
    if (bench_streams_open(out->slots * out->chunk_bytes, 1, &out->mapping) != 0 ||
        !(out->memory = bench_streams_take(&out->mapping, out->slots * out->chunk_bytes))) {
        fprintf(stderr, "step: no memory for %u slots: %s\n", out->slots, strerror(errno));
        step_io_close(out);
        return -1;
    }
    memset(out->memory, 0, out->slots * out->chunk_bytes);
    if (zoff_aio_open(file, &opts, &out->queue) != ZOFF_OK ||
        zoff_aio_register(out->queue, out->memory, out->slots * out->chunk_bytes) != ZOFF_OK ||
        zoff_aio_get_info(out->queue, &info) != ZOFF_OK) {
        fprintf(stderr, "step: %s\n", zoff_last_error());
        step_io_close(out);
        return -1;
    }
    out->direct = info.direct;
    return 0;
}

static size_t bytes_of(const step_io *io, size_t chunk)
{
    return chunk + 1 == io->chunk_count ? io->last_bytes : io->chunk_bytes;
}

/* Begin or end what a slot has to do; whether it moved on. `next` is the chunk to read, `written` counts. */
static bool advance(step_io *io, unsigned at, slot *s, size_t *next, size_t *written)
{
    char *memory = io->memory + at * io->chunk_bytes;
    zoff_status status = s->state == FREE ? ZOFF_OK : zoff_aio_poll(io->queue, s->ticket);
    if (status == ZOFF_PENDING || (s->state == FREE && *next == io->chunk_count))
        return false;
    if (status == ZOFF_OK && s->state == READING) {
        status = zoff_aio_write(io->queue, io->first_offset + s->chunk * io->chunk_bytes, bytes_of(io, s->chunk), memory,
                                &s->ticket);
        s->state = WRITING;
    } else if (status == ZOFF_OK) {
        *written += s->state == WRITING;
        s->state = FREE;
        if (*next < io->chunk_count) {
            s->chunk = (*next)++;
            s->state = READING;
            status = zoff_aio_read(io->queue, io->first_offset + s->chunk * io->chunk_bytes, bytes_of(io, s->chunk), memory,
                                   &s->ticket);
        }
    }
    if (status != ZOFF_OK) {
        io->failed = true;
        fprintf(stderr, "step: %s\n", zoff_last_error());
    }
    return true;
}

void step_io_turn(void *ctx)
{
    step_io *io = ctx;
    slot slots[MOST_SLOTS] = {0};
    size_t next = 0, written = 0;
    while (written < io->chunk_count && !io->failed) {
        bool moved = false;
        for (unsigned i = 0; i < io->slots && !io->failed; i++)
            moved = advance(io, i, &slots[i], &next, &written) || moved;
        if (io->failed || moved)
            continue;
        if (zoff_aio_wait_any(io->queue) != ZOFF_OK) {
            io->failed = true;
            fprintf(stderr, "step: %s\n", zoff_last_error());
        }
    }
}

void step_io_close(step_io *io)
{
    zoff_aio_close(io->queue);
    bench_streams_close(&io->mapping);
    *io = (step_io){0};
}
