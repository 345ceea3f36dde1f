/* cpu_adam_moments.c: a step with moments in bf16 (zoff.moments), which no public function makes on plain arrays: this file
 * looks into the library. */
#include "cpu_adam_bench.h"

#include "cpu_adam.h"

void bench_step_moments(const nomath_streams *s, size_t count, unsigned threads, const zoff_optimizer_hyper *hyper)
{
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(hyper, BENCH_T, 0.5, &consts);
    const zoff_adam_piece piece = {.count = count,
                                   .master = s->p,
                                   .m = s->m16,
                                   .v = s->v16,
                                   .moments = ZOFF_MOMENTS_BF16,
                                   .key = zoff_adam_dither_key("bench", 0, 0),
                                   .grad = s->g16,
                                   .grad_dtype = ZOFF_BF16,
                                   .copy_out = s->w16,
                                   .copy_dtype = ZOFF_BF16,
                                   .consts = &consts};
    zoff_adam_update_run(threads, &piece, 1, NULL, NULL);
}
