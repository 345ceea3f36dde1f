/* SPDX-License-Identifier: Apache-2.0 */
// sgd_engine.h: an engine of plain SGD at rate 1 without clipping, so that tests can compute its steps by hand.
#ifndef ZOFF_SGD_ENGINE_H
#define ZOFF_SGD_ENGINE_H

#include "small_engine.h"

namespace zoff_test
{
// fp32 weights without a gradient.
inline zoff_param_desc described(float *value, size_t count)
{
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.value = value;
    d.count = count;
    return d;
}

inline const char SGD[] = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1.0}}, \"gradient_clipping\": 0";

// An engine of plain SGD over parameters of the test's, whose gradients have their type.
class sgd_engine : public testing::Test
{
  protected:
    zoff_param add(float *value, float *grad, size_t count, const char *name)
    {
        zoff_param_desc d = described(value, count);
        zoff_param p = 0;
        d.grad = grad;
        d.name = name;
        EXPECT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &p));
        return p;
    }
    void make(const std::string &more = "")
    {
        zoff_config *settings = nullptr;
        zoff_engine *e = nullptr;
        zoff_engine_opts opts = {};
        const std::string text = SGD + more + "}";
        ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &settings));
        opts.struct_size = sizeof opts;
        opts.config = settings;
        opts.threads = 1;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &e));
        zoff_config_close(settings);
        made = engine(e);
    }
    zoff_status step(zoff_step_info *info, double clip_norm = 0, double grad_scale = 0)
    {
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.clip_norm = clip_norm;
        args.grad_scale = grad_scale;
        return zoff_step(made.get(), &args, info);
    }
    engine made;
    log_catcher log;
};
} // namespace zoff_test

#endif
