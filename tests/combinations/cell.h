/* SPDX-License-Identifier: Apache-2.0 */
// cell.h: a cell is one combination of places for weights, gradients and states, and of who owns them. Each cell trains a small
// model and hashes the result. Uses public headers only, so that the same program can be built against any version of the
// library.
#ifndef ZOFF_TESTS_COMBINATIONS_CELL_H
#define ZOFF_TESTS_COMBINATIONS_CELL_H
#include <string>
#include <vector>

namespace combinations
{
struct cell {
    std::string memory;  // Memory of weights and gradients: "host", "device".
    std::string wire;    // Communicator: "alone", "threads", "nccl".
    unsigned ranks;      // 1 if wire is "alone".
    unsigned stage;      // zero_optimization.stage
    std::string tier;    // Place of the states: "cpu", "nvme", "persist" (nvme, with zoff.persist).
    std::string weights; // Owner: "caller", or the engine, which keeps them on "cpu" or "nvme".
    double ratio;        // The key offload_optimizer.ratio: 1 - the share of the states that stays on the device
    unsigned micro;      // gradient_accumulation_steps

    std::string name() const;
    std::string config(const std::string &folder) const;
};

// Cells with NCCL need a machine with GPUs, or the test libraries that stand in for CUDA and NCCL.
std::vector<cell> all_cells(bool nccl);

} // namespace combinations
#endif
