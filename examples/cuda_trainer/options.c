/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: the command line of the trainer. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: cuda_trainer [option ...]\n"
    "Train a GPT over bytes on a GPU. Weights and gradients are bf16 and on the GPU; the optimizer and its fp32\n"
    "states are zoff's: in DRAM, or in files. At stage 3 weights and gradients are zoff's, too: the GPU holds the\n"
    "layers that it computes.\n"
    "\n"
    "  --data FILE       the text (/usr/share/common-licenses/GPL-3)\n"
    "  --layers N --heads N --width N --context N   the model (4, 4, 256, 128)\n"
    "  --batch N         sequences in a step (16)\n"
    "  --steps N         how long (100)\n"
    "  --seed N          of the first weights and the order of the text (1)\n"
    "  --config FILE     ds_config JSON for zoff (its defaults: AdamW, states in DRAM)\n"
    "  --stage N         ZeRO stage, 0 to 3 (zero_optimization.stage of --config)\n"
    "  --offload-param WHERE   stage 3: weights are stored on the GPU (none), in DRAM (cpu) or in files (nvme)\n"
    "                    (zero_optimization.offload_param.device of --config)\n"
    "  --just-in-time    a forward pass begins while zoff still updates later layers; stages 0 to 2\n"
    "  --device N        which GPU (0)\n"
    "  --accel NAME      what zoff calls the kind of the device (cuda)\n";

enum flag_kind { COUNT, SEED, DEVICE, WORD, SWITCH, HELP };

/* One row for each flag, with the place of its value. */
typedef struct flag {
    const char *name;
    enum flag_kind kind;
    void *to;
} flag;

static int take(const flag *which, const char *value)
{
    char *end = NULL;
    if (which->kind == SWITCH) {
        *(bool *)which->to = true;
        return 0;
    }
    if (which->kind == WORD) {
        *(const char **)which->to = value;
        return 0;
    }
    errno = 0;
    const unsigned long long number = strtoull(value, &end, 10);
    const unsigned long long least = which->kind == COUNT, most = which->kind == SEED ? UINT64_MAX : 1000000000;
    if (errno || end == value || *end || value[0] == '-' || number < least || number > most) {
        fprintf(stderr, "cuda_trainer: --%s %s: expected a whole number%s\n", which->name, value, least ? " from 1 on" : "");
        return -1;
    }
    if (which->kind == COUNT)
        *(size_t *)which->to = (size_t)number;
    else if (which->kind == SEED)
        *(uint64_t *)which->to = number;
    else
        *(int *)which->to = (int)number;
    return 0;
}

int trainer_options_parse(int argc, char **argv, trainer_options *out)
{
    trainer_options o = {.data = "/usr/share/common-licenses/GPL-3",
                         .shape = {.layers = 4, .heads = 4, .width = 256, .context = 128, .batch = 16},
                         .steps = 100,
                         .seed = 1,
                         .accel = "cuda"};
    const flag flags[] = {{"data", WORD, &o.data},
                          {"layers", COUNT, &o.shape.layers},
                          {"heads", COUNT, &o.shape.heads},
                          {"width", COUNT, &o.shape.width},
                          {"context", COUNT, &o.shape.context},
                          {"batch", COUNT, &o.shape.batch},
                          {"steps", COUNT, &o.steps},
                          {"seed", SEED, &o.seed},
                          {"config", WORD, &o.config_path},
                          {"stage", WORD, &o.stage},
                          {"offload-param", WORD, &o.offload_param},
                          {"just-in-time", SWITCH, &o.just_in_time},
                          {"device", DEVICE, &o.device},
                          {"accel", WORD, &o.accel},
                          {"help", HELP, NULL}};
    enum { FLAGS = sizeof flags / sizeof flags[0] };
    struct option table[FLAGS + 1] = {0};
    for (int i = 0; i < FLAGS; i++)
        table[i] = (struct option){flags[i].name,
                                   flags[i].kind == HELP || flags[i].kind == SWITCH ? no_argument : required_argument, NULL, i};
    for (int which; (which = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (which == '?')
            return -1;
        if (flags[which].kind == HELP) {
            fputs(usage, stdout);
            return 1;
        }
        if (take(&flags[which], optarg))
            return -1;
    }
    if (optind < argc) {
        fprintf(stderr, "cuda_trainer: what is '%s'? Options start with --\n", argv[optind]);
        return -1;
    }
    *out = o;
    return 0;
}
