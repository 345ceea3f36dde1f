/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c: the table of all configuration keys, and functions to search it. Rows of one section stand together, in the order
 * of docs/CONFIG.md. */
#include "schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MANY INFINITY /* no upper limit for counts: DeepSpeed takes any integer, and sys.maxsize is one of its defaults */
#define LARGEST_SHOWN 9007199254740992.0 /* messages do not show a higher limit, because nobody exceeds it */
#define RANGE(low, high) .ranged = true, .min = (low), .max = (high)
#define BELOW(low, high) RANGE(low, high), .below_max = true
#define CUTS .cuts = true          /* counts of elements may have fractions, because scripts compute them */
#define DIFFERS .may_differ = true /* the value may differ between ranks */
#define SECTION(path_, ...)                                                                                                    \
    {                                                                                                                          \
        .path = path_, .type = ZOFF_KEY_SECTION, .class_ = ZOFF_CLASS_HONOURED, __VA_ARGS__                                    \
    }
#define HONOUR(path_, type_, fallback_, ...)                                                                                   \
    {                                                                                                                          \
        .path = path_, .type = ZOFF_KEY_##type_, .class_ = ZOFF_CLASS_HONOURED, .fallback = fallback_, __VA_ARGS__             \
    }
#define REFUSE(path_, type_, fallback_, accepts_, ...)                                                                         \
    {                                                                                                                          \
        .path = path_, .type = ZOFF_KEY_##type_, .class_ = ZOFF_CLASS_REFUSED, .fallback = fallback_, .accepts = accepts_,     \
        __VA_ARGS__                                                                                                            \
    }
#define IGNORE(path_, help_)                                                                                                   \
    {                                                                                                                          \
        .path = path_, .type = ZOFF_KEY_ANY, .class_ = ZOFF_CLASS_IGNORED, .help = help_                                       \
    }
#define ALIAS(path_, target_, help_)                                                                                           \
    {                                                                                                                          \
        .path = path_, .class_ = ZOFF_CLASS_ALIAS, .target = target_, .help = help_                                            \
    }

/* Optimizers and schedules of DeepSpeed and PyTorch. Those that zoff lacks are refused by name; any other name is an unknown
 * value. */
#define OPTIMIZERS                                                                                                             \
    "Adam|AdamW|FusedAdam|CPUAdam|Adagrad|Lamb|OneBitAdam|ZeroOneAdam|OneBitLamb|MuAdam|MuAdamW|MuSGD|Lion|Muon|SGD|RMSprop|"  \
    "Adadelta|Adafactor|Adamax|ASGD|LBFGS|NAdam|RAdam|Rprop|SparseAdam"
#define SCHEDULES                                                                                                              \
    "WarmupLR|WarmupCosineLR|WarmupDecayLR|OneCycle|LRRangeTest|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|"         \
    "PolynomialLR|CosineAnnealingLR|CosineAnnealingWarmRestarts|CyclicLR|OneCycleLR|LambdaLR|MultiplicativeLR|SequentialLR|"   \
    "ReduceLROnPlateau"

#define HELP_GATHER "how weights are sent between ranks; their values do not change"
#define HELP_DATA "the trainer decides which samples and tokens the model sees"
#define HELP_GRAPHS "about graphs of PyTorch's optimizers; zoff's step runs on the CPU"
#define HELP_IMPLEMENTATION "which implementation computes the update; zoff has its own, with the same formula"
#define HELP_MODULES "about Python modules; a program fetches each weight where it uses it"
#define HELP_UNREAD "a documented key that DeepSpeed does not read"
#define HELP_BUFFERS "about inputs and buffers of the model, which are the trainer's"
#define HELP_MOVES "how gradients and weights are sent between ranks; the mean does not change"
#define HELP_MONITOR "logging and monitoring are the trainer's; zoff reports through zoff_step_info and its log"
#define HELP_FORWARD "about the forward and backward pass, which the trainer computes"
#define HELP_NO_SCALE "bf16 has the range of fp32 and needs no loss scale; zoff has one for fp16 only"
#define HELP_PIPELINE "zoff always reads ahead and writes behind; buffer_count sets how far"

