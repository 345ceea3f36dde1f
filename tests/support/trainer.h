/* SPDX-License-Identifier: Apache-2.0 */
// trainer.h: a trainer without a network. It has tensors with random gradients, once in the caller's memory for an engine and
// once for the reference. Strides have gaps, and bases are aligned only to their element.
#ifndef ZOFF_TRAINER_H
#define ZOFF_TRAINER_H

#include "accel_fault.h"
#include "random.h"
#include "reference.h"

#include <utility>

namespace zoff_test
{
class trainer
{
  public:
    explicit trainer(unsigned seed) : random(seed) {}

    // Add a tensor, with `gap` unused elements between its slices.
    void add(size_t count, size_t slices, zoff_dtype dtype, zoff_dtype grad_dtype, unsigned group = 0, bool frozen = false,
             size_t gap = 0);

    char *value(size_t i) { return stores[i].value.data() + size(tensors[i].dtype); }
    char *grad(size_t i) { return stores[i].grad.data() + size(tensors[i].grad_dtype); }

    // Give a tensor the shape of its slices. `matrices`: those of a slice, where the optimizer is one of matrices.
    void shape(size_t i, std::vector<size_t> dims, std::vector<reference::matrix> matrices = {});

    zoff_param_desc desc(size_t i);

    // Let the engine own the weights of a tensor. The caller's memory then has the first weights, and later what fetch_all()
    // copies.
    void give_away(size_t i) { stores[i].owned = true; }
    bool is_given_away(size_t i) const { return stores[i].owned; }

    // Let the engine also lend the memory of its gradients; hand_over() copies them there.
    void give_away_grad(size_t i) { stores[i].borrows_grad = true; }

    // Let the engine have both, of all tensors.
    void give_all_away();

    // Put weights and gradients into memory of a device. value() and grad() are then host copies, downloaded or to be uploaded.
    // Gradients on the device are garbage except between their backward pass and the end of the step.
    void put_on(test_device *device_);
    // Download the whole memory of a tensor's gradients.
    std::vector<char> gradients_there(size_t i);

    // Call after a step with ZOFF_STEP_ZERO_GRADS.
    void expect_zero_gradients_there();

    // Slices that have a gradient, first to last.
    std::vector<std::pair<size_t, size_t>> present() const;
    // Launch the backward pass of a slice in the trainer's stream. Not for a frozen slice: nothing would wait for it.
    void launch(size_t i, size_t slice);
    void launch_all();
    // Launch the backward pass into memory that the engine lends.
    void launch_into_lent(zoff_engine *e, size_t i, size_t slice);

    // Tell the engine that the gradient of a slice is ready.
    void hand_over(zoff_engine *e, size_t i, size_t slice);

    // Hand over all gradients in the order of a backward pass: last to first.
    // Wait for the weights of every `by`th parameter from the first on, as a forward pass does before zoff_step_wait().
    void wait_for_weights(zoff_engine *e, size_t first = 0, size_t by = 1);
    void hand_over_all(zoff_engine *e);

    // Fetch each slice of the engine's weights, as a forward pass does: one at a time, first to last or last to first.
    void fetch_all(zoff_engine *e, bool backwards = false);

    std::vector<zoff_param_desc> descs();

    // Make a new gradient for one slice, in the caller's buffer, and add it to the reference's sum (fp32, in the order of
    // micro-steps).
    void backward(size_t i, size_t slice, float scale);

    void backward_all(float scale);

    void next_step();

    // Overwrite the weights, as in a process that starts again. Frozen ones stay, because no engine stores them.
    void scramble();

    // The caller's weights must equal the reference's masters, rounded.
    void expect_weights();

    // The engine's states must equal the reference's. States that the optimizers of the groups (default: Adam) do not have must
    // not exist.
    void expect_states(zoff_engine *e, const std::vector<zoff_optimizer_hyper> &groups = {});

    size_t place(size_t i, size_t k) const { return k / tensors[i].count * stores[i].stride + k % tensors[i].count; }
    static size_t size(zoff_dtype dtype) { return dtype == ZOFF_F32 ? 4 : 2; }

    static float get(const char *base, zoff_dtype dtype, size_t index);

    static void put(char *base, zoff_dtype dtype, size_t index, float f);

    std::vector<reference::tensor> tensors;
    fast_random random;
    bool whole_gradients = false; // gradients are small integers, so a sum has the same bits in any order

  private:
    struct storage {
        std::vector<char> value, grad;
        char *device_grad = nullptr, *device_value = nullptr; // addresses on a device
        size_t stride;
        std::vector<size_t> dims;
        bool owned = false;        // the engine owns the weights
        bool borrows_grad = false; // the engine lends the memory
    };

    void expect_state(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want);

    void expect_moment(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want, bool kept);

    char *device_grad(size_t i) { return stores[i].device_grad + size(tensors[i].grad_dtype); }

    test_device *device = nullptr;
    std::vector<storage> stores;
    std::shared_ptr<device_memory> on_device; // declared last, so that it is destroyed first
};

// The tensors of most tests: sizes 0, 1 and odd, one block and its neighbours, slices with gaps, two groups, a frozen one.
void add_awkward(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype);

// Matrices of every kind of shape, and parameters that have none, in two groups. Some matrices end inside a block, so a round
// goes on behind them; others are larger than a chunk.
void add_matrices(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype);
} // namespace zoff_test

#endif
