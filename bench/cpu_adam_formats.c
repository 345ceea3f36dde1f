/* cpu_adam_formats.c: a step with masters in two halves, or with moments in bf16, which no public function makes on plain
 * arrays: this file looks into the library. */
#include "cpu_adam_bench.h"

#include "cpu_adam.h"

void bench_step_format(bench_format format, const nomath_streams *s, size_t count, unsigned threads,
                       const zoff_optimizer_hyper *hyper)
{
    const bool splits = format != FORMAT_MOMENTS, halves = format != FORMAT_SPLIT;
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(hyper, BENCH_T, 0.5, &consts);
    zoff_adam_piece piece = {.count = count,
                             .master = splits ? (void *)s->w16 : s->p,
                             .master_dtype = splits ? ZOFF_BF16 : ZOFF_F32,
                             .split = splits,
                             .m = halves ? (void *)s->m16 : s->m,
                             .v = halves ? (void *)s->v16 : s->v,
                             .moments = halves ? ZOFF_MOMENTS_BF16 : ZOFF_MOMENTS_F32,
                             .key = zoff_adam_dither_key("bench", 0, 0),
                             .grad = s->g16,
                             .grad_dtype = ZOFF_BF16,
                             .copy_out = splits ? s->low : s->w16,
                             .copy_dtype = ZOFF_BF16,
                             .consts = &consts};
    zoff_adam_update_run(threads, &piece, 1, NULL, NULL);
}
