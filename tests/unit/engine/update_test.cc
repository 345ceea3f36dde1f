// update_test.cc: an update tile by tile makes the bits of one that is made at once.
#include "small_engine.h"

using namespace zoff_test;

namespace
{

// Buckets of more than one tile: what is hashed while it is updated is what is written, whatever the mixture of types, of
// optimizers, and of slices with and without a gradient. A checksum of anything else would be an error in the next step.
TEST(Tiles, AreHashedAsTheyAreWritten)
{
    for (const char *more : {"\"persist\": true", "\"verify\": \"sample\"", "\"verify\": \"full\""}) {
        log_catcher log;
        scratch_folder folder;
        trainer t(5);
        t.add(700001, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(90000, 3, ZOFF_F32, ZOFF_BF16, 0, false, 1);
        t.add(300000, 1, ZOFF_F16, ZOFF_F32, 1);
        t.add(400, 1, ZOFF_BF16, ZOFF_BF16, 2);
        t.add(1024, 1, ZOFF_F32, ZOFF_F32);
        std::vector<zoff_adam_hyper> groups = config_groups(3);
        zoff_adam_hyper_init_for(&groups[1], ZOFF_OPTIMIZER_LION);
        zoff_adam_hyper_init_for(&groups[2], ZOFF_OPTIMIZER_SGD);
        const std::string text = config_text(folder.path, 1, std::string(", \"zoff\": {") + more + "}");
        engine e = make_engine(t, text);
        for (unsigned group : {1, 2})
            ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), group, &groups[group]));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        EXPECT_GE(plan_of(e.get()).chunk_bytes, 4000000u) << "more than one tile";
        for (int64_t k = 1; k <= 4; k++) {
            t.next_step();
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                    if ((i + slice + (size_t)k) % 3 == 0 && k > 1)
                        continue;
                    t.backward(i, slice, 0.1f);
                    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), (zoff_param)i, slice, nullptr));
                }
            }
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
            reference::step(t.tensors, groups, k, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get(), groups));
    }
}
} // namespace
