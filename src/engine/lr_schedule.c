/* lr_schedule.c: WarmupLR and WarmupCosineLR as DeepSpeed defines them. Its schedulers are stepped after each update and start
 * before the first one, so update number t sees iteration t - 2, and the first one the value "before the start". */
#include "engine_priv.h"

#include <math.h>

/* Share of the warm-up that is done at iteration i < warmup: 0 .. 1. */
static double warmup_share(const zoff_schedule_values *s, double i)
{
    return s->linear ? i / (double)s->warmup : log(i + 1.0) / log((double)s->warmup);
}

static double warmup(const zoff_schedule_values *s, double group_lr, int64_t i)
{
    double top = s->max_lr < 0 ? group_lr : s->max_lr;
    if (i < 0)
        return s->min_lr;
    double share = (uint64_t)i < s->warmup ? warmup_share(s, (double)i) : 1.0;
    return s->min_lr + (top - s->min_lr) * share;
}

static double cosine(const zoff_schedule_values *s, double group_lr, int64_t i)
{
    if (i < 0)
        return 0.0;
    if ((uint64_t)i < s->warmup)
        return group_lr * (s->min_ratio + (1.0 - s->min_ratio) * warmup_share(s, (double)i));
    double length = s->total > s->warmup ? (double)(s->total - s->warmup) : 1.0;
    double progress = fmin(1.0, ((double)i - (double)s->warmup + 1.0) / length);
    double ratio = s->cos_ratio + (1.0 - s->cos_ratio) * (1.0 + cos(M_PI * progress)) / 2.0;
    return group_lr * fmax(0.0, ratio);
}

double zoff_engine_lr_schedule_at(const zoff_schedule_values *schedule, double group_lr, int64_t t)
{
    switch (schedule->type) {
    case ZOFF_SCHEDULE_WARMUP:
        return warmup(schedule, group_lr, t - 2);
    case ZOFF_SCHEDULE_WARMUP_COSINE:
        return cosine(schedule, group_lr, t - 2);
    case ZOFF_SCHEDULE_NONE:
        break;
    }
    return group_lr;
}
