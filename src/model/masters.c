/* SPDX-License-Identifier: Apache-2.0 */
/* masters.c: where the fp32 master of a parameter is: in its chunk, in the weights, or one half in each. The form changes no
 * number, so it may depend on where states are stored. A file that persists, and weights on a device, keep both halves of a
 * master together. */
#include "zoff_model.h"

static const zoff_master_form NONE = {.bytes = 0};
static const zoff_master_form STORED = {.bytes = sizeof(float)};
static const zoff_master_form WHOLE = {.in_weights = true, .is_whole = true};
static const zoff_master_form COPIED = {.bytes = sizeof(float), .in_weights = true, .is_whole = true};
static const zoff_master_form SPLIT = {.bytes = sizeof(uint16_t), .in_weights = true, .is_split = true};

const zoff_master_form *zoff_model_masters_of(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_config_values *v = m->values;
    if (p->frozen)
        return &NONE;
    if (p->dtype == ZOFF_F32 && m->in_place)
        return v->persist ? &COPIED : &WHOLE;
    return p->dtype == ZOFF_BF16 && m->in_place && !v->persist && !v->whole_masters ? &SPLIT : &STORED;
}

/* Weights that are the upper half of a master need no cast from it. */
bool zoff_model_masters_cast(const zoff_model *m, const zoff_model_param *p, void *weights, void *stored, bool to_master,
                             zoff_cast_piece *out)
{
    const zoff_master_form *form = zoff_model_masters_of(m, p);
    if (!form->bytes || (form->is_split && !to_master))
        return false;
    const zoff_cast_piece to = {.dst = stored, .src = weights, .dst_dtype = ZOFF_F32, .src_dtype = p->dtype};
    const zoff_cast_piece from = {.dst = weights, .src = stored, .dst_dtype = p->dtype, .src_dtype = ZOFF_F32};
    const zoff_cast_piece clear = {
        .dst = weights, .src = weights, .dst_dtype = ZOFF_BF16, .src_dtype = ZOFF_BF16, .low = stored};
    *out = form->is_split ? clear : to_master ? to : from;
    return true;
}