/* clang-format off */
static const zoff_config_key TABLE[] = {
/* ---- the batch ---- */
HONOUR("train_batch_size", INTEGER, "auto", RANGE(1, 4294967295.0),
       .help = "Samples per update over all ranks. Computed from the other two when absent"),
HONOUR("train_micro_batch_size_per_gpu", INTEGER, "auto", RANGE(1, 4294967295.0),
       .help = "Samples per rank and micro-step. Computed when absent; 0 (unknown) without any batch size"),
HONOUR("gradient_accumulation_steps", INTEGER, "auto", RANGE(1, 4294967295.0),
       .help = "Micro-steps per update; gradients are added up in fp32 and averaged. Computed when absent; 1 if no batch key decides it"),
HONOUR("gradient_clipping", NUMBER, "0",
       .help = "Largest L2 norm of all gradients together; 0 or less: no clipping. DeepSpeed's default was 0 until 2026 and is 1.0 since. In zoff_step_args.clip_norm 0 means this value, and -1 (ZOFF_OFF) no clipping"),
HONOUR("steps_per_print", INTEGER, "0", RANGE(0, MANY),
       DIFFERS, .help = "Number of updates between two log lines of progress; 0 or null: no such lines"),

/* ---- optimizer ---- */
SECTION("optimizer", .help = "The optimizer of the update"),
HONOUR("optimizer.type", CHOICE, "AdamW", .choices = OPTIMIZERS, .accepts = "Adam|AdamW|Adagrad|Lion|SGD|Muon",
       .why = "set optimizer.type to one of these, or keep that optimizer in the trainer",
       .help = "`Adam` also decouples the weight decay, as in DeepSpeed, unless adam_w_mode is false. `Adagrad` and `SGD` follow PyTorch, `Lion` its paper. "
               "`Muon` updates matrices by its own rule, and all other parameters as AdamW does. "
               "A key of optimizer.params that the optimizer does not have is an error. But momentum, dampening, nesterov, lr_decay and "
               "initial_accumulator_value may always be 0 or false"),
SECTION("optimizer.params", .help = "Hyper-parameters of the optimizer"),
HONOUR("optimizer.params.lr", NUMBER, "0.001", RANGE(0, INFINITY),
       .help = "Learning rate, which a schedule may change. The default for Adagrad is 0.01, for Muon that of muon_lr and adam_lr"),
HONOUR("optimizer.params.muon_lr", NUMBER, "null", RANGE(0, INFINITY), .help = "Muon: learning rate of matrices; null: that of lr, or 0.02 if none is given"),
HONOUR("optimizer.params.adam_lr", NUMBER, "null", RANGE(0, INFINITY),
       .help = "Muon: learning rate of all other parameters; null: that of lr, or 0.0003 if none is given. A schedule that scales the rate keeps the ratio of the two; one that sets a rate sets both"),
HONOUR("optimizer.params.betas", NUMBERS, "[0.9, 0.999]", BELOW(0, 1), .count = 2,
       .help = "Adam, AdamW: decay rates of the first and second moment. Lion: share of the old moment in the sign, and in the next moment (its paper uses 0.9 and 0.99). Muon: as Adam, for parameters that are no matrices; its default is [0.9, 0.95]"),
HONOUR("optimizer.params.eps", NUMBER, "1e-8", RANGE(0, INFINITY),
       .help = "Adam, AdamW: added to the root of the corrected second moment. Adagrad: added to the root of the sum of squares; its default is 1e-10. Muon: as Adam; its default is 1e-10. An engine refuses 0, also a number that is 0 in fp32"),
HONOUR("optimizer.params.weight_decay", NUMBER, "0", RANGE(0, INFINITY),
       .help = "Weight decay; 0: none. Adagrad and SGD add it to the gradient, Lion and Muon decouple it"),
HONOUR("optimizer.params.adam_w_mode", BOOL, "true",
       .help = "false: type `Adam` adds the decay to the gradient (L2). No effect with type `AdamW`"),
HONOUR("optimizer.params.momentum", NUMBER, "0", RANGE(0, INFINITY), .help = "SGD: share of the old moment; 0: no moment, and no state for it. Muon: below 1; the new moment has 1 - momentum of the gradient, and the default is 0.95"),
HONOUR("optimizer.params.dampening", NUMBER, "0",
       .help = "SGD with momentum: the gradient is multiplied by 1 - dampening before it is added to the moment"),
HONOUR("optimizer.params.nesterov", BOOL, "false", .help = "SGD: Nesterov momentum; needs a momentum above 0 and a dampening of 0. Muon: its default is true"),
HONOUR("optimizer.params.ns_method", CHOICE, "gram", .choices = "gram|standard",
       .help = "Muon: how a matrix is orthogonalized. `gram` works on the smaller square matrix of products where one side is at least twice the other, and as `standard` otherwise. Both compute the same function with other roundings"),
HONOUR("optimizer.params.ns_steps", INTEGER, "5", RANGE(1, 99), .help = "Muon: iterations of the orthogonalization"),
HONOUR("optimizer.params.adjust_lr_fn", CHOICE, "original", .choices = "original|match_rms_adamw",
       .help = "Muon: factor of the rate of a matrix of r rows and c columns. `original`: sqrt(max(1, r / c)). `match_rms_adamw`: 0.2 sqrt(max(r, c)). Then updates are as large as those of AdamW"),
HONOUR("optimizer.params.lr_decay", NUMBER, "0", RANGE(0, INFINITY), .help = "Adagrad: update number t uses lr / (1 + (t - 1) * lr_decay)"),
HONOUR("optimizer.params.initial_accumulator_value", NUMBER, "0", RANGE(0, INFINITY), .help = "Adagrad: initial value of the sum of squares"),
HONOUR("optimizer.params.bias_correction", BOOL, "true", .help = "Adam, AdamW: divide the moments by 1 - beta^t; false: use them as they are"),
REFUSE("optimizer.params.amsgrad", BOOL, "false", "false", .why = "zoff has no AMSGrad, and DeepSpeed ignores this key silently; set it to false",
       .help = "Use the largest second moment seen so far"),
REFUSE("optimizer.params.maximize", BOOL, "false", "false", .why = "zoff only minimizes; change the sign of the loss",
       .help = "Maximize instead of minimize"),
REFUSE("optimizer.params.max_grad_norm", NUMBER, NULL, "", .why = "it is not an optimizer parameter; use the top-level key gradient_clipping",
       .help = "Old name of a limit on the gradient norm"),
REFUSE("optimizer.params.fp32_optimizer_states", BOOL, "true", "true",
       .why = "moments in 16 bits are asked for by zoff.moments \"bf16\"; set this key to true", .help = "Keep the moments in fp32"),
IGNORE("optimizer.params.torch_adam", HELP_IMPLEMENTATION),
IGNORE("optimizer.params.fused", HELP_IMPLEMENTATION),
IGNORE("optimizer.params.foreach", HELP_IMPLEMENTATION),
IGNORE("optimizer.params.capturable", HELP_GRAPHS),
IGNORE("optimizer.params.differentiable", HELP_GRAPHS),
IGNORE("optimizer.params.set_grad_none", "gradient buffers are the trainer's"),
IGNORE("optimizer.legacy_fusion", "an old fp16 path of DeepSpeed"),

/* ---- scheduler ---- */
SECTION("scheduler", .help = "The schedule of the learning rate"),
HONOUR("scheduler.type", CHOICE, "null", .choices = SCHEDULES, .accepts = "WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest",
       .why = "zoff has the schedules of DeepSpeed, not those of PyTorch; use one of them, or leave the scheduler out and let the "
              "trainer set lr with zoff_engine_set_lr()",
       .help = "null: the learning rate is constant. The formulas are DeepSpeed's. OneCycle and LRRangeTest give all groups the same rate. "
               "Hyper-parameters given with a step win over the schedule"),
SECTION("scheduler.params", .help = "Parameters of the schedule; t counts updates from 0"),
HONOUR("scheduler.params.warmup_min_lr", NUMBER, "0", RANGE(0, INFINITY), .help = "WarmupLR, WarmupDecayLR: learning rate at the start"),
HONOUR("scheduler.params.warmup_max_lr", NUMBER, "null", RANGE(0, INFINITY),
       .help = "WarmupLR, WarmupDecayLR: learning rate after the warm-up; null: the group's own, optimizer.params.lr. If the key is absent, WarmupDecayLR "
               "uses 0.001, as in DeepSpeed; for null or \"auto\" it uses the group's own"),
HONOUR("scheduler.params.warmup_num_steps", INTEGER, "1000", RANGE(0, MANY), .help = "Updates of warm-up; 0 and 1 count as 2, as in DeepSpeed"),
HONOUR("scheduler.params.warmup_type", CHOICE, "log", .choices = "log|linear",
       .help = "Shape of the warm-up: `log` is ln(t + 1) / ln(steps), `linear` is t / steps"),
HONOUR("scheduler.params.total_num_steps", INTEGER, "null", RANGE(0, MANY),
       .help = "WarmupDecayLR, WarmupCosineLR: updates of the whole run; required there. WarmupDecayLR decreases linearly to 0 until then"),
HONOUR("scheduler.params.warmup_min_ratio", NUMBER, "0", RANGE(0, 1), .help = "WarmupCosineLR: share of lr at the start"),
HONOUR("scheduler.params.cos_min_ratio", NUMBER, "1e-4", RANGE(0, 1), .help = "WarmupCosineLR: share of lr at the end"),
HONOUR("scheduler.params.cycle_min_lr", NUMBER, "null", RANGE(0, INFINITY), .help = "OneCycle: learning rate at both ends of the cycle; required there"),
HONOUR("scheduler.params.cycle_max_lr", NUMBER, "null", RANGE(0, INFINITY), .help = "OneCycle: learning rate at the top of the cycle; required there"),
HONOUR("scheduler.params.decay_lr_rate", NUMBER, "0",
       .help = "OneCycle: after the cycle the rate is cycle_min_lr / (1 + decay_lr_rate * k), where k counts intervals of decay_step_size; 0: the rate stays"),
HONOUR("scheduler.params.cycle_first_step_size", INTEGER, "2000", RANGE(1, MANY), .help = "OneCycle: updates on the way up"),
HONOUR("scheduler.params.cycle_second_step_size", INTEGER, "null", RANGE(0, MANY), .help = "OneCycle: updates on the way down; null: as many as on the way up"),
HONOUR("scheduler.params.cycle_first_stair_count", INTEGER, "0", RANGE(0, MANY), .help = "OneCycle: number of stairs on the way up; 0: the rate rises with every update"),
HONOUR("scheduler.params.cycle_second_stair_count", INTEGER, "null", RANGE(0, MANY), .help = "OneCycle: number of stairs on the way down; null: as many as on the way up"),
HONOUR("scheduler.params.decay_step_size", INTEGER, "0", RANGE(0, MANY), .help = "OneCycle: updates in an interval of decay after the cycle; 0: no decay"),
HONOUR("scheduler.params.cycle_momentum", BOOL, "true",
       .help = "OneCycle: as in DeepSpeed, beta1 of Adam, AdamW and Lion moves opposite to the rate, from cycle_max_mom down and up again, and beta2 is 0.99. Update 1 "
               "uses cycle_min_mom. No effect with Adagrad, SGD and Muon"),
HONOUR("scheduler.params.cycle_min_mom", NUMBER, "0.8", BELOW(0, 1), .help = "OneCycle: beta1 at the top of the cycle"),
HONOUR("scheduler.params.cycle_max_mom", NUMBER, "0.9", BELOW(0, 1), .help = "OneCycle: beta1 at both ends of the cycle"),
HONOUR("scheduler.params.decay_mom_rate", NUMBER, "0",
       .help = "OneCycle: after the cycle beta1 is cycle_max_mom * (1 + decay_mom_rate * k); 0: beta1 stays. A step with a beta1 of 1 or more is an error"),
HONOUR("scheduler.params.lr_range_test_min_lr", NUMBER, "0.001", RANGE(0, INFINITY), .help = "LRRangeTest: learning rate at the start"),
HONOUR("scheduler.params.lr_range_test_step_size", INTEGER, "2000", RANGE(1, MANY), .help = "LRRangeTest: updates in an interval"),
HONOUR("scheduler.params.lr_range_test_step_rate", NUMBER, "1.0", .help = "LRRangeTest: each interval adds lr_range_test_min_lr times this"),
HONOUR("scheduler.params.lr_range_test_staircase", BOOL, "false", .help = "LRRangeTest: raise the rate at the end of each interval; false: with every update"),
REFUSE("scheduler.params.last_batch_iteration", INTEGER, "-1", "-1", RANGE(-1, MANY),
       .why = "the schedule follows the step number; set that with zoff_step_count_set()", .help = "The step at which the schedule starts"),

/* ---- types ---- */
SECTION("bf16", .help = "Training in bfloat16"),
HONOUR("bf16.enabled", BOOL, "false", .help = "Weights are bf16. The type of each parameter is still given through the API"),
REFUSE("bf16.bf16_master_weights_and_grads", BOOL, "false", "false",
       .why = "master weights are always fp32; set it to false", .help = "Keep the master weights in bf16"),
REFUSE("bf16.bf16_optimizer_states", BOOL, "false", "false",
       .why = "moments in bf16 are asked for by zoff.moments \"bf16\", with masters in fp32; set this key to false", .help = "Keep the moments in bf16"),
IGNORE("bf16.loss_scale", HELP_NO_SCALE), IGNORE("bf16.initial_scale_power", HELP_NO_SCALE), IGNORE("bf16.loss_scale_window", HELP_NO_SCALE),
IGNORE("bf16.hysteresis", HELP_NO_SCALE), IGNORE("bf16.consecutive_hysteresis", HELP_NO_SCALE), IGNORE("bf16.min_loss_scale", HELP_NO_SCALE),
IGNORE("bf16.auto_cast", HELP_BUFFERS),
IGNORE("bf16.check_grad_overflow", "zoff.skip_nonfinite decides about gradients that are not finite"),
IGNORE("bf16.immediate_grad_update", "zoff takes gradients when the trainer reports them as ready"),
SECTION("fp16", .help = "Training in half precision with loss scaling. The trainer multiplies its loss by zoff_loss_scale(), and the engine divides the gradients by it"),
HONOUR("fp16.enabled", BOOL, "false", .help = "Weights are fp16, and gradients are multiplied by the loss scale. The type of each parameter is still given through the API. An error together with bf16.enabled"),
HONOUR("fp16.loss_scale", NUMBER, "0", RANGE(0, INFINITY),
       .help = "0: dynamic, which is halved when a gradient overflows and doubled after fp16.loss_scale_window steps without an overflow. Any other number: a fixed scale"),
HONOUR("fp16.initial_scale_power", INTEGER, "16", RANGE(0, 127), .help = "Dynamic: the first scale is 2 to this power"),
HONOUR("fp16.loss_scale_window", INTEGER, "1000", .help = "Dynamic: the scale is doubled each time after this many steps without an overflow; at least 1"),
HONOUR("fp16.hysteresis", INTEGER, "2", .help = "Dynamic: number of the overflow that first halves the scale, at least 1. Later ones halve it too, until the scale is doubled and counting starts again"),
HONOUR("fp16.consecutive_hysteresis", BOOL, "false", .help = "Dynamic: every step without an overflow restarts the count of hysteresis"),
HONOUR("fp16.min_loss_scale", INTEGER, "1",
       .help = "Dynamic: the smallest scale, at least 1. If a gradient overflows at this scale, the step is skipped and zoff_step_wait() returns ZOFF_ERR_OVERFLOW. The trainer decides whether to continue"),
REFUSE("fp16.fp16_master_weights_and_grads", BOOL, "false", "false",
       .why = "master weights are always fp32; set it to false", .help = "Keep the master weights in fp16"),
IGNORE("fp16.opt_level", HELP_UNREAD),
IGNORE("fp16.dynamic_loss_scale", "a key that DeepSpeed documented once and does not read; fp16.loss_scale 0 means dynamic"),
IGNORE("fp16.auto_cast", HELP_BUFFERS),
SECTION("amp", .open = true, .help = "NVIDIA Apex mixed precision: not supported"),
REFUSE("amp.enabled", BOOL, "false", "false", .why = "zoff has no Apex; use \"fp16\": {\"enabled\": true}, which scales the loss too, or bf16",
       .help = "Train with Apex"),
SECTION("data_types", .help = "Types of buffers"),
REFUSE("data_types.grad_accum_dtype", CHOICE, "fp32", "fp32", .choices = "fp32|fp16|bf16|int8",
       .why = "gradients are always added up in fp32; set it to \"fp32\" or leave it out", .help = "Type in which gradients are added up"),
IGNORE("data_types.param_dtype", "the type of each parameter is given through the API"),
IGNORE("data_types.buffer_dtype", HELP_BUFFERS),

/* ---- zero_optimization ---- */
SECTION("zero_optimization", .help = "Which rank owns which states, and where they are stored. The old form `true` means stage 1"),
HONOUR("zero_optimization.stage", INTEGER, "0", RANGE(0, 3),
       .help = "The ZeRO stage. Every stage works with states in DRAM and on NVMe (DeepSpeed: NVMe with stage 3 only). offload_param needs stage 3"),
HONOUR("zero_optimization.sub_group_size", INTEGER, "1e9", RANGE(0, MANY), CUTS,
       .help = "Largest number of elements in a chunk, the unit in which states are stored and moved. zoff.host_memory can make chunks smaller. 0: as many as the largest slice of a parameter has "
               "(DeepSpeed then makes a group of each parameter)"),
HONOUR("zero_optimization.cpu_offload", BOOL, "false", DIFFERS, .excludes = "zero_optimization.offload_optimizer", .help = "Old name: true means offload_optimizer.device `cpu`. An error together with offload_optimizer"),
SECTION("zero_optimization.offload_optimizer", .help = "Where the optimizer states are stored"),
HONOUR("zero_optimization.offload_optimizer.device", CHOICE, "none", .choices = "none|cpu|nvme",
       .help = "`cpu`: in DRAM. `nvme`: in files under nvme_path, streamed through DRAM of zoff.host_memory bytes. `none` means DRAM as well, not the accelerator"),
HONOUR("zero_optimization.offload_optimizer.nvme_path", TEXTS, "null",
       DIFFERS, .help = "Folder for the state files, or a list of folders on different drives; required with `nvme` unless zoff.nvme_paths is given"),
HONOUR("zero_optimization.offload_optimizer.buffer_count", INTEGER, "4", RANGE(0, MANY),
       DIFFERS, .help = "Chunks in DRAM at a time on the NVMe tier. Less than 2 counts as 2, the least that overlaps disk and CPU. More than 1024 counts as 1024"),
HONOUR("zero_optimization.offload_optimizer.ratio", NUMBER, "1", RANGE(0, 1),
       .help = "Share of the states that is offloaded (Twin-Flow), rounded to whole chunks. The rest stays on the accelerator and is updated there. Below 1 it needs an accelerator with memory of its own. With ranks that are not joined by `nccl`, sums of gradients and new weights pass the host. With zoff.persist each step also writes these states to the files"),
IGNORE("zero_optimization.offload_optimizer.pin_memory", "memory for transfers to and from a device is always pinned"),
IGNORE("zero_optimization.offload_optimizer.pipeline", HELP_PIPELINE),
IGNORE("zero_optimization.offload_optimizer.pipeline_read", HELP_PIPELINE),
IGNORE("zero_optimization.offload_optimizer.pipeline_write", HELP_PIPELINE),
IGNORE("zero_optimization.offload_optimizer.fast_init", "how the first master weights are written"),
IGNORE("zero_optimization.offload_optimizer.super_offload", "a schedule of the same step"),
IGNORE("zero_optimization.offload_optimizer.cpuadam_cores_perc", "zoff.threads sets the threads of the update"),
SECTION("zero_optimization.offload_param", .help = "Where the weights that the engine owns (`zoff_param_desc.engine_owned`) are stored while they are not in use. Only at stage 3, as in DeepSpeed. Weights in the program's own memory stay there"),
HONOUR("zero_optimization.offload_param.device", CHOICE, "none", .choices = "none|cpu|nvme",
       .help = "`cpu`: in DRAM. `nvme`: in files, which are read ahead, or when zoff_param_fetch() is called. `none`: on the device that lends them, or in DRAM without a device. No effect below stage 3"),
HONOUR("zero_optimization.offload_param.nvme_path", TEXTS, "null",
       DIFFERS, .help = "Folder for the files with weights, or a list of folders; null: the folders of the optimizer states"),
HONOUR("zero_optimization.offload_param.buffer_count", INTEGER, "5", RANGE(0, MANY),
       .help = "Chunks of weights in DRAM at a time on the NVMe tier, including those that are read ahead. Less than 2 counts as 2, more than 1024 as 1024"),
HONOUR("zero_optimization.offload_param.buffer_size", INTEGER, "1e8", RANGE(0, MANY), CUTS,
       .help = "Largest number of elements in a chunk of weights, at least 1024. zoff makes no chunk larger than 2 Mi elements, so that several are in flight"),
HONOUR("zero_optimization.offload_param.max_in_cpu", INTEGER, "1e9", RANGE(0, MANY), CUTS,
       .help = "On the NVMe tier: elements of weights that stay in DRAM, in addition to the buffers; 0: none"),
IGNORE("zero_optimization.offload_param.pin_memory", "memory for transfers to and from a device is always pinned"),
HONOUR("zero_optimization.cpu_offload_params", BOOL, "false", DIFFERS, .excludes = "zero_optimization.offload_param", .help = "Old name: true means offload_param.device `cpu`"),
IGNORE("zero_optimization.cpu_offload_use_pin_memory", "an old name without effect"),
REFUSE("zero_optimization.zenflow", ANY, NULL, "",
       .why = "ZenFlow updates a part of the weights late, so its results differ from those of Adam; remove the section", .help = "ZenFlow"),
HONOUR("zero_optimization.zero_hpz_partition_size", INTEGER, "1", RANGE(0, MANY),
       .help = "hpZ, at stage 3: each group of so many consecutive ranks, usually those of a node, stores all engine-owned weights once more, and fetches stay within it. It must divide the number of ranks. 0, 1, or all ranks: no groups"),
REFUSE("zero_optimization.zero_quantized_weights", BOOL, "false", "false", .why = "qwZ rounds the weights that the model uses, to halve what stage 3 fetches from other nodes. zero_hpz_partition_size removes nearly all of that without rounding; set it to false",
       .help = "qwZ: weights are sent as int8"),
REFUSE("zero_optimization.zero_quantized_nontrainable_weights", BOOL, "false", "false", .why = "zoff leaves frozen weights as they are; set it to false",
       .help = "Frozen weights are stored as int8"),
REFUSE("zero_optimization.zero_quantized_gradients", BOOL, "false", "false", .why = "qgZ rounds gradients twice, in groups of ranks, and sends 1 byte an element. zoff.reduce_scatter \"exact\" sends 7/8 of a byte between nodes of 8 ranks without such rounding; set it to false",
       .help = "qgZ: gradients are sent as int4"),
REFUSE("zero_optimization.zeropp_loco_param", ANY, NULL, "", .why = "LoCo belongs to quantized gradients, which zoff does not have; remove it", .help = "LoCo error feedback"),
REFUSE("zero_optimization.mics_shard_size", INTEGER, "-1", "-1|0", RANGE(-1, MANY), .why = "MiCS gives each group of ranks all states, so each rank has more updates, for which offloading waits. zero_hpz_partition_size keeps fetches within a group, too; set it to -1", .help = "MiCS: ranks of a shard group"),
REFUSE("zero_optimization.legacy_stage1", BOOL, "false", "false", .why = "DeepSpeed has removed the old stage 1 as well; set it to false", .help = "The first implementation of stage 1"),
IGNORE("zero_optimization.mics_hierarchical_params_gather", HELP_GATHER),
IGNORE("zero_optimization.contiguous_gradients", "gradient buffers are the trainer's"),
IGNORE("zero_optimization.overlap_comm", HELP_MOVES), IGNORE("zero_optimization.reduce_scatter", HELP_MOVES),
HONOUR("zero_optimization.reduce_bucket_size", INTEGER, "5e8", RANGE(0, MANY), CUTS, .help = "Largest number of elements in a bucket, the unit of the exchange between ranks: at most 64 Mi, and buffers of an eighth of the memory. If the key is not given, 8 Mi, or more where a rank would have less than 128 KiB for another one. 0: as many as the "
               "largest slice of a parameter has (DeepSpeed then reduces each parameter alone)"),
IGNORE("zero_optimization.use_multi_rank_bucket_allreduce", HELP_MOVES),
IGNORE("zero_optimization.allgather_partitions", HELP_MOVES), IGNORE("zero_optimization.allgather_bucket_size", HELP_MOVES),
IGNORE("zero_optimization.allgather_sequential", HELP_GATHER), IGNORE("zero_optimization.use_all_reduce_for_fetch_params", HELP_GATHER),
IGNORE("zero_optimization.round_robin_gradients", "which rank owns which element; the result is the same"),
IGNORE("zero_optimization.ignore_unused_parameters", "a parameter without a gradient is legal in zoff"),
IGNORE("zero_optimization.load_from_fp32_weights", "about DeepSpeed's checkpoints"),
IGNORE("zero_optimization.elastic_checkpoint", "about DeepSpeed's checkpoints"),
IGNORE("zero_optimization.pipeline_loading_checkpoint", "about DeepSpeed's checkpoints"),
IGNORE("zero_optimization.stage3_gather_16bit_weights_on_model_save", "the program saves its model; zoff_param_read() reads the weights"),
HONOUR("zero_optimization.stage3_prefetch_bucket_size", INTEGER, "5e7", RANGE(0, MANY), CUTS,
       .help = "Elements of weights that are prefetched, in the order in which the previous pass used them; 0: none"),
HONOUR("zero_optimization.stage3_param_persistence_threshold", INTEGER, "1e5", RANGE(0, MANY), CUTS,
       .help = "A slice of at most this many elements always stays whole where it is lent, so fetching it reads nothing"),
HONOUR("zero_optimization.stage3_model_persistence_threshold", INTEGER, "9e15", RANGE(0, MANY), CUTS,
       .help = "Largest number of elements, over all such slices, that always stay whole"),
HONOUR("zero_optimization.stage3_max_live_parameters", INTEGER, "1e9", RANGE(0, MANY), CUTS,
       .help = "Elements of fetched weights that are whole at a time, in DRAM or on a device, in use or cached for the next use. 0: room for one slice of each parameter, and no prefetch"),
IGNORE("zero_optimization.stage3_max_reuse_distance", "released weights stay cached until stage3_max_live_parameters needs their room"),
IGNORE("zero_optimization.stage3_module_granularity_threshold", HELP_MODULES),
IGNORE("zero_optimization.stage3_use_all_reduce_for_fetch_params", HELP_GATHER), IGNORE("zero_optimization.stage3_allgather_sequential", HELP_GATHER),
IGNORE("zero_optimization.memory_efficient_linear", HELP_FORWARD), IGNORE("zero_optimization.override_module_apply", HELP_MODULES),
IGNORE("zero_optimization.leaf_module", HELP_MODULES), IGNORE("zero_optimization.log_trace_cache_warnings", HELP_MONITOR),
IGNORE("zero_optimization.enable_sanity_checks", "zoff always checks"), IGNORE("zero_optimization.grad_hooks", HELP_MODULES),
IGNORE("zero_optimization.save_muon_momentum_buffer_in_memory", "zoff.host_memory decides what stays in memory"),
ALIAS("zero_optimization.cpu_offload_param", "zero_optimization.cpu_offload_params", "another spelling"),
ALIAS("zero_optimization.stage3_sub_group_size", "zero_optimization.sub_group_size", "another spelling"),
ALIAS("zero_optimization.gather_16bit_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "without stage3_"),
ALIAS("zero_optimization.stage3_gather_fp16_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "old name"),
ALIAS("zero_optimization.gather_fp16_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "old name"),
ALIAS("zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size", "without stage3_"),
ALIAS("zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold", "without stage3_"),
ALIAS("zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold", "without stage3_"),
ALIAS("zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters", "without stage3_"),
ALIAS("zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance", "without stage3_"),
ALIAS("zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold", "without stage3_"),
ALIAS("zero_optimization.aio", "aio", "the place in Hugging Face's examples; the top-level section wins, key by key, with a warning"),
ALIAS("bfloat16", "bf16", "old name"),

/* ---- aio ---- */
SECTION("aio", .help = "How files are read and written. `\"aio\": \"auto\"` measures the folders of the state files once, for two seconds, and uses the best values. Keys that are set by `zoff_config_set()` or `--set` stay. `zoff tune FOLDER` prints these values as a section"),
HONOUR("aio.block_size", BYTES, "2MiB", RANGE(4096, 1073741824.0), DIFFERS, .help = "Bytes of one request to the disk; DeepSpeed's default is 1 MiB"),
HONOUR("aio.queue_depth", INTEGER, "32", RANGE(1, 4096), DIFFERS, .help = "Requests in flight per file. DeepSpeed's default is 8 for each of its threads"),
IGNORE("aio.intra_op_parallelism", "threads per request; zoff keeps the disk busy with one queue per file"),
IGNORE("aio.thread_count", HELP_UNREAD), IGNORE("aio.num_threads", HELP_UNREAD),
IGNORE("aio.single_submit", "how requests are submitted to the kernel"), IGNORE("aio.overlap_events", "how requests are submitted to the kernel"),
IGNORE("aio.use_gds", "zoff has no GPUDirect Storage: states are staged in DRAM, where they are updated"),

/* ---- keys that only zoff has ---- */
SECTION("zoff", .help = "Keys that only zoff has. DeepSpeed ignores this section"),
HONOUR("zoff.device_memory", BYTES, "auto", RANGE(1, MANY), DIFFERS, .help = "Largest memory of the engine on a device (`\"8GiB\"`): `zoff_plan_info.device_bytes`. A plan that needs more is refused at seal, with the keys that reduce it. auto: no limit but that of the device"),
HONOUR("zoff.host_memory", BYTES, "auto", RANGE(1, MANY), DIFFERS, .help = "Largest DRAM for optimizer states, also on the NVMe tier (`\"64MiB\"`). auto: as much as states in DRAM need; on NVMe buffer_count chunks. On NVMe, memory beyond buffer_count chunks keeps other chunks in DRAM from step to step"),
HONOUR("zoff.nvme_paths", TEXTS, "null", DIFFERS, .help = "Folders for the state files. Wins over offload_optimizer.nvme_path if both come from the file, or both from the program"),
HONOUR("zoff.background_threads", INTEGER, "0", RANGE(0, 1024), DIFFERS, .help = "Threads that update while the program computes: from the first `zoff_param_wait()` of a step on and, with zoff.speculation_memory, during the backward pass. There they also measure gradients of one rank in host memory. They need CPUs beside those of the program. 0: updates run inside calls only"),
HONOUR("zoff.speculation_memory", BYTES, "0", RANGE(0, MANY), DIFFERS, .help = "DRAM, beside zoff.host_memory, for buckets that are updated before `zoff_step_begin()`. It holds their new weights, and for states in DRAM their new states. State files have two places for each chunk then, as with zoff.persist. The step has the same bits as without. 0: no bucket is updated ahead"),
HONOUR("zoff.check_use", BOOL, "false", DIFFERS, .help = "Debugging, for one rank with weights in host memory: from `zoff_step_begin()` on weights are inaccessible until `zoff_param_wait()` has returned for them, and `zoff_step_wait()` tells of an earlier use. A system call that gets such a weight fails with EFAULT. A step also refuses weights that the program has changed without `zoff_params_pull()`"),
HONOUR("zoff.threads", INTEGER, "auto", RANGE(1, 1024), DIFFERS, .help = "Threads of the update. auto: one for each physical core that this process may use; ranks on one host share the cores. With `nvme` an update uses fewer threads if it waits for the disk"),
HONOUR("zoff.skip_nonfinite", BOOL, "true", .counts = true,
       .help = "true: a step whose gradients contain an inf or nan is skipped, with a warning. A number n: the same, but from the n-th in a row on zoff_step_wait() returns ZOFF_ERR_OVERFLOW. With false and no clipping gradients are not checked, which saves one pass over them, and an inf or nan reaches the weights. With clipping the step is skipped all the same. false is refused with `fp16`, whose loss scale needs skipped steps, and with moments in 8 bits"),
HONOUR("zoff.direct_io", CHOICE, "auto", .choices = "auto|require|off", DIFFERS, .help = "Use of O_DIRECT. `auto`: if the file system supports it. `require`: an error if it does not. `off`: never"),
HONOUR("zoff.io_backend", CHOICE, "auto", .choices = "auto|io_uring|threads|posix", DIFFERS, .help = "`threads`: pread and pwrite by up to 8 helper threads per file. `posix`: pread and pwrite by the calling thread, one at a time. By default the first of the three that works"),
HONOUR("zoff.persist", BOOL, "false", .word = "require", .help = "true: the state files survive the end of the process, also a crash. The next engine over the same parameters continues after the last complete step. With `require` a run that finds no states is an error, not a new run. Needs `nvme`, and twice the space. fp32 weights are then stored in the files as well"),
HONOUR("zoff.durability", CHOICE, "power", .choices = "process|power", .help = "With zoff.persist: the events that a completed step survives. `process`: the end of the process. `power`: also a power cut, which costs two flushes of the drive in each step"),
HONOUR("zoff.verify", CHOICE, "full", .choices = "full|sample|off", DIFFERS, .help = "When checksums of states in files are checked. `full`: at each read. `sample`: for each chunk in every 16th step. `off`: never"),
HONOUR("zoff.master", CHOICE, "auto", .choices = "auto|fp32|split", .help = "How the fp32 masters of bf16 weights are stored. `split`: only the 16 bits behind the weight are a state, so the program's buffer is half of the master. States that persist, and weights on a device, keep both halves. `fp32`: the master is a number of its own. Both give the same bits. auto: `split`. fp32 weights are their own masters. Masters of fp16 weights are always fp32, and `split` is refused for them"),
HONOUR("zoff.moments", CHOICE, "fp32", .choices = "fp32|bf16|m8v16|q8", .help = "How the moments of the optimizer are stored. `bf16`: in 2 bytes each. `m8v16`: the first in 1 byte, the second in 2. `q8`: both in 1 byte. They are rounded with random bits that depend on the parameter's name, the element and the step only. They need Adam or AdamW. Slices below 4,096 elements, and groups to which the program gives another optimizer, keep fp32 moments. Training is not the same as with fp32"),
HONOUR("zoff.fp32_moments", TEXTS, "null", .help = "Names of parameters whose moments stay fp32, whatever zoff.moments is. `*` stands for any characters, as in `[\"*.bias\", \"wte\"]`"),
HONOUR("zoff.no_decay", TEXTS, "null", .help = "Names of parameters whose weight decay is 0, as in `[\"*.bias\", \"*norm*\"]`. All else is that of their group, also where the program changes it"),
HONOUR("zoff.muon_params", TEXTS, "null", .help = "Muon: names of parameters that are matrices, too. All others with two or more dimensions are, unless their names have `embed`, `lm_head`, `wte` or `wpe` in them. "
               "`*` stands for any characters. Named parameters need `zoff_param_desc.dims`; vectors among them get AdamW"),
HONOUR("zoff.adam_params", TEXTS, "null", .help = "Muon: names of parameters that get AdamW, whatever else names them. Tied parameters get it if one of their names does"),
HONOUR("zoff.muon_rows", TEXTS, "null", .help = "Muon: how the first dimension of a parameter is cut into matrices, as in `[\"*qkv.weight=4096,1024,1024\"]`. The list has the rows of one matrix after the other, and is repeated until all rows are used. "
               "The first entry that matches a name counts. Without one, 3 dimensions are a stack of matrices, and of 4 the last three are the columns of one"),
HONOUR("zoff.muon_coefficients", CHOICE, "simple", .choices = "simple|quintic|polar_express|cans|deepseekv4", .help = "Muon: the polynomials of its iterations. `simple` is DeepSpeed's and PyTorch's"),
HONOUR("zoff.muon_scale", CHOICE, "null", .choices = "original|match_rms_adamw|spectral|unit_rms_norm", .help = "Muon: optimizer.params.adjust_lr_fn with two more values, and wins over it. `spectral`: sqrt(max(r, c)). `unit_rms_norm`: sqrt(r / c)"),
HONOUR("zoff.reduce_scatter", CHOICE, "auto", .choices = "auto|ordered|exact|nccl",
       .help = "How the gradients of micro-batches and ranks are added up. `ordered`: in fp32, in rank order, with the same bits on every tier. `exact`: as integers. Then the bits do not depend on the number of ranks either, or on which of them gets which micro-batch (docs/RANKS.md). With several micro-batches this takes 5 bytes more for each element that a rank owns. auto: the rule of the run that goes on; otherwise `ordered` on one host, and `exact` on several. With `nccl` ncclReduceScatter does it in fp32, with bits that "
               "depend on its algorithm and on the number of ranks. This needs gradients on GPUs and the communicator `nccl`, excludes a communication_data_type of 16 bits, and "
               "cannot name the rank whose gradient was not finite"),
HONOUR("zoff.node_ranks", INTEGER, "0", RANGE(0, MANY), .help = "Number of ranks of a node, which are consecutive. 0: as many as each host has. 1: gradients and weights take one hop. Over nodes of several ranks, gradients by the rule `exact` and updated weights take two hops (docs/RANKS.md), which change no bit"),
HONOUR("zoff.between_nodes", CHOICE, "auto", .choices = "auto|micro_step|step", .help = "When the exact sums of a node are sent to the others. `micro_step`: after each micro-batch. `step`: once. That takes 9 bytes of DRAM for each element, which the ranks of a node share. auto: `step` if an eighth of a host's free memory is enough"),
HONOUR("zoff.strict", BOOL, "true", DIFFERS, .help = "true: an unknown key is an error, at the top level only if it resembles a known one. false: a warning"),

/* ---- several ranks ---- */
HONOUR("prescale_gradients", BOOL, "false", .help = "true: divide each gradient by the number of ranks before the sum over the ranks instead of after it. The sum is in fp32"),
HONOUR("gradient_predivide_factor", NUMBER, "1", RANGE(1e-30, 1e30), .help = "Divide each gradient by this factor before the sum over ranks, and the sum by the number of ranks / factor. No effect with prescale_gradients"),
HONOUR("gradient_allreduce_op", CHOICE, "mean", .choices = "mean|sum", .help = "`mean`: the sum of the gradients of all ranks is divided by the number of ranks. `sum`: it is not. Both are the mean over the micro-steps of an update"),
HONOUR("communication_data_type", CHOICE, "null", .choices = "fp16|bf16|bfp16|fp32", .help = "Type in which gradients are sent to the rank that adds them up, in fp32; null: the type of each gradient. `bfp16` is DeepSpeed's name of `bf16`"),
REFUSE("sequence_parallel_size", INTEGER, "1", "1", RANGE(1, MANY),
       .why = "ranks that share a sequence change the batch arithmetic, which zoff does not support; set it to 1", .help = "Ranks that share a sequence"),
SECTION("tensor_parallel", .open = true, .help = "Slicing of layers over ranks: left to the trainer"),
REFUSE("tensor_parallel.autotp_size", INTEGER, "0", "0|1", RANGE(0, MANY),
       .why = "the trainer slices layers, not zoff, and gives zoff_engine_opts.norm_comm for the gradient norm (docs/RANKS.md); set it to 1", .help = "Ranks that share a layer"),
SECTION("elasticity", .open = true, .help = "Batch sizes chosen from the number of ranks: not supported"),
REFUSE("elasticity.enabled", BOOL, "false", "false", .why = "it would choose the batch sizes; set it to false and give the batch keys", .help = "Choose the batch sizes"),
REFUSE("managed_gradient_accumulation", BOOL, "true", "true",
       .why = "zoff counts the micro-steps; set it to true, or set gradient_accumulation_steps to 1 and call zoff_step() at your own boundary",
       .help = "The library counts the micro-steps"),

/* ---- changes to weights or to the model that DeepSpeed's engine makes, and zoff does not ---- */
REFUSE("quantize_training", ANY, NULL, "", .why = "it quantizes the weights after each step, which zoff does not do; remove the section", .help = "MoQ: quantization while training"),
REFUSE("compression_training", ANY, NULL, "", .why = "it prunes and quantizes weights while training, which zoff does not do; remove the section", .help = "Compression while training"),
REFUSE("weight_quantization", ANY, NULL, "", .why = "it quantizes weights, which zoff does not do; remove the section", .help = "Quantized weights"),
REFUSE("progressive_layer_drop", ANY, NULL, "",
       .why = "DeepSpeed's engine passes the drop rate to the model at every step, zoff does not; remove the section and let the trainer drop layers", .help = "Progressive layer drop"),
REFUSE("sparse_attention", ANY, NULL, "", .why = "DeepSpeed has attention kernels for it, zoff has none; remove the section", .help = "Sparse attention kernels"),

/* ---- known keys that concern other parts of a program ---- */
IGNORE("wall_clock_breakdown", "zoff_step_info and zoff_stats_print() report the times of every step"),
IGNORE("memory_breakdown", "zoff_engine_plan() reports the bytes"), IGNORE("dump_state", "zoff check prints the effective configuration"),
IGNORE("zero_allow_untested_optimizer", "the optimizer is zoff's"), IGNORE("zero_force_ds_cpu_optimizer", "the optimizer is zoff's"),
IGNORE("disable_allgather", HELP_MOVES), IGNORE("sparse_gradients", HELP_MOVES), IGNORE("fp32_allreduce", HELP_MOVES),
IGNORE("allgather_size", HELP_MOVES), IGNORE("seq_parallel_communication_data_type", "needs sequence_parallel_size > 1, which is refused"),
IGNORE("use_data_before_expert_parallelism", "order of ranks in a mixture of experts"), IGNORE("expert_parallel", HELP_FORWARD),
IGNORE("pipeline", HELP_FORWARD), IGNORE("activation_checkpointing", HELP_FORWARD), IGNORE("torch_autocast", HELP_FORWARD),
IGNORE("compile", HELP_FORWARD), IGNORE("graph_harvesting", HELP_FORWARD), IGNORE("hybrid_engine", "generation between training steps, done by the trainer"),
IGNORE("eigenvalue", "only guides quantize_training, which is refused"),
IGNORE("data_efficiency", HELP_DATA),
IGNORE("curriculum_learning", HELP_DATA),
IGNORE("dataloader_drop_last", HELP_DATA), IGNORE("autotuning", "about a search that runs outside of training"),
IGNORE("flops_profiler", HELP_FORWARD), IGNORE("timers", HELP_MONITOR), IGNORE("comms_logger", HELP_MONITOR),
IGNORE("monitor_config", HELP_MONITOR), IGNORE("tensorboard", HELP_MONITOR), IGNORE("wandb", HELP_MONITOR), IGNORE("comet", HELP_MONITOR),
IGNORE("csv_monitor", HELP_MONITOR), IGNORE("checkpoint", "about DeepSpeed's checkpoints"), IGNORE("nebula", "about DeepSpeed's checkpoints"),
IGNORE("log", HELP_MONITOR), IGNORE("comms_config", HELP_MONITOR), IGNORE("vocabulary_size", HELP_FORWARD),
IGNORE("datastates_ckpt", "about DeepSpeed's checkpoints"), IGNORE("cuda_visible_devices", "a stray key of published examples; the environment decides"),
};
/* clang-format on */

enum { ROWS = sizeof TABLE / sizeof TABLE[0], PATH_BYTES = 256 };

const zoff_config_key *zoff_config_schema_table(size_t *out_count)
{
    *out_count = ROWS;
    return TABLE;
}

const zoff_config_key *zoff_config_schema_find(const char *path)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(TABLE[i].path, path) == 0)
            return &TABLE[i];
    }
    return NULL;
}

