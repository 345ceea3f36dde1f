/* SPDX-License-Identifier: Apache-2.0 */
// struct_size_test.cc: pins the sizes of the public structs, which programs compiled earlier have built in.
#include "zoff_test.h"

#include <stddef.h>
#include <zoff/plugin.h>

namespace
{
// Rules for a struct that grows: (1) Add fields only at its end. (2) The library reads and writes at most min(struct_size, its
// own sizeof). (3) Put the new size and the new last field here. (4) Say so in CHANGELOG.md. Never shrink a struct or move its
// fields: that breaks every compiled program.
#define SIZE_OF(type, bytes, last_field)                                                                                       \
    EXPECT_EQ(size_t{bytes}, sizeof(type)) << #type                                                                            \
                                           << " differs from the size that programs of version 0.1 expect. If it grew "        \
                                              "at its end, read the comment in struct_size_test.cc; if not, undo it.";         \
    EXPECT_GE(offsetof(type, last_field) + sizeof(type::last_field) + alignof(type), sizeof(type) + 1)                         \
        << #type << ": " #last_field " is not its last field any more";                                                        \
    EXPECT_EQ(size_t{0}, offsetof(type, struct_size)) << #type << ": struct_size must be the first field"
} // namespace

TEST(struct_size, pinned_on_64_bit)
{
    ASSERT_EQ(8u, sizeof(void *)) << "the table is for 64-bit machines";
    SIZE_OF(zoff_optimizer_hyper, 120, coefficients);
    SIZE_OF(zoff_optimizer_tensor, 88, cols);
    SIZE_OF(zoff_aio_opts, 40, create);
    SIZE_OF(zoff_aio_info, 64, resumed_pieces);
    SIZE_OF(zoff_aio_tune_opts, 32, fresh);
    SIZE_OF(zoff_aio_tune_result, 104, cached);
    SIZE_OF(zoff_accel_info, 80, allocated_bytes);
    SIZE_OF(zoff_comm_opts, 24, timeout_seconds);
    SIZE_OF(zoff_nccl_opts, 64, nccl_stream);
    SIZE_OF(zoff_comm_info, 72, messages);
    SIZE_OF(zoff_comm_transport, 128, node_ranks);
    SIZE_OF(zoff_plugin_host, 32, warn);
    SIZE_OF(zoff_plugin_meeting, 32, timeout_seconds);
    SIZE_OF(zoff_plugin, 32, meet);
    SIZE_OF(zoff_engine_opts, 120, norm_comm);
    SIZE_OF(zoff_param_desc, 136, matrix_row_count);
    SIZE_OF(zoff_step_args, 72, norm_sum);
    SIZE_OF(zoff_handover, 48, native_stream);
    SIZE_OF(zoff_step_info, 400, buckets);
    SIZE_OF(zoff_loss_scaler, 40, hysteresis);
    SIZE_OF(zoff_plan_info, 360, sums_once);
    SIZE_OF(zoff_checkpoint_opts, 88, weights_only);
    SIZE_OF(zoff_checkpoint_info, 120, pinned);
    SIZE_OF(zoff_checkpoint_param, 80, rule);
}

TEST(struct_size, enums_are_ints_and_handles_of_parameters_are_32_bits)
{
    EXPECT_EQ(4u, sizeof(zoff_status));
    EXPECT_EQ(4u, sizeof(zoff_dtype));
    EXPECT_EQ(4u, sizeof(zoff_tier));
    EXPECT_EQ(4u, sizeof(zoff_optimizer));
    EXPECT_EQ(4u, sizeof(zoff_decay));
    EXPECT_EQ(4u, sizeof(zoff_muon_method));
    EXPECT_EQ(4u, sizeof(zoff_muon_scale));
    EXPECT_EQ(4u, sizeof(zoff_muon_coefficients));
    EXPECT_EQ(4u, sizeof(zoff_outcome));
    EXPECT_EQ(4u, sizeof(zoff_state_kind));
    EXPECT_EQ(4u, sizeof(zoff_param));
}
