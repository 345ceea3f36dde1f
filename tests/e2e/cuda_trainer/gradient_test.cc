/* SPDX-License-Identifier: Apache-2.0 */
// gradient_test.cc: compares the passes of the GPU trainer, run on the host, with those of the CPU trainer.
// e2e/gpt/gradient_test.cc checks the CPU trainer's gradients against finite differences. Both use the same bf16 weights. The
// GPU trainer rounds the inputs of its matrix products; the CPU trainer computes in fp32.
#include "zoff_test.h"

extern "C" {
#include "bf16.h"
}
#include "check.h"
#include "gpu_model.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>

namespace
{
struct both {
    explicit both(gpt_shape shape, float gain = 1.0f)
    {
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        gpu_first first = {};
        EXPECT_EQ(nullptr, gpu_first_create(shape, 7, &first));
        weights = gpu_resident_open(&first, stream);
        gpu_first_destroy(&first);
        gpu_model_create(shape, weights, stream, &gpu);
        EXPECT_EQ(nullptr, gpt_model_create(shape, &gpt_alone, true, 7, &cpu));
        if (gain != 1.0f)
            enlarge(gain);
        for (size_t i = 0; i < shape.batch * shape.context; i++) {
            inputs.push_back(static_cast<uint8_t>("the licence"[gpt_random(1, i) % 11]));
            targets.push_back(static_cast<uint8_t>("of a program"[gpt_random(2, i) % 12]));
        }
    }
    ~both()
    {
        gpu_model_destroy(&gpu);
        weights->close(weights);
        CUDA(cudaStreamDestroy(stream));
        gpt_model_destroy(&cpu);
    }
    both(const both &) = delete;

    // Weights as after some training: gains differ from 1, biases from 0, and attention is not uniform.
    void enlarge(float gain)
    {
        auto values = static_cast<uint16_t *>(cpu.values);
        for (size_t i = 0; i < cpu.parameter_count; i++) {
            const float wobble = static_cast<float>(gpt_random(9, i) % 1000) / 1000.0f - 0.5f;
            values[i] = gpt_bf16_round(gain * gpt_bf16_load(values[i]) + 0.1f * wobble);
        }
        gpu_resident_write(weights, values);
    }

    void pass()
    {
        cpu_loss = gpt_model_forward(&cpu, inputs.data(), targets.data());
        gpt_model_backward(&cpu, inputs.data());
        gpu_model_forward(&gpu, inputs.data(), targets.data());
        const auto note = [](void *ctx, int id, size_t slice) { static_cast<both *>(ctx)->ready.push_back({id, slice}); };
        gpu_model_backward(&gpu, note, this);
        gpu_loss = gpu_model_loss(&gpu);
        CUDA(cudaStreamSynchronize(stream));
    }

    // The norm of the difference of a tensor's two gradients, relative to the CPU gradient's norm. Counts columns from first to
    // end.
    double difference(int id, size_t columns = 1, size_t first = 0, size_t end = 1)
    {
        const gpt_tensor &a = cpu.tensor[id], &b = weights->tensor[id];
        double squares = 0, differences = 0;
        for (size_t i = 0; i < a.count * a.slices; i++) {
            if (i % columns < first || i % columns >= end)
                continue;
            const double x = gpt_bf16_load(static_cast<const uint16_t *>(a.grad)[i]);
            const double y = gpt_bf16_load(static_cast<const uint16_t *>(b.grad)[i]);
            squares += x * x;
            differences += (x - y) * (x - y);
        }
        return std::sqrt(differences / squares);
    }

    // All gradients, tensor after tensor. Between passes only.
    std::vector<uint16_t> gradients() const
    {
        std::vector<uint16_t> all;
        for (const gpt_tensor &t : weights->tensor)
            all.insert(all.end(), static_cast<const uint16_t *>(t.grad),
                       static_cast<const uint16_t *>(t.grad) + t.count * t.slices);
        return all;
    }

