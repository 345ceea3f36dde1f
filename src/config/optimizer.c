/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c: the parameters of each optimizer.type: which ones it has, and their defaults. */
#include "config_priv.h"
#include "log.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PARAMS "optimizer.params."

/* Parameters that not every optimizer has. */
static const struct {
    const char *path, *types;
    bool zero_is_nothing; /* a value of 0 or false has no effect, so every optimizer takes it */
} USES[] = {
    {PARAMS "betas", "Adam|AdamW|Lion|Muon", false},
    {PARAMS "eps", "Adam|AdamW|Adagrad|Muon", false},
    {PARAMS "adam_w_mode", "Adam|AdamW", false},
    {PARAMS "bias_correction", "Adam|AdamW", false},
    {PARAMS "momentum", "SGD|Muon", true},
    {PARAMS "dampening", "SGD", true},
    {PARAMS "nesterov", "SGD|Muon", true},
    {PARAMS "muon_lr", "Muon", false},
    {PARAMS "adam_lr", "Muon", false},
    {PARAMS "ns_method", "Muon", false},
    {PARAMS "ns_steps", "Muon", false},
    {PARAMS "adjust_lr_fn", "Muon", false},
    {PARAMS "lr_decay", "Adagrad", true},
    {PARAMS "initial_accumulator_value", "Adagrad", true},
};

static const char *type_of(const zoff_config *config)
{
    return zoff_config_value_find(config, "optimizer.type")->texts[0];
}

zoff_optimizer zoff_config_optimizer_type(const zoff_config *config)
{
    static const struct {
        const char *type;
        zoff_optimizer optimizer;
    } NAMES[] = {{"Adagrad", ZOFF_OPTIMIZER_ADAGRAD},
                 {"Lion", ZOFF_OPTIMIZER_LION},
                 {"SGD", ZOFF_OPTIMIZER_SGD},
                 {"Muon", ZOFF_OPTIMIZER_MUON}};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(type_of(config), NAMES[i].type) == 0)
            return NAMES[i].optimizer;
    }
    return ZOFF_OPTIMIZER_ADAM; /* Adam and AdamW */
}

bool zoff_config_optimizer_has(const zoff_config *config, const char *path)
{
    for (size_t i = 0; i < sizeof USES / sizeof USES[0]; i++) {
        if (strcmp(USES[i].path, path) == 0)
            return zoff_config_schema_in_list(USES[i].types, type_of(config), NULL, NULL);
    }
    return true;
}

/* The effective cell of a parameter that was not given, so that its default can be replaced; NULL if it was given. */
static zoff_config_cell *open_cell(const zoff_config *config, const char *path)
{
    const size_t row = zoff_config_schema_index(zoff_config_schema_find(path));
    const bool is_given = config->api[row].kind == ZOFF_CELL_VALUE ||
                          (config->api[row].kind == ZOFF_CELL_ABSENT && config->file[row].kind == ZOFF_CELL_VALUE);
    return is_given ? NULL : &config->effective[row];
}

static void set_default(const zoff_config *config, const char *path, double number)
{
    zoff_config_cell *cell = open_cell(config, path);
    if (!cell)
        return;
    cell->kind = ZOFF_CELL_VALUE;
    cell->number = number;
    cell->integer = (int64_t)number;
}

/* Both rates of Muon default to lr, if that is given. */
static void set_muon_defaults(const zoff_config *config, const zoff_optimizer_hyper *hyper)
{
    const bool has_lr = !open_cell(config, PARAMS "lr");
    const double lr = zoff_config_value_find(config, PARAMS "lr")->number;
    set_default(config, PARAMS "muon_lr", has_lr ? lr : hyper->lr);
    set_default(config, PARAMS "adam_lr", has_lr ? lr : hyper->adam_lr);
    set_default(config, PARAMS "momentum", hyper->momentum);
    set_default(config, PARAMS "nesterov", hyper->nesterov);
}

/* Set DeepSpeed's defaults. They equal those of zoff_optimizer_hyper_init(), except for Lion: DeepSpeed gives Lion the lr and
 * betas of Adam. */
static void set_defaults(const zoff_config *config)
{
    const zoff_optimizer type = zoff_config_optimizer_type(config);
    zoff_optimizer_hyper hyper, adam;
    zoff_optimizer_hyper_init(&adam, ZOFF_OPTIMIZER_ADAM);
    zoff_optimizer_hyper_init(&hyper, type);
    if (type == ZOFF_OPTIMIZER_LION) {
        hyper.lr = adam.lr;
        hyper.beta1 = adam.beta1;
        hyper.beta2 = adam.beta2;
    }
    set_default(config, PARAMS "lr", hyper.lr);
    set_default(config, PARAMS "eps", hyper.eps);
    if (zoff_config_optimizer_has(config, PARAMS "muon_lr"))
        set_muon_defaults(config, &hyper);
    zoff_config_cell *betas = open_cell(config, PARAMS "betas");
    if (betas) {
        betas->numbers[0] = hyper.beta1;
        betas->numbers[1] = hyper.beta2;
    }
}

static zoff_status check_uses(const zoff_config *config)
{
    const zoff_config_cell *type = zoff_config_value_find(config, "optimizer.type");
    for (size_t i = 0; i < sizeof USES / sizeof USES[0]; i++) {
        const zoff_config_cell *cell = zoff_config_value_find(config, USES[i].path);
        char owners[64];
        if (open_cell(config, USES[i].path) || zoff_config_optimizer_has(config, USES[i].path) ||
            (USES[i].zero_is_nothing && cell->number == 0))
            continue;
        zoff_config_schema_join(USES[i].types, owners, sizeof owners);
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: %s is a parameter of optimizer.type %s, but %s (%s) does not have it; remove it, "
                                     "or choose another optimizer",
                                     zoff_config_value_source(cell), USES[i].path, owners, type->texts[0],
                                     zoff_config_value_source(type));
    }
    return ZOFF_OK;
}

