/* SPDX-License-Identifier: Apache-2.0 */
// train.cc: the trainer of README.md in C++.
#include <cstdio>
#include <exception>
#include <zoff/zoff.hpp>

int main(int argc, char **argv) // train [ds_config [ranks]]
try {
    float weight[2] = {0, 0}, grad[2] = {0, 0};
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config_path = argc > 1 ? argv[1] : nullptr; // nullptr: AdamW, lr 1e-3, no clipping, DRAM
    opts.ranks = argc > 2 ? argv[2] : nullptr;       // nullptr: this process alone
    zoff::engine engine(opts, {zoff::param("line", weight, grad)});
    const std::int64_t first = engine.step_count(); // after a crash: the last complete step, if states persist
    if (first > 0)
        engine.push(); // set the weights from the states
    for (std::int64_t t = first; t < 2000; t++) {
        const float x = static_cast<float>(t % 4) - 1, error = weight[0] * x + weight[1] - (0.5f * x - 0.25f);
        grad[0] = error * x, grad[1] = error;
        engine.step(); // reads grad, updates weight
    }
    std::printf("after step %d: y = %.2f x %+.2f\n", static_cast<int>(first), static_cast<double>(weight[0]),
                static_cast<double>(weight[1]));
} catch (const std::exception &error) { // with the text of zoff_last_error()
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
