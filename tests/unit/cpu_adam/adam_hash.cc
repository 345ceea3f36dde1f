// adam_hash.cc: a helper of dispatch_test: 100 steps over a mixed list through the door of the room, printed as
// "<isa> <hash>". The instruction set comes from ZOFF_ISA as for any other process; the argument is the number of threads.
#include "kernel_data.h"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "cpu_adam.h"
}

using namespace kernel_data;

static uint64_t hash = 0xcbf29ce484222325ull;

static void add(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
}

int main(int argc, char **argv)
{
    const unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    const std::vector<size_t> counts = {0, 1, 15, 130, 1023, 1024, 1025, 16011, 17000};
    const size_t tensors = counts.size();
    std::vector<std::vector<float>> p(tensors), m(tensors), v(tensors), g(tensors), sum(tensors);
    std::vector<std::vector<uint16_t>> g16(tensors), copy(tensors);
    std::vector<std::vector<double>> blocks(tensors);
    random_source random(2026);
    for (size_t k = 0; k < tensors; k++) {
        const size_t n = counts[k];
        p[k].resize(n), m[k].resize(n), v[k].resize(n), g[k].resize(n), sum[k].resize(n);
        g16[k].resize(n), copy[k].resize(n);
        blocks[k].resize((n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK);
        for (auto &x : p[k])
            x = number(random, false);
    }
    zoff_adam_hyper hyper;
    zoff_adam_hyper_init(&hyper);
    for (int t = 1; t <= 100; t++) {
        zoff_adam_consts consts[3]; // one group each: no decay, decoupled, L2
        for (int group = 0; group < 3; group++) {
            hyper.weight_decay = group ? 0.05 : 0;
            hyper.decay = group == 2 ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED;
            zoff_adam_hyper_consts(&hyper, t, 0.25, &consts[group]);
        }
        std::vector<zoff_adam_piece> updates;
        std::vector<zoff_norm_piece> norms;
        std::vector<zoff_accumulate_piece> sums;
        std::vector<zoff_cast_piece> casts;
        for (size_t k = 0; k < tensors; k++) {
            const size_t n = counts[k];
            for (auto &x : g[k])
                x = (random.next() >> 60) ? number(random, false) : float_of((uint32_t)(random.next() >> 41)); // subnormals
            sums.push_back({n, sum[k].data(), g[k].data(), ZOFF_F32, t % 4 == 1});
            casts.push_back({n, g16[k].data(), g[k].data(), ZOFF_BF16, ZOFF_F32});
            const bool half = k % 2;
            const void *grad = half ? (const void *)g16[k].data() : (const void *)sum[k].data();
            norms.push_back({n, grad, half ? ZOFF_BF16 : ZOFF_F32, blocks[k].data()});
            updates.push_back({n, p[k].data(), m[k].data(), v[k].data(), grad, k % 3 ? copy[k].data() : nullptr,
                               half ? ZOFF_BF16 : ZOFF_F32, ZOFF_BF16, &consts[(k + (size_t)t) % 3]});
        }
        zoff_adam_accumulate_run(threads, sums.data(), tensors, nullptr, nullptr);
        zoff_adam_cast_run(threads, casts.data(), tensors);
        zoff_adam_norm_run(threads, norms.data(), tensors, nullptr, nullptr);
        zoff_adam_update_run(threads, updates.data(), tensors, nullptr, nullptr);
    }
    for (size_t k = 0; k < tensors; k++) {
        for (auto *array : {&p[k], &m[k], &v[k], &sum[k]})
            add(array->data(), array->size() * sizeof(float));
        add(copy[k].data(), copy[k].size() * sizeof(uint16_t));
        add(blocks[k].data(), blocks[k].size() * sizeof(double));
    }
    printf("%s %016llx\n", zoff_isa(), (unsigned long long)hash);
    return 0;
}
