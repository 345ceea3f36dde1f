/* SPDX-License-Identifier: Apache-2.0 */
// parallel_test.cc: tensor parallelism inside the model of the example trainer. Threads are the parts of a model. Weights and
// gradients of a part must be a section of those of the whole model, and replicated ones the same bits in all parts.
#include "zoff_test.h"

extern "C" {
#include "model.h"
}
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace
{
const gpt_shape shape = {2, 6, 36, 7, 3}; // layers, heads, width, context, batch

// Adds up arrays of several threads, in the order of their parts.
class adder
{
  public:
    explicit adder(unsigned count) : parts(count) {}
    void sum(unsigned part, float *data, size_t count)
    {
        parts[part].assign(data, data + count);
        meet();
        for (size_t i = 0; i < count; i++) {
            data[i] = parts[0].at(i);
            for (size_t p = 1; p < parts.size(); p++)
                data[i] += parts[p].at(i);
        }
        meet();
    }

  private:
    void meet()
    {
        std::unique_lock<std::mutex> lock(mutex);
        const unsigned now = turn;
        if (++arrived == parts.size()) {
            arrived = 0;
            turn++;
            all_here.notify_all();
        }
        all_here.wait(lock, [&] { return turn != now; });
    }
    std::vector<std::vector<float>> parts;
    std::mutex mutex;
    std::condition_variable all_here;
    unsigned turn = 0;
    size_t arrived = 0;
};

struct part {
    part(adder *sums, unsigned index, unsigned count) : add(sums)
    {
        parallel.part = index;
        parallel.parts = count;
        parallel.ctx = this;
        parallel.sum = [](void *ctx, float *data, size_t n) {
            const auto p = static_cast<part *>(ctx);
            p->add->sum(p->parallel.part, data, n);
        };
        EXPECT_EQ(nullptr, gpt_model_create(shape, &parallel, false, 7, &model));
    }
    ~part() { gpt_model_destroy(&model); }
    part(const part &) = delete;
    void pass(const std::vector<uint8_t> &inputs, const std::vector<uint8_t> &targets)
    {
        omp_set_num_threads(1);
        loss = gpt_model_forward(&model, inputs.data(), targets.data());
        gpt_model_backward(&model, inputs.data());
    }
    adder *add;
    gpt_parallel parallel = {};
    gpt_model model = {};
    double loss = 0;
};

const float *slice_of(const gpt_tensor &t, const void *base, size_t slice)
{
    return static_cast<const float *>(base) + slice * t.count;
}

// Where element `i` of a slice lies in the slice of the whole model. Matrices are [in][out].
size_t place(int id, size_t i, size_t p, size_t parts)
{
    const size_t C = shape.width, D = C / parts;
    switch (id) {
    case GPT_QKV_W: // columns: queries, keys and values, each with all heads
    case GPT_QKV_B: {
        const size_t row = i / (3 * D), which = i % (3 * D) / D, column = i % D;
        return row * 3 * C + which * C + p * D + column;
    }
    case GPT_FC_W:
    case GPT_FC_B:
        return i / (4 * D) * 4 * C + p * 4 * D + i % (4 * D);
    case GPT_PROJ_W:
        return (p * D + i / C) * C + i % C;
    case GPT_OUT_W:
        return (p * 4 * D + i / C) * C + i % C;
    default:
        return i;
    }
}

class parallel : public testing::TestWithParam<unsigned>
{
  protected:
    parallel() : threads(omp_get_max_threads()), sums(GetParam())
    {
        omp_set_num_threads(1);
        EXPECT_EQ(nullptr, gpt_model_create(shape, &gpt_alone, false, 7, &whole));
        for (unsigned i = 0; i < GetParam(); i++)
            parts.push_back(std::make_unique<part>(&sums, i, GetParam()));
        for (size_t i = 0; i < shape.batch * shape.context; i++) {
            inputs.push_back(static_cast<uint8_t>("the licence"[gpt_random(1, i) % 11]));
            targets.push_back(static_cast<uint8_t>("of a program"[gpt_random(2, i) % 12]));
        }
    }
    ~parallel() override
    {
        gpt_model_destroy(&whole);
        omp_set_num_threads(threads);
    }
    // Run a pass of the whole model, and one of all parts together.
    void pass()
    {
        loss = gpt_model_forward(&whole, inputs.data(), targets.data());
        gpt_model_backward(&whole, inputs.data());
        std::vector<std::thread> running;
        for (auto &p : parts)
            running.emplace_back([this, &p] { p->pass(inputs, targets); });
        for (std::thread &one : running)
            one.join();
    }
    // Change the weights as training would: biases differ from 0 and gains from 1.
    void wobble()
    {
        for (int id = 0; id < GPT_TENSORS; id++) {
            const gpt_tensor &all = whole.tensor[id];
            for (size_t i = 0; i < all.count * all.slices; i++)
                static_cast<float *>(all.value)[i] += static_cast<float>(gpt_random(9, all.first + i) % 1000) / 5000.0f - 0.1f;
            for (auto &p : parts) {
                const gpt_tensor &own = p->model.tensor[id];
                for (size_t i = 0; i < own.count * own.slices; i++)
                    static_cast<float *>(own.value)[i] =
                        slice_of(all, all.value, i / own.count)[place(id, i % own.count, p->parallel.part, parts.size())];
            }
        }
    }

    const int threads;
    adder sums;
    gpt_model whole = {};
    std::vector<std::unique_ptr<part>> parts;
    std::vector<uint8_t> inputs, targets;
    double loss = 0;
};
INSTANTIATE_TEST_SUITE_P(parts, parallel, testing::Values(1u, 2u, 3u), testing::PrintToStringParamName());

TEST_P(parallel, first_weights_are_a_section_of_those_of_the_whole_model)
{
    for (auto &p : parts) {
        for (int id = 0; id < GPT_TENSORS; id++) {
            const gpt_tensor &own = p->model.tensor[id], &all = whole.tensor[id];
            ASSERT_EQ(own.slices, all.slices);
            ASSERT_EQ(own.count * (own.run ? parts.size() : 1), all.count) << own.name;
            for (size_t slice = 0; slice < own.slices; slice++)
                for (size_t i = 0; i < own.count; i++)
                    ASSERT_EQ(slice_of(all, all.value, slice)[place(id, i, p->parallel.part, parts.size())],
                              slice_of(own, own.value, slice)[i])
                        << own.name << " " << slice << " " << i;
        }
    }
}

TEST_P(parallel, gradients_are_a_section_of_those_of_the_whole_model)
{
    wobble();
    pass();
    for (auto &p : parts) {
        EXPECT_NEAR(loss, p->loss, 1e-6);
        for (int id = 0; id < GPT_TENSORS; id++) {
            const gpt_tensor &own = p->model.tensor[id], &all = whole.tensor[id];
            double squares = 0, differences = 0;
            for (size_t i = 0; i < own.count * own.slices; i++) {
                const float mine = static_cast<const float *>(own.grad)[i];
                const float want =
                    slice_of(all, all.grad, i / own.count)[place(id, i % own.count, p->parallel.part, parts.size())];
                squares += static_cast<double>(want) * want;
                differences += (static_cast<double>(mine) - want) * (static_cast<double>(mine) - want);
            }
            EXPECT_GT(squares, 0) << own.name;
            EXPECT_LE(std::sqrt(differences), 3e-6 * std::sqrt(squares)) << own.name << " of part " << p->parallel.part;
        }
    }
}

TEST_P(parallel, replicated_gradients_have_the_same_bits_in_all_parts)
{
    wobble();
    pass();
    for (auto &p : parts) {
        EXPECT_EQ(parts[0]->loss, p->loss);
        EXPECT_EQ(gpt_model_hash_replicated(&parts[0]->model), gpt_model_hash_replicated(&p->model));
        for (int id = 0; id < GPT_TENSORS; id++) {
            const gpt_tensor &own = p->model.tensor[id], &first = parts[0]->model.tensor[id];
            if (own.run == 0) {
                EXPECT_TRUE(
                    std::equal(slice_of(own, own.grad, 0), slice_of(own, own.grad, own.slices), slice_of(first, first.grad, 0)))
                    << own.name;
            }
        }
    }
}

// If the other part is missing, sums contain one part alone, and the loss must show that.
TEST(parallel_sums, are_needed)
{
    part half(nullptr, 0, 2);
    half.parallel.sum = gpt_alone.sum;
    gpt_model whole = {};
    ASSERT_EQ(nullptr, gpt_model_create(shape, &gpt_alone, false, 7, &whole));
    const std::vector<uint8_t> bytes(shape.batch * shape.context, 'a');
    half.pass(bytes, bytes);
    EXPECT_GT(std::fabs(half.loss - gpt_model_forward(&whole, bytes.data(), bytes.data())), 1e-6);
    gpt_model_destroy(&whole);
}

TEST(parallel_heads, are_split_evenly_or_refused)
{
    gpt_model model = {};
    gpt_parallel quarter = gpt_alone;
    quarter.parts = 4;
    EXPECT_STREQ("heads must be a multiple of --tensor-parallel, because each part has as many",
                 gpt_model_create(shape, &quarter, false, 1, &model));
    EXPECT_EQ(nullptr, model.values);
}
} // namespace
