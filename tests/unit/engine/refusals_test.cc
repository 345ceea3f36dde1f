/* SPDX-License-Identifier: Apache-2.0 */
// refusals_test.cc: invalid arguments, scales and folders, and their messages.
#include "sgd_engine.h"

#include <math.h>
#include <sys/stat.h>

using namespace zoff_test;

namespace
{
TEST(Refusals, MoreStatesThanTheDiskHolds)
{
    log_catcher log;
    scratch_folder folder;
    static float one[1];
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.state_tier = ZOFF_TIER_NVME;
    opts.nvme_path = folder.path.c_str();
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    engine e(made);
    zoff_param_desc d = described(one, (size_t)1 << 40); // 8 TiB of files
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "no room for the states or weights of this engine: nvme_path", zoff_engine_seal(made));
    EXPECT_NE(std::string(zoff_last_error()).find("need"), std::string::npos) << zoff_last_error();
    EXPECT_NE(std::string(zoff_last_error()).find("have"), std::string::npos) << zoff_last_error();
    EXPECT_TRUE(folder.is_empty());
}

TEST(Refusals, FoldersThatCannotBeUsed)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(100, 1, ZOFF_F32, ZOFF_F32);
    engine missing = make_engine(t, config_text(folder.file("not/there")));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_IO,
        "not/there: No such file or directory; nvme_path (of offload_optimizer, or of offload_param) must be a folder",
        zoff_engine_seal(missing.get()));
    FILE *f = fopen(folder.file("file").c_str(), "w");
    fclose(f);
    engine file = make_engine(t, config_text(folder.file("file")));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Not a directory", zoff_engine_seal(file.get()));
    engine proc = make_engine(t, config_text("/proc"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "in /proc: ", zoff_engine_seal(proc.get()));
    // After a refusal the call may be repeated.
    ASSERT_EQ(0, mkdir(folder.file("not").c_str(), 0700));
    ASSERT_EQ(0, mkdir(folder.file("not/there").c_str(), 0700));
    EXPECT_ZOFF_OK(zoff_engine_seal(missing.get()));
    EXPECT_ZOFF_OK(zoff_step(missing.get(), nullptr, nullptr));
}

TEST(Refusals, ScalesThatFp32CannotHold)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{\"gradient_clipping\": 0}");
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.grad_scale = 1e200;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale 1e+200", zoff_step(e.get(), &args, nullptr));
    // Finite gradients that the scale makes infinite are skipped, not applied.
    t.backward_all(1e37f);
    args.grad_scale = 1e6;
    auto info = new_info();
    log.expect("is beyond fp32; weights and states are unchanged");
    ASSERT_ZOFF_OK(zoff_step(e.get(), &args, &info));
    EXPECT_TRUE(info.skipped);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST(Refusals, OneUpdateHasOneScale)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, config_text("", 2));
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.grad_scale = 0.5;
    ASSERT_ZOFF_OK(zoff_step(e.get(), &args, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale is 1, but 0.5 in the micro-steps before it",
                      zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_step(e.get(), &args, nullptr));
    EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); // a new update, a new scale
}

} // namespace
