/* SPDX-License-Identifier: Apache-2.0 */
// fp16_engine.h: the smallest engine with fp16.enabled that shows the effects of its loss scale.
#ifndef ZOFF_FP16_ENGINE_H
#define ZOFF_FP16_ENGINE_H

#include "small_engine.h"

#include <math.h>

namespace zoff_test
{
inline std::string fp16_text(const std::string &keys, unsigned accumulation = 1, const std::string &more = "")
{
    return config_text("", accumulation, ", \"fp16\": {\"enabled\": true" + (keys.empty() ? "" : ", " + keys) + "}" + more);
}

inline zoff_loss_scaler new_scaler()
{
    zoff_loss_scaler s = {};
    s.struct_size = sizeof s;
    return s;
}

// Three half-precision weights with fp32 gradients, finite or not.
struct tiny {
    tiny(const std::string &text) : t(1)
    {
        t.add(3, 1, ZOFF_F16, ZOFF_F32);
        e = seal_engine(t, text);
    }
    zoff_status step(bool overflow, zoff_step_info *info = nullptr)
    {
        trainer::put(t.grad(0), ZOFF_F32, 1, overflow ? INFINITY : 1.0f);
        return zoff_step(e.get(), nullptr, info);
    }
    double scale() const
    {
        double out = 0;
        EXPECT_ZOFF_OK(zoff_loss_scale(e.get(), &out));
        return out;
    }
    zoff_loss_scaler scaler() const
    {
        zoff_loss_scaler s = new_scaler();
        EXPECT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &s));
        return s;
    }
    trainer t;
    engine e;
};
} // namespace zoff_test

#endif