    cudaStream_t stream;
    gpu_weights *weights = nullptr;
    gpu_model gpu = {};
    gpt_model cpu = {};
    std::vector<uint8_t> inputs, targets;
    std::vector<std::pair<int, size_t>> ready;
    double cpu_loss = 0, gpu_loss = 0;
};

const gpt_shape tiny = {2, 3, 48, 13, 5}; // layers, heads, width, context, batch

void expect_alike(both &b, double tolerance)
{
    b.pass();
    printf("  loss %.6f on the CPU, %.6f here\n", b.cpu_loss, b.gpu_loss);
    EXPECT_NEAR(b.cpu_loss, b.gpu_loss, 0.1 * tolerance * b.cpu_loss);
    for (int id = 0; id < GPT_TENSORS; id++) {
        const double difference = b.difference(id);
        printf("  %-12s gradients differ by %.5f of their length\n", b.cpu.tensor[id].name, difference);
        EXPECT_LT(difference, tolerance) << b.cpu.tensor[id].name;
    }
    const size_t C = b.cpu.shape.width;
    for (size_t part = 0; part < 3; part++) { // gradients of queries and keys are much smaller than those of values
        const double difference = b.difference(GPT_QKV_W, 3 * C, part * C, (part + 1) * C);
        printf("  %-12s gradients differ by %.5f of their length\n",
               part == 0   ? "queries"
               : part == 1 ? "keys"
                           : "values",
               difference);
        EXPECT_LT(difference, tolerance) << part;
    }
}

TEST(cuda_trainer_gradients, are_those_of_the_cpu_with_the_first_weights)
{
    both b(tiny);
    ASSERT_EQ(gpt_model_hash(&b.cpu), gpu_model_hash(&b.gpu));
    expect_alike(b, 0.02);
}

TEST(cuda_trainer_gradients, are_those_of_the_cpu_with_weights_that_matter)
{
    both b(tiny, 2.0f);
    ASSERT_EQ(gpt_model_hash(&b.cpu), gpu_model_hash(&b.gpu));
    expect_alike(b, 0.02);
}

TEST(cuda_trainer_gradients, are_those_of_the_cpu_for_a_model_of_odd_sizes)
{
    both b({1, 1, 7, 5, 1}, 2.0f);
    expect_alike(b, 0.03);
}

TEST(cuda_trainer_gradients, are_told_once_for_each_slice_and_the_last_layer_first)
{
    both b(tiny);
    b.pass();
    std::vector<std::pair<int, size_t>> all;
    for (int id = 0; id < GPT_TENSORS; id++)
        for (size_t slice = 0; slice < b.weights->tensor[id].slices; slice++)
            all.push_back({id, slice});
    auto told = b.ready;
    EXPECT_EQ(GPT_LNF_G, told.front().first);
    EXPECT_EQ(GPT_WTE, told.back().first);
    std::sort(told.begin(), told.end());
    EXPECT_EQ(all, told);
}

TEST(cuda_trainer_gradients, are_the_same_bits_in_each_pass)
{
    both b(tiny, 2.0f);
    b.pass();
    const auto before = b.gradients();
    const double loss = b.gpu_loss;
    b.pass();
    EXPECT_EQ(loss, b.gpu_loss);
    EXPECT_EQ(before, b.gradients());
}

// Lends copies of resident weights. A copy becomes NaN as soon as it is given back.
struct lender : gpu_weights {
    lender(gpu_weights *resident_, cudaStream_t stream_) : gpu_weights(*resident_), resident(resident_), stream(stream_)
    {
        borrow = [](const gpu_weights *w, int id, size_t slice) {
            auto self = const_cast<lender *>(static_cast<const lender *>(w));
            const size_t count = w->tensor[id].count;
            auto &copy = self->lent[{id, slice}];
            EXPECT_FALSE(copy) << "borrowed twice";
            self->copies.emplace_back(count);
            copy = self->copies.back().data();
            CUDA(cudaMemcpyAsync(copy, self->resident->borrow(self->resident, id, slice), 2 * count, cudaMemcpyDeviceToDevice,
                                 self->stream));
            self->elements += count;
            self->most = std::max(self->most, self->elements);
            return static_cast<const bf16 *>(static_cast<void *>(copy));
        };
        give_back = [](const gpu_weights *w, int id, size_t slice) {
            auto self = const_cast<lender *>(static_cast<const lender *>(w));
            const size_t count = w->tensor[id].count;
            const auto found = self->lent.find({id, slice});
            ASSERT_NE(self->lent.end(), found) << "given back without having been borrowed";
            CUDA(cudaMemsetAsync(found->second, 0xff, 2 * count, self->stream));
            self->lent.erase(found);
            self->elements -= count;
        };
    }
    ~lender() { CUDA(cudaStreamSynchronize(stream)); } // the last copies may still be on their way to NaN
    lender(const lender &) = delete;

    gpu_weights *resident;
    cudaStream_t stream;
    std::map<std::pair<int, size_t>, uint16_t *> lent;
    std::list<std::vector<uint16_t>> copies; // kernels may still read them
    size_t elements = 0, most = 0;
};

TEST(cuda_trainer_passes, borrow_the_weights_of_one_layer_at_a_time_and_give_all_back)
{
    both b({5, 3, 48, 13, 5}, 2.0f);
    b.pass();
    const auto want = b.gradients();
    const double loss = b.gpu_loss;
    lender from(b.weights, b.stream);
    b.gpu.weights = &from;
    b.pass();
    EXPECT_EQ(loss, b.gpu_loss);
    EXPECT_EQ(want, b.gradients());
    EXPECT_TRUE(from.lent.empty());
    size_t layer = 0;
    for (int id = GPT_LN1_G; id <= GPT_OUT_B; id++)
        layer += from.tensor[id].count;
    EXPECT_EQ(layer, from.most);
    EXPECT_EQ(gpt_model_hash(&b.cpu), gpu_model_hash(&b.gpu));
    EXPECT_TRUE(from.lent.empty());
}
} // namespace
