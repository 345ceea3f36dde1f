/* SPDX-License-Identifier: Apache-2.0 */
/* zoff.c: the zoff command: a table of verbs, their help, and their dispatch. */
#include "universal_verbs.h"
#include "verbs.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments, *help;
} VERBS[] = {
    {"api", verb_api, "[--json]",
     "print the calls of the C API, a line each. Option --json prints its description for generators of bindings: structs\n"
     "      with offsets, enums, calls and their comments"},
    {"check", verb_check, "FILE [--changed] [--ranks N] [--device NAME] [--model MODEL] [--set KEY=VALUE]...",
     "read a configuration and print its effective values, each with its source; with --changed without the defaults.\n"
     "      An error is what an engine would refuse. Its folders are not looked at. NAME is the device that the trainer\n"
     "      opens, such as cuda; without it the host. With --model, print instead which tensors of MODEL, a safetensors file\n"
     "      or a folder of them, have matrices for optimizer.type Muon, and how many of which shape"},
    {"checkpoint", verb_checkpoint, "verify|pin|unpin FOLDER [--label L], or diff FOLDER FOLDER [--label L]",
     "Verify compares every byte with its checksum. Diff prints what differs between two checkpoints, and exits with 1 if\n"
     "      anything does. Pin lets saves that keep only the newest checkpoints keep this one, too. FOLDER is a checkpoint, "
     "or\n"
     "      a folder of checkpoints with the newest one"},
    {"checkpoint inspect", verb_checkpoint_inspect, "FOLDER [--stats] [--json] [--label L], or FOLDER --manifest [--label L]",
     "print what a checkpoint has: parameters, the format of each state, and the program's bytes. Option --stats reads all\n"
     "      states, and prints min, max and rms of their finite numbers, and how many are NaN or infinite. Option --manifest\n"
     "      prints the manifest, which is JSON"},
    {"checkpoint list", verb_checkpoint_list, "FOLDER [--json]",
     "print the checkpoints of a folder, the newest first: step, time, size and ranks, which one is `latest`, which are not\n"
     "      complete and why, and what removes those that nobody needs"},
    {"checkpoint reshard", verb_checkpoint_reshard, "FOLDER... -o CHECKPOINTS [--name N] [--label L]",
     "make a checkpoint of the persistent state files of all ranks, while no run has them open. FOLDER is one of nvme_path;\n"
     "      give those of all ranks. A run with any number of ranks, stage, tier and drives loads the checkpoint. That load\n"
     "      writes the new state files: this command writes none"},
    {"checkpoint scrub", verb_checkpoint_scrub, "FOLDER... [--json]",
     "compare every array of persistent state files with its checksum, while no run has them open. FOLDER is one of\n"
     "      nvme_path. Exits with 1 if anything is wrong. Option --json prints the result as JSON"},
    {"export", verb_export,
     "FOLDER -o DIR [--dtype keep|bf16|fp16|fp32] [--max-shard-size 5GB] [--only PATTERN]...\n"
     "      [--rename OLD=NEW]... [--label L]",
     "write the weights of a checkpoint to DIR as safetensors files. FOLDER is a checkpoint, or a folder of checkpoints with\n"
     "      the newest one. The weights are the masters, rounded to the type of the parameter (keep) or to one type. Option\n"
     "      --only names tensors, with * for any text. Option --rename gives tensors other names: * in NEW is the text that "
     "it\n"
     "      is in OLD. --label chooses one of several engines"},
    {"export universal", universal_export, "FOLDER -o DIR --like DEEPSPEED [--label L]",
     "write a checkpoint to DIR as a universal checkpoint folder of DeepSpeed. DEEPSPEED is such a folder of the same model:\n"
     "      its states are replaced, and its files of the model are copied"},
    {"import", verb_import, "FILE",
     "print what a file or folder is, and which of the verbs below reads it, or what converts it"},
    {"import safetensors", verb_import_safetensors,
     "FILE|DIR... -o FOLDER [--optimizer adam|lion|adagrad|sgd|none] [--step N] [--dtype keep|bf16|fp16|fp32]\n"
     "      [--frozen PATTERN]... [--stack NAME=PATTERN]... [--skip PATTERN]... [--name N]",
     "write a checkpoint whose masters are the tensors of safetensors files. The moments are ZERO, and those of --optimizer\n"
     "      (adam unless given; sgd means with momentum). Option --step sets the number of updates. Option --dtype sets the\n"
     "      type of the weights; masters stay exact. Option --frozen names parameters without states. Option --stack makes\n"
     "      tensors the slices of one parameter: PATTERN is their name with {} for 0, 1, 2. Option --skip leaves tensors out.\n"
     "      In the other patterns * is any text. Option --name names the checkpoint"},
    {"import torch", verb_import_torch,
     "FILE|DIR... -o FOLDER [--optimizer FILE|adam|lion|adagrad|sgd|none] [--step N] [--dtype keep|bf16|fp16|fp32]\n"
     "      [--frozen PATTERN]... [--stack NAME=PATTERN]... [--skip PATTERN]... [--name N]",
     "write a checkpoint with the state_dict of a model that torch.save() has written. The moments and the step are those of\n"
     "      --optimizer FILE, a state_dict of torch.optim, or of the optimizer that a training program has saved in the same\n"
     "      file. Where there is none, or with a name in --optimizer, the moments are zero. The other options are those of\n"
     "      import safetensors"},
    {"import universal", universal_import,
     "DEEPSPEED -o FOLDER [--dtype keep|bf16|fp16|fp32] [--step N] [--stack NAME=PATTERN]... [--name N]",
     "write a checkpoint with the masters, moments and step of DEEPSPEED, a universal checkpoint folder. Weights have the\n"
     "      type that they have there, unless --dtype gives one. Option --step sets the number of updates. Option --stack "
     "makes\n"
     "      parameters the slices of one: PATTERN is their name with {} for 0, 1, 2. Option --name names the checkpoint"},
    {"info", verb_info, "", "print the version, the instruction set in use, and the CPUs and memory of this machine"},
    {"plan", verb_plan,
     "FILE --elements N [--matrices RxC[*N],...] [--ranks N] [--dtype bf16|fp16|fp32] [--tbw TB] [--measure]\n"
     "      [--ranks-per-node G --link-intra GB/s --link-inter GB/s [--message-us 3] [--compute-seconds S] [--sweep]]\n"
     "      [--set KEY=VALUE]...",
     "print how much memory and disk a model of N parameters (7e9, 7B, 350M) needs on each rank, and whether this machine has\n"
     "      it. Also print the time of a step, from a short measurement of the update. With --measure, measure the folder,\n"
     "      too, for two seconds. With --tbw, print how many steps a drive with an endurance of TB terabytes lasts. Option\n"
     "      --matrices says which of the elements are matrices for optimizer.type Muon: N of R rows and C columns. Option\n"
     "      --ranks-per-node prints messages, bytes and seconds of a step over links of these rates, which are those of a\n"
     "      rank, by each route. Option --compute-seconds is the program's own time of a step. Option --sweep prints CSV for\n"
     "      1, 2, 4, ... ranks"},
    {"reference", verb_reference, "", "print every configuration key, as Markdown"},
    {"schema", verb_schema, "", "print a JSON Schema of the configuration, for editors"},
    {"selftest", verb_selftest, "[FOLDER]",
     "compare what must have the same bits: the kernels of each instruction set of this CPU with the formulas. Then small\n"
     "      trainings in DRAM, in files in FOLDER (TMPDIR unless given), on several ranks, after a restart, from a "
     "checkpoint,\n"
     "      and beside the program. Exits with 1 if anything differs"},
    {"tune", verb_tune, "FOLDER [--json]",
     "measure for two seconds how fast a folder is, and print the best \"aio\" section for it"},
};
enum { VERB_COUNT = sizeof VERBS / sizeof VERBS[0] };

