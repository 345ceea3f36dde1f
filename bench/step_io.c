/* step_io.c: the transfers of a step and nothing else: the limit of the disk. */
#include "step_bench.h"

#include <stdlib.h>
#include <string.h>

typedef enum slot_state { FREE, READING, WRITING } slot_state;

typedef struct slot {
    slot_state state;
    size_t chunk;
    uint64_t ticket;
} slot;

enum { MOST_SLOTS = 64, HEAD = 4096 };

int step_io_open(const step_engine *like, step_io *out)
{
    char file[DISK_PATH + 16], text[256];
    zoff_aio_info info = {.struct_size = sizeof info};
    const zoff_aio_opts opts = {.struct_size = sizeof opts,
                                .block_bytes = (size_t)like->aio_block_bytes,
                                .depth = (unsigned)like->aio_depth,
                                .writable = true};
    *out = (step_io){.chunk_bytes = like->plan.chunk_bytes,
                     .slots = like->plan.slots < MOST_SLOTS ? like->plan.slots : MOST_SLOTS};
    const size_t bytes = out->slots * out->chunk_bytes;
    /* Write every byte once before a measurement, as the engine does with its own file. The file has no name. */
    if (!like->read_bytes ||
        bench_command(text, sizeof text,
                      "cd \"$ZOFF_BENCH_FOLDER\" && head -c %llu /dev/urandom 2>&1 >io_only && sync io_only 2>&1",
                      (unsigned long long)(HEAD + like->read_bytes)) != 0)
        return bench_fail("no file of %llu bytes, which is what the step read: %s", (unsigned long long)like->read_bytes, text);
    snprintf(file, sizeof file, "%s/io_only", getenv("ZOFF_BENCH_FOLDER"));
    out->chunk_count = (size_t)((like->read_bytes + out->chunk_bytes - 1) / out->chunk_bytes);
    out->last_bytes = (size_t)(like->read_bytes - (out->chunk_count - 1) * out->chunk_bytes);
    if (bench_streams_open(bytes, 1, true, &out->mapping) != 0)
        return -1;
    out->memory = bench_streams_take(&out->mapping, bytes);
    memset(out->memory, 0, bytes);
    if (bench_told(zoff_aio_open(file, &opts, &out->queue)) != 0 ||
        bench_told(zoff_aio_register(out->queue, out->memory, bytes)) != 0 ||
        bench_told(zoff_aio_get_info(out->queue, &info)) != 0)
        return -1;
    out->direct = info.direct;
    return 0;
}

/* Begin or finish the work of a slot; return whether it advanced. `next` is the chunk to read, `written` counts chunks. */
static bool advance(step_io *io, unsigned at, slot *s, size_t *next, size_t *written, zoff_status *status)
{
    char *memory = io->memory + at * io->chunk_bytes;
    *status = s->state == FREE ? ZOFF_OK : zoff_aio_poll(io->queue, s->ticket);
    if (*status != ZOFF_OK || (s->state == FREE && *next == io->chunk_count))
        return false;
    const bool reads = s->state != READING;
    if (reads) {
        *written += s->state == WRITING;
        s->state = FREE;
        if (*next == io->chunk_count)
            return true;
        s->chunk = (*next)++;
    }
    const size_t bytes = s->chunk + 1 == io->chunk_count ? io->last_bytes : io->chunk_bytes;
    const uint64_t offset = HEAD + s->chunk * io->chunk_bytes;
    s->state = reads ? READING : WRITING;
    *status = reads ? zoff_aio_read(io->queue, offset, bytes, memory, &s->ticket)
                    : zoff_aio_write(io->queue, offset, bytes, memory, &s->ticket);
    return true;
}

int step_io_turn(void *ctx, int which)
{
    step_io *io = ctx;
    slot slots[MOST_SLOTS] = {{.state = FREE}};
    size_t next = 0, written = 0;
    while (written < io->chunk_count) {
        bool moved = false;
        for (unsigned i = 0; i < io->slots; i++) {
            zoff_status status;
            moved = advance(io, i, &slots[i], &next, &written, &status) || moved;
            if (bench_told(status) != 0)
                return -1;
        }
        if (!moved && bench_told(zoff_aio_wait_any(io->queue)) != 0)
            return -1;
    }
    return 0;
}

void step_io_close(step_io *io)
{
    zoff_aio_close(io->queue);
    bench_streams_close(&io->mapping);
}
