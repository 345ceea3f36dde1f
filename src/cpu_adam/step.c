/* step.c: the public Adam step on one tensor: every argument checked, then one piece for the team. */
#include "walk.h"

#include "bits.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Bytes of the struct when it was first published: no caller has less. Zero is the default of every field. */
enum { FIRST_BYTES = 72 };
_Static_assert(sizeof(zoff_adam_tensor) == FIRST_BYTES, "a new field: read it in zoff_adam_step(), and keep FIRST_BYTES");

static zoff_status check_tensor(const zoff_adam_tensor *tensor)
{
    const struct {
        const char *name;
        const void *array;
    } arrays[] = {{"master", tensor->master}, {"m", tensor->m}, {"v", tensor->v}, {"grad", tensor->grad}};
    for (size_t i = 0; tensor->count && i < sizeof arrays / sizeof arrays[0]; i++) {
        ZOFF_FAIL_IF(!arrays[i].array, ZOFF_ERR_INVALID, "zoff_adam_tensor.%s is NULL, but count is %zu", arrays[i].name,
                     tensor->count);
    }
    size_t bytes;
    ZOFF_FAIL_IF(!zoff_base_bits_mul(tensor->count, sizeof(float), &bytes), ZOFF_ERR_INVALID,
                 "zoff_adam_tensor.count is %zu: more elements than memory can hold", tensor->count);
    ZOFF_FAIL_IF(tensor->grad_dtype != ZOFF_DTYPE_DEFAULT && tensor->grad_dtype != ZOFF_F32 && tensor->grad_dtype != ZOFF_BF16,
                 ZOFF_ERR_INVALID, "zoff_adam_tensor.grad_dtype is %d (%s); use ZOFF_F32 or ZOFF_BF16", (int)tensor->grad_dtype,
                 zoff_adam_dtype_name(tensor->grad_dtype));
    ZOFF_FAIL_IF(tensor->copy_out && tensor->copy_dtype != ZOFF_DTYPE_DEFAULT && tensor->copy_dtype != ZOFF_BF16,
                 ZOFF_ERR_INVALID, "zoff_adam_tensor.copy_dtype is %d (%s); use ZOFF_BF16", (int)tensor->copy_dtype,
                 zoff_adam_dtype_name(tensor->copy_dtype));
    return ZOFF_OK;
}

zoff_status zoff_adam_step(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, const zoff_adam_tensor *tensor)
{
    ZOFF_TRY(zoff_adam_hyper_check(hyper, t));
    ZOFF_FAIL_IF(!(fabs(grad_scale) <= (double)FLT_MAX), ZOFF_ERR_INVALID, "grad_scale is %g; it must be finite in fp32",
                 grad_scale);
    ZOFF_FAIL_IF(!tensor, ZOFF_ERR_INVALID, "the tensor is NULL");
    ZOFF_FAIL_IF(tensor->struct_size < FIRST_BYTES, ZOFF_ERR_INVALID,
                 "zoff_adam_tensor.struct_size is %zu; set it to sizeof(zoff_adam_tensor)", tensor->struct_size);
    zoff_adam_tensor full = {0};
    memcpy(&full, tensor, zoff_base_bits_min(tensor->struct_size, sizeof full));
    ZOFF_TRY(check_tensor(&full));

    zoff_adam_consts consts;
    zoff_adam_hyper_consts(hyper, t, grad_scale, &consts);
    const zoff_adam_piece piece = {
        .count = full.count,
        .master = full.master,
        .m = full.m,
        .v = full.v,
        .grad = full.grad,
        .copy_out = full.copy_out,
        .grad_dtype = full.grad_dtype ? full.grad_dtype : ZOFF_F32,
        .copy_dtype = ZOFF_BF16,
        .consts = &consts,
    };
    zoff_adam_update_run(zoff_adam_dispatch_threads(), &piece, 1, NULL, NULL);
    return ZOFF_OK;
}
