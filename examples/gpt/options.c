/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: the command line of the trainer. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: gpt --text FILE [--text FILE ...] [option ...]\n"
    "Train a GPT over bytes on text files.\n"
    "\n"
    "  --held-out FILE   the loss on this text, after the last step; for one rank\n"
    "  --layers N --heads N --width N --context N   the model (4, 4, 128, 64)\n"
    "  --batch N         sequences in a step (16)\n"
    "  --steps N         the run ends after this step, also one that goes on (100)\n"
    "  --seed N          of the first weights and the order of the text (1)\n"
    "  --dtype TYPE      fp32 or bf16: weights and gradients (fp32)\n"
    "  --optimizer NAME  plain: a loop of this program, fp32 only; zoff: the library (plain)\n"
    "  --config FILE     ds_config JSON for zoff; implies --optimizer zoff\n"
    "  --ranks BACKEND   zoff over several ranks, each with its share of a batch: auto (under mpirun), self.\n"
    "                    Rank 0 prints, and the loss is that of its share; with --json each rank writes a\n"
    "                    file, and the mean of their losses weighed by sequences is that of the batch\n"
    "  --tensor-parallel N\n"
    "                    N ranks share each layer of one copy of the model: they split heads and MLP, and each\n"
    "                    saves its part; needs --ranks auto or mpi, under mpirun (1)\n"
    "  --owned           zoff has weights and gradients, too; the passes borrow them slice by slice\n"
    "  --just-in-time    a forward pass begins while zoff still updates later layers; for one rank\n"
    "  --lr X --beta1 X --beta2 X --eps X --weight-decay X --clip X\n"
    "                    of the plain optimizer (1e-3, 0.9, 0.999, 1e-8, 0, 0: no clipping)\n"
    "  --save FOLDER     save checkpoints in this folder: at the end, and before a stop by SIGTERM\n"
    "  --save-every N    also after each N updates\n"
    "  --async           save these while further steps run\n"
    "  --keep N          the newest N checkpoints stay; 0: all (0)\n"
    "  --resume WHICH    go on from a checkpoint: its folder, or latest: the newest of --save, if there is one.\n"
    "                    With zoff.persist a run goes on by itself\n"
    "  --print-every N   a line each N steps; 0: none (10)\n"
    "  --name WORD       what the run is called in --json\n"
    "  --json FILE       write losses, times, memory and I/O of the run\n";

/* One row for each flag, with the place of its value. */
typedef struct flag {
    const char *name;
    enum { COUNT, SEED, REAL, WORD, TEXT, DTYPE, OPTIMIZER, CONFIG, SWITCH, HELP } kind;
    void *to;
} flag;

static int fail(const char *name, const char *value, const char *expected)
{
    fprintf(stderr, "gpt: --%s %s: expected %s\n", name, value, expected);
    return -1;
}

static int take(const flag *which, const char *value, gpt_options *o)
{
    char *end = NULL;
    errno = 0;
    switch (which->kind) {
    case COUNT:
    case SEED: {
        const unsigned long long number = strtoull(value, &end, 10);
        if (errno || end == value || *end || value[0] == '-' || (which->kind == COUNT && number > 1000000000))
            return fail(which->name, value, "a whole number");
        if (which->kind == COUNT)
            *(size_t *)which->to = (size_t)number;
        else
            *(uint64_t *)which->to = number;
        return 0;
    }
    case REAL: {
        const double number = strtod(value, &end);
        if (errno || end == value || *end || !isfinite(number) || number < 0.0)
            return fail(which->name, value, "a number that is not negative");
        *(double *)which->to = number;
        return 0;
    }
    case WORD:
        *(const char **)which->to = value;
        return 0;
    case TEXT:
        o->texts[o->text_count++] = value;
        return 0;
    case DTYPE:
        if (strcmp(value, "fp32") && strcmp(value, "bf16"))
            return fail(which->name, value, "fp32 or bf16");
        o->bf16 = !strcmp(value, "bf16");
        return 0;
    case OPTIMIZER:
        if (strcmp(value, "plain") && strcmp(value, "zoff"))
            return fail(which->name, value, "plain or zoff");
        o->with_zoff = !strcmp(value, "zoff");
        return 0;
    case CONFIG:
        o->config = value;
        o->with_zoff = true;
        return 0;
    case SWITCH:
        *(bool *)which->to = true;
        return 0;
    case HELP:
        fputs(usage, stdout);
        return 1;
    }
    return -1;
}

/* Only MPI can split the ranks of a job into rows and columns. */
static bool is_mpi(const char *ranks)
{
    return ranks && (!strcmp(ranks, "auto") || !strcmp(ranks, "mpi"));
}

