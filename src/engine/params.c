/* params.c: what the program says about its parameters, their groups and the loss scale. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_engine_add_param(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !desc, ZOFF_ERR_INVALID, "zoff_engine_add_param: engine and desc must not be NULL");
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_BUILDING, ZOFF_ERR_STATE,
                 "zoff_engine_add_param: the engine is sealed; add all parameters before zoff_engine_seal()");
    ZOFF_FAIL_IF(desc->struct_size == 0, ZOFF_ERR_INVALID,
                 "zoff_engine_add_param: desc->struct_size is 0; set it to sizeof(zoff_param_desc)");
    zoff_param_desc known = {0};
    memcpy(&known, desc, zoff_base_bits_min(desc->struct_size, sizeof known));
    ZOFF_FAIL_IF(known.engine_owned && !e->model.in_place, ZOFF_ERR_UNSUPPORTED,
                 "%s: weights on accelerator \"%s\" are the program's; engine_owned is for the host",
                 known.name ? known.name : "zoff_engine_add_param", zoff_accel_name(e->accel));
    ZOFF_TRY(zoff_model_params_add(&e->model, &known, out));
    const zoff_model_param *p = &e->model.params[e->model.param_count - 1];
    zoff_engine_identity_add(e, p->name, p->count * p->slices);
    return ZOFF_OK;
}

zoff_status zoff_engine_set_group(zoff_engine *e, unsigned group, const zoff_adam_hyper *hyper)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !hyper, ZOFF_ERR_INVALID, "zoff_engine_set_group: engine and hyper must not be NULL");
    ZOFF_FAIL_IF(e->phase > ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "zoff_engine_set_group: %s", zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(e->phase == ZOFF_PHASE_IDLE && group >= e->model.group_count, ZOFF_ERR_INVALID,
                 "zoff_engine_set_group: no parameter is in group %u", group);
    ZOFF_FAIL_IF(hyper->struct_size == 0, ZOFF_ERR_INVALID,
                 "zoff_engine_set_group: hyper->struct_size is 0; use zoff_adam_hyper_init()");
    return zoff_model_groups_set(&e->model, group, hyper, "zoff_engine_set_group");
}

zoff_status zoff_loss_scale(const zoff_engine *e, double *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_loss_scale: engine and out must not be NULL");
    *out = e->model.scaler.scale;
    return ZOFF_OK;
}

zoff_status zoff_loss_scaler_get(const zoff_engine *e, zoff_loss_scaler *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_loss_scaler_get: engine and out must not be NULL");
    const size_t size = out->struct_size;
    ZOFF_FAIL_IF(size == 0, ZOFF_ERR_INVALID,
                 "zoff_loss_scaler_get: out->struct_size is 0; set it to sizeof(zoff_loss_scaler)");
    memcpy(out, &e->model.scaler, zoff_base_bits_min(size, sizeof e->model.scaler));
    out->struct_size = size;
    return ZOFF_OK;
}

zoff_status zoff_loss_scaler_set(zoff_engine *e, const zoff_loss_scaler *scaler)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !scaler, ZOFF_ERR_INVALID, "zoff_loss_scaler_set: engine and scaler must not be NULL");
    ZOFF_FAIL_IF(scaler->struct_size == 0, ZOFF_ERR_INVALID,
                 "zoff_loss_scaler_set: scaler->struct_size is 0; set it to sizeof(zoff_loss_scaler)");
    if (e->phase != ZOFF_PHASE_BUILDING)
        ZOFF_TRY(zoff_engine_phase_check_whole(e, "zoff_loss_scaler_set"));
    return zoff_model_loss_scale_set(&e->model, scaler);
}
