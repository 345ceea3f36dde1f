/* SPDX-License-Identifier: Apache-2.0 */
// small_model.h: a list of parameters with its plan, as in an engine, but without the engine. Tests set the configuration
// values that they need.
#ifndef ZOFF_SMALL_MODEL_H
#define ZOFF_SMALL_MODEL_H

#include "zoff_test.h"

extern "C" {
#include "zoff_model.h"
}

namespace zoff_test
{
inline zoff_param_desc describe(const char *name, size_t count, size_t slices = 1)
{
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.name = name;
    d.count = count;
    d.slices = slices;
    return d;
}

struct small_model {
    small_model()
    {
        zoff_optimizer_hyper_init(&values.hyper, ZOFF_OPTIMIZER_ADAM);
        m.values = &values;
        m.in_place = true;
    }
    ~small_model()
    {
        zoff_model_slices_close(&m);
        zoff_model_ties_dissolve(&m);
        zoff_model_params_free(&m);
        zoff_zero_plan_free(&plan);
    }
    small_model(const small_model &) = delete;

    // A name that another parameter has is left out.
    zoff_param add(zoff_param_desc d)
    {
        zoff_param p = UINT32_MAX;
        d.name = d.name && zoff_model_params_find(&m, d.name) ? nullptr : d.name;
        EXPECT_ZOFF_OK(zoff_model_params_add(&m, &d, &p));
        return p;
    }

    // Cut the list at multiples of 16 elements.
    void make_plan(size_t chunk_elements, unsigned rank = 0, unsigned ranks = 1, bool replicated = false)
    {
        std::vector<zoff_plan_tensor> tensors;
        for (size_t i = 0; i < m.param_count; i++)
            tensors.push_back(zoff_model_params_tensor(&m, &m.params[i]));
        zoff_plan_opts opts = {};
        opts.unit = ZOFF_PLAN_PAD;
        opts.max_chunk_elements = chunk_elements;
        opts.max_chunk_bytes = SIZE_MAX / 4;
        opts.rank = rank;
        opts.ranks = ranks;
        opts.replicated = replicated;
        zoff_zero_plan_free(&plan);
        plan = {};
        ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), tensors.size(), &opts, &plan));
    }

    zoff_config_values values = {};
    zoff_model m = {};
    zoff_plan plan = {};
};
} // namespace zoff_test

#endif
