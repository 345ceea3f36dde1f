/* tune_run.c: one sample: keep blocks in flight for a while, and measure the time until the last one completes. */
#include "tune_priv.h"

#include "clock.h"
#include "try.h"

typedef struct slot {
    uint64_t ticket;
    bool busy;
} slot;

typedef struct sample {
    zoff_aio_tuner *tuner;
    const zoff_aio_tune_way *way;
    double seconds, start;
    uint64_t limit; /* bytes; 0: none */
    uint64_t begun, done;
    slot slots[ZOFF_AIO_TUNE_DEPTH_MOST];
} sample;

/* Each direction walks through the file; they start half of it apart. */
static uint64_t next_offset(uint64_t *at, uint64_t extent, size_t block)
{
    uint64_t offset = *at + block <= extent ? *at : 0;
    *at = offset + block;
    return offset;
}

static zoff_status begin(sample *s, unsigned i)
{
    zoff_aio_tuner *t = s->tuner;
    size_t block = s->way->block;
    char *memory = t->memory + i * block;
    bool writes = s->way->writes && (!s->way->reads || i % 2);
    if (writes)
        ZOFF_TRY(zoff_aio_write(t->q, next_offset(&t->write_at, t->extent, block), block, memory, &s->slots[i].ticket));
    else
        ZOFF_TRY(zoff_aio_read(t->q, next_offset(&t->read_at, t->extent, block), block, memory, &s->slots[i].ticket));
    s->slots[i].busy = true;
    s->begun += block;
    return ZOFF_OK;
}

/* Whether to stop: early enough that transfers in flight complete in time. */
static bool is_over(const sample *s)
{
    const size_t block = s->way->block;
    double in_flight = s->tuner->rate > 0 ? (double)(s->begun - s->done) / s->tuner->rate : 0;
    if (s->limit && s->begun + block > s->limit)
        return true;
    return s->begun >= s->way->depth * block && zoff_base_clock_seconds() - s->start + in_flight >= s->seconds;
}

/* Visit each place once: collect what has completed, submit the next. */
static zoff_status turn(sample *s, bool *out_busy)
{
    *out_busy = false;
    for (unsigned i = 0; i < s->way->depth; i++) {
        if (s->slots[i].busy) {
            zoff_status status = zoff_aio_poll(s->tuner->q, s->slots[i].ticket);
            if (status < 0)
                return status;
            s->slots[i].busy = status == ZOFF_PENDING;
            s->done += status == ZOFF_OK ? s->way->block : 0;
        }
        if (!s->slots[i].busy && !is_over(s))
            ZOFF_TRY(begin(s, i));
        *out_busy = *out_busy || s->slots[i].busy;
    }
    return ZOFF_OK;
}

zoff_status zoff_aio_tune_run(zoff_aio_tuner *tuner, const zoff_aio_tune_way *way, double seconds, uint64_t bytes,
                              double *out_rate, uint64_t *out_moved)
{
    sample s = {.tuner = tuner, .way = way, .seconds = seconds, .limit = bytes, .start = zoff_base_clock_seconds()};
    bool busy = true;
    while (busy) {
        ZOFF_TRY(turn(&s, &busy));
        if (busy)
            ZOFF_TRY(zoff_aio_wait_any(tuner->q));
    }
    double passed = zoff_base_clock_seconds() - s.start;
    *out_rate = (double)s.done / (passed > 1e-9 ? passed : 1e-9);
    tuner->rate = *out_rate;
    if (out_moved)
        *out_moved = s.done;
    return ZOFF_OK;
}
