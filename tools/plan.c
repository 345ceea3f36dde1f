/* plan.c: `zoff plan FILE`: what a model takes by tier under a configuration, and how long a drive lasts. Nothing is allocated
 * or opened: the figures are those that an engine would make itself by. */
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct plan_options {
    const char *path;
    double elements, tbw; /* of the model; terabytes that the drive's maker lets be written, 0: not given */
    zoff_dtype dtype;
    char **sets;
    int set_count;
} plan_options;

static void print_bytes(const char *what, uint64_t bytes)
{
    printf("%-34s %12.3f GiB  %16" PRIu64 "\n", what, (double)bytes / (1 << 30), bytes);
}

static int print_plan(const plan_options *o, const zoff_plan_info *info)
{
    const bool nvme = info->tier == ZOFF_TIER_NVME;
    printf("%" PRIu64 " elements, states on %s, %u threads\n\n", info->elements, nvme ? "NVMe" : "DRAM", info->threads);
    print_bytes("states", info->state_bytes);
    print_bytes("DRAM for states", info->host_bytes);
    if (info->accumulator_bytes)
        print_bytes("DRAM for gradient accumulation", info->accumulator_bytes);
    if (nvme) {
        print_bytes("  of it chunks that stay there", info->resident_bytes);
        print_bytes("files", info->nvme_bytes);
        printf("%-34s %12" PRIu64 "  of at most %.1f MiB, %u at a time in DRAM\n", "chunks", info->chunk_count,
               (double)info->chunk_bytes / (1 << 20), info->slots);
        print_bytes("read from files in a step", info->step_read_bytes);
        print_bytes("written to files in a step", info->step_write_bytes);
    }
    if (o->tbw > 0 && info->step_write_bytes)
        printf("\na drive that may be written %g TB lasts %.0f steps\n", o->tbw,
               floor(o->tbw * 1e12 / (double)info->step_write_bytes));
    else if (o->tbw > 0)
        printf("\nno step writes to a drive\n");
    return finish_output();
}

/* An engine that is never sealed. */
static int plan(const plan_options *o, zoff_config *config)
{
    zoff_engine *e;
    zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config};
    zoff_param_desc desc = {.struct_size = sizeof desc, .count = (size_t)o->elements, .dtype = o->dtype, .name = "model"};
    zoff_plan_info info = {.struct_size = sizeof info};
    if (zoff_engine_create(&opts, &e) < 0)
        return library_error();
    int result = EXIT_DONE;
    if (zoff_engine_add_param(e, &desc, NULL) < 0 || zoff_engine_plan(e, &info) < 0)
        result = library_error();
    zoff_engine_destroy(e);
    return result == EXIT_DONE ? print_plan(o, &info) : result;
}

static int run(const plan_options *o)
{
    zoff_config *config;
    int result = open_config(o->path, o->sets, o->set_count, &config);
    if (result != EXIT_DONE)
        return result;
    result = plan(o, config);
    zoff_config_close(config);
    return result;
}

/* "7e9" and "7000000000" alike. */
static int read_number(const char *option, const char *text, double most, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (*end || end == text || errno || !(*out >= 1 && *out <= most))
        return usage_error("%s needs a number from 1 to %g, not \"%s\"", option, most, text);
    return EXIT_DONE;
}

static int read_dtype(const char *text, zoff_dtype *out)
{
    static const struct {
        const char *name;
        zoff_dtype dtype;
    } TYPES[] = {{"bf16", ZOFF_BF16}, {"fp16", ZOFF_F16}, {"fp32", ZOFF_F32}};
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (strcmp(TYPES[i].name, text) == 0) {
            *out = TYPES[i].dtype;
            return EXIT_DONE;
        }
    }
    return usage_error("--dtype may be bf16, fp16 or fp32, not \"%s\"", text);
}

static int read_option(plan_options *o, const char *option, char *value)
{
    if (strcmp(option, "--elements") == 0)
        return read_number(option, value, 1e15, &o->elements);
    if (strcmp(option, "--tbw") == 0)
        return read_number(option, value, 1e9, &o->tbw);
    if (strcmp(option, "--dtype") == 0)
        return read_dtype(value, &o->dtype);
    if (strcmp(option, "--set") == 0) {
        o->sets[o->set_count++] = value; /* gathered at the front, which has been read */
        return EXIT_DONE;
    }
    return usage_error("plan: there is no option \"%s\"", option);
}

int verb_plan(int argc, char **argv)
{
    plan_options o = {.dtype = ZOFF_BF16, .sets = argv};
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            if (i + 1 == argc)
                return usage_error("%s needs a value", argv[i]);
            int result = read_option(&o, argv[i], argv[i + 1]);
            if (result != EXIT_DONE)
                return result;
            i++;
        } else if (o.path) {
            return usage_error("plan: one file at a time: \"%s\" or \"%s\"", o.path, argv[i]);
        } else {
            o.path = argv[i];
        }
    }
    if (!o.path)
        return usage_error("plan: which file?");
    return o.elements >= 1 ? run(&o) : usage_error("plan: how many parameters? --elements N");
}