const zoff_config_key *zoff_config_schema_child(const char *section, const char *key)
{
    char path[PATH_BYTES];
    if (strchr(key, '.'))
        return NULL;
    int length = snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", key);
    return length > 0 && length < PATH_BYTES ? zoff_config_schema_find(path) : NULL;
}

const zoff_config_key *zoff_config_schema_target(const zoff_config_key *key)
{
    return key && key->class_ == ZOFF_CLASS_ALIAS ? zoff_config_schema_find(key->target) : key;
}

const zoff_config_key *zoff_config_schema_resolve(const char *path)
{
    char word[PATH_BYTES];
    const zoff_config_key *row = NULL;
    const char *section = "";
    while (path) {
        const char *dot = strchr(path, '.');
        size_t bytes = dot ? (size_t)(dot - path) : strlen(path);
        if (bytes >= sizeof word)
            return NULL;
        memcpy(word, path, bytes);
        word[bytes] = 0;
        row = zoff_config_schema_target(zoff_config_schema_child(section, word));
        if (!row)
            return NULL;
        section = row->path;
        path = dot ? dot + 1 : NULL;
    }
    return row;
}

size_t zoff_config_schema_index(const zoff_config_key *key)
{
    return (size_t)(key - TABLE);
}

bool zoff_config_schema_in_list(const char *list, const char *word, const char **out_word, size_t *out_bytes)
{
    size_t length = strlen(word);
    while (*list) {
        size_t bytes = strcspn(list, "|");
        if (bytes == length && strncasecmp(list, word, bytes) == 0) {
            if (out_word) {
                *out_word = list;
                *out_bytes = bytes;
            }
            return true;
        }
        list += bytes + (list[bytes] == '|');
    }
    return false;
}

