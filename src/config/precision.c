/* precision.c: checks fp16 and bf16: only one may be enabled, and the loss scale must be valid. If fp16 is off, the other keys
 * of fp16 are not checked, as in DeepSpeed. */
#include "config_priv.h"
#include "try.h"

#include <float.h>

static bool is_on(const zoff_config_cell *cell)
{
    return cell->kind == ZOFF_CELL_VALUE && cell->integer;
}

zoff_status zoff_config_precision_check_pair(const zoff_config_cell *fp16, const zoff_config_cell *bf16)
{
    ZOFF_FAIL_IF(is_on(fp16) && is_on(bf16), ZOFF_ERR_INVALID,
                 "%s: fp16.enabled: bf16.enabled is true too, at %s; expected one of the two", fp16->source, bf16->source);
    return ZOFF_OK;
}

zoff_status zoff_config_precision_check(const zoff_config *config)
{
    static const char *const AT_LEAST_1[] = {"fp16.loss_scale_window", "fp16.hysteresis", "fp16.min_loss_scale"};
    const zoff_config_cell *fp16 = zoff_config_cells_find(config, "fp16.enabled");
    const zoff_config_cell *scale = zoff_config_cells_find(config, "fp16.loss_scale");
    ZOFF_TRY(zoff_config_precision_check_pair(fp16, zoff_config_cells_find(config, "bf16.enabled")));
    if (!is_on(fp16))
        return ZOFF_OK;
    /* Gradients are multiplied by the inverse of the scale, in fp32. */
    ZOFF_FAIL_IF(
        scale->number != 0 && !(scale->number >= (double)FLT_MIN && scale->number <= (double)FLT_MAX), ZOFF_ERR_INVALID,
        "%s: fp16.loss_scale: %g is beyond fp32, in which steps are computed; expected a number from 2e-38 to 3e38, or 0 "
        "for a dynamic one",
        zoff_config_cells_source(scale), scale->number);
    for (size_t i = 0; scale->number == 0 && i < sizeof AT_LEAST_1 / sizeof AT_LEAST_1[0]; i++) {
        const zoff_config_cell *cell = zoff_config_cells_find(config, AT_LEAST_1[i]);
        ZOFF_FAIL_IF(cell->integer < 1, ZOFF_ERR_INVALID,
                     "%s: %s: %lld is out of range; expected an integer >= 1, because fp16.loss_scale is 0: dynamic",
                     zoff_config_cells_source(cell), AT_LEAST_1[i], (long long)cell->integer);
    }
    return ZOFF_OK;
}
