/* units.c: the units of a save: where their bytes come from and go to, buffers for copies, and the copies that wait. */
#include "checkpoint_priv.h"

const zoff_save_source *zoff_checkpoint_units_source(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->sources[unit->source];
}

const zoff_archive_region *zoff_checkpoint_units_region(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->part.table.regions[zoff_checkpoint_units_source(s, unit)->region];
}

size_t zoff_checkpoint_units_bytes(const zoff_saver *s, const zoff_save_unit *unit)
{
    return zoff_archive_table_unit_bytes(zoff_checkpoint_units_region(s, unit), unit->number);
}

uint64_t *zoff_checkpoint_units_checksum(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->part.table.checksums[zoff_checkpoint_units_region(s, unit)->first_checksum + unit->number];
}

char *zoff_checkpoint_units_take_buffer(zoff_save_buffers *b)
{
    return b->free_count ? b->free[--b->free_count] : NULL;
}

void zoff_checkpoint_units_give_buffer(zoff_save_buffers *b, char *buffer)
{
    if (buffer)
        b->free[b->free_count++] = buffer;
}

bool zoff_checkpoint_units_idle(const zoff_saver *s)
{
    return s->work.status < 0 || s->work.is_over;
}

/* ---- copies that a step has made, oldest first ---- */

void zoff_checkpoint_units_add_copy(zoff_save_work *w, zoff_save_unit *unit)
{
    unit->state = ZOFF_UNIT_COPIED;
    unit->next_copy = NULL;
    *(w->last_copy ? &w->last_copy->next_copy : &w->first_copy) = unit;
    w->last_copy = unit;
}

void zoff_checkpoint_units_take_copy(zoff_save_work *w)
{
    w->first_copy->state = ZOFF_UNIT_SAFE;
    w->first_copy = w->first_copy->next_copy;
    w->last_copy = w->first_copy ? w->last_copy : NULL;
}
