// trainer.h: a trainer without a network: tensors with random gradients, in the caller's memory as an engine wants them and,
// beside it, as the reference wants them. Strides have gaps, bases are aligned to their element and no more.
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

    // Add a tensor; gaps of `gap` elements between its slices.
    void add(size_t count, size_t slices, zoff_dtype dtype, zoff_dtype grad_dtype, unsigned group = 0, bool frozen = false,
             size_t gap = 0);

    char *value(size_t i) { return stores[i].value.data() + size(tensors[i].dtype); }
    char *grad(size_t i) { return stores[i].grad.data() + size(tensors[i].grad_dtype); }

    zoff_param_desc desc(size_t i);

    // Leave the weights of a tensor to the engine: the caller's memory has the first ones, and what fetch_all() brings.
    void give_away(size_t i) { stores[i].owned = true; }
    bool is_given_away(size_t i) const { return stores[i].owned; }

    // Leave its gradients to the engine too: hand_over() copies them to where it lends memory for them.
    void give_away_grad(size_t i) { stores[i].borrows_grad = true; }

    // Weights and gradients are memory of a device; value() and grad() are what was copied from there, and what goes there.
    // Gradients are garbage there but for the time between their backward pass and the end of the step.
    void put_on(test_device *device_);
    // All of what is there where the gradients of a tensor come to be.
    std::vector<char> gradients_there(size_t i);

    // After a step with ZOFF_STEP_ZERO_GRADS.
    void expect_zero_gradients_there();

    // Slices that have a gradient, first to last.
    std::vector<std::pair<size_t, size_t>> present() const;
    // The backward pass of a slice, in the trainer's stream. Of a frozen one nobody would wait for it.
    void launch(size_t i, size_t slice);
    void launch_all();

    // The gradient of a slice is there.
    void hand_over(zoff_engine *e, size_t i, size_t slice);

    // All of them, as a backward pass does: last to first.
    void hand_over_all(zoff_engine *e);

    // What a forward pass sees: each slice of the engine's weights, lent one at a time, first to last or last to first.
    void fetch_all(zoff_engine *e, bool backwards = false);

    std::vector<zoff_param_desc> descs();

    // New gradients for one slice, in the caller's buffer and added to the reference's sum (fp32, in the order of micro-steps).
    void backward(size_t i, size_t slice, float scale);

    void backward_all(float scale);

    void next_step();

    // Other weights, as a process has that starts anew. Frozen ones stay: they are in no engine.
    void scramble();

    // The caller's weights are the reference's masters, rounded.
    void expect_weights();

    // The engine's states are the reference's; what the optimizers of the groups do not keep (none given: Adam) it does not
    // have.
    void expect_states(zoff_engine *e, const std::vector<zoff_optimizer_hyper> &groups = {});

    size_t place(size_t i, size_t k) const { return k / tensors[i].count * stores[i].stride + k % tensors[i].count; }
    static size_t size(zoff_dtype dtype) { return dtype == ZOFF_F32 ? 4 : 2; }

    static float get(const char *base, zoff_dtype dtype, size_t index);

    static void put(char *base, zoff_dtype dtype, size_t index, float f);

    std::vector<reference::tensor> tensors;
    fast_random random;
    bool whole_gradients = false; // small integers: any order of a sum has the same bits

  private:
    struct storage {
        std::vector<char> value, grad;
        char *device_grad = nullptr, *device_value = nullptr; // where they are on a device
        size_t stride;
        bool owned = false;        // by the engine
        bool borrows_grad = false; // from the engine
    };

    void expect_state(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want);

    void expect_moment(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want, bool kept);

    char *device_grad(size_t i) { return stores[i].device_grad + size(tensors[i].grad_dtype); }

    test_device *device = nullptr;
    std::vector<storage> stores;
    std::shared_ptr<device_memory> on_device; // behind what it is about
};

// The tensors of most tests: sizes 0 and 1, odd ones, one block and its neighbours, slices with gaps, two groups, a frozen one.
void add_awkward(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype);
} // namespace zoff_test

#endif
