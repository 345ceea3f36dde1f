/* SPDX-License-Identifier: Apache-2.0 */
/* speculation.c: what the next step is assumed to use, and whether it does; whether speculation pays, and in which order the
 * gradients of buckets become complete. */
#include "speculation.h"

#include "mem.h"
#include "try.h"

#include <string.h>

_Static_assert(sizeof(zoff_adam_consts) == sizeof(zoff_adam_rule) + 10 * sizeof(float) + sizeof(uint32_t),
               "constants without padding: they are compared as bytes");

static zoff_status open_order(zoff_speculation_order *o, size_t count)
{
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *o->expected, "the order of gradients", &o->expected));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *o->arrived, "the order of gradients", &o->arrived));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *o->has_arrived, "the order of gradients", &o->has_arrived));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *o->active, "the order of gradients", &o->active));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *o->next, "the order of gradients", &o->next));
    o->count = count;
    for (size_t i = 0; i < count; i++)
        o->expected[i] = (uint32_t)(count - 1 - i);
    return ZOFF_OK;
}

zoff_status zoff_speculation_open(zoff_speculation *s, size_t places, size_t group_count, size_t bucket_count)
{
    *s = (zoff_speculation){.places = places, .group_count = group_count};
    ZOFF_TRY(zoff_base_mem_alloc(2 * group_count, sizeof *s->consts, "constants of groups", &s->consts));
    ZOFF_TRY(zoff_base_mem_alloc(group_count, sizeof *s->terms.hyper, "hyper-parameters of groups", &s->terms.hyper));
    ZOFF_TRY(open_order(&s->order, bucket_count));
    zoff_speculation_list(s);
    return ZOFF_OK;
}

void zoff_speculation_close(zoff_speculation *s)
{
    zoff_base_mem_free(s->consts);
    zoff_base_mem_free(s->terms.hyper);
    zoff_base_mem_free(s->order.expected);
    zoff_base_mem_free(s->order.arrived);
    zoff_base_mem_free(s->order.has_arrived);
    zoff_base_mem_free(s->order.active);
    zoff_base_mem_free(s->order.next);
    *s = (zoff_speculation){.places = 0};
}

void zoff_speculation_assume(zoff_speculation *s, const zoff_adam_consts *consts)
{
    memcpy(s->consts, consts, 2 * s->group_count * sizeof *consts);
}

bool zoff_speculation_holds(const zoff_speculation *s, const zoff_adam_consts *consts)
{
    return memcmp(s->consts, consts, 2 * s->group_count * sizeof *consts) == 0;
}

void zoff_speculation_end(zoff_speculation *s)
{
    zoff_speculation_order *o = &s->order;
    if (o->arrived_count) {
        for (size_t i = 0; i < o->count; i++) /* buckets that did not arrive are expected last */
            zoff_speculation_note_arrival(s, o->expected[i]);
        memcpy(o->expected, o->arrived, o->count * sizeof *o->expected);
        memset(o->has_arrived, 0, o->count * sizeof *o->has_arrived);
    }
    o->arrived_count = o->heard = o->entered = o->measured = o->active_count = o->turn = 0;
    zoff_speculation_list(s);
    s->is_begun = s->is_over = s->in_step = s->terms.is_said = false;
}

enum { RESTLESS = 2 }; /* steps in a row that must not clip, after one that clips, before a step is updated ahead again */

void zoff_speculation_note_step(zoff_speculation *s, bool clipped, bool skipped)
{
    if (clipped)
        s->restless = RESTLESS;
    else if (!skipped && s->restless)
        s->restless--;
}

bool zoff_speculation_is_likely(const zoff_speculation *s)
{
    return s->places && !s->restless;
}

void zoff_speculation_note_arrival(zoff_speculation *s, size_t bucket)
{
    zoff_speculation_order *o = &s->order;
    if (o->has_arrived[bucket])
        return;
    o->has_arrived[bucket] = true;
    o->arrived[o->arrived_count++] = (uint32_t)bucket;
}

void zoff_speculation_list(zoff_speculation *s)
{
    s->order.first = 0;
    for (size_t k = 0; k < s->order.count; k++)
        s->order.next[k] = (uint32_t)(k + 1);
}

size_t zoff_speculation_expected(const zoff_speculation *s, size_t position)
{
    return s->order.expected[position];
}