static void print_verb(FILE *to, size_t i)
{
    fprintf(to, "  zoff %s%s%s\n      %s\n", VERBS[i].name, *VERBS[i].arguments ? " " : "", VERBS[i].arguments, VERBS[i].help);
}

static void print_end(FILE *to)
{
    fprintf(to, "\nFILE may be - for standard input. --set is applied before the file is checked.\n"
                "Exit status: 0: done; 1: failed, with the reason on stderr; 2: wrong arguments.\n");
}

static void print_usage(FILE *to)
{
    fprintf(to, "usage: zoff VERB [ARGUMENTS]\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        print_verb(to, i);
    print_end(to);
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Print the help of a verb, and of the verbs that begin with its name, as `zoff help VERB` and `zoff VERB --help` do. The word
 * "help" without dashes is no option behind a verb, because a file may have that name. */
static int help_of(size_t verb)
{
    const size_t length = strlen(VERBS[verb].name);
    printf("usage:\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        const char *name = VERBS[i].name;
        if (strncmp(name, VERBS[verb].name, length) == 0 && (name[length] == 0 || name[length] == ' '))
            print_verb(stdout, i);
    }
    print_end(stdout);
    return finish_output();
}

/* How many arguments name this verb: one or two, as many as its name has words; 0: they name another one. */
static int words_of(size_t verb, int argc, char **argv)
{
    const char *name = VERBS[verb].name, *space = strchr(name, ' ');
    if (!space)
        return strcmp(name, argv[0]) == 0;
    const size_t first = (size_t)(space - name);
    const bool is_it =
        argc > 1 && strlen(argv[0]) == first && memcmp(name, argv[0], first) == 0 && strcmp(space + 1, argv[1]) == 0;
    return is_it ? 2 : 0;
}

/* Find the verb that the arguments name. A name of two words comes before its first word alone.  @return VERB_COUNT: there is
 * none
 */
static size_t find_verb(int argc, char **argv, int *out_words)
{
    size_t found = VERB_COUNT;
    *out_words = 0;
    for (size_t i = 0; i < VERB_COUNT; i++) {
        const int words = words_of(i, argc, argv);
        if (words > *out_words) {
            found = i;
            *out_words = words;
        }
    }
    return found;
}

static int run_verb(size_t verb, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && is_help(argv[i]))
            return help_of(verb);
    }
    return VERBS[verb].run(argc, argv);
}

