/* SPDX-License-Identifier: Apache-2.0 */
// torch_side.cc: zoff's side of torch_optimizers.py. Reads weights and gradients from a raw file, takes the steps with
// zoff_optimizer_step(), and writes the weights and states to another file. An engine whose masters are in two halves takes the
// same steps. Its masters and states must have the same bits, so what PyTorch says about the one holds for the other.
//
//   In:  double[14] count, steps, optimizer, lr, beta1, beta2, eps, weight_decay, decay, momentum, dampening, lr_decay,
//        nesterov, flags; float p[count]; float g[steps][count]
//   Out: float p[count], m[count], v[count]; a state that the optimizer does not have stays zero
#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>

#include <vector>

namespace
{
// bf16 weights, which are half of the masters, and fp32 gradients.
class split_engine
{
  public:
    split_engine(const zoff_optimizer_hyper &hyper, const std::vector<float> &masters, const std::vector<float> &grad)
        : weights(masters.size()), read(masters.size())
    {
        static const char TEXT[] = "{\"gradient_clipping\": 0, \"zoff\": {\"master\": \"split\", \"threads\": 1}}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        zoff_config *config = nullptr;
        zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
        desc.value = weights.data();
        desc.grad = const_cast<float *>(grad.data());
        desc.count = masters.size();
        desc.dtype = ZOFF_BF16;
        desc.grad_dtype = ZOFF_F32;
        good = zoff_config_open(nullptr, &config) == ZOFF_OK &&
               zoff_config_read_text(config, TEXT, sizeof TEXT - 1, "torch_side") == ZOFF_OK;
        opts.config = config;
        good = good && zoff_engine_create(&opts, &e) == ZOFF_OK && zoff_engine_add_param(e, &desc, nullptr) == ZOFF_OK &&
               zoff_engine_set_group(e, 0, &hyper) == ZOFF_OK && zoff_engine_seal(e) == ZOFF_OK &&
               zoff_state_write(e, 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()) == ZOFF_OK;
        zoff_config_close(config);
    }
    ~split_engine() { zoff_engine_destroy(e); }
    split_engine(const split_engine &) = delete;
    bool step() { return good && zoff_step(e, nullptr, nullptr) == ZOFF_OK; }
    bool is_split() const
    {
        zoff_plan_info with = ZOFF_PLAN_INFO_INIT;
        return zoff_engine_plan(e, &with) == ZOFF_OK && with.state_bytes % (4 * weights.size()) == 2 * weights.size();
    }
    bool has(zoff_state_kind kind, const std::vector<float> &want)
    {
        return zoff_state_read(e, 0, kind, 0, read.size(), read.data()) == ZOFF_OK &&
               memcmp(read.data(), want.data(), read.size() * sizeof(float)) == 0;
    }

  private:
    std::vector<uint16_t> weights;
    std::vector<float> read;
    zoff_engine *e = nullptr;
    bool good = false;
};
} // namespace

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : nullptr;
    FILE *out = argc == 3 ? fopen(argv[2], "wb") : nullptr;
    double head[14];
    if (!in || !out || fread(head, sizeof head, 1, in) != 1) {
        fprintf(stderr, "usage: torch_side IN OUT, with IN as torch_optimizers.py writes it\n");
        return 2;
    }
    const size_t count = (size_t)head[0];
    std::vector<float> p(count), m(count), v(count), g(count);
    zoff_optimizer_hyper hyper;
    zoff_optimizer_hyper_init(&hyper, (zoff_optimizer)(int)head[2]);
    hyper.lr = head[3];
    hyper.beta1 = head[4];
    hyper.beta2 = head[5];
    hyper.eps = head[6];
    hyper.weight_decay = head[7];
    hyper.decay = (zoff_decay)(int)head[8];
    hyper.momentum = head[9];
    hyper.dampening = head[10];
    hyper.lr_decay = head[11];
    hyper.nesterov = head[12] != 0;
    hyper.flags = (uint64_t)head[13];
    zoff_optimizer_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.count = count;
    tensor.master = p.data();
    tensor.m = m.data();
    tensor.v = v.data();
    tensor.grad = g.data();
    bool good = fread(p.data(), sizeof(float), count, in) == count;
    split_engine split(hyper, p, g);
    for (int64_t t = 1; good && t <= (int64_t)head[1]; t++) {
        good = fread(g.data(), sizeof(float), count, in) == count;
        if (good && (zoff_optimizer_step(&hyper, t, 1.0, &tensor) != ZOFF_OK || !split.step())) {
            fprintf(stderr, "step %lld: %s\n", (long long)t, zoff_last_error());
            return 1;
        }
    }
    const bool has_m =
        hyper.optimizer != ZOFF_OPTIMIZER_ADAGRAD && (hyper.optimizer != ZOFF_OPTIMIZER_SGD || hyper.momentum != 0);
    const bool has_v = hyper.optimizer == ZOFF_OPTIMIZER_ADAM || hyper.optimizer == ZOFF_OPTIMIZER_ADAGRAD;
    if (good && (!split.is_split() || !split.has(ZOFF_STATE_MASTER, p) || (has_m && !split.has(ZOFF_STATE_M, m)) ||
                 (has_v && !split.has(ZOFF_STATE_V, v)))) {
        fprintf(stderr, "an engine with split masters has other bits\n");
        return 1;
    }
    for (auto *array : {&p, &m, &v})
        good = good && fwrite(array->data(), sizeof(float), count, out) == count;
    good = fclose(out) == 0 && good;
    fclose(in);
    if (!good)
        fprintf(stderr, "%s is too short, or %s cannot be written\n", argv[1], argv[2]);
    return good ? 0 : 1;
}
