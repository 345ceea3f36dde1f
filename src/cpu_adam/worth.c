/* SPDX-License-Identifier: Apache-2.0 */
/* worth.c: how many elements make a team faster than one thread. The cost of waking a team depends on the number of threads, on
 * how they wait and where a hypervisor has placed them: from half a microsecond to sixty. The gain depends on the kernels. Both
 * are measured. */
#include "worth.h"

#include "bits.h"
#include "clock.h"
#include "team.h"

enum { SAMPLE = 1024, TRIES = 5 };

typedef struct sample {
    const struct zoff_kernels *kernels;
    zoff_adam_piece piece;
    double seconds; /* seconds for one element, the best of a few tries */
} sample;

static void measure(void *ctx, unsigned thread, unsigned threads)
{
    sample *s = ctx;
    s->kernels->update(&s->piece, 0, SAMPLE); /* load the data into the cache */
    for (int i = 0; i < TRIES; i++) {
        const double start = zoff_base_clock_seconds();
        s->kernels->update(&s->piece, 0, SAMPLE);
        const double seconds = (zoff_base_clock_seconds() - start) / SAMPLE;
        s->seconds = i == 0 || seconds < s->seconds ? seconds : s->seconds;
    }
}

/* Seconds for an element of an fp32 AdamW step whose data is in the cache. */
static double element_seconds(const struct zoff_kernels *kernels)
{
    float p[SAMPLE], m[SAMPLE], v[SAMPLE], g[SAMPLE];
    zoff_optimizer_hyper hyper;
    zoff_adam_consts consts;
    zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_ADAM);
    hyper.weight_decay = 0.01;
    zoff_adam_hyper_consts(&hyper, 1, 1, &consts);
    for (size_t i = 0; i < SAMPLE; i++) {
        p[i] = g[i] = 0.5f;
        m[i] = v[i] = 0.25f;
    }
    sample s = {.kernels = kernels,
                .piece = {.count = SAMPLE, .master = p, .m = m, .v = v, .grad = g, .grad_dtype = ZOFF_F32, .consts = &consts}};
    zoff_base_team_run(1, measure, &s);
    return s.seconds;
}

zoff_worth zoff_adam_worth_measure(const struct zoff_kernels *kernels, unsigned threads)
{
    const double start = zoff_base_clock_seconds();
    const double region = zoff_base_team_region_seconds(threads);
    const double element = region > 0 ? element_seconds(kernels) : 0;
    if (region <= 0 || element <= 0)
        return (zoff_worth){.from = ZOFF_WORTH_ASLEEP_MOST / 2, .good = ZOFF_WORTH_ASLEEP_MOST};
    /* The threads also fetch their data from the caller's core, which takes about half as long as waking them. */
    const double from = 1.5 * region / (element * (threads - 1) / threads);
    return (zoff_worth){
        .from = from >= ZOFF_WORTH_ASLEEP_MOST ? ZOFF_WORTH_ASLEEP_MOST : zoff_base_bits_max((size_t)from, ZOFF_WORTH_LEAST),
        .good = (size_t)(100 * (zoff_base_clock_seconds() - start) / element),
    };
}
