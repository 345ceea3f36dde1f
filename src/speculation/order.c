/* order.c: whether speculation pays, and in which order the gradients of buckets become complete. */
#include "speculation.h"

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