/* Refuse numbers that fp32 cannot hold, because the kernels compute in fp32. A step refuses them as well, but cannot name a
 * line of the file. */
static zoff_status check_sizes(const zoff_config *config)
{
    static const char *const PATHS[] = {PARAMS "lr",
                                        PARAMS "muon_lr",
                                        PARAMS "adam_lr",
                                        PARAMS "eps",
                                        PARAMS "weight_decay",
                                        PARAMS "momentum",
                                        PARAMS "dampening",
                                        PARAMS "lr_decay",
                                        PARAMS "initial_accumulator_value",
                                        "scheduler.params.warmup_min_lr",
                                        "scheduler.params.warmup_max_lr",
                                        "scheduler.params.cycle_min_lr",
                                        "scheduler.params.cycle_max_lr",
                                        "scheduler.params.lr_range_test_min_lr"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        const zoff_config_cell *cell = zoff_config_value_find(config, PATHS[i]);
        ZOFF_FAIL_IF(fabs(cell->number) > (double)FLT_MAX, ZOFF_ERR_INVALID,
                     "%s: %s: %g is beyond fp32, in which steps are computed; expected less", zoff_config_value_source(cell),
                     PATHS[i], cell->number);
    }
    return ZOFF_OK;
}

/* The moment of Muon is a mean, so that 1 - momentum of a gradient is part of it. */
static zoff_status check_momentum(const zoff_config *config)
{
    const zoff_config_cell *momentum = zoff_config_value_find(config, PARAMS "momentum");
    ZOFF_FAIL_IF(zoff_config_optimizer_has(config, PARAMS "muon_lr") && !(momentum->number < 1), ZOFF_ERR_INVALID,
                 "%s: " PARAMS "momentum is %.17g; expected a number from 0 to below 1 with optimizer.type Muon",
                 zoff_config_value_source(momentum), momentum->number);
    return ZOFF_OK;
}

size_t zoff_config_optimizer_rows(const char *entry, size_t *out)
{
    const size_t most = (size_t)1 << 53; /* of all rows together, so that their sum fits */
    const char *at = strrchr(entry, '=');
    size_t count = 0, row, sum = 0;
    if (!at || at == entry)
        return 0;
    do {
        row = 0;
        for (at++; *at >= '0' && *at <= '9' && row < most; at++)
            row = row * 10 + (size_t)(*at - '0');
        sum += row;
        if (row == 0 || row >= most || sum >= most || (*at && *at != ','))
            return 0;
        if (out)
            out[count] = row;
        count++;
    } while (*at);
    return count;
}

/* Entries of zoff.muon_rows have a form of their own. */
static zoff_status check_rows(const zoff_config *config)
{
    const zoff_config_cell *rows = zoff_config_value_find(config, "zoff.muon_rows");
    for (size_t i = 0; i < rows->count; i++)
        ZOFF_FAIL_IF(!zoff_config_optimizer_rows(rows->texts[i], NULL), ZOFF_ERR_INVALID,
                     "%s: zoff.muon_rows: \"%s\" is no list of rows; expected PATTERN=ROWS,ROWS,... with numbers from 1 on, as "
                     "in \"*qkv.weight=4096,1024,1024\"",
                     zoff_config_value_source(rows), rows->texts[i]);
    return ZOFF_OK;
}

static zoff_status check_nesterov(const zoff_config *config)
{
    if (!zoff_config_optimizer_has(config, PARAMS "dampening"))
        return ZOFF_OK;
    const zoff_config_cell *nesterov = zoff_config_value_find(config, PARAMS "nesterov");
    const double momentum = zoff_config_value_find(config, PARAMS "momentum")->number;
    const double dampening = zoff_config_value_find(config, PARAMS "dampening")->number;
    ZOFF_FAIL_IF(nesterov->integer && (momentum == 0 || dampening != 0), ZOFF_ERR_INVALID,
                 "%s: " PARAMS "nesterov needs a momentum above 0 and a dampening of 0; they are %g and %g",
                 zoff_config_value_source(nesterov), momentum, dampening);
    return ZOFF_OK;
}

static void warn_decay_mode(const zoff_config *config)
{
    const zoff_config_cell *mode = zoff_config_value_find(config, PARAMS "adam_w_mode");
    if (!mode->integer && strcmp(type_of(config), "AdamW") == 0)
        ZOFF_WARN("%s: " PARAMS "adam_w_mode has no effect with optimizer.type AdamW (%s): the decay stays decoupled. "
                  "Type Adam with adam_w_mode false adds it to the gradient",
                  mode->source, zoff_config_value_source(zoff_config_value_find(config, "optimizer.type")));
}

zoff_status zoff_config_optimizer_settle(zoff_config *config)
{
    ZOFF_TRY(check_uses(config));
    ZOFF_TRY(check_sizes(config));
    ZOFF_TRY(check_nesterov(config));
    ZOFF_TRY(check_momentum(config));
    ZOFF_TRY(check_rows(config));
    set_defaults(config);
    if (!config->has_warned)
        warn_decay_mode(config);
    return ZOFF_OK;
}
