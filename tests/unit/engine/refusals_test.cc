// refusals_test.cc: invalid arguments, scales and folders, and their messages.
#include "sgd_engine.h"

#include <math.h>
#include <sys/stat.h>

using namespace zoff_test;

namespace
{
TEST(Refusals, StructsWithoutASize)
{
    log_catcher log;
    zoff_engine *made = nullptr;
    zoff_engine_opts opts = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_engine_opts)", zoff_engine_create(&opts, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_engine_create(nullptr, nullptr));
    EXPECT_EQ(nullptr, made);
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    zoff_param_desc d = t.desc(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof params[0]", zoff_engine_open_sized(nullptr, &d, 0, 1, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_engine_open_sized(nullptr, nullptr, sizeof d, 1, &made));
    EXPECT_EQ(nullptr, made);
    engine e = seal_engine(t, "{}");
    zoff_step_args args = {};
    zoff_step_info info = {};
    zoff_plan_info plan = {};
    zoff_optimizer_hyper h = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_step_args)", zoff_step(e.get(), &args, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_step_info)", zoff_step(e.get(), nullptr, &info));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_plan_info)", zoff_engine_plan(e.get(), &plan));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_hyper_init", zoff_engine_set_group(e.get(), 0, &h));
    d.struct_size = 0;
    engine building = make_engine(t, "{}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_param_desc)", zoff_engine_add_param(building.get(), &d, nullptr));
}

TEST(Refusals, StepsThatCannotBe)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32, 2);
    engine e = seal_engine(t, "{}");
    zoff_optimizer_hyper h[2];
    zoff_optimizer_hyper_init(&h[0], ZOFF_OPTIMIZER_ADAM);
    zoff_optimizer_hyper_init(&h[1], ZOFF_OPTIMIZER_ADAM);
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.t = -1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "t is -1", zoff_step(e.get(), &args, nullptr));
    args.t = INT64_MAX; // the next step would have no number
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "t is 9223372036854775807", zoff_step(e.get(), &args, nullptr));
    args.t = 0;
    args.grad_scale = INFINITY;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale", zoff_step(e.get(), &args, nullptr));
    args.grad_scale = 0;
    args.clip_norm = NAN;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "clip_norm", zoff_step(e.get(), &args, nullptr));
    args.clip_norm = 0;
    args.flags = 0x80;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "flags 0x80", zoff_step(e.get(), &args, nullptr));
    args.flags = 0;
    args.hyper = h;
    args.hyper_count = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "for 2 groups were given, but a parameter is in group 2",
                      zoff_step(e.get(), &args, nullptr));
    // A stride that is not the size of a struct would read the next hyper-parameters from the middle of these.
    args.hyper_count = 3;
    for (size_t stride : {size_t{4}, sizeof h[0] - 8, sizeof h[0] + 4}) {
        args.hyper_stride = stride;
        std::string words = "zoff_step: hyper_stride is " + std::to_string(stride) + ", but hyper[0] has " +
                            std::to_string(sizeof h[0]) + " bytes";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_step(e.get(), &args, nullptr));
    }
    args.hyper_stride = 0;
    args.hyper_count = 1;
    h[0].beta1 = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 2: beta1 is 1;", zoff_step(e.get(), &args, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_set_group: group 2: beta1 is 1;", zoff_engine_set_group(e.get(), 2, h));
    h[0].beta1 = 0.9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 1 of parameter 0", zoff_grad_ready(e.get(), 0, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no streams", zoff_grad_ready(e.get(), 0, 0, h));
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "handed over twice", zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_OK(zoff_step(e.get(), &args, nullptr)); // after all these errors the engine is unchanged
}

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

TEST(Refusals, BackEndsThatAreNotThere)
{
    zoff_accel *accel = nullptr;
    zoff_comm *comm = nullptr;
    zoff_comm_opts opts = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no accelerator \"gpu\"; it has: host, emulated, cuda (a plug-in)",
                      zoff_accel_open("gpu", 0, &accel));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_UNSUPPORTED, "the accelerator \"cuda\" is a plug-in, and cannot be loaded: no ",
        zoff_accel_open("cuda", 0, &accel)); /* This program contains the library, so there is no plug-in beside it. */
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "one device, number 0", zoff_accel_open("host", 1, &accel));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_comm_opts)", zoff_comm_open(&opts, &comm));
    opts.struct_size = sizeof opts;
    opts.backend = "gloo";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no communicator \"gloo\"; choose self, threads", zoff_comm_open(&opts, &comm));
    EXPECT_EQ(nullptr, accel);
    EXPECT_EQ(nullptr, comm);
}

// Refuse an engine that would do only a part of the work for ranks.
TEST(Refusals, NullIsNeverFatal)
{
    zoff_engine_destroy(nullptr);
    zoff_accel_close(nullptr);
    zoff_comm_close(nullptr);
    zoff_config_close(nullptr);
    zoff_aio_close(nullptr);
    float x;
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step(nullptr, nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_begin(nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_wait(nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_retry(nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_grads_drop(nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_engine_seal(nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_engine_add_param(nullptr, nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_engine_set_group(nullptr, 0, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_param_bind(nullptr, 0, nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_grad_ready(nullptr, 0, 0, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_params_pull(nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_params_push(nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_state_read(nullptr, 0, ZOFF_STATE_M, 0, 0, &x));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_state_write(nullptr, 0, ZOFF_STATE_M, 0, 0, &x));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_count(nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_count_set(nullptr, 0));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_stats_print(nullptr, nullptr, 0, nullptr));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_engine_plan(nullptr, nullptr));
}
} // namespace