static int check(const gpt_options *o)
{
    const char *wrong = NULL;
    if (o->text_count == 0)
        wrong = "--text FILE is missing (--help lists all options)";
    else if (o->bf16 && !o->with_zoff)
        wrong = "--optimizer plain keeps no fp32 masters: use --dtype fp32, or zoff with --config FILE";
    else if (o->config && !o->with_zoff)
        wrong = "--config is for --optimizer zoff";
    else if ((o->ranks || o->owned) && !o->with_zoff)
        wrong = "--ranks and --owned are for --optimizer zoff";
    else if ((o->ranks || o->owned) && o->held_out)
        wrong = "--held-out is for one rank that has its weights: without --ranks and --owned";
    else if (o->just_in_time && (!o->with_zoff || o->ranks || o->owned))
        wrong = "--just-in-time is for --optimizer zoff and one rank that has its weights: without --ranks and --owned";
    else if (o->tensor_parallel == 0 || o->tensor_parallel > 1024)
        wrong = "--tensor-parallel must be 1 to 1024";
    else if (o->tensor_parallel > 1 && !is_mpi(o->ranks))
        wrong = "--tensor-parallel is for the ranks of MPI: use --ranks auto or mpi, under mpirun";
    else if ((o->save || o->resume) && !o->with_zoff)
        wrong = "--save and --resume are for --optimizer zoff";
    else if ((o->save_every || o->async || o->keep) && !o->save)
        wrong = "--save-every, --async and --keep need --save FOLDER";
    else if (o->resume && !strcmp(o->resume, "latest") && !o->save)
        wrong = "--resume latest needs --save FOLDER, where the checkpoints are";
    else if (o->shape.batch == 0)
        wrong = "--batch must be at least 1";
    else if (o->steps == 0)
        wrong = "--steps must be at least 1";
    else if (o->hyper.beta1 >= 1.0 || o->hyper.beta2 >= 1.0)
        wrong = "--beta1 and --beta2 must be below 1";
    if (wrong)
        fprintf(stderr, "gpt: %s\n", wrong);
    return wrong ? -1 : 0;
}

int gpt_options_parse(int argc, char **argv, gpt_options *out)
{
    gpt_options o = {.shape = {.layers = 4, .heads = 4, .width = 128, .context = 64, .batch = 16},
                     .steps = 100,
                     .print_every = 10,
                     .seed = 1,
                     .tensor_parallel = 1,
                     .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                     .name = "run"};
    const flag flags[] = {{"text", TEXT, NULL},
                          {"held-out", WORD, &o.held_out},
                          {"layers", COUNT, &o.shape.layers},
                          {"heads", COUNT, &o.shape.heads},
                          {"width", COUNT, &o.shape.width},
                          {"context", COUNT, &o.shape.context},
                          {"batch", COUNT, &o.shape.batch},
                          {"steps", COUNT, &o.steps},
                          {"seed", SEED, &o.seed},
                          {"dtype", DTYPE, NULL},
                          {"optimizer", OPTIMIZER, NULL},
                          {"config", CONFIG, NULL},
                          {"ranks", WORD, &o.ranks},
                          {"tensor-parallel", COUNT, &o.tensor_parallel},
                          {"owned", SWITCH, &o.owned},
                          {"just-in-time", SWITCH, &o.just_in_time},
                          {"lr", REAL, &o.hyper.lr},
                          {"beta1", REAL, &o.hyper.beta1},
                          {"beta2", REAL, &o.hyper.beta2},
                          {"eps", REAL, &o.hyper.eps},
                          {"weight-decay", REAL, &o.hyper.weight_decay},
                          {"clip", REAL, &o.hyper.clip},
                          {"print-every", COUNT, &o.print_every},
                          {"save", WORD, &o.save},
                          {"save-every", COUNT, &o.save_every},
                          {"async", SWITCH, &o.async},
                          {"keep", COUNT, &o.keep},
                          {"resume", WORD, &o.resume},
                          {"name", WORD, &o.name},
                          {"json", WORD, &o.json},
                          {"help", HELP, NULL}};
    enum { FLAGS = sizeof flags / sizeof flags[0] };
    struct option table[FLAGS + 1] = {0};
    for (int i = 0; i < FLAGS; i++)
        table[i] = (struct option){flags[i].name,
                                   flags[i].kind == HELP || flags[i].kind == SWITCH ? no_argument : required_argument, NULL, i};
    o.texts = calloc((size_t)argc, sizeof *o.texts);
    int result = o.texts ? 0 : -1;
    while (result == 0) {
        const int which = getopt_long(argc, argv, "", table, NULL);
        if (which == -1)
            break;
        result = which == '?' ? -1 : take(&flags[which], optarg, &o);
    }
    if (result == 0 && optind < argc) {
        fprintf(stderr, "gpt: what is '%s'? Options start with --\n", argv[optind]);
        result = -1;
    }
    if (result == 0)
        result = check(&o);
    if (result == 0)
        *out = o;
    else
        free(o.texts);
    return result;
}

void gpt_options_free(gpt_options *options)
{
    free(options->texts);
    *options = (gpt_options){0};
}
