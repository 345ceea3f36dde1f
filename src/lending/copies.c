/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c: the stream of a device that carries weights to the slices there. Memory that a copy reads stays as it is until an
 * event shows that the copy is done. Memory that it writes is free before: the stream waits for the program's streams. */
#include "lending.h"

#include "try.h"

#include <string.h>

zoff_status zoff_lending_copies_open(zoff_lending *l)
{
    if (zoff_accel_in_place(l->accel) || !zoff_model_params_any_owned(l->model))
        return ZOFF_OK;
    l->there.link = (zoff_store_link){
        .accel = l->accel, .progress = l->progress, .poller = l->pollers.device, .advice = "offload_param can move them"};
    return l->accel->ops->streams.open(l->accel, &l->there.link.stream);
}

zoff_status zoff_lending_copies_pin(zoff_lending *l, const void *base, size_t bytes, zoff_lending_pinned which)
{
    void *memory = (void *)(uintptr_t)base;
    if (bytes == 0)
        return ZOFF_OK;
    ZOFF_TRY(l->accel->ops->pages.pin(l->accel, memory, bytes));
    l->there.pinned[which] = memory;
    return ZOFF_OK;
}

static void unpin_memory(zoff_lending *l, zoff_lending_pinned which)
{
    if (l->there.pinned[which])
        l->accel->ops->pages.unpin(l->accel, l->there.pinned[which]);
    l->there.pinned[which] = NULL;
}

static void close_event(zoff_lending *l, void **event)
{
    if (*event)
        l->accel->ops->event_close(l->accel, *event);
    *event = NULL;
}

static void close_events(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    close_event(l, &l->there.synced);
    close_event(l, &l->there.published);
    for (unsigned i = 0; i < ZOFF_PARTS_IN_FLIGHT; i++)
        close_event(l, &l->there.landed[i]);
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++)
        close_event(l, &cache->held[i].copied);
    for (size_t i = 0; cache->slices && i < l->model->slice_count; i++) {
        close_event(l, &cache->slices[i].arrived);
        close_event(l, &cache->slices[i].released);
    }
}

void zoff_lending_copies_close(zoff_lending *l)
{
    if (!l->there.link.stream)
        return;
    l->accel->ops->streams.close(l->accel, l->there.link.stream);
    close_events(l);
    for (int which = 0; which < ZOFF_PINNED_COUNT; which++)
        unpin_memory(l, (zoff_lending_pinned)which);
    zoff_base_map_free(&l->there.bounce);
    l->there = (zoff_lending_device){.link.stream = NULL};
}

/* ---- copies ---- */

zoff_status zoff_lending_copies_within(zoff_lending *l, void *to, const void *from, size_t bytes)
{
    l->there.link.moves = true;
    return bytes ? l->accel->ops->copy(l->accel, l->there.link.stream, to, from, bytes) : ZOFF_OK;
}

zoff_status zoff_lending_copies_up(zoff_lending *l, void *to, const void *from, size_t bytes)
{
    ZOFF_TRY(zoff_lending_copies_within(l, to, from, bytes));
    l->there.link.write_bytes += bytes;
    return ZOFF_OK;
}

zoff_status zoff_lending_copies_down(zoff_lending *l, void *to, const void *from, size_t bytes)
{
    ZOFF_TRY(zoff_lending_copies_within(l, to, from, bytes));
    l->there.link.read_bytes += bytes;
    return ZOFF_OK;
}

/* ---- events ---- */

zoff_status zoff_lending_copies_record(zoff_lending *l, void **event)
{
    if (!*event)
        ZOFF_TRY(l->accel->ops->event_open(l->accel, event));
    return l->accel->ops->event_record(l->accel, *event, l->there.link.stream);
}

typedef struct event_wait {
    zoff_accel *accel;
    void *event;
} event_wait;

static zoff_status poll_event(void *ctx)
{
    const event_wait *w = ctx;
    return w->accel->ops->event_poll(w->accel, w->event);
}

zoff_status zoff_lending_copies_wait(zoff_lending *l, void *event)
{
    return zoff_base_progress_wait(l->progress, l->pollers.device, poll_event, &(event_wait){l->accel, event});
}

zoff_status zoff_lending_copies_settle(zoff_lending *l)
{
    if (!l->there.link.moves)
        return ZOFF_OK;
    ZOFF_TRY(zoff_lending_copies_record(l, &l->there.synced));
    ZOFF_TRY(zoff_lending_copies_wait(l, l->there.synced));
    l->there.link.moves = false;
    return ZOFF_OK;
}

bool zoff_lending_copies_are_busy(const zoff_lending *l)
{
    bool lands = false;
    for (unsigned i = 0; i < ZOFF_PARTS_IN_FLIGHT; i++)
        lands = lands || l->there.lands[i];
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) /* a chunk that is read counts, because a step may wait for its slot */
        lands = lands || (l->cache.held[i].is_used && l->cache.held[i].is_read);
    if (l->store && l->home->is_there) /* copies of weights on a device, which a step waits for beside other ranks */
        lands = lands || zoff_offload_store_busy(l->store, false);
    return lands;
}