/* Print a log line of the library in the form of a command's messages. */
static void print_log(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    (void)room;
    (void)ctx;
    print_line(stderr, "%s: %s", level == ZOFF_LOG_ERROR ? "error" : level == ZOFF_LOG_WARN ? "warning" : "note", line);
}

static void drop_line(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    (void)level;
    (void)room;
    (void)line;
    (void)ctx;
}

void set_log(bool prints)
{
    zoff_log_set(prints ? print_log : drop_line, NULL);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : NULL;
    signal(SIGXFSZ, SIG_IGN); /* so that a file beyond `ulimit -f` becomes an error that names it */
    if (!verb) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (is_help(verb) && argc == 2) {
        print_usage(stdout);
        return finish_output();
    }
    if (strcmp(verb, "--version") == 0) {
        printf("zoff %u.%u.%u\n", zoff_version() / 10000, zoff_version() / 100 % 100, zoff_version() % 100);
        return finish_output();
    }
    set_log(true);
    int words;
    const int first = is_help(verb) ? 2 : 1;
    const size_t found = find_verb(argc - first, argv + first, &words);
    if (found == VERB_COUNT)
        return usage_error("there is no verb \"%s\"", argv[first]);
    return first == 2 ? help_of(found) : run_verb(found, argc - 1 - words, argv + 1 + words);
}
