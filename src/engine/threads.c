/* threads.c: how many threads work on a bucket.
 *
 * If a step waits for the disk, more threads than needed to keep up with it make nothing faster. They make it slower. Each
 * bucket finds them asleep, because the caller has waited in between. Or they spin on the CPU on which the disk's interrupt
 * woke the caller. So an update uses as many threads as the last step had work for. */
#include "engine_priv.h"

#include "bits.h"

unsigned zoff_engine_threads_of_update(const zoff_engine *e)
{
    return e->threads.update ? e->threads.update : e->settings.threads;
}

unsigned zoff_engine_threads_enough(double worked, double waited, unsigned used, unsigned most)
{
    const double busy = 2.0 / 3; /* share of the step's time: so much work still overlaps with the disk */
    const double room = busy * (worked + waited);
    if (!(room > 0))
        return used;
    const double wanted = worked * used / room;
    return wanted < most ? 1 + (unsigned)wanted : most;
}

/* Measuring overlaps with nothing: the step waits for the last gradient before it uses the first state. With many cores, all
 * threads are faster. With two, where one thread updates, the other must be woken for each bucket; that was five times slower.
 * So both are tried, and the slower one again from time to time. */
void zoff_engine_threads_choose(zoff_measure_threads *m, double seconds)
{
    enum { AGAIN = 50 }; /* steps */
    m->seconds[m->few] = seconds;
    if (m->seconds[!m->few] == 0 || ++m->steps >= AGAIN) {
        m->few = !m->few;
        m->steps = 0;
    } else {
        m->few = m->seconds[1] < m->seconds[0];
    }
}

unsigned zoff_engine_threads_of_measure(const zoff_engine *e)
{
    if (e->threads.in_progress)
        return 1;
    return e->threads.measure.few ? zoff_engine_threads_of_update(e) : e->settings.threads;
}

void zoff_engine_threads_learn(zoff_engine *e)
{
    const zoff_step_info *info = &e->run.info;
    if (!zoff_offload_store_overlaps(e->store) || info->outcome != ZOFF_OUTCOME_AFTER)
        return;
    if (zoff_engine_threads_of_update(e) < e->settings.threads)
        zoff_engine_threads_choose(&e->threads.measure, info->seconds.measure);
    e->threads.update = zoff_engine_threads_enough(info->seconds.update + info->seconds.checksum, info->seconds.io_wait,
                                                   zoff_engine_threads_of_update(e), e->settings.threads);
    zoff_engine_stores_set_threads(e, e->threads.update);
}
