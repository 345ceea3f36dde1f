/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: reads the variables of env.h. */
#include "env.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

static const char *const NAMES[] = {
#define E(id, variable, fallback, help) variable,
    ZOFF_ENV_LIST(E)
#undef E
};

const char *zoff_base_env_get(zoff_env id)
{
    const char *value = getenv(NAMES[id]);
    return value && value[0] ? value : 0;
}

const char *zoff_base_env_name(zoff_env id)
{
    return NAMES[id];
}

static const struct {
    const char *launcher, *count, *index, *only_with;
} LAUNCHERS[] = {
#define E(launcher, count, index, only_with) {launcher, count, index, only_with},
    ZOFF_ENV_LAUNCHER_LIST(E)
#undef E
};

enum { RANKS_MAX = 1 << 16 }; /* most ranks on one host; a larger number is a mistake */

/* Read the number that a variable begins with. Only a list of Slurm's may follow it; false for anything else. */
static bool read_number(const char *variable, unsigned limit, unsigned *out)
{
    const char *text = getenv(variable);
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || value > limit || (*end && *end != '(' && *end != ','))
        return false;
    *out = (unsigned)value;
    return true;
}

void zoff_base_env_ranks(zoff_env_ranks *out)
{
    *out = (zoff_env_ranks){.count = 1};
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof LAUNCHERS[0]; i++) {
        unsigned count, index;
        if (LAUNCHERS[i].only_with && !getenv(LAUNCHERS[i].only_with))
            continue;
        if (read_number(LAUNCHERS[i].count, RANKS_MAX, &count) && read_number(LAUNCHERS[i].index, RANKS_MAX, &index) &&
            index < count) {
            *out = (zoff_env_ranks){.count = count, .index = index, .launcher = LAUNCHERS[i].launcher};
            return;
        }
    }
}

static const struct {
    const char *launcher, *rank, *size, *only_with;
} WORLDS[] = {
#define E(id, launcher, rank, size, only_with) {launcher, rank, size, only_with},
    ZOFF_ENV_WORLD_LIST(E)
#undef E
};

static const char *text_of(const char *variable)
{
    const char *value = getenv(variable);
    return value && value[0] ? value : NULL;
}

bool zoff_base_env_world(zoff_env_world id, zoff_env_place *out)
{
    *out = (zoff_env_place){.launcher = WORLDS[id].launcher, .rank_name = WORLDS[id].rank, .size_name = WORLDS[id].size};
    if (WORLDS[id].only_with && !text_of(WORLDS[id].only_with))
        return false;
    out->rank = text_of(WORLDS[id].rank);
    out->size = text_of(WORLDS[id].size);
    return out->rank || out->size;
}

void zoff_base_env_meeting(zoff_env_meeting *out)
{
    const char *agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
    *out = (zoff_env_meeting){.address = text_of("MASTER_ADDR"),
                              .port = text_of("MASTER_PORT"),
                              .is_taken = agent && strcasecmp(agent, "true") == 0,
                              .nccl_comm_id = text_of("NCCL_COMM_ID"),
                              .local_rank = text_of("LOCAL_RANK")};
}

unsigned zoff_base_env_omp_threads(void)
{
    unsigned threads;
    return read_number("OMP_NUM_THREADS", RANKS_MAX, &threads) ? threads : 0;
}
