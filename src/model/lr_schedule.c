/* SPDX-License-Identifier: Apache-2.0 */
/* lr_schedule.c: learning-rate schedules with the formulas of DeepSpeed. Its schedulers begin at iteration -1 and advance after
 * each update, so update number t uses iteration t - 2. Iteration -1 has the value "before the start". */
#include "zoff_model.h"

#include <math.h>

/* Fraction of the warm-up that is done at iteration i < warmup, from 0 to 1. */
static double warmup_share(const zoff_schedule_values *s, double i)
{
    return s->linear ? i / (double)s->warmup : log(i + 1.0) * (1.0 / log((double)s->warmup));
}

static double warmup(const zoff_schedule_values *s, double group_lr, int64_t i)
{
    double top = s->max_lr < 0 ? group_lr : s->max_lr, share = 1.0;
    if (i < 0)
        return s->min_lr;
    if ((uint64_t)i < s->warmup)
        share = warmup_share(s, (double)i);
    else if (s->type == ZOFF_SCHEDULE_WARMUP_DECAY)
        share = fmax(0.0, ((double)s->total - (double)i) / fmax(1.0, (double)s->total - (double)s->warmup));
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

/* Position in the cycle at iteration i: 0 at both ends, 1 at the top. */
static double height(const zoff_cycle_values *c, int64_t i)
{
    const double steps = (double)(i + 1), length = c->first + c->second, ratio = c->first / length;
    const double x = 1.0 + steps / length - floor(1.0 + steps / length);
    const bool rises = x <= ratio;
    const double stairs = rises ? c->first_stairs : c->second_stairs;
    if (stairs == 0)
        return rises ? x / ratio : (x - 1.0) / (ratio - 1.0);
    /* Stairs are computed from whole steps, because a quotient could be rounded to just below an integer. */
    const double at = fmod(steps, length);
    return floor(at <= c->first ? at * stairs / c->first : (length - at) * stairs / c->second) / stairs;
}

/* 1 + rate per interval since the end of the cycle; 1: no decay. */
static double decay(const zoff_cycle_values *c, double rate, int64_t i)
{
    return c->decay_step == 0 ? 1.0 : 1.0 + rate * (((double)i - (c->first + c->second) + 1.0) / c->decay_step);
}

static bool is_over(const zoff_cycle_values *c, int64_t i)
{
    return (double)i >= c->first + c->second;
}

static double cycle(const zoff_cycle_values *c, int64_t i)
{
    return is_over(c, i) ? c->min_lr / decay(c, c->lr_rate, i) : c->min_lr + (c->max_lr - c->min_lr) * height(c, i);
}

/* DeepSpeed's Muon hides its betas from schedules, so no cycle moves them. */
static void cycle_betas(const zoff_cycle_values *c, int64_t i, zoff_optimizer_hyper *h)
{
    if (!c->moves_momentum || (h->optimizer != ZOFF_OPTIMIZER_ADAM && h->optimizer != ZOFF_OPTIMIZER_LION))
        return;
    h->beta1 = i < 0           ? c->min_momentum
               : is_over(c, i) ? c->max_momentum * decay(c, c->momentum_rate, i)
                               : c->max_momentum - (c->max_momentum - c->min_momentum) * height(c, i);
    h->beta2 = 0.99;
}

static double range_test(const zoff_range_test_values *r, int64_t i)
{
    const double intervals = (double)(i + 1) / r->step;
    return r->min_lr * (1.0 + r->rate * (r->stairs ? floor(intervals) : intervals));
}

bool zoff_model_lr_schedule_uses_lr(const zoff_schedule_values *schedule)
{
    const bool warms_up = schedule->type == ZOFF_SCHEDULE_WARMUP || schedule->type == ZOFF_SCHEDULE_WARMUP_DECAY;
    return schedule->type == ZOFF_SCHEDULE_NONE || schedule->type == ZOFF_SCHEDULE_WARMUP_COSINE ||
           (warms_up && schedule->max_lr < 0);
}

/* The rate at iteration i, where the group's own is `lr`. */
static double rate(const zoff_schedule_values *schedule, double lr, int64_t i)
{
    switch (schedule->type) {
    case ZOFF_SCHEDULE_WARMUP:
    case ZOFF_SCHEDULE_WARMUP_DECAY:
        return warmup(schedule, lr, i);
    case ZOFF_SCHEDULE_WARMUP_COSINE:
        return cosine(schedule, lr, i);
    case ZOFF_SCHEDULE_ONE_CYCLE:
        return cycle(&schedule->cycle, i);
    case ZOFF_SCHEDULE_RANGE_TEST:
        return range_test(&schedule->range_test, i);
    case ZOFF_SCHEDULE_NONE:
        break;
    }
    return lr;
}

void zoff_model_lr_schedule_apply(const zoff_schedule_values *schedule, int64_t t, zoff_optimizer_hyper *h)
{
    const int64_t i = t - 2;
    h->lr = rate(schedule, h->lr, i);
    if (zoff_adam_matrix_rules_of(h))
        h->adam_lr = rate(schedule, h->adam_lr, i);
    if (schedule->type == ZOFF_SCHEDULE_ONE_CYCLE)
        cycle_betas(&schedule->cycle, i, h);
}
