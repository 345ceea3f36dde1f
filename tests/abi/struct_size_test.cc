// struct_size_test.cc: the sizes of the public structs, which programs compiled yesterday have built in.
#include "zoff_test.h"

#include <stddef.h>
#include <zoff/plugin.h>

namespace
{
// A struct that grows: (1) only by fields at its end; (2) the library reads and writes no more than min(struct_size, its own
// sizeof) of it; (3) its new size and last field come here; (4) CHANGELOG.md says so. A struct that shrinks, or whose fields
// move, breaks every program out there: do not.
#define SIZE_OF(type, bytes, last_field)                                                                                       \
    EXPECT_EQ(size_t{bytes}, sizeof(type)) << #type                                                                            \
                                           << " has another size than the programs of version 0.1 expect. If it grew "         \
                                              "at its end, read the comment in struct_size_test.cc; if not, undo it.";         \
    EXPECT_GE(offsetof(type, last_field) + sizeof(type::last_field) + alignof(type), sizeof(type) + 1)                         \
        << #type << ": " #last_field " is not its last field any more";                                                        \
    EXPECT_EQ(size_t{0}, offsetof(type, struct_size)) << #type << ": struct_size comes first"
} // namespace

TEST(struct_size, pinned_on_64_bit)
{
    ASSERT_EQ(8u, sizeof(void *)) << "the table is for machines of 64 bits";
    SIZE_OF(zoff_optimizer_hyper, 96, flags);
    SIZE_OF(zoff_optimizer_tensor, 72, master_dtype);
    SIZE_OF(zoff_aio_opts, 40, create);
    SIZE_OF(zoff_aio_info, 64, resumed_pieces);
    SIZE_OF(zoff_aio_tune_opts, 32, fresh);
    SIZE_OF(zoff_aio_tune_result, 104, cached);
    SIZE_OF(zoff_accel_info, 72, pageable_copies);
    SIZE_OF(zoff_comm_opts, 24, timeout_seconds);
    SIZE_OF(zoff_nccl_opts, 64, nccl_stream);
    SIZE_OF(zoff_comm_info, 48, received_bytes);
    SIZE_OF(zoff_comm_transport, 112, any_thread);
    SIZE_OF(zoff_plugin_host, 32, warn);
    SIZE_OF(zoff_plugin, 24, built_in);
    SIZE_OF(zoff_engine_opts, 88, progress_thread);
    SIZE_OF(zoff_param_desc, 88, engine_owned);
    SIZE_OF(zoff_step_args, 64, flags);
    SIZE_OF(zoff_step_info, 360, culprit);
    SIZE_OF(zoff_loss_scaler, 40, hysteresis);
    SIZE_OF(zoff_plan_info, 168, memory_free_bytes);
}

TEST(struct_size, enums_are_ints_and_handles_of_parameters_are_32_bits)
{
    EXPECT_EQ(4u, sizeof(zoff_status));
    EXPECT_EQ(4u, sizeof(zoff_dtype));
    EXPECT_EQ(4u, sizeof(zoff_tier));
    EXPECT_EQ(4u, sizeof(zoff_optimizer));
    EXPECT_EQ(4u, sizeof(zoff_decay));
    EXPECT_EQ(4u, sizeof(zoff_outcome));
    EXPECT_EQ(4u, sizeof(zoff_state_kind));
    EXPECT_EQ(4u, sizeof(zoff_param));
}
