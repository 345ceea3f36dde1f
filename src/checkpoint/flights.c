/* flights.c: the reads and writes of a save that are in flight, and the queues that read state files. A state file has the
 * engine's own queue, which belongs to its steps: so a save opens another one. */
#include "checkpoint_priv.h"

#include "aio.h"
#include "array.h"
#include "try.h"

void zoff_checkpoint_flights_add(zoff_save_flights *f, const zoff_save_flight *flight)
{
    f->list[(f->first + f->count++) % ZOFF_SAVE_FLIGHTS] = *flight;
}

zoff_status zoff_checkpoint_flights_land(zoff_save_flights *f, bool waits, zoff_save_flight *out)
{
    if (!f->count)
        return ZOFF_PENDING;
    const zoff_save_flight *oldest = &f->list[f->first];
    const zoff_status status =
        waits ? zoff_aio_wait(oldest->queue, oldest->ticket) : zoff_aio_poll(oldest->queue, oldest->ticket);
    if (status == ZOFF_PENDING)
        return ZOFF_PENDING;
    *out = *oldest;
    f->first = (f->first + 1) % ZOFF_SAVE_FLIGHTS;
    f->count--;
    return status;
}

zoff_status zoff_checkpoint_flights_reader(zoff_save_readers *r, const zoff_aio *of, double limit_seconds, zoff_aio **out)
{
    size_t i = 0;
    while (i < r->count && r->list[i].of != of)
        i++;
    if (i == r->count) {
        ZOFF_TRY(zoff_base_array_reserve(&r->list, r->count, &r->room, r->count + 1, sizeof *r->list, "state files"));
        ZOFF_TRY(zoff_aio_queue_share(of, &r->list[i].queue));
        r->list[i].of = of;
        r->count++;
        if (limit_seconds > 0)
            zoff_aio_queue_limit(r->list[i].queue, limit_seconds);
    }
    *out = r->list[i].queue;
    return ZOFF_OK;
}

bool zoff_checkpoint_flights_close(zoff_save_readers *r)
{
    bool ended = true;
    for (size_t i = 0; i < r->count; i++)
        ended = zoff_aio_queue_close(r->list[i].queue) && ended;
    zoff_base_mem_free(r->list);
    *r = (zoff_save_readers){.list = NULL};
    return ended;
}
