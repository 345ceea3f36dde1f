/* SPDX-License-Identifier: Apache-2.0 */
// small_engine.h: an engine over a trainer's tensors from a configuration text, in one line of a test.
#ifndef ZOFF_SMALL_ENGINE_H
#define ZOFF_SMALL_ENGINE_H

#include "trainer.h"

namespace zoff_test
{
zoff_step_info new_info();

zoff_plan_info plan_of(const zoff_engine *e);

// An engine that is only planned: one bf16 parameter without memory, with the chunks of the configuration.
engine plan_one(uint64_t count, const std::string &text, zoff_accel *device, zoff_comm *ranks = nullptr);

// The configuration of a test: AdamW with default hyper-parameters and lr 0.01; states on NVMe in `folder` unless it is empty.
std::string config_text(const std::string &folder, unsigned accumulation = 1, const std::string &more = "");

// Give a configuration a share of the states on the device.
std::string with_ratio(std::string text, double ratio);
// Values of offload_optimizer.ratio for tests of a device. With half of the states there are buckets of both kinds, which is
// enough for a sanitizer.
#if defined(ZOFF_TEST_SANITIZED)
inline const std::vector<double> DEVICE_RATIOS = {0.5};
#else
inline const std::vector<double> DEVICE_RATIOS = {1.0, 0.5};
#endif

// Put the engine's weights of a configuration on NVMe, too: two buffers, none cached, small slices pinned.
std::string with_offloaded_weights(std::string text, const std::string &folder);

// The groups that belong to config_text().
std::vector<zoff_optimizer_hyper> config_groups(unsigned count = 2);

// Threads for each rank: ranks that are threads of one process share its processors.
unsigned threads_of_rank();

// True if all engines of the program have a progress thread.
bool has_progress_thread();

// True if all engines of the program may update buckets ahead of a step (zoff.speculation_memory).
bool updates_ahead();

// Created from a text and options, whose struct_size and config are set here. Without parameters.
engine make_engine(const std::string &text, zoff_engine_opts opts);

// Created, with parameters added, but not sealed.
engine make_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0,
                   zoff_comm *ranks = nullptr, zoff_accel *device = nullptr);

engine seal_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0);
} // namespace zoff_test

#endif
