// small_engine.h: an engine over a trainer's tensors from a configuration text, in one line of a test.
#ifndef ZOFF_SMALL_ENGINE_H
#define ZOFF_SMALL_ENGINE_H

#include "trainer.h"

namespace zoff_test
{
zoff_step_info new_info();

zoff_plan_info plan_of(const zoff_engine *e);

// An engine that is only planned: one parameter of bf16 with nothing behind it, in the chunks of the configuration.
engine plan_one(uint64_t count, const std::string &text, zoff_accel *device, zoff_comm *ranks = nullptr);

// The configuration of a test: hyper-parameters are the defaults of AdamW at lr 0.01; NVMe in `folder` unless it is empty.
std::string config_text(const std::string &folder, unsigned accumulation = 1, const std::string &more = "");

// The same with a share of the states on the device.
std::string with_ratio(std::string text, double ratio);

// The same with the weights that are given away on NVMe too: two buffers, none cached, small slices pinned.
std::string with_offloaded_weights(std::string text, const std::string &folder);

// The groups that go with config_text().
std::vector<zoff_optimizer_hyper> config_groups(unsigned count = 2);

// Ranks that are threads of one process share its processors.
unsigned threads_of_rank();

// Whether all engines of the program have a thread of their own for progress.
bool has_progress_thread();

// Created and filled, not sealed.
engine make_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0,
                   zoff_comm *ranks = nullptr, zoff_accel *device = nullptr);

engine seal_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0);
} // namespace zoff_test

#endif
