// cell.h: every combination of where weights, gradients and states are and of who holds them, each with a small life that is
// hashed. Public headers only, so that the same program can be built against any version of the library.
#ifndef ZOFF_TESTS_COMBINATIONS_CELL_H
#define ZOFF_TESTS_COMBINATIONS_CELL_H
#include <string>
#include <vector>

namespace combinations
{
struct cell {
    std::string memory;  // of weights and gradients: "host", "device"
    std::string wire;    // "alone", "threads", "nccl"
    unsigned ranks;      // 1 where wire is "alone"
    unsigned stage;      // zero_optimization.stage
    std::string tier;    // of the states: "cpu", "nvme", "persist" (nvme, with zoff.persist)
    std::string weights; // whose: "caller"; or the engine's, on "cpu" or "nvme"
    double ratio;        // offload_optimizer.ratio: 1 - the share of the states that stays on the device
    unsigned micro;      // gradient_accumulation_steps

    std::string name() const;
    std::string config(const std::string &folder) const;
};

// All of them. Cells over NCCL need a machine with GPUs, or the libraries of the tests that stand in for CUDA and NCCL.
std::vector<cell> all_cells(bool nccl);

} // namespace combinations
#endif
