/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the ds_config of a run: its file, and the options that win over it. */
#include "options.h"

#include <stdio.h>
#include <zoff/zoff.h>

static zoff_status read_settings(const trainer_options *options, zoff_config **config, double *stage)
{
    const char *const given[][2] = {{"zero_optimization.stage", options->stage},
                                    {"zero_optimization.offload_param.device", options->offload_param}};
    zoff_status status = zoff_config_open(options->config_path, config);
    for (size_t i = 0; i < sizeof given / sizeof given[0] && status >= 0; i++)
        status = given[i][1] ? zoff_config_set(*config, given[i][0], given[i][1]) : status;
    if (status >= 0)
        status = zoff_config_resolve(*config, 1);
    return status < 0 ? status : zoff_config_number(*config, "zero_optimization.stage", stage);
}

int trainer_settings_open(trainer_options *options)
{
    zoff_config *config = NULL;
    double stage = 0;
    const zoff_status status = read_settings(options, &config, &stage);
    options->lent = stage == 3.0;
    if (status >= 0 && options->lent && options->just_in_time) {
        fprintf(stderr, "cuda_trainer: --just-in-time is for weights of this program: use stage 0 to 2\n");
        zoff_config_close(config);
        return -1;
    }
    if (status >= 0 && (options->lent || !options->offload_param)) {
        options->config = config;
        return 0;
    }
    if (status < 0)
        fprintf(stderr, "cuda_trainer: %s\n", zoff_last_error());
    else
        fprintf(stderr,
                "cuda_trainer: --offload-param %s has no effect at stage %.0f, where the weights are this program's; add "
                "--stage 3\n",
                options->offload_param, stage);
    zoff_config_close(config);
    return -1;
}

void trainer_settings_close(trainer_options *options)
{
    zoff_config_close(options->config);
    options->config = NULL;
}
