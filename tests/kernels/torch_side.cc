// torch_side.cc: zoff's side of torch_optimizers.py. Reads weights and gradients from a raw file, takes the steps with
// zoff_optimizer_step(), and writes the weights and states to another file.
//
//   In:  double[14] count, steps, optimizer, lr, beta1, beta2, eps, weight_decay, decay, momentum, dampening, lr_decay,
//        nesterov, flags; float p[count]; float g[steps][count]
//   Out: float p[count], m[count], v[count]; a state that the optimizer does not have stays zero
#include <stdio.h>
#include <zoff/zoff.h>

#include <vector>

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
    for (int64_t t = 1; good && t <= (int64_t)head[1]; t++) {
        good = fread(g.data(), sizeof(float), count, in) == count;
        if (good && zoff_optimizer_step(&hyper, t, 1.0, &tensor) != ZOFF_OK) {
            fprintf(stderr, "step %lld: %s\n", (long long)t, zoff_last_error());
            return 1;
        }
    }
    for (auto *array : {&p, &m, &v})
        good = good && fwrite(array->data(), sizeof(float), count, out) == count;
    good = fclose(out) == 0 && good;
    fclose(in);
    if (!good)
        fprintf(stderr, "%s is too short, or %s cannot be written\n", argv[1], argv[2]);
    return good ? 0 : 1;
}