void zoff_config_schema_join(const char *list, char *dst, size_t dst_bytes)
{
    size_t used = 0;
    dst[0] = 0;
    while (*list && used < dst_bytes) {
        size_t bytes = strcspn(list, "|");
        bool first = used == 0, last = list[bytes] == 0;
        int length = snprintf(dst + used, dst_bytes - used, "%s\"%.*s\"", first ? "" : last ? " or " : ", ", (int)bytes, list);
        used += length > 0 ? (size_t)length : 0;
        list += bytes + (list[bytes] == '|');
    }
}

static void describe_range(const zoff_config_key *key, const char *noun, char *dst, size_t dst_bytes)
{
    if (!key->ranged)
        snprintf(dst, dst_bytes, "%s", noun);
    else if (key->max >= LARGEST_SHOWN)
        snprintf(dst, dst_bytes, "%s >= %.0f", noun, key->min);
    else
        snprintf(dst, dst_bytes, "%s from %.0f to %s%.0f", noun, key->min, key->below_max ? "below " : "", key->max);
}

void zoff_config_schema_expected(const zoff_config_key *key, char *dst, size_t dst_bytes)
{
    char words[512];
    switch (key->type) {
    case ZOFF_KEY_SECTION:
        snprintf(dst, dst_bytes, "an object {...}");
        break;
    case ZOFF_KEY_BOOL:
        snprintf(dst, dst_bytes,
                 key->word     ? "true, false or \"%s\""
                 : key->counts ? "true, false or a number >= 1"
                               : "true or false",
                 key->word);
        break;
    case ZOFF_KEY_INTEGER:
        describe_range(key, "an integer", dst, dst_bytes);
        break;
    case ZOFF_KEY_NUMBER:
        describe_range(key, "a number", dst, dst_bytes);
        break;
    case ZOFF_KEY_BYTES:
        describe_range(key, "a number of bytes, or a text like \"64MiB\",", dst, dst_bytes);
        break;
    case ZOFF_KEY_CHOICE:
        zoff_config_schema_join(key->accepts && *key->accepts ? key->accepts : key->choices, words, sizeof words);
        snprintf(dst, dst_bytes, "%s", words);
        break;
    case ZOFF_KEY_NUMBERS:
        snprintf(words, sizeof words, "a list of %u numbers, each", key->count);
        describe_range(key, words, dst, dst_bytes);
        break;
    case ZOFF_KEY_TEXTS:
        snprintf(dst, dst_bytes, "a text, or a list of texts");
        break;
    case ZOFF_KEY_ANY:
        snprintf(dst, dst_bytes, "anything");
        break;
    }
}
